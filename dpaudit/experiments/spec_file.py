"""What an experiment is: a TOML file with axes, and the cells they span.

::

    name = "demo"
    seed = 1
    epsilon = [0.125, 0.25]          # a list anywhere is an axis
    delta = 1e-10
    trials = 2000

    [host]                           # one host, or several as [[host]]
    name = "histogram"
    [key]                            # the attacker's key, for pancakes; sources of which only the
                                     # secret matters (seed-in-noise, norm-channel) need none
    beta = [1e-4, 1e-3]
    gamma = "2sqrtd"
    [[source]]                       # sources × mitigations × attacks; other keys are options
    name = "pancake"                 # a source's key = { gamma = 0.5, … } replaces parts of [key]
    [[mitigation]]
    name = "none"
    [[attack]]
    name = "likelihood-ratio"
    [[exclude]]                      # leave out combinations
    source = "gaussian"
    mitigation = "rotation"
    [audit]                          # also audit each source × mitigation as a closed sampler
    samples = 1_000_000

Other measurements than attacks (``measure = "precision"`` and so on, ``dpaudit list measures``) may
have axes of their own in ``[grid]``; those that audit samplers of their own (``zoo``,
``calibration``, ``power``, ``keyless``) have nothing else, and their ``[[exclude]]`` names values
of it. A value may be a table,
``arm = [{ name = "gaussian" }, { name = "pancake", mitigation = "rotation", label = "rotated" }]``:
in ids and results it stands as its label, without one as ``name:option=value,…``. Of some axes
(``clip`` of ``gradient-attack``, ``observations`` of ``pool-inference``) one cell has all values,
on the same draws; these stand with spaces between, ``4 8``. ``keys`` renews the attacker's key so
many times per cell. ``minutes`` is about how long it takes on two cores, for ``dpaudit list
experiments``; nothing else reads it. ``[published]`` names the values to compare with ours;
``[[column]]`` and ``[[figure]]`` say what the report shows (``dpaudit.render``, documents of kind
"measurements").
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpaudit import registry
from dpaudit.errors import SpecError, UnknownNameError, UsageError
from dpaudit.experiments.measure import AUDIT, check_grid, joined_axes, listed, measure_of
from dpaudit.experiments.published import published_value
from dpaudit.experiments.shipped import shipped_specs
from dpaudit.experiments.spec import Spec
from dpaudit.registry import nearest
from dpaudit.results.foreign import RefusedError, quoted, read_plain
from dpaudit.results.text import one_line

__all__ = ["load_spec", "spec_heads", "spec_names", "spec_of"]

_MOST_BYTES = 1 << 19
"""Per file; the longest built-in one has 6 kB."""
_STRINGS = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|"(?:[^"\\\n]|\\.)*"|'''
    r"""'''.*?'{3,5}|'[^'\n]*'|#[^\n]*""",
    re.DOTALL,
)
_LONG_KEY = re.compile(r"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){32}")
"""More dots than a key may have: tomllib takes 72 s and 4 GB for a key of 32,000."""
_SCALARS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "title": str,
    "story": str,
    "minutes": (int, float),
    "seed": (int, str),
    "epsilon": (int, float, list),
    "delta": (int, float),
    "calibration": str,
    "trials": int,
    "measure": str,
    "keys": int,
}
_TABLES: dict[str, type | tuple[type, ...]] = {
    "host": (dict, list),
    "key": dict,
    "audit": dict,
    "grid": dict,
    "published": dict,
}
_LISTS = ("source", "mitigation", "attack", "exclude", "column", "figure")
_MOST_TRIALS = 1_000_000_000
_MOST_KEYS = 1_000_000
_AUDIT = ("samples", "alpha", "time_limit")
_PLAIN_TABLES = (*_TABLES, *_LISTS)
_WIDEST = 1 << 63
_MOST_TABLES = 1000
_MOST_DEPTH = 16


def spec_names() -> list[str]:
    """Experiments that ship with dpaudit."""
    return list(shipped_specs())


def spec_heads() -> list[dict[str, Any]]:
    """Name, title and minutes on two cores of the experiments that ship with dpaudit.

    ``minutes`` is rough, from the runs in ``docs/studies/results``; None where nobody measured it.
    """
    raw = {name: _table_of(name) for name in spec_names()}
    return [
        {"name": name, "title": table.get("title", name), "minutes": table.get("minutes")}
        for name, table in raw.items()
    ]


def load_spec(name: str, *, trials: int | None = None, device: str = "cpu") -> Spec:
    """Read a built-in experiment by name, or a ``.toml`` file; ``trials`` replaces the file's.

    ``device`` is ``cpu``, or ``cuda`` for measures with ``Measure.on_devices``.

    Raises:
        UnknownNameError: no such experiment or plug-in, with the nearest match.
        SpecError: not a plain file of at most 512 KiB, not TOML in UTF-8, an unknown key, a wrong
            type, an empty or far too large grid; a device for another measure.
    """
    try:
        return _read_toml(name, trials, device)
    except UsageError as error:  # its words may be the file's
        raise type(error)(one_line(error)) from error


def spec_of(table: dict[str, Any], *, name: str) -> Spec:
    """The experiment of a table, as of a ``.toml`` file; ``name`` is for errors.

    Raises:
        SpecError, UnknownNameError: as :func:`load_spec`.
    """
    spec = _check_spec(table, name)
    spec.check()
    return spec


def _read_toml(name: str, trials: int | None, device: str) -> Spec:
    try:
        raw = _table_of(name)
        if trials is not None:
            raw["trials"] = trials
        _check_plain(raw)
    except RefusedError as error:
        raise SpecError(
            f"spec={name}: {error}; dpaudit list experiments shows the built-in ones"
        ) from error
    spec = replace(_check_spec(raw, name), device=device)
    if device != "cpu" and not measure_of(spec.measure).on_devices:
        raise SpecError(
            f"device={device}: experiment {spec.name} works on the CPU; leave --device out"
        )
    spec.check()
    return spec


def _table_of(name: str) -> dict[str, Any]:
    """A spec's TOML as a table."""
    if name.endswith(".toml"):
        data = read_plain(name, limit=_MOST_BYTES)
    elif name in shipped_specs():
        data = shipped_specs()[name].read_bytes()
    else:
        raise UnknownNameError(f"experiment={name}: not known{nearest(name, spec_names())}")
    try:
        text = data.decode()
        if _LONG_KEY.search(_STRINGS.sub("s", text)):
            raise RefusedError("a key has more than 32 dots")
        return tomllib.loads(text)
    except RecursionError as error:
        raise RefusedError("nested too deep") from error
    except ValueError as error:  # TOMLDecodeError, no UTF-8, thousands of digits
        raise RefusedError(f"not TOML: {error}") from error


def _check_spec(raw: dict[str, Any], where: str) -> Spec:
    """The experiment of a table; an error about it begins with ``spec=``."""
    try:
        return _build_spec(raw)
    except SpecError as error:
        raise SpecError(f"spec={where}: {error}") from error


def _build_spec(raw: dict[str, Any]) -> Spec:
    known = {**_SCALARS, **_TABLES, **dict.fromkeys(_LISTS, list)}
    for key, value in raw.items():
        if key not in known:
            raise SpecError(f"{key!r} is not known{nearest(key, known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool) != (known[key] is bool):
            raise SpecError(
                f"{key}={quoted(value)} has the wrong type; it must be {_kinds_of(known[key])}"
            )
    named = raw.get("measure", "attack")
    known_measures = registry.plugins("measures").keys() - {AUDIT}
    if named not in known_measures:
        raise SpecError(f"measure={named!r} is not known{nearest(named, known_measures)}")
    measure = measure_of(named)
    if not measure.needs_arm:
        raw = {"epsilon": 1.0, "delta": 0.0, "host": {"name": "histogram"}, "source": [], **raw}
        needed: tuple[str, ...] = ("name", "grid")
    else:
        attack = ("attack",) if named == "attack" else ()
        needed = ("name", "epsilon", "delta", "host", "source", *attack)
    for key in needed:
        if key not in raw:
            raise SpecError(f"{key!r} is missing")
    _check_values(raw)
    grid = raw.get("grid", {})
    if measure.grid is not None:
        check_grid(grid, measure.grid)
    mitigations = raw.get("mitigation", [{"name": "none"}])
    if measure.needs_arm:
        _check_exclusions(raw, mitigations)
    return Spec(
        name=raw["name"],
        title=raw.get("title", raw["name"]),
        story=raw.get("story", ""),
        seed=str(raw.get("seed", 0)),
        epsilon=tuple(map(float, listed(raw["epsilon"]))),
        delta=float(raw["delta"]),
        calibration=raw.get("calibration", "exact"),
        trials=raw.get("trials", 1000),
        hosts=tuple(_plugin("hosts", t) for t in listed(raw["host"])),
        key=raw.get("key", {}),
        sources=tuple(_plugin("sources", t) for t in raw["source"]),
        mitigations=tuple(_plugin("mitigations", t) for t in mitigations),
        attacks=tuple(_plugin("attacks", t) for t in raw.get("attack", ())),
        exclude=tuple(raw.get("exclude", ())),
        audit=raw.get("audit", {}),
        measure=named,
        keys=raw.get("keys", 1),
        grid=grid,
        published=raw.get("published", {}),
        columns=tuple(raw.get("column", ())),
        figures=tuple(raw.get("figure", ())),
        joined=tuple(sorted(joined_axes(measure.grid) & grid.keys())),
    )


def _kinds_of(types: type | tuple[type, ...]) -> str:
    """What a value may be, in TOML's words."""
    each = types if isinstance(types, tuple) else (types,)
    if float in each:  # whole numbers too
        each = tuple(kind for kind in each if kind is not int)
    return " or ".join(_KINDS[kind] for kind in each)


_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _check_exclusions(raw: Mapping[str, Any], mitigations: list[Any]) -> None:
    parts = {
        "host": listed(raw["host"]),
        "source": raw["source"],
        "mitigation": mitigations,
        "attack": raw.get("attack", []),
    }
    names: dict[str, set[str]] = {}
    for kind, tables in parts.items():
        known = [t for t in tables if isinstance(t, dict)]
        names[kind] = {str(t[k]) for t in known for k in ("name", "label") if k in t}
    for exclusion in raw.get("exclude", ()):
        for kind, value in exclusion.items():
            if kind not in parts:
                raise SpecError(f"[[exclude]] {kind!r} is not known{nearest(kind, parts)}")
            for name in listed(value):
                if str(name) not in names[kind]:
                    raise SpecError(
                        f"[[exclude]] {kind}={quoted(name)} is not in this spec"
                        f"{nearest(str(name), names[kind])}"
                    )


def _plugin(kind: str, table: Any) -> Mapping[str, Any]:
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise SpecError(f"each {kind.removesuffix('s')} is a table with a name")
    registry.plugin(kind, table["name"])
    if kind == "hosts":
        return table
    return {"label": table["name"], **table}


def _check_plain(raw: Mapping[str, Any]) -> None:
    """Check all values of a file before any of them has a meaning.

    Raises:
        RefusedError: a whole number beyond 64 bits, tables nested more than 16 deep, or a list of
            more than 1000 tables.
    """
    level: list[Any] = [raw]
    for _ in range(_MOST_DEPTH):
        inner = [v for c in level for v in (c.values() if isinstance(c, dict) else c)]
        wide = next((v for v in inner if isinstance(v, int) and not -_WIDEST <= v < _WIDEST), None)
        if wide is not None:
            raise RefusedError(f"the number {quoted(wide)} must be within 64 bits")
        level = [v for v in inner if isinstance(v, (dict, list))]
        long = next(
            (v for v in level if len(v) > _MOST_TABLES and any(isinstance(t, dict) for t in v)),
            None,
        )
        if long is not None:
            raise RefusedError(f"a list has {len(long)} tables, at most {_MOST_TABLES}")
        if not level:
            return
    raise RefusedError(f"nested deeper than {_MOST_DEPTH}")


def _check_values(raw: Mapping[str, Any]) -> None:
    """Check all values of a spec whose keys and types are right.

    Raises:
        SpecError: with the key, its value and the rule.
    """
    if not raw.get("name"):
        raise SpecError("name='' must say what the experiment is called")
    for key, most in (("trials", _MOST_TRIALS), ("keys", _MOST_KEYS)):
        value = raw.get(key, 1)
        if not 1 <= value <= most:
            raise SpecError(f"{key}={value} must be at least 1 and at most {most:,}")
    for value in listed(raw["epsilon"]):
        if not _is_number(value) or not (value > 0 and math.isfinite(value)):
            raise SpecError(f"epsilon={quoted(value)} must be a finite number > 0")
    if not 0 <= raw["delta"] < 1:
        raise SpecError(f"delta={raw['delta']!r} must be a number ≥ 0 and < 1")
    if (calibration := raw.get("calibration", "exact")) not in ("exact", "paper"):
        raise SpecError(f"calibration={calibration!r} must be 'exact' or 'paper'")
    if raw.get("measure", "attack") == "attack" and not raw.get("attack"):
        raise SpecError("attack=[] is an empty list; name at least one [[attack]]")
    for name in _PLAIN_TABLES:
        tables = raw.get(name, [])
        for table in listed(tables):
            if not isinstance(table, Mapping):
                raise SpecError(f"{name}={quoted(table)} must be a table")
            _check_scalars(table, name)
    for name in ("host", "source", "mitigation", "attack"):
        for table in listed(raw.get(name, [])):
            if not isinstance(table.get("label", ""), str):
                raise SpecError(f"{name} label={quoted(table['label'])} must be text")
    _check_audit(raw.get("audit", {}))
    _check_published(raw.get("published", {}), raw.get("column", ()))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_scalars(value: Any, name: str) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_scalars(inner, f"{name} {key}")
    elif isinstance(value, list):
        for inner in value:
            _check_scalars(inner, name)
    elif not isinstance(value, (str, int, float)):
        raise SpecError(
            f"{name}={value} must be text, a number, true or false; put dates in quotes"
        )
    elif value != value:
        raise SpecError(f"{name}=nan is not a number")


def _check_audit(audit: Mapping[str, Any]) -> None:
    for key, value in audit.items():
        if key not in _AUDIT:
            raise SpecError(f"[audit] {key!r} is not known{nearest(key, _AUDIT)}")
        low, high = (0, 1) if key == "alpha" else (0, math.inf)
        if not _is_number(value) or not low < value < high:
            rule = "between 0 and 1" if key == "alpha" else "finite and above 0"
            raise SpecError(f"[audit] {key}={quoted(value)} must be a number {rule}")


def _check_published(published: Mapping[str, Any], columns: Any) -> None:
    if not published:
        return
    for key, kind in (("file", (str, list)), ("on", dict), ("ours", str)):
        if not isinstance(published.get(key), kind):
            raise SpecError(
                f"[published] {key}={quoted(published.get(key))} must be given; "
                "see dpaudit/experiments/published.py"
            )
    if published["ours"] not in [column.get("key") for column in columns]:
        raise SpecError(
            f"[published] ours={quoted(published['ours'])} must be the key of a [[column]]"
        )
    names = listed(published["file"])
    if not all(isinstance(name, str) and re.fullmatch(r"[\w-]+", name) for name in names):
        raise SpecError(
            f"[published] file={quoted(published['file'])} must be names as in "
            "studies/dpaudit_studies/published"
        )
    try:
        published_value(published, {})
    except SpecError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SpecError(
            f"[published] cannot be read ({error}); see dpaudit/experiments/published.py"
        ) from error
