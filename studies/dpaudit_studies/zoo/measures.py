"""Whether audits and others' tests find flawed samplers, and how often they accuse honest ones."""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import scipy

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.result import AuditResult
from dpaudit.claims import Claim
from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Cell, Grid, Measure, grouped
from dpaudit.experiments.trials import interval
from dpaudit.protocols import Request
from dpaudit.randomness import KeyedStream
from dpaudit.results.text import error_text
from dpaudit.stats import bonferroni, clopper_pearson
from dpaudit_studies.zoo import (
    HALVES,
    InProcessSampler,
    Specimen,
    honest,
    specimen,
    specimen_sampler,
)
from dpaudit_studies.zoo.specimen import GAUSSIAN, RECOVERABLE, Array

__all__ = [
    "CALIBRATION",
    "NOT_INSTALLED",
    "PEERS",
    "ZOO",
    "anderson_darling",
    "calibrate",
    "calibration_rows",
    "measure",
    "sp800_22",
    "summary",
]

NOT_INSTALLED = "not installed"

_BITS = 8  # of Φ(z), the leading ones: of honest single-precision noise too these are uniform
_SEQUENCE = 1_000_000  # bits; the length that SP 800-22 was tested with
_SEQUENCES = 2  # at about a second each
_TESTS: Mapping[str, tuple[int, ...]] = {
    "frequency": (), "block_frequency": (128,), "cumulative_sums": (), "runs": (),
    "longest_run_of_ones": (), "rank": (), "discrete_fourier_transform": (), "universal": (),
    "approximate_entropy": (10,), "serial": (16,), "overlapping_template_matchings": (9,),
    "linear_complexity": (500,),
}  # fmt: skip


def kolmogorov_smirnov(z: Array, alpha: float) -> bool:
    """The one-sample test of scipy against N(0, 1), two-sided."""
    return bool(scipy.stats.kstest(z, "norm", method="asymp").pvalue <= alpha)


def anderson_darling(z: Array, alpha: float) -> bool:
    """Anderson and Darling's A² against exactly N(0, 1).

    p from the limit law (Marsaglia and Marsaglia 2004, their adinf, off by less than 2e-6), which
    is close enough for n ≥ 1,000. ``z`` is sorted.
    """
    n = len(z)
    weights = np.arange(1, 2 * n, 2, dtype=np.float64)
    logs = scipy.special.log_ndtr(z) + scipy.special.log_ndtr(-z[::-1])
    square = -n - float(weights @ logs) / n
    return 1 - _adinf(square) <= alpha


def _adinf(x: float) -> float:
    """P(A² < x) for n → ∞ (Marsaglia and Marsaglia 2004)."""
    if x <= 0:
        return 0.0
    if x < 2:
        low = np.polyval([-0.00168691, 0.0116720, -0.0347962, 0.0649821, -0.247105, -2.00012], x)
        return float(-low * math.exp(-1.2337141 / x) / math.sqrt(x))
    high = np.polyval([-0.0003146, 0.008056, -0.082433, 0.43424, -2.30695, 1.0776], x)
    return math.exp(-math.exp(float(high)))


def anderson_darling_fitted(z: Array, alpha: float) -> bool | None:
    """``scipy.stats.anderson``, which fits mean and σ, so tests neither; None at other levels."""
    with warnings.catch_warnings():
        # about the form of its answer in versions to come
        warnings.simplefilter("ignore", FutureWarning)
        result = scipy.stats.anderson(z, "norm")
    for level, critical in zip(result.significance_level, result.critical_values, strict=True):
        if math.isclose(level / 100, alpha):
            return bool(result.statistic > critical)
    return None


def sp800_22(z: Array, alpha: float) -> bool | str:
    """NIST's SP 800-22 (NIST's own C code, in sp80022suite) on the leading 8 bits of each Φ(z).

    Twelve of its tests on up to two sequences of 10^6 bits from the beginning (250,000 values),
    Bonferroni over them all. Left out: non-overlapping templates, which wants files that the
    package lacks, and the random excursions, whose answer there is the least of several p-values.
    ``z`` is in the order drawn. A test that refuses a sequence counts as passed.
    """
    try:
        suite: Any = importlib.import_module("sp80022suite")
    except ImportError:
        return NOT_INSTALLED
    values = z[: _SEQUENCES * _SEQUENCE // _BITS]
    cells = np.minimum(scipy.special.ndtr(values) * (1 << _BITS), (1 << _BITS) - 1).astype(np.uint8)
    bits = np.unpackbits(cells)
    p: list[float] = []
    for start in range(0, max(1, len(bits) // _SEQUENCE) * _SEQUENCE, _SEQUENCE):
        sequence = bits[start : start + _SEQUENCE].tobytes()
        for name, options in _TESTS.items():
            try:
                p.append(float(getattr(suite, name)(*options, sequence)))
            except ValueError:
                p.append(1.0)
    return bonferroni([min(max(value, 0.0), 1.0) for value in p]) <= alpha


PEERS: Mapping[str, Callable[[Array, float], bool | str | None]] = {
    "sp800_22": sp800_22,
    "ks": lambda z, alpha: kolmogorov_smirnov(np.sort(z), alpha),
    "ad": lambda z, alpha: anderson_darling(np.sort(z), alpha),
    "ad_fitted": anderson_darling_fitted,
}
"""Each takes N(0, 1) images in the order drawn, shape (n,), and α; returns a finding or not."""

_ALL = "all"


class CalibrationGrid(Grid, frozen=True):
    """An honest sampler by its name, and the tests ``without`` which it is audited.

    ``batch`` only distinguishes cells. Searches that would take minutes per audit have their false
    alarms measured separately.
    """

    sampler: str
    samples: int
    alpha: float
    without: tuple[str, ...] = ()
    batch: int = 0


def calibrate(cell: Cell, arm: None) -> dict[str, Any]:
    """The findings of ``trials`` audits of one sampler (:class:`CalibrationGrid`)."""
    del arm
    stream = cell.stream
    grid, trials = cell.grid(CalibrationGrid), cell.settings["trials"]
    tests = tuple(name for name in registry.plugins("tests") if name not in grid.without)
    claim, make = Claim.parse(GAUSSIAN), honest(grid.sampler)
    findings, by, inconclusive = 0, Counter[str](), 0
    for i in range(trials):
        own = stream.child("sampler", i)
        with InProcessSampler(make, name=grid.sampler, stream=own).open(timeout=60) as sampler:
            options = AuditOptions(
                samples=grid.samples,
                alpha=grid.alpha,
                seed=f"{cell.settings['seed']}/{cell.id}/{i}",
                tests=tests,
                allow_predictable=grid.sampler in RECOVERABLE,
            )
            result = run_audit(sampler, claim=claim, options=options)
        findings += result.verdict == "finding"
        inconclusive += result.verdict == "inconclusive"
        by.update(test.name for test in result.tests if test.finding)
    alarms = _alarms(findings, trials, by, grid.alpha)
    return alarms | {"inconclusive": inconclusive, "tests": len(tests)}


def _alarms(findings: int, audits: int, by: Mapping[str, int], alpha: float) -> dict[str, Any]:
    share, most = interval(findings, audits), sorted(by.items(), key=lambda x: (-x[1], x[0]))
    return {
        "audits": audits,
        "findings": findings,
        "share": share,
        "by": dict(sorted(by.items())),
        "found_by": ", ".join(f"{name} {k}" for name, k in most) or None,
        "within": share["low"] <= alpha,
    }


def calibration_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per sampler, and one for all of them, from rows of one batch each."""
    groups = grouped(rows, itemgetter("sampler"))
    total = [_row(_ALL, rows)] if rows else []
    return [*(_row(some[0]["sampler"], some) for some in groups), *total]


def _row(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by = Counter[str]()
    for row in rows:
        by.update(row["by"])
    counted = _alarms(
        sum(r["findings"] for r in rows), sum(r["audits"] for r in rows), by, rows[0]["alpha"]
    )
    return {
        **rows[0],
        **counted,
        "sampler": name,
        "batch": len(rows),
        "trials": counted["audits"],
        "inconclusive": sum(r["inconclusive"] for r in rows),
    }


def calibration_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The share of all audits, and whether its interval reaches below α."""
    joined = calibration_rows([row for row in rows if row["sampler"] != _ALL])
    total = joined[-1]
    share, alpha = total["share"], total["alpha"]
    percent = f"{100 * share['value']:.2f} % [{100 * share['low']:.2f}, {100 * share['high']:.2f}]"
    verdict = "reaches below" if total["within"] else "lies ABOVE"
    single = [row["sampler"] for row in joined[:-1] if not row["within"]]
    text = (
        f"{total['findings']} of {total['audits']} audits of honest noise end in a finding at "
        f"α = {alpha:g}: {percent}; the interval {verdict} {alpha:g}."
    )
    return text + (f" By itself above: {', '.join(single)}." if single else "")


CALIBRATION = Measure(
    run=calibrate,
    grid=CalibrationGrid,
    needs_arm=False,
    gather=calibration_rows,
    summary=calibration_summary,
)

_ROW = 64  # values in a row for the peers, where the specimen serves any dimension
_BLOCK = 1 << 19
_PEER_NAMES = {
    "ks": "scipy's KS",
    "ad": "Anderson-Darling",
    "ad_fitted": "scipy's anderson",
    "sp800_22": "SP 800-22",
}


class ZooGrid(Grid, frozen=True):
    """A specimen by its name, and its audit; ``time_limit`` is in seconds."""

    specimen: str
    samples: int
    alpha: float
    time_limit: float | None = None


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """One audit of a specimen (:class:`ZooGrid`), and the peers on as many values drawn afresh.

    Specimens of the unseen half meet no peers; their noise depends on the spec's seed and their
    name alone. An audit or a peer that fails is recorded in ``failed``, and counts as having found
    nothing.

    Raises:
        SpecError: ``trials`` is not 1.
    """
    if cell.settings["trials"] != 1:
        raise SpecError(
            f"trials={cell.settings['trials']}: each specimen is audited once; "
            "change samples under [grid]"
        )
    del arm
    grid = cell.grid(ZooGrid)
    subject, half = specimen(grid.specimen), HALVES.get(grid.specimen)
    label = ("unseen", grid.specimen) if half else ("cell", cell.id)
    stream = KeyedStream.from_seed(cell.settings["seed"]).child(*label)
    failures: list[str] = []
    began = time.monotonic()
    seed = f"{cell.settings['seed']}/{label[1]}"
    audited = _try("audit", failures, lambda: _audit(subject, grid, stream, seed))
    seconds = time.monotonic() - began
    others = {"half": half} if half else _peers(subject, grid, stream.child("peers"), failures)
    return {
        "family": subject.family,
        "says": subject.says,
        "expected": subject.expected,
        "why": subject.why,
        "claim": subject.claim,
        **(_outcome(audited) if audited is not None else {"found": False, "verdict": "failed"}),
        **others,
        "failed": "; ".join(failures) or None,
        "audit_seconds": seconds,
    }


def _peers(
    subject: Specimen, grid: ZooGrid, stream: KeyedStream, failures: list[str]
) -> dict[str, Any]:
    z = _try("peers", failures, lambda: _normal_values(subject, grid.samples, stream))
    return {
        name: None if z is None else _try(name, failures, lambda peer=peer: peer(z, grid.alpha))  # type: ignore[misc]
        for name, peer in PEERS.items()
    }


def _try(name: str, failures: list[str], work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 one specimen that fails must not cost the others
        failures.append(f"{name}: {error_text(error)}")
        return None


def _audit(subject: Specimen, grid: ZooGrid, stream: KeyedStream, seed: str) -> AuditResult:
    options = AuditOptions(
        samples=grid.samples,
        alpha=grid.alpha,
        time_limit=grid.time_limit,
        seed=seed,
        all_values=True,  # every test that finds something is counted
    )
    with specimen_sampler(subject, stream=stream.child("audited")).open(timeout=60) as sampler:
        return run_audit(sampler, claim=Claim.parse(subject.claim), options=options)


def _outcome(result: AuditResult) -> dict[str, Any]:
    findings = [test for test in result.tests if test.finding]
    positions = [test.seen_after for test in findings if test.seen_after is not None]
    least = min((test.p_adjusted for test in result.tests if not test.advisory), default=1.0)
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return {
        "found": result.verdict == "finding",
        "verdict": result.verdict,
        "by": f"{findings[0].name}{more}" if findings else None,
        "finding_tests": [test.name for test in findings],
        "p_adjusted": least,
        "seen_after": min(positions) if positions else None,
        "values": result.samples,
    }


def _normal_values(
    subject: Specimen, samples: int, stream: KeyedStream
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """About ``samples`` values (whole rows) in the order drawn, as N(0, 1) under the claim."""
    d = subject.dim or _ROW
    rows, step = max(1, samples // d), max(1, _BLOCK // d)
    claim, spread = Claim.parse(subject.claim), stream.child("atoms").numpy()
    z = np.empty((rows, d))
    with specimen_sampler(subject, stream=stream.child("values")).open(timeout=60) as sampler:
        for start in range(0, rows, step):
            n = min(step, rows - start)
            z[start : start + n] = claim.to_normal(
                sampler.ask(Request(n, d), timeout=np.inf).values, spread
            )
    return z.ravel()


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many were found, by what was expected and by half; the peers; what was missed."""
    flawed = [row for row in rows if row["expected"] != "passed"]
    parts = [f"The audit finds {_share(flawed)} flawed samplers"]
    for expected, phrase in (
        ("found", "should show"),
        ("borderline", "are borderline"),
        ("missed", "cannot show"),
    ):
        parts += _count(flawed, "expected", expected, f"that {phrase}")
    for half in ("training", "test"):
        parts += _count(flawed, "half", half, f"of the {half} half")
    text = f"{parts[0]}: {', '.join(parts[1:])}."
    right = [row for row in rows if row["expected"] == "passed"]
    if right:
        text += f" It accuses {sum(map(_is_found, right))} of {len(right)} right samplers."
    peers = []
    for key, name in _PEER_NAMES.items():
        ran = [row for row in rows if isinstance(row.get(key), bool)]
        if ran:
            peers.append(f"{name} {sum(row[key] for row in ran)} of {len(ran)}")
        elif any(row.get(key) == NOT_INSTALLED for row in rows):
            peers.append(f"{name} {NOT_INSTALLED}")
    text += f" On as many values each: {', '.join(peers)}." if peers else ""
    missed = [row for row in flawed if not _is_found(row)]
    if missed:
        text += f" Missed: {'; '.join(_reason(row) for row in missed)}."
    return text


def _count(rows: Sequence[Mapping[str, Any]], key: str, value: str, phrase: str) -> list[str]:
    some = [row for row in rows if row.get(key) == value]
    return [f"{sum(map(_is_found, some))} of {len(some)} {phrase}"] if some else []


def _is_found(row: Mapping[str, Any]) -> bool:
    return bool(row["found"])


def _share(rows: Sequence[Mapping[str, Any]]) -> str:
    findings = sum(map(_is_found, rows))
    bounds = clopper_pearson(findings, len(rows))
    percent = (
        f"{100 * findings / len(rows):.1f} % [{100 * bounds.low:.1f}, {100 * bounds.high:.1f}]"
    )
    return f"{findings} of {len(rows)} ({percent})"


def _reason(row: Mapping[str, Any]) -> str:
    plain = row["expected"] == "found"
    why = row["failed"] if row["verdict"] == "failed" else "" if plain else row["why"]
    return f"{row['specimen']} ({why})" if why else f"{row['specimen']}"


ZOO = Measure(run=measure, grid=ZooGrid, needs_arm=False, summary=summary)
