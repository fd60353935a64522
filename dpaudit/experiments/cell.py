"""One point of a grid: its name, and the key of its random streams."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpaudit.experiments.grid import G, read_grid, written

__all__ = ["Cell", "plugin_options"]

_LONG = 100


@dataclass(frozen=True)
class Cell:
    """One point of the grid; ``id`` is a hash of its settings and of nothing else."""

    kind: str
    settings: Mapping[str, Any]

    @property
    def written(self) -> dict[str, Any]:
        """The settings as in ids, stores and reports: every value in ``grid`` in one word."""
        if not self.settings.get("grid"):
            return dict(self.settings)
        return {
            **self.settings,
            "grid": {name: written(value) for name, value in self.settings["grid"].items()},
        }

    @property
    def id(self) -> str:
        text = json.dumps({"kind": self.kind, **self.written}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def label(self) -> str:
        """Which arm this is, for people."""
        settings = self.written
        if "source" not in settings:
            words = ", ".join(f"{k} {v}" for k, v in settings["grid"].items())
            return words if len(words) <= _LONG else f"{words[:_LONG]}…"
        arm = f"{settings['source']['label']} + {settings['mitigation']['label']}"
        what = settings["attack"]["label"] if "attack" in settings else self.kind
        tables = (settings[table].items() for table in ("key", "grid", "host"))
        axes = ", ".join(
            f"{k} {v}" for k, v in itertools.chain.from_iterable(tables) if k != "name"
        )
        return f"{arm}: {what}" + (
            f" ({axes})" if self.kind not in ("audit", "attack") or settings["grid"] else ""
        )

    def grid(self, of: type[G]) -> G:
        """``[grid]`` with a measure's types.

        Raises:
            SpecError: a value that the measure does not take.
        """
        return read_grid(self.settings["grid"], of)


def plugin_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """A plug-in's own options in its table of the spec."""
    return {
        k: v for k, v in table.items() if k not in ("name", "label") and not isinstance(v, Mapping)
    }
