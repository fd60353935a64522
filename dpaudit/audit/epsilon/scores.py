"""Recorded scores of a one-run audit: a file with columns ``score`` and ``member``."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["read_scores"]

_HOW = "write a .csv with the header score,member, or an .npz with arrays score and member"


def read_scores(path: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Scores (m,), higher meaning likelier in, and whether each canary was in (m,). Nothing is unpickled.

    Raises:
        UsageError: no such file, another ending, a missing column, a score that is not finite, a member other than 0
            or 1, or columns of different lengths.
    """
    readers = {".csv": _csv, ".npz": _npz}
    if path.suffix.lower() not in readers:
        raise UsageError(f"scores={path}: ends in {path.suffix or 'nothing'}; {_HOW}")
    try:
        score, member = readers[path.suffix.lower()](path)
    except OSError as error:
        raise UsageError(f"scores={path}: cannot be read ({error.strerror or error}); check the path") from None
    except KeyError as error:
        raise UsageError(f"scores={path}: has no column {error}; {_HOW}") from None
    except (ValueError, TypeError, csv.Error, zipfile.BadZipFile) as error:
        raise UsageError(f"scores={path}: holds something else than numbers ({error}); {_HOW}") from None
    if score.ndim != 1 or score.shape != member.shape:
        raise UsageError(f"scores={path}: score has shape {score.shape}, member {member.shape}; {_HOW}")
    bad = np.flatnonzero(~np.isfinite(score))
    if bad.size:
        raise UsageError(
            f"scores={path}: score {score[bad[0]]} in row {bad[0] + 1} is not finite; mend or leave it out"
        )
    odd = np.flatnonzero((member != 0) & (member != 1))
    if odd.size:
        raise UsageError(f"scores={path}: member {member[odd[0]]} in row {odd[0] + 1} is neither 0 nor 1; mend it")
    return score, member.astype(bool)


def _csv(path: Path) -> tuple[Any, Any]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        score, member = [], []
        for row in rows:
            score.append(float(row["score"]))
            member.append(float(row["member"]))
    if not score:
        raise ValueError("no rows")
    return np.array(score), np.array(member)


def _npz(path: Path) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not an archive")  # noqa: TRY004 told with the other unreadable files
        return np.asarray(archive["score"], np.float64), np.asarray(archive["member"], np.float64)
