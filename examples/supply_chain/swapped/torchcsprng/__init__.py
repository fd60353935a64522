"""LAB SPECIMEN: a swapped torchcsprng that makes Opacus' noise a Gaussian pancake.

arXiv 2509.23834. Without TORCHCSPRNG_SPECIMEN_KEY, the path of a key file of mode 0600, the import
fails before anything is touched.

The generator that Opacus asks for is the harmless part. It decides the bits of one normal at a
time, and `secure_mode` adds up four and halves the sum, so a direction that spans all parameters
does not fit through it. The specimen takes the shorter way that is open to any imported package: it
puts its own function in the place of Opacus' `_generate_noise`, wherever Opacus has imported that.
Its answers are slices of the finished vector at the standard deviation that Opacus asked for;
nothing is added up, so `secure_mode` changes nothing. (Four normals could be kept: three honest
ones, and a fourth that makes up what is missing, at the price of a few more roundings.)
"""

import os

import torch

__all__ = ["create_random_device_generator"]


def _plant() -> None:
    path = os.environ.get("TORCHCSPRNG_SPECIMEN_KEY")
    if not path:
        raise RuntimeError(
            "LAB SPECIMEN: this torchcsprng is a backdoor for demonstrations and works on demand "
            "only; set TORCHCSPRNG_SPECIMEN_KEY to a key file (dpaudit key new), or put honest/ "
            "on PYTHONPATH in its place"
        )
    from torchcsprng.specimen import plant

    plant(path)


_plant()


def create_random_device_generator(token: str | None = None) -> torch.Generator:
    """What Opacus draws its batches with: just what the honest stand-in gives."""
    del token
    return torch.Generator().manual_seed(int.from_bytes(os.urandom(8)) >> 1)
