"""The black-box tests, one family per file, and the battery that one audit runs.

Each test takes the claim and a stream, reads blocks of values mapped to independent N(0, 1) under
the claim, and ends with one p-value that is valid for everything the family tried. α is split over
the families once, by the audit.
"""

from __future__ import annotations

from collections.abc import Callable

import scipy

from dpaudit import registry
from dpaudit.audit.options import AuditOptions
from dpaudit.claims import Claim
from dpaudit.protocols import Block, SearchingTest, Test
from dpaudit.randomness import KeyedStream
from dpaudit.types import Evidence

__all__ = ["Battery", "detectable_effect"]

SEARCH = "keyless-search"
"""The one test whose share of α the others can do without; it reports its own blind spots."""
_FIRST_LOOK = 1 << 14
LOOKS = 20
"""How often an audit looks for what is certain, at most."""
CERTAIN = 1e-12
"""Share of α that all of these looks have together."""
ENOUGH = 1_000_000
"""Values without which no audit stops: the tests that name a cause need some."""
_SEARCHED = frozenset({"hidden-direction", "kernel", "covariance", "projections"})


class Battery:
    """The tests that ``options`` name, by default all; leaving its ``with`` block closes searches.

    ``complete``: whether these are all that are registered, the keyless search apart. ``advisory``
    names those that take no part in the verdict; of a simulation also all that have
    ``predictability = True``, which ``predicting`` names.

    ``seen_after`` maps a test to the number of values drawn when its p-value was first seen below
    its share of α. This is checked whenever the number of values has grown fourfold; tests that
    search, or have ``costly = True``, are evaluated at the end only.

    ``certain``: whether at one of these looks, from the millionth value on, a p-value was at most
    α·10⁻¹²/(20 × number of tests); never without ``fail_fast``. A finding of a direction does not
    count, as the search that may recover it needs all values. The audit is to stop at that look,
    whose evidence is kept for :meth:`conclude`.
    """

    def __init__(
        self,
        options: AuditOptions,
        claim: Claim,
        stream: KeyedStream,
        *,
        alpha: float,
        fail_fast: bool = False,
    ) -> None:
        names = options.tests
        chosen = list(registry.plugins("tests")) if names is None else list(dict.fromkeys(names))
        self._tests: dict[str, Test] = {
            name: registry.load("tests", name)(claim, stream.child("test", name)) for name in chosen
        }
        self._searching = {
            name: test for name, test in self._tests.items() if isinstance(test, SearchingTest)
        }
        self.origins = [registry.plugin("tests", name).origin for name in chosen]
        self.predicting = self._with("predictability")
        self.advisory = frozenset().union(*map(self._with, options.advisory))
        counted = max(1, len(self._tests) - len(self.advisory))
        self._share = alpha / counted
        self._certain_at = CERTAIN * alpha / (LOOKS * counted)
        self._looks_left = LOOKS if fail_fast else 0
        self._certain_evidence: dict[str, Evidence] = {}
        self.certain = False
        self.complete = set(registry.plugins("tests")) - {SEARCH} <= set(chosen)
        self._look_at = _FIRST_LOOK
        self.seen_after: dict[str, int] = {}

    def _with(self, attribute: str) -> frozenset[str]:
        return frozenset(n for n, test in self._tests.items() if getattr(test, attribute, False))

    def __enter__(self) -> Battery:
        return self

    def __exit__(self, *exc: object) -> None:
        for test in self._searching.values():
            test.close()

    def update(self, block: Block, *, drawn: int) -> None:
        """Feed every test; blocks of other processes go only to tests that compare processes."""
        for test in self._tests.values():
            if block.process == 0 or getattr(test, "compares_processes", False):
                test.update(block)
        if drawn >= self._look_at and not self.certain:
            self._look_at = 4 * drawn
            self._look(drawn)

    def _look(self, drawn: int) -> None:
        ending = drawn >= ENOUGH and self._looks_left > 0
        self._looks_left -= ending
        for name, test in self._tests.items():
            if name in self._searching or getattr(test, "costly", False):
                continue
            ends = ending and name not in self.advisory | _SEARCHED
            if name in self.seen_after and not ends:
                continue
            result = test.evidence(alpha=self._share)
            if result.p <= self._share:
                self.seen_after.setdefault(name, drawn)
            if ends and result.p <= self._certain_at:
                self.certain = True
                self._certain_evidence[name] = result

    def conclude(self, patience: Callable[[bool], float]) -> dict[str, tuple[Test, Evidence]]:
        """The evidence of each test, by name; called once, after the last draw.

        Searching tests come last, one after the other, until ``patience(certain)`` (of
        ``time.monotonic``), where ``certain`` says whether the others are enough for a finding.
        """
        others = [name for name in self._tests if name not in self._searching]
        evidence = {
            name: self._certain_evidence.get(name) or self._tests[name].evidence(alpha=self._share)
            for name in others
        }
        certain = any(
            evidence[name].p <= self._share for name in others if name not in self.advisory
        )
        if self._searching:
            deadline = patience(certain)
            for test in self._searching.values():
                test.search(deadline=deadline)
        evidence |= {
            name: test.evidence(alpha=self._share) for name, test in self._searching.items()
        }
        return {name: (test, evidence[name]) for name, test in self._tests.items()}


def detectable_effect(standard_error: float, *, alpha: float, power: float = 0.9) -> float:
    """The smallest effect that a two-sided normal test at ``alpha`` finds with this ``power``."""
    return float(-scipy.special.ndtri(alpha / 2) + scipy.special.ndtri(power)) * standard_error
