"""Ad measurement: audits of honest and flawed files of reports."""

from __future__ import annotations

from collections.abc import Iterator

from result_tables.reading import interval, line, rows


def files() -> Iterator[str]:
    """How many files of each kind are findings."""
    for row in rows("attribution"):
        yield line(
            [
                row["reports"],
                f"{row['epsilon']:g}",
                f"{row['size']:,}",
                row["flaw"],
                row["files"],
                interval(row["found"]),
                row["by"],
            ]
        )
