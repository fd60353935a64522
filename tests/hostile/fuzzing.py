"""One rule for every door where foreign data comes in: a plain refusal, little memory, no hang.

Each door has a test that calls :func:`refuses_or_reads` on :func:`mutated` and on made-up inputs.
``@fuzzed`` gives it 20 inputs in ``make test``, or ``DPAUDIT_FUZZ`` of them (10,000 in ``make
slow``). Inputs are derandomized: the same on every machine.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpaudit.errors import DpauditError

FACTOR, SLACK = 10, 64 << 20  # memory: ten times the input and 64 MiB
_SECONDS = 120  # of wall time for one input, far above any honest reading: a hang, not a benchmark
_PAGE = os.sysconf("SC_PAGE_SIZE")


fuzzed = settings(
    max_examples=int(os.environ.get("DPAUDIT_FUZZ", "20")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@contextlib.contextmanager
def within(size: int) -> Iterator[None]:
    """At most ``FACTOR`` × ``size`` bytes and ``SLACK`` more (else MemoryError), and no hang."""
    gc.collect(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * _PAGE
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)

    def late(*_: object) -> None:
        raise TimeoutError(f"no end after {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (now + FACTOR * size + SLACK, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refuses_or_reads(door: Callable[[], object], *, size: int) -> bool:
    """Whether the door read its input (of ``size`` bytes).

    False if it refused it with an error of ours.

    Raises:
        AssertionError: the refusal would leave the command line with exit 4, or names no rule.
        Exception: anything else that came out, memory and time limits included: a defect.
    """
    refusal = None
    try:
        with within(size):
            door()
    except DpauditError as error:
        refusal = error
    if refusal is None:
        return True
    said = str(refusal)
    assert refusal.exit_code in {1, 2, 3}, f"exit {refusal.exit_code}: {said}"
    assert said, "a refusal says why"
    assert all(c.isprintable() or c == "\n" for c in said), f"not printable: {said!r}"
    return False


BOTH = frozenset((True, False))
# where few inputs are read, as many as there are in `make slow` show it
REFUSED = BOTH if fuzzed.max_examples >= 100 else frozenset((False,))


def fuzz(one: Callable[[random.Random], bool], *, seen: Set[bool] = BOTH) -> None:
    """Calls ``one(rng)``, which says whether it read; of ``seen``, each must occur."""
    read = Counter[bool]()

    @fuzzed
    @given(number=st.integers(0, 2**48))
    def try_one(number: int) -> None:
        read[one(random.Random(number))] += 1

    try_one()
    print("read", read[True], "refused", read[False])
    assert read.keys() >= seen


_LENGTHS = (0, 1, 2, 3, 4, 7, 8, 16, 63, 255, 4095, 65535)
_NUMBERS = (
    0, 1, 2, 127, 128, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip


def mutated(
    rng: random.Random, data: bytes, *, others: Sequence[bytes] = (), words: Sequence[bytes] = ()
) -> bytes:
    """``data`` with one to four changes: bits, numbers, cuts, repeats, ``words``, ``others``."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice(_LENGTHS))
        data = rng.choice(_CHANGES)(rng, data, at, end, others or (data,), words or (b"\0",))
    return data


def made_up(rng: random.Random, valid: Sequence[bytes], words: Sequence[bytes] = ()) -> bytes:
    """Most are :func:`mutated`; one in eight is noise, some after a valid first few bytes."""
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


def deep(levels: int) -> list[Any]:
    """A list of lists of … of a list."""
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e308, 10**18, -(10**18), 2**63, 10**400, "",
    "x", "inf", "nan", "-1", "1e999", "\x1b[2J\u202e", "\ud800", "a" * 2000, "../../etc/passwd",
    "\0", "😀", [], {}, [[]], [None], [1, "a"], {"": {}}, {"name": []}, ["x"] * 50,
    {"a": 1, "b": {"c": [1]}}, deep(50), deep(80),
)  # fmt: skip


def with_odd_fields(rng: random.Random, value: Any, *, odd: tuple[Any, ...] = ODD) -> Any:
    """A copy of ``value`` with one to three changes: odd values, parts lost, doubled or moved."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return rng.choice(odd)
        container, key = rng.choice(places)
        what = rng.randrange(5)
        if what == 0:
            del container[key]
        elif what == 1:
            other, name = rng.choice(places)
            container[key] = copy.deepcopy(other[name])
        elif what == 2 and isinstance(container, dict):
            container[str(rng.choice(("", "odd", "\x1b[2J", key)))] = copy.deepcopy(rng.choice(odd))
        else:
            container[key] = copy.deepcopy(rng.choice(odd))
    return value


def _places(value: Any) -> Any:
    waiting = [value]
    while waiting:
        container = waiting.pop()
        if isinstance(container, (dict, list)):
            for key in container if isinstance(container, dict) else range(len(container)):
                yield container, key
                waiting.append(container[key])
