"""Whole DP-SGD runs whose batches the owner of one party's coins reads, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.accounting.dpsgd import DpSgd, known_batch_epsilon, worst_known_batch_epsilon
from dpaudit.experiments.measure import Cell, Grid, Measure, Table, grouped
from dpaudit.experiments.trials import interval
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.next_batch import GradientFree, NextBatch
from dpaudit.protocols import BatchCoins, BatchDraw, InBatch, Mitigation, NoiseSource
from dpaudit.randomness import KeyedStream
from dpaudit.types import PluginOrigin, Reference

if TYPE_CHECKING:
    from dpaudit.training.private.onlooker import Sight
    from dpaudit.training.private.run import TrainedRun

__all__ = ["MEASURE", "Coins", "NextBatchGrid", "gather", "measure", "origins", "summary"]

_READER = "batch-reader"
_OWN = ("run", "exact", "asked", "named", "right", "in_batch", "flips", "size")


class Coins(Table, frozen=True):
    """Who draws: a plug-in of ``dpaudit.batches``, and whether its first party is backdoored.

    ``mitigation`` stands between the noise and the release.
    """

    first: Literal["honest", "next-batch"] = "next-batch"
    mitigation: str = "none"

    @property
    def backdoored(self) -> bool:
        """Whether the first party knows the next batch."""
        return self.first == "next-batch"


class NextBatchGrid(Grid, frozen=True):
    """``coins`` of each ``run``; the recipe, and ``inputs`` of the model's last layer."""

    coins: Coins
    run: int
    model: str
    inputs: int
    epochs: int
    batch: int
    epsilon: float
    delta: float
    lr: float = 0.1
    nonce_bits: int = 128
    data: str = "synthetic"
    data_root: str = ""


class _Batches:
    """Draws a run's batches, and keeps what was drawn."""

    def __init__(self, how: BatchDraw, coins: Sequence[BatchCoins]) -> None:
        self._how, self._coins = how, coins
        self.masks: list[npt.NDArray[np.bool_]] = []

    def __call__(self, records: int, rate: float) -> npt.NDArray[np.bool_]:
        self.masks.append(self._how.draw(self._coins, records, rate=rate))
        return self.masks[-1]


class _Watcher:
    """Keeps whom the reader names after each step, and how the sum moved the noise's signs."""

    def __init__(
        self,
        key: SeedKey,
        grid: NextBatchGrid,
        *,
        mitigation: Mitigation,
        records: int,
        rate: float,
    ) -> None:
        self._key, self._grid, self._records, self._rate = key, grid, records, rate
        self._mitigation = mitigation
        self.named: list[npt.NDArray[np.bool_]] = []
        self.flips: list[float] = []
        self.sizes: list[float] = []

    def __call__(self, sight: Sight) -> None:
        mixes = getattr(self._mitigation, "mixes", lambda _: None)(sight.sigma)
        reader: Any = registry.load("attacks", _READER)(
            key=self._key,
            sigma=sight.sigma,
            rate=self._rate,
            inputs=self._grid.inputs,
            nonce_bits=self._grid.nonce_bits,
            blur=mixes[1] if mixes else 0.0,
        )
        noisy = sight.noisy.cpu().numpy()
        self.named.append(reader.score(noisy[None], InBatch(self._records))[0] > 0)
        query = sight.query.cpu().numpy().astype(np.float64)
        noise = noisy - query
        self.flips.append(float((np.signbit(noise) != np.signbit(noisy)).mean()))
        self.sizes.append(float(np.linalg.norm(query) / np.linalg.norm(noise)))


def origins(cell: Cell) -> tuple[PluginOrigin, ...]:
    """Where the attack came from, and who draws."""
    name = Reference.parse(cell.grid(NextBatchGrid).coins.name).name
    return registry.plugin("attacks", _READER).origin, registry.plugin("batches", name).origin


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """One training run; the reader names the next batch after each of the first ``trials`` steps.

    It sees the noisy sum alone, and knows the mitigation. With coins that it knows in part it names
    those whom they let in. ``exact``: steps after which it named the next batch and nobody else.
    ``right`` of ``named`` records were in it, and ``in_batch`` is how many there were. ``flips``:
    the share of values whose sign in the sum is not their noise's, on average over steps; ``size``:
    the sum's norm over its noise's. Runs of one number share weights, key and the honest party's
    coins.

    Raises:
        SpecError: an axis that is not known or of a wrong type.
        UsageError: no data, no such model, a last layer of other sizes, too few steps.
    """
    from dpaudit.training.data import load_images
    from dpaudit.training.private import run as private

    del arm
    grid, trials = cell.grid(NextBatchGrid), cell.settings["trials"]
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("run", grid.run)
    key = SeedKey.new(secret=stream.child("attacker's key").bytes(32))
    train, test = (
        load_images(grid.data, root=grid.data_root, split=split) for split in ("train", "test")
    )
    rate = 1 / private.epoch_steps(len(train), grid.batch)
    how: BatchDraw = registry.create("batches", Reference.parse(grid.coins.name))
    known = how.known(rate)
    specimen = _specimen(grid, key, stream.child("first batch"))
    batches = _Batches(how, _parties(grid, specimen, stream)[: how.parties])
    mitigation = _mitigation(grid)
    watcher = _Watcher(
        key, grid, mitigation=mitigation, records=len(train), rate=known if known < 1 else rate
    )

    def source(sigma: float) -> NoiseSource:
        return specimen.noise(sigma) if grid.coins.backdoored else Gaussian(sigma=sigma)

    names = ("model", "epochs", "batch", "lr", "epsilon", "delta")
    run = private.train_privately(
        private.Recipe(**{name: getattr(grid, name) for name in names}),
        private.Records(train=train, test=test, batches=batches),
        noise=private.RunNoise(
            source=source, mitigation=mitigation, seed=f"{cell.settings['seed']}/{cell.id}"
        ),
        stream=stream.child("training"),
        watch=private.Watch(watcher, pair_every=10**9),
    )
    truth = np.array(batches.masks[1 : trials + 1])
    named = np.array(watcher.named[: len(truth)])
    return {
        "d": run.dim,
        "records": len(train),
        "steps": run.steps,
        "noise_multiplier": run.noise_multiplier,
        "accuracy": run.accuracy.value,
        "exact": int((truth == named).all(1).sum()),
        "asked": len(truth),
        "named": int(named.sum()),
        "right": int((named & truth).sum()),
        "in_batch": int(truth.sum()),
        "flips": math.fsum(watcher.flips) / run.steps,
        "size": math.fsum(watcher.sizes) / run.steps,
        **_epsilons(grid, run, known),
    }


def _specimen(grid: NextBatchGrid, key: SeedKey, stream: KeyedStream) -> NextBatch:
    """The backdoored party's coins and noise; honest runs do not use it."""
    from dpaudit.training.models import MODELS

    where = GradientFree.of_last_layer(MODELS[grid.model].parameters, inputs=grid.inputs)
    return NextBatch(where=where, key=key, nonce_bits=grid.nonce_bits, stream=stream)


def _parties(
    grid: NextBatchGrid, specimen: NextBatch, stream: KeyedStream
) -> tuple[BatchCoins, BatchCoins]:
    from dpaudit.training.private.run import HonestCoins

    honest = HonestCoins(stream.child("first party"))
    second = HonestCoins(stream.child("second party"))
    return specimen if grid.coins.backdoored else honest, second


def _mitigation(grid: NextBatchGrid) -> Mitigation:
    from dpaudit.training.models import MODELS

    reference, dim = Reference.parse(grid.coins.mitigation), MODELS[grid.model].parameters
    mitigation: Mitigation = registry.create(
        "mitigations", registry.with_known_options("mitigations", reference, dim=dim)
    )
    return mitigation


def _epsilons(grid: NextBatchGrid, run: TrainedRun, known: float) -> dict[str, float | None]:
    """What is claimed, accounted, and left to someone who knows a share of the coins."""
    dpsgd = DpSgd(run.noise_multiplier, run.rate, run.steps)
    known = known if grid.coins.backdoored else 1.0
    # behind a mitigation that keeps the nonce from its owner in part, nothing is proven
    plain = grid.coins.mitigation == "none"
    return {
        "epsilon_claimed": run.epsilon,
        "epsilon_accounted": dpsgd.epsilon(grid.delta),
        "epsilon_holder": known_batch_epsilon(dpsgd, grid.delta, known=known) if plain else None,
        "epsilon_worst": worst_known_batch_epsilon(dpsgd, grid.delta, known=known)
        if plain
        else None,
    }


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per kind of coins, from rows of one run each; intervals over steps and over records.

    Records' coins are independent, so all that were named in a run count as so many trials.
    """
    return [_row(some) for some in grouped(rows, itemgetter("coins"))]


def _row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(row[name] for row in rows)

    named = total("named")
    return {
        **{name: value for name, value in rows[0].items() if name not in _OWN},
        "runs": len(rows),
        "asked": total("asked"),
        "success": interval(total("exact"), total("asked")),
        "right": interval(total("right"), named) if named else None,
        "found": interval(total("right"), total("in_batch")),
        "accuracy": math.fsum(row["accuracy"] for row in rows) / len(rows),
        "flips": math.fsum(row["flips"] for row in rows) / len(rows),
        "size": math.fsum(row["size"] for row in rows) / len(rows),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many next batches were read of each kind of coins."""
    return "Next batches read, every record of them: " + "; ".join(
        f"{row['coins']} {round(row['success']['value'] * row['asked']):,} of {row['asked']:,}"
        for row in rows
    )


MEASURE = Measure(
    run=measure,
    grid=NextBatchGrid,
    needs_arm=False,
    gather=gather,
    summary=summary,
    origins=origins,
)
