"""New words from two sketches per record, the device's side.

One sketch is of the word, the other of one of its fragments with a puzzle piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.biased_bits import biased_bits
from dpaudit.local.count_median_sketch import CountMedianSketch
from dpaudit.local.hashing import RandomHashes
from dpaudit.local.inputs import check_objects, whole_number
from dpaudit.local.reports import Reports, SketchReports
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream

__all__ = [
    "ENGLISH",
    "FragmentReports",
    "SequenceFragments",
    "Words",
]


class Words:
    """All words of at most ``length`` letters of an alphabet, numbered.

    Shorter words are filled up with blanks (digit 0). Filling up matters for privacy too: every
    word has the same number of fragments, so that which fragment a record has says nothing about
    the word's length.

    >>> words = Words("abc", length=4)
    >>> numbers = words.encode(["cab", "bbbb"])
    >>> numbers.tolist(), words.decode(numbers), words.fragments(numbers, 1, width=2).tolist()
    ([216, 170], ['cab', 'bbbb'], [8, 10])
    """

    def __init__(self, letters: str, *, length: int) -> None:
        """``letters`` in any order, each once.

        Raises:
            UsageError: no letters, one twice, the space (which stands for the blank), or so many
                words that their numbers do not fit in 62 bits.
        """
        if not letters or len(set(letters)) != len(letters) or " " in letters:
            raise UsageError(f"letters={letters!r}: at least one, none twice, and no space")
        if length < 1 or (len(letters) + 1) ** length >= 1 << 62:
            raise UsageError(
                f"length={length}: at least 1, and (letters + 1)^length below 2^62; "
                "take fewer letters"
            )
        self.letters, self.length = letters, length
        self._digits = {letter: i + 1 for i, letter in enumerate(letters)}

    @property
    def base(self) -> int:
        """Letters and the blank."""
        return len(self.letters) + 1

    @property
    def universe(self) -> int:
        """Numbers are 0 … ``universe`` − 1; some are no words, as a blank comes before a letter."""
        return int(self.base**self.length)

    def encode(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """The numbers (n,) of words.

        Raises:
            UsageError: a word that is empty or too long, or has another letter.
        """
        numbers = np.empty(len(words), np.int64)
        for i, word in enumerate(words):
            if not 1 <= len(word) <= self.length or not self._digits.keys() >= set(word):
                raise UsageError(
                    f"words={word!r}: 1 to {self.length} of the letters {self.letters!r}; "
                    "leave such words out"
                )
            number = 0
            for place in range(self.length):
                number = number * self.base + (
                    self._digits[word[place]] if place < len(word) else 0
                )
            numbers[i] = number
        return numbers

    def decode(self, numbers: npt.NDArray[np.int64]) -> list[str]:
        """The words that numbers (n,) stand for, blanks before letters as spaces.

        Raises:
            UsageError: a number that is none of ours.
        """
        letters = " " + self.letters
        out = []
        for number in check_objects(numbers, self.universe).tolist():
            digits, rest = [], number
            for _ in range(self.length):
                rest, digit = divmod(rest, self.base)
                digits.append(letters[digit])
            out.append("".join(reversed(digits)).rstrip(" "))
        return out

    def whole(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each number (n,) is a word: at least one letter, and no blank before a letter."""
        digits = np.stack([self.fragments(numbers, place, width=1) for place in range(self.length)])
        return np.asarray((digits[0] > 0) & ((digits[1:] == 0) | (digits[:-1] > 0)).all(axis=0))

    def fragments(
        self, numbers: npt.NDArray[np.int64], position: int, *, width: int
    ) -> npt.NDArray[np.int64]:
        """The fragments (n,) of ``width`` letters from letter ``position``·``width`` on.

        Each is in 0 … base^width − 1.

        Raises:
            UsageError: the fragment ends beyond the word.
        """
        after = self.length - (position + 1) * width
        if position < 0 or after < 0:
            raise UsageError(
                f"position={position}: words of {self.length} letters "
                f"have no such fragment of {width}"
            )
        return np.asarray(numbers // self.base**after % self.base**width)


ENGLISH = "abcdefghijklmnopqrstuvwxyz'"


@dataclass(frozen=True, slots=True)
class FragmentReports(Reports):
    """Records: one hash function for both sketches, which fragment, and two packed vectors."""

    function: npt.NDArray[np.uint32]
    """Shape (n,)."""
    position: npt.NDArray[np.uint8]
    """Shape (n,): the fragment's number from 0, in the clear."""
    sequence: npt.NDArray[np.uint8]
    """Shape (n, m / 8): the sketch of the whole word, bit i in byte i // 8 at 1 << i % 8."""
    fragment: npt.NDArray[np.uint8]
    """Shape (n, m / 8): the sketch of the fragment and the word's puzzle piece."""


@dataclass(eq=False, repr=False)
class SequenceFragments:
    """``SequenceDiscoveryWithPuzzlePiece``: sketches of a word and of one of its fragments.

    The fragment is random, and joined with a hash of the word. A record of a word w is (j, l, A,
    B): a hash function j and a fragment l, both uniform, the Count Median Sketch vector A of w
    under j, and the vector B of (puzzle piece of w, l-th fragment of w) under j, each with coins of
    its own. The puzzle piece is a public hash of w with few values: it tells the server which
    frequent fragments belong together.

    Documented (Tang et al. 2017, Figures 1, 5, 6 and 11): two vectors and one index to a record,
    FragmentWidth 2, FragmentCount 5, puzzleCount 256, sequenceM and fragmentM 32,768, sequenceK and
    fragmentK 285, sequenceFragmentBias 0.5, and a column ZFRAGMENTPOSITION. In US 9,594,741, claims
    2 to 5: a client makes a private sketch of n-grams of two characters in their order, and stores
    with it the n-gram's position and a hash of the term.

    Our reading: that the piece is sketched with the fragment (Apple's "Learning with Privacy at
    Scale", 2017, has that of its later CMS); that the position goes in the clear; that one
    PrivacyParameter serves both vectors; that words are filled up with blanks to
    FragmentWidth·FragmentCount letters and longer ones are not sent. What sequenceFragmentBias is,
    nobody has said; a share of ``epsilon`` for the word's vector would fit (:meth:`split`). Letters
    are numbers here and the hash families are ours; Apple's are SHA-256 of the text.

    Formal guarantee: :attr:`epsilon`, the sum of the two vectors' ε, is the exact ε of one record:
    j and l do not depend on the word, and given them A and B are independent, each with a
    likelihood ratio up to e^ε of its own (see
    :class:`~dpaudit.local.count_median_sketch.CountMedianSketch`). Two words that differ in both
    positions under some j and l attain the product. With one PrivacyParameter p that is 4p: 8 for
    the 2 of macOS 10.12.3, whose files say ``epsilon`` 4. Not claimed: secrecy from someone who can
    predict the stream's generators: it simulates devices.

    Raises:
        UsageError: a parameter of either sketch out of range; a width, count or puzzle count below
            1 (2 pieces at least); letters, or a length of words, that :class:`Words` refuses.

    >>> from dpaudit.randomness import KeyedStream
    >>> device = SequenceFragments(2.0, m=256, functions=16)
    >>> words = device.words.encode(["puzzle", "piece"])
    >>> len(device.privatize(words, stream=KeyedStream.from_seed(1))), device.epsilon
    (2, 8.0)
    """

    privacy_parameter: float = 2.0
    """p: coins have the bias 1/(e^p + 1)."""
    _: KW_ONLY
    fragment_parameter: float | None = None
    """Of the fragment; None: the same p."""
    letters: str = ENGLISH
    fragment_width: int = 2
    fragment_count: int = 5
    puzzle_count: int = 256
    m: int = 32768
    functions: int = 285
    """Hash functions to ``m`` positions, for words and (others) for fragments."""
    seed: int = 0
    """Makes them, and the puzzle pieces' hash."""

    def __post_init__(self) -> None:
        for name, least in (("fragment_width", 1), ("fragment_count", 1), ("puzzle_count", 2)):
            setattr(self, name, whole_number(name, getattr(self, name), least))
        self.words = Words(self.letters, length=self.fragment_width * self.fragment_count)
        stream = KeyedStream.from_seed(self.seed).child("sequence-fragments")

        def sketch(name: str, parameter: float | None) -> CountMedianSketch:
            return CountMedianSketch(
                self.privacy_parameter if parameter is None else parameter,
                hashes=RandomHashes(self.functions, self.m, stream=stream.child(name)),
            )

        self.sequence = sketch("sequence", None)
        self.fragment = sketch("fragment", self.fragment_parameter)
        self._pieces = RandomHashes(1, self.puzzle_count, stream=stream.child("pieces"))

    @staticmethod
    def split(epsilon: float, *, bias: float = 0.5) -> tuple[float, float]:
        """``privacy_parameter`` and ``fragment_parameter`` of records of ε in all.

        The word's vector has the share ``bias`` of it.

        Raises:
            UsageError: ε not above 0, or a share outside (0, 1).

        >>> SequenceFragments.split(4.0)
        (1.0, 1.0)
        """
        if not epsilon > 0 or not 0 < bias < 1:
            raise UsageError(
                f"epsilon={epsilon}, bias={bias}: ε above 0, "
                "and the word's share strictly between 0 and 1"
            )
        return epsilon * bias / 2, epsilon * (1 - bias) / 2

    @property
    def epsilon(self) -> float:
        """The exact ε of one record."""
        return self.sequence.epsilon + self.fragment.epsilon

    def _law(self) -> tuple[object, ...]:
        sizes = self.words.letters, self.fragment_width, self.fragment_count, self.puzzle_count
        return *sizes, self.sequence, self.fragment, self._pieces

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceFragments) and self._law() == other._law()

    def __hash__(self) -> int:
        return hash(self._law())

    @property
    def tokens(self) -> int:
        """How many pairs of a puzzle piece and a fragment there are."""
        return self.puzzle_count * int(self.words.base**self.fragment_width)

    def pieces(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The puzzle pieces (n,) of words (n,): 0 … ``puzzle_count`` − 1."""
        return np.asarray(self._pieces.positions(objects, 0), np.int64)

    def token(self, objects: npt.NDArray[np.int64], position: int) -> npt.NDArray[np.int64]:
        """What the second sketch is of, (n,): puzzle piece·base^width + fragment."""
        fragments = self.words.fragments(objects, position, width=self.fragment_width)
        return np.asarray(
            self.pieces(objects) * self.words.base**self.fragment_width + fragments, np.int64
        )

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> FragmentReports:
        """A record of each word (n,), by number (``words.encode``); the same stream gives the same.

        Raises:
            UsageError: numbers that are none of :attr:`words`'.
        """
        objects = check_objects(objects, self.words.universe).astype(np.int64, copy=False)
        generator = stream.child("indices").numpy()
        functions = generator.integers(0, self.sequence.functions, len(objects), dtype=np.uint32)
        positions = generator.integers(0, self.fragment_count, len(objects), dtype=np.uint8)
        tokens = np.empty_like(objects)
        for position in range(self.fragment_count):
            rows = positions == position
            tokens[rows] = self.token(objects[rows], position)
        return FragmentReports(
            functions,
            positions,
            _vectors(self.sequence, objects, functions, stream=stream.child("sequence")),
            _vectors(self.fragment, tokens, functions, stream=stream.child("fragment")),
        )

    def parts(self, reports: FragmentReports) -> tuple[SketchReports, list[SketchReports]]:
        """The words' sketches, and the fragments' by position.

        They are reports of :attr:`sequence` and :attr:`fragment`.

        Raises:
            UsageError: not records of this mechanism.
        """
        positions = check_objects(reports.position, self.fragment_count, name="position")
        if len(positions) != len(reports):
            raise UsageError(f"position={len(positions)}: one for each of {len(reports)} records")
        every = SketchReports(reports.function, reports.fragment)
        whole = SketchReports(reports.function, reports.sequence)
        self.sequence.check(whole)
        self.fragment.check(every)
        return whole, [
            every[reports.position == position] for position in range(self.fragment_count)
        ]

    def log_likelihood(
        self, reports: FragmentReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Log-likelihoods: ln P(record | word) up to a constant of each record, shape (n, u).

        Raises:
            UsageError: not records of this mechanism, or numbers that are none of :attr:`words`'.
        """
        objects = check_objects(objects, self.words.universe).astype(np.int64, copy=False)
        whole, fragments = self.parts(reports)
        out = self.sequence.log_likelihood(whole, objects)
        for position, part in enumerate(fragments):
            rows = reports.position == position
            out[rows] += self.fragment.log_likelihood(part, self.token(objects, position))
        return out


def _vectors(
    sketch: CountMedianSketch,
    objects: npt.NDArray[np.int64],
    functions: npt.NDArray[np.uint32],
    *,
    stream: Stream,
) -> npt.NDArray[np.uint8]:
    bits = biased_bits(len(objects), sketch.m, words=sketch.flip_words, stream=stream)
    places = sketch.hashes.each(objects, functions)
    bits[np.arange(len(objects)), places >> 3] ^= np.uint8(1) << (places & 7).astype(np.uint8)
    return bits
