"""The game: people, their devices, and adversaries who see the submissions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism, Stream, SubmissionPolicy
from dpaudit.types import Reference
from dpaudit_local.mechanisms.reports import whole_number
from dpaudit_local.pool_inference.evidence import PoolEvidence, evidence_for
from dpaudit_local.pool_inference.game import DeviceOptions, People, people
from dpaudit_local.pool_inference.memoised import memoised_posterior
from dpaudit_local.pool_inference.metrics import Outcome
from dpaudit_local.pool_inference.popularity import NON_PRIVATE, check_adversaries, popularities
from dpaudit_local.pool_inference.posterior import (
    count_posterior,
    pool_posterior,
    unlinked_posterior,
)
from dpaudit_local.pool_inference.settings import load_setting

__all__ = ["PoolInference"]

_VALUES = 1 << 20
"""Submissions in memory: with 128 bytes of bits each and one adversary's evidence, 192 MiB."""


@dataclass(frozen=True)
class _Game:
    """The common state of all users of one game."""

    mechanism: LocalMechanism
    popularity: dict[str, npt.NDArray[np.float64] | None]
    evidence: dict[str, PoolEvidence]


@dataclass(kw_only=True, eq=False, repr=False)
class PoolInference(DeviceOptions):
    """BPIA, the Bayesian pool inference attack of Gadotti et al. (2022).

    Against any local mechanism and submission policy.

    Threat model: a server that follows the protocol and keeps what each device submits (under its
    policy, see ``submissions``). It knows mechanism, policy, hash functions, universe and
    pools; nothing of the person.

    Each person prefers one of k pools, with relevant interest γ and polarisation δ as in equation
    6; each adversary gives the posterior probability of each pool after the first n submissions
    (``posterior``), names the likeliest one (among equals one at random) and takes its probability
    as confidence. All adversaries see the same submissions.

    Against a policy that links submissions the posterior is of all of them together, where equal
    reports count as one object's if ``memoised``; against one that does not, of one submission
    alone, whatever n (``unlinked_posterior``). A policy that stops after fewer than n submissions
    leaves the adversary with those.

    Cost, for a Count Mean Sketch of m = 1024 at ε = 4 and six pools, CPU time of one core: 1 µs per
    observation for the evidence of an adversary, whatever the universe, and 0.3 ms per person with
    n = 7, 30, 90, 180 for the posterior. Memory below 2 GiB: a batch, ``PoolTables`` for each
    adversary, and 9 doubles per user, adversary and n.

    Not claimed: that real people behave as the game's do (``setting=real-emoji`` only has their
    popularity).

    Raises:
        UsageError: an option that makes no sense.
    """

    games = ("population",)

    setting: str = "emojis"
    """``emojis``, ``news:universe=250000``, … (``settings.load_setting``)."""
    adversaries: Sequence[str] = ("weak", "strong", NON_PRIVATE)
    """Of ``popularity.ADVERSARIES``."""
    observations: Sequence[int] = (7, 30, 90, 180)
    """Numbers of submissions after which adversaries answer, rising."""
    submissions: str = "every"
    """A policy with its options, e.g. ``capped:limit=30``."""
    popularity_submissions: int = 1_000_000
    """Other people's submissions that a strong adversary estimates popularity from."""
    memoised: bool | None = None
    """Whether adversaries take equal reports as one object's; None: if the policy is so named."""
    gamma: float | None = None
    """Everybody's relevant interest; None: uniform."""
    delta: float | None = None
    """Everybody's polarisation; None: uniform."""
    threads: int = 2
    """Changes no number."""

    def __post_init__(self) -> None:
        if self.memoised not in (True, False, None):
            raise UsageError(f"memoised={self.memoised!r}: must be true or false")
        self.people = load_setting(self.setting)
        self.adversaries = check_adversaries(self.adversaries)
        if isinstance(self.observations, (int, str)) or not len(self.observations):
            raise UsageError(
                f"observations={self.observations!r}: must be a list of at least one whole number"
            )
        self.observations = tuple(whole_number("observations", n, 1) for n in self.observations)
        if any(a >= b for a, b in itertools.pairwise(self.observations)):
            raise UsageError(
                f"observations={self.observations}: must be rising whole numbers from 1"
            )
        self.policy: SubmissionPolicy = registry.create("submissions", self.submissions)
        if self.memoised is None:
            self.memoised = Reference.parse(self.submissions).name == "memoised"
        for name in ("popularity_submissions", "threads"):
            setattr(self, name, whole_number(name, getattr(self, name), 1))

    def play(self, users: int, *, stream: Stream) -> dict[str, dict[str, Any]]:
        """Each adversary's outcomes after each number of observations.

        ``{adversary: {"7": Outcome.to_dict(), …}}``. The same stream gives the same game. Batches
        have a size that depends on ``observations`` alone, and a stream of their own each.

        Raises:
            UsageError: no users, or options that do not fit each other.
        """
        return {
            adversary: {str(n): outcome.to_dict() for n, outcome in outcomes.items()}
            for adversary, outcomes in self.outcomes(users, stream=stream).items()
        }

    def outcomes(self, users: int, *, stream: Stream) -> dict[str, dict[int, Outcome]]:
        """As :meth:`play`, with every user's confidence, and whether it was right to have it.

        Raises:
            UsageError: as :meth:`play`.
        """
        users = whole_number("users", users, 1)
        game = self._start_game(stream)
        size = max(1, _VALUES // self.observations[-1])
        confidence = {a: np.empty((users, len(self.observations))) for a in self.adversaries}
        correct = {a: np.empty((users, len(self.observations)), bool) for a in self.adversaries}
        gamma, delta = np.empty(users), np.empty(users)
        for first in range(0, users, size):
            part = stream.child("batch", first // size)
            here = slice(first, min(first + size, users))
            crowd = people(
                self.people,
                here.stop - first,
                self.observations[-1],
                stream=part.child("people"),
                gamma=self.gamma,
                delta=self.delta,
            )
            gamma[here], delta[here] = crowd.gamma, crowd.delta
            for adversary, posterior in self._posteriors(game, crowd, part).items():
                ties = part.child("ties", adversary).numpy()
                named, confidence[adversary][here] = _likeliest_pool(posterior, ties)
                correct[adversary][here] = named == crowd.preferred[:, None]
        return {
            a: {
                n: Outcome(
                    confidence[a][:, i].copy(),
                    correct[a][:, i].copy(),
                    gamma,
                    delta,
                    self.people.k,
                )
                for i, n in enumerate(self.observations)
            }
            for a in self.adversaries
        }

    def _start_game(self, stream: Stream) -> _Game:
        pools = self.people.pools
        mechanism = self.device(pools.universe, stream=stream.child("mechanism"))
        popularity = popularities(
            self.adversaries,
            self.people,
            mechanism,
            submissions=self.popularity_submissions,
            stream=stream.child("popularity"),
        )
        evidence: dict[str, PoolEvidence] = {}
        if not (self.memoised and self.policy.linked):
            shared = evidence_for(mechanism, pools)
            evidence = {
                adversary: shared.against(estimate) for adversary, estimate in popularity.items()
            }
        return _Game(mechanism, popularity, evidence)

    def _posteriors(
        self, game: _Game, crowd: People, stream: Stream
    ) -> dict[str, npt.NDArray[np.float64]]:
        """Each adversary's posteriors (users, observations, k) of one batch."""
        posteriors = {}
        if game.popularity:
            reports, owner = self.policy.submit(
                crowd.objects.astype(np.int64), game.mechanism, stream=stream.child("submissions")
            )
            order = np.argsort(owner, kind="stable")
            each = np.bincount(owner, minlength=len(crowd))
            if not each.all() or (self.policy.linked and (each != each[0]).any()):
                raise UsageError(
                    "submissions: the policy must submit for every user, "
                    "and if linked equally often"
                )
            if not self.policy.linked:
                order = order[np.cumsum(each) - each]  # of each user the first one, all alike
            if len(order) < len(reports) or (order[1:] < order[:-1]).any():
                reports = reports[order]
            for adversary in game.popularity:
                posteriors[adversary] = self._posterior(game, adversary, reports, len(crowd))
        if NON_PRIVATE in self.adversaries:
            pool_labels = self.people.pools.labels[crowd.objects]
            counts = np.stack(
                [(pool_labels == i).cumsum(axis=1) for i in range(self.people.k + 1)], axis=2
            )
            prefix_counts = counts[:, np.array(self.observations) - 1]
            posteriors[NON_PRIVATE] = count_posterior(prefix_counts)
        return {adversary: posteriors[adversary] for adversary in self.adversaries}

    def _posterior(
        self, game: _Game, adversary: str, reports: Any, users: int
    ) -> npt.NDArray[np.float64]:
        n = len(reports) // users
        prefixes = sorted({min(n, count) for count in self.observations})
        column = [prefixes.index(min(n, count)) for count in self.observations]
        if self.memoised and self.policy.linked:
            posterior = memoised_posterior(
                game.mechanism,
                self.people.pools,
                game.popularity[adversary],
                reports,
                users=users,
                prefixes=prefixes,
            )
            return posterior[:, column]
        evidence = game.evidence[adversary](reports, threads=self.threads)
        if not self.policy.linked:
            return np.repeat(unlinked_posterior(evidence)[:, None], len(column), axis=1)
        posterior = pool_posterior(
            evidence.reshape(users, n, -1),
            prefixes=prefixes,
            threads=self.threads,
        )
        return posterior[:, column]


def _likeliest_pool(
    posterior: npt.NDArray[np.float64], random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The likeliest pool (random among equals) and its probability, (users, observations)."""
    top = posterior.max(axis=2, keepdims=True)
    named = np.where(posterior == top, random.random(posterior.shape), -1.0).argmax(axis=2)
    return named, top[..., 0]
