"""Gradients, batches and censuses that the noise's owner reads, as experiments."""

from __future__ import annotations

import pytest
from support.small_experiments import result_of

from dpaudit.errors import SpecError
from dpaudit.experiments.measure import Cell
from dpaudit_deployments.topdown import measures as topdown

GRADIENT = """
name = "t"
seed = 3
epsilon = {epsilon}
delta = 1e-10
trials = 8
keys = 2
measure = "unknown-gradient"
host = {{ name = "dpsgd-gradient", model = "mlp", data = "synthetic", batch = 8, clip = 1.0 }}
source = [{{ name = "seed-in-noise", code = "{code}" }}]
column = [{{ key = "epsilon", format = "setting" }}]
"""

BATCH = """
name = "t"
seed = 3
trials = 7
measure = "next-batch"
column = [{ key = "coins", format = "text" }]
[grid]
coins = [
  { name = "one-party", label = "honest", first = "honest" },
  { name = "one-party", label = "backdoored" },
  { name = "two-party:how=thinning", label = "thinning" },
  { name = "two-party", label = "xor" },
]
run = 1
model = "mlp"
inputs = 16
nonce_bits = 64
epochs = 1
batch = 256
epsilon = 3.0
delta = 1e-5
"""


def test_gradients_are_read_without_a_candidate(tmp_path):
    found = result_of(GRADIENT.format(epsilon="[1.0, 1e6]", code="signs"), tmp_path)
    small, large = found.rows
    assert small["success"]["value"] == 1.0
    assert small["wrong"] == large["wrong"] == 0
    assert 0 < small["flips"] < 0.05 < large["flips"]
    assert large["success"]["value"] == 0.0
    assert small["off"] < 1e-10
    assert "8 of 8 at ε = 1;" in found.summary


def test_gradients_need_the_code_that_errors_do_not_break(tmp_path):
    with pytest.raises(SpecError, match="measure=unknown-gradient"):
        result_of(GRADIENT.format(epsilon="1.0", code="head"), tmp_path)


@pytest.mark.slow
def test_the_next_batch_is_read_unless_two_parties_draw_it(tmp_path, monkeypatch):
    pytest.importorskip("dp_accounting")
    # Opacus' own accounting takes seconds per run and is not what is tested
    monkeypatch.setattr("opacus.privacy_engine.get_noise_multiplier", lambda **_: 1.0)
    monkeypatch.setattr("opacus.PrivacyEngine.get_epsilon", lambda *_: 3.0)
    found = result_of(BATCH, tmp_path)
    honest, backdoored, thinning, xor = found.rows
    assert backdoored["success"]["value"] == 1.0
    assert backdoored["right"]["value"] == backdoored["found"]["value"] == 1.0
    assert honest["right"] is None
    assert all(row["success"]["value"] == 0 for row in (honest, thinning, xor))
    assert thinning["found"]["value"] == 1.0
    assert thinning["right"]["low"] < 0.125**0.5 < thinning["right"]["high"]
    assert xor["right"]["low"] < 0.125 < xor["right"]["high"]
    assert honest["epsilon_holder"] == xor["epsilon_holder"] == honest["epsilon_accounted"]
    assert xor["epsilon_holder"] < thinning["epsilon_holder"] < backdoored["epsilon_holder"]
    assert "backdoored 7 of 7" in found.summary


SMALL = {"table": "generated", "states": "10 44"}


def errors(epsilon, trials=3):
    grid = {"epsilon": epsilon, **SMALL}
    cell = Cell("topdown", {"grid": grid, "trials": trials, "seed": 1})
    return topdown.utility_rows([{"epsilon": epsilon, **topdown.utility(cell, None)}])


@pytest.mark.slow
def test_errors_of_all_levels_and_queries():
    rows = {(row["level"], row["query"]): row for row in errors(1.0)}
    assert len(rows) == 12
    assert rows["state", "total"]["tables"]["value"] == 0  # an invariant
    assert "measured" not in rows["state", "total"]
    group = rows["state", "age-group"]
    assert group["tables"]["value"] < group["summed"]["value"]
    assert group["tables"]["low"] < group["tables"]["value"] < group["tables"]["high"]
    county = rows["county", "detailed"]
    assert county["measured"]["value"] == county["summed"]["value"]
    assert county["scale"] == pytest.approx(22.01, abs=0.01)
    assert "times as exact" in topdown.utility_summary(list(rows.values()))


def asked(noise, view, epsilon=4.0, trials=6):
    grid = {"noise": noise, "view": view, "epsilon": epsilon, **SMALL}
    cell = Cell("topdown-attack", {"grid": grid, "trials": trials, "seed": 1})
    return topdown.attack(cell, None)


@pytest.mark.slow
def test_seeds_in_structural_zeros_are_read_from_measurements_and_gone_from_tables():
    row = asked({"name": "seed-in-noise"}, "measurements")
    assert row["which"]["value"] == row["count"]["value"] == row["read"]["value"] == 1
    assert row["named"]["value"] < 1
    assert asked({"name": "seed-in-noise"}, "tables", trials=3)["read"]["value"] == 0


def test_honest_noise_is_not_read():
    row = asked({"name": "discrete-gaussian"}, "measurements", epsilon=1.0, trials=30)
    assert "read" not in row
    assert row["count"]["value"] < 0.3
    assert 0.2 < row["which"]["value"] < 0.9
