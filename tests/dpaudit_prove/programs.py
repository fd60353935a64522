# ruff: noqa: B007, B023, B905, C416, C417, RET503, RUF005, UP031
"""Small programs that an interpreter can get wrong; each is a function of `random` coins."""

from __future__ import annotations

import math
import os
import secrets
from collections import namedtuple
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, wraps
from itertools import count as counting
from math import floor

WEIGHTS = [1, 2, 3]
TABLE = {"a": 1, "b": 2}
Pair = namedtuple("Pair", "left right")


def closures(rng):
    total = 0

    def add(k):
        nonlocal total
        total += k
        return total

    for i in range(3):
        if rng.getrandbits(1):
            add(i + 1)
    return total


def late_closures(rng):
    made = [lambda k=k: k * rng.getrandbits(1) for k in (1, 2, 4)]
    late = [lambda: k for k in (1, 2, 4)]
    return sum(f() for f in made), [f() for f in late]


def defaults(rng, *, scale=2, shift=1):
    def inner(a, b=scale, *rest, c=shift, **more):
        return a + b + c + sum(rest) + sum(more.values())

    bit = rng.getrandbits(1)
    if bit:
        return inner(bit, 5, 7, c=1, d=100)
    return inner(bit)


def reads_globals(rng):
    return WEIGHTS[rng.randrange(3)] + TABLE["b"]


def generators(rng):
    def bits(n):
        for _ in range(n):
            yield rng.getrandbits(1)

    def twice(source):
        for b in source:
            yield b
            yield from (b, 1 - b)

    return tuple(twice(bits(2)))


def generator_that_waits(rng):
    def stream():
        while True:
            yield rng.getrandbits(1)

    coins = stream()
    first = next(coins)
    return first, next(coins), sum(b for b, _ in zip(coins, range(2)))


def exceptions(rng):
    found = []
    for i in range(3):
        try:
            if rng.getrandbits(1):
                raise ValueError(i)
            found.append(1 // (rng.getrandbits(1)))
        except ValueError as error:
            found.append(error.args[0])
        except ZeroDivisionError:
            found.append(-1)
        else:
            found.append("fine")
        finally:
            found.append(".")
    return found


def returns_in_finally(rng):
    def inner():
        for i in range(4):
            try:
                if rng.getrandbits(1):
                    return i
                if i == 2:
                    break
                continue
            finally:
                seen.append(i)
        return "out"

    seen = []
    return inner(), len(seen)


def uncaught(rng):
    if rng.randrange(3) == 1:
        raise KeyError("x")
    return 0


def recursion(rng, depth=4):
    if depth == 0 or rng.getrandbits(1):
        return 0
    return 1 + recursion(rng, depth - 1) + recursion(rng, 0)


def dict_order(rng):
    d = {}
    for key in ("x", "y", "z"):
        if rng.getrandbits(1):
            d[key] = len(d)
    if rng.getrandbits(1):
        d.pop("x", None)
        d["x"] = 9
    return list(d.items()), "".join(d)


def aliasing(rng):
    rows = [[0] * 2] * 2
    rows[rng.getrandbits(1)][0] += 1
    if rng.getrandbits(1):
        rows[0] = list(rows[0])
    rows[0][1] = 5
    return rows


def alias_decides(rng):
    a = [0]
    b = a if rng.getrandbits(1) else [0]
    keep = rng.getrandbits(1)
    b.append(1)
    rng.getrandbits(1)
    return len(a) + keep


def float_decisions(rng):
    x = rng.randrange(8) / 10 + 0.1
    total = 0.0
    for _ in range(3):
        total += x
    return total == 3 * x, total > 0.9


def loop_else(rng):
    for i in range(2):
        if rng.getrandbits(1):
            break
    else:
        i = 7
    k = 2
    while k:
        k -= 1
        if rng.getrandbits(1):
            continue
        if i == 1:
            break
    else:
        return i, "else"
    return i, k


def lazy_bits(rng):
    x = rng.getrandbits(6)
    low = x & 3
    high = x >> 4
    middle = (x >> 2) & 1
    return low + 10 * high, middle, (x % 4 == low), x // 16 == high, (x >> 3) & 1


def lazy_comparisons(rng):
    x = rng.randrange(60)
    y = 3 * x - 7
    if y < 20:
        return "low", x == 4
    if 50 < y <= 100:
        return "middle", x % 2
    return "high", -x > -50, abs(x - 55) < 2


def lazy_fraction(rng):
    u = Fraction(rng.randrange(12), 12)
    if u < Fraction(1, 3):
        return 0
    return 1 if u * 2 > Fraction(3, 2) else 2


def uniform_floats(rng):
    u = rng.randrange(1 << 8) * 2.0**-8
    return int(u * 6), u < 0.3, floor(4 * u - 1)


def both_lazy(rng):
    return rng.randrange(5) + rng.randrange(4) - (rng.randrange(3) < rng.randrange(3))


def bytes_of(rng):
    data = rng.randbytes(1)
    return data[0] >> 6, len(data), int.from_bytes(data, "big") < 100


def system_bytes():
    data = os.urandom(2)
    k = int.from_bytes(data, "little")
    return k < 300, data[0] == 5


def from_secrets():
    return secrets.randbelow(3), secrets.choice("ab"), secrets.randbits(2)


def shuffled(rng):
    items = [1, 2, 3]
    rng.shuffle(items)
    return items


def sampled(rng):
    return rng.sample(range(4), 2), rng.choice((5, 6)), rng.randint(-1, 1)


class Counter:
    """A class with most things that classes have."""

    step = 1

    def __init__(self, start=0):
        self.value = start
        self._log = []

    @property
    def doubled(self):
        return 2 * self.value

    @staticmethod
    def half(x):
        return x // 2

    @classmethod
    def fresh(cls, value):
        return cls(value)

    def add(self, k):
        self.value += k * self.step
        self._log.append(k)
        return self

    def __len__(self):
        return len(self._log)

    def __add__(self, other):
        return type(self).fresh(self.value + getattr(other, "value", other))

    def __eq__(self, other):
        return isinstance(other, Counter) and self.value == other.value

    __hash__ = None


class Doubled(Counter):
    step = 2

    def __init__(self, start=0):
        super().__init__(start + 1)

    def add(self, k):
        super().add(k)
        self.__hidden = k
        return self

    def hidden(self):
        return self.__hidden


def objects(rng):
    one = Counter.fresh(1)
    other = Doubled() if rng.getrandbits(1) else one
    other.add(rng.randrange(3)).add(1)
    both = one + other
    return both.doubled, Counter.half(both.value), one == other, one != other, len(other), bool(one)


def private_names(rng):
    made = Doubled(3).add(rng.randrange(3))
    return made.hidden(), hasattr(made, "__hidden"), made.value


@dataclass
class Point:
    x: int
    y: int = 2

    def norm(self):
        return self.x * self.x + self.y * self.y


def records(rng):
    p = Point(rng.randrange(3))
    q = Pair(left=p.norm(), right=rng.getrandbits(1))
    left, right = q
    return left, q.right, right


def builtins_of(rng):
    xs = [rng.getrandbits(1) for _ in range(3)]
    pairs = list(zip(xs, "abc"))
    return (
        sorted(pairs, key=lambda p: -p[0])[0][1],
        max(xs),
        min(enumerate(xs), key=lambda p: p[1])[0],
        any(xs),
        all(x for x in xs),
        sum(map(lambda x: 2 * x, xs)),
        [*filter(None, xs)],
        sorted({k: v for k, v in pairs if v != "b"}.items()),
        list(reversed(xs)),
    )[rng.randrange(8)]


def texts(rng):
    k = rng.randrange(3)
    return f"{k:02d}-{'x' * k!r}", "%d" % k, " ".join(str(i) for i in range(k))


def sets(rng):
    seen = set()
    for _ in range(3):
        seen.add(rng.randrange(3))
    return len(seen), sorted(seen), 1 in seen


def slices(rng):
    xs = list(range(6))
    k = rng.randrange(4)
    first, *middle, last = xs[k:]
    xs[1:3] = [9]
    del xs[0]
    return first, len(middle), last, xs[-1 - k], xs[:: k + 1]


def walrus(rng):
    found = []
    while (b := rng.randrange(3)) != 2 and len(found) < 3:
        found.append(b)
    return found, b, 0 < b <= 1 < 2


def conditional(rng):
    a, b = rng.getrandbits(1), rng.getrandbits(1)
    return (a and b) or (not a and 7), a if b else -a, not (a or b)


class Lock:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append("out")
        return kind is ValueError


def context(rng):
    log = []
    with Lock(log) as lock:
        lock.log.append(rng.getrandbits(1))
        if rng.getrandbits(1):
            raise ValueError
        log.append("end")
    return log


def dead_variables(rng):
    for _ in range(3):
        junk = [4, 5, 6, 7][rng.randrange(4)]
        kept = junk == 7
        if rng.getrandbits(1):
            return kept
    return False


def floats_kept(rng):
    x = 0.5
    if rng.getrandbits(1):
        x = 0.25
    if rng.getrandbits(1):
        return x
    return -x


def read_by_a_handler(rng):
    k = [3, 4, 5][rng.randrange(3)]
    try:
        if rng.getrandbits(1):
            raise ValueError
        k = 9
    except ValueError:
        return k
    return -1


def infinite_iterators(rng):
    for i in counting(1):
        if i > 3 or rng.getrandbits(1):
            return i


def in_place(rng):
    xs = [1]
    ys = xs
    if rng.getrandbits(1):
        xs += [2]
    else:
        xs = xs + [3]
    n = 5
    n -= rng.getrandbits(1)
    n **= 2
    return ys, xs is ys, n


def integers(rng):
    k = rng.randrange(1, 17)
    return math.isqrt(k), math.gcd(k, 12), k.bit_length(), divmod(k, 5), pow(k, 3, 7), ~k, k ^ 3


def dict_that_changes(rng):
    d = {"a": 0, "b": 0, "c": 0}
    view = d.items()
    for key, value in view:
        d["c"] += 1
        d[key] = value + rng.getrandbits(1)
    later = d.values()
    d["z"] = 1
    return list(view), len(later), list(later), [k for k in d]


def dict_that_grows(rng):
    d = {1: 1}
    for k in d:
        if rng.getrandbits(1):
            d[k + 1] = 0
    return len(d)


def forgotten_names(rng):
    try:
        if rng.getrandbits(1):
            raise ValueError
        error = 1
    except ValueError:
        pass
    return error


def powers(rng):
    x = rng.randrange(6) - 2
    return x**2 > 3, (x + 2) ** 3 < 20, 2 ** (x + 2)


class Scaled:
    """Its own operators; comparing it is the caller's business alone."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        raise RuntimeError("compared")

    def __pow__(self, n):
        return self.x * n

    def __lshift__(self, n):
        return self.x + n


def own_operators(rng):
    x = Scaled(rng.randrange(3))
    return x**2, x << 3


def generator_arguments(rng):
    return max(rng.getrandbits(1) + i for i in range(3)), tuple(
        x for x in (rng.randrange(2), 5) if x
    )


def matching(rng):
    x, pair = rng.randrange(4), (rng.getrandbits(1), [rng.randrange(3), 7, 8])
    name = "none"
    match x:
        case -1 | 0:
            first = "low"
        case name if name > 2:
            first = "high"
        case 1.0:
            first = "one"
        case _:
            first = "rest"
    match pair:
        case (0, [0 | 1 as kind, *rest]):
            second = (kind, rest)
        case 1, [a, *_, last]:
            second = a - last
        case (n, more) if n == 0 and more[0] == 2:
            second = "guard"
    match {0: None, 1: True, 2: "ab", 3: 5}[x]:
        case None:
            third = 0
        case True:
            third = 1
        case str(text):
            third = text
        case int():
            third = 3
    return name, first, second, third


def matches_nothing(rng):
    found = []
    for thing in (range(2), "ab", b"a", {1: 2}, 3, Pair(rng.getrandbits(1), 2), [], [[1], 2]):
        match thing:
            case [a, b, *_] if a == b:
                found.append("alike")
            case []:
                found.append("empty")
            case [[a], b]:
                found.append((a, b))
            case [_, _]:
                found.append("two")
            case tuple() | dict():
                found.append("tuple")
    try:
        match found:
            case TABLE():
                pass
    except TypeError:
        found.append("no class")
    return found


def sorts_in_place(rng):
    items = [(rng.randrange(3), i) for i in range(3)]
    seen = []
    items.sort(key=lambda item: seen.append(len(items)) or -item[0], reverse=bool(items[0][0]))
    other = [1, 0, 2]
    try:
        other.sort(key=lambda i: 1 // i)
    except ZeroDivisionError:
        seen.append(other[:])
    try:
        other.sort(key=lambda i: other.append(i) or i)
    except ValueError:
        seen.append(other)
    return items, seen


def partials(rng):
    def inner(a, b=1, *rest, **more):
        return a, b, rest, sorted(more.items())

    half = partial(inner, rng.getrandbits(1), c=rng.getrandbits(1))
    return half(), half(5, 6, d=7), partial(half, 9)(c=3), callable(half)


def replaced(rng):
    pair = Pair(rng.randrange(3), 4)
    try:
        pair._replace(middle=1)
    except (TypeError, ValueError):
        return pair._replace(left=pair.right, right=rng.getrandbits(1)), pair
    return None


@dataclass(order=True)
class Ranked:
    score: int
    name: str = field(default="x", compare=False)
    tie: float = 0.5


class Higher(Ranked):
    pass


def ordered(rng):
    one, two = (Ranked(rng.randrange(3), str(i), tie=rng.getrandbits(1)) for i in range(2))
    try:
        mixed = one < Higher(9)
    except TypeError:
        mixed = "no order"
    return (
        one < two,
        one <= two,
        one == two,
        one != two,
        one > two,
        mixed,
        one == Higher(1),
        one == 1,
    )


def wraps_and_sets(rng):
    def shifted(f):
        @wraps(f)
        def call(*args):
            return f(*args) + 1

        return call

    @shifted
    def draw(n):
        return rng.randrange(n)

    values = {draw(3), draw(3)}
    return sorted(values), max(values), sorted({(draw(2), "a"), (1, "b")}, reverse=True)


ALL = [
    value
    for name, value in list(globals().items())
    if callable(value)
    and getattr(value, "__module__", None) == __name__
    and not isinstance(value, type)
]
