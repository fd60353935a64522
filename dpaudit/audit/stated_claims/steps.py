"""A claim of DP-SGD's steps, compared as the whole curve that its accountant gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.implied_pairs import Profile

if TYPE_CHECKING:
    from dpaudit.audit.epsilon.bounds import Band

__all__ = ["Steps"]

_REACH = 8.0
_NEAR = 1.02


@dataclass(frozen=True, slots=True)
class Steps:
    """What the accountant of DP-SGD counts on: noise multiplier, sampling rate, steps.

    What is shown is a noise multiplier: with rate and steps as claimed, all from the least refuted
    one on are refuted at once, as a larger one keeps a tighter curve.
    """

    dpsgd: DpSgd
    delta: float
    """Where ε is given."""

    @property
    def text(self) -> str:
        """``DP-SGD with sigma=1,rate=0.05,steps=80``."""
        return f"DP-SGD with {self.dpsgd}"

    @property
    def options(self) -> dict[str, Any]:
        """``--claim-dpsgd``."""
        return {"dpsgd": str(self.dpsgd)}

    @property
    def unit(self) -> str:
        """ε."""
        return "ε"

    @property
    def value(self) -> float:
        """The accountant's ε."""
        return self.dpsgd.epsilon(self.delta)

    @property
    def profile(self) -> Profile:
        """The privacy loss of the composed steps, rounded up."""
        return self.dpsgd.profile

    def with_value(self, value: float) -> None:
        """None: there is a parameter for each of three."""

    def implied(self, delta: float) -> tuple[float, float]:
        """The accountant's ε."""
        return self.dpsgd.epsilon(delta), delta

    def contradicted(self, band: Band) -> bool:
        """Whether the band shows more ε than the accountant's at some δ."""
        return _exceeded(self.profile, band)

    def shown(self, bands: Sequence[Band]) -> tuple[float, str]:
        """The ε of the noise multiplier that the bands leave, and the multiplier in words."""
        return self.with_noise(
            self.noise_left(lambda profile: any(_exceeded(profile, band) for band in bands))
        )

    def with_noise(self, sigma: float | None) -> tuple[float, str]:
        """ε and words for a noise multiplier that is refuted; 0 and nothing for None."""
        if sigma is None:
            return 0.0, ""
        says = f"a noise multiplier below {sigma:.3g} (claimed: {self.dpsgd.sigma:.4g})"
        return self.dpsgd.with_sigma(sigma).epsilon(self.delta), says

    def noise_left(self, refuted: Callable[[Profile], bool]) -> float | None:
        """The least noise multiplier whose curve is ``refuted``, within 2 % from above.

        Searched up to eight times the claimed one, and down to an eighth of it; None if not even
        the largest is refuted.
        """

        def at(sigma: float) -> bool:
            return refuted(self.dpsgd.with_sigma(sigma).profile)

        claimed = low = high = self.dpsgd.sigma
        if at(high):
            while low > claimed / _REACH and at(low / 2**0.5):
                low /= 2**0.5
            low, high = low / 2**0.5, low
            if high <= claimed / _REACH:
                return high
        else:
            while not at(high):
                low, high = high, high * 2
                if high > claimed * _REACH:
                    return None
        while high / low > _NEAR:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if at(middle) else (middle, high)
        return high


def _exceeded(profile: Profile, band: Band) -> bool:
    rows = np.array(profile)
    return bool((band.epsilons(rows[:, 1]) > rows[:, 0]).any())
