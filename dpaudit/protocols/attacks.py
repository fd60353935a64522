"""Attacks: ``dpaudit.attacks``. Each game with its Protocol, and what is seen and said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from dpaudit.protocols.noise import Array, Stream

__all__ = [
    "BATCH",
    "CENSUS",
    "GAMES",
    "IDENTIFICATION",
    "LEARNING",
    "MEMBERSHIP",
    "POPULATION",
    "PROBING",
    "RECONSTRUCTION",
    "SCORING",
    "SUPPORT",
    "Attack",
    "BatchAttack",
    "CensusAttack",
    "Game",
    "GameAttack",
    "IdentificationAttack",
    "LearningAttack",
    "MembershipAttack",
    "ProbingAttack",
    "ReconstructionAttack",
    "SupportAttack",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One game between an attacker and a mechanism; ``dpaudit list attacks`` prints it.

    An attack names its games in the class attribute ``games``, and what it holds beyond what the
    game gives it (a key, a file) in ``holds``.
    """

    name: str
    protocol: type
    """The Protocol of an attack that plays it."""
    sees: str
    says: str
    success: str
    """What counts as success."""
    knows: str
    """What the attacker knows about the values or the data."""
    releases: str
    """How many releases it needs."""
    labels: bool
    """Whether it needs releases labelled with the value they were made from."""
    used_by: tuple[str, ...]
    """Commands that play it."""


@runtime_checkable
class BatchAttack(Protocol):
    """Names the records of the batch after a release."""

    def next_batches(
        self, sums: Array, *, records: int
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Who of ``records`` is in the batch after each noisy sum (t, d): (t, records).

        And whether that is known, (t,); where it is not, nobody is named.
        """


BATCH = Game(
    name="batch",
    protocol=BatchAttack,
    sees="the noisy sum of a DP-SGD step, or the weights before and after it",
    says="which records are in the next step's batch",
    success="these and no others are",
    knows="the number of records, the rate and the network's last layer; nothing of the gradients",
    releases="1 per batch",
    labels=False,
    used_by=("dpaudit run",),
)


@runtime_checkable
class CensusAttack(Protocol):
    """Weighs true counts of a geography by what is published of it, its siblings and parents."""

    def weigh(
        self,
        sights: Sequence[Any],
        change: npt.NDArray[np.int64],
        steps: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float64]:
        """Scores (m,) of "the target's counts are what is known plus step × ``change``".

        ``sights`` are :class:`~dpaudit_deployments.topdown.planted.Sight`; higher is likelier.
        """


CENSUS = Game(
    name="census",
    protocol=CensusAttack,
    sees="the noisy measurements of a hierarchy of geographies, or only the tables made from them",
    says="a score for each of several true tables of one geography",
    success="the true one has the highest score",
    knows="all counts but those in question",
    releases="1",
    labels=False,
    used_by=("dpaudit run",),
)


@runtime_checkable
class IdentificationAttack(Protocol):
    """Ranks all d bins of a histogram at once by how likely one record is missing from each."""

    def scores(
        self, releases: torch.Tensor, base: torch.Tensor, *, include_none: bool = False
    ) -> torch.Tensor:
        """Scores (t, d) of "a record of bin j is missing" for ``releases`` (t, d).

        ``base`` (d,) is the full histogram; ``include_none`` adds a column for "none is".
        """

    def posterior(
        self,
        releases: torch.Tensor,
        base: torch.Tensor,
        *,
        include_none: bool = False,
        prior: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Probability of each bin (d,), from all ``releases`` (t, d) of one query result."""


IDENTIFICATION = Game(
    name="identification",
    protocol=IdentificationAttack,
    sees="releases of a histogram that lacks one record",
    says="a score for each bin",
    success="the bin of the missing record has the highest score",
    knows="all records but one",
    releases="1 or more of one query",
    labels=False,
    used_by=("dpaudit run",),
)


@runtime_checkable
class LearningAttack(Protocol):
    """Learns to separate releases at two known values.

    With the class attribute ``timed = True`` releases have one more column, the last: the seconds
    of the call.
    """

    timed: bool

    def learn(
        self,
        first: npt.NDArray[np.float64],
        second: npt.NDArray[np.float64],
        *,
        neighbours: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    ) -> Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
        """A map from other releases (t, k) to scores (t,), larger for a likelier second neighbour.

        ``first`` and ``second`` (t, k) were released at the two ``neighbours``, query results (m,).
        """


LEARNING = Game(
    name="learning",
    protocol=LearningAttack,
    sees="releases at two neighbouring values, and which is from which",
    says="a statistic of other releases",
    success="it is larger for releases at the second value, "
    "counted on releases that it has not seen",
    knows="both neighbours",
    releases="many at each neighbour",
    labels=True,
    used_by=("dpaudit mechanism --attack",),
)


@runtime_checkable
class MembershipAttack(Protocol):
    """Accumulates evidence about K canaries over the steps of a training run."""

    def look(self, gradients: torch.Tensor) -> Any:
        """What the other methods need of the canaries' clipped ``gradients`` (K, d) at one step."""

    def informed(
        self, residual: torch.Tensor, gradients: Any, present: torch.Tensor
    ) -> torch.Tensor:
        """One step's evidence, for an attacker who knows which other canaries are in the batch.

        ``residual`` (d,) is the release less the batch's sum, ``present`` (K,) says which canaries
        are in it.
        """

    def blind(self, rest: torch.Tensor, gradients: Any) -> torch.Tensor:
        """The same for an attacker who knows of no canary.

        ``rest`` (d,) is the release less the batch's other records.
        """

    def score(self, evidence: torch.Tensor) -> torch.Tensor:
        """Scores of the canaries (K,), higher for likelier members, from the summed evidence."""


MEMBERSHIP = Game(
    name="membership",
    protocol=MembershipAttack,
    sees="every noisy sum of gradients of a DP-SGD run",
    says="a score for each record in question",
    success="members have higher scores than others",
    knows="all records but those in question",
    releases="every step of a run",
    labels=False,
    used_by=("dpaudit run",),
)


@runtime_checkable
class GameAttack(Protocol):
    """Plays a local-DP game: people submit privatised data, the adversary sees only that."""

    def play(self, users: int, *, stream: Stream) -> Mapping[str, Any]:
        """Play with ``users`` people; JSON-ready results. The same stream gives the same game."""


POPULATION = Game(
    name="population",
    protocol=GameAttack,
    sees="what each person's device submits under local differential privacy",
    says="a guess about each person, with its probability",
    success="the guess is right",
    knows="the mechanism; of the person nothing",
    releases="each person's submissions",
    labels=False,
    used_by=("dpaudit run",),
)


@runtime_checkable
class ProbingAttack(Protocol):
    """Brings the neighbours itself: pairs that a mechanism may fail to hide from each other."""

    def pairs(self) -> Sequence[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """Pairs of neighbouring values (m,) with a few words on what each probes."""


PROBING = Game(
    name="probing",
    protocol=ProbingAttack,
    sees="nothing: it chooses the neighbouring values",
    says="pairs of values",
    success="releases at a pair are further apart than the mechanism claims",
    knows="bounds and size of the data",
    releases="none",
    labels=False,
    used_by=("dpaudit mechanism --attack",),
)


@runtime_checkable
class ReconstructionAttack(Protocol):
    """Finds unknown counts of a histogram, without a list of candidates."""

    def reconstruct_counts(
        self,
        releases: torch.Tensor,
        known: torch.Tensor,
        unknown_index: torch.Tensor,
        *,
        bound: int,
        lowest: int | torch.Tensor = 0,
    ) -> Any:
        """The counts at ``unknown_index`` (m,), and whether to trust them.

        ``releases`` (t, d) are of one query result, ``known`` (d,) holds the other counts; each
        unknown one is one of ``bound`` whole numbers from ``lowest`` on.
        """


RECONSTRUCTION = Game(
    name="reconstruction",
    protocol=ReconstructionAttack,
    sees="releases of a histogram with m unknown counts",
    says="the m counts, and whether it is sure",
    success="all m counts are right",
    knows="all counts but m",
    releases="1 or more of one query",
    labels=False,
    used_by=("dpaudit run",),
)


@runtime_checkable
class Attack(Protocol):
    """Maps releases and candidates to scores, arrays or tensors."""

    def score(self, releases: Array, candidates: Array) -> Array:
        """Scores (t, m) for ``releases`` (t, d), higher is likelier.

        ``candidates`` has shape (t, m, d) or (m, d).
        """

    def evidence(self, releases: Array, candidates: Array, truth: Array) -> Mapping[str, Any]:
        """JSON-ready data for a figure of how the attack sees these releases; may be empty."""


SCORING = Game(
    name="scoring",
    protocol=Attack,
    sees="one release, and the query results that it may be of",
    says="a score for each candidate",
    success="the right candidate has the highest score",
    knows="candidate values",
    releases="1",
    labels=False,
    used_by=("dpaudit attack", "dpaudit run"),
)


@runtime_checkable
class SupportAttack(Protocol):
    """Says which values cannot have led to a release, by exact arithmetic or replay."""

    def feasible(
        self, releases: npt.NDArray[np.float64], value: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Whether each unit (coordinate, pair) of a release can have come from ``value``.

        Shapes: ``releases`` (t, k), ``value`` (k,), result (t, u). One False rules the value out.
        All True at the value that a release was made from, if the mechanism is the one that the
        attack is for. Each row is judged by itself, so independent releases give independent
        events. An attack that must look at several releases first offers ``settled(*releases)``,
        which returns one that no longer does; it is called before anything is counted.

        Raises:
            UsageError: wrong shapes, or numbers that are not finite.
        """


SUPPORT = Game(
    name="support",
    protocol=SupportAttack,
    sees="one release with all its bits, and a value that it may be of",
    says="that the value is possible, or ruled out",
    success="a wrong value is ruled out; the right one never may be",
    knows="a guess of the value",
    releases="1",
    labels=False,
    used_by=("dpaudit mechanism --attack",),
)


GAMES = {
    game.name: game
    for game in (
        SUPPORT,
        LEARNING,
        PROBING,
        SCORING,
        IDENTIFICATION,
        RECONSTRUCTION,
        MEMBERSHIP,
        POPULATION,
        BATCH,
        CENSUS,
    )
}
"""All games by name."""
