"""``dpsgd-bits`` identifies the batch and learns nothing from a clean release."""

import numpy as np
import pytest

from dpaudit.errors import SpecError, UnknownNameError, UsageError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.spec_file import load_spec
from dpaudit.studies import dpsgd_bits
from dpaudit.types import Reference

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


def test_an_attacker_who_adds_up_in_another_order_still_names_it():
    row = run("reach:model=mlp,batch=64,secure_mode=true,order=unknown")
    assert row["sums_equal"] < 0.6
    assert row["infeasible_true"] > 0
    assert row["success"]["low"] > 0.8


def test_weights_alone_say_less_and_never_rule_out_the_truth():
    seen = run(f"reach:{SMALL},secure_mode=true,lr=0.05")
    whole = run(f"reach:{SMALL},secure_mode=true")
    assert seen["infeasible_true"] == 0
    assert seen["success"]["low"] > seen["ideal"]
    assert seen["infeasible_false"] < whole["infeasible_false"] / 4


def test_nothing_is_learnt_where_value_and_noise_share_a_coarse_lattice(monkeypatch):
    from dpaudit.hosts.gradients.step import DpSgdStep

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


def test_the_claim_counts_a_replaced_record_twice():
    removed = run(f"reach:{SMALL},noise_multiplier=2")
    replaced = run(f"reach:{SMALL},noise_multiplier=4,neighbour=replace")
    assert removed["epsilon_claimed"] == pytest.approx(replaced["epsilon_claimed"])
    assert removed["ideal"] == pytest.approx(0.598706, abs=1e-6)  # Φ(1/4)


@pytest.mark.parametrize(
    ("case", "trials", "error", "says"),
    [
        (f"reach:{SMALL}", 150, SpecError, "trials=150"),
        (f"reach:{SMALL},order=maybe", 100, SpecError, "order: invalid enum value 'maybe'"),
        (f"pair-inversion:{SMALL},secure_mode=true", 100, SpecError, "secure_mode"),
        (f"pair-inversion:{SMALL},lr=0.1", 100, SpecError, "lr"),
        (
            f"likelihood-ratio:{SMALL}",
            100,
            SpecError,
            "name: invalid enum value 'likelihood-ratio'",
        ),
        (f"reach:{SMALL},clips=2", 100, UnknownNameError, "clip"),
        (f"reach:{SMALL},noise_multiplier=0", 100, UsageError, "noise_multiplier=0"),
        (
            f"reach:{SMALL},noise_multiplier=much",
            100,
            SpecError,
            "noise_multiplier: expected `float`, got `str`",
        ),
        (
            f"reach:{SMALL},secure_mode=maybe",
            100,
            SpecError,
            "secure_mode: expected `bool`, got `str`",
        ),
        (f"reach:{SMALL},lr=-1", 100, SpecError, "lr: expected `float` >= 0"),
    ],
)
def test_bad_cases(case, trials, error, says):
    with pytest.raises(error, match=says):
        run(case, trials=trials)


def test_the_spec_and_what_it_says():
    steps = [cell.settings["grid"]["case"] for cell in load_spec("dpsgd-bits").cells()]
    assert {case["data"] for case in steps[3:]} == {"mnist"}
    assert {case["data"] for case in steps[:3]} == {"synthetic"}  # runs anywhere
    said = dpsgd_bits.summary([run(f"reach:{SMALL},noise_multiplier=16")])
    assert "in 1 of 1 cells" in said
    assert "exceeds the ε claimed for the step in 1." in said
    assert said.endswith("infeasible: 0.")
