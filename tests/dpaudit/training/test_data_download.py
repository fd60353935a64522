import gzip
import hashlib
import io
import multiprocessing
import socket
import struct
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.training.data import cifar10, fetch_file, find_file, load_images, mnist
from dpaudit.training.data.places import DownloadBar

pytest.importorskip("pooch")

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
                half = (
                    content[: len(content) // 2] if name in server.cut | server.stall else content
                )
                self.wfile.write(half)
                if name in server.stall:
                    server.released.wait(60)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def close(self):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.delenv("DPAUDIT_DATA", raising=False)
    monkeypatch.setenv("DPAUDIT_CACHE", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


def digest(content):
    return hashlib.sha256(content).hexdigest()


def files(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


def idx(array):
    raw = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    return gzip.compress(raw)


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
    assert files(cache) == ["here.bin"]


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
    url = {"dead host": dead_url(), "no url": "nowhere/"}.get(trouble, server.url) + (
        "b" if trouble == "404" else "a"
    )
    with pytest.raises(UsageError) as caught:
        fetch_file("weights/a.th", url=url, sha256=digest(BODY))
    for word in (url, "weights/a.th", digest(BODY), "by hand", "--data-root", "DPAUDIT_DATA"):
        assert word in str(caught.value)
    assert files(cache) == []
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
    assert files(cache)  # half of it, under another name
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
    pixels, labels = (
        rng.integers(0, 256, (5, 28, 28), np.uint8),
        np.array([3, 1, 4, 1, 5], np.uint8),
    )
    for prefix, n in (("train", 5), ("t10k", 2)):
        server.files[f"{prefix}-images-idx3-ubyte.gz"] = idx(pixels[:n])
        server.files[f"{prefix}-labels-idx1-ubyte.gz"] = idx(labels[:n])
    monkeypatch.setattr(mnist, "URL", server.url)
    monkeypatch.setattr(
        mnist, "SHA256", {name: digest(content) for name, content in server.files.items()}
    )
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


def test_cifar_is_fetched_as_one_archive(server, monkeypatch):
    content = io.BytesIO()
    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (6, 2, 3, 32, 32), np.uint8)
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for i, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
            raw = b"".join(bytes([i + k]) + pixels[i, k].tobytes() for k in range(2))
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    server.files["cifar.tar.gz"] = content.getvalue()
    monkeypatch.setattr(cifar10, "RECORDS", 2)
    monkeypatch.setattr(cifar10, "URL", f"{server.url}cifar.tar.gz")
    monkeypatch.setattr(cifar10, "SHA256", digest(content.getvalue()))
    train, test = load_images("cifar10"), load_images("cifar10", split="test")
    assert np.array_equal(train.pixels, pixels[:5].reshape(10, 3, 32, 32))
    assert train.labels.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert np.array_equal(test.pixels, pixels[5])
    assert server.asked == ["cifar.tar.gz"]


def test_the_addresses_are_the_official_ones():
    assert mnist.URL == "https://ossci-datasets.s3.amazonaws.com/mnist/"
    assert cifar10.URL == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert sorted(mnist.SHA256) == sorted(
        f"{prefix}-{what}-ubyte.gz"
        for prefix in ("train", "t10k")
        for what in ("images-idx3", "labels-idx1")
    )
    assert all(
        len(bytes.fromhex(sha256)) == 32 for sha256 in (cifar10.SHA256, *mnist.SHA256.values())
    )


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


def test_the_bar_counts_bytes():
    with DownloadBar("a") as bar:
        assert bar.total is None
        bar.total = 100
        bar.update(64)
        bar.update(64)
        bar.reset()
        assert bar.total == 100
    with DownloadBar("a") as bar:
        bar.total = 0  # a server that says no length
        assert bar.total is None
