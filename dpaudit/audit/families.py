"""The tests of one audit: made, fed, searched, heard and closed together."""

from __future__ import annotations

from collections.abc import Sequence

from dpaudit import registry
from dpaudit.claims import Claim
from dpaudit.interfaces import Block, SearchingTest, Test
from dpaudit.randomness import KeyedStream
from dpaudit.types import Evidence

__all__ = ["Battery"]

SEARCH = "keyless-search"
"""The one test whose share of α the others can do without, and which speaks for itself of what it cannot see."""
_FIRST_LOOK = 1 << 14


class Battery:
    """All tests named (every registered one by default); in a ``with`` block, whose end closes their searches.

    ``complete``: whether these are all that are registered, the keyless search apart.

    ``seen_after`` maps a test to how many values had been drawn when its p-value was first seen below its share of α;
    this is looked at when the number of values has grown fourfold, and nothing is decided by it.
    """

    def __init__(self, names: Sequence[str] | None, claim: Claim, stream: KeyedStream, *, alpha: float) -> None:
        chosen = list(registry.plugins("tests")) if names is None else list(dict.fromkeys(names))
        self._tests: dict[str, Test] = {
            name: registry.load("tests", name)(claim, stream.child("test", name)) for name in chosen
        }
        self.origins = [registry.plugin("tests", name).origin for name in chosen]
        counted = sum(not getattr(test, "advisory", False) for test in self._tests.values())
        self._share = alpha / max(1, counted)
        self.complete = set(registry.plugins("tests")) - {SEARCH} <= set(chosen)
        self._look_at = _FIRST_LOOK
        self.seen_after: dict[str, int] = {}

    def __enter__(self) -> Battery:
        return self

    def __exit__(self, *exc: object) -> None:
        for test in self._tests.values():
            if isinstance(test, SearchingTest):
                test.close()

    def update(self, block: Block, *, drawn: int) -> None:
        """Feed every test; what other processes drew only to those that compare them (it may be the same, for a reason)."""
        for test in self._tests.values():
            if block.process == 0 or getattr(test, "compares_processes", False):
                test.update(block)
        if drawn >= self._look_at:
            self._look_at = 4 * drawn
            for name, test in self._tests.items():
                looked = name in self.seen_after or isinstance(test, SearchingTest)
                if not looked and test.evidence(alpha=self._share).p <= self._share:
                    self.seen_after[name] = drawn

    @property
    def accuses(self) -> bool:
        """Whether some test that does not search is below its share of α, so that a finding is certain."""
        return any(
            test.evidence(alpha=self._share).p <= self._share
            for test in self._tests.values()
            if not isinstance(test, SearchingTest) and not getattr(test, "advisory", False)
        )

    def search(self, deadline: float) -> None:
        """Let the searching tests search, one after the other."""
        for test in self._tests.values():
            if isinstance(test, SearchingTest):
                test.search(deadline=deadline)

    def evidence(self) -> dict[str, tuple[Test, Evidence]]:
        """What each test says, by name."""
        return {name: (test, test.evidence(alpha=self._share)) for name, test in self._tests.items()}
