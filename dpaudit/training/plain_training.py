"""Training without privacy: settings of each network, whole trainings that resume, warm-up."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from dpaudit.errors import UsageError
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest
from dpaudit.training.checkpoint import (
    Checkpoint,
    check_state,
    load_checkpoint,
    locked,
    read_tensors,
    save_checkpoint,
    write_atomically,
)
from dpaudit.training.data import Images, load_images
from dpaudit.training.models import MODELS, make_model
from dpaudit.training.on_device import ImagesOnDevice, usable_device

__all__ = ["RECIPES", "Epoch", "PlainTraining", "Recipe", "Training", "fit", "train"]


@dataclass(frozen=True)
class Recipe:
    """Settings of one training.

    Attributes:
        optimizer: ``adam`` at a constant rate, or ``sgd`` with Nesterov momentum 0.9 under one
            cycle (Smith and Topin 2018): up to ``lr`` over the first fifth of the steps, then down
            to nearly nothing along cosines.
        lr: learning rate, the highest one for ``sgd``.
        batch: images per step; the last step of an epoch takes what is left.
        epochs: times through the data, by default.
        weight_decay: L2 penalty on all parameters, as the optimizer has it.
        augment: crop each image at random from itself within 4 black pixels, and mirror every other
            one.
        quick: takes a minute or two on a CPU, so it may be trained on demand.
    """

    optimizer: Literal["adam", "sgd"]
    lr: float
    batch: int
    epochs: int
    weight_decay: float = 0.0
    augment: bool = False
    quick: bool = False


_GREY = Recipe(optimizer="adam", lr=1e-3, batch=128, epochs=5, quick=True)

_COLOUR = Recipe(optimizer="sgd", lr=0.1, batch=256, epochs=80, weight_decay=5e-4, augment=True)

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "mlp": _GREY,
        "cnn": _GREY,
        "lenet5": _GREY,
        "lenet5-tanh": replace(_GREY, epochs=20),
        "resnet20": replace(_COLOUR, lr=0.2, epochs=100),
        "resnet56": replace(_COLOUR, lr=0.2, epochs=100),
        "vgg19-bn": replace(_COLOUR, lr=0.05, epochs=60),
        "resnet50": replace(_COLOUR, epochs=100),
        "mobilenet-v2": _COLOUR,
    }
)

_FORMAT = "dpaudit-partial"


@dataclass(frozen=True, kw_only=True)
class Training:
    """Which training: ``epochs`` times through ``data``, from the weights of ``seed``.

    Data sets lie in ``root``, or where :func:`~dpaudit.training.data.load_images` looks; the work
    is done on ``device``.
    """

    model: str
    recipe: Recipe
    data: str
    epochs: int
    seed: int
    root: str
    device: torch.device

    @classmethod
    def of(
        cls,
        model: str,
        *,
        data: str | None = None,
        epochs: int | None = None,
        seed: int = 0,
        root: str = "",
        device: str = "cpu",
    ) -> Training:
        """That of ``model`` by its recipe.

        ``data`` replaces the data set that the model is for (``synthetic`` and ``synthetic-colour``
        need no files), ``epochs`` the recipe's number.

        Raises:
            UsageError: an unknown model, epochs below 1, no such device.
        """
        if model not in MODELS:
            raise UsageError(f"model={model}: not known{nearest(model, MODELS)}")
        recipe = RECIPES[model]
        epochs = recipe.epochs if epochs is None else epochs
        if epochs < 1:
            raise UsageError(f"epochs={epochs}: must be at least 1")
        return cls(
            model=model,
            recipe=recipe,
            data=data or MODELS[model].data,
            epochs=epochs,
            seed=seed,
            root=root,
            device=usable_device(device),
        )


class PlainTraining:
    """A training under way, ``done`` epochs of which are over.

    Every epoch draws its own order, crops and dropout from ``seed`` and its number, so no
    generator's state is saved.
    """

    def __init__(self, training: Training) -> None:
        """Start before the first epoch.

        Raises:
            UsageError: an unknown data set, data that is missing or does not fit ``model``, or no
                valid seed.
        """
        self.done = 0
        self._training, self._device = training, training.device
        self._images = self._split("train")
        model, recipe = training.model, training.recipe
        if self._images.shape != MODELS[model].shape:
            raise UsageError(
                f"data={training.data}: has images {self._images.shape}; "
                f"{model} is for {MODELS[model].data}'s"
            )
        self._network = make_model(model, seed=training.seed).to(self._device)
        self._network.to(memory_format=self._layout)  # type: ignore[call-overload]  # torch's stubs
        self._optimizer = _optimizer(self._network, recipe)
        self._schedule = _schedule(
            self._optimizer, recipe, training.epochs * math.ceil(len(self._images) / recipe.batch)
        )
        self._stream = KeyedStream.from_seed("fitting").child(training.seed)

    def _split(self, name: str) -> ImagesOnDevice:
        images = load_images(self._training.data, root=self._training.root, split=name)
        return ImagesOnDevice(images, device=self._device)

    def run_epoch(self) -> float:
        """Go through the data once; the mean of its batches' losses, in nats.

        Raises:
            UsageError: it is not finite.
        """
        stream = self._stream.child("epoch", self.done)
        loss_of, network = nn.CrossEntropyLoss(), self._network.train()
        total, steps = torch.zeros((), device=self._device), 0
        batches = self._images.epoch(
            batch=self._training.recipe.batch,
            augment=self._training.recipe.augment,
            rng=stream.child("images").numpy(),
        )
        with _torch_seed(
            self._device, int.from_bytes(stream.child("dropout").entropy()[:4], "big")
        ):
            for x, y in batches:
                self._optimizer.zero_grad(set_to_none=True)
                with torch.autocast(
                    self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"
                ):
                    loss = loss_of(network(x.contiguous(memory_format=self._layout)), y)
                loss.backward()
                self._optimizer.step()
                if self._schedule is not None:
                    self._schedule.step()
                total, steps = total + loss.detach(), steps + 1
        self.done += 1
        mean = float(total) / steps
        if not math.isfinite(mean):
            raise UsageError(
                f"seed={self._training.seed}: training has diverged in epoch {self.done}; "
                "take another seed"
            )
        return mean

    def save(self, path: Path) -> None:
        """Write everything that :meth:`load` needs, atomically.

        Raises:
            UsageError: ``path`` cannot be written.
        """
        document = {
            "format": _FORMAT,
            "run": self._description(),
            "done": self.done,
            "state": self._network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": None if self._schedule is None else self._schedule.state_dict(),
        }
        write_atomically(path, lambda file: torch.save(document, file))

    def load(self, path: Path) -> None:
        """Continue from where :meth:`save` was called.

        Raises:
            UsageError: no such file, a broken one, or one of another training.
        """
        name = f"resume={path}"
        tensors = read_tensors(path, name=name)
        if not isinstance(tensors, dict) or tensors.get("format") != _FORMAT:
            raise UsageError(
                f"{name}: is no interrupted training; delete it, or train without resume"
            )
        was, now = tensors.get("run"), self._description()
        if not isinstance(was, dict) or set(was) != set(now):
            raise UsageError(f"{name}: is another dpaudit's; train without resume")
        for key, expected in now.items():
            if was[key] != expected:
                raise UsageError(
                    f"{name}: was begun with {key}={was[key]}, not {expected}; train without resume"
                )
        state = tensors.get("state")
        check_state(state if isinstance(state, dict) else {}, model=self._training.model, name=name)
        try:
            self._network.load_state_dict(tensors["state"])
            self._optimizer.load_state_dict(tensors["optimizer"])
            if self._schedule is not None:
                self._schedule.load_state_dict(tensors["schedule"])
            done = int(tensors["done"])
            if not 1 <= done <= self._training.epochs:
                raise ValueError(f"it has done {done} of {self._training.epochs} epochs")
            self.done = done
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(f"{name}: is broken ({error}); train without resume") from error

    def checkpoint(self) -> Checkpoint:
        """The weights as they are now, and their accuracy on the test split, measured now."""
        training = self._training
        here = collect(seed=str(training.seed), plugins=())
        return Checkpoint(
            model=training.model,
            data=training.data,
            state={
                k: v.detach().to("cpu", copy=True).contiguous()
                for k, v in self._network.state_dict().items()
            },
            accuracy=self._split("test").accuracy(self._network.eval()),
            epochs=self.done,
            seed=training.seed,
            versions=here.versions,
            hardware=f"{here.hardware}; trained on {self._device}",
        )

    @property
    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self._device.type == "cuda" else torch.contiguous_format

    def _description(self) -> dict[str, Any]:
        """What two trainings must share for one to continue the other."""
        own = {name: getattr(self._training, name) for name in ("model", "data", "epochs", "seed")}
        return {
            **asdict(self._training.recipe),
            **own,
            "device": self._device.type,
            "torch": str(torch.__version__),
        }


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "adam":
        return torch.optim.Adam(
            network.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay
        )
    return torch.optim.SGD(
        network.parameters(),
        lr=recipe.lr,
        momentum=0.9,
        nesterov=True,
        weight_decay=recipe.weight_decay,
    )


def _schedule(optimizer: torch.optim.Optimizer, recipe: Recipe, steps: int) -> OneCycleLR | None:
    if recipe.optimizer == "adam":
        return None
    return OneCycleLR(optimizer, recipe.lr, total_steps=steps, pct_start=0.2, cycle_momentum=False)


@contextmanager
def _torch_seed(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the global generators of the CPU and of ``device`` inside, and restore them after."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


_BATCH = 64


def train(model: nn.Module, images: Images, *, steps: int, seed: int = 0, lr: float = 0.05) -> None:
    """``steps`` steps of SGD with momentum 0.9 on batches of 64, in place.

    Repeatable bit for bit on one machine.

    Raises:
        UsageError: a negative number of steps.
    """
    if steps < 0:
        raise UsageError(f"steps={steps}: must be at least 0")
    rng = KeyedStream.from_seed("training").child(seed).numpy()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    for _ in range(steps):
        x, y = images.batch(rng.integers(0, len(images), _BATCH).tolist())
        optimizer.zero_grad(set_to_none=True)
        loss(model(x), y).backward()
        optimizer.step()
    model.zero_grad(set_to_none=True)


@dataclass(frozen=True)
class Epoch:
    """One epoch done and saved: its number from 1, of how many, and its mean loss in nats."""

    number: int
    of: int
    loss: float


def fit(
    training: Training,
    *,
    out: Path,
    resume: bool = False,
    wait: bool = False,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Checkpoint:
    """Train a network by its recipe, measure it on the test split, and save it as ``out``.

    On CUDA the forward pass runs in bfloat16 where torch considers it safe (``torch.autocast``),
    with channels last; accuracy is always measured in float32.

    After each epoch everything needed to resume is in ``OUT.partial``, then ``on_epoch`` is called;
    with ``resume`` training continues from there, from the start if there is nothing, and ends at
    once if ``out`` is what it would write. The lock file ``.OUT.dpaudit-lock`` keeps a second
    process away, or waiting if it says ``wait``.

    Formal guarantee: on one CPU, with the same versions and number of threads, the weights are a
    function of the model, the data, ``epochs`` and ``seed``, bit for bit, however often it was
    interrupted. torch's global generators are left as they were. Not claimed: that on CUDA, where
    some sums depend on timing; privacy of any kind.

    Raises:
        UsageError: data that does not fit the model or is not there, a seed outside 0 … 2^32 − 1,
            an ``out`` that is a folder, cannot be written, is in use, or (``resume``) belongs to
            another training; training that has diverged.
    """
    if not out.name or os.path.isdir(out):
        raise UsageError(f"out={out}: is a folder; name a file in it, e.g. {training.model}.pt")
    partial = out.with_name(f"{out.name}.partial")
    with locked(out, wait=wait):
        if resume and out.exists() and not partial.exists():
            return _load_finished(out, training)
        running = PlainTraining(training)
        if resume and partial.exists():
            running.load(partial)
        while running.done < training.epochs:
            loss = running.run_epoch()
            running.save(partial)
            if on_epoch is not None:
                on_epoch(Epoch(running.done, training.epochs, loss))
        checkpoint = running.checkpoint()
        save_checkpoint(out, checkpoint)
        partial.unlink(missing_ok=True)
    return checkpoint


def _load_finished(out: Path, training: Training) -> Checkpoint:
    checkpoint = load_checkpoint(out, model=training.model)
    for name in ("data", "epochs", "seed"):
        stored, expected = getattr(checkpoint, name), getattr(training, name)
        if stored != expected:
            raise UsageError(
                f"out={out}: was trained with {name}={stored}, not {expected}; choose another --out"
            )
    return checkpoint
