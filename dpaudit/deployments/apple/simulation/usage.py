"""What a made-up owner does: which keys are used, how often, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from dpaudit.deployments.apple.model import ResolvedKey
from dpaudit.interfaces import Stream

__all__ = ["draw_usage"]

_USED = 4
"""Keys of one kind of properties that are used, on average: an owner types in a few languages of many."""
_WAKING = (7, 23)


def draw_usage(
    keys: Iterable[ResolvedKey], *, start: datetime, days: int, stream: Stream
) -> list[tuple[datetime, str]]:
    """When a datum of which key arises in ``days`` days after ``start``, in the order of time.

    Of the keys that share their properties about four are used, at least one, each with a rate of its own, log-normal
    around two a day; data come from 7 to 23 o'clock UTC. All of it is made up, and drawn from ``stream``.
    """
    generator = stream.child("usage").numpy()
    kinds: dict[str, list[str]] = defaultdict(list)
    for resolved in keys:
        kinds[resolved.properties.name].append(resolved.key.name)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    end = start + timedelta(days=days)
    events = []
    for names in kinds.values():
        used = generator.random(len(names)) < _USED / len(names)
        used[generator.integers(len(names))] = True
        rates = generator.lognormal(0.7, 0.7, len(names))
        for name, rate in ((n, r) for n, r, u in zip(names, rates.tolist(), used.tolist(), strict=True) if u):
            for day, count in enumerate(generator.poisson(rate, days + 1).tolist()):
                for hours in sorted(generator.uniform(*_WAKING, count).tolist()):
                    when = midnight + timedelta(days=day, hours=hours)
                    if start <= when < end:
                        events.append((when, name))
    return sorted(events)
