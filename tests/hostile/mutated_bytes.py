"""Inputs for the doors that take bytes: valid ones changed, parts of two, and made-up ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

__all__ = ["mutated", "mutations"]

_LENGTHS = (0, 1, 2, 3, 4, 7, 8, 16, 63, 255, 4095, 65535)
_NUMBERS = (
    0, 1, 2, 127, 128, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip


def mutations(valid: Sequence[bytes], *, words: Sequence[bytes] = ()) -> st.SearchStrategy[bytes]:
    """Most are :func:`mutated`; one in eight is noise, some after a valid first few bytes."""
    numbers = st.integers(0, 2**48)
    return st.builds(lambda number: _made_up(random.Random(number), valid, words), numbers)


def mutated(
    rng: random.Random, data: bytes, *, others: Sequence[bytes] = (), words: Sequence[bytes] = ()
) -> bytes:
    """``data`` with one to four changes: bits, numbers, cuts, repeats, ``words``, ``others``."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice(_LENGTHS))
        data = rng.choice(_CHANGES)(rng, data, at, end, others or (data,), words or (b"\0",))
    return data


def _made_up(rng: random.Random, valid: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    data = rng.choice(valid)
    if rng.randrange(8):
        return mutated(rng, data, others=valid, words=words)
    return data[: rng.choice((0, 4, 8, 16, len(data)))] + rng.randbytes(rng.choice(_LENGTHS))


def _bit(rng: random.Random, data: bytes, at: int, *_: object) -> bytes:
    return (
        data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        if at < len(data)
        else data
    )


def _number(rng: random.Random, data: bytes, at: int, *_: object) -> bytes:
    size = rng.choice((1, 2, 4, 8))
    number = rng.choice(_NUMBERS) % 256**size
    return data[:at] + number.to_bytes(size, rng.choice(("little", "big"))) + data[at + size :]


def _digits(rng: random.Random, data: bytes, *_: object) -> bytes:
    """Another number where one is written out."""
    places = [i for i, byte in enumerate(data[:4096]) if 48 <= byte < 58]
    if not places:
        return data
    start = stop = rng.choice(places)
    while start and 48 <= data[start - 1] < 58:
        start -= 1
    while stop < len(data) and 48 <= data[stop] < 58:
        stop += 1
    text = str(rng.choice((*_NUMBERS, -1, 10**400, "1e999", "nan", "0.5")))
    return data[:start] + text.encode() + data[stop:]


def _splice(
    rng: random.Random, data: bytes, at: int, end: int, others: Sequence[bytes], _: object
) -> bytes:
    other = rng.choice(others)
    start = rng.randrange(len(other) + 1)
    return data[:at] + other[start : start + rng.choice(_LENGTHS)] + data[end:]


_CHANGES: tuple[Callable[..., bytes], ...] = (
    _bit, _bit, _number, _number, _digits, _splice, lambda _, data, at, *__: data[:at],
    lambda _, data, at, end, *__: data[:at] + data[end:],
    lambda rng, data, at, end, *__: data[:at] + data[at:end] * rng.choice((2, 3, 9)) + data[end:],
    lambda rng, data, at, *rest: data[:at] + rng.choice(rest[-1]) + data[at:],
    lambda rng, data, at, end, *rest: data[:at] + rng.choice(rest[-1]) + data[end:],
)  # fmt: skip
