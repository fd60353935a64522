"""Noise of torch: its functions, its fills in place, and tensors that follow noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import noise
from .hooks import module, quietly, wrap
from .noise import Follower, Meta, add, compare, derive, follow, meta_of, scale, start
from .tape import Tape
from .values import base

FUNCTIONS = {
    "normal": ("normal", "mean std size"), "randn": ("normal", "*size"),
    "randn_like": ("normal", "input"), "rand": ("uniform", "*size"),
    "rand_like": ("uniform", "input"), "randint": ("integers", "low high size"),
    "randperm": ("permutation", "n"), "bernoulli": ("bernoulli", "input"),
    "poisson": ("poisson", "input"), "multinomial": ("choice", "input num_samples"),
}  # fmt: skip
FILLS = {
    "normal_": ("normal", "std"), "uniform_": ("uniform", ""),
    "exponential_": ("exponential", "lambd"), "cauchy_": ("cauchy", "sigma"),
    "geometric_": ("geometric", "p"), "random_": ("integers", ""),
    "log_normal_": ("lognormal", "std"), "bernoulli_": ("bernoulli", ""),
}  # fmt: skip
_ORDER = {"normal_": ("mean", "std"), "uniform_": ("from", "to"),
          "cauchy_": ("median", "sigma"), "exponential_": ("lambd",),
          "geometric_": ("p",), "log_normal_": ("mean", "std")}  # fmt: skip
_installed: list[bool] = []
_fresh: list[int] = []
"""The seed that torch's own generator got at the start of the run."""


def install() -> None:
    """Place the hooks, if torch is imported."""
    torch = module("torch")
    if torch is None or _installed or not hasattr(torch, "Tensor"):
        return
    _installed.append(True)
    _make_class(torch)
    for name, (law, parameters) in FUNCTIONS.items():
        wrap(torch, name, _drawing(f"torch.{name}", law, parameters))
    for name, (law, width) in FILLS.items():
        wrap(torch.Tensor, name, _filling(f"torch.Tensor.{name}", law, width, _ORDER.get(name, ())))

    def seeding(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
        tape.seeds(args[0] if args else kwargs["seed"])
        return original(*args, **kwargs)

    wrap(torch, "manual_seed", seeding)
    for name in ("sample", "rsample"):
        wrap(torch.distributions.Laplace, name, _laplace)


def reseed(tape: Tape) -> None:
    """At the start of a run: torch's own generator gets a fresh number of the tape's."""
    torch = module("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        _fresh[:] = [int.from_bytes(tape.entropy(7), "big")]
        torch.default_generator.manual_seed(_fresh[0])


def _seed_of(kwargs: dict[str, Any]) -> str:
    """The seed of a draw's generator, if somebody chose it; a new ``Generator`` has a fixed one."""
    generator = kwargs.get("generator") or module("torch").default_generator
    seed = generator.initial_seed()
    return "" if [seed] == _fresh else str(seed)


def _number(value: Any) -> Any:
    value = base(value)
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _drawing(name: str, law: str, parameters: str) -> Callable[..., Any]:
    def around(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
        args = tuple(base(a) for a in args)
        kwargs = {k: base(v) for k, v in kwargs.items()}
        out = kwargs.pop("out", None)
        names = parameters.split()
        values = (
            {**dict(zip(names, args, strict=False)), **kwargs}
            if names[0] != "*size"
            else {"size": args}
        )
        given, width = None, 1.0
        if name == "torch.normal":
            given, width = _number(values.get("mean", 0.0)), _number(values.get("std", 1.0))
        elif law in ("bernoulli", "poisson", "choice"):
            given = _number(values["input"])
        make = quietly(original, args, kwargs)
        shape = _shape(values, given if name == "torch.normal" else None, width)
        output, event = tape.call(
            name, make, law=law, shape=shape, scale=width, given=given, seeded=_seed_of(kwargs)
        )
        like: Any = values.get("input")
        if hasattr(like, "dtype") and law == "normal":
            output = output.to(dtype=like.dtype, device=like.device)
        if law not in ("normal", "uniform"):
            return output
        output = start(tape, event, output, given=given)
        if out is None:
            return output
        out.copy_(base(output))
        return out

    return around


def _laplace(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """``torch.distributions.Laplace``, which makes its noise of uniform numbers."""
    law, rest = args[0], [base(a) for a in args[1:]]
    given, wide = _number(law.loc), _number(law.scale)
    shape = tuple(law._extended_shape(*rest, **kwargs))
    make = quietly(original, (law, *rest), kwargs)
    name = "torch.distributions.Laplace"
    output, event = tape.call(
        name, make, law="laplace", shape=shape, scale=wide, given=given, seeded=_seed_of({})
    )
    return start(tape, event, output, given=given)


def _shape(values: dict[str, Any], *others: Any) -> tuple[Any, ...]:
    size = values.get("size")
    if size is not None:
        flat = (
            size[0] if isinstance(size, tuple) and size and not isinstance(size[0], int) else size
        )
        return tuple(int(n) for n in flat) if not isinstance(flat, int) else (flat,)
    like: Any = values.get("input", values.get("n"))
    if hasattr(like, "shape"):
        return tuple(like.shape)
    return tuple(np.broadcast_shapes(*(np.shape(o) for o in others if o is not None)))


def _filling(name: str, law: str, width: str, order: tuple[str, ...]) -> Callable[..., Any]:
    def around(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
        target, *rest = args
        plain = base(target)
        values = {**dict(zip(order, rest, strict=False)), **kwargs}
        how = {k: base(v) for k, v in kwargs.items()}
        call = quietly(original, (plain, *map(base, rest)), how)
        wide = _number(values.get(width, 1.0)) if width else 1.0
        wide = 1.0 / wide if width == "lambd" else wide
        if law == "uniform":
            wide = (float(values.get("from", 0.0)), float(values.get("to", 1.0)))
        location = _number(values.get("mean", values.get("median", 0.0)))
        output, event = tape.call(
            name, lambda: call().clone(), law=law, shape=tuple(plain.shape), scale=wide,
            given=location or None, seeded=_seed_of(kwargs),
        )  # fmt: skip
        plain.data.copy_(output)
        if law in ("integers", "bernoulli"):
            return target
        return start(tape, event, plain, given=location or None)

    return around


_ADDS = {"add": 1, "__add__": 1, "__radd__": 1, "sub": -1, "subtract": -1, "__sub__": -1}
_IN_PLACE = {"add_": 1, "__iadd__": 1, "sub_": -1, "__isub__": -1}
_COMPARISONS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "__lt__": "lt", "__gt__": "gt",
                "__le__": "le", "__ge__": "ge"}  # fmt: skip
_SHAPING = ("reshape", "view", "flatten", "squeeze", "unsqueeze", "clone", "detach", "to", "float",
            "double", "cpu", "contiguous", "view_as", "expand_as")  # fmt: skip


def _make_class(torch: Any) -> None:
    class NoiseTensor(Follower, torch.Tensor):  # type: ignore[misc]
        """A tensor that follows noise."""

        def _dpaudit_plain(self) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                return self.as_subclass(torch.Tensor)

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            return _by_function(torch, func, args, kwargs or {})

    def wrap_tensor(value: Any, meta: Meta) -> Any:
        tensor = value.as_subclass(NoiseTensor)
        tensor._m = meta
        return tensor

    noise._WRAPPERS.append((lambda v: isinstance(v, torch.Tensor), wrap_tensor))


def _by_function(torch: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = getattr(func, "__name__", "")
    metas: list[Meta] = []
    plain = noise._stripped(args, metas)
    options = noise._stripped(kwargs, metas)
    with torch._C.DisableTorchFunctionSubclass():
        if not metas:
            return func(*plain, **options)
        factor = options.get("alpha", 1)
        if name in _ADDS and len(args) == 2 and factor == 1:
            first, second = args if name != "__radd__" else args[::-1]
            return add(first, second, sign=_ADDS[name])
        if name == "__rsub__" and len(args) == 2:
            return add(args[1], args[0], sign=-1)
        if name in _IN_PLACE:
            return _in_place(args, _IN_PLACE[name] * factor)
        if name in ("mul", "multiply", "__mul__", "__rmul__", "div", "true_divide", "__truediv__"):
            if not (len(args) == 2 and not kwargs):
                return _derived(torch, func(*plain, **options), name, metas)
            over = "d" in name.replace("mul", "") and "mul" not in name
            a, b = args if over or meta_of(args[0]) is not None else args[::-1]
            if over and meta_of(a) is None:
                return _derived(torch, func(*plain), name, metas)
            return scale(
                a, b, (lambda x, y: x / y) if over else (lambda x, y: x * y), "/" if over else "*"
            )
        if name == "neg":
            return scale(args[0], -1, lambda x, y: x * y, "*")
        if name in _COMPARISONS:
            import operator

            return compare(args[0], args[1], getattr(operator, _COMPARISONS[name]))
        if name in _SHAPING and metas and meta_of(args[0]) is not None:
            return _reshaped(func, plain, options, metas[0], name)
        return _derived(torch, func(*plain, **options), name, metas)


def _derived(torch: Any, result: Any, name: str, metas: list[Meta]) -> Any:
    if isinstance(result, torch.Tensor) and result.dtype.is_floating_point:
        return derive(result, name, *metas)
    return result


def _reshaped(func: Any, plain: Any, options: Any, meta: Meta, name: str) -> Any:
    result = func(*plain, **options)
    made = meta.child(name)
    shape = tuple(result.shape)
    for slot in ("off", "off0"):
        off = getattr(meta, slot)
        if off is not None and np.size(base(off)) == result.numel() and hasattr(off, "reshape"):
            setattr(made, slot, off.reshape(shape))
    if hasattr(meta.slope, "reshape") and np.size(base(meta.slope)) == result.numel():
        made.slope = meta.slope.reshape(shape)
    return follow(result, made)


def _in_place(args: Any, factor: Any) -> Any:
    """``target += factor · other``: the target gets the recorded sum, on a replay."""
    target, other = args[0], args[1]
    plain = base(target)
    more = (
        scale(other, factor, lambda x, y: x * y, "*") if factor != 1 and meta_of(other) else other
    )
    if factor != 1 and not meta_of(other):
        more = factor * other
    before = follow(plain.clone(), target._m) if meta_of(target) else plain.clone()
    result = add(before, more)
    plain.data.copy_(base(result))
    if isinstance(target, Follower):
        target._m = result._m if isinstance(result, Follower) else None
    return target
