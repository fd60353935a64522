"""``dpaudit verify transcript``: did everyone follow a protocol? Certificates: ``prove.py``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpaudit import registry
from dpaudit.cli.options import FormatOption, with_shared_options
from dpaudit.cli.output import note, write_json_line
from dpaudit.codec import to_dict
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.options import Argument, Option
from dpaudit.results.foreign import RefusedError, read_json, read_plain
from dpaudit.results.text import one_line
from dpaudit.types import TranscriptVerdict

__all__ = ["verify_transcript"]

_LARGEST = 1 << 28  # bytes; our two protocols' transcripts have less
_KEY_BYTES = 32


@with_shared_options
def verify_transcript(
    path: Annotated[Path, Argument("A transcript's JSON file.", "FILE")],
    opening: Annotated[
        Path | None,
        Option("joint-seeds: the server's sealed opening, to check also the noise that was used."),
    ] = None,
    release: Annotated[
        Path | None, Option("joint-seeds: the release (.npy), to check it against query and noise.")
    ] = None,
    server: Annotated[
        str | None, Option("joint-seeds: the server's public key, in hexadecimal.")
    ] = None,
    verifier: Annotated[str | None, Option("The verifier's public key, in hexadecimal.")] = None,
    output: FormatOption = "text",
) -> None:
    r"""Did everyone follow the protocol? Needs only the transcript: no party and no network.

    Exit code 0: it holds. 1: a party cheated, or the transcript was changed. 2:
    not a transcript. You decide whose signatures count: give the parties'
    public keys, or compare those that the verdict prints.

    [bold]Examples[/bold]

    $ dpaudit verify transcript joint-seeds.json
    $ dpaudit verify transcript joint-seeds.json --opening opening.json \
        --release release.npy
    """
    arguments = {"opening": opening, "release": release, "server": server, "verifier": verifier}
    kind = _kind(path)
    verify: Any = registry.load("transcripts", kind)
    verdict: TranscriptVerdict = verify(path, **_options(verify, kind, arguments))
    if output == "json":
        write_json_line(to_dict(verdict))
    else:
        typer.echo(
            f"{verdict.kind}: {'holds' if verdict.holds else 'DOES NOT HOLD'}: {verdict.says}"
        )
        if verdict.holds:
            note(f"what this cannot rule out: {verdict.cannot_rule_out}")
    raise typer.Exit(0 if verdict.holds else 1)


def _options(
    verify: Any, kind: str, arguments: Mapping[str, Path | str | None]
) -> dict[str, Path | bytes]:
    accepted = inspect.signature(verify).parameters
    options: dict[str, Path | bytes] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        if name not in accepted:
            raise UsageError(f"{name}={value}: not for a {kind} transcript; leave --{name} out")
        options[name] = value if isinstance(value, Path) else _public_key(name, value)
    return options


def _public_key(name: str, text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise UsageError(
            f"{name}={text}: must be {2 * _KEY_BYTES} hexadecimal digits; "
            "copy the public key that the verdict prints"
        )
    return key


def _kind(path: Path) -> str:
    try:
        data = read_plain(path, limit=min(_LARGEST, path.stat().st_size))
        if not data.isascii() or b"\\" in data:  # which would take several times the memory
            raise RefusedError("contains non-ASCII characters or a backslash")
        document = read_json(data)
    except (RefusedError, OSError) as error:
        raise UsageError(
            f"transcript={path}: not a transcript "
            f"({one_line(getattr(error, 'strerror', None) or error)}); "
            "give the JSON file that a protocol wrote"
        ) from error
    kind = document.get("transcript") if isinstance(document, dict) else None
    if not isinstance(kind, str):
        raise UsageError(
            f"transcript={path}: must have a field 'transcript' with the protocol's name; "
            "give a transcript that dpaudit wrote"
        )
    try:
        registry.plugin("transcripts", kind)
    except UnknownNameError as error:
        raise UsageError(f"transcript={path}: {one_line(error)}") from error
    return kind
