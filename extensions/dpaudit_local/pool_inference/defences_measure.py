"""What devices can do against pool inference, and what it costs the curator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Measure
from dpaudit.randomness import KeyedStream
from dpaudit_local.pool_inference.measure import PoolGrid, attack_of, origins, outcome_row
from dpaudit_local.utility_measure import errors

if TYPE_CHECKING:
    from dpaudit.experiments.cell import Cell
    from dpaudit.protocols import LocalMechanism, Stream, SubmissionPolicy

__all__ = ["MEASURE", "Watched", "gather", "measure", "origins", "summary"]


class PoolDefencesGrid(PoolGrid, frozen=True, forbid_unknown_fields=False):
    """The pool grid and accounting: ε towards the server at δ over all of a person's submissions.

    Persons are in a ``crowd`` of as many as play.
    """

    delta: float = 1e-6
    crowd: int | None = None


class Watched:
    """A submission policy, while a curator counts everything that is submitted.

    The curator wants the shares of objects among everything that people chose, submitted or not.
    """

    def __init__(self, policy: SubmissionPolicy, *, universe: int) -> None:
        """Watch ``policy`` over objects below ``universe``."""
        self._policy = policy
        self.trusts, self.linked = policy.trusts, policy.linked
        self.chosen = np.zeros(universe, np.int64)
        self.mechanism: LocalMechanism | None = None
        self._server: Any = None

    def submit(
        self, objects: npt.NDArray[np.int64], mechanism: LocalMechanism, *, stream: Stream
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Submit by the policy; the reports are added up.

        Raises:
            SpecError: no server is known for the mechanism.
        """
        if self._server is None:
            self.mechanism, self._server = mechanism, _server_of(mechanism)(mechanism)
        reports, owner = self._policy.submit(objects, mechanism, stream=stream)
        self.chosen += np.bincount(objects.ravel(), minlength=len(self.chosen))
        self._server.add(reports)
        return reports, owner

    def epsilon(
        self, mechanism: LocalMechanism, *, objects: int, users: int, delta: float
    ) -> float:
        """As the policy."""
        return self._policy.epsilon(mechanism, objects=objects, users=users, delta=delta)

    @property
    def reports(self) -> int:
        """How many were submitted."""
        return int(self._server.reports)

    def errors(self) -> dict[str, float]:
        """MAE and MAPE80 of the shares that the server estimates (``sketch_utility.errors``).

        Objects that nobody chose are left out of MAPE80, which divides by their share.
        """
        share = self.chosen / self.chosen.sum()
        estimate = self._server.estimate(np.arange(len(share))) / self.reports
        chosen = share > 0
        return {
            "MAE": errors(estimate, share)["MAE"],
            "MAPE80": errors(estimate[chosen], share[chosen])["MAPE80"],
        }


def _server_of(mechanism: LocalMechanism) -> Callable[[Any], Any]:
    from dpaudit_local.count_mean_server import CountMeanServer
    from dpaudit_local.count_mean_sketch import CountMeanSketch
    from dpaudit_local.hadamard_server import HadamardServer
    from dpaudit_local.hadamard_sketch import HadamardSketch

    known: dict[type, Callable[[Any], Any]] = {
        CountMeanSketch: CountMeanServer,
        HadamardSketch: HadamardServer,
    }
    if type(mechanism) not in known:
        raise SpecError(
            f"mechanism={type(mechanism).__name__}: pool-defences adds up reports of "
            "count-mean-sketch and hadamard-sketch"
        )
    return known[type(mechanism)]


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """A game of ``trials`` users under the policy ``[grid] submissions``, and its utility.

    Raises:
        SpecError: no setting, or a mechanism whose reports cannot be added up here.
        UsageError: an option that is not known, or a setting that makes no sense.
    """
    del arm
    grid, users = cell.grid(PoolDefencesGrid), cell.settings["trials"]
    own = PoolDefencesGrid.__struct_fields__[len(PoolGrid.__struct_fields__) :]
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    attack: Any = attack_of({k: v for k, v in cell.settings["grid"].items() if k not in own})
    watched = Watched(attack.policy, universe=attack.people.universe)
    attack.policy = watched
    outcomes = attack.play(users, stream=stream)
    if watched.mechanism is None:
        raise SpecError("grid adversaries: at least one that sees what is submitted, e.g. strong")
    chosen = attack.observations[-1]
    return {
        "outcomes": outcomes,
        "utility": watched.errors(),
        "submitted": watched.reports / users,
        "trusts": watched.trusts,
        "epsilon_report": watched.mechanism.epsilon,
        "epsilon_person": watched.epsilon(
            watched.mechanism, objects=chosen, users=grid.crowd or users, delta=grid.delta
        ),
    }


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each policy, ε and adversary, after all submissions."""
    found = []
    for row in rows:
        own = {name: value for name, value in row.items() if name != "utility"}
        for adversary, outcomes in row["outcomes"].items():
            n = max(outcomes, key=int)
            found.append({**outcome_row(own, adversary, n, outcomes[n]), **row["utility"]})
    return found


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of the strongest adversary's AUC-PN, and the policies at its ends with errors."""
    least, most = (pick(rows, key=lambda row: row["auc_pn"]["value"]) for pick in (min, max))
    return (
        f"AUC-PN from {least['auc_pn']['value']:.2f} ({_said(least)}) "
        f"to {most['auc_pn']['value']:.2f} ({_said(most)})."
    )


def _said(row: Mapping[str, Any]) -> str:
    return (
        f"{row['submissions']} at ε = {row['epsilon_report']:.3g}, {row['adversary']} adversary: "
        f"error of a share {row['MAE']:.2g}"
    )


MEASURE = Measure(
    run=measure,
    grid=PoolDefencesGrid,
    needs_arm=False,
    gather=gather,
    summary=summary,
    origins=origins,
)
