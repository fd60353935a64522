"""What jax_privacy's ``auditing.CanaryScoreAuditor`` says of recorded scores.

Runs in jax_privacy's environment, started by peers.py. ``jax_privacy_bounds.py JOBS.npz`` prints
one JSON line per job, in order. The archive holds ``jobs``, a JSON list of {significance, delta,
methods, seed, splits}, and for the i-th job the arrays ``in_i`` and ``out_i``. A Split is made
``splits`` times; the answer has the median bound, and the lowest and the highest.

Every method is called as its docstring says: scores that are higher for held-in canaries, the
significance in its own argument, thresholds by one of the three strategies that need no threshold
from elsewhere. ``epsilon_raw_counts`` takes no significance and says that it is an estimate, so it
is left out.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from importlib.metadata import version

import numpy as np
from jax_privacy import auditing


def bound(auditor: auditing.CanaryScoreAuditor, method: str, job: dict) -> float:
    """The lower bound for ε by ``METHOD`` or ``METHOD/STRATEGY``."""
    name, _, strategy = method.partition("/")
    level, delta = job["significance"], job["delta"]
    if name == "gdp":
        return float(auditor.epsilon_from_gdp(level, delta))
    chosen = {
        "bonferroni": auditing.Bonferroni(),
        "split": auditing.Split(seed=job["seed"]),
        "multisplit": auditing.MultiSplit(seed=job["seed"]),
    }[strategy]
    if name == "clopper-pearson":
        run = partial(auditor.epsilon_clopper_pearson, one_sided=False)
        return float(run(level, delta, threshold_strategy=chosen))
    run = {"one-run": auditor.epsilon_one_run, "one-run-fdp": auditor.epsilon_one_run_fdp}[name]
    return float(run(level, delta, threshold_strategy=chosen))


def main() -> None:
    archive = np.load(sys.argv[1], allow_pickle=False)
    print(
        json.dumps({name: version(name) for name in ("jax_privacy", "jax", "numpy", "scipy")}),
        flush=True,
    )
    for i, job in enumerate(json.loads(str(archive["jobs"]))):
        inside, outside = archive[f"in_{i}"], archive[f"out_{i}"]
        answer = {}
        for method in job["methods"]:
            began = time.perf_counter()
            times = job["splits"] if method.endswith("/split") else 1
            auditors = [auditing.CanaryScoreAuditor(inside, outside) for _ in range(times)]
            bounds = [
                bound(auditor, method, {**job, "seed": job["seed"] + 1000 * i})
                for i, auditor in enumerate(auditors)
            ]
            seconds = (time.perf_counter() - began) / times
            answer[method] = {"epsilon": float(np.median(bounds)), "seconds": seconds}
            if times > 1:
                answer[method] |= {"lowest": min(bounds), "highest": max(bounds)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
