"""What the page and the notebook's card are made with: templates, line breaks, the glossary.

A line may break within long identifiers, not in ``--option`` or ``ε ≥ 1``. The glossary is a
section of the report that its own prose links to; its words are in ``glossary.md`` beside this
module, and ``docs/glossary.md`` includes them.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.render.parts import width_of

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

__all__ = ["Linker", "Term", "breakable", "get_template", "glossary", "glossary_text", "kept_whole"]

_WHOLE = re.compile(r"(?<![\w-])--\w[\w-]*|\b[αδεμ] [≥≤=] [\d.e+-]*\d")
_LONG_WORD = re.compile(r"\S{16,}")
_JOINT = re.compile(r"(?<=\w)[./:_,=+]+(?=\w)")


def kept_whole(text: str) -> Markup:
    """The text, escaped, with every ``--option`` and ``ε ≥ 1.5`` on one line."""
    from markupsafe import Markup, escape

    return Markup(_WHOLE.sub(r'<span class="whole">\g<0></span>', str(escape(text))))  # noqa: S704


def breakable(text: str) -> Markup:
    """The text, escaped, with words of 16 letters or more that may break after ``.``, ``:`` ….

    What is selected, searched and copied is the text itself.
    """
    from markupsafe import Markup

    parts, at = [], 0
    for word in _LONG_WORD.finditer(text):
        parts.append(kept_whole(text[at : word.start()]))
        ends = [joint.end() for joint in _JOINT.finditer(word[0])]
        cuts = zip([0, *ends], [*ends, len(word[0])], strict=True)
        parts.append(Markup("<wbr>").join(word[0][a:b] for a, b in cuts))
        at = word.end()
    return Markup("").join([*parts, kept_whole(text[at:])])


@cache
def get_template(name: str) -> Template:
    """The template ``name`` of this package; it escapes every value and refuses undefined ones."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        loader=PackageLoader("dpaudit.render", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "kept_whole": kept_whole, "look": width_of}
    return environment.get_template(name)


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


def _term(heading: str, meaning: str) -> Term:
    """An entry; ``α (alpha)`` is linked as α and has ``alpha`` in its id."""
    sign, _, spoken = heading.partition(" (")
    signs = tuple(word.strip() for word in sign.split(","))
    name = spoken.removesuffix(")") or signs[0]
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return Term(f"term-{re.sub('[^a-z]+', '-', plain).strip('-')}", heading, signs, meaning)


class Linker:
    """Links the first occurrence of each term on one page to its entry in the glossary.

    For dpaudit's own prose only. The text is escaped.
    """

    def __init__(self) -> None:
        self._left = {word.lower(): term.id for term in glossary() for word in term.words}
        longest = sorted(self._left, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest))
        self._pattern = re.compile(rf"(?<![\w-])({pattern})s?(?![\w-])", re.IGNORECASE)

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
