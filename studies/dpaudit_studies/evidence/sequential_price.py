"""Sequential audits of mechanisms: type-I error, and what it costs that they may stop at any time.

    python -m dpaudit_studies.evidence.sequential_price [--releases 20000] [--seed 1] [NAME …]
    python -m dpaudit_studies.evidence.sequential_price --runs 10000

The first compares lower bounds for ε of the same releases, at α = 0.01: ``sequential``, after the
last one and valid after each, and ``fixed``, from half of them; for all mechanisms of the
catalogue, medians over ``--streams``. ``ratio`` is sequential over fixed, left out where the fixed
audit shows nothing. Mechanisms at ε = ∞ have bounds that grow with the releases.

The second runs the sequential audit on ``--runs`` streams (seeds ``--seed``, ``--seed`` + 1, …) of
three mechanisms at exactly their claim, α = 0.05, each watched at every block up to ``--watched``
releases, and counts those that were ever contradicted. ``--method published`` does the same for the
published test (``PAPER`` of :mod:`dpaudit_studies.evidence.sequential_mmd`). Finished runs are kept
in ``--keep`` by the thousand and used again.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from dpaudit.provenance import hardware
from dpaudit.stats import clopper_pearson
from dpaudit_studies.evidence import ROOT, options, write
from dpaudit_studies.evidence.catalogue import ALPHA, CASES, Case
from dpaudit_studies.evidence.sequential import ALPHAS, bets_on, fixed_audit, releases_until, stream
from dpaudit_studies.evidence.sequential_mmd import PAPER, pairs_until

EXACT = ("laplace", "gaussian", "randomised-response")
"""Mechanisms whose ε at their δ is exactly the claim."""
WATCHED_ALPHA = 0.05
BATCH = 1000


def sequential_bound(case: Case, seed: int, n: int, alpha: float) -> float:
    """The bound for ε of dpaudit's sequential audit after ``n`` releases of a stream."""
    *_, last = bets_on(case, seed, n, alpha)
    return last.bounds["ε"]


def is_contradicted(method: str, case: Case, seed: int, watched: int) -> bool:
    """Whether a stream's claim is contradicted at any moment."""
    if method == "ours":
        return releases_until(case, seed, watched)[ALPHAS.index(WATCHED_ALPHA)] is not None
    sides, rows = stream(case, seed, watched)
    n = int(min(sides.sum(), (~sides).sum()))
    claim = {"epsilon": case.claim, "delta": case.delta}
    x, y = rows[~sides][:n], rows[sides][:n]
    crossed, _ = pairs_until(x, y, **claim, alphas=[WATCHED_ALPHA], variants=[PAPER])
    return crossed[0][0] is not None


def contradicted(method: str, case: Case, path: Path, *, runs: int, seed: int, watched: int) -> int:
    """How many of ``runs`` streams were; kept in ``path``, by batches."""
    kept: list[int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    kept = kept[: runs // BATCH]
    for start in range(len(kept) * BATCH, runs, BATCH):
        seeds = range(seed + start, seed + min(start + BATCH, runs))
        kept.append(sum(is_contradicted(method, case, at, watched) for at in seeds))
        if len(seeds) == BATCH:
            write(path, kept)
        print(f"{case.name}: {start + len(seeds):,} runs", file=sys.stderr, flush=True)
    return sum(kept)


def type_one(method: str, keep: Path, *, runs: int, seed: int, watched: int) -> None:
    """Print the counts."""
    print(f"{method}: {runs:,} runs each, watched up to {watched:,} releases, seeds from {seed}")
    print(f"alpha {WATCHED_ALPHA}, {hardware()}\n")
    for case in (case for case in CASES if case.name in EXACT):
        path = keep / f"{method}-{case.name}-{seed}-{watched}.json"
        wrong = contradicted(method, case, path, runs=runs, seed=seed, watched=watched)
        bounds = clopper_pearson(wrong, runs)
        print(
            f"{case.name:22}{wrong:6,} of {runs:,}: {wrong / runs:.2%} "
            f"[{bounds.low:.2%}, {bounds.high:.2%}]",
            flush=True,
        )


def price(cases: list[Case], keep: Path, *, streams: int, n: int, seed: int) -> None:
    """Print both bounds of each mechanism, and the median ratio; keep them in ``price.json``."""
    print(f"{n:,} releases, {streams} streams, seeds from {seed}, alpha {ALPHA}, {hardware()}\n")
    print(f"{'mechanism':22}{'true':>7}{'fixed':>8}{'sequential':>12}{'ratio':>8}")
    ratios, rows = [], []
    for case in cases:
        seeds = range(seed, seed + streams)
        fixed = statistics.median(fixed_audit(case, at, n, ALPHA).epsilon for at in seeds)
        bound = statistics.median(sequential_bound(case, at, n, ALPHA) for at in seeds)
        ratios += [bound / fixed] if fixed else []
        ratio = f"{bound / fixed:8.2f}" if fixed else f"{'-':>8}"
        print(f"{case.name:22}{case.true:>7}{fixed:8.2f}{bound:12.2f}{ratio}", flush=True)
        rows.append({"mechanism": case.name, "true": case.true, "fixed": fixed, "bets": bound})
        write(keep / "price.json", {"rows": rows})
    if ratios:
        print(f"\nmedian ratio of {len(ratios)} mechanisms: {statistics.median(ratios):.2f}")


def main() -> None:
    keep = ROOT / "runs" / "sequential"
    args = options(
        __doc__, names=(), releases=20_000, streams=5, seed=1, runs=0, watched=2000, method="ours",
        keep=keep,
    )  # fmt: skip
    if args.runs:
        kinds = {"runs": args.runs, "seed": args.seed, "watched": args.watched}
        type_one(args.method, args.keep, **kinds)
        return
    cases = [case for case in CASES if case.name in (args.names or [case.name])]
    price(cases, args.keep, streams=args.streams, n=args.releases, seed=args.seed)


if __name__ == "__main__":
    main()
