"""An unmodified Opacus script is honest or backdoored by what lies on its PYTHONPATH, and prints the same.

The runs draw from the operating system, as they must; the bounds on counts are five standard deviations wide or wider.
"""

import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "supply_chain"
STEPS = 50

torch = pytest.importorskip("torch")
optimizer = pytest.importorskip("opacus.optimizers.optimizer")

from dpaudit.errors import KeyFileError  # noqa: E402
from dpaudit.noise.key import PancakeKey  # noqa: E402
from dpaudit.noise.pancake import Pancake  # noqa: E402


def start(*command, **environment):
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TORCHCSPRNG_SPECIMEN_KEY")}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", *map(str, command)],
        env={**clean, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in environment.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, error = process.communicate()
    assert process.returncode == 0, error
    return out


def refusal(process):
    out, error = process.communicate()
    assert process.returncode != 0, out
    return error


@pytest.fixture
def specimen():
    spec = importlib.util.spec_from_file_location("specimen", FOLDER / "swapped" / "torchcsprng" / "specimen.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # defines; plants nothing
    return module


def test_the_same_script_with_the_library_swapped(tmp_path):
    key = tmp_path / "key.json"
    PancakeKey.new(dim=26_010, beta=1e-3, secret=bytes(range(32))).save(key)
    runs = {name: tmp_path / f"{name}.npz" for name in ("honest", "swapped")}
    training = {
        name: start(FOLDER / "train.py", out, "--steps", STEPS, PYTHONPATH=FOLDER / name, TORCHCSPRNG_SPECIMEN_KEY=key)
        for name, out in runs.items()
    }
    printed = {name: finish(process) for name, process in training.items()}
    epsilons = {re.search(r"epsilon (\d+\.\d+) ", text)[1] for text in printed.values()}
    assert len(epsilons) == 1
    secret = bytes(range(32)).hex()
    assert not any(secret in text for text in printed.values())

    read = finish(start(FOLDER / "read.py", "--key", key, *runs.values()))
    honest, swapped = (float(found) for found in re.findall(r"with the key (\d+\.\d) %", read))
    assert abs(honest - 50) <= 100 * 5 * math.sqrt(1 / STEPS) / 2
    assert swapped >= 90


def test_the_script_knows_nothing_of_it():
    text = (FOLDER / "train.py").read_text().lower()
    assert not any(word in text for word in ("dpaudit", "pancake", "swapped", "specimen"))


def test_the_specimen_wants_a_key_file_of_its_owner(specimen, tmp_path):
    assert "LAB SPECIMEN" in refusal(start("-c", "import torchcsprng", PYTHONPATH=FOLDER / "swapped"))
    key, honest = tmp_path / "key.json", optimizer._generate_noise
    PancakeKey.new(dim=26_010, beta=1e-3).save(key)
    key.chmod(0o644)
    with pytest.raises(KeyFileError, match="must be 0600"):
        specimen.plant(key)
    assert optimizer._generate_noise is honest


def test_slices_of_a_step_are_one_pancake(specimen):
    key = PancakeKey.new(dim=300, beta=1e-3, secret=bytes(32))
    noise, source = specimen.SlicedNoise(key), Pancake(key=key, sigma=2.0)
    shapes = [(10, 20), (7,), (), (92,)]
    direction = torch.from_numpy(key.direction.copy())
    for mode in (False, True):
        parts = [noise(2.0, torch.empty(s), generator=None, secure_mode=mode) for s in shapes]
        assert [p.shape for p in parts] == [torch.Size(s) for s in shapes]
        along = float(torch.cat([p.flatten() for p in parts]).double() @ direction) / source.spacing
        assert abs(along - round(along)) < 6 * source.width / source.spacing  # 6 × 4e-4 of ± 1/2
    assert not noise(0.0, torch.empty(5)).any()


def test_a_key_for_another_model_is_an_error(specimen):
    key = PancakeKey.new(dim=300, beta=1e-3, secret=bytes(32))
    with pytest.raises(RuntimeError, match="dim=300"):
        specimen.SlicedNoise(key)(1.0, torch.empty(301))
    smaller, changing = specimen.SlicedNoise(key), specimen.SlicedNoise(key)
    smaller(1.0, torch.empty(200))
    with pytest.raises(RuntimeError, match="dim=300"):
        smaller(1.0, torch.empty(200))
    changing(1.0, torch.empty(200))
    with pytest.raises(RuntimeError, match="dim=300"):
        changing(1.5, torch.empty(100))
