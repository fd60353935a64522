"""One refusal harness for all protocols: a wrong frame is refused and changes nothing.

It also releases nothing. A protocol's test gives :class:`Step`: a party just before frames that an
honest run would deliver to it. :func:`spoilt` drops, repeats, swaps, replays, cuts, stretches,
flips, retypes or replaces one of them; :func:`refused` delivers the result and looks at everything
that must hold then. ``spoils`` is the strategy over what to do.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hostile.fuzzing import ODD, mutated, with_odd_fields, within
from hypothesis import strategies as st

from dpaudit.errors import CheatingError, MessageError, ProtocolError

__all__ = ["SPOILS", "Step", "never", "refused", "snapshot", "spoils", "spoilt", "view"]

SPOILS = (
    "drop", "repeat", "swap", "replay", "foreign", "cut", "stretch", "flip", "flip", "retype",
    "retype", "garbage",
)  # fmt: skip
WORDS = [
    b"\0", b"\xff", b"[" * 40, b'{"kind":' * 40, b'"kind"', b"null", b"[", b'"', b"1e999",
    b"\\u0000",
]  # fmt: skip
ODDER = (
    *(o for o in ODD if not isinstance(o, bytes)),
    *(base64.b64encode(bytes(size)).decode() for size in (1, 32, 33, 64, 82)),
    "", "a", "zz", ["a"], float("inf"), [None] * 2000,
)  # fmt: skip


def never(_: bytes) -> bool:
    """No changed frame is taken."""
    return False


@dataclass(frozen=True)
class Step:
    """``party`` takes ``frames`` next; ``deliver(party, frames)`` gives them to it.

    ``own`` and ``foreign`` are further frames of this and of another session. ``ends(party)``:
    after a refusal the party takes nothing more, and this holds of it (its secrets are gone, say);
    without it the party is as it was. ``late``: whether another frame may be taken here, because
    what is wrong with it is noticed later. ``state`` is what must not change; ``secrets`` must not
    be in an error. ``copies``: a copy of the party is used each time.
    """

    name: str
    party: Any = field(repr=False)
    deliver: Callable[[Any, Sequence[bytes]], Any] = field(repr=False)
    frames: Sequence[bytes] = field(repr=False)
    own: Sequence[bytes] = field(repr=False)
    foreign: Sequence[bytes] = field(repr=False)
    ends: Callable[[Any], bool] | None = field(repr=False, default=None)
    late: Callable[[bytes], bool] = field(repr=False, default=never)
    form: str = "json"
    secrets: Sequence[bytes] = field(repr=False, default=())
    state: Callable[[Any], Any] = field(repr=False, default_factory=lambda: view)
    copies: bool = True


def spoils() -> st.SearchStrategy[tuple[str, random.Random]]:
    """What to do, and the choices in it."""
    return st.tuples(st.sampled_from(SPOILS), st.builds(random.Random, st.integers(0, 2**48)))


def spoilt(what: str, rng: random.Random, step: Step) -> list[bytes]:
    """The frames of ``step`` with one thing wrong; unchanged where it has no such thing."""
    frames = list(step.frames)
    at = rng.randrange(len(frames))
    frame = frames[at]
    if len(frames) > 1 and what in ("drop", "repeat", "swap"):
        other = rng.randrange(len(frames))
        {
            "drop": lambda: frames.pop(at),
            "repeat": lambda: frames.insert(other, frame),
            "swap": lambda: frames.__setitem__(slice(None), _swapped(frames, at, other)),
        }[what]()
        return frames
    size = rng.choice((1, 2, len(frame) // 2, rng.randrange(1, len(frame))))
    odd = {
        "drop": lambda: b"",
        "repeat": lambda: frame * 2,
        "replay": lambda: rng.choice([f for f in step.own if f != frame] or [b""]),
        "foreign": lambda: rng.choice(step.foreign),
        "cut": lambda: frame[:-size] if rng.randrange(3) else frame[size:],
        "stretch": lambda: frame + rng.choice((b"\0", b" ", b"\n", b"x" * 9, bytes((4 << 20) + 1))),
        "flip": lambda: mutated(rng, frame, others=[*step.own, *step.foreign], words=WORDS),
        "retype": lambda: _retyped(rng, frame, step.form),
        "garbage": lambda: rng.choice(
            (rng.randbytes(rng.randrange(300)), *(w * 1000 for w in WORDS))
        ),
    }
    frames[at] = odd.get(what, lambda: frame)()
    return frames


def refused(step: Step, frames: Sequence[bytes]) -> bool:
    """Deliver ``frames``; whether they were refused. False: a step that may take them did."""
    party = snapshot(step.party) if step.copies else step.party
    before, error = step.state(party), None
    try:
        with within(sum(map(len, frames))):
            step.deliver(party, frames)
    except ProtocolError as raised:
        error = raised
    if error is None:
        assert step.late(frames[0]), f"{step.name} took {[f[:200] for f in frames]}"
        return False
    text = str(error)
    known = isinstance(error, MessageError | CheatingError) or "below the threshold" in text
    assert known, repr(error)
    assert text.isprintable(), text
    assert 0 < len(text) < 400, text
    for secret in step.secrets:
        assert repr(secret)[2:-1] not in text, text
        assert secret.hex() not in text, text
    if step.ends is not None:
        assert step.ends(party), f"{step.name}: holds on to what it must let go of"
        try:
            step.deliver(party, step.frames)
        except ProtocolError:
            return True
        raise AssertionError(f"{step.name}: answered after a refusal")
    assert step.state(party) == before, f"{step.name}: changed by what it refused: {text}"
    if step.copies:
        step.deliver(party, step.frames)
    return True


def snapshot(value: Any) -> Any:
    """A copy of a party: its own objects, containers and arrays anew, keys and streams shared."""
    if _own(value) and not _frozen(value):
        made = object.__new__(type(value))
        made.__dict__ = {name: snapshot(part) for name, part in vars(value).items()}
        return made
    if isinstance(value, dict):
        return {key: snapshot(part) for key, part in value.items()}
    if isinstance(value, list | set | np.ndarray):
        return value.copy()
    return value


def view(value: Any) -> Any:
    """Everything that a party holds, to be compared."""
    if _own(value):
        return {name: view(part) for name, part in vars(value).items()}
    if isinstance(value, dict):
        return {key: view(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [view(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def _own(value: Any) -> bool:
    ours = type(value).__module__.startswith("dpaudit_mitigations") and hasattr(value, "__dict__")
    return ours and not isinstance(value, str | bytes | int | float)


def _frozen(value: Any) -> bool:
    return getattr(getattr(value, "__dataclass_params__", None), "frozen", False)


def _swapped(frames: list[bytes], at: int, other: int) -> list[bytes]:
    frames[at], frames[other] = frames[other], frames[at]
    return frames


def _retyped(rng: random.Random, frame: bytes, form: str) -> bytes:
    """Half of them still canonical: a field of another type, size, order or place."""
    try:
        if form == "json":
            document = json.loads(frame)
            document = document if rng.randrange(4) else _reordered(rng, document)
            odd_one = _kind_first(with_odd_fields(rng, document, odd=ODDER))
            return json.dumps(odd_one, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError, OverflowError):
        pass
    return mutated(rng, frame, words=WORDS)


def _reordered(rng: random.Random, document: Any) -> Any:
    """A list in another order, with one item twice or one less."""
    places = [key for key, value in document.items() if isinstance(value, list) and value]
    if places:
        key = rng.choice(places)
        items = list(document[key])
        rng.choice(
            (
                items.reverse,
                lambda: items.append(items[0]),
                lambda: items.insert(0, items[0]),
                items.pop,
            )
        )()
        document = {**document, key: items}
    return document


def _kind_first(value: Any, *, top: bool = True) -> Any:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (not (top and name == "kind"), str(name)))
        return {name: _kind_first(value[name], top=False) for name in names}
    return [_kind_first(item, top=False) for item in value] if isinstance(value, list) else value
