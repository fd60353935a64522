"""Samplers of normal noise that people use in ten languages, written by others.

What each library's documentation or source says of its generator is in ``generator``; "predictable"
means that the rest of its noise can be computed from enough of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpaudit.errors import MissingExtraError
from dpaudit_studies.real_samplers.programs import COMMONS_MATH, LANGUAGES, Package, version

__all__ = ["CASES", "Case"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A sampler: its ``language`` (of ``LANGUAGES``), its METHOD and its generator."""

    language: str
    method: str
    generator: str
    transform: str

    @property
    def name(self) -> str:
        """Its name in a spec."""
        return f"{self.language}: {self.method}"

    @property
    def package(self) -> Package | None:
        """What draws, where the language itself does not."""
        package = self.method.partition(".")[0]
        if self.language == "Python" and package in ("numpy", "torch", "jax", "duckdb"):
            return Package(version=("python", package), install=f"pip install {package}")
        if self.language == "JavaScript" and package not in ("box-muller", "polar"):
            said = ("node", "-p", f"require('{package}/package.json').version")
            major = "@2" if package == "d3-random" else ""  # the last that `require` can load
            install = f"npm install {package}{major}, in the folder that NODE_PATH names"
            return Package(version=said, install=install)
        return COMMONS_MATH if self.method.startswith("org.apache.commons.math3.") else None

    @property
    def version(self) -> str:
        """The version of what draws: of the package, or else of the language."""
        package = self.package
        return version(package.version if package else LANGUAGES[self.language].version)

    def command(self) -> tuple[str, ...]:
        """What starts it, built if it must be; SEED is to follow.

        Raises:
            MissingExtraError: what it needs is not installed: the error says which package.
        """
        command = LANGUAGES[self.language].command()
        if self.package and not self.version:
            raise MissingExtraError(f"{self.name}: not installed; {self.package.install}")
        return (*command, self.method)

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(f"language={self.language}: not among LANGUAGES")


_BM = "Box–Muller, both outputs"
_BM_COS = "Box–Muller, cosine only"
_INVERSE = "inverse CDF"
_GSL = {
    "mt19937": "Mersenne Twister", "taus2": "Tausworthe, 88 bits",
    "ranlxs0": "subtract with borrow, decimated", "cmrg": "combined recurrences modulo primes",
    "gfsr4": "shift register, 9,689 words", "rand": "congruential modulo 2^31",
    "random8-glibc2": "congruential modulo 2^31", "r250": "shift register, 250 words",
    "minstd": "congruential modulo 2^31 − 1", "knuthran": "lagged subtraction",
    "vax": "congruential modulo 2^32", "zuf": "lagged Fibonacci",
    "transputer": "congruential modulo 2^32", "ran0": "congruential modulo 2^31 − 1",
    "rand48": "congruential modulo 2^48",
}  # fmt: skip
_R = {
    "Mersenne-Twister": "Mersenne Twister", "Wichmann-Hill": "three congruential",
    "Marsaglia-Multicarry": "two multiply-with-carry of 16 bits",
    "Super-Duper": "congruential and shift register", "Knuth-TAOCP-2002": "lagged subtraction",
    "L'Ecuyer-CMRG": "combined recurrences modulo primes",
}  # fmt: skip
_BOOST = {
    "mt19937": "Mersenne Twister", "rand48": "congruential modulo 2^48",
    "taus88": "Tausworthe, 88 bits", "lagged_fibonacci607": "lagged Fibonacci",
    "kreutzer1986": "congruential, shuffled", "hellekalek1995": "inversive",
    "ecuyer1988": "two congruential", "minstd_rand": "congruential modulo 2^31 − 1",
}  # fmt: skip
_STD = {
    "mt19937": "Mersenne Twister", "mt19937_64": "Mersenne Twister",
    "minstd_rand": "congruential modulo 2^31 − 1", "minstd_rand0": "congruential modulo 2^31 − 1",
    "ranlux24": "subtract with borrow, decimated", "ranlux24_base": "subtract with borrow",
    "ranlux48": "subtract with borrow, decimated", "knuth_b": "congruential, shuffled",
}  # fmt: skip
_CARRY, _TWISTER = "Marsaglia-Multicarry", "Mersenne Twister"
_ENGINES = (
    *(("R", f"{kind}/Inversion", generator, _INVERSE) for kind, generator in _R.items()),
    *(
        ("R", f"Mersenne-Twister/{kind}", _TWISTER, kind.replace("-", " and "))
        for kind in ("Box-Muller", "Ahrens-Dieter", "Kinderman-Ramage")
    ),
    *(
        ("R", f"{_CARRY}/{kind}", _R[_CARRY], kind.replace("-", " and "))
        for kind in ("Ahrens-Dieter", "Kinderman-Ramage")
    ),
    *(("C, GSL", f"{engine}/polar", generator, "polar") for engine, generator in _GSL.items()),
    ("C, GSL", "mt19937/ziggurat", _TWISTER, "ziggurat"),
    ("C, GSL", "mt19937/ratio", _TWISTER, "ratio of uniforms"),
    *(("C++", engine, generator, "polar") for engine, generator in _STD.items()),
    *(("C++, Boost", engine, generator, "ziggurat") for engine, generator in _BOOST.items()),
)
_OTHERS = (
    ("C", "rand", "additive feedback", _BM),
    ("C", "drand48", "congruential modulo 2^48", _BM),
    ("C", "arc4random", "ChaCha20 or the system's", _BM),
    ("C#", "System.Random", "lagged subtraction", _BM),
    ("Go", "NormFloat64", "lagged addition, 607 words", "ziggurat"),
    ("Go", "Float64", "lagged addition, 607 words", _BM_COS),
    ("Java", "Random", "congruential modulo 2^48", "polar"),
    ("Java", "SecureRandom", "the system's", "polar"),
    ("Java", "SplittableRandom", "SplitMix", "McFarland's ziggurat"),
    ("Java", "L64X128MixRandom", "congruential and xoroshiro, mixed", "McFarland's ziggurat"),
    ("Java", "Xoroshiro128PlusPlus", "xoroshiro128++", "McFarland's ziggurat"),
    ("Java", "org.apache.commons.math3.random.MersenneTwister", "Mersenne Twister", _BM),
    ("Java", "org.apache.commons.math3.random.Well1024a", "WELL, 1,024 bits", _BM),
    ("Java", "org.apache.commons.math3.random.ISAACRandom", "ISAAC", _BM),
    ("JavaScript", "box-muller", "xorshift128+", _BM_COS),
    ("JavaScript", "polar", "xorshift128+", "polar, one output"),
    ("JavaScript", "d3-random", "xorshift128+", "polar"),
    ("JavaScript", "random-normal", "xorshift128+", _BM_COS),
    ("JavaScript", "gaussian", "xorshift128+", _INVERSE),
    ("JavaScript", "jstat", "xorshift128+", "ratio of uniforms"),
    ("JavaScript", "chance", "Mersenne Twister", "polar"),
    ("JavaScript", "@stdlib/random-base-randn", "Mersenne Twister or minstd", "ziggurat"),
    ("JavaScript", "simple-statistics", "xorshift128+", _INVERSE),
    ("Octave", "randn", "Mersenne Twister", "ziggurat"),
    ("Octave", "randn-single", "Mersenne Twister", "ziggurat, 32 bits"),
    ("Octave", "randn-old", "two congruential (RANLIB)", "Ahrens and Dieter"),
    ("Octave", "erfinv", "Mersenne Twister", _INVERSE),
    ("Python", "gauss", "Mersenne Twister", _BM),
    ("Python", "normalvariate", "Mersenne Twister", "Kinderman and Monahan"),
    ("Python", "NormalDist", "Mersenne Twister", _INVERSE),
    ("Python", "numpy.RandomState", "Mersenne Twister", "polar"),
    ("Python", "numpy.PCG64", "PCG64", "ziggurat"),
    ("Python", "numpy.PCG64/f4", "PCG64", "ziggurat, 32 bits"),
    ("Python", "numpy.MT19937", "Mersenne Twister", "ziggurat"),
    ("Python", "numpy.SFC64", "SFC64", "ziggurat"),
    ("Python", "numpy.Philox", "Philox", "ziggurat"),
    ("Python", "torch.float32", "Mersenne Twister", "Box–Muller in blocks of 16"),
    ("Python", "torch.float64", "Mersenne Twister", "Box–Muller in blocks of 16"),
    ("Python", "jax", "Threefry", "inverse CDF in float32"),
    ("Python", "sqlite3", "ChaCha20 or RC4", _BM_COS),
    ("Python", "duckdb", "PCG32", _BM_COS),
    ("Tcl", "rand()", "congruential modulo 2^31 − 1", _BM),
)

_FIELDS = ("language", "method", "generator", "transform")
_ALL = (Case(**dict(zip(_FIELDS, row, strict=True))) for row in sorted([*_ENGINES, *_OTHERS]))
CASES: Mapping[str, Case] = {case.name: case for case in _ALL}
"""By name, in order of language and method."""
