"""The reader who follows pages (`tests/documents.py`), and every page followed by it."""

from __future__ import annotations

import pytest
from documents import ROOT, Reader, commands, fences

RIGHT = {
    "a command": "```console\n$ echo one two\n```",
    "a code that the page says": "```console\n$ exit 3  # exits 3: on purpose\n```",
    "output that the page shows": "```console\n$ printf 'one\\n two  2.5 s\\nthree\\n'\n"
    "one\ntwo … s\n```",
    "output in a block of its own": "```console\n$ printf 'one\\ntwo\\n'\n```\n\n```text\ntwo\n```",
    "a command over two lines": "```console\n$ echo one \\\n    two\none two\n```",
    "a file that is used": "```python\n# kept/own.py\nprint(1 + 1)\n```\n\n"
    "```console\n$ python kept/own.py\n2\n```",
    "a script and what it prints": "```python\nprint(1 + 1)\n```\n\n```text\n2\n```",
    "a test": "```python\ndef test_it():\n    assert 1 + 1 == 2\n```",
    "a doctest": "```pycon\n>>> 1 + 1\n2\n```",
    "an experiment": """```toml
name = "own"
measure = "precision"
epsilon = 1
delta = 1e-5
[host]
name = "histogram"
[[source]]
name = "gaussian"
[grid]
dtype = "float64"
```""",
    "a plug-in's metadata": '```toml\n# pyproject.toml\n[project]\nname = "own"\n```',
    "something in the background": "```console\n"
    "$ python -c 'import time; print(1); time.sleep(60)' &\n```",
    "an indented block": "1. First\n\n   ```console\n   $ echo one\n   one\n   ```",
    "what is only to be read": "```sh\nfalse\n```\n\n```text\nfalse\n```",
    "a directive": "```{note}\nfalse\n```",
}
WRONG = {
    "a command that fails": ("```console\n$ false\n```", "exits 1, the page says 0"),
    "a finding that is none": ("```console\n$ true  # exits 1\n```", "exits 0, the page says 1"),
    "a command that is none": ("```console\n$ dpaudit audti\n```", "exits 2"),
    "a pipe that breaks": ("```console\n$ false | cat\n```", "exits 1"),
    "output that is another": ("```console\n$ echo one\ntwo\n```", "not printed: two"),
    "output in another order": (
        "```console\n$ printf 'one\\ntwo\\n'\ntwo\none\n```",
        "not printed: one",
    ),
    "a number that is another": (
        "```console\n$ echo 'p = 0.12'\np = 0.13\n```",
        "not printed: p = 0.13",
    ),
    "a script that raises": ("```python\nimport dpaudit.nothing\n```", "ModuleNotFoundError"),
    "a test that fails": ("```python\ndef test_it():\n    assert 1 + 1 == 3\n```", "exits 1"),
    "a script that prints something else": (
        "```python\nprint(1)\n```\n\n```text\n2\n```",
        "not printed: 2",
    ),
    "a file that is no Python": ("```python\n# own.py\ndef\n```", "SyntaxError"),
    "a doctest that fails": ("```pycon\n>>> 1 + 1\n3\n```", "Expected"),
    "an experiment with a typo": (
        '```toml\nname = "own"\nmeasure = "precison"\n```',
        "did you mean",
    ),
    "data that are none": ("```toml\nname =\n```", "TOMLDecodeError"),
    "a document that is none": ('```json\n{"a": }\n```', "JSONDecodeError"),
    "a language that nobody runs": ("```fish\ntrue\n```", "write text"),
    "a console block without a command": ("```console\ndpaudit demo\n```", "no command"),
    "a service that ends": ("```console\n$ false &\n```", "ended at once"),
    "a plug-in that is not there": ("```console\n$ pip install ./nowhere\n```", "exits 1"),
}

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1800)]


@pytest.fixture
def follow(tmp_path):
    def messages(page):
        with Reader(tmp_path) as reader:
            steps = list(reader.follow(page))
        return [message for *_, message in steps]

    return messages


@pytest.mark.parametrize("page", RIGHT.values(), ids=RIGHT)
def test_a_page_that_is_right(page, follow):
    assert [message for message in follow(page) if message is not None] == []


@pytest.mark.parametrize(("page", "says"), WRONG.values(), ids=WRONG)
def test_a_page_that_is_wrong(page, says, follow):
    messages = follow(page)
    assert any(says in message for message in messages if message is not None), messages


def test_every_block_of_the_readme_is_seen():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = fences(readme)
    assert sum(line.startswith("```") for line in readme.splitlines()) == 2 * len(blocks)
    typed = [
        command for block in blocks if block.language == "console" for command in commands(block)
    ]
    assert len(typed) == sum(line.startswith("$ ") for line in readme.splitlines())


# ---------------------------- every page of the documentation, and the README, is followed

PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md", "attacks/*.md", "mitigations/*.md")
    for path in ROOT.glob(pattern)
    if "_build" not in path.parts
)
WITH_BLOCKS = [name for name in PAGES if fences((ROOT / name).read_text(encoding="utf-8"))]


def test_there_is_something_to_follow():
    assert {"README.md", "docs/audit-your-sampler.md"} <= set(WITH_BLOCKS)


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_page(name, tmp_path):
    with Reader(tmp_path) as reader:
        steps = list(reader.follow((ROOT / name).read_text(encoding="utf-8")))
    wrong = [
        f"{name}:{line}: {what}\n{message}"
        for line, what, _, message in steps
        if message is not None
    ]
    assert not wrong, "\n\n".join(wrong)
    if name == "README.md":
        assert len(steps) >= 6
