"""``dpaudit init``: the files of a gate, which work as they are or after what is said."""

import json
import shlex
from importlib import metadata

import pytest
import typer
import yaml
from command_line import here as dpaudit

from dpaudit.cli.app import app

FILES = {
    "github": [".github/actions/dpaudit/action.yml", ".github/workflows/dpaudit.yml"],
    "gitlab": [".gitlab/dpaudit.yml"],
    "pytest": ["tests/test_noise.py"],
}
NOWHERE = "git+https://HOST/OWNER/dpaudit@COMMIT"


def written(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("kind", FILES)
def test_the_files_and_what_to_do_next(tmp_path, kind):
    done = dpaudit("init", kind, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == FILES[kind] == written(tmp_path)
    assert "Edit " in done.stderr
    assert (NOWHERE in done.stderr) == (kind != "pytest")
    for name in FILES[kind]:
        text = (tmp_path / name).read_text()
        assert name in text or kind == "pytest"
        if name.endswith(".yml"):
            assert yaml.safe_load(text)


@pytest.mark.parametrize("kind", FILES)
def test_nothing_is_overwritten_without_force(tmp_path, kind):
    last = tmp_path / FILES[kind][-1]
    last.parent.mkdir(parents=True)
    last.write_text("mine")
    done = dpaudit("init", kind, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"file={FILES[kind][-1]}: is there already; --force replaces it" in done.stderr
    assert written(tmp_path) == [FILES[kind][-1]]
    assert last.read_text() == "mine"
    assert dpaudit("init", kind, "--force", cwd=tmp_path).returncode == 0
    assert last.read_text() != "mine"


@pytest.mark.slow
def test_a_dpaudit_from_a_repository_names_it(tmp_path, monkeypatch):
    class From:
        def __init__(self, origin):
            self.origin = origin

        def read_text(self, name):
            return self.origin

    origin = {
        "url": "https://git.example/lab/dpaudit",
        "vcs_info": {"vcs": "git", "commit_id": "0a1b"},
    }
    monkeypatch.setattr(metadata, "distribution", lambda name: From(json.dumps(origin)))
    done = dpaudit("init", "gitlab", cwd=tmp_path)
    text = (tmp_path / ".gitlab/dpaudit.yml").read_text()
    assert "PACKAGE: git+https://git.example/lab/dpaudit@0a1b\n" in text
    assert "HOST" not in done.stderr
    for other in (None, "{}", "[]", json.dumps(origin | {"url": "x\nrun: touch owned"})):
        monkeypatch.setattr(metadata, "distribution", lambda name, other=other: From(other))
        dpaudit("init", "gitlab", "--force", cwd=tmp_path)
        assert f"PACKAGE: {NOWHERE}\n" in (tmp_path / ".gitlab/dpaudit.yml").read_text()


def test_the_commands_of_gitlab_parse(tmp_path):
    dpaudit("init", "gitlab", cwd=tmp_path)
    jobs = yaml.safe_load((tmp_path / ".gitlab/dpaudit.yml").read_text())
    root = typer.main.get_command(app)
    for job in ("noise", "mechanism"):
        assert jobs[job]["extends"] == ".dpaudit"
        (line,) = jobs[job]["script"]
        words = shlex.split(line)
        command = root.get_command(typer.Context(root), words[1])
        context = command.make_context(words[1], words[2:])
        assert str(context.params["out"]) == jobs[".dpaudit"]["artifacts"]["paths"][0]
