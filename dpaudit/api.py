"""Results of Python calls as pages and files, as the command line writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpaudit import render
from dpaudit.describing import describe
from dpaudit.errors import UnknownNameError, UsageError

__all__ = ["write_report"]


def write_report(result: Any, path: str | Path, *, format: str = "html") -> Path:  # noqa: A002
    """Write a result as one file: a self-contained page, or json, junit, sarif or markdown.

    ``result`` is what an audit or a proof returned, a :class:`dpaudit.report.Report`, or a
    third-party result whose kind is registered under ``dpaudit.results``. The file is written
    atomically; returns its path.

    >>> import dpaudit, tempfile
    >>> from pathlib import Path
    >>> found = dpaudit.audit_sampler(
    ...     "numpy:laplace", claim="gaussian:sigma=1", samples=20_000, seed=1
    ... )
    >>> page = dpaudit.write_report(found, Path(tempfile.mkdtemp()) / "report.html")
    >>> "numpy:laplace" in page.read_text()
    True

    Raises:
        UsageError: nothing describes the result, there is no such format, or the file cannot be
            written.
    """
    try:
        report = describe(result)
    except UnknownNameError as error:
        raise UsageError(
            f"result={type(result).__name__}: pass what audit_sampler or audit_mechanism returned"
        ) from error
    try:
        return render.write_report(report, Path(path), format=format)
    except OSError as error:
        raise UsageError(
            f"path={path}: cannot be written ({error.strerror}); choose another"
        ) from error
