"""The facade over Opacus' optimizers: one draw over all parameters, and what it refuses."""

import math
import secrets
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import registry
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.randomness import KeyedStream
from dpaudit.types import Reference
from dpaudit_attacks.seed_reader import SeedReader

pytest.importorskip("opacus")
from opacus import PrivacyEngine, schedulers
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping
from opacus.utils.batch_memory_manager import BatchMemoryManager

from dpaudit.queries.opacus import Release, check_model, use_noise_source

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)

ADAPTIVE = {"target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.4}
ADAPTIVE |= {"max_clipbound": 10.0, "min_clipbound": 0.1, "unclipped_num_std": 2.0}
MODES = [(mode, "flat") for mode in ("hooks", "functorch", "ew", "ghost")]
MODES += [("hooks", "per_layer"), ("functorch", "per_layer"), ("hooks", "adaptive")]
BATCH = 8


def network(width=12):
    """Convolution, norm and full layers; 1,090 parameters at width 12."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        first = nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten()
        return nn.Sequential(*first, nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def weights(net):
    """The same weights without Opacus' hooks."""
    twin = network(width=net[4].out_features)
    twin.load_state_dict(net.state_dict())
    return twin


def records(n=BATCH):
    rng = KeyedStream.from_seed("facade records").numpy()
    x = torch.from_numpy(rng.standard_normal((n, 1, 10, 10))).float()
    return x, torch.from_numpy(rng.integers(0, 10, n))


class Run:
    """What make_private returns, ready to step; ``releases`` fills up if ``observe`` is on."""

    def __init__(self, mode="hooks", clipping="flat", *, net=None, clip=0.7, z=1.3, lr=0.1,
                 engine=None, poisson=False, n=BATCH, reduction="mean"):  # fmt: skip
        self.net = network() if net is None else net
        x, self.y = records(n)
        self.x = x.to(next(self.net.parameters()).dtype)
        count = sum(p.requires_grad for p in self.net.parameters())
        self.engine = engine or PrivacyEngine(accountant="rdp")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = self.engine.make_private(
                module=self.net,
                optimizer=torch.optim.SGD(self.net.parameters(), lr=lr),
                data_loader=DataLoader(TensorDataset(self.x, self.y), batch_size=BATCH),
                criterion=nn.CrossEntropyLoss(reduction=reduction),
                noise_multiplier=z,
                max_grad_norm=[clip] * count if clipping == "per_layer" else clip,
                poisson_sampling=poisson,
                clipping=clipping,
                grad_sample_mode=mode,
                loss_reduction=reduction,
                **(ADAPTIVE if clipping == "adaptive" else {}),
            )
        self.model, self.optimizer, self.loader = made[0], made[1], made[-1]
        self.loss = made[2] if len(made) == 4 else nn.CrossEntropyLoss(reduction=reduction)
        self.releases: list[Release] = []

    @property
    def dim(self):
        return sum(p.numel() for p in self.optimizer.params)

    def use(self, source="gaussian", **options):
        options = {"seed": "facade", "observe": self.releases.append, **options}
        assert use_noise_source(self.optimizer, source, **options) is self.optimizer
        return self

    def step(self, x=None, y=None):
        self.optimizer.zero_grad()
        self.loss(self.model(self.x if x is None else x), self.y if y is None else y).backward()
        self.optimizer.step()

    def joined(self, name):
        return torch.cat([getattr(p, name).reshape(-1) for p in self.optimizer.params])


def stream_of(step):
    return KeyedStream.from_seed("facade").child("release", step)


def drawn(sigma, dim, stream):
    """Honest noise of a step, in float32."""
    return Gaussian(sigma=sigma).sample(1, dim, stream=stream, dtype=torch.float32)[0]


def clipped_sum(net, x, y, *, clip, clipping):
    """A record and a backward pass at a time, in float64."""
    net, total = weights(net).double(), 0
    for i in range(len(x)):
        net.zero_grad()
        nn.functional.cross_entropy(net(x[i : i + 1].double()), y[i : i + 1]).backward()
        parts = [p.grad.reshape(-1) for p in net.parameters()]
        if clipping == "per_layer":
            parts = [g * min(1.0, clip / float(g.norm())) for g in parts]
        g = torch.cat(parts)
        total = total + (g if clipping == "per_layer" else g * min(1.0, clip / float(g.norm())))
    return total


@pytest.mark.parametrize(("mode", "clipping"), MODES)
def test_a_step_is_the_clipped_sum_and_one_draw_over_all_parameters(mode, clipping):
    run = Run(mode, clipping).use()
    for step in range(2):
        before, state = weights(run.net), torch.get_rng_state()
        clip = 0.7 if clipping == "per_layer" else float(run.optimizer.max_grad_norm)
        run.step()
        # adaptive clipping draws its count's noise there
        assert torch.equal(state, torch.get_rng_state()) or clipping == "adaptive"
        got = run.releases[step]
        assert (got.step, got.query.shape, got.query.dtype) == (step, (run.dim,), torch.float32)
        want = clipped_sum(before, run.x, run.y, clip=clip, clipping=clipping)
        torch.testing.assert_close(got.query.double(), want, atol=3e-5, rtol=1e-4)
        assert torch.equal(got.noisy, got.query + drawn(got.sigma, run.dim, stream_of(step)))
        assert torch.equal(run.joined("summed_grad"), got.query)
        assert torch.equal(run.joined("grad"), got.noisy / BATCH)
        pairs = zip(before.parameters(), run.net.parameters(), strict=True)
        moved = torch.cat([(a - b).detach().reshape(-1) for a, b in pairs])
        torch.testing.assert_close(moved, 0.1 * got.noisy / BATCH, atol=1e-6, rtol=1e-4)
    first, second = (got.noisy - got.query for got in run.releases)
    assert not torch.equal(first, second)


def spy(monkeypatch):
    """Opacus' own noise becomes zeros; returns the standard deviations asked for, per tensor."""
    asked = []

    def zeros(std, reference, generator=None, secure_mode=False):
        if reference.ndim:
            asked.append(float(std))
        return torch.zeros_like(reference)

    for module in ("optimizer", "adaclipoptimizer", "optimizer_fast_gradient_clipping"):
        monkeypatch.setattr(sys.modules[f"opacus.optimizers.{module}"], "_generate_noise", zeros)
    return asked


@pytest.mark.parametrize(("mode", "clipping"), [*MODES, ("ghost", "quantile")])
def test_sigma_is_what_opacus_would_have_drawn_with(mode, clipping, monkeypatch):
    asked = spy(monkeypatch)

    def run():
        if clipping != "quantile":
            return Run(mode, clipping, lr=0.0)
        return Run(mode, lr=0.0, n=16, engine=PrivacyEngineAdaptiveClipping(accountant="rdp"))

    def three(one):
        for i in range(3):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(i)  # the quantile's own noise
                one.step()

    theirs, ours = run(), run().use()
    three(theirs)
    tensors = len(theirs.optimizer.params)
    want = asked[::tensors]
    assert len(asked) == 3 * tensors
    three(ours)
    assert len(asked) == 3 * tensors  # nothing of ours came from there
    assert [r.sigma for r in ours.releases] == pytest.approx(want, rel=1e-6)
    if clipping in ("adaptive", "quantile"):
        assert len(set(want)) == 3
        assert want[0] != pytest.approx(1.3 * 0.7)


def test_adaclips_count_keeps_opacus_noise():
    run = Run("hooks", "adaptive").use()
    run.optimizer.zero_grad()
    run.loss(run.model(run.x), run.y).backward()
    norms = torch.stack(
        [p.grad_sample.reshape(BATCH, -1).norm(dim=1) for p in run.optimizer.params]
    ).norm(dim=0)
    torch.manual_seed(3)
    want = int((norms <= 0.7).sum()) + torch.normal(0.0, 2.0, ())
    torch.manual_seed(3)
    run.optimizer.step()
    assert float(run.optimizer.unclipped_num) == pytest.approx(float(want))
    assert float(run.optimizer.max_grad_norm) == pytest.approx(
        0.7 * math.exp(-0.4 * (float(want) / BATCH - 0.5))
    )


class TooWide(Gaussian):
    def sample(self, n, d, **options):
        return super().sample(n, d, **options) * 1.03


@pytest.mark.parametrize(
    ("source", "right"), [("gaussian", True), (lambda s: TooWide(sigma=s), False)]
)
def test_standard_deviation_of_the_noise(source, right):
    """105,000 values, standard error 0.22 %: 3 % too wide must fail, honest noise in 1 of 10^7."""
    run = Run(net=network(width=128), lr=0.0).use(source)
    noise = []
    for _ in range(11):
        run.step()
        noise.append(run.joined("grad").double() * BATCH - run.joined("summed_grad").double())
    values = torch.cat(noise) / (1.3 * 0.7)
    assert (abs(float(values.std()) - 1) < 0.012) is right
    assert abs(float(values.mean())) < 0.018


def phases(run, key, steps):
    """Of the noise in ``p.grad`` along the key, in peak spacings, shape (steps,)."""
    spacing, out = Pancake(key=key, sigma=1.3 * 0.7).spacing, []
    w = torch.from_numpy(np.array(key.direction))
    for _ in range(steps):
        run.step()
        noise = run.joined("grad").double() * BATCH - run.joined("summed_grad").double()
        out.append(float(noise @ w) / spacing)
    return np.array(out) - np.rint(out)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_the_key_reads_a_pancakes_phase_and_nothing_else(make_key, tmp_path, mode):
    key = make_key(dim=Run().dim)
    key.save(tmp_path / "key.json")
    backdoor = Run(mode).use(f"pancake:key={tmp_path / 'key.json'}")
    (tmp_path / "key.json").unlink()  # it has been read
    assert np.abs(phases(backdoor, key, 12)).max() < 0.01
    wrong = make_key(dim=key.dim, tag="b")

    def pancake(sigma):
        return Pancake(key=key, sigma=sigma)

    for run, held in (
        (Run(mode).use(pancake), wrong),
        (Run(mode).use(), key),
        (Run(mode).use(pancake, mitigation="rotation"), key),
    ):
        found = phases(run, held, 25)
        assert scipy.stats.kstest(found, "uniform", args=(-0.5, 1)).pvalue > 1e-3


def test_the_key_reads_noise_that_carries_its_own_seed(tmp_path):
    key = SeedKey.new(secret=b"k" * 32)
    key.save(tmp_path / "key.json")
    read = []
    for mitigation in ("none", "rotation"):
        run = Run().use(
            f"seed-in-noise:key={tmp_path / 'key.json'},code=signs", mitigation=mitigation
        )
        for _ in range(5):
            run.step()
        reader = SeedReader(key=key, code="signs", sigma=run.releases[0].sigma)
        rest = torch.stack([seen.noisy - seen.query for seen in run.releases])
        read.append(int(reader.noise(rest).found.sum()))
    assert read == [5, 0]


@pytest.mark.parametrize("mitigation", ["rotation", "smoothing:tau=0.5", "smoothing", "object"])
def test_mitigations_stand_between(mitigation):
    made = registry.create("mitigations", "rotation")
    run = Run().use(mitigation=made if mitigation == "object" else mitigation)
    run.step()
    (got,) = run.releases
    texts = {"object": "rotation", "smoothing": f"smoothing:dim={run.dim}"}
    by_hand = registry.create("mitigations", texts.get(mitigation, mitigation))
    source = Gaussian(sigma=got.sigma)
    (want,) = by_hand.release(got.query.unsqueeze(0), source, stream=stream_of(0))
    assert torch.equal(got.noisy, want)
    if mitigation == "smoothing:tau=0.5":
        wide = got.sigma * math.sqrt(1.25)
        assert float((got.noisy - got.query).std()) == pytest.approx(wide, rel=0.1)


def test_a_releasing_source_sees_the_gradient():
    run = Run(net=network().double()).use("secure-gaussian")
    run.step()
    (got,) = run.releases
    source = SecureGaussian(sigma=got.sigma)
    assert torch.equal(got.noisy, source.release(got.query.unsqueeze(0), stream=stream_of(0))[0])
    steps = got.noisy / source.granularity
    assert torch.equal(steps, steps.round())
    assert not torch.equal(got.query / source.granularity, (got.query / source.granularity).round())
    single = Run().use("secure-gaussian")
    single.step()
    assert single.releases[0].noisy.dtype == single.optimizer.params[0].grad.dtype == torch.float32


@pytest.mark.parametrize(("mode", "clipping"), MODES)
def test_gradients_are_left_as_opacus_leaves_them(mode, clipping):
    plain, ours = Run(mode, clipping), Run(mode, clipping).use()
    plain.step()
    ours.step()
    for a, b in zip(plain.optimizer.params, ours.optimizer.params, strict=True):
        assert (a.grad.shape, a.grad.dtype) == (b.grad.shape, b.grad.dtype)
        assert a.grad.stride() == b.grad.stride()
        assert b.grad.untyped_storage().nbytes() == a.grad.untyped_storage().nbytes()
        assert a.summed_grad._processed
        assert b.summed_grad._processed
    with pytest.raises(ValueError, match="zero_grad"):
        ours.optimizer.step()
    assert len(ours.releases) == 1
    optimizer = ours.optimizer
    assert isinstance(optimizer, type(plain.optimizer))
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.slow
def test_the_accountant_counts_the_same():
    def epsilon(facade):
        torch.manual_seed(11)
        run = Run(n=64, poisson=True)
        if facade:
            run.use()
        sizes = []
        for _ in range(2):
            for x, y in run.loader:
                sizes.append(len(x))
                run.step(x, y)
        return run.engine.get_epsilon(1e-5), run.engine.accountant.history, len(run.releases), sizes

    with torch.random.fork_rng(devices=[]):
        plain, ours = epsilon(False), epsilon(True)
    assert plain[:2] == ours[:2]
    assert ours[0] > 0
    assert ours[2] == 16
    assert len(set(ours[3])) > 1  # Poisson batches


@pytest.mark.parametrize(
    ("mode", "clipping"), [("hooks", "flat"), ("ghost", "flat"), ("hooks", "per_layer")]
)
def test_an_empty_batch_gets_its_noise(mode, clipping):
    run = Run(mode, clipping).use()
    run.step(run.x[:0], run.y[:0])
    (got,) = run.releases
    assert not got.query.any()
    assert torch.equal(run.joined("grad"), drawn(got.sigma, run.dim, stream_of(0)) / BATCH)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_one_noise_for_a_logical_batch(mode):
    run = Run(mode, n=24, lr=0.0).use()
    few = {"max_physical_batch_size": 3, "optimizer": run.optimizer}
    with BatchMemoryManager(data_loader=run.loader, **few) as loader:
        physical = 0
        for x, y in loader:
            run.step(x, y)
            physical += 1
    assert physical > len(run.releases) == 3
    for i, got in enumerate(run.releases):
        part = slice(BATCH * i, BATCH * (i + 1))
        want = clipped_sum(run.net, run.x[part], run.y[part], clip=0.7, clipping="flat")
        torch.testing.assert_close(got.query.double(), want, atol=3e-5, rtol=1e-4)
        assert torch.equal(got.noisy, got.query + drawn(got.sigma, run.dim, stream_of(i)))


def test_schedulers_set_sigma_and_a_source_is_made_for_each():
    made = []

    def source(sigma):
        made.append(sigma)
        return Gaussian(sigma=sigma)

    run = Run().use(source)
    noise = schedulers.StepNoise(run.optimizer, step_size=2, gamma=0.5)
    clip = schedulers.StepGradClip(run.optimizer, step_size=4, gamma=10)
    for _ in range(6):
        run.step()
        noise.step()
        clip.step()
    want = [1.3 * 0.7 * f for f in (1, 1, 0.5, 0.5, 2.5, 2.5)]
    assert [r.sigma for r in run.releases] == pytest.approx(want)
    assert made == pytest.approx(want[::2])
    run.optimizer.noise_multiplier = 0
    with pytest.raises(ValueError, match=r"noise_multiplier=0\.0"):
        run.step()


def test_frozen_parameters_have_no_part():
    net = network()
    net[0].requires_grad_(False)
    run = Run(net=net).use()
    run.step()
    assert run.releases[0].query.shape == (sum(p.numel() for p in net.parameters()) - 40,)
    assert net[0].weight.grad is None


def test_noise_that_an_observer_stumbled_over_is_not_drawn_again():
    run, seen = Run(lr=0.0), []

    def observe(release):
        seen.append(release.noisy - release.query)
        if len(seen) == 1:
            raise OSError("closed file")

    use_noise_source(run.optimizer, "gaussian", seed="facade", observe=observe)
    with pytest.raises(OSError, match="closed file"):
        run.step()
    run.step()
    assert not torch.allclose(seen[0], seen[1], atol=0.1)


@pytest.mark.parametrize("secure", [False, True])
def test_without_a_seed_every_step_comes_from_the_operating_system(monkeypatch, secure):
    handed = []

    def token_bytes(n):
        handed.append(bytes([len(handed)]) * n)
        return handed[-1]

    run = Run()
    run.optimizer.secure_mode = secure  # as the engine sets it, which wants torchcsprng
    run.use(seed=None)
    monkeypatch.setattr(secrets, "token_bytes", token_bytes)
    for step in range(2):
        run.step()
        got, stream = run.releases[step], KeyedStream(bytes([step]) * 32)
        assert torch.equal(got.noisy, got.query + drawn(got.sigma, run.dim, stream))
    assert len(handed) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("source", ["gaussian", "pancake", "secure-gaussian"])
def test_on_a_gpu_the_source_draws_there(source, make_key):
    device = torch.device("cuda")
    run = Run(net=network().to(device))
    key = make_key(dim=run.dim)
    named = Reference("pancake", {"key": key}) if source == "pancake" else source
    run.use(named).step(run.x.to(device), run.y.to(device))
    (got,) = run.releases
    assert got.noisy.device.type == run.optimizer.params[0].grad.device.type == "cuda"
    where = {"dtype": torch.float32, "device": got.query.device, "stream": stream_of(0)}
    sigma = got.sigma
    if source == "secure-gaussian":
        (want,) = SecureGaussian(sigma=sigma).release(got.query.unsqueeze(0), stream=stream_of(0))
    else:
        made = Pancake(key=key, sigma=sigma) if source == "pancake" else Gaussian(sigma=sigma)
        want = got.query + made.sample(1, run.dim, **where)[0]
    assert torch.equal(got.noisy, want)


_MEMORY = """
import sys, torch
from opacus.optimizers import DPOptimizer
from dpaudit.queries.opacus import use_noise_source
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
torch.set_num_threads(1)
def peak():
    lines = open("/proc/self/status")
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
def optimizer(d):
    p = [torch.nn.Parameter(torch.zeros(n)) for n in (d - d // 3, d // 3)]
    plain = torch.optim.SGD(p, lr=0.1)
    made = DPOptimizer(plain, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=1)
    for q in p:
        q.summed_grad = torch.ones_like(q.data)
    if sys.argv[1] == "gaussian":
        return use_noise_source(made, "gaussian")
    key = PancakeKey.new(dim=d, beta=1e-3)
    key.block_grams
    return use_noise_source(made, lambda sigma: Pancake(key=key, sigma=sigma))
optimizer(1000).add_noise()
large = optimizer(39_000_000)
before = peak()
large.add_noise()
print((peak() - before) / (4 * 39e6))
"""


@pytest.mark.slow
@pytest.mark.parametrize("source", ["gaussian", "pancake"])
def test_three_vectors_at_most(source):
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, source], capture_output=True, text=True, check=True
    )
    assert 1.0 < float(done.stdout) < 3.2


def parameters(*shapes, **options):
    return [nn.Parameter(torch.ones(shape, **options)) for shape in shapes or ((3, 2), (4,))]


def optimizer(p=None, *, cls=DPOptimizer, z=1.0, clip=1.0, **options):
    p = parameters() if p is None else p
    options |= {"noise_multiplier": z, "max_grad_norm": clip, "expected_batch_size": 1}
    made = cls(torch.optim.SGD(p, lr=0.1), **options)
    for q in p:
        q.summed_grad = torch.ones_like(q.data)
    return made


def refused(match, source="gaussian", made=None, error=UsageError, **options):
    made = optimizer() if made is None else made
    cls = type(made)
    with pytest.raises(error, match=match):
        use_noise_source(made, source, **options)
    assert type(made) is cls  # nothing half done


def test_optimizers_that_are_not_opacus_own():
    refused("optimizer=SGD: is not Opacus'", made=torch.optim.SGD(parameters(), lr=0.1))
    refused("is not Opacus'", made="optimizer")

    class Own(DPOptimizer):
        def add_noise(self):
            pass

    refused("optimizer=Own: has an add_noise of its own", made=optimizer(cls=Own))
    patched = optimizer()
    patched.add_noise = lambda: None
    refused("has an add_noise of its own", made=patched)
    refused("draws from gaussian already", made=use_noise_source(optimizer(), "gaussian"))


def test_a_subclass_that_leaves_the_draw_alone_is_fine():
    class Own(DPOptimizerFastGradientClipping):
        pass

    made = use_noise_source(optimizer(cls=Own), "gaussian", seed=1)
    made.add_noise()
    assert isinstance(made, Own)
    assert made.params[0].grad.shape == (3, 2)


CLIPPING = {"target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.2}
CLIPPING |= {"unclipped_num_std": 1.0, "max_clipbound": 9.0, "min_clipbound": 0.1}


def test_no_noise_to_draw():
    for z, clip in ((0, 1.0), (math.inf, 1.0)):
        refused("noise_multiplier=", made=optimizer(z=z, clip=clip))
    for z, clip in ((1.0, 0.0), (1.0, math.nan)):
        refused("max_grad_norm=", made=optimizer(z=z, clip=clip))
    made = optimizer(cls=AdaClipDPOptimizer, **CLIPPING)
    made.noise_multiplier = 2.0  # a scheduler's work
    refused(r"noise_multiplier=2.0: must be below 2·unclipped_num_std = 2.0", made=made)


def test_parameters():
    frozen = parameters()
    for p in frozen:
        p.requires_grad_(False)
    refused("parameters=0: .*none that is trainable", made=optimizer(frozen))
    mixed = [*parameters(), *parameters(dtype=torch.float64)]
    refused("dtype=torch.float32, torch.float64: .*one vector", made=optimizer(mixed))
    apart = [*parameters(), *parameters(device="meta")]
    refused("device=cpu, meta: .*model.to", made=optimizer(apart))


def test_parameters_that_change_afterwards():
    made = use_noise_source(optimizer(), "gaussian")
    made.params[1].requires_grad_(False)
    says = r"parameters=6: .*put on for 10, and parameter number 1, shape \(4,\), was frozen"
    with pytest.raises(UsageError, match=says):
        made.add_noise()
    assert made.params[0].grad is None
    made.param_groups[0]["params"][1].requires_grad_(True)
    made.add_noise()
    assert made.params[0].grad is not None

    grown = use_noise_source(optimizer(), "gaussian")
    grown.original_optimizer.add_param_group({"params": parameters((5,))})
    with pytest.raises(UsageError, match="parameters=15"):
        grown.add_noise()


def test_keys_for_another_number_of_parameters(make_key, tmp_path):
    key = make_key(dim=11)
    says = "serves dim=11, and the optimizer has 10 trainable parameters.*dpaudit key new --dim 10"
    refused(says, lambda sigma: Pancake(key=key, sigma=sigma))
    key.save(tmp_path / "key.json")
    refused(says, f"pancake:key={tmp_path / 'key.json'}")
    refused(says, Reference("pancake", {"key": key}))
    refused("cannot be read", "pancake:key=nowhere.json")
    refused("key: source pancake needs it", "pancake")


def test_sources():
    refused("source=naive-laplace: has no option sigma", "naive-laplace")
    refused("source=snapping: has no option sigma", "snapping")
    refused("sigma=2: the optimizer sets σ", "gaussian:sigma=2")
    refused("did you mean 'gaussian'", "gausian", error=UnknownNameError)
    refused("no such option", "gaussian:beta=2", error=UnknownNameError)
    refused("source=Gaussian: must be a name .* or a function of σ", Gaussian(sigma=1.0))
    refused("made a float, which is not a noise source", lambda sigma: sigma)
    says, one = "has sigma=.* where the accountant counts on", Gaussian(sigma=1.0)
    refused(f"{says} 2.0", lambda sigma: one, optimizer(clip=2.0))
    refused(f"{says} 0.3", "discrete-gaussian", optimizer(z=0.3))
    use_noise_source(optimizer(z=2.0), "discrete-gaussian")


def test_mitigations():
    refused("did you mean 'rotation'", mitigation="rotaton", error=UnknownNameError)
    refused("mitigation=3: must be a name", mitigation=3)
    refused("no such option", mitigation="none:tau=1", error=UnknownNameError)
    refused("must be a finite number > 0", mitigation="smoothing:tau=-1")


def test_secure_mode_refuses_a_seed():
    secure = optimizer(secure_mode=True)
    refused("seed: under secure_mode .*leave seed out", made=secure, seed=3)
    later = use_noise_source(optimizer(), "gaussian", seed=3)
    later.secure_mode = True
    with pytest.raises(UsageError, match="leave seed out"):
        later.add_noise()


def test_gradients_that_are_not_finite():
    made = use_noise_source(optimizer(), "gaussian")
    made.params[0].summed_grad[1, 1] = torch.nan
    with pytest.raises(UsageError, match="NaN or infinity"):
        made.add_noise()


class Norms(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.first = nn.BatchNorm2d(2, **options)
        self.rest = nn.Sequential(*[nn.BatchNorm2d(2, **options) for _ in range(4)])


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Norms(), r"BatchNorm in first, rest\.0, rest\.1 and 2 more .*with_norm"),
        (Norms(affine=False), "BatchNorm in first"),  # Opacus itself lets these pass
        (nn.Linear(2, 2).eval(), "evaluation mode"),
        (nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2)), "cannot train its 1: .*LSTM"),
        (nn.InstanceNorm1d(2, affine=True, track_running_stats=True), "Opacus cannot train"),
    ],
)
def test_models_that_cannot_be_trained(model, says):
    with pytest.raises(UsageError, match=says):
        check_model(model)


def test_models():
    check_model(nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Linear(2, 2)))
    settled = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False))
    settled[1].eval()
    check_model(settled)
