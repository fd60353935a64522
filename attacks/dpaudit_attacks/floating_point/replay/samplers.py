"""Replayable samplers by name, each compared with this machine's library before use."""

from __future__ import annotations

import functools
import importlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.registry import missing_extra
from dpaudit_attacks.floating_point.replay import cephes, libm
from dpaudit_attacks.floating_point.replay.box_muller import BoxMuller
from dpaudit_attacks.floating_point.replay.polar import Polar
from dpaudit_attacks.floating_point.replay.release import Addition

__all__ = ["Replay", "verified_replay"]

Array = npt.NDArray[Any]

_PAIRS = 1 << 12
_SEED = 20_220_517
_SCALE = 1.7


class Replay(Protocol):
    """A sampler of pairs, forwards and backwards."""

    def outputs(self, a: Array, b: Array, *, scale: float) -> Array:
        """The pairs of outputs (2, n) of uniforms ``a`` and ``b`` (n,)."""

    def feasible(
        self, releases: Array, values: Array, *, addition: Addition, scale: float
    ) -> npt.NDArray[np.bool_]:
        """Whether uniforms lead from ``values`` to exactly ``releases``, both (2, n), as (n,)."""


@dataclass(frozen=True)
class _Known:
    """What the library makes of known uniforms ``a`` and ``b`` (n,): ``outputs`` (2, n)."""

    a: Array
    b: Array
    outputs: Array


def _numpy_legacy() -> _Known:
    x = 2.0 * np.random.RandomState(_SEED).random_sample((2 * _PAIRS, 2)) - 1.0
    r2 = x[:, 0] * x[:, 0] + x[:, 1] * x[:, 1]
    x = x[(r2 < 1) & (r2 > 0)][:_PAIRS]
    drawn = np.random.RandomState(_SEED).normal(0.0, _SCALE, (len(x), 2))
    return _Known(x[:, 0].copy(), x[:, 1].copy(), drawn.T)


def _stdlib_gauss() -> _Known:
    uniforms, normals = random.Random(_SEED), random.Random(_SEED)
    turn, radius = np.array([[uniforms.random() for _ in range(2)] for _ in range(_PAIRS)]).T
    drawn = np.array([[normals.gauss(0.0, _SCALE) for _ in range(2)] for _ in range(_PAIRS)])
    return _Known(_down(radius, 53), _up(turn, 53), drawn.T)


def _torch_fill(dtype: str, bits: int) -> _Known:
    torch = importlib.import_module("torch")
    kind, shape = getattr(torch, dtype), (_PAIRS // 8, 2, 8)
    generator = torch.Generator().manual_seed(_SEED)
    uniforms = torch.rand(shape, dtype=kind, generator=generator).numpy()
    generator.manual_seed(_SEED)
    drawn = torch.normal(0.0, _SCALE, shape, dtype=kind, generator=generator).numpy()
    radius, turn = uniforms[:, 0].ravel(), uniforms[:, 1].ravel()
    return _Known(_down(radius, bits), _up(turn, bits), drawn.swapaxes(0, 1).reshape(2, -1))


def _torch_short() -> _Known:
    torch = importlib.import_module("torch")
    kind = torch.float64
    generator = torch.Generator().manual_seed(_SEED)
    turn, radius = torch.rand(_PAIRS, 2, dtype=kind, generator=generator).numpy().T
    generator.manual_seed(_SEED)
    rows = [torch.normal(0.0, _SCALE, (2,), dtype=kind, generator=generator) for _ in range(_PAIRS)]
    drawn = torch.stack(rows, 1).numpy()
    return _Known(_down(radius, 53), _up(turn, 53), drawn)


def _specimen(name: str) -> Array:
    """Pairs (2, n) of a specimen of dpaudit's own, from the numbers of :func:`_numbers`."""
    module, _, member = name.partition(":")
    source = getattr(importlib.import_module(f"dpaudit.noise.floating_point.{module}"), member)(
        sigma=_SCALE
    )
    drawn: Array = source.sample(_PAIRS, 2, stream=KeyedStream.from_seed("replay")).T
    return drawn


def _numbers() -> np.random.Generator:
    return KeyedStream.from_seed("replay").numpy()


def _box_muller_f32() -> _Known:
    whole = _numbers().integers(1, 2**24 + 1, size=(2, _PAIRS), dtype=np.uint32)
    radius, turn = whole.astype(np.int64)
    return _Known(radius, turn, _specimen("box_muller:BoxMullerF32"))


def _box_muller_f64() -> _Known:
    turn, radius = _numbers().random((_PAIRS, 2)).T
    return _Known(_down(radius, 53), _up(turn, 53), _specimen("box_muller:BoxMullerF64"))


def _polar() -> _Known:
    x = 2.0 * _numbers().random((2 * _PAIRS, 2)) - 1.0
    r2 = x[:, 0] * x[:, 0] + x[:, 1] * x[:, 1]
    x = x[(r2 < 1) & (r2 > 0)][:_PAIRS]
    return _Known(x[:, 0].copy(), x[:, 1].copy(), _specimen("box_muller:Polar")[:, : len(x)])


def _up(uniform: Array, bits: int) -> npt.NDArray[np.int64]:
    return (uniform.astype(np.float64) * 2.0**bits).astype(np.int64)


def _down(uniform: Array, bits: int) -> npt.NDArray[np.int64]:
    """The uniform 1 − u."""
    return (1 << bits) - _up(uniform, bits)


def _numpy_radius(k: npt.NDArray[np.int64]) -> Array:
    u = k.astype(np.float32) * np.float32(2.0**-24)
    radius: Array = np.sqrt(np.float32(-2) * np.log(u))
    return radius


def _numpy_turn(k: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    angle = np.float32(2 * np.pi) * (k.astype(np.float32) * np.float32(2.0**-24))
    return np.cos(angle), np.sin(angle)


_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_GAUSS = BoxMuller(53, _DOUBLE, libm.radius64, libm.turn64)

_TABLE: dict[str, tuple[Callable[[], _Known], Sequence[Replay]]] = {
    "numpy-legacy": (_numpy_legacy, [Polar()]),
    "stdlib-gauss": (_stdlib_gauss, [_GAUSS]),
    "torch-f32": (
        partial(_torch_fill, "float32", 24),
        [
            BoxMuller(
                24, _SINGLE, partial(cephes.radius, fused=True), partial(cephes.turn, fused=True)
            ),
            BoxMuller(
                24, _SINGLE, partial(cephes.radius, fused=False), partial(cephes.turn, fused=False)
            ),
            BoxMuller(24, _SINGLE, libm.radius32, libm.turn32),
        ],
    ),
    "torch-f64": (partial(_torch_fill, "float64", 53), [_GAUSS]),
    "torch-f64-short": (_torch_short, [BoxMuller(53, _DOUBLE, libm.radius64_log1p, libm.turn64)]),
    "box-muller-f32": (
        _box_muller_f32,
        [BoxMuller(24, _SINGLE, _numpy_radius, _numpy_turn, scaled=True, whole_turn=True)],
    ),
    "box-muller-f64": (_box_muller_f64, [_GAUSS]),
    "polar": (_polar, [Polar()]),
}


@functools.cache
def verified_replay(name: str) -> Replay:
    """The replay of the sampler ``name``, checked bit for bit against the library here.

    The check takes a few thousand pairs.

    Raises:
        UsageError: none does; the library or processor is one that the replay was not written for.
        MissingExtraError: the library is not installed.
    """
    library_pairs, replays = _TABLE[name]
    try:
        expected = library_pairs()
    except ModuleNotFoundError as error:
        hint = missing_extra(error)
        if hint is None:
            raise
        raise MissingExtraError(f"sampler={name}: {hint}") from error
    wrong = []
    for replay in replays:
        replayed = replay.outputs(expected.a, expected.b, scale=_SCALE)
        wrong.append(int((replayed != expected.outputs).any(0).sum()))
        if not wrong[-1]:
            return replay
    raise UsageError(
        f"sampler={name}: the replay differs from the library installed here in {min(wrong)} of "
        f"{expected.a.size} pairs, so it could rule out true values; use attack=reach, or audit on "
        "a machine with another processor or version"
    )
