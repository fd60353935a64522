"""What each test looks at and what its finding means: the pages of ``dpaudit explain``.

A plug-in's page is the Markdown file ``explanations/NAME.md`` next to the module of its class, with
a section for each of :data:`SECTIONS`; it is found without an import. A plug-in without one is
explained by its class's docstring. Counts and bets that are no plug-ins have their pages next to
their modules.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from dpaudit import registry
from dpaudit.errors import UnknownNameError
from dpaudit.results.text import one_line

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

_JUDGED = ("mechanism", "dpaudit.audit.epsilon.judge")
_OWN = {
    "bets": ("audit", "dpaudit.audit.betting"),
    "event": _JUDGED,
    "low-bits": _JUDGED,
    "learned-score": _JUDGED,
    "trade-off-curve": _JUDGED,
    "one-run": _JUDGED,
}
"""What is no plug-in: the command that uses it, and the module that it is in."""
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
    """All topics by name: the tests of samplers, and what mechanisms and attacks are judged by.

    Of attacks those with a page.
    """
    found = [Topic(name, command, "dpaudit", target) for name, (command, target) in _OWN.items()]
    for name, plugin in registry.plugins("tests").items():
        found.append(_topic(name, "audit", plugin))
    for name, plugin in registry.plugins("attacks").items():
        if _page(plugin.target, attack_topic(name)) is not None:
            found.append(_topic(attack_topic(name), "mechanism", plugin))
    return {topic.name: topic for topic in sorted(found, key=lambda t: (t.command, t.name))}


def _topic(name: str, command: str, plugin: registry.Plugin) -> Topic:
    origin = plugin.origin
    return Topic(name, command, f"{origin.distribution} {origin.version}", plugin.target)


def explain(test: str) -> Explanation:
    """The page of a topic, or of a test by its whole name in a result.

    Raises:
        UnknownNameError: there is none of that name (with the nearest one).
    """
    known = topics()
    name = test if test in known else topic_of(test)
    if name in known and (page := _page(known[name].target, name)) is not None:
        summary, *rest = _HEADING.split(page.read_text(encoding="utf-8"))
        texts = zip(rest[::2], rest[1::2], strict=True)
        return Explanation(name, summary.strip(), tuple((h.strip(), t.strip()) for h, t in texts))
    plugins = {attack_topic(n): p for n, p in registry.plugins("attacks").items()}
    plugin = (plugins | registry.plugins("tests")).get(name)
    if plugin is None:
        raise UnknownNameError(
            f"test={one_line(test, limit=200)}: not known{registry.nearest(test, known)}"
        )
    return Explanation(name, _docstring(plugin) or "It has no description.")


def _page(target: str, name: str) -> Path | None:
    """The page next to a module, found without importing the module or its parents."""
    top, *below = target.partition(":")[0].split(".")
    try:
        spec = importlib.util.find_spec(top)  # finding anything deeper would import the parents
    except (ImportError, ValueError):
        return None
    places = [Path(place, *below) for place in (spec and spec.submodule_search_locations) or ()]
    if spec and spec.origin and not below:
        places.append(Path(spec.origin))
    folders = (folder for place in places for folder in (place.parent, place))
    pages = (folder / "explanations" / f"{name}.md" for folder in folders)
    return next((page for page in pages if page.is_file()), None)


def _docstring(plugin: registry.Plugin) -> str:
    try:
        return registry.documented(plugin)
    except (Exception, SystemExit):  # noqa: BLE001 a third party's module can raise anything
        return ""


def attack_topic(name: str) -> str:
    """The topic of an attack: its name, unless a test of samplers has the same."""
    return f"{name}-attack" if name in registry.plugins("tests") else name
