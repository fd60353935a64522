"""Whether other shares of α would find more of the zoo's training half than equal ones.

`python -m dpaudit_studies.evidence.shares` reads the training half's rows of
docs/studies/results/zoo-unseen, and prints how many specimens are found with equal shares, which is
what the battery has (Holm), and which of the others any shares at all could find. `--samples 2e5`
audits each specimen of the training half once instead, with the zoo's seeds and all values, and
prints how many are found with equal shares, with the best ones for these specimens, and with shares
that were chosen without the specimen that they judge; `--kept FILE` keeps the p-values, one
specimen per line, and resumes from it. It never draws from, or reads, the test half.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.claims import Claim
from dpaudit.options import count_of
from dpaudit.randomness import KeyedStream
from dpaudit_studies.evidence import MACHINE, options, stored_rows
from dpaudit_studies.zoo import HALVES, specimen, specimen_sampler

SEED = "20261125"
ALPHA = 0.01

PValues = Mapping[str, float]
Shares = dict[str, float]


def stored_lines(rows: Sequence[Mapping[str, Any]], tests: int) -> list[str]:
    """The lines for results that have the smallest adjusted p-value only: m times the smallest."""
    rows = [row for row in rows if row["half"] == "training" and row["expected"] != "passed"]
    missed = [row for row in rows if not row["found"]]
    within = [row for row in missed if row["p_adjusted"] / tests <= ALPHA]
    return [
        f"{len(rows) - len(missed)} of {len(rows)} flawed specimens of the training half are found "
        f"with equal shares of {tests} tests at α = {ALPHA}",
        f"of the other {len(missed)}, {len(within)} could be found if one test had all of α: "
        + (", ".join(f"{row['specimen']} ({row['expected']})" for row in within) or "none"),
    ]


def counted_tests() -> int:
    """Tests that share α in an audit of everything."""
    loaded = [registry.load("tests", name) for name in registry.plugins("tests")]
    return sum(not getattr(test, "advisory", False) for test in loaded)


def p_values(name: str, samples: int) -> dict[str, float]:
    """Of each test that counts, by name."""
    subject, stream = specimen(name), KeyedStream.from_seed(SEED).child("unseen", name)
    how = AuditOptions(
        samples=samples, alpha=ALPHA, seed=f"{SEED}/{name}", all_values=True, search_limit=1.0
    )
    with specimen_sampler(subject, stream=stream.child("audited")).open(timeout=60) as sampler:
        result = run_audit(sampler, claim=Claim.parse(subject.claim), options=how)
    return {test.name: test.p for test in result.tests if not test.advisory}


def equal(tests: Sequence[str]) -> Shares:
    """What Holm's first step gives each."""
    return {test: 1 / len(tests) for test in tests}


def is_found(p: PValues, shares: Shares) -> bool:
    """Whether some test has a p-value of at most its share of α: a finding, as in Holm's step 1."""
    return any(p[test] <= ALPHA * share for test, share in shares.items())


def best(tables: Sequence[PValues], tests: Sequence[str]) -> Shares:
    """Shares that find many of these, the cheapest first; what is left goes to all alike.

    A specimen costs what the share of some test must grow by. Greedy: no proof that it is most.
    """
    shares, missing = dict.fromkeys(tests, 0.0), list(tables)
    while missing:
        costs = [
            (max(0.0, p[test] / ALPHA - shares[test]), test, i)
            for i, p in enumerate(missing)
            for test in tests
        ]
        cost, test, i = min(costs)
        if cost > 1 - sum(shares.values()):
            break
        shares[test] += cost
        del missing[i]
    rest = max(0.0, 1 - sum(shares.values())) / len(tests)
    return {test: share + rest for test, share in shares.items()}


def summary(tables: Mapping[str, PValues], expected: Mapping[str, str]) -> list[str]:
    """The lines that are printed: counts of flawed specimens, by their mark."""
    tests = sorted(set.intersection(*(set(p) for p in tables.values())))
    flawed = [name for name in tables if expected[name] != "passed"]
    right = [name for name in tables if expected[name] == "passed"]
    fitted = best([tables[name] for name in flawed], tests)
    kinds = {
        "equal (as the battery has)": {name: equal(tests) for name in tables},
        "best for these specimens": dict.fromkeys(tables, fitted),
        "best for all but the one judged": {
            name: best([tables[one] for one in flawed if one != name], tests) for name in tables
        },
    }
    lines = []
    for kind, shares in kinds.items():
        hit = {name for name in tables if is_found(tables[name], shares[name])}
        marks = [
            f"{sum(name in hit for name in flawed if expected[name] == mark)} of "
            f"{sum(expected[name] == mark for name in flawed)} {mark}"
            for mark in ("found", "borderline", "missed")
        ]
        lines.append(
            f"{kind}: {len(hit & set(flawed))} of {len(flawed)} flawed ({', '.join(marks)}), "
            f"{len(hit & set(right))} of {len(right)} right ones accused"
        )
    larger = {test: share for test, share in fitted.items() if share > 2 / len(tests)}
    lines.append(
        "best shares above twice the equal one: "
        + (", ".join(f"{test} {share:.3f}" for test, share in larger.items()) or "none")
    )
    base = equal(tests)
    for name in sorted(flawed):
        if not is_found(tables[name], base):
            test = min(tests, key=tables[name].__getitem__)
            needs = tables[name][test] / ALPHA
            lines.append(f"missed: {name} ({expected[name]}); {test} would need {needs:.3g} of α")
    return lines


def audit(names: Sequence[str], samples: int, kept: Path | None) -> dict[str, dict[str, float]]:
    """The p-values of each specimen, from ``kept`` where they are there."""
    tables: dict[str, dict[str, float]] = {}
    if kept and kept.exists():
        lines = map(json.loads, kept.read_text("utf-8").splitlines())
        tables = {one["specimen"]: one["p"] for one in lines if one["samples"] == samples}
    for name in names:
        if name not in tables:
            tables[name] = p_values(name, samples)
            if kept:
                line = json.dumps({"specimen": name, "samples": samples, "p": tables[name]})
                with kept.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
    return {name: tables[name] for name in names}


def main() -> None:
    args = options(__doc__, samples=str, kept=Path)
    if args.samples is None:
        rows = stored_rows("zoo-unseen")
        print("\n".join(stored_lines(rows, counted_tests())))
        return
    samples = count_of(args.samples, unit="values", example="2e5")
    training = [name for name, half in HALVES.items() if half == "training"]
    began = time.process_time()
    tables = audit(training, samples, args.kept)
    print(f"{len(training)} specimens of the training half, {samples:,} values each, α = {ALPHA}")
    print(f"{MACHINE}, {time.process_time() - began:.0f} CPU seconds")
    print("\n".join(summary(tables, {name: specimen(name).expected for name in training})))


if __name__ == "__main__":
    main()
