"""``dpaudit key``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpaudit.accounting import peak_spacing, peak_width
from dpaudit.cli import hardness
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.codec import to_dict
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.key_file import OtherKindError
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.results.text import tell

__all__ = ["new", "new_seed", "show"]


def new_seed(*, out: Path) -> None:
    """Make and save a key of noise that carries its own seed."""
    key = SeedKey.new()
    key.save(out)
    emit(f"{out}: seed-in-noise key {key.fingerprint}")
    note(f"LAB SPECIMEN. Try: dpaudit audit seed-in-noise:key={out} --claim gaussian:sigma=1")


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
    try:
        key = PancakeKey.load(path)
    except OtherKindError as error:
        _print(_of_seed(path, error), output)
        return
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
    brief = output != "json"
    _print({**facts, "without_the_key": hardness.brief(found) if brief else to_dict(found)}, output)


def _of_seed(path: Path, error: OtherKindError) -> dict[str, Any]:
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
        shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in facts.items()}
        emit("\n".join(f"{k:22} {v}" for k, v in shown.items()))
