"""The pancake's owner against the gradients of DP-SGD: one pass over a batch serves many pairs and all noise settings."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_sigma_paper
from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.published import beside_printed
from dpaudit.experiments.threads import LARGE, threads, threads_for
from dpaudit.hosts.gradients.query import GradientQuery
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KEY_BYTES, KeyedStream
from dpaudit.registry import nearest
from dpaudit.studies.trials import interval

if TYPE_CHECKING:
    from dpaudit.experiments.spec import Cell
    from dpaudit.interfaces import Attack

__all__ = [
    "HOST",
    "MEASURE",
    "Setting",
    "accuracy",
    "check_grid",
    "gather",
    "host",
    "measure",
    "published_name",
    "settings",
    "summary",
]

DELTA = 1e-10
_ATTACK = "nearest-peak"
_ROUNDED = (8, 2)  # pairs whose float32 error is measured: of small networks, of large ones
HOST = ("model", "data", "weights", "norm", "batch", "neighbour", "dtype")
_NOISE = ("clip", "beta", "gamma", "epsilon")
_WHOLE = ("batch", "block")
_PUBLISHED = {"lenet5-tanh": "lenet", "lenet5": "lenet"}


@dataclass(frozen=True)
class Setting:
    """One noise: what gradients are clipped to, the key's β and γ (as written), the ε that the noise claims."""

    clip: float
    beta: float
    gamma_as: str
    epsilon: float


def _number(text: str) -> float:
    """``1e-5`` or ``2^-17``."""
    base, power, exponent = text.partition("^")
    return float(base) ** float(exponent) if power else float(base)


def settings(grid: Mapping[str, Any]) -> tuple[Setting, ...]:
    """All combinations of ``[grid] clip``, ``beta``, ``gamma`` and ``epsilon``, each a number or words with spaces between.

    Raises:
        SpecError: one of them is missing, empty or no number above 0.
    """
    words = {}
    for name in _NOISE:
        words[name] = str(grid.get(name, "")).split()
        try:
            good = words[name] and (name == "gamma" or all(_number(word) > 0 for word in words[name]))
        except (ValueError, TypeError, ZeroDivisionError, OverflowError):  # TypeError: a root of a number below 0
            good = False
        if not good:
            raise SpecError(f'grid {name}={grid.get(name)!r}: must be numbers above 0, e.g. {name} = "1e-4 2^-10"')
    found = [
        Setting(_number(clip), _number(beta), gamma, _number(epsilon))
        for clip, beta, gamma, epsilon in itertools.product(*words.values())
    ]
    if len(set(found)) < len(found):
        raise SpecError("grid: a clip, beta, gamma or epsilon is written twice; name each once")
    return tuple(found)


def check_grid(grid: Mapping[str, Any], *, also: Sequence[str] = ()) -> None:
    """Are these options of the host, a ``block``, and else only words of ``also``, with a model among them?

    Raises:
        SpecError: no.
    """
    for name, value in grid.items():
        if name in also:
            continue
        if name not in (*HOST, "block"):
            raise SpecError(f"grid {name}={value!r}: not known{nearest(name, (*HOST, 'block', *also))}")
        if type(value) is not (int if name in _WHOLE else str):
            raise SpecError(
                f"grid {name}={value!r}: must be {'a whole number' if name in _WHOLE else 'a word in quotes'}"
            )
    if "model" not in grid:
        raise SpecError('grid: model is missing; e.g. model = "lenet5-tanh"')


def published_name(model: str) -> str:
    """What the published tables call a network."""
    return _PUBLISHED.get(model, model.replace("-", "_"))


@functools.lru_cache(maxsize=1)  # the data and the weights of one network serve all blocks of it
def _made(options: tuple[tuple[str, Any], ...]) -> GradientQuery:
    return GradientQuery(**dict(options))


def host(cell: Cell, **more: Any) -> GradientQuery:
    """The query of a cell: options from ``[grid]``, an untrained network's weights from its ``block``."""
    grid = cell.settings["grid"]
    options = {name: grid[name] for name in HOST if name in grid}
    options["device"] = cell.settings.get("device", "cpu")
    if options.get("weights", "untrained") == "untrained":
        options["seed"] = grid.get("block", 0)
    return _made(tuple(sorted({**options, **more}.items())))


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """``trials`` pairs of one batch, each released once under every noise, and how often the key holder names the truth.

    ``[grid]`` has the options of the host ``dpsgd-gradient`` (``model``, ``weights``, ``norm``, …), the noise as words
    (``clip = "4 8"``, ``beta = "2^-17 2^-16"``, ``gamma = "2sqrtd"``, ``epsilon``), and ``block``, a number: the batch, the
    secret direction and an untrained network's weights are its own. δ is 1e-10 and σ the paper's; the attack is the
    published nearest hyperplane. Rounds of one row are independent but for sharing a batch, a direction and (untrained)
    weights within a block.

    Raises:
        SpecError: a word in ``[grid]`` that is not known or of a wrong type, settings that are no numbers or are there
            twice, or more pairs than the batch has records.
        UsageError: an option that the host does not take, data or weights that are not there, γ below 2√d.
    """
    del arm
    grid, pairs = cell.settings["grid"], cell.settings["trials"]
    check_grid(grid, also=_NOISE)
    noises = settings(grid)
    query = host(cell, clip=noises[0].clip)
    if pairs > query.batch:
        raise SpecError(f"trials={pairs}: a block has at most {query.batch} pairs, one a record; take more blocks")
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
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
                    here = stream.child("noise", some.first, *map(str, (s.clip, s.beta, s.gamma_as, s.epsilon)))
                    correct[s] += _named(candidates, *noisy[s], here)
    return {
        "d": query.dim,
        "accuracy": accuracy(query),
        "converged": grid.get("weights", "untrained") != "untrained",
        "published_as": published_name(grid["model"]),
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


def _arm(setting: Setting, owned: PancakeKey, *, sensitivity: float) -> tuple[Pancake, Attack]:
    """The noise of one setting and the attack on it; all that live at a time share the key's arrays, on every device."""
    sigma = gaussian_sigma_paper(setting.epsilon, DELTA, sensitivity=sensitivity)
    key = owned.at(beta=setting.beta, gamma=setting.gamma_as)
    return Pancake(key=key, sigma=sigma), registry.load("attacks", _ATTACK)(key=key, sigma=sigma)


def _named(candidates: torch.Tensor, source: Pancake, attack: Attack, stream: KeyedStream) -> int:
    """Release one of each two candidates (g, 2, d), at a coin's choice; how many the key holder names right."""
    n, _, d = candidates.shape
    truth = stream.child("coins").numpy().integers(0, 2, n)
    release = source.sample(n, d, stream=stream.child("noise"), device=candidates.device)
    for row, pair, side in zip(release, candidates, truth, strict=True):
        row += pair[side]
    named = attack.score(release, candidates).argmax(1).cpu().numpy()
    return int((named == truth).sum())


def accuracy(query: GradientQuery) -> dict[str, float] | None:
    """The network's measured accuracy with its interval, as reports read it; None where there is none."""
    found = query.accuracy
    return None if found is None else {"value": found.value, "low": found.low, "high": found.high}


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each network and noise setting, from cells of one block each."""
    groups: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for row in rows:
        for count in row["counts"]:
            group = (*(row.get(name) for name in HOST), *(count[k] for k in ("clip", "beta", "gamma_as", "epsilon")))
            groups.setdefault(group, []).append((row, count))
    return [_joined(members) for members in groups.values()]


def _joined(members: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    first, noise = members[0]
    trials = sum(row["trials"] for row, _ in members)
    norms = [norm for row, _ in members for c in row["changes"] if c["clip"] == noise["clip"] for norm in c["norms"]]
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
        "diff_median": statistics.median(norms),
        "float32_error": statistics.median(row["float32_error"] for row, _ in members),
    }
    return joined | beside_printed("table2", joined, trials=trials)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of success for each kind of weights."""
    parts = []
    for weights in dict.fromkeys(row["weights"] for row in rows):
        found = sorted(row["success"]["value"] for row in rows if row["weights"] == weights)
        parts.append(
            f"on {weights} weights in {100 * found[0]:.1f} to {100 * found[-1]:.1f} % of the rounds of a row "
            f"(median {100 * statistics.median(found):.1f} %)"
        )
    return f"The key holder names the right one of two neighbouring batches {'; '.join(parts)}."


MEASURE = Measure(run=measure, needs_arm=False, on_devices=True, gather=gather, summary=summary)
