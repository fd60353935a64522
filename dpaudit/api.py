"""Results of Python calls as documents and pages, as the command line writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpaudit import report
from dpaudit.documents import of_result
from dpaudit.errors import UsageError
from dpaudit.types import AuditResult, MechanismResult

__all__ = ["write_report"]


def write_report(
    result: AuditResult | MechanismResult | Mapping[str, Any], path: str | Path
) -> Path:
    """Write a result, or a document as JSON values, as one self-contained HTML file.

    The file is written atomically; returns its path.

    >>> import dpaudit, tempfile
    >>> from pathlib import Path
    >>> found = dpaudit.audit_sampler(
    ...     "numpy:laplace", claim="gaussian:sigma=1", samples=20_000, seed=1
    ... )
    >>> page = dpaudit.write_report(found, Path(tempfile.mkdtemp()) / "report.html")
    >>> "numpy:laplace" in page.read_text()
    True

    Raises:
        UsageError: neither a result of an audit nor a document, or the file cannot be written.
    """
    if not isinstance(result, (AuditResult, MechanismResult, Mapping)):
        raise UsageError(
            f"result={type(result).__name__}: pass what audit_sampler or audit_mechanism returned"
        )
    document = result if isinstance(result, Mapping) else of_result(result)
    try:
        return report.write_report(document, Path(path))
    except OSError as error:
        raise UsageError(
            f"path={path}: cannot be written ({error.strerror}); choose another"
        ) from error
