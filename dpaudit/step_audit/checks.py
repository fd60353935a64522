"""Tests of K releases of one batch: noise by their differences, the clipped sum by their mean.

A release in units of σ is x_k = s + z_k, with s the clipped sum and z_k ~ N(0, 1) in each
coordinate, independent over everything. Laws under the claim are exact unless said.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from dpaudit.stats import binomial_two_sided, chi_square_two_sided, kolmogorov_p
from dpaudit.step_audit.observe import Block, Observed
from dpaudit.step_audit.oracle import CLIPPED, Oracle

__all__ = ["Outcome", "accountant_outcomes", "noise_outcomes", "sum_outcomes"]

Array = npt.NDArray[np.float64]

_NOTHING = 1e-6
"""A variance, in that of the claim, that is rounding and no noise."""
_MOST_BLOCKS = 64
_PREFIX = 256
_SHORT = 16  # torch.randn of 16 numbers or more begins with the same 16
_EQUAL = 0.99  # of 16 normals, two are correlated more with probability 1e-13
_SEEDS = (*range(4096), 67280421310721)  # the last is torch's own default
_GRIDS = {"bfloat16": 7, "float16": 10}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test: p = 0 is certain. ``effect`` says what is off, ``cause`` its likeliest reason."""

    name: str
    looks_at: str
    p: float
    effect: str = ""
    cause: str = ""
    statistic: float = 0.0


@dataclass(frozen=True, eq=False, slots=True)
class _Noise:
    """Blocks with noise, in units of σ: releases, ``s`` without noise, and their ``scale``."""

    blocks: list[Block]
    x: list[Array]
    s: list[Array]
    scale: float

    @property
    def pairs(self) -> list[Array]:
        """Differences of disjoint pairs of steps, standard normal under the claim, (K/2, n)."""
        return [(x[::2] - x[1::2]) / (math.sqrt(2) * self.scale) for x in self.x]


def noise_outcomes(
    seen: Observed, oracle: Oracle, *, sigma: float, divisor: float, alpha: float, bound: float
) -> tuple[list[Outcome], _Noise]:
    """What differs between repeats of one step, against N(0, σ²) in each coordinate."""
    ends = np.cumsum([0, *(b.values.shape[1] for b in seen.blocks)])
    s = [oracle.sums[CLIPPED][a:b] / sigma for a, b in itertools.pairwise(ends)]
    x = [b.values * divisor / sigma for b in seen.blocks]
    squares = [float(((v - v.mean(0)) ** 2).sum()) for v in x]
    degrees = [v.shape[1] * (len(v) - 1) for v in x]
    still = [q <= _NOTHING * n for q, n in zip(squares, degrees, strict=True)]
    outcomes = list(_still(seen.blocks, x, s, still))
    live = [i for i, none in enumerate(still) if not none]
    if not live:
        return outcomes, _Noise([], [], [], 1.0)
    total, n = sum(squares[i] for i in live), sum(degrees[i] for i in live)
    p = chi_square_two_sided(total, n)
    low, high = (total / stats.chi2.ppf(q, n) for q in (1 - alpha / 2, alpha / 2))
    outcomes.append(
        Outcome(
            "noise in total",
            "variance over all parameters and steps",
            p,
            f"noise of {math.sqrt(total / n):.3g} × the claimed standard deviation",
            _cause_of_scale(low, high, seen, bound),
            total / n,
        )
    )
    scale = 1.0 if p > alpha / 20 else math.sqrt(total / n)
    noise = _Noise(
        [seen.blocks[i] for i in live], [x[i] for i in live], [s[i] for i in live], scale
    )
    parts = [(seen.blocks[i].name, squares[i], degrees[i]) for i in live]
    outcomes += [_parameters(parts), _steps(noise), _law(noise), _correlated(noise, seen)]
    if not seen.low_gradients:
        outcomes.append(_grid(noise, sigma=sigma, divisor=divisor))
    outcomes += _equal_values(noise, seen)
    return outcomes, noise


def _still(blocks: Iterable[Block], x: list[Array], s: list[Array], still: list[bool]) -> Iterable[Outcome]:
    found: dict[bool, list[str]] = {True: [], False: []}
    for block, values, own, none in zip(blocks, x, s, still, strict=True):
        if none:
            found[float(((values[0] - own) ** 2).mean()) > 0.1].append(block.name)
    if found[True]:
        yield Outcome(
            "noise repeats", "equal noise in all steps", 0.0, _listed(found[True]),
            "the same noise is added at each step: it is cached, or its generator is seeded anew",
        )  # fmt: skip
    if found[False]:
        yield Outcome(
            "parameters without noise", "noise in each parameter", 0.0, _listed(found[False])
        )


def _listed(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _cause_of_scale(low: float, high: float, seen: Observed, bound: float) -> str:
    world, micro = len(seen.layouts), seen.micro_steps
    same = "; or all add the same values: their generators are in one state"
    known = {
        float(world): f"each of {world} processes adds the whole noise"
        + (same if seen.equal_states else ""),
        float(micro): f"each of {micro} micro-steps adds the whole noise",
        float(world * micro): f"each of {micro} micro-steps on {world} processes adds noise",
        1 / world: f"shares of {world} processes are averaged: √{world} too little",
        1 / world**2: f"noise is divided by the number of processes, {world}, twice",
        1 / micro: f"noise is averaged over {micro} micro-steps",
        1 / micro**2: f"noise is divided by the number of micro-steps, {micro}",
        bound**-2: "max_grad_norm is left out of the noise",
        bound**2: "max_grad_norm is in the noise twice",
    }
    fits = [text for v, text in known.items() if v != 1 and low / 1.02 <= v <= high * 1.02]
    return "; or ".join(fits)


def _parameters(parts: list[tuple[str, float, int]]) -> Outcome:
    """Each part's variance against that of all others: an F test for each."""
    total, n = sum(q for _, q, _ in parts), sum(m for _, _, m in parts)
    tests = []
    for name, q, m in parts if len(parts) > 1 else ():
        ratio = (q / m) / ((total - q) / (n - m))
        p = min(1.0, 2 * min(special.fdtr(m, n - m, ratio), special.fdtrc(m, n - m, ratio)))
        tests.append((p, ratio, name))
    p, ratio, name = min(tests, default=(1.0, 1.0, ""))
    return Outcome(
        "noise of single parameters", "each parameter's variance against the others'",
        min(1.0, p * max(1, len(tests))),
        f"{name}: noise of {math.sqrt(ratio):.3g} × the others' standard deviation", "", ratio,
    )  # fmt: skip


def _steps(noise: _Noise) -> Outcome:
    """Each two steps: independent noise differs by a χ²; equal noise not at all."""
    wide = np.concatenate(noise.x, axis=1) / noise.scale
    gram = wide @ wide.T
    norms = np.diag(gram)
    i, j = np.triu_indices(len(wide), 1)
    apart = np.maximum(0.0, (norms[i] + norms[j] - 2 * gram[i, j]) / 2)
    n = wide.shape[1]
    tails = 2 * np.minimum(special.chdtr(n, apart), special.chdtrc(n, apart))
    at = int(np.argmin(tails))
    ratio = float(apart[at] / n)
    return Outcome(
        "noise of different steps", "how far two steps are apart",
        min(1.0, float(tails[at]) * len(i)),
        f"steps {i[at] + 1} and {j[at] + 1} differ by {ratio:.2g} × what independent noise does",
        "noise is reused in a later step" if ratio < 1 else "", ratio,
    )  # fmt: skip


def _law(noise: _Noise) -> Outcome:
    values = np.concatenate([u.reshape(-1) for u in noise.pairs])
    if len(values) < 100:
        return Outcome("Gaussian noise", "distribution of the differences", 1.0)
    counts, _ = np.histogram(special.ndtr(values), bins=1000, range=(0, 1))
    distance, p = kolmogorov_p(counts)
    return Outcome(
        "Gaussian noise", "distribution of the differences", min(1.0, 1.07 * p),
        f"Kolmogorov-Smirnov distance {distance:.2g} from the Gaussian law", "", distance,
    )  # fmt: skip


def _correlated(noise: _Noise, seen: Observed) -> Outcome:
    """Parts of parameters in the same step, and rows within one: exact correlations."""
    pairs = noise.pairs
    some = np.unique(np.linspace(0, len(pairs) - 1, _MOST_BLOCKS).astype(int))
    tests: list[tuple[float, float, str]] = []

    def test(a: Array, b: Array, name: str) -> None:
        n = a.size
        if n < 8:
            return
        r = float((a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum()))
        t = abs(r) * math.sqrt((n - 1) / max(1e-300, 1 - r * r))
        tests.append((float(2 * special.stdtr(n - 1, -t)), r, name))

    for i, j in itertools.combinations(some, 2):
        length = min(pairs[i].shape[1], pairs[j].shape[1], _PREFIX)
        a, b = noise.blocks[i], noise.blocks[j]
        where = f"{a.name} on rank {a.rank} and {b.name} on rank {b.rank}"
        test(pairs[i][:, :length], pairs[j][:, :length], where)
    for i in some:
        block, u = noise.blocks[i], pairs[i][:, : noise.blocks[i].layout.count // 2]
        row = math.prod(block.layout.shape[1:])
        if len(block.layout.shape) > 1 and 2 * row <= u.shape[1]:
            a, b = u[:, : u.shape[1] // row // 2 * row], u[:, row:]
            length = min(a.shape[1], b.shape[1]) // row * row
            starts = np.arange(0, length, 2 * row)[:, None] + np.arange(row)
            starts = starts[starts[:, -1] + row < u.shape[1]].reshape(-1)
            test(u[:, starts], u[:, starts + row], f"neighbouring rows of {block.name}")
    p, r, where = min(tests, default=(1.0, 0.0, ""))
    return Outcome(
        "noise of ranks and parameters", "correlation of parts in one step",
        min(1.0, p * max(1, len(tests))), f"{where}: correlation {r:.3g}", "", r,
    )  # fmt: skip


def _grid(noise: _Noise, *, sigma: float, divisor: float) -> Outcome:
    """Numbers of a short format lie on a grid, and so do their differences."""
    raw = np.concatenate(
        [(x[::2] - x[1::2])[np.abs(x[::2]) < 64] for x in noise.x]  # coarser: float32's own grid
    )
    tests = []
    for unit, (kind, digits) in itertools.product((1.0, sigma, sigma / divisor), _GRIDS.items()):
        values, spread = raw * unit, noise.scale * unit
        grid = 2.0 ** (math.floor(math.log2(spread)) - 2 - digits)
        near = int((np.abs(values / grid - np.round(values / grid)) < 0.05).sum())
        p = float(special.betainc(near, len(raw) - near + 1, 0.103)) if near else 1.0
        tests.append((p, near / max(1, len(raw)), kind))
    p, share, kind = min(tests)
    return Outcome(
        "noise precision", "whether noise lies on a coarse grid", min(1.0, p * len(tests)),
        f"{share:.0%} of the differences lie on a grid as coarse as {kind}'s (10% by chance)",
        f"the noise is drawn in {kind}", share,
    )  # fmt: skip


def _equal_values(noise: _Noise, seen: Observed) -> Iterable[Outcome]:
    """The same values at the start of any two draws; or those of a generator freshly seeded."""
    long = [i for i, b in enumerate(noise.blocks) if b.layout.count >= _SHORT]
    long = [long[i] for i in np.unique(np.linspace(0, len(long) - 1, _MOST_BLOCKS).astype(int))] if long else []
    if not long:
        return
    steps = len(noise.x[0])
    rows = np.concatenate([(noise.x[i] - noise.s[i])[:, :_SHORT] for i in long])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    at = [(noise.blocks[i], k) for i in long for k in range(steps)]
    alike = np.triu(np.abs(rows @ rows.T), 1)
    i, j = np.unravel_index(int(alike.argmax()), alike.shape)
    equal = float(alike[i, j]) > _EQUAL
    (a, k), (b, m) = at[int(i)], at[int(j)]
    causes = {
        a.rank != b.rank: "processes draw the same noise for different shards: their generators "
        "are in one state (a DTensor on the CPU draws from each process's own generator)",
        k != m: "noise is reused in a later step",
        a.name != b.name: "the generator is seeded anew for each parameter",
    }
    yield Outcome(
        "equal noise", "equal values on ranks, in shards, steps and parameters",
        0.0 if equal else 1.0,
        f"{a.name} on rank {a.rank} in step {k + 1} and {b.name} on rank {b.rank} in step {m + 1}",
        causes.get(True, ""), float(alike[i, j]),
    )  # fmt: skip
    own = tuple(seed for seed in seen.seeds if seed not in _SEEDS)
    seeds = np.concatenate([_first_draws(_SEEDS), _first_draws(own)])
    match = np.abs(rows @ seeds.T)
    i, j = np.unravel_index(int(match.argmax()), match.shape)
    block, k = at[int(i)]
    yield Outcome(
        "predictable noise", "the first values of torch generators with small seeds",
        0.0 if match[i, j] > _EQUAL else 1.0,
        f"{block.name} on rank {block.rank}, step {k + 1}: torch.manual_seed({(*_SEEDS, *own)[j]})",
        "anyone who reads the program can subtract the noise", float(match[i, j]),
    )  # fmt: skip


@functools.lru_cache(maxsize=4)
def _first_draws(seeds: tuple[int, ...]) -> Array:
    import torch

    generator = torch.Generator()
    rows = np.empty((len(seeds), _SHORT))
    for row, seed in zip(rows, seeds, strict=True):
        row[:] = torch.randn(_SHORT, generator=generator.manual_seed(seed)).numpy()
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def sum_outcomes(
    noise: _Noise, seen: Observed, oracle: Oracle, *, sigma: float, tolerance: float
) -> Iterable[Outcome]:
    """The mean release against the clipped sum; ``tolerance`` is rounding, relative to the sum.

    Student's and Fisher's laws with the variance of the noise as it is: exact, whatever that is.
    """
    if not noise.blocks:
        return
    x = np.concatenate(noise.x, axis=1)
    keep = _live(noise, seen)
    sums = {way: v[keep] / sigma for way, v in oracle.sums.items()}
    steps, n = x.shape
    mean, s = x.mean(0), sums[CLIPPED]
    freedom = n * (steps - 1)
    error = math.sqrt(float(((x - mean) ** 2).sum()) / freedom / steps)  # of a mean
    rounding = tolerance * float(np.linalg.norm(s))

    def tail(shift: float) -> float:
        return float(special.stdtr(freedom, -max(0.0, abs(shift) - rounding) / error))

    size = float(np.linalg.norm(s)) or 1.0
    wrong = {way: v - s for way, v in sums.items() if np.linalg.norm(v - s) > 1e-6 * size}
    tests = [(tail(min_zero((mean - s) @ u / np.linalg.norm(u))), way) for way, u in wrong.items()]
    p = min(tests, default=(1.0, ""))[0]
    best = min(sums, key=lambda way: float(((mean - sums[way]) ** 2).sum()))
    unclipped = _unclipped(noise, sums, mean, s, error)
    if unclipped:
        best = f"not clipped: {_listed(unclipped)}"
        if not any("lora" in name for name in unclipped) and any(
            "lora" in b.name for b in noise.blocks
        ):
            best += " (base weights), while LoRA weights are"
    clipping = Outcome(
        "clipping", "the released sum against sums clipped in a wrong way",
        min(1.0, 2 * p * max(1, len(tests))),
        f"the released sum has norm {np.linalg.norm(mean) * sigma:.3g}, clipped "
        f"{size * sigma:.3g}, unclipped {np.linalg.norm(sums.get('no record is clipped', s)) * sigma:.3g}",
        "" if best == CLIPPED else best,
    )  # fmt: skip
    slope = float(mean @ s) / size**2
    yield clipping
    yield Outcome(
        "signal", "how much of the clipped sum is released", min(1.0, 2 * tail((slope - 1) * size)),
        f"{slope:.3g} × the clipped sum is released, 1 expected", _cause_of_slope(slope, seen), slope,
    )  # fmt: skip
    excess = max(0.0, float(np.linalg.norm(mean - s)) - rounding)
    ratio = (excess / error) ** 2 / n
    yield Outcome(
        "clipped sum", "the mean release less the clipped sum, in all coordinates",
        float(special.fdtrc(n, freedom, ratio)),
        "the released gradient is not the clipped sum plus noise", "", ratio,
    )  # fmt: skip


def min_zero(value: float) -> float:
    return max(0.0, float(value))


def _live(noise: _Noise, seen: Observed) -> npt.NDArray[np.bool_]:
    own = {id(b) for b in noise.blocks}
    return np.concatenate([np.full(b.values.shape[1], id(b) in own) for b in seen.blocks])


def _unclipped(noise: _Noise, sums: dict[str, Array], mean: Array, s: Array, error: float) -> list[str]:
    """Parameters whose release fits the sum without clipping better; none if all do, or no other."""
    raw, names, rest, at = sums.get("no record is clipped", s), [], 0, 0
    for block, x in zip(noise.blocks, noise.x, strict=True):
        part = slice(at, at + x.shape[1])
        at += x.shape[1]
        step = raw[part] - s[part]
        length = float(np.linalg.norm(step))
        if length < 12 * error:
            continue
        if float((mean[part] - s[part]) @ step) / length > length / 2:
            names.append(block.name)
        else:
            rest += 1
    return names if rest else []


def _cause_of_slope(slope: float, seen: Observed) -> str:
    world, micro = len(seen.layouts), seen.micro_steps
    known = {
        0.0: "the step does not use the gradients",
        1 / world: f"gradients are averaged over {world} processes once too often",
        float(world): f"gradients are summed over {world} processes, and should be averaged",
        1 / micro: f"gradients are averaged over {micro} micro-steps once too often",
        float(micro): f"gradients of {micro} micro-steps are summed, and should be averaged",
    }
    return next((text for v, text in known.items() if v != 1 and abs(slope - v) < 0.1), "")


def accountant_outcomes(
    seen: Observed, *, records: int, data_records: int | None, rate: float | None,
    multiplier: float, divisor: float,
) -> Iterable[Outcome]:  # fmt: skip
    """What the accountant counts on against what happened in one step."""
    if seen.counted is not None:
        told, counted_rate, steps = seen.counted
        rate = counted_rate if rate is None else rate
        wrong = []
        if steps < 1:
            wrong.append("the step is not counted")
        elif told > multiplier * (1 + 1e-6):
            wrong.append(f"noise multiplier {told:.4g} is counted, the claim is {multiplier:.4g}")
        yield Outcome("accountant", "what it counts", float(not wrong), "; ".join(wrong))
    if data_records is None or rate is None:
        return
    world = len(seen.layouts)
    expected = divisor / data_records if divisor > 1 else records / data_records
    p = binomial_two_sided(records, data_records, min(1.0, rate))
    certain = divisor > 1 and abs(expected / rate - 1) > 0.1
    factor = expected / rate
    cause = ""
    if world > 1 and min(abs(factor / world - 1), abs(factor * world - 1)) < 0.1:
        cause = f"the number of processes, {world}, is left out or counted twice"
    yield Outcome(
        "sample rate", "records in the batch over records in the data set",
        0.0 if certain else p,
        f"{expected:.3g} of the records are in a batch of all processes, the accountant counts on "
        f"{rate:.3g}", cause, factor,
    )  # fmt: skip
