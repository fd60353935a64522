"""One Haar rotation for all noise vectors of a call, exactly, without its matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from dpaudit.protocols import Array, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds
from dpaudit.vectors.arrays import on_tensors
from dpaudit.vectors.normal import check_query
from dpaudit_mitigations.rotation.bounds import haar_rotated_together
from dpaudit_mitigations.rotation.randomness import Randomness
from dpaudit_mitigations.rotation.release import draw, narrow, publish

__all__ = ["SharedRotation", "rotate_together", "triangle"]

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

    def __init__(
        self, *, randomness: str = "stream", second_party: bytes | str | Path | None = None
    ) -> None:
        """``randomness`` is ``stream`` or ``csprng``; see ``Randomness``, also for the share.

        Raises:
            UsageError: another value, or an invalid share.
        """
        self._randomness = Randomness(kind=randomness, second_party=second_party)

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
            min(n, d), d, stream=self._randomness.own(stream), device=query.device
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
