"""The command line: stdout carries the result, stderr progress and errors."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from dpaudit.results.text import error_text, printable, tell

__all__ = ["main"]


def main() -> None:
    """Run the command line; a deliberate error becomes a message and its documented exit code.

    Formal guarantee: exit codes 0 and 1 come only from commands that ran to their end and whose
    output was written to stdout, never from an exception, ``SystemExit``, broken pipe or
    unwritable stderr. Text that reaches stdout or stderr is printable (see
    :mod:`dpaudit.results.text`), whoever chose it.
    """
    from dpaudit.cli.output import guarded

    with guarded():
        code = _code()
    sys.exit(code)


def _code() -> int:
    """Run the app, report an error on stderr, and return the exit code."""
    from dpaudit.cli.app import app
    from dpaudit.cli.output import OutputError
    from dpaudit.cli.plugin_commands import Ended
    from dpaudit.errors import DpauditError
    from dpaudit.registry import missing_extra

    try:
        try:
            code = app(standalone_mode=False)
            sys.stdout.flush()
        except Ended as ended:
            if isinstance(ended.error, SystemExit):
                raise RuntimeError("a plug-in called sys.exit") from ended.error  # noqa: TRY004
            raise ended.error from None
        return code if isinstance(code, int) else 0
    except SystemExit:  # typer's shell completion, which runs before any command
        raise
    except DpauditError as error:
        if not (isinstance(error, OutputError) and not error.args):
            tell("dpaudit: " + printable(error, limit=20_000).replace("\n", "\n  "), limit=25_000)
        return error.exit_code
    except KeyboardInterrupt:
        tell("dpaudit: interrupted before the end; files that were written stay")
        return 130
    except BaseException as error:  # noqa: BLE001 whatever a plug-in raises is no verdict
        if hasattr(error, "format_message"):
            return _misused(error)
        hint = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        if hint is not None:
            tell(f"dpaudit: this command {hint}")
            return 2
        if os.environ.get("DPAUDIT_DEBUG"):
            tell(traceback.format_exc(), limit=100_000)
        tell(
            f"dpaudit: internal error: {error_text(error, limit=2000)}\n\n"
            "This is a bug in dpaudit or in a plug-in; DPAUDIT_DEBUG=1 shows where."
        )
        return 4


def _misused(error: Any) -> int:
    """Print typer's usage error, unless it is the one after which typer has printed the help."""
    if type(error).__name__ != "NoArgsIsHelpError":
        from dpaudit.cli.help import misuse

        tell(f"dpaudit: {misuse(error)}", limit=5000)
    return 2
