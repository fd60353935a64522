"""A library's release in an environment of its own, called by its adapter through the worker.

The environment needs the library and numpy, and a Python of the same version as this one. The
worker is the auditor's own; it finds ``dpaudit`` and ``msgspec`` where they are, and nothing else
of this environment.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path

from dpaudit.targets.adapters.base import AdapterTarget, Library, installed_version

__all__ = ["Elsewhere"]

_MAIN = str(Path(__file__).parent / "elsewhere_main.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A library in the environment ``folder``.

    ``adapter`` is where its :class:`~dpaudit.targets.adapters.base.Library` is, as
    ``MODULE:NAME``; ``empty`` are modules of the library to leave out.
    """

    folder: Path
    library: Library
    adapter: str
    empty: tuple[str, ...] = ()

    @property
    def version(self) -> str | None:
        """The version in the environment; None if it is not installed."""
        return installed_version(self.library.distribution, path=self.packages)

    @property
    def packages(self) -> list[str]:
        """Where the environment has its packages."""
        return [str(p) for p in self.folder.glob("lib/python3*/site-packages")]

    def installed(self) -> str:
        """Names and versions of all that is in the environment."""
        distributions = metadata.Distribution.discover(path=self.packages)
        return ", ".join(sorted(f"{d.name} {d.version}" for d in distributions))

    def sampler(self, target: str) -> AdapterTarget:
        """The noise of ``MECH[:option=value,…]``.

        Raises:
            UnknownNameError, UsageError: as :meth:`~dpaudit.targets.adapters.base.Library.find`.
        """
        return _Release(self, target, role="sampler")

    def mechanism(self, target: str) -> AdapterTarget:
        """The whole mechanism ``MECH[:option=value,…]``.

        Raises:
            UnknownNameError, UsageError: as above.
        """
        return _Release(self, target, role="mechanism")

    def interpreter(self) -> list[str]:
        """The command line that starts a worker there."""
        top = self.adapter.partition(":")[0].partition(".")[0]
        places = {name: _place(name) for name in ("dpaudit", "msgspec", top)}
        request = json.dumps({"packages": places, "empty": self.empty})
        return [str(self.folder / "bin" / "python"), "-I", _MAIN, request]


class _Release(AdapterTarget):
    """A mechanism of the library, in the environment ``where``."""

    def __init__(self, where: Elsewhere, target: str, *, role: str) -> None:
        super().__init__(
            where.library,
            target,
            role=role,
            place=where.adapter,
            needs=lambda: [str(where.folder)],
            interpreter=where.interpreter,
        )
        self._facts = replace(self._facts, version=where.version, advice="")
        self._again = partial(type(self), where, target, role=role)


def _place(package: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None  # noqa: S101 this process has imported it
    assert spec.origin is not None  # noqa: S101 it is a package with an __init__.py
    return spec.origin
