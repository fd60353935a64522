"""Releases rounded to a coarse grid: the proof-less relative of smoothing."""

from __future__ import annotations

import math

import torch

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import on_tensors
from dpaudit.numeric.lattice import RoundedHost, add_on_lattice, in_dtype, lattice_step
from dpaudit.numeric.normal import check_query
from dpaudit.protocols import Array, Host, NoiseSource, ReleasingSource, Stream
from dpaudit.types import EpsilonBounds
from dpaudit_mitigations.smoothing.own_noise import check_positive, least_gamma

__all__ = ["Rounding"]

_FORMS = ("integers", "bf16")
_BF16_BITS = 7  # after the point


class Rounding:
    """Rounds the noisy release to a ``grid``, integers or bf16, too coarse for the peaks' phase.

    Threat model: the source may be a pancake with a key that is spread over many coordinates (a
    random one is), and the grid is at least about two peak spacings wide: ``peaks=2`` at the
    smallest γ to defend against. ``to=integers`` (grid 1) meets that for counts only if 2P ≤ 1,
    that is, γ ≥ 5σ; ``to=bf16``, whose steps are 2^-8 to 2^-7 of each value (about 0.004σ), only
    for γ above about 1,000.

    Formal guarantee: none against the key holder, in the sense of a number. It is post-processing,
    so the release is no less private than the source's own (at sensitivity Δ + g√d for the lattice,
    where the source does not release itself). The reason to expect more: the d rounding errors add
    up along the key to about N(0, grid²/12), which at grid = 2P is smoothing with τ = 0.58P, η =
    3e-3. Measured only: at grid = 2P the keyed attacks are no better than chance in 10,000 trials
    (tests). Not claimed: that the errors are independent of the noise or of each other; anything
    for a key along a few coordinates, whose errors add up to no such noise, or for peaks further
    apart; that many releases together stay safe. A black-box audit detects the grid.

    The sum of query and noise is first made exactly, on the lattice of ``lattice_step(σ)``, or by a
    source that releases on its own; rounding a floating-point sum would round twice.

    Cost: the error grows to √(σ² + grid²/12); one pass. The release is no longer Gaussian.
    """

    trusts = "nobody more than the source; no proof, measured only"

    def __init__(
        self,
        *,
        grid: float | None = None,
        peaks: float | None = None,
        to: str | None = None,
        gamma_min: float | None = None,
        dim: int | None = None,
    ) -> None:
        """Round to multiples of ``grid`` (in the query's unit), of ``peaks`` spacings, or ``to``.

        ``to`` is integers or bf16. ``peaks`` counts spacings of the pancakes at the source's σ and
        ``gamma_min`` (2√dim by default).

        Raises:
            UsageError: not exactly one of grid, peaks and to; one of the numbers not finite and >
                0; peaks without gamma_min or dim; another ``to``.
        """
        steps = {k: v for k, v in {"grid": grid, "peaks": peaks}.items() if v is not None}
        if len(steps) + (to is not None) != 1:
            raise UsageError(f"rounding: grid={grid}, peaks={peaks}, to={to}: needs exactly one")
        check_positive(**steps)
        if to is not None and to not in _FORMS:
            raise UsageError(f"to={to}: must be {' or '.join(_FORMS)}; for another step use grid=…")
        self.to, self.peaks = to, peaks
        self._grid = 1.0 if to == "integers" else grid
        self._gamma = least_gamma(gamma_min=gamma_min, dim=dim)
        if peaks is not None and self._gamma is None:
            raise UsageError(f"peaks={peaks}: needs gamma_min=… or dim=… for their spacing")

    def grid(self, sigma: float) -> float | None:
        """The grid for a source of scale ``sigma``, in the query's unit; None for bfloat16."""
        if self.peaks is None or self._gamma is None:
            return self._grid
        return self.peaks * math.sqrt(2 * math.pi) * sigma / self._gamma  # P at β → 0

    @on_tensors
    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """The source's release of ``query`` (n, d), exact on a lattice, then rounded half to even.

        Raises:
            UsageError: no query (see ``check_query``); a grid finer than the lattice, or a value
                beyond its range.
        """
        n, d = check_query(query)
        grid, step = self.grid(source.sigma), lattice_step(source.sigma)
        if grid is not None and grid < step:
            raise UsageError(f"grid={grid}: finer than the lattice of exact sums, {step}")
        if isinstance(source, ReleasingSource):
            exact = source.release(query, stream=stream)
        else:
            noise = source.sample(n, d, stream=stream, dtype=torch.float64, device=query.device)
            exact = add_on_lattice(query, noise, granularity=step, name="rounding")
        if grid is None:
            return in_dtype(exact.double(), torch.bfloat16, exact.device).to(query.dtype)
        return in_dtype(exact.double().div(grid).round_().mul_(grid), query.dtype, query.device)

    def scale(self, sigma: float) -> float:
        """√(σ² + grid²/12).

        It holds for a query spread over the grid's cells, or a grid up to about 2σ, whatever the
        query. For bfloat16 it takes the released values to be mostly noise; larger ones have larger
        errors (0.17 % of a value).
        """
        return math.hypot(sigma, self._error(sigma))

    def mixes(self, sigma: float) -> tuple[float, float]:
        """Noise of σ, and errors along the source's key, which act like independent noise."""
        return sigma, self._error(sigma)

    def _error(self, sigma: float) -> float:
        grid = self.grid(sigma)
        return _bf16_error(sigma) if grid is None else grid / math.sqrt(12)

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """From 0 to the source's own on the lattice, since it is post-processing."""
        releases = isinstance(source, ReleasingSource)
        own = source.epsilon(
            delta, host=host if releases else RoundedHost(host, lattice_step(source.sigma))
        )
        return EpsilonBounds(
            low=0.0, high=own.high, says=f"no proof of less than the source's own: {own.says}"
        )


def _bf16_error(sigma: float) -> float:
    """Root mean square error of bfloat16 on N(0, σ²): steps are 2^(e−7) in [2^e, 2^(e+1))."""
    middle = math.frexp(sigma)[1]
    total = 0.0
    root = math.sqrt(0.5)
    for e in range(middle - 30, middle + 5):
        share = math.erf(2.0 ** (e + 1) / sigma * root) - math.erf(2.0**e / sigma * root)
        total += share * 4.0 ** (e - _BF16_BITS) / 12
    return math.sqrt(total)
