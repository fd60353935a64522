"""A network by one word: the right weights, from the right place, with measured accuracy."""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from dpaudit.errors import UsageError
from dpaudit.training import weights
from dpaudit.training.accuracy import accuracy_from_counts, recalled, remembered
from dpaudit.training.data import load_images
from dpaudit.training.fitting import fit
from dpaudit.training.models import make_model
from dpaudit.training.weights import (
    PUBLISHED,
    PublishedWeights,
    checkpoint_file,
    load_published,
    trained_network,
)

_REAL = Path(os.environ.get("DPAUDIT_DATA", ""))


@pytest.fixture(autouse=True)
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


def test_a_checkpoint_by_its_path(tmp_path: Path) -> None:
    made = fit("mlp", data="synthetic", epochs=1, seed=2, out=tmp_path / "my.pt")
    network = trained_network("mlp", weights=str(tmp_path / "my.pt"))
    assert all(torch.equal(v, made.state[k]) for k, v in network.module.state_dict().items())
    assert network.accuracy == made.accuracy
    assert network.data == "synthetic"
    with pytest.raises(UsageError, match=r"^checkpoint=.*"):
        trained_network("lenet5", weights=str(tmp_path / "my.pt"))
    with pytest.raises(UsageError, match=r"^checkpoint=trainde"):
        trained_network("mlp", weights="trainde")


def test_trained_is_trained_once_and_kept(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    wanted = fit("mlp", seed=0, out=places / "other.pt").state
    assert all(torch.equal(v, wanted[k]) for k, v in again.module.state_dict().items())


def test_without_a_folder_of_their_own_checkpoints_are_in_the_cache(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DPAUDIT_CHECKPOINTS")
    assert checkpoint_file("mlp") == places / "cache" / "checkpoints" / "mlp.pt"


def test_a_large_network_is_not_trained_on_the_spot(places: Path) -> None:
    with pytest.raises(UsageError, match=r"^weights=trained"):
        trained_network("vgg19-bn", weights="trained")
    assert not (places / "checkpoints").exists()


def test_a_checkpoint_of_another_model_in_its_place(places: Path) -> None:
    fit("mlp", data="synthetic", epochs=1, out=places / "checkpoints" / "lenet5.pt")
    with pytest.raises(UsageError, match=r"^checkpoint=.*lenet5.pt"):
        trained_network("lenet5", weights="trained")


def test_published_weights_and_an_accuracy_only_where_it_can_be_measured(
    places: Path, published: Path
) -> None:
    network = trained_network("resnet20", weights="trained")
    assert network.accuracy is None
    wanted = make_model("resnet20", seed=8).eval()
    images = load_images("synthetic-colour", split="test")
    x, _ = images.batch(range(20))
    with torch.no_grad():
        assert torch.equal(network.module(x), wanted(x))
        right = int(
            (
                wanted(images.batch(range(60))[0]).argmax(1) == torch.from_numpy(images.labels[:60])
            ).sum()
        )
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
    assert trained_network("resnet20", weights="trained").accuracy == measured  # remembered
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
    with pytest.raises(
        UsageError,
        match=r"^weights=trained",
    ):
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
    assert recalled(file, key="a") is None
    remembered(file, key="a", of="x", measure=lambda: accuracy_from_counts(1, 2))
    remembered(file, key="b", of="x", measure=lambda: accuracy_from_counts(2, 3))
    found = recalled(file, key="a")
    assert found is not None
    assert (found.correct, found.total) == (1, 2)
    for broken in (
        "",
        "[]",
        '{"a": 1}',
        '{"a": {"correct": "x", "total": 2}}',
        '{"a": {"correct": 1}}',
    ):
        file.write_text(broken)
        with pytest.raises(UsageError, match=r"^checkpoints=.*measured.json"):
            recalled(file, key="a")
    file.write_text('{"a": {"correct": 3, "total": 2}}')
    with pytest.raises(UsageError):
        recalled(file, key="a")


def test_usage_errors() -> None:
    with pytest.raises(UsageError, match=r"^model=lenet6: not known"):
        trained_network("lenet6", weights="untrained")
    with pytest.raises(UsageError, match=r"^device=cuda:99: torch sees"):
        trained_network("mlp", weights="untrained", device="cuda:99")
