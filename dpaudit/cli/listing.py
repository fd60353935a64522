"""``dpaudit list``."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from dpaudit import registry
from dpaudit.cli.output import emit, write_json_line
from dpaudit.interfaces import GAMES

__all__ = ["show"]


def show(kind: str, output: str) -> None:
    """Print the plug-ins of a kind, or the built-in experiments; for attacks also their needs."""
    if kind == "experiments":
        from dpaudit.experiments.spec_file import spec_names

        rows = [
            {"name": name, "distribution": "dpaudit", "target": f"specs/{name}.toml"}
            for name in spec_names()
        ]
    else:
        rows = [
            {
                "name": name,
                "distribution": f"{p.origin.distribution} {p.origin.version}",
                "target": p.target,
            }
            for name, p in registry.plugins(kind).items()
        ]
    needs = (
        [_needs(plugin) for plugin in registry.plugins(kind).values()] if kind == "attacks" else []
    )
    if output == "json":
        write_json_line(
            [row | need for row, need in zip(rows, needs, strict=True)] if needs else rows
        )
        return
    emit(_table(rows))
    if needs:
        named = zip(rows, needs, strict=True)
        emit("")
        emit(_table([{"name": row["name"]} | _texts(need) for row, need in named]))
        emit("")
        emit(_table([_rules(game) for game in GAMES]))


def _table(rows: list[dict[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in rows[0] if rows else ("name", "distribution", "target"):
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    return table


def _needs(plugin: registry.Plugin) -> dict[str, Any]:
    """What an attack declares about itself, and what the rules of its games add."""
    own = registry.declared(plugin)
    played = own.get("games")
    games = [
        game for game in GAMES.values() if isinstance(played, (tuple, list)) and game.name in played
    ]
    return {
        "games": [game.name for game in games],
        "holds": str(own.get("holds", "nothing" if games else "not stated")),
        "knows": list(dict.fromkeys(game.knows for game in games)),
        "releases": list(dict.fromkeys(game.releases for game in games)),
        "labels": any(game.labels for game in games),
        "used_by": [command for game in games for command in game.used_by],
    }


def _texts(need: dict[str, Any]) -> dict[str, str]:
    words = {True: "yes", False: "no"}
    return {
        k: words[v] if isinstance(v, bool) else "; ".join(v) if isinstance(v, list) else v
        for k, v in need.items()
    }


def _rules(name: str) -> dict[str, str]:
    game = GAMES[name]
    return {"game": name, "sees": game.sees, "says": game.says, "succeeds if": game.success}
