"""The plug-in ``two-servers``: the law of what both servers publish, and a protocol rehearsal.

:func:`key_holder_epsilon` says what their noise gives against someone who knows every secret of the
backdoored part.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from dpaudit.accounting import smoothed_pancake
from dpaudit.accounting.discrete import discrete_gaussian_bounds
from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake, key_holder_profile
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.numeric.arrays import on_tensors, tensor
from dpaudit.numeric.exact_integers import LARGEST_SCALE, IntegerLaw, draw_integers
from dpaudit.numeric.lattice import add_on_lattice, in_dtype, lattice_step
from dpaudit.numeric.normal import check_query
from dpaudit.protocols import Array, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds, Rehearsal

__all__ = ["Backdoored", "TwoServers", "key_holder_epsilon"]

Backdoored = Literal["answer", "noise", "both"]


def key_holder_epsilon(
    source: NoiseSource,
    delta: float,
    *,
    host: Host,
    backdoored: Backdoored,
    ratio: float,
    step: float,
) -> EpsilonBounds:
    """Bounds for server 1's noise (scale σ) plus server 2's (``ratio``·σ), ``source`` backdoored.

    Where ``source`` is in truth Gaussian, the whole sum is (of two discrete Gaussians of s₁, s₂
    steps, up to a factor of 1 ± 4·exp(−2π²·s₁²s₂²/(s₁²+s₂²)) per coordinate, which is 1 in
    doubles). A pancake plus an honest Gaussian is a pancake again, so its profile is exact
    (``dpaudit.accounting.smoothed_pancake``) except for the lattice, whose rounding adds up to
    ``step``·√d to the sensitivity and is left out there. For anything else only this is used: that
    adding to it is post-processing, and that the honest server's noise protects whatever it is
    added to; that noise is also an upper bound throughout.
    """
    sigma, key = source.sigma, _key(source)

    def gaussian(scale: float) -> EpsilonBounds:
        return discrete_gaussian_bounds(
            delta,
            scale=scale / step,
            sensitivity=host.sensitivity / step,
            dim=host.dim,
            rounded=True,
        )

    if isinstance(source, Gaussian | SecureGaussian):
        own = gaussian(sigma * math.hypot(1.0, ratio))
        return EpsilonBounds(low=own.low, high=own.high, says="Gaussian noise of both servers")
    if backdoored == "both":
        if (
            key is not None
            and ratio == 1
            and (bounds := _two_pancakes(source, key, delta, host)) is not None
        ):
            return bounds
        high = source.epsilon(delta, host=host).high
        return EpsilonBounds(
            low=0.0,
            high=high,
            says="no honest server: at most what server 1's noise alone gives away",
        )
    honest, theirs = (ratio * sigma, sigma) if backdoored == "answer" else (sigma, ratio * sigma)
    alone = gaussian(honest).high
    if key is None:
        high = min(alone, source.epsilon(delta, host=host).high) if theirs == sigma else alone
        return EpsilonBounds(low=0.0, high=high, says="the honest server's noise alone")
    total, beta, gamma = smoothed_pancake(honest, sigma=theirs, beta=key.beta, gamma=key.gamma)
    exact = key_holder_profile(key, delta, host=host, sigma=total, beta=beta, gamma=gamma)
    low = max(0.0, exact.value - exact.error)
    return EpsilonBounds(
        low=low,
        high=max(low, min(alone, exact.value + exact.error)),
        says="profile of a pancake with honest noise on top, at the most exposed neighbour",
    )


def _key(source: NoiseSource) -> PancakeKey | None:
    """The source's key, if it is a pancake's with one direction."""
    return source.key if isinstance(source, Pancake) and source.key.directions == 1 else None


def _two_pancakes(
    source: NoiseSource, key: PancakeKey, delta: float, host: Host
) -> EpsilonBounds | None:
    """Two pancakes of one key: the sum has P unchanged and (√2σ, √2β, √2γ), by Lemma 2.6's law.

    The peaks' weights Σ_j exp(−π(j² + (k−j)²)/r²) are exp(−πk²/2r²) times a theta series that
    varies by a factor of 1 ± 2·exp(−πr²/2); None unless that is 1 in doubles.
    """
    r2 = key.beta**2 + key.gamma**2
    if math.pi * r2 / 2 < 40:
        return None
    root = math.sqrt(2.0)
    exact = key_holder_profile(
        key,
        delta,
        host=host,
        sigma=root * source.sigma,
        beta=root * key.beta,
        gamma=root * key.gamma,
    )
    low = max(0.0, exact.value - exact.error)
    return EpsilonBounds(
        low=low,
        high=exact.value + exact.error,
        says="no honest server: exact profile of two pancakes under one key",
    )


class TwoServers:
    """Server 1 answers with its own noise; server 2 adds N(0, (ratio·σ)²I) and publishes the sum.

    Source: arXiv 2509.23834, Section 6.2.1. ``backdoored`` says whose noise the untrusted source
    is: that of the server that answers (the paper's case), that of the server that adds ``noise``,
    or that of ``both``, who then share the key; an honest server's is exact discrete Gaussian noise
    from a CSPRNG.

    Threat model: either server's noise may be backdoored in any way, and the adversary knows all
    its secrets and sees everything that is published. The two do not work together: neither tells
    the adversary, or the other, its own noise. Anyone may listen, drop, delay, change or replay
    messages between the processes: messages are authenticated (mTLS, TLS 1.3), bound to one release
    and round, and checked.

    Formal guarantee: the published vector is g·(K + Z₁ + Z₂), K the query in whole steps of a
    lattice that public numbers fix, Z₁ and Z₂ the servers' noises, neither of which has seen the
    query. So against someone who knows one of them completely, it is at least as private as the
    other's discrete Gaussian mechanism at sensitivity Δ + g√d (post-processing); if both are
    honest, as a Gaussian of scale σ√(1+ratio²). Each release is published exactly once, with one
    noise of each server, whichever process is killed when.

    Not claimed: anything if both servers are backdoored and share a key, as ``backdoored=both``
    shows. That server 1 is otherwise honest: it has the query. That server 2 is, with its own
    noise: it sees server 1's answer, which only server 1's noise protects from it. That a release
    survives a failed disk or a restored old journal: then a name may be drawn for a second time,
    which the other server refuses if its own journal has it; if both are lost, take new names.
    Erasure of seeds and drafts from the disk's blocks; constant time.

    Cost: the error grows by √(1 + ratio²), √2 by default. One more Gaussian draw, and each vector
    once over the network: 4 bytes per coordinate.
    """

    trusts = (
        "that one of the two servers adds noise of its own and keeps it to itself; "
        "server 1, with the query"
    )

    def __init__(self, *, backdoored: str = "answer", ratio: float = 1.0) -> None:
        """``backdoored`` is answer, noise or both; ``ratio`` is server 2's noise scale over 1's.

        Raises:
            UsageError: another ``backdoored``, or a ratio that is not between 2^-8 and 2^8.
        """
        if backdoored not in ("answer", "noise", "both"):
            raise UsageError(f"backdoored={backdoored}: one of answer, noise, both")
        if isinstance(ratio, str | bool) or not 2.0**-8 <= ratio <= 2.0**8:
            raise UsageError(f"ratio={ratio}: must lie between 2^-8 and 2^8; 1 is the paper's")
        self.backdoored: Backdoored = backdoored  # type: ignore[assignment]
        self.ratio = float(ratio)

    @on_tensors
    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """``query`` (n, d) plus both servers' noise in whole lattice steps; same shape and dtype.

        The source is asked for noise alone, as a library in a server is: a ``ReleasingSource`` does
        not get the query.

        Raises:
            UsageError: no query, or one beyond the lattice's range.
        """
        n, d = check_query(query)
        step = self._step(source.sigma)
        total = torch.zeros((n, d), dtype=torch.float64)
        for server, scale in (("answer", 1.0), ("noise", self.ratio)):
            own = stream.child(server)
            if self.backdoored in (server, "both"):
                noise = source.sample(n, d, stream=own, dtype=torch.float64)
                total += noise.mul_(scale / step).round_()
            else:
                law = IntegerLaw.gaussian(scale * source.sigma / step)
                total += torch.from_numpy(draw_integers(n * d, law, stream=own).reshape(n, d))
        released = add_on_lattice(
            query.to("cpu", torch.float64), total.mul_(step), granularity=step, name="two-servers"
        )
        return in_dtype(released, query.dtype, query.device)

    def scale(self, sigma: float) -> float:
        """σ√(1 + ratio²)."""
        return sigma * math.hypot(1.0, self.ratio)

    def mixes(self, sigma: float) -> tuple[float, float] | None:
        """Standard deviations of the backdoored and the honest noise; None if none is honest."""
        both = (sigma, self.ratio * sigma)
        return {"answer": both, "noise": both[::-1]}.get(self.backdoored)

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """ε against someone who knows every backdoored secret; see ``key_holder_epsilon``."""
        return key_holder_epsilon(
            source,
            delta,
            host=host,
            backdoored=self.backdoored,
            ratio=self.ratio,
            step=self._step(source.sigma),
        )

    def rehearse(self, query: Array, source: NoiseSource, *, stream: Stream) -> Rehearsal:
        """Run both servers in this process, over mutually authenticated gRPC on loopback.

        ``query`` (1, d); certificates are made for it. ``two_servers.rehearsal`` has the seconds.

        Raises:
            UsageError: more than one row, or no query.
        """
        from dpaudit_mitigations.two_servers.rehearsal import rehearse

        n, _ = check_query(query)
        if n != 1:
            raise UsageError(f"query of {n} rows: one release is rehearsed, shape (1, d)")
        return rehearse(
            tensor(query)[0].detach().cpu(),
            source,
            backdoored=self.backdoored,
            ratio=self.ratio,
            stream=stream,
        ).figures

    def _step(self, sigma: float) -> float:
        step = lattice_step(sigma * min(1.0, self.ratio))
        if sigma * max(1.0, self.ratio) / step > LARGEST_SCALE:
            raise UsageError(f"ratio={self.ratio}: the larger noise exceeds the other's lattice")
        return step
