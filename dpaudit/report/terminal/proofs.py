"""Proofs for a terminal: the law, the profile, the counterexample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit.report.proofs import coin_sentence
from dpaudit.report.tables import Column
from dpaudit.report.terminal.table import make_table
from dpaudit.types import ProofResult, ProvedBounds

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["proof_table"]

_ROWS = 12
_COINS = 24


def proof_table(result: ProofResult) -> Iterator[RenderableType]:
    """What a proof found, in parts; the verdict is the caller's last line."""
    from rich.text import Text

    if result.profile:
        yield make_table(
            [
                Column("ε", [p.epsilon for p in result.profile], numeric=True),
                Column("δ at least", [f"{p.delta.low:.4g}" for p in result.profile], numeric=True),
                Column("δ at most", [f"{p.delta.high:.4g}" for p in result.profile], numeric=True),
            ],
            title="δ(ε), proved from both sides",
        )
    else:
        rows = result.law[:_ROWS]
        yield make_table(
            [
                Column("Output", [x for x, _ in rows]),
                Column("Probability at least", [f"{p:.12g}" for _, p in rows], numeric=True),
            ],
            title=f"Outputs: {result.outputs:,}, the likeliest first",
        )
    yield Text(f"states: {result.states:,}; probability not followed: {result.residual:.3g}")
    if result.log_ratio is not None:
        yield Text(f"largest |ln(P/Q)|: {_between(result.log_ratio)}")
    if result.coin_count is not None:
        yield Text(coin_sentence(result))
    if result.disjoint:
        yield Text(f"coins of their own for every value: {result.disjoint}")
    if result.counterexample is not None:
        coins = result.counterexample.coins
        shown = ", ".join(f"{value} of {count}" for count, value in coins[:_COINS])
        more = f", and {len(coins) - _COINS} more" if len(coins) > _COINS else ""
        yield Text(
            f"Run by Python on these coins it returns {result.counterexample.output}: {shown}{more}"
        )


def _between(bounds: ProvedBounds) -> str:
    return f"between {bounds.low:.4g} and {bounds.high:.4g}"
