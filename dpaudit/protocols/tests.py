"""What judges noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dpaudit.types import Evidence

__all__ = ["Block", "SearchingTest", "Test"]


class Block(Protocol):
    """One answer as tests see it; derived arrays are computed once and shared by all tests."""

    @property
    def call(self) -> int:
        """Number of the (first) call in its process; 0 for the first one."""

    @property
    def calls(self) -> int:
        """How many equal calls the rows come from, in order; usually 1."""

    @property
    def process(self) -> int:
        """0, or the number of the other process of the same sampler that it was drawn from.

        −1: a forked child of process 0 with its state, drawn right before the parent's next block.
        Blocks of other processes go only to tests with the class attribute
        ``compares_processes = True``.
        """

    @property
    def value(self) -> float:
        """The value that the noise was made for; 0.0 if the sampler is not told one."""

    @property
    def seconds(self) -> npt.NDArray[np.float64] | None:
        """Seconds of each call, shape (calls,), or None if the sampler does not report them."""

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """As drawn, shape (n, d)."""

    @property
    def z(self) -> npt.NDArray[np.float64]:
        """Mapped through the claimed law to independent N(0, 1), shape (n, d)."""

    @property
    def cells(self) -> npt.NDArray[np.int64]:
        """Counts of z in 2^14 equal cells over [-8, 8); the outer two take the rest."""


@runtime_checkable
class Test(Protocol):
    """Maps a stream of blocks to evidence against the claim; made by ``factory(claim, stream)``.

    A class attribute ``harm`` names what a finding means (:data:`dpaudit.harms.HARMS`), unless the
    evidence names another harm;
    ``causal_order`` is its place among tests with equal p-values, the likelier cause first.
    """

    looks_at: str

    def update(self, block: Block) -> None:
        """Take in one block; memory must not grow with the number of blocks."""

    def evidence(self, *, alpha: float) -> Evidence:
        """The evidence so far; ``alpha``, this test's worst-case share, is for blind spots only."""


@runtime_checkable
class SearchingTest(Test, Protocol):
    """A test that goes on searching after the last draw, in processes of its own if needed.

    On any test the class attribute ``advisory = True`` keeps its p-value out of the verdict (it is
    shown, and no α is spent on it); ``costly = True`` says that its evidence takes a second and is
    not computed in between; ``predictability = True`` says that it looks for noise that can be
    computed from other noise or from a guess, which an audit of a simulation takes for advice;
    ``loops`` names a module whose ``use_once()`` compiles its loops before a sampler starts.
    """

    def search(self, *, deadline: float) -> None:
        """Search until done or ``deadline`` (``time.monotonic``); called once, before evidence."""

    def close(self) -> None:
        """Release all resources; always called, and last."""
