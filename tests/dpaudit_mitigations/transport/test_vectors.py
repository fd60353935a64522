"""Vectors in frames: bit-exact, and every deviation is refused with its reason."""

from __future__ import annotations

import hashlib
import random
import tracemalloc

import msgspec
import numpy as np
import pytest

from dpaudit.errors import MessageError, UsageError
from dpaudit_mitigations.transport.vectors import DTYPES, VectorReader, read_vector, vector_frames

SESSION = b"session-of-tests"
X = np.random.default_rng(5).standard_normal(1000).astype(np.float32)


def frames(array=X, *, kind="noise", session=SESSION, chunk=100):
    return list(vector_frames(kind, array, session=session, chunk=chunk))


def read(given, **changes):
    options = {
        "kind": "noise",
        "session": SESSION,
        "count": 1000,
        "dtype": "float32",
        "bound": 10.0,
        "chunk": 100,
    }
    return read_vector(iter(given), **(options | changes))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 99, 100, 101, 1000])
def test_there_and_back_bit_for_bit(dtype, count):
    x = np.frombuffer(np.random.default_rng(1).bytes(count * 8), dtype=np.dtype(dtype))[:count]
    x = np.where(np.isfinite(x), x, 0).astype(dtype)
    y = read(frames(x), dtype=dtype, count=count, bound=None)
    assert y.dtype == np.dtype(dtype)
    assert y.tobytes() == x.tobytes()
    assert y.flags.writeable


def test_what_is_sent_is_msgpack_and_little_endian():
    sent = [msgspec.msgpack.decode(f) for f in frames(X[:150].astype(">f4"))]
    assert [s["part"] for s in sent] == ["head", "body", "body", "end"]
    assert (sent[0]["count"], sent[0]["dtype"], sent[0]["chunk"]) == (150, "float32", 100)
    assert b"".join(s["values"] for s in sent[1:3]) == X[:150].astype("<f4").tobytes()
    assert sent[3]["sha256"] == hashlib.sha256(frames(X[:150])[0] + X[:150].tobytes()).digest()
    assert all({s["kind"], s["session"]} == {"noise", SESSION} for s in sent)


def test_what_follows_is_left_in_the_iterator():
    source = iter([*frames(), b"next"])
    assert np.array_equal(
        read_vector(
            source, kind="noise", session=SESSION, count=1000, dtype="float32", bound=9, chunk=100
        ),
        X,
    )
    assert list(source) == [b"next"]


def test_strided_and_read_only_arrays_are_sent():
    assert np.array_equal(read(frames(np.repeat(X, 2)[::2])), X)
    frozen = X.copy()
    frozen.setflags(write=False)
    assert np.array_equal(read(frames(frozen)), X)


def test_the_reader_says_its_digest():
    reader = VectorReader(
        kind="noise", session=SESSION, count=1000, dtype="float32", bound=None, chunk=100
    )
    with pytest.raises(MessageError, match="cut short: 0 of 12"):
        _ = reader.array
    for frame in frames():
        reader.take(frame)
    assert reader.done
    assert reader.digest == hashlib.sha256(frames()[0] + X.tobytes()).digest()
    with pytest.raises(MessageError, match="after the last"):
        reader.take(b"")


def swapped(f, i, j):
    g = list(f)
    g[i], g[j] = g[j], g[i]
    return g


F = frames()
OTHER = frames(X + np.float32(1))
DEVIATIONS = {
    "no frame": ([], "cut short: 0 of 12"),
    "no end": (F[:-1], "cut short: 11 of 12"),
    "no head": (F[1:], "frame 0: not the head"),
    "a frame missing": (F[:4] + F[5:], "frame 4: out of order or repeated"),
    "a frame twice": (F[:4] + F[3:], "frame 4: out of order or repeated"),
    "two exchanged": (swapped(F, 2, 7), "frame 2: out of order"),
    "an early end": (F[:5] + F[-1:], "frame 5: not the body"),
    "one too many": (F[:-1] + F[1:2], "frame 11: not the end"),
    "another session": (frames(session=b"session-of-other"), "frame 0: of another session"),
    "a frame of another session": (
        F[:3] + frames(session=b"x")[3:4] + F[4:],
        "frame 3: of another session",
    ),
    "another kind": (frames(kind="answer"), "frame 0: of another kind"),
    "another count": (frames(X[:999]), "frame 0: another count"),
    "another type": (frames(X.astype(np.float64)), "frame 0: another dtype"),
    "an integer type": (frames(X.astype(np.int32)), "frame 0: another dtype"),
    "other chunks": (frames(chunk=50), "frame 0: another chunk"),
    "values of another vector": (F[:3] + OTHER[3:4] + F[4:], "digest"),
    "the end of another": (F[:-1] + OTHER[-1:], "digest"),
    "a frame cut": ([*F[:3], F[3][:-1], *F[4:]], "frame 3: not a frame"),
    "a frame longer": ([*F[:3], F[3] + b"x", *F[4:]], "frame 3: not a frame"),
    "an empty frame": ([*F[:3], b"", *F[4:]], "frame 3: not a frame"),
    "no bytes": ([*F[:3], "text", *F[4:]], "frame 3: .*not bytes|a frame that is not bytes"),
    "garbage": ([b"\xdd\xff\xff\xff\xff" * 9], "frame 0: not a frame"),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviations(name):
    given, says = DEVIATIONS[name]
    assert np.array_equal(read(F), X)
    with pytest.raises(MessageError, match=says):
        read(given)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("at", [0, 550, 999])
@pytest.mark.parametrize("bound", [10.0, None])
def test_values_that_are_not_finite(value, dtype, at, bound):
    x = X.astype(dtype)
    x[at] = value
    with pytest.raises(MessageError, match=f"frame {at // 100 + 1}: a value that is not finite"):
        read(frames(x), dtype=dtype, bound=bound)


@pytest.mark.filterwarnings("error")
def test_a_signalling_nan_is_refused_quietly():
    x = X.copy()
    x.view(np.uint32)[7] = 0x7F800001
    with pytest.raises(MessageError, match="not finite"):
        read(frames(x))


@pytest.mark.parametrize(
    ("dtype", "bound", "good", "bad"),
    [
        ("float32", 10.0, [10.0, -10.0], [np.nextafter(np.float32(10), np.float32(11)), -10.1]),
        ("int64", 5, [5, -5], [6, -6, -(2**63), 2**63 - 1]),
        ("uint64", 2**63, [2**63, 0], [2**63 + 1, 2**64 - 1]),
        ("int8", 127, [127, -127], [-128]),
    ],
)
def test_the_bound(dtype, bound, good, bad):
    for values, holds in ((good, True), *(([b], False) for b in bad)):
        x = np.zeros(1000, dtype=dtype)
        x[500 : 500 + len(values)] = values
        if holds:
            assert np.array_equal(read(frames(x), dtype=dtype, bound=bound), x)
        else:
            with pytest.raises(MessageError, match="beyond the bound"):
                read(frames(x), dtype=dtype, bound=bound)


def test_nothing_is_allocated_by_a_peers_word():
    def peak(given):
        tracemalloc.start()
        try:
            with pytest.raises(MessageError):
                read(given)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    huge = msgspec.msgpack.encode(
        {
            "kind": "noise",
            "chunk": 100,
            "count": 1 << 40,
            "dtype": "float32",
            "part": "head",
            "session": SESSION,
        }
    )
    assert peak([huge]) < 1 << 20
    claims = F[1][: F[1].index(b"values") + 6] + b"\xc6\xff\xff\xff\xff" + F[1][-400:]
    assert peak([F[0], claims]) < 1 << 20
    with pytest.raises(MessageError):  # a vector of ours is only allocated once its head has come
        read_vector(
            iter([huge]), kind="noise", session=SESSION, count=1 << 32, dtype="float64", bound=None
        )


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "object"},
        {"dtype": "complex64"},
        {"count": 0},
        {"count": 1 << 33},
        {"bound": -1.0},
        {"bound": float("nan")},
        {"session": b""},
        {"session": b"x" * 65},
        {"chunk": 0},
        {"chunk": 1 << 21},
    ],
)
def test_usage_errors_of_a_reader(change):
    with pytest.raises(UsageError):
        read(F, **change)


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 2), np.float32), np.zeros(0, np.float32), np.zeros(3, complex), np.array(["a"])],
)
def test_usage_errors_of_a_sender(array):
    with pytest.raises(UsageError):
        vector_frames("noise", array, session=SESSION)


def test_mutated_streams():
    """4,000 mutations of frames and of their order: the vector itself, or a MessageError."""
    rng = random.Random(20240602)
    held = 0
    for _ in range(4000):
        given = list(F)
        for _ in range(rng.choice((1, 1, 2))):
            mutate(given, rng)
        try:
            assert np.array_equal(read(given), X)
            held += 1
        except MessageError:
            pass
    assert held < 800  # an exchange of a frame with itself, a frame after the end


def mutate(given, rng):
    if not given:
        given.append(b"")
    i, j = rng.randrange(len(given)), rng.randrange(len(given))
    frame = bytearray(given[i])
    at = rng.randrange(len(frame) + 1)
    match rng.randrange(8):
        case 0:
            del given[i]
        case 1:
            given.insert(j, given[i])
        case 2:
            given[i], given[j] = given[j], given[i]
        case 3:
            given.insert(i, rng.randbytes(rng.choice((0, 1, 50))))
        case 4 if at < len(frame):
            frame[at] ^= 1 << rng.randrange(8)
            given[i] = bytes(frame)
        case 5:
            given[i] = bytes(frame[:at])
        case 6:
            given[i] = bytes(frame[:at] + rng.randbytes(3) + frame[at:])
        case 7:
            del given[i:]


def test_without_keeping_the_values_come_frame_by_frame_under_the_same_rules():
    x = np.arange(-3, 7, dtype=np.int32)
    options = {"kind": "v", "session": b"s", "count": 10, "dtype": "int32", "bound": 6, "chunk": 4}
    reader = VectorReader(**options, keep=False)
    frames = list(vector_frames("v", x, session=b"s", chunk=4))
    assert [reader.take(frame).tolist() for frame in frames] == [
        [],
        [-3, -2, -1, 0],
        [1, 2, 3, 4],
        [5, 6],
        [],
    ]
    assert (reader.done, reader.digest) == (True, frames[-1][-32:])
    with pytest.raises(UsageError, match="keep=False"):
        _ = reader.array
    strict = VectorReader(**options | {"bound": 5}, keep=False)
    for frame in frames[:3]:
        strict.take(frame)
    with pytest.raises(MessageError, match="beyond the bound"):
        strict.take(frames[3])
