"""DP-SGD gradients: their size (arXiv 2509.23834, Table 3), and what a pancake's owner reads.

One pass serves many pairs and all noise.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_sigma_paper
from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Cell, Grid, Measure, grouped
from dpaudit.experiments.placement.work import LARGE, threads, threads_for
from dpaudit.experiments.published import published_value
from dpaudit.experiments.trials import interval
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.queries.gradients.query import GradientQuery
from dpaudit.randomness import KEY_BYTES, KeyedStream
from dpaudit.training.plain_training import RECIPES
from dpaudit.training.weights import PUBLISHED, checkpoint_file
from dpaudit_studies.printed import beside_printed

if TYPE_CHECKING:
    from dpaudit.protocols import Attack

__all__ = [
    "ATTACK",
    "HOST",
    "SIZE",
    "Noise",
    "NoiseGrid",
    "accuracy",
    "attack",
    "host",
    "published_name",
    "size",
]

DELTA = 1e-10
_ATTACK = "nearest-peak"
_ROUNDED = (8, 2)  # pairs whose float32 error is measured: of small networks, of large ones
HOST = ("model", "data", "weights", "norm", "batch", "neighbour", "dtype")
_PUBLISHED = {"lenet5-tanh": "lenet", "lenet5": "lenet"}


@dataclass(frozen=True)
class Noise:
    """The clipping norm, the key's β and γ (as written), and the ε that the noise claims."""

    clip: float
    beta: float
    gamma_as: str
    epsilon: float


class HostGrid(Grid, frozen=True, kw_only=True):
    """Options of the host ``dpsgd-gradient``, and a block with its batch and untrained weights."""

    model: str
    data: str | None = None
    weights: str | None = None
    norm: str | None = None
    batch: int | None = None
    neighbour: str | None = None
    dtype: str | None = None
    block: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The host's options."""
        return {name: value for name in HOST if (value := getattr(self, name)) is not None}

    @property
    def phase(self) -> str:
        """``untrained`` or ``trained``."""
        return self.weights or "untrained"


Positive = Annotated[float, msgspec.Meta(gt=0)]
Power = Annotated[str, msgspec.Meta(pattern=r"^[1-9]\d{0,3}\^-?\d{1,3}$")]
"""``2^-17``, in quotes."""


class NoiseGrid(HostGrid, frozen=True):
    """And the noise: a cell works through all combinations of these four on one batch."""

    clip: tuple[Positive, ...]
    beta: tuple[Positive | Power, ...]
    gamma: tuple[str | Positive, ...]
    epsilon: tuple[Positive, ...]

    @property
    def noises(self) -> tuple[Noise, ...]:
        """All combinations.

        Raises:
            SpecError: one of the axes is empty, or has a value twice.
        """
        axes = itertools.product(self.clip, self.beta, self.gamma, self.epsilon)
        settings = [Noise(clip, _number(beta), str(gamma), eps) for clip, beta, gamma, eps in axes]
        if not settings or len(set(settings)) < len(settings):
            raise SpecError(
                "grid: clip, beta, gamma and epsilon must name each value once, and at least one"
            )
        return tuple(settings)


def _number(value: float | str) -> float:
    """``1e-5``, or ``2^-17`` in quotes."""
    if not isinstance(value, str):
        return value
    base, _, power = value.partition("^")
    number: float = float(base) ** float(power)
    return number


def published_name(model: str) -> str:
    """The published tables' name of a network."""
    return _PUBLISHED.get(model, model.replace("-", "_"))


@functools.lru_cache(maxsize=1)  # the data and the weights of one network serve all blocks of it
def _query(options: tuple[tuple[str, Any], ...]) -> GradientQuery:
    return GradientQuery(**dict(options))


def host(cell: Cell, grid: HostGrid, **more: Any) -> GradientQuery:
    """The query of a cell; an untrained network's weights are those of its ``block``."""
    options = {**grid.options, "device": cell.settings.get("device", "cpu")}
    if grid.phase == "untrained":
        options["seed"] = grid.block or 0
    return _query(tuple(sorted({**options, **more}.items())))


def attack(cell: Cell, arm: None) -> dict[str, Any]:
    """``trials`` pairs of one batch, each released once under every noise.

    Counts how often the key holder identifies the true one. ``[grid]`` is a :class:`NoiseGrid`,
    e.g. ``clip = [4, 8]``, ``beta = [1e-3, "2^-17"]``, ``gamma = ["2sqrtd"]``. The batch, the
    secret direction and an untrained network's weights are its ``block``'s own. δ is 1e-10 and σ
    the paper's; the attack is the published nearest hyperplane. Rounds of one row are independent
    except for sharing a batch, a direction and (untrained) weights within a block.

    Raises:
        SpecError: an axis that is not known or of a wrong type, a noise that occurs twice, or
            more pairs than the batch has records.
        UsageError: an option that the host does not take, missing data or weights, γ
            below 2√d.
    """
    del arm
    grid, pairs = cell.grid(NoiseGrid), cell.settings["trials"]
    noises = grid.noises
    query = host(cell, grid, clip=noises[0].clip)
    if pairs > query.batch:
        raise SpecError(
            f"trials={pairs}: a block has at most {query.batch} pairs, one per record; "
            "take more blocks"
        )
    stream = cell.stream
    secret = stream.child("attacker's key").bytes(KEY_BYTES)
    owned = PancakeKey.new(dim=query.dim, beta=1.0, secret=secret)
    noisy = {s: _arm(s, owned, sensitivity=query.sensitivity_at(s.clip)) for s in noises}
    correct = dict.fromkeys(noises, 0)
    moved: dict[float, list[float]] = {s.clip: [] for s in noises}
    with threads(threads_for(query.dim)):
        error = query.rounding(_ROUNDED[query.dim >= LARGE], stream=stream.child("rounding"))
        block = query.block(pairs, stream=stream.child("records"), clips=tuple(moved))
        for some in block.exchanges():
            for clip, sizes in moved.items():
                sizes += torch.linalg.vector_norm(some.changes(clip), dim=1).tolist()
                candidates = some.candidates(clip)
                for s in (s for s in noises if s.clip == clip):
                    setting = map(str, (s.clip, s.beta, s.gamma_as, s.epsilon))
                    here = stream.child("noise", some.first, *setting)
                    correct[s] += _count_right(candidates, *noisy[s], here)
    return {
        "d": query.dim,
        "accuracy": accuracy(query),
        "converged": grid.phase != "untrained",
        "published_as": published_name(grid.model),
        "float32_error": error,
        "counts": [
            {
                "clip": s.clip,
                "beta": s.beta,
                "gamma": noisy[s][0].key.gamma,
                "gamma_as": s.gamma_as,
                "epsilon": s.epsilon,
                "sigma": noisy[s][0].sigma,
                "correct": correct[s],
            }
            for s in noises
        ],
        "changes": [{"clip": clip, "norms": sizes} for clip, sizes in moved.items()],
    }


def _arm(setting: Noise, owned: PancakeKey, *, sensitivity: float) -> tuple[Pancake, Attack]:
    """The noise of one setting and the attack on it; all share the key's arrays per device."""
    sigma = gaussian_sigma_paper(setting.epsilon, DELTA, sensitivity=sensitivity)
    key = owned.at(beta=setting.beta, gamma=setting.gamma_as)
    return Pancake(key=key, sigma=sigma), registry.load("attacks", _ATTACK)(key=key, sigma=sigma)


def _count_right(
    candidates: torch.Tensor, source: Pancake, attack: Attack, stream: KeyedStream
) -> int:
    """Release one of each two candidates (g, 2, d) by a coin; how often the key holder is right."""
    n, _, d = candidates.shape
    truth = stream.child("coins").numpy().integers(0, 2, n)
    release = source.sample(n, d, stream=stream.child("noise"), device=candidates.device)
    for row, pair, side in zip(release, candidates, truth, strict=True):
        row += pair[side]
    named = attack.score(release, candidates).argmax(1).cpu().numpy()
    return int((named == truth).sum())


def accuracy(query: GradientQuery) -> dict[str, float] | None:
    """The network's measured accuracy with its interval, as reports read it; None without one."""
    measured = query.accuracy
    if measured is None:
        return None
    return {"value": measured.value, "low": measured.low, "high": measured.high}


def attack_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each network and noise setting, from cells of one block each."""
    counts = [(row, count) for row in rows for count in row["counts"]]
    return [_attack_row(members) for members in grouped(counts, _setting)]


Counted = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The row of a block, and its count at one noise setting."""


def _setting(counted: Counted) -> tuple[Any, ...]:
    row, count = counted
    return *map(row.get, HOST), *(count[k] for k in ("clip", "beta", "gamma_as", "epsilon"))


def _attack_row(members: Sequence[Counted]) -> dict[str, Any]:
    first, noise = members[0]
    trials = sum(row["trials"] for row, _ in members)
    changes = [c for row, _ in members for c in row["changes"] if c["clip"] == noise["clip"]]
    weights = first.get("weights", "untrained")
    joined = {
        **{name: first[name] for name in HOST if name in first},
        **{k: v for k, v in first.items() if k in ("d", "accuracy", "converged", "published_as")},
        **{k: v for k, v in noise.items() if k != "correct"},
        "weights": weights,
        "network": ", ".join(first[name] for name in ("model", "norm") if name in first),
        "phase": f"{weights}, clip {noise['clip']:g}",
        "success": interval(sum(count["correct"] for _, count in members), trials),
        "trials": trials,
        "blocks": len(members),
        "diff_median": statistics.median(norm for c in changes for norm in c["norms"]),
        "float32_error": statistics.median(row["float32_error"] for row, _ in members),
    }
    return joined | beside_printed("table2", joined, trials=trials)


def attack_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of success for each kind of weights."""
    parts = []
    for weights in dict.fromkeys(row["weights"] for row in rows):
        shares = sorted(row["success"]["value"] for row in rows if row["weights"] == weights)
        parts.append(
            f"on {weights} weights in {100 * shares[0]:.1f} to {100 * shares[-1]:.1f} % of the "
            f"rounds of a row (median {100 * statistics.median(shares):.1f} %)"
        )
    return f"The key holder names the right one of two neighbouring batches {'; '.join(parts)}."


ATTACK = Measure(
    run=attack,
    grid=NoiseGrid,
    needs_arm=False,
    on_devices=True,
    gather=attack_rows,
    summary=attack_summary,
)

_KEPT = ("d", "accuracy", "converged", "published_as", "note")
_SIZES = ("l2_mean", "l2_median", "l2_diff_mean", "l2_diff_median")


def size(cell: Cell, arm: None) -> dict[str, Any]:
    """Norms of one batch's mean gradient and of its change by each of ``trials`` replaced records.

    ``[grid]`` has the options of the host ``dpsgd-gradient`` and ``block``, a number: the batch and
    an untrained network's weights are its own. For a large network that has not been trained there
    is a note that says how to, instead of numbers.

    Raises:
        SpecError: an axis that is not known, or of a wrong type.
        UsageError: an option that the host does not take, missing data, more pairs than
            records.
    """
    del arm
    grid = cell.grid(HostGrid)
    model, weights = grid.model, grid.phase
    outcome: dict[str, Any] = {
        "converged": weights != "untrained",
        "published_as": published_name(model),
        "squares": [],
        "changes": [],
        "note": None,
    }
    if weights == "trained" and not _at_hand(model):
        return outcome | {
            "note": f"not trained yet: dpaudit train {model} --device cuda, "
            "then run this again with another --out"
        }
    query = host(cell, grid)
    stream = cell.stream
    with threads(threads_for(query.dim)):
        records, pairs = stream.child("records"), cell.settings["trials"]
        block = query.block(pairs, stream=records, clips=(math.inf,))
        outcome["squares"] = [float(block.query(math.inf).square().sum())]
        for some in block.exchanges():
            sizes = torch.linalg.vector_norm(some.changes(math.inf), dim=1)
            outcome["changes"] += sizes.square().tolist()
    return outcome | {"d": query.dim, "accuracy": accuracy(query)}


def _at_hand(model: str) -> bool:
    quick = model not in RECIPES or model in PUBLISHED or RECIPES[model].quick
    return quick or checkpoint_file(model).exists()


def size_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each network, from cells of one block each, with the authors' log and table.

    Means and medians are of squares, and their roots are shown, as in the published table.
    """
    return [_size_row(some) for some in grouped(rows, lambda row: tuple(map(row.get, HOST)))]


def _size_row(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = members[0]
    squares = [x for row in members for x in row["squares"]]
    changes = [x for row in members for x in row["changes"]]
    sizes = [
        math.sqrt(statistic(values)) if values else None
        for values in (squares, changes)
        for statistic in (statistics.fmean, statistics.median)
    ]
    on = {"published_as": "model", "converged": "pretrained"}
    joined = {
        **{name: first[name] for name in (*HOST, *_KEPT) if name in first},
        "batches": len(squares),
        "trials": len(changes),
        **dict(zip(_SIZES, sizes, strict=True)),
    }
    theirs = {
        f"published_{name}": published_value({"file": "gm", "on": on, "value": name}, joined)
        for name in _SIZES
    }
    table = {"file": "printed-table3", "on": on}
    printed = {
        f"printed_{name}": published_value({**table, "value": name}, joined)
        for name in ("l2", "l2_diff")
    }
    ours, published = joined["l2_diff_median"], theirs["published_l2_diff_median"]
    return {
        **joined,
        **theirs,
        **printed,
        "ratio": ours / published if ours is not None and published else None,
    }


def size_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How far the median changes are from the published ones, and what has not been trained."""
    ratios = {
        f"{row['weights']} {row['model']}": row["ratio"] for row in rows if row["ratio"] is not None
    }
    listed = ", ".join(f"{ratio:.2g} for {name}" for name, ratio in ratios.items())
    missing = [row["model"] for row in rows if row["note"]]
    text = "Median change of a batch's gradient by one record, over the published one"
    text = f"{text}: {listed}." if listed else ""
    return text + (f" Not trained here: {', '.join(missing)}." if missing else "")


SIZE = Measure(
    run=size,
    grid=HostGrid,
    needs_arm=False,
    on_devices=True,
    gather=size_rows,
    summary=size_summary,
)
