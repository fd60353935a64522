"""The catalogue's sound and broken mechanisms, each as a pipeline that is replayed.

    python -m dpaudit_studies.replay.catalogue [--out DIR] [NAME …]

The mechanisms are those of :mod:`dpaudit_studies.evidence.catalogue`, at their one pair of
neighbours, without the rounding of the noise: a replay takes it for real numbers. The data set is
one record, whose ``side`` chooses the neighbour.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit_studies.evidence import MACHINE, catalogue, options, write

catalogue.grid = lambda x: x
SEED, SAMPLES = "catalogue", 4000


def _pipeline(case: catalogue.Case) -> Any:
    def run(records: list[dict[str, int]]) -> Any:
        return case.release(np.random.default_rng(), int(records[0]["side"]), 1)[0]

    return run


PIPELINES = {f"case_{i}": _pipeline(case) for i, case in enumerate(catalogue.CASES)}
globals().update(PIPELINES)  # the replay asks for them by name


def replayed(number: int) -> dict[str, Any]:
    """What a replay of one mechanism says, beside its true ε."""
    from dpaudit.audit.replay.run import replay

    case = catalogue.CASES[number]
    result = replay(
        f"python:{os.path.relpath(__file__)}:case_{number}", [{"side": 0}], epsilon=case.claim,
        delta=case.delta, neighbours="replace", bounds={"side": [0, 1]}, pairs=2, seed=SEED,
        samples=SAMPLES, time_limit=60.0,
    )  # fmt: skip
    shown = max((d.epsilon.low for d in result.findings if d.epsilon), default=0.0)
    epsilon = result.epsilon
    return {
        "mechanism": case.name, "claim": case.claim, "true": case.true, "sound": case.sound,
        "verdict": result.verdict, "kinds": sorted({d.kind for d in result.findings}),
        "stated": None if epsilon is None else f"{epsilon:.3g}", "shown": round(shown, 2),
        "says": next((d.says for d in result.findings), result.reason)[:300],
        "seconds": round(result.seconds, 1),
    }  # fmt: skip


def main() -> None:
    """Replay them all, and print a line for each."""
    asked = options(__doc__, names=(), out=Path("runs/replay-catalogue"))
    rows = []
    print(f"{'mechanism':22}{'claim':>6}{'true':>7}{'stated':>8}{'shown':>7}{'s':>7}  verdict")
    for number, case in enumerate(catalogue.CASES):
        if asked.names and case.name not in asked.names:
            continue
        rows.append(row := replayed(number))
        kinds = ", ".join(row["kinds"])
        print(
            f"{case.name:22}{case.claim:6g}{case.true:>7}{row['stated'] or '–':>8}"
            f"{row['shown']:7.2f}{row['seconds']:7.1f}  {row['verdict']} {kinds}",
            flush=True,
        )
        write(asked.out / "results.json", {"machine": MACHINE, "seed": SEED, "rows": rows})
    alarms = sum(r["verdict"] == "finding" and r["sound"] for r in rows)
    passed = sum(r["verdict"] == "no-finding" and not r["sound"] for r in rows)
    print(f"\nfindings of sound mechanisms: {alarms}; broken mechanisms that pass: {passed}")


if __name__ == "__main__":
    main()
