"""A registered noise source, behind a registered mitigation, as a whole mechanism: the auditor's side and the worker's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.samplers.endpoints.releases import ReleasingWorker
from dpaudit.samplers.sandbox import needs
from dpaudit.types import Reference

__all__ = ["SourceMechanism", "SourceRelease"]

Array = npt.NDArray[np.float64]


class SourceMechanism(ReleasingWorker):
    """``NAME[:opt=value,…]`` behind ``mitigation`` (``none`` unless told otherwise): value in, release out.

    Call i draws from ``KeyedStream.from_seed(seed).child("release", i)``, so the same seed and calls give the same
    releases, and no two calls share randomness.
    """

    def __init__(self, text: str, *, seed: str, mitigation: str | None = None) -> None:
        """Look the names up; nothing is imported here.

        Raises:
            UnknownNameError: no such source or mitigation.
            UsageError: a broken option.
        """
        origin = registry.plugin("sources", Reference.parse(text).name).origin
        defence = "none" if mitigation is None else mitigation
        registry.plugin("mitigations", Reference.parse(defence).name)
        super().__init__(text, place=text, member=defence, of="source", version=origin.version)
        self._spec = {**self._spec, "seed": seed}
        self._distribution = origin.distribution

    def _lives(self) -> list[str]:
        return needs.options(self._spec["place"], self._spec["member"])

    def _shared(self) -> Path | None:
        return needs.compiled_code(self._distribution)


class SourceRelease:
    """``(value, n)`` → releases (n, m); made in the worker from what :class:`SourceMechanism` says.

    Raises:
        UnknownNameError, UsageError, MissingExtraError: the source or the mitigation cannot be made, or refuses a value.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        from dpaudit.randomness import KeyedStream  # with cryptography: other workers do without

        self._name = spec["place"]
        self._source = registry.create("sources", spec["place"])
        self._mitigation = registry.create("mitigations", spec["member"])
        self._torch = importlib.import_module("torch")  # by name: this package is imported where torch may be missing
        self._root = KeyedStream.from_seed(spec["seed"])
        self._calls = 0

    def __call__(self, value: Array, n: int) -> Array:
        return self._released(self._query(value, n))

    def once(self, value: Array) -> Callable[[], Array]:
        """Releases of one query each, for calls that are timed."""
        query = self._query(value, 1)
        return lambda: self._released(query)

    def _query(self, value: Array, n: int) -> Any:
        dim = self._source.dim
        if dim is not None and dim != len(value):
            raise UsageError(f"value of {len(value)} numbers: source {self._name} has dim={dim}; give it {dim}")
        return self._torch.from_numpy(np.tile(value, (n, 1)))

    def _released(self, query: Any) -> Array:
        stream = self._root.child("release", self._calls)
        self._calls += 1
        released: Array = self._mitigation.release(query, self._source, stream=stream).detach().cpu().numpy()
        return released
