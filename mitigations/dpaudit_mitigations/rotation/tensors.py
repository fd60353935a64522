"""Secret rotations that work on tensors.

:class:`SharedRotation`: one for all vectors of a call, exactly, without its matrix.
:class:`DenseRotation`: by a whole matrix, the oracle for small dimensions.
:class:`StructuredRotation`: signs and fast transforms, which is not Haar.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import scipy
import torch

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import on_tensors
from dpaudit.numeric.normal import check_query, check_whole, standard_normal
from dpaudit.numeric.random_words import jit
from dpaudit.protocols import Array, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds
from dpaudit_mitigations.rotation.bounds import (
    haar_rotated,
    haar_rotated_together,
    orthogonally_turned,
)
from dpaudit_mitigations.rotation.fresh import Randomness, draw, narrow, publish

__all__ = ["DenseRotation", "SharedRotation", "StructuredRotation", "haar_matrix"]

_VALUES = 1 << 16  # of a chunk of all rows: in cache


class SharedRotation:
    """All n noise vectors of a call under ONE random rotation, in O(n²d).

    After arXiv 2509.23834, Section 6.1.

    A Haar rotation acts on the span of n vectors through a Haar m-frame, m = min(n, d): if V = L·Q
    with orthonormal rows Q, then V·Rᵀ = L·(Q·Rᵀ), and Q·Rᵀ is a uniformly random m-frame whatever Q
    is. L comes from a QR of V, the frame from a QR (with positive diagonal) of a Gaussian m×d
    matrix; no d×d matrix is formed, nor Q. Another call has another rotation.

    Threat model: as for ``rotation``, for one release. Formal guarantee: the law of the n turned
    vectors given the source's is exactly that of one Haar rotation of them (tested against
    ``dense-rotation``), so lengths, distances and angles between them are kept and nothing else is;
    each vector by itself is as under ``rotation``. Released on the same lattice.

    Not claimed: what ``rotation`` gives several releases. Under one rotation all n(n+1)/2 inner
    products of the noise vectors pass, known to the source, and ⟨y_i − q_i, y_j − q_j⟩ shows them
    to whoever has the right candidates: a source that gives the same noise twice reveals q_i − q_j
    completely. And a secret direction stays one direction: whoever can find a source's without its
    key, from releases whose truth is known, can find the turned one in one call and read the call's
    other releases (``dpaudit run mitigations`` does, in 32 dimensions). Use ``rotation`` unless you
    need the geometry.

    Cost: one Gaussian draw, three passes of n multiplications per value, one more float64 array (n,
    d); the error does not change.
    """

    trusts = (
        "the defender's generator, that its rotation stays secret, and the source for all inner "
        "products within a call"
    )

    def __init__(self, *, randomness: str = "stream") -> None:
        """``randomness`` is ``stream`` or ``csprng``; see ``Randomness``.

        Raises:
            UsageError: another value.
        """
        self._randomness = Randomness(kind=randomness)

    @on_tensors
    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` plus noise rotated together, on the lattice, shape (n, d).

        Raises:
            UsageError: no query (see ``check_query``), values beyond σ·2^28, or that the dtype
                cannot hold.
        """
        n, d = check_query(query)
        noise = draw(query, source, stream=stream, dtype=narrow(query))
        with _one_thread():
            inner = triangle(noise)
        del noise
        frame = self._randomness.normal(
            min(n, d), d, stream=stream.child("rotation"), device=query.device
        )
        with _one_thread():
            turned = rotate_together(inner, frame)
        return publish(query, turned, sigma=source.sigma)

    def scale(self, sigma: float) -> float:
        return sigma

    def mixes(self, sigma: float) -> tuple[float, float]:
        """Gaussian noise of σ; the source's key fits no turned noise."""
        return 0.0, sigma

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """``rotation``'s; for a pancake only its ``low``: see ``haar_rotated_together``."""
        return haar_rotated_together(source, delta, host=host)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One torch thread for many chunks in cache: several wait longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def triangle(rows: torch.Tensor) -> torch.Tensor:
    """R (m, n) with RᵀR = V·Vᵀ for ``rows`` V (n, d), m = min(n, d), float64, diagonal ≥ 0.

    R is that of the QR of Vᵀ, by Householder reflections on one chunk of coordinates after another,
    so distances far smaller than the lengths are accurate, as are rows that are zero, repeated or
    linearly dependent.
    """
    n, d = rows.shape
    upper = rows.new_zeros((0, n), dtype=torch.float64)
    step = max(4 * n, _VALUES // n)
    for at in range(0, d, step):
        _, upper = torch.linalg.qr(torch.cat([upper, rows[:, at : at + step].T.double()]), mode="r")
    sign = torch.where(upper.diagonal() < 0, -1.0, 1.0)
    return upper * sign.unsqueeze(1)


def rotate_together(inner: torch.Tensor, frame: torch.Tensor) -> torch.Tensor:
    """Vectors (n, d) with the inner products innerᵀ·inner, ``inner`` (m, n), turned at random.

    ``frame`` (m, d) is Gaussian and is overwritten, with the result where m = n.
    """
    m, n = inner.shape
    # frame → orthonormal rows → L times them
    mix = torch.linalg.solve_triangular(triangle(frame), inner, upper=True).T
    out = frame if m == n else frame.new_empty((n, frame.shape[1]))
    step = max(1, _VALUES // n)
    for at in range(0, frame.shape[1], step):
        out[:, at : at + step] = mix @ frame[:, at : at + step].double()
    return out


MOST = 2000


class DenseRotation:
    """Noise times a uniformly random orthogonal matrix, d×d (arXiv 2509.23834, Section 6.1).

    The matrix is Q of the QR of a Gaussian matrix with R's diagonal made positive, which is Haar on
    O(d) (Mezzadri 2007, arXiv math-ph/0609050); reflections are among them, which no release of
    fewer than d vectors can tell. ``shared``: one matrix for all vectors of a call instead of one
    each.

    Threat model, formal guarantee, not claimed: those of ``rotation``, or of ``shared-rotation`` if
    shared, whose laws are the same. It is the oracle in their tests. Cost: O(d³) per matrix and d²
    numbers of memory; dimensions up to 2,000 only.
    """

    trusts = "the defender's generator, and that its rotation stays secret"

    def __init__(self, *, shared: bool = False) -> None:
        """One matrix for each vector, or for each call if ``shared``.

        Raises:
            UsageError: shared is not true or false.
        """
        if not isinstance(shared, bool):
            raise UsageError(f"shared={shared}: must be true or false")
        self.shared = shared

    @on_tensors
    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` plus rotated noise on the lattice, shape (n, d).

        Raises:
            UsageError: d above 2,000, no query (see ``check_query``), or values beyond σ·2^28 or
                the dtype.
        """
        n, d = check_query(query)
        if d > MOST:
            raise UsageError(f"d={d}: a dense rotation takes at most {MOST}; use rotation")
        noise, own = draw(query, source, stream=stream), stream.child("rotation")
        if self.shared:
            turned = noise @ haar_matrix(d, stream=own, device=noise.device).T
        else:
            rows = [
                haar_matrix(d, stream=own.child(i), device=noise.device) @ noise[i]
                for i in range(n)
            ]
            turned = torch.stack(rows)
        return publish(query, turned, sigma=source.sigma)

    def scale(self, sigma: float) -> float:
        return sigma

    def mixes(self, sigma: float) -> tuple[float, float]:
        """Gaussian noise of σ; the source's key fits no turned noise."""
        return 0.0, sigma

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """``rotation``'s; if shared, ``shared-rotation``'s."""
        return (haar_rotated_together if self.shared else haar_rotated)(source, delta, host=host)


def haar_matrix(d: int, *, stream: Stream, device: torch.device | None = None) -> torch.Tensor:
    """A uniformly random orthogonal matrix, shape (d, d), float64."""
    q, r = torch.linalg.qr(
        standard_normal(d, d, stream=stream, device=device or torch.device("cpu"))
    )
    signed: torch.Tensor = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return signed


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
        if transform not in _TRANSFORMS:
            raise UsageError(f"transform={transform}: must be dct or hadamard")
        self.rounds = check_whole("rounds", rounds, low=1, high=_MOST_ROUNDS)
        self.transform = transform

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
            source, delta, host=host, statement="unknown: no Haar rotation, nothing is proven of it"
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
