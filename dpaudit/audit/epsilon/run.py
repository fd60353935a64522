"""``dpaudit mechanism``: from what the user names, or an opened mechanism, to an audit."""

from __future__ import annotations

import dataclasses
import secrets
import shlex
from pathlib import Path

from dpaudit import registry
from dpaudit.audit.epsilon.attacks import Named, named_attack
from dpaudit.audit.epsilon.draws import Array
from dpaudit.audit.epsilon.judge import Claimed
from dpaudit.audit.epsilon.neighbours import parse_neighbours
from dpaudit.audit.epsilon.pair import DEFAULT_SAMPLES, Progress, audit_pair, check
from dpaudit.audit.epsilon.probes import run_probes
from dpaudit.audit.epsilon.recorded import SCORES, audit_scores
from dpaudit.errors import UsageError
from dpaudit.interfaces import Mechanism, ProbingAttack
from dpaudit.samplers.mechanism import open_mechanism
from dpaudit.samplers.sandbox.policy import joined
from dpaudit.types import MechanismResult

__all__ = ["audit_mechanism", "run_mechanism_audit"]

_REACH = "reach"
"""The attack that every audit without a named one looks through as well, where it is installed."""


def audit_mechanism(
    name: str,
    *,
    claim_epsilon: float,
    claim_delta: float,
    claim_mu: float | None = None,
    neighbours: str | None = None,
    attack: str | None = None,
    samples: int = DEFAULT_SAMPLES,
    alpha: float = 0.01,
    time_limit: float = 600.0,
    seed: int | str | None = None,
    real_numbers: bool = False,
    guesses: int | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit a whole mechanism, named as on the command line (``numpy:laplace:scale=1``, ``scores:FILE``, …).

    ``samples`` releases are drawn at each of the two ``neighbours`` (see
    :func:`~dpaudit.audit.epsilon.neighbours.parse_neighbours`), half to learn events from, half to count them in.
    ``attack``, ``NAME[:option=value,…]``, says instead what to look at: a support attack has fixed events, counted in
    all releases; a learning attack learns from the first half; a probing attack brings the neighbours itself.
    ``real_numbers``: what the last bits of releases show is reported, but is no finding. ``scores:FILE`` is a one-run
    audit (:func:`~dpaudit.audit.epsilon.recorded.audit_scores`).

    Formal guarantee: see :class:`~dpaudit.types.MechanismResult`.

    Raises:
        UsageError: an unknown name, or a claim, neighbours, attack, α, time limit or sample size that does not fit.
        SamplerError: the mechanism died, kept silent, or released something that is no number.
        DpauditError: the attack failed.
    """
    used = secrets.token_hex(8) if seed is None else str(seed)
    claimed = Claimed(claim_epsilon, claim_delta, claim_mu)
    check(claimed, alpha=alpha, time_limit=time_limit, samples=samples)
    words = ["dpaudit", "mechanism", name, "--claim-epsilon", f"{claim_epsilon!r}", *_option("--claim-mu", claim_mu)]
    words += ["--claim-delta", f"{claim_delta!r}", "--alpha", f"{alpha!r}", "--seed", used]
    if name.startswith(SCORES):
        for option, given in (("neighbours", neighbours), ("attack", attack)):
            if given is not None:
                raise UsageError(f"{option}={given}: recorded scores have none; leave --{option} out")
        path = Path(name.removeprefix(SCORES))
        result = audit_scores(path, claimed=claimed, alpha=alpha, seed=used, guesses=guesses)
        return _reproducible(result, [*words, *_option("--guesses", guesses)])
    if guesses is not None:
        raise UsageError(f"guesses={guesses}: belongs to a one-run audit of scores:FILE; leave --guesses out")
    named = None if attack is None else named_attack(attack, mechanism=name)
    pair = None if neighbours is None else parse_neighbours(neighbours)
    _check_neighbours(pair, named, shown=str(neighbours), name=name)
    with joined() as sandbox, open_mechanism(name, seed=used) as mechanism:
        result = run_mechanism_audit(
            mechanism,
            neighbours=pair,
            claimed=claimed,
            samples=samples,
            alpha=alpha,
            time_limit=time_limit,
            seed=used,
            real_numbers=real_numbers,
            attack=named,
            progress=progress,
        )
    result = dataclasses.replace(result, sandbox=sandbox.reached)
    words += [*_option("--neighbours", neighbours), *_option("--attack", attack), "--samples", str(samples)]
    return _reproducible(result, [*words, *(["--real-numbers"] if real_numbers else [])])


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]


def _reproducible(result: MechanismResult, words: list[str]) -> MechanismResult:
    """The same with the command that shows its findings again: the whole audit, whose α they share."""
    command = shlex.join(words)
    tests = tuple(dataclasses.replace(t, reproduce=command) if t.finding else t for t in result.tests)
    return dataclasses.replace(result, tests=tests)


def run_mechanism_audit(
    mechanism: Mechanism,
    *,
    neighbours: tuple[Array, Array] | None,
    claimed: Claimed,
    seed: str,
    samples: int = DEFAULT_SAMPLES,
    alpha: float = 0.01,
    time_limit: float = 600.0,
    real_numbers: bool = False,
    attack: str | Named | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at ``neighbours``, two query results (m,), or at those that a probing attack brings.

    Otherwise as :func:`audit_mechanism`; see :func:`~dpaudit.audit.epsilon.pair.audit_pair` for what happens at the time
    limit.
    """
    named = named_attack(attack, mechanism=mechanism.name) if isinstance(attack, str) else attack
    _check_neighbours(neighbours, named, shown=str(neighbours), name=mechanism.name)
    if neighbours is not None:
        return audit_pair(
            mechanism,
            neighbours=neighbours,
            claimed=claimed,
            samples=samples,
            alpha=alpha,
            time_limit=time_limit,
            seed=seed,
            real_numbers=real_numbers,
            attack=named,
            reach=_reach() if named is None else None,
            progress=progress,
        )
    assert named is not None  # noqa: S101 checked above
    return run_probes(
        mechanism,
        attack=named,
        claimed=claimed,
        samples=samples,
        alpha=alpha,
        time_limit=time_limit,
        seed=seed,
        real_numbers=real_numbers,
        reach=_reach(),
        progress=progress,
    )


def _check_neighbours(pair: object, attack: Named | None, *, shown: str, name: str) -> None:
    probing = attack is not None and isinstance(attack.does, ProbingAttack)
    if probing and pair is not None and attack is not None:
        raise UsageError(f"neighbours={shown}: {attack.text} brings its own; leave --neighbours out")
    if not probing and pair is None:
        raise UsageError(f"neighbours=None: {name} is compared at two query results; write e.g. --neighbours 0,1")


def _reach() -> Named | None:
    return named_attack(_REACH) if _REACH in registry.plugins("attacks") else None
