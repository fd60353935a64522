"""The budget database: read without changing it, and checked against what budgets could have accrued."""

from __future__ import annotations

from dpaudit.deployments.apple.database.reading import read_bits, read_database, read_sketches

__all__ = ["read_bits", "read_database", "read_sketches"]
