"""Report files: read one by one, and their records decoded."""

from __future__ import annotations

from dpaudit.deployments.apple.reports.reading import read_report, read_reports

__all__ = ["read_report", "read_reports"]
