"""Keyed streams: known answers from the primitives, the tree of children, and their output."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import itertools

import numpy as np
import pytest
import scipy.stats
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream

KEY = bytes(range(32))


def hkdf_expand(key: bytes, info: bytes) -> bytes:
    """One block of RFC 5869's expand step, by hand."""
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def chacha(key: bytes, n: int) -> bytes:
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(n))


def test_known_answers_for_bytes_a_seed_and_a_child():
    """The first is RFC 8439, A.1, vector 1: what follows is compared with ChaCha20, not itself."""
    assert chacha(bytes(32), 16).hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    assert KeyedStream(KEY).bytes(100) == chacha(hkdf_expand(KEY, b"bytes"), 100)
    root = hkdf_expand(hmac.new(b"dpaudit seed", b"7", hashlib.sha256).digest(), b"root")
    assert KeyedStream.from_seed(7).bytes(32) == KeyedStream(root).bytes(32)
    info = b"child" + (8).to_bytes(4, "big") + b"str:cell" + (5).to_bytes(4, "big") + b"int:3"
    child = KeyedStream(KEY).child("cell", 3)
    assert child.bytes(32) == KeyedStream(hkdf_expand(KEY, info)).bytes(32)


def test_frozen_numbers():
    """Results carry seeds: these digits may never change between versions."""
    root = KeyedStream.from_seed(1)
    assert root.bytes(8).hex() == KeyedStream.from_seed("1").bytes(8).hex()
    assert root.child("a", 2).bytes(8).hex() == "1d0caed228455224"
    assert int(root.numpy().integers(2**62)) == 1855529536537480623


def test_keys_are_32_bytes_not_shown_and_fresh_or_by_seed():
    for n in (0, 31, 33):
        with pytest.raises(UsageError, match=f"key of {n} bytes"):
            KeyedStream(bytes(n))
    assert "KKKK" not in repr(KeyedStream(b"K" * 32))
    assert (b"K" * 32).hex() not in repr(KeyedStream(b"K" * 32))
    streams = [KeyedStream.fresh() for _ in range(50)]
    streams += [KeyedStream.from_seed(s) for s in (0, 1, -1, 2**70, "x", "", "01")]
    assert len({stream.bytes(16) for stream in streams}) == 57


# ---------------------------------------------------------------- the tree

label = st.text(max_size=6) | st.integers(-1000, 10**12)
labels = st.lists(label, max_size=4)


@given(labels, labels)
def test_children_are_the_same_only_for_the_same_labels_whatever_the_parent_did(a, b):
    used = KeyedStream(KEY)
    used.bytes(1000)
    used.numpy().random(10)
    same = KeyedStream(KEY).child(*a).bytes(16) == used.child(*b).bytes(16)
    assert same == (a == b)
    assert KeyedStream(KEY).numpy().random() == used.numpy().random()


def test_labels_are_unambiguous():
    root = KeyedStream(KEY)
    paths = [(), ("",), ("", ""), ("a", "b"), ("ab",), ("b", "a"), ("a",), ("numpy",), ("bytes",)]
    paths += [(1,), ("1",), (11,), (1, 1), ("int:1",), (-1,), ("a\x00\x00\x00\x05str:b",)]
    streams = [root.child(*p).bytes(16) for p in paths]
    streams += [root.child("a").child("b").bytes(16), KeyedStream(KEY).bytes(16)]
    assert len(set(streams)) == len(streams)


def test_a_numpy_integer_is_the_same_label_as_pythons():
    """A loop over an array must not open other streams than a loop over a range."""
    first = KeyedStream(KEY).child("cell", 3).bytes(16)
    for kind in (np.int64, np.uint8, np.int32):
        assert KeyedStream(KEY).child("cell", kind(3)).bytes(16) == first


# ---------------------------------------------------------------- what comes out


@given(st.lists(st.integers(0, 200), max_size=8))
def test_reads_in_pieces_are_one_long_read(sizes):
    stream = KeyedStream(KEY)
    assert b"".join(stream.bytes(n) for n in sizes) == KeyedStream(KEY).bytes(sum(sizes))


def test_bytes_look_uniform():
    counts = np.bincount(np.frombuffer(KeyedStream(KEY).bytes(1 << 20), np.uint8), minlength=256)
    assert 1e-4 < scipy.stats.chisquare(counts).pvalue < 1 - 1e-4


@pytest.mark.slow
def test_uniform_is_uniform_and_its_check_can_fail():
    u = KeyedStream(KEY).uniform(200_000)
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(u**1.02, "uniform").pvalue < 1e-4
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / np.sqrt(len(u))


def test_uniform_reads_eight_bytes_a_number():
    stream, twin = KeyedStream(KEY), KeyedStream(KEY)
    u = stream.uniform(5)
    words = [int.from_bytes(twin.bytes(8), "little") for _ in range(5)]
    assert u == pytest.approx([w / 2**64 for w in words], abs=2**-51)
    assert stream.bytes(8) == twin.bytes(8)


@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"\x7f", b"\x80"])
def test_uniform_stays_inside_the_open_interval_at_its_extremes(monkeypatch, fill):
    """Φ⁻¹ of 0 or 1 is infinite; the all-ones word must not round up to 1."""
    monkeypatch.setattr(KeyedStream, "bytes", lambda self, n: fill * n)
    (u,) = KeyedStream(KEY).uniform(1)
    assert 0.0 < u < 1.0
    assert u * 2**53 % 2 == 1  # an odd multiple of 2^-53, as the docstring says
    assert abs(u - int.from_bytes(fill * 8, "little") / 2**64) <= 2**-53


def test_sibling_generators_are_uncorrelated():
    root = KeyedStream(KEY)
    rows = np.array([root.child("row", i).numpy().standard_normal(20_000) for i in range(8)])
    assert np.array_equal(rows[0], root.child("row", 0).numpy().standard_normal(20_000))
    for a, b in itertools.combinations(rows, 2):
        assert abs(a @ b) / len(a) < 5 / np.sqrt(len(a))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is an extra")
def test_torch_on_the_cpu_is_refused():
    import torch

    with pytest.raises(UsageError, match="device=cpu"):
        KeyedStream(KEY).torch(torch.device("cpu"))


@pytest.mark.gpu
def test_torch_on_cuda_repeats():
    import torch

    device = torch.device("cuda")
    draws = [
        torch.randn(8, device=device, generator=KeyedStream(KEY).torch(device)) for _ in range(2)
    ]
    assert torch.equal(*draws)
