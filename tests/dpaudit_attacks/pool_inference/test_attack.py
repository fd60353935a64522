"""The whole game: reproducible, near published numbers, and under every policy and mechanism."""

import json

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit.interfaces import GameAttack
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.pool_inference import attack
from dpaudit_attacks.pool_inference.attack import PoolInference
from dpaudit_attacks.pool_inference.game import make_mechanism
from dpaudit_attacks.pool_inference.popularity import ADVERSARIES
from dpaudit_attacks.pool_inference.posterior import count_posterior

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
    done = []
    all_users = small().outcomes(50, stream=STREAM, progress=lambda *a: done.append(a))
    assert done == [(20, 50), (40, 50), (50, 50)]
    people = all_users["weak"][3].gamma
    assert not np.isin(people[:20], people[20:]).any()
    some = small().outcomes(40, stream=STREAM)
    for adversary, found in some.items():
        for n, outcome in found.items():
            assert np.array_equal(outcome.confidence, all_users[adversary][n].confidence[:40])


@pytest.mark.parametrize(("size", "published"), [(10, 0.92), (50, 0.85)])
def test_table_5(size, published):
    """A.3 with Zipf exponent 1 and n = 180: 300 users here, 1000 there."""
    game = PoolInference(
        setting=f"equal-pools:size={size},zipf=1",
        adversaries=("informed",),
        observations=(180,),
        functions=2048,
    )
    outcome = game.outcomes(300, stream=STREAM.child("table 5"))["informed"][180]
    assert (
        abs(outcome.auc_pn() - published)
        < 4 * outcome.standard_error() * np.sqrt(1 + 300 / 1000) + 0.005
    )


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        "hadamard-sketch",
        "randomized-response",
        "rappor:cohorts=4,bits=32",
        "one-bit-histogram:positions=100",
        "identity",
    ],
)
def test_every_mechanism(mechanism):
    game = small(mechanism=mechanism, adversaries=("informed", "non-private"))
    found = game.outcomes(300, stream=STREAM.child("mechanisms"))
    assert found["informed"][20].auc_pn() > 0.38
    if mechanism == "identity":
        assert (
            np.abs(found["informed"][20].confidence - found["non-private"][20].confidence).max()
            < 1e-9
        )


def test_capped_submissions_leave_the_adversary_there():
    capped = small(submissions="capped:limit=5", adversaries=("informed",), observations=(5, 9, 20))
    found = capped.outcomes(40, stream=STREAM)["informed"]
    assert np.array_equal(found[5].confidence, found[9].confidence)
    assert np.array_equal(found[5].confidence, found[20].confidence)


def test_shuffled_submissions_are_judged_one_by_one():
    found = small(submissions="shuffled", adversaries=("informed", "non-private")).outcomes(
        800, stream=STREAM
    )
    alone = small(adversaries=("informed",), observations=(1,)).outcomes(800, stream=STREAM)[
        "informed"
    ][1]
    flat = found["informed"]
    assert np.array_equal(flat[3].confidence, flat[20].confidence)
    assert abs(flat[20].auc_pn() - alone.auc_pn()) < 4 * (
        alone.standard_error() + flat[20].standard_error()
    )
    assert found["non-private"][20].auc_pn() > flat[20].auc_pn() + 0.2


@pytest.mark.parametrize("linked", [True, False])
def test_reports_in_any_order_find_their_owners(linked):
    def play(interleaved):
        game = small(adversaries=("informed",))

        class Every(type(game.policy)):
            def submit(self, objects, mechanism, *, stream):
                reports, owner = super().submit(objects, mechanism, stream=stream)
                order = (
                    np.arange(len(owner)).reshape(objects.shape).T.ravel()
                    if interleaved
                    else np.arange(len(owner))
                )
                return reports[order], owner[order]

        game.policy = Every()
        game.policy.linked = linked
        return game.play(30, stream=STREAM)

    assert play(interleaved=True) == play(interleaved=False)


def test_the_non_private_adversary_has_seen_so_many_objects():
    game = small(adversaries=("non-private",), observations=(1, 4), gamma=1.0, delta=1.0)
    found = game.outcomes(20, stream=STREAM)["non-private"]
    for n in (1, 4):
        assert found[n].confidence == pytest.approx(
            count_posterior(np.array([0, n, 0, 0])).max(), abs=1e-12
        )


def test_equals_are_named_at_random():
    posterior = np.tile([0.3, 0.1, 0.3, 0.3], (3000, 1, 1))
    named, confidence = attack._named(posterior, STREAM.child("equals").numpy())
    assert (confidence == 0.3).all()
    assert np.abs(np.bincount(named[:, 0], minlength=4) - [1000, 0, 1000, 1000]).max() < 120


def test_repetition_that_memoisation_shows_is_used():
    """Copies of one report make the adversary too sure, unless taken as one object's."""
    policy = {
        "submissions": "memoised",
        "adversaries": ("informed",),
        "observations": (20,),
        "epsilon": 2.0,
    }
    adaptive = small(**policy).outcomes(500, stream=STREAM)["informed"][20]
    naive = small(**policy, memoised=False).outcomes(500, stream=STREAM)["informed"][20]
    assert np.array_equal(adaptive.gamma, naive.gamma)
    assert adaptive.auc_pn() > naive.auc_pn() + 2 * naive.standard_error()
    assert adaptive.calibration_error() < 0.5 * naive.calibration_error()


def test_the_published_code_s_pool_size_prior():
    """With next to nothing learnt, the posterior is the prior: 14 of 60 objects."""
    options = {"setting": "news:universe=100", "adversaries": ("weak", "informed"), "epsilon": 1e-6}
    plain, prior = (
        small(**options, pool_size_prior=p).outcomes(30, stream=STREAM) for p in (False, True)
    )
    assert plain["weak"][3].confidence == pytest.approx(1 / 5, abs=1e-4)
    assert prior["weak"][3].confidence == pytest.approx(14 / 60, abs=1e-4)
    # its pools have equal mass
    assert prior["informed"][3].confidence == pytest.approx(1 / 5, abs=1e-4)


def test_behaviour_can_be_fixed():
    found = small(gamma=0.9, delta=1.0, adversaries=("non-private",)).outcomes(200, stream=STREAM)[
        "non-private"
    ][20]
    assert (found.gamma == 0.9).all()
    assert found.correct.all()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"setting": "emoji"}, "setting=emoji"),
        ({"adversaries": ()}, "adversaries"),
        ({"adversaries": ("weak", "weak")}, "adversaries"),
        ({"adversaries": ("week",)}, "did you mean 'weak'"),
        ({"observations": ()}, "observations"),
        ({"observations": (7, 7)}, "observations"),
        ({"observations": (0, 7)}, "observations"),
        ({"observations": (7.5,)}, "observations=7.5"),
        ({"observations": "7"}, "observations"),
        ({"threads": 0}, "threads=0"),
        ({"nodes": 2.5}, "nodes=2.5"),
        ({"popularity_submissions": 1e4}, "popularity_submissions=10000.0"),
        ({"memoised": "no"}, "memoised"),
        ({"pool_size_prior": "no"}, "pool_size_prior"),
        ({"submissions": "caped"}, "capped"),
        ({"submissions": "capped:limits=3"}, "limit"),
    ],
)
def test_options_that_make_no_sense(options, match):
    with pytest.raises(UsageError, match=match):
        small(**options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mechanism": "count-mean"}, "count-mean-sketch"),
        ({"mechanism": "count-mean-sketch:k=3"}, "k=3"),
        ({"epsilon": None}, "epsilon"),
        ({"mechanism": "rappor", "epsilon": None}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"mechanism": "count-median-sketch", "epsilon": None}, "epsilon"),
        ({"gamma": 2.0}, "gamma"),
    ],
)
def test_games_that_cannot_start(options, match):
    with pytest.raises(UsageError, match=match):
        small(**options).play(5, stream=STREAM)


def test_nobody_plays():
    with pytest.raises(UsageError, match="users=0"):
        small().play(0, stream=STREAM)


def test_one_time_rappor_has_the_epsilon_asked_for():
    made = make_mechanism("rappor", epsilon=3.0, m=64, functions=8, universe=50, stream=STREAM)
    assert made.epsilon == pytest.approx(3.0, abs=1e-6)


def test_a_count_median_sketch_has_the_epsilon_asked_for():
    options = {"m": 64, "functions": 8, "universe": 50, "stream": STREAM}
    made = make_mechanism("count-median-sketch", epsilon=3.0, **options)
    assert (made.epsilon, made.m, made.functions) == (pytest.approx(3.0, abs=1e-12), 64, 8)
    own = make_mechanism("count-median-sketch:privacy_parameter=1", epsilon=3.0, **options)
    assert own.epsilon == pytest.approx(2.0, abs=1e-12)


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
    options = {"epsilon": 1.0, "m": 64, "functions": 8, "universe": 50}
    one, two = (
        make_mechanism("count-mean-sketch", **options, stream=STREAM.child(i)) for i in (1, 2)
    )
    assert one.hashes != two.hashes
    own = make_mechanism("count-mean-sketch:m=32,functions=4,seed=3", **options, stream=STREAM)
    assert (own.m, own.functions) == (32, 4)
