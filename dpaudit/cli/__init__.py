"""The command line. stdout carries the result, stderr progress and errors; see ``dpaudit --help`` for exit codes."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; deliberate errors become one clear line and the documented exit code, never a traceback."""
    from dpaudit.cli.app import app
    from dpaudit.errors import DpauditError
    from dpaudit.registry import missing_extra

    try:
        app()
    except DpauditError as error:
        print(f"dpaudit: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(
            "dpaudit: interrupted; what is finished is kept: the same command goes on (dpaudit run: with --resume)",
            file=sys.stderr,
        )
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say
        sys.exit(0)
    except Exception as error:
        hint = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        if hint is not None:
            print(f"dpaudit: this command {hint}", file=sys.stderr)
            sys.exit(2)
        if os.environ.get("DPAUDIT_DEBUG"):
            raise
        print(
            f"dpaudit: internal error: {type(error).__name__}: {error}\n\n"
            "This is a bug in dpaudit or in a plug-in; DPAUDIT_DEBUG=1 shows where.",
            file=sys.stderr,
        )
        sys.exit(4)
