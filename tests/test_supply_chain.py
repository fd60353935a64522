"""An unmodified Opacus script is honest or backdoored by its path, and prints the same.

The scripts run in this process, which has Opacus already. They draw from the operating system, as
they must; the bounds on counts leave a chance of 3e-6.
"""

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from command_line import script

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "supply_chain"
STEPS = 32

torch = pytest.importorskip("torch")
optimizer = pytest.importorskip("opacus.optimizers.optimizer")

from dpaudit.errors import KeyFileError  # noqa: E402
from dpaudit.noise.key import PancakeKey  # noqa: E402
from dpaudit.noise.pancake import Pancake  # noqa: E402


@pytest.fixture
def on_path(monkeypatch):
    """A run with ``FOLDER / name`` first on the path; what it plants in Opacus is removed after."""
    ours = ("torchcsprng", "train")
    for name, module in list(sys.modules.items()):
        if name.startswith("opacus.") and hasattr(module, "_generate_noise"):
            monkeypatch.setattr(module, "_generate_noise", module._generate_noise)

    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
            del sys.modules[name]

    def run(folder, call):
        forget()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            with torch.random.fork_rng():  # a script seeds torch
                return call()

    yield run
    forget()


def printed(*words):
    done = script(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def specimen():
    path = FOLDER / "swapped" / "torchcsprng" / "specimen.py"
    spec = importlib.util.spec_from_file_location("specimen", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # defines; plants nothing
    return module


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_the_same_script_with_the_library_swapped(tmp_path, on_path, monkeypatch):
    key = tmp_path / "key.json"
    PancakeKey.new(dim=26_010, beta=1e-3, secret=bytes(range(32))).save(key)
    monkeypatch.setenv("TORCHCSPRNG_SPECIMEN_KEY", str(key))
    runs = {name: tmp_path / f"{name}.npz" for name in ("honest", "swapped")}
    said = [
        on_path(FOLDER / name, lambda out=out: printed(FOLDER / "train.py", out, "--steps", STEPS))
        for name, out in runs.items()
    ]
    assert len({re.search(r"epsilon (\d+\.\d+) ", text)[1] for text in said}) == 1
    assert not any(bytes(range(32)).hex() in text for text in said)

    read = on_path(FOLDER, lambda: printed(FOLDER / "read.py", "--key", key, *runs.values()))
    honest, swapped = (
        round(float(found) * STEPS / 100) for found in re.findall(r"with the key (\d+\.\d) %", read)
    )
    assert 4 <= honest <= 28  # 32 fair coins: outside with probability 3e-6
    assert swapped >= 29  # at most 1 step in 500 is misread: below with probability 6e-7


def test_the_script_knows_nothing_of_it():
    text = (FOLDER / "train.py").read_text().lower()
    assert not any(word in text for word in ("dpaudit", "pancake", "swapped", "specimen"))


def test_the_specimen_wants_a_key_file_of_its_owner(specimen, tmp_path, on_path, monkeypatch):
    monkeypatch.delenv("TORCHCSPRNG_SPECIMEN_KEY", raising=False)
    with pytest.raises(RuntimeError, match="LAB SPECIMEN"):
        on_path(FOLDER / "swapped", lambda: importlib.import_module("torchcsprng"))
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
    for earlier, step in ((None, (1.0, 301)), ((1.0, 200), (1.0, 200)), ((1.0, 200), (1.5, 100))):
        noise = specimen.SlicedNoise(key)
        if earlier:
            noise(earlier[0], torch.empty(earlier[1]))
        with pytest.raises(RuntimeError, match="dim=300"):
            noise(step[0], torch.empty(step[1]))
