"""From the text that a user types to a target: a sampler, or a whole mechanism."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dpaudit import registry
from dpaudit.errors import DuplicatePluginError, UnknownNameError, UsageError
from dpaudit.results.text import one_line

if TYPE_CHECKING:  # each endpoint is imported where it is opened: a wrong name waits for none
    import numpy as np
    import numpy.typing as npt

    from dpaudit.protocols import Target

    Array = npt.NDArray[np.float64]

__all__ = ["check_sampler", "open_mechanism", "open_sampler"]

_FUNCTIONS = ("python", "library")


def open_sampler(
    text: str,
    *,
    seed: str,
    dtype: str = "f64",
    text_mode: bool = False,
    mitigation: str | None = None,
    call: str | None = None,
) -> Target:
    """The sampler that ``text`` names; its process starts with ``open`` and ends with the block.

    ``text`` is one of

    - ``NAME[:opt=value,…]``: a registered noise source, behind ``mitigation``
      (``NAME[:opt=value,…]``) if given;
    - ``python:MODULE:FUNCTION``: ``f(n, d)`` → array (n, d), ``f(size=(n, d))``, ``f(n)``, ``f()``
      or ``f(value)``, by the names of its parameters or by ``call``;
    - ``command:./sampler {n} {d}``: little-endian ``dtype`` on stdout, or decimal numbers with
      ``text_mode``;
    - ``library:./libnoise.so:SYMBOL``: ``void f(double *out, size_t n, size_t d)``, or what
      ``call`` says, e.g. ``f(1.0) -> double``;
    - ``http://HOST:PORT/PATH``, ``https://…``: POST of ``{"n", "d"}``, raw little-endian ``dtype``
      back;
    - ``file:samples.npy``, ``.npz``, ``.csv``, ``.parquet`` or ``.bin`` (little-endian ``dtype``);
    - ``whitened:noise.npy;C.npy``: recorded noise that is correlated over steps, by its public C
      (:class:`~dpaudit.targets.endpoints.whitened.WhitenedSampler`);
    - ``LIB:MECH[:opt=value,…]``: the noise of a library's mechanism, e.g.
      ``numpy:laplace:scale=2``, ``opendp:gaussian``;
    - ``KIND:TARGET`` for a kind that a plug-in registers in the group ``dpaudit.samplers``.

    ``seed`` fixes the numbers of registered sources only. ``call`` says how to call a function; see
    :mod:`dpaudit.targets.calls`.

    Every foreign process is held to limits on memory, output, files, processes and time
    (:class:`~dpaudit.targets.sandbox.policy.Limits`) and ends, with all that it started, when the
    ``with`` block does or this process dies. On Linux, where the kernel allows, it runs in
    namespaces of its own: without the network, and without a way to reach a process outside; home
    directories and the working tree are hidden except what it needs, and all but a scratch of its
    own is read-only. Not claimed: that this holds against code made to break out of it (a kernel
    bug); without namespaces, that code which attacks its supervisor leaves nothing behind; or that
    a sampler cannot tell that it is watched: its environment does not say so, its parents and its
    timing may.

    Raises:
        UnknownNameError: no such kind, source or mitigation.
        UsageError: the text, or an option, does not fit the kind.
    """
    name, _, target = text.partition(":")
    kinds, sources = _known("sampler", name)
    _refuse_call(call, name)
    if name in sources:
        from dpaudit.targets.endpoints.worker import SourceTarget

        return SourceTarget(
            text, seed=seed, dtype=dtype, text_mode=text_mode, mitigation=mitigation
        )
    _refuse_unknown(text, kinds, sources)
    _refuse_mitigation(mitigation, name)
    if not target.strip():
        raise UsageError(f"sampler={text}: {name} needs a target; write {name}:TARGET")
    make = registry.load("samplers", name)
    _note_plugin(name, make)
    how = {} if call is None else {"call": call}
    sampler: Target = make(target, seed=seed, dtype=dtype, text_mode=text_mode, **how)
    if not hasattr(sampler, "open"):
        old = ", only draw(n, d) of an older dpaudit" if hasattr(sampler, "draw") else ""
        raise UsageError(
            f"sampler={name}: its class {type(sampler).__name__} has no open{old}; write "
            "open(timeout=…), of a session with ask(request, timeout=…): dpaudit.protocols.Target"
        )
    return sampler


def _note_plugin(name: str, make: object) -> None:
    """A third party's kind of sampler is code in this process: in no sandbox.

    A library's adapter is not: a worker calls it.

    Raises:
        UsageError: a sandbox is required.
    """
    distribution = registry.plugins("samplers")[name].origin.distribution
    if distribution == "dpaudit":
        return
    from dpaudit.targets.adapters.base import Library

    if isinstance(make, Library):
        return
    from dpaudit.targets.sandbox.policy import current

    policy = current()
    if policy.level == "require":
        raise UsageError(
            f"sandbox=require: {name}: is a plug-in of {distribution}, which runs in the auditor's "
            "own process; choose --sandbox none, or python: or command: instead"
        )
    policy.note("none")


def check_sampler(text: str) -> None:
    """Refuse a name that is not known, or a library's mechanism with options that it lacks.

    :func:`open_sampler` refuses these as well, and more; this opens nothing.

    Raises:
        UnknownNameError, UsageError: as there.
    """
    name, _, target = text.partition(":")
    kinds, sources = _known("sampler", name)
    if name in sources:
        return
    _refuse_unknown(text, kinds, sources)
    library = registry.load("samplers", name)
    from dpaudit.targets.adapters.base import Library

    if isinstance(library, Library):
        library.find(target)


def _refuse_unknown(text: str, kinds: Collection[str], sources: Collection[str]) -> None:
    name = text.partition(":")[0]
    if name in kinds:
        return
    from dpaudit.targets.hints import suggested_target

    if hint := suggested_target(text, releases=False):
        raise UnknownNameError(f"sampler={one_line(text, limit=200)}: {hint}")
    near = registry.nearest(name, [*sources, *kinds])
    near = near if "did you mean" in near else ";"
    raise UnknownNameError(
        f"sampler={one_line(name, limit=200)}: not known{near} your own is "
        "python:MODULE:FUNCTION, library:PATH:SYMBOL, command:PROGRAM, http://HOST:PORT/PATH "
        "or file:PATH; for others see: dpaudit list sources, dpaudit list mechanisms"
    )


def open_mechanism(
    text: str,
    *,
    seed: str,
    mitigation: str | None = None,
    call: str | None = None,
    calls: int = 1,
    neighbours: tuple[Array, Array] | None = None,
) -> Target:
    """The mechanism that ``text`` names; its process starts with ``open`` and ends with the block.

    ``text`` is one of

    - ``NAME[:opt=value,…]``: a registered noise source, e.g. ``secure-gaussian:sigma=2``, behind
      ``mitigation`` (``NAME[:opt=value,…]``; ``none`` unless given);
    - ``LIB:MECH[:opt=value,…]``: a library's mechanism through its adapter, e.g.
      ``numpy:laplace:scale=2`` (value plus noise, as numpy's users write it) or ``opendp:gaussian``
      (the library adds the noise itself);
    - ``python:MODULE:FUNCTION``: ``f(value, n)`` → array (n,) or (n, k), ``n`` independent releases
      of ``value``, a float for a query of one number and a 1-D array otherwise; or ``f(value)``,
      one release, by its parameters or by ``call``;
    - ``library:./libnoise.so:SYMBOL``: ``void f(const double *value, size_t m, double *out, size_t
      n)``, which writes ``n`` releases of ``m`` numbers, or what ``call`` says, e.g.
      ``f(value) -> double``;
    - ``command:./mechanism --value={value} {n}``: a program that writes ``n`` releases as
      little-endian float64; see
      :class:`~dpaudit.targets.endpoints.command.CommandTarget`;
    - ``http://HOST:PORT/PATH``, ``https://…``: POST of ``{"value": […], "n": n}``, ``n`` releases
      back as raw little-endian float64;
    - ``file:at-0.npy;at-1.npy``: releases recorded at the two ``neighbours``, in the formats of
      recorded noise.

    With ``calls`` above 1, ``python:MODULE:FUNCTION`` makes sessions and a release is so many calls
    of one (:func:`~dpaudit.targets.functions.sessions`).

    ``seed`` fixes the numbers of registered sources only: other mechanisms are closed. Not claimed:
    as for samplers, a sandbox against malice.

    Raises:
        UnknownNameError: no such source, mitigation, library, mechanism or option.
        UsageError: the text does not fit.
    """
    from dpaudit.targets.adapters.base import Library
    from dpaudit.targets.endpoints.worker import SourceTarget

    name, _, target = text.partition(":")
    example = (
        "a mechanism is LIB:MECH, e.g. numpy:laplace:scale=1, a source, python:MODULE:FUNCTION, "
        "library:PATH:SYMBOL, command:PROGRAM, http://HOST:PORT/PATH or 'file:A;B'"
    )
    if calls > 1 and name != "python":
        raise UsageError(
            f"calls={calls}: only python:MODULE:FUNCTION makes sessions, not {one_line(text)}; "
            "leave --calls out"
        )
    kinds, sources = _known("mechanism", name)
    _refuse_call(call, name)
    if name in sources:
        return SourceTarget(text, seed=seed, mitigation=mitigation, role="mechanism")
    _refuse_mitigation(mitigation, name)
    if name == "file":
        from dpaudit.targets.endpoints.file import RecordedReleases

        return RecordedReleases(target, neighbours=neighbours)
    if name in (*_FUNCTIONS, "command", "http", "https"):
        how = {"call": call, "calls": calls} if name in _FUNCTIONS else {}
        endpoint: Target = registry.load("samplers", name)(target, role="mechanism", **how)
        return endpoint
    if name not in kinds:
        from dpaudit.targets.hints import suggested_target

        if hint := suggested_target(text, releases=True):
            raise UnknownNameError(f"mechanism={one_line(text, limit=200)}: {hint}")
        near = registry.nearest(name, [*sources, *kinds])
        raise UnknownNameError(f"mechanism={text}: {name!r} is not known{near}; {example}")
    library = registry.load("samplers", name)
    if not isinstance(library, Library):
        raise UsageError(
            f"mechanism={text}: {name} gives noise, not releases of a value; {example}"
        )
    return library.mechanism(target)


def _known(role: str, name: str) -> tuple[Collection[str], Collection[str]]:
    """The registered kinds of samplers and the registered sources.

    Raises:
        DuplicatePluginError: ``name`` is one of both.
    """
    kinds, sources = registry.plugins("samplers"), registry.plugins("sources")
    if name in kinds and name in sources:
        raise DuplicatePluginError(
            f"{role}={name}: a source and a sampler kind have this name; uninstall one of them"
        )
    return kinds, sources


def _refuse_call(call: str | None, name: str) -> None:
    if call is not None and name not in _FUNCTIONS:
        raise UsageError(
            f"call={call}: only python: and library: are called as a function; leave it out of "
            f"{name}:"
        )


def _refuse_mitigation(mitigation: str | None, name: str) -> None:
    if mitigation is not None:
        raise UsageError(
            f"mitigation={mitigation}: works on a registered source only, not on {name}:; "
            "leave it out"
        )
