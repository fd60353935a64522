"""Running and resuming; for the killing see ``test_placement_kills``."""

import tempfile

import pytest

from dpaudit.errors import SpecError, StoreError
from dpaudit.experiments import Store, load_spec, make_result, run_experiment
from dpaudit.experiments.arm import build_arm
from dpaudit.randomness import KeyedStream

SPEC = """
name = "small"
seed = 3
epsilon = 0.5
delta = 1e-10
trials = 200
host = { name = "histogram", table = "table.csv" }
key = { beta = [1e-4, 2.0], gamma = "2sqrtd" }
source = [{ name = "gaussian" }, { name = "pancake" }]
mitigation = [{ name = "none" }, { name = "rotation" }]
attack = [{ name = "nearest-peak" }, { name = "likelihood-ratio" }]
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The table's path is part of the settings: relative, so numbers are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("".join(f"bin{i},{1000 + i}\n" for i in range(64)))
    path = tmp_path / "small.toml"
    path.write_text(SPEC)
    return path


def rows_of(folder):
    with Store.read(folder) as store:
        return make_result(store.spec, store.results(), command="").rows


def test_key_holder_wins_against_the_bare_pancake_only(small, tmp_path):
    run_experiment(load_spec(str(small)), out=tmp_path / "out")
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 8
    for row in rows:
        bare = (row.source, row.mitigation, row.settings["beta"]) == ("pancake", "none", 1e-4)
        for attack in row.attacks:
            assert (attack.interval.low > 0.9) == bare
            assert (attack.epsilon_lower_bound > 2) == bare
        assert row.l2_error == pytest.approx(row.l2_expected, rel=0.03)


@pytest.mark.slow
def test_one_cell_does_not_depend_on_the_others(small, tmp_path):
    spec = load_spec(str(small))
    run_experiment(spec, out=tmp_path / "a")
    small.write_text(small.read_text().replace("beta = [1e-4, 2.0]", "beta = 2.0"))
    run_experiment(load_spec(str(small)), out=tmp_path / "b")
    a, b = rows_of(tmp_path / "a"), rows_of(tmp_path / "b")
    assert tuple(r for r in a if r.settings["beta"] == 2.0) == b


@pytest.mark.slow
def test_an_audit_cell_sees_no_key_and_leaves_no_file(small, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    text = small.read_text().replace("beta = [1e-4, 2.0]", "beta = 1e-4")
    for part in ('{ name = "gaussian" }, ', '{ name = "none" }, '):
        text = text.replace(part, "")
    # too few for further processes of the sampler
    small.write_text(text + "[audit]\nsamples = 3000\n")
    run_experiment(load_spec(str(small), trials=10), out=tmp_path / "out")
    assert [r.audit.verdict for r in rows_of(tmp_path / "out")] == ["no-finding"]
    assert list((tmp_path / "tmp").iterdir()) == []
    secret = KeyedStream.from_seed("3").child("attacker's key").bytes(32)
    stored = (tmp_path / "out" / "results.sqlite").read_bytes()
    assert build_arm(load_spec(str(small)).cells()[0].settings, cell="").key.secret == secret
    assert secret not in stored
    assert secret.hex().encode() not in stored


@pytest.mark.slow
def test_refusals(small, tmp_path):
    spec, out = load_spec(str(small), trials=5), tmp_path / "out"
    run_experiment(spec, out=out)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="--resume"):
        run_experiment(spec, out=out)
    with pytest.raises(StoreError, match="another experiment"):
        run_experiment(load_spec(str(small), trials=6), out=out, resume=True)
    with pytest.raises(StoreError, match="holds no results"):
        Store.read(tmp_path / "nothing")
    with pytest.raises(StoreError, match="cannot be written"):
        run_experiment(spec, out=tmp_path / "file" / "out")


def test_a_source_of_another_scale_than_the_claim_is_refused(small):
    cell = load_spec(str(small)).cells()[0]
    for source in ({"name": "naive-laplace"}, {"name": "gaussian", "sigma": 1.0}):
        with pytest.raises(SpecError, match=f"source={source['name']}: has sigma="):
            build_arm({**cell.settings, "source": source}, cell=cell.id)


def test_an_attack_that_scores_no_candidates_is_refused(small):
    cells = load_spec(str(small)).cells()
    cell = next(c for c in cells if c.settings["source"]["name"] == "pancake")
    arm = build_arm(cell.settings, cell=cell.id)
    assert arm.scorer({"name": "nearest-peak"})
    with pytest.raises(SpecError, match="attack=which-bin: scores no candidates"):
        arm.scorer({"name": "which-bin"})
