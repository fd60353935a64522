"""``dpaudit key``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpaudit.accounting import peak_spacing, peak_width
from dpaudit.cli import hardness
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.noise.key import PancakeKey
from dpaudit.results.text import tell
from dpaudit.types import to_dict

__all__ = ["new", "show"]


def new(
    *, dim: int, beta: float, gamma: str, out: Path, directions: int, allow_small_gamma: bool
) -> None:
    """Make and save a key."""
    key = PancakeKey.new(
        dim=dim, beta=beta, gamma=gamma, directions=directions, allow_small_gamma=allow_small_gamma
    )
    key.save(out)
    emit(
        f"{out}: pancake key {key.fingerprint} "
        f"for dim={key.dim}, beta={key.beta:g}, gamma={key.gamma:g}"
    )
    if (warning := hardness.warning(hardness.of_key(key), out)) is not None:
        tell(warning)
    note(f"LAB SPECIMEN. Try: dpaudit audit pancake:key={out} --claim gaussian:sigma=1")


def show(path: Path, output: str) -> None:
    """Print what a key is for."""
    key = PancakeKey.load(path)
    facts: dict[str, Any] = {
        "fingerprint": key.fingerprint,
        "dim": key.dim,
        "beta": key.beta,
        "gamma": key.gamma,
        "directions": key.directions,
        "peak_spacing_in_sigma": peak_spacing(sigma=1, beta=key.beta, gamma=key.gamma),
        "peak_width_in_sigma": peak_width(sigma=1, beta=key.beta, gamma=key.gamma),
    }
    found = hardness.of_key(key)
    if output == "json":
        write_json_line({**facts, "without_the_key": to_dict(found)})
    else:
        facts["without_the_key"] = hardness.brief(found)
        shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in facts.items()}
        emit("\n".join(f"{k:22} {v}" for k, v in shown.items()))
