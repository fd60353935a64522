"""Mechanisms of libraries: one row for each, with what the library states of a call.

A row sees the input before noise and the library's own sensitivity, ε and δ. What happens inside
the mechanism is the primitive's and is not noted.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from .hooks import module, place_hook, quietly, wrap
from .tape import Tape
from .values import UnknownValueError, base, distance, leaves, pack, unpack

_done: set[str] = set()


def install() -> None:
    """Place the hooks of libraries that are imported by now."""
    for name, row in ROWS.items():
        if name not in _done and module(name) is not None:
            try:
                row(module(name))
            except (AttributeError, ImportError, TypeError):
                continue  # another release, or not yet whole
            _done.add(name)


def mechanism(
    tape: Tape,
    name: str,
    make: Callable[[], Any],
    *,
    given: Any,
    law: str = "mechanism",
    scale: Any = None,
    shape: Any = None,
    stated: dict[str, Any] | None = None,
    loss: Callable[[Any, Any], float] | None = None,
    keep: bool = True,
) -> Any:
    """One call of a library's mechanism on ``given``; ``loss`` gives its ε for two inputs."""
    given = _kept(given)
    output, event = tape.call(
        name, make, law=law, shape=shape, scale=scale, given=given, stated=stated, keep=keep
    )
    if "before" in event:
        then = unpack(event["before"]["given"])
        more = {"loss": loss(then, given)} if loss is not None else {}
        tape.moves(event, then, given, **more)
    return output


def _kept(given: Any) -> Any:
    """An input as the tape can keep it: the digest of what it cannot."""
    try:
        return unpack(pack(given))
    except UnknownValueError:
        text = repr([(path, repr(base(v))) for path, v in leaves(given)])
        return f"data {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


# -- diffprivlib -------------------------------------------------------------------------------

_NORMS = {"Laplace": "l1", "Geometric": "l1", "Gaussian": "l2", "Staircase": "l1", "Snapping": "l1",
          "Uniform": "l1", "Exponential": "linf", "PermuteAndFlip": "linf"}  # fmt: skip


def _diffprivlib(_: Any) -> None:
    mechanisms = module("diffprivlib.mechanisms")
    for name, cls in vars(mechanisms).items():
        if inspect.isclass(cls) and "randomise" in vars(cls):
            wrap(cls, "randomise", _randomise)
            del name
    accountant = module("diffprivlib.accountant")
    if accountant is not None:
        wrap(accountant.BudgetAccountant, "spend", _spend)


def _randomise(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    mech, values = args[0], [base(a) for a in args[1:]] + [base(v) for v in kwargs.values()]
    kind = type(mech).__name__
    known = {
        k.lstrip("_"): v
        for k, v in vars(mech).items()
        if isinstance(v, (int, float, str, bool, list))
    }
    sensitivity = getattr(mech, "sensitivity", None)
    given: Any = values[0] if values else known.pop("utility", known.pop("_utility", None))
    norm = next((n for k, n in _NORMS.items() if kind.startswith(k)), "l2")
    stated = {"epsilon": float(mech.epsilon), "delta": float(mech.delta)}
    if isinstance(sensitivity, (int, float)):
        stated |= {"sensitivity": float(sensitivity), "norm": norm}  # type: ignore[dict-item]
    known.pop("utility", None)
    return mechanism(
        tape,
        f"diffprivlib.{kind}",
        quietly(original, (mech, *values), {}),
        given="a function" if callable(given) else given,
        scale={k: known[k] for k in sorted(known)},
        stated=stated,
        keep=not callable(given),
    )


def _spend(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    booked = dict(zip(("epsilon", "delta"), args[1:], strict=False)) | kwargs
    tape.booked.append((float(booked.get("epsilon", 0)), float(booked.get("delta", 0))))
    return original(*args, **kwargs)


# -- OpenDP ------------------------------------------------------------------------------------


def _opendp(_: Any) -> None:
    mod, combinators = module("opendp.mod"), module("opendp.combinators")
    original = combinators.make_chain_mt

    def make_chain_mt(measurement: Any, transformation: Any) -> Any:
        made = original(measurement, transformation)
        made._dpaudit_parts = (measurement, transformation)
        return made

    place_hook(combinators, "make_chain_mt", make_chain_mt)
    for name in ("__call__", "invoke"):
        wrap(mod.Measurement, name, _measure)
    wrap(mod.Queryable, "__call__", _query)


def _measure(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    whole, given = args[0], base(args[1] if len(args) > 1 else kwargs["arg"])
    measurement, value, stated = whole, given, {}
    while hasattr(measurement, "_dpaudit_parts"):
        measurement, transformation = measurement._dpaudit_parts
        try:
            value = transformation(value)
            stated = _stability(whole, transformation, measurement)
        except Exception:  # noqa: BLE001 the measurement raises it again, where the user sees it
            measurement, value, stated = whole, given, {}
            break
    metric = str(measurement.input_metric)
    scale = str(whole) if "Function" not in str(whole) else str(measurement.output_measure)

    def loss(first: Any, second: Any) -> float:
        return _opendp_loss(measurement, metric, first, second)

    return mechanism(
        tape, "opendp.Measurement", quietly(original, (whole, given), {}), given=value,
        scale=scale, stated=stated, loss=loss,
    )  # fmt: skip


def _stability(whole: Any, transformation: Any, measurement: Any) -> dict[str, Any]:
    """The sensitivity that the library states for one record more or less."""
    norms = {
        "AbsoluteDistance": "l1",
        "L1Distance": "l1",
        "L2Distance": "l2",
        "LInfDistance": "linf",
    }
    metric = str(measurement.input_metric)
    norm = next((n for m, n in norms.items() if metric.startswith(m)), None)
    if norm is None or not str(whole.input_metric).startswith(
        ("Symmetric", "InsertDelete", "ChangeOne", "Hamming")
    ):
        return {}
    own = str(transformation.input_metric)
    if own != str(whole.input_metric):
        return {}
    return {"sensitivity": float(transformation.map(1)), "norm": norm}


def _opendp_loss(measurement: Any, metric: str, first: Any, second: Any) -> float:
    """What the measurement's map says for the distance of two inputs; ∞ where it is not known."""
    far = distance(first, second)
    if metric.startswith(("AbsoluteDistance", "L1Distance")):
        d_in: Any = far["l1"]
    elif metric.startswith("L2Distance"):
        d_in = far["l2"]
    elif metric.startswith("LInf"):
        d_in = far["linf"]
    elif isinstance(first, list) and isinstance(second, list):
        a, b = Counter(map(repr, first)), Counter(map(repr, second))
        d_in = sum(((a - b) + (b - a)).values())
    else:
        d_in = 1
    for kind in (float, int):
        try:
            d_out = measurement.map(kind(d_in))
            return float(d_out if not isinstance(d_out, tuple) else d_out[0])
        except Exception:  # noqa: BLE001, S112 another type, or a map that has no bound here
            continue
    return float("inf")


def _query(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    name = type(args[1]).__name__ if len(args) > 1 else ""
    if name != "Measurement":
        return original(*args, **kwargs)
    tape.notes["opendp Queryable"] = (
        "OpenDP's compositor keeps the data in native code: measurements are replayed, and what "
        "they measure is not seen"
    )
    return mechanism(
        tape, "opendp.Queryable", quietly(original, args, kwargs), given=None, scale=str(args[1])
    )


# -- Opacus ------------------------------------------------------------------------------------


def _opacus(_: Any) -> None:
    optimizers = module("opacus.optimizers")
    for cls in {c for c in vars(optimizers).values() if inspect.isclass(c)}:
        if "add_noise" in vars(cls):
            wrap(cls, "add_noise", _add_noise)


def _add_noise(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """The noise of one step: clipped and summed gradients go in, ``p.grad`` comes out."""
    optimizer = args[0]
    params = [p for p in optimizer.params if p.summed_grad is not None]
    norm = optimizer.max_grad_norm
    bound = (
        float(norm) if isinstance(norm, (int, float)) else float(np.sqrt(sum(n * n for n in norm)))
    )
    given = np.concatenate([base(p.summed_grad).detach().double().numpy().ravel() for p in params])

    def make() -> Any:
        quietly(original, args, kwargs)()
        return [base(p.grad).detach().clone() for p in params]

    grads = mechanism(
        tape, f"opacus.{type(optimizer).__name__}", make, given=given, law="normal",
        scale=float(optimizer.noise_multiplier) * bound, shape=tuple(given.shape),
        stated={"sensitivity": bound, "norm": "l2"},
    )  # fmt: skip
    for p, grad in zip(params, grads, strict=True):
        p.grad = grad.to(p.dtype).view_as(p)
        p.summed_grad._processed = True


# -- others ------------------------------------------------------------------------------------


def _smartnoise(_: Any) -> None:
    for name in ("laplace", "gaussian", "geometric", "base", "normal"):
        source = module(f"snsql.sql._mechanisms.{name}")
        for cls in vars(source).values() if source is not None else ():
            if inspect.isclass(cls) and "release" in vars(cls):
                wrap(cls, "release", _release)


def _release(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    mech, values = args[0], list(args[1] if len(args) > 1 else kwargs["vals"])
    stated = {"epsilon": float(mech.epsilon), "delta": float(mech.delta or 0)}
    if mech.sensitivity is not None:
        stated |= {"sensitivity": float(mech.sensitivity * (mech.max_contrib or 1)), "norm": "l1"}  # type: ignore[dict-item]
    return mechanism(
        tape, f"snsql.{type(mech).__name__}", quietly(original, args, kwargs), given=values,
        shape=(len(values),), scale=getattr(mech, "scale", None), stated=stated,
    )  # fmt: skip


def _pydp(_: Any) -> None:
    native = module("_pydp") or module("pydp._pydp")
    algorithms = getattr(native, "_algorithms", native)
    for cls in vars(algorithms).values():
        if (inspect.isclass(cls) and hasattr(cls, "quick_result")) or hasattr(cls, "add_entries"):
            for name in ("quick_result", "result", "partial_result"):
                if name in vars(cls):
                    wrap(cls, name, _bounded)
    mechanisms = getattr(native, "_mechanisms", None)
    for cls in vars(mechanisms).values() if mechanisms is not None else ():
        if inspect.isclass(cls) and hasattr(cls, "add_noise"):
            wrap(cls, "add_noise", _numerical)


def _bounded(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    epsilon = getattr(args[0], "epsilon", None)
    tape.notes["pydp"] = "PyDP aggregates in native code: what it adds noise to is not seen"
    return mechanism(
        tape, f"pydp.{type(args[0]).__name__}.{original.__name__}", quietly(original, args, kwargs),
        given=[base(a) for a in args[1:]],
        stated={"epsilon": float(epsilon)} if isinstance(epsilon, (int, float)) else {},
    )  # fmt: skip


def _numerical(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    mech, value = args[0], base(args[1])
    stated = {
        n: float(getattr(mech, n))
        for n in ("epsilon", "sensitivity")
        if isinstance(getattr(mech, n, None), (int, float))
    }
    law = "laplace" if "Laplace" in type(mech).__name__ else "normal"
    return mechanism(
        tape, f"pydp.{type(mech).__name__}", quietly(original, args, kwargs), given=value, law=law,
        scale=getattr(mech, "diversity", getattr(mech, "std", None)),
        stated={**stated, "norm": "l1"},
    )  # fmt: skip


def _jax(jax: Any) -> None:
    laws = {"normal": "normal", "laplace": "laplace", "uniform": "uniform", "gumbel": "gumbel",
            "bernoulli": "bernoulli", "randint": "integers", "permutation": "permutation",
            "choice": "choice", "exponential": "exponential", "cauchy": "cauchy"}  # fmt: skip
    for name, law in laws.items():
        wrap(jax.random, name, _jax_draw(f"jax.random.{name}", law))


def _jax_draw(name: str, law: str) -> Callable[..., Any]:
    def around(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
        jax = module("jax")
        key = args[0] if args else kwargs.get("key")
        traced = isinstance(key, jax.core.Tracer) or any(
            isinstance(a, jax.core.Tracer) for a in args
        )
        if traced:
            tape.notes["jax"] = f"{name} is compiled: its noise is the key's, and is not seen"
            return original(*args, **kwargs)
        with_plain = quietly(original, args, kwargs)
        data = np.asarray(jax.random.key_data(key) if hasattr(jax.random, "key_data") else key)
        used = tape.keys.setdefault((name, data.tobytes()), len(tape.now))
        shape = kwargs.get("shape", args[1] if len(args) > 1 else ())
        output, event = tape.call(
            name, lambda: np.asarray(with_plain()), law=law, shape=repr(shape)[:200], scale=1.0
        )
        if used != event["call"]:
            event["again"] = used
        return jax.numpy.asarray(output)

    return around


ROWS: dict[str, Callable[[Any], None]] = {
    "diffprivlib.mechanisms": _diffprivlib,
    "opendp.mod": _opendp,
    "opacus.optimizers": _opacus,
    "snsql.sql._mechanisms": _smartnoise,
    "pydp": _pydp,
    "jax": _jax,
}
"""For each module, what places the hooks in it."""
