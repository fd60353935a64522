"""Real steps of training loops: what the audit finds, what it leaves, and who hears of errors."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support.one_thread import one_thread

import dpaudit
from dpaudit.errors import SamplerError, UsageError

torch = pytest.importorskip("torch")

from support import step_processes, wrong_steps  # noqa: E402
from support.step_processes import CLAIM, loss, names, network  # noqa: E402
from torch import nn  # noqa: E402
from torch.multiprocessing.spawn import spawn  # noqa: E402

from dpaudit.step_audit.checks import Releases  # noqa: E402
from dpaudit.step_audit.observe import Layout  # noqa: E402
from dpaudit.step_audit.oracle import ALONE, CLIPPED, RAW, plain_copy  # noqa: E402

__all__ = ["one_thread"]

pytestmark = pytest.mark.filterwarnings("ignore")


class Plain:
    """DP-SGD in one process by one backward per record; ``noise(g, index)`` is added to the sum."""

    def __init__(self, noise=None, clip=True, after=None, learning_rate=None):
        self.model, *self.batch = network()
        self.parameters = list(self.model.parameters())
        self.optimizer = None
        if learning_rate is None:
            self.optimizer = torch.optim.SGD(self.parameters, lr=0.1, momentum=0.9)
        self.noise, self.clip, self.after, self.rate = noise, clip, after, learning_rate
        self.generator = torch.Generator().manual_seed(2**40 + 3_141_592_653)

    def step(self, batch):
        sums = [torch.zeros_like(p) for p in self.parameters]
        for i in range(len(batch[0])):
            value = loss(self.model, [t[i : i + 1] for t in batch])
            own = torch.autograd.grad(value, self.parameters)
            norm = torch.cat([g.reshape(-1) for g in own]).norm()
            for total, g in zip(sums, own, strict=True):
                total += g * (min(1.0, 1 / norm) if self.clip else 1.0)
        for k, (p, g) in enumerate(zip(self.parameters, sums, strict=True)):
            z = torch.randn(g.shape, generator=self.generator)
            p.grad = (g + (z if self.noise is None else self.noise(z, k))) / len(batch[0])
            if self.optimizer is None:
                p.data -= self.rate * p.grad
        if self.optimizer is not None:
            self.optimizer.step()
        if self.after:
            self.after(self)

    def audit(self, **options):
        options = {"learning_rate": self.rate} | CLAIM | options
        return dpaudit.audit_optimizer(
            self.optimizer, model=self.model, step=self.step, batch=self.batch, loss=loss, **options
        )


def test_nothing_is_found_in_a_right_step_and_everything_is_as_before():
    plain = Plain()
    plain.step(plain.batch)
    before = [p.clone() for p in plain.parameters]
    states = [torch.get_rng_state(), plain.generator.get_state()]
    momentum = plain.optimizer.state[plain.parameters[0]]["momentum_buffer"].clone()
    result = dpaudit.assert_private_step(
        plain.optimizer, model=plain.model, step=plain.step, batch=plain.batch, loss=loss, **CLAIM
    )
    assert result.verdict == "no-finding"
    assert (result.records, result.parameters) == (8, 676)
    assert all(torch.equal(a, b) for a, b in zip(before, plain.parameters, strict=True))
    assert torch.equal(states[0], torch.get_rng_state())
    assert torch.equal(momentum, plain.optimizer.state[plain.parameters[0]]["momentum_buffer"])
    assert plain.model[1].p == 0.3
    assert "a wrong sample rate" in {spot.flaw for spot in result.cannot_rule_out}
    assert "StepResult: no-finding" in repr(result)


def test_a_loop_without_an_optimizer():
    assert Plain(learning_rate=0.1).audit().verdict == "no-finding"
    assert "noise in total" in names(Plain(noise=lambda z, k: z / 2, learning_rate=0.1).audit())


def frozen(plain):
    plain.model[0].bias.requires_grad_(False)


def drift(plain):
    plain.model[0].bias.data += 0.01


KEPT = {}
WRONG = {
    "noise in total": {"noise": lambda z, k: 0.8 * z},
    "noise of single parameters": {"noise": lambda z, k: z * (1 + (k == 1))},
    "parameters without noise": {"noise": lambda z, k: z * (k != 3)},
    "noise repeats": {"noise": lambda z, k: KEPT.setdefault(k, z)},
    "noise precision": {"noise": lambda z, k: z.half().float()},
    "Gaussian noise": {"noise": lambda z, k: torch.sign(z)},
    "equal noise": {"noise": lambda z, k: torch.randn(z.shape, generator=fresh(z))},
    "predictable noise": {"noise": lambda z, k: torch.randn(z.shape, generator=fresh(z))},
    "clipping": {"clip": False},
    "signal": {"noise": lambda z, k: z, "clip": "none"},
}


def fresh(z):
    return torch.Generator().manual_seed(7 + int(1000 * z.reshape(-1)[0].abs()) % 3)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_is_found_by_name(name):
    KEPT.clear()
    plain = Plain(**WRONG[name])
    if name == "signal":  # opacus#820: whatever the gradients are, noise alone
        plain.step = partial(useless, plain)
    assert name in names(plain.audit())


def useless(plain, batch):
    for p in plain.parameters:
        p.grad = torch.randn(p.shape, generator=plain.generator) / len(batch[0])
    plain.optimizer.step()


def test_a_frozen_parameter_that_changes_is_found():
    plain = Plain(after=drift)
    plain.model[0].bias.requires_grad_(False)
    plain.parameters = [p for p in plain.model.parameters() if p.requires_grad]
    plain.optimizer = torch.optim.SGD(plain.parameters, lr=0.1)
    result = plain.audit()
    assert names(result) == {"changes outside the optimizer"}
    assert result.findings[0].effect == "0.bias"


def test_the_report_names_the_finding_and_the_error_is_its_text():
    plain = Plain(clip=False)
    result = plain.audit()
    report = dpaudit.report.describe(result)
    assert "clipping" in {check.name for check in report.findings}
    assert "not as claimed" in report.headline
    with pytest.raises(AssertionError, match=r"clipping: .* without clipping"):
        dpaudit.assert_private_step(
            plain.optimizer, model=plain.model, step=plain.step, batch=plain.batch, loss=loss,
            **CLAIM,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"repeats": 9}, "repeats=9"),
        ({"max_grad_norm": 0}, "max_grad_norm=0"),
        ({"noise_multiplier": None}, "noise_multiplier=None"),
        ({"delta": 1e-5}, "delta: no such option"),
    ],
)
def test_usage_errors(options, says):
    with pytest.raises(UsageError, match=says):
        Plain().audit(**options)


def test_a_step_that_never_steps_and_one_that_raises():
    plain = Plain()
    plain.step = lambda batch: None
    with pytest.raises(UsageError, match="reached the inner optimizer 0 times"):
        plain.audit()
    plain.step = lambda batch: 1 / 0
    with pytest.raises(SamplerError, match="step raised ZeroDivisionError"):
        plain.audit()


@pytest.mark.parametrize("mode", ["hooks", "ghost", "functorch"])
def test_opacus_and_its_accountant(mode):
    opacus = pytest.importorskip("opacus")
    from torch.utils.data import DataLoader, TensorDataset

    model, x, y = network()
    data = TensorDataset(x.repeat(8, 1), y.repeat(8))
    engine = opacus.PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters()),
        data_loader=DataLoader(data, batch_size=8),
        criterion=nn.CrossEntropyLoss(),
        noise_generator=torch.Generator().manual_seed(2**40 + 2_718_281_828),
        grad_sample_mode=mode,
        **CLAIM,
    )
    private, optimizer = made[:2]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

    def step(batch):
        optimizer.zero_grad()
        criterion(private(batch[0]), batch[1]).backward()
        optimizer.step()

    audit = partial(
        dpaudit.audit_optimizer, made, model=private, step=step, batch=(x, y), loss=loss
    )
    assert audit(data_records=64).verdict == "no-finding"
    assert engine.accountant.history == []
    assert names(audit(data_records=640)) == {"sample rate"}
    assert names(audit(noise_multiplier=0.9)) >= {"noise in total", "accountant"}


def test_a_plain_copy_has_no_hooks_and_the_same_ties():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    copy = plain_copy(model)
    assert copy[0].weight is copy[1].weight
    assert copy[0].weight is not model[0].weight
    assert torch.equal(copy(torch.ones(1, 4)), model(torch.ones(1, 4)))
    assert len(calls) == 1


def test_honest_releases_are_accused_at_most_as_often_as_alpha_says():
    rng = np.random.default_rng(1)
    parts = [("a", 0, Layout((0, 0), (8, 16), 128)), ("b", 0, Layout((0,), (40,), 40))]
    accused, times, alpha = 0, 400, 0.05
    for _ in range(times):
        s = rng.normal(size=168)
        sums = {CLIPPED: s, RAW: 5 * s, ALONE: s * rng.uniform(1, 2, 168)}
        x = s + rng.normal(size=(16, 168))
        releases = Releases(parts, x, sums, processes=2, micro=1)
        noise = releases.noise(alpha=alpha, bound=1.0, same=False, seeds=[], units=(1.0, 0.1))
        p = [one.p for one in (*noise, *releases.sums(tolerance=0.01))]
        accused += dpaudit.stats.bonferroni(p) <= alpha
    assert accused <= 34  # P(Binomial(400, 0.05) > 34) < 0.001


# ---------------------------------------------------------------- several processes


def together(tmp_path, function, *arguments, world=2):
    spawn(step_processes.work, (world, str(tmp_path / "store"), function, *arguments), nprocs=world)


@pytest.mark.slow
def test_two_processes_find_a_bug_and_agree_on_errors(tmp_path):
    together(tmp_path, step_processes.two_processes)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_each_planted_bug_is_found_and_named(tmp_path, world):
    bugs = list(wrong_steps.BUGS)
    if world == 4:  # as many as micro-steps: both causes are named
        bugs.remove("noise in each micro-step")
    together(tmp_path, step_processes.find_bugs, bugs, world=world)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_right_steps_are_not_accused(tmp_path, world):
    together(tmp_path, step_processes.find_nothing, list(wrong_steps.HONEST), world=world)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_opacus_in_several_processes(tmp_path, world):
    pytest.importorskip("opacus")
    together(tmp_path, step_processes.opacus_everywhere, world=world)


@pytest.mark.slow
def test_lora_of_a_transformer():
    transformers, peft = (pytest.importorskip(name) for name in ("transformers", "peft"))
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(config)
    lora = peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS")
    model = peft.get_peft_model(model, lora).train()
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    private = GradSampleModule(model)
    trained = [p for p in private.parameters() if p.requires_grad]
    optimizer = DPOptimizer(
        torch.optim.SGD(trained, lr=0.1), noise_multiplier=1.0, max_grad_norm=0.1,
        expected_batch_size=8, generator=torch.Generator().manual_seed(2**40 + 2_718_281_828),
    )  # fmt: skip

    def step(batch):
        optimizer.zero_grad()
        private(**batch).loss.backward()
        optimizer.step()

    ids = torch.randint(0, 100, (8, 12))
    batch = {"input_ids": ids, "labels": torch.randint(0, 2, (8,))}
    result = dpaudit.audit_optimizer(optimizer, model=private, step=step, batch=batch)
    assert result.verdict == "no-finding", str(result)
