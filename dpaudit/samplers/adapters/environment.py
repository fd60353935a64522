"""Libraries that cannot share the auditor's Python: each has its own environment and program.

``$DPAUDIT_ENVS`` (by default ``.envs`` in the working directory) holds an environment for each;
``make envs`` makes them. The programs are in ``environments/``; they import the library and numpy,
nothing of dpaudit. Every call is a new process, which imports the library first: ask for many
releases at once.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.samplers.adapters.base import (
    KnownLibrary,
    claimed,
    installed,
    numbers,
    refuse_data,
    whole_numbers,
)
from dpaudit.samplers.check import finite, plain_f64, request
from dpaudit.samplers.endpoints.command_mechanism import doubles
from dpaudit.samplers.endpoints.releases import query_result
from dpaudit.samplers.timed_draws import timed_draws

__all__ = ["EnvironmentMechanism", "EnvironmentNoise", "OwnEnvironment"]

_PROGRAMS = Path(__file__).with_name("environments")

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEnvironment(KnownLibrary):
    """A library in an environment of its own.

    ``program`` is its file in ``environments/``; the ``.txt`` file next to it pins what is
    installed. Calling it makes a closed sampler, :meth:`mechanism` makes a whole mechanism.
    """

    program: str

    @property
    def folder(self) -> Path:
        """Where its environment is, or should be."""
        return Path(os.environ.get("DPAUDIT_ENVS") or ".envs").resolve() / self.name

    @property
    def version(self) -> str | None:
        """The version in the environment, read from its metadata; None if it is not there."""
        packages = self.folder.glob("lib/python3*/site-packages")
        return installed(self.distribution, path=[str(p) for p in packages])

    @property
    def remedy(self) -> str:
        """How to make the environment."""
        pins = " ".join((_PROGRAMS / f"{self.program}.txt").read_text(encoding="utf-8").split())
        return (
            f"run `make envs`, or: python3 -m venv {self.folder} && {self.folder}/bin/python "
            f"-m pip install {pins} (DPAUDIT_ENVS says where environments are)"
        )

    def __call__(
        self, target: str, *, seed: str, dtype: str = "f64", text_mode: bool = False
    ) -> EnvironmentNoise:
        """The noise of ``MECH[:option=value,…]``, unseeded: the library draws as it ships.

        Raises:
            UnknownNameError: no such mechanism or option.
            UsageError: an option of the wrong kind, a ``dtype`` or ``text_mode``.
        """
        del seed
        plain_f64(f"{self.name}:{target}", dtype, text_mode)
        return EnvironmentNoise(self, target)

    def mechanism(self, target: str) -> EnvironmentMechanism:
        """The whole mechanism ``MECH[:option=value,…]``.

        Raises:
            UnknownNameError, UsageError: as above.
        """
        return EnvironmentMechanism(self, target)

    def command(self) -> list[str]:
        """The command line that runs the program.

        Raises:
            MissingExtraError: the environment is not there, or the library is not in it.
        """
        python = self.folder / "bin" / "python"
        if not python.exists() or self.version is None:
            lacks = "it" if python.exists() else "bin/python"
            raise MissingExtraError(
                f"{self.name}: needs {self.distribution} {self.tested} in an environment of its "
                f"own, and {self.folder} does not have {lacks}; {self.remedy}"
            )
        return [str(python), "-I", str(_PROGRAMS / f"{self.program}.py")]


class EnvironmentMechanism:
    """A whole mechanism of such a library; each call of ``release`` runs its program once."""

    def __init__(self, library: OwnEnvironment, target: str) -> None:
        """Read the target; the environment is looked for at ``with``.

        Raises:
            UnknownNameError, UsageError: as :meth:`OwnEnvironment.find`.
        """
        self._entry, self._options = library.find(target)
        self._library = library
        self._member = target.partition(":")[0].strip()
        self.name = f"{library.name}:{target}"
        self.version, self.advice = library.version, library.advice
        self._command: list[str] = []

    def __enter__(self) -> Self:
        """Find the environment.

        Raises:
            MissingExtraError: it is not there.
        """
        self._command = self._library.command()
        return self

    def __exit__(self, *exc: object) -> None:
        self._command = []

    def release(self, value: Array, n: int, *, timeout: float) -> Array:
        """``n`` independent releases of the query result ``value`` (m,), shape (n, k), finite.

        Raises:
            UsageError: ``value`` is not 1 to 4096 finite numbers, or not whole where whole numbers
                are asked for; the library cannot be imported, or refuses the options.
            SamplerTimeoutError: the program had not ended after ``timeout`` seconds.
            SamplerCrashError: it ended with a status other than 0; the message quotes the library.
            SamplerOutputError: its answer is not ``n`` rows of finite numbers.
        """
        return finite(self._run(value, n, timeout, timed=False), self.name, "mechanism")

    def release_timed(self, value: Array, n: int, *, timeout: float) -> tuple[Array, Array]:
        """``n`` releases (n, k) of ``value`` (m,) in as many calls, and each call's seconds (n,).

        The program times each call of the library, not its own start. Raises as :meth:`release`
        does.
        """
        both = self._run(value, n, timeout, timed=True)
        return finite(both[:, :-1], self.name, "mechanism"), np.ascontiguousarray(both[:, -1])

    def _run(self, value: Array, n: int, timeout: float, *, timed: bool) -> Array:
        value = query_result(value)
        request(n, value.size, timeout)
        if not self._command:
            raise UsageError(f"mechanism {self.name}: not open; release inside `with`")
        if self._entry.whole:
            whole_numbers(value, self.name)
        asked = {
            "mechanism": self._member,
            "options": self._options,
            "value": numbers(value, whole=self._entry.whole),
            "n": n,
            "timed": timed,
        }
        library = self._library
        broken = f"{library.distribution} {self.version} cannot be imported in {library.folder}"
        means = {
            3: (broken, library.remedy),
            4: (f"{library.name} refuses the options", "change them"),
        }
        argv = [*self._command, json.dumps(asked)]
        return doubles(argv, n, name=self.name, timeout=timeout, means=means)


class EnvironmentNoise:
    """The noise that such a library adds to the value 0, or to another one if it is told that."""

    dim: int | None = None
    available: int | None = None

    def __init__(self, library: OwnEnvironment, target: str) -> None:
        """Read the target; the environment is looked for at ``with``.

        Raises:
            UnknownNameError, UsageError: as :meth:`OwnEnvironment.find`.
        """
        entry, self._options = library.find(target)
        self.name = f"{library.name}:{target}"
        refuse_data(entry, self.name)
        self._entry, self._library, self._target = entry, library, target
        self._mechanism = EnvironmentMechanism(library, target)
        self.version, self.advice = library.version, library.advice
        self.takes_value = entry.told and not entry.whole

    @property
    def claim(self) -> str | None:
        """The law that the library documents for this noise, as a claim; None if it has no name."""
        return claimed(self._entry, self._options)

    def __enter__(self) -> Self:
        """Find the environment.

        Raises:
            MissingExtraError: it is not there.
        """
        self._mechanism.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._mechanism.__exit__(*exc)

    def again(self) -> EnvironmentNoise:
        """The same noise; every draw is a process of its own anyway."""
        return EnvironmentNoise(self._library, self._target)

    def draw(self, n: int, d: int, *, timeout: float) -> Array:
        """Run the program once: ``n`` vectors, shape (n, d), finite. Raises as ``release`` does."""
        request(n, d, timeout)
        return self._mechanism.release(np.zeros(d), n, timeout=timeout)

    def draw_at(self, value: float, n: int, d: int, *, timeout: float) -> Array:
        """``n`` noise vectors (n, d) made for ``value``: what the library released, less ``value``.

        Raises:
            UsageError: the library is not told the value, or ``value`` is not finite; otherwise as
                :meth:`draw`.
        """
        request(n, d, timeout)
        if not self.takes_value or not math.isfinite(value):
            takes = "finite values" if self.takes_value else "none"
            raise UsageError(f"value={value}: {self.name} takes {takes}")
        return self._mechanism.release(np.full(d, float(value)), n, timeout=timeout) - value

    def draw_calls(self, calls: int, n: int, d: int, *, timeout: float) -> tuple[Array, Array]:
        """Run the program ``calls`` times: values (calls·n, d), and each run's seconds in all.

        Raises as :meth:`draw` does; ``timeout`` is for all of them.
        """
        return timed_draws(self.draw, calls, n, d, timeout=timeout)
