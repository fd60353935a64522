"""Conformance checks for plug-ins; every built-in plug-in passes its own.

Each ``check_*`` raises ``AssertionError`` with what is wrong, or an error of :mod:`dpaudit.errors`
that the plug-in caused, and returns nothing. Use them in your own tests::

    from dpaudit.testing import check_attack

    def test_my_attack(): check_attack(MyAttack(...), dim=64)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from dpaudit.claims import Claim
from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import tensor, to_numpy
from dpaudit.protocols import Array as Either
from dpaudit.protocols import (
    Attack,
    Host,
    Kind,
    LearningAttack,
    LocalMechanism,
    Mitigation,
    NoiseSource,
    ReleasingSource,
    Request,
    SubmissionPolicy,
    Target,
    Test,
    UnitSupport,
    plays,
)
from dpaudit.randomness import KeyedStream
from dpaudit.stats import binomial_two_sided

__all__ = [
    "check_attack",
    "check_host",
    "check_learning_attack",
    "check_local_mechanism",
    "check_mitigation",
    "check_noise_source",
    "check_releasing_source",
    "check_submission_policy",
    "check_support_attack",
    "check_target",
    "check_test",
]

Array = npt.NDArray[np.float64]


def _require(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _require_members(plugin: object, protocol: type) -> None:
    own = {n for c in protocol.__mro__ for n in (*vars(c), *getattr(c, "__annotations__", ()))}
    lacking = ", ".join(sorted(n for n in own if n[:1] != "_" and not hasattr(plugin, n)))
    _require(isinstance(plugin, protocol), f"{plugin!r} lacks {lacking} of {protocol.__name__}")


def _torch_dtypes() -> tuple[Any, ...]:
    """Types of torch's to ask for, where torch is installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return ()
    return (torch.float32,)


def check_noise_source(source: NoiseSource, *, dim: int = 64) -> None:
    """Check shapes, dtypes, reproducibility by stream, the ``claim`` string and its rough scale.

    Not checked: that the noise has the claimed law; that is what an audit is for.
    """
    _require_members(source, NoiseSource)
    claim = Claim.parse(source.claim)
    _require(
        math.isclose(claim.standard_deviation, source.sigma, rel_tol=1e-9),
        "claim and sigma disagree",
    )
    d = source.dim or dim
    stream = KeyedStream.from_seed("conformance")
    one = source.sample(300, d, stream=stream.child(1))
    _require(isinstance(one, np.ndarray), f"expected an array, got a {type(one).__name__}")
    _require(
        one.shape == (300, d) and one.dtype == np.float64,
        f"expected float64 (300, {d}), got {one.dtype} {one.shape}",
    )
    _require(bool(np.isfinite(one).all()), "noise is not finite")
    _require(
        np.array_equal(one, source.sample(300, d, stream=stream.child(1))),
        "the same stream gave other noise",
    )
    _require(
        not np.array_equal(one, source.sample(300, d, stream=stream.child(2))),
        "another stream gave the same noise",
    )
    for dtype in (np.float32, *_torch_dtypes()):
        narrow = source.sample(2, d, stream=stream, dtype=dtype)
        _require(narrow.dtype == dtype, f"dtype={dtype} is not respected: {narrow.dtype}")
    ratio = float(one.std()) / source.sigma
    _require(
        abs(ratio - 1) < 8 / math.sqrt(2 * one.size) + 0.02,
        f"scale is {ratio:.3f} × the claimed sigma",
    )


def check_host(host: Host) -> None:
    """Check that pairs have the right shape, lie within the sensitivity, and repeat by stream."""
    _require_members(host, Host)
    stream = KeyedStream.from_seed("conformance")
    pairs = to_numpy(host.neighbours(8, stream=stream.child(1)))
    _require(
        pairs.shape == (8, 2, host.dim) and pairs.dtype == np.float64,
        f"pairs are {pairs.dtype} {pairs.shape}",
    )
    distance = np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)
    _require(
        bool((distance <= host.sensitivity * (1 + 1e-9)).all()),
        f"a pair is {float(distance.max())} apart, above Δ",
    )
    _require(bool((distance > 0).any()), "no pair differs")
    _require(
        np.array_equal(pairs, to_numpy(host.neighbours(8, stream=stream.child(1)))),
        "the same stream gave other pairs",
    )
    direction = np.zeros(host.dim)
    direction[0] = 1
    differences = host.differences(direction)
    _require(
        differences.ndim == 1 and len(differences) > 0, "differences must be a non-empty vector"
    )
    _require(
        bool((abs(differences) <= host.sensitivity * (1 + 1e-9)).all()),
        "a difference exceeds the sensitivity",
    )
    if hasattr(host, "slack"):
        _require(0 <= float(host.slack(direction)) < math.inf, "slack must be a finite number ≥ 0")


def check_mitigation(mitigation: Mitigation, source: NoiseSource, *, dim: int = 64) -> None:
    """Check shape, dtype, an untouched query, no bias, and the error of ``scale`` (within 2 %)."""
    _require_members(mitigation, Mitigation)
    d = source.dim or dim
    stream = KeyedStream.from_seed("conformance")
    query = np.arange(400 * d, dtype=np.float64).reshape(400, d)
    before = query.copy()
    release = mitigation.release(query, source, stream=stream.child(1))
    _require(np.array_equal(query, before), "the query was changed in place")
    _require(isinstance(release, np.ndarray), f"an array became a {type(release).__name__}")
    _require(
        release.shape == query.shape and release.dtype == query.dtype, "shape or dtype changed"
    )
    _require(
        np.array_equal(release, mitigation.release(query, source, stream=stream.child(1))),
        "not reproducible",
    )
    for dtype in _torch_dtypes():
        some = mitigation.release(tensor(query[:2]).to(dtype), source, stream=stream.child(2))
        _require(getattr(some, "dtype", None) == dtype, f"a tensor of {dtype} became another type")
    noise = release - query
    scale = mitigation.scale(source.sigma)
    _require(
        abs(float(noise.std(ddof=1)) / scale - 1) < 0.02,
        f"error is {float(noise.std(ddof=1)):.4g} per value, scale says {scale:.4g}",
    )
    _require(abs(float(noise.mean())) < 6 * scale / math.sqrt(noise.size), "the release is biased")


def check_attack(attack: Attack, *, dim: int, candidates: int = 3) -> None:
    """Check that scores have shape (t, m), follow the candidates' order and leave inputs untouched.

    Candidates are given as one list, and as one list per release.
    """
    _require(plays(attack, "scoring"), f"{attack!r} lacks score, or scoring in games")
    rng = KeyedStream.from_seed("conformance").numpy()
    y = rng.standard_normal((5, dim))
    q = rng.standard_normal((candidates, dim))
    y0, q0 = y.copy(), q.copy()

    def scored(releases: Array, among: Array) -> Array:
        return to_numpy(attack.score(releases, among))

    scores = scored(y, q)
    _require(
        scores.shape == (5, candidates),
        f"scores have shape {scores.shape}, expected (5, {candidates})",
    )
    _require(np.array_equal(y, y0) and np.array_equal(q, q0), "inputs were changed in place")
    _require(
        np.allclose(scores, scored(y, np.tile(q, (5, 1, 1)))),
        "(m, d) and (t, m, d) candidates disagree",
    )
    flipped = scored(y, q[::-1].copy())[:, ::-1]
    _require(np.allclose(scores, flipped), "scores depend on the candidates' order")
    _require(np.allclose(scores[2:3], scored(y[2:3], q)), "scores depend on the other releases")
    if _torch_dtypes():
        tensors = to_numpy(attack.score(tensor(y), tensor(q)))
        _require(np.allclose(scores, tensors), "scores of arrays and of tensors disagree")


def check_releasing_source(source: ReleasingSource, query: Either) -> None:
    """Check releases of ``query`` (n, d): shape and dtype, an untouched query, fixed by stream."""
    _require_members(source, ReleasingSource)
    stream, before = KeyedStream.from_seed("conformance"), to_numpy(query).copy()
    released = source.release(query, stream=stream.child(1))

    def again(label: int) -> Array:
        return to_numpy(source.release(query, stream=stream.child(label)))

    _require(type(released) is type(query), f"became a {type(released).__name__}")
    _require(np.array_equal(to_numpy(query), before), "the query was changed in place")
    _require(
        released.shape == query.shape and released.dtype == query.dtype, "shape or dtype changed"
    )
    _require(
        np.array_equal(again(1), to_numpy(released)),
        "the same stream gave another release",
    )
    _require(
        not np.array_equal(again(2), to_numpy(released)),
        "another stream gave the same release",
    )


def check_support_attack(attack: Attack, releases: Array, value: Array) -> None:
    """Check scores (t, u) of the support, untouched inputs, a possible truth, and NaN refused.

    ``releases`` (t, k) were made from ``value`` (k,) by the mechanism that the attack is for. Not
    checked: that any other value is ever ruled out.
    """
    _require(plays(attack, "support"), f"{attack!r} lacks score, or support in games")
    y, v = releases.copy(), value.copy()
    scores = np.asarray(attack.score(releases, UnitSupport(value)))
    _require(
        np.array_equal(y, releases) and np.array_equal(v, value), "inputs were changed in place"
    )
    _require(
        scores.ndim == 2 and len(scores) == len(releases) and scores.shape[1] >= 1,
        f"shape {scores.shape} is not (t, u)",
    )
    possible = scores == 0
    _require(
        scores.dtype.kind == "f" and (possible | np.isneginf(scores)).all(),
        f"{scores.dtype} scores other than 0 and -inf",
    )
    _require(
        bool(possible.all()),
        f"the truth was ruled out by {int((~possible).any(1).sum())} of {len(releases)} releases",
    )
    broken = releases.copy()
    broken[0, 0] = np.nan
    for bad, at in ((broken, value), (releases, value[:-1])):
        try:
            attack.score(bad, UnitSupport(at))
        except UsageError:
            continue
        raise AssertionError("NaN, or a value of another length, was not refused with a UsageError")


def check_learning_attack(
    attack: LearningAttack, first: Array, second: Array, *, neighbours: tuple[Array, Array]
) -> None:
    """Check that the statistic learnt at two ``neighbours`` judges each release by itself.

    From releases (t, k) it is of shape (t,), without NaN.
    """
    _require_members(attack, LearningAttack)
    a, b = first.copy(), second.copy()
    statistic = attack.learn(first, second, neighbours=neighbours)
    scores = statistic(second)
    _require(np.array_equal(a, first) and np.array_equal(b, second), "inputs were changed in place")
    _require(
        scores.shape == (len(second),),
        f"the statistic has shape {scores.shape}, expected ({len(second)},)",
    )
    _require(not np.isnan(scores).any(), "the statistic is not a number somewhere")
    _require(
        np.allclose(scores[3:5], statistic(second[3:5])),
        "a release's statistic depends on the other releases",
    )


def check_local_mechanism(mechanism: LocalMechanism, *, universe: int) -> None:
    """Check reports by stream, their likelihoods, and that no report separates objects by > ε.

    20,000 reports of two objects, each with the posterior that ``log_likelihood`` gives it: how
    often the first object is right must agree with the mean posterior, overall and weighted with
    posterior − ½ (sums of mean 0; 6 standard deviations). Not checked: that ``epsilon`` is the
    smallest such number, which would need all possible reports.
    """
    _require_members(mechanism, LocalMechanism)
    _require(mechanism.epsilon > 0, f"epsilon is {mechanism.epsilon}")
    stream = KeyedStream.from_seed("conformance")
    objects = np.arange(64, dtype=np.int64) % universe
    every = np.arange(universe, dtype=np.int64)
    one = mechanism.privatize(objects, stream=stream.child(1))
    _require(len(one) == len(objects), f"{len(one)} reports of {len(objects)} objects")
    again, other = (
        mechanism.log_likelihood(mechanism.privatize(objects, stream=stream.child(i)), every)
        for i in (1, 2)
    )
    likelihoods = mechanism.log_likelihood(one, every)
    _require(
        likelihoods.shape == (len(objects), universe),
        f"likelihoods have shape {likelihoods.shape}, expected (64, {universe})",
    )
    _require(np.array_equal(likelihoods, again), "the same stream gave other reports")
    _require(
        math.isinf(mechanism.epsilon) or not np.array_equal(likelihoods, other),
        "another stream gave the same reports",
    )
    apart = float((likelihoods.max(axis=1) - likelihoods.min(axis=1)).max())
    _require(
        apart <= mechanism.epsilon * (1 + 1e-9), f"two objects are {apart:.6g} apart, above epsilon"
    )
    picked = stream.child(3).numpy().integers(0, 2, 20_000)
    pair = np.array([0, universe - 1], dtype=np.int64)
    logs = mechanism.log_likelihood(mechanism.privatize(pair[picked], stream=stream.child(4)), pair)
    posterior = 1 / (1 + np.exp(np.clip(logs[:, 1] - logs[:, 0], -700, 700)))
    for weight in (np.ones(len(picked)), posterior - 0.5):
        surprise = ((picked == 0) - posterior) * weight
        spread = math.sqrt(float((posterior * (1 - posterior) * weight**2).sum())) + 1e-6
        _require(
            abs(float(surprise.sum())) < 6 * spread,
            "log_likelihood does not fit the reports that are sampled",
        )


def check_submission_policy(
    policy: SubmissionPolicy, mechanism: LocalMechanism, *, universe: int
) -> None:
    """Check reports and owners by stream, and that ε never falls with more objects or a smaller δ.

    If they are not ``linked``, other streams must put them in other orders. Not checked: that ε
    holds, nor that an order says nothing.
    """
    _require_members(policy, SubmissionPolicy)
    _require(bool(policy.trusts), "trusts is empty")
    _require(
        isinstance(policy.linked, bool), f"linked is {policy.linked!r}, expected True or False"
    )
    stream = KeyedStream.from_seed("conformance")
    objects = stream.child(0).numpy().integers(0, universe, (30, 8))
    before = objects.copy()
    reports, owners = policy.submit(objects, mechanism, stream=stream.child(1))
    again, same = policy.submit(objects, mechanism, stream=stream.child(1))
    every = np.arange(universe, dtype=np.int64)
    _require(np.array_equal(objects, before), "objects were changed in place")
    _require(
        len(reports) == len(owners) <= objects.size,
        f"{len(reports)} reports, {len(owners)} owners, {objects.size} objects",
    )
    _require(bool(((owners >= 0) & (owners < len(objects))).all()), "an owner is not a user")
    repeated = np.array_equal(
        mechanism.log_likelihood(reports, every), mechanism.log_likelihood(again, every)
    )
    _require(repeated and np.array_equal(owners, same), "the same stream gave other submissions")
    elsewhere = policy.submit(objects, mechanism, stream=stream.child(2))[1]
    _require(
        policy.linked or not np.array_equal(owners, elsewhere),
        "another stream gave the same order of owners",
    )
    spent = [policy.epsilon(mechanism, objects=n, users=1000, delta=1e-6) for n in (1, 2, 8, 64)]
    _require(
        0 <= spent[0] <= mechanism.epsilon * (1 + 1e-9) and spent == sorted(spent),
        f"ε of 1, 2, 8, 64 objects is {spent}",
    )
    _require(
        policy.epsilon(mechanism, objects=8, users=1000, delta=0.0) >= spent[2] * (1 - 1e-9),
        "δ = 0 costs less than δ > 0",
    )


def check_target(target: Target, *, dim: int = 8) -> None:
    """Check that a target of noise opens to a session that answers what it accepts.

    That is finite float64 blocks of the right shape, new at each call, timed or not. Looks at no
    law, and at no releases.
    """
    old = hasattr(target, "draw") and not hasattr(target, "open")
    hint = "; draw(n, d) is now ask(Request(n, dim)), of the session that open() gives"
    _check_members(target, ("name", "facts", "open"), hint if old else "")
    with target.open(timeout=60.0) as session:
        _check_members(session, ("name", "facts", "ask"), "; open() must yield a session")
        facts = session.facts
        unknown = set(facts.accepts) - set(get_args(Kind))
        _require(not unknown, f"accepts={sorted(unknown)}, wanted some of {get_args(Kind)}")
        _require("noise" in facts.accepts, f"accepts={sorted(facts.accepts)} lacks noise")
        d = facts.dim or dim
        requests = {
            "noise": Request(10, d),
            "noise in calls": Request(5, d, calls=2),
            "noise for a value": Request(10, d, 3.0),
        }
        kinds = ["noise", *(kind for kind in requests if kind in facts.accepts)]
        replies = [session.ask(requests[kind], timeout=60.0) for kind in kinds]
    blocks = [reply.values for reply in replies]
    for kind, block, reply in zip(kinds, blocks, replies, strict=True):
        _require(
            block.shape == (10, d) and block.dtype == np.float64,
            f"{kind}: {block.dtype} {block.shape}, wanted float64 {(10, d)}",
        )
        _require(bool(np.isfinite(block).all()), f"{kind}: values are not finite")
        calls = requests[kind].calls
        timed = reply.seconds is not None and reply.seconds.shape == (calls,)
        _require(
            calls is None or timed, f"{kind}: seconds={reply.seconds}, wanted shape ({calls},)"
        )
    same = any(np.array_equal(a, b) for a, b in itertools.combinations(blocks, 2))
    _require(not same, "two calls gave the same values")


def _check_members(plugin: object, members: Sequence[str], hint: str) -> None:
    lacking = [name for name in members if not hasattr(plugin, name)]
    _require(not lacking, f"{type(plugin).__name__} lacks {', '.join(lacking)}{hint}")


class _Block:
    """The least a test needs to see."""

    def __init__(self, call: int, z: np.ndarray[Any, np.dtype[np.float64]], cells: int) -> None:
        self.call, self.values, self.z = call, z, z
        self.calls, self.process, self.value, self.seconds = 1, 0, 0.0, None
        index = np.clip(z.ravel() * (cells / 16) + cells / 2, 0, cells - 1).astype(np.int64)
        self.cells = np.bincount(index, minlength=cells)


def check_test(
    make: Callable[[Claim, KeyedStream], Test], *, repeats: int = 400, samples: int = 6_400
) -> None:
    """Check that p-values on honest N(0, 1) noise are ≤ 0.05 and ≤ 0.2 no more often than valid.

    ``make`` is the test's factory. Fails an invalid test with high probability if its true level at
    0.05 is above about 0.10; fails a valid one with probability at most 10^-6 (fixed seed).
    """
    claim = Claim.parse("gaussian:sigma=1")
    p = []
    for i in range(repeats):
        stream = KeyedStream.from_seed("conformance").child(i)
        test = make(claim, stream.child("test"))
        _require_members(test, Test)
        rng = stream.numpy()
        for call in range(4):
            test.update(_Block(call, rng.standard_normal((samples // 64, 16)), 1 << 14))
        evidence = test.evidence(alpha=0.01)
        _require(0 <= evidence.p <= 1, f"p={evidence.p} is not a probability")
        p.append(evidence.p)
    for level in (0.05, 0.2):
        low = sum(x <= level for x in p)
        _require(
            low <= level * repeats or binomial_two_sided(low, repeats, level) > 1e-6,
            f"{low} of {repeats} p-values on honest noise are ≤ {level}",
        )
