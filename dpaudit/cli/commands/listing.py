"""``dpaudit list``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpaudit import registry
from dpaudit.cli.options import FormatOption
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.registry import Kind
from dpaudit.results.text import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from dpaudit.targets.adapters.base import Library, LibraryMechanism

__all__ = ["list_"]

Row = dict[str, Any]

_LEGEND = "Options: write NAME:option=value,…; option=… must be given, [option] may be."
_HINTS = {
    "sources": f"{_LEGEND}\nTry: dpaudit audit gaussian:sigma=2",
    "samplers": "The mechanisms of libraries: dpaudit list mechanisms",
    "mechanisms": (
        f"{_LEGEND.replace('NAME', 'LIBRARY:MECHANISM')}\n"
        "Try: dpaudit audit numpy:laplace:scale=2, or\n"
        "     dpaudit mechanism numpy:laplace --neighbours 0,1 --claim-epsilon 1"
    ),
    "attacks": _LEGEND,
    "mitigations": (
        f"{_LEGEND}\nTry: dpaudit audit gaussian --mitigation rotation --claim gaussian:sigma=1"
    ),
    "tests": "Try: dpaudit audit numpy:normal --tests moments,tails",
    "experiments": "Minutes are rough, on two cores. Try: dpaudit run gpm-fig4",
}


def list_(
    kind: Annotated[
        Literal[Kind, "mechanisms", "experiments"],
        typer.Argument(metavar="KIND", help="One of the kinds above.", show_default=False),
    ],
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also show where each plug-in's code is."),
    ] = False,
    output: FormatOption = "text",
) -> None:
    """List what dpaudit has by name: sources, mechanisms, attacks, experiments and more.

    [bold]KIND[/bold] is one of

    sources      noise inside dpaudit, safe kinds and lab specimens
    mechanisms   of libraries: numpy:laplace, opendp:gaussian, …
    samplers     the ways to reach a sampler: python:, command:, library:, …
    tests        what an audit runs
    attacks, mitigations, hosts, measures, local, submissions, batches
                 what an experiment is made of
    experiments  what dpaudit run runs, with rough minutes
    services, transcripts
                 what dpaudit serve runs and dpaudit verify checks

    Each with a description, its options with their defaults, whether it is a
    LAB SPECIMEN, and the extra it needs. No plug-in is imported.

    [bold]Examples[/bold]

    $ dpaudit list mechanisms
    $ dpaudit list sources --format json
    """
    from dpaudit.protocols import GAMES

    table: Callable[[list[Row]], Table]
    if kind == "experiments":
        rows, table = _experiments(), _numbered
    elif kind == "mechanisms":
        rows, table = _mechanisms(), _by_library
    else:
        rows, table = (
            _plugins(kind),
            lambda entries: _two_columns((row["name"], _lines(row, verbose)) for row in entries),
        )
    if output == "json":
        write_json_line(rows)
        return
    emit(table(rows))
    if kind == "attacks":
        emit("")
        emit(_two_columns((name, [_rules(name)]) for name in GAMES))
    if kind in _HINTS:
        note(_HINTS[kind])


def _plugins(kind: str) -> list[Row]:
    registered = registry.plugins(kind)
    return [
        {
            "name": name,
            "distribution": f"{plugin.origin.distribution} {plugin.origin.version}",
            "target": plugin.target,
            **_described(plugin),
            **(_needs(plugin) if kind == "attacks" else {}),
        }
        for name, plugin in registered.items()
    ]


def _described(plugin: registry.Plugin) -> Row:
    about = registry.describe(plugin)
    return {
        "description": about.says,
        "lab_specimen": about.specimen,
        "options": dict(about.options),
        "extra": about.extra,
        "missing": [about.missing] if about.missing else [],
    }


def _experiments() -> list[Row]:
    from dpaudit.experiments.spec_file import spec_heads

    return [
        {**head, "distribution": "dpaudit", "target": f"specs/{head['name']}.toml"}
        for head in spec_heads()
    ]


def _mechanisms() -> list[Row]:
    """What ``LIB:MECH`` can be; the libraries themselves are not imported."""
    rows = []
    for name, plugin in registry.plugins("samplers").items():
        if plugin.target.endswith(":LIBRARY"):
            library: Library = registry.load("samplers", name)
            about = _described(plugin)
            rows += [
                _mechanism(library, mechanism, entry, about)
                for mechanism, entry in library.table.items()
            ]
    return rows


def _mechanism(library: Library, name: str, entry: LibraryMechanism, about: Row) -> Row:
    return {
        "name": f"{library.name}:{name}",
        "library": library.name,
        "claim": _claim(entry),
        "releases": "aggregate of a data set" if entry.data else "value plus noise",
        "options": {
            option: None if default is None else str(default)
            for option, default in entry.options.items()
        },
        "extra": about["extra"],
        "installed": library.version,
    }


def _claim(entry: LibraryMechanism) -> str | None:
    """Its law with the defaults; with … for the scale where an option has none."""
    from dpaudit.targets.adapters.base import stated_claim

    some = {
        option: 0.5 if default is None else default for option, default in entry.options.items()
    }
    claim = stated_claim(entry, some)
    if claim is not None and None in entry.options.values():
        return f"{claim.partition('=')[0]}=…"
    return claim


def _lines(row: Row, verbose: bool) -> list[str]:
    """What stands next to a name: description, options, needs, origin."""
    first = ("LAB SPECIMEN. " if row["lab_specimen"] else "") + row["description"]
    details = [f"options: {_options(row['options'])}"] if row["options"] else []
    details += [_needed(row["extra"], row["missing"])] if row["missing"] else []
    lines = [line for line in (first, "; ".join(details)) if line] or [""]
    if "games" in row:
        lines.append(
            f"plays {', '.join(row['games']) or 'no game'}; holds {row['holds']}; "
            f"in {', '.join(row['used_by']) or 'no command'}"
        )
    if verbose or row["distribution"].partition(" ")[0] != "dpaudit":
        lines.append(f"from {row['distribution']}: {row['target']}")
    return [one_line(line, limit=1000) for line in lines]


_PLAIN = re.compile(r"-?[\w.+-]+")


def _options(options: Mapping[str, str | None]) -> str:
    def text(name: str, default: str | None) -> str:
        if default is None:
            return f"{name}=…"
        if default == "None" or not _PLAIN.fullmatch(default):
            return f"[{name}]"
        return f"{name}={default.lower() if default in _BOOLEANS else default.removesuffix('.0')}"

    return " ".join(text(name, default) for name, default in options.items())


_BOOLEANS = ("True", "False")


def _needed(extra: str | None, missing: Sequence[str]) -> str:
    how = f": pip install 'dpaudit[{extra}]'" if extra else ""
    return f"needs {', '.join(missing)} (not installed{how})"


def _by_library(rows: Sequence[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("mechanism", no_wrap=True)
    table.add_column("claims", no_wrap=True)
    table.add_column("options", overflow="fold")
    for library, group in itertools.groupby(rows, key=lambda row: row["library"]):
        mechanisms = list(group)
        table.add_row()
        table.add_row(Text(library, style="bold"), "", Text(_version(mechanisms[0]), style="dim"))
        for row in mechanisms:
            short = row["name"].partition(":")[2]
            claim = row["claim"] or ("(data set)" if "data" in row["releases"] else "")
            table.add_row(f"  :{short}", claim, _options(row["options"]))
    return table


def _version(row: Row) -> str:
    if row["installed"] is not None:
        return f"{row['installed']} installed"
    if row["extra"] is not None:
        return f"not installed: pip install 'dpaudit[{row['extra']}]'"
    return "not installed: make envs"


def _two_columns(rows: Iterable[tuple[str, Sequence[str]]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, (first, *more) in rows:
        text = Text(first)
        text.highlight_regex("^LAB SPECIMEN", "bold yellow")
        for line in more:
            text.append(f"\n{line}", style="dim")
        table.add_row(Text(name, style="bold"), text)
    return table


def _numbered(rows: Sequence[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("minutes", justify="right", no_wrap=True)
    table.add_column("what it shows", overflow="fold")
    for row in rows:
        minutes = row["minutes"]
        duration = "?" if minutes is None else "<1" if minutes < 1 else f"{minutes:g}"
        table.add_row(Text(row["name"], style="bold"), duration, Text(one_line(row["title"])))
    return table


def _needs(plugin: registry.Plugin) -> Row:
    """What an attack declares about itself, and what the rules of its games add."""
    from dpaudit.protocols import GAMES

    played: object = registry.declared_attribute(plugin, "games", ())
    games = [
        game for game in GAMES.values() if isinstance(played, (tuple, list)) and game.name in played
    ]
    return {
        "games": [game.name for game in games],
        "holds": registry.declared_attribute(plugin, "holds", "nothing" if games else "not stated"),
        "knows": list(dict.fromkeys(game.knows for game in games)),
        "releases": list(dict.fromkeys(game.releases for game in games)),
        "labels": any(game.labels for game in games),
        "used_by": list(dict.fromkeys(command for game in games for command in game.used_by)),
    }


def _rules(name: str) -> str:
    from dpaudit.protocols import GAMES

    game = GAMES[name]
    return (
        f"sees {game.sees}; knows {game.knows}; returns {game.returns}; succeeds if {game.success}"
    )
