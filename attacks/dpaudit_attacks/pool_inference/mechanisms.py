"""The mechanism that a game's devices run, from plain options."""

from __future__ import annotations

import inspect
import math
from typing import Any

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.interfaces import LocalMechanism, Stream
from dpaudit.local.hashing import RandomHashes
from dpaudit.registry import nearest
from dpaudit.types import Reference

__all__ = ["make_mechanism"]

_RAPPOR_LAW = {"f", "p", "q"}


def make_mechanism(
    text: str, *, epsilon: float | None, m: int, functions: int, universe: int, stream: Stream
) -> LocalMechanism:
    """A local mechanism as people write it, ``NAME[:option=value,…]``, with ``epsilon`` a report, for a universe of objects.

    ``text`` is a plug-in's name (``dpaudit.local``) with options of its own, which come first. What it takes of the rest is
    filled in: ``epsilon``; for sketches ``functions`` fully random hash functions of the ``stream`` to ``m`` positions (as
    the paper's experiments); ``categories`` or ``universe``, the number of objects; a Count Median Sketch's
    ``privacy_parameter``, half of ``epsilon``. RAPPOR has no ε of its own: without f,
    p and q it is the one-time RAPPOR of that ε, f = 2/(1 + e^(ε/2h)), p = 0, q = 1.

    Raises:
        UsageError: no such mechanism or option, or ``epsilon`` missing where it is needed.
    """
    reference = Reference.parse(text)
    factory = registry.load("local", reference.name)
    takes = inspect.signature(factory).parameters
    options: dict[str, Any] = dict(reference.options)
    for option in options:
        if option not in takes:
            raise UsageError(f"{option}={options[option]}: {reference.name} has no such option{nearest(option, takes)}")
    if "epsilon" in takes:
        if epsilon is None and "epsilon" not in options:
            raise UsageError(f"epsilon: {reference.name} needs the ε of one report")
        options.setdefault("epsilon", epsilon)
    elif "privacy_parameter" in takes and "privacy_parameter" not in options:
        if epsilon is None:
            raise UsageError(f"epsilon: {reference.name} needs the ε of one report, or privacy_parameter")
        options["privacy_parameter"] = epsilon / 2
    elif reference.name == "rappor" and not _RAPPOR_LAW & options.keys():
        if epsilon is None:
            raise UsageError("epsilon: rappor needs the ε of one report, or f, p and q")
        per_object = options.get("per_object", takes["per_object"].default)
        options.update(f=2 / (1 + math.exp(epsilon / (2 * per_object))), p=0.0, q=1.0)
    for option, value in (("categories", universe), ("universe", universe)):
        if option in takes:
            options.setdefault(option, value)
    if "hashes" in takes and {"m", "functions"} <= takes.keys() and not {"hashes", "seed"} & options.keys():
        size, count = options.pop("m", m), options.pop("functions", functions)
        options["hashes"] = RandomHashes(count, size, stream=stream.child("hashes"))
    made: LocalMechanism = factory(**options)
    return made
