"""``opacus:MECH``: the noise that opacus' ``DPOptimizer`` adds to a summed float32 gradient.

``noise`` is the function that the optimizer itself calls, and ``step`` a whole step of a real
optimizer, up to the gradient that it passes on. Both draw from torch's default generator (what
``make_private`` leaves to the user in place of ``torchcsprng``), a Mersenne Twister on the CPU: one
large step shows its state (``dpaudit run opacus-replay``). ``secure_mode=true`` sums four
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
from dpaudit.targets.adapters.base import Library, LibraryMechanism, Release, claims, law

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

    The per-sample gradients are 2^i equal parts of the value, so many that none is clipped; each
    step checks that their sum is exactly the value.
    """

    def __init__(self, optimizer: Any, **options: Any) -> None:
        self._torch = importlib.import_module("torch")
        self._torch.set_num_threads(1)  # a step is too small to share among threads
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
                most = self._options["max_grad_norm"]
                raise UsageError(
                    f"value={value[0]}…: gradients of norm max_grad_norm={most:g} do not sum to it "
                    "exactly in float32; raise max_grad_norm and lower noise_multiplier by as much"
                )
            return parameter.grad.numpy().copy()

        return step

    def _made(self, value: Any) -> tuple[Any, Any]:
        torch = self._torch
        parameter = torch.nn.Parameter(torch.zeros(len(value)))
        plain = torch.optim.SGD([parameter], lr=1.0)
        return parameter, self._optimizer.DPOptimizer(plain, **self._options)


def _parts(gradient: Any, max_grad_norm: float) -> Any:
    """Per-sample gradients (B, m) of sum ``gradient``, B a power of two, that are not clipped."""
    norm = float(gradient.double().norm())
    if not math.isfinite(norm):
        raise UsageError("value: too large for the float32 of a gradient; choose a smaller one")
    room = max_grad_norm - 2 * _PAD
    count = 1
    if norm > room:
        count = 2 ** math.ceil(math.log2(norm / room)) if room > 0 else _MOST_SAMPLES + 1
    if count > _MOST_SAMPLES:
        raise UsageError(
            f"value of norm {norm:g}: needs more than {_MOST_SAMPLES} gradients of norm "
            f"max_grad_norm={max_grad_norm:g}; raise it and lower noise_multiplier by as much"
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
            _noise,
            options={"std": 1.0, "secure_mode": False, "dtype": "f32"},
            claim=claims("gaussian:sigma", "std"),
        ),
        "step": LibraryMechanism(
            _Step,
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
