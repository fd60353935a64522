"""Joint seeds as a mitigation: noise from two committed seeds, unused candidates derived again.

:func:`run_session` has both parties in this process, each with its own code; a ``link`` may lose or
change frames.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpaudit.accounting.discrete import discrete_gaussian_bounds
from dpaudit.errors import PeerError, ProtocolError, UsageError
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.numeric.arrays import on_tensors, tensor
from dpaudit.numeric.lattice import RoundedHost, add_on_lattice, in_dtype, lattice_step
from dpaudit.numeric.normal import check_query, check_whole
from dpaudit.protocols import Array, Host, NoiseSource, Stream
from dpaudit.types import EpsilonBounds, Rehearsal
from dpaudit_mitigations.codec import Digest, ExactFloat
from dpaudit_mitigations.joint_seeds.derivation import Blocks, Integers, cores, vector_blocks
from dpaudit_mitigations.joint_seeds.messages import (
    LARGEST_WORK,
    MOST_CANDIDATES,
    SessionTerms,
    nearest_steps,
)
from dpaudit_mitigations.joint_seeds.parties import SeedServer, Verifier
from dpaudit_mitigations.joint_seeds.record import SignedChain
from dpaudit_mitigations.rehearsal import Link, Meter, converse

__all__ = ["JointSeeds", "SubstitutingServer", "run_session"]


@dataclass(frozen=True, kw_only=True)
class SeedSession:
    """How a session ended: ``complete``, ``caught`` or ``aborted``.

    Only a complete one has a ``release``, float64 (d,). ``record`` is the verifier's; ``seconds``
    are by party, ``wire`` the bytes of all messages and of the release once.
    """

    outcome: str
    release: npt.NDArray[np.float64] | None = field(repr=False)
    record: SignedChain
    seconds: Mapping[str, float]
    wire: int


def run_session(server: SeedServer, verifier: Verifier, *, link: Link | None = None) -> SeedSession:
    """Run one session to its end.

    If the server, or the link, withholds or spoils what is owed after the verifier's shares, the
    verifier aborts, which the record states: by then the server knows all candidates, so not
    responding is a way to choose.

    Raises:
        ProtocolError: refused by either party before the shares were sent, when nothing is at
            stake.
    """
    meter = Meter(link)
    try:
        converse({"verifier": verifier, "server": server}, meter=meter)
        if verifier.record.last == "release":
            with meter.working("verifier"):
                receipt = verifier.receipt(_published(server))
            with meter.working("server"):
                server.step(meter.carry("verifier", receipt))
    except ProtocolError:
        if not verifier.done:
            if verifier.record.owed() is None:
                raise
            with meter.working("verifier"):
                verifier.abort()
    endings = {"receipt": "complete", "verdict": "caught"}
    outcome = endings.get(verifier.record.last or "", "aborted")
    release = server.release if outcome == "complete" else None
    seconds = {party: meter.seconds[party] for party in ("server", "verifier")}
    return SeedSession(
        outcome=outcome,
        release=release,
        record=verifier.record,
        seconds=seconds | {"total": sum(seconds.values())},
        wire=meter.wire + (release.nbytes if release is not None else 0),
    )


def _published(server: SeedServer) -> npt.NDArray[np.float64]:
    if server.release is None:
        raise PeerError("server: signed a release but published none")
    return server.release


class SubstitutingServer(SeedServer):
    """LAB SPECIMEN. Commits to substituted noise in one candidate and hopes that the coin uses it.

    ``substitute`` (dim,) int64, in steps, replaces the noise of ``candidate``. With probability 1/k
    the server releases the query plus that; else it is caught.
    """

    def __init__(
        self, steps: Integers, *, candidate: int, substitute: Integers, **options: Any
    ) -> None:
        super().__init__(steps, **options)
        self._candidate, self._substitute = candidate, substitute

    def noise(self, index: int) -> Blocks:
        """The substitute for that candidate, the seeds' noise for the others."""
        return vector_blocks(self._substitute) if index == self._candidate else super().noise(index)


class JointSeeds:
    """Verifiable noise (arXiv 2509.23834, Section 6.3) by joint seeds and cut-and-choose.

    Server and verifier commit to shares of k seeds; both shares of a seed make, by HKDF and
    ChaCha20, an exact discrete Gaussian vector on the lattice g·Z (g = σ·2^-24 rounded down to a
    power of two). The server commits to all k vectors, and to the query result before it knows any;
    then a coin of the verifier's, committed to at the start, chooses the one that is used. All
    others are opened and derived again, bit for bit. Both sign everything; ``transcript.verify``
    checks it offline.

    Threat model: one of the two parties may be dishonest, with any code; a key holder (the vendor
    of a backdoored server) sees releases and transcripts. The channel between the two is private.
    The verifier's generator is its own: a server that can guess the coin is never caught.

    Formal guarantee: nobody chose the noise. A server that commits to anything but the seeds' noise
    in one candidate is caught with probability 1 − 1/k, in more than one always; it cannot adapt
    its share to the other's (hash commitments); if it stops responding once it knows the
    candidates, that is on record as cheating. The used candidate's noise is pseudorandom to
    everyone who lacks one of its shares: to the verifier, and to a vendor who knows all of the
    server's randomness. The commitments in a transcript are salted by both shares, so they confirm
    no guess of the query. If nothing deviates, the release is the discrete Gaussian mechanism's
    (:meth:`epsilon`).

    Not claimed: that the released vector is query + committed noise: the server could deviate at
    the very end. The transcript binds query, noise and release, and only the server's sealed
    opening shows an auditor the sum, bit for bit. Nor that the query is right; nor anything if both
    parties cheat; nor that signatures and nonces hide no message to a vendor (show transcripts only
    to those they are for). An aborted or caught session is public: c of them mean c + 1 tries.

    LAB SPECIMEN: with ``deviate`` the server puts ``source``'s noise (rounded to the lattice) in
    the candidate it hopes for. With probability 1/k that is released; else it is caught, nothing is
    published, and the protocol is run again with honest noise.

    Cost: server k + 1 draws of d exact integers, verifier k − 1; one block of memory per thread (no
    vector is stored but query and release); 800 bytes per candidate on the wire. Error unchanged.
    """

    trusts = (
        "server or verifier (not both cheating), for the noise; "
        "the server, for adding it, until an audit"
    )

    def __init__(self, *, candidates: int = 10, deviate: bool = False) -> None:
        """Cut-and-choose over ``candidates`` vectors.

        Raises:
            UsageError: not a whole number from 2 to 256.
        """
        self.candidates = check_whole("candidates", candidates, low=2, high=MOST_CANDIDATES)
        self.deviate = bool(deviate)

    @on_tensors
    def release(self, query: Array, source: NoiseSource, *, stream: Stream) -> Array:
        """Each row of ``query`` (n, d) on the lattice plus noise of the derived law.

        Of ``source`` only σ is used; with ``deviate`` each row has its noise with probability 1/k.
        The law alone, for many rows; :meth:`rehearse` runs the protocol.

        Raises:
            UsageError: as ``SecureGaussian.release``.
        """
        n, d = check_query(query)
        out = SecureGaussian(sigma=source.sigma).release(query, stream=stream.child("seeds"))
        if not self.deviate:
            return out
        coins = stream.child("coin").numpy().integers(self.candidates, size=n)
        lucky = torch.from_numpy(coins == 0).to(query.device)
        count = int(lucky.sum())
        if count:
            own = source.sample(
                count, d, stream=stream.child("source"), dtype=torch.float64, device=query.device
            )
            step = lattice_step(source.sigma)
            summed = add_on_lattice(
                query[lucky].double(), own, granularity=ExactFloat(step), name="joint-seeds"
            )
            out[lucky] = in_dtype(summed, query.dtype, query.device)
        return out

    def scale(self, sigma: float) -> float:
        return sigma

    def mixes(self, sigma: float) -> tuple[float, float] | None:
        """No source noise, and fresh noise of σ; with ``deviate`` the source's own (None)."""
        return None if self.deviate else (0.0, sigma)

    def epsilon(self, source: NoiseSource, delta: float, *, host: Host) -> EpsilonBounds:
        """The discrete Gaussian's bounds at sensitivity Δ + g√d, whatever ``source`` is.

        With ``deviate``, a mixture of which the key holder knows the part (caught sessions are on
        record): its profile is δ_source/k + (1 − 1/k)·δ_honest. Hence at most the larger ε of the
        two at δ, and at least the source's at kδ and the honest one's at δ·k/(k − 1). The source's
        counts from below only where the lattice is finer than a tenth of its own fine structure
        (``width``), and then numerically: rounding to the lattice is neglected.
        """
        k, step = self.candidates, lattice_step(source.sigma)

        def honest(at: float) -> EpsilonBounds:
            return discrete_gaussian_bounds(
                at,
                scale=ExactFloat(source.sigma / step),
                sensitivity=host.sensitivity / step,
                dim=host.dim,
                rounded=True,
            )

        own = honest(delta)
        if not self.deviate:
            return own
        low = honest(delta * k / (k - 1)).low if delta * k / (k - 1) < 1 else 0.0
        fine = step / math.sqrt(12) <= getattr(source, "width", 0.0) / 10
        if fine and k * delta < 1:
            low = max(low, source.epsilon(k * delta, host=host).low)
        high = max(own.high, source.epsilon(delta, host=RoundedHost(host, step)).high)
        return EpsilonBounds(
            low=min(low, high), high=high, says=f"mixture: the source's with probability 1/{k}"
        )

    def rehearse(self, query: Array, source: NoiseSource, *, stream: Stream) -> Rehearsal:
        """Run the protocol on ``query`` (1, d), both parties here.

        With ``deviate``, a caught session is followed by an honest one.

        ``seconds`` of server, verifier, total; ``wire`` of all messages, and the release once.

        Raises:
            UsageError: more than one row; candidates·d too large; a value beyond the lattice.
        """
        sessions = self.sessions(tensor(query), source, stream=stream)
        seconds = {
            name: sum(s.seconds[name] for s in sessions) for name in ("server", "verifier", "total")
        }
        return Rehearsal(seconds=seconds, wire=sum(session.wire for session in sessions))

    def sessions(
        self, query: torch.Tensor, source: NoiseSource, *, stream: Stream
    ) -> list[SeedSession]:
        """The sessions that :meth:`rehearse` runs, in order; the last has the release (d,)."""
        n, d = check_query(query)
        if n != 1 or d * self.candidates > LARGEST_WORK:
            raise UsageError(
                f"query of shape ({n}, {d}): takes one row, d ≤ {LARGEST_WORK // self.candidates:,}"
            )
        keys = {
            name: Ed25519PrivateKey.from_private_bytes(stream.child("identity", name).entropy())
            for name in ("server", "verifier")
        }
        step = lattice_step(source.sigma)
        terms = SessionTerms(
            candidates=self.candidates,
            dim=d,
            scale=ExactFloat(source.sigma / step),
            granularity=ExactFloat(step),
            server=Digest(keys["server"].public_key().public_bytes_raw()),
            verifier=Digest(keys["verifier"].public_key().public_bytes_raw()),
        )
        values = query.detach().reshape(-1).to("cpu", torch.float64).numpy()
        steps = nearest_steps(values, terms)

        def run(
            terms: SessionTerms, stream: Stream, kind: type[SeedServer] = SeedServer, **special: Any
        ) -> SeedSession:
            common: dict[str, Any] = {"terms": terms, "threads": cores()}
            own, other = stream.child("server"), stream.child("verifier")
            return run_session(
                kind(steps, key=keys["server"], stream=own, **common, **special),
                Verifier(key=keys["verifier"], stream=other, **common),
            )

        if not self.deviate:
            return [run(terms, stream.child("session", 0))]
        own = source.sample(1, d, stream=stream.child("source"), dtype=torch.float64)
        noise = np.rint(own.cpu().numpy().reshape(-1) / step).astype(np.int64)
        # any candidate is as good: the coin is not the server's own
        special = {"candidate": 0, "substitute": noise}
        first = run(terms, stream.child("session", 0), SubstitutingServer, **special)
        if first.outcome == "complete":
            return [first]
        return [first, run(terms.after(first.record.head), stream.child("session", 1))]
