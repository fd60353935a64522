"""Which cells are known to be zero: from constraints of other shapes, recodes, and tables."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit.deployments.census.model import Constraint, Measurement
from dpaudit.deployments.census.zeros import Known, Rule, read_rules
from dpaudit.errors import UsageError

AXES = ("hhgq", "votingage", "cenrace")


def measurement(*specs, shape, query="q", geocode="01"):
    return Measurement(
        geocode=geocode, query=query, specs=specs, shape=shape, variance=4.0,
        value=np.zeros(int(np.prod(shape)), dtype=np.int64),
    )  # fmt: skip


def constraint(*specs, shape, value, sign="=", geocode="01"):
    return Constraint(
        geocode=geocode, query="c", specs=specs, shape=shape, value=np.array(value), sign=sign
    )


NURSING = constraint("gqNursingTotal", "nonvoting", "*", shape=(1, 1, 1), value=[0])
DETAILED = measurement("detailed", "detailed", "detailed", shape=(8, 2, 3))


def zeros(row, *constraints, rules=(), level="County"):
    known = Known(tuple(rules))
    for one in constraints:
        known.add(AXES, one)
    return known.zeros(level, AXES, row).reshape(row.shape)


def test_nobody_below_18_in_nursing_facilities():
    found = zeros(DETAILED, NURSING)
    wanted = np.zeros((8, 2, 3), dtype=bool)
    wanted[3, 0] = True
    assert (found == wanted).all()
    assert not zeros(measurement("hhgq", "*", "*", shape=(8, 1, 1)), NURSING).any()
    assert not zeros(measurement("*", "*", "*", shape=(1, 1, 1)), NURSING).any()


def test_upper_bounds_of_zero_are_zeros_and_other_bounds_are_not():
    bounds = constraint(
        "hhgq", "*", "*", shape=(8, 1, 1), value=[9, 0, 5, 5, 5, 0, 0, 0], sign="<="
    )
    found = zeros(DETAILED, bounds)
    assert found.all(axis=(1, 2)).tolist() == [False, True, False, False, False, True, True, True]
    assert found.any(axis=(1, 2)).tolist() == found.all(axis=(1, 2)).tolist()
    # the three noninstitutional kinds are cells 5 to 7, the institutional ones 1 to 4
    recoded = measurement("hhinstlevels", "*", "*", shape=(3, 1, 1))
    assert zeros(recoded, bounds).reshape(-1).tolist() == [False, False, False]
    every = constraint("hhinstlevels", "*", "*", shape=(3, 1, 1), value=[9, 5, 0], sign="<=")
    assert zeros(DETAILED, every).all(axis=(1, 2)).tolist() == [False] * 5 + [True] * 3
    lower = constraint("hhgq", "*", "*", shape=(8, 1, 1), value=[0] * 8, sign=">=")
    assert not zeros(DETAILED, lower).any()


def test_a_constraint_of_another_table_is_left_alone():
    known = Known()
    known.add(("h1",), constraint("*", shape=(1,), value=[0]))
    assert not known.zeros("County", AXES, DETAILED).any()


def test_a_new_bucket_begins_without_geographies():
    known = Known()
    known.add(AXES, NURSING)
    known.add(AXES, constraint("*", "*", "*", shape=(1, 1, 1), value=[77]))
    assert known.zeros("County", AXES, DETAILED).any()
    known.begin()
    assert not known.zeros("County", AXES, DETAILED).any()
    assert known.total("01") is None


def test_a_constraint_is_about_its_geography_alone():
    elsewhere = measurement("detailed", "detailed", "detailed", shape=(8, 2, 3), geocode="02")
    assert not zeros(elsewhere, NURSING).any()


def test_a_recode_that_is_not_known_matches_itself_alone():
    strange = constraint("mine", "*", "*", shape=(2, 1, 1), value=[0, 7], sign="<=")
    assert not zeros(DETAILED, strange).any()
    own = measurement("mine", "votingage", "*", shape=(2, 2, 1))
    assert zeros(own, strange)[:, :, 0].tolist() == [[True, True], [False, False]]


def test_two_constraints_of_a_geography_add_up():
    bounds = constraint("hhgq", "*", "*", shape=(8, 1, 1), value=[9, 0, *[5] * 6], sign="<=")
    assert zeros(DETAILED, NURSING, bounds).sum() == 3 + 6


def test_totals_are_known_of_exact_constraints_only():
    known = Known()
    known.add(AXES, constraint("*", "*", "*", shape=(1, 1, 1), value=[77]))
    known.add(AXES, constraint("*", "*", "*", shape=(1, 1, 1), value=[99], sign="<=", geocode="02"))
    assert (known.total("01"), known.total("02"), known.total("03")) == (77, None, None)


def test_rules_hold_where_the_axes_are_kept():
    rule = Rule(cells={"hhgq": [3], "votingage": [0]})
    assert (zeros(DETAILED, rules=[rule]) == zeros(DETAILED, NURSING)).all()
    assert not zeros(measurement("hhgq", "*", "*", shape=(8, 1, 1)), rules=[rule]).any()
    only = Rule(cells={"hhgq": [1]}, level="State", query="q")
    assert not zeros(DETAILED, rules=[only]).any()
    assert zeros(DETAILED, rules=[only], level="State").sum() == 6
    recoded = measurement("hhinstlevels", "*", "*", shape=(3, 1, 1))
    assert zeros(recoded, rules=[only], level="State").sum() == 1  # the query's own cells


def test_a_table_of_rules_is_read(tmp_path):
    path = tmp_path / "zeros.toml"
    path.write_text('[[zero]]\ncells = { hhgq = [3], votingage = [0] }\n[[zero]]\nlevel = "State"\n'
                    "cells = { hhgq = [1, 2] }\n")  # fmt: skip
    first, second = read_rules(path)
    assert first == Rule(cells={"hhgq": [3], "votingage": [0]})
    assert (second.level, second.cells) == ("State", {"hhgq": [1, 2]})


@pytest.mark.parametrize(
    "text",
    ["", "[[zero]]\n", "[[zero]]\ncells = {}\n", "[[zero]]\ncells = { a = [] }\n",
     "[[zero]]\ncells = { a = [-1] }\n", "[[zero]]\ncells = { a = ['x'] }\n",
     "[[zero]]\nwhich = 1\ncells = { a = [1] }\n", "nonsense", "\x00"],
)  # fmt: skip
def test_a_broken_table_is_refused(tmp_path, text):
    path = tmp_path / "zeros.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"zeros=.*zeros\.toml"):
        read_rules(path)
