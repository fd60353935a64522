"""``dpaudit training``: a module of the user's own."""

import pytest
from command_line import here as dpaudit

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
    again = (
        "dpaudit training ./loops.py:quiet --claim-delta 1e-05 --claim-mu 1.0 --alpha 0.01 --seed 1"
    )
    assert again in " ".join(quiet.stdout.split())
    assert (folder / "there" / "report.html").exists()
