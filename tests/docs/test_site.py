"""The site: what a browser copies and finds, its mathematics, and its page of commands."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.chromium import CHROMIUM, NEEDED, sync_api

pytest.importorskip("sphinx")
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
def browser():
    with sync_api.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium.new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
        chromium.close()


@pytest.mark.browser
@NEEDED
def test_a_button_copies_what_a_reader_types(site, browser):
    browser.goto((site / "index.html").as_uri())
    copied = []
    for button in browser.query_selector_all("button.copy"):
        button.click()
        browser.wait_for_function("(b) => b.textContent === 'Copied'", arg=button)
        copied.append(browser.evaluate("navigator.clipboard.readText()"))
    assert copied == [
        "dpaudit audit x \\\n    --claim y\necho 'a # b'",
        "x = 1  # kept",
        "f(\n    1)",
    ]


@pytest.mark.browser
@NEEDED
def test_a_search_from_disk_shows_the_words_around(site, browser):
    browser.goto((site / "search.html").as_uri() + "?q=pomegranate")
    snippet = browser.wait_for_selector("#search-results p.context", timeout=10_000)
    assert "Nothing but a pomegranate." in snippet.text_content()


# ---------------------------------------------------------------- what the extensions write


def extension(name):
    spec = importlib.util.spec_from_file_location(f"site_{name}", DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mathml():
    return extension("mathml")


@pytest.fixture(scope="module")
def commands():
    """The page of commands keeps what a reader copies as code: examples, columns, options."""
    return extension("commands").described()


FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


def words(math):
    return re.sub(r"\s+", "", math)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (r"\tfrac12 x", r"\tfrac{1}{2} x"),
        (r"\frac12^\varepsilon P_0", r"\frac{1}{2}^{\varepsilon} P_{0}"),
        (r"\frac1{2n}", r"\frac{1}{2n}"),
        (r"\frac{a}2b", r"\frac{a}{2}b"),
        (r"\frac pq r", r"\frac{p}{q}r"),
        (r"\frac\alpha2", r"\frac{\alpha}{2}"),
        (r"\binom nk", r"\binom{n}{k}"),
        (r"x^10 + y_ij", r"x^{1}0 + y_{i}j"),
        (r"\sqrt2\pi", r"\sqrt{2}\pi"),
        (r"2\sqrt{\tfrac12 n}", r"2\sqrt{\tfrac{1}{2} n}"),
        (r"1, \dots, n", r"1, \ldots, n"),
    ],
)
def test_one_character_is_an_argument(mathml, short, long):
    assert words(mathml.converted(short, block=False)) == words(mathml.converted(long, block=False))


def test_lines_are_aligned(mathml):
    bare = mathml.converted(r"a &= b \\ c &= d", block=True)
    assert bare.count("<mtr>") == 2
    assert mathml.converted(r"\begin{align*} a &= b \\ c &= d \end{align*}", block=True) == bare


@pytest.mark.parametrize(
    "tex", [r"\nosuchcommand x", r"\frac{1", r"\begin{nowhere} x \end{nowhere}", r"\left( x"]
)
def test_what_cannot_be_shown_is_an_error(mathml, tex):
    from docutils.utils.math import MathError

    with pytest.raises((MathError, SyntaxError)):
        mathml.converted(tex, block=True)


def test_examples_and_columns_keep_their_lines(commands):
    blocks = FENCED.findall(commands)
    assert ("console", "$ dpaudit demo\n$ dpaudit demo --out first --also junit\n") in blocks
    columns = [text for language, text in blocks if language == "text"]
    assert any("library:./libnoise.so:SYMBOL  void f(" in text for text in columns)
    prose = FENCED.sub("", commands)
    assert "$ dpaudit" not in prose
    assert not re.search(r"^[^-\n].*\S {2,}\S", prose, re.M)


def test_options_are_code_with_both_hyphens(commands):
    prose = re.sub(r"`[^`\n]*`", "", FENCED.sub("", commands))
    assert re.findall(r"--[a-z]\S*", prose) == []
    assert "needs `--out`." in commands
