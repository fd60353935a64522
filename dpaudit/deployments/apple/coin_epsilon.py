"""The ε of one record as the code's own coin implies it, which is not always the PrivacyParameter."""

from __future__ import annotations

from dpaudit.deployments.apple.model import Properties, ResolvedKey

__all__ = ["coin_epsilon", "epsilon_by_coin", "sketches_in_record"]

_PUZZLE = "SequenceFragmentPuzzle"
_PUZZLE_DATA = "SequenceDiscoveryWithPuzzlePiece"
_SKETCH = "CountMedianSketch"
_ONE_BIT = frozenset({"OneBitHistogram", "HadamardCountMedianSketch"})


def coin_epsilon(key: ResolvedKey) -> float | None:
    """The exact pure ε of one record of ``key``; None for an algorithm whose coin is not known.

    A Count Median Sketch starts from bits that are 1 with probability 1/(e^P + 1), P the PrivacyParameter in use, and
    turns the bit at the object's place over (Tang et al. 2017, Figures 16, 17 and 20: 0.1192 at P = 2). Two objects with
    different places differ in two bits, and each contributes a likelihood ratio of e^P, so one sketch has ε = 2P. A record
    of new words holds two such sketches, of the sequence and of a fragment (Figure 11), of the same word: 4P where both
    places differ. (``algorithmparameters.plist`` says epsilon 4 for them at P = 2: P a sketch, or 2P for one of them.)
    A one-bit histogram and a Hadamard sketch send one sign, which is the other one with probability 1/(e^P + 1): ε = P.

    Not claimed: the ε of what else a record carries (key, language, time), or of an implementation with another coin.
    """
    sketches = sketches_in_record(key.properties)
    if not sketches and key.properties.algorithm not in _ONE_BIT:
        return None
    return epsilon_by_coin(key.epsilon, sketches=sketches)


def epsilon_by_coin(parameter: float, *, sketches: int) -> float:
    """ε of a record of so many sketches, or of one sign (0), whose coin comes up with probability 1/(e^parameter + 1)."""
    return 2 * sketches * parameter if sketches else parameter


def sketches_in_record(properties: Properties) -> int:
    """Bit vectors in one record: 2 with sequence and fragment, 1 of a plain sketch, 0 of anything else."""
    if properties.algorithm != _SKETCH:
        return 0
    puzzle = (properties.server_algorithm or "").startswith(_PUZZLE) or properties.data_algorithm == _PUZZLE_DATA
    return 2 if puzzle else 1
