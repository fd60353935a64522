"""Noise sources and mitigations for an optimizer, made from a name or a function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from dpaudit import registry
from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.protocols import Mitigation, NoiseSource
from dpaudit.types import Reference

__all__ = ["SourceLike", "Supply", "make_mitigation"]

SourceLike = Reference | str | Callable[[float], NoiseSource]

# relative; a discrete law's standard deviation differs less than that from its parameter
_SAME = 1e-6


class Supply:
    """Makes the source for a σ and keeps the last one, so that a key file is read once."""

    def __init__(self, source: SourceLike, *, dim: int) -> None:
        """Sources named or made by ``source`` for ``dim`` parameters.

        Raises:
            UsageError: neither a name nor a function of σ; a source without the option ``sigma``,
                or with it given.
            UnknownNameError: no such source.
        """
        self._dim = dim
        self._last: NoiseSource | None = None
        self._asked = math.nan
        if isinstance(source, (str, Reference)):
            self._reference: Reference | None = (
                Reference.parse(source) if isinstance(source, str) else source
            )
            self._options: Mapping[str, Any] = registry.offered(
                "sources", self._reference, dim=dim
            ).options
            self.name = str(self._reference)
            self._check_sigma_is_ours(self._reference)
        elif callable(source):
            self._reference, self._make = None, source
            self.name = getattr(source, "__name__", type(source).__name__)
        else:
            raise UsageError(
                f"source={type(source).__name__}: must be a name such as pancake:key=key.json or a "
                "function of σ; the optimizer sets σ, so write lambda sigma: Gaussian(sigma=sigma)"
            )

    def at(self, sigma: float) -> NoiseSource:
        """The source of standard deviation ``sigma``.

        Raises:
            UsageError: it is no noise source, has another σ, or serves another number of
                parameters; or what the source itself refuses.
        """
        if self._last is None or sigma != self._asked:
            made = self._create(sigma)
            self._check(made, sigma)
            self._last, self._asked = made, sigma
        return self._last

    def _create(self, sigma: float) -> NoiseSource:
        if self._reference is None:
            return self._make(sigma)
        key = getattr(self._last, "key", None)  # not from its file once more, and not derived again
        known = {"key": key} if isinstance(key, PancakeKey) and "key" in self._options else {}
        options = {**self._options, **known, "sigma": sigma}
        made: NoiseSource = registry.create("sources", Reference(self._reference.name, options))
        return made

    def _check_sigma_is_ours(self, reference: Reference) -> None:
        if "sigma" in reference.options:
            raise UsageError(
                f"sigma={reference.options['sigma']}: the optimizer sets "
                "σ = noise_multiplier × max_grad_norm; leave it out"
            )
        if "sigma" not in inspect.signature(registry.load("sources", reference.name)).parameters:
            raise UsageError(
                f"source={reference.name}: has no option sigma, and the optimizer must set "
                "σ = noise_multiplier × max_grad_norm; take one that has, e.g. gaussian, "
                "secure-gaussian or pancake:key=key.json"
            )

    def _check(self, made: NoiseSource, sigma: float) -> None:
        if not isinstance(made, NoiseSource):
            raise UsageError(
                f"source={self.name}: made a {type(made).__name__}, which is no noise source"
            )
        if made.dim not in (None, self._dim):
            raise UsageError(
                f"source={self.name}: its key serves dim={made.dim}, and the optimizer has "
                f"{self._dim} trainable parameters; "
                f"make a key for them with dpaudit key new --dim {self._dim}"
            )
        if not math.isclose(made.sigma, sigma, rel_tol=_SAME):
            raise UsageError(
                f"source={self.name}: has sigma={made.sigma} where the accountant counts on "
                f"{sigma}; make it with that σ"
            )


def make_mitigation(mitigation: Mitigation | Reference | str, *, dim: int) -> Mitigation:
    """A mitigation from its name, or the object itself; the dimension goes to one that takes it.

    Raises:
        UsageError: neither a name nor a mitigation; or what the mitigation itself refuses.
        UnknownNameError: no such mitigation, or no such option.
    """
    if isinstance(mitigation, (str, Reference)):
        reference = Reference.parse(mitigation) if isinstance(mitigation, str) else mitigation
        made: Mitigation = registry.create(
            "mitigations", registry.offered("mitigations", reference, dim=dim)
        )
        return made
    if not isinstance(mitigation, Mitigation) or isinstance(mitigation, type):
        raise UsageError(
            f"mitigation={mitigation!r}: must be a name (none, rotation, smoothing:tau=0.05) "
            "or a mitigation"
        )
    return mitigation
