"""The badge next to the verdict: a sign and a word, so that its meaning needs no colour."""

from __future__ import annotations

import re
from typing import NamedTuple

from dpaudit.report import Report

__all__ = ["Badge", "badge", "headline"]

_SIGNS = {"finding": "▲", "no-finding": "✓", "inconclusive": "?"}
_WORDS = {"finding": "Finding", "no-finding": "No finding", "inconclusive": "Inconclusive"}


class Badge(NamedTuple):
    """``verdict`` is a CSS class, ``sign`` decoration, ``word`` the text, ``rest`` the sentence."""

    verdict: str
    sign: str
    word: str
    rest: str
    joined: str


def headline(report: Report, *, where: str) -> str:
    """The verdict in one sentence; of a pass also ``where`` its blind spots are; remarks."""
    sentence = report.headline
    if report.verdict == "no-finding" and report.blind_spots:
        sentence = f"{sentence.rstrip('.')}; what this cannot exclude is {where}."
    return " ".join([sentence, *report.remarks])


def badge(report: Report, *, where: str) -> Badge:
    """Split a verdict's sentence: its first word becomes the badge if the sentence begins with it.

    A remark in brackets after the word belongs to the badge.
    """
    sentence = headline(report, where=where)
    said = report.badge or _WORDS[report.verdict]
    if remark := re.match(rf"{re.escape(said)} \([\w ]+\)(?=: )", sentence):
        said = remark[0]
    starts = sentence.startswith(f"{said}: ")
    rest = sentence[len(said) + 2 :] if starts else sentence
    sign = report.sign or _SIGNS[report.verdict]
    return Badge(report.verdict, sign, said, rest, ": " if starts else ". ")
