"""Recorded correlated noise, made independent by its public C."""

import numpy as np
import pytest
from command_line import here as run

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers import open_sampler
from dpaudit.samplers.identity import identify

STRATEGY = np.array([[1.0, 0, 0], [0.5, 1, 0], [0.25, 0.5, 1]])


def opened(target="N.npy;C.npy"):
    return open_sampler(f"whitened:{target}", seed="1")


def recorded(runs=2, dim=5, dtype=np.float64):
    z = np.random.default_rng(1).standard_normal((runs, 3, dim))
    noise = np.concatenate([np.linalg.solve(STRATEGY, one) for one in z]).astype(dtype)
    np.save("N.npy", noise)
    np.save("C.npy", STRATEGY)
    return z


@pytest.mark.parametrize(("dtype", "away"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_each_coordinate_is_a_row_of_its_steps(dtype, away, here):
    z = recorded(dtype=dtype)
    with opened() as sampler:
        assert (sampler.dim, sampler.available) == (3, 10)
        got = np.concatenate([sampler.draw(n, 3, timeout=1) for n in (1, 6, 3)])
        with pytest.raises(SamplerOutputError, match="0 coordinates left, wanted n=1"):
            sampler.draw(1, 3, timeout=1)
    np.testing.assert_allclose(got, z.transpose(0, 2, 1).reshape(10, 3), atol=away)
    with sampler as again:
        np.testing.assert_array_equal(again.draw(10, 3, timeout=1), got)


def test_a_repeated_run_repeats_and_last_digits_are_moved(here):
    recorded(runs=1, dim=50, dtype=np.float32)
    noise = np.load("N.npy")
    np.save("N.npy", np.concatenate([noise, noise]))
    with opened() as sampler:
        got = sampler.draw(100, 3, timeout=1)
    np.testing.assert_array_equal(got[:50], got[50:])
    exact = (STRATEGY @ noise.astype(np.float64)).T
    assert (got[:50] != exact).all()
    assert np.abs(got[:50] - exact).max() < 2.0**-22


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("N.npy", "needs two files"),
        ("N.npy;D.npy", "no such file"),
        ("N.npy;N.npy", "wanted a square C"),
        ("N.npy;zero.npy", "C has no inverse"),
        ("odd.npy;C.npy", "5 rows are not a multiple of the 3 steps"),
    ],
)
def test_what_does_not_fit_is_refused(target, match, here):
    recorded()
    np.save("zero.npy", np.zeros((3, 3)))
    np.save("odd.npy", np.zeros((5, 2)))
    with pytest.raises(UsageError, match=match):
        opened(target)


def test_another_length_of_a_row_is_refused(here):
    recorded()
    with opened() as sampler, pytest.raises(UsageError, match="has 3 steps"):
        sampler.draw(1, 5, timeout=1)


def test_both_files_are_named_with_their_hashes(here):
    recorded()
    found = identify("whitened:N.npy;C.npy").files
    assert [file.name.rpartition("/")[2] for file in found] == ["N.npy", "C.npy"]


def test_the_command_finds_a_wrong_c_and_passes_the_right_one(here):
    recorded(dim=4000, runs=1)
    np.save("wrong.npy", np.eye(3))
    common = ("--claim", "gaussian:sigma=1", "--seed", "1", "--tests", "covariance,moments")
    assert run("audit", "whitened:N.npy;C.npy", *common).returncode == 0
    assert run("audit", "whitened:N.npy;wrong.npy", *common).returncode == 1
