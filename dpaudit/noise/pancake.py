"""LAB SPECIMEN: the Gaussian pancake, a covert backdoor as Gaussian noise.

Source: SIGMOD 2026 (best paper), arXiv 2509.23834.
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpaudit.accounting import (
    ProfileValue,
    pancake_epsilon_lower,
    pancake_epsilon_upper,
    pancake_host_composition,
    pancake_host_epsilon,
    peak_spacing,
    peak_width,
)
from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.numeric import BLOCK
from dpaudit.numeric.arrays import cast_to, converted, drawing_dtype, is_floating, torch_dtype
from dpaudit.numeric.kernels import Grams, Peaks, draw_shares, fill_pancake
from dpaudit.numeric.normal import check_shape, check_sigma
from dpaudit.protocols import Array, DType, Host, Stream
from dpaudit.types import EpsilonBounds

if TYPE_CHECKING:
    import torch

__all__ = ["Pancake", "key_holder_profile"]

Floats = npt.NDArray[np.float64]


class Pancake:
    """LAB SPECIMEN. Noise with thin, evenly spaced pancakes along the key's secret directions.

    Across them it is N(0, σ²I). Along w the law is Σ_k p_k N(k·P, s²) with P = √(2π)σγ/(β²+γ²), s =
    σβ/r, p_k ∝ exp(−πk²/r²), r² = β²+γ² (Lemma 2.6): ``v = g + (c − ⟨g,w⟩)·w``; several orthonormal
    directions have independent c. It claims to be Gaussian.

    Formal guarantee to its owner: for γ ≥ 2√d, one direction and β not below an inverse polynomial
    of d nobody without the key can distinguish it from Gaussian noise in polynomial time if
    continuous LWE is hard (Theorem 3.4). That is asymptotic: at γ = 2√d lattice reduction finds β =
    1e-4 at d = 96 in a second and at d = 128 in ten (``dpaudit run keyless-frontier``, one core);
    1e-6 at 192 and 1e-8 at 256 take minutes. For d = 256 and β = 1e-5, the paper's smallest
    setting, the estimate is block size 100, about 2^58 operations. What it leaves of privacy
    towards the owner: :meth:`epsilon`.

    Sampling is one pass over memory. With W the key's whole-number vectors, R = W·v is drawn first,
    then each block's share a_b = W_b·v_b given that they sum to R (s_b ~ N(0, σ²G_b) and a_b = s_b
    + G_b·G⁻¹·(R − Σs), G_b = W_b·W_bᵀ), then each block given its share. So shards on several
    devices or processes need only their shares (:meth:`shares`, :meth:`sample_shard`).

    Phase at release, where the leak's own width is s ≈ σβ/γ: float64 blurs it by about 1e-15·σ.
    Rounding a release to float32 blurs it by 2.5e-8 of the released values' root mean square, and
    noise drawn in float32 by 2.5e-8·√(2+k)·σ for k directions (4e-8·σ for one), since each block's
    correction factor is rounded too; bfloat16 by 1.6e-3, a grid Δ by Δ/√12
    (``dpaudit run gpm-precision``).
    """

    def __init__(self, *, key: PancakeKey | str | Path, sigma: float = 1.0) -> None:
        """Noise of standard deviation ``sigma`` under ``key``, a ``PancakeKey`` or its file."""
        self.key = key if isinstance(key, PancakeKey) else PancakeKey.load(key)
        self.sigma = check_sigma(sigma)
        self.spacing = peak_spacing(sigma=self.sigma, beta=self.key.beta, gamma=self.key.gamma)
        self.width = peak_width(sigma=self.sigma, beta=self.key.beta, gamma=self.key.gamma)

    @property
    def claim(self) -> str:
        return f"gaussian:sigma={self.sigma!r}"

    @property
    def dim(self) -> int:
        return self.key.dim

    @cached_property
    def _blocks(self) -> tuple[Floats, Floats, Floats]:
        """Each block's Gram matrix of the key's vectors (blocks, k, k), its root, pseudo-inverse.

        A short last block may have fewer coordinates than there are directions; its share then lies
        in the range of its Gram matrix, where the pseudo-inverse is exact.
        """
        grams = self.key.block_grams
        value, vector = np.linalg.eigh(grams)
        value = np.where(value > 1e-9 * value[:, -1:], value, 0.0)
        root = vector * np.sqrt(value)[:, None, :]
        inverse = np.einsum(
            "bij,bj,bkj->bik",
            vector,
            np.divide(1, value, out=np.zeros_like(value), where=value > 0),
            vector,
        )
        return grams, root, inverse

    @cached_property
    def _whole(self) -> tuple[Floats, Floats]:
        """Cholesky factor of the whole Gram matrix (along vectors = factor @ along w), inverse."""
        gram = self._blocks[0].sum(0)
        return np.linalg.cholesky(gram), np.linalg.inv(gram)

    def block_inverse(self, start: int, stop: int) -> Floats:
        """Pseudo-inverses of the Gram matrices of the blocks of a shard, shape (blocks, k, k)."""
        return np.ascontiguousarray(self._blocks[2][start // BLOCK : -(-stop // BLOCK)])

    def shares(self, n: int, *, stream: Stream) -> Floats:
        """The sums of ``n`` releases along the key's vectors, by block: shape (n, blocks, k).

        The only thing that shards have in common: a few numbers per block of 16,384 coordinates.
        """
        check_shape(n, self.dim)
        grams, roots, _ = self._blocks
        out = np.empty((n, len(grams), self.key.directions))
        draw_shares(
            out,
            sigma=self.sigma,
            peaks=Peaks(
                scale=math.hypot(self.key.beta, self.key.gamma) / math.sqrt(2 * math.pi),
                spacing=self.spacing,
                width=self.width,
            ),
            grams=Grams(grams, roots, *self._whole),
            stream=stream,
        )
        return out

    def sample(
        self,
        n: int,
        d: int,
        *,
        stream: Stream,
        dtype: DType | None = None,
        device: torch.device | None = None,
    ) -> Array:
        """``n`` vectors, shape (n, d).

        float64 in an array, unless a torch dtype or a device asks for a tensor. float32 is drawn as
        float32 (inner products in float64), narrower types are rounded.

        Raises:
            UsageError: d is not the key's dimension, or an integer dtype.
        """
        check_shape(n, d)
        if d != self.key.dim:
            raise UsageError(
                f"d={d}: this key was made for dim={self.key.dim}; "
                f"make one with dpaudit key new --dim {d}"
            )
        return self.sample_shard(
            0, d, self.shares(n, stream=stream), stream=stream, dtype=dtype, device=device
        )

    def sample_shard(
        self,
        start: int,
        stop: int,
        shares: Floats,
        *,
        stream: Stream,
        dtype: DType | None = None,
        device: torch.device | None = None,
    ) -> Array:
        """Coordinates ``start`` to ``stop`` of the releases of ``shares`` (n, blocks, k).

        On the CPU a shard equals that part of the whole, bit for bit.

        Raises:
            UsageError: borders that are not multiples of the block size (the end excepted), shares
                of another key, an integer dtype.
        """
        if not is_floating(dtype):
            raise UsageError(
                f"dtype={dtype}: pancakes have no integer law; "
                "draw floating-point noise and round the release"
            )
        if (
            not (0 <= start < stop <= self.dim)
            or start % BLOCK
            or (stop % BLOCK and stop != self.dim)
        ):
            raise UsageError(
                f"start={start}, stop={stop}: shards begin and end at multiples of {BLOCK}, "
                f"or at {self.dim}"
            )
        grams = self._blocks[0]
        if shares.ndim != 3 or shares.shape[1:] != grams.shape[:2]:
            raise UsageError(
                f"shares of shape {shares.shape}: "
                f"this key has (n, {grams.shape[0]}, {grams.shape[1]})"
            )
        first, last = start // BLOCK, -(-stop // BLOCK)
        wide = drawing_dtype(dtype)
        if device is not None and device.type != "cpu":
            from dpaudit.noise.pancake_cuda import draw

            own, kind = shares[:, first:last], torch_dtype(wide)
            values = draw(self, start, stop, own, stream=stream, dtype=kind, device=device)
            return converted(values, dtype)
        out = np.empty((len(shares), stop - start), wide)
        fill_pancake(
            out,
            sigma=self.sigma,
            stream=stream,
            w=self.key.vectors[:, start:stop],
            shares=np.ascontiguousarray(shares[:, first:last]),
            inverse=self.block_inverse(start, stop),
            first_block=first,
        )
        return cast_to(out, dtype, device)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Towards the key holder, at the most exposed neighbour: the exact profile, with its error.

        With several directions only bounds are known: Theorem 4.2 along the first below, Theorem
        4.4 above.
        """
        sigma, beta, gamma = self.sigma, self.key.beta, self.key.gamma
        if self.key.directions == 1:
            exact = key_holder_profile(
                self.key, delta, host=host, sigma=sigma, beta=beta, gamma=gamma
            )
            low, high = max(0.0, exact.value - exact.error), exact.value + exact.error
            return EpsilonBounds(
                low=low, high=high, says="exact profile at the most exposed neighbour"
            )
        along, slack = _along(self.key, host)
        turns = along / self.spacing
        fraction = min(0.5, float(np.abs(turns - np.rint(turns)).max()) + slack / self.spacing)
        return EpsilonBounds(
            low=pancake_epsilon_lower(delta, beta=beta, gamma=gamma, fraction=fraction),
            high=pancake_epsilon_upper(
                delta, sigma=sigma, beta=beta, gamma=gamma, sensitivity=host.sensitivity
            ),
            says="arXiv 2509.23834: Theorem 4.2 at the most exposed neighbour / Theorem 4.4",
        )


def key_holder_profile(
    key: PancakeKey,
    delta: float,
    *,
    host: Host,
    sigma: float,
    beta: float,
    gamma: float,
    releases: int = 1,
) -> ProfileValue:
    """ε of the pancake (σ, β, γ) along ``key``'s first direction, at the most exposed neighbour.

    The neighbours are those of ``host``. After several ``releases`` it is an upper bound, with an
    estimate of what it gives away; see :func:`~dpaudit.accounting.pancake_host_composition`, also
    for what it raises. The law may differ from the key's own: honest noise on top makes a wider
    pancake. See :func:`~dpaudit.accounting.pancake_host_epsilon` for what is guaranteed of one
    release, and ``Host`` for ``slack``. Where slack is not what neighbours attain, as behind a
    lattice, only ``value + error`` says something.
    """
    along, slack = _along(key, host)
    law = {
        "sigma": sigma,
        "beta": beta,
        "gamma": gamma,
        "sensitivity": host.sensitivity,
        "slack": slack,
    }
    if releases > 1:
        return pancake_host_composition(delta, n=releases, **law, along=along)
    return pancake_host_epsilon(delta, **law, along=along)


def _along(key: PancakeKey, host: Host) -> tuple[Floats, float]:
    """The host's differences along the key and their slack; [0] and Δ for the whole ball."""
    direction = np.asarray(key.direction)
    slack = float(host.slack(direction)) if hasattr(host, "slack") else 0.0
    if slack >= host.sensitivity:
        return np.zeros(1), host.sensitivity
    return host.differences(direction), slack
