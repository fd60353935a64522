"""The ε of what moved, and noise that left our sight, on dicts by hand."""

import math

import numpy as np
import pytest
import scipy

from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.mechanism.neighbour_search import Pair
from dpaudit.audit.replay.judge import Difference, grouped, hidden_by, part_of, spent_on, surely


def moved(law="laplace", *, name="n", far=1.0, scale=2.0, **more):
    norms = dict.fromkeys(("l0", "l1", "l2", "linf"), far)
    return {"name": name, "law": law, "in": "a.py:1", "at": "", "scale": scale, **norms, **more}


def stated(far=1.0, *, epsilon=1.0, delta=0.0, sensitivity=1.0, name="lib.Laplace"):
    facts = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity, "norm": "l1"}
    return moved("mechanism", name=name, far=far, scale=None, stated=facts)


def epsilon_of(*entries, delta=0.0):
    spent = spent_on(entries, delta)
    assert spent.unknown == ()
    return spent.epsilon


def gaussian_delta(mu, epsilon):
    """Balle and Wang 2018, Theorem 8, written out."""
    cdf = scipy.special.ndtr
    return cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)


# -- laws that are known -----------------------------------------------------------------------


def test_nothing_moved_is_the_only_zero():
    assert spent_on([], 0.0).epsilon == 0
    assert spent_on([], 0.0).unknown == ()


def test_laplace_inputs_add_up_by_their_l1():
    assert epsilon_of(moved(far=3.0, scale=2.0), moved(far=1.0, scale=4.0)) == 1.75
    assert epsilon_of(moved("discrete-laplace", far=2.0, scale=0.5)) == 4.0


def test_gaussian_inputs_add_up_by_their_squares():
    epsilon = epsilon_of(moved("normal", far=3.0), moved("normal", far=4.0), delta=1e-5)
    assert gaussian_delta(2.5, epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert epsilon_of(moved("normal"), delta=0.0) == math.inf


def test_laplace_and_gaussian_inputs_share_no_delta():
    both = epsilon_of(moved(far=1.0), moved("normal", far=1.0, scale=1.0), delta=1e-6)
    assert both == pytest.approx(0.5 + gaussian_epsilon(1e-6, sigma=1.0))


def test_gaussian_noise_and_a_stated_delta_share_the_delta():
    one = stated(delta=4e-6, name="lib.Gaussian")
    both = epsilon_of(one, moved("normal", far=1.0, scale=1.0), delta=1e-5)
    assert both >= 1 + gaussian_epsilon(6e-6, sigma=1.0)
    assert both <= 1 + gaussian_epsilon(3e-6, sigma=1.0) + 1e-9
    assert epsilon_of(one, moved("normal"), delta=3e-6) == math.inf


@pytest.mark.parametrize("law", ["laplace", "discrete-laplace", "normal"])
@pytest.mark.parametrize(
    ("far", "scale"), [(1.0, 0.0), ("inf", 1.0), ("nan", 1.0), (1e200, 1e-200), (1e9, 1e-9)]
)
def test_no_noise_or_no_bound_is_no_small_epsilon(law, far, scale):
    assert epsilon_of(moved(law, far=far, scale=scale), delta=1e-5) > 1e15


@pytest.mark.parametrize("scale", [None, "inf", "nan", -1.0, "wide"])
def test_a_scale_that_is_none_is_not_known(scale):
    spent = spent_on([moved(scale=scale), moved()], 0.0)
    assert spent.unknown == ("n at a.py:1 (law: laplace)",)
    assert spent.epsilon == 0.5  # of what is known


def test_an_input_without_a_distance_is_not_known():
    one = moved()
    del one["l1"]
    assert spent_on([one], 0.0).unknown


# -- coins and other laws ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "law", ["uniform", "integers", "bits", "choice", "bernoulli", "student-t", "gumbel"]
)
def test_coins_and_other_laws_are_not_known_but_by_their_loss(law):
    spent = spent_on([moved(law)], 1e-5)
    assert spent.unknown
    assert law in spent.unknown[0]
    assert "a.py:1" in spent.unknown[0]
    assert epsilon_of(moved(law, loss=1.25), moved(far=1.0)) == 1.75
    assert spent_on([moved(law, loss=0.0)], 0.0).unknown  # it moved, so it is not 0
    for loss in ("inf", "nan", -1.0, ["inf", 0.0], [0.0, "nan"]):
        assert epsilon_of(moved(law, loss=loss)) == math.inf


def test_a_covariance_is_no_scale():
    one = moved("multivariate-normal")
    assert spent_on([one], 1e-5).unknown
    assert epsilon_of({**one, "loss": 2.0}, delta=1e-5) == 2.0
    known = epsilon_of({**one, "ratios": {"l2": 0.5}}, delta=1e-5)  # Mahalanobis' distance
    assert gaussian_delta(0.5, known) == pytest.approx(1e-5, rel=1e-6)


def test_logistic_noise_loses_at_most_its_distance_over_its_scale():
    """Of f(x) = e^−x / (1 + e^−x)²: the log ratio at x and x − d, on a grid."""
    x, d = np.linspace(-60, 60, 200_001), 1.5
    logs = [-z - 2 * np.log1p(np.exp(-z)) for z in (x, x - d)]
    assert np.abs(logs[0] - logs[1]).max() == pytest.approx(d, rel=1e-9)
    assert epsilon_of(moved("logistic", far=d, scale=1.0)) == d
    assert surely([moved("logistic") | {"exact": True, "l0": 1.0}], 0.0) == 0.0


def test_coins_lose_what_one_of_the_two_data_sets_makes_likelier():
    """A bit that comes and one that goes, of optimal unary encoding: ε, and not its double."""
    epsilon = 1.0
    p, q = 0.5, 1 / (math.exp(epsilon) + 1)
    one_way, other_way = math.log(p / q), math.log((1 - q) / (1 - p))
    comes = moved("bernoulli", loss=[other_way, one_way])
    goes = moved("bernoulli", loss=[one_way, other_way])
    assert epsilon_of(comes, goes) == pytest.approx(epsilon)


def test_what_a_pair_surely_exceeds_is_below_what_it_spends():
    laplace = moved(far=2.0) | {"exact": True, "l0": 1.0}
    assert surely([laplace], 0.0) == pytest.approx(epsilon_of(laplace))
    sure, delta = surely([laplace], 0.01), 0.01
    # Laplace's hockey stick, by numbers: E[max(0, 1 − e^(ε − loss))] over 1 / scale = 0.5 steps
    z = np.linspace(-80, 80, 2_000_001)
    p, q = (np.exp(-np.abs(z - at) / laplace["scale"]) for at in (0.0, laplace["l1"]))
    weight = p / p.sum()
    exact = float((weight * np.clip(1 - math.exp(sure) * q / p, 0, None)).sum())
    assert exact >= delta * (1 - 1e-3)
    many = [dict(laplace) for _ in range(30)]
    assert surely(many, 1e-5) == 0.0  # all thirty on one side is rarer than δ
    normal = moved("normal") | {"exact": True}
    assert surely([normal], 1e-5) == pytest.approx(epsilon_of(normal, delta=1e-5))
    assert surely([{**normal, "exact": False}], 1e-5) == 0.0


# -- what a library states ---------------------------------------------------------------------


def test_a_pure_statement_is_in_proportion():
    assert epsilon_of(stated(0.5)) == pytest.approx(0.5)
    assert epsilon_of(stated(3.5)) == pytest.approx(3.5)
    assert epsilon_of(stated(), stated(), stated()) == pytest.approx(3.0)


@pytest.mark.parametrize("kind", ["Staircase", "Snapping", "LaplaceBoundedDomain", "Uniform"])
def test_not_where_the_loss_comes_in_steps(kind):
    assert epsilon_of(stated(0.1, name=f"diffprivlib.{kind}")) == pytest.approx(1.0)
    assert epsilon_of(stated(1.1, name=f"diffprivlib.{kind}")) == pytest.approx(2.0)


@pytest.mark.parametrize("far", [0.1, 1.0, 1.0 + 1e-12])
def test_a_statement_with_a_delta_is_taken_whole(far):
    assert epsilon_of(stated(far, delta=1e-6), delta=1e-6) == pytest.approx(1.0)


def test_further_than_the_sensitivity_is_group_privacy():
    # Vadhan 2017, Lemma 2.2: k steps of (ε, δ) are kε and δ·(1 + e^ε + … + e^(k−1)ε)
    delta = 1e-6 * (1 + math.e + math.e**2)
    assert epsilon_of(stated(2.1, delta=1e-6), delta=delta * (1 + 1e-9)) == pytest.approx(3.0)
    assert epsilon_of(stated(2.1, delta=1e-6), delta=delta * (1 - 1e-6)) == math.inf
    assert epsilon_of(stated(3.0, delta=1e-6), delta=delta * (1 + 1e-9)) == pytest.approx(3.0)


@pytest.mark.parametrize(
    "one",
    [
        stated(epsilon=math.inf), stated(epsilon="inf"), stated(epsilon=math.nan),
        stated(epsilon=-1.0), stated(far="inf"), stated(far="nan"), stated(sensitivity=0.0),
        stated(delta=1.0), stated(delta=math.nan), stated(1e6, delta=1e-9), stated(40, delta=1e-9),
        stated(10, epsilon=300.0, delta=1e-30),
    ],
)  # fmt: skip
def test_a_statement_that_holds_nothing_is_infinite(one):
    assert epsilon_of(one, delta=1e-5) == math.inf
    assert epsilon_of(moved(), moved("normal"), one, delta=1e-5) == math.inf


def test_a_statement_without_epsilon_is_not_known():
    for facts in ({}, {"epsilon": 0.0}, {"sensitivity": 1.0, "norm": "l1"}):
        assert spent_on([moved("mechanism", scale=None, stated=facts)], 1e-5).unknown


# -- noise that left our sight -----------------------------------------------------------------

NOISE = (0.3, -1.1, 2.2)


def told(value, *draws):
    lost = [
        {"name": "n", "in": "", "at": "", "law": "laplace", "scale": 2.0, "values": d}
        for d in draws
    ]
    return {"values": {"": value}, "lost_values": lost}


def hidden(runs):
    return hidden_by("the release", runs)


def test_a_draw_that_was_added_is_recognised_with_its_width():
    runs = [(told([5 + 3 * z], [z]), told([6 + 3 * z], [z])) for z in NOISE]
    assert hidden(runs)["law"] == "laplace"
    assert hidden(runs)["scale"] == pytest.approx(6.0)


def test_two_draws_hide_two_sums_and_one_draw_does_not():
    two = [
        (told([5 + z, 7 - z * z], [z, z * z]), told([6 + z, 9 - z * z], [z, z * z])) for z in NOISE
    ]
    assert hidden(two)["scale"] == pytest.approx(2.0)
    one = [(told([5 + z, 7 + z], [z]), told([6 + z, 9 + z], [z])) for z in NOISE]
    assert hidden(one) is None  # 7 + z − (5 + z) shows the data
    same = [(told([5 + z, 7 + z], [z]), told([6 + z, 8 + z], [z])) for z in NOISE]
    assert hidden(same)["law"] == "laplace"


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [({}, {})] * 3,
        [({"died": "no answer"}, {"died": "no answer"})] * 3,
        [(told([], [1.0]), told([], [1.0]))] * 3,
        [(told("[1.0, … 70 numbers]", [1.0]), told("[2.0, … 70 numbers]", [1.0]))] * 3,
        [(told([z]), told([z, z])) for z in NOISE],
        [(told([z] * n), told([z + 1] * n)) for n, z in enumerate(NOISE)],
        [(told([z, "nan"], [z]), told([z + 1, 0.0], [z])) for z in NOISE],
        [(told(["inf"], [z]), told([1.0], [z])) for z in NOISE],
        [(told([5.0], [z]), told([6.0], [z])) for z in NOISE],
        [(told([5 * z], [z]), told([6 * z], [z])) for z in NOISE],
    ],
)
def test_what_is_not_data_plus_noise_is_not_hidden(runs):
    assert hidden(runs) is None


@pytest.mark.parametrize(
    "draws",
    [
        [["[0.1, … 70 numbers]"]] * 3,
        [[[1.0]], [[1.0], [2.0]], []],
        [[[1.0]], [[1.0, 2.0]], [[1.0]]],
        [[[None]]] * 3,
        [["inf"]] * 3,
        [[[4.0]], [[4.0]], [[4.0]]],
    ],
)
def test_draws_that_cannot_be_compared_leave_the_law_unknown(draws):
    runs = [(told([5 + z], *d), told([6 + z], *d)) for z, d in zip(NOISE, draws, strict=True)]
    noise = hidden(runs)
    assert noise["scale"] is None
    entry = {**moved(), **noise}
    assert spent_on([entry], 1e-5).unknown == ("noise at  (law: made of several draws)",)


def test_many_draws_are_not_slow_and_the_right_one_is_found():
    rng = np.random.default_rng(1)
    draws = rng.laplace(size=(3, 20, 50))
    runs = [(told([3 + d[7, 11]], *d.tolist()), told([4 + d[7, 11]], *d.tolist())) for d in draws]
    assert hidden(runs)["scale"] == pytest.approx(2.0)


# -- groups and parts --------------------------------------------------------------------------


def difference(kind, *, beyond=False, selects=False, number=1, **more):
    found = {"kind": kind, "name": "", "in": "a.py:3", "at": "", "call": -1, **more}
    return Difference(found, Pair((1,), (1, 2), "x", beyond), number, selects)


def test_coins_make_a_difference_doubtful_where_they_choose():
    (group,) = grouped([difference("release", selects=True)])
    assert group.coins
    (group,) = grouped([difference("control flow", law="integers")])
    assert group.coins
    for one in (
        difference("release"), difference("sensitivity", selects=True),
        difference("control flow", law="laplace"),
    ):  # fmt: skip
        (group,) = grouped([one])
        assert not group.coins


def test_an_error_is_advice_only_where_all_values_are_foreign():
    (group,) = grouped([difference("exception", beyond=True)])
    assert group.mild
    (group,) = grouped([difference("exception", beyond=True), difference("exception", number=2)])
    assert not group.mild
    assert group.best.number == 2


def test_a_part_by_its_path():
    release = {"values": {"": 1.0, "['a']": [2.0]}, "stdout": "x"}
    assert part_of(release, "the release") == 1.0
    assert part_of(release, "['a']") == [2.0]
    assert part_of(release, "stdout") == "x"
    assert part_of(release, "['b']") is None
    assert part_of({"error": "no answer"}, "files") is None
