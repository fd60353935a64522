"""Whether the audit finds a flawed sampler of the zoo, and whether others' tests do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.result import AuditResult
from dpaudit.claims import Claim
from dpaudit.errors import SpecError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.randomness import KeyedStream
from dpaudit.results.text import error_text
from dpaudit.stats import clopper_pearson
from dpaudit_studies.zoo import HALVES, Specimen, specimen, specimen_sampler
from dpaudit_studies.zoo.peers import NOT_INSTALLED, PEERS

__all__ = ["MEASURE", "measure", "summary"]

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
    audited = _tried("audit", failures, lambda: _audit(subject, grid, stream, seed))
    seconds = time.monotonic() - began
    others = {"half": half} if half else _peers(subject, grid, stream.child("peers"), failures)
    return {
        "family": subject.family,
        "says": subject.says,
        "expected": subject.expected,
        "why": subject.why,
        "claim": subject.claim,
        **(_found(audited) if audited is not None else {"found": False, "verdict": "failed"}),
        **others,
        "failed": "; ".join(failures) or None,
        "audit_seconds": seconds,
    }


def _peers(
    subject: Specimen, grid: ZooGrid, stream: KeyedStream, failures: list[str]
) -> dict[str, Any]:
    z = _tried("peers", failures, lambda: _normal_values(subject, grid.samples, stream))
    return {
        name: None if z is None else _tried(name, failures, lambda peer=peer: peer(z, grid.alpha))  # type: ignore[misc]
        for name, peer in PEERS.items()
    }


def _tried(what: str, failures: list[str], work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 one specimen that fails must not cost the others
        failures.append(f"{what}: {error_text(error)}")
        return None


def _audit(subject: Specimen, grid: ZooGrid, stream: KeyedStream, seed: str) -> AuditResult:
    options = AuditOptions(
        samples=grid.samples,
        alpha=grid.alpha,
        time_limit=grid.time_limit,
        seed=seed,
        all_values=True,  # every test that finds something is counted
    )
    with specimen_sampler(subject, stream=stream.child("audited")) as sampler:
        return run_audit(sampler, claim=Claim.parse(subject.claim), options=options)


def _found(result: AuditResult) -> dict[str, Any]:
    findings = [test for test in result.tests if test.finding]
    seen = [test.seen_after for test in findings if test.seen_after is not None]
    least = min((test.p_adjusted for test in result.tests if not test.advisory), default=1.0)
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return {
        "found": result.verdict == "finding",
        "verdict": result.verdict,
        "by": f"{findings[0].name}{more}" if findings else None,
        "finding_tests": [test.name for test in findings],
        "p_adjusted": least,
        "seen_after": min(seen) if seen else None,
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
    with specimen_sampler(subject, stream=stream.child("values")) as sampler:
        for start in range(0, rows, step):
            n = min(step, rows - start)
            z[start : start + n] = claim.to_normal(sampler.draw(n, d, timeout=np.inf), spread)
    return z.ravel()


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many were found, by what was expected and by half; the peers; what was missed."""
    flawed = [row for row in rows if row["expected"] != "passed"]
    parts = [f"The audit finds {_share(flawed)} flawed samplers"]
    for expected, words in (
        ("found", "should show"),
        ("borderline", "are borderline"),
        ("missed", "cannot show"),
    ):
        parts += _counted(flawed, "expected", expected, f"that {words}")
    for half in ("training", "test"):
        parts += _counted(flawed, "half", half, f"of the {half} half")
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


def _counted(rows: Sequence[Mapping[str, Any]], key: str, value: str, words: str) -> list[str]:
    some = [row for row in rows if row.get(key) == value]
    return [f"{sum(map(_is_found, some))} of {len(some)} {words}"] if some else []


def _is_found(row: Mapping[str, Any]) -> bool:
    return bool(row["found"])


def _share(rows: Sequence[Mapping[str, Any]]) -> str:
    found = sum(map(_is_found, rows))
    bounds = clopper_pearson(found, len(rows))
    percent = f"{100 * found / len(rows):.1f} % [{100 * bounds.low:.1f}, {100 * bounds.high:.1f}]"
    return f"{found} of {len(rows)} ({percent})"


def _reason(row: Mapping[str, Any]) -> str:
    plain = row["expected"] == "found"
    why = row["failed"] if row["verdict"] == "failed" else "" if plain else row["why"]
    return f"{row['specimen']} ({why})" if why else f"{row['specimen']}"


MEASURE = Measure(run=measure, grid=ZooGrid, needs_arm=False, summary=summary)
