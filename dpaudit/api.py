"""Results of Python calls as documents and pages, as the command line writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpaudit import report
from dpaudit.errors import UsageError
from dpaudit.types import AuditResult, MechanismResult, to_dict

__all__ = ["document_of", "write_report"]

Result = AuditResult | MechanismResult | Mapping[str, Any]


def document_of(result: Result) -> dict[str, Any]:
    """The JSON-ready document that ``result.json`` holds: ``kind`` and ``result``, without a recovered secret.

    Raises:
        UsageError: neither a result of an audit nor such a document.
    """
    if isinstance(result, Mapping):
        return dict(result)
    if not isinstance(result, (AuditResult, MechanismResult)):
        raise UsageError(f"result={type(result).__name__}: pass what audit_sampler or audit_mechanism returned")
    document = to_dict(result)
    for test in document["tests"]:
        test["details"].pop("w", None)
    return {"kind": "audit" if isinstance(result, AuditResult) else "mechanism", "result": document}


def write_report(result: Result, path: str | Path) -> Path:
    """Write an audit's result as one self-contained HTML file, atomically; returns its path.

    >>> import dpaudit, tempfile
    >>> from pathlib import Path
    >>> found = dpaudit.audit_sampler("numpy:laplace", claim="gaussian:sigma=1", samples=20_000, seed=1)
    >>> page = dpaudit.write_report(found, Path(tempfile.mkdtemp()) / "report.html")
    >>> "numpy:laplace" in page.read_text()
    True

    Raises:
        UsageError: no result of an audit, or the file cannot be written.
    """
    try:
        return report.write_report(document_of(result), Path(path))
    except OSError as error:
        raise UsageError(f"path={path}: cannot be written ({error.strerror}); choose another") from error
