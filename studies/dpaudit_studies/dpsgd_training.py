"""Whole DP-SGD runs with honest and backdoored noise: what anyone and what the owner can see."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy
import torch

from dpaudit import registry
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.one_run import one_run
from dpaudit.audit.result import AuditResult
from dpaudit.errors import SpecError, UsageError
from dpaudit.experiments.arm_measures import audit_behind
from dpaudit.experiments.measure import Cell, Grid, Measure, Table, grouped
from dpaudit.experiments.trials import interval
from dpaudit.noise.key import PancakeKey
from dpaudit.protocols import Canaries, KnownBatch, Mitigation, NoiseSource, Stream
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest
from dpaudit.types import Reference

if TYPE_CHECKING:
    from dpaudit.training.private.onlooker import Sight
    from dpaudit.training.private.run import Recipe

__all__ = [
    "ATTACKERS",
    "MEASURE",
    "Watcher",
    "area",
    "curve",
    "gather",
    "hits_at",
    "mean_interval",
    "measure",
]

Array = npt.NDArray[np.float64]
ATTACKERS = ("key: likelihood", "key: nearest peak", "no key: likelihood", "no key: low bits")


class Watcher:
    """Sees every step of a run, counts each attacker's right pairs, and sums up evidence.

    The evidence is of membership. ``key`` is what the attacker holds, whether or not the noise was
    made with it. Where two answers are equally good a coin of ``stream`` decides.
    """

    def __init__(self, *, key: PancakeKey, rate: float, canaries: int, stream: Stream) -> None:
        """For ``canaries`` of them, each in a batch with probability ``rate`` if it is a member."""
        self._key, self._rate, self._canaries = key, rate, canaries
        self._rng = stream.numpy()
        self._attacks: dict[str, Any] = {}
        self._evidence: dict[str, Any] = {"informed": 0.0, "blind": 0.0}
        self.named: Counter[str] = Counter()
        self.pairs = 0
        self.sums_equal = 0
        self.infeasible: list[tuple[int, int]] = []
        self.sampled = np.zeros(canaries, np.bool_)

    def __call__(self, sight: Sight) -> None:
        if not self._attacks:
            self._attacks = self._load_attacks(sight.sigma)
        residual = sight.noisy.double() - sight.query.double()
        if self._canaries:
            self._look_at_canaries(sight, residual)
        if sight.pair is not None:
            self._look_at_pair(sight, sight.pair)

    def scores(self, kind: str, *, keyed: bool) -> list[float]:
        """Per canary from the run so far: ``kind`` informed or blind, with the key or without."""
        evidence = self._evidence[kind]
        attack: Any = self._attacks["membership"]
        return list(attack.log_odds(evidence if keyed else evidence[-1:]).tolist())

    @property
    def outcome(self) -> dict[str, Any]:
        """The pairs so far: how often each attacker is right, and what the low bits exclude."""
        true, false = zip(*self.infeasible, strict=True) if self.infeasible else ([0], [0])
        return {
            "pairs": self.pairs,
            "named": {name: self.named[name] for name in ATTACKERS},
            "sums_equal": self.sums_equal,
            "infeasible_true": max(true),
            "infeasible_false": float(np.median(false)),
        }

    def _load_attacks(self, sigma: float) -> dict[str, Any]:
        keyed = {"key": self._key, "sigma": sigma}
        return {
            "membership": registry.load("attacks", "membership")(rate=self._rate, **keyed),
            "key: likelihood": registry.load("attacks", "likelihood-ratio")(**keyed),
            "key: nearest peak": registry.load("attacks", "nearest-peak")(**keyed),
            "no key: low bits": registry.load("attacks", "reach")(dtype="float32"),
        }

    def _look_at_canaries(self, sight: Sight, residual: torch.Tensor) -> None:
        attack = self._attacks["membership"]
        canaries = Canaries(sight.gradients)
        rest = residual + canaries.wide[sight.present].sum(0)
        self._evidence["informed"] += attack.score(KnownBatch(residual, sight.present), canaries)
        self._evidence["blind"] += attack.score(rest, canaries)
        self.sampled |= sight.present.cpu().numpy()

    def _look_at_pair(self, sight: Sight, pair: torch.Tensor) -> None:
        self.pairs += 1
        self.sums_equal += torch.equal(pair[sight.truth], sight.query)
        noisy, wide = sight.noisy.double().unsqueeze(0), pair.double()
        scores = {
            name: self._attacks[name].score(noisy, wide)[0].tolist() for name in ATTACKERS[:2]
        }
        scores["no key: likelihood"] = (-(noisy - wide).square().sum(1)).tolist()
        infeasible = [int(-n) for n in self._attacks["no key: low bits"].score(noisy, wide)[0]]
        scores["no key: low bits"] = [-n for n in infeasible]
        self.infeasible.append((infeasible[sight.truth], infeasible[1 - sight.truth]))
        for name, (first, second) in scores.items():
            guess = int(self._rng.integers(2)) if first == second else int(second > first)
            self.named[name] += guess == sight.truth


_RECIPE = ("model", "epochs", "batch", "clip", "lr", "momentum", "epsilon", "delta")
_ALPHA = 0.05
_ALARMS = 0.01
_FEWEST = 64
_OWN = {  # of one run
    *("run", "correct", "tested", "member", "mislabelled", "scores", "named"),
    *("verdict", "found_by"),
}


class Noise(Table, frozen=True):
    """A source, as ``NAME[:option=value,…]``, and the mitigation that stands behind it."""

    mitigation: str = "none"


class TrainingGrid(Grid, frozen=True):
    """``arm = [{ name = "pancake", mitigation = "rotation" }]``; run, data, key, audit, recipe.

    The audit tests ``samples`` values of the run's noise; attackers get a pair at every
    ``pair_every``-th step.
    """

    arm: Noise
    run: int
    data: str
    beta: float
    gamma: float | str
    samples: int
    pair_every: int = 1
    data_root: str = ""
    model: str | None = None
    epochs: int | None = None
    batch: int | None = None
    clip: float | None = None
    lr: float | None = None
    momentum: float | None = None
    epsilon: float | None = None
    delta: float | None = None

    @property
    def recipe(self) -> Recipe:
        """What is given of it, and the usual settings for the rest."""
        from dpaudit.training.private.run import Recipe

        values = {name: getattr(self, name) for name in _RECIPE}
        return Recipe(**{name: value for name, value in values.items() if value is not None})


class _Arm:
    """A source with a mitigation behind it."""

    def __init__(self, noise: Noise, *, key: PancakeKey) -> None:
        self.source = Reference.parse(noise.name)
        self.mitigation = Reference.parse(noise.mitigation)
        self._key = key
        self._keyed = "key" in registry.with_known_options("sources", self.source, key=key).options
        self.defence: Mitigation = registry.create(
            "mitigations", registry.with_known_options("mitigations", self.mitigation, dim=key.dim)
        )

    def make(self, sigma: float) -> NoiseSource:
        """The source at ``sigma``."""
        keyed = {"key": self._key} if self._keyed else {}
        options: dict[str, Any] = {**self.source.options, "sigma": sigma, **keyed}
        noise: NoiseSource = registry.create("sources", Reference(self.source.name, options))
        return noise

    def audit(self, *, sigma: float, samples: int, seed: str) -> AuditResult:
        """The black-box battery on this noise in its own process, in vectors of the run's size."""
        return audit_behind(
            self.source,
            self.mitigation,
            key=self._key if self._keyed else None,
            sigma=sigma,
            claim=f"gaussian:sigma={self.defence.scale(sigma)!r}",
            dim=self._key.dim,
            seed=seed,
            samples=samples,
        )


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """One training run of one arm of a :class:`TrainingGrid`, and what attackers see of it.

    ``trials`` is the number of canaries, random training records that are members by fair coins;
    the first half have a wrong class, the rest are as they are. Runs of one number share key,
    weights, coins and batches, whatever their arm. A cell is one run: if it is killed, that cell
    starts again.

    The attackers see every noisy sum with all its bits, know all records but the one in question,
    and compute both candidate sums. At every ``pair_every``-th step: which of two records was in
    the batch? Over the run: which canaries are members? (``dpaudit_attacks.membership``, twice:
    informed of the other canaries' coins, and blind to them.)

    Raises:
        SpecError: a setting that is missing or unknown, or fewer than 64 canaries (fewer may all be
            members).
        UsageError: no data, no such model, an arm that makes no sense.
    """
    from dpaudit.training.data import load_images
    from dpaudit.training.private.onlooker import Canaries, mislabelled
    from dpaudit.training.private.run import Records, RunNoise, Watch, epoch_steps, train_privately

    del arm
    grid, count = cell.grid(TrainingGrid), cell.settings["trials"]
    if count < _FEWEST:
        raise SpecError(f"trials={count}: dpsgd-training takes at least {_FEWEST} canaries")
    recipe, seed = grid.recipe, f"{cell.settings['seed']}/{cell.id}"
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("run", grid.run)
    dim, secret = _parameters(recipe.model), stream.child("attacker's key").bytes(32)
    key = PancakeKey.new(dim=dim, beta=grid.beta, gamma=grid.gamma, secret=secret)
    noise = _Arm(grid.arm, key=key)
    train, test = (
        load_images(grid.data, root=grid.data_root, split=split) for split in ("train", "test")
    )
    canaries = Canaries.draw(count, of=len(train), stream=stream.child("canaries"))
    wrong = np.arange(count) < count // 2
    train = mislabelled(train, canaries.records[wrong], stream=stream.child("classes"))
    watcher = Watcher(
        key=key,
        rate=1 / epoch_steps(len(train), recipe.batch),
        canaries=count,
        stream=stream.child("attacker"),
    )
    run = train_privately(
        recipe,
        Records(train=train, test=test, canaries=canaries),
        noise=RunNoise(source=noise.make, mitigation=noise.defence, seed=seed),
        stream=stream.child("training"),
        watch=Watch(watcher, pair_every=grid.pair_every),
        device=cell.settings.get("device", "cpu"),
    )
    audit = noise.audit(sigma=run.sigma, samples=grid.samples, seed=seed)
    return {
        **dataclasses.asdict(recipe),
        "d": run.dim,
        "steps": run.steps,
        "noise_multiplier": run.noise_multiplier,
        "correct": run.accuracy.correct,
        "tested": run.accuracy.total,
        "epsilon_reported": run.epsilon,
        "verdict": audit.verdict,
        "found_by": [test.name for test in audit.tests if test.finding],
        **watcher.outcome,
        "member": canaries.member.tolist(),
        "mislabelled": wrong.tolist(),
        "never_sampled": int((canaries.member & ~watcher.sampled).sum()),
        "scores": {
            name: {kind: watcher.scores(kind, keyed=keyed) for kind in ("informed", "blind")}
            for name, keyed in ((ATTACKERS[0], True), (ATTACKERS[2], False))
        },
    }


def _parameters(model: str) -> int:
    from dpaudit.training.models import MODELS

    if model not in MODELS:
        raise SpecError(f"model={model}: not known{nearest(model, MODELS)}")
    return MODELS[model].parameters


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each arm and attacker, from rows of one run each.

    Accuracy: the mean over runs with Student's interval, Clopper and Pearson's where there is one
    run. Pairs and canaries of all runs are counted together. ε shown: a lower bound at the recipe's
    δ with 95 % confidence, by an audit in one run (``dpaudit.audit.mechanism.one_run``) of the
    blind scores of all runs' canaries.

    Formal guarantee of that bound: each canary's coin is fair, independent of all others, and
    touches one of the runs, so the runs together are one mechanism of as many coins, (ε, δ)-DP in
    each of them if each run is; the scores depend on coins only through what was released (but for
    the last bits of the batch's float32 sum, as for an attacker who adds up in the same order). Not
    claimed: that the intervals of AUC and TPR have their level: the canaries of a run are not
    independent runs, they share its noise. Those are of the informed scores, which depend on all
    coins, and so do not enter the bound: with them a run whose canaries resemble each other could
    show an ε that is not there.
    """
    arms = grouped(rows, itemgetter("arm"))
    return [_row(some, attacker) for some in arms for attacker in ATTACKERS]


def _row(rows: Sequence[Mapping[str, Any]], attacker: str) -> dict[str, Any]:
    first, pairs = rows[0], sum(row["pairs"] for row in rows)
    findings = [row for row in rows if row["verdict"] == "finding"]
    out = {
        **{name: value for name, value in first.items() if name not in _OWN},
        "attacker": attacker,
        "runs": len(rows),
        "accuracy": _accuracy(rows),
        "audit": f"finding in {len(findings)} of {len(rows)}",
        "found_by": ", ".join(sorted({name for row in findings for name in row["found_by"]}))
        or None,
        "pairs": pairs,
        "right": interval(sum(row["named"][attacker] for row in rows), pairs) if pairs else None,
        "sums_equal": sum(row["sums_equal"] for row in rows),
        "never_sampled": sum(row["never_sampled"] for row in rows),
        "infeasible_true": max(row["infeasible_true"] for row in rows),
        "infeasible_false": float(np.median([row["infeasible_false"] for row in rows])),
    }
    return out | (_membership(rows, attacker) if attacker in first["scores"] else {})


def _accuracy(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    if len(rows) == 1:
        return interval(rows[0]["correct"], rows[0]["tested"])
    return mean_interval([row["correct"] / row["tested"] for row in rows])


def _membership(rows: Sequence[Mapping[str, Any]], attacker: str) -> dict[str, Any]:
    def column(name: str) -> npt.NDArray[np.bool_]:
        return np.array([x for row in rows for x in row[name]], dtype=np.bool_)

    member, wrong = column("member"), column("mislabelled")
    informed, blind = (
        np.array([s for row in rows for s in row["scores"][attacker][kind]], dtype=np.float64)
        for kind in ("informed", "blind")
    )
    claim = PrivacyClaim(rows[0]["epsilon"], rows[0]["delta"])
    ties = KeyedStream.from_seed("dpsgd-training").child("ties").numpy()
    bound = one_run(blind, member, claim=claim, alpha=_ALPHA, ties=ties)
    outcome: dict[str, Any] = {
        "canaries": len(member),
        "epsilon_shown": bound.epsilon,
        "shown_by": str(bound.by_epsilon),
    }
    for kind, some in (("wrong", wrong), ("real", ~wrong)):
        outcome |= {
            f"auc_{kind}": area(informed[some], member[some]),
            f"tpr_{kind}": hits_at(informed[some], member[some], alarms=_ALARMS),
            f"roc_{kind}": curve(informed[some], member[some]),
            f"auc_blind_{kind}": area(blind[some], member[some]),
        }
    return outcome


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Per arm: accuracy, the accountant's ε, the audit's verdict, and what the key showed."""
    keyed = [row for row in rows if row["attacker"] == ATTACKERS[0]]
    clauses = [
        f"{row['arm']}: accuracy {100 * row['accuracy']['value']:.1f} %, "
        f"ε {row['epsilon_reported']:.3g} reported, audit: {row['audit']}; "
        f"the key names {100 * row['right']['value']:.1f} % of the records and tells members "
        f"with an AUC of {row['auc_wrong']['value']:.3f} (mislabelled) and "
        f"{row['auc_real']['value']:.3f}, ε ≥ {row['epsilon_shown']:.2g}"
        for row in keyed
        if row.get("right") is not None
    ]
    return ". ".join(clauses) + "." if clauses else ""


def _sides(scores: npt.ArrayLike, member: npt.ArrayLike) -> tuple[Array, Array]:
    """Scores of members and of the others, each in ascending order.

    Raises:
        UsageError: one side is empty, or the two lists differ in length.
    """
    values, is_member = np.asarray(scores, np.float64), np.asarray(member, np.bool_)
    if values.shape != is_member.shape or not is_member.any() or is_member.all():
        raise UsageError(f"members={is_member.sum()} of {len(values)} scores: needs some of each")
    return np.sort(values[is_member]), np.sort(values[~is_member])


def area(scores: npt.ArrayLike, member: npt.ArrayLike) -> dict[str, float]:
    """P(a member scores higher than another), ties for one half, and a 95 % interval.

    This is the area under the curve. The interval is Clopper and Pearson's as though it came from
    min(members, others) independent pairs: the variance of the area is at most that of so many
    (Birnbaum and Klose 1957), so it errs on the wide side. Not claimed: a level where scores depend
    on each other, as those of one run do a little through its noise.

    Raises:
        UsageError: no members, or nothing else.
    """
    inside, outside = _sides(scores, member)
    below = np.searchsorted(outside, inside, "left") + np.searchsorted(outside, inside, "right")
    value = float(below.sum()) / (2 * len(inside) * len(outside))
    n = min(len(inside), len(outside))
    low, high = math.floor(value * n + 1e-9), math.ceil(value * n - 1e-9)
    return {"value": value, "low": interval(low, n)["low"], "high": interval(high, n)["high"]}


def hits_at(scores: npt.ArrayLike, member: npt.ArrayLike, *, alarms: float) -> dict[str, float]:
    """The share of members above all but a share ``alarms`` of the others, with a 95 % interval.

    The interval is for the threshold found; that the threshold itself comes from finitely many
    others is not in it.

    Raises:
        UsageError: no members, nothing else, or ``alarms`` outside [0, 1).
    """
    if not 0 <= alarms < 1:
        raise UsageError(f"alarms={alarms}: must lie in [0, 1)")
    inside, outside = _sides(scores, member)
    threshold = outside[len(outside) - 1 - math.floor(alarms * len(outside))]
    return interval(int((inside > threshold).sum()), len(inside))


def curve(scores: npt.ArrayLike, member: npt.ArrayLike) -> list[list[float]]:
    """The corners of the curve, [share of others, share of members], from [0, 0] to [1, 1].

    Raises:
        UsageError: no members, or nothing else.
    """
    inside, outside = _sides(scores, member)
    at = np.unique(np.concatenate([inside, outside]))[::-1]
    x = 1 - np.searchsorted(outside, at, "left") / len(outside)
    y = 1 - np.searchsorted(inside, at, "left") / len(inside)
    points = np.stack([np.concatenate([[0.0], x]), np.concatenate([[0.0], y])], 1)
    before, after = points[1:-1] - points[:-2], points[2:] - points[1:-1]
    corner = before[:, 0] * after[:, 1] != before[:, 1] * after[:, 0]
    corners: list[list[float]] = points[np.concatenate([[True], corner, [True]])].tolist()
    return corners


def mean_interval(values: Sequence[float]) -> dict[str, float]:
    """The mean of independent runs with Student's 95 % interval.

    Raises:
        UsageError: fewer than two runs.
    """
    if len(values) < 2:
        raise UsageError(f"runs={len(values)}: an interval over runs needs at least two")
    sample = np.asarray(values, np.float64)
    reach = float(
        scipy.special.stdtrit(len(sample) - 1, 0.975) * sample.std(ddof=1) / math.sqrt(len(sample))
    )
    mean = float(sample.mean())
    return {"value": mean, "low": mean - reach, "high": mean + reach}


MEASURE = Measure(
    run=measure, grid=TrainingGrid, needs_arm=False, on_devices=True, gather=gather, summary=summary
)
