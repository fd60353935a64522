"""A compiled sampler's values as a function of coins: which coins reach which value.

The sampler runs again and again with coins of the auditor's: first with the same coins and another
clock, process number, memory and environment, then with a few coins replaced. Each difference is a
counterexample that can be run again. What is equal in all runs is shown for these coins only;
`scan` adds what holds for all: which instructions and imports could bring in anything else.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from dpaudit import provenance, wording
from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.harms import ALGORITHMS, TRUST, Pyramid
from dpaudit.provenance import file_facts
from dpaudit.report import (
    Block,
    Check,
    Column,
    Facts,
    Meaning,
    Report,
    Section,
    Table,
    Text,
    open_spots,
    with_verdict,
)
from dpaudit.results.text import one_line
from dpaudit.types import Verdict
from dpaudit_prove.describe import command_of, fields_of, uncovered_section
from dpaudit_prove.determinism.driver import Coins, Driver, Run, Scenario, Value, driver, scan
from dpaudit_prove.results import (
    CoinBytes,
    DeterminismResult,
)

__all__ = ["describe_determinism", "determinism"]

_TAPES = 4
_OTHERS = 3
_REPLACED_TAPES = 2
_MOST_UNITS = 256
_SOURCES = {"getrandom", "getentropy", "arc4random", "rdrand", "rdseed"}
_CLOCKS = {"clock_gettime", "timespec_get", "gettimeofday", "time", "clock", "rdtsc"}
_NUMBERS = {"getpid", "getppid", "gettid"}


def _with_same_coins(tape: Scenario, calls: int) -> list[tuple[str, Scenario]]:
    """Runs that must give the same values."""
    return [
        ("in a second process", tape),
        ("at another time", replace(tape, clock=tape.clock + 123_456_789_012_345)),
        ("under another process number", replace(tape, process=98_765)),
        ("if fresh memory holds something else", replace(tape, fill=164)),
        ("if fresh memory or the environment differs", replace(tape, fill=1)),
        *(("without the calls before", replace(tape, first=call)) for call in range(1, calls)),
    ]


_NOT_COVERED = (
    "coins that were not tried: a branch that they never took",
    "the law of the values: whether they follow what is claimed",
    "code that the library loads or writes while it runs",
    "the C library and the processor",
)


def determinism(
    library: Path, symbol: str, *, calls: int = 4, dim: int = 4, timeout: float = 120.0
) -> DeterminismResult:
    """Run ``void symbol(double *out, size_t n, size_t d)`` with n = 1, d = ``dim``.

    Formal guarantee: see :class:`~dpaudit_prove.results.DeterminismResult`.

    Raises:
        UsageError: no such library; no compiler or binutils; ``calls`` or ``dim`` out of range.
        SamplerError: the sampler failed, or took longer than ``timeout`` seconds.
    """
    if not library.is_file():
        raise UsageError(f"library={one_line(library)}: no such file")
    if not 2 <= calls <= 64 or not 1 <= dim <= 64:
        raise UsageError(f"calls={calls}, dim={dim}: must be 2 to 64 calls of 1 to 64 values")
    begun = time.monotonic()
    contents = scan(library)
    with driver(
        library, symbol, calls=calls, dim=dim, random_instructions=contents.random_instructions
    ) as run:
        check = _Check(run, timeout)
        coins, sources = check.run()
    uncontrolled = (*contents.not_controlled, *_uncontrolled(sources), *check.open)
    return DeterminismResult(
        verdict="finding" if check.findings else "inconclusive" if uncontrolled else "no-finding",
        library=one_line(library),
        symbol=one_line(symbol),
        findings=tuple(check.findings),
        not_controlled=uncontrolled,
        coin_bytes=coins,
        shared=check.shared,
        sources=sources,
        runs=check.runs,
        cannot_rule_out=_NOT_COVERED,
        seconds=time.monotonic() - begun,
        provenance=provenance.collect(seed="fixed tapes 1 to 4", plugins=()),
    )


class _Check:
    """The runs of one sampler, and what is found on the way."""

    def __init__(self, driver: Driver, timeout: float) -> None:
        self._driver, self._timeout = driver, timeout
        self.runs = 0
        self.findings: list[str] = []
        self.open: list[str] = []
        self.shared: Literal["yes", "not decided", "no"] = "no"

    def run(self) -> tuple[tuple[CoinBytes, ...], Mapping[str, int]]:
        """All runs: bytes of coins per value of a vector, and what was asked for."""
        base = dict(zip(_tapes(), self._run_all(_tapes()), strict=True))
        failed = next((run.failure for run in base.values() if run.failure), "")
        if failed:
            raise UsageError(f"symbol={one_line(self._driver.symbol)}: {failed}")
        self._compare_same_coins(base)
        coins = self._replace_coins(base)
        self._find_constant_values(base)
        return coins, next(iter(base.values())).events

    def _run_all(self, scenarios: Iterable[Scenario]) -> list[Run]:
        batch = list(scenarios)
        self.runs += len(batch)
        return self._driver.run(batch, timeout=self._timeout) if batch else []

    def _compare_same_coins(self, base: Mapping[Scenario, Run]) -> None:
        """Another process, clock, number, memory; and each call without those before it."""
        variants = [
            (tape, how, other)
            for tape in base
            for how, other in _with_same_coins(tape, self._driver.calls)
        ]
        reported: set[str] = set()
        runs = self._run_all(other for _, _, other in variants)
        for (tape, how, _), run in zip(variants, runs, strict=True):
            where = _difference(base[tape], run)
            if where is not None and how not in reported:
                reported.add(how)
                self.findings.append(
                    f"the same coins give another value {how}{_change_text(where, base[tape], run)}"
                )

    def _replace_coins(self, base: Mapping[Scenario, Run]) -> tuple[CoinBytes, ...]:
        """Which values change with each of the coins; bytes of coins per value of a vector."""
        bytes_by_value: dict[int, list[int]] = defaultdict(list)
        for tape in list(base)[:_REPLACED_TAPES]:
            before = base[tape]
            groups = [(call, at, 0, count) for (call, at), count in before.coins.items()]
            reached = self._changes_by_unit(tape, before, groups)
            several = [unit for unit in groups if len(_all_values(reached[unit])) > 1]
            parts = self._changes_by_unit(
                tape, before, [part for u in several for part in _parts(u)]
            )
            final = {unit: reached[unit] for unit in groups if unit not in several} | parts
            self._judge(tape, before, final)
            counts: dict[Value, int] = defaultdict(int)
            for unit, changes in final.items():
                for value in _all_values(changes):
                    counts[value] += unit[3] - unit[2]
            for (_, place), count in counts.items():
                bytes_by_value[place].append(count)
        return tuple(
            CoinBytes(value=place, least=min(sizes), most=max(sizes))
            for place, sizes in sorted(bytes_by_value.items())
        )

    def _changes_by_unit(
        self, tape: Scenario, before: Run, units: list[Coins]
    ) -> dict[Coins, list[_Change]]:
        """For each unit of coins: the values that changed, with each of a few other coins."""
        others = [tape.tape + 1000 * (i + 1) for i in range(_OTHERS)]
        runs = iter(
            self._run_all(replace(tape, other=o, replaced=unit) for unit in units for o in others)
        )
        return {
            unit: [(run, _changed_values(before, run)) for run in itertools.islice(runs, _OTHERS)]
            for unit in units
        }

    def _judge(self, tape: Scenario, before: Run, final: Mapping[Coins, list[_Change]]) -> None:
        """Coins that always change several values are shared; sometimes: not decided."""
        shared = {unit: changes for unit, changes in final.items() if _always_several(changes)}
        moving = [unit for unit, changes in final.items() if len(_all_values(changes)) > 1]
        if shared and self.shared != "yes":
            self.shared = "yes"
            unit, changes = next(iter(shared.items()))
            values = sorted(_all_values(changes))
            run = next(run for run, changed in changes if len(changed) > 1)
            pairs = "; ".join(_change_text(value, before, run)[2:] for value in values[:2])
            self.findings.append(
                f"{len(shared)} of {len(final)} units of coins are shared by several values: "
                f"replacing {_unit_text(unit)} (tape {tape.tape}) changes {len(values)} values: "
                f"{pairs} (pairs by Box and Muller do so and are independent, which coins cannot "
                "show)"
            )
        elif moving and not shared:
            self.shared = "yes" if self.shared == "yes" else "not decided"
            self.open.append(
                f"{_unit_text(moving[0])} change several values, but not always: coins are read "
                "ahead of the values, and which value takes them is not decided"
            )

    def _find_constant_values(self, base: Mapping[Scenario, Run]) -> None:
        """Values that are the same on all tapes: no coin reaches them."""
        runs = list(base.values())
        still = [v for v in runs[0].values if len({run.values[v] for run in runs}) == 1]
        if still:
            call, value = still[0]
            self.findings.append(
                f"{len(still)} of {len(runs[0].values)} values are the same whatever the coins: "
                f"value {value} of call {call} is {_number(runs[0].values[still[0]])}"
            )


_Change = tuple[Run, frozenset[Value]]


def _tapes() -> list[Scenario]:
    return [Scenario(tape=1 + i) for i in range(_TAPES)]


def _changed_values(before: Run, after: Run) -> frozenset[Value]:
    """Values that differ; all of them if the other run failed."""
    if after.failure:
        return frozenset(before.values)
    return frozenset(v for v, bits in after.values.items() if bits != before.values[v])


def _all_values(changes: Iterable[_Change]) -> frozenset[Value]:
    return frozenset(value for _, values in changes for value in values)


def _always_several(changes: list[_Change]) -> bool:
    sizes = [len(values) for _, values in changes if values]
    return bool(sizes) and min(sizes) > 1


def _parts(unit: Coins) -> Iterator[Coins]:
    """A group of coins in single bytes, or in at most `_MOST_UNITS` runs of bytes."""
    call, at, first, last = unit
    step = -(-(last - first) // _MOST_UNITS)
    return ((call, at, i, min(i + step, last)) for i in range(first, last, step))


def _difference(before: Run, after: Run) -> Value | None:
    """The first value that differs between two runs with the same coins."""
    if after.failure:
        return next(iter(before.values))
    return next((v for v, bits in after.values.items() if bits != before.values[v]), None)


def _uncontrolled(events: Mapping[str, int]) -> list[str]:
    """The requests of a run that were passed through."""
    controlled = {*_SOURCES, *_CLOCKS, *_NUMBERS, "/dev/urandom", "/dev/random"}
    return [f"asked for: {event}" for event in sorted(events.keys() - controlled)]


def _unit_text(unit: Coins) -> str:
    call, at, first, last = unit
    return f"coin bytes {first} to {last - 1} read in call {call} after {at} values"


def _change_text(where: Value, before: Run, after: Run) -> str:
    call, value = where
    if after.failure:
        return f": it then fails ({after.failure})"
    old, new = before.values[where], after.values[where]
    return f": value {value} of call {call} was {_number(old)} and becomes {_number(new)}"


def _number(bits: int) -> str:
    return repr(struct.unpack("<d", struct.pack("<Q", bits))[0])


# -- the report --------------------------------------------------------------------------------
def describe_determinism(result: DeterminismResult) -> Report:
    """The report of runs of a compiled sampler with chosen coins."""
    headline = _determinism_headline(result)
    checks = [
        Check(
            group="coins",
            name=f"finding {i}",
            outcome="finding",
            looks_at="values as a function of chosen coins",
            effect=finding,
            reproduce=result.provenance.command,
        )
        for i, finding in enumerate(result.findings, 1)
    ]
    pyramid = Pyramid()
    if result.findings:
        pyramid.add(TRUST, "a value is not a function of coins of its own")
    pyramid.leave_open(TRUST, "branches that the coins tried never took")
    pyramid.leave_open(ALGORITHMS, "the law of the values")
    return Report(
        kind="determinism",
        label="coins of a compiled sampler",
        subject=f"library:{result.library}:{result.symbol}",
        title=f"Coins of {result.symbol}",
        verdict=result.verdict,
        headline=headline,
        meaning=(_determinism_meaning(result.verdict),),
        checks=with_verdict(checks, result.verdict, headline),
        sections=tuple(_determinism_sections(result)),
        blind_spots=open_spots(result.cannot_rule_out),
        hazards=pyramid.hazards(),
        facts=fields_of(result, ("runs", "not_controlled")),
        data=to_dict(result),
        provenance=to_dict(result.provenance),
        seconds=result.seconds,
        command=result.provenance.command,
    )


def _determinism_headline(result: DeterminismResult) -> str:
    name = f"{result.symbol} in {result.library.rpartition('/')[2]}"
    runs = f"in {wording.count(result.runs)} runs with chosen coins"
    if result.verdict == "finding":
        first = result.findings[0] if result.findings else "no reason given"
        return f"Finding: a value of {name} is not a function of coins of its own: {first}."
    if result.verdict == "no-finding":
        return f"No finding: {runs} each value of {name} was a function of coins of its own."
    first, *others = result.not_controlled or ("no reason given",)
    more = f"; and {len(others)} more" if others else ""
    return (
        f"Inconclusive: {runs}, something that {name} uses could not be controlled: {first}{more}."
    )


def _determinism_meaning(verdict: Verdict) -> Meaning:
    if verdict == "finding":
        text = (
            "Something other than fresh coins decides a value, or several values share coins, so "
            "noise may be predictable or repeat. Have the source examined before you use it; a "
            "finding says nothing about intent."
        )
        return Meaning(heading="Values depend on more than coins of their own", says=text)
    if verdict == "inconclusive":
        text = (
            "The function uses something that the auditor could not answer in its place, so the "
            "runs cannot show where its values come from. This is neither a pass nor a finding."
        )
        return Meaning(heading="No verdict", says=text)
    text = (
        "With the same coins the function gave the same values, and no coin reached two of them, "
        "in all runs. That is evidence against stored state and shared seeds, not a proof: other "
        "coins were not tried, and whether the values follow the claimed law was not looked at "
        "(dpaudit audit does that)."
    )
    return Meaning(heading="Each value came from coins of its own", says=text)


def _determinism_sections(result: DeterminismResult) -> Iterator[Section]:
    shared = {"yes": "yes: see what was found", "not decided": "not decided"}
    shared["no"] = "none in these runs" if result.verdict == "no-finding" else ""
    facts = [
        ("Library", result.library),
        ("Function", result.symbol),
        ("Runs", wording.count(result.runs)),
        ("Values with coins", wording.count(len(result.coin_bytes))),
        ("Coins shared by values", shared[result.shared]),
        ("Time", wording.seconds(result.seconds)),
    ]
    rows = tuple((name, value) for name, value in facts if value)
    tested: list[Block] = [*file_facts(result.provenance)[:1], Facts(rows, terminal=("Runs",))]
    tested += command_of(result.provenance, "To repeat this:")
    yield Section(title="What was tested", blocks=tuple(tested))
    outcome: Block = Text("No pair of runs with the same coins differed, and no coin reached two "
                        "values.")  # fmt: skip
    if result.findings:
        outcome = Table(
            columns=(Column("Finding", result.findings),),
            caption="What is not a function of coins of its own",
            marked=(True,) * len(result.findings),
            terminal="Findings",
        )
    coins = () if not result.coin_bytes else (_bytes_table(result.coin_bytes),)
    yield Section(title="What was found", blocks=(outcome, *coins))
    scope = "These calls and instructions were answered with the auditor’s coins, clock and process"
    requests: Block = Text("The function asked for nothing.", terminal=True)
    if result.sources:
        requests = Table(
            columns=(
                Column("Asked for", tuple(result.sources)),
                Column(
                    "Times in one run", tuple(map(wording.count, result.sources.values())), True
                ),
            ),
            caption="What the function asked for in one run",
            ordered=True,
            terminal="Asked for in one run",
        )
    yield Section(title="What was interposed", blocks=(Text(f"{scope} number."), requests))
    if result.not_controlled:
        items = Table(
            columns=(Column("Not controlled", result.not_controlled),),
            caption="What was not answered in the function’s place",
            terminal="Not controlled",
        )
        yield Section(title="What could not be controlled", blocks=(items,))
    scope = "This is less than a proof of the law: the runs are a few of all that are possible. It"
    yield uncovered_section(scope, result.cannot_rule_out)


def _bytes_table(coins: tuple[CoinBytes, ...]) -> Table:
    return Table(
        columns=(
            Column("Value", tuple(wording.count(t.value) for t in coins), True),
            Column("Bytes of coins at least", tuple(wording.count(t.least) for t in coins), True),
            Column("Bytes of coins at most", tuple(wording.count(t.most) for t in coins), True),
        ),
        caption="Bytes of coins that each value of a vector depends on, over all runs",
        ordered=True,
        terminal="Coins of each value of a vector",
    )
