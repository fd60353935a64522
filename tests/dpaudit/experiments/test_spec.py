import pytest

from dpaudit.errors import SpecError, UnknownNameError
from dpaudit.experiments import load_spec, spec_names
from dpaudit.experiments.arm import build_arm

GOOD = """
name = "t"
seed = 3
epsilon = [0.5, 1.0]
delta = 1e-10
trials = 50
[host]
name = "histogram"
[key]
beta = [1e-4, 1e-3]
gamma = "2sqrtd"
[[source]]
name = "gaussian"
[[source]]
name = "pancake"
[[mitigation]]
name = "none"
[[mitigation]]
name = "smoothing"
tau = [0.1, 0.2, 0.3]
[[attack]]
name = "nearest-peak"
[[exclude]]
source = "gaussian"
mitigation = "smoothing"
[audit]
samples = 10000
"""


def spec(tmp_path, text):
    path = tmp_path / "s.toml"
    path.write_text(text)
    return load_spec(str(path))


def test_the_grid_is_the_product_less_what_is_excluded(tmp_path):
    cells = spec(tmp_path, GOOD).cells()
    arms = 2 * 2 * (1 + 4)  # ε × β × (gaussian·none + pancake·(none + 3 smoothings))
    assert sum(c.kind == "attack" for c in cells) == arms
    assert sum(c.kind == "audit" for c in cells) == arms
    assert len({c.id for c in cells}) == len(cells)


def test_several_hosts_and_a_source_with_a_key_of_its_own(tmp_path):
    text = GOOD.replace(
        '[host]\nname = "histogram"', '[[host]]\nname = "histogram"\n[[host]]\nname = "histogram"\nlabel = "x"'
    )
    text = text.replace('[[source]]\nname = "pancake"', '[[source]]\nname = "pancake"\nkey = { gamma = 9.0 }')
    cells = spec(tmp_path, text + '[[exclude]]\nhost = "x"\nsource = ["gaussian"]\n').cells()
    assert sum(c.kind == "attack" for c in cells) == 2 * 2 * (1 + 4) + 2 * 2 * 4
    arm = next(c for c in cells if c.settings["source"]["name"] == "pancake").settings
    arm = {**arm, "key": {"beta": 0.5, "gamma": "2sqrtd"}, "source": {**arm["source"], "key": {"gamma": 120.0}}}
    made = build_arm(arm, cell="c")
    assert (made.held_key.beta, made.held_key.gamma) == (0.5, 120.0)
    assert made.source.key is made.held_key


def test_a_measure_of_all_attacks_together_has_one_cell_an_arm(tmp_path):
    text = GOOD.replace("seed = 3", 'seed = 3\nmeasure = "defences"').replace("[audit]\nsamples = 10000", "")
    text += '[[attack]]\nname = "likelihood-ratio"\n[[exclude]]\nsource = "gaussian"\nattack = ["nearest-peak"]\n'
    cells = spec(tmp_path, text).cells()
    assert len(cells) == 2 * 2 * (1 + 4)
    names = {c.settings["source"]["name"]: [a["name"] for a in c.settings["attacks"]] for c in cells}
    assert names == {"gaussian": ["likelihood-ratio"], "pancake": ["nearest-peak", "likelihood-ratio"]}


def test_a_cell_is_named_by_its_settings(tmp_path):
    a = spec(tmp_path, GOOD).cells()
    b = spec(tmp_path, GOOD.replace("epsilon = [0.5, 1.0]", "epsilon = [1.0]")).cells()
    assert {c.id for c in b} < {c.id for c in a}  # dropping an axis value changes no other cell
    c = spec(tmp_path, GOOD.replace("seed = 3", "seed = 4")).cells()
    assert not {x.id for x in a} & {x.id for x in c}


@pytest.mark.parametrize("name", spec_names())
def test_built_in_experiments_are_valid(name):
    assert load_spec(name).cells()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("trials = 50", "trails = 50", "did you mean 'trials'"),
        ("trials = 50", "trials = '50'", "wrong type"),
        ("trials = 50", "trials = 0", "trials=0"),
        ("trials = 50", "trials = true", "wrong type"),
        ("epsilon = [0.5, 1.0]", "epsilon = []", "empty"),
        ("epsilon = [0.5, 1.0]", "epsilon = [-1]", "epsilon=-1"),
        ("epsilon = [0.5, 1.0]", "", "'epsilon' is missing"),
        ("delta = 1e-10", 'delta = 1e-10\ncalibration = "exakt"', "calibration='exakt'"),
        ("tau = [0.1, 0.2, 0.3]", f"tau = {[0.1] * 60_000}", "100,000 cells"),
        ("samples = 10000", "sampels = 1", "did you mean 'samples'"),
        ("[host]", "[host", "not TOML"),
        ('mitigation = "smoothing"\n[audit]', 'mitigation = "smoohting"\n[audit]', "did you mean 'smoothing'"),
        ('mitigation = "smoothing"\n[audit]', 'mitigations = "smoothing"\n[audit]', "did you mean 'mitigation'"),
        ('[[attack]]\nname = "nearest-peak"', "[[attack]]\nx = 1", "table with a name"),
    ],
)
def test_bad_specs(tmp_path, old, new, says):
    assert old in GOOD
    with pytest.raises(SpecError, match=says):
        spec(tmp_path, GOOD.replace(old, new, 1))


def test_unknown_plugins_and_names(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'nearest-peak'"):
        spec(tmp_path, GOOD.replace("nearest-peak", "nearest-peek"))
    with pytest.raises(UnknownNameError, match="did you mean 'demo'"):
        load_spec("dmeo")
    with pytest.raises(SpecError, match="no such file"):
        load_spec("nowhere.toml")


def test_the_device_is_part_of_a_cell_only_where_it_is_no_cpu():
    on_cpu, on_cuda = (load_spec("gpm-table2", device=device).cells() for device in ("cpu", "cuda"))
    assert all("device" not in c.settings for c in on_cpu)
    assert all(c.settings["device"] == "cuda" for c in on_cuda)
    assert on_cpu == load_spec("gpm-table2").cells()
    assert not {c.id for c in on_cpu} & {c.id for c in on_cuda}


def test_what_works_on_the_cpu_refuses_another_device():
    with pytest.raises(SpecError, match=r"device=cuda: .*gpm-fig5.*leave --device out"):
        load_spec("gpm-fig5", device="cuda")
