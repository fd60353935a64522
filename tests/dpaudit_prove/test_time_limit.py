# ruff: noqa: F501, RUF017, RUF059, UP031
"""Programs that keep one of Python's own operations busy end at once, or at the time limit."""

from __future__ import annotations

import math
import operator
import signal
import threading
import time
from fractions import Fraction

import pytest

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.exploration.engine import explore
from dpaudit_prove.interpreter import execution

pytestmark = pytest.mark.timeout(60, method="thread")  # the alarm is the engine's here
TRILLION = 10**12
TEXT = "x" * 2**13
LONG = 3**1_000_000


def extends():
    numbers = [0]
    numbers.extend(range(TRILLION))


def doubles(thing):
    while True:
        thing = thing + thing


def doubles_in_place():
    numbers = [0]
    while True:
        numbers += numbers


def doubles_in_an_f_string():
    text = "x"
    while True:
        text = f"{text}{text}"


def unpacks():
    first, second = range(TRILLION)


def unpacks_the_rest():
    first, *rest = range(TRILLION)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (lambda: list(range(TRILLION)), "list: 1000000000000 items"),
        (lambda: dict.fromkeys(range(TRILLION)), "fromkeys: 1000000000000 items"),
        (lambda: [*range(TRILLION)], "list: 1000000000000 items"),
        (lambda: max(range(TRILLION)), "max: 1000000000000 items"),
        (lambda: 0.5 in range(TRILLION), "in: 1000000000000 items"),
        (lambda: range(TRILLION).index(0.5), "index: 1000000000000 items"),
        (extends, "extend: 1000000000000 items"),
        (unpacks, "list: 1000000000000 items"),
        (unpacks_the_rest, "list: 1000000000000 items"),
        (lambda: bytes(TRILLION), "bytes: 1000000000000 items"),
        (lambda: (5).to_bytes(TRILLION, "big"), "to_bytes: 1000000000000 items"),
        (lambda: "x".ljust(TRILLION), "ljust: 1000000000000 items"),
        (lambda: f"{1:>1000000000000}", "format: a width of 1000000000000"),
        (lambda: format(1, ">1000000000000"), "format: a width of 1000000000000"),
        (lambda: "{:{}}".format(1, TRILLION), "format: 1000000000000 items"),
        (lambda: "%1000000000000d" % 1, "%: a width of 1000000000000"),
        (lambda: "%*d" % (TRILLION, 1), "%: 1000000000000 items"),
        (lambda: TEXT.replace("x", TEXT), "replace: 67117056 items"),
        (lambda: TEXT.join([TEXT] * 2**12), "join: 67108864 items"),
        (lambda: TEXT.translate({120: TEXT}), "translate: 67108864 items"),
        (lambda: doubles("x"), "+: 2097152 items"),
        (lambda: doubles([0]), "+: 2097152 items"),
        (doubles_in_place, "+: 2097152 items"),
        (doubles_in_an_f_string, "join: 2097152 items"),
        (lambda: sum([[0] * 2**12] * 2**10, []), "sum: 4294967296 items"),
        (lambda: operator.mul("x", TRILLION), "*: 1000000000000 copies"),
        (lambda: round(3, -TRILLION), "round: 1000000000000 items"),
        (lambda: math.gcd(LONG, LONG + 1), "gcd: divisors of a number of 1584963 bits"),
        (lambda: Fraction(LONG, LONG + 1), "Fraction: divisors of a number of"),
        (lambda: math.perm(TRILLION), "perm: up to 1000000000000 factors"),
        (lambda rng: rng.getrandbits(TRILLION), "more than 65,536 bits"),
    ],
)
def test_one_operation_that_is_too_large_is_refused(program, says, monkeypatch) -> None:
    monkeypatch.setattr("dpaudit_prove.interpreter.natives._MOST_ITEMS", 1 << 20)
    coins = "rng" if program.__code__.co_argcount else ""
    with pytest.raises(RefusedProgramError) as caught:
        explore(program, coins=coins)
    assert says in str(caught.value)
    assert "test_time_limit.py:" in str(caught.value)


def test_what_is_large_enough_to_be_useful_is_not_refused() -> None:
    def works():
        numbers = list(range(10**5)) + [0] * 10**5
        text = "%08d" % 7 + f"{1:>3000}" + "-".join(["x"] * 1000)
        return len(numbers), len(text), 10**5 in range(TRILLION), len(range(TRILLION))

    assert list(explore(works).law.mass) == [(200_000, 5007, True, TRILLION)]


def nests():
    nest = 0
    for _ in range(80):
        nest = (nest, nest)
    return nest == (nest, 1)


def roots():
    return math.isqrt(7**1_300_000)


def prods():
    return math.prod(range(1, 10**7))


def zips():
    return len(list(zip(range(TRILLION), range(TRILLION), strict=False)))


@pytest.mark.parametrize("program", [nests, roots, prods, zips], ids=lambda f: f.__name__)
def test_the_time_limit_holds_inside_one_operation(program, monkeypatch) -> None:
    monkeypatch.setattr(execution, "_LATER", 0.01)
    begun = time.monotonic()
    with pytest.raises(RefusedProgramError, match=r"test_time_limit\.py:\d+: still running"):
        explore(program, time_limit=0.2)
    assert time.monotonic() - begun < 3
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) != execution._ring


def test_what_was_found_before_the_time_limit_is_kept(monkeypatch) -> None:
    monkeypatch.setattr(execution, "_LATER", 0.01)

    def half(rng):
        if rng.getrandbits(1):
            return 1
        return math.prod(range(1, 10**7))

    found = explore(half, coins="rng", time_limit=0.2)
    assert not found.finished
    assert found.law.residual >= Fraction(1, 2)


def test_an_alarm_of_somebody_else_and_other_threads_are_left_alone() -> None:
    seen = []

    def elsewhere():
        with execution.alarm(time.monotonic()):
            seen.append(signal.getitimer(signal.ITIMER_REAL)[0])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [0]
    signal.setitimer(signal.ITIMER_REAL, 100)
    try:
        with execution.alarm(time.monotonic()):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
