"""Lattice reducers behind the keyless search: bases stay bases, resume, and find directions."""

import importlib.util
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from dpaudit.errors import StoreError, UsageError
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.keyless.candidates import confirm
from dpaudit_attacks.keyless.checkpoint import Checkpoint
from dpaudit_attacks.keyless.form import Form
from dpaudit_attacks.keyless.lattice import Reduction, find_direction
from dpaudit_attacks.keyless.reduction import installed_reducers, reducer, with_blaster
from dpaudit_attacks.keyless.reduction.interface import ReductionFailed

MODULES = {"fpylll": "fpylll", "blaster": "blaster_core"}


@pytest.fixture(params=MODULES)
def by(request):
    pytest.importorskip(MODULES[request.param])
    return reducer(request.param)


@pytest.fixture
def specimen(make_key):
    def make(*, dim, beta, gamma="2sqrtd", n=3000, **options):
        key = make_key(dim=dim, beta=beta, gamma=gamma, allow_small_gamma=True, **options)
        return Pancake(key=key).sample(n, dim, stream=KeyedStream.from_seed("reduction")), key

    return make


def cosine(u, key):
    return abs(key.basis.reshape(-1, len(u)) @ u).max() / np.linalg.norm(u)


def found(x, by, *, beta, gamma, block=30, samples=None, **options):
    """The first candidate that is confirmed on the first 512 rows, or the last of all."""
    held, check, rows = x[:512], x[512:1024], x[1024:]
    options = {"reduction": Reduction(samples, block, by), "check": check, **options}
    for at in find_direction(rows, beta=beta, gamma=gamma, **options):
        if confirm(held, at.u) < 1e-9:
            break
    return at


def test_a_reduced_basis_generates_the_same_lattice(by):
    """Whole numbers of determinant ±1, in shape (n, n), shorter and shorter images."""
    rows = np.random.default_rng(2).standard_normal((40, 8))
    form = Form(rows, gamma=2 * math.sqrt(8))
    lengths = []
    for stage in by.stages(form, beta=0.05, block=30):
        assert stage.k.shape == (40, 40)
        assert abs(np.linalg.det(stage.k.astype(float))) == pytest.approx(1, abs=1e-6)
        lengths.append(np.linalg.norm(stage.k @ form.images(0.05), axis=1).min())
    assert lengths[-1] < 0.8 * np.linalg.norm(form.images(0.05), axis=1).min()
    assert min(lengths) == pytest.approx(lengths[-1], rel=0.15)


@pytest.mark.parametrize(
    ("dim", "directions", "beta", "told"), [(24, 1, 0.01, 0.01), (12, 2, 0.02, 0.05)]
)
def test_each_reducer_finds_one_of_the_directions(by, specimen, dim, directions, beta, told):
    x, key = specimen(dim=dim, beta=beta, directions=directions)
    at = found(x, by, beta=told, gamma=key.gamma)
    assert cosine(at.u, key) > (0.999 if directions == 1 else 0.99)


@pytest.mark.slow
def test_more_rows_than_long_doubles_take(specimen):
    """n = 300 at d = 40, where fpylll stops at 230: precision does not run out with the rows."""
    pytest.importorskip("blaster_core")
    x, key = specimen(dim=40, beta=1e-3)
    at = found(x, reducer("blaster"), beta=1e-3, gamma=key.gamma, block=0, samples=300)
    assert at.rows == 300
    assert cosine(at.u, key) > 0.999
    assert found(x, reducer("fpylll"), beta=0.2, gamma=1.0, block=0, samples=300).rows == 230


@pytest.mark.slow
def test_a_reduction_resumes_where_it_stopped(by, specimen, tmp_path):
    """The second start does the missing steps alone, and no other reduction takes its file."""
    x, key = specimen(dim=16, beta=0.3)  # too thick: nothing ends it early
    gamma, n = key.gamma, 60
    whole = [s.done for s in by.stages(Form(x[:n], gamma=gamma), beta=0.3, block=30)]
    path = tmp_path / "reduction.npz"
    clock = iter(range(1000)).__next__
    first = Checkpoint(path, x, clock=clock, beta=0.3)
    steps = find_direction(
        x, beta=0.3, gamma=gamma, reduction=Reduction(n, 30, by), keep=first.keep
    )
    for _ in steps:
        if first.stage is not None and first.stage.done >= 2:
            break
    again = Checkpoint(path, x, clock=clock, beta=0.3)
    assert again.stage.done == first.stage.done
    assert (again.stage.k == first.stage.k).all()
    assert again.seconds > 0
    rest = [
        stage.done
        for stage in by.stages(Form(x[:n], gamma=gamma), beta=0.3, block=30, resume=again.stage)
    ]
    assert min(rest) >= again.stage.done
    assert rest[-1] == whole[-1]
    with pytest.raises(StoreError, match="another reduction"):
        Checkpoint(path, x, beta=0.2)
    with pytest.raises(StoreError, match="another reduction"):
        Checkpoint(path, x[1:], beta=0.3)
    path.write_bytes(b"something else")
    with pytest.raises(StoreError, match="not a checkpoint"):
        Checkpoint(path, x, beta=0.3)


def test_numbers_beyond_int64_are_refused():
    k = np.array([[2**40, 1], [0, 1]])
    assert (
        with_blaster._product(k, np.array([[2.0**20, 0], [0, 1]])) == [[2**60, 1], [0, 1]]
    ).all()
    with pytest.raises(ReductionFailed, match="numbers"):
        with_blaster._product(k, np.array([[2.0**22, 0], [0, 1]]))


def test_large_numbers_that_cancel_are_multiplied_exactly():
    """Each term is beyond int64, their sum is not."""
    k = np.array([[2**40 + 1, 2**40], [1, 1]])
    by = np.array([[2.0**45, 0], [-(2.0**45), 1]])
    assert (with_blaster._product(k, by) == [[2**45, 2**40], [0, 1]]).all()
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-(2**bits), 2**bits, (30, 30)) for bits in (27, 29))
    assert (with_blaster._product(a, b.astype(float)) == a.astype(object) @ b.astype(object)).all()


def test_images_that_cancel_are_precise():
    """Terms of 10^15 with a sum of 10^3: doubles alone are wrong by 1 or so."""
    rng = np.random.default_rng(3)
    images = rng.standard_normal((20, 20)) * 2.0**24
    k = rng.integers(-(2**27), 2**27, (20, 20)).astype(float)
    images[:, 0] = -np.rint(images[:, 1:] @ k[1:, 0]) / k[0, 0]
    exact = [
        [float(sum(Fraction(a) * int(b) for a, b in zip(row, col, strict=True))) for col in k.T]
        for row in images
    ]
    found = with_blaster._images_of(images, k)
    assert found == pytest.approx(np.array(exact), rel=1e-12, abs=1e-3)
    assert np.abs(images @ k - exact)[:, 0].max() > 1e-2


@pytest.mark.parametrize(
    ("there", "chosen"),
    [((), "fpylll"), (("fpylll",), "fpylll"), (("fpylll", "blaster_core"), "blaster")],
)
def test_what_is_installed_is_chosen(monkeypatch, there, chosen):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in there or None)
    assert (len(installed_reducers()), reducer().name) == (len(there), chosen)
    with pytest.raises(UsageError, match="reducer=g6k"):
        reducer("g6k")


INTERRUPTED = """
import os, signal, threading
import numpy as np
from dpaudit_attacks.keyless.reduction.with_blaster import _core

core, n = _core(), 90
basis = np.eye(n)
basis[:45, :45] *= 1009
basis[:45, 45:] = np.random.default_rng(1).integers(0, 1009, (45, 45))
r = np.ascontiguousarray(np.linalg.qr(basis, mode="r"))
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
core.block_bkz(44, r, np.zeros((1, n), np.int64), np.eye(n, dtype=np.int64), 0.99, 0, n)
"""


@pytest.mark.slow
def test_an_interrupt_in_the_middle_of_a_reduction_is_no_crash():
    pytest.importorskip("blaster_core")
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1:] == ["KeyboardInterrupt"]


@pytest.mark.parametrize(("times", "told"), [(0.7, 2.0), (2.0, 2.83), (2.0, 20.0), (8.0, 20.0)])
def test_a_search_covers_other_gammas(by, specimen, times, told):
    x, key = specimen(dim=12, beta=0.01, gamma=times * math.sqrt(12))
    at = found(x, by, beta=0.02, gamma=told * math.sqrt(12))
    assert cosine(at.u, key) > 0.999
    assert np.linalg.norm(at.u) == pytest.approx(key.gamma / math.sqrt(2 * math.pi), rel=0.01)


@pytest.mark.parametrize("seen", ["float32", "bfloat16", "lattice", "differences"])
def test_noise_that_was_rounded_or_subtracted(by, specimen, seen):
    """Rounding acts as a larger β, a difference of two releases as √2 times β and γ."""
    x, key = specimen(dim=12, beta=1e-3)
    times = 2.0
    if seen == "float32":
        x = x.astype(np.float32).astype(float)
    elif seen == "bfloat16":
        bits = x.astype(np.float32).view(np.uint32)
        x = ((bits + 0x8000) & 0xFFFF0000).view(np.float32).astype(float)
    elif seen == "lattice":
        x = np.rint(x / 0.01) * 0.01
    else:
        x, times = (x[0::2] - x[1::2]) / math.sqrt(2), 2 * math.sqrt(2)
    at = found(x, by, beta=0.06, gamma=times * math.sqrt(12))
    assert cosine(at.u, key) > 0.999
