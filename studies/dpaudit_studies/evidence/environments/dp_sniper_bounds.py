"""What DP-Sniper's classifier rule shows of recorded releases.

Runs in DP-Sniper's environment with a checkout of eth-sri/dp-sniper on PYTHONPATH, started by
catalogue_peers.py: ``python dp_sniper_bounds.py FOLDER…``. Each folder holds ``releases.npz``:
releases to learn from ``x0``, ``x1`` and to count ``y0``, ``y1`` at the two neighbours, and
``job``, a JSON object {alpha, delta, seed, flags}. Each gets ``dp-sniper.json``, and
``dp-sniper.npz`` with the weight of every counted release in the attack.

Its own code trains both of its classifiers, with the settings of its experiments, in both
directions, and finds each threshold; on three fifths, a fifth and a fifth of the learning half it
trains, places thresholds and chooses the attack with the largest bound (DD-Search). Training goes
round its releases until it has taken as many steps as in its experiments (107 batches of 10). Its
own lower and upper bounds of the two probabilities, at α/2 each, give the bound for ε. Two choices
in its favour: besides its c = 0.01 it tries 0.1 and 0.001, and δ, which it does not know, is
subtracted from the likelier probability.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from dpsniper.attack.dpsniper import DPSniper
from dpsniper.attack.ml_attack import MlAttack
from dpsniper.classifiers.classifier_factory import (
    LogisticRegressionFactory,
    MultiLayerPerceptronFactory,
)
from dpsniper.classifiers.feature_transformer import FlagsFeatureTransformer
from dpsniper.classifiers.torch_optimizer_factory import AdamOptimizerFactory, SGDOptimizerFactory
from dpsniper.mechanisms.abstract import Mechanism
from dpsniper.probability.binomial_cdf import lcb, ucb
from dpsniper.search.ddconfig import DDConfig
from dpsniper.utils.paths import set_output_directory
from dpsniper.utils.torch import torch_initialize

BATCHES, PARTS = 107, 10
SHARES = (0.01, 0.1, 0.001)


class Recorded(Mechanism):
    """Releases drawn before, round and round; input ``[side]``."""

    def __init__(self, sides: tuple[np.ndarray, np.ndarray]) -> None:
        self.sides, self.at = sides, [0, 0]

    def m(self, a: list[int], n_samples: int = 1) -> np.ndarray:
        """The next releases at one neighbour."""
        side = self.sides[a[0]]
        places = np.arange(self.at[a[0]], self.at[a[0]] + n_samples) % len(side)
        self.at[a[0]] += n_samples
        return side[places]


def factories(columns: int, flags: list[float]) -> dict[str, object]:
    """Both classifiers as in its experiments (exp_default.py)."""
    transform = FlagsFeatureTransformer(flags) if flags else None
    shared = {"in_dimensions": columns * (1 + len(flags)), "feature_transform": transform}
    return {
        "logistic regression": LogisticRegressionFactory(
            optimizer_factory=SGDOptimizerFactory(learning_rate=0.3, momentum=0.3, step_size=500),
            regularization_weight=0.001,
            epochs=10,
            **shared,
        ),
        "perceptron": MultiLayerPerceptronFactory(
            hidden_sizes=(10, 5),
            optimizer_factory=AdamOptimizerFactory(learning_rate=0.1, step_size=500),
            regularization_weight=0.0001,
            epochs=10,
            **shared,
        ),
    }


def bound(likelier: np.ndarray, other: np.ndarray, alpha: float, delta: float) -> float:
    """Its bound (EpsEstimator) from the weights of releases in the attack."""
    low = lcb(len(likelier), int(math.fsum(likelier)), alpha / 2) - delta
    high = ucb(len(other), int(math.fsum(other)), alpha / 2)
    return math.log(low / high) if low > 0 else 0.0


def audit(folder: Path) -> dict[str, object]:
    """The attack chosen on the learning half, counted on the other."""
    archive = np.load(folder / "releases.npz", allow_pickle=False)
    job = json.loads(str(archive["job"]))
    x, y = ((archive[f"{half}0"], archive[f"{half}1"]) for half in "xy")
    began = time.process_time()
    torch.manual_seed(job["seed"])
    ends = [3 * len(x[0]) // 5, 4 * len(x[0]) // 5]
    train, place, check = zip(*(np.split(side, ends) for side in x), strict=True)
    batch = max(1, len(train[0]) // PARTS)
    config = DDConfig(
        n_train=BATCHES * batch, training_batch_size=batch, n_processes=1, n_check=1, n_final=1
    )
    best: tuple[float, str, int, MlAttack] | None = None
    for name, factory in factories(x[0].shape[1], job["flags"]).items():
        for side in (0, 1):
            sniper = DPSniper(Recorded(train), factory, config)
            classifier = sniper._train_classifier([side], [1 - side])
            likely = np.sort(classifier.predict_probabilities(place[1 - side]))[::-1]
            for c in SHARES:
                attack = MlAttack(classifier, *DPSniper._find_threshold(likely, c * len(likely)))
                inside = [attack.check(check[s]) for s in (side, 1 - side)]
                promise = bound(*inside, job["alpha"], job["delta"])
                if best is None or promise > best[0]:
                    best = promise, f"{name}, c = {c:g}", side, attack
    assert best is not None
    _, description, side, attack = best
    weights = [attack.check(half) for half in y]
    epsilon = bound(weights[side], weights[1 - side], job["alpha"], job["delta"])
    np.savez_compressed(
        folder / "dp-sniper.npz", in0=weights[0], in1=weights[1], likelier=np.array(side)
    )
    seconds = time.process_time() - began
    return {"epsilon": max(0.0, epsilon), "says": description, "seconds": seconds}


def main() -> None:
    torch_initialize(torch_threads=1)
    with tempfile.TemporaryDirectory() as out:
        set_output_directory(out)
        for folder in map(Path, sys.argv[1:]):
            answer = audit(folder)
            (folder / "dp-sniper.json").write_text(json.dumps(answer) + "\n")
            print(folder.name, json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
