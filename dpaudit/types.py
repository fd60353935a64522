"""The typed results of dpaudit: frozen dataclasses, each with its provenance.

Nothing here computes. ``to_dict`` gives JSON-ready values (no NaN, no infinities);
:mod:`dpaudit.documents` reads them back.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins

from dpaudit.errors import UsageError
from dpaudit.results.foreign import shown
from dpaudit.results.text import one_line

__all__ = [
    "AttackResult",
    "AuditResult",
    "AuditedFile",
    "BlindSpot",
    "CellFailure",
    "CellResult",
    "CoinBytes",
    "CoinCount",
    "Counterexample",
    "DeterminismResult",
    "EpsilonBounds",
    "Evidence",
    "Interval",
    "MechanismResult",
    "PluginOrigin",
    "PowerPoint",
    "ProofResult",
    "ProvedBounds",
    "ProvedPoint",
    "Provenance",
    "Reference",
    "Rehearsal",
    "RunStart",
    "StatedClaim",
    "TestResult",
    "TranscriptVerdict",
    "Verdict",
    "to_dict",
]

Verdict = Literal["no-finding", "finding", "inconclusive"]
Value = str | int | float | bool

# JSON cannot write infinite and undefined numbers: documents hold "inf", "-inf", "nan"
Number = Annotated[float, Meta(extra_json_schema={"words": ["inf", "-inf", "nan"]})]
Amount = Annotated[float, Meta(extra_json_schema={"minimum": 0, "words": ["inf", "nan"]})]
"""A number of at least 0, infinite, or undefined."""
Share = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": 1, "words": ["nan"]})]
"""A probability, or undefined."""
Level = Annotated[float, Meta(gt=0, lt=1)]
Count = Annotated[int, Meta(ge=0)]

_LARGEST = int(sys.float_info.max)

html_of: Callable[[Any], str] | None = None
"""Turns a result into HTML for a notebook; set by ``dpaudit``: reports are not imported here."""
text_of: Callable[[Any], str] | None = None
"""Turns an audit's result into the lines that ``print`` shows; set by ``dpaudit`` too."""


def to_dict(result: Any) -> Any:
    """Turn a result (dataclasses, mappings, sequences, numbers, dates) into JSON-ready values.

    Infinite and undefined floats become the strings ``"inf"``, ``"-inf"`` and ``"nan"``. A field
    whose metadata says ``document: False`` is left out; one with ``document: "if any"`` is left out
    if it is empty. Properties that a class lists in ``in_documents`` are written as well.
    """
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        shown = {
            f.name: getattr(result, f.name)
            for f in dataclasses.fields(result)
            if _is_shown(f, result)
        }
        shown |= {name: getattr(result, name) for name in getattr(result, "in_documents", ())}
        return {name: to_dict(value) for name, value in shown.items()}
    if isinstance(result, Struct):
        return to_dict(to_builtins(result))
    if isinstance(result, Mapping):
        return {str(k): to_dict(v) for k, v in result.items()}
    if isinstance(result, (list, tuple)):
        return [to_dict(v) for v in result]
    # numpy's and torch's scalars and arrays, which json does not know
    if hasattr(result, "tolist"):
        return to_dict(result.tolist())
    if isinstance(result, float) and not math.isfinite(result):
        return str(result)
    return result.isoformat() if isinstance(result, date) else result


def _is_shown(field: dataclasses.Field[Any], result: Any) -> bool:
    rule = field.metadata.get("document", True)
    return bool(getattr(result, field.name)) if rule == "if any" else rule


@dataclass(frozen=True, slots=True)
class Reference:
    """A plug-in's name with its options, written ``NAME[:option=value,…]``.

    >>> Reference.parse("pancake:sigma=2,key=lab/key.json")
    Reference(name='pancake', options={'sigma': 2, 'key': 'lab/key.json'})
    >>> str(Reference.parse("gaussian"))
    'gaussian'
    """

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, *, example: str = "sigma=1") -> Reference:
        """Read ``NAME[:option=value,…]``; ``example`` is an option for the error message.

        Numbers and ``true``/``false`` are recognised, the rest stays text. A whole number beyond
        the range of a float is infinite.

        Raises:
            UsageError: an option without ``=``, or given twice.
        """
        name, _, rest = text.partition(":")
        options: dict[str, Value] = {}
        for part in filter(None, rest.split(",")):
            option, equals, value = part.partition("=")
            option = option.strip().replace("-", "_")
            if not equals or not option:
                raise UsageError(
                    f"{shown(part)} in {shown(text)}: an option is written name=value, "
                    f"e.g. {one_line(name)}:{example}"
                )
            if option in options:
                raise UsageError(
                    f"{one_line(option)}={one_line(value)} in {shown(text)}: given twice; keep one"
                )
            options[option] = _number(value.strip())
        return cls(name.strip(), options)

    def __str__(self) -> str:
        rest = ",".join(f"{k}={v}" for k, v in self.options.items())
        return f"{self.name}:{rest}" if rest else self.name


def _number(text: str) -> Value:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    whole: int | None
    try:
        whole = int(text)
    except ValueError:  # also: thousands of digits
        whole = None
    if whole is not None and -_LARGEST <= whole <= _LARGEST:
        return whole
    try:
        return float(text)
    except ValueError:
        return text


def _in_a_notebook(result: Any) -> str | None:
    """The HTML that IPython shows; None (plain text) if no report is available."""
    return None if html_of is None else html_of(result)


def _printed(result: Any) -> str:
    """What ``print`` shows: the verdict and how to see it again; ``repr`` if there is no report."""
    return repr(result) if text_of is None else text_of(result)


def _brief(result: Any, *words: object) -> str:
    """A ``repr`` of one line without control characters; empty words are left out."""
    said = ", ".join(one_line(word, limit=120) for word in words if word not in ("", None))
    return f"<{type(result).__name__}: {said}>"


def _smallest_p(tests: Sequence[TestResult]) -> str:
    counted = [t for t in tests if not t.advisory]
    if not counted:
        return "no test"
    first = min(counted, key=lambda t: t.p_adjusted)
    return f"smallest adjusted {_p(first.p_adjusted)} ({one_line(first.name, limit=60)})"


def _p(value: float) -> str:
    return "p < 1e-300" if value < 1e-300 else f"p {value:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval: ``[low, high]`` holds the truth with probability ≥ ``confidence``."""

    low: Number
    high: Number
    confidence: Share
    method: str

    def __repr__(self) -> str:
        return _brief(self, f"{self.low:.4g} … {self.high:.4g}", f"{self.confidence:.4g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonBounds:
    """``low ≤ ε ≤ high`` for the least ε, at a given δ, towards someone who holds every secret.

    ``says`` names the theorem, or says that a bound is numerical or unknown; ``high`` is infinite
    where none is known.
    """

    low: Number
    high: Number
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Cost of one release through a mitigation's whole protocol, all parties in this process.

    ``seconds`` by party or step, with the key ``total``; ``wire`` is the number of bytes sent over
    all links.
    """

    seconds: Mapping[str, float]
    wire: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptVerdict:
    """Result of an offline check of a protocol's transcript: its ``kind``, whether it ``holds``.

    ``says`` is the result in words; ``cannot_rule_out`` says what a transcript that holds does not
    exclude; ``details`` are JSON-ready.
    """

    kind: str
    holds: bool
    says: str
    cannot_rule_out: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOrigin:
    """A plug-in's kind and name, and the distribution and version that registered it.

    ``sha256`` is the hash of its package's Python sources (``dpaudit.source_hash``); empty if it
    was not computed or not found.
    """

    kind: str
    name: str
    distribution: str
    version: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedFile:
    """A file that was run or read: as it was named, its hash, bytes and modification time (UTC).

    Read before it ran. ``sha256`` and ``modified`` are empty if it could not be read.
    """

    name: str
    sha256: str
    size: Count
    modified: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What is needed to repeat a result: seed, versions, plug-ins, hardware, time. Never a key.

    ``source`` is the SHA-256 of dpaudit's own Python sources, as in :class:`PluginOrigin`. ``by``
    is whom the user named as the one who ran it, ``files`` what was audited, if it is files.
    ``command`` is the command line of an audit that was started by one, its seed included.
    """

    seed: str
    versions: Mapping[str, str]
    plugins: tuple[PluginOrigin, ...]
    hardware: str
    started: str
    source: str = ""
    by: str = field(default="", metadata={"document": "if any"})
    files: tuple[AuditedFile, ...] = field(default=(), metadata={"document": "if any"})
    command: str = field(default="", metadata={"document": "if any"})

    def __repr__(self) -> str:
        known = self.versions.get("dpaudit", "")
        return _brief(self, f"seed {self.seed}", known and f"dpaudit {known}", self.started)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpot:
    """A flaw that a pass does not exclude.

    Up to ``size`` the audit misses it with probability above 0.1; ``size`` is None where no sample
    size helps.
    """

    test: str
    flaw: str
    size: Number | None
    unit: str
    says: str

    def __repr__(self) -> str:
        upto = "any size" if self.size is None else f"up to {self.size:.3g} {self.unit}".rstrip()
        return _brief(self, self.flaw, upto, self.test)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPoint:
    """One point of the detectability map: the flaw size found with probability ≥ 0.9 at α = 0.01.

    ``dim`` 0 stands for a sampler whose dimension the auditor chooses. ``found_low`` and
    ``found_high`` are the Clopper-Pearson interval (95 %) of the share found at a measured point,
    None at an interpolated one.
    """

    flaw: str
    dim: Count
    samples: Count
    size: Number
    unit: str
    by: str
    found_low: Share | None = None
    found_high: Share | None = None

    def __repr__(self) -> str:
        found = f"{self.size:.3g} {self.unit} found by {self.by}"
        return _brief(self, self.flaw, found, f"{self.samples:,} values", f"dim {self.dim}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one test of the battery found, before α is split.

    ``p`` is valid (super-uniform under the null, up to the approximation that the test's docstring
    names) for all that the test tried; ``parts`` are its sub-statistics' own p-values, already
    within ``p``. ``interval`` is a confidence interval for the effect, in ``unit``, where there is
    one; ``details`` is JSON-ready proof that outlives the audit (a recovered direction, the calls
    that coincide).
    """

    p: Share
    statistic: Number
    effect: str
    parts: Mapping[str, Number] = field(default_factory=dict)
    blind_spots: tuple[BlindSpot, ...] = ()
    interval: Interval | None = None
    unit: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return _brief(self, _p(self.p), self.effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """One test's row in the verdict; ``p_adjusted`` is Holm's over the whole battery.

    An ``advisory`` test is never a finding and no α is spent on it. ``seen_after`` is the number of
    values drawn when its p-value was first seen below its share of α (checked at intervals;
    descriptive). ``reproduce`` is the command that reproduces a finding.
    """

    __test__ = False  # not a pytest class

    name: str
    p: Share
    p_adjusted: Share
    statistic: Number
    looks_at: str
    effect: str
    finding: bool
    parts: Mapping[str, Number]
    advisory: bool = False
    interval: Interval | None = None
    unit: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    seen_after: Count | None = None
    reproduce: str = ""

    def __repr__(self) -> str:
        kind = "finding" if self.finding else "advisory" if self.advisory else ""
        return _brief(self, self.name, kind, f"adjusted {_p(self.p_adjusted)}", self.effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The verdict on one closed sampler against one claim.

    ``cause`` is the likeliest cause of a finding in a few words, empty where none is recognised.
    ``dims`` are the vector lengths drawn, ``dims_refused`` those that the sampler refused.
    ``power`` is the detectability map around this audit: the sizes of flaws found with probability
    ≥ 0.9, by number of values. ``sandbox`` says how the sampler was confined: ``full``,
    ``partial: …`` with what was lacking, ``none``, or ``not needed`` where none of its code ran
    here; empty if the caller opened the sampler.

    Guarantee: if the sampler is exactly what it claims, independently from value to value, the
    verdict is ``finding`` with probability at most ``alpha``. Not claimed: that ``no-finding``
    means honest; see ``cannot_rule_out``.
    """

    verdict: Verdict
    reason: str
    sampler: str
    claim: str
    alpha: Level
    tests: tuple[TestResult, ...]
    samples: Count
    samples_requested: Count
    dims: tuple[int, ...]
    dims_refused: tuple[int, ...] = ()
    sequential: bool = False
    cause: str = ""
    sandbox: str = ""
    seconds: Amount
    cannot_rule_out: tuple[BlindSpot, ...]
    power: tuple[PowerPoint, ...] = ()
    provenance: Provenance

    _repr_html_ = _in_a_notebook

    __str__ = _printed

    def __repr__(self) -> str:
        drawn = f"{self.samples:,} values"
        shown = _smallest_p(self.tests)
        return _brief(self, self.verdict, self.sampler, self.claim, drawn, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """How often an attack identified the right candidate; ``chance`` is the success of guessing."""

    attack: str
    trials: Count
    successes: Count
    success: Share
    interval: Interval
    chance: Share
    epsilon_lower_bound: Number
    l2_error: Amount
    l2_expected: Amount
    details: Mapping[str, Any] = field(default_factory=dict)

    _repr_html_ = _in_a_notebook

    def __repr__(self) -> str:
        right = f"{self.successes:,} of {self.trials:,} right"
        return _brief(self, self.attack, right, f"chance {self.chance:.3g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One finished cell of an experiment, as the store keeps it; ``outcome`` is JSON-ready.

    ``trials`` are columns of equal length, one value per trial, where the experiment keeps them
    (``keep_trials``): ``truth`` and ``guess`` (the candidate's number) and ``score`` (evidence for
    candidate 1 minus that for candidate 0). They are in the store's own table, in no document.
    """

    cell: str
    kind: str
    settings: Mapping[str, Any]
    outcome: Mapping[str, Any]
    seconds: Amount
    provenance: Mapping[str, Any]
    trials: Mapping[str, Sequence[int | float]] = field(
        default_factory=dict, metadata={"document": False}
    )

    _repr_html_ = _in_a_notebook

    def __repr__(self) -> str:
        return _brief(self, self.kind, self.cell, f"{self.seconds:.3g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFailure:
    """A cell that raised: settings (JSON-ready), the error on one line, its traceback."""

    cell: str
    kind: str
    settings: Mapping[str, Any]
    error: str
    traceback: str
    seconds: Amount
    provenance: Mapping[str, Any]

    def __repr__(self) -> str:
        return _brief(self, self.kind, self.cell, self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """What a run logger receives first: which run, and what was finished before this start.

    ``run_id`` is random, and the same whenever the run is resumed. ``folder`` is where
    ``results.json`` and ``report.html`` will be, ``cells`` the total number of cells.
    """

    name: str
    title: str
    run_id: str
    folder: str
    command: str
    spec: Mapping[str, Any]
    cells: int
    earlier: tuple[CellResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedClaim:
    """A claim other than (ε, δ) and μ, as it was stated, and what was shown in its own terms.

    ``claim`` is as a reader writes it (``0.5-zCDP``), ``unit`` the letter of its parameter and
    ``value`` the claimed one, ``shown`` a lower bound for it; the three are empty or None for a
    table. ``says`` is what was shown in words, empty if nothing was looked at.
    """

    claim: str
    unit: str
    value: Amount | None
    shown: Interval | None
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismResult:
    """The verdict on one whole mechanism against a claimed (ε, δ).

    It comes from releases at two neighbours, or from one run.

    Guarantee: with probability at least 1 − ``alpha`` every lower bound in it (``epsilon`` at the
    claimed δ, ``delta`` at the claimed ε, ``mu``, all of ``curve``, pairs (δ, ε)) is true and the
    verdict is ``finding`` only if the claim is false, if releases are independent of each other.
    Not claimed: that ``no-finding`` means private; other neighbours, and other events, were not
    looked at. ``neighbours`` is empty for a one-run audit; ``mu``, ``delta`` and ``curve`` are left
    out where the method has none.

    ``attack`` is the attack that was named, or empty; ``details`` then says how many of its guesses
    of the neighbour were right (``success``: ``right``, ``of``, ``by_coin``, a 95 % ``interval``),
    and for a support attack how many releases it judges possible at the value that they were made
    from (``feasible_at_truth``, of how many). Without an attack, ``last_bits_excluded`` is true if
    findings in the last bits are advisory; ``claimed`` is ``mu`` if μ-Gaussian DP alone was
    claimed, and ``claim_epsilon`` what that implies at ``claim_delta``; so it is where ``stated``
    is another claim, which is judged in its own terms. ``sandbox`` is as for samplers.
    """

    verdict: Verdict
    reason: str
    mechanism: str
    method: str
    attack: str = ""
    neighbours: tuple[tuple[Number, ...], ...]
    claim_epsilon: Amount
    claim_delta: Share
    claim_mu: Amount | None
    stated: StatedClaim | None = None
    alpha: Level
    epsilon: Interval
    delta: Interval | None
    mu: Interval | None
    curve: tuple[tuple[Number, Number], ...]
    tests: tuple[TestResult, ...]
    samples: Count
    samples_requested: Count
    sandbox: str = ""
    seconds: Amount
    advice: tuple[str, ...]
    cannot_rule_out: tuple[BlindSpot, ...]
    power: tuple[PowerPoint, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance

    _repr_html_ = _in_a_notebook

    __str__ = _printed

    def __repr__(self) -> str:
        claim = f"claims ({self.claim_epsilon:.4g}, {self.claim_delta:.4g})-DP"
        if self.claim_mu is not None and self.details.get("claimed") == "mu":
            claim = f"claims {self.claim_mu:.4g}-GDP"
        if self.stated is not None:
            claim = f"claims {self.stated.claim}"
        drawn = f"{self.samples:,} releases"
        shown = f"ε ≥ {math.floor(100 * self.epsilon.low) / 100:g}"
        return _brief(self, self.verdict, self.mechanism, claim, drawn, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedBounds:
    """A number that is proved to lie in [low, high]; the floats are rounded outwards."""

    low: Number
    high: Number

    def __repr__(self) -> str:
        return _brief(self, f"{self.low:.6g} … {self.high:.6g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedPoint:
    """An ε, as it was written, and bounds of the least δ at it, for neighbours in either order.

    ``near`` is the ε as the nearest number, for figures.
    """

    epsilon: str
    delta: ProvedBounds
    near: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """Coins on which the unmodified program was run in Python, and what it returned.

    ``coins`` are pairs (how many values the coin has, which it has), in the order of the requests;
    whole numbers too large for JSON's readers are text. ``says`` is why this refutes the claim.
    """

    output: str
    coins: tuple[tuple[int | str, int | str], ...]
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinCount:
    """How many coin bits a call reads.

    ``constant`` is the one number, None if it varies; then ``information`` bounds the mutual
    information of the number and the output, in bits, if it was computed, and ``law`` has lower
    bounds of the probabilities of the smallest numbers. A request for one of n values counts as
    ⌈log2 n⌉ bits.
    """

    constant: Count | None
    least: Count
    information: ProvedBounds | None = None
    law: tuple[tuple[Count, Share], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResult:
    """What was proved of a program's text, from its exact law.

    Guarantee: if the program's coins are uniform and independent and Python runs its text as the
    interpreter here does, every bound holds, without any probability of error. ``law`` are the
    likeliest outputs with lower bounds of their probabilities; each is larger by at most
    ``residual``, the probability of all paths that were not followed. Not claimed: anything about
    the coins' real source, about compiled code, or about time other than ``coin_count``.

    ``disjoint`` says of a function that returns several values: "shown" if their joint law is a
    product, "refuted" if not, "not shown" if neither could be; empty if that was not asked.
    ``claimed`` bounds the claimed probabilities of the outputs in ``law``, in the same order.
    ``epsilon`` bounds the least ε at ``claim_delta``. ``certificate`` is the SHA-256 of the
    certificate's file, empty if none was written.
    """

    verdict: Literal["proved", "refuted", "undecided"]
    reason: str
    program: str
    arguments: str
    coins: str
    claim: str
    tolerance: Amount | None = None
    total_variation: ProvedBounds | None = None
    log_ratio: ProvedBounds | None = None
    neighbours: tuple[str, ...] = ()
    claim_epsilon: str = ""
    claim_delta: str = ""
    profile: tuple[ProvedPoint, ...] = ()
    epsilon: ProvedBounds | None = None
    disjoint: Literal["", "shown", "refuted", "not shown"] = ""
    coin_count: CoinCount | None = None
    law: tuple[tuple[str, Share], ...]
    claimed: tuple[ProvedBounds, ...] = ()
    outputs: Count
    residual: Share
    states: Count
    counterexample: Counterexample | None = None
    certificate: str = ""
    seconds: Amount
    cannot_rule_out: tuple[str, ...]
    provenance: Provenance

    _repr_html_ = _in_a_notebook

    __str__ = _printed

    def __repr__(self) -> str:
        said = f"{self.states:,} states"
        return _brief(self, self.verdict, self.program, self.claim, said)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinBytes:
    """How many bytes of coins the ``value``-th number of a vector took, over the runs."""

    value: Count
    least: Count
    most: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterminismResult:
    """What was seen of a compiled sampler whose coins, clock and process number were chosen.

    Guarantee: each of ``findings`` is a pair of runs whose coins are the same where they should
    matter and whose values differ. "no-finding" says that in ``runs`` runs the same coins gave the
    same values, that no coin reached two values, and that the library has no instruction and no
    import that could bring in anything but what was interposed. Not claimed: that the same holds
    for coins that were not tried; that the law of the values is right.

    ``sources`` is what the sampler asked for, and how often in one run.
    """

    verdict: Verdict
    library: str
    symbol: str
    findings: tuple[str, ...]
    not_controlled: tuple[str, ...]
    coin_bytes: tuple[CoinBytes, ...]
    sources: Mapping[str, Count]
    runs: Count
    cannot_rule_out: tuple[str, ...]
    seconds: Amount
    provenance: Provenance

    _repr_html_ = _in_a_notebook

    __str__ = _printed

    def __repr__(self) -> str:
        return _brief(self, self.verdict, self.symbol, f"{self.runs:,} runs")
