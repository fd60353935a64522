"""The experiments on DP-FTRL, small: what is read, what is found, what is learned."""

import numpy as np
import pytest
from support.small_experiments import result_of

from dpaudit.errors import SpecError
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.randomness import KeyedStream
from dpaudit.registry import load, plugins
from dpaudit_deployments.ftrl.factorisation import factorisation
from dpaudit_deployments.ftrl.measures import (
    Correlated,
    WhitenedGrid,
    flawed,
    pure_rows,
    read_updates,
)

ATTACK = """
name = "t"
seed = 3
epsilon = 4.0
delta = 1e-5
trials = 24
measure = "dp-ftrl-attack"
key = {{ beta = 1e-3, gamma = "2sqrtd" }}
host = {{ {host} }}
source = [
  {{ name = "gaussian" }}, {{ name = "pancake" }}, {{ name = "seed-in-noise", code = "signs" }},
]
column = [{{ key = "source", format = "text" }}]
"""
BANDED = (
    'name = "dp-ftrl", factorisation = "banded", steps = 12, bands = 4, '
    'cohort = 8, clients = 32, model = "mlp", data = "synthetic"'
)
AUDIT = """
name = "t"
seed = 4
trials = 3
measure = "dp-ftrl-audit"
column = [{ key = "share", format = "proportion" }]
[grid]
correlated = [{ name = "tree", restart = 8 }, { name = "banded", bands = 4, label = "four" }]
flaw = ["none", "identity"]
steps = 16
dim = 400
alpha = 0.01
without = [WITHOUT]
"""
TRAIN = """
name = "t"
seed = 5
trials = 1
epsilon = 50.0
delta = 1e-5
measure = "dp-ftrl"
grid = { run = [1, 2] }
source = [{ name = "gaussian" }]
column = [{ key = "accuracy", format = "proportion" }]
[[host]]
name = "dp-ftrl"
label = "a tree"
factorisation = "tree"
steps = 16
cohort = 64
model = "mlp"
data = "synthetic"
"""


def audited(folder):
    others = set(plugins("tests")) - {"covariance", "moments", "granularity", "last-digits"}
    names = ", ".join(f'"{name}"' for name in sorted(others))
    return result_of(AUDIT.replace("WITHOUT", names), folder)


@pytest.mark.slow
def test_the_key_reads_a_banded_run_by_its_rows_and_not_by_its_steps(tmp_path):
    found = result_of(ATTACK.format(host=BANDED), tmp_path)
    honest, pancake, seeded = found.rows
    assert pancake["run"]["value"] == pancake["row"]["value"] == 1
    assert pancake["step"]["low"] < 0.5
    assert honest["row"]["low"] < 0.5 < honest["row"]["high"]
    assert seeded["run"]["value"] == 1
    assert seeded["sequence"]["value"] > 0.9
    assert pancake["looks"] > 8
    assert "pancake 100.0" in found.summary
    assert [row["factorisation"] for row in found.rows] == ["banded"] * 3


def test_another_host_is_refused(tmp_path):
    with pytest.raises(SpecError, match="needs the host dp-ftrl"):
        result_of(ATTACK.format(host='name = "histogram", table = "us-counties"'), tmp_path)


@pytest.mark.parametrize(("name", "pure"), [("identity", 8), ("tree", 8), ("honaker", 4)])
def test_single_rows_of_noise_are_found(name, pure):
    how = factorisation(name, steps=8)
    mixed = pure_rows(how) @ how.decoder
    assert mixed.shape[0] == pure
    assert np.isclose(mixed, 1).sum(1).tolist() == [1] * pure
    assert np.abs(mixed).sum(1) == pytest.approx(np.ones(pure))


@pytest.mark.slow
def test_updates_are_read_one_after_the_other():
    how = factorisation("banded", steps=6, bands=3)
    key = SeedKey.new(secret=bytes(range(32)))
    source = SeedInNoise(key=key, code="signs", sigma=1.0)
    rng = np.random.default_rng(2)
    updates = 0.05 * rng.standard_normal((6, 3000))
    z = source.sample(6, 3000, stream=KeyedStream.from_seed("z"))
    noisy = (updates + how.decoder @ z).astype(np.float32)
    reader = load("attacks", "seed-reader")(key=key, code="signs", sigma=1.0)
    for known in (False, True):
        found = read_updates(reader, how, noisy, norm=10.0, known=known)
        np.testing.assert_allclose(found, updates, atol=1e-5)
    other = load("attacks", "seed-reader")(
        key=SeedKey.new(secret=bytes(32)), code="signs", sigma=1.0, tries=4
    )
    assert np.isnan(read_updates(other, how, noisy, norm=10.0, known=True)).all()


@pytest.mark.slow
def test_the_audit_passes_honest_recordings_and_finds_flawed_ones(tmp_path):
    found = audited(tmp_path)
    shares = {(row["correlated"], row["flaw"]): row["share"]["value"] for row in found.rows}
    assert shares == {
        (name, flaw): flaw == "identity"
        for name in ("tree:restart=8", "four")
        for flaw in ("none", "identity")
    }
    assert found.summary.startswith("0 of 6 honest recordings")


@pytest.mark.parametrize(("flaw", "repeated"), [("two steps", 1), ("two restarts", 8), ("none", 0)])
def test_flaws_are_what_they_say(flaw, repeated):
    own = Correlated(name="tree", restart=8)
    grid = WhitenedGrid(correlated=own, flaw=flaw, steps=16, dim=30, alpha=0.01)
    claimed = own.factors(16)
    z = claimed.strategy @ flawed(grid, claimed, np.random.default_rng(3))
    same = np.isclose(z[:, None], z[None]).all(2)
    assert np.triu(same, 1).sum() == repeated


@pytest.mark.slow
def test_a_training_is_told_with_its_epsilon(tmp_path):
    (row,) = result_of(TRAIN, tmp_path).rows
    assert (row["factorisation"], row["runs"], row["participations"]) == ("a tree", 2, 1)
    assert row["spent"] == pytest.approx(50, rel=1e-3)
    assert row["accuracy"]["value"] > 0.2
    assert row["tested"] == 512
