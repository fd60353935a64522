"""An audit of noisy measurement files in words and tables."""

from __future__ import annotations

from dpaudit.deployments.census.document import CensusDocument, Kind, NoiseGroup
from dpaudit.report import format as fmt
from dpaudit.report.tables import Column, sorted_tests
from dpaudit.results.text import one_line, printable

__all__ = [
    "CANNOT_SEE",
    "KIND_WORDS",
    "census_facts",
    "census_sentence",
    "census_title",
    "groups_table",
    "levels_table",
]

KIND_WORDS: dict[Kind, str] = {
    "zeros": "structural zeros",
    "totals": "exact totals",
    "sums": "parents minus children",
}
CANNOT_SEE = (
    "Noise that only the holder of a key can tell from honest noise (a pancake, noise that carries "
    "its own seed), and any flaw in cells whose true count is not known."
)
MOST_LINES = 400


def census_title(document: CensusDocument) -> str:
    """What was audited, by the first path given."""
    first = one_line(document.files[0], limit=200) if document.files else ""
    more = f" and {len(document.files) - 1} more" if len(document.files) > 1 else ""
    return f"Noisy measurement files, {first}{more}" if first else "Noisy measurement files"


def census_sentence(document: CensusDocument) -> str:
    """The verdict in a sentence."""
    found = [test for test in sorted_tests(document.tests) if test.finding]
    values = fmt.count(sum(group.values for group in document.groups if group.tested))
    tests = f"{len(document.tests)} test{'' if len(document.tests) == 1 else 's'}"
    if document.verdict == "inconclusive":
        return f"Inconclusive: {printable(document.reason, limit=600) or 'nothing was tested'}."
    if not found:
        return f"No finding: {tests} of {values} noise values do not contradict the stated law."
    first = printable(found[0].name, limit=200)
    more = f", and {len(found) - 1} more of {tests}" if len(found) > 1 else ""
    effect = printable(found[0].effect, limit=200)
    return f"Finding: {first} ({effect}){more}."


def census_facts(document: CensusDocument) -> list[tuple[str, str]]:
    """Names and values for the top of the page."""
    rho = sum(level.rho for level in document.levels)
    facts = [
        ("Files", fmt.count(sum(level.files for level in document.levels))),
        ("Noisy measurements", fmt.count(sum(level.measurements for level in document.levels))),
        ("Noise values seen", fmt.count(sum(group.values for group in document.groups))),
        ("Tests", fmt.count(len(document.tests))),
        ("α for all tests together", fmt.quantity(document.alpha)),
        ("ρ of the stated variances", fmt.quantity(rho)),
        ("Time", fmt.seconds(document.seconds)),
    ]
    return [(name, value) for name, value in facts if value != fmt.NOTHING]


def levels_table(document: CensusDocument) -> list[Column]:
    """One row per level of a product."""
    rows = document.levels[:MOST_LINES]
    return [
        Column("Level", [printable(r.level, limit=100) for r in rows]),
        Column("Product", [printable(r.product, limit=100) for r in rows]),
        Column("Files", [fmt.count(r.files) for r in rows], True),
        Column("Geographies", [fmt.count(r.geographies) for r in rows], True),
        Column("Queries", [fmt.count(r.queries) for r in rows], True),
        Column("Measurements", [fmt.count(r.measurements) for r in rows], True),
        Column("ρ", [fmt.quantity(r.rho) for r in rows], True),
    ]


def groups_table(document: CensusDocument) -> list[Column]:
    """One row per query of a level: the noise seen, and its scale against the stated one."""
    rows = document.groups[:MOST_LINES]
    return [
        Column("Level", [printable(r.level, limit=100) for r in rows]),
        Column("Query", [printable(r.query, limit=100) for r in rows]),
        Column("Noise from", [KIND_WORDS[r.kind] for r in rows]),
        Column("Geographies", [fmt.count(r.geographies) for r in rows], True),
        Column("Values", [fmt.count(r.values) for r in rows], True),
        Column("σ stated", [fmt.quantity(r.sigma) for r in rows], True),
        Column("Observed / stated [95 %]", [_ratio(r) for r in rows], True),
        Column("Farthest, in σ", [fmt.quantity(r.farthest, digits=3) for r in rows], True),
        Column("Tested", ["yes" if r.tested else "too few" for r in rows]),
    ]


def _ratio(group: NoiseGroup) -> str:
    low, high = fmt.number(group.interval.low), fmt.number(group.interval.high)
    return fmt.ranged(fmt.quantity(group.ratio), low, high)
