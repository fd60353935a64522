"""Checkpoints come back bit for bit or are refused; a word finds a network its own weights."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpaudit.errors import UsageError
from dpaudit.training import weights
from dpaudit.training.checkpoint import (
    Checkpoint,
    accuracy_from_counts,
    load_checkpoint,
    recall,
    remember,
    save_checkpoint,
)
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit.training.plain_training import Training, fit
from dpaudit.training.weights import (
    PUBLISHED,
    PublishedWeights,
    checkpoint_file,
    load_published,
    trained_network,
)


@pytest.fixture
def checkpoint() -> Checkpoint:
    about = {"model": "mlp", "data": "synthetic", "epochs": 2, "seed": 3, "hardware": "here"}
    state, accuracy = make_model("mlp", seed=3).state_dict(), accuracy_from_counts(480, 512)
    return Checkpoint(state=state, accuracy=accuracy, versions={"torch": "x"}, **about)


def changed(path: Path, fields: dict[Any, Any], *, of: str = "") -> None:
    """Change fields of a file, or of a part of it; None takes a field away."""
    document = torch.load(path, weights_only=True)
    part = document[of] if of else document
    for name, value in fields.items():
        part.update({name: value}) if value is not None else part.pop(name)
    torch.save(document, path)


def refused(path: Path, says: str = "") -> None:
    with pytest.raises(UsageError, match=rf"^checkpoint=.*{says}"):
        load_checkpoint(path)


def test_comes_back_bit_for_bit(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "mlp.pt"
    save_checkpoint(path, checkpoint)
    found = load_checkpoint(path, model="mlp")
    assert replace(found, state={}) == replace(checkpoint, state={})
    assert list(found.state) == list(checkpoint.state)
    assert all(torch.equal(found.state[k], v) for k, v in checkpoint.state.items())
    assert [f.name for f in path.parent.iterdir()] == ["mlp.pt"]
    accuracy = found.accuracy
    assert accuracy.low < accuracy.value == 0.9375 < accuracy.high


def test_an_interrupted_save_leaves_the_old_file(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mlp.pt"
    save_checkpoint(path, checkpoint)
    before = path.read_bytes()

    def half(document: object, file: Any) -> None:
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, replace(checkpoint, epochs=9))
    assert path.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["mlp.pt"]


def test_a_place_that_cannot_be_written(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"^out=.*"):
        save_checkpoint(tmp_path / "file" / "mlp.pt", checkpoint)


class _Bomb:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize(
    "write", [torch.save, lambda bomb, path: path.write_bytes(pickle.dumps(bomb))]
)
def test_a_pickle_bomb_does_not_go_off(
    write: Callable[[object, Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mlp.pt"
    write({"format": "dpaudit-checkpoint", "version": 1, "model": _Bomb()}, path)
    refused(path)
    assert not (tmp_path / "exploded").exists()
    torch.load(path, weights_only=False) if write is torch.save else pickle.loads(path.read_bytes())
    assert (tmp_path / "exploded").exists()  # it was live


@pytest.mark.slow
def test_broken_files_are_refused_whatever_the_break(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = tmp_path / "mlp.pt"
    save_checkpoint(path, checkpoint)
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    count = 0
    for cut in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        refused(path)
    # the archive's first member is the pickle; most of the rest is weights, where bytes are free
    header = 1500
    for _ in range(300):
        broken = bytearray(whole)
        for at in rng.integers(0, header, 3):
            broken[at] = rng.integers(256)
        path.write_bytes(broken)
        try:
            load_checkpoint(path, model="mlp")
        except UsageError:
            count += 1
    assert count > 150


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"format": "other"}, "is no checkpoint of dpaudit's"),
        ({"version": 2}, "format version 2, this dpaudit reads up to 1"),
        ({"version": "1"}, "format version '1' is none"),
        ({"version": True}, "format version True is none"),
        ({"seed": None}, "its field 'seed' is missing or no int"),
        ({"epochs": 2.0}, "its field 'epochs' is missing or no int"),
        ({"state": [1]}, "its field 'state' is missing or no dict"),
        ({"model": "lenet6"}, "holds 'lenet6'"),
        ({"model": "lenet5"}, "its weights are not those of lenet5"),
        ({"accuracy": {"correct": 9, "total": 8}}, "its accuracy is 9 of 8"),
        ({"accuracy": {"correct": 0, "total": 0}}, "its accuracy is 0 of 0"),
        ({"accuracy": {"correct": 0, "total": 10**400}}, "its accuracy is 0 of 10+"),
        ({"accuracy": {"value": 0.99}}, "its accuracy is None of None"),
    ],
)
def test_wrong_fields_are_said(
    fields: dict[str, Any], says: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = tmp_path / "mlp.pt"
    save_checkpoint(path, checkpoint)
    changed(path, fields)
    refused(path, says)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("1.weight", None, "is missing or one too many"),
        ("more", torch.zeros(1), "is missing or one too many"),
        (7, torch.zeros(1), "is missing or one too many"),
        ("1.weight", torch.zeros(784, 16), r"is torch.float32 \(784, 16\), mlp has .*\(16, 784\)"),
        ("1.weight", torch.zeros(16, 784, dtype=torch.float64), "is torch.float64"),
        ("1.weight", torch.full((16, 784), torch.nan), "has values that are not finite"),
        ("1.weight", torch.full((16, 784), -torch.inf), "has values that are not finite"),
        ("1.weight", [0.0], "is no plain tensor"),
        ("1.weight", torch.zeros(16, 784).to_sparse(), "is no plain tensor"),
        ("1.weight", torch.zeros(16, 784, device="meta"), "is no plain tensor"),
    ],
)
def test_wrong_weights_are_said(
    name: Any, value: Any, says: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = tmp_path / "mlp.pt"
    save_checkpoint(path, checkpoint)
    changed(path, {name: value}, of="state")
    refused(path, f"'{name}' {says}")


def test_tensors_of_someone_else_are_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "mlp.pt"
    for nothing in (path, tmp_path):
        refused(nothing)
    for other in (make_model("mlp").state_dict(), torch.zeros(3), [1, 2]):
        torch.save(other, path)
        refused(path, "is no checkpoint of dpaudit's")


def test_weights_that_diverged_are_not_saved(checkpoint: Checkpoint, tmp_path: Path) -> None:
    state = {k: torch.full_like(v, torch.nan) for k, v in checkpoint.state.items()}
    with pytest.raises(UsageError, match=r"^out=.*not finite"):
        save_checkpoint(tmp_path / "mlp.pt", replace(checkpoint, state=state))
    assert not list(tmp_path.iterdir())


_REAL = Path(os.environ.get("DPAUDIT_DATA", ""))


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a little MNIST, and a folder for checkpoints that does not exist yet."""
    data = tmp_path / "data"
    (data / "weights").mkdir(parents=True)
    arrays = {}
    for split in ("train", "test"):
        images = load_images("synthetic", split=split)
        arrays |= {
            f"x_{split}": images.pixels[:256],
            f"y_{split}": images.labels[:256].astype(np.uint8),
        }
    np.savez(data / "mnist.npz", **arrays)
    monkeypatch.setenv("DPAUDIT_DATA", str(data))
    monkeypatch.setenv("DPAUDIT_CHECKPOINTS", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("DPAUDIT_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def published(places: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file like resnet20's published one, made here, and its SHA-256 in the table."""
    state = OrderedDict(
        (f"module.{k}", v)
        for k, v in make_model("resnet20", seed=8).state_dict().items()
        if not k.endswith("num_batches_tracked")
    )
    path = places / "data" / "weights" / PUBLISHED["resnet20"].file
    torch.save({"best_prec1": 91.0, "state_dict": state}, path)
    own = PublishedWeights(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(weights, "PUBLISHED", {"resnet20": own})
    return path


def test_untrained_is_the_seeds_and_unmeasured() -> None:
    network = trained_network("lenet5", weights="untrained", seed=6)
    wanted = make_model("lenet5", seed=6).state_dict()
    assert all(torch.equal(v, wanted[k]) for k, v in network.module.state_dict().items())
    assert (network.model, network.data, network.weights) == ("lenet5", "mnist", "untrained")
    assert network.accuracy is None
    assert not network.module.training
    assert all(p.requires_grad for p in network.module.parameters())


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        ("lenet6", {"weights": "untrained"}, "model=lenet6: not known"),
        ("mlp", {"weights": "untrained", "device": "cuda:99"}, "device=cuda:99: torch sees"),
        ("vgg19-bn", {"weights": "trained"}, "weights=trained"),  # too large to train on the spot
        ("lenet5", {"weights": "trained"}, "checkpoint=.*lenet5.pt"),
        ("mlp", {"weights": "trainde"}, "checkpoint=trainde"),
    ],
)
def test_networks_that_there_are_not(places: Path, model: str, options: Any, says: str) -> None:
    fit(Training.of("mlp", data="synthetic", epochs=1), out=places / "checkpoints" / "lenet5.pt")
    with pytest.raises(UsageError, match=f"^{says}"):
        trained_network(model, **options)
    assert not list((places / "checkpoints").glob("vgg*"))


def test_a_checkpoint_by_its_path(tmp_path: Path) -> None:
    made = fit(Training.of("mlp", data="synthetic", epochs=1, seed=2), out=tmp_path / "my.pt")
    network = trained_network("mlp", weights=str(tmp_path / "my.pt"))
    assert all(torch.equal(v, made.state[k]) for k, v in network.module.state_dict().items())
    assert network.accuracy == made.accuracy
    assert network.data == "synthetic"
    with pytest.raises(UsageError, match=r"^checkpoint=.*"):
        trained_network("lenet5", weights=str(tmp_path / "my.pt"))


@pytest.mark.slow
def test_trained_is_trained_once_and_kept(
    places: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the seed is the untrained weights' only
    first = trained_network("mlp", weights="trained", seed=7)
    told = capsys.readouterr()
    assert told.out == ""
    assert "mlp has not been trained yet: training it now, once" in told.err
    assert "epoch 5 of 5" in told.err
    file = places / "checkpoints" / "mlp.pt"
    assert checkpoint_file("mlp") == file
    stamp = file.stat().st_mtime_ns
    again = trained_network("mlp", weights="trained")
    assert capsys.readouterr().err == ""
    assert file.stat().st_mtime_ns == stamp
    assert first.accuracy == again.accuracy
    wanted = fit(Training.of("mlp", seed=0), out=places / "other.pt").state
    assert all(torch.equal(v, wanted[k]) for k, v in again.module.state_dict().items())
    monkeypatch.delenv("DPAUDIT_CHECKPOINTS")
    assert checkpoint_file("mlp") == places / "cache" / "checkpoints" / "mlp.pt"


@pytest.mark.slow
def test_published_weights_and_an_accuracy_only_where_it_can_be_measured(
    places: Path, published: Path
) -> None:
    network = trained_network("resnet20", weights="trained")
    assert network.accuracy is None
    wanted = make_model("resnet20", seed=8).eval()
    images = load_images("synthetic-colour", split="test")
    x, _ = images.batch(range(20))
    labels = torch.from_numpy(images.labels[:60])
    with torch.no_grad():
        assert torch.equal(network.module(x), wanted(x))
        right = int((wanted(images.batch(range(60))[0]).argmax(1) == labels).sum())
    splits = {"x_test": images.pixels[:60], "y_test": images.labels[:60]}
    np.savez(places / "data" / "cifar10.npz", **splits)
    measured = trained_network("resnet20", weights="trained").accuracy
    assert measured is not None
    assert (measured.correct, measured.total) == (right, 60)
    (places / "data" / "cifar10.npz").unlink()
    np.savez(places / "data" / "cifar10.npz", x_test=images.pixels[:40], y_test=images.labels[:40])
    others = trained_network("resnet20", weights="trained").accuracy
    assert others is not None
    assert others.total == 40  # measured anew: the images are others
    np.savez(places / "data" / "cifar10.npz", **splits)
    assert trained_network("resnet20", weights="trained").accuracy == measured
    (places / "data" / "cifar10.npz").unlink()
    assert trained_network("resnet20", weights="trained").accuracy == measured  # remember
    known = json.loads((places / "checkpoints" / "measured.json").read_text())
    of = hashlib.sha256(images.pixels[:60].tobytes() + images.labels[:60].tobytes()).hexdigest()
    digest = hashlib.sha256(published.read_bytes()).hexdigest()
    assert known == {digest: {"correct": right, "total": 60, "of": of}}


def test_published_weights_that_are_others_are_refused(published: Path) -> None:
    content = bytearray(published.read_bytes())
    content[-1000] ^= 1
    published.write_bytes(content)
    with pytest.raises(UsageError, match=r"^weights=.*"):
        trained_network("resnet20", weights="trained")
    published.unlink()
    with pytest.raises(UsageError, match=r"^weights=trained"):
        trained_network("resnet20", weights="trained")


@pytest.mark.skipif(
    "DPAUDIT_DATA" not in os.environ, reason="needs the published files under DPAUDIT_DATA"
)
@pytest.mark.parametrize("model", sorted(PUBLISHED))
def test_the_published_files_fit_the_networks(model: str) -> None:
    path = _REAL / PUBLISHED[model].relative
    if not path.is_file():
        pytest.skip(f"no {path.name} under DPAUDIT_DATA")
    assert load_published(model, path)


def test_measurements_are_kept_beside_each_other_and_a_broken_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    assert recall(file, key="a") is None
    remember(file, key="a", of="x", measure=lambda: accuracy_from_counts(1, 2))
    remember(file, key="b", of="x", measure=lambda: accuracy_from_counts(2, 3))
    found = recall(file, key="a")
    assert found is not None
    assert (found.correct, found.total) == (1, 2)
    wrong = "1", '{"correct": "x", "total": 2}', '{"correct": 1}'
    for broken in ("", "[]", *(f'{{"a": {one}}}' for one in wrong)):
        file.write_text(broken)
        with pytest.raises(UsageError, match=r"^checkpoints=.*measured.json"):
            recall(file, key="a")
    file.write_text('{"a": {"correct": 3, "total": 2}}')
    with pytest.raises(UsageError):
        recall(file, key="a")
