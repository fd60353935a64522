"""``dpaudit deployment`` as a person meets it."""

import json
import plistlib
import shutil
from pathlib import Path
from typing import Annotated

import pytest
import typer
from command_line import here

from dpaudit import registry
from dpaudit.cli.output import write_json_line
from dpaudit.randomness import KeyedStream
from dpaudit.report import Described, Report
from dpaudit_local.apple.configuration import read_configuration
from tests.support.apple.scenario import make_scenario

DATA = Path(__file__).parents[2] / "data" / "apple"
BUDGETS = "com.apple.dprivacyd.budgetproperties.plist"
PROPERTIES = "com.apple.dprivacyd.keyproperties.plist"


def apple(*args, command="apple", code=0, cwd=None):
    args = ("deployment", command, *map(str, args))
    result = here(*args, cwd=cwd)
    assert result.returncode == code, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    return result


def changed(tmp_path, name, change):
    folder = shutil.copytree(DATA / "10.12.3", tmp_path / "changed")
    entries = plistlib.loads((folder / name).read_bytes())
    (folder / name).write_bytes(plistlib.dumps(change(entries)))
    return folder


def test_a_serious_finding_is_1(tmp_path):
    def negative(entries):
        return [
            e | ({"PrivacyParameter": -9} if e["PropertiesName"] == "Search" else {})
            for e in entries
        ]

    result = apple("--config", changed(tmp_path, PROPERTIES, negative), code=1)
    for words in ("PrivacyParameter=-9", "keyproperties.plist: Search", "Not counted: 2 KeyNames"):
        assert words in result.stdout


@pytest.mark.parametrize(
    "content", [b"", b"bplist00", b"<!DOCTYPE plist [<!ENTITY a 'b'>]><plist>&a;</plist>"]
)
def test_bad_files_are_2(tmp_path, content):
    folder = shutil.copytree(DATA / "10.12.3", tmp_path / "bad")
    (folder / BUDGETS).write_bytes(content)
    for output in ("text", "json"):
        result = apple("--config", folder, "--format", output, code=2)
        assert BUDGETS in result.stderr
        assert result.stdout == ""


def test_strange_names_are_harmless(tmp_path):
    def strange(entries):
        return [
            *entries,
            {"BudgetName": "com\x1b[2Jevil [bold]", "SessionSeconds": 86400, "SessionAmount": 1},
        ]

    folder = shutil.copytree(DATA / "10.12.3", tmp_path / "strange")
    entries = strange(plistlib.loads((folder / BUDGETS).read_bytes()))
    (folder / BUDGETS).write_bytes(plistlib.dumps(entries, fmt=plistlib.FMT_BINARY))
    said = apple("--config", folder).stdout
    assert "\x1b" not in said
    assert "evil [bold]" in said


@pytest.mark.parametrize("version", ["10.12.3", "ios-11"])
def test_a_simulated_device_is_audited(tmp_path, version):
    made, stream = tmp_path / "made", KeyedStream.from_seed(5)
    make_scenario(read_configuration(DATA / version), out=made, days=3, stream=stream)
    args = (
        "--database",
        made / "database.sqlite",
        "--reports",
        made / "Reports",
        "--format",
        "json",
    )
    result = here("deployment", "apple", "--config", DATA / version, *args)
    assert result.returncode in (0, 1), result.stderr
    document = json.loads(result.stdout)
    assert document["observed"]["reports"] > 0
    assert document["database"]["balances"]


@pytest.mark.slow
def test_out_writes_the_document_and_a_page(tmp_path):
    result = apple(
        "--config", DATA / "10.12.3", "--out", tmp_path / "page", "--against", DATA / "10.12.1"
    )
    stored = json.loads((tmp_path / "page" / "result.json").read_text())
    assert stored["data"]["ledger"]["permitted"]["per_day"] == 16
    assert "16" in (tmp_path / "page" / "report.html").read_text()
    assert "report.html" in result.stderr
    again = here("report", tmp_path / "page")
    assert again.returncode == 0, again.stderr


def test_json_does_not_steer_a_terminal(capsys):
    name = "a\x9b31m\u202eb\u2066é"
    write_json_line({"name": name})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"name": name}
    assert "é" in shown
    assert not set("\x9b\u202e\u2066") & set(shown)


class Spent(Described):
    kind = "spent"

    def __init__(self, allowed):
        self.allowed = allowed


def spent(allowed: Annotated[float, typer.Option(help="ε a day.")] = 1.0) -> Spent:
    """Audit a file of somebody else's."""
    return Spent(allowed)


def described(result):
    over = result.allowed < 3
    texts = dict.fromkeys(("label", "subject", "title"), "budget")
    verdict = "finding" if over else "no-finding"
    return Report(kind="spent", verdict=verdict, headline=f"{result.allowed:g} a day.", **texts)


def test_a_third_partys_deployment_has_the_options_of_every_verdict(tmp_path, monkeypatch):
    """A function of its own options and a description: help, exit code, files and JSON follow."""
    names, load = registry.plugins, registry.load
    theirs = {("deployments", "spent"): spent, ("results", "spent"): described}
    monkeypatch.setattr(
        registry, "plugins", lambda k: {"spent": None} if k == "deployments" else names(k)
    )
    monkeypatch.setattr(registry, "load", lambda k, n: theirs.get((k, n)) or load(k, n))
    assert "somebody else's" in apple("--help", command="spent").stdout
    out = tmp_path / "out"
    apple("--allowed", 2, "--out", out, "--also", "sarif", command="spent", code=1)
    assert {p.name for p in out.iterdir()} == {"report.html", "result.json", "report.sarif"}
    shown = apple("--allowed", 4, "--format", "json", command="spent").stdout
    assert json.loads(shown)["kind"] == "spent"
