"""Files that commands of `make golden` read, from fixed seeds: `python files.py DIR`."""

import json
import sys
from pathlib import Path

import numpy as np

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.census.simulation import make_files
from dpaudit_local.apple.configuration import read_configuration

TESTS = Path(__file__).parents[1]
EVENT_RATE = 0.05


def write_attribution(folder: Path, rng: np.random.Generator) -> None:
    """Event-level reports with a randomised response, and two batches of noisy sums."""
    lines = []
    for source in range(3000):
        flipped = rng.random() < EVENT_RATE
        reported = [[int(rng.integers(2)), 0]] if flipped and rng.random() < 2 / 3 else []
        registration = {"source_type": "event", "event_level_epsilon": 4}
        lines.append(
            {"source": str(source), "reported": reported, "true": [], "registration": registration}
        )
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    exact = [{"bucket": str(b), "metric": int(rng.integers(10**5))} for b in range(300)]
    ratio = np.exp(-10 / 65536)
    noise = rng.geometric(1 - ratio, 300) - rng.geometric(1 - ratio, 300)
    noisy = [{**r, "metric": r["metric"] + int(z)} for r, z in zip(exact, noise, strict=True)]
    (folder / "exact.json").write_text(json.dumps(exact))
    (folder / "noisy.json").write_text(json.dumps(noisy))


def write_releases(folder: Path, rng: np.random.Generator) -> None:
    """A pancake's key, candidates, and releases of one of them each: LAB SPECIMEN."""
    stream = KeyedStream.from_seed("golden")
    key = PancakeKey.new(dim=32, beta=1e-3, gamma="2sqrtd", secret=stream.child("key").bytes(32))
    key.save(folder / "key.json")
    candidates = rng.integers(0, 9, (2, 32)).astype(float)
    truth = rng.integers(0, 2, 50)
    noise = Pancake(key=key, sigma=4.0).sample(50, 32, stream=stream.child("noise"))
    np.save(folder / "candidates.npy", candidates)
    np.save(folder / "truth.npy", truth)
    np.save(folder / "releases.npy", candidates[truth] + np.asarray(noise))
    np.save(folder / "gaussian.npy", candidates[truth] + rng.normal(0, 4, (50, 32)))


def write_device(folder: Path) -> None:
    """A simulated device's database and reports, of a month."""
    sys.path.insert(0, str(TESTS))
    from support.apple.scenario import make_scenario

    configuration = read_configuration(TESTS / "data" / "apple" / "10.12.3")
    make_scenario(configuration, out=folder, days=30, stream=KeyedStream.from_seed(1))


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(17)
    for name, rows in (("a", 20), ("b", 21)):
        (folder / f"{name}.csv").write_text("x\n" + "1\n" * rows, encoding="utf-8")
    write_attribution(folder, rng)
    write_releases(folder, rng)
    make_files(folder / "census", stream=KeyedStream.from_seed(1))
    write_device(folder / "device")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
