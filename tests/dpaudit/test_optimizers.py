"""One step of an Opacus optimizer: what the audit finds, what it does not, and what it leaves."""

from __future__ import annotations

import math
import random
import re
from types import MethodType

import numpy as np
import pytest
from support.one_thread import one_thread

import dpaudit
from dpaudit.errors import SamplerError, UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine, optimizers  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from dpaudit.noise.key import PancakeKey  # noqa: E402
from dpaudit.optimizers import _Blocks, _coordinates, _step  # noqa: E402
from dpaudit.queries.opacus import use_noise_source  # noqa: E402
from dpaudit.queries.opacus.dry_run import dry_run  # noqa: E402

__all__ = ["one_thread"]

pytestmark = pytest.mark.filterwarnings("ignore")
FEW = {"samples": 1e5, "releases": 1_000, "seed": 1, "alpha": 1e-5}
PARAMETERS = 544


def private(**options):
    """An engine, and what its make_private returns for a small network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = nn.Linear(16, 32)
        x, y = torch.randn(64, 16), torch.randint(0, 32, (64,))
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=16),
        **({"noise_multiplier": 1.1, "max_grad_norm": 0.5} | options),
    )
    return engine, made


def optimizer(**options):
    return private(**options)[1][1]


def own_noise(noise):
    """An optimizer that adds ``noise(what it keeps, std, summed gradient, parameter)``."""
    made, kept = optimizer(), {}

    def add_noise(self):
        for p in self.params:
            std = self.noise_multiplier * self.max_grad_norm
            p.grad = (p.summed_grad + noise(kept, std, p.summed_grad, p)).view_as(p)

    made.add_noise = MethodType(add_noise, made)
    return made


def train(made, batches=1):
    model, dp, loader = made
    for x, y in list(loader)[:batches]:
        dp.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        dp.step()


# ---------------------------------------------------------------- what is found


def unclipped(which=slice(None)):
    made = optimizer()
    own = made.clip_and_accumulate

    def clip(self):
        own()
        for p in self.params[which]:
            p.summed_grad = p.grad_sample.sum(0)

    made.clip_and_accumulate = MethodType(clip, made)
    return made


NOISE = {
    "halved": lambda kept, std, g, p: torch.randn_like(g) * std / 2,
    "half precision": lambda kept, std, g, p: (torch.randn_like(g).half() * std).float(),
    "reused": lambda kept, std, g, p: kept.setdefault(p, torch.randn_like(g) * std),
    "twice": lambda kept, std, g, p: (
        kept.pop(p) if p in kept else kept.setdefault(p, torch.randn_like(g) * std)
    ),
    "none for a bias": lambda kept, std, g, p: torch.randn_like(g) * std * (p.ndim > 1),
    "less for large gradients": lambda kept, std, g, p: (
        torch.randn_like(g) * std * (1 - 0.6 * bool(g.any()))
    ),
}


@pytest.mark.parametrize(
    "flaw",
    [
        "halved",
        "no clipping of one parameter",
        *(pytest.param(flaw, marks=pytest.mark.slow) for flaw in [*NOISE, "no clipping"][1:]),
    ],
)
def test_flaws_are_found(flaw):
    one = slice(-1 if flaw.endswith("parameter") else None, None)
    made = own_noise(NOISE[flaw]) if flaw in NOISE else unclipped(one)
    result = dpaudit.audit_optimizer(made, **FEW)
    by = {"less for large gradients": "step"}.get(flaw, "noise" if flaw in NOISE else "clipping")
    assert result.verdict == getattr(result, by).verdict == "finding"
    assert result.cannot_rule_out == ()
    assert flaw != "twice" or "repeats" in {t.name for t in result.noise.tests if t.finding}


@pytest.mark.slow
def test_the_error_is_the_verdict_and_how_to_see_it_again():
    with pytest.raises(AssertionError) as caught:
        dpaudit.assert_private_step(unclipped(), **FEW)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("Finding: a step of DPOptimizer is not as claimed: clipping")
    assert "dpaudit.audit_optimizer(optimizer, alpha=1e-05, seed='1', …)" in lines[-1]


@pytest.mark.slow
def test_a_larger_noise_multiplier_than_the_optimizers_is_found():
    claim = {"noise_multiplier": 1.3, "max_grad_norm": 0.4}
    result = dpaudit.audit_optimizer(optimizer(), **claim, **FEW)
    assert result.noise.verdict == "finding"
    assert result.noise.claim == "gaussian:sigma=0.52"
    assert result.step.claim_mu == pytest.approx(1 / 1.3)
    assert re.search(r"scale 1\.0\d+ × claimed", " ".join(str(result).split()))  # 0.55 / 0.52
    assert result.clipping.verdict == "finding"


@pytest.mark.slow
def test_a_pancake_is_not_found_and_the_result_says_so(tmp_path):
    PancakeKey.new(dim=PARAMETERS, beta=1e-4).save(tmp_path / "key.json")
    seen = []
    made = use_noise_source(
        optimizer(), f"pancake:key={tmp_path / 'key.json'}", observe=seen.append
    )
    result = dpaudit.assert_private_step(made, **FEW)
    assert result.verdict == "no-finding"
    flaws = {spot.flaw for spot in result.cannot_rule_out}
    assert any(flaw.startswith("Gaussian pancake with γ ≥ 2√d") for flaw in flaws)
    assert "batches that are not drawn as the accountant assumes" in flaws
    assert seen == []
    assert made.joint_draw.step == 0
    assert made.joint_draw.observe is not None


@pytest.mark.slow
def test_noise_that_a_mitigation_adds_is_expected():
    made = use_noise_source(optimizer(), "gaussian", mitigation="smoothing:tau=0.3")
    result = dpaudit.audit_optimizer(made, **FEW)
    assert result.verdict == "no-finding"
    assert result.noise.claim == f"gaussian:sigma={0.55 * 1.09**0.5:.12g}"
    assert result.step.claim_mu == pytest.approx(1 / 1.1)


# ---------------------------------------------------------------- what it says


@pytest.mark.slow
def test_a_pass_relates_the_run_to_one_step():
    engine, made = private()
    train(made, batches=3)
    result = dpaudit.audit_optimizer(made, engine=engine, **FEW)
    assert result.verdict == "no-finding"
    assert result.step_epsilon == pytest.approx(3.921, abs=1e-3)
    assert result.step.claim_mu == pytest.approx(1 / 1.1)
    assert result.run_epsilon == pytest.approx(engine.get_epsilon(1e-5))
    assert f"the run's ε is {result.run_epsilon:.3g} after 3 steps" in result.note
    assert "\n" not in repr(result) + repr(result.clipping)
    assert result.note in " ".join(str(result).split())
    assert max(map(len, str(result).splitlines())) <= 90
    html = result._repr_html_()
    assert "clipping" in html
    assert result.note.split("; ")[1].partition("s ε")[2] in html


@pytest.mark.slow
def test_the_same_seed_gives_the_same_result():
    first, second = (dpaudit.audit_optimizer(optimizer(), **FEW) for _ in range(2))
    moments = [{t.name: t.p for t in r.noise.tests}["moments"] for r in (first, second)]
    assert moments[0] == moments[1] < 1
    assert first.step.epsilon == second.step.epsilon


# ---------------------------------------------------------------- what it leaves behind


@pytest.mark.slow
def test_everything_is_as_before():
    engine, made = private()
    train(made, batches=2)
    model, dp, loader = made
    x, y = next(iter(loader))
    dp.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()  # in the middle of a step
    dp.generator = torch.Generator().manual_seed(3)
    before = {
        "values": [p.detach().clone() for p in dp.params],
        "momentum": [dp.state[p]["momentum_buffer"].clone() for p in dp.params],
    }
    objects = [
        (p.grad, p.grad_sample, p.summed_grad, dp.state[p]["momentum_buffer"]) for p in dp.params
    ]
    attributes = [dict(vars(one)) for one in (dp, dp.original_optimizer)]
    history = list(engine.accountant.history)
    states = (torch.get_rng_state(), dp.generator.get_state(), random.getstate())
    legacy = np.random.get_state()

    dpaudit.audit_optimizer(dp, **FEW)

    assert all(torch.equal(a, b) for a, b in zip(dp.params, before["values"], strict=True))
    for p, kept, momentum in zip(dp.params, objects, before["momentum"], strict=True):
        now = (p.grad, p.grad_sample, p.summed_grad, dp.state[p]["momentum_buffer"])
        assert all(a is b for a, b in zip(now, kept, strict=True))
        assert torch.equal(now[-1], momentum)
    for one, known in zip((dp, dp.original_optimizer), attributes, strict=True):
        assert vars(one).keys() == known.keys()
        assert all(vars(one)[name] is value for name, value in known.items())
    assert engine.accountant.history == history
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(dp.generator.get_state(), states[1])
    assert random.getstate() == states[2]
    assert (np.random.get_state()[1] == legacy[1]).all()
    dp.step()  # the gradients of before the audit still make a step
    assert len(engine.accountant.history) == len(history)
    assert engine.accountant.history[-1][2] == history[-1][2] + 1


def test_a_failed_audit_and_an_optimizer_of_ones_own_leave_nothing_either():
    made = optimizer()
    values = [p.detach().clone() for p in made.params]

    def add_noise(self):
        random.random()
        with torch.no_grad():
            self.params[0].add_(1)
        self.passed_on = "a secret"
        raise RuntimeError("broken")

    made.add_noise = MethodType(add_noise, made)
    state = random.getstate()
    with pytest.raises(RuntimeError, match="broken"):
        dpaudit.audit_optimizer(made, **FEW)
    assert all(torch.equal(a, b) for a, b in zip(made.params, values, strict=True))
    assert not hasattr(made, "passed_on")
    assert random.getstate() == state
    assert "step" not in vars(made.original_optimizer)


# ---------------------------------------------------------------- other optimizers


ADAPTIVE = {
    "clipping": "adaptive", "target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.4,
    "max_clipbound": 10.0, "min_clipbound": 0.1, "unclipped_num_std": 2.0,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"clipping": "per_layer", "max_grad_norm": [0.4, 0.1]},
        ADAPTIVE,
        {"loss_reduction": "sum"},
        {"grad_sample_mode": "functorch"},
    ],
)
def test_opacus_optimizers_pass(options):
    made = optimizer(**options)
    bound = made.max_grad_norm
    scheduler = torch.optim.lr_scheduler.StepLR(made, step_size=1)
    result = dpaudit.audit_optimizer(made, **FEW)
    assert result.verdict == "no-finding"
    assert result.clipping.largest <= float(bound) * 1.01
    assert made.max_grad_norm is bound
    assert scheduler.last_epoch == 0


def test_what_cannot_be_audited_is_refused():
    plain = torch.optim.SGD([nn.Parameter(torch.zeros(3))], lr=1.0)
    ghost = private(grad_sample_mode="ghost", criterion=nn.CrossEntropyLoss())[1]
    silent, frozen, apart = (optimizer() for _ in range(3))
    silent.step = lambda: None
    for p in frozen.params:
        p.requires_grad_(False)
    apart.__class__, apart.world_size = optimizers.DPOptimizer, 2
    for given, says in (
        (plain, "optimizer=SGD"),
        ((plain,), "a tuple with 0"),
        (ghost[1], "ghost clipping"),
        (optimizer(noise_multiplier=0.0), "noise_multiplier=0.0"),
        (silent, "inner optimizer"),
        (frozen, "parameters=0"),
        (apart, "together with other processes"),
    ):
        with pytest.raises(UsageError, match=says):
            dpaudit.audit_optimizer(given, **FEW)
    wrong = {"noise_multiplier": 0.0, "max_grad_norm": math.inf, "delta": 2.0, "alpha": 2.0}
    for option, value in (wrong | {"releases": 500, "engine": plain}).items():
        with pytest.raises(UsageError, match=option):
            dpaudit.audit_optimizer(optimizer(), **FEW | {option: value})
    with pytest.raises(SamplerError):
        dpaudit.audit_optimizer(own_noise(lambda kept, std, g, p: g * math.nan), **FEW)


def test_a_large_gradient_is_looked_at_in_every_parameter():
    sizes = (3, 5_000_000, 1, 70_000, 9)
    kept = _coordinates(sizes)
    assert len(kept) < 70_000
    assert len(set(kept)) == len(kept)
    ends = np.cumsum((0, *sizes))
    per = np.histogram(kept, bins=ends)[0]
    assert list(per[[0, 2, 4]]) == [3, 1, 8]
    assert (per > 0).all()
    assert list(_coordinates((2, 3))) == [0, 1, 2, 3, 4]


def test_a_step_gives_one_release_for_each_block():
    with dry_run(optimizer(), seed="1") as dry:
        blocks = _Blocks(dry.dim)
        records = blocks.records(dry, 3.0)
        assert blocks.count == 16
        assert torch.allclose(records.norm(dim=1), torch.tensor(3.0))
        assert ((records != 0).sum(0) <= 1).all()
        assert np.allclose(blocks.along(records.sum(0)), 3.0)
        step = _step(dry, 0.5, blocks)
        without, with_one = (step(value, 2_000) for value in (0.0, 1.0))
    assert abs(without.mean()) < 5 * 0.55 / 2_000**0.5
    assert abs(with_one.mean() - 0.5) < 5 * 0.55 / 2_000**0.5
    assert abs(without.std() / 0.55 - 1) < 5 / 4_000**0.5
    assert [_Blocks(dim).count for dim in (1, 5, 1 << 24, 1 << 30)] == [1, 5, 8, 1]
