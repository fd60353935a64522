"""Runs an ε audit of a mechanism named by the user, or of an opened one."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.audit.epsilon.attacks import NamedAttack, named_attack
from dpaudit.audit.epsilon.one_run import SCORES, audit_scores
from dpaudit.audit.epsilon.pair import audit_pair, run_probes
from dpaudit.audit.options import (
    DEFAULT_RELEASES,
    MechanismOptions,
    PrivacyClaim,
    Progress,
    fresh_seed,
)
from dpaudit.errors import UsageError
from dpaudit.interfaces import Mechanism, ProbingAttack
from dpaudit.results.arrays import read_npy
from dpaudit.samplers.resolve import open_mechanism
from dpaudit.samplers.sandbox.policy import joined
from dpaudit.types import MechanismResult

__all__ = ["audit_mechanism", "audit_named", "parse_neighbours", "run_mechanism_audit"]

Vector = npt.NDArray[np.float64]
_HOW = "write two numbers as 0,1, two vectors as '0,0,0;1,0,0', or two files as a.npy;b.npy"
_REACH = "reach"
"""The attack that every audit without a named one also uses, if it is installed."""


def audit_mechanism(
    name: str,
    *,
    claim_epsilon: float,
    claim_delta: float,
    claim_mu: float | None = None,
    neighbours: str | None = None,
    attack: str | None = None,
    samples: int = DEFAULT_RELEASES,
    alpha: float = 0.01,
    time_limit: float = 600.0,
    seed: int | str | None = None,
    real_numbers: bool = False,
    guesses: int | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit a whole mechanism, named as on the command line (``numpy:laplace:scale=1``, …).

    ``samples`` releases are drawn at each of the two ``neighbours`` (see :func:`parse_neighbours`),
    half to learn events from, half to count them in. ``attack``, ``NAME[:option=value,…]``, says
    instead what to look at: a support attack has fixed events, counted in all releases; a learning
    attack learns from the first half; a probing attack brings the neighbours itself. With
    ``real_numbers``, findings in the last bits of releases are advisory only. ``scores:FILE`` is a
    one-run audit (:func:`~dpaudit.audit.epsilon.one_run.audit_scores`), which may make ``guesses``
    guesses, a number chosen beforehand.

    Formal guarantee: see :class:`~dpaudit.types.MechanismResult`.

    Raises:
        UsageError: an unknown name, or a claim, neighbours, attack, α, time limit or sample size
            that does not fit.
        SamplerError: the mechanism died, did not respond, or released something that is no number.
        DpauditError: the attack failed.
    """
    claim = PrivacyClaim(claim_epsilon, claim_delta, claim_mu)
    options = MechanismOptions(
        samples=samples,
        alpha=alpha,
        time_limit=time_limit,
        seed=fresh_seed(seed),
        real_numbers=real_numbers,
    )
    return audit_named(
        name,
        claim=claim,
        neighbours=neighbours,
        attack=attack,
        options=options,
        guesses=guesses,
        progress=progress,
    )


def audit_named(
    name: str,
    *,
    claim: PrivacyClaim,
    neighbours: str | None = None,
    attack: str | None = None,
    options: MechanismOptions,
    guesses: int | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Open a mechanism by its name, audit it, close it; errors as in :func:`audit_mechanism`."""
    alpha, seed = options.alpha, options.seed
    claimed = ["--claim-epsilon", f"{claim.epsilon!r}", *_option("--claim-mu", claim.mu)]
    words = ["dpaudit", "mechanism", name, *claimed]
    words += ["--claim-delta", f"{claim.delta!r}", "--alpha", f"{alpha!r}", "--seed", seed]
    if name.startswith(SCORES):
        for option, given in (("neighbours", neighbours), ("attack", attack)):
            if given is not None:
                raise UsageError(
                    f"{option}={given}: recorded scores have none; leave --{option} out"
                )
        path = Path(name.removeprefix(SCORES))
        result = audit_scores(path, claim=claim, alpha=alpha, seed=seed, guesses=guesses)
        return _reproducible(result, [*words, *_option("--guesses", guesses)])
    if guesses is not None:
        raise UsageError(
            f"guesses={guesses}: belongs to a one-run audit of scores:FILE; leave --guesses out"
        )
    named = None if attack is None else named_attack(attack, mechanism=name)
    pair = None if neighbours is None else parse_neighbours(neighbours)
    _check_neighbours(pair, named, shown=str(neighbours), name=name)
    with joined() as sandbox, open_mechanism(name, seed=seed) as mechanism:
        result = run_mechanism_audit(
            mechanism,
            claim=claim,
            neighbours=pair,
            attack=named,
            options=options,
            progress=progress,
        )
    result = dataclasses.replace(result, sandbox=sandbox.reached)
    words += [*_option("--neighbours", neighbours), *_option("--attack", attack)]
    words += ["--samples", str(options.samples)]
    return _reproducible(result, [*words, *(["--real-numbers"] if options.real_numbers else [])])


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]


def _reproducible(result: MechanismResult, words: list[str]) -> MechanismResult:
    """The result with the command that reproduces its findings: the whole audit, for one α."""
    command = shlex.join(words)
    tests = tuple(
        dataclasses.replace(t, reproduce=command) if t.finding else t for t in result.tests
    )
    return dataclasses.replace(result, tests=tests)


def run_mechanism_audit(
    mechanism: Mechanism,
    *,
    claim: PrivacyClaim,
    neighbours: tuple[Vector, Vector] | None,
    attack: str | NamedAttack | None = None,
    options: MechanismOptions,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at ``neighbours``, two query results (m,), or at an attack's own.

    Otherwise as :func:`audit_mechanism`; see :func:`~dpaudit.audit.epsilon.pair.audit_pair` for the
    time limit.
    """
    named = named_attack(attack, mechanism=mechanism.name) if isinstance(attack, str) else attack
    _check_neighbours(neighbours, named, shown=str(neighbours), name=mechanism.name)
    reach = _reach() if named is None or neighbours is None else None
    if neighbours is not None:
        return audit_pair(
            mechanism,
            neighbours=neighbours,
            claim=claim,
            options=options,
            attack=named,
            reach=reach,
            progress=progress,
        )
    assert named is not None  # noqa: S101 checked above
    return run_probes(
        mechanism, attack=named, claim=claim, options=options, reach=reach, progress=progress
    )


def _check_neighbours(pair: object, attack: NamedAttack | None, *, shown: str, name: str) -> None:
    probing = attack is not None and isinstance(attack.does, ProbingAttack)
    if probing and pair is not None and attack is not None:
        raise UsageError(
            f"neighbours={shown}: {attack.text} brings its own; leave --neighbours out"
        )
    if not probing and pair is None:
        raise UsageError(
            f"neighbours=None: {name} is compared at two query results; write e.g. --neighbours 0,1"
        )


def _reach() -> NamedAttack | None:
    return named_attack(_REACH) if _REACH in registry.plugins("attacks") else None


def parse_neighbours(text: str) -> tuple[Vector, Vector]:
    """Two query results of equal length (m,): ``0,1``, ``0,0,0;1,0,0``, or ``a.npy;b.npy``.

    A semicolon divides the two, commas the coordinates; without a semicolon, a comma divides two
    numbers (or files).

    Raises:
        UsageError: not two, different lengths, not finite numbers, or equal to each other.

    >>> parse_neighbours("0,1")
    (array([0.]), array([1.]))
    """
    parts = text.split(";") if ";" in text else text.split(",")
    if len(parts) != 2:
        raise UsageError(f"neighbours={text}: {len(parts)} were given, wanted two; {_HOW}")
    first, second = (_vector(part.strip(), text) for part in parts)
    if len(first) != len(second):
        raise UsageError(
            f"neighbours={text}: lengths {len(first)} and {len(second)} differ; {_HOW}"
        )
    if np.array_equal(first, second):
        raise UsageError(
            f"neighbours={text}: they are equal (as float64), so nothing could tell them apart; "
            f"{_HOW}"
        )
    return first, second


def _vector(part: str, text: str) -> Vector:
    try:
        if part.endswith(".npy"):
            vector = np.atleast_1d(read_npy(Path(part), name="neighbours").astype(np.float64))
        else:
            vector = np.array([float(x) for x in part.split(",")])
    except UsageError:
        raise
    except ValueError:
        raise UsageError(f"neighbours={text}: {part!r} is no list of numbers; {_HOW}") from None
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise UsageError(f"neighbours={text}: {part!r} must be one row of finite numbers; {_HOW}")
    return vector
