"""What a finding means for the people in the data, and what to do: the harms that tests declare.

A test names its harm where it is defined: ``harm = "strength"``. A plug-in may also give a
:class:`Harm` of its own.

Findings and blind spots are placed in the differential privacy pyramid of NIST SP 800-226 (final,
March 2025): nine components, each in one of three sections. Their names and sections are those of
the publication. Which component a test belongs to is our judgement.

The page of a test for ``dpaudit explain`` is the Markdown file ``explanations/NAME.md`` next to the
module of its class, with a section for each of :data:`SECTIONS`; it is found without an import. A
plug-in without one is explained by its class's docstring. Counts and bets that are no plug-ins have
their pages next to their modules.
"""

from __future__ import annotations

import importlib.util
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpaudit import registry, wording
from dpaudit.errors import UnknownNameError
from dpaudit.report import Check, Hazard, Meaning
from dpaudit.results.text import one_line

__all__ = [
    "ALGORITHMS",
    "COMPONENTS",
    "HARMS",
    "PARAMETERS",
    "SECTIONS",
    "SIDE_CHANNELS",
    "TRUST",
    "UNIT",
    "Explanation",
    "Harm",
    "Pyramid",
    "Topic",
    "attack_topic",
    "explain",
    "meaning_of_findings",
    "no_verdict",
    "odds_text",
    "page_of",
    "topic_of",
    "topics",
]

PARAMETERS = "Privacy parameters"
UNIT = "Unit of privacy"
ALGORITHMS = "Algorithms and correctness"
TRUST = "Trust models"
SIDE_CHANNELS = "Side channels"

COMPONENTS = (
    (PARAMETERS, 2),
    (UNIT, 2),
    (ALGORITHMS, 3),
    ("Utility", 3),
    ("Bias", 3),
    ("Access control", 4),
    (TRUST, 4),
    (SIDE_CHANNELS, 4),
    ("Data collection exposure", 4),
)
"""The components of the pyramid with their sections, from the top down."""


class Pyramid:
    """Collects what was found in each component, and what is not excluded there."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}
        self._open: dict[str, list[str]] = {}

    def add(self, component: str, finding: str) -> None:
        """Something was found in ``component``."""
        self._found.setdefault(component, []).append(finding)

    def leave_open(self, component: str, flaw: str) -> None:
        """``flaw`` in ``component`` is not excluded."""
        self._open.setdefault(component, []).append(flaw)

    def hazards(self) -> tuple[Hazard, ...]:
        """The components that something was said of, from the top down."""
        return tuple(
            Hazard(
                component=name,
                found=tuple(self._found.get(name, ())),
                open=tuple(self._open.get(name, ())),
            )
            for name, _ in COMPONENTS
            if name in self._found or name in self._open
        )


_MANY_TO_ONE = 1e6
"""Odds and numbers of audits above this are told as "more than a million"."""


@dataclass(frozen=True, slots=True)
class Harm:
    """A kind of harm: a heading, who is harmed how, what to do, and the NIST component."""

    heading: str
    harm: str
    todo: str
    component: str = ALGORITHMS


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HARMS: Mapping[str, Harm] = {name: Harm(**texts) for name, texts in _TABLE.items()}
"""All kinds of harm, by the name that a test declares as its ``harm``."""

_SOME_DIRECTION = Harm(
    "The noise differs along some direction",
    "along one direction the noise is not as claimed, which noise of another strength or law does "
    "as well as a structure that somebody can read data through",
    "Correct what is above, then audit again: if this alone is left, treat it as a possible "
    "backdoor.",
)


def meaning_of_findings(
    checks: Sequence[Check], *, honest: str, claimed: float = math.inf
) -> tuple[Meaning, ...]:
    """One paragraph per kind of harm among the findings, in the order of ``checks``.

    ``honest`` is what would seldom look like this, ``claimed`` the ε of a mechanism.
    """
    by_harm: dict[str, list[Check]] = {}
    for check in checks:
        if check.outcome == "finding":
            by_harm.setdefault(check.harm if check.harm in HARMS else "other", []).append(check)
    first = next(iter(by_harm), "")
    return tuple(
        _meaning(_harm(name, findings, first), findings, honest=honest, claimed=claimed)
        for name, findings in by_harm.items()
    )


def no_verdict() -> Meaning:
    """What an inconclusive audit means."""
    statement = (
        "The audit ended without a verdict: this is neither a pass nor a finding. Remove the "
        "cause that the sentence above names, and repeat the audit."
    )
    return Meaning(heading="No verdict", says=statement)


def _harm(name: str, findings: Sequence[Check], first: str) -> Harm:
    """The harm; a direction with other noise, after something else, is mostly its consequence."""
    if name == "hidden" != first and all(c.name == "hidden-direction" for c in findings):
        return _SOME_DIRECTION
    return HARMS[name]


def _meaning(harm: Harm, findings: Sequence[Check], *, honest: str, claimed: float) -> Meaning:
    statement = harm.harm or _harm_of_epsilon(findings, claimed) or HARMS["other"].harm
    if harm is HARMS["strength"]:
        statement = _direction(findings) or statement
    statement = statement[:1].upper() + statement[1:]
    if honest:
        least = min((c.p_adjusted for c in findings if c.p_adjusted is not None), default=0.0)
        statement += f"; {honest} would look like this in {_sure(least)}"
    return Meaning(
        heading=harm.heading,
        says=f"{statement}. {harm.todo}",
        found="; ".join(dict.fromkeys(c.name for c in findings)),
        topics=tuple(dict.fromkeys(c.topic for c in findings if c.topic)),
    )


def _direction(findings: Sequence[Check]) -> str:
    """Which way the strength differs, if the interval of a scale says it."""
    scale = next((c.interval for c in findings if c.name == "moments" and c.unit), None)
    if scale is None or not (math.isfinite(scale.low) and math.isfinite(scale.high)):
        return ""
    if 0 < scale.high < 1:
        return "the noise is weaker than claimed, so each person is less protected than promised"
    if scale.low > 1:
        return (
            "the noise is stronger than claimed, which costs accuracy but does not by itself "
            "reduce privacy"
        )
    return ""


def _sure(p: float) -> str:
    """How sure, for a reader without statistics: in how many audits chance alone does this.

    >>> _sure(0.004), _sure(1e-30)
    ('at most 1 of 250 audits', 'less than one of a million audits')
    """
    if not p > 1 / _MANY_TO_ONE:
        return "less than one of a million audits"
    return f"at most 1 of {math.floor(1 / p):,} audits"


def _harm_of_epsilon(findings: Sequence[Check], claimed: float) -> str:
    bounds = (c.interval.low if c.interval else c.statistic for c in findings if c.unit == "ε")
    largest = max((bound for bound in bounds if bound is not None), default=0.0)
    if not largest > claimed:
        return ""
    return (
        "whoever sees a release can tell data with a person from data without them better than "
        f"claimed: {odds_text(largest)}, where the claim allows {_ratio(claimed)} : 1"
    )


def odds_text(epsilon: float) -> str:
    """What ε does to even odds, in words."""
    return f"odds of 1 : 1 can become {_ratio(epsilon)} : 1"


def _ratio(epsilon: float) -> str:
    """e^ε, to two digits, rounded down.

    >>> _ratio(1.0), _ratio(0.1), _ratio(20.0)
    ('2.7', '1.1', 'more than a million')
    """
    if epsilon >= math.log(_MANY_TO_ONE):
        return "more than a million"
    odds = math.exp(epsilon)
    step = 10.0 ** (math.floor(math.log10(odds)) - 1)
    return wording.quantity(math.floor(odds / step + 1e-9) * step)


SECTIONS = (
    "What it looks at",
    "What a finding means",
    "Typical causes",
    "What to do",
    "What it cannot see",
    "Source",
)
"""The headings of a page, in order."""

_JUDGED = ("mechanism", "dpaudit.audit.mechanism.judge")
_OWN = {
    "bets": ("audit", "dpaudit.audit.betting.noise"),
    "event": _JUDGED,
    "low-bits": _JUDGED,
    "learned-score": _JUDGED,
    "trade-off-curve": _JUDGED,
    "one-run": _JUDGED,
    "replay": ("replay", "dpaudit.audit.replay.judge"),
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
    pages = [Topic(name, command, "dpaudit", target) for name, (command, target) in _OWN.items()]
    for name, plugin in registry.plugins("tests").items():
        pages.append(_topic(name, "audit", plugin))
    for name, plugin in registry.plugins("attacks").items():
        if _page(plugin.target, attack_topic(name)) is not None:
            pages.append(_topic(attack_topic(name), "mechanism", plugin))
    return {topic.name: topic for topic in sorted(pages, key=lambda t: (t.command, t.name))}


def _topic(name: str, command: str, plugin: registry.Plugin) -> Topic:
    origin = plugin.origin
    return Topic(name, command, f"{origin.distribution} {origin.version}", plugin.target)


def explain(test: str) -> Explanation:
    """The page of a topic, or of a test by its whole name in a result.

    Raises:
        UnknownNameError: there is none of that name (with the nearest one).
    """
    pages = topics()
    name = test if test in pages else topic_of(test)
    if (page := page_of(name)) is not None:
        return page
    plugins = {attack_topic(n): p for n, p in registry.plugins("attacks").items()}
    plugin = (plugins | registry.plugins("tests")).get(name)
    if plugin is None:
        raise UnknownNameError(
            f"test={one_line(test, limit=200)}: not known{registry.nearest(test, pages)}"
        )
    return Explanation(name, _docstring(plugin) or "It has no description.")


def page_of(topic: str) -> Explanation | None:
    """The page of a topic, if it has one; imports nothing."""
    pages = topics().get(topic)
    page = _page(pages.target, topic) if pages else None
    if page is None:
        return None
    summary, *rest = _HEADING.split(page.read_text(encoding="utf-8"))
    texts = zip(rest[::2], rest[1::2], strict=True)
    return Explanation(topic, summary.strip(), tuple((h.strip(), t.strip()) for h, t in texts))


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
        return registry.docstring_of(plugin)
    except (Exception, SystemExit):  # noqa: BLE001 a third party's module can raise anything
        return ""


def attack_topic(name: str) -> str:
    """The topic of an attack: its name, unless a test of samplers has the same."""
    return f"{name}-attack" if name in registry.plugins("tests") else name
