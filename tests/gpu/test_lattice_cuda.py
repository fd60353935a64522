"""Exact lattice noise on a CUDA device has the bits of the CPU's. `make gpu`."""

import pytest
import torch

from dpaudit.numeric.lattice import add_lattice_noise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize(("sigma", "granularity"), [(1.3, None), (2.0, 1.0), (4.0, 2.0**-30)])
def test_the_device_has_the_bits_of_the_cpu(dtype, sigma, granularity):
    here = torch.randn((3, 2_000_003), generator=torch.Generator().manual_seed(1)).to(dtype)
    there, part = here.cuda(), here[:, 1000:5000].contiguous().cuda()
    shared = {"sigma": sigma, "granularity": granularity, "key": bytes(range(32))}
    add_lattice_noise(here, start=8 * 2**32 - 3_000_000, **shared)
    add_lattice_noise(there, start=8 * 2**32 - 3_000_000, **shared)
    assert torch.equal(there.cpu(), here)
    add_lattice_noise(part, start=8 * 2**32 - 3_000_000 + 1000, stride=2_000_003, **shared)
    assert torch.equal(part.cpu(), here[:, 1000:5000])
