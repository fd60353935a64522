"""Checkpoints come back bit for bit; other files are refused, with nothing executed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpaudit.errors import UsageError
from dpaudit.training.accuracy import accuracy_from_counts
from dpaudit.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from dpaudit.training.models import make_model


@pytest.fixture
def checkpoint() -> Checkpoint:
    return Checkpoint(
        model="mlp",
        data="synthetic",
        state=make_model("mlp", seed=3).state_dict(),
        accuracy=accuracy_from_counts(480, 512),
        epochs=2,
        seed=3,
        versions={"torch": "x"},
        hardware="here",
    )


def test_comes_back_bit_for_bit(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "mlp.pt"
    save_checkpoint(path, checkpoint)
    found = load_checkpoint(path, model="mlp")
    assert replace(found, state={}) == replace(checkpoint, state={})
    assert list(found.state) == list(checkpoint.state)
    assert all(torch.equal(found.state[k], v) for k, v in checkpoint.state.items())
    assert [f.name for f in path.parent.iterdir()] == ["mlp.pt"]


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
    with pytest.raises(UsageError, match=r"^checkpoint=.*"):
        load_checkpoint(path)
    assert not (tmp_path / "exploded").exists()
    torch.load(path, weights_only=False) if write is torch.save else pickle.loads(path.read_bytes())
    assert (tmp_path / "exploded").exists()  # it was live


def test_broken_files_are_refused_whatever_the_break(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = tmp_path / "mlp.pt"
    save_checkpoint(path, checkpoint)
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for cut in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(UsageError, match=r"^checkpoint="):
            load_checkpoint(path)
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
            refused += 1
    assert refused > 150


def _without(field: str) -> Callable[[dict[str, Any]], None]:
    return lambda d: d.pop(field)


def _with(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda d: d.update(fields)


def _weight(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda d: d["state"].update({"1.weight": value})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_with(format="other"), "is no checkpoint of dpaudit's"),
        (_with(version=2), "of format version 2, this dpaudit reads up to 1; take a newer one"),
        (_with(version="1"), "format version '1' is none"),
        (_with(version=True), "format version True is none"),
        (_without("seed"), "its field 'seed' is missing or no int"),
        (_with(epochs=2.0), "its field 'epochs' is missing or no int"),
        (_with(state=[1]), "its field 'state' is missing or no dict"),
        (_with(model="lenet6"), "holds 'lenet6', a model that is not known"),
        (_with(model="lenet5"), "its weights are not those of lenet5"),
        (_with(accuracy={"correct": 9, "total": 8}), "its accuracy is 9 of 8, which cannot be"),
        (_with(accuracy={"correct": 0, "total": 0}), "its accuracy is 0 of 0, which cannot be"),
        (
            _with(accuracy={"correct": 0, "total": 10**400}),
            "its accuracy is 0 of 10+, which cannot be",
        ),
        (_with(accuracy={"value": 0.99}), "its accuracy is None of None, which cannot be"),
        (lambda d: d["state"].pop("1.weight"), "'1.weight' is missing or one too many"),
        (lambda d: d["state"].update(more=torch.zeros(1)), "'more' is missing or one too many"),
        (lambda d: d["state"].update({7: torch.zeros(1)}), "'7' is missing or one too many"),
        (
            _weight(torch.zeros(784, 16)),
            r"'1.weight' is torch.float32 \(784, 16\), mlp has torch.float32 \(16, 784\)",
        ),
        (_weight(torch.zeros(16, 784, dtype=torch.float64)), "'1.weight' is torch.float64"),
        (_weight(torch.full((16, 784), torch.nan)), "'1.weight' has values that are not finite"),
        (_weight(torch.full((16, 784), -torch.inf)), "'1.weight' has values that are not finite"),
        (_weight([0.0]), "'1.weight' is no plain tensor"),
        (_weight(torch.zeros(16, 784).to_sparse()), "'1.weight' is no plain tensor"),
        (_weight(torch.zeros(16, 784, device="meta")), "'1.weight' is no plain tensor"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    change: Callable[[dict[str, Any]], None], says: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = tmp_path / "mlp.pt"
    save_checkpoint(path, checkpoint)
    document = torch.load(path, weights_only=True)
    change(document)
    torch.save(document, path)
    with pytest.raises(UsageError, match=rf"^checkpoint=.*: .*{says}"):
        load_checkpoint(path)


def test_another_models_checkpoint_names_both(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "mlp.pt"
    save_checkpoint(path, checkpoint)
    with pytest.raises(UsageError, match=r"^checkpoint=.*"):
        load_checkpoint(path, model="lenet5")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^checkpoint=.*"):
        load_checkpoint(tmp_path / "mlp.pt")
    with pytest.raises(UsageError, match=r"^checkpoint=.*"):
        load_checkpoint(tmp_path)


def test_tensors_of_someone_else_are_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "mlp.pt"
    for other in (make_model("mlp").state_dict(), torch.zeros(3), [1, 2]):
        torch.save(other, path)
        with pytest.raises(UsageError, match="is no checkpoint of dpaudit's"):
            load_checkpoint(path)


def test_weights_that_diverged_are_not_saved(checkpoint: Checkpoint, tmp_path: Path) -> None:
    state = {k: torch.full_like(v, torch.nan) for k, v in checkpoint.state.items()}
    with pytest.raises(UsageError, match=r"^out=.*not finite"):
        save_checkpoint(tmp_path / "mlp.pt", replace(checkpoint, state=state))
    assert not list(tmp_path.iterdir())


def test_accuracy_covers_its_value() -> None:
    accuracy = accuracy_from_counts(9870, 10_000)
    assert accuracy.low < accuracy.value == 0.987 < accuracy.high
    assert accuracy.confidence == 0.95
