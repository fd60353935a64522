"""From the text a user types to a closed sampler."""

from __future__ import annotations

from dpaudit import registry
from dpaudit.errors import DuplicatePluginError, UnknownNameError, UsageError
from dpaudit.interfaces import ClosedSampler
from dpaudit.samplers.endpoints.worker import SourceSampler

__all__ = ["open_sampler"]


def open_sampler(
    text: str, *, seed: str, dtype: str = "f64", text_mode: bool = False, mitigation: str | None = None
) -> ClosedSampler:
    """A closed sampler by what the user calls it; use it in a ``with`` block, which starts and ends its process.

    ``text`` is one of

    - ``NAME[:opt=value,…]``: a registered noise source, behind ``mitigation`` (``NAME[:opt=value,…]``) if given;
    - ``python:MODULE:FUNCTION``: ``f(n, d)`` → array (n, d), or ``f(size=(n, d))`` if it has a parameter ``size``;
    - ``command:./sampler {n} {d}``: little-endian ``dtype`` on stdout, or decimal numbers with ``text_mode``;
    - ``library:./libnoise.so:SYMBOL``: ``void f(double *out, size_t n, size_t d)``;
    - ``http://HOST:PORT/PATH``, ``https://…``: POST of ``{"n", "d"}``, raw little-endian ``dtype`` back;
    - ``file:samples.npy``, ``.npz``, ``.csv``, ``.parquet`` or ``.bin`` (little-endian ``dtype``);
    - ``LIB:MECH[:opt=value,…]``: the noise of a library's mechanism, e.g. ``numpy:laplace:scale=2``, ``opendp:gaussian``;
    - ``KIND:TARGET`` for a kind that a plug-in registers in the group ``dpaudit.samplers``.

    ``seed`` fixes the numbers of registered sources only.

    Every foreign process is held to limits on memory, output, files, processes and time (``dpaudit.samplers.limits``) and
    ends, with all that it started, when the ``with`` block does or this process dies. On Linux, where the kernel allows,
    it runs in namespaces of its own: without the network, and without a way to reach a process outside. Files are read and
    written as before. Not claimed: that this holds against code made to break out of it (a fault in the kernel, files left
    for others to run); without namespaces, that code which hunts for the process that holds it leaves nothing behind; or
    that a sampler cannot tell that it is watched: its environment does not say so, its parents and its timing may.

    Raises:
        UnknownNameError: no such kind, source or mitigation.
        UsageError: the text, or an option, does not fit the kind.
    """
    name, _, target = text.partition(":")
    kinds, sources = registry.plugins("samplers"), registry.plugins("sources")
    if name in kinds and name in sources:
        raise DuplicatePluginError(f"sampler={name}: a source and a sampler kind have this name; uninstall one of them")
    if name in sources:
        return SourceSampler(text, seed=seed, dtype=dtype, text_mode=text_mode, mitigation=mitigation)
    if name not in kinds:
        near = registry.nearest(name, [*sources, *kinds])
        near = near if "did you mean" in near else ";"  # the full lists follow anyway
        raise UnknownNameError(
            f"sampler={name}: not known{near} sources, written NAME[:opt=value]: {', '.join(sources)}; "
            f"kinds, written KIND:TARGET: {', '.join(kinds)}"
        )
    if mitigation is not None:
        raise UsageError(f"mitigation={mitigation}: works on a registered source only, not on {name}:; leave it out")
    if not target.strip():
        raise UsageError(f"sampler={text}: {name} needs a target; write {name}:TARGET")
    sampler: ClosedSampler = registry.load("samplers", name)(target, seed=seed, dtype=dtype, text_mode=text_mode)
    return sampler
