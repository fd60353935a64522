"""The bar of a notebook; tests/packaging/test_notebooks.py looks at it in a real kernel."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

import dpaudit


@pytest.fixture
def shown(monkeypatch):
    """What a kernel was told to display, in order."""
    told = []

    def update(data, *, raw):
        assert raw
        told.append(data["text/html"])

    package, display = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())
    display.HTML = str
    display.display = lambda html, *, display_id: SimpleNamespace(update=update)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    return told


@pytest.mark.slow
def test_audits_show_a_bar_and_remove_it(shown):
    dpaudit.audit_sampler("numpy:normal", samples=5_000, seed=1, tests=["moments"])
    assert "values: judging" in shown[-2]
    assert shown[-1] == ""
    shown.clear()
    dpaudit.audit_mechanism("numpy:laplace", neighbours=(0, 1), epsilon=1, samples=1e3, seed=1)
    assert shown[0].startswith('<progress value="')
    assert "releases" in shown[0]
    assert shown[-1] == ""


def test_a_failed_audit_removes_it_too(shown):
    with pytest.raises(dpaudit.errors.DpauditError):
        dpaudit.audit_sampler(lambda n, d: None, claim="gaussian:sigma=1", samples=5e3, seed=1)
    assert shown == [""]


@pytest.mark.slow
def test_no_bar_where_progress_is_given_or_no_kernel_runs(shown, monkeypatch):
    calls, asked = [], {"samples": 5e3, "seed": 1, "tests": ["moments"]}
    dpaudit.audit_sampler("numpy:normal", progress=lambda *pair: calls.append(pair), **asked)
    assert calls
    for kernel in (SimpleNamespace(), None):
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda kernel=kernel: kernel)
        dpaudit.audit_sampler("numpy:normal", **asked)
    assert shown == []
