"""How many values of a generator are needed to predict the others, and how many are predicted.

`python -m dpaudit_studies.evidence.predictable` draws noise in rows of 64, twice as many values at
a time, until one test of the battery predicts held-out values or bits with p < 1e-9. Per row it
prints the values drawn, those that the test says are enough, its CPU seconds at that size (without
drawing), and what it predicted. `--write` keeps the table in docs/studies/results/predictable/;
`--only NAME` runs (and writes) some rows. Seeds are fixed. A new row is one line in ROWS.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dpaudit import registry
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.numeric import generators
from dpaudit.randomness import KeyedStream
from dpaudit_studies.evidence import MACHINE, RESULTS, options, write
from dpaudit_studies.zoo.transforms import box_muller_of

WRITTEN = RESULTS / "predictable"
D = 64
FEWEST, MOST = 1 << 8, 1 << 21
CERTAIN = 1e-9
SEED = 20261125

Floats = npt.NDArray[np.floating[Any]]
Draw = Callable[[int], Floats]
"""The next so many values, shape (m,)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A generator behind a transform, and the test that shall predict it."""

    name: str
    begin: Callable[[], Draw]
    test: str
    claim: str = "gaussian:sigma=1"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. ``drawn`` is None where the test predicted nothing."""

    generator: str
    test: str
    drawn: int | None
    needed: int | None
    seconds: float
    predicted: str
    says: str


# --- transforms ---


def inverse(uniforms: Draw) -> Draw:
    """Φ⁻¹, one uniform per value."""
    return lambda m: ndtri(np.clip(uniforms(m), 2.0**-60, 1 - 2.0**-53))


def box_muller(uniforms: Draw) -> Draw:
    """Both outputs, next to each other; an even number."""
    return lambda m: box_muller_of(*uniforms(m).reshape(-1, 2).T).ravel()


def polar(uniforms: Draw) -> Draw:
    """Marsaglia's method, both outputs, as java.util.Random's nextGaussian."""
    ready: list[float] = []

    def draw(m: int) -> Floats:
        while len(ready) < m:
            x, y = 2 * uniforms(2) - 1
            square = x * x + y * y
            if 0 < square < 1:
                factor = np.sqrt(-2 * np.log(square) / square)
                ready.extend((x * factor, y * factor))
        values = np.array(ready[:m])
        del ready[:m]
        return values

    return draw


def signs(uniforms: Draw) -> Draw:
    """Only the signs come from the generator."""
    sizes = np.random.default_rng(SEED)
    return lambda m: np.abs(sizes.standard_normal(m)) * np.where(uniforms(m) < 0.5, 1.0, -1.0)


# --- linear generators ---


def unit(generator: Callable[[], generators.Words], bits: int) -> Draw:
    """Uniforms (word + 1/2)/2^bits."""
    draw = generator()
    return lambda m: (draw(m).astype(np.float64) + 0.5) * 2.0**-bits


def twister() -> Draw:
    """32-bit words of MT19937, as PHP and others divide them."""
    generator = np.random.RandomState(SEED)._bit_generator
    return lambda m: (generator.random_raw(m) + 0.5) * 2.0**-32


def r_uniforms() -> Draw:
    """Two words each: 27 and 32 bits, as R's inversion takes them."""
    generator = np.random.RandomState(SEED)._bit_generator

    def draw(m: int) -> Floats:
        u = generator.random_raw(2 * m).reshape(-1, 2) * 2.3283064365386963e-10
        return (np.floor(134217728 * u[:, 0]) + u[:, 1]) / 134217728

    return draw


def ruby_uniforms() -> Draw:
    """53 bits of two words, as Ruby, Python and numpy's legacy generator make them."""
    return np.random.RandomState(SEED).random_sample


def state(*numbers: int) -> generators.Words64:
    return np.array(numbers, np.uint64)


def shift_register() -> generators.Words:
    """PRBS31."""
    return generators.lagged(state(*[1, 0] * 15, 1), 3, generators.XOR, 1)


def xorshift128() -> generators.Words:
    """Marsaglia's, 32 bits."""
    return generators.xorshift128(state(123456789, 362436069, 521288629, 88675123))


def tausworthe(parts: tuple[tuple[int, int, int], ...]) -> Callable[[], generators.Words]:
    """L'Ecuyer's combined generators of 32 bits."""
    begin = state(*(987654321 + 1000 * i for i in range(len(parts))))
    return lambda: generators.tausworthe(begin, 32, parts)


def luajit() -> generators.Words:
    """TW223: the low 52 bits of four Tausworthe generators of 64."""
    begin = 0x7A3F5C9184D2E6B1, 0x1B5E8D2C7F4A9360, 0xC4E1F7A2953B6D08, 0x5D9A3E8C1F7B2460
    whole = generators.tausworthe(state(*begin), 64, generators.TW223)
    return lambda m: whole(m) & np.uint64((1 << 52) - 1)


def well512() -> generators.Words:
    """WELL512a of Panneton, L'Ecuyer and Matsumoto."""
    begin = ((12345 + 6789 * k) * 2654435761 % 2**32 for k in range(16))
    return generators.well512(state(*begin))


def v8() -> generators.Words:
    """``Math.random`` of Node and Chrome: xorshift128+, its first word, out of blocks of 64."""
    begin = state(0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
    blocks = generators.reversed_blocks(generators.xorshift128_plus(begin, added=False), 64)
    return lambda m: blocks(m) >> np.uint64(12)


def gauss() -> Draw:
    """Python's ``random.gauss``."""
    generator = random.Random(SEED)
    return lambda m: np.array([generator.gauss(0, 1) for _ in range(m)])


def torch_normal(dtype: str = "float32") -> Draw:
    """``torch.randn`` on the CPU."""
    import torch

    source, kind = torch.Generator().manual_seed(SEED), getattr(torch, dtype)
    return lambda m: torch.randn(m, generator=source, dtype=kind).double().numpy()


def legacy(kind: str) -> Draw:
    """A method of numpy's ``RandomState``, of scale 1."""
    draw = getattr(np.random.RandomState(SEED), kind)
    return lambda m: draw(0, 1, m)


def modern() -> Draw:
    """What replaced it: nothing here predicts it, which is no proof that nobody can."""
    return np.random.Generator(np.random.PCG64(SEED << 70 | 1)).standard_normal


# --- congruential and lagged generators ---


def cosine_only(uniforms: Draw) -> Draw:
    """Box and Muller's first output."""

    def draw(m: int) -> Floats:
        u, turned = uniforms(2 * m).reshape(-1, 2).T
        return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * turned)

    return draw


def geometric_numbers(uniforms: Draw) -> Draw:
    """A discrete Laplace law of scale 10: the difference of two geometric numbers."""

    def draw(m: int) -> Floats:
        u, v = np.floor(-10 * np.log(uniforms(2 * m).reshape(-1, 2).T))
        return u - v

    return draw


def congruential(
    modulus: int, multiplier: int, increment: int = 0, *, keep: int = 53, stride: int = 1
) -> Draw:
    """The leading ``keep`` bits of every ``stride``-th state, over the modulus."""
    state = SEED * 987654321 % modulus

    def draw(m: int) -> Floats:
        nonlocal state
        values = np.empty(m)
        for i in range(m):
            for _ in range(stride):
                state = (multiplier * state + increment) % modulus
            values[i] = ((state << keep) // modulus + 0.5) / 2.0**keep
        return values

    return draw


def lagged(long: int, short: int, sign: int = 1, *, bits: int = 32, drop: int = 0) -> Draw:
    """x_n = x_(n - short) + sign·x_(n - long) modulo 2^bits, without ``drop`` low bits."""
    begin = np.random.default_rng(SEED).integers(0, 1 << bits, long).astype(np.uint64)
    kind = generators.ADD if sign > 0 else generators.REVERSED
    draw = generators.lagged(begin, short, kind, bits)
    return lambda m: ((draw(m) >> np.uint64(drop)) + 0.5) / 2.0 ** (bits - drop)


def mwc1616() -> generators.Words:
    """``Math.random`` of V8 until 2015: two 16-bit multiply-with-carry generators.

    Multiplying a·2^16 + b by c with carry is multiplying it modulo c·2^16 - 1.
    """
    one, two = (
        generators.congruential(c, 0, (c << 16) - 1, begin)
        for c, begin in ((18030, 123456789), (30903, 987654321))
    )
    low, half = np.uint64(0xFFFF), np.uint64(16)
    return lambda m: ((one(m) << half) + (two(m) & low)) & np.uint64(0xFFFFFFFF)


def wichmann_hill() -> Draw:
    """R's RNGkind("Wichmann-Hill"), Python's random of 1991."""
    parts = ((171, 30269, 1234), (172, 30307, 2345), (170, 30323, 3456))
    x, y, z = (generators.congruential(a, 0, m, begin) for a, m, begin in parts)
    return lambda m: (x(m) / 30269 + y(m) / 30307 + z(m) / 30323) % 1.0


def mrg32k3a() -> Draw:
    """L'Ecuyer's, of 1999."""
    draw = generators.mrg32k3a(state(12345, 23456, 34567, 45678, 56789, 67890))
    return lambda m: (draw(m) + 0.5) / 4294967088


_MINSTD = 2**31 - 1, 48271
_48 = 2**48, 0x5DEECE66D, 11
_64 = 2**64, 6364136223846793005, 1442695040888963407
_128 = 2**128, 0x2360ED051FC65DA44385DF649FCCF645, 11

LINEAR = "linear-complexity"
LATTICE = "congruential"
STATE = "state-recovery"
_LAPLACE = "laplace:scale=1"
ROWS = [
    Row("MT19937, 32 bits (PHP, Perl module), Φ⁻¹", lambda: inverse(twister()), LINEAR),
    Row("MT19937, 32 bits, Box-Muller", lambda: box_muller(twister()), LINEAR),
    Row("MT19937, R's inversion", lambda: inverse(r_uniforms()), LINEAR),
    Row("MT19937, 53 bits (Ruby, Python's random), Φ⁻¹", lambda: inverse(ruby_uniforms()), LINEAR),
    Row("MT19937, Python's random.gauss", gauss, LINEAR),
    Row("MT19937, torch.randn on the CPU", torch_normal, LINEAR),
    Row("MT19937, numpy.random.laplace (legacy)", lambda: legacy("laplace"), LINEAR, _LAPLACE),
    Row("xorshift128+ in V8's blocks (Node), Φ⁻¹", lambda: inverse(unit(v8, 52)), LINEAR),
    Row("xorshift128+ in V8's blocks, Box-Muller", lambda: box_muller(unit(v8, 52)), LINEAR),
    Row("TW223 (LuaJIT), Φ⁻¹", lambda: inverse(unit(luajit, 52)), LINEAR),
    Row("TW223 (LuaJIT), Box-Muller", lambda: box_muller(unit(luajit, 52)), LINEAR),
    Row("xorshift128, Φ⁻¹", lambda: inverse(unit(xorshift128, 32)), LINEAR),
    Row("xorshift128, Box-Muller", lambda: box_muller(unit(xorshift128, 32)), LINEAR),
    Row("taus88, Φ⁻¹", lambda: inverse(unit(tausworthe(generators.TAUS88), 32)), LINEAR),
    Row("lfsr113, Φ⁻¹", lambda: inverse(unit(tausworthe(generators.LFSR113), 32)), LINEAR),
    Row("WELL512a, Φ⁻¹", lambda: inverse(unit(well512, 32)), LINEAR),
    Row("PRBS31, signs only", lambda: signs(unit(shift_register, 1)), LINEAR),
    Row("minstd (48271), Φ⁻¹", lambda: inverse(congruential(*_MINSTD)), LATTICE),
    Row("minstd (48271), Box-Muller", lambda: box_muller(congruential(*_MINSTD)), LATTICE),
    Row("minstd (48271), Box-Muller, cosine only", lambda: cosine_only(congruential(*_MINSTD)),
        LATTICE),
    Row("minstd (48271), two geometric numbers", lambda: geometric_numbers(congruential(*_MINSTD)),
        LATTICE, "discrete-laplace:scale=10"),
    Row("RANDU, Φ⁻¹", lambda: inverse(congruential(2**31, 65539)), LATTICE),
    Row("ANSI C's rand, 15 bits, Φ⁻¹",
        lambda: inverse(congruential(2**31, 1103515245, 12345, keep=15)), LATTICE),
    Row("a secret multiplier modulo 2^32, Φ⁻¹", lambda: inverse(congruential(2**32, 2891336453, 7)),
        LATTICE),
    Row("drand48, Φ⁻¹", lambda: inverse(congruential(*_48)), LATTICE),
    Row("java.util.Random, nextFloat, Φ⁻¹", lambda: inverse(congruential(*_48, keep=24)), LATTICE),
    Row("java.util.Random, nextGaussian", lambda: polar(congruential(*_48, stride=2)), LATTICE),
    Row("Wichmann-Hill, Φ⁻¹", lambda: inverse(wichmann_hill()), LATTICE),
    Row("multiply-with-carry (V8 until 2015), Φ⁻¹", lambda: inverse(unit(mwc1616, 32)), LATTICE),
    Row("64 bits, its high 32, Φ⁻¹", lambda: inverse(congruential(*_64, keep=32)), LATTICE),
    Row("128 bits, its high 52, Φ⁻¹", lambda: inverse(congruential(*_128, keep=52)), LATTICE),
    Row("MRG32k3a, Φ⁻¹", lambda: inverse(mrg32k3a()), LATTICE),
    Row("glibc's random(), Φ⁻¹", lambda: inverse(lagged(31, 3, drop=1)), LATTICE),
    Row("lagged Fibonacci 55, 24, Φ⁻¹", lambda: inverse(lagged(55, 24)), LATTICE),
    Row("lagged Fibonacci 55, 24, Box-Muller", lambda: box_muller(lagged(55, 24)), LATTICE),
    Row("lagged Fibonacci 607, 273, Φ⁻¹", lambda: inverse(lagged(607, 273)), LATTICE),
    Row("subtract-with-borrow 43, 22, Φ⁻¹", lambda: inverse(lagged(43, 22, -1)), LATTICE),
    Row("RANLUX's recurrence 24, 10, Φ⁻¹", lambda: inverse(lagged(24, 10, -1, bits=24)), LATTICE),
    Row("TW223 (LuaJIT), polar", lambda: polar(unit(luajit, 52)), LINEAR),
    Row("xorshift128+ in V8's blocks, polar", lambda: polar(unit(v8, 52)), LINEAR),
    Row("xorshift128, polar", lambda: polar(unit(xorshift128, 32)), LINEAR),
    Row("WELL512a, polar", lambda: polar(unit(well512, 32)), LINEAR),
    Row("MT19937, Python's random.gauss", gauss, STATE),
    Row("MT19937, numpy.random.normal (legacy)", lambda: legacy("normal"), STATE),
    Row("MT19937, numpy.random.laplace (legacy)", lambda: legacy("laplace"), STATE, _LAPLACE),
    Row("MT19937, R's inversion", lambda: inverse(r_uniforms()), STATE),
    Row("MT19937, torch.randn on the CPU", torch_normal, STATE),
    Row("MT19937, torch.randn on the CPU, float64", lambda: torch_normal("float64"), STATE),
    Row("PCG64, numpy's default_rng().normal", modern, STATE),
]  # fmt: skip


def measure_row(row: Row) -> Line:
    """Draw twice as much until the row's test is certain."""
    law, stream = Claim.parse(row.claim), KeyedStream.from_seed(SEED)
    draw, values, size = row.begin(), np.empty(0), FEWEST
    while size <= MOST:
        values = np.concatenate([values, draw(size - len(values))])
        block = SampleBlock(0, values.reshape(-1, D), claim=law, spread=stream.numpy())
        test = registry.load("tests", row.test)(law, stream.child(row.name))
        began = time.process_time()
        test.update(block)
        result = test.evidence(alpha=0.01)
        seconds = time.process_time() - began
        if result.p <= CERTAIN:
            needed = result.details.get("values needed")
            predicted = str(result.details.get("predicted", ""))
            if "windows" in result.details:
                predicted = f"{result.details['windows']} windows"
            return Line(row.name, row.test, size, needed, seconds, predicted, result.effect)
        size *= 2
    return Line(row.name, row.test, None, None, seconds, "", result.effect)


def line_text(one: Line) -> str:
    """A line for people."""
    needed, drawn = ("" if n is None else f"{n:,}" for n in (one.needed, one.drawn))
    return (
        f"{one.generator} | {one.test} | needed {needed} | predicted at {drawn} | "
        f"{one.seconds:.2f} s | {one.predicted or 'nothing'}"
    )


def main() -> None:
    chosen = options(__doc__, only=[""], write=False)
    lines = []
    for row in ROWS:
        if any(part in row.name for part in chosen.only):
            lines.append(measure_row(row))
            print(line_text(lines[-1]), flush=True)
    if not chosen.write:
        return
    # these rows are replaced; others that are still in ROWS stay
    path = WRITTEN / "results.json"
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    by_name = {(one.generator, one.test): one for one in [*(Line(**row) for row in before), *lines]}
    rows = [by_name[row.name, row.test] for row in ROWS if (row.name, row.test) in by_name]
    write(path, {"machine": MACHINE, "seed": SEED, "rows": [asdict(x) for x in rows]})


if __name__ == "__main__":
    main()
