"""A trained network's file: weights, training data, accuracy. Never unpickled; locked, atomic."""

from __future__ import annotations

import json
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from dpaudit.errors import UsageError
from dpaudit.registry import nearest
from dpaudit.results.files import write_file
from dpaudit.results.locks import HeldError, Lock
from dpaudit.results.text import tell
from dpaudit.stats import clopper_pearson
from dpaudit.training.models import MODELS, make_model
from dpaudit.types import Interval

__all__ = [
    "Accuracy",
    "Checkpoint",
    "accuracy_from_counts",
    "check_state",
    "load_checkpoint",
    "locked",
    "read_tensors",
    "recall",
    "remember",
    "save_checkpoint",
    "write_atomically",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(Interval):
    """``value`` = ``correct`` / ``total`` test images, with an exact interval."""

    value: float
    correct: int
    total: int


def accuracy_from_counts(correct: int, total: int, *, confidence: float = 0.95) -> Accuracy:
    """The accuracy of a network that named the classes of ``correct`` of ``total`` test images.

    Formal guarantee: as :func:`~dpaudit.stats.clopper_pearson`, over test images drawn like these
    ones.

    Raises:
        UsageError: correct outside 0 … total, no images, or a confidence outside (0, 1).
    """
    interval = clopper_pearson(correct, total, confidence=confidence)
    return Accuracy(
        low=interval.low,
        high=interval.high,
        confidence=confidence,
        method=interval.method,
        value=correct / total,
        correct=correct,
        total=total,
    )


def recall(path: Path, *, key: str) -> Accuracy | None:
    """The accuracy under ``key`` in the JSON file ``path``, if there is one.

    Raises:
        UsageError: the file is there and not what :func:`remember` writes.
    """
    value = _read(path).get(key)
    return None if value is None else accuracy_from_counts(*value[:2])


def remember(path: Path, *, key: str, of: str, measure: Callable[[], Accuracy]) -> Accuracy:
    """What is :func:`recall` for images of digest ``of``; else ``measure()``, kept in ``path``.

    Raises:
        UsageError: as there, or the file cannot be written.
    """
    known = _read(path).get(key)
    if known is not None and known[2] == of:
        return accuracy_from_counts(*known[:2])
    value = measure()
    with locked(path, wait=True):
        entries = {**_read(path), key: (value.correct, value.total, of)}
        text = json.dumps(
            {k: {"correct": c, "total": t, "of": o} for k, (c, t, o) in sorted(entries.items())},
            indent=2,
        )
        write_atomically(path, lambda file: file.write(text.encode() + b"\n"), option="checkpoints")
    return value


def _read(path: Path) -> dict[str, tuple[int, int, str]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(k): (int(v["correct"]), int(v["total"]), str(v.get("of", "")))
            for k, v in entries.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"checkpoints={path}: cannot be read ({error}); delete it, it is made again"
        ) from error


_FORMAT, _VERSION = "dpaudit-checkpoint", 1

_MANY = 1 << 53

_FIELDS: Mapping[str, type] = {
    "model": str,
    "data": str,
    "state": dict,
    "accuracy": dict,
    "epochs": int,
    "seed": int,
    "versions": dict,
    "hardware": str,
}


@dataclass(frozen=True)
class Checkpoint:
    """Weights with their origin.

    Attributes:
        model: the network's name.
        data: the data set's, whose test split ``accuracy`` was measured on.
        state: what ``load_state_dict`` takes: tensors on the CPU by name.
        accuracy: of these very weights, in evaluation mode and float32.
        epochs: how many times training went through the data.
        seed: of the initial weights, the order of batches, cropping and dropout.
        versions: of the software that trained them.
        hardware: that it ran on.
    """

    model: str
    data: str
    state: Mapping[str, torch.Tensor]
    accuracy: Accuracy
    epochs: int
    seed: int
    versions: Mapping[str, str]
    hardware: str


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file atomically: a reader sees the old one or the new one, also after power loss.

    Raises:
        UsageError: weights that are not ``checkpoint.model``'s or not finite, or a place that
            cannot be written.
    """
    check_state(checkpoint.state, model=checkpoint.model, name=f"out={path}")
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "model": checkpoint.model,
        "data": checkpoint.data,
        "state": {
            k: v.detach().to("cpu", copy=True).contiguous() for k, v in checkpoint.state.items()
        },
        "accuracy": {"correct": checkpoint.accuracy.correct, "total": checkpoint.accuracy.total},
        "epochs": checkpoint.epochs,
        "seed": checkpoint.seed,
        "versions": dict(checkpoint.versions),
        "hardware": checkpoint.hardware,
    }
    write_atomically(path, lambda file: torch.save(document, file))


def load_checkpoint(path: Path, *, model: str | None = None) -> Checkpoint:
    """Read a checkpoint, of ``model`` if that is given.

    Formal guarantee: nothing in the file is executed (``torch.load(weights_only=True)``), every
    weight is finite, and names, shapes and types are the model's own. Not claimed: that the
    accuracy in it is true of them; a third-party file can say anything (``dpaudit train`` has
    measured what it wrote).

    Raises:
        UsageError: no such file, not a checkpoint, of a newer dpaudit, of another model, or with
            broken weights.
    """
    name = f"checkpoint={path}"
    tensors = read_tensors(path, name=name)
    if not isinstance(tensors, dict) or tensors.get("format") != _FORMAT:
        raise UsageError(f"{name}: is no checkpoint of dpaudit's; dpaudit train MODEL makes one")
    version = tensors.get("version")
    if type(version) is not int or version < 1:
        raise UsageError(f"{name}: format version {version!r} is none; train it again")
    if version > _VERSION:
        raise UsageError(
            f"{name}: of format version {version}, this dpaudit reads up to {_VERSION}; "
            "take a newer one"
        )
    for field, kind in _FIELDS.items():
        if type(tensors.get(field)) is not kind:
            raise UsageError(
                f"{name}: its field {field!r} is missing or no {kind.__name__}; train it again"
            )
    if model is not None and tensors["model"] != model:
        raise UsageError(
            f"{name}: holds {tensors['model']}, not {model}; name another checkpoint or model"
        )
    check_state(tensors["state"], model=tensors["model"], name=name)
    return Checkpoint(
        model=tensors["model"],
        data=tensors["data"],
        state=tensors["state"],
        accuracy=_accuracy(tensors["accuracy"], name=name),
        epochs=tensors["epochs"],
        seed=tensors["seed"],
        versions={str(k): str(v) for k, v in tensors["versions"].items()},
        hardware=tensors["hardware"],
    )


def check_state(state: Mapping[str, Any], *, model: str, name: str) -> None:
    """Check that these are all weights of ``model`` and nothing else, and finite.

    ``name`` begins the error message.

    Raises:
        UsageError: they are not.
    """
    if model not in MODELS:
        raise UsageError(
            f"{name}: holds {model!r}, a model that is not known{nearest(model, MODELS)}"
        )
    expected = make_model(model).state_dict()
    if set(state) != set(expected):
        odd = sorted(map(str, set(state) ^ set(expected)))
        raise UsageError(
            f"{name}: its weights are not those of {model}: {odd[0]!r} is missing or one too many"
        )
    for key, like in expected.items():
        tensor = state[key]
        if not isinstance(tensor, torch.Tensor) or not _plain(tensor):
            raise UsageError(f"{name}: {key!r} is no plain tensor")
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise UsageError(
                f"{name}: {key!r} is {tensor.dtype} {tuple(tensor.shape)}, "
                f"{model} has {like.dtype} {tuple(like.shape)}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise UsageError(f"{name}: {key!r} has values that are not finite; train it again")


def _plain(tensor: torch.Tensor) -> bool:
    """Whether its numbers are in memory, contiguous, on any device."""
    return tensor.layout is torch.strided and not (
        tensor.is_meta or tensor.is_nested or tensor.is_quantized
    )


def _accuracy(counts: dict[str, Any], *, name: str) -> Accuracy:
    correct, total = counts.get("correct"), counts.get("total")
    if (
        type(correct) is not int
        or type(total) is not int
        or not 0 <= correct <= total
        or not 0 < total < _MANY
    ):
        raise UsageError(
            f"{name}: its accuracy is {correct!r} of {total!r}, which cannot be; train it again"
        )
    return accuracy_from_counts(correct, total)


_UNREADABLE = (  # what torch.load raises on broken, foreign or hostile files
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    struct.error,
    AssertionError,
    AttributeError,
    ArithmeticError,
    BufferError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


def write_atomically(
    path: Path, write: Callable[[IO[bytes]], object], *, option: str = "out"
) -> None:
    """Write ``path`` with ``write``, completely or not at all.

    Raises:
        UsageError: the folder cannot be made or written, or the disk is full; ``option`` names the
            option.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, write)
    except OSError as error:
        raise UsageError(
            f"{option}={path}: cannot be written ({error.strerror}); choose another place"
        ) from error


def read_tensors(source: Path | IO[bytes], *, name: str) -> Any:
    """Tensors and plain values from a file of ``torch.save``, on the CPU; executes nothing in it.

    ``name`` is the file as its user knows it, ``option=path``.

    Raises:
        UsageError: there is no such file, or it holds something else.
    """
    try:
        with warnings.catch_warnings():
            # torch warns of foreign formats, which are refused anyway
            warnings.simplefilter("ignore")
            return torch.load(source, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file; dpaudit train MODEL makes one") from None
    except OSError as error:
        raise UsageError(f"{name}: cannot be read ({error.strerror})") from error
    except _UNREADABLE as error:  # torch's own message would advise unpickling
        raise UsageError(
            f"{name}: holds more, or other, than tensors and plain values, and was not loaded"
        ) from error


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock of ``path``, ``.NAME.dpaudit-lock`` next to it; stderr says if it waits.

    Raises:
        UsageError: another process holds it and ``wait`` is False, or it cannot be made.
    """
    name = path.with_name(f".{path.name}.dpaudit-lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = Lock(name)
        except HeldError as held:
            if not wait:
                by = f" ({held})" if str(held) else ""
                raise UsageError(
                    f"out={path}: another process is writing it{by}; "
                    "wait for it or choose another --out"
                ) from None
            tell(f"{path}: waiting for the process that holds {name}")
            lock = Lock(name, patience=None)
    except OSError as error:
        raise UsageError(
            f"out={path}: cannot be written ({error.strerror}: {name}); choose another place"
        ) from error
    with lock:
        yield
