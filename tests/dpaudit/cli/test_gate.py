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
from support import reports

from dpaudit.cli import main
from dpaudit.render import FORMATS, write_report
from dpaudit.report import SCHEMA

ACTION = reports.ROOT / "dpaudit" / "ci_templates" / "github"
FILES = {"report.html", "result.json", "report.junit.xml", "report.sarif"}
ALSO = "--also=junit,sarif"
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


def text_of(path):
    return path.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "noise.py").write_text(NOISE)
    return tmp_path


@pytest.fixture
def passed(folder):
    """What a pass left in its folder, every format of it."""
    report = reports.report("no-finding", command="dpaudit 'changed by hand")
    for name, (file, _) in FORMATS.items():
        write_report(report, folder / "out" / file, format=name)
    assert {path.name for path in (folder / "out").iterdir()} == FILES
    return folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code", "verdict"),
    [
        ((*AUDIT, "python:./noise.py:honest"), 0, "no-finding"),
        ((*AUDIT, "python:./noise.py:wide"), 1, "finding"),
        ((*AUDIT, "python:./noise.py:dies"), 3, "inconclusive"),
        ((*MECHANISM, "python:./noise.py:quiet"), 0, "no-finding"),
        ((*MECHANISM, "python:./noise.py:release"), 1, "finding"),
        ((*MECHANISM, "python:./noise.py:fails"), 3, "inconclusive"),
    ],
)
def test_every_verdict_leaves_every_format_and_its_exit_code(folder, dpaudit, args, code, verdict):
    ended, stdout, stderr = dpaudit(*args, "--out=out", ALSO, "--format=json", cwd=folder)
    assert ended == code, stdout + stderr
    printed, out = json.loads(stdout), folder / "out"
    assert {path.name for path in out.iterdir()} == FILES
    stored = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert reports.validator().is_valid(stored)
    assert (printed["verdict"], stored["verdict"]) == (verdict, verdict)
    assert printed == {"schema": SCHEMA, "kind": args[0], **stored["data"]}
    suites = ElementTree.parse(out / "report.junit.xml").getroot()
    assert (suites.get("failures") != "0", suites.get("errors") != "0") == (code == 1, code == 3)
    log = json.loads(text_of(out / "report.sarif"))
    assert reports.sarif().is_valid(log)
    (run,) = log["runs"]
    assert run["invocations"][0]["exitCode"] == code
    errors = [r["locations"][0] for r in run["results"] if r["level"] == "error"]
    assert bool(errors) == (code == 1)
    uris = {place["physicalLocation"]["artifactLocation"]["uri"] for place in errors}
    assert uris <= {"noise.py"}


def test_report_makes_the_formats_of_a_finished_folder(folder, dpaudit):
    write_report(reports.report("finding"), folder / "result.json", format="json")
    assert dpaudit("report", ".", ALSO, cwd=folder)[0] == 0
    assert {path.name for path in folder.iterdir()} == {*FILES, "noise.py"}
    write_report(reports.report("no-finding"), folder / "result.json", format="json")
    # the formats that are there are made anew, asked for or not
    assert dpaudit("report", ".", cwd=folder)[0] == 0
    assert ElementTree.parse(folder / "report.junit.xml").getroot().get("failures") == "0"
    _, schema, _ = dpaudit("report", "--schema", cwd=folder)
    assert json.loads(schema)["$id"] == "urn:dpaudit:report:2"


@pytest.mark.slow
def test_an_older_verdict_does_not_stay_in_the_folder(folder, dpaudit, passed):
    """Earlier formats are rewritten, requested or not; other programs' files are left alone."""
    (passed / "report.sarif").write_text("my own notes")
    assert dpaudit(*AUDIT, "python:./noise.py:wide", "--out=out", cwd=folder)[0] == 1
    assert ElementTree.parse(folder / "out" / "report.junit.xml").getroot().get("failures") == "1"
    assert text_of(folder / "out" / "report.sarif") == "my own notes"


# --- the action


def test_no_script_of_the_action_has_an_expression_in_it():
    steps = yaml.safe_load(text_of(ACTION / "action.yml"))["runs"]["steps"]
    scripts = [step for step in steps if "run" in step]
    assert len(scripts) == 3
    assert not any("${{" in script["run"] for script in scripts)
    assert all(script["shell"] == "bash" for script in scripts)


def expression(text, inputs, outputs):
    """What a runner makes of ``${{ inputs.x }}`` and the conditions used here."""
    known = {f"inputs.{k}": v for k, v in inputs.items()}
    known |= {f"steps.audit.outputs.{k}": v for k, v in outputs.items()}
    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda found: known[found[1]], text)


ONE_TEST = f'''
case "$1" in
  audit) shift; exec "{sys.executable}" -m dpaudit audit --tests=moments "$@" ;;
  *) exec "{sys.executable}" -m dpaudit "$@" ;;
esac'''


def follow(folder, dpaudit=ONE_TEST, **given):
    """Run the action's steps in ``folder``; the first exit code that is not 0, and the outputs."""
    action = yaml.safe_load(text_of(ACTION / "action.yml"))
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
        in_file = "always() && steps.audit.outputs.in_file == 'true'"
        assert condition in ("success()", "always()", in_file)
        if code and "always()" not in condition:
            continue
        if "in_file" in condition and outputs.get("in_file") != "true":
            continue
        if "uses" in step:
            uses.append(step["uses"].split("@")[0])
            continue
        given_env = step.get("env", {}).items()
        env = {name: expression(text, inputs, outputs) for name, text in given_env}
        out = folder / "output.txt"
        env |= {"GITHUB_OUTPUT": str(out), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
        env |= {"PATH": f"{tools}:{os.environ['PATH']}", "TOOLS": str(tools), "HOME": str(folder)}
        env |= {"RUNNER_TEMP": str(tools)}
        script = folder / "step.sh"
        script.write_text(expression(step["run"], inputs, outputs))
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(bash, cwd=folder, env=env, capture_output=True, timeout=100)
        code = code or done.returncode
        if out.exists():
            outputs = dict(line.split("=", 1) for line in text_of(out).splitlines())
    return code, outputs, uses


OF_NOISE = {"claim": "gaussian:sigma=1", "samples": "2e4"}
OF_RELEASES = {"neighbours": "0,1", "samples": "4k", "alpha": "1e-4"}
VERDICTS = {0: "No finding: ", 1: "Finding: ", 3: "RuntimeError: no entropy left"}
BASH = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


@BASH
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "function", "given", "code"),
    [
        ("sampler", "honest", OF_NOISE, 0),
        ("sampler", "wide", OF_NOISE, 1),
        ("sampler", "dies", OF_NOISE, 3),
        ("mechanism", "release", {"claim_epsilon": "1"}, 1),
        ("mechanism", "scaled", {"claim_epsilon": "1", "call": "f(value, 0.2)"}, 1),
        ("mechanism", "quiet", {"claim_mu": "1"}, 0),
    ],
)
def test_the_action_is_a_gate(folder, what, function, given, code):
    given = {what: f"python:./noise.py:{function}", "package": "./dpaudit"} | given
    given |= OF_RELEASES if what == "mechanism" else {}
    ended, outputs, uses = follow(folder, **given)
    assert (ended, outputs) == (code, {"code": str(code), "in_file": "true"})
    out = folder / "dpaudit-report"
    assert {path.name for path in out.iterdir()} == FILES
    assert json.loads(text_of(out / "result.json"))["kind"] == {"sampler": "audit"}.get(what, what)
    summary = text_of(folder / "summary.md")
    assert VERDICTS[code] in summary
    first, *printed, blank, last = summary.splitlines()
    assert first == blank == ""
    assert all(line.startswith("    ") for line in printed)
    assert last.startswith(f"Exit code {code} (")
    assert uses == ["github/codeql-action/upload-sarif", "actions/upload-artifact"]
    assert text_of(folder / "tools" / "pip.txt") == "install --quiet -- ./dpaudit\n"


@BASH
@pytest.mark.parametrize(
    ("what", "own"),
    [
        ("sampler", "claim"),
        ("mechanism", "neighbours claim-epsilon claim-delta claim-mu claim-rho claim-renyi "
                      "claim-curve claim-f attack"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "text", ["$(touch owned)", "`touch owned`", '"; touch owned; "', "x\ntouch owned", "--help"]
)
def test_no_input_of_the_action_is_run(folder, text, what, own):
    """A dpaudit that prints its arguments: exactly the inputs, each in its place."""
    own = own.split()
    given = dict.fromkeys((what, "samples", "alpha", "package"), text)
    given |= {name.replace("-", "_"): text for name in own} | {"out": "o/" + text}
    prints = """printf '%s\\0' "$@" > "$TOOLS/args"; exit 2"""
    ended, outputs, _ = follow(folder, dpaudit=prints, **given)
    assert (ended, outputs) == (2, {"code": "2", "in_file": "false"})
    options = [f"--alpha={text}", f"--out=o/{text}", ALSO, f"--samples={text}"]
    options += [*(f"--{name}={text}" for name in own), "--", text]
    command = "audit" if what == "sampler" else "mechanism"
    assert text_of(folder / "tools" / "args").split("\0")[:-1] == [command, *options]
    assert text_of(folder / "tools" / "pip.txt") == f"install --quiet -- {text}\n"
    assert "owned" not in {path.name for path in folder.rglob("*")}
    assert "no report" in text_of(folder / "summary.md")


def test_the_runner_of_this_test_would_notice(folder):
    """The same hostile text, in a script that an expression was put into, does run."""
    script = expression('echo "${{ inputs.sampler }}"', {"sampler": "$(touch owned)"}, {})
    subprocess.run(["bash", "-c", script], cwd=folder, check=True)
    assert (folder / "owned").exists()


def test_the_workflow_gates_the_release():
    workflow = yaml.safe_load(text_of(ACTION / "workflow.yml"))
    jobs = workflow["jobs"]
    assert set(jobs["release"]["needs"]) == {"noise", "mechanism"}
    assert "if" not in jobs["release"]
    inputs = yaml.safe_load(text_of(ACTION / "action.yml"))["inputs"]
    needed = {name for name, about in inputs.items() if about.get("required")}
    folders = set()
    for job in ("noise", "mechanism"):
        (step,) = [s for s in jobs[job]["steps"] if s.get("uses", "").startswith("./")]
        assert needed <= set(step["with"]) <= set(inputs)
        assert len({"sampler", "mechanism"} & set(step["with"])) == 1
        folders.add(step["with"].get("out", inputs["out"]["default"]))
        assert not any("continue-on-error" in s for s in jobs[job]["steps"])
    assert len(folders) == 2  # artifacts of one run have different names


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
        kept = {"moments.json", "notes.txt", "results.json"}
        assert left == kept | ({"keyless-search.json"} if args[0] == "mechanism" else set())
        assert stdout == ""
        return
    assert json.loads(text_of(folder / "out" / "result.json"))["verdict"] == "inconclusive"
    for name in ("report.junit.xml", "report.sarif"):
        assert "o finding" not in text_of(folder / "out" / name).replace('"no-finding"', "")


def test_a_report_that_cannot_be_removed_stops_the_audit(folder, dpaudit):
    (folder / "out" / "result.json").mkdir(parents=True)
    code, _, stderr = dpaudit(*AUDIT, "python:./noise.py:honest", "--out=out", cwd=folder)
    assert code == 2
    assert "result.json of an earlier run cannot be removed (Is a directory)" in stderr
