"""Gradients a record and the query that sums them, against one plain backward pass a record."""

import functools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.queries.gradients import per_sample as gradient_block
from dpaudit.queries.gradients.per_sample import PerSampleGradients
from dpaudit.queries.gradients.query import GradientQuery
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_host
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit.training.models.networks import with_norm
from dpaudit.training.plain_training import Training, fit

LARGE = 1 << 30


def slow(model, x, y):
    """One record, one backward pass, one torch.autograd.grad; float64."""
    model = model.double()
    weights = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for image, label in zip(x.double(), y, strict=True):
        loss = torch.nn.functional.cross_entropy(model(image[None]), label[None])
        rows.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, weights)]))
    return torch.stack(rows)


def small(norm):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        first = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()
        model = nn.Sequential(*first, nn.Dropout(0.5), nn.Flatten(), nn.Linear(6 * 36, 10))
        model(torch.randn(32, 3, 8, 8))  # running statistics of its own
    return with_norm(model, norm)


def records(n, *shape):
    g = torch.Generator().manual_seed(n)
    return torch.randn(n, *shape, generator=g), torch.randint(0, 10, (n,), generator=g)


@pytest.mark.parametrize("memory", [1, 300_000, LARGE], ids=["one by one", "some", "all at once"])
@pytest.mark.parametrize("norm", ["frozen", "group", "record"])
def test_each_row_is_that_records_own_gradient(norm, memory):
    x, y = records(7, 3, 8, 8)
    gradients = PerSampleGradients(small(norm), memory=memory)
    chunks = list(gradients.chunks(x, y))
    assert {1: len(chunks) == 7, LARGE: len(chunks) == 1}.get(memory, 1 < len(chunks) < 7)
    assert torch.allclose(torch.cat(chunks), slow(small(norm), x, y), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("memory", [1, LARGE])
def test_lenet5_in_its_own_order_and_length(memory):
    x, y = records(3, 1, 28, 28)
    model = make_model("lenet5-tanh", seed=3)
    found = PerSampleGradients(model, memory=memory).all(x, y)
    assert found.shape == (3, 61_706)
    assert found.dtype == torch.float64
    wanted = slow(make_model("lenet5-tanh", seed=3), x, y)
    assert torch.allclose(found, wanted, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("memory", [1, LARGE])
def test_frozen_parameters_have_no_coordinates(memory):
    x, y = records(2, 3, 8, 8)
    model = small("frozen")
    model[0].weight.requires_grad_(False)
    gradients = PerSampleGradients(model, memory=memory)
    assert gradients.dim == sum(p.numel() for p in model.parameters()) - model[0].weight.numel()
    assert torch.allclose(gradients.all(x, y), slow(model, x, y), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("memory", [1, LARGE])
def test_the_model_is_left_as_it_is(memory):
    model = small("record")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    PerSampleGradients(model, memory=memory).all(*records(3, 3, 8, 8))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None and p.dtype == torch.float32 for p in model.parameters())


def test_float32_is_float32():
    x, y = records(4, 3, 8, 8)
    both = torch.float64, torch.float32
    wide, narrow = (PerSampleGradients(small("group"), dtype=t).all(x, y) for t in both)
    assert narrow.dtype == torch.float32
    error = float(torch.linalg.vector_norm(narrow.double() - wide) / torch.linalg.vector_norm(wide))
    assert 1e-9 < error < 1e-5


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(3), nn.Dropout(0.5)], ids=["BatchNorm", "dropout"]
)
def test_records_that_see_each_other_are_refused(layer):
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(192, 10))
    with pytest.raises(UsageError, match="with_norm"):
        PerSampleGradients(model.train())
    PerSampleGradients(model.eval())


def test_nothing_to_train():
    model = nn.Linear(4, 2).requires_grad_(False)
    with pytest.raises(UsageError, match="requires_grad"):
        PerSampleGradients(model)


SMALL = {"model": "mlp", "data": "synthetic", "batch": 12}
STREAM = KeyedStream.from_seed("gradient query")


@functools.cache
def network_and_images():
    return make_model("mlp", seed=0).double(), load_images("synthetic")


@functools.cache
def gradient_by_hand(record):
    """One plain backward pass of the small network."""
    network, images = network_and_images()
    x, y = images.batch([record], dtype=torch.float64)
    loss = torch.nn.functional.cross_entropy(network(x), y)
    return torch.cat([p.reshape(-1) for p in torch.autograd.grad(loss, list(network.parameters()))])


def mean_by_hand(records, *, clip, batch):
    """Σ min(1, clip/‖g‖) g / batch, record by record."""
    gradients = [gradient_by_hand(record) for record in records]
    return sum(g * min(1.0, clip / float(g.norm())) for g in gradients) / batch


def neighbour(block, i):
    return [*block.records[:i], *block.others[i : i + 1], *block.records[i + 1 :]]


def close(a, b):
    """Equal up to float64 rounding; measured: 3e-16."""
    return float((a - b).norm()) <= 1e-14 * float(b.norm())


@pytest.mark.parametrize(
    "options", [{}, {"neighbour": "remove"}, {"dtype": "float32"}, {"clip": 0.3}], ids=str
)
def test_conforms(options):
    check_host(GradientQuery(**SMALL, **options))


@pytest.mark.parametrize(
    ("kind", "clip"), [("replace", 0.5), ("replace", 10.0), ("remove", 10.0), ("remove", math.inf)]
)  # gradients are 5 to 18 long: all clipped, half, none
def test_both_results_equal_their_own_sums(kind, clip):
    host = GradientQuery(**SMALL, neighbour=kind)
    block = host.block(5, stream=STREAM, clips=(clip,))
    assert len({*block.records, *block.others}) == 12 + (5 if kind == "replace" else 0)
    assert close(block.query(clip), mean_by_hand(block.records, clip=clip, batch=12))
    for some in block.exchanges():
        for row, pair in enumerate(some.candidates(clip), some.first):
            assert close(pair[0], mean_by_hand(block.records, clip=clip, batch=12))
            assert close(pair[1], mean_by_hand(neighbour(block, row), clip=clip, batch=12))


def test_one_block_serves_all_clips():
    host = GradientQuery(**SMALL)
    together = host.block(4, stream=STREAM, clips=(0.5, 2.0))
    for clip in (0.5, 2.0):
        alone = host.block(4, stream=STREAM, clips=(clip,))
        assert torch.equal(alone.query(clip), together.query(clip))
        for a, b in zip(alone.exchanges(), together.exchanges(), strict=True):
            assert torch.equal(a.candidates(clip), b.candidates(clip))


@pytest.mark.parametrize("keep", [True, False])
def test_one_pair_at_a_time_from_kept_gradients_or_computed_again(monkeypatch, keep):
    host = GradientQuery(**SMALL)
    together = [e.candidates(1.0) for e in host.block(4, stream=STREAM, clips=(1.0,)).exchanges()]
    assert len(together) == 1
    room = lambda _, *, cpu, part: cpu if keep and part == 8 else 1  # noqa: E731
    monkeypatch.setattr(gradient_block, "room", room)
    again = list(host.block(4, stream=STREAM, clips=(1.0,)).exchanges())
    assert [len(e) for e in again] == [1, 1, 1, 1]
    assert [e.first for e in again] == [0, 1, 2, 3]
    assert close(torch.cat([e.candidates(1.0) for e in again]), together[0])


@pytest.mark.slow
def test_the_sensitivity_is_reached_and_not_passed():
    host = GradientQuery(**SMALL, clip=0.01)
    assert host.sensitivity == 2 * 0.01 / 12
    assert host.sensitivity_at(6) == 1
    assert GradientQuery(**SMALL, clip=0.01, neighbour="remove").sensitivity == 0.01 / 12
    q = GradientQuery(**SMALL, clip=0.01, neighbour="remove").neighbours(6, stream=STREAM)
    assert (q[:, 0] - q[:, 1]).norm(dim=1) == pytest.approx([0.01 / 12] * 6, rel=1e-12)


def test_more_pairs_than_a_batch_has_come_from_more_batches():
    host = GradientQuery(**SMALL)
    pairs = host.neighbours(24, stream=STREAM)
    assert pairs.shape == (24, 2, host.dim)
    assert len({row.numpy().tobytes() for row in pairs[:, 0]}) == 2
    assert len({row.numpy().tobytes() for row in pairs[:, 1]}) == 24


@pytest.mark.parametrize("kind", ["replace", "remove"])
def test_differences_along_a_direction(kind):
    host = GradientQuery(**SMALL, neighbour=kind)
    direction = STREAM.child("direction").numpy().standard_normal(host.dim)
    found = host.differences(direction)
    block = host.block(1, stream=KeyedStream.from_seed("dpsgd-gradient").child("differences"))
    q, w = mean_by_hand(block.records, clip=4.0, batch=12), torch.from_numpy(direction)
    for i in (0, 7, 11):
        rest = [*block.records[:i], *block.others, *block.records[i + 1 :]]
        wanted = float((q - mean_by_hand(rest, clip=4.0, batch=12)) @ w)
        assert float(found[i]) == pytest.approx(wanted, rel=1e-9)
    assert found.shape == (12,)


@pytest.mark.slow
def test_float32_gradients_are_off_by_float32_rounding():
    for dtype in ("float64", "float32"):
        assert 1e-9 < GradientQuery(**SMALL, dtype=dtype).rounding(3, stream=STREAM) < 1e-5


@pytest.mark.slow
def test_dtype_and_seed_are_heeded():
    wide = GradientQuery(**SMALL).neighbours(1, stream=STREAM)
    narrow = GradientQuery(**SMALL, dtype="float32").neighbours(1, stream=STREAM)
    assert 0 < float((wide - narrow).norm()) < 1e-5 * float(wide.norm())
    other = GradientQuery(**SMALL, seed=1).neighbours(1, stream=STREAM)
    assert float((wide - other).norm()) > 0.1 * float(wide.norm())


@pytest.mark.parametrize(
    "wrong",
    [
        *({"clip": clip} for clip in (0, math.inf, True)),
        *({"batch": batch} for batch in (1, 1025, 12.0)),
        *({"data": data} for data in ("synthetic-colour", "emnist")),
        *({"model": "lenet6"}, {"neighbour": "add"}, {"dtype": "float16"}, {"norm": "batch"}),
        *({"device": device} for device in ("tpu", "cuda:99")),
    ],
    ids=str,
)
def test_bad_options(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        GradientQuery(**{**SMALL, **wrong})


@pytest.mark.slow
def test_an_accuracy_on_other_images_is_not_shown(tmp_path):
    fit(Training.of("mlp", data="synthetic", epochs=1), out=tmp_path / "mlp.pt")
    assert GradientQuery(**SMALL, weights=str(tmp_path / "mlp.pt")).accuracy.total == 512
    pixels = {"x_train": np.zeros((60, 28, 28), np.uint8), "y_train": np.zeros(60, np.int64)}
    np.savez(tmp_path / "mnist.npz", **pixels)
    weights = {"weights": str(tmp_path / "mlp.pt"), "data_root": str(tmp_path)}
    assert GradientQuery(model="mlp", batch=12, **weights).accuracy is None


@pytest.mark.parametrize("pairs", [0, 13])
def test_a_block_has_as_many_pairs_as_records(pairs):
    with pytest.raises(UsageError, match=f"pairs={pairs}"):
        GradientQuery(**SMALL).block(pairs, stream=STREAM)


LARGEST = """
from dpaudit import registry
from dpaudit.queries.gradients.query import GradientQuery
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream

stream = KeyedStream.from_seed("39 million")
host = GradientQuery(model="vgg19-bn", data="synthetic-colour", norm="record", batch=4)
assert host.dim == 38_958_922
key = PancakeKey.new(dim=host.dim, beta=1.0, secret=stream.bytes(32)).at(beta=1e-5, gamma="2sqrtd")
(some,) = host.block(1, stream=stream.child("records")).exchanges()
candidates = some.candidates(4.0)
del some
source, where = Pancake(key=key, sigma=3.0), candidates.device
release = source.sample(1, host.dim, stream=stream.child("noise"), device=where)
release[0] += candidates[0, 1]
scores = registry.load("attacks", "nearest-peak")(key=key, sigma=3.0).score(release, candidates)
lines = open("/proc/self/status")  # ours, not the parent's
peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
print(int(scores.argmax()), int(peak) / 2**20)
"""


@pytest.mark.slow
def test_a_release_of_39_million_values_and_its_attack_fit_in_4_gib():
    """Measured: 2.9 GiB: the network's float64 copy, two candidates and the key's direction."""
    out = subprocess.run(
        [sys.executable, "-c", LARGEST], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(out[0]) == 1
    assert float(out[1]) < 4
