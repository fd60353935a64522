"""The badge next to the verdict: a sign and a word, so that its meaning needs no colour."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Badge", "badge"]

_SIGNS = {"finding": "▲", "no-finding": "✓", "inconclusive": "?"}
_WORDS = {"finding": "Finding", "no-finding": "No finding", "inconclusive": "Inconclusive"}


class Badge(NamedTuple):
    """``verdict`` is a CSS class, ``sign`` decoration, ``word`` the text, ``rest`` the sentence."""

    verdict: str
    sign: str
    word: str
    rest: str
    joined: str


def badge(verdict: str, sentence: str, *, word: str = "", sign: str = "") -> Badge:
    """Split a verdict's sentence: its first word becomes the badge if the sentence begins with it.

    A remark in brackets after the word belongs to the badge.

    >>> badge("finding", "Finding: tails contradict it.").rest
    'tails contradict it.'
    >>> badge("no-finding", "No finding (last bits excluded): we can show ε ≥ 1.").word
    'No finding (last bits excluded)'
    >>> badge("no-finding", "No attack beats chance.", word="Held")[1:4]
    ('✓', 'Held', 'No attack beats chance.')
    """
    kind = verdict if verdict in _WORDS else "inconclusive"
    said = word or _WORDS[kind]
    if remark := re.match(rf"{re.escape(said)} \([\w ]+\)(?=: )", sentence):
        said = remark[0]
    starts = sentence.startswith(f"{said}: ")
    rest = sentence[len(said) + 2 :] if starts else sentence
    return Badge(kind, sign or _SIGNS[kind], said, rest, ": " if starts else ". ")
