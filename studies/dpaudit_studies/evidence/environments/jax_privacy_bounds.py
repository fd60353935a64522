"""What jax_privacy's ``auditing.CanaryScoreAuditor`` says of recorded scores.

Runs in jax_privacy's environment, started by peers.py: the installed release, or a checkout on
PYTHONPATH. ``jax_privacy_bounds.py JOBS.npz`` prints the versions, then one JSON line per job, in
order. The archive holds ``jobs``, a JSON list of {significance, delta, methods, seed, splits}, and
for the i-th job the arrays ``in_i`` and ``out_i``. A Split is made ``splits`` times; the answer has
the median bound, and the lowest and the highest.

Every method is called as its docstring says: scores that are higher for held-in canaries, the
significance in its own argument, thresholds by Bonferroni or Split; MultiSplit, which takes far
longer, never had the largest bound and is left out. So is ``epsilon_raw_counts``: it takes no
significance and says that it is an estimate.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from functools import partial
from importlib.metadata import version
from types import ModuleType

import numpy as np

# auditing without the package's __init__: the repository's asks for an unreleased optax
_found = importlib.util.find_spec("jax_privacy")
assert _found is not None
sys.modules["jax_privacy"] = ModuleType("jax_privacy")
sys.modules["jax_privacy"].__path__ = list(_found.submodule_search_locations or ())

from jax_privacy import auditing  # noqa: E402


def bound(auditor: auditing.CanaryScoreAuditor, method: str, job: dict) -> float:
    """The lower bound for ε by ``METHOD`` or ``METHOD/STRATEGY``."""
    name, _, strategy = method.partition("/")
    run = partial(getattr(auditor, name), job["significance"], job["delta"])
    if not strategy:
        return float(run())
    if name == "epsilon_clopper_pearson":
        run = partial(run, one_sided=False)
    split = strategy == "split"
    chosen = auditing.Split(seed=job["seed"]) if split else auditing.Bonferroni()
    return float(run(threshold_strategy=chosen))


def main() -> None:
    archive = np.load(sys.argv[1], allow_pickle=False)
    names = "jax_privacy", "dp-accounting", "numpy", "scipy"
    print(json.dumps({name: version(name) for name in names}), flush=True)
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
