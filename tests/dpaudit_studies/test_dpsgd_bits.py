"""``dpsgd-bits`` names the batch; ``opacus-replay`` goes from one step to all later ones."""

import numpy as np
import pytest
import torch

from dpaudit.errors import SpecError, UnknownNameError, UsageError
from dpaudit.experiments.measure import Cell
from dpaudit.randomness import KeyedStream
from dpaudit.types import Reference
from dpaudit_attacks.state_recovery.state_recovery import StateRecovery
from dpaudit_studies import dpsgd_bits, opacus_replay
from dpaudit_studies.opacus_replay import OpacusReplayGrid

pytest.importorskip("opacus")

SMALL = "model=mlp,batch=16"


def run(text, *, trials=100):
    given = Reference.parse(text)
    case = {"name": given.name, **given.options}
    return dpsgd_bits.measure(
        Cell("dpsgd-bits", {"grid": {"case": case}, "seed": "1", "trials": trials}), None
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        f"reach:{SMALL}",
        f"reach:{SMALL},secure_mode=true,noise_multiplier=8,neighbour=replace",
        f"reach:{SMALL},secure_mode=true,reduction=sum",
        "reach:model=mlp,batch=12,secure_mode=true",  # the mean over 12 rounds
        f"pair-inversion:{SMALL},noise_multiplier=4",
    ],
)
def test_the_batch_is_named_beyond_the_published_rate(case):
    row = run(case)
    assert row["success"]["low"] > dpsgd_bits.PUBLISHED
    assert row["infeasible_true"] == 0
    assert row["infeasible_false_least"] > 0
    assert row["sums_equal"] == 1
    assert row["epsilon"] > 2.4


@pytest.mark.slow
def test_an_attacker_who_adds_up_in_another_order_still_names_it():
    row = run("reach:model=mlp,batch=64,secure_mode=true,order=unknown")
    assert row["sums_equal"] < 0.6
    assert row["infeasible_true"] > 0
    assert row["success"]["low"] > 0.8


@pytest.mark.slow
def test_weights_alone_say_less_and_never_rule_out_the_truth():
    seen = run(f"reach:{SMALL},secure_mode=true,lr=0.05")
    whole = run(f"reach:{SMALL},secure_mode=true")
    assert seen["infeasible_true"] == 0
    assert seen["success"]["low"] > seen["ideal"]
    assert seen["infeasible_false"] < whole["infeasible_false"] / 4


@pytest.mark.slow
def test_nothing_is_learnt_where_value_and_noise_share_a_coarse_lattice(monkeypatch):
    from dpaudit.queries.gradients.step import DpSgdStep

    exact = DpSgdStep.value

    def value(self, records):
        return np.rint(exact(self, records) * 2**10) / 2**10

    def releases(self, records, n, *, noise_multiplier, secure_mode, stream):
        noise = stream.numpy().standard_normal((n, self.dim)) * noise_multiplier * self.clip
        return (self.value(records) + np.rint(noise * 2**10) / 2**10) / self.divisor

    monkeypatch.setattr(DpSgdStep, "value", value)
    monkeypatch.setattr(DpSgdStep, "releases", releases)
    row = run(f"reach:{SMALL},noise_multiplier=50", trials=200)
    assert row["infeasible_true"] == row["infeasible_false"] == 0
    assert row["success"]["low"] < 0.5 < row["success"]["high"]
    assert row["epsilon"] <= row["epsilon_claimed"] or row["epsilon"] == 0


@pytest.mark.slow
def test_the_claim_counts_a_replaced_record_twice():
    removed = run(f"reach:{SMALL},noise_multiplier=2")
    replaced = run(f"reach:{SMALL},noise_multiplier=4,neighbour=replace")
    assert removed["epsilon_claimed"] == pytest.approx(replaced["epsilon_claimed"])
    assert removed["ideal"] == pytest.approx(0.598706, abs=1e-6)  # Φ(1/4)


BAD = {
    "order=maybe": SpecError, "lr=-1": SpecError, "secure_mode=maybe": SpecError,
    "noise_multiplier=much": SpecError, "clips=2": UnknownNameError,
    "noise_multiplier=0": UsageError,
}  # fmt: skip


@pytest.mark.parametrize("option", BAD)
def test_bad_options(option):
    with pytest.raises(BAD[option], match=option.partition("=")[0].removesuffix("s")):
        run(f"reach:{SMALL},{option}")


@pytest.mark.parametrize(
    ("case", "trials", "says"),
    [
        (f"reach:{SMALL}", 150, "trials=150"),
        (f"pair-inversion:{SMALL},secure_mode=true", 100, "secure_mode"),
        (f"pair-inversion:{SMALL},lr=0.1", 100, "lr"),
        (f"likelihood-ratio:{SMALL}", 100, "likelihood-ratio"),
    ],
)
def test_bad_cases(case, trials, says):
    with pytest.raises(SpecError, match=says):
        run(case, trials=trials)


pytest.importorskip("opacus")


@pytest.mark.slow
@pytest.mark.parametrize("size", [4096, 4100])
def test_the_generator_goes_on_as_torch_does(size):
    made = torch.Generator().manual_seed(7)
    torch.rand(777, generator=made)
    noise = torch.normal(0.0, 1.3, (size,), generator=made)
    twister = StateRecovery.torch_state(noise.double().numpy(), std=1.3)
    twister.random_raw(size + (16 if size % 16 else 0))
    again = opacus_replay._as_torch(twister)
    assert (torch.rand(1000, generator=again) == torch.rand(1000, generator=made)).all()
    honest = np.random.default_rng(1).standard_normal(4096)
    assert StateRecovery.torch_state(honest, std=1.0) is None


@pytest.mark.slow
def test_one_step_tells_all_later_ones_and_a_secure_source_nothing():
    recipe = {
        "model": "mlp", "steps": 3, "batch": 128, "noise_multiplier": 1.1, "clip": 1.0,
        "delta": 1e-5, "data": "synthetic",
    }  # fmt: skip
    stream = KeyedStream.from_seed(5)
    read = opacus_replay._run(OpacusReplayGrid(noise="opacus", **recipe), stream)
    assert read["batches"] == 2
    assert read["predicted"] == read["compared"] == 2 * read["d"]
    assert read["error"] < 1e-5
    safe = opacus_replay._run(OpacusReplayGrid(noise="secure-gaussian", **recipe), stream)
    assert (safe["batches"], safe["predicted"], safe["error"]) == (0, 0, None)
