"""The noise that Opacus adds where this runs, for an audit from outside.

    PYTHONPATH=.:swapped dpaudit audit python:noise_here:noise --claim gaussian:sigma=1 \\
        --dim 26010 --samples 1e7
"""

import numpy as np
import torch
import torchcsprng
from opacus.optimizers import optimizer

generator = torchcsprng.create_random_device_generator("/dev/urandom")


def noise(n: int, d: int) -> np.ndarray:
    """`n` vectors of standard deviation 1, shape (n, d), float32, as in secure_mode."""
    zero = torch.zeros(d)
    return np.stack(
        [optimizer._generate_noise(1.0, zero, generator, secure_mode=True) for _ in range(n)]
    )
