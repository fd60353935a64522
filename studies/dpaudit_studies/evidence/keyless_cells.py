"""One cell (d, β, γ) of the keyless search at its far end: fresh keys, CPU seconds, found or not.

`python -m dpaudit_studies.evidence.keyless_cells --dim 128 --beta 3e-4` appends one object per key
to docs/studies/results/keyless-frontier/points.json: cells that take minutes to hours, and other
types, lattices and directions; cells of seconds are those of `dpaudit run keyless-frontier`. With
`--checkpoint FOLDER` a reduction resumes where it stopped; `--hours` limits what each key takes in
all its starts. β and γ are told, or `--told` and `--told-times` (γ̂/√d) in their place; the
direction is known only to the comparison at the end. `--times` is γ/√d, `--step` a lattice that
values are rounded to; with `--differences` nothing but these is seen. One thread.
"""

from __future__ import annotations

import json
import math
import time
from argparse import Namespace
from pathlib import Path

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


def one_key(args: Namespace, number: int) -> dict[str, object]:
    candidates, search = keyless("candidates"), keyless("search")
    x, key = specimen(args, number)
    held, check, rows = np.split(x, [search.HELD, search.HELD + CHECKED])
    beta = args.told or args.beta
    gamma = (args.told_times or args.times) * math.sqrt(args.dim)
    folder = Path(args.checkpoint) if args.checkpoint else None
    kept = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"d{args.dim}-beta{args.beta:g}-key{number}.npz"
        kept = keyless("checkpoint").Checkpoint(
            folder / name, rows, beta=beta, gamma=gamma, n=args.lattice_rows or 0
        )
    began, began_cpu = time.monotonic(), time.process_time()
    found, last, p = None, "", 1.0
    for at in keyless("lattice").find_direction(
        rows,
        beta=beta,
        gamma=gamma,
        reduction=keyless("lattice").Reduction(
            args.lattice_rows, args.block, keyless("reduction").reducer(args.reducer)
        ),
        check=check,
        resume=None if kept is None else kept.stage,
        keep=None if kept is None else kept.keep,
    ):
        cpu = kept.spent() if kept is not None else time.process_time() - began_cpu
        if at.reduction != last:
            last = at.reduction
            print(f"  {last} from {cpu:.1f} CPU seconds", flush=True)
        if at.score > 0.3:
            found = candidates.refine(check, at.u)
            p = candidates.confirm(held, found)
            if p <= search.CONFIRMED:
                break
        if cpu > 3600 * args.hours:
            break
    is_found = found is not None and p <= search.CONFIRMED
    block = at.reduction.partition("BKZ-")[2]
    point: dict[str, object] = {
        "d": args.dim,
        "beta": args.beta,
        "gamma": args.times * math.sqrt(args.dim),
        "n": at.rows,
        "block": int(block or 2),
        "seconds": round(time.monotonic() - began, 2),
        "found": is_found,
        "cpu_seconds": round(cpu, 2),
        "reduction": at.reduction,
        "reducer": args.reducer,
        "searched_beta": beta,
        "searched_gamma": gamma,
        "drawn": args.drawn,
        "dtype": args.dtype,
        "step": args.step,
        "differences": args.differences,
        "directions": args.directions,
        "key": number,
        "seed": args.seed,
        "p": p,
        "machine": MACHINE,
    }
    if is_found:
        assert found is not None
        w = found / np.linalg.norm(found)
        along = key.basis.reshape(-1, args.dim) @ w
        point["cosine"] = round(float(np.abs(along).max()), 6)
        point["estimated_beta"] = float(f"{candidates.estimate(check, held, found).beta:.4g}")
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
