"""The glossary, in the report as a section that its own prose links to.

The words are in ``glossary.md`` beside this module; ``docs/glossary.md`` is the same file.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.render.line_breaks import kept_whole

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Linker", "Term", "glossary", "glossary_text"]

_ENTRY = re.compile(r"^(?P<names>[^\n#:].*)\n: (?P<says>.+)$", re.MULTILINE)
_MARKUP = re.compile(r"[*`]")


class Term(NamedTuple):
    """An entry: its id on the page, its heading, the words that link to it, and what it says."""

    id: str
    heading: str
    words: tuple[str, ...]
    says: str


def glossary_text() -> str:
    """The glossary as Markdown: a definition list."""
    from importlib.resources import files

    return files("dpaudit.render").joinpath("glossary.md").read_text(encoding="utf-8")


@cache
def glossary() -> tuple[Term, ...]:
    """All entries, in order."""
    return tuple(
        _term(entry["names"], _MARKUP.sub("", entry["says"]))
        for entry in _ENTRY.finditer(glossary_text())
    )


def _term(heading: str, says: str) -> Term:
    """An entry; ``α (alpha)`` is linked as α and has ``alpha`` in its id."""
    sign, _, spoken = heading.partition(" (")
    words = tuple(word.strip() for word in sign.split(","))
    name = spoken.removesuffix(")") or words[0]
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return Term(f"term-{re.sub('[^a-z]+', '-', plain).strip('-')}", heading, words, says)


class Linker:
    """Links the first occurrence of each term on one page to its entry in the glossary.

    For dpaudit's own prose only. The text is escaped.
    """

    def __init__(self) -> None:
        self._left = {word.lower(): term.id for term in glossary() for word in term.words}
        longest = sorted(self._left, key=len, reverse=True)
        words = "|".join(map(re.escape, longest))
        self._pattern = re.compile(rf"(?<![\w-])({words})s?(?![\w-])", re.IGNORECASE)

    def __call__(self, text: str) -> Markup:
        from markupsafe import Markup

        parts, at = [], 0
        for match in self._pattern.finditer(text):
            place = self._left.get(match[1].lower())
            if place is None:
                continue
            for word in [word for word, to in self._left.items() if to == place]:
                del self._left[word]
            parts += [kept_whole(text[at : match.start()])]
            parts += [Markup('<a class="term" href="#{}">{}</a>').format(place, match[0])]
            at = match.end()
        return Markup("").join([*parts, kept_whole(text[at:])])
