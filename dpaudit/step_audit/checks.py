"""Tests of K releases of one batch: noise by their differences, the clipped sum by their mean.

In units of σ, a release is x_k = s + z_k: s is the clipped sum, z_k ~ N(0, 1) in each coordinate,
independent over all coordinates and steps. Under that claim the laws are exact unless said.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from dpaudit.stats import chi_square_two_sided, kolmogorov_p
from dpaudit.step_audit.observe import Part, listed
from dpaudit.step_audit.oracle import CLIPPED, RAW

__all__ = ["LOOKS_AT", "Outcome", "Releases"]

Array = npt.NDArray[np.float64]

LOOKS_AT = {
    "noise in total": "variance over all parameters and steps",
    "noise of single parameters": "each parameter's variance against the others'",
    "parameters without noise": "variance of each parameter",
    "noise repeats": "equal noise in all steps",
    "noise of different steps": "how far two steps are apart",
    "noise of ranks and parameters": "correlation of two parts in one step",
    "equal noise": "equal values on ranks, in shards, steps and parameters",
    "predictable noise": "first values of torch generators with small seeds",
    "noise precision": "whether noise lies on a coarse grid",
    "Gaussian noise": "distribution of the differences",
    "clipping": "the mean release against sums that are clipped in a wrong way",
    "signal": "how much of the clipped sum is released",
    "clipped sum": "the mean release less the clipped sum, in all coordinates",
    "replicas": "what processes hold of the same part, bit by bit",
    "changes outside the optimizer": "parameters that the private optimizer does not hold",
    "accountant": "what the accountant is told of a step",
    "sample rate": "records in the batch over records in the data set",
}
_NOTHING = 1e-6
"""A variance, in that of the claim, that is rounding and no noise."""
_MOST_PARTS = 64
_PREFIX = 256
_SHORT = 16  # torch.randn of 16 or more numbers begins with the same 16
_EQUAL = 0.99  # two times 16 normals are correlated more with probability 1e-13
_SEEDS = (*range(4096), 67280421310721)  # the last is torch's default
_DIGITS = {"bfloat16": 7, "float16": 10}


class Outcome(NamedTuple):
    """One test; p = 0 is certain."""

    name: str
    p: float
    effect: str = ""
    cause: str = ""
    statistic: float = 0.0


def _spread(indices: Sequence[int]) -> list[int]:
    """At most so many of them, at even distances."""
    at = np.linspace(0, max(0, len(indices) - 1), min(len(indices), _MOST_PARTS)).astype(int)
    return [indices[i] for i in at]


def _slices(parts: list[Part]) -> list[slice]:
    ends = np.cumsum([0, *(layout.count for _, _, layout in parts)])
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


class Releases:
    """Releases ``x`` (K, n) of ``parts``, and ``sums`` (n,) by how they are clipped, in units of σ.

    ``processes`` and ``micro`` steps are how often a step could add noise by mistake.
    """

    def __init__(
        self, parts: list[Part], x: Array, sums: dict[str, Array], *, processes: int, micro: int
    ) -> None:
        self._processes, self._micro = processes, micro
        squares, away = ((x - x.mean(0)) ** 2).sum(0), (x[0] - sums[CLIPPED]) ** 2
        live = [squares[at].mean() > _NOTHING * len(x) for at in _slices(parts)]
        self._still = [  # and whether the noise is repeated, or there is none
            (name, away[at].mean() > 0.1)
            for (name, _, _), at, noisy in zip(parts, _slices(parts), live, strict=True)
            if not noisy
        ]
        keep = np.repeat(live, [layout.count for _, _, layout in parts])
        self._parts = list(itertools.compress(parts, live))
        self._at, self._squares = _slices(self._parts), squares[keep]
        self._x, self._sums = x[:, keep], {way: s[keep] for way, s in sums.items()}
        self._degrees = self._squares.size * (len(x) - 1)
        self._scale = 1.0  # of the noise; the claimed one until that is refuted

    def noise(
        self, *, alpha: float, bound: float, same: bool, seeds: list[int], units: tuple[float, ...]
    ) -> Iterator[Outcome]:
        """What differs between releases; without ``units`` not its precision.

        ``units`` are σ in those that noise may be drawn in.
        ``same``: torch's generators are in one state on all processes, seeded with ``seeds``.
        """
        if repeated := [name for name, equal in self._still if equal]:
            cause = "the same noise at each step: it is cached, or its generator seeded anew"
            yield Outcome("noise repeats", 0.0, listed(repeated), cause)
        if silent := [name for name, equal in self._still if not equal]:
            yield Outcome("parameters without noise", 0.0, listed(silent))
        if not self._parts:
            return
        total = float(self._squares.sum())
        p, ratio = chi_square_two_sided(total, self._degrees), total / self._degrees
        low, high = (total / stats.chi2.ppf(q, self._degrees) for q in (1 - alpha / 2, alpha / 2))
        effect = f"noise of {math.sqrt(ratio):.3g} × the claimed standard deviation"
        cause = self._cause_of_scale(low / 1.02, high * 1.02, bound, same)
        yield Outcome("noise in total", p, effect, cause, ratio)
        self._scale = 1.0 if p > alpha / len(LOOKS_AT) else math.sqrt(ratio)
        yield self._variances()
        yield self._steps()
        pairs = (self._x[::2] - self._x[1::2]) / (math.sqrt(2) * self._scale)
        yield self._correlated(pairs)
        if pairs.size >= 100:
            counts, _ = np.histogram(special.ndtr(pairs), bins=1000, range=(0, 1))
            distance, p = kolmogorov_p(counts)
            effect = f"Kolmogorov-Smirnov distance {distance:.2g} from the Gaussian law"
            yield Outcome("Gaussian noise", min(1.0, 1.07 * p), effect, "", distance)
        if units:
            yield self._grid(units)
        yield from self._equal(seeds)

    def _cause_of_scale(self, low: float, high: float, bound: float, same: bool) -> str:
        w, m = self._processes, self._micro
        or_same = "; or all add the same values: their generators are in one state" * same
        known = [
            (w, f"each of {w} processes adds the whole noise{or_same}"),
            (m, f"each of {m} micro-steps adds the whole noise"),
            (w * m if min(w, m) > 1 else 1, f"each of {m} micro-steps on {w} processes adds noise"),
            (1 / w, f"shares of {w} processes are averaged: √{w} too little"),
            (1 / w**2, f"noise is divided by the number of processes, {w}, twice"),
            (1 / m, f"noise is averaged over {m} micro-steps"),
            (1 / m**2, f"noise is divided by the number of micro-steps, {m}"),
            (bound**-2, "max_grad_norm is left out of the noise"),
        ]
        return "; or ".join(text for v, text in known if v != 1 and low <= v <= high)

    def _variances(self) -> Outcome:
        """Each part's variance against that of all others: F tests."""
        tests, total = [(1.0, 1.0, "")], float(self._squares.sum())
        for (name, rank, _), at in zip(self._parts, self._at, strict=True):
            own, n = float(self._squares[at].sum()), self._squares[at].size * (len(self._x) - 1)
            if rest := self._degrees - n:
                f = own / n / ((total - own) / rest)
                p = 2 * float(min(special.fdtr(n, rest, f), special.fdtrc(n, rest, f)))
                tests.append((p, f, f"{name} on rank {rank}"))
        p, f, name = min(tests)
        effect = f"{name}: noise of {math.sqrt(f):.3g} × the others' standard deviation"
        p = min(1.0, p * max(1, len(tests) - 1))
        return Outcome("noise of single parameters", p, effect, "", f)

    def _steps(self) -> Outcome:
        """Each two steps: independent noise differs by a χ², equal noise not at all."""
        x, (i, j) = self._x / self._scale, np.triu_indices(len(self._x), 1)
        n, gram = x.shape[1], x @ x.T
        apart = np.maximum(0.0, (gram[i, i] + gram[j, j] - 2 * gram[i, j]) / 2)
        tails = np.minimum(special.chdtr(n, apart), special.chdtrc(n, apart))
        at = int(tails.argmin())
        ratio = float(apart[at]) / n
        effect = f"steps {i[at] + 1} and {j[at] + 1} differ by {ratio:.2g} × independent noise"
        cause = "noise is reused in a later step" if ratio < 1 else ""
        p = min(1.0, 2 * len(i) * float(tails[at]))
        return Outcome("noise of different steps", p, effect, cause, ratio)

    def _correlated(self, pairs: Array) -> Outcome:
        """Two parts in the same step: exact correlations."""
        tests = [(1.0, 0.0, "")]
        for i, j in itertools.combinations(_spread(range(len(self._parts))), 2):
            (one, rank, own), (other, second, theirs) = self._parts[i], self._parts[j]
            length = min(own.count, theirs.count, _PREFIX)
            u, v = (pairs[:, self._at[k]][:, :length] for k in (i, j))
            r = float((u * v).sum() / math.sqrt((u * u).sum() * (v * v).sum()))
            t = abs(r) * math.sqrt((u.size - 1) / max(1e-300, 1 - r * r))
            where = f"{one} on rank {rank} and {other} on rank {second}"
            tests.append((2 * float(special.stdtr(u.size - 1, -t)), r, where))
        p, r, where = min(tests)
        effect, p = f"{where}: correlation {r:.3g}", min(1.0, p * max(1, len(tests) - 1))
        return Outcome("noise of ranks and parameters", p, effect, "", r)

    def _grid(self, units: tuple[float, ...]) -> Outcome:
        """Numbers of a short format lie on a grid, and so do their differences; a binomial test.

        Where the sum is large, float32's own grid is coarse: it is left out.
        """
        x, tests = self._x, []
        differences = (x[::2] - x[1::2])[np.maximum(np.abs(x[::2]), np.abs(x[1::2])) < 64]
        for by, (kind, digits) in itertools.product(units, _DIGITS.items()):
            grid = 2.0 ** (math.floor(math.log2(self._scale * by)) - 2 - digits) / by
            near = int((np.abs(differences / grid - np.round(differences / grid)) < 0.05).sum())
            p = float(special.betainc(near, len(differences) - near + 1, 0.103)) if near else 1.0
            tests.append((p, near / max(1, len(differences)), kind))
        p, share, kind = min(tests)
        effect = f"{share:.0%} of the differences lie on {kind}'s grid, 10% by chance"
        cause, p = f"the noise is drawn in {kind}", min(1.0, p * len(tests))
        return Outcome("noise precision", p, effect, cause, share)

    def _equal(self, seeds: list[int]) -> Iterator[Outcome]:
        """The same values at the beginning of two draws, or those of a generator freshly seeded."""
        long = _spread([i for i, own in enumerate(self._parts) if own[2].count >= 2 * _SHORT])
        if not long:
            return
        noise = self._x - self._sums[CLIPPED]
        rows = np.concatenate([noise[:, self._at[i]][:, :_SHORT] for i in long])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        at = [(*self._parts[i][:2], step + 1) for i in long for step in range(len(noise))]
        alike = np.triu(np.abs(rows @ rows.T), 1)
        i, j = divmod(int(alike.argmax()), len(rows))
        (a, rank, step), (b, second, other) = at[i], at[j]
        cause = (
            "noise is reused in a later step" if step != other
            else "processes draw the same noise for different shards: their generators are in one "
            "state (a DTensor on the CPU draws from each process's own)" if rank != second
            else "the generator is seeded anew for each parameter"
        )  # fmt: skip
        effect = f"{a} on rank {rank} in step {step}, {b} on rank {second} in step {other}"
        equal = float(alike[i, j])
        yield Outcome("equal noise", float(equal <= _EQUAL), effect, cause, equal)
        small = (*_SEEDS, *(seed for seed in seeds if seed < 2**32))  # others nobody guesses
        match = np.abs(rows @ _first_draws(small).T)
        i, j = divmod(int(match.argmax()), len(small))
        effect = f"{at[i][0]} on rank {at[i][1]}, step {at[i][2]}: torch.manual_seed({small[j]})"
        cause = "anyone who tries small seeds can subtract the noise"
        p = float(match[i, j] <= _EQUAL)
        yield Outcome("predictable noise", p, effect, cause, float(match[i, j]))

    def sums(self, *, tolerance: float) -> Iterator[Outcome]:
        """The mean release against the clipped sum; ``tolerance`` is rounding, relative to that.

        Student's and Fisher's laws, with the variance that the noise has.
        """
        if not self._parts:
            return
        mean, s, n = self._x.mean(0), self._sums[CLIPPED], self._x.shape[1]
        error = math.sqrt(float(self._squares.sum()) / self._degrees / len(self._x))  # of a mean
        size = float(np.linalg.norm(s)) or 1.0

        def tail(shift: float) -> float:
            excess = max(0.0, shift - tolerance * size) / error
            return float(special.stdtr(self._degrees, -excess))

        away = [(wrong - s, float(np.linalg.norm(wrong - s))) for wrong in self._sums.values()]
        tests = [tail(float((mean - s) @ u) / d) for u, d in away if d > 1e-6 * size]
        p = min(1.0, 2 * min(tests, default=1.0) * max(1, len(tests)))
        best = min(self._sums, key=lambda way: float(np.linalg.norm(mean - self._sums[way])))
        cause = self._unclipped(mean, error) or ("" if best == CLIPPED else best)
        norms = [float(np.linalg.norm(v)) / size for v in (mean, self._sums[RAW])]
        effect = f"{norms[0]:.3g} × the clipped sum's norm, {norms[1]:.3g} × without clipping"
        yield Outcome("clipping", p, effect, cause, norms[0])
        slope = float(mean @ s) / size**2
        effect = f"{slope:.3g} × the clipped sum is released"
        cause = "the step does not use the gradients" if abs(slope) < 0.1 else ""
        yield Outcome("signal", min(1.0, 2 * tail(abs(slope - 1) * size)), effect, cause, slope)
        excess = max(0.0, float(np.linalg.norm(mean - s)) - tolerance * size)
        f = (excess / error) ** 2 / n
        effect = "the released gradient is not the clipped sum plus noise"
        yield Outcome("clipped sum", float(special.fdtrc(n, self._degrees, f)), effect, "", f)

    def _unclipped(self, mean: Array, error: float) -> str:
        """Parameters that fit the sum without clipping, where others do not."""
        names, rest = [], 0
        for (name, _, _), at in zip(self._parts, self._at, strict=True):
            step = (self._sums[RAW] - self._sums[CLIPPED])[at]
            if (length := float(np.linalg.norm(step))) >= 12 * error:
                missing = length - float((mean - self._sums[CLIPPED])[at] @ step) / length
                fits = missing < 5 * error + 0.02 * length
                names += [name] * fits
                rest += not fits and missing > 8 * error
        lora = ["lora" in " ".join(some) for some in (names, [p[0] for p in self._parts])]
        adapters = " (base weights), while LoRA weights are" * (lora == [False, True])
        return f"not clipped: {listed(names)}{adapters}" if names and rest else ""


@functools.lru_cache(maxsize=4)
def _first_draws(seeds: tuple[int, ...]) -> Array:
    """The directions of the first numbers of generators with these seeds."""
    import torch

    own = torch.Generator()
    drawn = [torch.randn(_SHORT, generator=own.manual_seed(seed)) for seed in seeds]
    rows = torch.stack(drawn).double()
    return np.asarray(rows / rows.norm(dim=1, keepdim=True))
