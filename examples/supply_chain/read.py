"""The key holder at the server tells which of two records was in each batch.

It reads the gradients that were shared.
Run: python read.py --key key.json honest.npz swapped.npz [--data mnist.npz]

Threat model, the one that differential privacy is for: the reader knows the weights it handed out,
the learning rate, the clipping, all records of a batch but one, and two candidates for that one.
The noise should hide which of them it was.
"""

import argparse

import numpy as np
import torch
import train

from dpaudit.noise.key import PancakeKey
from dpaudit.queries.gradients.per_sample import PerSampleGradients
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio


def clipped_gradients(
    model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Each record's gradient as Opacus clips it, shape (records, d)."""
    rows = PerSampleGradients(model, dtype=torch.float32).all(images, labels)
    return rows * (train.MAX_GRAD_NORM / (rows.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)


def read(
    path: str, key: PancakeKey, records: torch.utils.data.TensorDataset
) -> tuple[int, int, int]:
    """Steps, and how many name the right record: with the key, and without (nearest candidate)."""
    with np.load(path, allow_pickle=False) as file:
        weights, gradients = torch.from_numpy(file["weights"]), torch.from_numpy(file["gradients"])
        divisor = float(file["divisor"])
        batches = np.split(file["records"], np.cumsum(file["sizes"])[:-1])
    if max(map(max, filter(len, batches))) >= len(records):
        raise SystemExit(
            f"{path}: was trained on other records; give the --data that train.py was given"
        )
    model, rng = train.make_model(), KeyedStream.fresh().numpy()
    attack = LikelihoodRatio(key=key, sigma=train.NOISE_MULTIPLIER * train.MAX_GRAD_NORM)
    steps = keyed = nearest = 0
    for gradient, batch in zip(gradients, batches, strict=True):
        if len(batch):
            torch.nn.utils.vector_to_parameters(weights, model.parameters())
            outsider = rng.choice(np.setdiff1d(np.arange(len(records)), batch))
            images, labels, _ = records[
                torch.from_numpy(np.append(rng.permutation(batch), outsider))
            ]
            rows = clipped_gradients(model, images, labels).double()
            # the others with one of the batch, and with the outsider
            candidates = rows[:-2].sum(0) + rows[-2:]
            release, truth = gradient.double() * divisor, int(rng.integers(2))
            candidates = candidates.roll(truth, 0)
            keyed += int(attack.score(release[None], candidates).argmax()) == truth
            nearest += int((release - candidates).norm(dim=1).argmin()) == truth
            steps += 1
        weights = weights - train.LEARNING_RATE * gradient  # what SGD does, as the server knows
    return steps, keyed, nearest


def share(right: int, steps: int) -> str:
    interval = clopper_pearson(right, steps)
    return f"{100 * right / steps:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--key", required=True)
    parser.add_argument("--data")
    parser.add_argument("runs", nargs="+")
    options = parser.parse_args()
    key, records = PancakeKey.load(options.key), train.load_records(options.data)
    for path in options.runs:
        steps, keyed, nearest = read(path, key, records)
        print(
            f"{path}: {steps} steps; right with the key {share(keyed, steps)}, "
            f"without it {share(nearest, steps)}"
        )


if __name__ == "__main__":
    main()
