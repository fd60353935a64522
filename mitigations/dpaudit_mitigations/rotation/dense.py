"""Haar rotations as whole matrices: the oracle for small dimensions."""

from __future__ import annotations

import torch

from dpaudit.errors import UsageError
from dpaudit.protocols import Array, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds
from dpaudit.vectors.arrays import on_tensors
from dpaudit.vectors.normal import check_query, standard_normal
from dpaudit_mitigations.rotation.bounds import haar_rotated, haar_rotated_together
from dpaudit_mitigations.rotation.release import draw, publish

__all__ = ["MOST", "DenseRotation", "haar_matrix"]

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
