"""``keep_trials``: each trial in the store, and not a number different."""

from __future__ import annotations

import pytest

from dpaudit.errors import SpecError
from dpaudit.experiments import Store, load_spec, make_document, run_experiment
from dpaudit.experiments.measure import measure_of
from dpaudit.experiments.store.queries import trial_columns, trial_success
from dpaudit.types import to_dict

SPEC = """
name = "small"
seed = 3
epsilon = 0.5
delta = 1e-10
trials = 60
keys = 2
[host]
name = "histogram"
table = "TABLE"
[key]
beta = 1e-3
gamma = "2sqrtd"
[[source]]
name = "pancake"
[[attack]]
name = "likelihood-ratio"
"""


@pytest.fixture
def specs(tmp_path):
    (tmp_path / "table.csv").write_text("".join(f"bin{i},{1000 + i}\n" for i in range(64)))
    plain = SPEC.replace("TABLE", str(tmp_path / "table.csv"))
    (tmp_path / "plain.toml").write_text(plain)
    (tmp_path / "kept.toml").write_text("keep_trials = true\n" + plain)
    return [load_spec(str(tmp_path / f"{name}.toml")) for name in ("plain", "kept")]


def test_trials_are_kept_and_change_no_number(specs, tmp_path):
    plain, kept = specs
    assert [c.id for c in plain.cells()] == [c.id for c in kept.cells()]
    assert "keep_trials" not in plain.cells()[0].settings
    documents = []
    for spec, name in ((plain, "a"), (kept, "b")):
        run_experiment(spec, out=tmp_path / name)
        with Store.read(tmp_path / name) as store:
            documents.append(make_document(store.spec, store.results(), command=""))
            counted, columns = trial_success(store), trial_columns(store)
        assert bool(counted) == spec.keep_trials
    assert documents[0].rows == documents[1].rows
    (cell,) = to_dict(documents[1])["cells"]
    assert "trials" not in cell
    assert "each_trial" not in cell["outcome"]
    assert counted == {cell["cell"]: (60, cell["outcome"]["successes"])}
    for truth, guess, score in zip(
        columns["truth"], columns["guess"], columns["score"], strict=True
    ):
        assert truth in (0, 1)
        assert guess == (score > 0)


def test_only_measures_with_trials_can_keep_them(tmp_path):
    assert measure_of("attack").keeps_trials
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\nmeasure = "zoo"\nkeep_trials = true\n[grid]\nspecimen = "a"\n')
    with pytest.raises(SpecError, match="keep_trials=true"):
        load_spec(str(path))
    path.write_text('name = "x"\nkeep_trials = 1\n')
    with pytest.raises(SpecError, match="keep_trials"):
        load_spec(str(path))
