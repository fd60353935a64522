"""Iterators over what has positions, dicts and small sets."""

from __future__ import annotations

from typing import Any

from dpaudit.errors import RefusedProgramError
from dpaudit_prove.interpreter.classes import is_named_tuple, is_python_class, python_method
from dpaudit_prove.interpreter.lazy import LazyBytes
from dpaudit_prove.interpreter.values import UNBOUND, Call, Generator, SequenceIterator, View

__all__ = ["SEQUENCES", "advance", "iterator_of"]

SEQUENCES = frozenset({list, tuple, str, bytes, range})


def iterator_of(value: Any) -> SequenceIterator | Generator | Call:
    """iter(value); a `Call` where Python code makes the iterator."""
    kind = type(value)
    if kind in SEQUENCES or kind is LazyBytes:
        return SequenceIterator(value)
    if isinstance(value, (SequenceIterator, Generator)):
        return value
    if kind is View:
        return SequenceIterator(View(value.owner, value.kind))
    if kind is dict:
        return SequenceIterator(View(value, "keys"))
    if kind in (set, frozenset):
        if len(value) > 1:
            raise RefusedProgramError("the order of a set is not part of the language: sort it")
        return SequenceIterator(tuple(value))
    method = python_method(kind, "__iter__")
    if method:
        return Call(method, [value])
    if is_named_tuple(kind):
        return SequenceIterator(value)
    if is_python_class(kind):
        raise TypeError(f"'{kind.__name__}' object is not iterable")
    raise RefusedProgramError(f"iteration over a {kind.__name__}")


def advance(iterator: SequenceIterator) -> Any:
    """The next item; UNBOUND at the end."""
    sequence, index = iterator.sequence, iterator.index
    kind = type(sequence)
    if kind is View:
        if not sequence.unchanged():
            if len(sequence.keys) != len(sequence.owner):
                raise RuntimeError("dictionary changed size during iteration")
            raise RefusedProgramError("a dict changes its keys while it is iterated over")
        sequence = sequence.now()
    if index >= (sequence.length if kind is LazyBytes else len(sequence)):
        iterator.sequence, iterator.index = (), 0
        return UNBOUND
    value = sequence.item(index) if kind is LazyBytes else sequence[index]
    iterator.index = index + 1
    return value
