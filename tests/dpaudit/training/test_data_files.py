import gzip
import hashlib
import io
import os
import pickle
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.training.data import cifar10, find_file, load_images

REAL = os.environ.get("DPAUDIT_DATA", "")
RNG = np.random.default_rng(20)
DIGITS = RNG.integers(0, 256, (6, 28, 28), np.uint8), np.array([0, 9, 4, 4, 1, 7], np.uint8)
TINY = 7  # records in a .bin file here
THINGS = {
    name: (RNG.integers(0, 256, (TINY, 3, 32, 32), np.uint8), RNG.integers(0, 10, TINY, np.uint8))
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
}


@pytest.fixture(autouse=True)
def nothing_of_the_users(tmp_path, monkeypatch):
    monkeypatch.delenv("DPAUDIT_DATA", raising=False)
    monkeypatch.setenv("DPAUDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar10, "RECORDS", TINY)


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
    return {
        "cifar-10-batches-bin/readme.html": b"no images",
        **{
            f"cifar-10-batches-bin/{name}.bin": binary(pair)
            for name, pair in reversed(THINGS.items())
        },
    }


def same(images, pair):
    assert np.array_equal(images.pixels, pair[0])
    assert images.labels.tolist() == pair[1].tolist()
    assert (images.pixels.dtype, images.labels.dtype) == (np.uint8, np.int64)
    assert images.pixels.flags.writeable  # torch warns about sharing what it may not write
    return True


def things(split):
    names = ["test_batch"] if split == "test" else [f"data_batch_{i}" for i in range(1, 6)]
    return tuple(np.concatenate([THINGS[n][k] for n in names]) for k in (0, 1))


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
    refused(
        "mnist", tmp_path, "train-labels-idx1-ubyte must hold the classes 0 to 9, it reaches 10"
    )
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
        (
            {"x_train": things("train")[0].transpose(0, 2, 3, 1), "y_train": things("train")[1]},
            "wanted .*3, 32, 32",
        ),
        ({"x_train": things("train")[0] / 255, "y_train": things("train")[1]}, "float64 .*wanted"),
        (
            {"x_train": things("train")[0], "y_train": things("train")[1][:, None]},
            "wanted .*whole numbers",
        ),
        (
            {"x_train": things("train")[0], "y_train": things("train")[1] + 0.0},
            "wanted .*whole numbers",
        ),
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
            archive.writestr(
                f"{name}.npy",
                b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode(),
            )
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
        refused(
            "cifar10",
            tmp_path,
            f"data_batch_4.bin cannot be read .*{len(content)} bytes, not {TINY * 3073}",
        )
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
        (
            "cifar10",
            "train",
            "cifar10.npz cifar-10-binary.tar.gz data_batch_1.bin data_batch_5.bin",
        ),
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


def test_a_tilde_is_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_idx(tmp_path)
    assert same(load_images("mnist", root="~"), DIGITS)


PUBLISHED = {  # SHA-256 of the unpacked files
    "train-images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def fingerprint(content):
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
def test_mnist_is_the_published_one(split, prefix):
    if not REAL or not find_file("mnist.npz", root=REAL):
        pytest.skip("needs MNIST under DPAUDIT_DATA")
    images = load_images("mnist", root=REAL, split=split)
    assert fingerprint(idx(images.pixels)) == PUBLISHED[f"{prefix}-images"]
    assert fingerprint(idx(images.labels.astype(np.uint8))) == PUBLISHED[f"{prefix}-labels"]


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
        records = np.c_[
            images.labels[part].astype(np.uint8), images.pixels[part].reshape(10_000, -1)
        ]
        assert fingerprint(records.tobytes()) == PUBLISHED[name]
