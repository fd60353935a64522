"""The distributed Gaussian mechanism: n servers' noise shares, summed under masks.

:func:`simulate` runs a whole round in this process, with the state machines of real processes, and
counts all bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import on_tensors, tensor
from dpaudit.numeric.lattice import in_dtype
from dpaudit.numeric.normal import check_query, check_sigma, check_whole
from dpaudit.protocols import Array, Host, Message, NoiseSource, Party, Stream
from dpaudit.types import EpsilonBounds, Rehearsal
from dpaudit_mitigations.rehearsal import Meter, gather
from dpaudit_mitigations.secure_aggregation.client import Client
from dpaudit_mitigations.secure_aggregation.keys import new_signing_key, public_bytes
from dpaudit_mitigations.secure_aggregation.noise import (
    Law,
    NoiseShare,
    finest_granularity,
    least_honest,
)
from dpaudit_mitigations.secure_aggregation.plan import (
    ROUND_BYTES,
    FixedPoint,
    Plan,
    RingArray,
    least_threshold,
)
from dpaudit_mitigations.secure_aggregation.server import STAGES, Aggregator, Stage
from dpaudit_mitigations.secure_aggregation.wire import VECTOR_KIND
from dpaudit_mitigations.transport.vectors import VectorReader, vector_frames

__all__ = ["DistributedGaussian", "party_names", "simulate"]

AGGREGATOR = "aggregator"
"""The aggregator's name in an outcome's ``sent`` and ``seconds``."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a round.

    ``total`` (length,) is the ring sum of the ``survivors``' vectors. ``sent`` are the bytes that
    each party and the aggregator sent, ``seconds`` the working time of each (framing and hashing
    included; they run one after the other).
    """

    total: RingArray = field(repr=False)
    survivors: tuple[str, ...]
    sent: Mapping[str, int]
    seconds: Mapping[str, float]

    @property
    def wire(self) -> int:
        """Bytes over all links."""
        return sum(self.sent.values())


def party_names(count: int) -> tuple[str, ...]:
    """``party-001`` and so on: the names of a simulation's parties, in their inputs' order."""
    return tuple(f"party-{i:03d}" for i in range(1, count + 1))


def simulate(
    inputs: Sequence[RingArray | Callable[[], RingArray]],
    *,
    length: int,
    bits: int,
    stream: Stream,
    threshold: int | None = None,
    colluding: int = 0,
    dropouts: Mapping[str, Collection[int]] | None = None,
    context: bytes = b"",
) -> Outcome:
    """One round with ``inputs[i]`` as party i's vector (length,), or a function that makes it.

    Vectors are masked in place. ``dropouts`` maps a stage (``advertise``, ``share``, ``mask``,
    ``confirm``, ``unmask``) to the parties, counted from 0, that stop responding before they send
    anything of it. ``threshold`` is the least allowed unless given. Keys come from ``stream`` (the
    coefficients of Shamir's polynomials always from the operating system).

    Raises:
        UsageError: vectors that do not fit, an unknown stage or party, or a plan that cannot be.
        ProtocolError: fewer parties than the threshold are left at some stage.
    """
    names = party_names(len(inputs))
    signing = {name: new_signing_key(stream.child("signing", name)) for name in names}
    if threshold is None:
        threshold = least_threshold(len(names), colluding=colluding)
    plan = Plan(
        round=stream.child("round").bytes(ROUND_BYTES),
        roster={name: public_bytes(key) for name, key in signing.items()},
        threshold=threshold,
        length=length,
        bits=bits,
        colluding=colluding,
        context=context,
    )
    clients: dict[str, Party] = {
        name: Client(
            plan,
            name,
            vector=vector,
            signing_key=signing[name],
            stream=stream.child("party", name),
        )
        for name, vector in zip(names, inputs, strict=True)
    }
    for name, stage in _leavers(dropouts or {}, names).items():
        clients[name] = _Leaving(clients[name], steps=STAGES.index(stage))
    server, meter = Aggregator(plan), Meter()
    gather(server, clients, meter=meter, name=AGGREGATOR, carry=partial(_carry, meter, plan))
    assert server.release is not None  # noqa: S101 - it is done
    return Outcome(
        total=server.release.total,
        survivors=server.release.survivors,
        sent=dict(meter.sent),
        seconds=dict(meter.seconds),
    )


@dataclass
class _Leaving:
    """A party that takes so many steps, and then does not respond."""

    party: Party
    steps: int

    @property
    def done(self) -> bool:
        return self.party.done

    def step(self, message: bytes | None) -> Message | None:
        self.steps -= 1
        return None if self.steps < 0 else self.party.step(message)


def _carry(meter: Meter, plan: Plan, sender: str, message: Message) -> Message:
    """What arrives of a message: bytes as they are, a vector by its frames."""
    if isinstance(message, bytes):
        return meter.carry(sender, message)
    assert isinstance(message, np.ndarray)  # noqa: S101 - no client sends anything else
    frames = vector_frames(VECTOR_KIND, message, session=plan.digest)
    reader = VectorReader(kind=VECTOR_KIND, **plan.vector)
    while not reader.done:
        with meter.working(sender):
            frame = next(frames)
        with meter.working(AGGREGATOR):
            reader.take(meter.carry(sender, frame))
    return reader.array


def _leavers(dropouts: Mapping[str, Collection[int]], names: Sequence[str]) -> dict[str, Stage]:
    """From which stage on each party that drops out does not respond."""
    out: dict[str, Stage] = {}
    for stage, parties in dropouts.items():
        if stage not in STAGES:
            raise UsageError(f"dropouts at {stage!r}: takes {', '.join(STAGES)}")
        for i in parties:
            if not 0 <= i < len(names):
                raise UsageError(f"dropouts of party {i}: takes 0 to {len(names) - 1}")
            if names[i] in out:
                raise UsageError(f"dropouts of party {i}: named at two stages; name the first")
            out[names[i]] = Stage(stage)
    return out


_CHUNK = 1 << 16

Integers = npt.NDArray[np.int64]


class DistributedGaussian:
    """Each of n servers adds noise to its part of the query; secure aggregation shows only the sum.

    arXiv 2509.23834, Section 6.2, with the secure aggregation of Bonawitz et al. 2017 (double
    masking, Shamir, consistency check) and noise in whole steps (Kairouz, Liu and Steinke 2021, or
    Skellam: Agarwal, Kairouz and Liu 2021). Of n ``servers``, ``backdoored`` k draw their share
    from the source under study, scaled to it; ``colluding`` c others tell the attacker their own
    noise; at most ``dropouts`` may leave during the round: the threshold is the other t = n −
    dropouts, below which no sum comes out. Each share is σ/√h, h = t − c − k: whichever t servers
    stay, and whoever chose them, the honest among them together add σ.

    Model, for experiments: the first server holds the query and the others zero; the backdoored
    come first, then the colluding, and the ``dropouts`` (honest ones, the worst case) really leave,
    right before they would send their vectors. LAB OPTION: with ``colluding`` above 0
    :meth:`release` gives not what is published but the COALITION'S VIEW of it: the published sum
    less the colluders' own noise.

    Threat model: the source in k servers may hide anything (these otherwise follow the protocol); c
    servers and the aggregator work with the attacker; messages may be changed or held back, which
    leaves honest servers out of the sum. The other servers follow the protocol and their generators
    are secure.

    Formal guarantee: against all of these together the release has at least the privacy of the h
    honest shares (:meth:`epsilon`): the rest is added independently of them. Rests on X25519,
    AES-256, HKDF and Ed25519 for what is hidden from the aggregator (computational), and on a
    threshold above (n + c)/2 against two lists of survivors. The sum is exact: no value is clipped
    and no sum wraps around (``FixedPoint``). A server whose noise exceeds its room sends nothing,
    which is visible; this has probability at most 2^-40 per round, and adds at most (1 + e^ε)·2^-40
    to δ.

    Not claimed: that a deviating server cannot spoil the sum or stop the round; that other servers'
    data are hidden from whoever knows the sum; protection with fewer honest servers than planned;
    anything about the source's noise itself.

    Cost: error √((h + k)/h) times the source's in the coalition's view, √((n − dropouts)/h) as
    published; n noise draws, n(n−1)/2 key agreements, b/8 bytes per coordinate and server.
    """

    trusts = (
        "each server counted as honest, for secret noise of its own; the aggregator for nothing"
    )

    def __init__(
        self,
        *,
        servers: int = 3,
        colluding: int = 0,
        backdoored: int = 1,
        dropouts: int = 0,
        noise: Law = "discrete-gaussian",
        bits: int = 64,
        bound: float | None = None,
    ) -> None:
        """Set how many of the ``servers`` are of each kind (see the class).

        ``bits`` (16, 32, 64) of a ring element. |query value| ≤ ``bound``, a public number in the
        query's unit; without it 64 bits have room for about 10^8·σ/n at a granularity of σ·2^-24
        (2^-12 for Skellam), and for as much noise of a source. Narrower rings need it, and have
        room for little more than 8.5σ of noise.

        Raises:
            UsageError: fewer than 3 servers, no honest one left, so many drop-outs that the
                threshold is too low, an unknown noise or ring, or a narrow ring without ``bound``.
        """
        self.servers = check_whole("servers", servers, low=3)
        self.colluding, self.backdoored = colluding, backdoored
        self.dropouts = dropouts
        self.honest = least_honest(
            servers, dropouts=dropouts, colluding=colluding, backdoored=backdoored
        )
        least = least_threshold(servers, colluding=colluding)
        self.threshold = servers - dropouts
        if self.threshold < least:
            raise UsageError(
                f"dropouts={dropouts}: leave {self.threshold} of servers={servers}, but {least}, "
                "more than (servers + colluding)/2, must stay; take more servers or fewer drop-outs"
            )
        if bits not in (16, 32, 64):
            raise UsageError(f"bits={bits}: takes 16, 32 or 64")
        if bound is None and bits < 64:
            raise UsageError(f"bits={bits}: needs bound=…, the query's largest |value|; or bits=64")
        self.bits, self.noise = bits, noise
        self.bound = None if bound is None else check_bound(bound)
        finest_granularity(noise, 1.0)

    @on_tensors
    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """What the coalition sees of each row of ``query`` (n, d); the published sum if c = 0.

        Raises:
            UsageError: no query, values beyond the bound, or a ring without room for them.
        """
        n, d = check_query(query)
        form, share = self._form(source.sigma, d)
        flat = query.detach().to("cpu", torch.float64).numpy().reshape(-1)
        noises = [own.reshape(-1) for own in self._sources(n, d, source, stream=stream)]
        honest = [share.drawer(stream.child("server", i)) for i in self._honest_ones()]
        out = np.empty(n * d)
        for at in range(0, n * d, _CHUNK):
            part = slice(at, min(at + _CHUNK, n * d))
            noise = [self._own_steps(form, own[part]) for own in noises]
            noise += [draw(part.stop - at) for draw in honest]
            steps = form.steps(flat[part])
            for more in noise:
                form.check(more)
                steps += more
            np.multiply(steps, form.granularity, out=out[part])
        return in_dtype(torch.from_numpy(out.reshape(n, d)), query.dtype, query.device)

    def scale(self, sigma: float) -> float:
        """σ·√((h + k)/h), the noise of the honest and backdoored; as published if c = 0."""
        return check_sigma(sigma) * math.sqrt((self.honest + self.backdoored) / self.honest)

    def mixes(self, sigma: float) -> tuple[float, float] | None:
        """Standard deviations of the source's noise and of the honest noise in a release.

        For one backdoored server only, else None: a sum of several pancakes is none.
        """
        return (sigma / math.sqrt(self.honest), sigma) if self.backdoored == 1 else None

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """Standard deviations of the source's and of the honest noise in a release.

        The rounding to the granularity is included. ``low`` is 0 if a source adds noise as well:
        how much that protects is not examined.
        """
        _, share = self._form(source.sigma, host.dim)
        own = share.epsilon(delta, honest=self.honest, sensitivity=host.sensitivity, dim=host.dim)
        if not self.backdoored:
            return own
        return EpsilonBounds(
            low=0.0, high=own.high, says=f"{self.honest} honest shares alone: {own.says}"
        )

    def rehearse(self, query: Array, source: NoiseSource, *, stream: Stream) -> Rehearsal:
        """The whole round on ``query`` (1, d), with the state machines of real processes.

        ``seconds`` is by party and in total.

        Raises:
            UsageError: more than one row, or as :meth:`release`.
        """
        start = time.perf_counter()
        outcome = self.run(tensor(query), source, stream=stream)[1]
        return Rehearsal(
            seconds={**outcome.seconds, "total": time.perf_counter() - start}, wire=outcome.wire
        )

    def run(
        self, query: torch.Tensor, source: NoiseSource, *, stream: Stream
    ) -> tuple[torch.Tensor, Outcome]:
        """One round on ``query`` (1, d): the published sum (1, d), float64, and what it took.

        With the same stream it is the sum that :meth:`release` gives for that row plus the
        colluders' noise.
        """
        n, d = check_query(query)
        if n != 1:
            raise UsageError(f"query of {n} rows: a round carries one; rehearse row by row")
        form, share = self._form(source.sigma, d)
        values = query.detach().to("cpu", torch.float64).numpy()[0]
        noises = self._sources(n, d, source, stream=stream)

        def party(i: int) -> Callable[[], RingArray]:
            def make() -> RingArray:
                own = values if i == 0 else np.zeros(d)
                if i >= self.backdoored:
                    return form.encode(own, noise=share.drawer(stream.child("server", i)))
                left = noises[i][0]

                def noise(count: int) -> Integers:
                    nonlocal left
                    part, left = left[:count], left[count:]
                    return self._own_steps(form, part)

                return form.encode(own, noise=noise)

            return make

        outcome = simulate(
            [party(i) for i in range(self.servers)],
            length=d,
            bits=self.bits,
            stream=stream.child("round"),
            threshold=self.threshold,
            colluding=self.colluding,
            dropouts={"mask": range(self.servers - self.dropouts, self.servers)},
            context=form.context,
        )
        return torch.from_numpy(form.decode(outcome.total).reshape(1, d)), outcome

    def _honest_ones(self) -> range:
        first = self.backdoored + self.colluding
        return range(first, first + self.honest)

    def _sources(
        self, n: int, d: int, source: NoiseSource, *, stream: Stream
    ) -> list[npt.NDArray[np.float64]]:
        """The backdoored servers' noise, scaled to a share, each (n, d)."""
        each = math.sqrt(self.honest)
        return [
            (
                source.sample(n, d, stream=stream.child("source", i), dtype=torch.float64).cpu()
                / each
            ).numpy()
            for i in range(self.backdoored)
        ]

    def _own_steps(self, form: FixedPoint, noise: npt.NDArray[np.float64]) -> Integers:
        """A source's noise in steps; refused, whatever the query, beyond its room in the ring."""
        steps = np.rint(noise / form.granularity)
        if not (np.abs(steps) <= form.room).all():
            raise UsageError("source: noise beyond its room; use bits=64 or a lower bound")
        return steps.astype(np.int64)

    def _form(self, sigma: float, dim: int) -> tuple[FixedPoint, NoiseShare]:
        """The encoding and an honest server's share, from public numbers alone."""
        each = check_sigma(sigma) / math.sqrt(self.honest)
        finest = finest_granularity(self.noise, each)
        room = {"bits": self.bits, "parties": self.servers, "sigma": each, "length": dim}
        if self.bound is None:
            most = FixedPoint.widest(granularity=finest, **room)  # type: ignore[arg-type]
            # the other half is for the source, whose tails may be anything
            form = replace(most, bound=most.bound / 2)
        else:
            form = FixedPoint.finest(bound=self.bound, finest=finest, **room)  # type: ignore[arg-type]
        return form, NoiseShare.calibrated(
            self.noise, sigma=sigma, honest=self.honest, granularity=form.granularity
        )


def check_bound(bound: float) -> float:
    """Return ``bound`` as a float.

    Raises:
        UsageError: not a finite number > 0.
    """
    if isinstance(bound, (str, bool)) or not 0 < bound < math.inf:
        raise UsageError(f"bound={bound}: must be a finite number > 0")
    return float(bound)
