"""The game and its people: equation 6, published numbers, every policy and mechanism."""

import json

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.protocols import GameAttack
from dpaudit.randomness import KeyedStream
from dpaudit_local.pool_inference import attack
from dpaudit_local.pool_inference.attack import PoolInference
from dpaudit_local.pool_inference.game import DeviceOptions, people
from dpaudit_local.pool_inference.popularity import ADVERSARIES
from dpaudit_local.pool_inference.posterior import count_posterior
from dpaudit_local.pool_inference.settings import load_setting

STREAM = KeyedStream.from_seed("game")
SMALL = "equal-pools:size=10,zipf=1,universe=100,pools=3"


def small(**options):
    options = {
        "setting": SMALL, "functions": 64, "m": 128, "observations": (3, 20),
        "popularity_submissions": 5000, **options,
    }  # fmt: skip
    return PoolInference(**options)


def test_a_game_is_json_and_repeats():
    game = small(adversaries=tuple(ADVERSARIES))
    assert isinstance(game, GameAttack)
    found = game.play(30, stream=STREAM)
    assert list(found) == list(ADVERSARIES)
    assert all(list(outcomes) == ["3", "20"] for outcomes in found.values())
    assert json.loads(json.dumps(found)) == found
    assert game.play(30, stream=STREAM) == found
    assert small(adversaries=tuple(ADVERSARIES), threads=1).play(30, stream=STREAM) == found
    assert game.play(30, stream=STREAM.child("another")) != found


def test_batches_have_streams_of_their_own(monkeypatch):
    monkeypatch.setattr(attack, "_VALUES", 400)  # 20 users a batch
    all_users = small().outcomes(50, stream=STREAM)
    people = all_users["weak"][3].gamma
    assert not np.isin(people[:20], people[20:]).any()
    some = small().outcomes(40, stream=STREAM)
    for adversary, found in some.items():
        for n, outcome in found.items():
            assert np.array_equal(outcome.confidence, all_users[adversary][n].confidence[:40])


@pytest.mark.parametrize(("size", "published"), [(10, 0.92), (50, 0.85)])
def test_table_5(size, published):
    """A.3 with Zipf exponent 1 and n = 180: 300 users here, 1000 there."""
    setting, informed = f"equal-pools:size={size},zipf=1", ("informed",)
    game = PoolInference(setting=setting, adversaries=informed, observations=(180,), functions=2048)
    outcome = game.outcomes(300, stream=STREAM.child("table 5"))["informed"][180]
    error = outcome.standard_error() * np.sqrt(1 + 300 / 1000)
    assert abs(outcome.auc_pn() - published) < 4 * error + 0.005


def test_an_adversary_who_knows_the_law_is_calibrated_and_knowledge_helps():
    found = small(adversaries=("weak", "strong", "informed", "non-private")).outcomes(
        4000, stream=STREAM
    )
    error = {a: outcomes[20].standard_error() for a, outcomes in found.items()}
    area = {a: outcomes[20].auc_pn() for a, outcomes in found.items()}
    for outcome in (*found["informed"].values(), *found["non-private"].values()):
        p = outcome.confidence
        assert abs(outcome.correct.sum() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum())
    assert area["weak"] < area["strong"] + 3 * error["strong"]
    assert area["strong"] < area["informed"] + 3 * error["informed"]
    assert area["informed"] < area["non-private"]


def test_capped_submissions_leave_the_adversary_there():
    capped = small(submissions="capped:limit=5", adversaries=("informed",), observations=(5, 9, 20))
    found = capped.outcomes(40, stream=STREAM)["informed"]
    for n in (9, 20):
        assert np.array_equal(found[5].confidence, found[n].confidence)


def test_shuffled_submissions_are_judged_one_by_one():
    shuffled = small(submissions="shuffled", adversaries=("informed", "non-private"))
    once = small(adversaries=("informed",), observations=(1,))
    found, alone = (game.outcomes(800, stream=STREAM) for game in (shuffled, once))
    flat, alone = found["informed"], alone["informed"][1]
    assert np.array_equal(flat[3].confidence, flat[20].confidence)
    error = alone.standard_error() + flat[20].standard_error()
    assert abs(flat[20].auc_pn() - alone.auc_pn()) < 4 * error
    assert found["non-private"][20].auc_pn() > flat[20].auc_pn() + 0.2


@pytest.mark.parametrize("linked", [True, False])
def test_reports_in_any_order_find_their_owners(linked):
    def play(order):
        game = small(adversaries=("informed",))

        class Every(type(game.policy)):
            def submit(self, objects, mechanism, *, stream):
                reports, owner = super().submit(objects, mechanism, stream=stream)
                at = order(np.arange(len(owner)).reshape(objects.shape)).ravel()
                return reports[at], owner[at]

        game.policy = Every()
        game.policy.linked = linked
        return game.play(30, stream=STREAM)

    assert play(np.transpose) == play(np.asarray)


def test_the_non_private_adversary_has_seen_so_many_objects():
    game = small(adversaries=("non-private",), observations=(1, 4), gamma=1.0, delta=1.0)
    found = game.outcomes(20, stream=STREAM)["non-private"]
    for n in (1, 4):
        assert found[n].confidence == pytest.approx(
            count_posterior(np.array([0, n, 0, 0])).max(), abs=1e-12
        )


def test_equals_are_named_at_random():
    posterior = np.tile([0.3, 0.1, 0.3, 0.3], (3000, 1, 1))
    named, confidence = attack._likeliest_pool(posterior, STREAM.child("equals").numpy())
    assert (confidence == 0.3).all()
    assert np.abs(np.bincount(named[:, 0], minlength=4) - [1000, 0, 1000, 1000]).max() < 120


def test_repetition_that_memoisation_shows_is_used():
    """Copies of one report make the adversary too sure, unless taken as one object's."""
    policy = {"submissions": "memoised", "adversaries": ("informed",), "observations": (20,)}
    adaptive, naive = (
        small(**policy, epsilon=2.0, **how).outcomes(500, stream=STREAM)["informed"][20]
        for how in ({}, {"memoised": False})
    )
    assert np.array_equal(adaptive.gamma, naive.gamma)
    assert adaptive.auc_pn() > naive.auc_pn() + 2 * naive.standard_error()
    assert adaptive.calibration_error() < 0.5 * naive.calibration_error()


BAD = [
    *({"adversaries": a} for a in ((), ("weak", "weak"), ("week",))),
    *({"observations": o} for o in ((), (7, 7), (0, 7), (7.5,), "7")),
    *({"threads": 0}, {"popularity_submissions": 1e4}, {"memoised": "no"}),
    *({"setting": "emoji"}, {"submissions": "caped"}),
    *({"mechanism": "count-mean"}, {"mechanism": "count-mean-sketch:k=3"}, {"epsilon": None}),
    *({"mechanism": m, "epsilon": None} for m in ("rappor", "count-median-sketch")),
    *({"epsilon": -1.0}, {"gamma": 2.0}, {"users": 0}),
]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_games_that_cannot_start(options):
    says = {"caped": "capped", "count-mean": "count-mean-sketch", "('week',)": "weak"}
    name, value = [*options.items()][-1]
    with pytest.raises(UsageError) as refused:
        small(**{k: v for k, v in options.items() if k != "users"}).play(
            options.get("users", 5), stream=STREAM
        )
    assert any(word in str(refused.value) for word in (name, says.get(str(value), name), "k=3"))


@pytest.mark.parametrize(
    ("spec", "epsilon"),
    [
        ("rappor", 3.0),
        ("count-median-sketch", 3.0),
        ("count-median-sketch:privacy_parameter=1", 2.0),
    ],
)
def test_a_mechanism_has_the_epsilon_asked_for_or_its_own(spec, epsilon):
    device = DeviceOptions(mechanism=spec, epsilon=3.0, m=64, functions=8)
    made = device.device(50, stream=STREAM)
    assert made.epsilon == pytest.approx(epsilon, abs=1e-6)


def test_a_policy_that_leaves_people_out():
    game = small(adversaries=("informed",))

    class Some(type(game.policy)):
        linked = False

        def submit(self, objects, mechanism, *, stream):
            reports, owner = super().submit(objects, mechanism, stream=stream)
            return reports[owner > 0], owner[owner > 0]

    game.policy = Some()
    with pytest.raises(UsageError, match="for every user"):
        game.play(5, stream=STREAM)


def test_hash_functions_are_the_stream_s_or_the_option_s():
    def made(spec, label):
        device = DeviceOptions(mechanism=spec, epsilon=1.0, m=64, functions=8)
        return device.device(50, stream=STREAM.child(label))

    def places(spec, label):
        return made(spec, label).hashes.positions(np.arange(50), 0).tolist()

    assert places("count-mean-sketch", 1) != places("count-mean-sketch", 2)
    assert places("count-mean-sketch:seed=3", 1) == places("count-mean-sketch:seed=3", 2)
    own = made("count-mean-sketch:m=32,functions=4,seed=3", 1)
    assert (own.m, own.functions) == (32, 4)


PEOPLE = KeyedStream.from_seed("pool game")


def behaviour(setting, *, preferred, gamma, delta):
    """Φ of equation 6, object by object."""
    phi = np.zeros(setting.universe)
    for i, group in enumerate(setting.groups):
        of_pools = gamma * delta if i == preferred + 1 else gamma * (1 - delta) / (setting.k - 1)
        share = of_pools if i else 1 - gamma
        phi[group] = share * setting.popularity[group] / setting.popularity[group].sum()
    return phi


@pytest.mark.parametrize(
    "way", ["news:universe=100", "equal-pools:size=5,zipf=2,universe=40", "real-emoji"]
)
@pytest.mark.parametrize(("gamma", "delta"), [(0.7, 0.6), (1.0, 0.4), (0.3, 1.0)])
def test_objects_follow_equation_6(way, gamma, delta):
    setting = load_setting(way)
    some = people(setting, 300, 700, stream=PEOPLE.child(way), gamma=gamma, delta=delta)
    expected = np.zeros(setting.universe)
    seen = np.bincount(some.objects.ravel(), minlength=setting.universe)
    for preferred, users in enumerate(np.bincount(some.preferred, minlength=setting.k)):
        expected += 700 * users * behaviour(setting, preferred=preferred, gamma=gamma, delta=delta)
    assert expected.sum() == pytest.approx(seen.sum())
    assert (seen[expected == 0] == 0).all()
    rare = expected < 8
    observed = np.append(seen[~rare], seen[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    kept = wanted > 0
    assert scipy.stats.chisquare(observed[kept], wanted[kept]).pvalue > 1e-3


def test_each_user_for_themselves():
    """The pools of one person's choices by preferred pool; choices are independent in time."""
    setting = load_setting("news:universe=80")
    some = people(setting, 2000, 50, stream=PEOPLE.child("each"), gamma=0.9, delta=0.7)
    group_of = np.zeros(setting.universe, int)
    for i, group in enumerate(setting.groups):
        group_of[group] = i
    groups = group_of[some.objects]
    mine = groups == some.preferred[:, None] + 1
    for pool in range(setting.k):
        rows = mine[some.preferred == pool]
        assert abs(rows.mean() - 0.63) < 4.5 * np.sqrt(0.63 * 0.37 / rows.size)
    after = mine[:, 1:][mine[:, :-1]]
    assert abs(after.mean() - 0.63) < 4.5 * np.sqrt(0.63 * 0.37 / after.size)


def test_behaviour_is_uniform():
    some = people(load_setting("emojis"), 20_000, 1, stream=PEOPLE.child("behaviour"))
    assert scipy.stats.kstest(some.gamma, "uniform").pvalue > 1e-3
    assert scipy.stats.kstest((some.delta - 1 / 6) / (5 / 6), "uniform").pvalue > 1e-3
    assert scipy.stats.chisquare(np.bincount(some.preferred, minlength=6)).pvalue > 1e-3
    assert abs(np.corrcoef(some.gamma, some.delta)[0, 1]) < 4 / np.sqrt(20_000)


@pytest.mark.parametrize(
    "bad", [{"users": 0}, {"n": 0}, {"gamma": 0.0}, {"gamma": 1.1}, {"delta": 0.2}, {"delta": 1.01}]
)
def test_games_that_are_none(bad):
    with pytest.raises(UsageError):
        people(load_setting("news"), **{"users": 3, "n": 2, **bad}, stream=PEOPLE)
