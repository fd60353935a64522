"""A folder that holds an earlier audit: the same one is replaced, another one is not."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from pathlib import Path

from dpaudit.errors import StoreError, UsageError
from dpaudit.results.text import one_line

__all__ = ["apart_from_the_seed", "refuse_another"]

_OF_NO_ACCOUNT = {"--seed", "--by"}


def refuse_another(out: Path | None, command: str) -> None:
    """Check that ``out`` can be written and holds no result but one of ``command``, of any seed.

    What dpaudit did not write, and results of versions that did not keep their command, count as
    nothing.

    Raises:
        StoreError: it holds another audit, or a run.
        UsageError: it cannot be written.
    """
    if out is None:
        return
    _refuse_unwritable(out)
    if (out / "results.sqlite").exists():
        raise StoreError(
            f"out={out}: holds a run, not an audit; choose another --out, or remove the folder"
        )
    from dpaudit.render import read_report

    try:
        before = read_report(out / "result.json")
        was = apart_from_the_seed(before.command)
    except (UsageError, ValueError):  # ValueError: a command changed by hand
        return
    if was == apart_from_the_seed(command):
        return
    what = f"the result of another audit ({one_line(shlex.join(was))})"
    if not was:  # made in Python or by pytest
        subject, started = one_line(before.subject), one_line(before.provenance.get("started", ""))
        what = f"a result that no command made ({before.label} of {subject}, {started})"
    raise StoreError(f"out={out}: holds {what}; choose another --out, or remove the folder")


def apart_from_the_seed(command: str) -> list[str]:
    """A command's words, without its seed and who ran it: two audits are alike if these are.

    Raises:
        ValueError: an open quote.

    >>> apart_from_the_seed("dpaudit audit x --dim 4 --seed 1")
    ['dpaudit', 'audit', 'x', '--dim', '4']
    """
    words = shlex.split(command)
    left_out = {i for i, word in enumerate(words) if word in _OF_NO_ACCOUNT}
    return [w for i, w in enumerate(words) if i not in left_out and i - 1 not in left_out]


def _refuse_unwritable(out: Path) -> None:
    """Write into the folder and remove what was made: an audit has nothing to lose yet."""
    missing: list[Path] = []
    try:
        missing += (place for place in (out, *out.parents) if not place.exists())
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(
            f"out={out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    finally:
        for made in missing:
            with contextlib.suppress(OSError):
                made.rmdir()
