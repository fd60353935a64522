"""Seeds found from noise; torch's Philox and jax's Threefry against published and foreign numbers.

``cuda_oracle`` numbers come from NVIDIA's own header (curand of CUDA 12, ``curand_init``,
``curand4``, ``_curand_box_muller``), compiled for the host under torch's kernel, thread by thread.
"""

import hashlib
import math

import numpy as np
import pytest
import torch
from support.battery import evidence_of

from dpaudit.errors import UsageError
from dpaudit_attacks.state_recovery import philox, threefry
from dpaudit_attacks.state_recovery.seeds import Noise, agreement, find_seed, usual
from dpaudit_attacks.state_recovery.state_recovery import StateRecovery

NOW = 1_790_000_000.0
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)


@pytest.mark.parametrize(
    ("counter", "words"),
    [
        ((0,) * 6, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 6, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (PI, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_has_the_published_words(counter, words):
    """Random123's kat_vectors, philox4x32 with 10 rounds: counter, then key."""
    low, high, key = (counter[i] | counter[i + 1] << 32 for i in (0, 2, 4))
    assert " ".join(f"{word:08x}" for word in philox.philox(key, low, high)[:, 0]) == words


@pytest.mark.parametrize(
    ("counter", "words"),
    [
        ((0,) * 4, "6b200159 99ba4efe"),
        ((0xFFFFFFFF,) * 4, "1cb996fc bb002be7"),
        (PI[:4], "c4923a9c 483df7a0"),
    ],
)
def test_threefry_has_the_published_words(counter, words):
    """Random123's kat_vectors, threefry2x32 with 20 rounds: counter, then key."""
    made = threefry.threefry(np.array([counter[2:]], np.uint32).T, counter[0], counter[1])
    assert " ".join(f"{word:08x}" for word in made[:, 0]) == words


def test_torchs_own_philox_engine_agrees():
    """``at::philox_engine`` (its header, compiled): offset 2^32 − 2 in subsequence 2^40 + 3."""
    words = philox.philox(67280421310721, 2**32 - 2, 2**40 + 3)[:, 0]
    assert [hex(w) for w in words] == ["0x90823c11", "0x702b8244", "0xdb393234", "0x7f8391c2"]


CUDA_ORACLE = {  # seed, offset, numel, processors, threads: SHA-256 of the words, increment, values
    (42, 0, 1000, 132, 2048): ("dfde1006dd315bf8", 4, (0.19401887, 2.1613739, -0.17205061)),
    (67280421310721, 8, 100_001, 3, 2048): (
        "b26ec404f2e56403",
        20,
        (1.5009022, -0.47033352, -1.2151239),
    ),
    (2**53 - 5, 400, 70_000, 5, 1536): (
        "fa7471f1271740ed",
        12,
        (-0.16303708, 0.13040656, 0.018507594),
    ),
}


@pytest.mark.parametrize("call", CUDA_ORACLE)
def test_the_layout_of_torch_on_cuda_is_that_of_its_source(call):
    """Loops, threads of a small device, both pairs of a draw, offsets."""
    seed, offset, numel, processors, threads = call
    device = {"numel": numel, "processors": processors, "threads": threads}
    digest, increment, first = CUDA_ORACLE[call]
    words, _ = philox.cuda_words(seed, offset=offset, **device)
    assert hashlib.sha256(np.ascontiguousarray(words.T)).hexdigest()[:16] == digest
    assert philox.offset_increment(**device) == increment
    values = philox.cuda_normal(seed, offset=offset, **device)
    assert values[:3] == pytest.approx(first, abs=philox.TOLERANCE)
    assert abs(values.std() - 1) < 5 / math.sqrt(numel)


def test_first_values_do_not_depend_on_the_device():
    large, small = (
        philox.cuda_normal(3, numel=200_000, processors=n, threads=2048) for n in (132, 4)
    )
    assert (large[:4096] == small[:4096]).all()
    assert not (large == small).all()


@pytest.mark.gpu
@pytest.mark.parametrize(("numel", "before"), [(1000, 0), (300_001, 1), (3_000_000, 2)])
def test_a_device_gives_what_is_replayed(numel, before):
    about = torch.cuda.get_device_properties(0)
    device = {
        "numel": numel,
        "processors": about.multi_processor_count,
        "threads": about.max_threads_per_multi_processor,
    }
    generator = torch.Generator("cuda").manual_seed(2**53 - 9)
    for _ in range(before):
        torch.rand(numel, device="cuda", generator=generator)
    offset = generator.get_offset()
    assert offset == before * philox.offset_increment(**device)
    drawn = torch.normal(0.0, 3.0, (numel,), device="cuda", generator=generator).cpu().numpy()
    made = philox.cuda_normal(2**53 - 9, std=3.0, offset=offset, **device)
    assert (np.abs(made - drawn) <= 3 * philox.TOLERANCE * np.maximum(np.abs(made / 3), 1)).all()


@pytest.mark.parametrize("partitionable", [True, False])
def test_jax_gives_the_same_bits_and_nearly_the_same_values(partitionable):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_threefry_partitionable", partitionable)
    for seed, size in ((0, 1), (42, 7), (2**31 - 1, 1001)):
        key, mine = jax.random.fold_in(jax.random.key(seed), 77), threefry.key(seed)
        mine = threefry.fold_in(mine, 77)
        assert (np.asarray(jax.random.key_data(key)) == mine[:, 0]).all()
        bits = threefry.random_bits(mine, np.arange(size), size=size, partitionable=partitionable)
        assert (np.asarray(jax.random.bits(key, (size,), "uint32")) == bits).all()
        near = np.abs(threefry.normal(bits) - np.asarray(jax.random.normal(key, (size,))))
        assert near.max() < 2.0**-16
        split = np.asarray(jax.random.key_data(jax.random.split(key, 3)))
        assert (split == threefry.fold_in(mine, np.arange(3)).T).all() == partitionable


def on_cpu(seed, count=32, before=0, **options):
    generator = torch.Generator().manual_seed(seed)
    torch.rand(before, generator=generator)
    return torch.normal(0.0, 3.0, (count,), generator=generator, **options).double().numpy()


def in_jax(seed, size=32, index=None, partitionable=True):
    key = threefry.key(seed)
    key = key if index is None else threefry.fold_in(key, index)
    return 3 * threefry.normal(
        threefry.random_bits(key, np.arange(size), size=size, partitionable=partitionable)
    )


RANKED, SECONDS = 67280421310721 + 7, int(NOW) - 50_000
FOUND = {
    "float32": (on_cpu(271_828), "torch.randn on the CPU, float32", 271_828, 0),
    "fewer than 16": (on_cpu(9, 10), "torch.normal of fewer than 16 values on the CPU", 9, 0),
    "float64": (on_cpu(9, dtype=torch.float64), "torch.randn on the CPU, float64", 9, 0),
    "default and rank": (on_cpu(RANKED), "torch.randn on the CPU, float32", RANKED, 0),
    "time": (on_cpu(SECONDS), "torch.randn on the CPU, float32", SECONDS, 0),
    "used before": (on_cpu(42, before=5000), "torch.randn on the CPU, float32", 42, 5000),
    "cuda": (
        philox.cuda_normal(1342, std=3.0, numel=32, offset=40), "torch.randn on CUDA, float32",
        1342, 10,
    ),
    "jax": (in_jax(900_000), "jax.random.normal", 900_000, 0),
    "jax, folded in": (in_jax(7, index=1000), "jax.random.normal", 7, 1001),
    "jax, older": (
        in_jax(5, 31, partitionable=False), "jax.random.normal, not partitionable", 5, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("noise", "generator", "seed", "start"), FOUND.values(), ids=list(FOUND))
def test_a_known_seed_is_found(noise, generator, seed, start):
    few = [(a, min(b, a + (1 << 20))) for a, b in usual(NOW)]
    found, tries = find_seed(
        Noise.of(noise, std=3.0), ranges=few, ahead=1 << 13, generators=generator
    )
    assert (found.generator, found.seed, found.start) == (generator, seed, start)
    assert found.agreeing == found.compared
    assert found.log_p < math.log(1e-30)
    assert tries > 1 << 20


@pytest.mark.parametrize("known", ["torch.randn on the CPU, float32", "CUDA", "jax"])
def test_wrong_layouts_are_not_found(known):
    """Another order, another scale, a start that is not tried, errors in most values."""
    right = {"CUDA": philox.cuda_normal(5, std=3.0, numel=64), "jax": in_jax(5, 64)}.get(
        known, on_cpu(5, 64)
    )
    broken = np.where(np.arange(64) % 8 == 0, right, right + 0.3)
    for wrong in (right[::-1], right * 1.001, right[1:], broken):
        found, _ = find_seed(
            Noise.of(wrong, std=3.0), ranges=((0, 1 << 12),), ahead=0, generators=known
        )
        assert found is None or found.log_p > math.log(0.01)


def test_other_noise_has_no_seed_however_often_one_looks():
    """The bound: at α = 0.01 each; 200 tensors of 24 values, each against 34,000 starts."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        noise = Noise.of(rng.standard_normal(24), std=1.0)
        found, _ = find_seed(noise, ranges=((0, 1 << 12),), ahead=0)
        assert found is None or found.log_p == 0


def test_the_bound_holds_where_agreement_is_common():
    """Tolerance 2^-4, so that chance does agree: P(bound ≤ α) ≤ α, and the bound is not idle."""
    rng = np.random.default_rng(4)
    bounds = []
    for _ in range(4000):
        noise = Noise.of(rng.standard_normal(6), std=1.0)
        k, log_p = agreement(noise, rng.standard_normal(6), tolerance=2.0**-4)
        assert 0 <= k <= 6
        bounds.append(log_p)
    for alpha in (0.1, 0.25):
        assert np.mean(np.array(bounds) <= math.log(alpha)) <= alpha
    assert agreement(noise, noise.values, tolerance=2.0**-19)[1] < math.log(1e-20)


def test_a_key_used_twice_shows():
    first, second, other = (in_jax(3, 24), in_jax(3, 40)[:24], in_jax(4, 24))
    noise = Noise.of(first, std=3.0)
    assert agreement(noise, second / 3, tolerance=2.0**-19) == (24, pytest.approx(-271, abs=30))
    assert agreement(noise, other / 3, tolerance=2.0**-19) == (0, 0.0)


def test_noise_of_a_step_is_enough_and_too_coarse_noise_is_refused():
    noise, gradient = on_cpu(77), np.float32(np.random.default_rng(1).normal(0, 20, 32))
    shown = (gradient + np.float32(noise)).astype(float)
    found, _ = StateRecovery.seed_of(
        shown - gradient, std=3.0, errors=2.0**-22 * np.abs(shown), ranges=((0, 1000),), ahead=0
    )
    assert found.seed == 77
    with pytest.raises(UsageError, match=r"errors=0\.333"):
        StateRecovery.seed_of(noise, std=3.0, errors=np.ones(32))


@pytest.mark.parametrize("draw", [lambda: on_cpu(600_000, 64), lambda: in_jax(3, 64)])
def test_an_audit_finds_a_short_first_call_and_no_later_one(draw):
    """Too few values for the state of a Mersenne Twister, and none that jax has."""
    honest = 3 * np.random.default_rng(2).standard_normal((4, 16))
    found = evidence_of(StateRecovery, [draw().reshape(4, 16), honest], "gaussian:sigma=3")
    assert found.p < 1e-100
    assert found.details["seed"] in ("600000", "3")
    assert evidence_of(StateRecovery, [honest, draw().reshape(4, 16)], "gaussian:sigma=3").p == 1


@pytest.mark.slow
def test_the_first_noise_of_an_opacus_run_names_torchs_seed():
    """The model, the loader and the batch draw before; ten values of a bias are not enough here."""
    opacus = pytest.importorskip("opacus")
    torch.manual_seed(1337 + 1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    data = torch.utils.data.TensorDataset(torch.randn(500, 64), torch.zeros(500, dtype=torch.long))
    model, optimizer, loader = opacus.PrivacyEngine().make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=50), noise_multiplier=1.0,
        max_grad_norm=1.0,
    )  # fmt: skip
    x, y = next(iter(loader))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    first = optimizer.params[0]
    shown = (first.grad * optimizer.expected_batch_size).double().numpy()
    noise = shown - first.summed_grad.double().numpy()
    found, _ = StateRecovery.seed_of(
        noise,
        std=1.0,
        errors=2.0**-22 * np.abs(shown),
        generators="CPU, float32",
        ahead=1 << 16,
    )
    assert found.seed == 1338
    assert found.start > 32_000  # words that the data took
