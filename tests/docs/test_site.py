"""The documentation as a site, read from disk in a real browser: what is copied, what is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.chromium import CHROMIUM, NEEDED, sync_api

pytest.importorskip("sphinx")
pytestmark = [pytest.mark.browser, NEEDED]
DOCS = Path(__file__).parents[2] / "docs"
CONF = f"""
import sys
sys.path.append({str(DOCS / "_ext")!r})
extensions = ["myst_parser", "offline_search"]
html_theme = "furo"
html_static_path = [{str(DOCS / "_static")!r}]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
"""
PAGE = r"""
# First

## Then

Nothing but a pomegranate.

```console
$ dpaudit audit x \
    --claim y  # exits 1: no comment is typed
Finding: $ 5 \
lost
$ echo 'a # b'
```

```python
x = 1  # kept
```

```pycon
>>> f(
...     1)
1
```

```text
only to be read
```
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    (source / "conf.py").write_text(CONF, encoding="utf-8")
    (source / "index.md").write_text(PAGE, encoding="utf-8")
    built = source / "built"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(source), str(built)]
    subprocess.run(command, check=True)
    return built


@pytest.fixture(scope="module")
def page():
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
        browser.close()


def test_a_button_copies_what_a_reader_types(site, page):
    page.goto((site / "index.html").as_uri())
    copied = []
    for button in page.query_selector_all("button.copy"):
        button.click()
        page.wait_for_function("(b) => b.textContent === 'Copied'", arg=button)
        copied.append(page.evaluate("navigator.clipboard.readText()"))
    assert copied == [
        "dpaudit audit x \\\n    --claim y\necho 'a # b'",
        "x = 1  # kept",
        "f(\n    1)",
    ]


def test_a_search_from_disk_shows_the_words_around(site, page):
    page.goto((site / "search.html").as_uri() + "?q=pomegranate")
    snippet = page.wait_for_selector("#search-results p.context", timeout=10_000)
    assert "Nothing but a pomegranate." in snippet.text_content()
