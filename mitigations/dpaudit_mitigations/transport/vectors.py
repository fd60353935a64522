"""Vectors in numbered frames of about a mebibyte, checked and hashed as they stream in.

``head`` (type, count and values per frame), the numbered ``body`` frames, ``end`` (SHA-256 over the
head frame and every value): a line of JSON each, then the bytes. Each line names the protocol's
kind and the session. The encoding is canonical and the reader knows everything but the values
beforehand, so it compares each frame's first bytes with those it expects and takes the rest as
values, in place: nothing is parsed, and no size from a peer is allocated. The digest finds
accidents and mix-ups; TLS protects against changes in transit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dpaudit.errors import MessageError, UsageError

__all__ = ["DTYPES", "MOST_VALUES", "VectorReader", "read_vector", "vector_frames"]

CHUNK = 1 << 18
"""Values per frame by default; the reader accepts only what it expects itself."""
MOST_VALUES = 1 << 32
"""Values of a vector, at most."""
DTYPES = (
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
"""The values' types; little-endian on the wire."""
_LARGEST_FRAME = (4 << 20) - (1 << 10)
_LONGEST_SESSION = 64
_LONGEST_LINE = 1 << 9


def vector_frames(
    kind: str, array: npt.NDArray[Any], *, session: bytes, chunk: int = CHUNK
) -> Iterator[bytes]:
    """The frames of a one-dimensional ``array``, made on demand with one copy of the values.

    Raises:
        UsageError: not a vector of one of ``DTYPES``, a session that is not 1 to 64 bytes, or a
            chunk that does not fit.
    """
    name = array.dtype.name
    if array.ndim != 1 or name not in DTYPES:
        raise UsageError(
            f"vector {kind}: {name} {array.shape}; must be a vector of one of {', '.join(DTYPES)}"
        )
    layout = _Layout(kind, session, array.size, name, chunk)
    return _frames(layout, np.ascontiguousarray(array, dtype=layout.wire))


def read_vector(
    frames: Iterable[bytes],
    *,
    kind: str,
    session: bytes,
    count: int,
    dtype: str,
    bound: float | None,
    chunk: int = CHUNK,
) -> npt.NDArray[Any]:
    """The vector of ``count`` values of ``dtype`` in ``frames``, all finite.

    Each |x| ≤ ``bound`` unless that is None. Takes exactly the vector's frames from an iterator and
    leaves the rest. ``count``, ``dtype`` and ``chunk`` are what this side expects; a peer's are
    compared with them, never used.

    Raises:
        MessageError: anything but the frames of such a vector of this kind and session, in order,
            each once.
        UsageError: ``count``, ``dtype``, ``bound``, ``session`` or ``chunk`` is not one that a
            vector can have.
    """
    reader = VectorReader(
        kind=kind, session=session, count=count, dtype=dtype, bound=bound, chunk=chunk
    )
    for _ in reader.parts(iter(frames)):
        pass
    return reader.array


class VectorReader:
    """Takes a vector frame by frame; see :func:`read_vector`.

    ``array`` and ``digest`` are valid once ``done`` is true. With ``keep=False`` there is no array:
    who uses each frame's values at once needs no memory for all.
    """

    def __init__(
        self,
        *,
        kind: str,
        session: bytes,
        count: int,
        dtype: str,
        bound: float | None,
        chunk: int = CHUNK,
        keep: bool = True,
    ) -> None:
        self._keep = keep
        self._layout = _Layout(kind, session, count, dtype, chunk)
        if bound is not None and not bound >= 0:
            raise UsageError(f"bound={bound}: must be at least 0, or None for no bound")
        self._bound = bound
        self._array: npt.NDArray[Any] = np.empty(0, dtype=self._layout.wire)
        self._hash = hashlib.sha256()
        self.taken = 0
        self.expected = self._layout.chunks + 2
        self.digest = b""

    @property
    def done(self) -> bool:
        """Whether the last frame has been taken."""
        return self.taken == self.expected

    @property
    def array(self) -> npt.NDArray[Any]:
        """The vector, once it is whole.

        Raises:
            MessageError: it is not.
            UsageError: it was not kept.
        """
        if not self._keep:
            raise UsageError(f"vector {self._layout.kind}: keep=False keeps no array; use take")
        if not self.done:
            raise self._cut_short()
        return self._array

    def parts(self, frames: Iterator[bytes]) -> Iterator[npt.NDArray[Any]]:
        """The values of each body frame, as a view; takes the vector's frames and leaves the rest.

        Raises:
            MessageError: as :meth:`take`, or a frame is missing.
        """
        while not self.done:
            frame = next(frames, None)
            if frame is None:
                raise self._cut_short()
            part = self.take(frame)
            if part.size:
                yield part

    def _cut_short(self) -> MessageError:
        kind = self._layout.kind
        return MessageError(f"vector {kind}: cut short: {self.taken} of {self.expected} frames")

    def take(self, frame: bytes) -> npt.NDArray[Any]:
        """Take the next frame; return its values (none in the first and the last), as a view.

        Raises:
            MessageError: it is not the one expected now, or its values are not allowed.
        """
        layout, index = self._layout, self.taken - 1
        values = np.empty(0, layout.wire)
        if self.done:
            raise MessageError(f"vector {layout.kind}: a frame after the last one")
        if self.taken == 0:
            self._expect(frame, layout.head(), whole=True)
            self._hash.update(frame)
            if self._keep:
                self._array = np.empty(layout.count, dtype=layout.wire)
        elif index < layout.chunks:
            start, stop = layout.part(index)
            prefix = layout.body(index)
            self._expect(frame, prefix, whole=False, length=(stop - start) * layout.wire.itemsize)
            values = np.frombuffer(frame, dtype=layout.wire, offset=len(prefix))
            self._hash.update(memoryview(frame)[len(prefix) :])
            self._check(values, index)
            if self._keep:
                self._array[start:stop] = values
        else:
            digest = self._hash.digest()
            prefix = layout.end()
            self._expect(frame, prefix, whole=False, length=len(digest))
            if frame[len(prefix) :] != digest:
                raise MessageError(f"vector {layout.kind}: the digest is not that of the values")
            self.digest = digest
        self.taken += 1
        return values

    def _expect(self, frame: bytes, prefix: bytes, *, whole: bool, length: int = 0) -> None:
        if not isinstance(frame, bytes):
            raise MessageError(f"vector {self._layout.kind}: a frame that is not bytes")
        if frame.startswith(prefix) and len(frame) == len(prefix) + (0 if whole else length):
            return
        why = self._layout.mismatch(frame, self.taken)
        raise MessageError(f"vector {self._layout.kind}, frame {self.taken}: {why}")

    def _check(self, values: npt.NDArray[Any], index: int) -> None:
        low, high = values.min(), values.max()  # a NaN among them makes both NaN
        if values.dtype.kind == "f" and not (math.isfinite(low) and math.isfinite(high)):
            raise MessageError(
                f"vector {self._layout.kind}, frame {index + 1}: a value that is not finite"
            )
        if self._bound is not None and not (
            -self._bound <= low.item() and high.item() <= self._bound
        ):
            raise MessageError(
                f"vector {self._layout.kind}, frame {index + 1}: a value beyond the bound "
                f"{self._bound:g}"
            )


class _Layout:
    """The frames of one vector, without its values."""

    def __init__(self, kind: str, session: bytes, count: int, dtype: str, chunk: int) -> None:
        if dtype not in DTYPES:
            raise UsageError(f"dtype={dtype}: must be one of {', '.join(DTYPES)}")
        if not 1 <= len(session) <= _LONGEST_SESSION:
            raise UsageError(f"session of {len(session)} bytes: must have 1 to {_LONGEST_SESSION}")
        if not 1 <= count <= MOST_VALUES:
            raise UsageError(f"count={count}: must be from 1 to {MOST_VALUES:,}")
        self.wire = np.dtype(dtype).newbyteorder("<")
        most = _LARGEST_FRAME // self.wire.itemsize
        if not 1 <= chunk <= most:
            raise UsageError(f"chunk={chunk}: must be from 1 to {most:,} values of {dtype}")
        self.kind, self.session = kind, session
        self.count, self.dtype, self.chunk = count, dtype, chunk
        self.chunks = -(-count // chunk)

    def part(self, index: int) -> tuple[int, int]:
        return index * self.chunk, min((index + 1) * self.chunk, self.count)

    def head(self) -> bytes:
        return self._line("head", count=self.count, dtype=self.dtype, chunk=self.chunk)

    def body(self, index: int) -> bytes:
        return self._line("body", index=index)

    def end(self) -> bytes:
        return self._line("end")

    def _line(self, part: str, **fields: Any) -> bytes:
        line = {"kind": self.kind, "session": self.session, "part": part}
        return msgspec.json.encode(line | fields) + b"\n"

    def mismatch(self, frame: bytes, position: int) -> str:
        """What is wrong with a frame that is not the one at ``position``, without its values."""
        try:
            fields = msgspec.json.decode(frame[:_LONGEST_LINE].partition(b"\n")[0])
        except (ValueError, RecursionError):
            return "not a frame (broken encoding, or cut short)"
        if not isinstance(fields, dict) or fields.get("kind") != self.kind:
            return "of another kind"
        if fields.get("session") != msgspec.to_builtins(self.session):
            return "of another session"
        part = "head" if position == 0 else "body" if position <= self.chunks else "end"
        if fields.get("part") != part:
            return f"not the {part} frame expected now (cut short, repeated or out of order)"
        if part == "head":
            wrong = [k for k in ("count", "dtype", "chunk") if fields.get(k) != getattr(self, k)]
            if wrong:
                return f"another {' and '.join(wrong)} than this side expects"
            return "not in canonical encoding"
        if part == "body" and fields.get("index") != position - 1:
            return "out of order or repeated"
        return "too short, too long, or not in canonical encoding"


def _frames(layout: _Layout, array: npt.NDArray[Any]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    head = layout.head()
    digest.update(head)
    yield head
    values = array.data.cast("B")
    size = layout.wire.itemsize
    for index in range(layout.chunks):
        start, stop = layout.part(index)
        part = values[start * size : stop * size]
        digest.update(part)
        yield b"".join((layout.body(index), part))
    yield layout.end() + digest.digest()
