"""A whole training run by Opacus: batches, clipping, any noise source, an onlooker."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.errors import UsageError
from dpaudit.protocols import BatchCoins, Mitigation, NoiseSource, Stream
from dpaudit.queries.opacus import Release, check_model, use_noise_source
from dpaudit.randomness import KeyedStream, coin_words, members
from dpaudit.training.checkpoint import Accuracy
from dpaudit.training.data import Images
from dpaudit.training.models import MODELS, make_model
from dpaudit.training.on_device import ImagesOnDevice, usable_device
from dpaudit.training.private.onlooker import Canaries, Onlooker, Sight

__all__ = [
    "HonestCoins",
    "OneParty",
    "Recipe",
    "Records",
    "RunNoise",
    "TrainedRun",
    "Watch",
    "epoch_steps",
    "train_privately",
]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings: ``epochs`` of Poisson batches of ``batch`` records on average.

    The run is (``epsilon``, ``delta``)-DP in the end. Each record's gradient is clipped to L2 norm
    ``clip``; ``lr`` and ``momentum`` are plain SGD's.
    """

    model: str = "cnn"
    epochs: int = 5
    batch: int = 512
    clip: float = 1.0
    lr: float = 1.0
    momentum: float = 0.0
    epsilon: float = 3.0
    delta: float = 1e-5

    def __post_init__(self) -> None:
        """Check what Opacus would not.

        Raises:
            UsageError: a number outside its range.
        """
        for name in ("epochs", "batch"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name}={value}: must be a whole number, at least 1")
        for name in ("clip", "lr", "momentum", "epsilon", "delta"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise UsageError(f"{name}={value!r}: must be a number")
        for name in ("clip", "lr", "epsilon"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name}={value}: must be a finite number above 0")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum={self.momentum}: must lie in [0, 1)")
        if not 0 < self.delta < 1:
            raise UsageError(f"delta={self.delta}: must lie strictly between 0 and 1")


@dataclass(frozen=True)
class TrainedRun:
    """A trained network and its run.

    ``epsilon`` is what Opacus' accountant reports at the recipe's δ after the last step, for the
    noise it believes in. ``sigma`` is the noise's standard deviation per coordinate of the summed
    gradient (noise multiplier · clip), before a mitigation adds its own; ``rate`` the probability
    that a record is in a batch.
    """

    network: nn.Module
    accuracy: Accuracy
    epsilon: float
    noise_multiplier: float
    sigma: float
    rate: float
    steps: int
    dim: int


@dataclass(frozen=True, kw_only=True)
class Records:
    """Who is trained on: ``train``, without canaries that are no members; ``test`` measures.

    ``batches(records, rate)`` says before each step which of the members, in their order, are in
    its batch; without it Opacus' Poisson loader does.
    """

    train: Images
    test: Images
    canaries: Canaries = field(default_factory=Canaries.none)
    batches: Callable[[int, float], npt.NDArray[np.bool_]] | None = None


@dataclass(frozen=True, kw_only=True)
class RunNoise:
    """The noise of the sums: ``source`` makes that of a σ, behind ``mitigation``, from ``seed``."""

    source: Callable[[float], NoiseSource]
    mitigation: Mitigation | str = "none"
    seed: str


@dataclass(frozen=True)
class Watch:
    """``show`` is called with a :class:`~dpaudit.training.private.onlooker.Sight` of every step.

    At every ``pair_every``-th it has a pair of candidate sums.
    """

    show: Callable[[Sight], object]
    pair_every: int = 1

    def __post_init__(self) -> None:
        if self.pair_every < 1:
            raise UsageError(f"pair_every={self.pair_every}: must be at least 1")


def train_privately(
    recipe: Recipe,
    records: Records,
    *,
    noise: RunNoise,
    stream: KeyedStream,
    watch: Watch | None = None,
    device: str | torch.device = "cpu",
) -> TrainedRun:
    """Train ``recipe.model`` on ``records`` under DP-SGD by Opacus' engine.

    ``PrivacyEngine.make_private_with_epsilon`` sets everything up: its Poisson loader, its
    accountant, its per-sample gradients, its optimizer;
    :func:`~dpaudit.queries.opacus.use_noise_source` then replaces its noise.

    Weights and batches come from ``stream``, so runs that share one differ in their noise alone.
    torch's global generator is restored. A run repeats itself bit for bit on one CPU with one
    number of threads.

    Nothing but the batches may tell who is a member: the number of steps, the rate and the divisor
    of the mean are set from all of ``train``, and do not change when a canary is left out.

    Formal guarantee: the run's noisy sums are (ε, δ)-DP towards adding or removing a record, if
    Opacus' accountant is right and the source is Gaussian noise in real arithmetic. Not claimed:
    that a source keeps that promise, or that weights or gradients in floating point do.

    Raises:
        UsageError: a model that Opacus cannot train, images of another shape than it takes, fewer
            records than the square of the steps an epoch, an ε or δ that no noise reaches, a device
            that is not there, a source for another dimension or σ.
    """
    device, train = usable_device(str(device)), records.train
    members = torch.from_numpy(records.canaries.training_records(len(train)))
    steps = _checked_steps(recipe, records, members=len(members))
    network = make_model(recipe.model, seed=_seed(stream.child("weights"))).to(device)
    engine, model, optimizer, loader = _private(
        network, recipe, members, steps=steps, seed=_seed(stream.child("batches"))
    )
    releases: list[Release] = []
    observe = None if watch is None else releases.append
    use_noise_source(
        optimizer, noise.source, mitigation=noise.mitigation, seed=noise.seed, observe=observe
    )
    loss = nn.CrossEntropyLoss()
    onlooker = Onlooker(
        model,
        loss=loss,
        images=train,
        records=members,
        canaries=records.canaries,
        clip=recipe.clip,
        stream=stream.child("pairs"),
    )
    batches = _batches(records.batches or loader, members, epochs=recipe.epochs, steps=steps)
    for step, numbers in enumerate(batches):
        optimizer.zero_grad(set_to_none=True)
        if watch is not None:
            onlooker.before(numbers, pair=step % watch.pair_every == 0)
        x, y = train.batch(numbers.tolist(), device=device)
        with _quiet():
            loss(model(x), y).backward()
        if watch is not None:
            onlooker.after_backward()
        optimizer.step()
        if watch is not None:
            watch.show(onlooker.sight(releases.pop()))
    optimizer.zero_grad(set_to_none=True)
    network.eval()
    with _quiet():
        epsilon = float(engine.get_epsilon(recipe.delta))
    return TrainedRun(
        network=network,
        accuracy=ImagesOnDevice(records.test, device=device).accuracy(network),
        epsilon=epsilon,
        noise_multiplier=float(optimizer.noise_multiplier),
        sigma=float(optimizer.noise_multiplier) * recipe.clip,
        rate=1 / steps,
        steps=recipe.epochs * steps,
        dim=sum(p.numel() for p in network.parameters()),
    )


def _checked_steps(recipe: Recipe, records: Records, *, members: int) -> int:
    """Steps per epoch, after a check of the model's images and the number of ``members``.

    Raises:
        UsageError: images of another shape than the model's, or fewer records than the square of
            the steps.
    """
    train, test = records.train, records.test
    if recipe.model in MODELS and not train.shape == test.shape == MODELS[recipe.model].shape:
        raise UsageError(
            f"model={recipe.model}: takes images of shape {MODELS[recipe.model].shape}, and is "
            f"given {train.shape} to train on, {test.shape} to test; "
            f"take {MODELS[recipe.model].data}"
        )
    steps = epoch_steps(len(train), recipe.batch)
    if not 1 <= steps * steps <= members:
        raise UsageError(
            f"batch={recipe.batch}: of {len(train)} records gives {steps} steps an epoch; needs "
            "at least 1, and at most the square root of the records, so that Opacus' loader makes "
            "just as many whoever is a member"
        )
    return steps


def _private(
    network: nn.Module, recipe: Recipe, records: torch.Tensor, *, steps: int, seed: int
) -> tuple[PrivacyEngine, GradSampleModule, DPOptimizer, DataLoader[Any]]:
    """Opacus' engine around a network and its records, ``steps`` times per epoch."""
    check_model(network)
    with _quiet():
        engine = PrivacyEngine()
        try:
            model, optimizer, loader = engine.make_private_with_epsilon(
                module=network,
                optimizer=torch.optim.SGD(
                    network.parameters(), lr=recipe.lr, momentum=recipe.momentum
                ),
                data_loader=DataLoader(
                    TensorDataset(records),
                    batch_size=math.ceil(len(records) / steps),
                    generator=torch.Generator().manual_seed(seed),
                ),
                target_epsilon=recipe.epsilon,
                target_delta=recipe.delta,
                # a last bit more: Opacus rounds epochs/rate down, and would miss one step of 3 × 75
                epochs=math.nextafter(recipe.epochs, math.inf),
                max_grad_norm=recipe.clip,
            )
        except ValueError as error:
            raise UsageError(
                f"epsilon={recipe.epsilon}, delta={recipe.delta}: "
                f"Opacus finds no noise for them: {error}; ask for more"
            ) from error
    if len(loader) != steps:
        raise UsageError(
            f"batch={recipe.batch}: Opacus' loader makes {len(loader)} steps an epoch "
            f"and not {steps}"
        )
    # Opacus' own divides by the members, which reveals their number
    optimizer.expected_batch_size = recipe.batch
    return engine, model, optimizer, loader


def _batches(
    source: DataLoader[Any] | Callable[[int, float], npt.NDArray[np.bool_]],
    records: torch.Tensor,
    *,
    epochs: int,
    steps: int,
) -> Iterator[torch.Tensor]:
    """The numbers of each batch's records; the next batch is drawn once a step is done."""
    for _ in range(epochs):
        if isinstance(source, DataLoader):
            for (numbers,) in source:
                yield numbers
        else:
            for _ in range(steps):
                yield records[torch.from_numpy(source(len(records), 1 / steps))]


def epoch_steps(records: int, batch: int) -> int:
    """Steps per epoch with ``batch`` of ``records`` on average; 1 over it is a record's rate.

    The nearest whole number, or the next: Opacus' loader makes int(1/(1/steps)), one too few for
    93, 99, 105, 117 and others.
    """
    steps = round(records / batch)
    while steps and int(1 / (1 / steps)) != steps:
        steps += 1
    return steps


def _seed(stream: KeyedStream) -> int:
    return int.from_bytes(stream.entropy()[:4], "big")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings that do not apply here.

    Opacus recommends ``secure_mode``, torch warns of hooks that Opacus depends on, and the
    accountant of a rough bound, where that by privacy random variables asks the one by Rényi orders
    how far it has to look.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the (largest|smallest) alpha")
        warnings.filterwarnings("ignore", message="Secure RNG turned off")
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield


class HonestCoins:
    """Coins that nothing but their own stream decides on."""

    def __init__(self, stream: Stream) -> None:
        """From the stream of a party that keeps it to itself."""
        self._stream = stream

    def share(self) -> bytes:
        """The next 32 bytes of the stream."""
        return self._stream.bytes(32)


class OneParty:
    """Poisson batches by the coins of one party: no mitigation, the baseline."""

    trusts = "the one party, for its coins"
    parties = 1

    def draw(
        self, coins: Sequence[BatchCoins], records: int, *, rate: float
    ) -> npt.NDArray[np.bool_]:
        """Who of ``records`` is in the next batch, each with probability ``rate``.

        Raises:
            UsageError: a rate outside (0, 1].
        """
        (party,) = coins
        return members(coin_words(party.share(), records), rate=rate)

    def known(self, rate: float) -> float:
        """The whole batch: ``rate``."""
        return rate
