"""Options of an audit: of samplers, of mechanisms with what they claim, and of training."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from dpaudit.errors import UsageError
from dpaudit.options import Option, arguments_of, count_of, fields_of

if TYPE_CHECKING:
    from dpaudit.audit.claims import PrivacyClaim

__all__ = [
    "DEFAULT_SAMPLES",
    "MINIMUM_SAMPLES",
    "AuditOptions",
    "ClaimOptions",
    "DataOptions",
    "MechanismOptions",
    "Progress",
    "TrainingOptions",
    "check_alpha",
    "count_of",
    "fresh_seed",
]

DEFAULT_SAMPLES = 10_000_000
DEFAULT_RELEASES = 200_000
MINIMUM_SAMPLES = 1_000
LEAST_SEQUENTIAL = 20
"""Releases at each neighbour; each may take minutes."""
_LONGEST_SECONDS = 1e9
_MOST_CALLS, _MOST_SESSIONS = 1_000, 100
_OF_OPENING = ("dtype", "text", "mitigation", "call")
_OF_SESSIONS = ("calls", "sessions", "adversary", "together")

Progress = Callable[[int, int], None]
"""Called with the number drawn and the total."""


def fresh_seed(seed: int | str | None = None) -> str:
    """``seed`` as text, or else 64 random bits."""
    return os.urandom(8).hex() if seed is None else str(seed)


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(names.split(",")) if isinstance(names, str) else tuple(names)


def _count_reader(**how: str) -> Callable[[Any], int]:
    return functools.partial(count_of, **how)


_read_guesses = _count_reader(name="guesses", unit="guesses", example="100")
AlphaOfBounds = Annotated[float, Option("Probability of a false finding or of any wrong bound.")]
By = Annotated[str, Option("Who runs this, for the report.", "NAME")]
Call = Annotated[
    str | None,
    Option(
        "How to call a python: or library: function whose parameters do not tell, e.g. 'f(value, epsilon=1.0)' or, in C, 'f(1.0) -> double'.",
        "'f(…)'",
    ),
]
Seed = Annotated[
    str,
    Option(
        "Seed for the auditor's own randomness and for registered sources; random by default.",
        read=str,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """How a closed sampler is audited, apart from the claim.

    Raises:
        UsageError: α, the time limit or the number of values is out of range.
    """

    dim: Annotated[
        int | None,
        Option(
            "Values per vector; chosen by the auditor by default.",
            "N",
            read=_count_reader(name="dim", unit="values per vector", example="64"),
        ),
    ] = None
    samples: Annotated[
        int,
        Option(
            "Values to draw in total, e.g. 1M or 1e6.",
            "N",
            default="1e7",
            read=_count_reader(unit="values", example="1e7"),
        ),
    ] = DEFAULT_SAMPLES
    alpha: Annotated[float, Option("Probability of a false finding, over all tests together.")] = (
        0.01
    )
    time_limit: Annotated[
        float | None,
        Option(
            "Seconds for the whole audit; the search for hidden directions gets what drawing leaves.",
            default="600 for drawing, 15 for the search",
        ),
    ] = None
    search_limit: float | None = None
    """Seconds to search for directions after the last value, within the time limit, if one is
    given. None: until the time limit; without one up to 15, less for fewer than 1e7 values."""
    tests: Annotated[
        tuple[str, ...] | None,
        Option(
            "Run only these tests, e.g. moments,tails; see dpaudit list tests.",
            "NAME,…",
            completion="tests",
            read=_names,
        ),
    ] = None
    sequential: Annotated[
        bool, Option("Stop at the first clear finding; valid whenever it stops.")
    ] = False
    allow_predictable: Annotated[
        bool,
        Option(
            "Noise that can be computed from other noise is advice only: for simulations, where no privacy is claimed."
        ),
    ] = False
    all_values: Annotated[
        bool,
        Option(
            "Draw all values even after a finding is certain, and show every finding.",
            flag="--all",
        ),
    ] = False
    bits: Annotated[
        Path | None,
        Option(
            "Also write 16 uniform bits per value to this file or FIFO, e.g. for PractRand: RNG_test stdin16."
        ),
    ] = None
    """They are the top bits of Φ(z) of every value of the first process."""
    dtype: Annotated[
        Literal["f64", "f32"], Option("Number format of command:, http: and .bin.")
    ] = "f64"
    text: Annotated[bool, Option("The program of command: prints decimal numbers.")] = False
    mitigation: Annotated[
        str | None,
        Option(
            "Audit a registered source behind this mitigation, e.g. rotation or smoothing:tau=0.05.",
            "NAME",
            completion="mitigations",
        ),
    ] = None
    call: Call = None
    seed: Seed = field(default_factory=fresh_seed)
    by: By = ""

    def __post_init__(self) -> None:
        _check_limit("search-limit", self.search_limit)
        _check(
            self.alpha,
            self.time_limit,
            self.samples,
            needs=f"an audit needs at least {MINIMUM_SAMPLES} values",
        )

    @property
    def advisory(self) -> tuple[str, ...]:
        """The attributes of a test that make it advisory."""
        return ("advisory", "predictability") if self.allow_predictable else ("advisory",)

    def again(self, *, tests: tuple[str, ...] | None, samples: int) -> list[str]:
        """Command-line arguments of the same audit, with ``tests`` on ``samples`` values."""
        options = dataclasses.replace(
            self, tests=tests, samples=samples, time_limit=None, bits=None, by=""
        )
        return arguments_of(options)

    def for_opened(self, name: str) -> Self:
        """Return these options, if a sampler that is already open can have them.

        Raises:
            UsageError: ``dtype``, ``text``, ``mitigation`` or ``call`` was given; they are for the
                opening.
        """
        for option in fields_of(type(self)):
            value = getattr(self, option.name)
            if option.name in _OF_OPENING and value != option.default:
                raise UsageError(
                    f"{option.name}={value}: {name} is already open; leave {option.name} out, "
                    "or audit it by name"
                )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismOptions:
    """How a whole mechanism is audited, apart from the claim, the neighbours and the attack.

    Raises:
        UsageError: α, the time limit or the number of releases is out of range.
    """

    samples: Annotated[
        int,
        Option(
            "Releases to draw per neighbour, e.g. 50k or 2e5.",
            "N",
            default="2e5",
            read=_count_reader(unit="releases", example="2e5"),
        ),
    ] = DEFAULT_RELEASES
    alpha: AlphaOfBounds = 0.01
    time_limit: Annotated[float, Option("Seconds for the whole audit.")] = 600
    sequential: Annotated[
        bool,
        Option("Stop as soon as it is certain, or hopeless; --samples is the most that is drawn."),
    ] = False
    resume: Annotated[
        Path | None,
        Option("Keep a --sequential audit in this file, and go on from it if it exists.", "FILE"),
    ] = None
    real_numbers: Annotated[
        bool,
        Option("Report what the low bits of releases show, but do not count it as a finding."),
    ] = False
    guesses: Annotated[
        int | None,
        Option(
            "scores: number of guesses, fixed beforehand; by default several numbers are tried.",
            "N",
            read=_read_guesses,
        ),
    ] = None
    call: Call = None
    calls: Annotated[
        int,
        Option(
            "python: makes sessions; a release is K calls of one. The claim is of one call.", "K"
        ),
    ] = 1
    sessions: Annotated[
        int,
        Option("python: makes what S sessions share; a release is K calls of each, in turn.", "S"),
    ] = 1
    adversary: Annotated[
        str | Callable[[list[Any]], Any] | None,
        Option(
            "A function of the answers so far that gives the next input of a session.",
            "MODULE:FUNCTION",
        ),
    ] = None
    """Of several sessions, it also says which one."""
    together: Annotated[bool, Option("The claim is of all calls together, not of one.")] = False
    seed: Seed = field(default_factory=fresh_seed)
    by: By = ""

    @property
    def transcript(self) -> bool:
        """Whether several sessions, or an adversary, decide what is called next."""
        return self.sessions > 1 or self.adversary is not None

    @property
    def in_sessions(self) -> bool:
        """Whether a release is made of a session, which the function makes."""
        return self.calls > 1 or self.transcript

    @property
    def session_words(self) -> list[str]:
        """The options of sessions, as command-line arguments."""
        return arguments_of(self, only=_OF_SESSIONS)

    @property
    def again(self) -> list[str]:
        """Command-line arguments of the same audit, without its time limit."""
        return arguments_of(dataclasses.replace(self, time_limit=600, resume=None, by=""))

    def claimed(self, claim: PrivacyClaim) -> PrivacyClaim:
        """What ``claim`` says of a release: of one call composed, or of all calls together.

        Raises:
            UsageError: as :meth:`PrivacyClaim.repeated`.
        """
        return claim if self.together else claim.repeated(self.calls * self.sessions)

    def __post_init__(self) -> None:
        if self.resume is not None and not self.sequential:
            raise UsageError(f"resume={self.resume}: belongs to --sequential; give both")
        if not 1 <= self.calls <= _MOST_CALLS:
            raise UsageError(f"calls={self.calls}: must lie in 1…{_MOST_CALLS:,}, e.g. 5")
        if not 1 <= self.sessions <= _MOST_SESSIONS:
            raise UsageError(f"sessions={self.sessions}: must lie in 1…{_MOST_SESSIONS}, e.g. 2")
        if self.calls * self.sessions > _MOST_CALLS:
            raise UsageError(
                f"sessions={self.sessions}: with calls={self.calls} a release is "
                f"{self.calls * self.sessions:,} calls; {_MOST_CALLS:,} at most"
            )
        if self.in_sessions and self.call is not None:
            raise UsageError(
                f"call={self.call}: with {self.session_words[0]} the function makes a session, "
                "called without arguments; leave --call out"
            )
        if self.together and not self.in_sessions:
            raise UsageError(
                "together: a release is one call, so there is nothing to claim together; give "
                "--calls K, or leave --together out"
            )
        least = LEAST_SEQUENTIAL if self.sequential else MINIMUM_SAMPLES
        needs = f"this audit needs at least {least} releases at each neighbour"
        _check(self.alpha, self.time_limit, self.samples, needs=needs, least=least)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """How a training function is audited, apart from the claim, its data and its scores.

    Raises:
        UsageError: α is out of range.
    """

    runs: Annotated[int, Option("How often to train, with new coins each time.")] = 1
    guesses: Annotated[int | None, Option(read=_read_guesses)] = None
    """A number chosen beforehand; by default several are tried."""
    sequential: Annotated[
        bool,
        Option(
            "Stop as soon as the claim is contradicted; --runs is the most. A train that yields after each step is compared step by step."
        ),
    ] = False
    alpha: AlphaOfBounds = 0.01
    seed: Seed = field(default_factory=fresh_seed)
    by: By = ""

    def __post_init__(self) -> None:
        if self.sequential and self.guesses is not None:
            raise UsageError(
                f"guesses={self.guesses}: sequential=True bets on all canaries; leave one out"
            )
        _check(self.alpha, None, MINIMUM_SAMPLES, needs="")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """What is compared: two query results or data sets, or neighbours to be found from one."""

    neighbours: Annotated[
        Any,
        Option(
            "Two neighbouring query results: 0,1 or '0,0,0;1,0,0' or 'a.npy;b.npy'; or two data sets, 'a.csv;b.csv'; or search.",
            "Q,Q",
        ),
    ] = None
    dataset: Annotated[
        Any,
        Option("--neighbours search begins with this data set: .csv .parquet .json .npy.", "FILE"),
    ] = None
    adjacency: Annotated[
        str | None,
        Option(
            "Neighbours found differ by add-remove (one record more or less; the default) or replace.",
            "HOW",
        ),
    ] = None
    bounds: Annotated[
        Any,
        Option(
            "What values a record may have: 'age=0:120;city=Bonn|Graz' or 0:1; otherwise just past those of --dataset.",
            "FIELD=LOW:HIGH;…",
        ),
    ] = None
    features: Annotated[
        str | Callable[[Any], Any] | None,
        Option("python: a function that turns one release into numbers.", "MODULE:FUNCTION"),
    ] = None


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """What a mechanism claims, as it is written: ε, μ or both, or just one of the others."""

    epsilon: Annotated[
        float | None,
        Option("The claimed ε; needed unless another --claim is given.", flag="--claim-epsilon"),
    ] = None
    delta: Annotated[
        float,
        Option(
            "The claimed δ; with μ, ρ, Rényi or DP-SGD alone, the δ of the ε shown (1e-5).",
            flag="--claim-delta",
        ),
    ] = 0.0
    mu: Annotated[
        float | None,
        Option("The claimed μ of Gaussian DP, alone or as well as ε.", flag="--claim-mu"),
    ] = None
    rho: Annotated[
        float | None, Option("ρ-zCDP is claimed, nothing else.", "RHO", "--claim-rho")
    ] = None
    renyi: Annotated[
        Any,
        Option(
            "Rényi DP is claimed: ε at an order above 1, e.g. 8,0.5.",
            "ORDER,EPS",
            "--claim-renyi",
        ),
    ] = None
    curve: Annotated[
        Any,
        Option(
            "A δ(ε) curve is claimed: .csv with columns epsilon,delta, or 'E,D;E,D'.",
            "FILE",
            "--claim-curve",
        ),
    ] = None
    f: Annotated[
        Any,
        Option(
            "f-DP is claimed: .csv with columns type-I error, least type-II error; or 'A,B;A,B'.",
            "FILE",
            "--claim-f",
        ),
    ] = None
    dpsgd: Annotated[
        Any,
        Option(
            "The settings that DP-SGD's accountant counts on, e.g. sigma=1,rate=0.05,steps=80; compared as a whole curve.",
            "SETTINGS",
            "--claim-dpsgd",
        ),
    ] = None

    def claim(self) -> PrivacyClaim:
        """The claim that was given.

        Of μ alone, ρ, Rényi or DP-SGD, ε is what it implies at ``delta``, or at 1e-5 if ``delta``
        is 0 (of μ: Dong, Roth and Su 2022, Corollary 2.13), rounded up. A curve and f bring their
        own δ.

        Raises:
            UsageError: no claim, two that do not go together, or one that promises nothing;
                otherwise as for :class:`PrivacyClaim` and for those of
                :mod:`~dpaudit.audit.claims`.
        """
        from dpaudit.audit.claims import PrivacyClaim

        return PrivacyClaim.from_options(self)


def check_alpha(alpha: float) -> None:
    """Check a probability of a false finding.

    Raises:
        UsageError: it is not strictly between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise UsageError(f"alpha={alpha}: must lie strictly between 0 and 1, e.g. 0.01")


def _check(
    alpha: float,
    time_limit: float | None,
    samples: int,
    *,
    needs: str,
    least: int = MINIMUM_SAMPLES,
) -> None:
    check_alpha(alpha)
    _check_limit("time-limit", time_limit)
    if samples < least:
        raise UsageError(f"samples={samples}: {needs}")


def _check_limit(name: str, seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"{name}={seconds}: must be above 0 and at most {_LONGEST_SECONDS:g} seconds"
        )
