"""Attacks: ``dpaudit.attacks``. What an attacker sees, which hypotheses it scores, and the games.

Most attacks score hypotheses (:class:`Attack`). Apart from them stand those that first learn from
labelled releases, that choose the neighbours, that find counts without a list of candidates, and
that play a game with a whole population.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from dpaudit.protocols.noise import Array, Stream

__all__ = [
    "GAMES",
    "Attack",
    "Canaries",
    "CountShifts",
    "Game",
    "GameAttack",
    "InBatch",
    "KnownBatch",
    "LearningAttack",
    "MissingRecord",
    "ProbingAttack",
    "ReconstructionAttack",
    "UnitSupport",
    "plays",
]


@runtime_checkable
class Attack(Protocol):
    """Scores hypotheses about what it sees: a larger score is likelier, −∞ is impossible.

    The class attribute ``games`` names in :data:`GAMES` what is seen and what the hypotheses are:
    an array of candidates, or one of the small classes of this module, which stand for many
    hypotheses without a row for each. An attack may have two more methods:

    - ``evidence(releases, candidates, truth)``: JSON-ready data for a figure of how it sees these
      releases;
    - ``settled(*releases)``, if it must look at several releases first: an attack that no longer
      does. It is called before anything is counted.
    """

    def score(self, seen: Any, hypotheses: Any, /) -> Array:
        """Scores, arrays or tensors as the releases are.

        Of ``scoring``: (t, m) from releases (t, d) and candidates, (m, d) or (t, m, d). The classes
        of other hypotheses say their shapes.

        Raises:
            UsageError: shapes that do not fit, or numbers that are not finite.
        """


@dataclass(frozen=True, slots=True, eq=False)
class UnitSupport:
    """Each unit (coordinate, pair) of a release came from ``value`` (k,), for exact statements.

    Scores (t, u) of releases (t, k): 0 where that is possible, −∞ where it is not, by exact
    arithmetic or replay. One −∞ rules the value out. All are 0 at the value that a release was made
    from, if the mechanism is the one that the attack is for. Each row is judged by itself, so
    independent releases give independent events.
    """

    value: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MissingRecord:
    """One record of bin j is missing from ``histogram`` (d,), for each of d bins.

    Scores (t, d) of releases (t, d); with ``none`` one more column, the last: none is missing.
    """

    histogram: Array
    none: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CountShifts:
    """The true counts are the known ones plus step × ``change`` (cells,), for ``steps`` (m,).

    Scores (m,), from :class:`~dpaudit_deployments.topdown.planted.Sight`, one per level.
    """

    change: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Canaries:
    """Each of K records is in the training set or is not; ``gradients`` (K, d), clipped, at a step.

    Scores (laws, 2, K): log-likelihoods under each law of the noise if canary j is no member, and
    if it is. Add them up over the steps of a run; the attack's ``log_odds`` turns the sum into the
    scores (K,) of membership. What is seen of a step is the release less the gradients of the
    batch's other records (d,), or a :class:`KnownBatch`.
    """

    gradients: torch.Tensor

    @cached_property
    def wide(self) -> torch.Tensor:
        """The gradients in float64."""
        return self.gradients.double()

    @cached_property
    def gram(self) -> torch.Tensor:
        """Their inner products (K, K), summed in the format they came in; O(K²·d)."""
        return (self.gradients @ self.gradients.T).double()

    @property
    def square(self) -> torch.Tensor:
        """Squared norms (K,)."""
        return self.gram.diagonal()


@dataclass(frozen=True, slots=True, eq=False)
class KnownBatch:
    """A step seen by someone who knows the batch, but for the canary in question.

    ``residual`` (d,) is the release less the batch's sum; ``present`` (K,) marks the canaries that
    are in the batch.
    """

    residual: torch.Tensor
    present: torch.Tensor


@dataclass(frozen=True, slots=True)
class InBatch:
    """Record i of ``records`` is in the batch after each noisy sum (t, d), or is not.

    Scores (t, records), log-likelihood ratios: ∞ for in, −∞ for not in, 0 where the attack does not
    know.
    """

    records: int


@runtime_checkable
class LearningAttack(Protocol):
    """Learns to separate releases at two known values.

    With the class attribute ``timed = True`` releases have one more column, the last: the seconds
    of the call.
    """

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


@runtime_checkable
class ProbingAttack(Protocol):
    """Brings the neighbours itself: pairs that a mechanism may fail to hide from each other."""

    def pairs(self) -> Sequence[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """Pairs of neighbouring values (m,), each with a short description of what it probes."""


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


@runtime_checkable
class GameAttack(Protocol):
    """Plays a local-DP game: people submit privatised data, the adversary sees only that."""

    def play(self, users: int, *, stream: Stream) -> Mapping[str, Any]:
        """Play with ``users`` people; JSON-ready results. The same stream gives the same game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One game between an attacker and a mechanism; ``dpaudit list attacks`` prints it.

    An attack names its games in the class attribute ``games``, and what it holds beyond what the
    game gives it (a key, a file) in ``holds``.
    """

    name: str
    protocol: type = Attack
    """The Protocol of an attack that plays it."""
    hypotheses: type | None = None
    """What an :class:`Attack` scores; None for an array of candidates."""
    sees: str
    returns: str
    success: str
    """What counts as success."""
    knows: str
    """What the attacker knows about the values or the data."""
    releases: str = "1"
    """How many releases it needs."""
    labels: bool = False
    """Whether it needs releases labelled with the value they were made from."""
    used_by: tuple[str, ...] = ("dpaudit run",)
    """Commands that play it."""


_TYPES: Mapping[str, Mapping[str, Any]] = {
    "support": {"hypotheses": UnitSupport},
    "learning": {"protocol": LearningAttack},
    "probing": {"protocol": ProbingAttack},
    "identification": {"hypotheses": MissingRecord},
    "reconstruction": {"protocol": ReconstructionAttack},
    "membership": {"hypotheses": Canaries},
    "population": {"protocol": GameAttack},
    "batch": {"hypotheses": InBatch},
    "census": {"hypotheses": CountShifts},
}


def _read_games() -> dict[str, Game]:
    text = Path(__file__).with_name("games.toml").read_text(encoding="utf-8")
    games = {
        name: Game(name=name, **texts, **_TYPES.get(name, {}))
        for name, texts in tomllib.loads(text).items()
    }
    return {name: replace(game, used_by=tuple(game.used_by)) for name, game in games.items()}


GAMES = _read_games()
"""All games by name."""


def plays(attack: object, game: str) -> bool:
    """Whether ``attack``, or a class of attacks, plays the ``game`` of scores with this name.

    One that does not say its ``games`` scores candidates.
    """
    games = getattr(attack, "games", ("scoring",))
    return callable(getattr(attack, "score", None)) and game in games
