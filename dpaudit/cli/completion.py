"""Shell completion from entry points and file names; imports no plug-in and never raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps

from dpaudit import registry

__all__ = [
    "CLAIMS",
    "attacks",
    "claims",
    "experiments",
    "explained",
    "mechanisms",
    "mitigations",
    "samplers",
    "tests",
]

CLAIMS = (
    "gaussian:sigma=",
    "laplace:scale=",
    "discrete-gaussian:sigma=",
    "discrete-laplace:scale=",
)
"""How each family's claim begins (those of ``dpaudit.claims``, which would import scipy)."""

_NO_PLUGIN = {"scores"}

Completer = Callable[[str], list[str]]


def _quiet(offer: Callable[[str], Iterable[str]]) -> Completer:
    """Offer the names that begin with what was typed; none after an error in a plug-in."""

    @wraps(offer)
    def offered(incomplete: str) -> list[str]:
        try:
            return [name for name in offer(incomplete) if name.startswith(incomplete)]
        except Exception:  # noqa: BLE001 no traceback into a half-typed command line
            return []

    return offered


@_quiet
def samplers(incomplete: str) -> Iterable[str]:
    """Registered sources, and kinds with their colon."""
    del incomplete
    return [*registry.plugins("sources"), *(f"{kind}:" for kind in registry.plugins("samplers"))]


@_quiet
def mechanisms(incomplete: str) -> Iterable[str]:
    """Registered sources, kinds of mechanisms and libraries, and recorded scores."""
    del incomplete
    kinds = sorted({*registry.plugins("samplers"), *_NO_PLUGIN})
    return [*registry.plugins("sources"), *(f"{kind}:" for kind in kinds)]


@_quiet
def claims(incomplete: str) -> Iterable[str]:
    """The families, up to their number."""
    del incomplete
    return CLAIMS


@_quiet
def attacks(incomplete: str) -> Iterable[str]:
    """Registered attacks."""
    del incomplete
    return registry.plugins("attacks")


@_quiet
def mitigations(incomplete: str) -> Iterable[str]:
    """Registered mitigations."""
    del incomplete
    return registry.plugins("mitigations")


@_quiet
def tests(incomplete: str) -> Iterable[str]:
    """Registered tests, for the last name of a comma-separated list; none twice."""
    before, comma, _ = incomplete.rpartition(",")
    chosen = set(before.split(","))
    return [f"{before}{comma}{name}" for name in registry.plugins("tests") if name not in chosen]


@_quiet
def explained(incomplete: str) -> Iterable[str]:
    """Topics of ``dpaudit explain``."""
    del incomplete
    from dpaudit.harms import topics

    return topics()


@_quiet
def experiments(incomplete: str) -> Iterable[str]:
    """Experiments that ship with dpaudit; the shell itself completes a SPEC.toml."""
    del incomplete
    from dpaudit.experiments.shipped import shipped_specs

    return shipped_specs()
