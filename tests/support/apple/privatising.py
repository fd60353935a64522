"""Privatised records of made-up data, as in a report and in the database's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_local.apple.database import BITS, SKETCHES
from dpaudit_local.apple.model import ResolvedKey
from dpaudit_local.mechanisms.coins import biased_bits
from dpaudit_local.mechanisms.count_mean_sketch import CountMedianSketch
from dpaudit_local.mechanisms.hadamard_sketch import HadamardSketch
from dpaudit_local.mechanisms.hashing import RandomHashes
from dpaudit_local.mechanisms.one_bit_histogram import OneBitHistogram

_LETTERS = 28  # 26, the apostrophe, and the blank that is digit 0
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
    """Draw ``count`` data of this key from a Zipf law, each privatised with ``dpaudit_local``.

    A key whose PrivacyParameter was refused (above epsilonMax) gives one-bit records at ε = 1,
    which is where Tang et al. (§A.2) saw such new words go. Bits and data are simulated: whoever
    has ``stream`` can recover the data.
    """
    generator = stream.child("data").numpy()
    refused = resolved.epsilon != resolved.properties.parameter
    algorithm = "OneBitHistogram" if refused else resolved.properties.algorithm
    stated = parameters_of(resolved)
    objects = (generator.zipf(_ZIPF, count) - 1) % _VOCABULARY
    bits, epsilon = stream.child("bits"), resolved.epsilon
    if algorithm == "OneBitHistogram":
        return list(_one_bit(epsilon, stated.get("p", 5000), objects, bits))
    if algorithm == "CountMedianSketch" and _server(resolved) == _PUZZLE:
        return list(_puzzle(epsilon, stated, objects, bits))
    make = _sketch if algorithm == "CountMedianSketch" else _hadamard
    return list(make(epsilon, stated["k"], stated["m"], objects, bits))


def _server(resolved: ResolvedKey) -> str:
    return resolved.properties.server_algorithm or resolved.properties.algorithm


def _one_bit(
    epsilon: float, p: int, objects: npt.NDArray[np.int64], stream: Stream
) -> Iterator[Privatised]:
    reports = OneBitHistogram(epsilon, positions=p).privatize(objects % p, stream=stream)
    for position, sign in zip(reports.position.tolist(), reports.sign.tolist(), strict=True):
        columns = {"ZSEQUENCEBITPOSITION": position, "ZSEQUENCEBITVALUE": int(sign > 0)}
        yield Privatised(f"{position},{sign:+d}", BITS, columns)


def _hadamard(
    epsilon: float, k: int, m: int, objects: npt.NDArray[np.int64], stream: Stream
) -> Iterator[Privatised]:
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
    reports = CountMedianSketch(parameter, m=m, functions=k).privatize(objects, stream=stream)
    for function, bits in zip(reports.function.tolist(), reports.bits, strict=True):
        digits = bits.tobytes().hex().upper()
        columns = {"ZSEQUENCEHASHINDEX": function, "ZSEQUENCESKETCH": digits}
        yield Privatised(f"{function},{digits}", SKETCHES, columns)


def _puzzle(
    parameter: float, stated: Mapping[str, Any], objects: npt.NDArray[np.int64], stream: Stream
) -> Iterator[Privatised]:
    """Two sketches under one function: of a word, and of a fragment with a hash of the word.

    As Tang et al. (Figures 1, 5, 6 and 11) document them. A word is its object's number in letters,
    filled up with blanks, so that popular words are short.
    """
    m, k, pieces = stated["sequenceM"], stated["sequenceK"], stated["puzzleCount"]
    width, count = stated["fragmentWidth"], stated["fragmentCount"]
    seeds = KeyedStream.from_seed(0).child("sequence-fragments")
    first, last = np.divmod(objects % 26 ** min(2, width * count), 26)
    words = (first * _LETTERS + last + 1) * _LETTERS ** (width * count - 1 - (first > 0))
    generator = stream.child("indices").numpy()
    functions = generator.integers(0, k, len(words), dtype=np.uint32)
    positions = generator.integers(0, count, len(words), dtype=np.uint8)
    fragments = words // _LETTERS ** ((count - 1 - positions.astype(np.int64)) * width)
    piece = RandomHashes(1, pieces, stream=seeds.child("pieces")).positions(words, 0)
    tokens = piece.astype(np.int64) * _LETTERS**width + fragments % _LETTERS**width
    sketches = {}
    for part, tokens_of_part in (("sequence", words), ("fragment", tokens)):
        hashes = RandomHashes(k, m, stream=seeds.child(part))
        flips = CountMedianSketch(parameter, hashes=hashes).flip_words
        bits = biased_bits(len(words), m, words=flips, stream=stream.child(part))
        places = hashes.each(tokens_of_part, functions)
        bits[np.arange(len(words)), places >> 3] ^= np.uint8(1) << (places & 7).astype(np.uint8)
        sketches[part] = bits
    for row in range(len(words)):
        sequence, fragment = (sketches[p][row].tobytes().hex().upper() for p in sketches)
        columns = {
            "ZSEQUENCEHASHINDEX": int(functions[row]),
            "ZSEQUENCESKETCH": sequence,
            "ZFRAGMENTSKETCH": fragment,
            "ZFRAGMENTPOSITION": int(positions[row]),
        }
        yield Privatised(f"{functions[row]},{sequence}:{fragment}", SKETCHES, columns)
