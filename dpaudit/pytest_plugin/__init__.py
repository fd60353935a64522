"""The pytest plug-in: a fixture ``dpaudit`` for audits of noise and of mechanisms in tests.

::

    def test_noise(dpaudit):
        dpaudit.assert_no_finding(sampler, claim="gaussian:sigma=1")

Every pytest run loads it where dpaudit is installed, so this module imports neither numpy nor the
audit; the fixture does, when a test asks for it. ``-p no:dpaudit`` leaves it out. See
``docs/pytest.md``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dpaudit.pytest_plugin.auditor import Auditor

__all__ = ["ALPHA", "SAMPLES", "Auditor"]

SAMPLES = 1_000_000
"""Values that an audit draws, unless the call, the command line or the ini file says otherwise."""
_FEWEST = 1_000
ALPHA = 1e-4
"""Chance of a finding against an honest sampler, for each audit, unless said otherwise."""

_PROPERTY = "dpaudit"


def __getattr__(name: str) -> Any:
    if name == "Auditor":  # not at the top: it imports the audit
        from dpaudit.pytest_plugin.auditor import Auditor

        return Auditor
    raise AttributeError(f"module 'dpaudit.pytest_plugin' has no attribute {name!r}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add command-line options, each with an ini value of the same meaning."""
    group = parser.getgroup("dpaudit", "audits of differential-privacy noise (dpaudit)")
    for name, meaning in (
        ("samples", f"values that an audit of noise draws (default {SAMPLES:,})"),
        ("alpha", f"chance of a finding against an honest sampler, each audit (default {ALPHA:g})"),
        ("out", "write each audit's report.html and result.json to its own folder below this one"),
    ):
        metavar = "DIR" if name == "out" else "NUMBER"
        group.addoption(f"--dpaudit-{name}", metavar=metavar, help=meaning)
        parser.addini(f"dpaudit_{name}", help=meaning)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; refuse invalid numbers before anything runs."""
    config.addinivalue_line(
        "markers", "dpaudit: audits noise; set on every test that uses the fixture `dpaudit`"
    )
    _samples(config)
    _alpha(config)
    config.pluginmanager.register(_Session(), "dpaudit-session")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that audit, so that ``-m "not dpaudit"`` leaves them out of a quick run."""
    if "dpaudit" in getattr(item, "fixturenames", ()):
        item.add_marker("dpaudit")


@pytest.fixture
def dpaudit(request: pytest.FixtureRequest) -> Auditor:
    """``assert_no_finding`` and ``assert_finding`` audit noise, ``assert_private`` a mechanism."""
    from dpaudit.pytest_plugin.auditor import Auditor

    config, properties = request.config, request.node.user_properties

    def record(audit: dict[str, Any]) -> None:
        # goes with the report: to xdist's controller, and into JUnit XML
        properties.append((_PROPERTY, json.dumps(audit)))

    return Auditor(
        node=request.node.nodeid,
        samples=_samples(config),
        alpha=_alpha(config),
        out=_folder(config),
        record=record,
    )


class _Session:
    """Collects the audits of this process and of xdist's workers for one line at the end."""

    def __init__(self) -> None:
        self._audits: dict[tuple[str, int], dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            for i, (name, value) in enumerate(report.user_properties):
                if name == _PROPERTY:
                    self._audits[report.nodeid, i] = json.loads(str(value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._audits:
            terminalreporter.write_line(_summary(list(self._audits.values())))


def _summary(audits: list[dict[str, Any]]) -> str:
    findings = sum(a["verdict"] == "finding" for a in audits)
    unclear = sum(a["verdict"] == "inconclusive" for a in audits)
    judged = [a["alpha"] for a in audits if not a["control"]]
    controls = len(audits) - len(judged)
    parts = [
        f"{len(audits)} audit{'s' if len(audits) != 1 else ''}",
        f"{findings} with a finding",
        *([f"{unclear} inconclusive"] if unclear else []),
        *([f"{controls} known-bad control{'s' if controls != 1 else ''}"] if controls else []),
    ]
    spent = (
        "if every audited sampler were honest, some test here would fail with probability at most "
        f"{sum(judged):.3g} (the sum of each audit's α: the union bound)"
    )
    return f"dpaudit: {', '.join(parts)}; {spent}. A pass cannot exclude a keyed backdoor."


def _value(config: pytest.Config, name: str) -> tuple[str, str]:
    """Where a value was set, and the value: the command line comes before the ini file."""
    value = config.getoption(f"dpaudit_{name}")
    if value is not None:
        return f"--dpaudit-{name}", value
    return f"dpaudit_{name}", config.getini(f"dpaudit_{name}")


def _samples(config: pytest.Config) -> int:
    where, text = _value(config, "samples")
    if not text:
        return SAMPLES
    from dpaudit.errors import UsageError
    from dpaudit.options import count_of

    try:
        samples = count_of(text, unit="values", example="1e6", name=where)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    if samples < _FEWEST:
        raise pytest.UsageError(f"{where}={text}: must be at least {_FEWEST}, e.g. 1e6")
    return samples


def _alpha(config: pytest.Config) -> float:
    where, text = _value(config, "alpha")
    try:
        alpha = float(text) if text else ALPHA
    except ValueError:
        raise pytest.UsageError(f"{where}={text}: not a number; write e.g. {ALPHA:g}") from None
    if not 0 < alpha < 1:
        raise pytest.UsageError(
            f"{where}={text}: must lie strictly between 0 and 1, e.g. {ALPHA:g}"
        )
    return alpha


def _folder(config: pytest.Config) -> Path | None:
    _, text = _value(config, "out")
    return config.invocation_params.dir / text if text else None
