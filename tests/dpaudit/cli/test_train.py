"""What ``dpaudit train`` prints: one line for people, one JSON document for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpaudit.cli.training import train
from dpaudit.training.checkpoint import load_checkpoint


def run(**changed: object) -> None:
    settings = {
        "data_root": None,
        "epochs": 1,
        "seed": 3,
        "device": "cpu",
        "out": None,
        "resume": False,
        "output": "json",
    }
    train(**{"model": "mlp", "data": "synthetic", **settings, **changed})


@pytest.mark.slow
def test_one_document_that_says_what_the_file_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(out=tmp_path / "mlp.pt")
    told = capsys.readouterr()
    document = json.loads(told.out)
    checkpoint = load_checkpoint(Path(document["file"]), model="mlp")
    assert (document["model"], document["parameters"], document["epochs"], document["seed"]) == (
        "mlp",
        12_730,
        1,
        3,
    )
    assert document["accuracy"]["value"] == checkpoint.accuracy.value
    assert (
        document["accuracy"]["low"] < document["accuracy"]["value"] < document["accuracy"]["high"]
    )
    assert (document["accuracy"]["confidence"], document["accuracy"]["total"]) == (0.95, 512)
    assert document["seconds"] > 0
    assert told.err == ""  # no terminal, no bar


def test_without_out_it_is_where_trained_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPAUDIT_CHECKPOINTS", str(tmp_path / "kept"))
    run()
    assert (tmp_path / "kept" / "mlp.pt").is_file()
