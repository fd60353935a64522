"""``dpaudit training``: a module of the user's own; ``dpaudit train``: what it prints."""

import json
from pathlib import Path

import pytest
from command_line import here as dpaudit

from dpaudit.cli.commands.training import TrainOptions, train
from dpaudit.training.checkpoint import load_checkpoint

MODULE = """
import numpy as np


def data():
    return np.zeros((50, 400))


canaries = np.eye(400)


def train(dataset, seed):
    return dataset.sum(axis=0) + np.random.default_rng(seed).normal(0, 1.0, 400)


def quiet(dataset, seed):
    return dataset.sum(axis=0) + np.random.default_rng(seed).normal(0, 0.2, 400)


def raises(dataset, seed):
    raise RuntimeError("no GPU")


def score(model, record):
    return float(model @ record)


def my_loss(model, record):
    return -score(model, record)


def my_scores(model, records):
    return records @ model
"""
CLAIM = ("--claim-mu", 1, "--seed", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("loops")
    (made / "loops.py").write_text(MODULE)
    return made


def test_honest_and_quiet(folder):
    honest = dpaudit("training", "./loops.py:train", *CLAIM, cwd=folder)
    assert honest.returncode == 0, honest.stderr
    assert "No finding" in honest.stdout
    quiet = dpaudit("training", "./loops.py:quiet", *CLAIM, "--out", "there", cwd=folder)
    assert quiet.returncode == 1, quiet.stderr
    again = "dpaudit training ./loops.py:quiet --claim-delta 1e-05 --claim-mu 1 --seed 1"
    assert again in " ".join(quiet.stdout.split())
    assert (folder / "there" / "report.html").exists()


def run_train(**changed):
    options = TrainOptions(data="synthetic", epochs=1, seed=3, **changed)
    train.__wrapped__("mlp", options=options, output="json")


def test_training_prints_one_document_that_says_what_the_file_says(tmp_path, capsys):
    run_train(out=tmp_path / "mlp.pt")
    told = capsys.readouterr()
    document = json.loads(told.out)
    checkpoint = load_checkpoint(Path(document["file"]), model="mlp")
    told_of = [document[name] for name in ("model", "parameters", "epochs", "seed")]
    assert told_of == ["mlp", 12_730, 1, 3]
    assert document["accuracy"]["value"] == checkpoint.accuracy.value
    accuracy = document["accuracy"]
    assert accuracy["low"] < accuracy["value"] < accuracy["high"]
    assert (document["accuracy"]["confidence"], document["accuracy"]["total"]) == (0.95, 512)
    assert document["seconds"] > 0
    assert told.err == ""  # no terminal, no bar


def test_without_out_a_model_is_where_trained_looks(tmp_path, monkeypatch):
    monkeypatch.setenv("DPAUDIT_CHECKPOINTS", str(tmp_path / "kept"))
    run_train()
    assert (tmp_path / "kept" / "mlp.pt").is_file()
