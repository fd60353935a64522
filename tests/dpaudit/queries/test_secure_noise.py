"""``secure_noise`` in one process: a step of every kind of optimizer, and what it refuses."""

import math
import secrets
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dpaudit
from dpaudit.errors import UsageError
from dpaudit.numeric.lattice import add_lattice_noise, lattice_step
from dpaudit.randomness import KeyedStream

pytest.importorskip("opacus")
from opacus import PrivacyEngine
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping

from dpaudit.queries.opacus import use_noise_source
from dpaudit.queries.opacus.sharded import blocks

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)

CLIP, Z, BATCH = 0.7, 1.3, 16
ADAPTIVE = {"target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.4}
ADAPTIVE |= {"max_clipbound": 10.0, "min_clipbound": 0.1}
MODES = [(mode, "flat") for mode in ("hooks", "functorch", "ew", "ghost")]
MODES += [("hooks", "per_layer"), ("hooks", "adaptive")]


@pytest.fixture
def keys(monkeypatch):
    drawn = []

    def token_bytes(n):
        drawn.append(KeyedStream.from_seed(f"key {len(drawn)}").bytes(n))
        return drawn[-1]

    monkeypatch.setattr(secrets, "token_bytes", token_bytes)
    return drawn


def run(mode="hooks", clipping="flat", *, dtype=torch.float32, engine=PrivacyEngine, **options):
    """The optimizer, and a backward pass on the same records."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 10)).to(dtype)
    rng = KeyedStream.from_seed("secure records").numpy()
    x = torch.from_numpy(rng.standard_normal((BATCH, 1, 6, 6))).to(dtype)
    y = torch.from_numpy(rng.integers(0, 10, BATCH))
    if clipping == "adaptive":
        options = {**ADAPTIVE, "unclipped_num_std": 2.0}
    criterion = nn.CrossEntropyLoss()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = engine(accountant="rdp").make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(x, y), batch_size=BATCH),
            criterion=criterion,
            noise_multiplier=Z,
            max_grad_norm=[CLIP / 2] * 4 if clipping == "per_layer" else CLIP,
            poisson_sampling=False,
            clipping=clipping,
            grad_sample_mode=mode,
            **options,
        )
    loss = made[2] if len(made) == 4 else criterion
    return made[1], lambda part=slice(None): loss(made[0](x[part]), y[part]).backward()


def joined(optimizer, name):
    return torch.cat([getattr(p, name).reshape(-1) for p in optimizer.params])


@pytest.mark.parametrize(("mode", "clipping"), MODES)
def test_a_step_is_the_clipped_sum_and_the_noise_of_its_key(keys, mode, clipping):
    optimizer, backward = run(mode, clipping)
    assert dpaudit.secure_noise(optimizer) is optimizer
    sums = []
    for step in range(2):
        state = torch.get_rng_state()
        sigma = optimizer.noise_multiplier * float(optimizer.max_grad_norm)
        if clipping == "adaptive":
            sigma *= (Z**-2 - 4.0**-2) ** -0.5 / Z
        optimizer.zero_grad()
        backward()
        optimizer.step()
        assert torch.equal(torch.get_rng_state(), state)  # torch draws nothing
        sums.append(joined(optimizer, "summed_grad"))
        expected = sums[-1].clone()
        add_lattice_noise(expected, sigma=sigma, key=keys[step])
        assert torch.equal(joined(optimizer, "grad") * BATCH, expected)
        noise = (expected - sums[-1]).double() / sigma
        assert abs(float(noise.square().mean()) - 1) < 5 * math.sqrt(2 / len(noise))
    assert len(keys) == 2


def test_adaptive_clipping_counts_with_noise_of_the_same_kind(keys):
    optimizer, backward = run(clipping="adaptive")
    dpaudit.secure_noise(optimizer)
    assert isinstance(optimizer, AdaClipDPOptimizer)
    bound, seen = optimizer.max_grad_norm, []
    clip = optimizer.clip_and_accumulate
    optimizer.clip_and_accumulate = lambda: (clip(), seen.append(float(optimizer.unclipped_num)))
    optimizer.zero_grad()
    backward()
    optimizer.step()
    count = torch.tensor(seen, dtype=torch.float64)
    assert 0 <= seen[0] <= BATCH
    end = sum(p.numel() for p in optimizer.params)
    add_lattice_noise(count, sigma=2.0, key=keys[0], start=end)
    assert float(optimizer.unclipped_num) == pytest.approx(float(count), rel=1e-6)
    factor = math.exp(-0.4 * (float(count) / BATCH - 0.5))
    assert float(optimizer.max_grad_norm) == pytest.approx(bound * factor, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_hold_the_release_rounded(keys, dtype):
    optimizer, backward = run("ghost", dtype=dtype)
    dpaudit.secure_noise(optimizer)
    optimizer.zero_grad()
    backward()
    optimizer.accumulate()
    optimizer.add_noise()
    exact = joined(optimizer, "summed_grad").double()
    add_lattice_noise(exact, sigma=Z * CLIP, key=keys[0])
    assert torch.equal(joined(optimizer, "grad"), exact.to(dtype))
    if dtype == torch.float64:
        steps = exact / lattice_step(Z * CLIP)
        assert torch.equal(steps, steps.round())


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_accumulated_batches_get_noise_once(keys, mode):
    optimizer, backward = run(mode)
    dpaudit.secure_noise(optimizer)
    for part, skip in ((slice(0, 8), True), (slice(8, None), False)):
        optimizer.zero_grad()
        optimizer.signal_skip_step(skip)
        backward(part)
        optimizer.step()
        assert len(keys) == (0 if skip else 1)
    expected = joined(optimizer, "summed_grad")
    add_lattice_noise(expected, sigma=Z * CLIP, key=keys[0])
    assert torch.equal(joined(optimizer, "grad") * BATCH, expected)


def test_a_gradient_is_used_once():
    optimizer, backward = run()
    dpaudit.secure_noise(optimizer)
    optimizer.zero_grad()
    backward()
    optimizer.step()
    with pytest.raises(ValueError, match="cleared"):
        optimizer.add_noise()


def refused(match, optimizer):
    cls = type(optimizer)
    with pytest.raises(UsageError, match=match):
        dpaudit.secure_noise(optimizer)
    assert type(optimizer) is cls


def test_optimizers_that_it_refuses():
    refused("optimizer=SGD: is not Opacus'", torch.optim.SGD([nn.Parameter(torch.ones(1))]))

    class Own(DPOptimizer):
        def add_noise(self):
            """Adds none."""

    inner = torch.optim.SGD([nn.Parameter(torch.ones(1))])
    options = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 1}
    refused("has an add_noise of its own", Own(inner, **options))
    refused("noise_multiplier=0", DPOptimizer(inner, **options | {"noise_multiplier": 0}))
    refused("sigma=", DPOptimizer(inner, **options | {"noise_multiplier": 1e-310}))
    refused("draws from secure_noise already", dpaudit.secure_noise(run()[0]))
    refused("draws from gaussian already", use_noise_source(run()[0], "gaussian"))
    inner.param_groups[0]["params"][0].requires_grad_(False)
    refused("parameters=0", DPOptimizer(inner, **options))


@pytest.mark.parametrize(("value", "says"), [(math.nan, "nan"), (math.inf, "inf"), (2.0**40, "e")])
def test_gradients_that_it_refuses(keys, value, says):
    optimizer, backward = run()
    dpaudit.secure_noise(optimizer)
    optimizer.zero_grad()
    backward()
    optimizer.clip_and_accumulate()
    optimizer.params[1].summed_grad[2] = value
    with pytest.raises(UsageError, match=f"gradient=.*{says}.*beyond"):
        optimizer.add_noise()
    assert all(p.grad is None or not torch.equal(p.grad, p.summed_grad) for p in optimizer.params)
    assert not keys


def test_parameters_that_change_afterwards():
    optimizer, backward = run()
    dpaudit.secure_noise(optimizer)
    backward()
    optimizer.params[1].requires_grad_(False)
    with pytest.raises(UsageError, match="was frozen or removed since"):
        optimizer.step()


def test_noise_that_the_loss_draws_elsewhere():
    options = {"target_unclipped_quantile": 0.5, "min_clipbound": 0.1, "max_clipbound": 10.0}
    optimizer, backward = run("ghost", engine=PrivacyEngineAdaptiveClipping, **options)
    dpaudit.secure_noise(optimizer)
    optimizer.zero_grad()
    backward()
    with pytest.raises(UsageError, match="_adjusted_noise_multiplier: "):
        optimizer.step()


def test_a_dry_run_audits_it():
    optimizer, _ = run()
    dpaudit.secure_noise(optimizer)
    result = dpaudit.audit_optimizer(optimizer, samples=60_000, releases=2_000, seed="secure")
    assert result.verdict != "finding"
    assert result.noise.verdict == "no-finding"


def held(shape, index):
    """Positions of a block product, by brute force."""
    whole = torch.arange(math.prod(shape)).view(shape)
    for dim, some in enumerate(index):
        whole = whole.index_select(dim, some)
    return whole


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((6,), [range(6)]),
        ((6,), [range(2, 5)]),
        ((6,), [range(3, 3)]),
        ((4, 6), [range(4), range(2, 5)]),
        ((4, 6), [[0, 1, 3], range(6)]),
        ((4, 6), [[0, 3], [0, 1, 4]]),
        ((3, 4, 5), [range(3), range(1, 3), range(5)]),
        ((3, 4, 5), [range(1, 3), range(1, 3), range(5)]),
        ((3, 4, 5), [range(1, 3), range(1, 3), range(2, 4)]),
        ((3, 4, 5), [range(3), range(1, 2), range(5)]),
        ((3, 4, 5), [range(3), range(4), [0, 4]]),
        ((2, 3, 4, 5), [[1], range(3), range(1, 3), range(5)]),
    ],
)
def test_blocks_count_as_the_whole_does(shape, index):
    expected = held(shape, [torch.tensor(list(some), dtype=torch.long) for some in index])
    got = torch.full_like(expected, -1)
    for block in blocks(shape, index):
        part = got[block.where]
        assert (part == -1).all()  # nothing twice
        row = torch.arange(block.rows)[:, None] * block.stride
        part.copy_((block.start + row + torch.arange(part.numel() // block.rows)).view(part.shape))
    assert torch.equal(got, expected)
