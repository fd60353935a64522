"""What a target opens, what does not fit it, and what a bare path or name was meant to be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support.draws import draw

from dpaudit import registry
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.protocols import Request, Target
from dpaudit.targets import open_sampler
from dpaudit.targets.adapters.numpy import LIBRARY as NUMPY
from dpaudit.targets.hints import offers, suggested_target
from dpaudit.targets.resolve import open_mechanism
from dpaudit.targets.sandbox.policy import sandbox_policy


@pytest.mark.parametrize(
    ("text", "near"), [("gausian", "gaussian"), ("comand:x", "command"), ("pyton:a:b", "python")]
)
def test_an_unknown_name_suggests_sources_and_kinds(text, near):
    with pytest.raises(UnknownNameError, match=f"did you mean '{near}'") as caught:
        open_sampler(text, seed="1")
    for word in ("python:", "command:", "library:", "file:", "dpaudit list sources"):
        assert word in str(caught.value)


def test_an_unknown_mitigation_is_found_before_anything_starts():
    with pytest.raises(UnknownNameError, match="did you mean 'rotation'"):
        open_sampler("gaussian", seed="1", mitigation="rotatoin")


@pytest.mark.parametrize("text", ["python:m:f", "command:true", "library:x:y", "file:a.npy"])
def test_mitigations_are_for_sources(text):
    with pytest.raises(UsageError, match="mitigation=rotation"):
        open_sampler(text, seed="1", mitigation="rotation")


@pytest.mark.parametrize(
    "text", ["python", "python:", "command:  ", "python:m", "library:x", "file:"]
)
def test_a_kind_needs_its_target(text, here):
    with pytest.raises(UsageError):
        open_sampler(text, seed="1")


@pytest.mark.parametrize("text", ["python:m:f", "library:libx.so:y", "file:a.npy", "gaussian"])
def test_options_that_would_be_ignored_are_refused(text):
    for options in ({"dtype": "f32"}, {"text_mode": True}):
        with pytest.raises(UsageError, match=next(iter(options))):
            open_sampler(text, seed="1", **options)


def test_a_plug_in_kind_is_called_with_its_target_and_options(monkeypatch):
    class Mine:
        def __init__(self, target, *, seed, dtype, text_mode):
            self.given = (target, seed, dtype, text_mode)

        def open(self, *, timeout): ...

    class Old:
        def __init__(self, target, **options): ...

        def draw(self, n, d, *, timeout): ...

    plugins = {
        name: SimpleNamespace(origin=SimpleNamespace(distribution=distribution))
        for name, distribution in (("mine", "theirs"), ("ours", "dpaudit"))
    }
    kinds = {"samplers": plugins}
    monkeypatch.setattr(registry, "plugins", lambda kind: kinds.get(kind, {}))
    monkeypatch.setattr(registry, "load", lambda kind, name: Mine)
    with sandbox_policy() as policy:
        sampler = open_sampler("mine:a:b c", seed="7", dtype="f32", text_mode=True)
    assert sampler.given == ("a:b c", "7", "f32", True)
    assert policy.reached == "none"  # it runs in this process
    with sandbox_policy("require"), pytest.raises(UsageError, match="mine: is a plug-in of theirs"):
        open_sampler("mine:x", seed="7")
    with sandbox_policy("require") as policy:
        open_sampler("ours:x", seed="7")  # ours confine what they start
    assert policy.reached == "not needed"
    monkeypatch.setattr(registry, "load", lambda kind, name: NUMPY)
    with sandbox_policy("require") as policy:
        open_sampler("mine:laplace", seed="7")  # an adapter's worker is confined
    assert policy.reached == "not needed"
    monkeypatch.setattr(registry, "load", lambda kind, name: Old)
    with pytest.raises(UsageError, match=r"sampler=mine: .*Old.* only draw.* ask\(request"):
        open_sampler("mine:x", seed="7")


def test_importing_the_samplers_is_light():
    code = "import sys, dpaudit.targets; heavy = ('torch', 'scipy', 'cryptography')\n"
    code += "print([m for m in heavy if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("text", ["python:m:f", "command:true", "gaussian"])
def test_drawing_outside_the_with_block_is_refused(text, here):
    (here / "m.py").write_text("")
    sampler = open_sampler(text, seed="1")
    assert isinstance(sampler, Target)
    with pytest.raises(UsageError, match="not open"):
        sampler.ask(Request(1, 1), timeout=1)
    with sampler.open(timeout=60):
        pass
    with pytest.raises(UsageError, match="not open"):
        sampler.ask(Request(1, 1), timeout=1)
    if text != "gaussian":
        text = "command:true {value} {n}"
    with pytest.raises(UsageError, match="not open"):
        open_mechanism(text, seed="1").ask(Request(1, input=np.ones(1)), timeout=5)


@pytest.mark.parametrize(
    ("n", "d", "timeout"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, float("nan"))]
)
def test_impossible_requests_are_refused(n, d, timeout, here):
    with (
        open_sampler("command:true", seed="1").open(timeout=60) as sampler,
        pytest.raises(UsageError),
    ):
        sampler.ask(Request(n, d), timeout=timeout)


# ---------------------------------------------------------------- hints

C = """
    double gauss(double sigma) { return sigma; }
    void laplace(double *out, unsigned long n) { while (n--) out[n] = 0; }
    int table[3] = {1, 2, 3};
    static int hidden(void) { return table[0]; }
    int _private(void) { return hidden(); }
"""


@pytest.fixture
def vendor(here, cc):
    shutil.copy(cc(C), here / "vendor.so")
    (here / "mine.py").write_text(
        '"""def not_one"""\nfrom math import *\ndef noise(n, d): ...\nasync def other(): ...\n'
        "def _hidden(): ...\nclass C:\n    def method(self): ...\n"
    )
    (here / "mine.csv").write_text("1\n")
    (here / "tool").write_text("#!/bin/sh\n")
    (here / "tool").chmod(0o755)
    return here


@pytest.mark.parametrize(
    ("text", "sampler", "mechanism"),
    [
        ("./vendor.so", "library:./vendor.so:SYMBOL'? it has gauss, laplace", None),
        (
            "libnoise.so.1.2",
            "library:libnoise.so.1.2:SYMBOL'? there is no file libnoise.so.1.2",
            None,
        ),
        ("./mine.py", "python:./mine.py:FUNCTION'? it has noise, other", None),
        ("mine.py:noise", "python:mine.py:noise'?", None),
        ("numpy.random:laplace", "python:numpy.random:laplace'?", None),
        ("mine.csv", "file:mine.csv'?", "file:mine.csv;SECOND-FILE'?"),
        (
            "mine.csv;b.npy",
            "file:mine.csv;b.npy'? there is no file b.npy",
            "file:mine.csv;b.npy'? there is no file b.npy",
        ),
        ("x.py:f", "python:x.py:f'? there is no file x.py", None),
        ("htp://h:80/x", "http://h:80/x'?", None),
        ("http//h/x", "http://h/x'?", None),
        ("localhost:8000/noise", "http://localhost:8000/noise'?", None),
        ("./tool", "command:./tool {n} {d}'?", "command:./tool --value={value} {n}'?"),
    ],
)
def test_what_was_meant(text, sampler, mechanism, vendor):
    for open_, wanted in ((open_sampler, sampler), (open_mechanism, mechanism or sampler)):
        with pytest.raises(UnknownNameError) as caught:
            open_(text, seed="1")
        _, _, said = str(caught.value).partition(f"={text}: did you mean '")
        assert said == wanted


@pytest.mark.parametrize(
    "text", ["gausian", "gausian:sigma=1", "no_module:f", "a b", "", ":", "\x1b"]
)
def test_no_guess_is_better_than_a_bad_one(text, here):
    assert suggested_target(text, releases=False) == suggested_target(text, releases=True) == ""


@pytest.mark.slow
def test_functions_of_cpp_are_listed_by_the_names_that_open_them(here, cc):
    code = "double _Z5noised(double x) { return x; }\nint _own(void) { return 1; }"
    shutil.copy(cc(code), here / "vendor.so")
    assert suggested_target("vendor.so", releases=False).endswith("? it has _Z5noised")
    text = "library:./vendor.so:_Z5noised"
    assert draw(text, 1, 1, call="f(2) -> double") == 2


def test_control_characters_of_a_path_reach_no_terminal(here):
    (here / "a\x1b[31m.py").write_text("def f\x1b(): ...\n")
    said = suggested_target("./a\x1b[31m.py", releases=False)
    assert said.isprintable()
    assert said.endswith("it has f")


@pytest.mark.slow
def test_a_target_without_its_function_says_which_there_are(vendor):
    with pytest.raises(UsageError, match=r"needs a symbol; .*; it has gauss, laplace$"):
        open_sampler("library:./vendor.so", seed="1")
    with pytest.raises(UsageError, match=r"needs a function; .*; it has noise, other$"):
        open_sampler("python:./mine.py", seed="1")
    for opened, request in (
        (open_sampler("library:./vendor.so:gaus", seed="1"), Request(1)),
        (open_mechanism("library:./vendor.so:gaus", seed="1"), Request(1, input=np.ones(1))),
    ):
        with opened.open(timeout=20) as session, pytest.raises(UsageError, match="symbol=gaus"):
            session.ask(request, timeout=20)


def test_what_cannot_be_listed_is_left_out(vendor, monkeypatch):
    (vendor / "text.so").write_text("not a library")
    assert offers("text.so") == offers("none.so") == offers("") == ""
    (vendor / "many.py").write_text("".join(f"def f{i}(): ...\n" for i in range(20)))
    assert offers("many.py").endswith("f11 and 8 more")
    monkeypatch.setenv("PATH", str(vendor))  # no nm
    assert (
        suggested_target("./vendor.so", releases=False)
        == "did you mean 'library:./vendor.so:SYMBOL'?"
    )
