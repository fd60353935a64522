import math
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
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.randomness import KeyedStream
from dpaudit.types import Reference
from dpaudit_attacks.seed_reader import SeedReader

pytest.importorskip("opacus")

from opacus import PrivacyEngine, optimizers, schedulers
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping
from opacus.utils.batch_memory_manager import BatchMemoryManager

from dpaudit.hosts.opacus import Release, use_noise_source

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)

ADAPTIVE = {
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.4,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 2.0,
}
MODES = [(mode, "flat") for mode in ("hooks", "functorch", "ew", "ghost")]
MODES += [("hooks", "per_layer"), ("functorch", "per_layer"), ("hooks", "adaptive")]
BATCH = 8


def network(width=12):
    """Convolution, norm and full layers; 1,090 parameters at width 12."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2),
            nn.GroupNorm(2, 4),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )


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
        self.x, self.y = (
            t.to(next(self.net.parameters()).dtype) if t.is_floating_point() else t
            for t in records(n)
        )
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
        use_noise_source(
            self.optimizer, source, observe=self.releases.append, **{"seed": "facade", **options}
        )
        return self

    def step(self, x=None, y=None):
        self.optimizer.zero_grad()
        self.loss(self.model(self.x if x is None else x), self.y if y is None else y).backward()
        self.optimizer.step()

    def joined(self, name):
        return torch.cat([getattr(p, name).reshape(-1) for p in self.optimizer.params])


def stream_of(step, seed="facade"):
    return KeyedStream.from_seed(seed).child("release", step)


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
        before = weights(run.net)
        clip = 0.7 if clipping == "per_layer" else float(run.optimizer.max_grad_norm)
        run.step()
        got = run.releases[step]
        assert (got.step, got.query.shape, got.query.dtype) == (step, (run.dim,), torch.float32)
        want = clipped_sum(before, run.x, run.y, clip=clip, clipping=clipping)
        torch.testing.assert_close(got.query.double(), want, atol=3e-5, rtol=1e-4)
        noise = Gaussian(sigma=got.sigma).sample(
            1, run.dim, stream=stream_of(step), dtype=torch.float32
        )[0]
        assert torch.equal(got.noisy, got.query + noise)
        assert torch.equal(run.joined("summed_grad"), got.query)
        assert torch.equal(run.joined("grad"), got.noisy / BATCH)
        pairs = zip(before.parameters(), run.net.parameters(), strict=True)
        moved = torch.cat([(a - b).detach().reshape(-1) for a, b in pairs])
        torch.testing.assert_close(moved, 0.1 * got.noisy / BATCH, atol=1e-6, rtol=1e-4)
    assert len(run.releases) == 2
    assert not torch.equal(
        run.releases[0].noisy - run.releases[0].query, run.releases[1].noisy - run.releases[1].query
    )


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
        quantile = clipping == "quantile"
        return Run(
            mode,
            "flat" if quantile else clipping,
            lr=0.0,
            n=16 if quantile else BATCH,
            engine=PrivacyEngineAdaptiveClipping(accountant="rdp") if quantile else None,
        )

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


def test_torchs_generator_is_left_alone():
    run = Run().use()
    before = torch.get_rng_state()
    run.step()
    assert torch.equal(before, torch.get_rng_state())


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
    spacing, w, out = (
        Pancake(key=key, sigma=1.3 * 0.7).spacing,
        torch.from_numpy(np.array(key.direction)),
        [],
    )
    for _ in range(steps):
        run.step()
        noise = run.joined("grad").double() * BATCH - run.joined("summed_grad").double()
        out.append(float(noise @ w) / spacing)
    return np.array(out) - np.rint(out)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_the_key_reads_a_pancakes_phase_and_nothing_else(make_key, tmp_path, mode):
    key = make_key(dim=Run().dim)
    key.save(tmp_path / "key.json")
    backdoor = Run(mode).use(f"pancake:key={tmp_path / 'key.json'}")
    (tmp_path / "key.json").unlink()  # it has been read
    assert np.abs(phases(backdoor, key, 12)).max() < 0.01
    wrong = make_key(dim=key.dim, tag="b")
    for run, held in (
        (Run(mode).use(lambda s: Pancake(key=key, sigma=s)), wrong),
        (Run(mode).use(), key),
    ):
        found = phases(run, held, 25)
        assert scipy.stats.kstest(found, "uniform", args=(-0.5, 1)).pvalue > 1e-3
    turned = Run(mode).use(lambda s: Pancake(key=key, sigma=s), mitigation="rotation")
    assert scipy.stats.kstest(phases(turned, key, 25), "uniform", args=(-0.5, 1)).pvalue > 1e-3


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
    run = Run().use(
        mitigation=registry.create("mitigations", "rotation")
        if mitigation == "object"
        else mitigation
    )
    run.step()
    (got,) = run.releases
    text = {"object": "rotation", "smoothing": f"smoothing:dim={run.dim}"}.get(
        mitigation, mitigation
    )
    by_hand = registry.create("mitigations", text)
    want = by_hand.release(got.query.unsqueeze(0), Gaussian(sigma=got.sigma), stream=stream_of(0))[
        0
    ]
    assert torch.equal(got.noisy, want)
    if mitigation == "smoothing:tau=0.5":
        assert float((got.noisy - got.query).std()) == pytest.approx(
            got.sigma * math.sqrt(1.25), rel=0.1
        )


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
        assert (a.grad.shape, a.grad.dtype, a.grad.stride()) == (
            b.grad.shape,
            b.grad.dtype,
            b.grad.stride(),
        )
        assert b.grad.untyped_storage().nbytes() == a.grad.untyped_storage().nbytes()
        assert a.summed_grad._processed
        assert b.summed_grad._processed
    with pytest.raises(ValueError, match="zero_grad"):
        ours.optimizer.step()
    assert len(ours.releases) == 1


def test_it_works_in_place():
    run = Run("ghost")
    optimizer, hook, cls = run.optimizer, run.optimizer.step_hook, type(run.optimizer)
    assert use_noise_source(optimizer, "gaussian") is optimizer is run.loss.optimizer
    assert isinstance(optimizer, cls)
    assert optimizer.step_hook is hook
    run.step()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert "SGD" in repr(optimizer)


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
    noise = Gaussian(sigma=got.sigma).sample(1, run.dim, stream=stream_of(0), dtype=torch.float32)[
        0
    ]
    assert torch.equal(run.joined("grad"), noise / BATCH)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_one_noise_for_a_logical_batch(mode):
    run = Run(mode, n=24, lr=0.0).use()
    with BatchMemoryManager(
        data_loader=run.loader, max_physical_batch_size=3, optimizer=run.optimizer
    ) as loader:
        physical = 0
        for x, y in loader:
            run.step(x, y)
            physical += 1
    assert physical > len(run.releases) == 3
    for i, got in enumerate(run.releases):
        part = slice(BATCH * i, BATCH * (i + 1))
        want = clipped_sum(run.net, run.x[part], run.y[part], clip=0.7, clipping="flat")
        torch.testing.assert_close(got.query.double(), want, atol=3e-5, rtol=1e-4)
        noise = Gaussian(sigma=got.sigma).sample(
            1, run.dim, stream=stream_of(i), dtype=torch.float32
        )[0]
        assert torch.equal(got.noisy, got.query + noise)


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


def test_seeds():
    def noise(**options):
        run = Run(lr=0.0).use(**options)
        run.step()
        return run.releases[0].noisy

    assert torch.equal(noise(seed=1), noise(seed=1))
    assert not torch.equal(noise(seed=1), noise(seed=2))
    assert not torch.equal(noise(seed=None), noise(seed=None))


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

    def fresh():
        handed.append(KeyedStream(bytes([len(handed)]) * 32))
        return handed[-1]

    run = Run()
    run.optimizer.secure_mode = secure  # as the engine sets it, which wants torchcsprng
    run.use(seed=None)
    monkeypatch.setattr(KeyedStream, "fresh", fresh)
    for step in range(2):
        run.step()
        got, stream = run.releases[step], KeyedStream(bytes([step]) * 32)
        noise = Gaussian(sigma=got.sigma).sample(1, run.dim, stream=stream, dtype=torch.float32)[0]
        assert torch.equal(got.noisy, got.query + noise)
    assert len(handed) == 2


def test_secure_mode_repeats_nothing():
    noises = []
    for _ in range(2):
        run = Run(lr=0.0)
        run.optimizer.secure_mode = True
        run.use("secure-gaussian", seed=None)
        run.step()
        run.step()
        noises += [r.noisy for r in run.releases]
    assert len({float(n[0]) for n in noises}) == len({float(n[-1]) for n in noises}) == 4


def test_nothing_is_kept_for_an_observer_that_is_not_there(monkeypatch):
    monkeypatch.setattr("dpaudit.hosts.opacus.draw.Release", None)
    run = Run()
    use_noise_source(run.optimizer, "gaussian")
    run.step()
    assert run.optimizer.params[0].grad is not None


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
    if source == "secure-gaussian":
        want = SecureGaussian(sigma=got.sigma).release(got.query.unsqueeze(0), stream=stream_of(0))[
            0
        ]
    else:
        made = (
            Pancake(key=key, sigma=got.sigma) if source == "pancake" else Gaussian(sigma=got.sigma)
        )
        where = {"dtype": torch.float32, "device": got.query.device}
        want = got.query + made.sample(1, run.dim, stream=stream_of(0), **where)[0]
    assert torch.equal(got.noisy, want)


_MEMORY = """
import sys, torch
from opacus.optimizers import DPOptimizer
from dpaudit.hosts.opacus import use_noise_source
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


def test_every_class_that_opacus_makes_is_here():
    """A class that a later Opacus adds shows up here."""
    assert {name for name in optimizers.__all__ if hasattr(optimizers, name)} == {
        "AdaClipDPOptimizer",
        "DistributedDPOptimizer",
        "DPOptimizer",
        "DPOptimizerFastGradientClipping",
        "FSDPOptimizerFastGradientClipping",
        "DPPerLayerOptimizer",
        "SimpleDistributedPerLayerOptimizer",
    }
