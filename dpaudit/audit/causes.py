"""The likeliest cause of a finding, in a few words: what is wrong with the sampler, not which test.

A table of patterns over the tests' own words and details. The first that fits a finding is the
cause: a generator whose noise can be computed, then noise that repeats, then short uniforms and
formats, then the law. A finding that fits none has no cause here, and the tests speak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dpaudit.types import TestResult

__all__ = ["cause_of"]

_SINGLE = {"23": ", as in float32", "24": ", as in float32"}
_OFF = 0.01  # relative error of a scale that is a cause of its own
_MOST = 0.5  # share of windows that repeat where every call is seeded alike


class _Rule(NamedTuple):
    """Where ``test`` is a finding whose effect begins with ``pattern``, ``says`` is the cause."""

    test: str
    pattern: str
    says: str | Callable[[TestResult, Mapping[str, str]], str]


def cause_of(tests: Iterable[TestResult]) -> str:
    """What the findings among ``tests`` come from, in a few words; "" where no rule fits.

    Not claimed: that it is the only cause, or a proof; it names what the tests already say.
    """
    findings = {t.name: t for t in tests if t.finding}
    said = next(filter(None, (_said(rule, findings) for rule in _RULES)), "")
    scale = _said(_SCALE, findings)
    if said and scale and scale != said and any(name in findings for name in _COMPUTED):
        return f"{said}; {scale}"
    return said


def _said(rule: _Rule, findings: Mapping[str, TestResult]) -> str:
    test = findings.get(rule.test)
    fits = re.match(rule.pattern, test.effect) if test else None
    if test is None or fits is None:
        return ""
    if callable(rule.says):
        return rule.says(test, fits.groupdict())
    return rule.says.format(**fits.groupdict())


def _linear(test: TestResult, words: Mapping[str, str]) -> str:
    del test
    where = " in the last digits" if words["stream"].startswith("last digits") else ""
    if words["generator"]:
        return f"a linear generator{where}: {words['generator']}"
    return f"a linear generator{where} with a state of {words['bits']} bits"


def _uniforms(test: TestResult, words: Mapping[str, str]) -> str:
    del test
    law = words["law"]
    transform = "Box–Muller" if "r²" in law else "inverse CDF" if "F(x)" in law else "a transform"
    return f"{transform} of {words['bits']}-bit uniforms{_SINGLE.get(words['bits'], '')}"


def _repeated(test: TestResult, words: Mapping[str, str]) -> str:
    first, again = test.details.get("first", {}), test.details.get("again", {})
    if first.get("process") != again.get("process"):
        return "every process is seeded alike"
    count, of = (int(words[name].replace(",", "")) for name in ("count", "of"))
    begins = first.get("row") == again.get("row") == 0
    if begins and first.get("call") != again.get("call"):
        return "reseeded every call" if count > _MOST * of else "calls repeat earlier calls"
    return "noise repeats earlier noise"


def _scale(test: TestResult, words: Mapping[str, str]) -> str:
    del words
    if test.interval is None or (test.interval.low <= 1 + _OFF and test.interval.high >= 1 - _OFF):
        return ""
    return f"scale {test.statistic:.4g} × the claimed one"


_COMPUTED = ("state-recovery", "predictable", "congruential", "linear-complexity")
_SCALE = _Rule("moments", r"scale ", _scale)
_RULES = (
    _Rule("state-recovery", r"(?P<generator>.+?)(, first value first)?: its state", "{generator}"),
    _Rule("linear-complexity", r"(?P<generator>.+?) behind the polar", "{generator} and polar"),
    _Rule("predictable", r"(?P<generator>.+) with seed (?P<seed>\S+) gives",
          "{generator}, seeded with {seed}"),
    _Rule("congruential", r"(?P<generator>.+?): [\d,]+ of ", "{generator}"),
    _Rule(
        "linear-complexity",
        r"(like (?P<generator>.+?): )?(?P<stream>.+?) follow a linear recurrence of length "
        r"(?P<bits>[\d,]+)",
        _linear,
    ),
    _Rule("support", r".+ are not whole numbers", "values that are not whole numbers"),
    _Rule("repeats", r"(?P<count>[\d,]+) of (?P<of>[\d,]+) windows", _repeated),
    _Rule("granularity", r"uniforms of (?P<bits>\d+) bits: (?P<law>.+)", _uniforms),
    _Rule("granularity", r"all values are multiples of (?P<step>\S+)", "rounded to {step}"),
    _Rule(
        "granularity",
        r"zero bits at the end of every double: (?P<zeros>\d+)",
        "a shorter number format: the last {zeros} binary digits are always 0",
    ),
    _Rule("granularity", r"about [\d,]+ of [\d,]+ magnitudes are distinct: (?P<bits>[\d.]+) bits",
          "noise of {bits} bits only"),
    _Rule("granularity", r"about (?P<bits>[\d.]+) effective bits", "noise of {bits} bits only"),
    _Rule("keyless-search", r"", "a Gaussian pancake along a secret direction"),
    _SCALE,
)  # fmt: skip
"""In the order in which causes are named."""
