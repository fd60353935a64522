"""What DP-Auditorium's testers show of recorded releases.

Runs in DP-Auditorium's environment with its folder of google/differential-privacy
(python/dp_auditorium) on PYTHONPATH, started by catalogue_peers.py: ``python
dp_auditorium_bounds.py FOLDER…``. Each folder holds ``releases.npz`` as for dp_sniper_bounds.py;
``job`` also has the claimed ``epsilon``. Each gets ``dp-auditorium.json``, and
``dp-auditorium.npz`` with the counted releases in the chosen event.

Three of its testers bound δ at the claimed ε, each at α: the hockey-stick tester with its default
network (trained on the learning half, its accuracy on the other lowered by Hoeffding's bound), the
MMD tester (on the other half), and the histogram tester for single numbers (on the other half; bins
from the learning half). The direction is chosen on the learning half. Each promises that its bound
is below the true δ with probability 1 − α and nothing when it does not reject; the largest of the
three is shown, which favours it. Its Rényi tester bounds a divergence of another order and is left
out.

None bounds ε. The event that the hockey-stick tester's network learned, its logit at most 0, is
counted on the other half, with Clopper and Pearson's bounds of both probabilities at α/2. Numbers
are scaled by the mean and spread of the learning half before training.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import tensorflow as tf
from scipy.stats import beta

# the testers without the package's __init__, which imports generators of data sets (Vizier)
_found = importlib.util.find_spec("dp_auditorium")
assert _found is not None
assert _found.submodule_search_locations is not None
sys.modules["dp_auditorium"] = ModuleType("dp_auditorium")
sys.modules["dp_auditorium"].__path__ = list(_found.submodule_search_locations)

from dp_auditorium.configs import privacy_property  # noqa: E402
from dp_auditorium.configs import property_tester_config as configs  # noqa: E402
from dp_auditorium.testers import histogram_tester, hockey_stick_tester, mmd_tester  # noqa: E402

FEW, BINS = 64, 20

Array = np.ndarray


def bound(likelier: Array, other: Array, alpha: float, delta: float) -> float:
    """Of ε, from the releases in an event."""
    k1, n1, k0, n0 = likelier.sum(), len(likelier), other.sum(), len(other)
    low = (beta.ppf(alpha / 2, k1, n1 - k1 + 1) if k1 else 0.0) - delta
    high = beta.ppf(1 - alpha / 2, k0 + 1, n0 - k0) if k0 < n0 else 1.0
    return math.log(low / high) if low > 0 else 0.0


def claimed(job: dict) -> privacy_property.ApproximateDp:
    return privacy_property.ApproximateDp(epsilon=job["epsilon"], delta=job["delta"])


def hockey_stick(
    x: tuple[Array, Array], y: tuple[Array, Array], job: dict
) -> tuple[float, float, int, list[Array]]:
    """δ, ε, the likelier neighbour of the event, and which counted releases are in it."""
    claim, best = claimed(job), None
    for side in (0, 1):
        tf.keras.utils.set_random_seed(job["seed"])
        tester = hockey_stick_tester.HockeyStickPropertyTester(
            configs.HockeyStickPropertyTesterConfig(
                hockey_stick_tester.make_default_hs_training_config(), claim
            ),
            hockey_stick_tester.make_default_hs_base_model(),
        )
        model = tester._get_optimized_divergence_estimation_model(x[side], x[1 - side])
        inside = [model.predict(part, batch_size=4096, verbose=0)[:, 0] <= 0 for part in x]
        promise = bound(inside[side], inside[1 - side], job["alpha"], job["delta"])
        if best is None or promise > best[0]:
            best = promise, side, tester, model
    assert best is not None
    _, side, tester, model = best
    delta = tester._compute_divergence_on_samples(model, y[side], y[1 - side], job["alpha"])
    inside = [model.predict(part, batch_size=4096, verbose=0)[:, 0] <= 0 for part in y]
    epsilon = bound(inside[side], inside[1 - side], job["alpha"], job["delta"])
    return float(delta), max(0.0, epsilon), side, inside


def histogram(x: tuple[Array, Array], y: tuple[Array, Array], job: dict) -> float:
    """δ by the histogram tester, for single numbers."""
    values = np.unique(np.concatenate(x))
    if len(values) <= FEW:
        size, low, high = len(values) + 1, 0.0, 0.0
        x, y = ([np.searchsorted(values, part[:, 0]) for part in half] for half in (x, y))
    else:
        size = BINS
        low, high = np.quantile(np.concatenate(x), [0.001, 0.999])
        x, y = ([part[:, 0] for part in half] for half in (x, y))
    tester = histogram_tester.HistogramTester(
        configs.HistogramPropertyTesterConfig(len(values) <= FEW, size, low, high, claimed(job))
    )
    first = max((0, 1), key=lambda s: tester.estimate_lower_bound(x[s], x[1 - s], job["alpha"]))
    return float(tester.estimate_lower_bound(y[first], y[1 - first], job["alpha"]))


def mmd(y: tuple[Array, Array], job: dict) -> float:
    """δ by the MMD tester."""
    tester = mmd_tester.MMDPropertyTester(
        configs.MMDPropertyTesterConfig(configs.Kernel.KERNEL_RBF, 1.0, claimed(job))
    )
    return float(tester.estimate_lower_bound(*y, job["alpha"]))


def audit(folder: Path) -> dict[str, object]:
    archive = np.load(folder / "releases.npz", allow_pickle=False)
    job = json.loads(str(archive["job"]))
    both = np.concatenate([archive["x0"], archive["x1"]])
    middle, spread = both.mean(axis=0), both.std(axis=0)
    spread[spread == 0] = 1.0
    x, y = (
        tuple(((archive[f"{half}{s}"] - middle) / spread).astype(np.float32) for s in (0, 1))
        for half in "xy"
    )
    began = time.process_time()
    delta, epsilon, side, inside = hockey_stick(x, y, job)
    deltas = {"hockey-stick": delta, "MMD": mmd(y, job)}
    if x[0].shape[1] == 1:
        deltas["histogram"] = histogram(x, y, job)
    tester = max(deltas, key=lambda name: deltas[name])
    np.savez_compressed(
        folder / "dp-auditorium.npz", in0=inside[0], in1=inside[1], likelier=np.array(side)
    )
    return {
        "epsilon": epsilon, "delta": max(0.0, deltas[tester]), "says": tester, "deltas": deltas,
        "seconds": time.process_time() - began,
    }  # fmt: skip


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for folder in map(Path, sys.argv[1:]):
        answer = audit(folder)
        (folder / "dp-auditorium.json").write_text(json.dumps(answer) + "\n")
        print(folder.name, json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
