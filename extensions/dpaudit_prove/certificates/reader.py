"""Reads a foreign certificate before `checker.py` does: checks its size, depth and shape.

The checker alone may raise any exception on a file that is not a certificate. After
:func:`read_certificate` every field has its type, every number that points at something points at
it, and every text that is a number is a plain fraction: the checker accepts, or raises `Wrong`.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Collection, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from dpaudit.results.foreign import MOST_DEPTH, RefusedError, check_depth, open_plain, quoted
from dpaudit_prove.certificates.certificate import FORMAT

__all__ = ["Certificate", "read_certificate"]

_FREE_BYTES, _MOST_RATIO, _MOST_BYTES = 4 << 20, 24, 1 << 29
"""Bytes that any file may unpack to, how often its own size, and never more. Certificates that
`dpaudit prove` wrote unpack to 5 to 11 times their size."""
_DENSE = 500_000  # values of a text; longer texts may have one more every 2 characters
_MOST_ARGUMENTS = 100_000
_LARGEST_EPSILON = 1000
_NUMBER = r"[0-9]{1,4300}(/0*[1-9][0-9]{0,4299})?"
_RATIONAL, _HEXADECIMAL = rf"^{_NUMBER}\Z", r"^[0-9a-f]{1,4300}\Z"
_EXPONENT, _DIGEST = rf"^({_NUMBER}|ln\({_NUMBER}\))\Z", r"^[0-9a-f]{64}\Z"
_DESCRIPTIONS = {
    _RATIONAL: "a number such as 2 or 1/3",
    _HEXADECIMAL: "a hexadecimal number",
    _EXPONENT: "a number such as 1/3 or ln(3)",
    _DIGEST: "64 hexadecimal digits",
}

Index = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Rational = Annotated[str, Meta(pattern=_RATIONAL)]
Hexadecimal = Annotated[str, Meta(pattern=_HEXADECIMAL)]
Exponent = Annotated[str, Meta(pattern=_EXPONENT)]
Digest = Annotated[str, Meta(pattern=_DIGEST)]
Output: TypeAlias = str | list[Any]


class _Register(Struct, array_like=True, forbid_unknown_fields=True, tag="register"):
    index: Index


class _New(Struct, array_like=True, forbid_unknown_fields=True, tag="new"):
    index: Index


class _Swapped(Struct, array_like=True, forbid_unknown_fields=True, tag="swap"):
    of: Origin
    size: Annotated[int, Meta(ge=1, le=1 << 16)]


class _Quotient(Struct, array_like=True, forbid_unknown_fields=True, tag="div"):
    of: Origin
    by: Count


class _Remainder(Struct, array_like=True, forbid_unknown_fields=True, tag="mod"):
    of: Origin
    by: Count


Origin: TypeAlias = _Register | _New | _Swapped | _Quotient | _Remainder
"""Which coin a register is, or which part of one."""


class _Branch(Struct, array_like=True, forbid_unknown_fields=True):
    requests: list[Count]
    registers: list[Origin]
    to: int | None


class _State(Struct, forbid_unknown_fields=True):
    register: Index
    domains: list[tuple[Index, Index]]
    cuts: list[Index]
    via: tuple[Index, Index] | None
    onward: Index
    branches: list[_Branch]


class _Part(Struct, forbid_unknown_fields=True):
    args: list[Any]
    first: _Branch
    states: list[_State]
    outputs: list[Output]
    law: list[Rational]
    residual: Rational
    exact: bool
    visits: list[str]
    bits: list[Index] | None


class _Shows(Struct, forbid_unknown_fields=True):
    profile: list[tuple[Exponent, Rational, Rational]] | UnsetType = UNSET
    dependence: tuple[Rational, Rational] | UnsetType = UNSET


class Certificate(Struct, forbid_unknown_fields=True):
    """A certificate of `dpaudit prove`, as `certificate_of` makes it."""

    certificate: str
    program: str
    files: dict[str, Digest]
    kwargs: dict[str, Any]
    coins: str
    parts: Annotated[list[_Part], Meta(min_length=1)]
    returned: list[Index | Output] | None
    shows: _Shows


class _Version(Struct):
    certificate: str


def read_certificate(path: Path) -> Certificate:
    """The certificate at `path`: of a limited size and depth, every field of its type and range.

    Raises:
        RefusedError: it is not; the message names the field and the rule.
    """
    data = _unpack(path)
    if sum(data.count(c) for c in (b"[", b"{", b",", b":")) > _DENSE + len(data) // 2:
        raise RefusedError("more values than any certificate of its size")
    try:
        version = msgspec.json.decode(data, type=_Version).certificate
        if version != FORMAT:
            raise RefusedError(f"certificate={quoted(version)}: must be {FORMAT}")
        content = msgspec.json.decode(data, type=Certificate)
        _check(content)
    except RecursionError as error:
        raise RefusedError(f"nested deeper than {MOST_DEPTH}") from error
    except msgspec.ValidationError as error:
        raise RefusedError(_field_message(str(error))) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise RefusedError(f"not JSON ({error})") from error
    return content


def _unpack(path: Path) -> bytes:
    with open_plain(path) as file:
        most = min(_MOST_BYTES, _FREE_BYTES + _MOST_RATIO * os.fstat(file.fileno()).st_size)
        try:
            with gzip.open(file) as stream:
                data = stream.read(most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise RefusedError(f"not gzip ({error})") from error
    if len(data) > most:
        raise RefusedError(f"unpacks to more than {most:,} bytes")
    return data


def _field_message(message: str, where: str = "") -> str:
    """A message of msgspec's with the field in front, and without patterns."""
    rule, _, place = message.partition(" - at `$")
    place = f"{where}{place.rstrip('`')}".lstrip(".") or "all of it"
    for pattern, description in _DESCRIPTIONS.items():
        if rule.endswith(repr(pattern)):
            return f"{place}: must be {description}"
    return f"{place}: {rule[:1].lower()}{rule[1:]}"


def _check(certificate: Certificate) -> None:
    """Check what types cannot: lengths, and indices into other lists."""
    check_depth(
        [
            certificate.kwargs,
            certificate.returned or [],
            *(x for p in certificate.parts for x in _foreign_lists(p)),
        ]
    )
    count = _check_argument(certificate.kwargs.values(), "kwargs")
    _check_outputs([x for x in certificate.returned or [] if not isinstance(x, int)], "returned")
    if "/" in certificate.files or "/" in certificate.kwargs:
        raise RefusedError("files, kwargs: / is not a name")
    for number, part in enumerate(certificate.parts):
        where = f"parts[{number}]"
        count += _check_argument(part.args, f"{where}.args")
        _check_part(part, where)
    if count > _MOST_ARGUMENTS:
        raise RefusedError(f"args, kwargs: {count:,} values; at most {_MOST_ARGUMENTS:,}")
    _check_shows(certificate)


def _foreign_lists(part: _Part) -> Iterator[list[Any]]:
    yield part.args
    yield part.outputs


def _check_argument(values: Collection[Any], where: str) -> int:
    """Numbers, text, lists of them, and fractions as {"/": "1/3"}; returns how many."""
    count = len(values)
    for value in values:
        if isinstance(value, list):
            count += _check_argument(value, where)
        elif isinstance(value, dict):
            if [*value] != ["/"]:
                raise RefusedError(f'{where}: an object is written {{"/": "1/3"}}')
            text = value["/"]
            _check_type(text.removeprefix("-") if isinstance(text, str) else text, Rational, where)
    return count


def _check_outputs(values: Collection[Any], where: str) -> None:
    """Text, and lists of it."""
    for value in values:
        if isinstance(value, list):
            _check_outputs(value, where)
        elif not isinstance(value, str):
            raise RefusedError(f"{where}: expected text or lists of it, got {quoted(value)}")


def _check_part(part: _Part, where: str) -> None:
    count = len(part.states)
    _check_length(len(part.visits), count, f"{where}.visits", "states")
    _check_length(len(part.law), len(part.outputs), f"{where}.law", "outputs")
    if part.bits is not None:
        _check_length(len(part.bits), count + 1, f"{where}.bits", "states and the end")
    _check_outputs(part.outputs, f"{where}.outputs")
    numbers: Any = list[Rational] if part.exact else list[Hexadecimal]
    _check_type(part.visits, numbers, f"{where}.visits")
    _check_branch(part.first, part, 0, f"{where}.first")
    for number, state in enumerate(part.states):
        place = f"{where}.states[{number}]"
        _check_index(state.register, len(state.domains), f"{place}.register")
        _check_index(state.onward, len(state.branches), f"{place}.onward")
        _check_length(len(state.branches), len(state.cuts) + 1, f"{place}.branches", "intervals")
        for i, branch in enumerate(state.branches):
            _check_branch(branch, part, len(state.domains), f"{place}.branches[{i}]")
    _check_ways(part, where)


def _check_branch(branch: _Branch, part: _Part, registers: int, where: str) -> None:
    if branch.to is not None and not -len(part.outputs) <= branch.to < len(part.states):
        raise RefusedError(
            f"{where}.to={quoted(branch.to)}: must be a state from 0 to {len(part.states) - 1}, or "
            f"an output from -1 to -{len(part.outputs)}"
        )
    for origin in branch.registers:
        place = f"{where}.registers"
        for _ in range(MOST_DEPTH):
            if isinstance(origin, (_Register, _New)):
                break
            origin = origin.of
        else:
            raise RefusedError(f"{place}: nested deeper than {MOST_DEPTH}")
        many = registers if isinstance(origin, _Register) else len(branch.requests)
        _check_index(origin.index, many, place)


def _check_ways(part: _Part, where: str) -> None:
    """The branches that `via` names lead from the start to each state."""
    reached: set[int] = set()
    for number in range(len(part.states)):
        way, at = [], number
        while at not in reached:
            way.append(at)
            reached.add(at)
            via, place = part.states[at].via, f"{where}.states[{at}].via"
            if via is None:
                to = part.first.to
            else:
                _check_index(via[0], len(part.states), place)
                _check_index(via[1], len(part.states[via[0]].branches), place)
                to = part.states[via[0]].branches[via[1]].to
            if to != at:
                raise RefusedError(f"{place}: must name a branch to this state")
            if via is None:
                break
            at = via[0]
        else:
            if at in way:
                raise RefusedError(f"{where}.states[{at}].via: a cycle without a start")


def _check_shows(certificate: Certificate) -> None:
    shows = certificate.shows
    if shows.profile is not UNSET and len(certificate.parts) != 2:
        raise RefusedError(f"shows.profile: needs 2 parts; there are {len(certificate.parts)}")
    ends = [] if shows.dependence is UNSET else [*shows.dependence]
    for epsilon, low, high in shows.profile or ():
        ends += low, high
        if not epsilon.startswith("ln(") and Fraction(epsilon) > _LARGEST_EPSILON:
            raise RefusedError(f"shows.profile: ε={quoted(epsilon)}: at most {_LARGEST_EPSILON}")
    if any(Fraction(x) > 1 for x in ends):
        raise RefusedError("shows: a bound of a probability is above 1")
    if shows.dependence is not UNSET:
        sizes = {len(x) if isinstance(x, list) else -1 for x in certificate.parts[0].outputs}
        if len(sizes) > 1 or -1 in sizes:
            raise RefusedError("shows.dependence: needs outputs that are lists of one length")


def _check_type(value: Any, kind: Any, where: str) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RefusedError(_field_message(str(error), where)) from error


def _check_length(length: int, expected: int, where: str, of: str) -> None:
    if length != expected:
        raise RefusedError(f"{where}: has {length:,} values for {expected:,} {of}")


def _check_index(index: int, many: int, where: str) -> None:
    if index >= many:
        raise RefusedError(f"{where}={quoted(index)}: must be from 0 to {many - 1}")
