"""Recorded scores of canaries, from a file that somebody else may have written."""

from __future__ import annotations

import array
import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.arrays import Archive
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import one_line
from dpaudit.samplers.endpoints.file import lines_of, open_text

__all__ = ["read_scores"]

_HOW = "write a .csv with the header score,member, or an .npz with arrays score and member"
_COLUMNS = ("score", "member")
_ALWAYS = 1 << 20  # scores that a small .npz may unpack to

Columns = tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]


def read_scores(path: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Read scores (m,), higher meaning likelier in, and whether each canary was in (m,).

    Nothing is unpickled.

    An ``.npz`` may hold at most 2^20 scores and one more for each four bytes of the file. Memory:
    ten times the file and 64 MiB at most.

    Raises:
        UsageError: no such file, another ending, a missing column, a score that is not finite, a
            member other than 0 or 1, columns of different lengths, or more scores than that.
    """
    readers = {".csv": _csv, ".npz": _npz}
    if path.suffix.lower() not in readers:
        raise UsageError(f"scores={path}: ends in {path.suffix or 'nothing'}; {_HOW}")
    try:
        score, member = readers[path.suffix.lower()](path)
    except (RefusedError, OSError) as error:
        raise UsageError(f"scores={path}: {one_line(error)}; check the path") from None
    except KeyError as error:
        raise UsageError(f"scores={path}: has no column {error}; {_HOW}") from None
    except (ValueError, csv.Error) as error:
        raise UsageError(
            f"scores={path}: holds something else than numbers ({one_line(error)}); {_HOW}"
        ) from None
    if score.ndim != 1 or score.shape != member.shape:
        raise UsageError(
            f"scores={path}: score has shape {score.shape}, member {member.shape}; {_HOW}"
        )
    values = score.astype(np.float64, copy=False)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise UsageError(
            f"scores={path}: score {values[bad[0]]} in row {bad[0] + 1} is not finite; "
            "fix or leave it out"
        )
    odd = np.flatnonzero((member != 0) & (member != 1))
    if odd.size:
        raise UsageError(
            f"scores={path}: member {member[odd[0]]} in row {odd[0] + 1} is neither 0 nor 1; fix it"
        )
    return values, member.astype(bool)


def _csv(path: Path) -> Columns:
    score, member = array.array("d"), array.array("d")
    with open_text(path, newline="") as file:
        rows = csv.reader(lines_of(file), skipinitialspace=True)
        header = next(rows, [])
        for name in _COLUMNS:
            if header.count(name) > 1:
                raise ValueError(f"two columns {name}")
            if name not in header:
                raise KeyError(name)
        at, other = map(header.index, _COLUMNS)
        for row in filter(None, rows):
            if len(row) <= max(at, other):
                raise ValueError(f"row {len(score) + 1} is too short")
            score.append(float(row[at]))
            member.append(float(row[other]))
    if not score:
        raise ValueError("no rows")
    return np.frombuffer(score), np.frombuffer(member)


def _npz(path: Path) -> Columns:
    with Archive(path) as archive:
        rows = _ALWAYS + archive.size // 4
        for name in _COLUMNS:
            header, stream = archive.open(name)
            stream.close()
            if header.count > rows:
                raise ValueError(
                    f"{header.count:,} scores in {archive.size:,} bytes, at most {rows:,}; "
                    "save it uncompressed"
                )
        score, member = (archive.read(name, most=16 * rows) for name in _COLUMNS)
        return score, member
