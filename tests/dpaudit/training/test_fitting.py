"""Training to a checkpoint: repeatable, resumable, measured, and with nothing global touched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.training import plain_training
from dpaudit.training import plain_training as fitting
from dpaudit.training.checkpoint import Checkpoint, load_checkpoint, locked
from dpaudit.training.data import Images, load_images
from dpaudit.training.models import MODELS, make_model
from dpaudit.training.on_device import ImagesOnDevice
from dpaudit.training.plain_training import RECIPES, Epoch, Recipe, Training

CPU = torch.device("cpu")


def fit(model: str, *, out: Path, resume=False, wait=False, on_epoch=None, **options) -> Checkpoint:
    training = Training.of(model, **options)
    return fitting.fit(training, out=out, resume=resume, wait=wait, on_epoch=on_epoch)


class Killed(Exception):
    """A process that ends in the middle."""


def kill_after(number: int):
    def on_epoch(epoch: Epoch) -> None:
        if epoch.number == number:
            raise Killed

    return on_epoch


def same(a, b) -> bool:
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in a)


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> str:
    """A small colour network with BatchNorm and dropout, under a large one's recipe, 3 epochs."""

    def make() -> nn.Module:
        first = nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
        return nn.Sequential(*first, nn.Dropout(0.5), nn.Linear(512, 10))

    # the tables are read-only views; a test's own network goes into copies of them
    everything = load_images("synthetic-colour")
    few = Images(everything.pixels[:384], everything.labels[:384], everything.mean, everything.std)
    less = lambda name, **_: few if "colour" in name else load_images(name)  # noqa: E731
    monkeypatch.setattr(plain_training, "load_images", less)
    models = {**MODELS, "dropped": replace(MODELS["resnet20"], make=make, parameters=5_370)}
    recipes = {**RECIPES, "dropped": replace(RECIPES["vgg19-bn"], epochs=3)}
    for module in ("models", "plain_training", "checkpoint"):
        monkeypatch.setattr(f"dpaudit.training.{module}.MODELS", models)
    monkeypatch.setattr(plain_training, "RECIPES", recipes)
    return "dropped"


@pytest.mark.slow
def test_learns_and_measures(tmp_path: Path) -> None:
    epochs: list[Epoch] = []
    found = fit("mlp", data="synthetic", epochs=4, out=tmp_path / "mlp.pt", on_epoch=epochs.append)
    assert [(e.number, e.of) for e in epochs] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert epochs[-1].loss < epochs[0].loss / 2
    test = load_images("synthetic", split="test")
    network = make_model("mlp")
    network.load_state_dict(found.state)
    x, y = test.batch(range(len(test)))
    right = int((network(x).argmax(1) == y).sum())  # counted apart from the code under test
    assert (found.accuracy.correct, found.accuracy.total) == (right, 512)
    assert right > 256
    read = load_checkpoint(tmp_path / "mlp.pt", model="mlp")
    assert same(read.state, found.state)
    assert (read.accuracy, read.epochs, read.seed, read.data) == (found.accuracy, 4, 0, "synthetic")
    assert read.versions["torch"] == torch.__version__
    assert sorted(f.name for f in tmp_path.iterdir()) == [".mlp.pt.dpaudit-lock", "mlp.pt"]


def test_first_step_is_adams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam's first step moves each weight by lr·g/(|g| + 1e-8), g recomputed from all images."""
    monkeypatch.setattr(
        plain_training, "RECIPES", {"mlp": Recipe(optimizer="adam", lr=1e-3, batch=4096, epochs=1)}
    )
    found = fit("mlp", data="synthetic", seed=4, out=tmp_path / "mlp.pt")
    network, images = make_model("mlp", seed=4), load_images("synthetic")
    x, y = images.batch(range(len(images)))
    nn.functional.cross_entropy(network(x), y).backward()
    for name, p in network.named_parameters():
        wanted = p - 1e-3 * p.grad / (p.grad.abs() + 1e-8)
        # in another order of the batch small gradients round otherwise
        well_known = p.grad.abs() > 1e-5
        assert well_known.any()
        assert torch.allclose(found.state[name][well_known], wanted[well_known], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_killed_and_resumed_gives_the_same_bits(dropped: str, tmp_path: Path) -> None:
    """SGD with a schedule and dropout, killed after each epoch; Adam, killed after the second."""
    cases = [(dropped, "synthetic-colour", after) for after in (1, 2, 3)]
    for model, data, after in [*cases, ("mlp", "synthetic", 2)]:
        settings = {"data": data, "epochs": 3}
        whole = fit(model, out=tmp_path / f"{model}.pt", resume=True, **settings)
        out = tmp_path / f"parts-{model}-{after}.pt"
        with pytest.raises(Killed):
            fit(model, out=out, on_epoch=kill_after(after), **settings)
        assert not out.exists()
        epochs: list[Epoch] = []
        parts = fit(model, out=out, resume=True, on_epoch=epochs.append, **settings)
        assert [e.number for e in epochs] == list(range(after + 1, 4))
        assert same(whole.state, parts.state)
        assert whole.accuracy == parts.accuracy
        assert not out.with_name(f"{out.name}.partial").exists()


@pytest.mark.slow
def test_seed_decides_and_the_global_generator_is_left_alone(dropped: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    a = fit(dropped, data="synthetic-colour", epochs=1, out=tmp_path / "a.pt")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    np.random.seed(2)
    b = fit(dropped, data="synthetic-colour", epochs=1, out=tmp_path / "b.pt")
    c = fit(dropped, data="synthetic-colour", epochs=1, out=tmp_path / "c.pt", seed=1)
    assert same(a.state, b.state)
    assert not same(a.state, c.state)


def test_resume_from_nothing_and_from_the_end(tmp_path: Path) -> None:
    out = tmp_path / "mlp.pt"
    first = fit("mlp", data="synthetic", epochs=1, out=out, resume=True)
    epochs: list[Epoch] = []
    again = fit("mlp", data="synthetic", epochs=1, out=out, resume=True, on_epoch=epochs.append)
    assert not epochs
    assert same(first.state, again.state)
    with pytest.raises(UsageError, match=r"^out=.*"):
        fit("mlp", data="synthetic", epochs=2, out=out, resume=True)
    with pytest.raises(UsageError, match=r"^out=.*"):
        fit("mlp", data="synthetic", epochs=1, seed=5, out=out, resume=True)


@pytest.mark.slow
def test_without_resume_it_starts_again(tmp_path: Path) -> None:
    out = tmp_path / "mlp.pt"
    with pytest.raises(Killed):
        fit("mlp", data="synthetic", epochs=2, seed=9, out=out, on_epoch=kill_after(1))
    epochs: list[Epoch] = []
    fit("mlp", data="synthetic", epochs=2, out=out, on_epoch=epochs.append)
    assert [e.number for e in epochs] == [1, 2]


@pytest.mark.slow
def test_resuming_another_training_is_refused(tmp_path: Path) -> None:
    out, begun = tmp_path / "mlp.pt", {"model": "mlp", "data": "synthetic", "epochs": 3}
    with pytest.raises(Killed):
        fit(**begun, out=out, on_epoch=kill_after(1))
    for settings, says in (
        ({"epochs": 4}, "epochs=3, not 4"),
        ({"seed": 1}, "seed=0, not 1"),
        ({"model": "lenet5"}, "model=mlp, not lenet5"),
    ):
        with pytest.raises(UsageError, match=rf"^resume=.*: was begun with {says}"):
            fit(**begun | settings, resume=True, out=out)


@pytest.mark.slow
def test_broken_partials_are_refused(tmp_path: Path) -> None:
    out, partial = tmp_path / "mlp.pt", tmp_path / "mlp.pt.partial"
    with pytest.raises(Killed):
        fit("mlp", data="synthetic", epochs=2, out=out, on_epoch=kill_after(1))
    document = torch.load(partial, weights_only=True)

    def resume() -> None:
        fit("mlp", data="synthetic", epochs=2, out=out, resume=True)

    partial.write_bytes(partial.read_bytes()[:5000])
    with pytest.raises(UsageError, match=r"^resume=.*"):
        resume()
    for change, says in (
        ({"format": "x"}, "is no interrupted training"),
        ({"run": {}}, "is another dpaudit's"),
        ({"state": {}}, "its weights are not those of mlp"),
        ({"optimizer": {}}, "is broken"),
        ({"optimizer": {**document["optimizer"], "param_groups": []}}, "is broken"),
        *(({"done": done}, "is broken") for done in ("x", 3, 0)),
    ):
        torch.save({**document, **change}, partial)
        with pytest.raises(UsageError, match=rf"^resume=.*: {says}"):
            resume()
    torch.save(document, partial)
    resume()


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "lenet6"},
        {"epochs": 0},
        {"seed": -1},
        *({"data": data} for data in ("imagenet", "synthetic-colour")),
        *({"device": device} for device in ("tpu", "meta", "cuda:99")),
        *({"out": Path(out)} for out in ("", "/", Path(__file__).parent, 300 * "x" + ".pt")),
    ],
    ids=str,
)
def test_usage_errors(settings: dict, tmp_path: Path) -> None:
    ((name, _),) = settings.items()
    good = {"model": "mlp", "data": "synthetic", "epochs": 1, "out": tmp_path / "mlp.pt"}
    with pytest.raises(UsageError, match=f"^{name}="):
        fit(**good | settings)
    assert not (tmp_path / "mlp.pt").exists()


def test_divergence_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        plain_training, "RECIPES", {"mlp": Recipe(optimizer="sgd", lr=1e30, batch=64, epochs=2)}
    )
    with pytest.raises(UsageError, match=r"^seed=0"):
        fit("mlp", data="synthetic", out=tmp_path / "mlp.pt")
    assert [f.name for f in tmp_path.iterdir()] == [".mlp.pt.dpaudit-lock"]


def test_a_second_process_is_kept_away(tmp_path: Path) -> None:
    out = tmp_path / "mlp.pt"
    with locked(out, wait=False), pytest.raises(UsageError, match=r"^out=.*mlp.pt"):
        fit("mlp", data="synthetic", epochs=1, out=out)


def test_neighbours_of_the_file_are_left_alone(tmp_path: Path) -> None:
    for name in ("mlp.lock", "mlp.partial"):
        (tmp_path / name).write_text("precious")
    (tmp_path / ".mlp.pt.dpaudit-lock").symlink_to(tmp_path / "mlp.lock")
    with pytest.raises(UsageError, match=r"^out=.*"):
        fit("mlp", data="synthetic", epochs=1, out=tmp_path / "mlp.pt")
    (tmp_path / ".mlp.pt.dpaudit-lock").unlink()
    fit("mlp", data="synthetic", epochs=1, out=tmp_path / "mlp.pt")
    assert [(tmp_path / name).read_text() for name in ("mlp.lock", "mlp.partial")] == [
        "precious"
    ] * 2


def test_of_two_that_wait_one_trains(tmp_path: Path) -> None:
    """A lock belongs to an open file, so two threads stand for two processes."""
    epochs: list[Epoch] = []

    def run(_: int) -> Checkpoint:
        settings = {"data": "synthetic", "epochs": 1, "resume": True, "wait": True}
        return fit("mlp", out=tmp_path / "mlp.pt", on_epoch=epochs.append, **settings)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert len(epochs) == 1
    assert same(first.state, second.state)


def _images(pixels: np.ndarray) -> Images:
    grey = load_images("synthetic-colour")
    return Images(pixels, np.arange(len(pixels)), grey.mean, grey.std)


def test_each_epoch_has_an_order_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, plain = [], ImagesOnDevice.epoch

    def noted(*arguments, **options):
        batches = list(plain(*arguments, **options))
        orders.append(torch.cat([y for _, y in batches]))
        return iter(batches)

    monkeypatch.setattr(ImagesOnDevice, "epoch", noted)
    fit("mlp", data="synthetic", epochs=2, out=tmp_path / "mlp.pt")
    first, second = orders
    assert not torch.equal(first, second)


def test_an_epoch_is_every_image_once() -> None:
    images = load_images("synthetic")
    here = ImagesOnDevice(images, device=CPU)
    batches = list(here.epoch(batch=300, augment=False, rng=np.random.default_rng(0)))
    assert [len(y) for _, y in batches] == [300] * 6 + [248]
    order = np.random.default_rng(0).permutation(len(images))
    x, y = images.batch(order)
    assert torch.equal(torch.cat([b for b, _ in batches]), x)
    assert torch.equal(torch.cat([c for _, c in batches]), y)


@pytest.mark.slow
def test_augmented_images_are_crops_and_mirrors_and_all_of_them_occur() -> None:
    """Against a slow oracle: each image that comes out must be one of the 162 that numpy cuts."""
    rng = np.random.default_rng(3)
    one = rng.integers(1, 256, (3, 32, 32), dtype=np.uint8)
    images = _images(np.repeat(one[None], 2000, axis=0))
    padded = np.pad(one, ((0, 0), (4, 4), (4, 4)))
    cuts = [padded[:, i : i + 32, j : j + 32] for i in range(9) for j in range(9)]
    cuts = np.stack([*cuts, *(c[:, :, ::-1] for c in cuts)])
    rows = images.normalised(torch.from_numpy(cuts))
    oracle = {row.numpy().tobytes(): k for k, row in enumerate(rows)}
    assert len(oracle) == 162
    ((x, y),) = ImagesOnDevice(images, device=CPU).epoch(
        batch=2000, augment=True, rng=np.random.default_rng(1)
    )
    seen = np.bincount([oracle[row.numpy().tobytes()] for row in x], minlength=162)
    assert seen.min() >= 1  # 2,000 draws of 162: each is missed with probability e^-12
    assert sorted(y.tolist()) == list(range(2000))


@pytest.mark.slow
def test_each_image_keeps_its_class_and_gets_its_own_crop() -> None:
    levels = np.arange(1, 201, dtype=np.uint8)
    images = _images(np.tile(levels[:, None, None, None], (1, 3, 32, 32)))
    ((x, y),) = ImagesOnDevice(images, device=CPU).epoch(
        batch=200, augment=True, rng=np.random.default_rng(2)
    )
    own = images.normalised(torch.from_numpy(images.pixels[y.numpy()]))
    # the middle is never in the margin
    assert torch.equal(x[:, :, 10:20, 10:20], own[:, :, 10:20, 10:20])
    crops = {(a[0] == b[0]).numpy().tobytes() for a, b in zip(x, own, strict=True)}
    assert len(crops) > 20


@pytest.mark.gpu
def test_on_a_gpu_it_learns_too(dropped: str, tmp_path: Path) -> None:
    state = torch.cuda.get_rng_state()
    found = fit(dropped, data="synthetic-colour", epochs=3, device="cuda", out=tmp_path / "gpu.pt")
    assert found.accuracy.value > 0.5
    assert all(v.device == CPU and v.is_contiguous() for v in found.state.values())
    assert torch.cuda.get_device_name() in found.hardware
    assert torch.equal(torch.cuda.get_rng_state(), state)
