"""From the map to smoothing: which pancakes an audit would have seen, and what it costs to cover the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dpaudit.accounting import smoothing_tau
from dpaudit.audit.power.frontier import frontier
from dpaudit.errors import UsageError
from dpaudit.types import PowerPoint

__all__ = ["Cover", "Proposal", "propose_tau"]

_FLAW = "Gaussian pancake, small γ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Smoothing of ``tau``·σ against all pancakes with γ ≥ ``gamma_min``, ``by`` a theorem; the L2 error × ``l2_factor``."""

    assumes: str
    gamma_min: float
    tau: float
    l2_factor: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What to smooth with behind an audit of ``samples`` values.

    Pancakes with γ ≤ ``gamma_seen`` are found nine times in ten (None: the map has none that is), for the β that the map
    was measured at (``seen``, in its words). ``covers[0]`` is the proposal, which covers the rest; the others rest on more
    than the audit. ``caveats`` say what that does not include.
    """

    dim: int | None
    samples: int
    eta: float
    gamma_seen: float | None
    seen: str
    covers: tuple[Cover, ...]
    caveats: tuple[str, ...]

    @property
    def says(self) -> str:
        """The proposal in a sentence."""
        best = self.covers[0]
        found = (
            "no pancake is known to be found"
            if self.gamma_seen is None
            else f"pancakes with γ up to {self.gamma_seen:.4g} are found"
        )
        rest = "everything" if self.gamma_seen is None else "the rest"
        return f"{found}; smoothing τ = {best.tau:.4g} (L2 × {best.l2_factor:.4g}) covers {rest}: {best.by}"


def propose_tau(points: Iterable[PowerPoint], *, dim: int | None, samples: int, eta: float = 1e-6) -> Proposal:
    """The least smoothing that covers what an audit of ``samples`` values of dimension ``dim`` may miss.

    γ_min is the largest γ at which ``points`` (the map) has a pancake found nine times in ten, read as
    :func:`~dpaudit.audit.power.frontier` reads it. τ brings η to ``eta`` there for every β (``smoothing_tau``); where no
    τ ≤ σ does, τ = σ is proposed: the defender's own noise is then a Gaussian mechanism of its own, whatever the source.

    Raises:
        UsageError: eta not strictly between 0 and 1.
    """
    if not 0 < eta < 1:
        raise UsageError(f"eta={eta}: must lie strictly between 0 and 1; take e.g. 1e-6")
    here = {p.flaw: p for p in frontier(dim=dim, samples=samples, table=points)}.get(_FLAW)
    covers, caveats = [], []
    if here is not None:
        covers.append(_cover("the audit alone", here.size, eta))
        caveats.append(
            f"Seen: {here.unit}, by {here.by}, nine times in ten. Narrower pancakes look the same to these tests; wider "
            "ones (at d = 64 from β = 0.5 on) may pass at such a γ, and the theorem does not cover them there."
        )
        if dim is None:
            caveats.append(
                "The auditor chose d, which a sampler may notice: one with pancakes in the dimension of the releases alone "
                "is not seen so. Give that dimension."
            )
    else:
        covers.append(_whole("the audit alone"))
        where = f"d = {dim:,}" if dim else "samplers whose dimension the auditor chooses"
        caveats.append(f"The map has no pancake that is found at {where} with {samples:,} values.")
    if dim and (here is None or 2 * math.sqrt(dim) > here.size):
        covers.append(_cover("γ ≥ 2√d: the attacker wants the hardness of continuous LWE", 2 * math.sqrt(dim), eta))
    if covers[0].tau == 1.0:
        caveats.append(
            f"An attacker who gives up the hardness guarantee may take a γ that is not seen and needs τ near σ; below "
            f"γ = {_least_served(eta):.3g} no τ ≤ σ reaches η = {eta:g}. τ = σ is what two servers cost, and covers any "
            "source that does not see the query."
        )
    return Proposal(
        dim=dim,
        samples=samples,
        eta=eta,
        gamma_seen=None if here is None else here.size,
        seen="" if here is None else here.unit,
        covers=tuple(covers),
        caveats=tuple(caveats),
    )


def _cover(assumes: str, gamma: float, eta: float) -> Cover:
    try:
        tau = smoothing_tau(eta, sigma=1.0, gamma=gamma)
    except UsageError:
        return _whole(assumes)
    by = f"smoothing theorem at η = {eta:g}"
    return Cover(assumes=assumes, gamma_min=gamma, tau=tau, l2_factor=math.hypot(1.0, tau), by=by)


def _whole(assumes: str) -> Cover:
    by = "the defender's own noise alone"
    return Cover(assumes=assumes, gamma_min=0.0, tau=1.0, l2_factor=math.sqrt(2), by=by)


def _least_served(eta: float) -> float:
    """The smallest γ at which some τ ≤ σ reaches ``eta``."""
    low, high = 0.0, 64.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if _cover("", middle or 1e-3, eta).gamma_min else (middle, high)
    return high
