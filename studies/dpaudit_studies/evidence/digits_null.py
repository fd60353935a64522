"""How often granularity, norms and last-digits accuse honest samplers, audit by audit.

`python -m dpaudit_studies.evidence.digits_null` runs 200 small audits of each sampler (8,000 values
in short calls, several dimensions and long calls; 2,048 of the slow ones) with seeds (2025,
sampler, audit), and prints per sampler and test how many p-values are at most 0.05 and 0.001.
`--audits N`, `--only NAME` and `--values N` (of each audit) change that. Libraries that are not
installed are left out.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit import registry
from dpaudit.audit.block import SampleBlock
from dpaudit.claims import Claim
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.randomness import KeyedStream
from dpaudit.stats import clopper_pearson
from dpaudit_studies.evidence import MACHINE, options

TESTS = ("granularity", "norms", "last-digits")
SEED = 2025
LEVELS = (0.05, 0.001)

Array = npt.NDArray[np.floating[Any]]
Draw = Callable[[int], Array]
"""The next so many values, shape (m,)."""


@dataclass(frozen=True, slots=True)
class Honest:
    """A sampler of the claimed law; ``values`` of one audit, if it is slow."""

    begin: Callable[[np.random.Generator], Draw]
    claim: str = "gaussian:sigma=1"
    values: int | None = None


def single(x: npt.ArrayLike) -> Array:
    return np.asarray(x, np.float32).astype(np.float64)


def uniforms(rng: np.random.Generator, n: int) -> Array:
    return (rng.integers(0, 1 << 52, n) + 0.5) * 2.0**-52


def _box_muller(rng: np.random.Generator) -> Draw:
    def draw(n: int) -> Array:
        r, turn = np.sqrt(-2 * np.log(uniforms(rng, n))), 2 * np.pi * uniforms(rng, n)
        return np.stack([r * np.cos(turn), r * np.sin(turn)], axis=1).ravel()[:n]

    return draw


def _polar(rng: np.random.Generator) -> Draw:
    def draw(n: int) -> Array:
        a, b = 2 * rng.random((2, 2 * n)) - 1
        s = a * a + b * b
        inside = (s > 0) & (s < 1)
        f = np.sqrt(-2 * np.log(s[inside]) / s[inside])
        return np.stack([a[inside] * f, b[inside] * f], axis=1).ravel()[:n]

    return draw


def _ratio(rng: np.random.Generator) -> Draw:
    def draw(n: int) -> Array:
        u, v = uniforms(rng, 4 * n).reshape(2, -1)
        x = math.sqrt(8 / math.e) * (v - 0.5) / u
        return np.asarray(x[x * x <= -4 * np.log(u)][:n])

    return draw


def _legacy(name: str, *args: float) -> Callable[[np.random.Generator], Draw]:
    def begin(rng: np.random.Generator) -> Draw:
        old = np.random.RandomState(rng.integers(0, 1 << 32, 8, np.uint32))
        return lambda n: np.asarray(getattr(old, name)(*args, n))

    return begin


def _torch(law: str, dtype: str) -> Callable[[np.random.Generator], Draw]:
    def begin(rng: np.random.Generator) -> Draw:
        import torch

        torch.manual_seed(int(rng.integers(1 << 62)))
        kind = getattr(torch, dtype)
        if law == "normal":
            return lambda n: np.asarray(torch.randn(n, dtype=kind).double().numpy())
        one = torch.distributions.Laplace(torch.zeros((), dtype=kind), torch.ones((), dtype=kind))
        return lambda n: np.asarray(one.sample((n,)).double().numpy())

    return begin


def _source(make: Callable[[], Gaussian | SecureGaussian]) -> Callable[[np.random.Generator], Draw]:
    def begin(rng: np.random.Generator) -> Draw:
        source, stream, call = make(), KeyedStream.from_seed(int(rng.integers(1 << 62))), 0

        def draw(n: int) -> Array:
            nonlocal call
            call += 1
            return np.asarray(source.sample(1, n, stream=stream.child(call))).ravel()

        return draw

    return begin


def _opendp(law: str) -> Callable[[np.random.Generator], Draw]:
    def begin(rng: np.random.Generator) -> Draw:
        import opendp.prelude as dp

        del rng
        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
        if law == "gaussian":
            added = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0)
        else:
            added = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=1.0)
        return lambda n: np.asarray(added([0.0] * n))

    return begin


def _diffprivlib(law: str) -> Callable[[np.random.Generator], Draw]:
    def begin(rng: np.random.Generator) -> Draw:
        from diffprivlib import mechanisms

        seed = int(rng.integers(1 << 31))
        if law == "gaussian":
            one = mechanisms.Gaussian(epsilon=1, delta=0.1, sensitivity=1, random_state=seed)
            scale = float(one._scale)
            return lambda n: np.array([one.randomise(0) for _ in range(n)]) / scale
        other = mechanisms.Laplace(epsilon=1, sensitivity=1, random_state=seed)
        return lambda n: np.array([other.randomise(0) for _ in range(n)])

    return begin


def _with(draw: Callable[[np.random.Generator, int], Array]) -> Callable[..., Draw]:
    return lambda rng: lambda n: draw(rng, n)


_LAPLACE = "laplace:scale=1"
_SLOW = 2_048

SAMPLERS: Mapping[str, Honest] = {
    "numpy normal": Honest(_with(lambda r, n: r.standard_normal(n))),
    "numpy normal float32": Honest(_with(lambda r, n: single(r.standard_normal(n, np.float32)))),
    "numpy laplace": Honest(_with(lambda r, n: r.laplace(0, 1, n)), _LAPLACE),
    "numpy legacy normal": Honest(_legacy("standard_normal")),
    "numpy legacy laplace": Honest(_legacy("laplace", 0.0, 1.0), _LAPLACE),
    "torch normal float32": Honest(_torch("normal", "float32")),
    "torch normal float64": Honest(_torch("normal", "float64")),
    "torch laplace float64": Honest(_torch("laplace", "float64"), _LAPLACE),
    "normal rounded to float32": Honest(_with(lambda r, n: single(r.standard_normal(n)))),
    "float32 times 3.7": Honest(_with(lambda r, n: 3.7 * single(r.standard_normal(n))),
                                "gaussian:sigma=3.7"),
    "laplace rounded to float32": Honest(_with(lambda r, n: single(r.laplace(0, 1, n))), _LAPLACE),
    "inverse CDF": Honest(_with(lambda r, n: np.asarray(scipy.special.ndtri(uniforms(r, n))))),
    "inverse CDF times 2.5": Honest(
        _with(lambda r, n: np.asarray(2.5 * scipy.special.ndtri(uniforms(r, n)))),
        "gaussian:sigma=2.5"),
    "Box-Muller": Honest(_box_muller),
    "polar": Honest(_polar),
    "ratio of uniforms": Honest(_ratio),
    "sum of four normals": Honest(_with(lambda r, n: r.standard_normal((4, n)).sum(0) / 2)),
    "difference of exponentials": Honest(
        _with(lambda r, n: r.standard_exponential(n) - r.standard_exponential(n)), _LAPLACE),
    "grid of 2^-40": Honest(_with(lambda r, n: np.rint(r.standard_normal(n) * 2**40) / 2**40)),
    "grid of 2^-26": Honest(_with(lambda r, n: np.rint(r.standard_normal(n) * 2**26) / 2**26)),
    "dpaudit gaussian": Honest(_source(Gaussian)),
    "dpaudit secure-gaussian": Honest(_source(SecureGaussian), values=8_192),
    "diffprivlib gaussian": Honest(_diffprivlib("gaussian"), values=8_192),
    "diffprivlib laplace": Honest(_diffprivlib("laplace"), _LAPLACE, values=8_192),
    "opendp gaussian": Honest(_opendp("gaussian"), values=_SLOW),
    "opendp laplace": Honest(_opendp("laplace"), _LAPLACE, values=_SLOW),
}  # fmt: skip


def blocks(
    draw: Draw, claim: Claim, values: int, rng: np.random.Generator
) -> Iterator[SampleBlock]:
    """Short calls, a sweep of dimensions, long calls: about ``values`` in all."""
    plan = [(values // 32, 8, values // 32)]
    plan += [(values // 16 // d, d, 1) for d in (1, 2, 4, 16, 32, 128)]
    plan += [(values // 16 // 64, 64, 1)] * 6
    call = 0
    for n, d, calls in plan:
        if n:
            x = draw(n * d).reshape(n, d)
            yield SampleBlock(call, np.asarray(x, np.float64), claim=claim, spread=rng, calls=calls)
            call += calls


def p_values(name: str, audit: int, values: int) -> dict[str, float]:
    """One audit of a sampler by each test."""
    one = SAMPLERS[name]
    rng = np.random.default_rng([SEED, list(SAMPLERS).index(name), audit])
    claim, stream = Claim.parse(one.claim), KeyedStream.from_seed(f"{name}/{audit}")
    tests = {test: registry.load("tests", test)(claim, stream.child(test)) for test in TESTS}
    for block in blocks(one.begin(rng), claim, min(values, one.values or values), rng):
        for test in tests.values():
            test.update(block)
    return {test: judge.evidence(alpha=1e-3).p for test, judge in tests.items()}


def main() -> None:
    args = options(__doc__, audits=200, values=8_000, only=str)
    print(f"{MACHINE}; {args.audits} audits each, p at most {LEVELS}", flush=True)
    everything = {test: [0, 0, 0] for test in TESTS}
    for name in [args.only] if args.only else SAMPLERS:
        library = name.split()[0]
        if library in ("torch", "opendp", "diffprivlib") and not importlib.util.find_spec(library):
            continue
        began = time.process_time()
        tables = [p_values(name, audit, args.values) for audit in range(args.audits)]
        row = []
        for test in TESTS:
            counts = [sum(p[test] <= level for p in tables) for level in LEVELS]
            everything[test] = [
                a + b for a, b in zip(everything[test], [*counts, len(tables)], strict=True)
            ]
            row.append(f"{test} {counts[0]:3d} {counts[1]:2d}")
        print(f"{name:28} {'   '.join(row)}   {time.process_time() - began:.0f} s", flush=True)
    for test, (often, seldom, n) in everything.items():
        share = clopper_pearson(often, n)
        print(
            f"{test}: {often} of {n:,} at most 0.05: {often / n:.2%} "
            f"[{100 * share.low:.2f}, {100 * share.high:.2f}]; {seldom} at most 0.001"
        )


if __name__ == "__main__":
    main()
