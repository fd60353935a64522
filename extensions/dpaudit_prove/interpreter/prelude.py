# ruff: noqa: SIM110, UP028 (for the interpreter, any() and all() end here)
"""Builtins as Python code, for arguments that Python's own cannot take: coins, generators.

`dpaudit prove` interprets these functions; each agrees with Python's own on every input.
"""

from __future__ import annotations

from typing import Any

__all__: list[str] = []
_ABSENT = object()


def list_(iterable: Any = ()) -> Any:
    return [item for item in iterable]  # noqa: C416


def tuple_(iterable: Any = ()) -> Any:
    return (*[item for item in iterable],)  # noqa: C416


def set_(iterable: Any = ()) -> Any:
    return {item for item in iterable}  # noqa: C416


def dict_(iterable: Any = ()) -> Any:
    return {key: value for key, value in iterable}  # noqa: C416


def bool_(value: Any) -> Any:
    return True if value else False  # noqa: SIM210


def any_(iterable: Any) -> Any:
    for item in iterable:
        if item:
            return True
    return False


def all_(iterable: Any) -> Any:
    for item in iterable:
        if not item:
            return False
    return True


def enumerate_(iterable: Any, start: int = 0) -> Any:
    for item in iterable:
        yield start, item
        start += 1


def zip_(*iterables: Any, strict: bool = False) -> Any:
    if not iterables:
        return
    iterators = [iter(i) for i in iterables]
    while True:
        row: list[Any] = []
        for iterator in iterators:
            item = next(iterator, _ABSENT)
            if item is _ABSENT:
                if strict:
                    if row:
                        raise ValueError("zip() arguments have different lengths")
                    for other in iterators[1:]:
                        if next(other, _ABSENT) is not _ABSENT:
                            raise ValueError("zip() arguments have different lengths")
                return
            row.append(item)
        yield (*row,)


def map_(function: Any, *iterables: Any) -> Any:
    if len(iterables) == 1:
        for item in iterables[0]:
            yield function(item)
    else:
        for row in zip_(*iterables):
            yield function(*row)


def filter_(function: Any, iterable: Any) -> Any:
    for item in iterable:
        if function is None:
            if item:
                yield item
        elif function(item):
            yield item


def reversed_(sequence: Any) -> Any:
    i = len(sequence) - 1
    while i >= 0:
        yield sequence[i]
        i -= 1


def sum_(iterable: Any, start: Any = 0) -> Any:
    return sum([item for item in iterable], start)  # noqa: C416


def _extreme(arguments: Any, key: Any, default: Any, largest: Any) -> Any:
    items = list_(arguments[0]) if len(arguments) == 1 else arguments
    if not len(items):
        if default is _ABSENT:
            raise ValueError("arg is an empty sequence")
        return default
    best = items[0]
    score = best if key is None else key(best)
    i = 1
    while i < len(items):
        item = items[i]
        value = item if key is None else key(item)
        if value > score if largest else value < score:
            best, score = item, value
        i += 1
    return best


def max_(*arguments: Any, key: Any = None, default: Any = _ABSENT) -> Any:
    return _extreme(arguments, key, default, True)


def min_(*arguments: Any, key: Any = None, default: Any = _ABSENT) -> Any:
    return _extreme(arguments, key, default, False)


def sorted_(iterable: Any, *, key: Any = None, reverse: Any = False) -> Any:
    items = list_(iterable)
    scores = items if key is None else [key(item) for item in items]
    return [items[i] for i in order(scores, reverse)]


def order(scores: Any, reverse: Any) -> Any:
    """Positions in the order of their scores; the machine answers this itself."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=reverse)


def sort(items: Any, *, key: Any = None, reverse: Any = False) -> None:
    """list.sort with a key: the list is empty meanwhile, and as it was if a key raises."""
    originals = items[:]
    items.clear()
    scores = []
    try:
        for item in originals:
            scores.append(key(item))  # noqa: PERF401
    finally:
        touched = len(items)
        items.clear()
        items.extend(originals)
    ordered = [originals[i] for i in order_or_refuse(scores, reverse)]
    items.clear()
    items.extend(ordered)
    if touched:
        raise ValueError("list modified during sort")


def order_or_refuse(scores: Any, reverse: Any) -> Any:
    """As `order`; scores that cannot be compared end the proof, as the list's order is unknown."""
    return order(scores, reverse)


def partial(function: Any, /, *args: Any, **keywords: Any) -> Any:
    if not callable(function):
        raise TypeError("the first argument must be callable")

    def call(*more: Any, **others: Any) -> Any:
        return function(*args, *more, **{**keywords, **others})

    return call


def matches_sequence(subject: Any) -> Any:
    """Whether a pattern in brackets may match; the machine answers these three itself."""
    return isinstance(subject, (list, tuple, range))


def matches_class(subject: Any, cls: Any) -> Any:
    """Whether `case cls():` matches."""
    return isinstance(subject, cls)


def matches_itself(subject: Any, cls: Any) -> Any:
    """Whether `case cls(pattern):` looks at the subject itself, which it does for a few classes."""
    return isinstance(subject, cls)


def join(separator: Any, iterable: Any) -> Any:
    return separator.join([item for item in iterable])  # noqa: C416


def count(start: Any = 0, step: Any = 1) -> Any:
    while True:
        yield start
        start += step


def repeat(item: Any, times: Any = None) -> Any:
    if times is None:
        while True:
            yield item
    for _ in range(times):
        yield item


def chain(*iterables: Any) -> Any:
    for iterable in iterables:
        for item in iterable:
            yield item


def islice(iterable: Any, stop: Any) -> Any:
    if stop <= 0:
        return
    for item in iterable:
        yield item
        stop -= 1
        if stop <= 0:
            return


def accumulate(iterable: Any) -> Any:
    total = _ABSENT
    for item in iterable:
        total = item if total is _ABSENT else total + item
        yield total


def reduce(function: Any, iterable: Any, initial: Any = _ABSENT) -> Any:
    total = initial
    for item in iterable:
        total = item if total is _ABSENT else function(total, item)
    if total is _ABSENT:
        raise TypeError("reduce() of empty iterable with no initial value")
    return total


def _bisect(a: Any, x: Any, lo: Any, hi: Any, key: Any, *, right: Any) -> Any:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        mid = (lo + hi) // 2
        item = a[mid] if key is None else key(a[mid])
        if not x < item if right else item < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


def bisect_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
    return _bisect(a, x, lo, hi, key, right=True)


def bisect_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
    return _bisect(a, x, lo, hi, key, right=False)
