"""A fast orthogonal scrambling that is not a Haar rotation: rounds of signs and a transform."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy
import torch

from dpaudit.errors import UsageError
from dpaudit.protocols import Array, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds
from dpaudit.vectors.arrays import on_tensors
from dpaudit.vectors.normal import check_query
from dpaudit.vectors.random_words import jit
from dpaudit_mitigations.rotation.bounds import orthogonally_turned
from dpaudit_mitigations.rotation.release import draw, publish

__all__ = ["StructuredRotation"]

_TRANSFORMS = ("dct", "hadamard")
_MOST_ROUNDS = 64
_PART = 1 << 20


class StructuredRotation:
    """Each noise vector through ``rounds`` of fresh signs and a transform, in O(d log d).

    ``transform``, orthonormal: ``dct`` (type II, any d, no padding) or ``hadamard`` (d a power of
    two). After Ailon and Chazelle 2009 and Yu et al. 2016 (arXiv 1610.09072), who use such products
    where a random projection only needs to be nearly one.

    Threat model: a source whose backdoor is one fixed direction that the attacker cannot adapt to
    this mitigation; the defender's generator is trusted and its signs stay secret (rounds·d bits of
    ``Stream.bytes`` per vector).

    Formal guarantee: every vector keeps its norm (orthogonal), and Gaussian noise stays exactly
    that. Not claimed: a Haar rotation, nor anything against a source that knows of it. The map is
    one of 2^(rounds·d) in a fixed set. One round takes a vector with one coordinate to d known
    magnitudes (all equal under Hadamard): undoing the transform shows it. r rounds of Hadamard take
    σ√d·e_j onto the grid 2σ·d^−((r−1)/2)·Z, so that a release tells the candidates apart while that
    is well above the release's own lattice: for three rounds up to d of about 2^20. Both are read
    with certainty in our tests, at d = 64. We did not read three rounds of ``dct``, which proves
    nothing. The norm passes too. Use ``rotation``: it is exact, and cheaper.

    Cost: ``rounds`` transforms (d with large prime factors are slower under ``dct``), memory of up
    to four more vectors; the error does not change.
    """

    trusts = (
        "the defender's generator, that its signs stay secret, and that the source was not made "
        "for this scrambling"
    )

    def __init__(self, *, rounds: int = 3, transform: str = "dct") -> None:
        """``rounds`` (1…64) of signs and ``transform`` (dct or hadamard).

        Raises:
            UsageError: another value of either.
        """
        if (
            isinstance(rounds, bool)
            or not isinstance(rounds, int)
            or not 1 <= rounds <= _MOST_ROUNDS
        ):
            raise UsageError(f"rounds={rounds}: must be a whole number in 1…{_MOST_ROUNDS}, e.g. 3")
        if transform not in _TRANSFORMS:
            raise UsageError(f"transform={transform}: must be dct or hadamard")
        self.rounds, self.transform = rounds, transform

    @on_tensors
    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` plus scrambled noise on the lattice, shape (n, d), computed on the CPU.

        Raises:
            UsageError: hadamard with d not a power of two, no query (see ``check_query``), or
                values beyond σ·2^28 or the dtype.
        """
        n, d = check_query(query)
        if self.transform == "hadamard" and d & (d - 1):
            raise UsageError(f"d={d}: hadamard takes powers of two; use transform=dct")
        noise = draw(query, source, stream=stream)
        turned = torch.empty_like(noise, device="cpu", memory_format=torch.contiguous_format)
        values = turned.numpy()
        for row in range(n):
            values[row] = noise[row].cpu().numpy()
            for i in range(self.rounds):
                _flip(values[row], stream.child("signs", row, i))
                values[row] = self._transformed(values[row])
        return publish(query, turned.to(query.device), sigma=source.sigma)

    def _transformed(self, row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if self.transform == "dct":
            done: npt.NDArray[np.float64] = scipy.fft.dct(row, norm="ortho", overwrite_x=True)
            return done
        _hadamard(row)
        return row

    def scale(self, sigma: float) -> float:
        return sigma

    def mixes(self, sigma: float) -> tuple[float, float]:
        """Gaussian noise of σ; we know no better reading of scrambled noise."""
        return 0.0, sigma

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """The Gaussian's for Gaussian noise; unknown for any other."""
        return orthogonally_turned(
            source, delta, host=host, says="unknown: no Haar rotation, nothing is proven of it"
        )


def _flip(row: npt.NDArray[np.float64], stream: Stream) -> None:
    """Random signs, one bit of the stream each, in place."""
    for at in range(0, len(row), _PART):
        part = row[at : at + _PART]
        data = np.frombuffer(stream.bytes(-(-len(part) // 8)), np.uint8)
        bits = np.unpackbits(data, count=len(part))
        np.negative(part, out=part, where=bits.view(np.bool_))


@jit
def _hadamard(row):  # type: ignore[no-untyped-def]
    """The orthonormal Walsh-Hadamard transform, in place; the length is a power of two."""
    half = 1
    root = np.sqrt(0.5)
    while half < row.size:
        for start in range(0, row.size, 2 * half):
            for i in range(start, start + half):
                a, b = row[i], row[i + half]
                row[i] = (a + b) * root
                row[i + half] = (a - b) * root
        half *= 2
