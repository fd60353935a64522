"""A plain stand-in for torchcsprng, which is unmaintained.

It holds the one function that Opacus calls in `secure_mode`. For this demonstration only: the
generator is torch's own Mersenne Twister with a seed from the operating system (of which the CPU's
generator keeps 32 bits), not a cryptographic one.
"""

import os

import torch

__all__ = ["create_random_device_generator"]


def create_random_device_generator(token: str | None = None) -> torch.Generator:
    """A generator that nobody else has seeded."""
    del token
    return torch.Generator().manual_seed(int.from_bytes(os.urandom(8)) >> 1)
