"""What wrote each folder of results, at which commit, at what cost."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.plan import plan
from evidence.record import Record

from result_tables.reading import line

__all__ = ["folders"]


def folders() -> Iterator[str]:
    """A row for each study of the plan, in order of its name."""
    for study in sorted(plan(), key=lambda study: study.name):
        record = Record.of(study.name)
        commands = "<br>".join(f"`{one.replace('|', chr(92) + '|')}`" for one in study.run)
        cells = (
            [f"{record.commit}, {record.day}", f"{record.cpu_minutes:g}"] if record else ["–"] * 2
        )
        yield line([f"`{study.name}/`", commands, *cells])
