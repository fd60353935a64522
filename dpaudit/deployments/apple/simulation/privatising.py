"""Privatised records of made-up data, as in a report and in the database's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpaudit.deployments.apple.database.schema import BITS, SKETCHES
from dpaudit.deployments.apple.model import ResolvedKey
from dpaudit.errors import UsageError
from dpaudit.protocols import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["KNOWN", "Privatised", "parameters_of", "privatise"]

KNOWN = ("CountMedianSketch", "HadamardCountMedianSketch", "OneBitHistogram")
_PUZZLE = "SequenceFragmentPuzzle+CountMedianSketch"
_DEFAULTS: Mapping[str, Mapping[str, int | float]] = {
    "CountMedianSketch": {"k": 32768, "m": 256},
    "HadamardCountMedianSketch": {"k": 1024, "m": 32768},
    "OneBitHistogram": {"p": 5000},
    _PUZZLE: {
        "sequenceM": 32768,
        "sequenceK": 285,
        "fragmentM": 32768,
        "fragmentK": 285,
        "puzzleCount": 256,
    },
}
"""Values of Figures 11 and 12 for parameters that ``algorithmparameters`` lacks."""
_VOCABULARY = 1000
_ZIPF = 1.3


@dataclass(frozen=True, slots=True)
class Privatised:
    """One record."""

    text: str
    """As in a report."""
    table: str
    columns: Mapping[str, Any]
    """The columns that hold it in that table."""


def parameters_of(resolved: ResolvedKey) -> dict[str, Any]:
    """The parameters of a report's segment: ``algorithmparameters``, else the figures' values."""
    properties = resolved.properties
    stated = {
        "epsilon": resolved.epsilon,
        **_DEFAULTS.get(_server(resolved), {}),
        **resolved.parameters,
    }
    if _server(resolved) == _PUZZLE:
        stated |= {
            "fragmentCount": 5 if properties.fragment_count is None else properties.fragment_count,
            "fragmentWidth": 2 if properties.fragment_width is None else properties.fragment_width,
        }
    return stated


def privatise(resolved: ResolvedKey, count: int, *, stream: Stream) -> list[Privatised]:
    """Draw ``count`` data of this key from a Zipf law, each privatised with ``dpaudit.local``.

    A key whose PrivacyParameter was refused (above epsilonMax) gives one-bit records at ε = 1,
    which is where Tang et al. (§A.2) saw such new words go. Bits and data are simulated: whoever
    has ``stream`` can recover the data.

    Raises:
        UsageError: an algorithm not in :data:`KNOWN`, or parameters that it cannot work with.
    """
    generator = stream.child("data").numpy()
    refused = resolved.epsilon != resolved.properties.parameter
    algorithm = "OneBitHistogram" if refused else resolved.properties.algorithm
    stated = parameters_of(resolved)
    objects = (generator.zipf(_ZIPF, count) - 1) % _VOCABULARY
    bits, epsilon = stream.child("bits"), resolved.epsilon
    if algorithm not in KNOWN:
        raise UsageError(f"PrivatizationAlgorithm={algorithm!r}: must be one of {', '.join(KNOWN)}")
    if algorithm == "OneBitHistogram":
        return list(_one_bit(epsilon, _whole(stated, "p", 5000), objects, bits))
    if algorithm == "CountMedianSketch" and _server(resolved) == _PUZZLE:
        return list(_puzzle(epsilon, stated, objects, bits))
    make = _sketch if algorithm == "CountMedianSketch" else _hadamard
    return list(make(epsilon, _whole(stated, "k"), _whole(stated, "m"), objects, bits))


def _server(resolved: ResolvedKey) -> str:
    return resolved.properties.server_algorithm or resolved.properties.algorithm


def _whole(stated: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = stated.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}={value!r}: must be a whole number in algorithmparameters")
    return value


def _one_bit(
    epsilon: float, p: int, objects: npt.NDArray[np.int64], stream: Stream
) -> Iterator[Privatised]:
    from dpaudit.local.one_bit_histogram import OneBitHistogram

    reports = OneBitHistogram(epsilon, positions=p).privatize(objects % p, stream=stream)
    for position, sign in zip(reports.position.tolist(), reports.sign.tolist(), strict=True):
        columns = {"ZSEQUENCEBITPOSITION": position, "ZSEQUENCEBITVALUE": int(sign > 0)}
        yield Privatised(f"{position},{sign:+d}", BITS, columns)


def _hadamard(
    epsilon: float, k: int, m: int, objects: npt.NDArray[np.int64], stream: Stream
) -> Iterator[Privatised]:
    from dpaudit.local.hadamard_sketch import HadamardSketch

    reports = HadamardSketch(epsilon, m=m, functions=k).privatize(objects, stream=stream)
    rows = zip(
        reports.function.tolist(), reports.coordinate.tolist(), reports.sign.tolist(), strict=True
    )
    for function, coordinate, sign in rows:
        rest = f"{coordinate},{sign:+d}"
        columns = {"ZSEQUENCEHASHINDEX": function, "ZSEQUENCESKETCH": rest}
        yield Privatised(f"{function},{rest}", SKETCHES, columns)


def _sketch(
    parameter: float, k: int, m: int, objects: npt.NDArray[np.int64], stream: Stream
) -> Iterator[Privatised]:
    from dpaudit.local.count_median_sketch import CountMedianSketch

    reports = CountMedianSketch(parameter, m=m, functions=k).privatize(objects, stream=stream)
    for function, bits in zip(reports.function.tolist(), reports.bits, strict=True):
        digits = bits.tobytes().hex().upper()
        columns = {"ZSEQUENCEHASHINDEX": function, "ZSEQUENCESKETCH": digits}
        yield Privatised(f"{function},{digits}", SKETCHES, columns)


def _puzzle(
    parameter: float, stated: Mapping[str, Any], objects: npt.NDArray[np.int64], stream: Stream
) -> Iterator[Privatised]:
    from dpaudit.local.sequence_fragments import ENGLISH, SequenceFragments

    m, k = _whole(stated, "sequenceM"), _whole(stated, "sequenceK")
    if (m, k) != (_whole(stated, "fragmentM"), _whole(stated, "fragmentK")):
        raise UsageError(
            "sequenceM, sequenceK: must equal fragmentM and fragmentK; "
            "the simulation has one size for both"
        )
    width, count = _whole(stated, "fragmentWidth"), _whole(stated, "fragmentCount")
    device = SequenceFragments(
        parameter,
        fragment_width=width,
        fragment_count=count,
        puzzle_count=_whole(stated, "puzzleCount"),
        m=m,
        functions=k,
    )
    # the word of object i is i in letters, so that popular words are short
    letters = ENGLISH[:26]
    words = []
    for number in (objects % 26 ** min(2, width * count)).tolist():
        word = letters[number % 26]
        words.append(letters[number // 26 - 1] + word if number >= 26 else word)
    reports = device.privatize(device.words.encode(words), stream=stream)
    for row in range(len(reports)):
        function, position = int(reports.function[row]), int(reports.position[row])
        sequence, fragment = (
            bits[row].tobytes().hex().upper() for bits in (reports.sequence, reports.fragment)
        )
        columns = {
            "ZSEQUENCEHASHINDEX": function,
            "ZSEQUENCESKETCH": sequence,
            "ZFRAGMENTSKETCH": fragment,
            "ZFRAGMENTPOSITION": position,
        }
        yield Privatised(f"{function},{sequence}:{fragment}", SKETCHES, columns)
