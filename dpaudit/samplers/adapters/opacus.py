"""``opacus:MECH``: the noise that opacus' ``DPOptimizer`` adds to a summed gradient, float32 as models are.

``noise`` is the function that the optimizer itself calls, and ``step`` a whole step of a real
optimizer, up to the gradient that it hands on. Both draw from torch's default generator (what
``make_private`` leaves to the user in place of ``torchcsprng``). ``secure_mode=true`` sums four
normals and halves them (Holohan and Braghin 2021). A ``step`` takes about 100 µs, 120 µs in secure
mode.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.samplers.adapters.base import Library, LibraryMechanism, Release, claims, law

__all__ = ["LIBRARY"]

Array = npt.NDArray[np.float64]
Array32 = npt.NDArray[np.float32]

_MOST_SAMPLES = 1 << 16
_PAD = 1e-6  # what opacus adds to a gradient's norm before it compares it with max_grad_norm


def _noise(optimizer: Any, *, std: float, secure_mode: bool, dtype: str) -> Release:
    torch = importlib.import_module("torch")
    kind = {"f32": torch.float32, "f64": torch.float64}[dtype]

    def release(value: Any, n: int) -> Any:
        gradients = torch.from_numpy(value).to(kind).expand(n, -1)
        noise = optimizer._generate_noise(
            std=std, reference=gradients, generator=None, secure_mode=secure_mode
        )
        return (gradients + noise).numpy()

    return release


class _Step:
    """Releases ``p.grad`` after the optimizer's own ``pre_step``: clip, sum, add noise, scale.

    The per-sample gradients are 2^i equal parts of the value, so many that none is clipped; that
    they add up to the value exactly is checked at each step.
    """

    def __init__(self, optimizer: Any, **options: Any) -> None:
        self._torch = importlib.import_module("torch")
        # a step is too small to share: threads would only wait for each other
        self._torch.set_num_threads(1)
        self._optimizer = optimizer
        self._options = options
        self._made([0.0])  # opacus refuses wrong options here

    def __call__(self, value: Array, n: int) -> Array32:
        """``n`` releases (n, m) in as many steps of one optimizer."""
        released = np.empty((n, len(value)), dtype=np.float32)
        step = self.once(value)
        for row in released:
            row[:] = step()
        return released

    def once(self, value: Array) -> Callable[[], Any]:
        """One step and nothing else."""
        torch = self._torch
        gradient = torch.from_numpy(value).to(torch.float32)
        parts = _parts(gradient, float(self._options["max_grad_norm"]))
        parameter, dp = self._made(value)

        def step() -> Any:
            dp.zero_grad()
            parameter.grad_sample = parts.detach()
            dp.pre_step()
            if not torch.equal(parameter.summed_grad, gradient):
                raise UsageError(
                    f"value={value[0]}…: gradients of norm max_grad_norm={self._options['max_grad_norm']:g} do not add up "
                    "to it exactly in float32; raise max_grad_norm and lower noise_multiplier as much"
                )
            return parameter.grad.numpy().copy()

        return step

    def _made(self, value: Any) -> tuple[Any, Any]:
        torch = self._torch
        parameter = torch.nn.Parameter(torch.zeros(len(value)))
        return parameter, self._optimizer.DPOptimizer(
            torch.optim.SGD([parameter], lr=1.0), **self._options
        )


def _parts(gradient: Any, max_grad_norm: float) -> Any:
    """Per-sample gradients (B, m), B a power of two, that opacus does not clip and whose sum is ``gradient``."""
    norm = float(gradient.double().norm())
    if not math.isfinite(norm):
        raise UsageError("value: too large for the float32 of a gradient; choose a smaller one")
    room = max_grad_norm - 2 * _PAD
    count = (
        1
        if norm <= room
        else 2 ** math.ceil(math.log2(norm / room))
        if room > 0
        else _MOST_SAMPLES + 1
    )
    if count > _MOST_SAMPLES:
        raise UsageError(
            f"value of norm {norm:g}: more than {_MOST_SAMPLES} gradients of norm max_grad_norm={max_grad_norm:g} would "
            "be needed; raise max_grad_norm and lower noise_multiplier as much"
        )
    return (gradient / count).expand(count, -1).contiguous()


def _step_law(
    *,
    noise_multiplier: float,
    max_grad_norm: float,
    expected_batch_size: float,
    loss_reduction: str,
    secure_mode: bool,
) -> str:
    del secure_mode
    scale = noise_multiplier * max_grad_norm
    return law("gaussian:sigma", scale / expected_batch_size if loss_reduction == "mean" else scale)


LIBRARY = Library(
    name="opacus",
    module="opacus.optimizers.optimizer",
    install="pip install 'dpaudit[opacus]'",
    distribution="opacus",
    tested="1.6.0",
    table={
        "noise": LibraryMechanism(
            make=_noise,
            options={"std": 1.0, "secure_mode": False, "dtype": "f32"},
            claim=claims("gaussian:sigma", "std"),
        ),
        "step": LibraryMechanism(
            make=_Step,
            options={
                "noise_multiplier": 1.0,
                "max_grad_norm": 1.0,
                "expected_batch_size": 1,
                "loss_reduction": "mean",
                "secure_mode": False,
            },
            choices={"loss_reduction": ("mean", "sum")},
            claim=_step_law,
        ),
    },
)
