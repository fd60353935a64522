"""Vectors in frames: bit-exact, and every deviation is refused with its reason."""

from __future__ import annotations

import base64
import hashlib
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
    options = {"kind": "noise", "session": SESSION, "count": 1000, "dtype": "float32"}
    return read_vector(iter(given), **(options | {"bound": 10.0, "chunk": 100} | changes))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 99, 100, 101, 1000])
def test_there_and_back_bit_for_bit(dtype, count):
    x = np.frombuffer(np.random.default_rng(1).bytes(count * 8), dtype=np.dtype(dtype))[:count]
    x = np.where(np.isfinite(x), x, 0).astype(dtype)
    y = read(frames(x), dtype=dtype, count=count, bound=None)
    assert y.dtype == np.dtype(dtype)
    assert y.tobytes() == x.tobytes()
    assert y.flags.writeable


def test_strided_and_read_only_arrays_are_sent_and_what_follows_is_left_in_the_iterator():
    assert np.array_equal(read(frames(np.repeat(X, 2)[::2])), X)
    frozen = X.copy()
    frozen.setflags(write=False)
    source = iter([*frames(frozen), b"next"])
    assert np.array_equal(read(source), X)
    assert list(source) == [b"next"]


def test_what_is_sent_is_a_line_of_json_and_little_endian():
    split = [f.split(b"\n", 1) for f in frames(X[:150].astype(">f4"))]
    sent = [msgspec.json.decode(line) | {"rest": rest} for line, rest in split]
    assert [s["part"] for s in sent] == ["head", "body", "body", "end"]
    assert (sent[0]["count"], sent[0]["dtype"], sent[0]["chunk"]) == (150, "float32", 100)
    assert b"".join(s["rest"] for s in sent[1:3]) == X[:150].astype("<f4").tobytes()
    assert sent[3]["rest"] == hashlib.sha256(frames(X[:150])[0] + X[:150].tobytes()).digest()
    session = base64.b64encode(SESSION).decode()
    assert all({s["kind"], s["session"]} == {"noise", session} for s in sent)


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


F = frames()
OTHER = frames(X + np.float32(1))
DEVIATIONS = [
    ([], "cut short: 0 of 12"),
    (F[:-1], "cut short: 11 of 12"),
    (F[1:], "frame 0: not the head"),
    (F[:4] + F[5:], "frame 4: out of order or repeated"),
    (F[:4] + F[3:], "frame 4: out of order or repeated"),
    ([*F[:2], F[7], *F[3:7], F[2], *F[8:]], "frame 2: out of order"),
    (F[:5] + F[-1:], "frame 5: not the body"),
    (F[:-1] + F[1:2], "frame 11: not the end"),
    (frames(session=b"session-of-other"), "frame 0: of another session"),
    (F[:3] + frames(session=b"x")[3:4] + F[4:], "frame 3: of another session"),
    (frames(kind="answer"), "frame 0: of another kind"),
    (frames(X[:999]), "frame 0: another count"),
    (frames(X.astype(np.float64)), "frame 0: another dtype"),
    (frames(X.astype(np.int32)), "frame 0: another dtype"),
    (frames(chunk=50), "frame 0: another chunk"),
    (F[:3] + OTHER[3:4] + F[4:], "digest"),
    (F[:-1] + OTHER[-1:], "digest"),
    *(([*F[:3], bad, *F[4:]], "frame 3: too") for bad in (F[3][:-1], F[3] + b"x")),
    *(([*F[:3], bad, *F[4:]], "frame 3: not a frame") for bad in (F[3][:9], b"")),
    ([*F[:3], "text", *F[4:]], "not bytes"),
    ([b"[" * 4000], "frame 0: not a frame"),
]


@pytest.mark.parametrize(("given", "says"), DEVIATIONS)
def test_deviations(given, says):
    assert np.array_equal(read(F), X)
    with pytest.raises(MessageError, match=says):
        read(given)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("at", "bound"), [(0, 10.0), (550, None), (999, None)])
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


def test_nothing_is_allocated_by_a_peers_word():
    huge = msgspec.json.encode(msgspec.json.decode(F[0]) | {"count": 1 << 40}) + b"\n"
    claims = F[1] + F[1][-400:]
    # a vector of ours is only allocated once its head has come
    ours = {"count": 1 << 32, "dtype": "float64", "bound": None}
    for given, options in (([huge], {}), ([F[0], claims], {}), ([huge], ours)):
        tracemalloc.start()
        try:
            with pytest.raises(MessageError):
                read(given, **options)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20


def test_usage_errors():
    for change in [
        {"dtype": "object"}, {"dtype": "complex64"}, {"count": 0}, {"count": 1 << 33},
        {"bound": -1.0}, {"bound": float("nan")}, {"session": b""}, {"session": b"x" * 65},
        {"chunk": 0}, {"chunk": 1 << 21},
    ]:  # fmt: skip
        with pytest.raises(UsageError):
            read(F, **change)
    for array in (np.zeros((2, 2)), np.zeros(0), np.zeros(3, complex), np.array(["a"])):
        with pytest.raises(UsageError):
            vector_frames("noise", array, session=SESSION)


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
