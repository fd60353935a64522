import numpy as np
import pytest
import torch

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.training.data import DATASETS, Images, load_images

GREY = Images(
    np.arange(5 * 784, dtype=np.uint32).astype(np.uint8).reshape(5, 28, 28),
    np.arange(5),
    (0.1307,),
    (0.3081,),
)
COLOUR = Images(
    np.random.default_rng(3).integers(0, 256, (4, 3, 32, 32), np.uint8),
    np.array([9, 0, 3, 3]),
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
)


@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_normalised_channel_by_channel(images, dtype):
    x, y = images.batch([3, 1, 3], dtype=dtype)
    assert x.shape == (3, *images.shape)
    assert (x.dtype, y.dtype) == (dtype, torch.int64)
    assert y.tolist() == [int(images.labels[i]) for i in (3, 1, 3)]
    pixels = images.pixels.reshape(len(images), *images.shape)
    near = 1e-15 if dtype is torch.float64 else 1e-6
    for b, record in enumerate((3, 1, 3)):
        for c, (mean, std) in enumerate(zip(images.mean, images.std, strict=True)):
            for row, column in ((0, 0), (5, 20), (27, 13)):
                want = (int(pixels[record, c, row, column]) / 255 - mean) / std
                assert float(x[b, c, row, column]) == pytest.approx(want, rel=near, abs=near)


def test_a_narrow_dtype_is_rounded_once():
    x, _ = COLOUR.batch(range(4), dtype=torch.bfloat16)
    assert torch.equal(x, COLOUR.batch(range(4))[0].to(torch.bfloat16))


def test_a_batch_goes_where_it_is_asked():
    x, y = COLOUR.batch([0, 1], device="meta")
    assert x.device.type == y.device.type == "meta"
    assert x.shape == (2, 3, 32, 32)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_every_device_has_the_same_bits(dtype):
    levels = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16).repeat(3, 1)
    every = Images(levels, np.zeros(1, np.int64), COLOUR.mean, COLOUR.std)
    there, _ = every.batch([0], dtype=dtype, device="cuda")
    assert torch.equal(there.cpu(), every.batch([0], dtype=dtype)[0])


def test_batches_leave_the_bytes_alone():
    before = COLOUR.pixels.copy()
    x, _ = COLOUR.batch([0])
    x.zero_()
    assert np.array_equal(COLOUR.pixels, before)


def first_synthetic(n, split):
    """As released first: the images under this name must never change."""
    stream = KeyedStream.from_seed("synthetic images")
    rng = stream.numpy()
    wave = 2 * np.pi * np.arange(28) / 28
    modes = np.stack([f(k * wave) for k in (1, 2, 3) for f in (np.cos, np.sin)])
    shapes = np.einsum("cij,ix,jy->cxy", rng.standard_normal((10, 6, 6)), modes, modes)
    if split == "test":
        rng = stream.child("test").numpy()
    labels = rng.integers(0, 10, n)
    shifts = rng.integers(-3, 4, (n, 2))
    pixels = np.stack(
        [np.roll(shapes[c], s, (0, 1)) for c, s in zip(labels, shifts.tolist(), strict=True)]
    )
    pixels = 40 * pixels + 20 * rng.standard_normal(pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8), labels


@pytest.mark.parametrize(("split", "n"), [("train", 2048), ("test", 512)])
def test_synthetic_is_what_it_always_was(split, n):
    images, (pixels, labels) = load_images("synthetic", split=split), first_synthetic(n, split)
    assert np.array_equal(images.pixels, pixels)
    assert np.array_equal(images.labels, labels)
    assert (images.mean, images.std) == ((0.1307,), (0.3081,))


@pytest.mark.parametrize(
    ("name", "shape"), [("synthetic", (28, 28)), ("synthetic-colour", (3, 32, 32))]
)
def test_made_up_splits_are_repeatable_apart_and_alike(name, shape):
    train, test = load_images(name), load_images(name, split="test")
    assert train.pixels.shape == (2048, *shape)
    assert test.pixels.shape == (512, *shape)
    assert np.array_equal(test.pixels, load_images(name, split="test").pixels)
    for images in (train, test):
        assert images.pixels.dtype == np.uint8
        assert images.labels.dtype == np.int64
        assert set(images.labels.tolist()) == set(range(10))
    assert not {p.tobytes() for p in train.pixels} & {p.tobytes() for p in test.pixels}
    flat = train.pixels.reshape(2048, -1).astype(float)
    means = np.stack([flat[train.labels == c].mean(0) for c in range(10)])
    gaps = ((test.pixels.reshape(512, 1, -1) - means) ** 2).sum(2)
    assert (gaps.argmin(1) == test.labels).mean() > 0.5  # by chance 0.1 ± 0.013
    if name == "synthetic-colour":
        assert not np.array_equal(train.pixels[:, 0], train.pixels[:, 1])


def test_names():
    assert set(DATASETS) == {"mnist", "cifar10", "synthetic", "synthetic-colour"}
    with pytest.raises(UsageError, match="data=cifar"):
        load_images("cifar")
    for name in DATASETS:
        with pytest.raises(UsageError, match="split=valid"):
            load_images(name, split="valid")
