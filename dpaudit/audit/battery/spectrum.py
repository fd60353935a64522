"""Periods and long memory: the power spectrum of the noise in the order drawn."""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpaudit.audit.battery.parts import no_evidence, two_sided
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, normal_two_sided
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Spectrum"]

_LENGTH = 1 << 14
# stretches filled from whole blocks; later ones take 2^14 values of every eighth block
_DENSE = 128
_NARROW = 7  # bands of 1, 2, …, 64 ordinates at each end
_WIDE = 13  # octaves of z, up to half the Nyquist frequency
_MEAN = math.sqrt(2 / math.pi)
_SPREAD = math.sqrt(1 - 2 / math.pi)


class Spectrum:
    """The averaged periodogram of z and of |z| less its mean, over stretches of 2^14 values.

    Stretches are filled in draw order with the first quarter of each block, later with 2^14 values
    of every eighth. Null: the ordinates of Gaussian white noise at the Fourier frequencies strictly
    between 0 and ½ are independent and exponential, so sums of them over K stretches and m
    frequencies are exactly Gamma(K·m); the largest of 8191 by Bonferroni, octave bands from the low
    end, bands of up to 64 ordinates at the high end. |z| is not Gaussian: its ordinates are
    exponential by the central limit theorem, and a band of m has its variance raised by a factor
    1 + 0.87·m/2^14 (its kurtosis), so only bands of up to 64 are used. The correlations of z at all
    lags up to 2^13 (circular in a stretch, from the averaged periodogram) are means of K·2^14
    products with unit variance, taken as normal. Combined by Bonferroni. Not claimed: periods
    longer than 2^14 values, and anything outside the stretches.
    """

    looks_at = "periods and long-range correlation in draw order"
    harm = "dependence"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._pending = np.empty(_LENGTH)
        self._blocks = self._filled = 0
        self._power = np.zeros((2, _LENGTH // 2 + 1))
        self._stretches = 0

    def update(self, block: Block) -> None:
        self._blocks += 1
        z = block.z.ravel()
        if self._stretches < _DENSE:
            z = z[: max(_LENGTH, len(z) // 4)]
        elif self._blocks % 8 == 0:
            z = z[:_LENGTH]
        else:
            return
        while len(z):
            part = z[: _LENGTH - self._filled]
            self._pending[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            z = z[len(part) :]
            if self._filled == _LENGTH:
                self._transform()
                self._filled = 0

    def _transform(self) -> None:
        both = np.stack([self._pending, np.abs(self._pending)])
        both[1] -= _MEAN
        both[1] /= _SPREAD
        f = np.fft.rfft(both)
        self._power += (f.real**2 + f.imag**2) / _LENGTH
        self._stretches += 1

    def evidence(self, *, alpha: float) -> Evidence:
        k = self._stretches
        if not k:
            return no_evidence(f"fewer than {_LENGTH:,} values: no spectrum")
        parts: dict[str, float] = {}
        lines: dict[str, str] = {}
        inner = self._power[:, 1:-1]
        for name, power, octaves in (("z", inner[0], _WIDE), ("|z|", inner[1], _NARROW)):
            top = int(power.argmax())
            part = f"line in {name}"
            parts[part] = min(1.0, len(power) * float(scipy.special.gammaincc(k, power[top])))
            period = f"a period of {_LENGTH / (top + 1):.6g} values"
            lines[part] = f"{part}: {power[top] / k:.2f} × the white level at {period}"
            bands = {f"low band {2**j}": power[2**j - 1 : 2 ** (j + 1) - 1] for j in range(octaves)}
            bands |= {f"high band {2**j}": power[-(2**j) :] for j in range(_NARROW)}
            p = {band: _gamma_two_sided(float(x.sum()), k * len(x)) for band, x in bands.items()}
            band = min(p, key=lambda b: p[b])
            part = f"bands of {name}"
            parts[part] = bonferroni(list(p.values()))
            lines[part] = f"{part}: {bands[band].mean() / k:.3f} × the white level in the {band}"
        correlations = np.fft.irfft(self._power[0] / k)[1 : _LENGTH // 2]
        lag = int(np.abs(correlations).argmax())
        unusual = float(correlations[lag]) * math.sqrt(k * _LENGTH)
        parts["one lag"] = min(1.0, len(correlations) * float(normal_two_sided(unusual)))
        lines["one lag"] = f"correlation {correlations[lag]:+.2e} at lag {lag + 1:,}"
        worst = min(parts, key=lambda name: parts[name])
        # A sinusoid of amplitude a adds a²·T/4 to its ordinate; found when the sum of K exceeds the
        # bound with probability 0.9.
        bound = float(scipy.special.gammainccinv(k, min(1.0, alpha / 5 / inner.shape[1])))
        excess = max(0.0, bound - k + 1.2816 * math.sqrt(2 * bound - k)) / k
        blind = BlindSpot(
            test="spectrum",
            flaw="periodic component",
            size=math.sqrt(4 * excess / _LENGTH),
            unit="standard deviations (amplitude)",
            says="a sinusoid in draw order weaker than this, "
            f"or with a period of more than {_LENGTH:,} values",
        )
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=float(inner[0].max() / k),
            effect=lines[worst],
            parts=parts,
            blind_spots=(blind,),
        )


def _gamma_two_sided(x: float, shape: float) -> float:
    return two_sided(scipy.special.gammainc(shape, x), scipy.special.gammaincc(shape, x))
