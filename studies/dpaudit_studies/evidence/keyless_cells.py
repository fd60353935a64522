"""One cell (d, β, γ) of the keyless search at its far end: fresh keys, CPU seconds, found or not.

`python -m dpaudit_studies.evidence.keyless_cells --dim 128 --beta 3e-4` appends one object per key
to docs/studies/results/keyless-frontier/points.json: cells that take minutes to hours, and other
types, lattices and directions; cells of seconds are those of `dpaudit run keyless-frontier`. With
`--checkpoint FOLDER` a reduction resumes where it stopped; `--hours` limits what each key takes in
all its starts. The search is given β and γ, or `--told` and `--told-times` (γ̂/√d) instead; the
direction is known only to the comparison at the end. `--times` is γ/√d, `--step` a lattice that
values are rounded to; with `--differences` nothing but these is seen. One thread.
"""

from __future__ import annotations

import json
import math
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit.results.files import write_file
from dpaudit_studies.evidence import MACHINE, RESULTS, keyless, options

POINTS = RESULTS / "keyless-frontier" / "points.json"
CHECKED = 512
SPECIMEN = ("drawn", "dtype", "step", "differences", "directions")


def specimen(args: Namespace, key_number: int) -> tuple[np.ndarray, PancakeKey]:
    stream = KeyedStream.from_seed(args.seed).child("cell", f"{args.dim} {args.beta}")
    key = PancakeKey.new(
        dim=args.dim,
        beta=args.beta,
        gamma=args.times * math.sqrt(args.dim),
        directions=args.directions,
        secret=stream.child("key", key_number).bytes(32),
        allow_small_gamma=True,
    )
    rows = args.drawn + keyless("search").HELD + CHECKED
    drawn = Pancake(key=key).sample(
        rows, args.dim, stream=stream.child("noise", key_number), dtype=getattr(torch, args.dtype)
    )
    x = drawn.double().numpy()
    if args.step:
        x = np.rint(x / args.step) * args.step
    if args.differences:
        x = (x[0::2] - x[1::2]) / math.sqrt(2)
    return x, key


@dataclass
class Search:
    """Where a search stands: its last stage and CPU seconds, the best direction and its p-value."""

    stage: Any = None
    cpu: float = 0.0
    direction: np.ndarray | None = None
    p: float = 1.0


def run_search(
    args: Namespace, number: int, rows: np.ndarray, check: np.ndarray, held_out: np.ndarray
) -> Search:
    """Reduce until a direction is confirmed on the rows ``held_out``, or all hours are spent."""
    candidates, lattice, search = keyless("candidates"), keyless("lattice"), Search()
    beta, gamma = told_scales(args)
    checkpoint = None
    if args.checkpoint:
        folder = Path(args.checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"d{args.dim}-beta{args.beta:g}-key{number}.npz"
        checkpoint = keyless("checkpoint").Checkpoint(
            folder / name, rows, beta=beta, gamma=gamma, n=args.lattice_rows or 0
        )
    began, last = time.process_time(), ""
    for search.stage in lattice.find_direction(
        rows,
        beta=beta,
        gamma=gamma,
        reduction=lattice.Reduction(
            args.lattice_rows, args.block, keyless("reduction").reducer(args.reducer)
        ),
        check=check,
        resume=None if checkpoint is None else checkpoint.stage,
        keep=None if checkpoint is None else checkpoint.keep,
    ):
        search.cpu = checkpoint.spent() if checkpoint is not None else time.process_time() - began
        if search.stage.reduction != last:
            last = search.stage.reduction
            print(f"  {last} from {search.cpu:.1f} CPU seconds", flush=True)
        if search.stage.score > 0.3:
            search.direction = candidates.refine(check, search.stage.u)
            search.p = candidates.confirm(held_out, search.direction)
            if search.p <= keyless("search").CONFIRMED:
                break
        if search.cpu > 3600 * args.hours:
            break
    return search


def told_scales(args: Namespace) -> tuple[float, float]:
    """β and γ that the search is given."""
    return args.told or args.beta, (args.told_times or args.times) * math.sqrt(args.dim)


def one_key(args: Namespace, number: int) -> dict[str, object]:
    x, key = specimen(args, number)
    held_out, check, rows = np.split(x, [keyless("search").HELD, keyless("search").HELD + CHECKED])
    beta, gamma = told_scales(args)
    began = time.monotonic()
    search = run_search(args, number, rows, check, held_out)
    confirmed = search.direction is not None and search.p <= keyless("search").CONFIRMED
    point: dict[str, object] = {
        "d": args.dim,
        "beta": args.beta,
        "gamma": args.times * math.sqrt(args.dim),
        "n": search.stage.rows,
        "block": int(search.stage.reduction.partition("BKZ-")[2] or 2),
        "seconds": round(time.monotonic() - began, 2),
        "found": confirmed,
        "cpu_seconds": round(search.cpu, 2),
        "reduction": search.stage.reduction,
        "reducer": args.reducer,
        "searched_beta": beta,
        "searched_gamma": gamma,
        **{name: vars(args)[name] for name in SPECIMEN},
        "key": number,
        "seed": args.seed,
        "p": search.p,
        "machine": MACHINE,
    }
    if confirmed:
        u = np.asarray(search.direction)
        along = key.basis.reshape(-1, args.dim) @ (u / np.linalg.norm(u))
        estimated = keyless("candidates").estimate(check, held_out, u).beta
        point["cosine"] = round(float(np.abs(along).max()), 6)
        point["estimated_beta"] = float(f"{estimated:.4g}")
    return point


def add(point: dict[str, object], out: Path) -> None:
    points = json.loads(out.read_text()) if out.exists() else []
    text = ",\n".join(json.dumps(each, ensure_ascii=False) for each in [*points, point])
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, f"[\n{text}\n]\n")


def main() -> None:
    args = options(
        __doc__, dim=int, beta=float, times=2.0, told=0.0, told_times=0.0, keys=3, first_key=0,
        seed="20261126", drawn=30_000, lattice_rows=int, directions=1, dtype="float64", step=0.0,
        differences=False, block=64, hours=0.1, reducer="blaster", checkpoint=str, out=POINTS,
    )  # fmt: skip
    for number in range(args.first_key, args.first_key + args.keys):
        with threadpool_limits(1):
            point = one_key(args, number)
        print(json.dumps(point, ensure_ascii=False), flush=True)
        add(point, args.out)


if __name__ == "__main__":
    main()
