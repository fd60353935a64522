"""Releases until a claim is contradicted: dpaudit's betting, the published test, a fixed audit.

    python -m dpaudit_studies.evidence.sequential [--streams 20] [--seed 1] [--methods …] [NAME …]

For the broken mechanisms of the catalogue, and the sound ones at exactly their claim. A stream is
releases each at a neighbour chosen by a fair coin; all methods see the same streams, with seeds
``--seed``, ``--seed`` + 1, …. Counted are releases at both neighbours together, ``--limit`` at
most:

- ``ours``: dpaudit's betting.
- ``published``: the test of arXiv 2509.07055, as in the paper's experiments and with the unit ball
  (:mod:`dpaudit_studies.evidence.sequential_mmd`). It takes releases in pairs: the first of one
  neighbour with the first of the other, and so on. A pair counts as two releases, which favours it
  (a fair coin leaves some of one neighbour unpaired). Beside it the MMD and its τ: the claim stands
  for ever unless the first is larger (twice τ in the paper's experiments).
- ``fixed``: half of the releases to learn from and half to count (``dpaudit mechanism``); the least
  of 250, 500, 1,000, … releases where at least half of the streams end in a finding. Its default is
  400,000.

``--claim 0.1`` replaces the claimed ε of the broken ones, as the published test is for small ε;
its own two benchmarks are there at their own claims in any case. Quantiles are of the streams, with
those that end without contradiction as the largest. Each mechanism's answers are kept in ``--keep``
and used again; all together are in its ``results.json``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.betting.releases import ReleaseBets, block_sizes
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.views import Learner
from dpaudit.provenance import hardware
from dpaudit_studies.evidence import ROOT, options, write
from dpaudit_studies.evidence.catalogue import CASES, Case, grid, learn_and_judge
from dpaudit_studies.evidence.sequential_mmd import PAPER, UNIT, benchmark, mmd, pairs_until

ALPHAS = (0.05, 0.01)
CHUNK = 1024
SMALLEST, LARGEST = 250, 256_000
"""Of the fixed audit's releases."""
FOR_MMD = 2000
SECONDS = 20.0

Array = npt.NDArray[np.float64]
Sides = npt.NDArray[np.bool_]
Until = list[int | None]
"""Releases until contradiction, of each stream."""


def _benchmark(kind: str, epsilon: float) -> Case:
    """The published test's own: ε is at least ``epsilon``, and no finite one holds."""

    def release(rng: np.random.Generator, side: int, n: int) -> Array:
        return grid(benchmark(kind, epsilon, rng, n)[side])

    delta = 1e-5 if kind == "Gaussian" else 0.0
    return Case(f"NonDP{kind}1-{epsilon:g}", release, "∞", False, epsilon, delta)


BENCHMARKS = tuple(_benchmark(kind, e) for kind in ("Gaussian", "Laplace") for e in (0.01, 0.1))


def stream(case: Case, seed: int, n: int) -> tuple[Sides, Array]:
    """Neighbours (n,) of fair coins, and releases (n, k) there; a longer one starts the same."""
    sides, rows = [], []
    for chunk in range(-(-n // CHUNK)):
        rng = np.random.default_rng([seed, chunk, *case.name.encode()])
        at = rng.random(CHUNK) < 0.5
        first, second = (case.release(rng, side, int((at == side).sum())) for side in (0, 1))
        both = np.empty((CHUNK, first.shape[1]))
        both[~at], both[at] = first, second
        sides.append(at)
        rows.append(both)
    return np.concatenate(sides)[:n], np.concatenate(rows)[:n]


def bets_on(case: Case, seed: int, limit: int, alpha: float, **how: Any) -> Iterator[ReleaseBets]:
    """The sequential audit of a stream, after each block."""
    rng = np.random.default_rng([seed, *case.name.encode()])
    views = Learner(rng, (np.zeros(1), np.ones(1)), low_bits=False, seconds=SECONDS)
    claim = PrivacyClaim(case.claim, case.delta)
    bets = ReleaseBets(claim, alpha=alpha, views=views, **how)
    sides, rows = stream(case, seed, limit)
    for size in block_sizes(limit):
        block = slice(bets.drawn, bets.drawn + size)
        bets.update(rows[block], sides[block])
        yield bets


def releases_until(case: Case, seed: int, limit: int) -> Until:
    """Releases until dpaudit's sequential audit contradicts the claim, at each α."""
    until: Until = [None] * len(ALPHAS)
    for bets in bets_on(case, seed, limit, min(ALPHAS), bounds=False):
        p = bets.p_value
        until = [n or (bets.drawn if p <= a else None) for n, a in zip(until, ALPHAS, strict=True)]
        if until[-1]:
            break
    return until


def ours(case: Case, seeds: Sequence[int], limit: int) -> dict[str, Any]:
    """By α, releases until contradiction."""
    until = [releases_until(case, seed, limit) for seed in seeds]
    return {f"{a:g}": [each[i] for each in until] for i, a in enumerate(ALPHAS)}


def published(case: Case, seeds: Sequence[int], limit: int) -> dict[str, Any]:
    """The same of the published test, in both variants; and the MMD."""
    answers: dict[str, Any] = {v: {f"{a:g}": [] for a in ALPHAS} for v in ("paper", "unit")}
    claim = {"epsilon": case.claim, "delta": case.delta}
    for seed in seeds:
        sides, rows = stream(case, seed, limit)
        n = int(min(sides.sum(), (~sides).sum()))
        x, y = rows[~sides][:n], rows[sides][:n]
        crossed, _ = pairs_until(x, y, **claim, alphas=ALPHAS, variants=(PAPER, UNIT))
        for name, until in zip(("paper", "unit"), crossed, strict=True):
            for alpha, pairs in zip(ALPHAS, until, strict=True):
                answers[name][f"{alpha:g}"].append(None if pairs is None else 2 * pairs)
    sides, rows = stream(case, seeds[0], 2 * FOR_MMD + CHUNK)
    return {
        **answers,
        "mmd": mmd(rows[~sides][:FOR_MMD], rows[sides][:FOR_MMD]),
        "threshold": PAPER.threshold(case.claim, case.delta),
    }


def is_finding(case: Case, seed: int, n: int, alpha: float) -> bool:
    """Whether the fixed audit of a stream's first ``n`` releases ends in a finding."""
    judged = fixed_audit(case, seed, n, alpha)
    return any(test.finding for test in judged.tests if not test.advisory)


def fixed_audit(case: Case, seed: int, n: int, alpha: float) -> Any:
    """The fixed audit's judgement of a stream's first ``n`` releases."""
    sides, rows = stream(case, seed, n)
    halves = [(sides[part], rows[part]) for part in (slice(n // 2), slice(n // 2, n))]
    x, y = ([rows[~sides], rows[sides]] for sides, rows in halves)
    return learn_and_judge(case, x, y, seed=seed, seconds=SECONDS, alpha=alpha)[1]


def fixed(case: Case, seeds: Sequence[int], limit: int) -> dict[str, Any]:
    """By α, the least number of releases where at least half of the streams end in a finding."""
    answers: dict[str, Any] = {}
    n = SMALLEST
    for alpha in ALPHAS:  # the largest first: a smaller one needs no fewer releases
        while n <= LARGEST:
            findings = (is_finding(case, seed, n, alpha) for seed in seeds)
            if _half(findings, len(seeds)):
                break
            n *= 2
        answers[f"{alpha:g}"] = n if n <= LARGEST else None
    return answers


def _half(findings: Iterator[bool], of: int) -> bool:
    """Whether at least half of ``of`` are true; stops as soon as that is certain."""
    true = false = 0
    for finding in findings:
        true, false = true + finding, false + (not finding)
        if 2 * true >= of or 2 * false > of:
            break
    return 2 * true >= of


METHODS: dict[str, Callable[[Case, Sequence[int], int], dict[str, Any]]] = {
    "ours": ours,
    "published": published,
    "fixed": fixed,
}


def answer(case: Case, path: Path, methods: Sequence[str], seeds: Sequence[int], limit: int) -> Any:
    """What is kept in ``path``, with the methods that it lacked."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for method in methods:
        if method not in kept and not (method == "fixed" and case.sound):
            kept[method] = METHODS[method](case, seeds, limit)
            write(path, kept)
            print(f"{case.name}: {method}", file=sys.stderr, flush=True)
    return kept


def quantile(until: Until, share: float) -> float:
    """The least number of releases within which ``share`` of the streams were contradicted."""
    ordered = sorted(math.inf if n is None else n for n in until)
    return ordered[math.ceil(share * len(ordered)) - 1]


def both_quantiles(until: Until | None) -> str:
    """Median and 90 % quantile, for a column of 18."""
    if not until:
        return f"{'-':>9}{'-':>9}"
    return "".join(
        f"{'never' if math.isinf(q) else format(int(q), ','):>9}"
        for q in (quantile(until, 0.5), quantile(until, 0.9))
    )


def table(rows: dict[Case, dict[str, Any]], alpha: float) -> Iterator[str]:
    """Lines: each broken mechanism, all streams of the catalogue's, and the sound ones."""
    key = f"{alpha:g}"
    columns = {
        "ours": lambda row: row.get("ours", {}).get(key),
        "published": lambda row: row.get("published", {}).get("paper", {}).get(key),
        "unit ball": lambda row: row.get("published", {}).get("unit", {}).get(key),
    }
    yield f"alpha {key}: median and 90 % quantile of releases until contradiction\n"
    heads = "".join(f"{head:>18}" for head in columns)
    yield f"{'mechanism':22}{heads}{'fixed':>9}{'MMD':>7}{'tau':>7}"
    for case, row in rows.items():
        if case.sound:
            continue
        cells = "".join(both_quantiles(of(row)) for of in columns.values())
        least, its = row.get("fixed", {}).get(key), row.get("published", {})
        margin = f"{its['mmd']:7.3f}{its['threshold']:7.3f}" if its else ""
        yield f"{case.name:22}{cells}{'-' if least is None else format(least, ','):>9}{margin}"
    yield ""
    for name, of in columns.items():
        for sound, about in (
            (False, "the catalogue's broken"),
            (True, "sound, at exactly the claim"),
        ):
            cases = [c for c in rows if c.sound == sound and c not in BENCHMARKS]
            every = [n for case in cases for n in of(rows[case]) or ()]
            if every:
                found = sum(n is not None for n in every)
                cells = "" if sound else f"; median, 90 %:{both_quantiles(every)}"
                yield f"{name}, {about}: {found} of {len(every)} streams contradicted{cells}"


def main() -> None:
    keep = ROOT / "runs" / "sequential"
    methods = list(METHODS)
    args = options(
        __doc__, names=(), streams=20, limit=20_000, seed=1, claim=1.0, methods=methods, keep=keep
    )
    seeds = range(args.seed, args.seed + args.streams)
    folder = args.keep / f"{args.streams}-{args.limit}-{args.seed}-{args.claim:g}"
    broken = [dataclasses.replace(case, claim=args.claim) for case in CASES if not case.sound]
    sound = [case for case in CASES if case.true == f"{args.claim:g}"]
    cases = [
        case for case in (*broken, *BENCHMARKS, *sound) if case.name in (args.names or [case.name])
    ]
    rows = {
        case: answer(case, folder / f"{case.name}.json", args.methods, seeds, args.limit)
        for case in cases
    }
    shown = [
        {"mechanism": c.name, "claim": c.claim, "sound": c.sound, **r} for c, r in rows.items()
    ]
    write(folder / "results.json", {"rows": shown})
    about = f"{args.streams} streams of at most {args.limit:,} releases, seeds from {args.seed}"
    print(f"{about}, epsilon {args.claim:g} claimed, {hardware()}\n")
    for alpha in ALPHAS:
        print(*table(rows, alpha), "", sep="\n")


if __name__ == "__main__":
    main()
