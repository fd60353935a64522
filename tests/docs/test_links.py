"""Every relative link in the documents leads to something, and every anchor to a heading."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from documents import ROOT, fences

PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "examples/**/README.md",
    "attacks/**/*.md",
    "mitigations/**/*.md",
)
PAGES = sorted(path for one in PATTERNS for path in ROOT.glob(one) if "_build" not in path.parts)
LINK = re.compile(
    r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^()\s>]+(?:\([^()]*\))?)>?(?:\s+\"[^\"]*\")?\)"
)


def prose(text: str, *, spans: bool = False) -> str:
    """A page without its fenced blocks and, but for headings, its code ``spans``."""
    lines = text.splitlines()
    for fence in fences(text):
        for i in range(fence.line - 1, min(len(lines), fence.line + fence.text.count("\n") + 2)):
            lines[i] = ""
    left = "\n".join(lines)
    return left if spans else re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", left, flags=re.S)


def anchors(text: str) -> set[str]:
    """What GitHub and the site call a page's headings."""
    found: Counter[str] = Counter()
    names = set()
    for line in prose(text, spans=True).splitlines():
        heading = re.match(r"#{1,6} +(.*?) *#*$", line)
        if heading:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
            found[slug] += 1
    return names


def broken(page: Path, text: str) -> list[str]:
    """The relative links of ``text``, which lies at ``page``, that lead nowhere."""
    out = []
    for link in LINK.findall(prose(text)):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve()
        if path and not (target.exists() and ROOT in target.parents):
            out.append(f"{link}: no such file")
        elif anchor:
            there = text if not path else ""
            if path and target.suffix == ".md":
                there = target.read_text(encoding="utf-8")
            out.extend([f"{link}: no such heading"] if anchor not in anchors(there) else [])
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[a](docs/studies/results/README.md)", 0),
        ("[a](#own-one) and [b](#own-one-1)\n\n## Own `one`\n\n## Own one", 0),
        ("[a](attacks/README.md#without-the-key-keyless)", 0),
        ("`[a](nowhere.md)`\n\n```text\n[a](nowhere.md)\n```", 0),
        ("[a](https://example.org/nowhere)", 0),
        ("[a](nowhere.md)", 1),
        ("![a](docs/nowhere.svg) [`b`](docs/nowhere.py)", 2),
        ("[a](README.md#no-such-heading)", 1),
        ("[a](#nor-here)\n\n```sh\n# Nor here\n```", 1),
        ("[a](Makefile#nor-here)", 1),
        ("[a](../outside.md)", 1),
    ],
)
def test_a_broken_link_is_seen(text, count):
    assert len(broken(ROOT / "page.md", text)) == count
