"""The pancake on a CUDA device: its law, its numbers against the interpreter's, its memory."""

import math
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.noise.pancake import Pancake
from dpaudit.noise.pancake_cuda import condition_
from dpaudit.numeric import BLOCK

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
ON_CPU = Path(__file__).parents[1] / "dpaudit" / "noise" / "test_pancake_triton.py"
LARGE = 39_000_000


def along(source, n, stream):
    """Inner products with the secret unit direction, in float64 on the device."""
    x = source.sample(n, source.dim, stream=stream, dtype=torch.float32, device=CUDA)
    return (x.double() @ torch.from_numpy(np.array(source.key.direction)).to(CUDA)).cpu().numpy()


@pytest.mark.parametrize("dim", [16, 2 * BLOCK + 1001])
def test_phase_has_the_width_the_law_says(make_key, stream, dim):
    source = Pancake(
        key=make_key(dim=dim, beta=0.05, gamma="2sqrtd" if dim > 64 else 16.0), sigma=2.0
    )
    u = along(source, 20_000 if dim == 16 else 2_000, stream) / source.spacing
    phase = u - np.rint(u)
    assert scipy.stats.kstest(phase / (source.width / source.spacing), "norm").pvalue > 1e-3
    assert scipy.stats.kstest(phase / (source.width / source.spacing) * 1.2, "norm").pvalue < 1e-3


def test_across_the_key_it_is_gaussian(make_key, stream):
    source = Pancake(key=make_key(dim=16, beta=0.1, gamma=16.0), sigma=2.0)
    x = (
        source.sample(20_000, 16, stream=stream, dtype=torch.float32, device=CUDA)
        .cpu()
        .double()
        .numpy()
    )
    w = source.key.direction
    across = x - np.outer(x @ w, w)
    assert scipy.stats.kstest((across**2).sum(1) / 4, "chi2", args=(15,)).pvalue > 1e-3
    assert scipy.stats.kstest((across**2).sum(1) / 4, "chi2", args=(16,)).pvalue < 1e-3


def test_the_numbers_are_the_interpreters(tmp_path):
    """Counters, polynomials and the GPU's logarithm against NumPy, to a few float32 roundings."""
    path = tmp_path / "drawn.npz"
    subprocess.run(
        [sys.executable, ON_CPU, path], check=True, env={**os.environ, "TRITON_INTERPRET": "1"}
    )
    got = runpy.run_path(str(ON_CPU))["draws"]("cuda")
    with np.load(path) as expected:
        for name, values in got.items():
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(got["out"], got["again"])
    np.testing.assert_array_equal(got["out"][:1], got["one"])
    np.testing.assert_array_equal(got["out"][:, BLOCK:], got["shard"])


def test_without_the_correction_it_is_gaussian_far_into_the_tail(make_key, stream):
    from dpaudit.noise.pancake_cuda import fused

    source = Pancake(key=make_key(dim=BLOCK), sigma=1.0)
    n = 20_000
    x = fused(
        source, 0, BLOCK, np.zeros((n, 1, 1)), seed=2**62 + 1, device=CUDA, correct=False
    ).ravel()
    assert abs(x.double().mean().item()) < 4 / math.sqrt(x.numel())
    assert abs(x.double().square().mean().item() - 1) < 4 * math.sqrt(2 / x.numel())
    assert not (x == 0).any()
    for edge in [1e-6, 1e-3, 0.1, 1.0, 2.0, 3.0, 4.0, 5.0]:
        inside = 2 * scipy.stats.norm.cdf(edge) - 1
        count = (x.abs() < edge).sum().item()
        assert (
            abs(count - inside * x.numel()) < 4 * math.sqrt(inside * (1 - inside) * x.numel()) + 4
        )


def test_equals_the_torch_oracle_on_the_same_noise(make_key, stream):
    from dpaudit.noise.pancake_cuda import fused

    source = Pancake(key=make_key(dim=40 * BLOCK + 77), sigma=2.0)
    shares = source.shares(5, stream=stream)
    raw, out = (
        fused(source, 0, source.dim, shares, seed=9 << 55, device=CUDA, correct=correct)
        for correct in (False, True)
    )
    expected = condition_(
        raw, source.key.vectors, shares=shares, inverse=source.block_inverse(0, source.dim)
    )
    torch.testing.assert_close(out, expected, rtol=2e-6, atol=2e-7)


def test_beyond_2_to_31_values_the_last_block_still_has_its_share(make_key, stream):
    from dpaudit.noise.pancake_cuda import fused

    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("needs 12 GiB of free device memory")
    source, n = Pancake(key=make_key(dim=LARGE), sigma=1.0), 56
    shares = source.shares(n, stream=stream)
    x = fused(source, 0, LARGE, shares, seed=3, device=CUDA)
    low = LARGE // BLOCK * BLOCK
    for row, first in [(0, 0), (n - 1, 0), (n - 1, low - BLOCK), (n - 1, low)]:
        w = torch.from_numpy(source.key.vectors[0, first : first + BLOCK].astype(np.float64))
        got = (x[row, first : first + BLOCK].cpu().double() @ w).item()
        assert got == pytest.approx(shares[row, first // BLOCK, 0], abs=1e-6 * w.norm().item())
    assert not torch.equal(x[0, :BLOCK], x[n - 1, :BLOCK])


def test_a_draw_needs_no_more_memory_than_plain_noise(make_key, stream):
    """Peak above what is held: the key, two bytes per coordinate, stays on the device."""
    source = Pancake(key=make_key(dim=LARGE), sigma=1.0)

    def peak(draw):
        draw()  # the key's upload and the compilation
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        draw()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held

    plain = peak(lambda: torch.randn((1, LARGE), device=CUDA))
    fused = peak(lambda: source.sample(1, LARGE, stream=stream, dtype=torch.float32, device=CUDA))
    assert fused <= 1.3 * plain
