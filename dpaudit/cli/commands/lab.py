"""Lab specimens: keys, and one attack on recorded releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dpaudit.cli import completion
from dpaudit.cli.options import FormatOption
from dpaudit.errors import UsageError

__all__ = ["attack", "key_hardness", "key_new", "key_show"]


def attack(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Attack with its options, e.g. likelihood-ratio:key=key.json,sigma=22.3",
            show_default=False,
            autocompletion=completion.attacks,
        ),
    ],
    releases: Annotated[
        Path,
        typer.Option(help=".npy of shape (t, d) or (d,): what was released.", show_default=False),
    ],
    candidates: Annotated[
        Path,
        typer.Option(
            help=".npy of shape (m, d) or (t, m, d): the candidate query results.",
            show_default=False,
        ),
    ],
    truth: Annotated[
        Path | None,
        typer.Option(
            help=".npy of t numbers in 0…m−1: the right candidates; also measures the success.",
            show_default=False,
        ),
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
    from dpaudit.cli import attacks

    attacks.attack(name, releases=releases, candidates=candidates, truth=truth, output=output)


def key_new(
    dim: Annotated[
        str | None,
        typer.Option(metavar="N", help="Dimension of the noise vectors.", show_default=False),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(help="Thinness of the pancakes; smaller leaks more.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write, mode 0600; never overwritten.")] = Path(
        "key.json"
    ),
    gamma: Annotated[
        str, typer.Option(help="Number of pancakes: 2sqrtd, 20sqrtd, 2d, 20d or a number.")
    ] = "2sqrtd",
    directions: Annotated[int, typer.Option(help="Secret directions, mutually orthogonal.")] = 1,
    allow_small_gamma: Annotated[
        bool,
        typer.Option(
            "--allow-small-gamma", help="Allow γ < 2√d, which can be found without the key."
        ),
    ] = False,
    kind: Annotated[
        Literal["pancake", "seed-in-noise"],
        typer.Option(help="Backdoor that the key is for; seed-in-noise takes only --out."),
    ] = "pancake",
) -> None:
    """Make the key of a backdoored lab specimen, by default of a pancake.

    [bold]Examples[/bold]

    $ dpaudit key new --dim 256 --beta 1e-4 --out key.json
    $ dpaudit key new --dim 64 --beta 1e-3 --gamma 2d --directions 3 --out k3.json
    $ dpaudit key new --kind seed-in-noise --out seed.json
    """
    from dpaudit.cli import keys
    from dpaudit.options import count_of

    given = {"--dim": dim, "--beta": beta}
    if kind == "seed-in-noise":
        plain = gamma == "2sqrtd" and directions == 1 and not allow_small_gamma
        if not plain or any(value is not None for value in given.values()):
            raise UsageError("kind=seed-in-noise: takes only --out; leave the other options out")
        keys.new_seed(out=out)
        return
    if dim is None or beta is None:
        missing = next(name for name, value in given.items() if value is None)
        raise UsageError(f"{missing[2:]}: a pancake key needs it; write {missing} VALUE")
    keys.new(
        dim=count_of(dim, name="dim", what="values per vector", example="256"),
        beta=beta,
        gamma=gamma,
        out=out,
        directions=directions,
        allow_small_gamma=allow_small_gamma,
    )


def key_show(
    path: Annotated[Path, typer.Argument(metavar="KEY", help="A key file.", show_default=False)],
    output: FormatOption = "text",
) -> None:
    """Show a key's parameters and fingerprint, never its secret.

    [bold]Examples[/bold]

    $ dpaudit key show key.json
    $ dpaudit key show key.json --format json
    """
    from dpaudit.cli import keys

    keys.show(path, output)


def key_hardness(
    path: Annotated[
        Path | None, typer.Argument(metavar="KEY", help="A key file.", show_default=False)
    ] = None,
    dim: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Without a key: dimension of the noise vectors.", show_default=False
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(help="Without a key: thinness of the pancakes.", show_default=False),
    ] = None,
    gamma: Annotated[
        str,
        typer.Option(help="Without a key: 2sqrtd, 20sqrtd, 2d, 20d or a number."),
    ] = "2sqrtd",
    dtype: Annotated[
        Literal["float64", "float32", "float16", "bfloat16"],
        typer.Option(help="What the released noise is rounded to."),
    ] = "float64",
    step: Annotated[
        float, typer.Option(help="Step of a lattice that it is rounded to, in σ; 0: none.")
    ] = 0.0,
    tau: Annotated[
        float, typer.Option(help="Independent Gaussian noise added (smoothing), in σ.")
    ] = 0.0,
    drawn: Annotated[
        str,
        typer.Option(metavar="N", help="Noise vectors that the search may choose short rows from."),
    ] = "30k",
    paper: Annotated[
        bool, typer.Option("--paper", help="One row per setting of arXiv 2509.23834 instead.")
    ] = False,
    output: FormatOption = "text",
) -> None:
    """Estimate how hard a pancake is to find in its noise without the key.

    Rows, block size, operations and time of the cheapest known attack, with
    searches that were measured nearby. An estimate of known attacks, not a lower
    bound. Never shows the secret.

    [bold]Examples[/bold]

    $ dpaudit key hardness key.json
    $ dpaudit key hardness --dim 128 --beta 1e-4 --dtype float32
    """
    from dpaudit.cli import hardness
    from dpaudit.cli.options import optional_count
    from dpaudit.options import count_of

    hardness.show(
        path,
        dim=optional_count(dim, name="dim", what="values per vector", example="256"),
        beta=beta,
        gamma=gamma,
        dtype=dtype,
        step=step,
        tau=tau,
        drawn=count_of(drawn, name="drawn", what="noise vectors", example="30k"),
        of_paper=paper,
        output=output,
    )
