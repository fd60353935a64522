"""Values as the tape keeps them: packed without pickle, compared bit for bit, and shown."""

from __future__ import annotations

import marshal
import math
import sys
from typing import Any

import numpy as np

LONGEST = 60
"""Characters of a value that a finding shows."""
_MOST = 1_000_000
"""Numbers of an array that the tape keeps whole."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DEEPEST = 40
_PACKAGE = __name__.partition(".")[0]
OPAQUE = " of the release, which cannot be compared"


class UnknownValueError(TypeError):
    """A value of a type that the tape cannot keep."""


def pack(value: Any) -> Any:
    """``value`` as numbers, text, bytes, tuples and dicts, which ``marshal`` takes.

    Raises:
        UnknownValueError: it holds something else.
    """
    value = base(value)
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):
        return ("array", value.dtype.str, (), value.tobytes(), True)
    if isinstance(value, _PLAIN):  # of a class of its own, e.g. an enumeration
        plain: Any = next(k for k in _PLAIN if isinstance(value, k))
        return plain(value) if plain is not str else str.__str__(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return ("objects", value.shape, [pack(v) for v in value.ravel().tolist()])
        value = np.ascontiguousarray(value).reshape(value.shape)
        return ("array", value.dtype.str, value.shape, value.tobytes(), False)
    if isinstance(value, (list, tuple, set, frozenset)):
        kind = next(k for k in (list, tuple, set, frozenset) if isinstance(value, k))
        items = [pack(v) for v in value]
        return (
            "items",
            kind.__name__,
            sorted(items, key=repr) if "set" in kind.__name__ else items,
        )
    if isinstance(value, dict):
        return ("dict", [(pack(k), pack(v)) for k, v in dict.items(value)])
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        plain = value.detach().cpu()
        if plain.dtype == torch.bfloat16:
            return ("tensor", "bfloat16", pack(plain.float().numpy()))
        return ("tensor", "", pack(plain.numpy()))
    raise UnknownValueError(type(value).__name__)


def unpack(packed: Any) -> Any:
    """The value of :func:`pack`."""
    if not isinstance(packed, tuple):
        return packed
    kind = packed[0]
    if kind == "array":
        array = np.frombuffer(packed[3], dtype=np.dtype(packed[1])).reshape(packed[2]).copy()
        return array[()] if packed[4] else array
    if kind == "objects":
        array = np.empty(len(packed[2]), dtype=object)
        array[:] = [unpack(v) for v in packed[2]]
        return array.reshape(packed[1])
    if kind == "items":
        makers: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
        return makers[packed[1]](unpack(v) for v in packed[2])
    if kind == "dict":
        return {unpack(k): unpack(v) for k, v in packed[1]}
    torch = sys.modules["torch"]
    tensor = torch.from_numpy(np.array(unpack(packed[2])))
    return tensor.to(torch.bfloat16) if packed[1] else tensor


def base(value: Any) -> Any:
    """A number or array that follows noise, as the plain number or array."""
    ours = (type(value).__module__ or "").startswith(_PACKAGE)
    return value._dpaudit_plain() if ours and hasattr(value, "_dpaudit_plain") else value


def bits(value: Any) -> bytes:
    """A value bit for bit: −0.0 is not 0.0, 3 is not 3.0, NaN is NaN.

    Raises:
        UnknownValueError: it cannot be packed.
    """
    return marshal.dumps(pack(value), 2)


def same(first: Any, second: Any) -> bool:
    """Whether two values are equal by their :func:`bits`."""
    try:
        return bits(first) == bits(second)
    except UnknownValueError:
        return type(first) is type(second)


def numbers(value: Any) -> np.ndarray[Any, Any] | None:
    """The numbers of a value as float64 in one row; None if it holds something else."""
    value = base(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu().double().numpy()
    if isinstance(value, dict):
        value = list(value.values())
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            array = array.astype(np.float64) if array.dtype.kind == "O" and array.size else array
        return array.astype(np.float64).ravel() if array.dtype.kind in "biuf" else None
    except (TypeError, ValueError):
        return None


def distance(first: Any, second: Any) -> dict[str, float]:
    """How far numbers move, in the norms L0, L1, L2 and L∞; ∞ where a NaN comes or goes.

    Other values are at distance ∞ of each other, or 0.
    """
    a, b = numbers(first), numbers(second)
    if a is None or b is None or len(a) != len(b):
        far = 0.0 if same(first, second) else math.inf
        return {"l0": far, "l1": far, "l2": far, "linf": far}
    with np.errstate(all="ignore"):
        moved = np.abs(a - b)
    moved[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    moved[np.isnan(moved)] = math.inf
    return {
        "l0": float(np.count_nonzero(moved)),
        "l1": float(moved.sum()),
        "l2": float(np.sqrt(np.square(moved).sum())) if np.isfinite(moved).all() else math.inf,
        "linf": float(moved.max(initial=0.0)),
    }


def shown(value: Any, limit: int = LONGEST) -> str:
    """A value in a few words."""
    value = base(value)
    if isinstance(value, np.ndarray) and value.size > 6:
        head = ", ".join(shown(v, 12) for v in value.ravel()[:4].tolist())
        text = f"[{head}, … {value.size} numbers]"
    elif isinstance(value, np.ndarray):
        text = repr(value.tolist())
    else:
        text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def leaves(value: Any, path: str = "", above: tuple[int, ...] = ()) -> list[tuple[str, Any]]:
    """What a release is made of, each part with its path: numbers, texts, arrays, types, keys.

    Of a container there is a leaf for its type with its length or keys, and the leaves of its
    parts; of an object that is none of ours, its type, and its ``__dict__``.
    """
    from .noise import Follower

    if isinstance(base(value), (*_PLAIN, np.generic)):
        return [(path, value)]
    if len(above) > _DEEPEST or id(value) in above:
        return [(f"{path}…", type(value).__name__ if id(value) in above else _text(value))]
    down = (*above, id(value))
    if isinstance(value, Follower) and not isinstance(value, np.ndarray):
        return [
            (f"{path} type", "Tensor"),
            (f"{path}.shape", tuple(base(value).shape)),
            (path, value),
        ]
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return leaves(value.tolist(), path, down)
        return [(f"{path}.dtype", value.dtype.str), (f"{path}.shape", value.shape), (path, value)]
    if isinstance(value, dict):
        keys = [(f"{path} keys", tuple(shown(k, 200) for k in dict.keys(value)))]
        return keys + [
            leaf
            for k, v in dict.items(value)
            for leaf in leaves(v, f"{path}[{shown(k, 40)}]", down)
        ]
    if isinstance(value, (set, frozenset)):
        return [(path, tuple(sorted(shown(v, 200) for v in value)))]
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        if len(value) > 8 and all(isinstance(base(v), (*_PLAIN, np.generic)) for v in value):
            followed = [(f"{path}[{i}]", v) for i, v in enumerate(value) if isinstance(v, Follower)]
            if not followed:
                return [(f"{path} length", len(value)), (path, tuple(value))]
        return [(f"{path} length", len(value))] + [
            leaf for i, v in enumerate(value) for leaf in leaves(v, f"{path}[{i}]", down)
        ]
    return _foreign_leaves(value, path, down)


def _foreign_leaves(value: Any, path: str, down: tuple[int, ...]) -> list[tuple[str, Any]]:
    """The leaves of a data frame, a tensor, an iterator or an object."""
    kind = [(f"{path} type", type(value).__name__)]
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):  # pandas, polars
        columns = [str(c) for c in value.columns]
        table = [(f"{path} columns", tuple(columns)), (f"{path} rows", len(value))]
        if hasattr(value, "index"):
            table.append((f"{path} index", tuple(shown(i) for i in value.index[:_MOST])))
        for name in value.columns:
            table += leaves(value[name].to_numpy(), f"{path}[{shown(name, 40)}]", down)
        return kind + table
    if hasattr(value, "to_numpy") and hasattr(value, "index"):
        index = [(f"{path} index", tuple(shown(i) for i in value.index))]
        return kind + index + leaves(value.to_numpy(), path, down)
    if type(value).__module__.split(".")[0] in ("torch", "jax", "jaxlib"):
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.nn.Module):
            return kind + leaves(dict(value.state_dict()), path, down)
        array = numbers(value)
        if array is not None:
            return [*kind, (f"{path}.shape", tuple(value.shape)), (path, array)]
    if hasattr(value, "_asdict"):
        return kind + leaves(value._asdict(), path, down)
    kinds = [] if type(value).__module__ in sys.stdlib_module_names else type(value).__mro__
    slots = [n for kind in kinds for n in getattr(kind, "__slots__", ()) if n[:2] != "__"]
    state = getattr(value, "__dict__", None) or {}
    state = {n: getattr(value, n) for n in slots if hasattr(value, n)} | dict(state)
    if state and not callable(value) and not hasattr(value, "__next__"):
        public = {k: v for k, v in state.items() if not k.startswith("__")}
        return kind + leaves(public, f"{path}.", down)
    text = _text(value)
    return [*kind, (f"{path}{OPAQUE}" if text == type(value).__name__ else path, text)]


def _text(value: Any) -> str:
    """A value of a type that is not ours as text (Decimal, date, …), without its address."""
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text
