"""The keyless search as an audit that chooses d runs it, against a pancake in one dimension.

`python -m dpaudit_studies.evidence.keyless_audit --dim 128 --beta 1e-4` draws what the default
audit draws: honest noise in all dimensions of its plan but one, fresh keys in that one. It prints
which job found the direction, and the CPU seconds of all children until then: two cores have 30 in
the default 15 seconds. It knows neither β nor d. `--honest 2000 --dims 4 8` counts false findings
of whole searches of honest noise instead (up to BKZ-`--block`, p at most `--alpha`), and resumes.
`--seconds` are those of the plan, `--patience` what is waited on the wall.
"""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from dpaudit.audit.block import SampleBlock
from dpaudit.audit.plan import make_plan
from dpaudit.claims import Claim
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit_studies.evidence import MACHINE, RESULTS, keyless, options, write
from dpaudit_studies.keyless import children_cpu

LAW = Claim.parse("gaussian:sigma=1")
SAMPLES = 10_000_000
FALSE_FINDINGS = RESULTS / "keyless-frontier" / "false-findings.json"


def fill_test(blocks: dict[int, np.ndarray], stream: KeyedStream, *, planned: float) -> Any:
    test = keyless("keyless_search").KeylessSearch(LAW, stream, planned=planned)
    for i, x in enumerate(blocks.values()):
        test.update(SampleBlock(i, x, claim=LAW, spread=stream.numpy()))
    return test


def planned_rows() -> dict[int, int]:
    """Rows of each dimension that the default audit draws, at most 20,000."""
    rows: dict[int, int] = {}
    for call in make_plan(SAMPLES, dim=None):
        if call.purpose in {"sweep", "main", "short"}:
            rows[call.d] = rows.get(call.d, 0) + call.n * call.calls
    return {d: min(n, 20_000) for d, n in rows.items() if 2 <= d <= 256}


def one_key(args: Namespace, number: int) -> dict[str, object]:
    stream = KeyedStream.from_seed(args.seed).child("audit", f"{args.dim} {args.beta} {number}")
    key = PancakeKey.new(dim=args.dim, beta=args.beta, secret=stream.child("key").bytes(32))
    rng = stream.child("honest").numpy()
    blocks = {
        d: Pancake(key=key).sample(n, d, stream=stream.child("noise"))
        if d == args.dim
        else rng.standard_normal((n, d))
        for d, n in planned_rows().items()
    }
    test = fill_test(blocks, stream, planned=args.seconds)  # however long the machine takes for it
    began, before = time.monotonic(), children_cpu()
    try:
        test.search(deadline=began + args.patience)
        evidence = test.evidence(alpha=0.01)
    finally:
        test.close()
    details = evidence.details
    success = "w" in details and details["d"] == args.dim
    return {
        "d": args.dim,
        "beta": args.beta,
        "key": number,
        "found": success,
        "p": evidence.p,
        "cosine": abs(float(np.dot(details["w"], key.direction))) if success else None,
        "reduction": details.get("reduction"),
        "lattice_rows": details.get("lattice_rows"),
        "children_cpu_seconds": round(children_cpu() - before, 1),
        "wall_seconds": round(time.monotonic() - began, 1),
        "load": round(os.getloadavg()[0], 1),
        "effect": evidence.effect,
        "machine": MACHINE,
    }


def one_search(dims: list[int], number: int, seed: str, *, block: int) -> Any:
    """The planned jobs up to BKZ-``block`` on honest noise, judged as in an audit."""
    rng = KeyedStream.from_seed(seed).child("honest", number).numpy()
    rows = {d: keyless("search").Rows(d) for d in dims}
    for d, drawn_rows in rows.items():
        drawn_rows.add(rng.standard_normal((2500, d)))
    search = keyless("search").Search(rows)
    shrink = {d: drawn_rows.shrink for d, drawn_rows in rows.items()}
    reducers = keyless("reduction.choice").installed()
    planned = keyless("plan").jobs(shrink, seconds=15, reducers=reducers)
    for job in (job for job in planned if job.block <= block):
        for line in keyless("worker").lines(asdict(job), rows[job.d].pool, rows[job.d].check):
            if "u" in line:
                search.judge(job, line)
    return search


def honest(args: Namespace) -> None:
    """Whole searches of honest noise, counted in a file that resumes."""
    out: Path = args.out
    counts: dict[str, Any] = {"searches": 0, "findings": 0, "candidates": 0, "least_p": 1.0}
    if out.exists():
        counts |= json.loads(out.read_text())
    until = time.monotonic() + args.patience
    while counts["searches"] < args.honest and time.monotonic() < until:
        with threadpool_limits(1):
            search = one_search(args.dims, counts["searches"], args.seed, block=args.block)
        counts["searches"] += 1
        counts["findings"] += search.p <= args.alpha
        counts["candidates"] += search.candidates
        counts["least_p"] = min(counts["least_p"], search.p)
        n, hits = counts["searches"], counts["findings"]
        high = 1.0 if hits == n else float(scipy.special.betaincinv(hits + 1, n - hits, 0.975))
        counts |= {"share_at_most": high, "alpha": args.alpha, "dims": args.dims}
        counts |= {"seed": args.seed, "block": args.block}
        write(out, counts)
    print(json.dumps(counts))


def main() -> None:
    args = options(
        __doc__, dim=128, beta=1e-4, keys=3, first_key=0, seed="20261127", seconds=15.0,
        patience=600.0, honest=0, dims=[4, 8], block=44, alpha=0.01, out=FALSE_FINDINGS,
    )  # fmt: skip
    if args.honest:
        honest(args)
        return
    for number in range(args.first_key, args.first_key + args.keys):
        print(json.dumps(one_key(args, number), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
