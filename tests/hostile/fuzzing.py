"""One rule for every door where foreign data comes in: a plain refusal, little memory, no hang.

Each door has a property test that calls :func:`refuses_or_reads` on mutated and on made-up inputs.
``@fuzzed`` gives it 20 inputs in ``make test``, or ``DPAUDIT_FUZZ`` of them (10,000 in ``make
slow``). Inputs are derandomized: the same on every machine.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, settings

from dpaudit.errors import DpauditError

__all__ = ["FACTOR", "SLACK", "fuzzed", "refuses_or_reads", "within"]

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
