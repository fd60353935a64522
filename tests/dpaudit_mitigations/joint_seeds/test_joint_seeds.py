"""The mitigation: its law is the protocol's; what it leaves a key holder; the lab specimen."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.interfaces import ProtocolMitigation
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.registry import create
from dpaudit.stats import clopper_pearson
from dpaudit.testing import check_mitigation
from dpaudit.vectors.lattice import lattice_step
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio
from dpaudit_mitigations.joint_seeds.mitigation import JointSeeds
from dpaudit_mitigations.joint_seeds.transcript import verify, write


@pytest.mark.parametrize("mitigation", [JointSeeds(), JointSeeds(candidates=2, deviate=True)])
def test_conforms(mitigation, make_key):
    check_mitigation(mitigation, Gaussian(sigma=2.0))
    check_mitigation(mitigation, Pancake(key=make_key(), sigma=2.0))
    assert isinstance(mitigation, ProtocolMitigation)
    assert isinstance(create("mitigations", "joint-seeds:candidates=3"), JointSeeds)


def test_release_has_the_law_of_the_protocol_and_lies_on_its_lattice(stream):
    query = torch.linspace(-50, 50, 20_000, dtype=torch.float64)[None]
    step = lattice_step(3.0)
    session = JointSeeds(candidates=2).sessions(query, Gaussian(sigma=3.0), stream=stream)[-1]
    released = (
        JointSeeds(candidates=2).release(query, Gaussian(sigma=3.0), stream=stream)[0].numpy()
    )
    rounded = np.rint(query[0].numpy() / step) * step
    for values in (session.release, released):
        assert np.array_equal(values / step, np.rint(values / step))
        assert scipy.stats.kstest((values - rounded) / 3.0, "norm").pvalue > 1e-3
    assert not np.array_equal(session.release, released)


def test_rehearsal_runs_the_protocol_whose_transcript_holds(stream, tmp_path):
    query, mitigation = torch.zeros(1, 500), JointSeeds(candidates=5)
    rehearsal = mitigation.rehearse(query, Gaussian(), stream=stream)
    assert set(rehearsal.seconds) == {"server", "verifier", "total"}
    assert 500 * 8 + 5 * 700 < rehearsal.wire < 500 * 8 + 5 * 900 + 4000
    (session,) = mitigation.sessions(query, Gaussian(), stream=stream)
    write(session.record, tmp_path / "t.json")
    assert verify(tmp_path / "t.json").holds


def shares(mitigation, key, stream, trials=3000):
    source = Pancake(key=key, sigma=1.0)
    shift = torch.from_numpy(np.array(key.direction)) * 0.5 * source.spacing
    q = torch.stack([torch.zeros(key.dim, dtype=torch.float64), shift])
    truth = torch.arange(trials) % 2
    y = mitigation.release(q[truth], source, stream=stream)
    right = int((LikelihoodRatio(key=key, sigma=1.0).score(y, q).argmax(1) == truth).sum())
    return clopper_pearson(right, trials, confidence=0.999), source.spacing


def test_a_key_holder_is_left_with_one_kth(make_key, stream):
    key = make_key(beta=1e-3)
    honest, spacing = shares(JointSeeds(), key, stream)
    # what the shift gives away in honest noise, to its best test
    alone = scipy.stats.norm.cdf(0.25 * spacing)
    assert honest.low <= alone
    assert honest.high >= 0.5
    for k in (2, 5):
        deviating, _ = shares(JointSeeds(candidates=k, deviate=True), key, stream)
        assert deviating.low <= 1 / k + (1 - 1 / k) * alone
        assert deviating.high >= 1 / k + (1 - 1 / k) * 0.5
        assert deviating.low > honest.high


def test_the_specimen_is_released_in_one_session_of_k_and_never_after_it_was_caught(
    make_key, stream
):
    source = Pancake(key=make_key(beta=1e-3), sigma=1.0)
    w, released, ends = torch.from_numpy(np.array(source.key.direction)), [], []
    for i in range(90):
        sessions = JointSeeds(candidates=3, deviate=True).sessions(
            torch.zeros(1, 64, dtype=torch.float64), source, stream=stream.child(i)
        )
        ends.append([s.outcome for s in sessions])
        turns = float(torch.from_numpy(sessions[-1].release) @ w) / source.spacing
        released.append(abs(turns - round(turns)) < 0.01)
        if len(sessions) == 2:
            assert sessions[1].record.terms.previous == sessions[0].record.head
            assert sessions[0].release is None
    assert {tuple(end) for end in ends} == {("complete",), ("caught", "complete")}
    lucky = np.array([len(end) == 1 for end in ends])
    assert np.array(released)[lucky].all()
    assert np.array(released)[~lucky].mean() < 0.1
    interval = clopper_pearson(int(lucky.sum()), 90, confidence=0.999)
    assert interval.low <= 1 / 3 <= interval.high


def test_epsilon(make_key):
    host = Histogram()
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=22.4)
    own = JointSeeds().epsilon(pancake, 1e-10, host=host)
    assert own == SecureGaussian(sigma=22.4).epsilon(1e-10, host=host)
    deviating = JointSeeds(deviate=True).epsilon(pancake, 1e-10, host=host)
    assert deviating.low == pancake.epsilon(1e-9, host=host).low
    assert deviating.high > pancake.epsilon(1e-10, host=host).low
    # one session in ten is less than δ
    rare = JointSeeds(deviate=True).epsilon(pancake, 0.2, host=host)
    assert rare.low < 1
    honest = JointSeeds(deviate=True).epsilon(Gaussian(sigma=22.4), 1e-10, host=host)
    assert own.low * 0.99 < honest.low <= own.low
    assert honest.high == pytest.approx(own.high, rel=1e-3)


@pytest.mark.parametrize("candidates", [1, 257, 2.0, True, "3"])
def test_bad_options(candidates):
    with pytest.raises(UsageError, match="candidates="):
        JointSeeds(candidates=candidates)


def test_bad_queries(stream):
    for query, says in (
        (torch.full((2, 3), math.nan), "NaN"),
        (torch.ones(2, 3, dtype=torch.int64), "floating-point query"),
        (torch.ones(3), "one row per release"),
        (torch.full((1, 3), 1e30, dtype=torch.float64), "clip|take a coarser"),
    ):
        for mitigation in (JointSeeds(), JointSeeds(deviate=True, candidates=2)):
            for work in (mitigation.release, mitigation.rehearse):
                with pytest.raises(UsageError, match=says):
                    work(query, Gaussian(), stream=stream)
    with pytest.raises(UsageError, match="one row"):
        JointSeeds().rehearse(torch.zeros(2, 3), Gaussian(), stream=stream)
