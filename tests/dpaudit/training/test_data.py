"""Images: batches of them, made-up ones, files as published and broken, and downloads."""

import gzip
import hashlib
import io
import multiprocessing
import os
import pickle
import socket
import struct
import sys
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.training.data import (
    DATASETS,
    Images,
    cifar10,
    fetch_file,
    find_file,
    load_images,
    mnist,
)

_levels = np.arange(5 * 784, dtype=np.uint32).astype(np.uint8).reshape(5, 28, 28)
GREY = Images(_levels, np.arange(5), (0.1307,), (0.3081,))
_things = np.random.default_rng(3).integers(0, 256, (4, 3, 32, 32), np.uint8)
_spread = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COLOUR = Images(_things, np.array([9, 0, 3, 3]), *_spread)


@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_normalised_channel_by_channel(images, dtype):
    images.batch([3], dtype=dtype)[0].zero_()  # the bytes are left alone
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


def test_a_narrow_dtype_is_rounded_once_and_a_device_is_heeded():
    x, _ = COLOUR.batch(range(4), dtype=torch.bfloat16)
    assert torch.equal(x, COLOUR.batch(range(4))[0].to(torch.bfloat16))
    assert [t.device.type for t in COLOUR.batch([0, 1], device="meta")] == ["meta", "meta"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_every_device_has_the_same_bits(dtype):
    levels = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16).repeat(3, 1)
    every = Images(levels, np.zeros(1, np.int64), COLOUR.mean, COLOUR.std)
    there, _ = every.batch([0], dtype=dtype, device="cuda")
    assert torch.equal(there.cpu(), every.batch([0], dtype=dtype)[0])


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


@pytest.mark.slow
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
    with pytest.raises(UsageError, match="data=cifar"):
        load_images("cifar")
    for name in DATASETS:
        with pytest.raises(UsageError, match="split=valid"):
            load_images(name, split="valid")


REAL = os.environ.get("DPAUDIT_DATA", "")
RNG = np.random.default_rng(20)
DIGITS = RNG.integers(0, 256, (6, 28, 28), np.uint8), np.array([0, 9, 4, 4, 1, 7], np.uint8)
TINY = 7  # records in a .bin file here
THINGS = {
    name: (RNG.integers(0, 256, (TINY, 3, 32, 32), np.uint8), RNG.integers(0, 10, TINY, np.uint8))
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, nothing of the user's, and .bin files of a few records."""
    monkeypatch.delenv("DPAUDIT_DATA", raising=False)
    monkeypatch.setenv("DPAUDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar10, "RECORDS", TINY)
    return tmp_path / "cache"


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, *, pair=DIGITS, prefix="train", end=""):
    wrap = gzip.compress if end else bytes
    images, labels = (
        folder / f"{prefix}-{what}{end}" for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    images.write_bytes(wrap(idx(pair[0])))
    labels.write_bytes(wrap(idx(pair[1])))
    return images, labels


def binary(pair):
    """A .bin file: for each image its class and its red, green and blue planes, row by row."""
    out = bytearray()
    for pixels, label in zip(*pair, strict=True):
        out.append(int(label))
        for plane in pixels:
            for row in plane:
                out += bytes(row.tolist())
    return bytes(out)


def write_binary(folder, **contents):
    folder.mkdir(exist_ok=True)
    for name, pair in THINGS.items():
        (folder / f"{name}.bin").write_bytes(contents.get(name, binary(pair)))


def tar(path, files, *, kind=tarfile.REGTYPE):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind, "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))


def whole_tar():
    batches = reversed(THINGS.items())
    files = {f"cifar-10-batches-bin/{name}.bin": binary(pair) for name, pair in batches}
    return {"cifar-10-batches-bin/readme.html": b"no images", **files}


def same(images, pair):
    assert np.array_equal(images.pixels, pair[0])
    assert images.labels.tolist() == pair[1].tolist()
    assert (images.pixels.dtype, images.labels.dtype) == (np.uint8, np.int64)
    assert images.pixels.flags.writeable  # torch warns about sharing what it may not write
    return True


def things(split):
    names = ["test_batch"] if split == "test" else [f"data_batch_{i}" for i in range(1, 6)]
    return tuple(np.concatenate([THINGS[n][k] for n in names]) for k in (0, 1))


PIXELS, LABELS = things("train")


def refused(name, folder, says, *, split="train"):
    with pytest.raises(UsageError, match=says) as caught:
        load_images(name, root=str(folder), split=split)
    assert str(caught.value).startswith(f"data={name}: ")


@pytest.mark.parametrize("end", ["", ".gz"])
def test_mnist_from_idx(tmp_path, end):
    write_idx(tmp_path, end=end)
    other = DIGITS[0][:2] + np.uint8(1), DIGITS[1][:2]
    write_idx(tmp_path, pair=other, prefix="t10k", end=end)
    assert same(load_images("mnist", root=str(tmp_path)), DIGITS)
    assert same(load_images("mnist", root=str(tmp_path), split="test"), other)


def test_one_idx_file_may_be_compressed_and_the_other_not(tmp_path):
    images, labels = write_idx(tmp_path)
    write_idx(tmp_path, end=".gz")
    labels.unlink()
    images.with_name(f"{images.name}.gz").write_bytes(b"never read")
    assert same(load_images("mnist", root=str(tmp_path)), DIGITS)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "begins with nothing"),
        (b"\0\0\x08", "begins with 000008"),
        (b"<html>404</html>", "begins with 3c68746d"),
        (idx(DIGITS[0]).replace(b"\0\0\x08", b"\0\0\x0d", 1), "begins with 00000d03"),  # floats
        (idx(DIGITS[0])[:10], "ends within its header of 16 bytes"),
        (idx(DIGITS[0])[:-1], "says .6, 28, 28., 4704 values; it holds 4703"),
        (idx(DIGITS[0]) + b"\0", "it holds 4705"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, *3 * [2**32 - 1]), "it holds 0"),
        (struct.pack(">BBBB", 0, 0, 8, 255), "ends within its header"),
        (idx(DIGITS[0][:, :27]), "wanted uint8 .n, 28, 28."),
        (idx(DIGITS[0][:5]), "wanted"),
        (idx(DIGITS[1]), "wanted"),
        (idx(np.zeros((0, 28, 28), np.uint8)), "wanted"),
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_broken_idx(tmp_path, content, says, end):
    images, _ = write_idx(tmp_path, end=end)
    images.write_bytes(gzip.compress(content) if end else content)
    refused("mnist", tmp_path, says)


def test_broken_gzip(tmp_path):
    images, _ = write_idx(tmp_path, end=".gz")
    whole = images.read_bytes()
    turned = bytearray(whole)
    turned[len(whole) // 2] ^= 1
    for content in (idx(DIGITS[0]), whole[:-1], whole[:100], whole[:-8] + bytes(8), bytes(turned)):
        images.write_bytes(content)
        refused("mnist", tmp_path, "train-images-idx3-ubyte.gz cannot be read as mnist")


def test_wrong_classes(tmp_path):
    write_idx(tmp_path, pair=(DIGITS[0], DIGITS[1] + np.uint8(1)))
    refused("mnist", tmp_path, "train-labels-idx1-ubyte must .* it reaches 10")
    np.savez(tmp_path / "mnist.npz", x_train=DIGITS[0], y_train=DIGITS[1].astype(int) - 1)
    refused("mnist", tmp_path, "y_train must hold the classes 0 to 9, it reaches -1")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_comes_first_and_only_the_split_is_read(tmp_path, save):
    write_idx(tmp_path, pair=(DIGITS[0][::-1], DIGITS[1][::-1]))
    x, y = things("train")
    save(tmp_path / "mnist.npz", x_train=DIGITS[0], y_train=DIGITS[1])
    save(tmp_path / "cifar10.npz", x_train=x, y_train=y)
    for name in ("mnist", "cifar10"):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "a") as archive:
            archive.writestr("x_test.npy", b"rubbish")
    assert same(load_images("mnist", root=str(tmp_path)), DIGITS)
    assert same(load_images("cifar10", root=str(tmp_path)), (x, y))
    refused("mnist", tmp_path, "mnist.npz cannot be read as mnist", split="test")
    refused("cifar10", tmp_path, "cifar10.npz cannot be read as cifar10", split="test")


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x_train": DIGITS[0]}, "y_train"),
        ({"x_train": PIXELS.transpose(0, 2, 3, 1), "y_train": LABELS}, "wanted .*3, 32, 32"),
        ({"x_train": PIXELS / 255, "y_train": LABELS}, "float64 .*wanted"),
        ({"x_train": PIXELS, "y_train": LABELS[:, None]}, "wanted .*whole numbers"),
        ({"x_train": PIXELS, "y_train": LABELS + 0.0}, "wanted .*whole numbers"),
        ({"x_train": np.uint8(3), "y_train": np.uint8(3)}, "wanted"),
    ],
)
def test_an_npz_of_something_else(tmp_path, arrays, says):
    np.savez(tmp_path / "cifar10.npz", **arrays)
    refused("cifar10", tmp_path, says)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': (((",
        "'''abc",
        "  a\n b\n   c",
        f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({2**70},)}}",
        f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({2**50}, 28, 28)}}",
        "",
    ],
)
def test_headers_that_numpy_cannot_read(tmp_path, header):
    with zipfile.ZipFile(tmp_path / "mnist.npz", "w") as archive:
        for name in ("x_train", "y_train"):
            head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
            archive.writestr(f"{name}.npy", head + header.encode())
    refused("mnist", tmp_path, "cannot be read as mnist")


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(tmp_path):
    trap, path = Trap(tmp_path / "sprung"), tmp_path / "mnist.npz"
    objects = np.array([trap] * 6, object)
    np.savez(path, x_train=objects, y_train=DIGITS[1])
    refused("mnist", tmp_path, "dtype=.O")
    np.savez(path, x_train=DIGITS[0], y_train=objects)
    refused("mnist", tmp_path, "dtype=.O")
    for content in (pickle.dumps({"x_train": trap}), pickle.dumps(trap, protocol=0)):
        path.write_bytes(content)
        refused("mnist", tmp_path, "cannot be read")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x_train.npy", content)
        refused("mnist", tmp_path, "cannot be read")
    assert not (tmp_path / "sprung").exists()
    pickle.loads(pickle.dumps(trap))
    assert (tmp_path / "sprung").exists()  # it would have


@pytest.mark.slow
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_any_turned_or_missing_byte_of_an_npz_is_refused_or_harmless(tmp_path, save):
    path = tmp_path / "mnist.npz"
    save(path, x_train=DIGITS[0], y_train=DIGITS[1])
    whole, rng = path.read_bytes(), np.random.default_rng(5)
    wrong = 0
    for at in [*range(170), *rng.integers(170, len(whole), 80)]:
        broken = bytearray(whole)
        broken[at] ^= 1 << int(rng.integers(8))
        for content in (broken, whole[:at]):
            path.write_bytes(content)
            try:
                assert same(load_images("mnist", root=str(tmp_path)), DIGITS)
            except UsageError:
                wrong += 1
    assert wrong > 250  # every truncation, and the flips that matter


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "."])
def test_cifar_from_binary_files(tmp_path, split, place):
    write_binary(tmp_path / place)
    assert same(load_images("cifar10", root=str(tmp_path), split=split), things(split))


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar_from_the_archive(tmp_path, split):
    tar(tmp_path / "cifar-10-binary.tar.gz", whole_tar())
    assert same(load_images("cifar10", root=str(tmp_path), split=split), things(split))
    assert [p.name for p in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


def test_broken_binary_files(tmp_path):
    good = binary(THINGS["data_batch_4"])
    for content in (b"", good[:-1], good[:-3073], good + good[:3073]):
        write_binary(tmp_path, data_batch_4=content)
        refused("cifar10", tmp_path, f"data_batch_4.bin cannot be read .*{len(content)} bytes")
    write_binary(tmp_path, data_batch_4=b"\x0a" + good[1:])
    refused("cifar10", tmp_path, "it reaches 10")
    (tmp_path / "data_batch_4.bin").unlink()
    refused("cifar10", tmp_path, "has files of the set but no data_batch_4.bin")


def test_broken_archives(tmp_path):
    path, files = tmp_path / "cifar-10-binary.tar.gz", whole_tar()
    third = "cifar-10-batches-bin/data_batch_3.bin"
    tar(path, {name: content for name, content in files.items() if name != third})
    refused("cifar10", tmp_path, "it has no data_batch_3.bin")
    tar(path, {**files, third: files[third][:-3073]})
    refused("cifar10", tmp_path, f"{third} has {(TINY - 1) * 3073} bytes")
    tar(path, dict.fromkeys(files, b""), kind=tarfile.SYMTYPE)
    refused("cifar10", tmp_path, "it has no data_batch_1.bin, data_batch_2.bin")
    tar(path, files)
    whole, rng = path.read_bytes(), np.random.default_rng(6)
    for at in rng.integers(0, len(whole), 20):
        path.write_bytes(whole[:at])
        refused("cifar10", tmp_path, "cannot be read")
    for at in rng.integers(10, len(whole), 20):  # past gzip's header, whose date means nothing
        broken = bytearray(whole)
        broken[at] ^= 16
        path.write_bytes(broken)
        refused("cifar10", tmp_path, "cannot be read")
    for content in (b"", b"<html>", gzip.compress(b"no archive" * 100), pickle.dumps([1])):
        path.write_bytes(content)
        refused("cifar10", tmp_path, "cannot be read")


@pytest.mark.parametrize("via", ["root", "environment"])
def test_a_folder_without_the_files_names_them_and_downloads_nothing(tmp_path, monkeypatch, via):
    monkeypatch.setitem(sys.modules, "pooch", None)
    root = str(tmp_path) if via == "root" else ""
    # root comes first
    monkeypatch.setenv("DPAUDIT_DATA", "/not/there" if via == "root" else str(tmp_path))
    for name, split, wanted in (
        ("mnist", "train", "mnist.npz train-images-idx3-ubyte train-labels-idx1-ubyte .gz"),
        ("mnist", "test", "mnist.npz t10k-images-idx3-ubyte t10k-labels-idx1-ubyte .gz"),
        ("cifar10", "train", "cifar10.npz cifar-10-binary.tar.gz data_batch_1 data_batch_5.bin"),
        ("cifar10", "test", "cifar10.npz cifar-10-binary.tar.gz test_batch.bin"),
    ):
        with pytest.raises(UsageError) as caught:
            load_images(name, root=root, split=split)
        assert not isinstance(caught.value, MissingExtraError)
        for word in [*wanted.split(), str(tmp_path), "put", "DPAUDIT_DATA", "downloaded"]:
            assert word in str(caught.value)
    write_idx(tmp_path)[1].unlink()
    with pytest.raises(UsageError, match=r"nor train-labels-idx1-ubyte \(plain"):
        load_images("mnist", root=root)


def test_a_folder_that_is_none(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for name in (str(tmp_path / "gone"), str(tmp_path / "file"), "a\0b"):
        with pytest.raises(UsageError, match=r"data_root=.* is no folder"):
            load_images("mnist", root=name)
    monkeypatch.setenv("DPAUDIT_DATA", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match=r"DPAUDIT_DATA=.* is no folder"):
        load_images("cifar10")


def test_one_place_is_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_idx(tmp_path)
    assert same(load_images("mnist", root="~"), DIGITS)
    relative = "weights/net.th"
    assert find_file(relative) is None  # no cache yet
    places = [tmp_path / name for name in ("cache", "environment", "root")]
    for place in places:
        (place / "weights").mkdir(parents=True)
        (place / relative).touch()
    cache, environment, root = (place / relative for place in places)
    assert find_file(relative) == cache
    monkeypatch.setenv("DPAUDIT_DATA", str(environment.parents[1]))
    assert find_file(relative) == environment
    assert find_file(relative, root=str(root.parents[1])) == root
    root.unlink()
    assert find_file(relative, root=str(root.parents[1])) is None
    assert find_file("weights", root=str(root.parents[1])) is None  # a folder


PUBLISHED = {  # SHA-256 of the unpacked files
    "train-images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
def test_mnist_is_the_published_one(split, prefix):
    if not REAL or not find_file("mnist.npz", root=REAL):
        pytest.skip("needs MNIST under DPAUDIT_DATA")
    images = load_images("mnist", root=REAL, split=split)
    assert digest(idx(images.pixels)) == PUBLISHED[f"{prefix}-images"]
    assert digest(idx(images.labels.astype(np.uint8))) == PUBLISHED[f"{prefix}-labels"]


def test_cifar_is_the_published_one(monkeypatch):
    if not REAL or not find_file("cifar10.npz", root=REAL):
        pytest.skip("needs cifar10.npz under DPAUDIT_DATA")
    train, test = (load_images("cifar10", root=REAL, split=split) for split in ("train", "test"))
    for name, images, start in (
        ("data_batch_1", train, 0),
        ("data_batch_5", train, 40_000),
        ("test_batch", test, 0),
    ):
        part = slice(start, start + 10_000)
        classes = images.labels[part].astype(np.uint8)
        records = np.c_[classes, images.pixels[part].reshape(10_000, -1)]
        assert digest(records.tobytes()) == PUBLISHED[name]


BODY = bytes(range(256)) * 2000


class Server:
    """An HTTP server of ``files``; ``cut`` names one cut off half-way, ``stall`` one that hangs."""

    def __init__(self):
        self.files, self.asked, self.cut, self.stall = {}, [], set(), set()
        self.released = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.lstrip("/")
                server.asked.append(name)
                if name not in server.files:
                    self.send_error(404)
                    return
                content = server.files[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                whole = name not in server.cut | server.stall
                self.wfile.write(content if whole else content[: len(content) // 2])
                if name in server.stall:
                    server.released.wait(60)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("pooch")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.close()


def digest(content):
    return hashlib.sha256(content).hexdigest()


def files_in(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


def dead_url():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/"


def test_a_file_is_fetched_once(server, cache):
    server.files["there.bin"] = BODY

    def fetch():
        return fetch_file("weights/here.bin", url=f"{server.url}there.bin", sha256=digest(BODY))

    path = fetch()
    assert path == cache / "weights" / "here.bin" == find_file("weights/here.bin")
    assert path.read_bytes() == BODY
    assert fetch() == path
    assert server.asked == ["there.bin"]
    assert files_in(cache) == ["here.bin"]


def test_a_cached_file_that_changed_is_fetched_again_or_refused(server, cache):
    server.files["a"] = BODY
    url = f"{server.url}a"
    path = fetch_file("a", url=url, sha256=digest(BODY))
    path.write_bytes(BODY[:-1])
    assert fetch_file("a", url=url, sha256=digest(BODY)).read_bytes() == BODY
    path.write_bytes(BODY[:-1])
    with pytest.raises(UsageError, match="could not be fetched"):
        fetch_file("a", url=f"{dead_url()}a", sha256=digest(BODY))


@pytest.mark.parametrize("trouble", ["other content", "cut short", "404", "dead host", "no url"])
def test_a_download_that_fails_leaves_nothing(server, cache, trouble):
    server.files["a"] = BODY + b"!" if trouble == "other content" else BODY
    if trouble == "cut short":
        server.cut.add("a")
    url = {"dead host": dead_url(), "no url": "nowhere/"}.get(trouble, server.url)
    url += "b" if trouble == "404" else "a"
    with pytest.raises(UsageError) as caught:
        fetch_file("weights/a.th", url=url, sha256=digest(BODY))
    for word in (url, "weights/a.th", digest(BODY), "by hand", "--data-root", "DPAUDIT_DATA"):
        assert word in str(caught.value)
    assert files_in(cache) == []
    assert find_file("weights/a.th") is None


def test_a_download_that_is_killed_half_way_is_never_trusted(server, cache):
    server.files["a"] = BODY
    server.stall.add("a")
    whole = {"url": f"{server.url}a", "sha256": digest(BODY)}
    child = multiprocessing.get_context("fork").Process(
        target=fetch_file, args=("a",), kwargs=whole, daemon=True
    )
    child.start()
    until = time.monotonic() + 100
    while not any(path.stat().st_size for path in cache.glob("*")):
        assert time.monotonic() < until
        assert child.is_alive()
        time.sleep(0.05)
    child.kill()
    child.join()
    assert files_in(cache)  # half of it, under another name
    assert find_file("a") is None
    server.stall.clear()
    assert fetch_file("a", url=f"{server.url}a", sha256=digest(BODY)).read_bytes() == BODY


def test_a_cache_that_cannot_be_written(server, cache):
    server.files["a"] = BODY
    cache.write_bytes(b"a file where the folder should be")
    with pytest.raises(UsageError, match="could not be fetched"):
        fetch_file("a", url=f"{server.url}a", sha256=digest(BODY))


def test_mnist_is_fetched_split_by_split(server, cache, monkeypatch):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (5, 28, 28), np.uint8)
    labels = np.array([3, 1, 4, 1, 5], np.uint8)
    for prefix, n in (("train", 5), ("t10k", 2)):
        server.files[f"{prefix}-images-idx3-ubyte.gz"] = gzip.compress(idx(pixels[:n]))
        server.files[f"{prefix}-labels-idx1-ubyte.gz"] = gzip.compress(idx(labels[:n]))
    monkeypatch.setattr(mnist, "URL", server.url)
    digests = {name: digest(content) for name, content in server.files.items()}
    monkeypatch.setattr(mnist, "SHA256", digests)
    for _ in range(2):
        images = load_images("mnist")
        assert np.array_equal(images.pixels, pixels)
        assert images.labels.tolist() == [3, 1, 4, 1, 5]
        assert server.asked == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
    assert len(load_images("mnist", split="test")) == 2
    monkeypatch.setattr(mnist, "URL", dead_url())
    assert np.array_equal(load_images("mnist").pixels, pixels)
    # the cache is a folder like another
    assert np.array_equal(load_images("mnist", root=str(cache)).pixels, pixels)


def test_cifar_is_fetched_as_one_archive(server, monkeypatch, tmp_path):
    tar(tmp_path / "whole", whole_tar())
    content = (tmp_path / "whole").read_bytes()
    server.files["cifar.tar.gz"] = content
    monkeypatch.setattr(cifar10, "URL", f"{server.url}cifar.tar.gz")
    monkeypatch.setattr(cifar10, "SHA256", digest(content))
    for split in ("train", "test"):
        assert same(load_images("cifar10", split=split), things(split))
    assert server.asked == ["cifar.tar.gz"]


def test_without_pooch(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dpaudit\[opacus\]'.*--data-root"):
        load_images("mnist")
    cache.mkdir()
    (cache / "a").touch()
    assert find_file("a") == cache / "a"
    monkeypatch.delenv("DPAUDIT_CACHE")
    with pytest.raises(MissingExtraError):
        find_file("a")


def test_the_users_cache_is_the_default(cache, monkeypatch):
    monkeypatch.delenv("DPAUDIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    (cache / "dpaudit").mkdir(parents=True)
    (cache / "dpaudit" / "a").touch()
    assert find_file("a") == cache / "dpaudit" / "a"


@pytest.mark.parametrize("terminal", ["0", "1"])
def test_a_bar_is_drawn_on_a_terminal_only(server, monkeypatch, capsys, terminal):
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    monkeypatch.setenv("TERM", "xterm")
    server.files["there"] = BODY
    fetch_file("here.bin", url=f"{server.url}there", sha256=digest(BODY))
    out, err = capsys.readouterr()
    assert out == ""
    assert ("\x1b[" in err and "512.0/512.0 kB" in err) == (terminal == "1")
