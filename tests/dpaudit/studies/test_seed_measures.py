"""Gradients and batches that the noise's owner reads, as experiments."""

import pytest

from dpaudit.errors import SpecError
from dpaudit.experiments import Store, load_spec, make_document, run_experiment

GRADIENT = """
name = "t"
seed = 3
epsilon = {epsilon}
delta = 1e-10
trials = 8
keys = 2
measure = "unknown-gradient"
[host]
name = "dpsgd-gradient"
model = "mlp"
data = "synthetic"
batch = 8
clip = 1.0
[[source]]
name = "seed-in-noise"
code = "{code}"
[[column]]
key = "epsilon"
format = "setting"
"""

BATCH = """
name = "t"
seed = 3
trials = 7
measure = "next-batch"
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
[[column]]
key = "coins"
format = "text"
"""


def document(text, folder):
    path = folder / "s.toml"
    path.write_text(text)
    run_experiment(load_spec(str(path)), out=folder / "out")
    with Store.read(folder / "out") as store:
        return make_document(store.spec, store.results(), command="")


def test_gradients_are_read_without_a_candidate(tmp_path):
    found = document(GRADIENT.format(epsilon="[1.0, 1e6]", code="signs"), tmp_path)
    small, large = found.rows
    assert small["success"]["value"] == 1.0
    assert small["wrong"] == large["wrong"] == 0
    assert 0 < small["flips"] < 0.05 < large["flips"]
    assert large["success"]["value"] == 0.0
    assert small["off"] < 1e-10
    assert "8 of 8 at ε = 1;" in found.summary


def test_gradients_need_the_code_that_errors_do_not_break(tmp_path):
    with pytest.raises(SpecError, match="measure=unknown-gradient"):
        document(GRADIENT.format(epsilon="1.0", code="head"), tmp_path)


def test_the_next_batch_is_read_unless_two_parties_draw_it(tmp_path, monkeypatch):
    pytest.importorskip("dp_accounting")
    # Opacus' own accounting takes seconds per run and is not what is tested
    monkeypatch.setattr("opacus.privacy_engine.get_noise_multiplier", lambda **_: 1.0)
    monkeypatch.setattr("opacus.PrivacyEngine.get_epsilon", lambda *_: 3.0)
    found = document(BATCH, tmp_path)
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
