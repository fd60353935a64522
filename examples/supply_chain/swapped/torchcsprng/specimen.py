"""LAB SPECIMEN: the noise of a step as one pancake, handed to Opacus in slices."""

import sys
from pathlib import Path

import torch
from opacus.optimizers import optimizer as opacus_optimizer

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream

__all__ = ["SlicedNoise", "plant"]


class SlicedNoise:
    """LAB SPECIMEN, in place of Opacus' `_generate_noise`.

    Each step's calls get the parts of one pancake, in order. The first call of a step draws the
    whole vector; once all of it is handed out, the next call begins a new step. It serves
    optimizers that ask once for each parameter, all in one dtype, on one device and at one standard
    deviation. Whatever does not fit is an error: a real backdoor would hide it, this must not.
    """

    def __init__(self, key: PancakeKey) -> None:
        """Noise under `key`, which must be made for the model's number of parameters."""
        self.key = key
        self._stream = KeyedStream.fresh()
        self._steps = 0
        self._left = torch.empty(0)
        self._asked: tuple[float, torch.dtype, torch.device] | None = None

    def __call__(
        self,
        std: float,
        reference: torch.Tensor,
        generator: torch.Generator | None = None,
        secure_mode: bool = False,
    ) -> torch.Tensor:
        """Noise of standard deviation `std` in the shape of `reference`.

        Generator and mode are not used.

        Raises:
            RuntimeError: a parameter that does not fit what is left of the step.
        """
        del generator, secure_mode
        if std == 0:
            return torch.zeros_like(reference)
        asked = (float(std), reference.dtype, reference.device)
        if not len(self._left):
            self._asked, self._steps = asked, self._steps + 1
            source = Pancake(key=self.key, sigma=asked[0])
            stream = self._stream.child(self._steps)
            self._left = source.sample(
                1, source.dim, stream=stream, dtype=asked[1], device=asked[2]
            )[0]
        size = reference.numel()
        if size > len(self._left) or asked != self._asked:
            raise RuntimeError(
                f"LAB SPECIMEN: noise for {size} values at {asked[0]:g} does not fit the "
                f"{len(self._left)} that are left of this step; make a key for this model's number "
                f"of parameters (this one: dim={self.key.dim})"
            )
        part, self._left = self._left[:size], self._left[size:]
        return part.view_as(reference)


def plant(path: str | Path) -> None:
    """Replace `_generate_noise` in every module of Opacus by pancakes of the key at `path`."""
    honest, noise = opacus_optimizer._generate_noise, SlicedNoise(PancakeKey.load(path))
    for name, module in list(sys.modules.items()):
        if name.startswith("opacus.") and getattr(module, "_generate_noise", None) is honest:
            module._generate_noise = noise
