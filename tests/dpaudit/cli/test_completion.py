"""What a shell offers, through the environment that each shell's own script sets."""

import json
import subprocess
import sys

import pytest
from command_line import here

from dpaudit import registry
from dpaudit.claims import FAMILIES, Claim
from dpaudit.cli import completion


def asked(monkeypatch, shell, *words):
    """What ``dpaudit WORDS`` and Tab offers; the last word is the one being typed."""
    line = " ".join(["dpaudit", *words])
    environment = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words))},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    for name, value in {"_DPAUDIT_COMPLETE": f"complete_{shell}", **environment}.items():
        monkeypatch.setenv(name, value)
    result = here()
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.replace("\\", "")  # zsh's own quoting


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "offered", "not_offered"),
    [
        (("aud",), ["audit"], ["attack"]),
        (("audit", "gau"), ["gaussian"], ["laplace"]),
        (("audit", "op"), ["opacus:", "opendp:"], ["rotation"]),
        (
            ("audit", "gaussian", "--claim", "disc"),
            ["discrete-gaussian:sigma=", "discrete-laplace:scale="],
            ["rounding"],
        ),
        (("audit", "gaussian", "--tests", "moments,ta"), ["moments,tails"], ["moments,moments"]),
        (("audit", "gaussian", "--mitigation", "ro"), ["rotation", "rounding"], ["gaussian"]),
        (("mechanism", "sc"), ["scores:", "scipy:"], ["secure-gaussian"]),
        (("mechanism", "secure-gaussian", "--attack", "pair"), ["pair-inversion"], ["reach"]),
        (("attack", "like"), ["likelihood-ratio"], ["which-bin"]),
        (("run", "gpm"), ["gpm-table2"], ["demo"]),
        (("list", "so"), ["sources"], ["attacks"]),
        (("list", "me"), ["mechanisms", "measures"], ["sources"]),
        (("init", "git"), ["github", "gitlab"], ["pytest"]),
        (("in",), ["init"], ["list"]),
    ],
)
def test_names_are_offered(monkeypatch, shell, words, offered, not_offered):
    said = asked(monkeypatch, shell, *words)
    assert all(name in said for name in offered)
    assert not any(name in said for name in not_offered)


def test_claims_are_those_there_are():
    assert sorted(completion.CLAIMS) == sorted(
        f"{family}:{scale}=" for family, scale in FAMILIES.items()
    )
    assert all(Claim.parse(f"{begun}1").scale == 1 for begun in completion.CLAIMS)


def test_a_broken_plugin_is_no_traceback(monkeypatch):
    def broken(kind):
        raise RuntimeError(kind)

    monkeypatch.setattr(registry, "plugins", broken)
    assert asked(monkeypatch, "bash", "audit", "gau").strip() == ""


@pytest.mark.slow
def test_it_imports_nothing_heavy():
    """Tab answers at once: neither numpy nor a plug-in is imported."""
    code = (
        "import os, sys, json, atexit\n"
        "heavy = {'numpy', 'scipy', 'torch', 'matplotlib'}\n"
        "atexit.register(lambda: json.dump(sorted(heavy & set(sys.modules)), sys.stderr))\n"
        "os.environ.update(_DPAUDIT_COMPLETE='complete_bash', "
        "COMP_WORDS='dpaudit audit gau', COMP_CWORD='2')\n"
        "sys.argv = ['dpaudit']\nfrom dpaudit.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["gaussian"]
    assert json.loads(done.stderr) == []
