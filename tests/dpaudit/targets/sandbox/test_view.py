"""What a foreign program gets to see: which folders, and which environment variables."""

from __future__ import annotations

import os
import sys

import numpy
import pytest
from support.draws import draw

import dpaudit
from dpaudit.targets.sandbox import view
from dpaudit.targets.sandbox.view import environment, plan


@pytest.fixture(params=["a home of its own", "a home among others"])
def machine(request, tmp_path, monkeypatch):
    """A home like ``/root`` or ``/home/user``, a temporary folder, and some visible folders."""
    top = tmp_path.resolve()
    homes = top / "homes"
    home = homes / "user" if request.param == "a home among others" else homes
    for folder in (home, top / "temporary", top / "srv"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(view, "_ALWAYS", (str(homes), str(top / "temporary")))
    monkeypatch.setattr(view, "_python", tuple)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(top / "srv")
    return top, home


def made(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def shown(path, seen):
    """Whether a program with this view sees ``path``."""
    path = os.path.realpath(path)
    kept = [os.path.realpath(p) for p in seen.kept]
    return not view._below_any(path, seen.hidden) or view._below_any(path, kept)


def test_homes_temporary_folders_and_the_working_tree_are_hidden(machine, monkeypatch):
    top, home = machine
    tree = top / "work" / "tree"
    for folder in (tree / ".git", tree / "inner"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(tree / "inner")
    seen = plan([made(top / "vendor" / "s.py")])
    assert seen.hidden == tuple(sorted(map(str, (top / "homes", top / "temporary", tree))))
    assert seen.kept == ()  # what is not hidden need not be shown
    assert (seen.home, seen.cwd) == (str(home), str(tree / "inner"))


def test_no_checkout_then_the_working_directory_alone(machine, monkeypatch):
    top, _ = machine
    (top / "work" / "inner").mkdir(parents=True)
    monkeypatch.chdir(top / "work" / "inner")
    assert str(top / "work" / "inner") in plan([]).hidden
    assert str(top / "work") not in plan([]).hidden


def test_a_program_in_the_working_tree_sees_all_of_it(machine, monkeypatch):
    top, home = machine
    for tree in (top / "work", home / "work"):
        (tree / ".git").mkdir(parents=True)
        sampler = made(tree / "a" / "s.py")
        monkeypatch.chdir(tree / "a")
        seen = plan([sampler])
        assert shown(tree / "b", seen)
        assert str(tree) not in seen.hidden
        assert not shown(home / "diary", seen)
        monkeypatch.chdir(top / "srv")
        assert not shown(home / "work" / "b", plan([sampler]))


def test_a_file_brings_the_folder_around_it_but_no_hidden_one(machine, monkeypatch):
    top, home = machine
    for name, kept in (
        (home / "vendor" / "s.py", home / "vendor"),
        (top / "temporary" / "x" / "s.py", top / "temporary" / "x"),
        (home / "venv" / "bin" / "python", home / "venv"),
        (home / "bin" / "sampler", home / "bin"),
        (home / "s.py", home / "s.py"),
        (top / "temporary" / "s.py", top / "temporary" / "s.py"),
    ):
        assert plan([made(name)]).kept == (str(kept),)
        if kept.is_dir():
            assert plan([str(kept)]).kept == (str(kept),)
        else:
            monkeypatch.chdir(name.parent)
            assert plan([str(name)]).kept == (str(name),)
            monkeypatch.chdir(top / "srv")
    assert plan([str(home / "nothing" / "s.py"), "no such word"]).kept == ()


def test_the_home_as_working_directory_stays_hidden(machine, monkeypatch):
    _, home = machine
    sampler = made(home / "vendor" / "s.py")
    monkeypatch.chdir(home)
    assert plan([sampler]).kept == (str(home / "vendor"),)
    (home / ".git").mkdir()  # its settings kept with Git
    assert plan([sampler]).kept == (str(home / "vendor"),)
    (home / "work").mkdir()
    monkeypatch.chdir(home / "work")
    assert not shown(home / "diary", plan([sampler]))
    assert not shown(home / "diary", plan([made(home / "work" / "s.py")]))


def test_both_ends_of_a_link_are_seen(machine):
    _, home = machine
    made(home / "store" / "v2" / "s.py")
    (home / "current").symlink_to(home / "store" / "v2")
    assert set(plan([str(home / "current" / "s.py")]).kept) == {
        str(home / "current"),
        str(home / "store" / "v2"),
    }
    (home / "links").mkdir()
    (home / "links" / "s.py").symlink_to(home / "store" / "v2" / "s.py")
    assert set(plan([str(home / "links" / "s.py")]).kept) == {
        str(home / "links"),
        str(home / "store" / "v2"),
    }


def test_a_linked_home_is_hidden_where_it_really_is(machine, monkeypatch):
    top, home = machine
    (top / "linked").symlink_to(home)
    monkeypatch.setenv("HOME", str(top / "linked"))
    sampler = made(top / "linked" / "s.py")
    seen = plan([sampler])
    assert view._below_any(str(home), seen.hidden)
    assert not shown(home / "diary", seen)
    assert shown(home / "s.py", seen)


def test_what_is_asked_for_is_shown_a_home_too(machine, monkeypatch):
    _, home = machine
    made(home / "data" / "x")
    assert plan([], [str(home / "data")]).kept == (str(home / "data"),)
    assert plan([], [str(home)]).kept == (str(home),)
    monkeypatch.chdir(home)
    assert plan([], ["data/x"]).kept == (str(home / "data" / "x"),)


def test_nothing_that_programs_run_on_is_hidden(machine, monkeypatch):
    for folder in ("/", "/usr", "/etc", "/proc"):
        monkeypatch.chdir(folder)
        assert folder not in plan([]).hidden


def test_the_python_that_runs_is_seen(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = plan([])
    for path in (
        sys.prefix,
        sys.base_prefix,
        os.path.realpath(sys.executable),
        dpaudit.__file__,
        numpy.__file__,
    ):
        assert shown(path, seen), path


def test_an_import_path_that_is_a_home_does_not_show_it(machine, monkeypatch):
    """``python script.py`` puts the script's folder, perhaps the home directory, on the path."""
    _, home = machine
    monkeypatch.setattr(view, "_python", lambda: (str(home),))
    assert plan([]).kept == ()


PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "PYTHONHASHSEED",
          "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "R_LIBS_USER",
          "JULIA_NUM_THREADS", "NVIDIA_VISIBLE_DEVICES", "XLA_FLAGS")  # fmt: skip
KEPT_BACK = ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "GITHUB_TOKEN", "SSH_AUTH_SOCK",
             "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DOCKER_HOST", "KUBECONFIG",
             "HTTP_PROXY", "https_proxy", "DATABASE_URL", "PGPASSWORD", "LD_PRELOAD", "LD_AUDIT",
             "PYTHONSTARTUP", "PYTHONBREAKPOINT", "PYTHONINSPECT", "TMPDIR", "DPAUDIT_SANDBOX",
             "DPAUDIT_DATA", "DISPLAY", "PATHS", "XPATH", "path", "PATH\n", "")  # fmt: skip
FAMILIES = ("LC", "OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA", "BLIS", "VECLIB", "RAYON", "GOTO",
            "CUDA", "NVIDIA", "CUBLAS", "NCCL", "XLA", "JAX", "TORCH", "OCTAVE", "GSL_RNG",
            "R_LIBS")  # fmt: skip


def test_variables_that_programs_need_are_passed():
    assert set(environment(dict.fromkeys((*PASSED, *KEPT_BACK), "x"))) == set(PASSED)


@pytest.mark.parametrize(
    "secret", ["API_KEY", "TOKEN", "CLIENT_SECRET", "PASSWORD", "KEY", "TOKEN_FILE"]
)
def test_no_family_passes_a_secret(secret):
    given = {f"{family}_{secret}": "hush" for family in FAMILIES}
    assert environment(given) == {}
    named = next(iter(given))
    assert environment(given, [named]) == {named: "hush"}  # unless it is asked for


@pytest.mark.parametrize("home", ["/", "/usr", "/usr/games", "/proc"])
def test_a_home_of_the_system_stays(home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", home)
    assert not {home, "/usr", "/proc", "/"} & set(plan([]).hidden)


def test_a_service_keeps_its_home_to_itself(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/var/lib")
    assert "/var/lib" in plan([]).hidden


@pytest.mark.slow
def test_a_home_that_is_not_there_is_not_made(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/usr/dpaudit-no-home")
    assert draw("python:numpy.random:standard_normal", 2, 1).shape == (2, 1)
    assert not os.path.exists("/usr/dpaudit-no-home")
