"""Apple's hard-coded rules, independent of the configuration.

Source: Tang et al. 2017, sections 4.2, 5.2, A.1.3.
"""

from __future__ import annotations

from dpaudit_local.apple.model import Properties, ResolvedKey

__all__ = [
    "DAY",
    "EFFECTIVE_SESSION_SECONDS",
    "EPSILON_MAX",
    "FALLBACK_EPSILON",
    "MOST_RECORDS",
    "NEVER_SUBMITTED",
    "REPORT_SECONDS",
    "coin_epsilon",
    "epsilon_by_coin",
    "reports_within",
    "sessions_within",
]

DAY = 86_400
"""Seconds (``_kSecondsInOneDay``)."""
REPORT_SECONDS = 18 * 3600
"""ReportGenerator runs every 18 hours."""
MOST_RECORDS = 40
"""The most records of a KeyName in one report, whatever SessionAmount is (Figure 13: ``0x28``)."""
EPSILON_MAX = 2.0
"""A larger PrivacyParameter is refused (Figure 14)."""
FALLBACK_EPSILON = 1.0
"""Used instead of a refused PrivacyParameter."""
NEVER_SUBMITTED = 99_999
"""The SubmissionPriority after a refusal, so that the record is not submitted (section 5.2)."""
EFFECTIVE_SESSION_SECONDS = (DAY, 7 * DAY)
"""The only periods in Apple's files that had an effect (section 5.2)."""


def reports_within(seconds: float) -> int:
    """The most reports that ReportGenerator makes in a half-open span of ``seconds``.

    >>> reports_within(18 * 3600), reports_within(86_400), reports_within(3 * 86_400)
    (1, 2, 4)
    """
    return sessions_within(seconds, REPORT_SECONDS)


def sessions_within(seconds: float, session_seconds: float) -> int:
    """How often a budget has grown ``seconds`` after the opt-in, which counts as the first time.

    >>> sessions_within(86_400, 86_400), sessions_within(8 * 86_400, 7 * 86_400)
    (1, 2)
    """
    return max(0, -int(-seconds // session_seconds))


_PUZZLE = "SequenceFragmentPuzzle"
_PUZZLE_DATA = "SequenceDiscoveryWithPuzzlePiece"
_SKETCH = "CountMedianSketch"
_ONE_BIT = frozenset({"OneBitHistogram", "HadamardCountMedianSketch"})


def coin_epsilon(key: ResolvedKey) -> float | None:
    """The exact pure ε of one record of ``key`` by the code; None if the algorithm is unknown.

    A Count Median Sketch starts from bits that are 1 with probability 1/(e^P + 1), P the
    PrivacyParameter in use, and flips the bit at the object's place (Tang et al. 2017, Figures 16,
    17 and 20: 0.1192 at P = 2). Two objects with different places differ in two bits, and each
    contributes a likelihood ratio of e^P, so one sketch has ε = 2P. A record of new words holds two
    such sketches, of the sequence and of a fragment (Figure 11), of the same word: 4P if both
    places differ. (``algorithmparameters.plist`` says epsilon 4 for them at P = 2: P per sketch, or
    2P for one of them.) A one-bit histogram and a Hadamard sketch send one sign, which is flipped
    with probability 1/(e^P + 1): ε = P.

    Not claimed: the ε of what else a record carries (key, language, time), or of an implementation
    with another flip probability.
    """
    sketches = sketches_in_record(key.properties)
    if not sketches and key.properties.algorithm not in _ONE_BIT:
        return None
    return epsilon_by_coin(key.epsilon, sketches=sketches)


def epsilon_by_coin(parameter: float, *, sketches: int) -> float:
    """ε of ``sketches`` sketches, or of one sign (0), flipped at rate 1/(e^parameter + 1)."""
    return 2 * sketches * parameter if sketches else parameter


def sketches_in_record(properties: Properties) -> int:
    """Bit vectors in one record: 2 for sequence and fragment, 1 for a plain sketch, else 0."""
    if properties.algorithm != _SKETCH:
        return 0
    puzzle = (properties.server_algorithm or "").startswith(_PUZZLE)
    return 2 if puzzle or properties.data_algorithm == _PUZZLE_DATA else 1
