"""The experiments topdown and topdown-attack, at a size of seconds."""

from __future__ import annotations

import pytest

from dpaudit.experiments.cell import Cell
from dpaudit.studies import topdown, topdown_attack

SMALL = {"table": "generated", "states": "10 44"}


def errors(epsilon, trials=3):
    grid = {"epsilon": epsilon, **SMALL}
    cell = Cell("topdown", {"grid": grid, "trials": trials, "seed": 1})
    return topdown.gather([{"epsilon": epsilon, **topdown.measure(cell, None)}])


def test_errors_of_all_levels_and_queries():
    rows = {(row["level"], row["query"]): row for row in errors(1.0)}
    assert len(rows) == 12
    assert rows["state", "total"]["tables"]["value"] == 0  # an invariant
    assert "measured" not in rows["state", "total"]
    group = rows["state", "age-group"]
    assert group["tables"]["value"] < group["summed"]["value"]
    assert group["tables"]["low"] < group["tables"]["value"] < group["tables"]["high"]
    county = rows["county", "detailed"]
    assert county["measured"]["value"] == county["summed"]["value"]
    assert county["scale"] == pytest.approx(22.01, abs=0.01)
    assert "times as exact" in topdown.summary(list(rows.values()))


def test_errors_grow_as_the_budget_shrinks():
    small, large = errors(17.14, trials=1), errors(0.5, trials=1)
    assert all(
        a["summed"]["value"] < b["summed"]["value"] for a, b in zip(small, large, strict=True)
    )


def asked(noise, view, epsilon=4.0, trials=6):
    grid = {"noise": noise, "view": view, "epsilon": epsilon, **SMALL}
    cell = Cell("topdown-attack", {"grid": grid, "trials": trials, "seed": 1})
    return topdown_attack.measure(cell, None)


def test_seeds_in_structural_zeros_are_read_from_measurements():
    row = asked({"name": "seed-in-noise"}, "measurements")
    assert row["which"]["value"] == row["count"]["value"] == row["read"]["value"] == 1
    assert row["named"]["value"] < 1


def test_they_are_gone_from_tables():
    row = asked({"name": "seed-in-noise"}, "tables", trials=3)
    assert row["read"]["value"] == 0


def test_honest_noise_is_not_read():
    row = asked({"name": "discrete-gaussian"}, "measurements", epsilon=1.0, trials=30)
    assert "read" not in row
    assert row["count"]["value"] < 0.3
    assert 0.2 < row["which"]["value"] < 0.9


def test_a_summary_compares_tables():
    rows = [
        {"view": "tables", "noise": name, "count": {"value": value}}
        for name, value in (("honest: a", 0.1), ("pancake", 0.75))
    ]
    assert "up to 75% of runs with a key; 10% to 10%" in topdown_attack.summary(rows)
    assert topdown_attack.summary([]) == ""
