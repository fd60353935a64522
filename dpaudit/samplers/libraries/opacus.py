"""``opacus:noise``: the noise that opacus' ``DPOptimizer`` adds to a summed gradient, float32 as models are.

It is the function that the optimizer itself calls, with torch's default generator (what ``make_private`` leaves to the
user in place of ``torchcsprng``). ``secure_mode=true`` sums four normals and halves them (Holohan and Braghin 2021).
"""

from __future__ import annotations

import importlib
from typing import Any

from dpaudit.samplers.libraries.adapter import Library, Mechanism, Release, claims

__all__ = ["LIBRARY"]


def _noise(optimizer: Any, *, std: float, secure_mode: bool, dtype: str) -> Release:
    torch = importlib.import_module("torch")
    kind = {"f32": torch.float32, "f64": torch.float64}[dtype]

    def release(value: Any, n: int) -> Any:
        gradients = torch.from_numpy(value).to(kind).expand(n, -1)
        noise = optimizer._generate_noise(std=std, reference=gradients, generator=None, secure_mode=secure_mode)
        return (gradients + noise).numpy()

    return release


LIBRARY = Library(
    name="opacus",
    module="opacus.optimizers.optimizer",
    install="pip install 'dpaudit[opacus]'",
    table={
        "noise": Mechanism(
            make=_noise,
            options={"std": 1.0, "secure_mode": False, "dtype": "f32"},
            claim=claims("gaussian:sigma", "std"),
        )
    },
)
