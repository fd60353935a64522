"""``dpaudit key hardness``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from dpaudit.accounting.hardness import REACH, Estimate, KeylessAttack, Measured, estimate, measured
from dpaudit.cli.output import emit, write_json_line
from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey, parse_gamma

__all__ = ["brief", "of_key", "paper", "paper_table", "show", "warning"]

_NEAREST = 5
_DRAWN = 30_000
_YEAR = 365.25 * 86400
_NAMES = {
    "lattice": "lattice reduction",
    "covariance": "covariance eigenvalue",
    "directions": "search over directions",
}
# arXiv 2509.23834: where, what, d, γ, β; a test compares them with the experiments' specs
_PAPER: tuple[tuple[str, str, int, tuple[str, ...], tuple[float, ...]], ...] = (
    *(
        (
            "Figure 5",
            f"histogram, {bins:,} bins",
            bins,
            ("2sqrtd", "20sqrtd", "2d", "20d"),
            (1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
        )
        for bins in (256, 4096, 65536)
    ),
    (
        "Figure 6",
        "MNIST, LeNet-5",
        61_706,
        ("2sqrtd", "20sqrtd", "200sqrtd"),
        tuple(2.0**-k for k in range(17, 9, -1)),
    ),
    *(
        ("Table 2", f"CIFAR-10, {network}", weights, ("2sqrtd",), (1e-5, 1e-4, 1e-3))
        for network, weights in (
            ("MobileNetV2", 2_236_682),
            ("ResNet-50", 23_520_842),
            ("VGG-19", 38_958_922),
        )
    ),
)


def of_key(key: PancakeKey) -> Estimate:
    """The estimate for noise of this key with all its bits."""
    return estimate(key.dim, key.beta, key.gamma)


def show(
    path: Path | None,
    *,
    dim: int | None,
    beta: float | None,
    gamma: str,
    dtype: str,
    step: float,
    tau: float,
    drawn: int,
    of_paper: bool,
    output: str,
) -> None:
    """Print the estimate for a key's file, for numbers, or for the paper's settings.

    Raises:
        UsageError: none of the three, or more than one; or a number out of its range.
        KeyFileError: the file is not a key.
    """
    numbers = dim is not None or beta is not None
    if (path is not None) + numbers + of_paper != 1 or (dim is None) != (beta is None):
        raise UsageError(
            "key hardness: give a key's file, or both --dim and --beta, or --paper, "
            "e.g. dpaudit key hardness --dim 128 --beta 1e-4"
        )
    if of_paper:
        settings = list(paper())
        if output == "json":
            write_json_line([to_dict(row) for row in settings])
        else:
            emit(paper_table(settings))
        return
    key = None if path is None else PancakeKey.load(path)
    if key is not None:
        dim, beta, width = key.dim, key.beta, key.gamma
    else:
        assert dim is not None and beta is not None  # noqa: S101, PT018 for mypy
        width = parse_gamma(gamma, dim=dim)
    found = estimate(dim, beta, width, dtype=dtype, step=step, tau=tau, drawn=drawn)
    points = sorted(measured(), key=lambda cell: cell.distance(dim, found.effective_beta))
    nearest = sorted(points[:_NEAREST], key=lambda cell: (cell.dim, -cell.beta))
    if output == "json":
        named = {} if key is None else {"fingerprint": key.fingerprint}
        write_json_line({**named, **to_dict(found), "measured": to_dict(nearest)})
        return
    emit("\n".join(f"{name:16} {value}" for name, value in _facts(found, drawn)))
    emit("\nMeasured nearby, β told (wall time on loaded machines), and as estimated:")
    emit(_measured_table(nearest))


def warning(found: Estimate, path: Path) -> str | None:
    """One sentence if a key is within reach of a search without it."""
    if not found.within_reach:
        return None
    return (
        f"This key is within reach of a search without it, by {_NAMES[found.attack]}: about "
        f"{_power(found.log2_operations)} operations ({_time(found.seconds)} on one core); "
        f"see dpaudit key hardness {path}"
    )


def brief(found: Estimate) -> str:
    """The cheapest attack in a few words."""
    where = "" if found.rows is None else f", {found.rows:,} rows, block size {found.block:,}"
    return f"{_NAMES[found.attack]}{where}, {_power(found.log2_operations)} operations"


def paper() -> Iterator[Mapping[str, Any]]:
    """The pancake paper's settings, an estimate each."""
    for where, what, dim, gammas, betas in _PAPER:
        for gamma in gammas:
            for beta in betas:
                found = estimate(dim, beta, parse_gamma(gamma, dim=dim))
                lattice = found.lattice
                yield {
                    "where": where,
                    "what": what,
                    "dim": dim,
                    "gamma": gamma,
                    "beta": beta,
                    "attack": found.attack,
                    "rows": found.rows,
                    "block": found.block,
                    "log2_core_svp": None if lattice is None else lattice.log2_core_svp,
                    "log2_operations": found.log2_operations,
                    "within_reach": found.within_reach,
                }


def paper_table(settings: list[Mapping[str, Any]]) -> Table:
    """One row per setting."""
    table = _columns(
        "in the paper", "d", "γ", "β", "rows", "block size", "core-SVP", "operations", "reach"
    )
    before = None
    for row in settings:
        here = f"{row['where']}: {row['what']}"
        table.add_row(
            here if here != before else "",
            f"{row['dim']:,}",
            row["gamma"],
            f"{row['beta']:.3g}",
            "" if row["rows"] is None else f"{row['rows']:,}",
            "" if row["block"] is None else f"{row['block']:,}",
            "" if row["log2_core_svp"] is None else _power(row["log2_core_svp"]),
            _power(row["log2_operations"]),
            "within" if row["within_reach"] else "beyond",
        )
        before = here
    return table


def _facts(found: Estimate, drawn: int) -> Iterator[tuple[str, str]]:
    yield "pancake", f"d = {found.dim:,}, β = {found.beta:g}, γ = {found.gamma:.4g}, {found.dtype}"
    if found.effective_beta > 1.01 * found.beta:
        yield "blurred", f"as a pancake of β = {found.effective_beta:.3g} would be"
    yield "cheapest attack", _NAMES[found.attack]
    if (lattice := found.lattice) is None:
        yield "lattice", "reduction is not expected to succeed at any block size"
    else:
        shortest = f", the shortest of {drawn:,}" if drawn > (lattice.rows or 0) else ""
        yield "lattice", f"{lattice.rows:,} rows{shortest}; block size {lattice.block:,}"
    core = found.attacks[0].log2_core_svp
    counted = "" if core is None else f" (core-SVP: {_power(core)})"
    yield "operations", _power(found.log2_operations) + counted
    basis = "10^9 multiplications per second" if core is None else "the searches that were measured"
    yield "time", f"{_time(found.seconds)} on one core, extrapolated from {basis}"
    yield "other attacks", "; ".join(map(_other, found.attacks[1:]))
    beyond = "within" if found.within_reach else "beyond"
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
    table = Table(box=None, pad_edge=False)
    for name in names:
        words = name in ("in the paper", "reduction", "reducer", "clock", "γ")
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
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
