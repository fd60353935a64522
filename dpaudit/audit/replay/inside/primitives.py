"""Noise of numpy, the standard library and scipy: one row for each function."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
import secrets
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .hooks import place_hook, quietly
from .noise import Follower, coin_losses, derive, meta_of, start
from .tape import COINS, Tape, current, running
from .values import base, numbers, unpack


class Row(NamedTuple):
    """A function: its law, its parameters in order, which one is the location, and which the scale.

    ``given`` are parameters that may be made of data: the law's own input. ``rate``: what is called
    the scale here is its inverse. ``many``: it chooses among values, which may be data.
    """

    law: str
    parameters: str
    location: str = ""
    scale: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    rate: bool = False
    many: bool = False


_LS = "loc scale size"
NUMPY: dict[str, Row] = {
    "normal": Row("normal", _LS, "loc", ("scale",)),
    "standard_normal": Row("normal", "size"),
    "randn": Row("normal", "*size"),
    "laplace": Row("laplace", _LS, "loc", ("scale",)),
    "logistic": Row("logistic", _LS, "loc", ("scale",)),
    "gumbel": Row("gumbel", _LS, "loc", ("scale",)),
    "exponential": Row("exponential", "scale size", "", ("scale",)),
    "standard_exponential": Row("exponential", "size"),
    "standard_cauchy": Row("cauchy", "size"),
    "standard_t": Row("student-t", "df size", "", ("df",)),
    "standard_gamma": Row("gamma", "shape size", "", ("shape",)),
    "gamma": Row("gamma", "shape scale size", "", ("shape", "scale")),
    "chisquare": Row("chi-square", "df size", "", ("df",)),
    "rayleigh": Row("rayleigh", "scale size", "", ("scale",)),
    "geometric": Row("geometric", "p size", "", ("p",)),
    "negative_binomial": Row("negative-binomial", "n p size", "", ("n", "p")),
    "lognormal": Row("lognormal", "mean sigma size", "", ("mean", "sigma")),
    "multivariate_normal": Row("multivariate-normal", "mean cov size", "mean", ("cov",)),
    "poisson": Row("poisson", "lam size", given=("lam",)),
    "binomial": Row("binomial", "n p size", given=("n", "p")),
    "beta": Row("beta", "a b size", given=("a", "b")),
    "dirichlet": Row("dirichlet", "alpha size", given=("alpha",)),
    "multinomial": Row("multinomial", "n pvals size", given=("n", "pvals")),
    "random": Row("uniform", "size"),
    "random_sample": Row("uniform", "size"),
    "rand": Row("uniform", "*size"),
    "uniform": Row("uniform", "low high size", "", ("low", "high")),
    "integers": Row("integers", "low high size"),
    "randint": Row("integers", "low high size"),
    "bytes": Row("bits", "length"),
    "permutation": Row("permutation", "x", many=True),
    "permuted": Row("permutation", "x"),
    "shuffle": Row("permutation", "x"),
    "choice": Row("choice", "a size replace p", given=("p",), many=True),
}
STDLIB: dict[str, Row] = {
    "gauss": Row("normal", "mu sigma", "mu", ("sigma",)),
    "normalvariate": Row("normal", "mu sigma", "mu", ("sigma",)),
    "expovariate": Row("exponential", "lambd", "", ("lambd",), rate=True),
    "gammavariate": Row("gamma", "alpha beta", "", ("alpha", "beta")),
    "betavariate": Row("beta", "alpha beta", given=("alpha", "beta")),
    "lognormvariate": Row("lognormal", "mu sigma", "", ("mu", "sigma")),
    "random": Row("uniform", ""),
    "getrandbits": Row("bits", "k"),
    "_randbelow": Row("integers", "n"),
    "shuffle": Row("permutation", "x"),
    "sample": Row("choice", "population k", many=True),
    "choices": Row(
        "choice", "population weights cum_weights k", given=("weights", "cum_weights"), many=True
    ),
}
_DEFAULTS: Mapping[str, Any] = {
    "loc": 0.0, "scale": 1.0, "low": 0.0, "high": 1.0, "mu": 0.0, "sigma": 1.0, "lambd": 1.0,
    "mean": 0.0,
}  # fmt: skip


def bound(row: Row, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name."""
    named = row.parameters.split()
    if named and named[0].startswith("*"):
        return {"size": tuple(args)}
    values = dict(zip(named, args, strict=False))
    values.update(kwargs)
    return {name: _DEFAULTS.get(name) for name in named} | values


def draw(
    tape: Tape, name: str, row: Row, make: Callable[[], Any], args: Any, kwargs: Any, seeded: str
) -> Any:
    """One call of a row's function: recorded, or replayed; its numbers follow the noise."""
    values = bound(row, args, kwargs)
    given = values.get(row.location) if row.location else None
    if row.given:
        given = [base(values.get(n)) for n in row.given]
    scale: Any = tuple(base(values[n]) for n in row.scale if n in values) or 1.0
    if row.rate:
        with np.errstate(all="ignore"):
            scale = np.divide(1.0, scale)
    size: Any = values.get("size")
    if row.law == "permutation":
        size = _length(values.get("x"))
    elif row.law == "choice":
        size = (size or values.get("k") or 1, _length(values.get("a", values.get("population"))))
    output, event = tape.call(
        name,
        make,
        law=row.law,
        shape=_shape(size, *(values.get(n) for n in (row.location, *row.scale) if n)),
        scale=scale[0] if isinstance(scale, tuple) and len(scale) == 1 else scale,
        given=given,
        seeded=seeded,
    )
    before = event.get("before")
    if row.given and before is not None:
        then = unpack(before["given"])
        many = size[0] if row.law == "choice" else size
        loss = _loss(row, then, given, int(np.prod(1 if many is None else many)))
        tape.moves(event, _flat(then), _flat(given), loss=loss)
    if row.given or (row.law in COINS and row.law != "uniform"):
        if row.law in ("choice", "binomial"):
            tape.select()
        return output
    return start(tape, event, output, given=given if row.location else None)


def _flat(given: Any) -> list[float]:
    return [float(v) for part in given for v in _numbers(part)]


def _numbers(part: Any) -> Any:
    array = numbers(part)
    return [] if array is None else array


def _loss(row: Row, then: Any, now: Any, draws: int) -> list[float] | None:
    """The largest log ratio of the law's outcomes, either way, for all draws; None: not known."""
    if row.law == "choice":
        a, b = (_chances(*given) for given in (then, now))
        if len(a) != len(b):
            return [math.inf, math.inf]
        with np.errstate(all="ignore"):
            ratio = np.where(a == b, 0.0, np.log(a) - np.log(b))
        most = [np.nan_to_num(way, nan=math.inf).max(initial=0.0) for way in (ratio, -ratio)]
        return [draws * float(one) for one in most]
    if row.law == "binomial" and np.array_equal(then[0], now[0]):
        first, second = (np.asarray(p[1], dtype=np.float64) for p in (then, now))
        times = draws if first.ndim == 0 else 1
        return [times * float(np.max(now[0])) * loss for loss in coin_losses(first, second)]
    return None


def _chances(weights: Any, summed: Any = None) -> Any:
    """The chances of a choice, from its weights or from their sums."""
    values = np.diff(_numbers(summed), prepend=0.0) if summed is not None else _numbers(weights)
    with np.errstate(all="ignore"):
        return np.asarray(values, dtype=np.float64) / np.sum(values)


def by_number(row: Row, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """A choice among data as a choice among numbers, which a replay keeps; and the data."""
    named = row.parameters.partition(" ")[0]
    many = args[0] if args else kwargs.get(named)
    if not row.many or not hasattr(many, "__len__") or not len(many) or kwargs.get("axis"):
        return None, args, kwargs
    places = range(len(many)) if named == "population" else len(many)
    return many, (places, *args[1:]), {k: v for k, v in kwargs.items() if k != named}


def taken(many: Any, output: Any) -> Any:
    """What the numbers of :func:`by_number` choose."""
    if many is None:
        return output
    return [many[i] for i in output] if isinstance(output, list) else np.asarray(many)[output]


def _length(x: Any) -> Any:
    return len(x) if hasattr(x, "__len__") else None if x is None else int(x)


def _shape(size: Any, *others: Any) -> Any:
    if size is not None:
        parts = size if isinstance(size, (tuple, list)) else (size,)
        return tuple(
            None if n is None else int(n) if not isinstance(n, tuple) else n for n in parts
        )
    widths = [np.shape(base(v)) for v in others if v is not None]
    try:
        return tuple(np.broadcast_shapes(*widths))
    except ValueError:
        return ()


_RANDOM = random.Random

# -- numpy -------------------------------------------------------------------------------------

_generators: weakref.WeakSet[Any] = weakref.WeakSet()


def _method(parent: type, name: str, row: Row, label: str) -> Callable[..., Any]:
    original = getattr(parent, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape = current()
        if tape is None:
            return original(self, *args, **kwargs)
        args = tuple(base(a) for a in args)
        many, args, kwargs = by_number(row, args, {k: base(v) for k, v in kwargs.items()})
        make = quietly(original, (self, *args), kwargs)
        seeded = seed_of(self)
        if name == "shuffle":
            return _shuffled(tape, label, row, make, args, kwargs)
        into = kwargs.get("out")  # of numpy's
        output = taken(many, draw(tape, label, row, make, args, kwargs, seeded))
        if into is not None:
            into[...] = base(output)
        return output

    return method


def _shuffled(tape: Tape, label: str, row: Row, make: Any, args: Any, kwargs: Any) -> None:
    """A shuffle in place: the same order of places, on a replay."""
    x = args[0] if args else kwargs["x"]

    def order() -> Any:
        before = list(x)
        make()
        ids: dict[int, list[int]] = {}
        for i, v in enumerate(before):
            ids.setdefault(id(v), []).append(i)
        places = [ids[id(v)].pop() if ids.get(id(v)) else -1 for v in x]
        x[:] = before
        return np.array(places) if -1 not in places else np.arange(len(before))

    places = draw(tape, label, row, order, args, kwargs, "")
    if len(places) == len(x):
        x[:] = [x[i] for i in places] if isinstance(x, list) else x[places]


def seed_of(generator: Any) -> str:
    """What a generator was seeded with, if that is a number that somebody chose."""
    own = getattr(generator, "_dpaudit_seed", "")
    if own:
        return str(own)
    bits = getattr(generator, "bit_generator", None)
    entropy = getattr(getattr(bits, "seed_seq", None), "entropy", None)
    small = isinstance(entropy, int) and entropy < 1 << 96
    return repr(entropy) if small or isinstance(entropy, (list, tuple)) else ""


def _class(parent: type, name: str, rows: Mapping[str, Row], label: str) -> Any:
    methods = {
        n: _method(parent, n, row, f"{label}.{n}") for n, row in rows.items() if hasattr(parent, n)
    }

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        parent.__init__(self, *args, **kwargs)  # type: ignore[misc]
        _generators.add(self)
        seed = args[0] if args else kwargs.get("seed")
        if parent is not np.random.Generator and isinstance(seed, (int, np.integer, list)):
            self._dpaudit_seed = repr(seed)
            note_seed(seed)

    kept = {"__init__": __init__, "__module__": parent.__module__, "__doc__": parent.__doc__}
    return type(name, (parent,), {**kept, **methods})


def note_seed(seed: Any) -> None:
    """Note where a seed is set, if a run is on."""
    tape = current()
    if tape is not None:
        tape.seeds(seed)


def _install_numpy() -> None:
    parents = np.random.Generator, np.random.RandomState
    generator = _class(parents[0], "Generator", NUMPY, "numpy.random.Generator")
    legacy = _class(parents[1], "RandomState", NUMPY, "numpy.random")
    real_rng, mtrand = np.random.default_rng, np.random.mtrand

    def default_rng(seed: Any = None) -> Any:
        if isinstance(seed, np.random.Generator):
            return seed
        tape = current()
        if seed is None and tape is not None:
            seed = int.from_bytes(tape.entropy(16), "big") | 1 << 127
        else:
            note_seed(seed)
        plain = real_rng(base(seed))
        return generator(plain.bit_generator)

    one = legacy(mtrand._rand._bit_generator)
    place_hook(np.random, "Generator", generator)
    place_hook(np.random, "RandomState", legacy)
    place_hook(mtrand, "RandomState", legacy)
    place_hook(np.random, "default_rng", default_rng)
    place_hook(mtrand, "_rand", one)
    real_seed = np.random.seed

    def seed(value: Any = None) -> None:
        real_seed(base(value))
        one._dpaudit_seed = "" if value is None else repr(value)
        note_seed(value)

    place_hook(np.random, "seed", seed)
    for name in NUMPY:
        if hasattr(np.random, name) and hasattr(one, name):
            place_hook(np.random, name, getattr(one, name))
            place_hook(mtrand, name, getattr(one, name))
    for alias in ("ranf", "sample"):
        if hasattr(np.random, alias):
            place_hook(np.random, alias, one.random_sample)


def reseed(tape: Tape) -> None:
    """At the start of a run: all generators that nobody seeded get fresh numbers of the tape's."""
    for generator in list(_generators):
        if not seed_of(generator):
            bits = getattr(generator, "bit_generator", None) or generator._bit_generator
            with contextlib.suppress(TypeError):  # one that takes no seed, such as the processor's
                bits.state = type(bits)(int.from_bytes(tape.entropy(16), "big")).state
    for one in list(_stdlib):
        if not one._dpaudit_seed:
            _RANDOM.seed(one, int.from_bytes(tape.entropy(16), "big"))


# -- the standard library ----------------------------------------------------------------------

_stdlib: weakref.WeakSet[Any] = weakref.WeakSet()


def _stdlib_class(parent: type, name: str) -> Any:
    def __init__(self: Any, x: Any = None) -> None:
        self._dpaudit_seed = ""
        parent.__init__(self, base(x))  # type: ignore[misc]
        _stdlib.add(self)

    def seed(self: Any, a: Any = None, version: int = 2) -> None:
        parent.seed(self, base(a), version)  # type: ignore[attr-defined]
        if name == "Random":
            self._dpaudit_seed = "" if a is None else repr(base(a))
            note_seed(a)

    methods = {n: _method(parent, n, r, f"random.{n}") for n, r in STDLIB.items()}
    return type(name, (parent,), {"__init__": __init__, "seed": seed, **methods})


def _install_stdlib() -> None:
    real_urandom = os.urandom

    def urandom(n: int) -> bytes:
        tape = running()
        return real_urandom(n) if tape is None else tape.entropy(n)

    ours, system = (
        _stdlib_class(random.Random, "Random"),
        _stdlib_class(random.SystemRandom, "SystemRandom"),
    )
    one, secret = ours(), system()
    place_hook(os, "urandom", urandom)
    place_hook(random, "_urandom", urandom)
    place_hook(random, "Random", ours)
    place_hook(random, "SystemRandom", system)
    place_hook(secrets, "SystemRandom", system)
    place_hook(secrets, "_sysrand", secret)
    place_hook(secrets, "randbits", secret.getrandbits)
    place_hook(secrets, "choice", secret.choice)
    inst = random._inst
    place_hook(random, "_inst", one)
    for name in [n for n in dir(random) if getattr(getattr(random, n), "__self__", None) is inst]:
        place_hook(random, name, getattr(one, name))
    _install_math()


_MATH = "floor ceil trunc "
_MATH += "log log1p log2 log10 exp expm1 sqrt sin cos tan atanh tanh erf fabs copysign pow"


def _install_math() -> None:
    """Functions of ``math`` keep following noise; those of C alone would not."""
    for name in _MATH.split():
        original = getattr(math, name)

        def function(*args: Any, _f: Any = original) -> Any:
            for arg in args:
                if isinstance(arg, Follower):
                    break
            else:
                return _f(*args)  # at once: such calls are counted in millions
            metas = [m for m in map(meta_of, args) if m is not None]
            result = _f(*map(base, args))
            return derive(result, _f.__name__, *metas) if metas else result

        functools.update_wrapper(function, original)
        place_hook(math, name, function)


def install() -> None:
    """Place the hooks of this file; once for each process."""
    _install_numpy()
    _install_stdlib()


__all__ = ["Follower", "Row", "draw", "install", "reseed"]
