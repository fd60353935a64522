"""What each test looks at and what its finding means: the pages of ``dpaudit explain``.

A plug-in's page is the Markdown file ``explanations/NAME.md`` next to the module of its class, with
a section for each of :data:`SECTIONS`. A plug-in without one is explained by its class's docstring.
Nothing is imported. Counts and bets that are no plug-ins have their pages next to their modules.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from dpaudit import registry
from dpaudit.errors import UnknownNameError
from dpaudit.interfaces import GAMES
from dpaudit.results.text import one_line
from dpaudit.source_reading import definition, source_file

__all__ = [
    "SECTIONS",
    "Explanation",
    "Topic",
    "attack_topic",
    "explain",
    "topic_of",
    "topics",
]

SECTIONS = (
    "What it looks at",
    "What a finding means",
    "Typical causes",
    "What to do",
    "What it cannot see",
    "Source",
)
"""The headings of a page, in order."""

_OWN = {
    "bets": ("audit", "dpaudit.audit.betting:Betting"),
    "event": ("mechanism", "dpaudit.audit.epsilon.judge:Learned"),
    "low-bits": ("mechanism", "dpaudit.audit.epsilon.judge:Learned"),
    "learned-score": ("mechanism", "dpaudit.audit.epsilon.judge:Learned"),
    "trade-off-curve": ("mechanism", "dpaudit.audit.epsilon.judge:Learned"),
    "one-run": ("mechanism", "dpaudit.audit.epsilon.one_run:OneRun"),
}
"""What is no plug-in: the command that uses it, and what it is about."""
_COUNTED = " neighbour over "  # in the name of every count of releases
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Topic:
    """Something with a page, and the command whose results it appears in."""

    name: str
    command: str
    distribution: str
    target: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A page: a summary, then headings with their text, all Markdown."""

    name: str
    summary: str
    sections: tuple[tuple[str, str], ...] = ()


def topic_of(test: str) -> str:
    """The topic of a test, by the test's name in a result.

    >>> topic_of("low bits, first neighbour over second"), topic_of("bet on the scale")
    ('low-bits', 'bets')
    >>> topic_of("timing"), topic_of("timing, first neighbour over second")
    ('timing', 'timing-attack')
    """
    if test.startswith("bet on "):
        return "bets"
    name = re.sub(r"[^\w.]+", "-", test.partition(",")[0]).strip("-").lower()
    return attack_topic(name) if _COUNTED in test else name


def topics() -> dict[str, Topic]:
    """All topics by name: the tests of samplers, and what mechanisms and attacks are judged by."""
    found = [Topic(name, command, "dpaudit", target) for name, (command, target) in _OWN.items()]
    for kind in ("tests", "attacks"):
        for name, plugin in registry.plugins(kind).items():
            where = f"{plugin.origin.distribution} {plugin.origin.version}"
            if kind == "tests":
                found.append(Topic(name, "audit", where, plugin.target))
            elif _of_mechanisms(plugin):
                found.append(Topic(attack_topic(name), "mechanism", where, plugin.target))
    return {topic.name: topic for topic in sorted(found, key=lambda t: (t.command, t.name))}


def explain(test: str) -> Explanation:
    """The page of a topic, or of a test by its whole name in a result.

    Raises:
        UnknownNameError: there is none of that name (with the nearest one).
    """
    known = topics()
    name = test if test in known else topic_of(test)
    if name not in known:
        raise UnknownNameError(
            f"test={one_line(test, limit=200)}: not known{registry.nearest(test, known)}"
        )
    target = known[name].target
    page = _page(target.partition(":")[0], name)
    if page is None:
        return Explanation(name, _docstring(target) or "It has no description.")
    summary, *rest = _HEADING.split(page.read_text(encoding="utf-8"))
    texts = zip(rest[::2], rest[1::2], strict=True)
    return Explanation(name, summary.strip(), tuple((h.strip(), t.strip()) for h, t in texts))


def _page(module: str, name: str) -> Path | None:
    try:
        page = source_file(module).parent / "explanations" / f"{name}.md"
    except (ImportError, StopIteration, ValueError):
        return None
    return page if page.is_file() else None


def _docstring(target: str) -> str:
    module, _, name = target.partition(":")
    try:
        _, defined = definition(module, name)
    except LookupError:
        return ""
    if not isinstance(defined, ast.ClassDef | ast.FunctionDef):
        return ""
    return ast.get_docstring(defined) or ""


def attack_topic(name: str) -> str:
    """The topic of an attack: its name, unless a test of samplers has the same."""
    return f"{name}-attack" if name in registry.plugins("tests") else name


def _of_mechanisms(plugin: registry.Plugin) -> bool:
    played = registry.declared(plugin).get("games", ())
    return any(
        "dpaudit mechanism --attack" in GAMES[game].used_by for game in played if game in GAMES
    )
