"""DP-FTRL runs: accuracy at equal ε, what a key holder reads in them, audits of whitened noise."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit import audit_sampler
from dpaudit.errors import SpecError
from dpaudit.experiments.arm import Arm
from dpaudit.experiments.measure import Cell, Grid, Measure, Table, grouped
from dpaudit.experiments.trials import interval
from dpaudit.numeric.arrays import to_numpy
from dpaudit.protocols import Attack, Stream
from dpaudit_deployments.ftrl.factorisation import Factorisation, factorisation
from dpaudit_deployments.ftrl.host import Contribution, DpFtrl, Run

__all__ = [
    "ATTACK",
    "AUDIT",
    "UTILITY",
    "Correlated",
    "WhitenedGrid",
    "attack",
    "audit",
    "flawed",
    "pure_rows",
    "read_updates",
    "utility",
]

_SETTING = ("factorisation", "epsilon", "source", "mitigation")


class FtrlGrid(Grid, frozen=True):
    """``run`` numbers a repetition, with noise of its own."""

    run: int


def utility(cell: Cell, arm: Arm) -> dict[str, Any]:
    """One whole training of the host dp-ftrl, and what its noise is.

    ``multiplier`` is σ over the clipping norm; ``root_error`` the root mean squared error of a
    prefix sum of updates, over the clipping norm; ``spent`` the ε of the Gaussian mechanism that
    the run is, from σ and the sensitivity.

    Raises:
        SpecError: another host.
    """
    host = arm.host
    if not isinstance(host, DpFtrl):
        raise SpecError("measure=dp-ftrl: needs the host dp-ftrl")
    sigma, delta = arm.mitigation.scale(arm.sigma), cell.settings["delta"]
    done = host.train(arm.source, arm.mitigation, stream=arm.stream.child("run"))
    accuracy = host.accuracy(done.weights)
    return {
        "factorisation": cell.settings["host"].get("label", host.factors.name),
        "correct": accuracy.correct,
        "tested": accuracy.total,
        "steps": host.steps,
        "clients": host.clients,
        "participations": host.participations,
        "separation": host.separation,
        "sensitivity": host.strategy_sensitivity,
        "exact": host.exact,
        "multiplier": sigma / host.clip,
        "root_error": sigma / host.clip * host.factors.mean_error**0.5,
        "spent": gaussian_epsilon(delta, sigma=arm.sigma, sensitivity=host.sensitivity),
    }


def utility_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per setting: the mean of its runs, with the interval of as many test images.

    The runs share the images, so the interval is that of one run.
    """
    return [
        {
            **some[0],
            "accuracy": interval(
                round(statistics.mean(row["correct"] for row in some)), some[0]["tested"]
            ),
            "by_run": " ".join(f"{100 * row['correct'] / row['tested']:.1f}" for row in some),
            "runs": len(some),
        }
        for some in grouped(rows, lambda row: tuple(str(row.get(name)) for name in _SETTING))
    ]


def utility_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The best and the worst setting."""
    best, worst = (f(rows, key=lambda row: row["accuracy"]["value"]) for f in (max, min))
    return " to ".join(
        f"{100 * row['accuracy']['value']:.1f} % ({row['factorisation']}, ε = {row['epsilon']:g})"
        for row in (worst, best)
    )


UTILITY = Measure(run=utility, grid=FtrlGrid, gather=utility_rows, summary=utility_summary)

Matrix = npt.NDArray[np.float64]

_TOLERANCE = 1e-3  # relative error of an update that counts as read
_TRIES = 1 << 10  # nonces for an update of which nothing is known
_PURE = 1e-9  # share of other rows of Z
_TRACED = 50  # clients of one run; then another run


def attack(cell: Cell, arm: Arm) -> dict[str, Any]:
    """``trials`` clients, half of them without their updates: does the key holder see which?

    The attacker knows C, the key, and all updates but the client's; it sees every noisy update of
    the run, X + D·Z in float32. ``step``: named right from the noisy update of the client's first
    round alone, as it is, by the peaks of the pancake. ``row``: from the one row of W·(X + D·Z)
    that this round completes, W being the public whitening. ``run``: from all combinations of
    updates that hold a single row of Z (:func:`pure_rows`) and in which the client plays a part, by
    their summed log-likelihoods; ``looks`` is how many. ``keyless``: the same without the key, by
    the best test against honest noise. As a baseline, any other source is read as a pancake.

    For noise that carries its own seed (``code = "signs"``) the attacker knows no update at all:
    ``alone`` is the share of steps whose update is read from its row as it is, ``sequence`` where
    updates read before are subtracted first, and ``step``, ``row``, ``run`` go by the seed: ``run``
    by the row that it explains best.

    Trainings are real, with the arm's own noise; the updates of other clients are held while the
    noise is drawn anew for each trial.

    Raises:
        SpecError: another host than dp-ftrl.
    """
    host, trials = arm.host, cell.settings["trials"]
    if not isinstance(host, DpFtrl):
        raise SpecError("measure=dp-ftrl-attack: needs the host dp-ftrl")
    seeded = cell.settings["source"]["name"] == "seed-in-noise"
    names = ("step", "row", "run", "keyless")
    right, looks, read = dict.fromkeys(names, 0), 0, [0, 0, 0]
    eligible = np.concatenate([host.cohort_at(t) for t in range(min(host.steps, host.separation))])
    for low in range(0, trials, _TRACED):
        some, stream = min(_TRACED, trials - low), arm.stream.child("trace", low)
        rng = stream.numpy()
        chosen = tuple(int(c) for c in rng.choice(eligible, some, replace=False))
        run = host.train(arm.source, arm.mitigation, stream=stream.child("run"), watched=chosen)
        for client in chosen:
            here = stream.child("client", client)
            round_ = _Round(arm, host, run.updates, run.contributions[client], stream=here)
            for name, success in round_.successes(seeded=seeded).items():
                right[name] += success
            looks += len(round_.views)
        if seeded:
            read = [a + b for a, b in zip(read, _count_read(arm, host, run), strict=True)]
    shares = zip(("alone", "sequence"), read if seeded else (), strict=False)
    return {
        "factorisation": cell.settings["host"].get("label", host.factors.name),
        **{name: interval(right[name], trials) for name in names},
        "looks": looks / trials,
        "sensitivity": host.strategy_sensitivity,
        "exact": host.exact,
        "sigma": arm.sigma,
        **{name: interval(count, read[2]) for name, count in shares},
    }


class _Round:
    """One client in or out by a coin, one release of the whole run, and the attacks on it."""

    def __init__(
        self, arm: Arm, host: DpFtrl, updates: Matrix, own: Contribution, *, stream: Stream
    ) -> None:
        how = host.factors
        gone = np.zeros_like(updates)
        gone[list(own.steps)] = own.updates
        self._arm, self._whitening, self._first = arm, how.whitening, own.steps[0]
        self.truth = int(stream.numpy().integers(2))
        self._both = updates, updates - gone
        query = how.strategy @ self._both[self.truth]
        out = arm.mitigation.release(query, arm.source, stream=stream.child("release"))
        self._noisy = (how.decoder @ to_numpy(out)).astype(np.float32).astype(np.float64)
        views = pure_rows(how)
        self.views = views[np.abs(views[:, list(own.steps)]).max(1) > 0]

    def successes(self, *, seeded: bool) -> dict[str, bool]:
        """Which attacks are right."""
        peaks = self._arm.attack({"name": "seed-reader" if seeded else "nearest-peak"})
        likelihood = peaks if seeded else self._arm.attack({"name": "likelihood-ratio"})
        step = np.eye(len(self._noisy))[self._first]
        alone = self._scores(likelihood, self._whitening[self._first][None])[0]
        looks = self._scores(likelihood, self.views)
        # a row read by its seed leaves nothing, the others leave noise
        whole = looks[looks.max(1).argmax()] if seeded and len(looks) else looks.sum(0)
        released, candidates = self._project(self._whitening)
        plain = -np.square(released[:, None] - candidates).sum((0, 2))
        first = self._scores(peaks, step[None])[0]
        by_attack = {"step": first, "row": alone, "run": whole, "keyless": plain}
        return {name: bool(scores.argmax() == self.truth) for name, scores in by_attack.items()}

    def _scores(self, attack: Attack, views: Matrix) -> Matrix:
        """An attack's score of both candidates by each view (r, n) of the run, shape (r, 2)."""
        return np.asarray(to_numpy(attack.score(*self._project(views))))

    def _project(self, views: Matrix) -> tuple[Matrix, Matrix]:
        """Views of what was released, and of both candidates: (r, d) and (r, 2, d)."""
        return views @ self._noisy, np.stack([views @ x for x in self._both], axis=1)


def pure_rows(how: Factorisation) -> Matrix:
    """Combinations (r, n) of the noisy updates that hold one row of Z alone, at weight 1.

    They are the rows of W where C is square. Of Honaker's estimates, which mix the rows of a tree
    in every prefix sum, some noisy updates are the only ones.
    """
    rows = np.vstack([how.whitening, np.eye(how.steps)])
    mixed = rows @ how.decoder
    which = np.abs(mixed).argmax(1)
    weight = mixed[np.arange(len(rows)), which]
    pure = np.flatnonzero(np.square(mixed).sum(1) - weight**2 < _PURE * weight**2)
    first = pure[np.unique(which[pure], return_index=True)[1]]
    return np.asarray(rows[first] / weight[first, None])


def _count_read(arm: Arm, host: DpFtrl, run: Run) -> list[int]:
    """Steps read from their rows alone, in sequence, and all steps of one run."""
    reader: Any = arm.attack({"name": "seed-reader", "tries": _TRIES})
    bound = host.clip * host.cohort * float(np.abs(host.factors.strategy).sum(1).max())
    counts = []
    for known in (False, True):
        estimates = read_updates(reader, host.factors, run.noisy, norm=bound, known=known)
        away = np.linalg.norm(estimates - run.updates, axis=1)
        counts.append(int((away <= _TOLERANCE * np.linalg.norm(run.updates, axis=1)).sum()))
    return [*counts, host.steps]


def read_updates(
    reader: Any, how: Factorisation, noisy: npt.NDArray[np.float32], *, norm: float, known: bool
) -> Matrix:
    """The updates X (n, d) as the seed's owner reads them from X + D·Z; NaN where it does not.

    Row t of the whitened run holds step t's update times its weight, the earlier ones times
    theirs, and a row of Z. With the noise read, the row's updates are known in sum, and x_t if the
    earlier ones are. ``known``: those that were read are subtracted before the next row is read.
    """
    whitening = how.whitening
    whitened = whitening @ noisy.astype(np.float64)
    updates = np.full(whitened.shape, np.nan)
    for t, row in enumerate(whitened):
        earlier = np.flatnonzero(whitening[t, :t])
        past = whitening[t, earlier] @ updates[earlier]
        clear = known and not np.isnan(past).any()
        rest = row - past if clear else row
        got = reader.unknown(rest[None].astype(np.float32), norm=norm)
        if got.found[0]:
            updates[t] = (got.values[0] - (0 if clear else past)) / whitening[t, t]
    return updates


def attack_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The range of success over whole runs, for each source."""
    parts = []
    for source in dict.fromkeys(row["source"] for row in rows):
        shares = sorted(row["run"]["value"] for row in rows if row["source"] == source)
        parts.append(f"{source} {100 * shares[0]:.1f} to {100 * shares[-1]:.1f} %")
    return f"Clients named right from a whole run, by source: {'; '.join(parts)}."


ATTACK = Measure(run=attack, summary=attack_summary)

Flaw = Literal[
    "none", "identity", "other band", "two steps", "two restarts", "missing node", "float32"
]


class Correlated(Table, frozen=True):
    """A factorisation by its name; ``bands`` and ``restart`` as it takes them."""

    bands: int = 0
    restart: int = 0

    def factors(self, steps: int, *, bands: int | None = None) -> Factorisation:
        """The factorisation of ``steps`` steps, with other ``bands`` if given."""
        own = self.bands if bands is None else bands
        return factorisation(self.name, steps=steps, bands=own, restart=self.restart)


class WhitenedGrid(Grid, frozen=True):
    """A recording of ``steps`` × ``dim`` with one ``flaw``; ``batch`` only distinguishes cells."""

    correlated: Correlated
    flaw: Flaw
    steps: int
    dim: int
    alpha: float
    without: tuple[str, ...] = ()
    batch: int = 0


def audit(cell: Cell, arm: None) -> dict[str, Any]:
    """The findings of ``trials`` audits of recordings, each with fresh noise, through files."""
    del arm
    grid, trials = cell.grid(WhitenedGrid), cell.settings["trials"]
    stream = cell.stream
    tests = tuple(name for name in registry.plugins("tests") if name not in grid.without)
    claimed = grid.correlated.factors(grid.steps)
    by, findings = Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        noise, public = Path(folder, "noise.npy"), Path(folder, "C.npy")
        np.save(public, claimed.whitening)
        for i in range(trials):
            np.save(noise, flawed(grid, claimed, stream.child("recording", i).numpy()))
            result = audit_sampler(
                f"whitened:{noise};{public}",
                claim="gaussian:sigma=1",
                samples=grid.steps * grid.dim,
                alpha=grid.alpha,
                seed=f"{cell.settings['seed']}/{cell.id}/{i}",
                tests=tests,
            )
            findings += result.verdict == "finding"
            by.update(test.name for test in result.tests if test.finding)
    return {"findings": findings, "by": dict(sorted(by.items())), "tests": len(tests)}


def flawed(grid: WhitenedGrid, claimed: Factorisation, rng: np.random.Generator) -> Matrix:
    """A recording (steps, dim) of noise that claims to be D·Z of ``claimed``.

    ``identity``: without correlation. ``other band``: of a C with one band fewer. ``two steps``: a
    row of Z twice in one run. ``two restarts``: all of Z of the first restart again in the second.
    ``missing node``: a row of Z is zeros. ``float32``: honest, but recorded in float32.
    """
    rows = len(claimed.strategy)
    z = rng.standard_normal((rows, grid.dim))
    how = claimed
    if grid.flaw == "two steps":
        one, other = rng.choice(rows // 2, 2, replace=False)
        z[one] = z[other]
    elif grid.flaw == "two restarts":
        per = rows * grid.correlated.restart // grid.steps
        z[per : 2 * per] = z[:per]
    elif grid.flaw == "missing node":
        z[rng.integers(rows)] = 0
    elif grid.flaw == "identity":
        how = factorisation("identity", steps=grid.steps)
        z = z[: grid.steps]
    elif grid.flaw == "other band":
        how = grid.correlated.factors(grid.steps, bands=grid.correlated.bands - 1)
    noise: Matrix = how.decoder @ z
    return noise.astype(np.float32) if grid.flaw == "float32" else noise


def audit_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per factorisation and flaw, from rows of one batch each."""
    return [_row(some) for some in grouped(rows, itemgetter("correlated", "flaw"))]


def _row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by = Counter[str]()
    for row in rows:
        by.update(row["by"])
    audits = sum(row["trials"] for row in rows)
    findings = sum(row["findings"] for row in rows)
    most = sorted(by.items(), key=lambda item: (-item[1], item[0]))[:3]
    return {
        **rows[0],
        "batch": len(rows),
        "trials": audits,
        "audits": audits,
        "findings": findings,
        "share": interval(findings, audits),
        "by": dict(sorted(by.items())),
        "found_by": ", ".join(f"{name} {k}" for name, k in most) or None,
    }


def audit_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The share of honest recordings that are accused, and of flawed ones that are found."""
    joined = audit_rows(rows)
    honest = [row for row in joined if row["flaw"] == "none"]
    bad = [row for row in joined if row["flaw"] not in ("none", "float32")]
    parts = []
    for some, label in ((honest, "honest recordings end"), (bad, "flawed ones end")):
        if some:
            findings, audits = (sum(row[k] for row in some) for k in ("findings", "audits"))
            share = interval(findings, audits)
            parts.append(
                f"{findings} of {audits} {label} in a finding at α = {some[0]['alpha']:g} "
                f"({100 * share['value']:.1f} % [{100 * share['low']:.1f}, "
                f"{100 * share['high']:.1f}])"
            )
    return "; ".join(parts) + "."


AUDIT = Measure(
    run=audit, grid=WhitenedGrid, needs_arm=False, gather=audit_rows, summary=audit_summary
)
