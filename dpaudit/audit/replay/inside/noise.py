"""Numbers that follow the noise in them: where data is added to noise, and how often.

Noise from a generator has no input of its own: the line that adds it has. So a draw is a number or
array that knows its draw. Adding data gives the recorded sum on a replay, whatever the data is
then, and says how far the data moved. Multiplying scales. Any other function of noise alone is
noise of another law; of a noised value it is post-processing, which needs nothing: the value is
the recorded one. What leaves this arithmetic (C code, most of pandas) is a plain number.
"""

from __future__ import annotations

import contextlib
import hashlib
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .tape import Tape, current
from .values import base, bits, numbers, pack, same, unpack

_WRAPPERS: list[tuple[Callable[[Any], bool], Callable[[Any, Meta], Any]]] = []


class Follower:
    """What every number that follows noise is."""

    _m: Meta | None = None


class Meta:
    """Of a value: its draw, the data added so far (now, and when recorded), and its slope.

    ``off`` is None for noise alone. ``key`` is how it was made of its draw, the same in both runs.
    ``affine``: it is the draw times ``slope`` plus ``off``; otherwise another function of it.
    """

    def __init__(self, tape: Tape, event: dict[str, Any], key: str, root: str) -> None:
        self.tape, self.event, self.key, self.root = tape, event, key, root
        self.off: Any = None
        self.off0: Any = None
        self.slope: Any = 1.0
        self.shape: tuple[int, ...] = ()
        self.affine = True
        self.heir = self.used = self.released = self.compared = False
        self.uses: dict[str, int] = {}
        tape.metas.append(self)

    def next(self, step: str) -> str:
        """The key of what ``step`` makes of this value when it is taken next."""
        n = self.uses.get(step, 0)
        return f"{self.key}/{step}#{n}" if n else f"{self.key}/{step}"

    def child(self, step: str, *, root: str | None = None, affine: bool = True) -> Meta:
        """The meta of what ``step`` makes of this value."""
        key = self.next(step)
        self.uses[step] = self.uses.get(step, 0) + 1
        meta = Meta(self.tape, self.event, key, self.root if root is None else root)
        meta.affine = affine and self.affine
        if affine:
            self.heir = True
            meta.off, meta.off0, meta.slope = self.off, self.off0, self.slope
        else:
            law = self.event["law"].removeprefix("function of ")
            meta.event = {**self.event, "law": f"function of {law}", "scale": None}
        return meta

    @property
    def noised(self) -> bool:
        """Whether it is a released value: something was added to noise that is no mere coin."""
        return self.off is not None and "uniform" not in self.event["law"]

    @property
    def moved(self) -> bool:
        """Whether other data than in the recorded run has been added."""
        return self.tape.replays and self.off is not None and not same(self.off, self.off0)


def start(tape: Tape, event: dict[str, Any], value: Any, *, given: Any = None) -> Any:
    """A draw as a value that follows; ``given`` is a location that the primitive added itself."""
    meta = Meta(tape, event, f"{event['call']}", f"{event['call']}")
    if given is not None:
        meta.off = np.asarray(given)[()]
        before = event.get("before")
        meta.off0 = unpack(before["given"]) if before else meta.off
        if _zero(meta.off) and _zero(meta.off0):
            meta.off = meta.off0 = None
    return follow(value, meta)


def _zero(value: Any) -> bool:
    array = numbers(value)
    return array is not None and not array.any()


def follow(value: Any, meta: Meta) -> Any:
    """``value`` with its ``meta``; itself, where no class of ours holds such a value."""
    meta.shape = tuple(np.shape(value))
    if isinstance(value, np.ndarray):
        array = np.asarray(value).view(NoiseArray)
        array._m = meta
        return array
    if isinstance(value, (bool, np.bool_, str, bytes)) or value is None:
        return value
    if isinstance(value, (float, np.floating)):
        number: Any = NoiseFloat(value)
        number._m = meta
        return number
    if isinstance(value, (int, np.integer)) and -(1 << 63) <= value < 1 << 63:
        number = NoiseInt(value)
        number._m = meta
        return number
    for accepts, wrap in _WRAPPERS:
        if accepts(value):
            return wrap(value, meta)
    return value


def meta_of(value: Any) -> Meta | None:
    """The meta of a value in the run that is on; None for a plain value."""
    meta = value._m if isinstance(value, Follower) else None
    return meta if meta is not None and meta.tape is current() else None


# -- arithmetic --------------------------------------------------------------------------------


def add(value: Any, other: Any, *, sign: int = 1) -> Any:
    """``value + sign · other``, of which at least one follows noise."""
    mine, theirs = meta_of(value), meta_of(other)
    plain, more = base(value), base(other)
    result = plain + more if sign > 0 else plain - more
    if mine is not None and theirs is not None:
        if mine.noised != theirs.noised and (mine.off is None or theirs.off is None):
            return _second_noise(result, mine, theirs, plain, more, sign)
        if mine.noised and theirs.noised:
            return result  # two released values, each hidden by its own noise
        return _sum_of_noise(result, mine, theirs, sign)
    if mine is not None:
        return _join(result, mine, more, own=1, data=sign, held=plain, first=True)
    return result if theirs is None else _join(result, theirs, plain, own=sign, data=1, held=more)


def _join(
    result: Any, meta: Meta, operand: Any, *, own: int, data: int, held: Any, first: bool = False
) -> Any:
    """Noise with data added: the recorded sum, on a replay."""
    if own > 0 and _zero(operand) and np.shape(result) == np.shape(held):
        at, line = meta.tape.place()
        if at != line:  # a library's location of 0
            return follow(result, meta)
    if meta.noised and not (first and data > 0 and not np.ndim(result) and "+" not in meta.uses):
        return result  # a released value in a new sum; of noise as an accumulator it is one sum
    tape, made = meta.tape, meta.child("+")
    now = (
        -operand if data < 0 else np.array(operand) if isinstance(operand, np.ndarray) else operand
    )
    made.slope = own * made.slope if own < 0 else made.slope
    offset = meta.off if own > 0 or meta.off is None else -meta.off
    made.off = now if offset is None else offset + now
    if not tape.replays:
        tape.joins[made.key] = (pack(now), pack(result))
        made.off0 = made.off
        return follow(result, made)
    before = tape.joins.get(made.key)
    offset0 = meta.off0 if own > 0 or meta.off0 is None else -meta.off0
    if before is None:  # a sum over more records than before
        made.off0 = 0 * made.off if offset0 is None else offset0
        return follow(held + 0 * result if np.shape(result) != np.shape(held) else held, made)
    recorded = unpack(before[1])
    if np.shape(recorded) != np.shape(result):
        tape.stop("shape", meta.event, f"{np.shape(recorded)}", f"{np.shape(result)}")
    then = unpack(before[0])
    made.off0 = then if offset0 is None else offset0 + then
    shape, wide = tuple(np.shape(base(held))), tuple(np.shape(base(result)))
    if shape != wide:
        _shared(made, now, then, shape, wide)
    return follow(recorded, made)


def _shared(meta: Meta, now: Any, then: Any, shape: tuple[int, ...], wide: tuple[int, ...]) -> None:
    """One draw is added to several numbers: what lies between them is exact."""
    with np.errstate(all="ignore"):
        moved = np.broadcast_to(np.asarray(base(now)) - np.asarray(base(then)), wide)
    axes = tuple(i for i, n in enumerate((1,) * (len(wide) - len(shape)) + shape) if n < wide[i])
    size = 1e-9 * (1 + np.abs(moved).max(initial=0.0))
    if np.any(np.ptp(moved, axis=axes) > size):
        meta.tape.differ("reuse", meta.event, then, now)


def _second_noise(result: Any, mine: Meta, theirs: Meta, plain: Any, more: Any, sign: int) -> Any:
    """More noise on a noised value: joined as to any other value, but hidden by both."""
    if mine.off is None:
        joined = _join(result, mine, more, own=1, data=sign, held=plain)
    else:
        joined = _join(result, theirs, plain, own=sign, data=1, held=more)
    if joined._m.moved:  # the other value was mixed with data
        return joined
    both = _sum_of_noise(base(joined), mine, theirs, sign)
    joined._m.heir = True
    both._m.key = joined._m.key
    return both


def _sum_of_noise(result: Any, mine: Meta, theirs: Meta, sign: int) -> Any:
    made = mine.child(f"({theirs.key})", root=f"{mine.root}+{theirs.root}")
    theirs.heir = theirs.used = True
    laws = mine.event["law"], theirs.event["law"]
    made.affine = mine.affine and theirs.affine
    made.slope, known = 1.0, mine.affine and theirs.affine and laws[0] == laws[1]
    widths = _width(mine), _width(theirs)
    law, wide = f"{laws[0]} + {laws[1]}", None
    if known and laws[0] == "normal" and None not in widths:
        law, wide = "normal", np.sqrt(np.square(widths[0]) + np.square(widths[1]))
    elif known and laws[0] in _HALVES and sign < 0 and widths[0] is not None and same(*widths):
        law, wide = _HALVES[laws[0]], widths[0]
    made.event = {**mine.event, "law": law, "scale": pack(wide)}
    if mine.event.get("of") and theirs.event.get("of"):
        alone = [np.multiply(base(m.slope), m.event["of"]["is"]) for m in (mine, theirs)]
        made.event["of"] = _made_of(alone[0] + sign * alone[1], mine, theirs)
    for name in ("off", "off0"):
        a, b = getattr(mine, name), getattr(theirs, name)
        b = None if b is None else sign * b
        setattr(made, name, b if a is None else a if b is None else a + b)
    return follow(result, made)


_HALVES = {"exponential": "laplace", "geometric": "discrete-laplace"}
"""Laws of a difference of two draws of the same law and scale."""


def _width(meta: Meta) -> Any:
    """The scale of a value's noise; None if it is not known."""
    try:
        wide = np.asarray(unpack(meta.event["scale"]), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if meta.event["law"] == "geometric":
        with np.errstate(all="ignore"):
            wide = -1 / np.log1p(-wide)
    return np.abs(base(meta.slope)) * wide


def scale(value: Any, other: Any, how: Callable[[Any, Any], Any], name: str) -> Any:
    """``value`` times or over ``other``, of which ``value`` follows noise and ``other`` may."""
    mine, theirs = meta_of(value), meta_of(other)
    result = how(base(value), base(other))
    if mine is None or theirs is not None:
        return derive(result, name, *(m for m in (mine, theirs) if m is not None))
    if mine.noised and np.ndim(base(other)):
        return result
    tape, operand = mine.tape, base(other)
    if mine.moved and not same(operand, _recorded(mine, name, operand)):
        return _mixed(tape, result)
    made = mine.child(name)
    made.slope = how(mine.slope, operand)
    made.off = None if mine.off is None else how(mine.off, operand)
    if not tape.replays:
        tape.joins[made.key] = (pack(operand), pack(result))
        made.off0 = made.off
        return follow(result, made)
    before = tape.joins.get(made.key)
    if before is None or np.shape(base(result)) != np.shape(unpack(before[1])):
        return result  # e.g. coins of another number
    then = unpack(before[0])
    made.off0 = None if mine.off0 is None else how(mine.off0, then)
    if not same(operand, then):
        if mine.off is not None:
            return _mixed(tape, result)
        tape.differ("scale", _here(mine), then, operand, path="factor")
        made.slope = how(mine.slope, then)
        return follow(unpack(before[1]), made)
    return follow(result, made)


def _mixed(tape: Tape, result: Any) -> Any:
    """A noised value times data: a plain value, made at this line."""
    at, line = tape.place()
    tape.mixed = line or at
    return result


def _recorded(meta: Meta, step: str, default: Any) -> Any:
    before = meta.tape.joins.get(meta.next(step))
    return default if before is None else unpack(before[0])


def _here(meta: Meta) -> dict[str, Any]:
    at, line = meta.tape.place()
    return {**meta.event, "at": at, "in": line}


def derive(result: Any, step: str, *parents: Meta) -> Any:
    """What another function makes: noise of another law, or, of a noised value, a plain one."""
    if any(meta.moved or meta.noised for meta in parents) or not parents:
        return result
    meta = parents[0]
    made = meta.child(f"~{step}", affine=False)
    made.root, made.affine = made.key, True  # noise of its own
    made.event["of"] = _made_of(result, *parents)
    for other in parents[1:]:
        other.used = True
    if made.tape.replays:
        before = made.tape.joins.get(made.key)
        if before is not None and before != _digest(result):
            if all(m.off is None for m in parents):
                made.tape.differ("scale", _here(meta), "noise", "noise times data", path=step)
            return result
    else:
        made.tape.joins[made.key] = _digest(result)
    return follow(result, made)


def _made_of(result: Any, *parents: Meta) -> dict[str, Any] | None:
    """What noise of another law is made of: the uniform numbers, each from 0 to 1; and itself."""
    draws: dict[str, list[float]] = {}
    for meta in parents:
        if "of" in meta.event:
            draws |= (meta.event["of"] or {}).get("of", {})
            continue
        call, _, part = meta.root.partition("[")
        packed = meta.event.get("out") or meta.event.get("before", {}).get("out")
        values = numbers(unpack(packed)) if packed is not None else None
        if values is None or meta.event["law"] != "uniform":
            return None
        low, high = _ends(meta)
        if part and not part[:-1].isdigit():
            return None
        some = values[int(part[:-1])] if part else values[:16]
        draws[call + part] = ((np.ravel(some) - low) / (high - low)).tolist()
    return {"of": draws, "is": np.ravel(base(result))[:16].astype(float).tolist()}


def _digest(value: Any) -> str:
    return hashlib.blake2b(bits(value), digest_size=16).hexdigest()


def compare(value: Any, other: Any, how: Callable[[Any, Any], Any]) -> Any:
    """A comparison of noise with data, whose recorded outcome holds on a replay.

    A uniform number below a bound is a Bernoulli coin: where the bound depends on the data, it is
    noted how far the probability moves. Of other noise the data moves as if it were added.
    """
    mine, theirs = meta_of(value), meta_of(other)
    result = how(base(value), base(other))
    meta = mine or theirs
    if meta is None:
        return result
    meta.used = True
    meta.tape.select()
    coin = meta.event["law"] == "uniform" and meta.off is None
    operand = base(other if mine is not None else value)
    both = mine is not None and theirs is not None
    if both or not meta.affine or how in (operator.eq, operator.ne) or numbers(operand) is None:
        return result
    made, tape = meta.child(f"{how.__name__}"), meta.tape
    made.compared, made.shape = True, tuple(np.shape(result))
    made.off, made.off0 = (None, None) if coin else (_less(meta.off, operand),) * 2
    if not tape.replays:
        tape.joins[made.key] = (pack(operand), pack(result))
        return result
    before = tape.joins.get(made.key)
    then: Any = None if before is None else unpack(before[0])
    outcome: Any = None if before is None else unpack(before[1])
    if before is None or (np.shape(operand), np.shape(result)) != (
        np.shape(then),
        np.shape(outcome),
    ):
        made.off = made.off0 = None
        return result
    if not coin:
        made.off0 = _less(meta.off0, then)
    elif not same(operand, then):
        first, second = (_chance(meta, p) for p in (then, operand))
        coins = {**meta.event, "law": "bernoulli"}
        tape.moves(coins, first, second, loss=coin_losses(first, second))
    return outcome


def _ends(meta: Meta) -> Any:
    """The ends of a uniform draw."""
    ends = numbers(unpack(meta.event["scale"]))
    return ends if ends is not None and len(ends) == 2 else (0.0, 1.0)


def _chance(meta: Meta, limit: Any) -> Any:
    """The probability that a uniform number is below a limit."""
    low, high = _ends(meta)
    with np.errstate(all="ignore"):
        part = (np.asarray(limit, np.float64) / base(meta.slope) - low) / (high - low)
    return np.clip(part, 0, 1)


def _less(off: Any, operand: Any) -> Any:
    return -base(operand) if off is None else off - base(operand)


def coin_losses(first: Any, second: Any) -> list[float]:
    """Largest log ratio of two rows of coins' outcomes, either way; ∞ if one is impossible."""
    a, b = np.broadcast_arrays(*(np.asarray(p, np.float64) for p in (first, second)))
    with np.errstate(all="ignore"):
        heads, tails = np.log(a) - np.log(b), np.log1p(-a) - np.log1p(-b)
    ways = [np.where(a == b, 0.0, np.fmax(sign * heads, sign * tails)) for sign in (1, -1)]
    return [float(np.nan_to_num(way, nan=np.inf, posinf=np.inf).sum()) for way in ways]


# -- numbers -----------------------------------------------------------------------------------


class _Number:
    """The arithmetic of a single number."""

    def __add__(self, other: Any) -> Any:
        return add(self, other)

    def __radd__(self, other: Any) -> Any:
        return add(other, self)

    def __sub__(self, other: Any) -> Any:
        return add(self, other, sign=-1)

    def __rsub__(self, other: Any) -> Any:
        return add(other, self, sign=-1)

    def __mul__(self, other: Any) -> Any:
        return scale(self, other, operator.mul, "*")

    def __rmul__(self, other: Any) -> Any:
        return scale(self, other, operator.mul, "*")

    def __truediv__(self, other: Any) -> Any:
        return scale(self, other, operator.truediv, "/")

    def __neg__(self) -> Any:
        return scale(self, -1, operator.mul, "*")

    def __pos__(self) -> Any:
        return self

    def __hash__(self) -> int:
        return hash(self._dpaudit_plain())  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        plain = self._dpaudit_plain()  # type: ignore[attr-defined]
        return type(plain), (plain,)

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __copy__(self) -> Any:
        return self


def _number_method(name: str, how: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        metas = [m for m in map(meta_of, (self, *others)) if m is not None]
        try:
            result = how(base(self), *map(base, others))
        except TypeError:
            return NotImplemented
        return derive(result, name, *metas)

    return method


def _comparison(how: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return compare(self, other, how)

    return method


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(_Number, f"__{_name}__", _comparison(getattr(operator, _name)))
_UNARY: dict[str, Callable[..., Any]] = {
    "abs": operator.abs, "pow": operator.pow, "floordiv": operator.floordiv, "mod": operator.mod,
    "round": round,
}  # fmt: skip
for _name, _how in _UNARY.items():
    setattr(_Number, f"__{_name}__", _number_method(_name, _how))
for _name, _how in {
    "rtruediv": lambda a, b: b / a, "rpow": lambda a, b: b**a, "rfloordiv": lambda a, b: b // a,
    "rmod": lambda a, b: b % a,
}.items():  # fmt: skip
    setattr(_Number, f"__{_name}__", _number_method(_name, _how))


def _number_class(name: str, parent: type, plain: type) -> Any:
    """A subclass of a scalar of numpy, which must be its first base: numpy looks there."""

    def _dpaudit_plain(self: Any) -> Any:
        return plain(getattr(parent, f"__{plain.__name__}__")(self))

    def text(self: Any) -> str:
        if self._m is not None:
            self._m.released = True  # in a text, which is followed no further
        return repr(_dpaudit_plain(self))

    def formatted(self: Any, how: str) -> str:
        text(self)
        return format(_dpaudit_plain(self), how)

    def ufunc(self: Any, function: Any, method: str, *inputs: Any, **more: Any) -> Any:
        del self
        return by_ufunc(function, method, inputs, more)

    methods = {k: v for k, v in vars(_Number).items() if callable(v)}
    own = {
        "_dpaudit_plain": _dpaudit_plain, "__repr__": text, "__str__": text,
        "__format__": formatted, "__array_ufunc__": ufunc, "item": _Number.__pos__,
        "__doc__": f"A {plain.__name__} that follows noise.",
    }  # fmt: skip
    return type(name, (parent, Follower), {**methods, **own})


NoiseFloat = _number_class("NoiseFloat", np.float64, float)
NoiseInt = _number_class("NoiseInt", np.int64, int)


# -- arrays ------------------------------------------------------------------------------------


class NoiseArray(Follower, np.ndarray):
    """An array that follows noise. Views of it by functions of C are plain arrays."""

    def __array_finalize__(self, obj: Any) -> None:
        self._m = None

    def _dpaudit_plain(self) -> np.ndarray[Any, Any]:
        return self.view(np.ndarray)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        return by_ufunc(ufunc, method, inputs, more)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        metas: list[Meta] = []
        result = func(*_stripped(args, metas), **_stripped(kwargs, metas))
        return derive(result, func.__name__, *metas) if _is_number(result) else result

    def __getitem__(self, key: Any) -> Any:
        part = self.view(np.ndarray)[base(key)]
        meta = meta_of(self)
        if meta is None:
            return part
        step = f"[{key if isinstance(key, (int, slice, tuple)) else 'mask'}]"
        made = meta.child(step, root=f"{meta.root}{step}")
        made.off, made.off0 = (_part(off, key, self.shape) for off in (meta.off, meta.off0))
        made.slope = _part(meta.slope, key, self.shape)
        made.event = {
            **meta.event,
            "scale": pack(_part(unpack(meta.event["scale"]), key, self.shape)),
        }
        if "of" in made.event:
            made.event["of"] = _of_part(made.event["of"], key)
        return follow(part, made)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.view(np.ndarray)[base(key)] = base(value)
        self._m = None

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def tolist(self) -> Any:
        return [row.tolist() if row.ndim else row for row in self] if self.ndim else self[()]

    def item(self, *args: Any) -> Any:
        return (
            self.ravel()[args[0] if args else 0] if self._m else self.view(np.ndarray).item(*args)
        )

    def _shaped(self, how: str, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.view(np.ndarray), how)(*args, **kwargs)
        meta = meta_of(self)
        if meta is None:
            return result
        made = meta.child(f"{how}{args}")
        full = [
            None if off is None else np.broadcast_to(off, self.shape)
            for off in (meta.off, meta.off0)
        ]
        made.off, made.off0 = (
            None if off is None else getattr(off, how)(*args, **kwargs) for off in full
        )
        if np.ndim(meta.slope):
            made.slope = getattr(np.broadcast_to(meta.slope, self.shape), how)(*args, **kwargs)
        return follow(result, made)

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        del memo
        return self._shaped("copy")


def _shaping(name: str) -> Callable[..., Any]:
    def method(self: NoiseArray, *args: Any, **kwargs: Any) -> Any:
        return self._shaped(name, *args, **kwargs)

    return method


for _name in ("reshape", "ravel", "flatten", "copy", "astype", "transpose", "squeeze"):
    setattr(NoiseArray, _name, _shaping(_name))
NoiseArray.T = property(lambda self: self._shaped("transpose"))  # type: ignore[assignment]


def _part(whole: Any, key: Any, shape: Any) -> Any:
    if not isinstance(whole, np.ndarray) or whole.ndim == 0:
        return whole
    return np.broadcast_to(whole, shape)[base(key)]


def _of_part(of: dict[str, Any] | None, key: Any) -> dict[str, Any] | None:
    """What one number of a row is made of; None if that is not known."""
    if of is None or not isinstance(key, int) or not -len(of["is"]) <= key < len(of["is"]):
        return None
    alike = all(len(draws) == len(of["is"]) for draws in of["of"].values())
    if not alike:
        return None
    return {"of": {k: [v[key]] for k, v in of["of"].items()}, "is": [of["is"][key]]}


def _is_number(value: Any) -> bool:
    return isinstance(value, (np.ndarray, float, np.number)) and not isinstance(value, bool)


def _stripped(value: Any, metas: list[Meta]) -> Any:
    """A value with plain numbers for those that follow noise, whose metas are collected."""
    if isinstance(value, Follower):
        meta = meta_of(value)
        if meta is not None:
            metas.append(meta)
        return base(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_stripped(v, metas) for v in value)
    if isinstance(value, dict):
        return {k: _stripped(v, metas) for k, v in value.items()}
    return value


_COMPARISONS = {np.less: operator.lt, np.less_equal: operator.le, np.greater: operator.gt,
                np.greater_equal: operator.ge}  # fmt: skip


def by_ufunc(ufunc: Any, method: str, inputs: Any, more: dict[str, Any]) -> Any:
    """A numpy function of numbers that follow noise."""
    out = more.pop("out", None)
    metas = [m for m in map(meta_of, inputs) if m is not None]
    plain = [base(v) for v in inputs]
    if not metas:
        result = getattr(ufunc, method)(*plain, **more)
    elif method == "__call__" and not more and ufunc in (np.add, np.subtract):
        left, right = (v if isinstance(v, Follower) else np.asarray(v)[()] for v in inputs)
        result = add(left, right, sign=1 if ufunc is np.add else -1)
    elif method == "__call__" and not more and ufunc is np.multiply:
        a, b = inputs if meta_of(inputs[0]) is not None else inputs[::-1]
        result = scale(a, b, np.multiply, "*")
    elif method == "__call__" and not more and ufunc is np.divide and meta_of(inputs[0]):
        result = scale(inputs[0], inputs[1], np.divide, "/")
    elif method == "__call__" and not more and ufunc is np.negative:
        result = scale(inputs[0], -1, np.multiply, "*")
    elif method == "__call__" and ufunc in _COMPARISONS:
        result = compare(inputs[0], inputs[1], _COMPARISONS[ufunc])
    elif method == "reduce" and ufunc is np.add and metas[0].affine:
        result = _reduced(plain[0], metas[0], more)
    else:
        result = getattr(ufunc, method)(*plain, **more)
        if _is_number(result):
            result = derive(result, f"{ufunc.__name__}.{method}", *metas)
    if out is None:
        return result
    target = out[0]
    base(target)[...] = base(result)
    if isinstance(target, NoiseArray):
        target._m = result._m if isinstance(result, Follower) else None
    return target


def _reduced(plain: Any, meta: Meta, more: dict[str, Any]) -> Any:
    """The sum of an array that follows noise, along an axis or of all."""
    more = {k: v for k, v in more.items() if v is not np._NoValue}
    result = np.add.reduce(plain, **more)
    made = meta.child(f"sum{more}")
    for name in ("off", "off0"):
        off = getattr(meta, name)
        if off is not None:
            setattr(made, name, np.add.reduce(np.broadcast_to(off, plain.shape), **more))
    square = np.square(np.broadcast_to(base(meta.slope), plain.shape))
    made.slope = np.sqrt(np.add.reduce(square, **more))
    if meta.event["law"] not in ("normal", "standard_normal"):
        made.event = {**meta.event, "law": f"sum of {meta.event['law']}"}
    return follow(result, made)


_KNOWN = ("laplace", "discrete-laplace", "normal", "logistic")


def settle(tape: Tape) -> None:
    """At the end of a replay: how far inputs moved, and noise that was used for two of them.

    Of each chain of additions the last counts, and what is released of it. Two chains of one draw,
    between which the distance of the data changes, give that distance away.
    """
    ends: dict[str, list[Meta]] = {}
    for meta in tape.metas:
        if (not meta.heir and meta.off is not None) or (meta.released and meta.affine):
            of = meta.event.get("of")
            ends.setdefault(repr(of) if of else meta.root, []).append(meta)
    for root, chains in ends.items():
        own = [_scaled(m) for m in chains]
        steps = [now - then for now, then in own]
        both = list(zip(chains, steps, strict=True))
        fixed = not any(m.compared and step.any() for m, step in both)
        chosen = [fixed and m.compared for m, _ in both]  # compared with what is no data
        added = [pair for pair, c in zip(own, chosen, strict=True) if not c]
        _reused(tape, chains[0], [*added, *_of_array(root, ends)])
        for i, (meta, step) in enumerate(both):
            alike = [k for k, s in enumerate(steps) if s.shape == step.shape and _near(s, step)]
            if not step.any() or min(alike, default=i) < i:
                continue  # what an earlier chain of the same draw says already
            if any(chosen):  # e.g. drawn again until it is positive
                meta.event = {**meta.event, "law": f"{meta.event['law']}, chosen", "scale": None}
            shown = any(chains[k].released and chains[k].affine for k in alike)
            _moved(tape, meta, step, shown)


def _of_array(root: str, ends: dict[str, list[Meta]]) -> list[tuple[Any, Any]]:
    """Chains of the array that an element is of, at the element's place."""
    array, _, place = root.partition("[")
    if not place[:-1].isdigit():
        return []
    i = int(place[:-1])
    whole = [m for m in ends.get(array, ()) if np.ndim(m.off) == 1 and i < np.size(m.off)]
    return [
        (now.flat[i if now.size > 1 else 0], then.flat[i if then.size > 1 else 0])
        for now, then in map(_scaled, whole)
    ]


def _moved(tape: Tape, meta: Meta, step: Any, shown: bool) -> None:
    """Note how far the data of a chain moved: ``step`` in units of its draw."""
    wide, slope = unpack(meta.event["scale"]), np.abs(base(meta.slope))
    more: dict[str, Any] = {"exact": shown and meta.off is not None}
    if meta.event["law"] in _KNOWN and wide is not None:
        with np.errstate(all="ignore"):
            ratios = np.where(step == 0, 0.0, np.abs(step) / np.asarray(wide, float))
            square = np.square(ratios)
        more["ratios"] = {"l1": float(ratios.sum()), "l2": float(np.sqrt(square.sum()))}
    elif meta.event["law"] == "multivariate-normal" and wide is not None:
        with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError, ValueError):
            square = step @ np.linalg.solve(np.asarray(wide, float), step)
            more["ratios"] = {"l2": float(np.sqrt(square))}
    if meta.event.get("of") and np.ndim(base(meta.slope)) == 0:
        noise = [float(base(meta.slope)) * one for one in meta.event["of"]["is"]]
        more["of"] = {**meta.event["of"], "is": noise}
    wide = None if wide is None else slope * np.asarray(wide)
    first, second = _wide(meta, meta.off0), _wide(meta, meta.off)
    tape.moves({**meta.event, "scale": pack(wide)}, first, second, **more)


def _scaled(meta: Meta) -> tuple[Any, Any]:
    """Data that was added, now and when recorded, in units of the draw."""
    slope = np.asarray(base(meta.slope), float)
    with np.errstate(all="ignore"):
        return _wide(meta, meta.off) / slope, _wide(meta, meta.off0) / slope


def _wide(meta: Meta, off: Any) -> Any:
    """Data that was added, for each number of the value that follows."""
    added = np.asarray(0.0 if off is None else base(off), float)
    try:
        return np.broadcast_to(added, meta.shape)
    except ValueError:  # of another shape, e.g. one that C code made
        return added


def _near(first: Any, second: Any) -> bool:
    with np.errstate(all="ignore"):
        same_place = (first == second) | (np.isnan(first) & np.isnan(second))
        return bool(np.all(same_place | (np.abs(first - second) <= 1e-9 * (1 + np.abs(second)))))


def _reused(tape: Tape, meta: Meta, chains: list[tuple[Any, Any]]) -> None:
    """Note that one draw hides two sums, if what lies between them depends on the data."""
    for i, (off, off0) in enumerate(chains):
        for other, other0 in chains[:i]:
            if off.shape != other.shape:
                continue
            with np.errstate(all="ignore"):
                now, then = off - other, off0 - other0
            if not _near(now, then):
                tape.differ("reuse", meta.event, then, now)
                return


def lost(tape: Tape) -> list[dict[str, Any]]:
    """Draws of noise that were not seen to meet data, to decide or to be released."""
    used = {m.key.split("/")[0] for m in tape.metas if m.used or m.off is not None}
    return [
        event
        for event in tape.now
        if event["law"] not in _SILENT
        and not event.get("inside")
        and str(event["call"]) not in used
    ]


_SILENT = ("integers", "bits", "choice", "permutation", "bernoulli")
