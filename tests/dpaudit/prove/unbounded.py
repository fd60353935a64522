# ruff: noqa: B006, C416, RET503, RUF012, RUF015
"""Programs without a bound on their coins, and programs that no proof may follow."""

from __future__ import annotations

import functools
import math
import os
import random
import threading
import time

import numpy as np

SEEN = []
CALLS = {"n": 0}
COUNTER = 0
NUMBER = 0
GENERATOR = random.Random(1)
NUMPY = np.random.default_rng(1)


def geometric(rng):
    k = 0
    while rng.getrandbits(1):
        k += 1
    return k


def rejection(rng):
    while (k := rng.getrandbits(3)) > 4:
        pass
    return k


def walk(rng):
    at = 2
    while 0 < at < 5:
        at += 1 if rng.randrange(3) else -1
    return at


def never_ends(rng):
    if rng.getrandbits(1):
        return 1
    while rng.getrandbits(1) in (0, 1):
        pass
    return 0


# -- refused -------------------------------------------------------------------
def reads_the_time():
    return int(time.time()) % 2


def reads_an_address():
    return id(object()) % 2


def hashes_text():
    return hash("x") % 2


def reads_a_file():
    return open("/dev/null").read()


def reads_the_process():
    return os.getpid() % 2


def asks_a_thread():
    return threading.get_ident() % 2


def hidden_state():
    return GENERATOR.random() < 0.5


def module_random():
    return random.random() < 0.5


def numpy_state():
    return NUMPY.integers(3)


def seeds_its_own():
    return random.Random(7).random() < 0.5


def remembers(rng):
    SEEN.append(rng.getrandbits(1))
    return len(SEEN)


def counts_calls(rng):
    CALLS["n"] += 1
    return CALLS["n"] + rng.getrandbits(1)


def global_counter(rng):
    global COUNTER
    COUNTER += 1
    return COUNTER + rng.getrandbits(1)


def mutable_default(rng, seen=[]):
    seen.append(rng.getrandbits(1))
    return sum(seen)


def remembering():
    count = 0

    def draw(rng):
        nonlocal count
        count += 1
        return count + rng.getrandbits(1)

    return draw


remembers_in_a_closure = remembering()


@functools.lru_cache
def cached(rng):
    return rng.getrandbits(1)


def uses_a_cache(rng):
    return cached(3)


def order_of_a_set(rng):
    return [x for x in {"a", "b", "c"}][0]


def cosine_of_a_uniform(rng):
    return int(9 * math.cos(rng.random()))


def needs_all_bits(rng):
    return rng.getrandbits(64) ^ 5


def evaluates(rng):
    return eval("rng.getrandbits(1)")


def looks_around(rng):
    return len(globals()) + rng.getrandbits(1)


def prints(rng):
    print("x")
    return rng.getrandbits(1)


def identity_of_a_number(rng):
    x = rng.getrandbits(1)
    return x is NUMBER


def list_of_a_set(rng):
    return list({rng.randrange(3), "x"})


def abandoned_generator(rng):
    def steps():
        try:
            yield rng.getrandbits(1)
        finally:
            rng.getrandbits(1)

    for bit in steps():
        return bit


class Dying:
    def __del__(self):
        CALLS["n"] += 1


def finalizer(rng):
    Dying()
    return rng.getrandbits(1)


def overflows_for_some(rng):
    return float(rng.getrandbits(2000)) < 3


class Odd(type):
    def __instancecheck__(cls, other):
        return bool(SEEN)


class Checked(metaclass=Odd):
    pass


def asks_an_odd_class(rng):
    return isinstance(rng.getrandbits(1), Checked)


class Shared:
    total = []


def class_state(rng):
    Shared.total.append(1)
    return len(Shared.total)


def a_power_that_takes_years(rng):
    return 10**10**9 & rng.getrandbits(1)


def a_shift_that_fills_the_memory(rng):
    return 1 << 10**11 & rng.getrandbits(1) or 1 << 10**11


def a_sum_that_takes_hours(rng):
    return sum(range(10**11)) & rng.getrandbits(1)


def a_factorial_that_takes_hours(rng):
    return math.factorial(10**8) & rng.getrandbits(1)


def copies_that_fill_the_memory(rng):
    return len([0] * 10**11) & rng.getrandbits(1)


REFUSED = {
    a_power_that_takes_years: "**: a number of about",
    a_shift_that_fills_the_memory: "<<: a number of about",
    a_sum_that_takes_hours: "sum: 100000000000 items",
    a_factorial_that_takes_hours: "factorial: up to",
    copies_that_fill_the_memory: "*: 100000000000 copies",
    reads_the_time: "time",
    reads_an_address: "id",
    hashes_text: "hash",
    reads_a_file: "open",
    reads_the_process: "getpid",
    asks_a_thread: "get_ident",
    hidden_state: "--coins random",
    module_random: "--coins random",
    numpy_state: "--coins numpy",
    seeds_its_own: "Random",
    remembers: "outlives the call",
    counts_calls: "outlives the call",
    global_counter: "global variable COUNTER",
    mutable_default: "outlives the call",
    remembers_in_a_closure: "closure variable count",
    uses_a_cache: "cached",
    order_of_a_set: "order of a set",
    cosine_of_a_uniform: "coin with",
    needs_all_bits: "coin with",
    evaluates: "eval",
    looks_around: "globals",
    prints: "print",
    identity_of_a_number: "'is'",
    class_state: "outlives the call",
    list_of_a_set: "order of a set",
    abandoned_generator: "yield inside try",
    finalizer: "__del__",
    overflows_for_some: "some values of a coin",
    asks_an_odd_class: "isinstance with Checked",
}
