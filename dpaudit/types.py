"""What results are made of: frozen values, each with its provenance.

Nothing here computes. :mod:`dpaudit.codec` writes results as JSON and reads them back.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta

from dpaudit.errors import UsageError
from dpaudit.results.foreign import quoted
from dpaudit.results.text import one_line

__all__ = [
    "AuditedFile",
    "BlindSpot",
    "CellFailure",
    "CellResult",
    "EpsilonBounds",
    "Evidence",
    "Interval",
    "PluginOrigin",
    "PowerPoint",
    "Provenance",
    "Reference",
    "Rehearsal",
    "TestResult",
    "TranscriptVerdict",
    "Verdict",
    "WithTests",
    "brief",
    "p_text",
    "smallest_p",
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

LAST_CAUSE = 100
"""The rank of a cause that no other follows from."""

_LARGEST = int(sys.float_info.max)


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
                    f"{quoted(part)} in {quoted(text)}: an option is written name=value, "
                    f"e.g. {one_line(name)}:{example}"
                )
            if option in options:
                raise UsageError(
                    f"{one_line(option)}={one_line(value)} in {quoted(text)}: given twice; keep one"
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


def brief(result: Any, *parts: object) -> str:
    """A ``repr`` of one line without control characters; empty words are left out."""
    text = ", ".join(one_line(word, limit=120) for word in parts if word not in ("", None))
    return f"<{type(result).__name__}: {text}>"


def smallest_p(tests: Sequence[TestResult]) -> str:
    """The smallest adjusted p-value and its test, for a ``repr``."""
    counted = [t for t in tests if not t.advisory]
    if not counted:
        return "no test"
    first = min(counted, key=lambda t: t.p_adjusted)
    return f"smallest adjusted {p_text(first.p_adjusted)} ({one_line(first.name, limit=60)})"


def p_text(value: float) -> str:
    """A p-value for a ``repr``."""
    return "p < 1e-300" if value < 1e-300 else f"p {value:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval: ``[low, high]`` holds the truth with probability ≥ ``confidence``."""

    low: Number
    high: Number
    confidence: Share
    method: str

    def __repr__(self) -> str:
        return brief(self, f"{self.low:.4g} … {self.high:.4g}", f"{self.confidence:.4g}")


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

    ``sha256`` is the hash of its package's Python sources (:func:`dpaudit.registry.source_hash`);
    empty if it was not computed or not found.
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
        version = self.versions.get("dpaudit", "")
        return brief(self, f"seed {self.seed}", version and f"dpaudit {version}", self.started)


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
    component: str = field(default="", metadata={"document": "if any"})
    """The component of NIST's pyramid (:mod:`dpaudit.harms`); empty: the algorithm."""

    def __repr__(self) -> str:
        upto = "any size" if self.size is None else f"up to {self.size:.3g} {self.unit}".rstrip()
        return brief(self, self.flaw, upto, self.test)


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
        text = f"{self.size:.3g} {self.unit} found by {self.by}"
        return brief(self, self.flaw, text, f"{self.samples:,} values", f"dim {self.dim}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one test of the battery found, before α is split.

    ``p`` is valid (super-uniform under the null, up to the approximation that the test's docstring
    names) for all that the test tried; ``parts`` are its sub-statistics' own p-values, already
    within ``p``. ``interval`` is a confidence interval for the effect, in ``unit``, where there is
    one; ``details`` is JSON-ready proof that outlives the audit (a recovered direction, the calls
    that coincide). ``cause`` is the likeliest cause in a few words, if the test knows one, and
    ``cause_rank`` its place: a finding of a lower rank explains those of higher ones. ``harm`` is
    what a finding means where that differs from the test's own.
    """

    p: Share
    statistic: Number
    effect: str
    parts: Mapping[str, Number] = field(default_factory=dict)
    blind_spots: tuple[BlindSpot, ...] = ()
    interval: Interval | None = None
    unit: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    cause: str = ""
    cause_rank: int = LAST_CAUSE
    harm: str = ""

    def __repr__(self) -> str:
        return brief(self, p_text(self.p), self.effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """One test's row in the verdict; ``p_adjusted`` is Holm's over the whole battery.

    An ``advisory`` test is never a finding and no α is spent on it. ``seen_after`` is the number of
    values drawn when its p-value was first seen below its share of α (checked at intervals;
    descriptive). ``reproduce`` is the command that reproduces a finding.
    ``harm`` is what a
    finding means (a key of :data:`dpaudit.harms.HARMS`), ``topic`` its page of ``dpaudit explain``,
    ``cause`` as in :class:`Evidence`.
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
    harm: str = "other"
    topic: str = field(default="", metadata={"document": "if any"})
    cause: str = field(default="", metadata={"document": "if any"})
    cause_rank: int = field(default=LAST_CAUSE, metadata={"document": False})

    def __repr__(self) -> str:
        kind = "finding" if self.finding else "advisory" if self.advisory else ""
        return brief(self, self.name, kind, f"adjusted {p_text(self.p_adjusted)}", self.effect)


class WithTests(Protocol):
    """A result with tests, and what a pass of them does not exclude."""

    @property
    def tests(self) -> tuple[TestResult, ...]:
        """Each test's row."""

    @property
    def cannot_rule_out(self) -> tuple[BlindSpot, ...]:
        """What a pass does not exclude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One finished cell of an experiment, as the store keeps it; ``outcome`` is JSON-ready."""

    cell: str
    kind: str
    settings: Mapping[str, Any]
    outcome: Mapping[str, Any]
    seconds: Amount
    provenance: Mapping[str, Any]

    def __repr__(self) -> str:
        return brief(self, self.kind, self.cell, f"{self.seconds:.3g} s")


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
        return brief(self, self.kind, self.cell, self.error)
