"""``--out`` on a folder with a result: the same audit replaces it, another one is refused."""

import json
import re
import shlex

import pytest
from command_line import here as dpaudit

from dpaudit import audit_sampler, write_report
from dpaudit.audit.options import AuditOptions, ClaimOptions, MechanismOptions
from dpaudit.cli.out_folder import comparable_arguments, refuse_another
from dpaudit.errors import StoreError
from dpaudit.options import command_of

QUICK = ("--samples", "2e4", "--tests", "moments", "--alpha", "1e-6", "--out", "o")
AUDIT = ("audit", "numpy:normal", "--claim", "gaussian:sigma=1", *QUICK)
MECHANISM = (
    *("mechanism", "opendp:laplace:scale=1", "--neighbours", "0,1", "--claim-epsilon", 1),
    *("--samples", 2000, "--out", "o"),
)


def provenance(folder):
    document = json.loads((folder / "o" / "result.json").read_text())
    return document["data"]["provenance"]


@pytest.mark.slow
def test_the_same_audit_with_any_seed_replaces_its_result(tmp_path):
    for seed in ("1", "2"):
        done = dpaudit(*AUDIT, "--seed", seed, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert provenance(tmp_path)["seed"] == seed
    words = shlex.split(provenance(tmp_path)["command"])
    again = dpaudit(*words[1:], "--format", "json", cwd=tmp_path)
    assert json.loads(again.stdout)["samples_requested"] == 20_000
    assert dpaudit(*AUDIT, cwd=tmp_path).returncode == 0


def changed(option, value):
    at = AUDIT.index(option)
    return (*AUDIT[: at + 1], value, *AUDIT[at + 2 :])


@pytest.mark.parametrize("out", ["file", "file/below/it"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_drawn(tmp_path, out):
    (tmp_path / "file").touch()
    words = ("audit", "python:nowhere:f", "--claim", "gaussian:sigma=1", "--out", out)
    done = dpaudit(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert f"out={out}: cannot be written" in done.stderr


def test_the_check_leaves_nothing_and_removes_nothing(tmp_path):
    (tmp_path / "old").mkdir()
    for out in (tmp_path / "old" / "a" / "b", tmp_path / "old"):
        refuse_another(out, "dpaudit audit numpy:normal")
        assert [path.name for path in tmp_path.rglob("*")] == ["old"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        changed("--claim", "gaussian:sigma=2"),
        changed("--samples", "3e4"),
        changed("--tests", "tails"),
        (*AUDIT, "--dim", "4"),
        ("audit", "numpy:legacy-normal", *AUDIT[2:]),
        MECHANISM,
    ],
)
def test_another_audit_is_refused_and_the_result_stays(tmp_path, words):
    assert dpaudit(*AUDIT, "--seed", 1, cwd=tmp_path).returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    done = dpaudit(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "out=o: holds the result of another audit (dpaudit audit numpy:normal" in done.stderr
    assert "choose another --out" in done.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} == before


def test_what_was_made_in_python_is_refused_by_what_it_is(tmp_path):
    """It has no command, so that nothing says whether it is of the same audit."""
    made = audit_sampler("numpy:laplace", claim="gaussian:sigma=1", samples=20_000, seed=1)
    path = write_report(made, tmp_path / "result.json", format="json")
    before = path.read_bytes()
    with pytest.raises(StoreError) as refused:
        refuse_another(tmp_path, "dpaudit audit numpy:laplace --claim gaussian:sigma=1")
    assert re.fullmatch(
        r"out=\S+: holds a result that no command made \(black-box audit of numpy:laplace, "
        r"\d{4}-\S+\); choose another --out, or remove the folder",
        str(refused.value),
    )
    assert path.read_bytes() == before


@pytest.mark.slow
def test_an_inconclusive_result_is_of_its_audit_too(tmp_path):
    words = ("audit", "command:false", "--claim", "gaussian:sigma=1", "--out", "o")
    for _ in range(2):
        assert dpaudit(*words, cwd=tmp_path).returncode == 3
    assert dpaudit(*AUDIT, cwd=tmp_path).returncode == 2


def test_a_run_is_not_replaced_by_an_audit(tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "results.sqlite").write_bytes(b"")
    done = dpaudit(*AUDIT, cwd=tmp_path)
    assert done.returncode == 2
    assert "out=o: holds a run, not an audit" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "{}", "mine", '{"kind": "audit", "result": {}}'])
def test_what_is_no_result_is_replaced(tmp_path, text):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "result.json").write_text(text)
    assert dpaudit(*AUDIT, cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_a_command_that_was_changed_by_hand_steers_nothing(tmp_path):
    assert dpaudit(*AUDIT, cwd=tmp_path).returncode == 0
    path = tmp_path / "o" / "result.json"
    document = json.loads(path.read_text())
    for command, code in (("dpaudit 'open", 0), ("dpaudit \x1b[2J\nNo finding", 2)):
        document["command"] = command
        path.write_text(json.dumps(document))
        done = dpaudit(*AUDIT, cwd=tmp_path)
        assert done.returncode == code
        assert "\x1b" not in done.stderr
        assert len(done.stderr.splitlines()) < 4


def test_command_lines():
    audit = AuditOptions(seed="a b", tests=("moments", "tails"), text=True, time_limit=60.0)
    line = command_of("audit", "command:./x {n}", audit, claim="gaussian:sigma=1")
    assert line == (
        "dpaudit audit 'command:./x {n}' --claim gaussian:sigma=1 --time-limit 60 "
        "--tests moments,tails --text --seed 'a b'"
    )
    options = MechanismOptions(seed="1", alpha=1.25e-7, real_numbers=True)
    line = command_of("mechanism", "x", ClaimOptions(0.123456789), options, attack=None)
    assert line == (
        "dpaudit mechanism x --claim-epsilon 0.123456789 --alpha 1.25e-07 --real-numbers --seed 1"
    )
    assert comparable_arguments(f"{line} --by 'A B'") == shlex.split(line.replace(" --seed 1", ""))
