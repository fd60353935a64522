"""Options of an audit, for samplers and for mechanisms, and what a mechanism claims."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dpaudit.counts import count_of
from dpaudit.errors import UsageError
from dpaudit.types import Interval
from dpaudit.types import StatedClaim as Shown

if TYPE_CHECKING:
    from dpaudit.accounting.dpsgd import DpSgd
    from dpaudit.audit.epsilon.bounds import Band
    from dpaudit.audit.stated_claims import StatedClaim, Table

__all__ = [
    "DEFAULT_RELEASES",
    "DEFAULT_SAMPLES",
    "MINIMUM_SAMPLES",
    "AuditOptions",
    "MechanismOptions",
    "PrivacyClaim",
    "Progress",
    "count_of",
    "fresh_seed",
    "refuse_pure_gaussian",
]

DEFAULT_SAMPLES = 10_000_000
DEFAULT_RELEASES = 200_000
MINIMUM_SAMPLES = 1_000
_LONGEST_SECONDS = 1e9
_LARGEST_EPSILON = 500.0
_DELTA_OF_MU = 1e-5
_MOST_CALLS, _MOST_SESSIONS = 1_000, 100

Progress = Callable[[int, int], None]
"""Called with the number drawn and the total."""


def fresh_seed(given: int | str | None = None) -> str:
    """The seed that was given, as text, or else 64 random bits."""
    return secrets.token_hex(8) if given is None else str(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """How a closed sampler is audited, apart from the claim.

    Raises:
        UsageError: α, the time limit or the number of values is out of range.
    """

    dim: int | None = None
    """Values per vector; None lets the auditor choose, and sweep, dimensions."""
    samples: int = DEFAULT_SAMPLES
    """Total number of single values to draw, at least 1,000."""
    alpha: float = 0.01
    """Probability of a finding against an honest sampler, over all tests together."""
    seed: str = field(default_factory=fresh_seed)
    """Of the auditor's own randomness and of registered sources; fresh by default."""
    time_limit: float | None = None
    """Seconds of wall time in all. None: 600 for the values, then as ``search_limit`` says."""
    search_limit: float | None = None
    """Seconds to search for directions after the last value, within the time limit, if one is
    given. None: until the time limit; without one up to 15, less for fewer than 1e7 values."""
    tests: tuple[str, ...] | None = None
    """Names of the tests to run; None runs all registered ones."""
    sequential: bool = False
    """Whether to stop at the first clear finding; valid whenever it stops."""
    allow_predictable: bool = False
    """Whether noise that can be computed from other noise is advice, as in simulations."""
    all_values: bool = False
    """Whether to draw all values, even after a finding is certain."""
    bits: Path | None = None
    """File or FIFO for the top 16 bits of Φ(z) of every value of the first process."""
    dtype: str = "f64"
    """Output type of ``command:``, ``http:``, ``.bin``: ``f64`` or ``f32``; if opened by name."""
    text: bool = False
    """Whether ``command:`` prints decimal numbers; if opened by name."""
    mitigation: str | None = None
    """Mitigation in front of a registered source, with its options; if opened by name."""
    call: str | None = None
    """How to call a function, e.g. ``f(value)``; by its parameters, if None."""
    by: str = ""
    """Who runs it, for the report."""

    def __post_init__(self) -> None:
        _check_limit("search-limit", self.search_limit)
        _check(
            self.alpha,
            self.time_limit,
            self.samples,
            needs=f"an audit needs at least {MINIMUM_SAMPLES} values",
        )

    @property
    def words(self) -> list[str]:
        """Command-line options for how the sampler is opened and which kind of audit it is."""
        return [
            *(["--dim", str(self.dim)] if self.dim else []),
            *(["--dtype", self.dtype] if self.dtype != "f64" else []),
            *(["--text"] if self.text else []),
            *(["--mitigation", self.mitigation] if self.mitigation else []),
            *(["--call", self.call] if self.call else []),
            *(["--sequential"] if self.sequential else []),
            *(["--allow-predictable"] if self.allow_predictable else []),
            *(["--all"] if self.all_values else []),
        ]

    def for_opened(self, name: str) -> Self:
        """Return these options, if a sampler that is already open can have them.

        Raises:
            UsageError: ``dtype``, ``text``, ``mitigation`` or ``call`` was given; they are for the
                opening.
        """
        for option, given, default in (
            ("dtype", self.dtype, "f64"),
            ("text", self.text, False),
            ("mitigation", self.mitigation, None),
            ("call", self.call, None),
        ):
            if given != default:
                raise UsageError(
                    f"{option}={given}: {name} is already open; leave {option} out, "
                    "or audit it by name"
                )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismOptions:
    """How a whole mechanism is audited, apart from the claim, the neighbours and the attack.

    Raises:
        UsageError: α, the time limit or the number of releases is out of range.
    """

    samples: int = DEFAULT_RELEASES
    """Releases to draw at each neighbour, at least 1,000."""
    alpha: float = 0.01
    """Probability of a false finding, or of any bound being wrong."""
    seed: str = field(default_factory=fresh_seed)
    """Of the auditor's own randomness and of registered sources; fresh by default."""
    time_limit: float = 600.0
    """Seconds of wall time for everything."""
    real_numbers: bool = False
    """Whether findings in the last bits of releases are advisory only."""
    call: str | None = None
    """How to call a function, e.g. ``f(value)``; by its parameters, if None."""
    calls: int = 1
    """Calls of one session that make a release, 1 to 1,000; the claim is of one call."""
    sessions: int = 1
    """Sessions of what one call makes, called in turn, 1 to 100."""
    adversary: str | Callable[[list[Any]], Any] | None = None
    """Function from all answers so far to the next input; of several sessions, also which one."""
    together: bool = False
    """Whether the claim is of all calls together."""
    by: str = ""
    """Who runs it, for the report."""

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
        """What sessions do, as options of the command line."""
        return [
            *(["--calls", str(self.calls)] if self.calls > 1 else []),
            *(["--sessions", str(self.sessions)] if self.sessions > 1 else []),
            *(["--adversary", f"{self.adversary}"] if self.adversary is not None else []),
            *(["--together"] if self.together else []),
        ]

    def claimed(self, claim: PrivacyClaim) -> PrivacyClaim:
        """What ``claim`` says of a release: of one call composed, or of all calls together.

        Raises:
            UsageError: as :meth:`PrivacyClaim.repeated`.
        """
        return claim if self.together else claim.repeated(self.calls * self.sessions)

    def __post_init__(self) -> None:
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
        needs = f"this audit needs at least {MINIMUM_SAMPLES} releases at each neighbour"
        _check(self.alpha, self.time_limit, self.samples, needs=needs)


def _check(alpha: float, time_limit: float | None, samples: int, *, needs: str) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"alpha={alpha}: must lie strictly between 0 and 1, e.g. 0.01")
    _check_limit("time-limit", time_limit)
    if samples < MINIMUM_SAMPLES:
        raise UsageError(f"samples={samples}: {needs}")


def _check_limit(name: str, seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"{name}={seconds}: must be above 0 and at most {_LONGEST_SECONDS:g} seconds"
        )


def refuse_pure_gaussian(law: str | None, claim: PrivacyClaim, *, name: str) -> None:
    """Refuse a claim at δ = 0 of noise whose ``law`` is Gaussian, before anything is drawn.

    The likelihood ratio of neighbours grows without limit in the tails of Gaussian noise, discrete
    or not, so no ε holds at δ = 0 (Dwork and Roth 2014, Appendix A).

    Raises:
        UsageError: it is such a claim.
    """
    family = (law or "").partition(":")[0]
    if claim.delta == 0 and family in ("gaussian", "discrete-gaussian"):
        raise UsageError(
            f"claim-delta=0: {name} adds Gaussian noise, which is not (ε, 0)-DP for any ε; "
            "give --claim-delta, e.g. 1e-5, or --claim-mu alone"
        )


@dataclass(frozen=True, slots=True)
class PrivacyClaim:
    """What a mechanism claims: (ε, δ)-DP, and μ-Gaussian DP if ``mu`` is given.

    ``only_mu``: μ-GDP alone was claimed; (ε, δ) is what it implies (see :meth:`of`). ``stated``:
    another claim was made, which implies (ε, δ). ``of_each``: it was made of each of ``calls``
    calls, and this is the claim of all together.

    Raises:
        UsageError: ε outside 0…500, δ outside [0, 1), or μ negative or infinite.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    only_mu: bool = False
    stated: StatedClaim | None = None
    calls: int = 1
    of_each: str = ""

    @classmethod
    def of(
        cls,
        epsilon: float | None,
        delta: float = 0.0,
        mu: float | None = None,
        *,
        rho: float | None = None,
        renyi: str | tuple[float, float] | None = None,
        curve: Table | None = None,
        f: Table | None = None,
        dpsgd: str | DpSgd | None = None,
    ) -> Self:
        """The claim with what was given: ε, μ or both, or just one of the others.

        Of μ alone, ρ, Rényi or DP-SGD, ε is what it implies at ``delta``, or at 1e-5 if ``delta``
        is 0 (of μ: Dong, Roth and Su 2022, Corollary 2.13), rounded up. A curve and f bring their
        own δ.

        Raises:
            UsageError: no claim, two that do not go together, or one that promises nothing;
                otherwise as for the class and for those of
                :mod:`~dpaudit.audit.stated_claims`.
        """
        others = {"rho": rho, "renyi": renyi, "curve": curve, "f": f, "dpsgd": dpsgd}
        given = [name for name, value in others.items() if value is not None]
        if given:
            _alone(given, epsilon=epsilon, delta=delta, mu=mu)
            return cls._stated(given[0], others[given[0]], delta)
        if epsilon is not None:
            return cls(epsilon, delta, mu)
        if mu is None:
            raise UsageError(
                "claim-epsilon: there is no claim; give --claim-epsilon 1 (and --claim-delta), "
                "or --claim-mu 1 for Gaussian DP, or another --claim-… of --help"
            )
        cls(0.0, delta, mu)  # checks both
        from dpaudit.accounting import gaussian_epsilon

        at = delta or _DELTA_OF_MU
        implied = gaussian_epsilon(at, sigma=1 / mu) * (1 + 1e-9) if mu > 0 else 0.0
        _refuse_nothing(f"claim-mu={mu}", implied, at)
        return cls(implied, at, mu, only_mu=True)

    @classmethod
    def _stated(cls, name: str, value: Any, delta: float) -> Self:
        cls(0.0, delta)  # checks it
        from dpaudit.accounting.dpsgd import DpSgd
        from dpaudit.audit.stated_claims import DeltaCurve, Renyi, Steps, TradeOff, ZeroConcentrated

        stated: StatedClaim
        if name == "rho":
            stated = ZeroConcentrated(value)
        elif name == "dpsgd":
            dpsgd = DpSgd.parse(value) if isinstance(value, str) else value
            stated = Steps(dpsgd, delta or _DELTA_OF_MU)
        elif name == "renyi":
            stated = Renyi.of(value)
        else:
            stated = (DeltaCurve if name == "curve" else TradeOff).of(value)
        epsilon, at = stated.implied(delta or _DELTA_OF_MU)
        _refuse_nothing(f"claim-{name}={stated.text}", epsilon, at)
        return cls(epsilon, at, stated=stated)

    def repeated(self, calls: int) -> Self:
        """The claim of ``calls`` calls together, each of which keeps this one.

        The calls may depend on what was released before (adaptive composition): ρ, a Rényi ε and μ²
        add up (Bun and Steinke 2016, Lemma 2.3; Mironov 2017, Proposition 1; Dong, Roth and Su
        2022, Corollary 3.3), and (ε, δ) becomes the curve of the optimal composition
        (:func:`dpaudit.accounting.optimal_delta`).

        Raises:
            UsageError: a table, or ε and μ together.
        """
        if calls == 1:
            return self
        from dpaudit.audit.stated_claims import composed

        if self.mu is not None and not self.only_mu:
            raise UsageError(
                f"claim-mu={self.mu}: with calls={calls}, ε and μ are composed apart; give one"
            )
        mu = self.mu if self.only_mu else None
        stated = composed(self.stated, self.epsilon, self.delta, mu, calls=calls)
        epsilon, delta = stated.implied(_DELTA_OF_MU if self.stated is None else self.delta)
        _refuse_nothing(f"calls={calls}: {self.text} composed", epsilon, delta)
        return type(self)(epsilon, delta, stated=stated, calls=calls, of_each=self.text)

    @property
    def text(self) -> str:
        """The claim as a reader writes it, e.g. ``(1, 1e-05)-DP`` or ``0.5-zCDP``."""
        if self.stated is not None:
            return self.stated.text
        pair = f"({self.epsilon:.6g}, {self.delta:.6g})-DP"
        if self.mu is None:
            return pair
        return f"{self.mu:.6g}-GDP" if self.only_mu else f"both {pair} and {self.mu:.6g}-GDP"

    @property
    def options(self) -> dict[str, Any]:
        """The claim as options, by name; None or absent where not given."""
        if self.stated is not None:
            at = {} if self.stated.value is None else {"claim_delta": self.delta}
            return {**self.stated.words, **at}
        return {
            "claim_epsilon": None if self.only_mu else self.epsilon,
            "claim_delta": self.delta or None,
            "claim_mu": self.mu,
        }

    @property
    def words(self) -> list[str]:
        """The claim as options of the command line."""
        if self.stated is not None:
            given = self.options.items()
            return [w for name, value in given for w in (f"--{name.replace('_', '-')}", f"{value}")]
        epsilon = [] if self.only_mu else ["--claim-epsilon", f"{self.epsilon!r}"]
        mu = [] if self.mu is None else ["--claim-mu", f"{self.mu}"]
        return [*epsilon, *mu, "--claim-delta", f"{self.delta!r}"]

    @property
    def details(self) -> dict[str, str]:
        """What a result's ``details`` say of the claim."""
        if self.stated is not None and "claim_dpsgd" in self.stated.words:
            return {"claimed": "dpsgd", "dpsgd": str(self.stated.words["claim_dpsgd"])}
        return {"claimed": "mu"} if self.only_mu else {}

    def shown(self, bands: Sequence[Band], alpha: float) -> Shown | None:
        """What ``bands``, which all hold with confidence 1 − ``alpha``, show of a stated claim.

        None if the claim is of ε or μ.
        """
        if self.stated is None:
            return None
        low, says = self.stated.shown(bands) if bands else (None, "")
        method = "events and trade-off curve, Clopper-Pearson"
        interval = (
            None
            if low is None
            else Interval(low=low, high=math.inf, confidence=1 - alpha, method=method)
        )
        claim = self.stated.text
        if self.of_each:
            claim = f"{self.of_each} in each of {self.calls} calls"
            if low is not None:
                says += f" (claimed of all together: {self.stated.value:.6g})"
        return Shown(
            claim=claim,
            unit=self.stated.unit,
            value=self.stated.value,
            shown=interval,
            says=says,
        )

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= _LARGEST_EPSILON:
            raise UsageError(
                f"claim-epsilon={self.epsilon}: must lie in 0…{_LARGEST_EPSILON:g}; "
                "a larger one promises nothing"
            )
        if not 0 <= self.delta < 1:
            raise UsageError(f"claim-delta={self.delta}: must lie in [0, 1), e.g. 1e-5")
        if self.mu is not None and not (self.mu >= 0 and math.isfinite(self.mu)):
            raise UsageError(f"claim-mu={self.mu}: must be a finite number ≥ 0")


def _alone(given: list[str], *, epsilon: float | None, delta: float, mu: float | None) -> None:
    """Refuse a second claim beside one that stands alone, or a δ that it has no use for."""
    more = given[1:] + [n for n, v in (("epsilon", epsilon), ("mu", mu)) if v is not None]
    if more:
        raise UsageError(
            f"claim-{more[0]}: cannot be given with claim-{given[0]}, as one audit judges one "
            "claim (only ε and μ go together); leave one out, or audit twice"
        )
    if delta and given[0] in ("curve", "f"):
        raise UsageError(
            f"claim-delta={delta}: claim-{given[0]} has its own δ at every row; "
            "leave --claim-delta out"
        )


def _refuse_nothing(claim: str, epsilon: float, delta: float) -> None:
    if epsilon > _LARGEST_EPSILON or delta >= 1:
        raise UsageError(
            f"{claim}: implies ε = {epsilon:.4g} at δ = {delta:g}, which promises nothing; "
            "give a smaller one"
        )
