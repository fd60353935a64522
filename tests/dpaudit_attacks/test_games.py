"""Every attack has what its games ask for, keeps the contract, and refuses what makes no sense."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from support.attacks import possible
from support.several_directions import key_of

from dpaudit import registry
from dpaudit.cli.commands.listing import list_
from dpaudit.errors import UsageError
from dpaudit.noise.pancake_likelihood import log_tilt
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.protocols import GAMES, Attack, Canaries, KnownBatch, MissingRecord
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_attack
from dpaudit_attacks.floating_point.bit_features import BitFeatures
from dpaudit_attacks.floating_point.laplace_support import LaplaceSupport
from dpaudit_attacks.floating_point.pair_inversion import PairInversion
from dpaudit_attacks.floating_point.reach import Reach
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio, NearestPeak
from dpaudit_attacks.membership import Membership
from dpaudit_attacks.norm_reader import NormReader
from dpaudit_attacks.reconstruction import PhaseReader
from dpaudit_attacks.seed_reader import SeedReader
from dpaudit_attacks.sensitivity import SensitivityProbes
from dpaudit_attacks.timing import Timing
from dpaudit_attacks.which_bin import WhichBin
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.seed_in_reports.reader import ReportReader

ATTACKS = {
    name: p for name, p in registry.plugins("attacks").items() if p.origin.distribution == "dpaudit"
}
KEYED = {
    *("batch-reader", "likelihood-ratio", "membership", "nearest-peak", "norm-reader"),
    *("phase-reader", "report-reader", "seed-reader", "topdown-reader", "which-bin"),
}


def methods(protocol):
    return {n for n, v in vars(protocol).items() if callable(v) and not n.startswith("_")} - {
        "__init__"
    }


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_what_its_games_ask_for(name):
    factory = registry.load("attacks", name)
    holds = getattr(factory, "holds", "")
    assert ("key" in holds.split()[-1:] or "key, or none" in holds) == (name in KEYED)
    protocols = {GAMES[game].protocol for game in factory.games}
    every = {game.protocol for game in GAMES.values()}
    assert protocols == {p for p in every if methods(p) <= set(dir(factory))}


def test_each_game_is_another_one_and_somebody_plays_it():
    assert len({(g.protocol, g.hypotheses) for g in GAMES.values()}) == len(GAMES)
    assert len({g.protocol for g in GAMES.values()}) <= 5
    assert all(g.protocol is Attack or g.hypotheses is None for g in GAMES.values())
    assert {
        game for a in ATTACKS.values() for game in registry.declared_attribute(a, "games", ())
    } == set(GAMES)


@pytest.mark.slow
def test_the_list_says_what_each_attack_needs(capsys):
    list_("attacks", output="json")
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["reach"]["games"] == ["support", "scoring"]
    assert (rows["reach"]["holds"], rows["which-bin"]["holds"]) == ("nothing", "the pancake's key")
    assert [name for name, row in rows.items() if row["labels"]] == ["bit-features", "timing"]


PLAIN_KEY = key_of(1, dim=64, beta=1e-3, gamma=16.0)
SEED_KEY = SeedKey.new(secret=b"k" * 32)
CONFORM = [
    *((kind(key=PLAIN_KEY, sigma=1.0), 64) for kind in (NearestPeak, LikelihoodRatio)),
    *((registry.create("attacks", f"reach{o}"), 6) for o in ("", ":dtype=float64,divisor=64")),
    *((registry.create("attacks", "reach:lower=-100"), dim) for dim in (1, 6)),
    (registry.create("attacks", "laplace-support:scale=2,sampler=log,bits=32"), 4),
    (LaplaceSupport(), 1),
    (NormReader(key=PLAIN_KEY, sigma=1.0, bits=1), 64),
    (SeedReader(key=SEED_KEY), 64),
    (SeedReader(key=SEED_KEY, code="signs"), 300),
]


@pytest.mark.parametrize(("attack", "dim"), CONFORM)
def test_scores_conform(attack, dim):
    check_attack(attack, dim=dim)


REFUSED = [
    "bit-features:smoothing=0.0", "bit-features:smoothing=nan", "bit-features:smoothing=much",
    "laplace-support:sampler=ziggurat", "laplace-support:scale=0.0", "laplace-support:scale=wide",
    "laplace-support:scale=nan", "laplace-support:scale=1e-300",
    "laplace-support:scale=1e+40,sampler=torch", "laplace-support:bits=0,sampler=log",
    "laplace-support:bits=1", "laplace-support:bits=54", "laplace-support:bits=24,sampler=torch",
    "laplace-support:bits=32.0", "reach:dtype=bfloat16", "reach:divisor=0.0", "reach:divisor=many",
    "reach:divisor=-2.0", "reach:divisor=nan", "reach:divisor=inf",
    "reach:divisor=1e+30,dtype=float16", "reach:lower=1.0,upper=1.0", "reach:lower=nan",
    "reach:lower=none", "reach:upper=inf", "pair-inversion:scale=0.0,sampler=polar",
    "pair-inversion:scale=nan,sampler=polar", "pair-inversion:scale=1e-60,sampler=torch-f32",
    "pair-inversion:scale=1e+60,sampler=torch-f32", "pair-inversion:divisor=-1,sampler=torch-f32",
    "pair-inversion:offset=2,sampler=numpy-legacy",
    "pair-inversion:dtype=float32,sampler=torch-f64", "pair-inversion:dtype=f64,sampler=torch-f64",
    "pair-inversion:sizes=16,sampler=numpy-legacy", "pair-inversion:sizes=16+x,sampler=torch-f32",
    "pair-inversion:sizes=10+6,sampler=torch-f32", "pair-inversion:sampler=numpy-legcy",
    "sensitivity:lower=nan", "sensitivity:upper=inf", "sensitivity:lower=1.0", "sensitivity:size=1",
    "sensitivity:size=2.5", "sensitivity:size=many", "sensitivity:lower=a",
    "sensitivity:upper=1e+308", "sensitivity:kind=roundign", "membership:rate=0.0,sigma=1.0",
    "membership:rate=1.5,sigma=1.0", "membership:sigma=0.0,rate=0.5", "topdown-reader:order=age",
    "report-reader:coins=loaded",
]  # fmt: skip


@pytest.mark.parametrize("spec", REFUSED)
def test_an_option_that_makes_no_sense_is_refused_by_its_name(spec):
    with pytest.raises(UsageError) as refused:
        registry.create("attacks", spec)
    assert spec.partition(":")[2].partition(",")[0] in str(refused.value)


t, z, nan = torch.zeros, np.zeros, math.nan
NEAR = z(2), np.ones(2)
BITS, REACH, LAPLACE = BitFeatures(), Reach(), LaplaceSupport()
LEARNED = BITS.learn(z((3, 2)), z((3, 2)), neighbours=NEAR)
PEAK, RATIO = (kind(key=PLAIN_KEY, sigma=1.0) for kind in (NearestPeak, LikelihoodRatio))
NORM, BIN = NormReader(key=PLAIN_KEY, sigma=1.0), WhichBin(key=PLAIN_KEY, sigma=1.0)
SEED, MEMBER = SeedReader(key=SEED_KEY), Membership(sigma=1.0, rate=0.5, key=PLAIN_KEY)
SKETCH, PLAYERS = CountMeanSketch(4.0), np.arange(2)
REPORTS = SKETCH.privatize(PLAYERS, stream=KeyedStream.from_seed(7))


def learn(x=z((3, 2)), other=z((3, 2)), near=NEAR, attack=BITS):  # noqa: B008
    return lambda: attack.learn(x, other, neighbours=near)


def pair(releases, value, **options):
    made = PairInversion(**{"sampler": "numpy-legacy", **options})
    return lambda: possible(made, releases, value)


def phases(**change):
    given = {"known": t(64), "unknown_index": torch.arange(2), "bound": 4, "releases": t(1, 64)}
    reader = PhaseReader(key=key_of(2, dim=64, beta=1e-3, gamma=16.0), sigma=1.0)
    return lambda: reader.reconstruct_counts(**(given | change))


def unknown(index):
    return lambda: SEED.reconstruct_counts(z((4, 30)), z(30), np.array(index), bound=5)


BAD = [
    (learn(x=z((3, 2)) + nan), "first: contain NaN"),
    (learn(near=(z(2), z(2) + nan)), "neighbours: contain NaN"),
    (lambda: LEARNED(z((3, 2)) + nan), "releases: contain NaN"),
    (pair(z((1, 2)) + nan, z(2)), "NaN or infinity"),
    *((lambda a=a: a.score(t(3, 64) + nan, t(2, 64)), "NaN") for a in (PEAK, RATIO, NORM)),
    (learn(near=(z(2), z(3))), "neighbours of 2 and 3"),
    *(
        (lambda a=attack, y=y, v=v: possible(a, y, v), says)
        for attack in (REACH, LAPLACE)
        for y, v, says in (
            (z((1, 2)) + nan, z(2), "releases: contain NaN"),
            (z((4, 2)), z(2) + math.inf, "value: contain NaN"),
            (z((4, 2)), z(3), "value of 3 numbers"),
        )
    ),
    (lambda: REACH.score(t(4, 2), t(1, 2) + nan), "candidates: contain NaN"),
    (lambda: possible(Reach(dtype="float32"), z((1, 1)) + 0.1, z(1)), "not a float32 number"),
    (lambda: possible(Reach(dtype="float16"), z((1, 1)), z(1) + 1e6), "largest float16"),
    (
        lambda: possible(LaplaceSupport(sampler="torch"), z((1, 1)) + 0.1, z(1)),
        "not a float32 number",
    ),
    (lambda: possible(LaplaceSupport(sampler="torch"), z((1, 1)), z(1) + 1e300), "largest float32"),
    (lambda: possible(Reach(lower=1 / 3, upper=0.7), z((1, 1)) + 0.8, z(1)), "the bound"),
    (pair(z((1, 3)), z(3)), "an odd number shifts"),
    (pair(z((1, 2)), z(2), offset="unknown"), "three and more"),
    (pair(z((1, 20)), z(20), sampler="torch-f32"), "say sizes=20"),
    (pair(z((1, 32)), z(32), sampler="torch-f32", sizes="20+16"), "add up to 36"),
    (pair(z((1, 16)) + 0.1, z(16), sampler="torch-f32"), "is not a float32 number"),
    (pair(z((1, 16)), z(16) + 1e39, sampler="torch-f32"), "above the largest float32"),
    (lambda: PairInversion(sampler="numpy-legacy", offset=True), "offset=True"),
    (lambda: PairInversion(sampler="torch-f32", sizes=(16, 0)), "whole numbers above 0"),
    (lambda: PEAK.score(t(3, 64), t(2, 4, 64)), "3 releases"),
    (lambda: RATIO.posterior(t(2, 64), t(3, 64), torch.tensor([1, -1, 1.0])), "≥ 0"),
    (lambda: RATIO.posterior(t(2, 64), t(3, 64), t(3)), "above 0"),
    (lambda: RATIO.posterior(t(0, 64), t(3, 64)), "one of each"),
    (lambda: log_tilt(t(1), sigma=0.0, beta=1.0, gamma=1.0), "sigma"),
    (lambda: log_tilt(t(1), sigma=1.0, beta=-1.0, gamma=1.0), "beta"),
    (lambda: log_tilt(t(1), sigma=1.0, beta=1.0, gamma=math.inf), "gamma"),
    (lambda: BIN.posterior(t(0, 64), MissingRecord(t(64))), "at least 1"),
    (lambda: BIN.posterior(t(2, 64), MissingRecord(t(64), none=True), t(64)), r"shape \(65,\)"),
    (lambda: NORM.score(t(4, 3), t(3, 2, 3)), "candidates for 3 releases"),
    (lambda: NormReader(key=PLAIN_KEY, sigma=1.0, bits=30), "bits=30"),
    (lambda: SEED.read(z((4, 30)) + nan), "NaN"),
    (lambda: SEED.noise(z((4, 30)) + math.inf), "residuals"),
    (lambda: SeedReader(key=SEED_KEY, code="head").read(z((4, 30))), "only code=fraction"),
    (lambda: SEED.unknown(z((4, 30)), norm=0), "norm=0"),
    *((unknown(index), "unknown_index") for index in ([0.5], np.array([], dtype=int), [[1]])),
    (unknown([30]), "from 0 to 29"),
    *(
        (lambda o={name: value}: SeedReader(key=SEED_KEY, **o), f"{name}={value}")
        for name, value in (("blur", -1.0), ("blur", "x"), ("tries", 0), ("tries", True))
    ),
    (lambda: SeedReader(key=SEED_KEY, nonce_bits=9), "nonce_bits=9"),
    (lambda: MEMBER.score(t(64), Canaries(t(0, 64))), "0 canaries"),
    (lambda: MEMBER.score(t(64), Canaries(t(2, 64) + nan)), "NaN"),
    (lambda: MEMBER.score(t(64) + math.inf, Canaries(t(2, 64))), "rest"),
    (lambda: MEMBER.score(KnownBatch(t(64), t(2)), Canaries(t(2, 64))), "one bool per canary"),
    (phases(unknown_index=torch.tensor([1, 1])), "different numbers"),
    (phases(bound=1), "bound=1"),
    (phases(lowest=0.5), "whole number"),
    (phases(releases=t(0, 64)), "at least 1"),
    (phases(unknown_index=torch.arange(60), bound=1000), "fewer bins"),
    (lambda: ReportReader().read(REPORTS, mechanism=SKETCH, objects=PLAYERS), "needs the key"),
    (lambda: SensitivityProbes(kind="rounding").pairs(), "kind=rounding"),
    (lambda: SensitivityProbes(kind="saturation").pairs(), "kind=saturation"),
    (learn(z((200, 2)), z((50, 2)), (z(1), np.ones(1)), Timing()), "draw more"),
    (learn(z((200, 2)), z((200, 2)) + nan, (z(1), np.ones(1)), Timing()), "NaN"),
]


@pytest.mark.parametrize(("call", "says"), BAD)
def test_numbers_that_make_no_sense_are_refused(call, says):
    with pytest.raises(UsageError, match=says):
        call()
