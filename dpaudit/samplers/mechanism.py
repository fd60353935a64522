"""From the text a user types to a whole mechanism."""

from __future__ import annotations

from dpaudit import registry
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.interfaces import Mechanism
from dpaudit.samplers.libraries.adapter import Library
from dpaudit.samplers.releases import ReleasingWorker
from dpaudit.samplers.worker import PythonSampler

__all__ = ["open_mechanism"]


def open_mechanism(text: str, *, seed: str) -> Mechanism:
    """A whole mechanism by what the user calls it; use it in a ``with`` block, which starts and ends its process.

    ``text`` is one of

    - ``LIB:MECH[:opt=value,…]``: a library's mechanism through its adapter, e.g. ``numpy:laplace:scale=2`` (value plus
      noise, as numpy's users write it) or ``opendp:gaussian`` (the library adds the noise itself);
    - ``python:MODULE:FUNCTION``: ``f(value, n)`` → array (n,) or (n, k), ``n`` independent releases of ``value``, which
      is a float for a query of one number and a 1-D array otherwise.

    ``seed`` is not passed on: mechanisms are closed. Not claimed: as for samplers, a sandbox against malice.

    Raises:
        UnknownNameError: no such library, mechanism or option.
        UsageError: the text does not fit.
    """
    name, _, target = text.partition(":")
    example = "a mechanism is LIB:MECH, e.g. numpy:laplace:scale=1, or python:MODULE:FUNCTION"
    if name == "python":
        PythonSampler(target, seed=seed)  # which refuses what is no function of a module
        place, _, member = target.rpartition(":")
        return ReleasingWorker(text, place=place, member=member, of="python")
    kinds = registry.plugins("samplers")
    if name not in kinds:
        raise UnknownNameError(f"mechanism={text}: {name!r} is not known{registry.nearest(name, kinds)}; {example}")
    library = registry.load("samplers", name)
    if not isinstance(library, Library):
        raise UsageError(f"mechanism={text}: {name} gives noise, not releases of a value; {example}")
    return library.mechanism(target)
