"""Measures of pool inference: the game, defences of devices, and a curator's errors."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Cell, Grid, Measure, read_grid
from dpaudit.randomness import KeyedStream
from dpaudit.types import PluginOrigin, Reference

if TYPE_CHECKING:
    from dpaudit.protocols import GameAttack, LocalMechanism, Stream, SubmissionPolicy

__all__ = [
    "POOL_DEFENCES",
    "POOL_INFERENCE",
    "SKETCH_UTILITY",
    "CountedPolicy",
    "attack_of",
    "errors",
    "expected_errors",
    "setting_of",
]

ATTACK = "pool-inference"


class PoolGrid(Grid, frozen=True, forbid_unknown_fields=False):
    """``setting`` and what the attack takes; other axes are options of the attack or setting."""

    setting: str
    epsilon: float | None = None
    adversaries: tuple[str, ...] = ()
    observations: tuple[int, ...] = ()
    submissions: str | dict[str, str | int | float | bool] | None = None


def attack_of(grid: Mapping[str, Any]) -> GameAttack:
    """The attack of a ``[grid]``: the plug-in's own options; the rest are its ``setting``'s.

    Raises:
        SpecError: no setting, or observations that are not numbers.
        UsageError: an option that neither takes.
    """
    read_grid(grid, PoolGrid)
    factory = registry.load("attacks", ATTACK)
    takes = inspect.signature(factory).parameters
    options = {name: value for name, value in grid.items() if name in takes and name != "setting"}
    if "submissions" in options:
        options["submissions"] = str(_policy(options["submissions"]))
    reference = Reference.parse(grid["setting"])
    own = {name: value for name, value in grid.items() if name not in takes}
    setting = str(Reference(reference.name, {**reference.options, **own}))
    attack: GameAttack = factory(setting=setting, **options)
    return attack


def setting_of(grid: Mapping[str, Any]) -> Any:
    """The attack's ``settings.Setting`` alone, for measures without an attack.

    Raises:
        SpecError: no setting.
        UsageError: an option that it does not take.
    """
    return attack_of(grid).people  # type: ignore[attr-defined]


def origins(cell: Cell) -> tuple[PluginOrigin, ...]:
    """The origins of the attack, and of the submission policy if one is named."""
    policy = cell.settings["grid"].get("submissions")
    named = () if policy is None else (registry.plugin("submissions", _policy(policy).name).origin,)
    return (registry.plugin("attacks", ATTACK).origin, *named)


def _policy(value: Any) -> Reference:
    """A submission policy: a table, or a name with its options."""
    if isinstance(value, Mapping):
        return Reference(
            value["name"], {k: v for k, v in value.items() if k not in ("name", "label")}
        )
    return Reference.parse(value)


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """One game with ``trials`` users: what each adversary makes of their first n submissions.

    ``[grid]`` has ``setting`` with its options as further keys (``size``, ``zipf``, ``universe``),
    and the attack's own: ``mechanism``, ``epsilon``, and ``adversaries`` and ``observations``, of
    which one game has all.

    Raises:
        SpecError: no setting, or observations that are not numbers.
        UsageError: an option that is not known, or a setting that makes no sense.
    """
    del arm
    grid = cell.settings["grid"]
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    return {"outcomes": attack_of(grid).play(cell.settings["trials"], stream=stream)}


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each adversary and number of observations."""
    return [
        outcome_row(row, adversary, n, outcome)
        for row in rows
        for adversary, outcomes in row["outcomes"].items()
        for n, outcome in outcomes.items()
    ]


def outcome_row(
    row: Mapping[str, Any], adversary: str, n: str | int, outcome: Mapping[str, Any]
) -> dict[str, Any]:
    """The flat row of one adversary's outcome (``metrics.Outcome``) in a cell's ``row``."""
    setting = Reference.parse(row["setting"])
    fields = {
        name: value
        for name, value in row.items()
        if name not in ("setting", "outcomes", "adversaries", "observations")
    }
    return {
        "setting": setting.name,
        **setting.options,
        **fields,
        "adversary": adversary,
        "n": int(n),
        **{name: value for name, value in outcome.items() if name != "calibration"},
        "calibration": [
            [b["confidence"], {"value": b["success"], "low": b["low"], "high": b["high"]}]
            for b in outcome["calibration"]
        ],
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of AUC-PN for each adversary, from the fewest to the most observations."""
    parts = []
    for adversary in dict.fromkeys(row["adversary"] for row in rows):
        own = [row for row in rows if row["adversary"] == adversary]
        few, many = min(r["n"] for r in own), max(r["n"] for r in own)
        ends = [[r["auc_pn"]["value"] for r in own if r["n"] == n] for n in (few, many)]
        areas = " to ".join(
            f"{max(end):.2f}" if len(end) == 1 else f"{min(end):.2f} … {max(end):.2f}"
            for end in ends
        )
        parts.append(
            f"{adversary} {areas}" if few < many else f"{adversary} {areas.partition(' to ')[0]}"
        )
    few, many = min(r["n"] for r in rows), max(r["n"] for r in rows)
    over = f"{few} to {many} observations" if few < many else f"{many} observations"
    return (
        f"AUC-PN (1: always right; the guess: one in the number of pools) over {over}: "
        f"{'; '.join(parts)}."
    )


POOL_INFERENCE = Measure(
    run=measure, grid=PoolGrid, needs_arm=False, gather=gather, summary=summary, origins=origins
)

_TOP = 0.8
_FOLDED = math.sqrt(2 / math.pi)  # the mean of |N(0, 1)|
_METRICS = ("MAE", "MAPE80")
_SKETCH = ("m", "functions")


class SketchGrid(Grid, frozen=True, forbid_unknown_fields=False):
    """People of a ``setting``, whose options are further axes, and the sketch of ``records``."""

    setting: str
    epsilon: float
    records: int
    m: int | None = None
    functions: int | None = None


def measure_utility(cell: Cell, arm: None) -> dict[str, Any]:
    """The error of one collection of ``[grid] records`` submissions under ``epsilon``.

    They come from people of a ``setting``. The server's state is drawn at once (``sample_sketch``),
    by the law of as many submissions. Hash functions are random ones, drawn anew for each cell;
    ``m`` (1,024) and ``functions`` (65,536) may be given. ``trials`` is not used.

    Raises:
        SpecError: no setting, epsilon or records.
        UsageError: a setting or an ε that makes no sense.
    """
    from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch, sample_sketch

    del arm
    grid = cell.grid(SketchGrid)
    own = {
        k: v for k, v in cell.settings["grid"].items() if k not in ("epsilon", "records", *_SKETCH)
    }
    records = grid.records
    popularity: npt.NDArray[np.float64] = setting_of(own).popularity
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    seed = int.from_bytes(stream.child("hashes").entropy()[:6], "little")
    sketch = {name: value for name in _SKETCH if (value := getattr(grid, name)) is not None}
    mechanism = CountMeanSketch(epsilon=grid.epsilon, seed=seed, **sketch)
    counts = stream.child("people").numpy().multinomial(records, popularity)
    server = sample_sketch(mechanism, counts, stream=stream.child("devices"))
    estimate = server.estimate(np.arange(len(popularity))) / records
    return {
        "epsilon_exact": mechanism.epsilon,
        "found": errors(estimate, popularity),
        "expected": expected_errors(
            server.standard_error(counts.astype(np.float64)) / records, popularity
        ),
    }


def _top(popularity: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The most popular four fifths of the objects, without those never chosen."""
    top = np.argsort(-popularity, kind="stable")[: int(_TOP * len(popularity))]
    return top[popularity[top] > 0]


def errors(
    estimate: npt.NDArray[np.float64], popularity: npt.NDArray[np.float64]
) -> dict[str, float]:
    """``MAE`` and ``MAPE80``, the mean of |p̂ − p|/p over the top 80 % of objects (Appendix A.5).

    1 is 100 %.
    """
    off, top = np.abs(estimate - popularity), _top(popularity)
    return {"MAE": float(off.mean()), "MAPE80": float((off[top] / popularity[top]).mean())}


def expected_errors(
    error: npt.NDArray[np.float64], popularity: npt.NDArray[np.float64]
) -> dict[str, float]:
    """The mean of :func:`errors` if estimates are normal with standard deviations ``error``."""
    return errors(popularity + _FOLDED * error, popularity)


def gather_utility(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each cell and kind of error."""
    return [
        {
            **{name: value for name, value in row.items() if name not in ("found", "expected")},
            "metric": metric,
            "error": row["found"][metric],
            "theory": row["expected"][metric],
        }
        for row in rows
        for metric in _METRICS
    ]


def utility_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How far measured errors lie from theory at most."""
    apart = max(abs(row["error"] / row["theory"] - 1) for row in rows)
    return f"All {len(rows)} errors are within {100 * apart:.1f} % of what theory expects of them."


SKETCH_UTILITY = Measure(
    run=measure_utility,
    grid=SketchGrid,
    needs_arm=False,
    gather=gather_utility,
    summary=utility_summary,
    origins=origins,
)


class PoolDefencesGrid(PoolGrid, frozen=True, forbid_unknown_fields=False):
    """The pool grid and accounting: ε towards the server at δ over all of a person's submissions.

    Persons are in a ``crowd`` of as many as play.
    """

    delta: float = 1e-6
    crowd: int | None = None


class CountedPolicy:
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
            UsageError: no server is known for the mechanism.
        """
        if self._server is None:
            from dpaudit_local.pool_inference.popularity import server_of

            self.mechanism, self._server = mechanism, server_of(mechanism)
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
        """MAE and MAPE80 of the shares that the server estimates (:func:`errors`).

        Objects that were never chosen are left out of MAPE80, which divides by their share.
        """
        share = self.chosen / self.chosen.sum()
        estimate = self._server.estimate(np.arange(len(share))) / self.reports
        chosen = share > 0
        return {
            "MAE": errors(estimate, share)["MAE"],
            "MAPE80": errors(estimate[chosen], share[chosen])["MAPE80"],
        }


def measure_defences(cell: Cell, arm: None) -> dict[str, Any]:
    """A game of ``trials`` users under the policy ``[grid] submissions``, and its utility.

    Raises:
        SpecError: no setting.
        UsageError: an option that is not known, a setting that makes no sense, or a mechanism whose
            reports cannot be added up here.
    """
    del arm
    grid, users = cell.grid(PoolDefencesGrid), cell.settings["trials"]
    own = PoolDefencesGrid.__struct_fields__[len(PoolGrid.__struct_fields__) :]
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    attack: Any = attack_of({k: v for k, v in cell.settings["grid"].items() if k not in own})
    counted = CountedPolicy(attack.policy, universe=attack.people.universe)
    attack.policy = counted
    outcomes = attack.play(users, stream=stream)
    if counted.mechanism is None:
        raise SpecError("grid adversaries: at least one that sees what is submitted, e.g. strong")
    chosen = attack.observations[-1]
    return {
        "outcomes": outcomes,
        "utility": counted.errors(),
        "submitted": counted.reports / users,
        "trusts": counted.trusts,
        "epsilon_report": counted.mechanism.epsilon,
        "epsilon_person": counted.epsilon(
            counted.mechanism, objects=chosen, users=grid.crowd or users, delta=grid.delta
        ),
    }


def gather_defences(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each policy, ε and adversary, after all submissions."""
    gathered = []
    for row in rows:
        own = {name: value for name, value in row.items() if name != "utility"}
        for adversary, outcomes in row["outcomes"].items():
            n = max(outcomes, key=int)
            gathered.append({**outcome_row(own, adversary, n, outcomes[n]), **row["utility"]})
    return gathered


def defences_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of the strongest adversary's AUC-PN, and the policies at its ends with errors."""
    least, most = (pick(rows, key=lambda row: row["auc_pn"]["value"]) for pick in (min, max))
    return (
        f"AUC-PN from {least['auc_pn']['value']:.2f} ({_policy_text(least)}) "
        f"to {most['auc_pn']['value']:.2f} ({_policy_text(most)})."
    )


def _policy_text(row: Mapping[str, Any]) -> str:
    return (
        f"{row['submissions']} at ε = {row['epsilon_report']:.3g}, {row['adversary']} adversary: "
        f"error of a share {row['MAE']:.2g}"
    )


POOL_DEFENCES = Measure(
    run=measure_defences,
    grid=PoolDefencesGrid,
    needs_arm=False,
    gather=gather_defences,
    summary=defences_summary,
    origins=origins,
)
