from __future__ import annotations

import subprocess
import sys

import pytest

from dpaudit import registry
from dpaudit.errors import UnknownNameError, UsageError
from dpaudit.interfaces import ClosedSampler
from dpaudit.samplers import open_sampler


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


@pytest.mark.parametrize("options", [{"dtype": "f32"}, {"text_mode": True}])
@pytest.mark.parametrize("text", ["python:m:f", "library:libx.so:y", "file:a.npy", "gaussian"])
def test_options_that_would_be_ignored_are_refused(text, options):
    with pytest.raises(UsageError, match=next(iter(options))):
        open_sampler(text, seed="1", **options)


def test_a_plug_in_kind_is_called_with_its_target_and_options(monkeypatch):
    class Mine:
        def __init__(self, target, *, seed, dtype, text_mode):
            self.given = (target, seed, dtype, text_mode)

    monkeypatch.setattr(
        registry, "plugins", lambda kind: {"mine": None} if kind == "samplers" else {}
    )
    monkeypatch.setattr(registry, "load", lambda kind, name: Mine)
    sampler = open_sampler("mine:a:b c", seed="7", dtype="f32", text_mode=True)
    assert sampler.given == ("a:b c", "7", "f32", True)


def test_importing_the_samplers_is_light():
    code = "import sys, dpaudit.samplers; heavy = ('torch', 'scipy', 'cryptography')\n"
    code += "print([m for m in heavy if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_comes_out_is_a_closed_sampler(here):
    (here / "m.py").write_text("")
    for text in ("python:m:f", "command:true", "gaussian"):
        assert isinstance(open_sampler(text, seed="1"), ClosedSampler)


@pytest.mark.parametrize("text", ["python:m:f", "command:true", "gaussian"])
def test_drawing_outside_the_with_block_is_refused(text, here):
    with pytest.raises(UsageError, match="not open"):
        open_sampler(text, seed="1").draw(1, 1, timeout=1)
    sampler = open_sampler(text, seed="1")
    with sampler:
        pass
    with pytest.raises(UsageError, match="not open"):
        sampler.draw(1, 1, timeout=1)


@pytest.mark.parametrize(
    ("n", "d", "timeout"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, float("nan"))]
)
def test_impossible_requests_are_refused(n, d, timeout, here):
    with open_sampler("command:true", seed="1") as sampler, pytest.raises(UsageError):
        sampler.draw(n, d, timeout=timeout)
