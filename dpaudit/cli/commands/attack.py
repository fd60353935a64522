"""``dpaudit attack``: one attack on recorded releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit import registry
from dpaudit.cli.options import FormatOption, with_shared_options
from dpaudit.cli.output import emit, write_json_line
from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.options import Argument, Option

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["attack"]


@with_shared_options
def attack(
    name: Annotated[
        str,
        Argument(
            "Attack with its options, e.g. likelihood-ratio:key=key.json,sigma=22.3",
            "NAME",
            completion="attacks",
        ),
    ],
    releases: Annotated[Path, Option(".npy of shape (t, d) or (d,): what was released.")],
    candidates: Annotated[
        Path, Option(".npy of shape (m, d) or (t, m, d): the candidate query results.")
    ],
    truth: Annotated[
        Path | None,
        Option(".npy of t numbers in 0…m−1: the right candidates; also measures the success."),
    ] = None,
    output: FormatOption = "text",
) -> None:
    r"""Run one attack on recorded releases: which candidate does each release come from?

    With --truth, exit code 1 means that the attack is better than guessing (95
    % interval). The attacks that score candidates: dpaudit list attacks.

    [bold]Examples[/bold]

    $ dpaudit attack likelihood-ratio:key=key.json,sigma=22.3 \
        --releases noisy.npy --candidates queries.npy
    $ dpaudit attack reach --releases noisy.npy --candidates queries.npy \
        --truth right.npy
    """
    import numpy as np

    from dpaudit.numeric.arrays import to_numpy
    from dpaudit.protocols import plays

    chosen = registry.create("attacks", name)
    if not plays(chosen, "scoring"):
        raise UsageError(
            f"attack={name}: does not score candidates; dpaudit list attacks says which command plays its game"
        )
    y = np.atleast_2d(_load("releases", releases)).astype(np.float64)
    q = np.atleast_2d(_load("candidates", candidates, most_axes=3)).astype(np.float64)
    scores = to_numpy(chosen.score(y, q))
    best = scores.argmax(1)
    document: dict[str, Any] = {
        "attack": name.partition(":")[0],
        "plugin": to_dict(registry.plugin("attacks", name.partition(":")[0]).origin),
        "releases": len(y),
        "candidates": scores.shape[1],
        "best": best.tolist(),
        "scores": [[float(s) for s in row] for row in scores],
    }
    code = 0
    if truth is not None:
        document |= _success(best, truth, candidates=scores.shape[1])
        code = int(document["interval"]["low"] > document["chance"])
    if output == "json":
        write_json_line(to_dict(document))
    else:
        emit(_text(document))
    raise typer.Exit(code)


def _success(best: npt.NDArray[Any], truth: Path, *, candidates: int) -> dict[str, Any]:
    """How often the ``best`` candidates (t,) are the right ones, with its interval."""
    import numpy as np

    from dpaudit.stats import clopper_pearson

    right = np.atleast_1d(_load("truth", truth))
    if (
        right.shape != best.shape
        or right.dtype.kind not in "iu"
        or right.min() < 0
        or right.max() >= candidates
    ):
        raise UsageError(
            f"truth={truth}: must hold {len(best)} whole numbers in 0…{candidates - 1}"
        )
    successes = int((best == right).sum())
    return {
        "successes": successes,
        "success": successes / len(best),
        "interval": to_dict(clopper_pearson(successes, len(best))),
        "chance": 1 / candidates,
    }


def _load(name: str, path: Path, *, most_axes: int = 2) -> npt.NDArray[Any]:
    from dpaudit.results.arrays import read_npy

    array = read_npy(path, name=name)
    if array.dtype.kind not in "iuf" or array.ndim > most_axes:
        raise UsageError(
            f"{name}={path}: must hold rows of numbers, not {array.dtype} of shape {array.shape}; "
            "write it with numpy.save"
        )
    return array


def _text(document: dict[str, Any]) -> str:
    picked = document["best"]
    first = ", ".join(map(str, picked[:20])) + (
        f", … ({len(picked):,} in all)" if len(picked) > 20 else ""
    )
    lines = [f"{document['attack']}: most likely candidate of each release: {first}"]
    if "success" in document:
        i = document["interval"]
        lines.append(
            f"correct in {document['successes']:,} of {document['releases']:,}: "
            f"{100 * document['success']:.1f} % (95 % interval {100 * i['low']:.1f} to "
            f"{100 * i['high']:.1f}; guessing: {100 * document['chance']:.1f} %)"
        )
    return "\n".join(lines)
