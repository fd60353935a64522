"""``dpaudit list``."""

from __future__ import annotations

from rich.table import Table

from dpaudit import registry
from dpaudit.cli.output import emit, write_json_line

__all__ = ["show"]


def show(kind: str, output: str) -> None:
    """Print the plug-ins of a kind, or the built-in experiments."""
    if kind == "experiments":
        from dpaudit.experiments.spec import spec_names

        rows = [{"name": name, "distribution": "dpaudit", "target": f"specs/{name}.toml"} for name in spec_names()]
    else:
        rows = [
            {"name": name, "distribution": f"{p.origin.distribution} {p.origin.version}", "target": p.target}
            for name, p in registry.plugins(kind).items()
        ]
    if output == "json":
        write_json_line(rows)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "distribution", "target"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    emit(table)
