"""``dpaudit key``: keys of lab specimens, and how hard a pancake is to find without its key."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dpaudit.cli.options import FormatOption, with_shared_options
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.options import Argument, Option, count_of
from dpaudit.results.text import tell

if TYPE_CHECKING:
    from rich.table import Table

    from dpaudit.accounting.hardness import Estimate, KeylessAttack, Measured
    from dpaudit.noise.key import OtherKindError

__all__ = ["HardnessOptions", "key_hardness", "key_new", "key_show"]

_read_dim = functools.partial(count_of, name="dim", unit="values per vector", example="256")
_NEAREST = 5
_DRAWN = 30_000
_YEAR = 365.25 * 86400
_NAMES = {
    "lattice": "lattice reduction",
    "covariance": "covariance eigenvalue",
    "directions": "search over directions",
}


@with_shared_options
def key_new(
    dim: Annotated[
        int | None, Option("Dimension of the noise vectors.", "N", read=_read_dim)
    ] = None,
    beta: Annotated[float | None, Option("Thinness of the pancakes; smaller leaks more.")] = None,
    out: Annotated[Path, Option("File to write, mode 0600; never overwritten.")] = Path("key.json"),
    gamma: Annotated[
        str, Option("Number of pancakes: 2sqrtd, 20sqrtd, 2d, 20d or a number.")
    ] = "2sqrtd",
    directions: Annotated[int, Option("Secret directions, mutually orthogonal.")] = 1,
    allow_small_gamma: Annotated[
        bool, Option("Allow γ < 2√d, which can be found without the key.")
    ] = False,
    kind: Annotated[
        Literal["pancake", "seed-in-noise"],
        Option("Backdoor that the key is for; seed-in-noise takes only --out."),
    ] = "pancake",
) -> None:
    """Make the key of a backdoored lab specimen, by default of a pancake.

    [bold]Examples[/bold]

    $ dpaudit key new --dim 256 --beta 1e-4 --out key.json
    $ dpaudit key new --dim 64 --beta 1e-3 --gamma 2d --directions 3 --out k3.json
    $ dpaudit key new --kind seed-in-noise --out seed.json
    """
    from dpaudit.accounting.hardness import estimate
    from dpaudit.noise.key import PancakeKey
    from dpaudit.noise.seed_in_noise.key import SeedKey

    bounds = {"--dim": dim, "--beta": beta}
    if kind == "seed-in-noise":
        plain = gamma == "2sqrtd" and directions == 1 and not allow_small_gamma
        if not plain or any(value is not None for value in bounds.values()):
            raise UsageError("kind=seed-in-noise: takes only --out; leave the other options out")
        seed_key = SeedKey.new()
        seed_key.save(out)
        emit(f"{out}: seed-in-noise key {seed_key.fingerprint}")
    else:
        if dim is None or beta is None:
            missing = next(name for name, value in bounds.items() if value is None)
            raise UsageError(f"{missing[2:]}: a pancake key needs it; write {missing} VALUE")
        key = PancakeKey.new(
            dim=dim,
            beta=beta,
            gamma=gamma,
            directions=directions,
            allow_small_gamma=allow_small_gamma,
        )
        key.save(out)
        emit(
            f"{out}: pancake key {key.fingerprint} "
            f"for dim={key.dim}, beta={key.beta:g}, gamma={key.gamma:g}"
        )
        if (warning := _warning(estimate(key.dim, key.beta, key.gamma), out)) is not None:
            tell(warning)
    note(f"LAB SPECIMEN. Try: dpaudit audit {kind}:key={out} --claim gaussian:sigma=1")


@with_shared_options
def key_show(
    path: Annotated[Path, Argument("A key file.", "KEY")],
    output: FormatOption = "text",
) -> None:
    """Show a key's parameters and fingerprint, never its secret.

    [bold]Examples[/bold]

    $ dpaudit key show key.json
    $ dpaudit key show key.json --format json
    """
    from dpaudit.accounting import peak_spacing, peak_width
    from dpaudit.accounting.hardness import estimate
    from dpaudit.noise.key import OtherKindError, PancakeKey

    try:
        key = PancakeKey.load(path)
    except OtherKindError as error:
        _print(_of_seed(path, error), output)
        return
    estimated = estimate(key.dim, key.beta, key.gamma)
    facts: dict[str, Any] = {
        "fingerprint": key.fingerprint,
        "dim": key.dim,
        "beta": key.beta,
        "gamma": key.gamma,
        "directions": key.directions,
        "peak_spacing_in_sigma": peak_spacing(sigma=1, beta=key.beta, gamma=key.gamma),
        "peak_width_in_sigma": peak_width(sigma=1, beta=key.beta, gamma=key.gamma),
        "without_the_key": to_dict(estimated) if output == "json" else _brief(estimated),
    }
    _print(facts, output)


def _of_seed(path: Path, error: OtherKindError) -> dict[str, Any]:
    from dpaudit.noise.key import OtherKindError
    from dpaudit.noise.seed_in_noise.key import SeedKey

    try:
        key = SeedKey.load(path)
    except OtherKindError:
        raise error from None
    return {
        "kind": "seed-in-noise",
        "fingerprint": key.fingerprint,
        "public_key": key.public_key,
        "distance": "per vector at most 2^-39·(1 + scale/8) from the law, 0 for code=signs",
    }


def _print(facts: dict[str, Any], output: str) -> None:
    if output == "json":
        write_json_line(facts)
    else:
        rows = {k: f"{v:g}" if isinstance(v, float) else v for k, v in facts.items()}
        emit("\n".join(f"{k:22} {v}" for k, v in rows.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class HardnessOptions:
    """Whose pancake is to be found, if not a key's file tells, and in what noise."""

    dim: Annotated[
        int | None,
        Option("Without a key: dimension of the noise vectors.", "N", read=_read_dim),
    ] = None
    beta: Annotated[float | None, Option("Without a key: thinness of the pancakes.")] = None
    gamma: Annotated[str, Option("Without a key: 2sqrtd, 20sqrtd, 2d, 20d or a number.")] = "2sqrtd"
    dtype: Annotated[
        Literal["float64", "float32", "float16", "bfloat16"],
        Option("What the released noise is rounded to."),
    ] = "float64"
    step: Annotated[float, Option("Step of a lattice that it is rounded to, in σ; 0: none.")] = 0.0
    tau: Annotated[float, Option("Independent Gaussian noise added (smoothing), in σ.")] = 0.0
    drawn: Annotated[
        int,
        Option(
            "Noise vectors that the search may choose short rows from.",
            "N",
            default="30k",
            read=functools.partial(count_of, name="drawn", unit="noise vectors", example="30k"),
        ),
    ] = _DRAWN


@with_shared_options
def key_hardness(
    path: Annotated[Path | None, Argument("A key file.", "KEY")] = None,
    *,
    options: HardnessOptions,
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
    from dpaudit.accounting.hardness import estimate, measured
    from dpaudit.noise.key import PancakeKey, parse_gamma

    dim, beta = options.dim, options.beta
    numbers = dim is not None or beta is not None
    if (path is not None) + numbers != 1 or (dim is None) != (beta is None):
        raise UsageError(
            "key hardness: give a key's file, or both --dim and --beta, "
            "e.g. dpaudit key hardness --dim 128 --beta 1e-4"
        )
    key = None if path is None else PancakeKey.load(path)
    if key is not None:
        dim, beta, width = key.dim, key.beta, key.gamma
    else:
        assert dim is not None and beta is not None  # noqa: S101, PT018 for mypy
        width = parse_gamma(options.gamma, dim=dim)
    estimated = estimate(
        dim,
        beta,
        width,
        dtype=options.dtype,
        step=options.step,
        tau=options.tau,
        drawn=options.drawn,
    )
    points = sorted(measured(), key=lambda cell: cell.distance(dim, estimated.effective_beta))
    nearest = sorted(points[:_NEAREST], key=lambda cell: (cell.dim, -cell.beta))
    if output == "json":
        named = {} if key is None else {"fingerprint": key.fingerprint}
        write_json_line({**named, **to_dict(estimated), "measured": to_dict(nearest)})
        return
    emit("\n".join(f"{name:16} {value}" for name, value in _facts(estimated, options.drawn)))
    emit("\nMeasured nearby, β told (wall time on loaded machines), and as estimated:")
    emit(_measured_table(nearest))


def _warning(hardness: Estimate, path: Path) -> str | None:
    """One sentence if a key is within reach of a search without it."""
    if not hardness.within_reach:
        return None
    return (
        f"This key is within reach of a search without it, by {_NAMES[hardness.attack]}: about "
        f"{_power(hardness.log2_operations)} operations ({_time(hardness.seconds)} on one core); "
        f"see dpaudit key hardness {path}"
    )


def _brief(hardness: Estimate) -> str:
    """The cheapest attack in a few words."""
    where = (
        "" if hardness.rows is None else f", {hardness.rows:,} rows, block size {hardness.block:,}"
    )
    return f"{_NAMES[hardness.attack]}{where}, {_power(hardness.log2_operations)} operations"


def _facts(estimated: Estimate, samples: int) -> Iterator[tuple[str, str]]:
    from dpaudit.accounting.hardness import REACH

    yield (
        "pancake",
        f"d = {estimated.dim:,}, β = {estimated.beta:g}, γ = {estimated.gamma:.4g}, {estimated.dtype}",
    )
    if estimated.effective_beta > 1.01 * estimated.beta:
        yield "blurred", f"as a pancake of β = {estimated.effective_beta:.3g} would be"
    yield "cheapest attack", _NAMES[estimated.attack]
    if (lattice := estimated.lattice) is None:
        yield "lattice", "reduction is not expected to succeed at any block size"
    else:
        shortest = f", the shortest of {samples:,}" if samples > (lattice.rows or 0) else ""
        yield "lattice", f"{lattice.rows:,} rows{shortest}; block size {lattice.block:,}"
    core = estimated.attacks[0].log2_core_svp
    counted = "" if core is None else f" (core-SVP: {_power(core)})"
    yield "operations", _power(estimated.log2_operations) + counted
    basis = "10^9 multiplications per second" if core is None else "the searches that were measured"
    yield "time", f"{_time(estimated.seconds)} on one core, extrapolated from {basis}"
    yield "other attacks", "; ".join(map(_other, estimated.attacks[1:]))
    beyond = "within" if estimated.within_reach else "beyond"
    yield "without the key", f"{beyond} reach, which is taken as 2^{REACH:g} operations"


def _other(attack: KeylessAttack) -> str:
    need = f", {_power(attack.log2_samples)} vectors" if attack.name == "covariance" else ""
    return f"{_NAMES[attack.name]}: {_power(attack.log2_operations)} operations{need}"


def _measured_table(cells: list[Measured]) -> Table:
    table = _columns(
        *("d", "β", "rows", "reduction", "reducer", "found", "seconds", "clock"),
        *("estimated", "block size"),
    )
    for cell in cells:
        block = cell.estimated_block
        table.add_row(
            f"{cell.dim}",
            f"{cell.beta:g}",
            f"{cell.rows}",
            cell.reduction,
            cell.reducer,
            f"{cell.found} of {cell.keys}",
            _seconds(cell.seconds),
            cell.clock,
            _seconds(cell.estimated_seconds),
            "" if block is None else f"{block}",
        )
    return table


def _columns(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in names:
        textual = name in ("reduction", "reducer", "clock")
        table.add_column(name, justify="left" if textual else "right", no_wrap=True)
    return table


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def _power(log2: float) -> str:
    return f"2^{log2:.1f}" if log2 < 100 else f"2^{log2:.0f}" if log2 < 1e6 else f"2^{log2:.3g}"


def _time(seconds: float) -> str:
    if seconds < 1:
        return "under a second"
    if not math.isfinite(seconds) or seconds >= 1e4 * _YEAR:
        return f"2^{math.log2(min(seconds, 2.0**1000) / _YEAR):.0f} years or more"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "minutes"), (172800, 3600, "hours")):
        if seconds < limit:
            return f"about {seconds / unit:.0f} {name}"
    days = seconds / 86400
    return f"about {days:.0f} days" if days < 730 else f"about {seconds / _YEAR:,.0f} years"
