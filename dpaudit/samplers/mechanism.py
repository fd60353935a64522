"""From the text a user types to a whole mechanism."""

from __future__ import annotations

from dpaudit import registry
from dpaudit.errors import DuplicatePluginError, UnknownNameError, UsageError
from dpaudit.interfaces import Mechanism
from dpaudit.samplers.endpoints.programs import CommandMechanism
from dpaudit.samplers.endpoints.releases import ReleasingWorker
from dpaudit.samplers.endpoints.source_mechanism import SourceMechanism
from dpaudit.samplers.endpoints.worker import PythonSampler
from dpaudit.samplers.libraries.adapter import Adapter

__all__ = ["open_mechanism"]


def open_mechanism(text: str, *, seed: str, mitigation: str | None = None) -> Mechanism:
    """A whole mechanism by what the user calls it; use it in a ``with`` block, which starts and ends its process.

    ``text`` is one of

    - ``NAME[:opt=value,…]``: a registered noise source, e.g. ``secure-gaussian:sigma=2``, behind ``mitigation``
      (``NAME[:opt=value,…]``; ``none`` unless given);
    - ``LIB:MECH[:opt=value,…]``: a library's mechanism through its adapter, e.g. ``numpy:laplace:scale=2`` (value plus
      noise, as numpy's users write it) or ``opendp:gaussian`` (the library adds the noise itself);
    - ``python:MODULE:FUNCTION``: ``f(value, n)`` → array (n,) or (n, k), ``n`` independent releases of ``value``, which
      is a float for a query of one number and a 1-D array otherwise;
    - ``command:./mechanism --value={value} {n}``: a program that writes ``n`` releases as little-endian float64; see
      :class:`~dpaudit.samplers.endpoints.programs.CommandMechanism`.

    ``seed`` fixes the numbers of registered sources only: other mechanisms are closed. Not claimed: as for samplers, a
    sandbox against malice.

    Raises:
        UnknownNameError: no such source, mitigation, library, mechanism or option.
        UsageError: the text does not fit.
    """
    name, _, target = text.partition(":")
    example = "a mechanism is LIB:MECH, e.g. numpy:laplace:scale=1, a source, python:MODULE:FUNCTION or command:PROGRAM"
    kinds, sources = registry.plugins("samplers"), registry.plugins("sources")
    if name in sources:
        if name in kinds:
            raise DuplicatePluginError(
                f"mechanism={name}: a source and a sampler have this name; uninstall one of them"
            )
        return SourceMechanism(text, seed=seed, mitigation=mitigation)
    if mitigation is not None:
        raise UsageError(f"mitigation={mitigation}: works on a registered source only, not on {name}:; leave it out")
    if name == "python":
        PythonSampler(target, seed=seed)  # which refuses what is no function of a module
        place, _, member = target.rpartition(":")
        return ReleasingWorker(text, place=place, member=member, of="python")
    if name == "command":
        return CommandMechanism(target)
    if name not in kinds:
        near = registry.nearest(name, [*sources, *kinds])
        raise UnknownNameError(f"mechanism={text}: {name!r} is not known{near}; {example}")
    library = registry.load("samplers", name)
    if not isinstance(library, Adapter):
        raise UsageError(f"mechanism={text}: {name} gives noise, not releases of a value; {example}")
    mechanism: Mechanism = library.mechanism(target)
    return mechanism
