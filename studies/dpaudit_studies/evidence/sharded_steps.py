"""Planted bugs of sharded training, and honest steps, against ``dpaudit.audit_optimizer``.

    python -m dpaudit_studies.evidence.sharded_steps                # the table, two processes
    python -m dpaudit_studies.evidence.sharded_steps --honest 1000  # how often honest steps fail

The loops are those of the tests, ``tests/support/wrong_steps.py``: a checkout is needed.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpaudit.stats import clopper_pearson
from dpaudit_studies.evidence import options

_LOOPS = Path(__file__).parents[3] / "tests" / "support"


def bug_lines(loops: Any, world: int) -> list[str]:
    lines = [
        f"{world} processes, {loops.RECORDS} records, α = {loops.ALPHA}",
        "",
        "| bug | finding | named as expected | other findings | seconds |",
        "|---|---|---|---|---|",
    ]
    for bug, (loop, name, words) in loops.BUGS.items():
        began = time.perf_counter()
        result = replace(loop, kept={}).audit()
        took = time.perf_counter() - began
        texts = {t.name: f"{t.name}: {t.effect} ({t.cause})" for t in result.findings}
        text = texts.pop(name, "missed")
        named = "yes" if words.format(world=world) in text else "no"
        lines.append(f"| {bug} | {text} | {named} | {', '.join(texts)} | {took:.1f} |")
    return lines


def honest_lines(loops: Any, times: int, repeats: int, seed: int) -> list[str]:
    findings: Counter[str] = Counter()
    least, smallest = [], []  # adjusted p of each audit: of all tests, and of those not certain
    began, kinds = time.perf_counter(), list(loops.HONEST)
    for i in range(times):
        kind = kinds[i % len(kinds)]
        loop = replace(loops.HONEST[kind], seed=seed + i, kept={})
        tests = loop.audit(repeats=repeats).tests
        least.append(min(test.p_adjusted for test in tests))
        smallest.append(min((test.p_adjusted for test in tests if test.p > 0), default=1.0))
        findings.update(f"{kind}: {test.name}" for test in tests if test.finding)
    lines = [
        f"{', '.join(kinds)}: {times} honest audits of {repeats} steps at α = {loops.ALPHA}, "
        f"{least.count(0.0)} with a certain finding; {time.perf_counter() - began:.0f} s; "
        f"seeds from {seed}"
    ]
    for alpha, whose in ((loops.ALPHA, ""), (1e-4, ", assert_private_step's")):
        accused = sum(p <= alpha for p in least)
        interval = clopper_pearson(accused, times)
        lines.append(
            f"accused at α = {alpha:g}{whose}: {accused} of {times}, "
            f"95 % interval {interval.low:.4f} to {interval.high:.4f}"
        )
    shown = ", ".join(f"{p:.2g}" for p in sorted(smallest)[:10])
    lines.append(f"smallest adjusted p of an audit, none certain: {shown}")
    return [*lines, *(f"  {kind}: {count}" for kind, count in findings.items())]


def work(rank: int, args: Any, folder: str) -> None:
    import torch.distributed as dist

    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(_LOOPS))
    loops = importlib.import_module("wrong_steps")
    at = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=at, rank=rank, world_size=args.world)
    if args.honest:
        lines = honest_lines(loops, args.honest, args.repeats, args.seed)
    else:
        lines = bug_lines(loops, args.world)
    if rank == 0:
        text = "\n".join(lines)
        print(text)
        if args.out:
            with args.out.open("a") as file:
                file.write(f"{text}\n\n")
    dist.destroy_process_group()


def main() -> None:
    from torch.multiprocessing.spawn import spawn

    args = options(__doc__, world=2, honest=0, repeats=32, seed=1, out=Path)
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (args, folder), nprocs=args.world)


if __name__ == "__main__":
    main()
