"""The gate end to end: files and exit codes, and the GitHub action run step by step."""

import json
import os
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import yaml
from support import formats as made

from dpaudit.cli import main
from dpaudit.report import render_report
from dpaudit.report.formats import FORMATS
from dpaudit.types import to_dict

ACTION = made.ROOT / "dpaudit" / "gates" / "github"
FILES = {"report.html", "result.json", "report.junit.xml", "report.sarif", "report.md"}
ALSO = "--also=junit,sarif,markdown"
NOISE = """\
import numpy as np
def honest(n, d): return np.random.default_rng().standard_normal((n, d))
def wide(n, d): return 1.5 * np.random.default_rng().standard_normal((n, d))
def dies(n, d): raise RuntimeError("no entropy left")
def fails(value, n): raise RuntimeError("no entropy left")
def release(value, n): return value + np.random.default_rng().laplace(scale=0.2, size=n)
def scaled(value, scale): return value + np.random.default_rng().laplace(scale=scale)
def quiet(value, n): return np.round(value + np.random.default_rng().laplace(scale=9.0, size=n))
"""
AUDIT = (
    "audit",
    "--claim=gaussian:sigma=1",
    "--samples=2e4",
    "--tests=moments",
    "--seed=1",
    "--alpha=1e-6",
)
MECHANISM = ("mechanism", "--neighbours=0,1", "--claim-epsilon=1", "--samples=4e3", "--seed=1")


@pytest.fixture
def dpaudit(monkeypatch, capsys):
    """The command line in this process: (exit code, stdout, stderr)."""

    def call(*args, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["dpaudit", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return call


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "noise.py").write_text(NOISE)
    return tmp_path


@pytest.fixture(scope="module")
def before():
    """What a pass left in its folder, every format of it."""
    document = made.typed("audit no-finding")
    names = {name: file for name, (file, _) in FORMATS.items()}
    texts = {names[name]: make(document) for name, (_, make) in FORMATS.items()}
    return {
        "result.json": json.dumps(to_dict(document)),
        "report.html": render_report(document),
        **texts,
    }


@pytest.fixture
def passed(folder, before):
    (folder / "out").mkdir()
    for name, text in before.items():
        (folder / "out" / name).write_text(text, encoding="utf-8")
    assert set(before) == FILES
    return folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code", "verdict"),
    [
        pytest.param((*AUDIT, "python:./noise.py:honest"), 0, "no-finding", marks=pytest.mark.slow),
        ((*AUDIT, "python:./noise.py:wide"), 1, "finding"),
        ((*AUDIT, "python:./noise.py:dies"), 3, "inconclusive"),
        ((*MECHANISM, "python:./noise.py:quiet"), 0, "no-finding"),
        pytest.param(
            (*MECHANISM, "python:./noise.py:release"), 1, "finding", marks=pytest.mark.slow
        ),
        pytest.param(
            (*MECHANISM, "python:./noise.py:fails"), 3, "inconclusive", marks=pytest.mark.slow
        ),
    ],
)
def test_every_verdict_leaves_every_format_and_its_exit_code(folder, dpaudit, args, code, verdict):
    ended, stdout, stderr = dpaudit(*args, "--out=out", ALSO, "--format=json", cwd=folder)
    assert ended == code, stdout + stderr
    printed, out = json.loads(stdout), folder / "out"
    assert {path.name for path in out.iterdir()} == FILES
    stored = json.loads((out / "result.json").read_text(encoding="utf-8"))
    for document in (printed, stored):
        assert document["schema"] == "dpaudit-report/1"
        assert made.validator().is_valid(document)
    assert (printed["verdict"], stored["result"]) == (
        verdict,
        {k: v for k, v in printed.items() if k != "schema"},
    )
    suites = ElementTree.parse(out / "report.junit.xml").getroot()
    assert (suites.get("failures") != "0", suites.get("errors") != "0") == (code == 1, code == 3)
    log = json.loads((out / "report.sarif").read_text(encoding="utf-8"))
    assert made.sarif().is_valid(log)
    run = log["runs"][0]
    assert run["invocations"][0]["exitCode"] == code
    errors = [r for r in run["results"] if r["level"] == "error"]
    assert bool(errors) == (code == 1)
    assert all(
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "noise.py"
        for r in errors
    )
    assert f"**{verdict.capitalize().replace('-', ' ')}:**" in (out / "report.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
def test_report_makes_the_formats_of_a_finished_folder(folder, dpaudit):
    document = made.documents.audit("finding")
    (folder / "result.json").write_text(json.dumps(document))
    assert dpaudit("report", ".", ALSO, cwd=folder)[0] == 0
    assert {path.name for path in folder.iterdir()} == {*FILES, "noise.py"}
    (folder / "result.json").write_text(json.dumps(made.documents.audit("no-finding")))
    # the formats that are there are made anew, asked for or not
    assert dpaudit("report", ".", cwd=folder)[0] == 0
    assert ElementTree.parse(folder / "report.junit.xml").getroot().get("failures") == "0"
    _, schema, _ = dpaudit("report", "--schema", cwd=folder)
    assert json.loads(schema)["$id"] == "urn:dpaudit:report:1"


@pytest.mark.slow
def test_an_older_verdict_does_not_stay_in_the_folder(folder, dpaudit, passed):
    """Earlier formats are rewritten, requested or not; other programs' files are left alone."""
    (passed / "report.md").write_text("my own notes")
    assert dpaudit(*AUDIT, "python:./noise.py:wide", "--out=out", cwd=folder)[0] == 1
    assert ElementTree.parse(folder / "out" / "report.junit.xml").getroot().get("failures") == "1"
    assert json.loads((folder / "out" / "report.sarif").read_text(encoding="utf-8"))["runs"][0][
        "results"
    ]
    assert (folder / "out" / "report.md").read_text(encoding="utf-8") == "my own notes"


# --- the action


def steps():
    return yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]


def test_no_script_of_the_action_has_an_expression_in_it():
    scripts = [step["run"] for step in steps() if "run" in step]
    assert len(scripts) == 3
    assert not any("${{" in script for script in scripts)
    assert all(step["shell"] == "bash" for step in steps() if "run" in step)


def expression(text, inputs, outputs):
    """What a runner makes of ``${{ inputs.x }}`` and the conditions used here."""
    known = {f"inputs.{k}": v for k, v in inputs.items()} | {
        f"steps.audit.outputs.{k}": v for k, v in outputs.items()
    }
    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda found: known[found[1]], text)


ONE_TEST = f'''
case "$1" in
  audit) shift; exec "{sys.executable}" -m dpaudit audit --tests=moments "$@" ;;
  *) exec "{sys.executable}" -m dpaudit "$@" ;;
esac'''


def follow(folder, dpaudit=ONE_TEST, **given):
    """Run the action's steps in ``folder``; the first exit code that is not 0, and the outputs."""
    action = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    inputs = {
        name: given.get(name.replace("-", "_"), about.get("default", ""))
        for name, about in action["inputs"].items()
    }
    tools = folder / "tools"
    tools.mkdir()
    (tools / "pip").write_text('#!/bin/sh\necho "$@" > "$TOOLS/pip.txt"\n')
    (tools / "dpaudit").write_text(f"#!/bin/sh\n{dpaudit}\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    outputs, code, uses = {}, 0, []
    for step in action["runs"]["steps"]:
        condition = step.get("if", "success()")
        assert condition in (
            "success()",
            "always()",
            "always() && steps.audit.outputs.in_file == 'true'",
        )
        if (code and "always()" not in condition) or (
            "in_file" in condition and outputs.get("in_file") != "true"
        ):
            continue
        if "uses" in step:
            uses.append(step["uses"].split("@")[0])
            continue
        env = {name: expression(text, inputs, outputs) for name, text in step["env"].items()}
        env |= {
            "GITHUB_OUTPUT": str(folder / "output.txt"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        }
        env |= {"PATH": f"{tools}:{os.environ['PATH']}", "TOOLS": str(tools), "HOME": str(folder)}
        script = folder / "step.sh"
        script.write_text(expression(step["run"], inputs, outputs))
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=folder,
            env=env,
            capture_output=True,
            encoding="utf-8",
            timeout=100,
        )
        code = code or done.returncode
        if (folder / "output.txt").exists():
            outputs = dict(
                line.split("=", 1)
                for line in (folder / "output.txt").read_text(encoding="utf-8").splitlines()
            )
    return code, outputs, uses


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(("function", "code"), [("honest", 0), ("wide", 1), ("dies", 3)])
def test_the_action_is_a_gate(folder, function, code):
    sampler = f"python:./noise.py:{function}"
    ended, outputs, uses = follow(
        folder, sampler=sampler, claim="gaussian:sigma=1", samples="2e4", package="./dpaudit"
    )
    assert (ended, outputs) == (code, {"code": str(code), "in_file": "true"})
    assert {path.name for path in (folder / "dpaudit-report").iterdir()} == FILES
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    assert summary == (folder / "dpaudit-report" / "report.md").read_text(encoding="utf-8")
    assert uses == ["github/codeql-action/upload-sarif", "actions/upload-artifact"]
    assert (folder / "tools" / "pip.txt").read_text(
        encoding="utf-8"
    ) == "install --quiet -- ./dpaudit\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("function", "claim", "code"),
    [
        ("release", {"claim_epsilon": "1"}, 1),
        ("scaled", {"claim_epsilon": "1", "call": "f(value, 0.2)"}, 1),
        ("quiet", {"claim_mu": "1"}, 0),
    ],
)
def test_the_action_is_a_gate_for_mechanisms(folder, function, claim, code):
    ended, outputs, uses = follow(
        folder,
        mechanism=f"python:./noise.py:{function}",
        neighbours="0,1",
        samples="4k",
        alpha="1e-4",
        package="./dpaudit",
        **claim,
    )
    assert (ended, outputs) == (code, {"code": str(code), "in_file": "true"})
    assert {path.name for path in (folder / "dpaudit-report").iterdir()} == FILES
    result = json.loads((folder / "dpaudit-report" / "result.json").read_text(encoding="utf-8"))
    assert result["kind"] == "mechanism"
    assert uses == ["github/codeql-action/upload-sarif", "actions/upload-artifact"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("what", "own"),
    [
        ("sampler", ["claim"]),
        (
            "mechanism",
            [
                *("neighbours", "claim-epsilon", "claim-delta", "claim-mu"),
                *("claim-rho", "claim-renyi", "claim-curve", "claim-f", "attack"),
            ],
        ),
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "$(touch owned)",
        "`touch owned`",
        '"; touch owned; "',
        "x\ntouch owned",
        "--help",
    ],
)
def test_no_input_of_the_action_is_run(folder, text, what, own):
    """A dpaudit that prints its arguments: exactly the inputs, each in its place."""
    given = dict.fromkeys((what, "samples", "alpha", "package"), text)
    given |= {name.replace("-", "_"): text for name in own} | {"out": "o/" + text}
    ended, outputs, _ = follow(
        folder, dpaudit="""printf '%s\\0' "$@" > "$TOOLS/args"; exit 2""", **given
    )
    assert (ended, outputs) == (2, {"code": "2", "in_file": "false"})
    options = [
        f"--alpha={text}",
        f"--out=o/{text}",
        ALSO,
        f"--samples={text}",
        *(f"--{name}={text}" for name in own),
        "--",
        text,
    ]
    assert (folder / "tools" / "args").read_text(encoding="utf-8").split("\0")[:-1] == [
        "audit" if what == "sampler" else "mechanism",
        *options,
    ]
    assert (folder / "tools" / "pip.txt").read_text(
        encoding="utf-8"
    ) == f"install --quiet -- {text}\n"
    assert "owned" not in {path.name for path in folder.rglob("*")}
    assert "no report" in (folder / "summary.md").read_text(encoding="utf-8")


def test_the_runner_of_this_test_would_notice(folder):
    """The same hostile text, in a script that an expression was put into, does run."""
    script = expression('echo "${{ inputs.sampler }}"', {"sampler": "$(touch owned)"}, {})
    subprocess.run(["bash", "-c", script], cwd=folder, check=True)
    assert (folder / "owned").exists()


def test_the_workflow_gates_the_release():
    workflow = yaml.safe_load((ACTION / "workflow.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert set(jobs["release"]["needs"]) == {"noise", "mechanism"}
    assert "if" not in jobs["release"]
    inputs = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))["inputs"]
    needed = {name for name, about in inputs.items() if about.get("required")}
    folders = set()
    for job in ("noise", "mechanism"):
        (step,) = [s for s in jobs[job]["steps"] if s.get("uses", "").startswith("./")]
        assert needed <= set(step["with"]) <= set(inputs)
        assert len({"sampler", "mechanism"} & set(step["with"])) == 1
        folders.add(step["with"].get("out", inputs["out"]["default"]))
        assert not any("continue-on-error" in s for s in jobs[job]["steps"])
    assert len(folders) == 2  # artifacts of one run have different names


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        (*AUDIT, "python:./broken.py:honest"),
        (*AUDIT, "no-such-sampler"),
        ("audit", "--claim=gaussian:sigma=x", "python:./noise.py:honest"),
        (*MECHANISM, "python:./broken.py:release"),
    ],
)
def test_no_verdict_of_before_is_left_by_an_audit_that_could_not_start(
    folder, dpaudit, passed, args
):
    (folder / "broken.py").write_text("raise RuntimeError('no entropy left')\n")
    recovered = {
        "keyless-search.json": '{"format": "dpaudit-recovered-direction"}',
        "moments.json": "mine",
        "notes.txt": "mine",
    }
    for name, text in {**recovered, "results.json": "mine"}.items():
        (folder / "out" / name).write_text(text)
    code, stdout, stderr = dpaudit(*args, "--out=out", cwd=folder)
    assert code in (2, 3), stderr
    left = {path.name for path in (folder / "out").iterdir()}
    if code == 2:
        expected = {"moments.json", "notes.txt", "results.json"} | (
            {"keyless-search.json"} if args[0] == "mechanism" else set()
        )
        assert left == expected
        assert stdout == ""
    else:
        assert (
            json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))["result"][
                "verdict"
            ]
            == "inconclusive"
        )
        for name in ("report.junit.xml", "report.sarif", "report.md"):
            assert "o finding" not in (folder / "out" / name).read_text(encoding="utf-8").replace(
                '"no-finding"', ""
            )


def test_a_report_that_cannot_be_removed_stops_the_audit(folder, dpaudit):
    (folder / "out" / "result.json").mkdir(parents=True)
    code, _, stderr = dpaudit(*AUDIT, "python:./noise.py:honest", "--out=out", cwd=folder)
    assert code == 2
    assert "result.json of an earlier run cannot be removed (Is a directory)" in stderr
