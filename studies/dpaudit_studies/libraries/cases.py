"""Cases of ``dpaudit run libraries``: a mechanism with its law, two values to hide, an attack."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dpaudit.accounting import gaussian_epsilon
from dpaudit.errors import UnknownNameError
from dpaudit.registry import nearest

__all__ = ["CASES", "DELTA", "Case", "case", "gaussian", "laplace"]

DELTA = 1e-5
"""At which a Gaussian's ε is claimed."""

Promise = Literal["DP", "none", "specimen"]


@dataclass(frozen=True, slots=True)
class Case:
    """``mechanism``, ``attack`` and ``neighbours`` as on the command line, and a ``claim`` (ε, δ).

    ``promise`` is "DP" where the library itself promises differential privacy of this mechanism;
    "none" where it is a generator of random numbers to which people add the value themselves (then
    the claim is that of the law in real arithmetic); "specimen" for dpaudit's own. ``samples``
    releases are made at each neighbour.
    """

    library: str
    mechanism: str
    attack: str
    neighbours: str | None
    claim: tuple[float, float]
    promise: Promise
    samples: int = 20_000
    draft: str = ""

    @property
    def epsilon(self) -> float:
        """The ε that is claimed, at :attr:`delta`."""
        return self.claim[0]

    @property
    def delta(self) -> float:
        return self.claim[1]

    @property
    def name(self) -> str:
        """Its name in a spec."""
        plain = self.neighbours in ("0,1", None) or len(str(self.neighbours)) >= 12
        return f"{self.mechanism} {self.attack}" + ("" if plain else f" {self.neighbours}")

    @property
    def command(self) -> str:
        """The command that repeats it."""
        where = f" --neighbours '{self.neighbours}'" if self.neighbours is not None else ""
        claim = f"--claim-epsilon {self.epsilon:.6g}" + (
            f" --claim-delta {self.delta:g}" if self.delta else ""
        )
        return (
            f"dpaudit mechanism {self.mechanism}{where} {claim} "
            f"--attack {self.attack} --samples {self.samples}"
        )


def laplace(scale: float, *, distance: float = 1.0) -> tuple[float, float]:
    """(ε, δ) of Laplace noise for values ``distance`` apart in L1."""
    return distance / scale, 0.0


def gaussian(sigma: float, *, distance: float = 1.0) -> tuple[float, float]:
    """(ε, δ) of Gaussian noise for values ``distance`` apart in L2, δ = 1e-5 (Balle, Wang 2018)."""
    epsilon = gaussian_epsilon(DELTA, sigma=sigma, sensitivity=distance)
    return math.ceil(epsilon * 1e6) / 1e6, DELTA


PAIR = "0,0;1,1"
"""One number released twice, by noise that comes in pairs."""
LANES = ";".join(",".join(one if i in (0, 8) else "0" for i in range(16)) for one in ("0", "1"))
"""Two numbers of sixteen, where torch's pairs are."""
_PURE, _APPROXIMATE = (1.0, 0.0), (1.0, DELTA)
# four steps of a double wide: sums of 1,000 cannot resolve it
_NARROW = "lower=1,upper=1.0000000000000009"

Row = tuple[Any, ...]
"""Mechanism, attack, neighbours, claim, and what else a :class:`Case` has."""


def _group(promise: Promise, library: str, *rows: Row) -> tuple[Case, ...]:
    """Cases of one library; without ``library``, of that which the mechanism's name begins with."""
    named = ((library or row[0].partition(":")[0], row) for row in rows)
    return tuple(Case(*(name, *row[:4], promise, *row[4:])) for name, row in named)


def _pairs(mechanism: str, sampler: str, neighbours: str = PAIR, *, scale: int = 1) -> Row:
    """The attack on two normals that come from one pair of uniforms."""
    options = f"sampler={sampler}" + (f",scale={scale}" if scale != 1 else "")
    claim = gaussian(scale, distance=math.sqrt(2))
    return mechanism, f"pair-inversion:{options}", neighbours, claim


def _by_time(mechanism: str, neighbours: str, claim: tuple[float, float]) -> Row:
    return mechanism, "timing", neighbours, claim, 10_000


def _sum(mechanism: str, bounds: str, size: int = 1000, *, draft: str = "") -> Row:
    return mechanism, f"sensitivity:{bounds},size={size}", None, laplace(1), 4_000, draft


_GENERATORS = _group(  # they promise no privacy themselves
    "none", "",
    ("numpy:normal", "reach", "0,1", gaussian(1)),
    ("numpy:normal:scale=10", "reach", "0,1", gaussian(10)),
    ("numpy:normal", "reach", "1000,1001", gaussian(1)),
    ("numpy:normal", "bit-features", "0,1", gaussian(1)),
    ("numpy:laplace", "reach", "0,1", laplace(1)),
    ("numpy:laplace", "laplace-support:sampler=numpy", "0,1", laplace(1)),
    ("numpy:laplace:scale=10", "laplace-support:sampler=numpy,scale=10", "0,1", laplace(10)),
    ("numpy:legacy-normal", "reach", "0,1", gaussian(1)),
    _pairs("numpy:legacy-normal", "numpy-legacy"),
    _pairs("numpy:legacy-normal:scale=10", "numpy-legacy", scale=10),
    ("scipy:norm", "reach", "0,1", gaussian(1)),
    _pairs("scipy:norm", "numpy-legacy"),
    ("scipy:laplace", "reach", "0,1", laplace(1)),
    ("stdlib:gauss", "reach", "0,1", gaussian(1)),
    _pairs("stdlib:gauss", "stdlib-gauss"),
    ("stdlib:normalvariate", "reach", "0,1", gaussian(1)),
    ("torch:normal", "reach", "0,1", gaussian(1)),
    _pairs("torch:normal", "torch-f32", LANES),
    _pairs("torch:normal:std=10", "torch-f32", LANES, scale=10),
    _pairs("torch:normal:dtype=f64", "torch-f64", LANES),
    ("torch:laplace", "reach", "0,1", laplace(1)),
)  # fmt: skip
_LAPLACE, _GAUSSIAN, _SECURE = "diffprivlib_laplace", "python_dp_gaussian", "opacus_secure_mode"
_PRIVATE = _group(  # they promise differential privacy
    "DP", "",
    ("diffprivlib:Laplace:epsilon=1", "reach", "0,1", _PURE, 20_000, _LAPLACE),
    ("diffprivlib:Laplace:epsilon=0.1", "reach", "0,1", laplace(10), 20_000, _LAPLACE),
    ("diffprivlib:Gaussian:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE, 20_000, _LAPLACE),
    ("diffprivlib:GaussianAnalytic:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE, 20_000,
     _LAPLACE),
    ("diffprivlib:Staircase:epsilon=1", "reach", "0,1", _PURE, 20_000, _LAPLACE),
    ("diffprivlib:LaplaceBoundedNoise:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE, 20_000,
     _LAPLACE),
    ("diffprivlib:LaplaceTruncated:epsilon=1,lower=-8,upper=8", "reach:lower=-8,upper=8", "0,1",
     _PURE, 20_000, _LAPLACE),
    ("diffprivlib:Snapping:epsilon=1,lower=-8,upper=8", "reach:lower=-8,upper=8", "0,1", _PURE),
    ("diffprivlib:Snapping:epsilon=1,lower=-8,upper=8", "bit-features", "0,1", _PURE),
    ("diffprivlib:Geometric:epsilon=1", "reach", "0,1", _PURE),
    _by_time("diffprivlib:Geometric:epsilon=0.1", "0,10", _PURE),
    ("diffprivlib:GaussianDiscrete:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE),
    _by_time("diffprivlib:GaussianDiscrete:epsilon=1,delta=1e-5,sensitivity=5", "0,5",
             _APPROXIMATE),
    ("opacus:step:secure_mode=false", "reach", "0,1", gaussian(1)),
    _pairs("opacus:step:secure_mode=false", "torch-f32", LANES),
    ("opacus:step:secure_mode=true", "reach", "0,1", gaussian(1), 20_000, _SECURE),
    (*_pairs("opacus:step:secure_mode=true", "torch-f32", LANES), 20_000, _SECURE),
    ("opendp:laplace:scale=1", "reach", "0,1", laplace(1)),
    ("opendp:laplace:scale=1", "bit-features", "0,1", laplace(1)),
    ("opendp:gaussian:scale=1", "reach", "0,1", gaussian(1)),
    ("opendp:discrete-laplace:scale=10", "reach", "0,1", laplace(10)),
    _by_time("opendp:discrete-laplace:scale=10", "0,10", _PURE),
    ("opendp:discrete-gaussian:scale=10", "reach", "0,1", gaussian(10)),
    _by_time("opendp:discrete-gaussian:scale=10", "0,10", gaussian(1)),
    ("python-dp:laplace:epsilon=1", "reach", "0,1", _PURE),
    ("python-dp:laplace:epsilon=1", "bit-features", "0,1", _PURE),
    ("python-dp:gaussian:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE, 20_000, _GAUSSIAN),
    ("python-dp:gaussian-int:epsilon=1,delta=1e-5", "reach", "0,1", _APPROXIMATE),
    ("python-dp:laplace-int:epsilon=1", "reach", "0,1", _PURE),
    _by_time("python-dp:laplace-int:epsilon=0.1", "0,10", _PURE),
    ("pipeline-dp:sum:epsilon=1,min_value=0,max_value=1", "reach", "0,1", _PURE),
    ("pipeline-dp:count:epsilon=1", "reach", "0,1", _PURE),
    ("pipeline-dp:sum:epsilon=1,delta=1e-5,noise_kind=gaussian,min_value=0,max_value=1", "reach",
     "0,1", _APPROXIMATE, 20_000, _GAUSSIAN),
    ("pipeline-dp:vector-sum:epsilon=1,delta=1e-5,noise_kind=gaussian,vector_norm_kind=l2", "reach",
     "0,0;1,0", _APPROXIMATE, 20_000, _GAUSSIAN),
)  # fmt: skip
_OURS = _group(
    "DP", "dpaudit",
    ("secure-gaussian:sigma=1", "reach", "0,1", gaussian(1)),
    ("secure-gaussian:sigma=1", "bit-features", "0,1", gaussian(1)),
    ("snapping:epsilon=1", "reach", "0,1", _PURE),
    ("snapping:epsilon=1", "bit-features", "0,1", _PURE),
    ("discrete-gaussian:sigma=10", "reach", "0,1", gaussian(10)),
    ("discrete-laplace:scale=10", "reach", "0,1", laplace(10)),
)  # fmt: skip
_SUMS = _group(
    "DP", "",
    _sum(f"opendp:bounded-sum:epsilon=1,{_NARROW}", _NARROW),
    _sum("python-dp:bounded-sum:epsilon=1,lower_bound=1,upper_bound=1.0000000000000009", _NARROW),
    _sum(f"diffprivlib:sum:epsilon=1,{_NARROW}", _NARROW, draft="diffprivlib_sum"),
)  # fmt: skip
_MODULE = "python:dpaudit.noise.floating_point.sums"
_HUGE = "lower=35184372088832,upper=35184372088833"
_SPECIMENS = _group(  # LAB SPECIMENS: each with the attack that is meant for it
    "specimen", "dpaudit specimens",
    ("naive-laplace", "reach", "0,1", laplace(1)),
    ("naive-laplace", "laplace-support:sampler=log", "0,1", laplace(1)),
    ("naive-laplace:form=numpy", "laplace-support:sampler=numpy", "0,1", laplace(1)),
    _pairs("box-muller-f32", "box-muller-f32"),
    _pairs("box-muller-f64", "box-muller-f64"),
    _pairs("polar", "polar"),
    ("ziggurat", "reach", "0,1", gaussian(1)),
    ("ziggurat:bits=32", "bit-features", "0,1", gaussian(1)),
    ("four-sum-gaussian:dtype=f64", "reach", "0,1", gaussian(1)),
    ("fine-lattice-gaussian", "reach", "0,1", gaussian(1)),
    ("ideal-added-gaussian", "reach", "0,1", gaussian(1)),
    _pairs("ideal-added-gaussian", "polar"),
    _by_time("sequential-laplace:scale=10", "0,10", laplace(1)),
    _by_time("geometric-inversion:scale=10", "0,10", laplace(1)),
    _sum(f"{_MODULE}:float32_sum", "lower=1000000,upper=1000001"),
    _sum(f"{_MODULE}:float64_sum", _HUGE),
    _sum(f"{_MODULE}:wrapping_sum", "lower=0,upper=4194304"),
    _sum(f"{_MODULE}:fixed_point_wrapping_sum", "lower=0,upper=1"),
    _sum(f"{_MODULE}:saturating_sum", "lower=-4194304,upper=4194304", 2000),
    _sum(f"{_MODULE}:filtered_mean", "lower=0,upper=1"),
    _sum(f"{_MODULE}:fixed_point_sum", "lower=0,upper=1"),
    _sum(f"{_MODULE}:fsum_sum", _HUGE),
    _sum(f"{_MODULE}:pairwise_sum", _HUGE),
)  # fmt: skip

CASES: Mapping[str, Case] = {
    found.name: found for found in (*_GENERATORS, *_PRIVATE, *_OURS, *_SUMS, *_SPECIMENS)
}


def case(name: str) -> Case:
    """The case of that name.

    Raises:
        UnknownNameError: no case has this name; the message has the nearest match.
    """
    if name not in CASES:
        raise UnknownNameError(f"case={name}: not known{nearest(name, CASES)}")
    return CASES[name]
