"""Right samplers are proved, every planted bug is refuted: programs of tests/data/prove."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import tomllib
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from dpaudit_prove.exploration.engine import explore
from dpaudit_prove.verdicts.claims import ClaimedLaw
from dpaudit_prove.verdicts.distances import Epsilon, distance, epsilon_at, judge

DATA = Path(__file__).parents[1] / "data" / "prove"
RIGHT = (DATA / "right.py").read_text(encoding="utf-8")
BUGS = tomllib.loads((DATA / "bugs.toml").read_text(encoding="utf-8"))["bug"]
COARSE = Fraction(1, 1 << 20)
MEDIUM = Fraction(1, 1 << 14)
SLOW = {"discrete_gaussian", "geometric", "laplace_mechanism", "noisy_max", "above_threshold"}
KEPT = {"a biased sign", "zero with two signs", "noise of half the scale"}


@pytest.fixture
def load(tmp_path: Path, monkeypatch):
    """``load(text)`` → a module of that text, which can be imported as it is named."""

    def module(text: str, name: str = "planted") -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return module


@pytest.fixture
def beside(monkeypatch) -> None:
    """The programs of the corpus may import each other."""
    monkeypatch.syspath_prepend(str(DATA))
    for name in ("right", "mechanisms", "ours"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def slow(bug: dict[str, str]) -> bool:
    """Whether a bug takes more than a fraction of a second at this residual."""
    return bug["function"] in {*SLOW, "discrete_laplace"} and bug["name"] not in KEPT


def residual(bug: dict[str, str]) -> Fraction:
    return Fraction(1, 1 << int(bug["residual"][3:])) if "residual" in bug else COARSE


@pytest.mark.parametrize(
    ("function", "claim"),
    [
        ("die", "uniform:low=1,high=6"),
        ("tenth", "bernoulli:p=0.1"),
        ("exp_minus_half", "bernoulli:rate=1/2"),
        ("geometric", "geometric:rate=1/2"),
        ("discrete_laplace", "discrete-laplace:scale=2"),
        ("fair_from_biased", "bernoulli:p=1/2"),
        ("shuffled", "uniform:high=5"),
        ("base_2", "categorical:weights=8:4:1"),
        ("randomized_response", "randomized-response:truth=3/4"),
        pytest.param("discrete_gaussian", "discrete-gaussian:variance=1", marks=pytest.mark.slow),
    ],
)
def test_a_right_sampler_has_its_law(load, function: str, claim: str) -> None:
    found = explore(getattr(load(RIGHT), function), residual=COARSE)
    bounds = distance(found.law, ClaimedLaw.parse(claim)).total_variation
    assert bounds.lower == 0
    assert bounds.upper <= found.law.residual + Fraction(1, 10**30)
    assert found.law.residual <= COARSE


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, id=bug["name"], marks=[pytest.mark.slow] * slow(bug)) for bug in BUGS]
)
def test_a_planted_bug_is_refuted(load, beside, bug: dict[str, str]) -> None:
    text = (DATA / bug.get("file", "right.py")).read_text(encoding="utf-8")
    assert text.count(bug["before"]) == 1
    function = getattr(load(text.replace(bug["before"], bug["after"])), bug["function"])
    if "claim" in bug:
        found = explore(function, residual=residual(bug))
        far = distance(found.law, ClaimedLaw.parse(bug["claim"]))
        assert far.total_variation.lower > 0
        assert far.event
        return
    neighbours = json.loads(f"[{bug['neighbours']}]")
    least = Fraction(1, 1 << 34) if "2^24" in bug["name"] else COARSE
    laws = [explore(function, (value,), residual=least).law for value in neighbours]
    power = bug.get("delta", "0")
    delta = Fraction(1, 1 << int(power[3:])) if power != "0" else Fraction(0)
    judged, point = judge(*laws, epsilon=Epsilon.parse(bug["epsilon"]), delta=delta)
    assert judged == "refuted"
    assert point.event


STREAMS = ([0, 0, 1], [1, 1, 0])


@pytest.mark.parametrize(
    ("function", "neighbours", "epsilon", "status"),
    [
        ("answer", (0, 1), "ln(6)", "proved"),
        ("geometric_mechanism", (0, 1), "ln(4/3)", "proved"),
        ("truncated_geometric", (1, 2), "ln(4/3)", "proved"),
        ("exponential_mechanism", ([0, 1, 1], [1, 0, 0]), "ln(4)", "proved"),
        ("permute_and_flip", ([0, 1, 1], [1, 0, 0]), "ln(4)", "proved"),
        ("noisy_max", ([1, 1], [0, 2]), "ln(4)", "proved"),
        ("noisy_max_one_sided", ([1, 1, 1], [0, 2, 2]), "ln(4)", "proved"),
        ("sparse_vector_1", STREAMS, "ln(16)", "proved"),
        ("sparse_vector_2", STREAMS, "ln(256)", "proved"),
        ("sparse_vector_3", STREAMS, "ln(16)", "refuted"),
        ("sparse_vector_4", STREAMS, "ln(16)", "refuted"),
        ("sparse_vector_5", ([0, 1], [1, 0]), "ln(16)", "refuted"),
        ("sparse_vector_6", STREAMS, "ln(16)", "refuted"),
    ],
)
def test_a_mechanism_is_as_private_as_it_is(
    beside, function: str, neighbours, epsilon: str, status: str
) -> None:
    import mechanisms

    program = getattr(mechanisms, function)
    laws = [explore(program, (value,), residual=MEDIUM).law for value in neighbours]
    judged, _ = judge(
        *laws,
        epsilon=Epsilon.parse(epsilon),
        delta=2 * MEDIUM if any(law.residual for law in laws) else Fraction(0),
    )
    assert judged == status


def test_the_exact_loss_of_the_geometric_mechanism(beside) -> None:
    import mechanisms

    laws = [explore(mechanisms.geometric_mechanism, (value,)).law for value in (0, 1)]
    found = epsilon_at(*laws, Fraction(1, 1 << 38))
    assert abs(float(found.lower) - math.log(4 / 3)) < 1e-9
    assert abs(float(found.upper) - math.log(4 / 3)) < 1e-9


@pytest.mark.slow
def test_the_division_of_opendp_0_14_1_loses_privacy(load) -> None:
    module = load((DATA / "opendp_0_14_1.py").read_text(encoding="utf-8"))
    laws = [explore(module.laplace_mechanism, (value, 3), residual=COARSE).law for value in (0, 1)]
    found = epsilon_at(*laws, Fraction(1, 10**3))
    assert 0.49 < float(found.lower) <= float(found.upper) < 0.51  # 1/3 is claimed
    assert judge(*laws, epsilon=Epsilon.parse("1/3"), delta=Fraction(1, 50))[0] == "refuted"
    right = explore(module.discrete_laplace, (2,), residual=COARSE).law  # 1/2 has no such factor
    assert distance(right, ClaimedLaw.parse("discrete-laplace:scale=2")).total_variation.lower == 0


@pytest.mark.parametrize(("k", "quotient"), [(1, (2, 3)), (2, (1, 2)), (3, (2, 9)), (4, (1, 4))])
def test_the_division_is_that_of_dashu(load, k: int, quotient: tuple[int, int]) -> None:
    """RBig 2/3 by UBig k, dashu-ratio 0.4.2; 2/3 / 4 is 1/6 (cmpute/dashu#57)."""
    module = load((DATA / "opendp_0_14_1.py").read_text(encoding="utf-8"))
    assert module.divided(Fraction(2, 3), k) == quotient


@pytest.mark.slow
def test_our_samplers_are_proved(beside) -> None:
    import ours

    for function, options, claim in (
        (ours.gaussian, {"sigma": 3.0}, "discrete-gaussian:sigma=3"),
        (ours.secure_gaussian, {}, "discrete-gaussian:sigma=16"),
    ):
        found = explore(function, (), options)
        bounds = distance(found.law, ClaimedLaw.parse(claim)).total_variation
        assert bounds.lower == 0
        assert bounds.upper < Fraction(1, 1 << 39)
    inverted = explore(ours.geometric_inversion).law
    bounds = distance(inverted, ClaimedLaw.parse("discrete-laplace:scale=2")).total_variation
    assert 0 < bounds.lower <= bounds.upper < Fraction(1, 10**14)
