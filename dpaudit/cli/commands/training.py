"""``dpaudit training``: an audit of a user's own training; ``dpaudit train``: networks to attack."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit.audit.options import ClaimOptions, TrainingOptions
from dpaudit.cli.options import (
    DataRootOption,
    DeviceOption,
    FormatOption,
    Output,
    Sandbox,
    use_data_root,
    with_shared_options,
)
from dpaudit.cli.out_folder import prepare_folder
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.cli.verdicts import audit_with_progress, finish
from dpaudit.codec import to_dict
from dpaudit.errors import SamplerCrashError, UsageError
from dpaudit.options import Argument, Option, count_of
from dpaudit.report import describe
from dpaudit.results.text import error_text, one_line

if TYPE_CHECKING:
    from dpaudit.audit.result import MechanismResult
    from dpaudit.audit.training.run import TrainingRequest
    from dpaudit.training.checkpoint import Checkpoint
    from dpaudit.training.plain_training import Epoch

__all__ = ["TrainOptions", "train", "training"]

_SCORES = ("score", "loss", "scores")


@with_shared_options
def training(
    target: Annotated[
        str, Argument("Your file or module, and the training function in it.", "MODULE:TRAIN")
    ],
    claimed: ClaimOptions,
    data: Annotated[
        str, Option("The module's data, or a function that makes it.", "NAME")
    ] = "data",
    canaries: Annotated[
        str | None,
        Option(
            "How many records of the data are canaries, or the module's own canaries.",
            "N|NAME",
            default="the module's canaries, else half of the data, at most 1,000",
        ),
    ] = None,
    score: Annotated[
        str | None,
        Option(
            "The module's score function; a loss if its name ends in loss, of all canaries at once if in scores.",
            "NAME",
            default="score, loss or scores, if defined",
        ),
    ] = None,
    *,
    options: TrainingOptions,
    to: Output,
) -> None:
    r"""Is what my training function returns as private as claimed?

    Fair coins put canaries into the training data or leave them out. The
    function trains, and each canary is scored by the model. The scores give a
    lower bound for ε that holds with confidence 1 − α, from one run.

    [bold]MODULE[/bold] is ./file.py or a module's name. It defines

    train(dataset, seed)   returns the model; the function that is named
    data                   what it trains on, or a function that makes it: an
                           array, a tuple of arrays, a list, a data frame
    score(model, record)   higher if the model knows the record; or
                           loss(model, record), or scores(model, canaries);
                           not needed for a torch model of (input, label)
    canaries               records to add (optional)

    Your code runs in this process, without a sandbox.

    Exit code 0: nothing contradicts the claim. 1: a finding. 3: the training
    raised.

    [bold]Examples[/bold]

    $ dpaudit training ./mine.py:train --claim-dpsgd sigma=1,rate=0.05,steps=80
    $ dpaudit training ./mine.py:train --claim-epsilon 3 --claim-delta 1e-5 \
        --canaries 1000
    """
    from dpaudit.audit.request import Failure
    from dpaudit.audit.result import with_command
    from dpaudit.audit.training.run import TrainingRequest
    from dpaudit.cli.progress import AuditProgress

    request = TrainingRequest(claim=claimed.claim(), options=options)
    formats = prepare_folder(to)
    more = {"data": None if data == "data" else data, "canaries": canaries, "score": score}
    command, name = request.command(target, **more), f"training {target}"

    def work(progress: Callable[[int, int], None]) -> MechanismResult:
        names = {"data": data, "canaries": canaries, "score": score}
        result = _audit_module(target, request=request, progress=progress, **names)
        return dataclasses.replace(with_command(result, command), mechanism=name)

    display = AuditProgress("runs of train", "all runs done; counting guesses", total=options.runs)
    with Sandbox().policy():
        result = audit_with_progress(
            work,
            command=command,
            display=display,
            nothing=lambda reason, seconds: request.inconclusive(
                Failure(name=name, reason=reason, seconds=seconds)
            ),
            to=to,
            formats=formats,
        )
    finish(describe(result), to, also=formats)


def _audit_module(
    target: str,
    *,
    data: Any,
    canaries: str | None,
    score: str | None,
    request: TrainingRequest,
    progress: Callable[[int, int], None],
) -> MechanismResult:
    """Audit the function of ``target`` with what its module names for the rest."""
    from dpaudit.audit.training.run import Scoring, audit_with
    from dpaudit.ranks import world_size

    module, function = _module(target)
    if (size := world_size()) > 1:
        raise UsageError(
            f"world_size={size}: the command would print and write on every rank; call "
            "dpaudit.audit_training in your script instead"
        )
    return audit_with(
        _named(module, function),
        _load(module, data),
        canaries=_canaries(module, canaries),
        scoring=Scoring(**_scoring(module, score)),
        request=request,
        progress=progress,
    )


def _module(target: str) -> tuple[ModuleType, str]:
    """The module that ``target``, ``./file.py:NAME`` or ``package.module:NAME``, names."""
    place, colon, name = target.removeprefix("python:").rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"target={one_line(target)}: write ./training.py:train")
    path = Path(place)
    try:
        if place.endswith(".py"):
            sys.path.insert(0, str(path.resolve().parent))
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise UsageError(f"target={one_line(target)}: no file {one_line(place)}")
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            spec.loader.exec_module(module)
            return module, name
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place), name
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if error.name == place:
            raise UsageError(f"target={one_line(target)}: no module {one_line(place)}") from None
        raise SamplerCrashError(f"{one_line(place)} raised {error_text(error)}") from error
    except Exception as error:
        raise SamplerCrashError(f"{one_line(place)} raised {error_text(error)}") from error


def _named(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        raise UsageError(f"{module.__name__} has no {one_line(name)}; define it, or name another")
    return getattr(module, name)


def _load(module: ModuleType, name: str) -> Any:
    """An object of the module, or what a function of it without parameters returns."""
    factory = _named(module, name)
    if not inspect.isfunction(factory):
        return factory
    try:
        return factory()
    except Exception as error:
        raise SamplerCrashError(f"{name} raised {error_text(error)}") from error


def _canaries(module: ModuleType, function: str | None) -> Any:
    if function is None:
        return _load(module, "canaries") if hasattr(module, "canaries") else None
    if function[:1].isdigit():
        return count_of(function, unit="canaries", example="500", name="canaries")
    return _load(module, function)


def _scoring(module: ModuleType, function: str | None) -> dict[str, Any]:
    """The function named, as ``score``, ``loss`` or ``scores`` by its name; else what is there."""
    if function is None:
        return {name: getattr(module, name) for name in _SCORES if hasattr(module, name)}
    kind = next((kind for kind in ("scores", "loss") if function.endswith(kind)), "score")
    return {kind: _named(module, function)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """How a network is trained."""

    epochs: Annotated[
        int | None, Option("Passes over the data; the model's own number by default.")
    ] = None
    seed: Annotated[int, Option("Seed of weights, order, crops and dropout.")] = 0
    device: DeviceOption = "cpu"
    data_root: DataRootOption = None
    out: Annotated[
        Path | None, Option("File to write or replace; by default where experiments look.")
    ] = None
    resume: Annotated[bool, Option("Resume an interrupted training; finished epochs are kept.")] = (
        False
    )
    data: str | None = None
    """A data set instead of the model's own; not on the command line."""


@with_shared_options
def train(
    model: Annotated[
        str,
        Argument(
            "lenet5-tanh lenet5 cnn mlp (MNIST); resnet20 resnet56 vgg19-bn resnet50 mobilenet-v2 (CIFAR-10).",
            "MODEL",
        ),
    ],
    *,
    options: TrainOptions,
    output: FormatOption = "text",
) -> None:
    """Train a network without privacy, to attack its gradients later.

    Measures its accuracy on the test images. Experiments with weights =
    "trained" read the checkpoint: MODEL.pt in the folder that
    DPAUDIT_CHECKPOINTS names, else in the user's cache. The MNIST networks take
    minutes on a CPU core (lenet5-tanh, 20 epochs: three) and are trained on
    demand; the CIFAR-10 networks need a GPU (--device cuda) and must be trained
    first, except resnet20 and resnet56, whose published weights are used
    instead.

    Each finished epoch is saved before the next begins. For private training,
    use dpaudit run dpsgd-training.

    [bold]Examples[/bold]

    $ dpaudit train lenet5-tanh --epochs 20
    $ dpaudit train resnet50 --device cuda --resume
    """
    from dpaudit.training.models import MODELS
    from dpaudit.training.weights import checkpoint_file

    use_data_root(options.data_root)
    file = checkpoint_file(model) if options.out is None else options.out
    started = time.monotonic()
    checkpoint = _fit(model, options, file)
    document = {
        "model": checkpoint.model,
        "data": checkpoint.data,
        "parameters": MODELS[model].parameters,
        "accuracy": to_dict(checkpoint.accuracy),
        "epochs": checkpoint.epochs,
        "seed": checkpoint.seed,
        "seconds": round(time.monotonic() - started, 3),
        "file": str(file),
        "versions": dict(checkpoint.versions),
        "hardware": checkpoint.hardware,
    }
    if output == "json":
        write_json_line(document)
        return
    right = checkpoint.accuracy
    emit(
        f"{model}: {right.value:.2%} of {right.total:,} test images of {checkpoint.data} correct "
        f"({right.confidence:.0%} interval {right.low:.2%} to {right.high:.2%}); "
        f"{document['parameters']:,} parameters, epochs {checkpoint.epochs}, "
        f"seed {checkpoint.seed}, {document['seconds']:.0f} s"
    )
    note(f"checkpoint: {file}")


def _fit(model: str, options: TrainOptions, file: Path) -> Checkpoint:
    """Train ``model`` into ``file``, with a bar of its epochs; Ctrl-C says what is kept."""
    from dpaudit.cli.progress import progress_bar
    from dpaudit.training.plain_training import Training, fit

    done = 0
    try:
        with progress_bar() as bar:
            task = bar.add_task(model, total=None)

            def show(epoch: Epoch) -> None:
                nonlocal done
                done = epoch.number
                label = f"{model}, loss {epoch.loss:.4f}, epochs"
                bar.update(task, total=epoch.of, completed=done, description=label)

            training = Training.of(
                model,
                epochs=options.epochs,
                seed=options.seed,
                data=options.data,
                device=options.device,
            )
            return fit(training, out=file, resume=options.resume, on_epoch=show)
    except KeyboardInterrupt as interrupt:
        note(
            f"interrupted: {done:,} epochs are kept beside {file}; repeat the command with --resume"
        )
        raise typer.Exit(130) from interrupt
