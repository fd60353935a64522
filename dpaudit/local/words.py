"""Words as whole numbers: letters are digits, so that any hash family takes a word, and its fragments are its digits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.inputs import check_objects

__all__ = ["Words"]


class Words:
    """All words of at most ``length`` letters of an alphabet, numbered; shorter ones are filled up with blanks (digit 0).

    Filling up matters for privacy too: every word has the same number of fragments, so that which fragment a record has says
    nothing about the word's length.

    >>> words = Words("abc", length=4)
    >>> numbers = words.encode(["cab", "bbbb"])
    >>> numbers.tolist(), words.decode(numbers), words.fragments(numbers, 1, width=2).tolist()
    ([216, 170], ['cab', 'bbbb'], [8, 10])
    """

    def __init__(self, letters: str, *, length: int) -> None:
        """``letters`` in any order, each once.

        Raises:
            UsageError: no letters, one twice, the space (which stands for the blank), or so many words that their numbers
                do not fit in 62 bits.
        """
        if not letters or len(set(letters)) != len(letters) or " " in letters:
            raise UsageError(f"letters={letters!r}: at least one, none twice, and no space")
        if length < 1 or (len(letters) + 1) ** length >= 1 << 62:
            raise UsageError(f"length={length}: at least 1, and (letters + 1)^length below 2^62; take fewer letters")
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
                    f"words={word!r}: 1 to {self.length} of the letters {self.letters!r}; leave such words out"
                )
            number = 0
            for place in range(self.length):
                number = number * self.base + (self._digits[word[place]] if place < len(word) else 0)
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

    def fragments(self, numbers: npt.NDArray[np.int64], position: int, *, width: int) -> npt.NDArray[np.int64]:
        """The fragments (n,) of ``width`` letters that begin at letter ``position``·``width``: 0 … base^width − 1.

        Raises:
            UsageError: the fragment ends beyond the word.
        """
        after = self.length - (position + 1) * width
        if position < 0 or after < 0:
            raise UsageError(f"position={position}: words of {self.length} letters have no such fragment of {width}")
        return np.asarray(numbers // self.base**after % self.base**width)
