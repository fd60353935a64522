"""Where a line of the page may break: within long identifiers, not in ``--option``, ``ε ≥ 1``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["breakable", "kept_whole"]

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
