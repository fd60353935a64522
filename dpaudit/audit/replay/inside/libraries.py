"""Mechanisms of libraries: one row for each, with what the library states of a call.

A row sees the input before noise and the library's own sensitivity, ε and δ. What happens inside
the mechanism is the primitive's and is not noted.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from .hooks import module, place_hook, quietly, wrap
from .primitives import seed_of
from .tape import Tape, current
from .values import UnknownValueError, base, distance, leaves, numbers, pack, unpack

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
    loss: Callable[[Any, Any], dict[str, Any]] | None = None,
    keep: bool = True,
    of_record: bool = False,
    seeded: str = "",
    divided: Any = None,
) -> Any:
    """One call of a library's mechanism on ``given``; ``loss`` gives its ε for two inputs.

    Where the recorded run has no such group of records, its input was 0. ``of_record``: what is
    stated is for one record more or less, so twice as much for one that is changed. ``divided`` is
    what the library divides the noised sum by, which may not follow the data.
    """
    given = _kept(given)
    try:
        output, event = tape.call(
            name, make, law=law, shape=shape, scale=scale, given=given, stated=stated, keep=keep,
            seeded=seeded,
        )  # fmt: skip
    finally:
        tape.now[-1] |= {"inside": True, "divided": divided}
    if "before" in event:
        then = unpack(event["before"]["given"])
    elif tape.groups and tape.replays and numbers(given) is not None:
        then = 0 * np.asarray(numbers(given))
    else:
        return output
    if of_record and tape.replaced:
        event["stated"] = {k: v if k == "norm" else 2 * v for k, v in event["stated"].items()}
    recorded = event.get("before", {}).get("divided")
    if divided != recorded and recorded is not None:
        tape.differ("scale", event, recorded, divided, path="batch size")
    tape.moves(event, then, given, **(loss(then, given) if loss is not None else {}))
    return output


def _kept(given: Any) -> Any:
    """An input as the tape can keep it: the digest of what it cannot."""
    try:
        return unpack(pack(given))
    except UnknownValueError:
        text = repr([(path, repr(base(v))) for path, v in leaves(given)])
        return f"data {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _each_class(where: Any, names: tuple[str, ...], around: Callable[..., Any]) -> None:
    """Hook these methods of the classes of a module that define them, each once."""
    for cls in {c for c in vars(where).values() if inspect.isclass(c)} if where else ():
        for name in set(names) & set(vars(cls)):
            wrap(cls, name, around)


# -- diffprivlib -------------------------------------------------------------------------------

_NORMS = {"Laplace": "l1", "Geometric": "l1", "Gaussian": "l2", "Staircase": "l1", "Snapping": "l1",
          "Uniform": "l1", "Exponential": "linf", "PermuteAndFlip": "linf"}  # fmt: skip


def _diffprivlib(_: Any) -> None:
    _each_class(module("diffprivlib.mechanisms"), ("randomise",), _randomise)
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
    if callable(given):  # its minimum is released: it follows the data and the noise together
        tape.select()
        tape.notes["diffprivlib.Vector"] = (
            "diffprivlib.Vector perturbs a function, whose minimum is not replayed: its ε is "
            "taken at its word"
        )
    return mechanism(
        tape,
        f"diffprivlib.{kind}",
        quietly(original, (mech, *values), {}),
        given="a function" if callable(given) else given,
        scale={k: known[k] for k in sorted(known)},
        stated=stated,
        keep=not callable(given),
        seeded=seed_of(getattr(mech, "_rng", None)),
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
    wrap(getattr(module("opendp.extras.polars"), "OnceFrame", None), "collect", _collect)


def _measure(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    whole, given = args[0], base(args[1] if len(args) > 1 else kwargs["arg"])
    return _measured(
        tape, "opendp.Measurement", whole, given, quietly(original, (whole, given), {})
    )


def _measured(tape: Tape, name: str, whole: Any, given: Any, make: Callable[[], Any]) -> Any:
    """A measurement of ``given``; of a chain, the input of its last part is what is noised.

    What answers queries later, a queryable, releases nothing yet: it keeps its data.
    """
    measurement, value, stated = whole, given, {}
    while hasattr(measurement, "_dpaudit_parts"):
        measurement, transformation = measurement._dpaudit_parts
        try:
            value = transformation(value)
            stated = _stability(whole, transformation, measurement)
        except Exception:  # noqa: BLE001 the measurement raises it again, where the user sees it
            measurement, value, stated = whole, given, {}
            break
    later: list[Any] = []

    def made() -> Any:
        output = make()
        if hasattr(output, "value" if hasattr(output, "query_type") else "queryable"):
            output._dpaudit_of = measurement, value
            later.append(output)
        return output

    def loss(first: Any, second: Any) -> dict[str, Any]:
        return {"loss": 0.0} if later else _opendp_loss(measurement, first, second)

    scale = [str(whole) if "Function" not in str(whole) else str(measurement.output_measure)]
    for far in (1, 1.0):
        with contextlib.suppress(Exception):  # a map that asks for another type of distance
            scale.append(str(measurement.map(far)))
    per_record = str(whole.input_metric).startswith(("Symmetric", "InsertDelete"))
    return mechanism(
        tape, name, made, given=_table(value), scale=scale, stated=stated, loss=loss,
        of_record=per_record,
    )  # fmt: skip


def _table(value: Any) -> Any:
    """The columns of a frame, or any other value."""
    value = value.collect() if hasattr(value, "collect") else value
    return value.to_dict(as_series=False) if hasattr(value, "to_dicts") else value


def _stability(whole: Any, transformation: Any, measurement: Any) -> dict[str, Any]:
    """The sensitivity that the library states for one record more or less."""
    norm = _norm(measurement)
    if norm is None or not str(whole.input_metric).startswith(
        ("Symmetric", "InsertDelete", "ChangeOne", "Hamming")
    ):
        return {}
    if str(transformation.input_metric) != str(whole.input_metric):
        return {}
    return {"sensitivity": float(transformation.map(1)), "norm": norm}


def _norm(measurement: Any) -> str | None:
    norms = {"AbsoluteDistance": "l1", "L1": "l1", "L2": "l2", "LInf": "linf"}
    metric = str(measurement.input_metric)
    return next((n for m, n in norms.items() if metric.startswith(m)), None)


def _opendp_loss(measurement: Any, first: Any, second: Any) -> dict[str, Any]:
    """What the measurement's map says for the distance of two inputs; ∞ where it is not known."""
    norm = _norm(measurement)
    if norm is not None:
        d_in: Any = distance(first, second)[norm]
    elif all(isinstance(side, (list, dict)) for side in (first, second)):
        sides = [
            zip(*v.values(), strict=True) if isinstance(v, dict) else v for v in (first, second)
        ]
        a, b = (Counter(map(repr, side)) for side in sides)
        d_in = sum(((a - b) + (b - a)).values())
    else:
        d_in = 1
    for kind in (float, int):
        try:
            d_out = measurement.map(kind(d_in))
            epsilon = float(d_out if not isinstance(d_out, tuple) else d_out[0])
        except Exception:  # noqa: BLE001, S112 another type, or a map that has no bound here
            continue
        if "ZeroConcentrated" in str(measurement.output_measure):  # as of Gaussian noise
            return {"law": "normal", "scale": 1.0, "l2": float(np.sqrt(2 * epsilon))}
        return {"loss": epsilon}
    return {"loss": float("inf")}


def _query(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    query = args[1] if len(args) > 1 else kwargs.get("query")
    if type(query).__name__ != "Measurement":
        return original(*args, **kwargs)
    _, data = getattr(args[0], "_dpaudit_of", (None, None))
    return _measured(tape, "opendp.Queryable", query, data, quietly(original, args, kwargs))


def _collect(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """A frame of noisy numbers, whose rows are in no order."""
    measurement, data = getattr(args[0], "_dpaudit_of", (None, None))
    frame, polars = quietly(original, args, kwargs), module("polars")

    def make() -> Any:
        made = frame()
        return made.to_dict(as_series=False), [str(kind) for kind in made.dtypes]

    def loss(first: Any, second: Any) -> dict[str, Any]:
        return _opendp_loss(measurement, first, second) if measurement is not None else {}

    columns, kinds = mechanism(
        tape, "opendp.OnceFrame", make, given=_table(data), scale=str(measurement), loss=loss
    )
    return polars.DataFrame(columns, schema=[
        (name, getattr(polars, kind, None)) for name, kind in zip(columns, kinds, strict=True)
    ])  # fmt: skip


# -- Opacus ------------------------------------------------------------------------------------


def _opacus(_: Any) -> None:
    _each_class(module("opacus.optimizers"), ("add_noise",), _add_noise)
    accountants = module("opacus.accountants")
    for cls in {c for c in vars(accountants).values() if inspect.isclass(c)}:
        wrap(cls, "get_epsilon", _get_epsilon)


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
        stated={"sensitivity": bound, "norm": "l2"}, of_record=True,
        divided=getattr(optimizer, "expected_batch_size", None),
    )  # fmt: skip
    for p, grad in zip(params, grads, strict=True):
        p.grad = grad.to(p.dtype).view_as(p)
        p.summed_grad._processed = True


def _get_epsilon(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """What an accountant says that was spent so far; its last word counts."""
    epsilon = original(*args, **kwargs)
    spent = float(epsilon), float(kwargs.get("delta", args[1] if len(args) > 1 else 0.0))
    place = tape.keys.setdefault(("accountant", id(args[0])), len(tape.booked))
    tape.booked[place : place + 1] = [spent]
    return epsilon


# -- others ------------------------------------------------------------------------------------


def _smartnoise(_: Any) -> None:
    for name in ("laplace", "gaussian"):
        _each_class(module(f"snsql.sql._mechanisms.{name}"), ("release",), _release)
    wrap(module("snsql.sql.odometer").OdometerHeterogeneous, "spend", _spend_sql)
    for name in ("base", "pandas", "sqlite"):
        _each_class(module(f"snsql.sql.reader.{name}"), ("_execute_ast",), _rows)


def _release(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    mech, values = args[0], list(args[1] if len(args) > 1 else kwargs["vals"])
    stated = {"epsilon": float(mech.epsilon), "delta": float(mech.delta or 0)}
    bound = max(abs(v) for v in (mech.lower, mech.upper))
    stated |= {"sensitivity": float(bound * (mech.max_contrib or 1)), "norm": "l1"}  # type: ignore[dict-item]
    return mechanism(
        tape, f"snsql.{type(mech).__name__}", quietly(original, args, kwargs), given=values,
        shape=(len(values),), scale=getattr(mech, "scale", None), stated=stated,
        of_record=True,
    )  # fmt: skip


def _rows(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """The exact answer to a query, whose rows are groups of records."""
    rows, query = original(*args, **kwargs), args[1] if len(args) > 1 else kwargs["query"]
    symbols = getattr(query, "_select_symbols", None) or ()
    columns = [i for i, s in enumerate(symbols) if type(s.expression).__name__ != "AggFunction"]
    if not columns or not isinstance(rows, list):
        return rows
    found = _Rows(rows)
    found.groups, found.key = tape.groups, lambda row: repr([row[i] for i in columns])
    return found


class _Rows(list[Any]):
    """Rows of which each, while it is looked at, is the group that mechanisms are called for."""

    groups: list[str]
    key: Callable[[Any], str]

    def __getitem__(self, place: Any) -> Any:
        part = super().__getitem__(place)
        if isinstance(place, slice):
            part = _Rows(part)
            part.groups, part.key = self.groups, self.key
        return part

    def __iter__(self) -> Any:
        for row in super().__iter__():
            self.groups.append(self.key(row))
            try:
                yield row
            finally:
                self.groups.pop()


def _spend_sql(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    privacy = args[1] if len(args) > 1 else kwargs.get("privacy") or args[0].privacy
    tape.booked.append((float(privacy.epsilon), float(privacy.delta or 0)))
    return original(*args, **kwargs)


def _pydp(pydp: Any) -> None:
    native = module("pydp._pydp")
    results = ("result", "partial_result", "compute_quantiles")
    _each_class(native._algorithms, results, _bounded)
    _each_class(native._algorithms, ("add_entry", "add_entries"), _entries)
    for cls in vars(native._mechanisms).values():
        if inspect.isclass(cls) and hasattr(cls, "add_noise"):
            wrap(cls, "add_noise", _numerical)
    for cls in vars(native._partition_selection).values():
        for name in ("should_keep", "noised_value_if_should_keep"):
            if inspect.isclass(cls) and hasattr(cls, name):
                wrap(cls, name, _kept_group)
    del pydp


_entered: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()


def _entries(_: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """Data for an algorithm that keeps it in native code."""
    values = [*args[1:], *kwargs.values()]
    _entered.setdefault(args[0], []).extend(base(v) for v in values)
    return original(*args, **kwargs)


def _bounded(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """An algorithm of its entries: a mechanism whose ε is for all of them."""
    given = [*_entered.pop(args[0], []), *map(base, args[1:])]
    known = {"epsilon": getattr(args[0], "epsilon", None), "delta": getattr(args[0], "delta", None)}
    known |= {k: v for k, v in kwargs.items() if k in known}
    stated = {k: float(v) for k, v in known.items() if isinstance(v, (int, float))}
    return mechanism(
        tape, f"pydp.{type(args[0]).__name__}.{original.__name__}", quietly(original, args, kwargs),
        given=given, stated=stated,
    )  # fmt: skip


def _numerical(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    mech, value = args[0], base(args[1])
    laplace = "Laplace" in type(mech).__name__
    width = mech.diversity if laplace else mech.std
    bound = getattr(mech, "sensitivity" if laplace else "l2_sensitivity", None)
    stated = {"sensitivity": float(bound)} if isinstance(bound, (int, float)) and bound else {}
    return mechanism(
        tape, f"pydp.{type(mech).__name__}", quietly(original, (mech, value), kwargs), given=value,
        law="laplace" if laplace else "normal", scale=width,
        stated={**stated, "norm": "l1" if laplace else "l2"}, of_record=True,
    )  # fmt: skip


def _kept_group(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """Whether a group of records is released, by their number; ε and δ are for one group."""
    strategy, groups = args[0], args[0].max_partitions_contributed
    tape.draws += 1
    tape.select()
    return mechanism(
        tape, f"pydp.{type(strategy).__name__}", quietly(original, args, kwargs),
        given=base(args[1]), law="bernoulli",
        stated={"epsilon": strategy.epsilon / groups, "delta": strategy.delta / groups},
    )  # fmt: skip


def _pipeline_dp(_: Any) -> None:
    backend = module("pipeline_dp.pipeline_backend").LocalBackend
    for name in ("map_values", "filter", "sample_fixed_per_key"):
        wrap(backend, name, _each_key)


def _each_key(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """What the local backend does with each key of a collection: a group's calls."""
    backend, rows, how, *rest = args

    def each_sampled() -> Any:
        for key, values in backend.group_by_key(rows):
            pairs = [(key, value) for value in values]
            sample = functools.partial(original, backend, pairs, how)
            yield from tape.for_group(key, lambda sample=sample: list(sample()))

    if original.__name__ == "sample_fixed_per_key":
        return type(backend.group_by_key(()))(each_sampled())
    if original.__name__ == "filter":
        return original(
            backend, rows, lambda row: tape.for_group(row[0], how, row), *rest, **kwargs
        )
    pairs = ((key, (key, value)) for key, value in rows)
    return original(backend, pairs, lambda p: tape.for_group(p[0], how, p[1]), *rest, **kwargs)


_TMLT = {"AddLaplaceNoise": "laplace", "AddGeometricNoise": "discrete-laplace",
         "AddGaussianNoise": "normal", "AddDiscreteGaussianNoise": "normal"}  # fmt: skip


def _tmlt(noise: Any) -> None:
    for name in _TMLT:
        wrap(getattr(noise, name, None), "__call__", _tmlt_noise)


def _tmlt_noise(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    one, value = args[0], base(args[1] if len(args) > 1 else kwargs["value"])
    law = _TMLT[type(one).__name__]
    width = next(getattr(one, n) for n in ("scale", "alpha", "sigma_squared") if hasattr(one, n))
    scale = width.to_float(round_up=False)
    return mechanism(
        tape, f"tmlt.core.{type(one).__name__}", quietly(original, (one, value), {}), given=value,
        law=law, scale=float(np.sqrt(scale)) if law == "normal" else scale,
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


def _jax_privacy(noise: Any) -> None:
    for name in ("gaussian_privatizer", "matrix_factorization_privatizer"):
        place_hook(noise, name, _privatizer(name, getattr(noise, name)))


def _jax_batches(batches: Any) -> None:
    wrap(batches.CyclicPoissonSampling, "batch_iterator", _batches)


def _batches(tape: Tape, original: Any, args: Any, kwargs: Any) -> Any:
    """Batches that each record is in or not by coins of its own, where there are no groups."""
    own, n = args[0], int(args[1] if len(args) > 1 else kwargs["num_examples"])
    drawn = quietly(lambda: list(original(*args, **kwargs)), (), {})()
    if own.cycle_length > 1 or own.truncated_batch_size is not None:
        return iter(drawn)

    def coins(batch: Any) -> Any:
        return np.isin(np.arange(n), batch)

    tape.select()
    return iter(
        [
            np.flatnonzero(
                tape.call("jax_privacy.batch", functools.partial(coins, batch), law="bernoulli",
                          shape=(n,))[0]
            )
            for batch in drawn
        ]
    )  # fmt: skip


def _privatizer(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A privatizer of gradients: noise is added to a tree of them in each step."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        privatizer, jax = original(*args, **kwargs), module("jax")
        scale = float(kwargs["stddev"]) if "stddev" in kwargs else None

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            tape, grads = current(), jax.tree.leaves(updates)
            if tape is None or any(isinstance(g, jax.core.Tracer) for g in grads):
                return privatizer.update(updates, state, params)
            noisy, state = quietly(privatizer.update, (updates, state, params), {})()
            found, tree = jax.tree.flatten(noisy)
            given = np.concatenate([np.asarray(g, dtype=np.float64).ravel() for g in grads])
            kept = mechanism(
                tape, f"jax_privacy.{name}", lambda: [np.asarray(leaf) for leaf in found],
                given=given, scale=scale, shape=tuple(given.shape), of_record=True,
                law="normal" if name.startswith("gaussian") else "correlated normal",
            )  # fmt: skip
            return tree.unflatten([jax.numpy.asarray(leaf) for leaf in kept]), state

        return privatizer._replace(update=update)

    return make


ROWS: dict[str, Callable[[Any], None]] = {
    "diffprivlib.mechanisms": _diffprivlib,
    "opendp.mod": _opendp,
    "opacus.optimizers": _opacus,
    "snsql.sql._mechanisms": _smartnoise,
    "pydp": _pydp,
    "pipeline_dp": _pipeline_dp,
    "tmlt.core.measurements.noise_mechanisms": _tmlt,
    "jax": _jax,
    "jax_privacy.noise_addition": _jax_privacy,
    "jax_privacy.batch_selection": _jax_batches,
}
"""For each module, what places the hooks in it."""
