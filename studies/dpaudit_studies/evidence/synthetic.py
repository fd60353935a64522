"""MST and AIM of dpmm, SmartNoise and mbi at the worst pair: how much of their claim is shown.

    python -m dpaudit_studies.evidence.synthetic [--envs .envs] [--mbi CHECKOUT] [NAME …]

Every library runs in an environment of its own (:data:`PLACES`, which `make envs` makes; mbi's
mechanisms and ``src`` are those of CHECKOUT), by ``environments/synthetic_releases.py``.
What has no environment is left out. Releases are kept in ``--keep`` and not drawn again; their
number was fixed beforehand, and their noise is the library's own, which takes no seed.

**The pair.** 100 and 101 equal records, in columns of one possible value. Each marginal then is one
number, the records plus Gaussian noise, and the added record moves every one of them by its whole
sensitivity, in the same direction. Nothing of it is lost on the way out: the fitted model has one
parameter, the total, and that is the inverse-variance mean of the noisy marginals, their sufficient
statistic; 100 is too many for it to be clipped at 0. What selection spends shows nothing here.

**The score.** The total, of the fitted model, or as the number of rows that the library generates.
A release is guessed to come from the larger data set if it is at least halfway (the model), or at
least 101 (rows, which are rounded down). :func:`mu_from_guesses` bounds μ from right guesses.

Writes docs/studies/results/synthetic/results.json and results.txt, unless names are given.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, chi2, norm

import dpaudit
from dpaudit.accounting.discrete import zcdp_epsilon
from dpaudit.audit.result import MechanismResult
from dpaudit_studies.evidence import MACHINE, RESULTS, commit_of, options, write

__all__ = ["CASES", "Case", "implied_mu", "judge", "mu_from_guesses", "table"]

Array = np.ndarray
RECORDS, EPSILON, DELTA, ALPHA = 100, 1.0, 1e-2, 0.05
LEAST = 1172
"""Releases at each data set from which ``dpaudit mechanism`` judges recorded ones."""
PLACES = {"dpmm": "dpmm", "smartnoise": "smartnoise-synth-1.0.8", "pgm": "mbi-361705d"}
PROGRAM = Path(__file__).with_name("environments") / "synthetic_releases.py"


@dataclass(frozen=True)
class Case:
    """A mechanism as its user runs it, and the share of ρ that its noisy marginals spend.

    ``share`` is derived from the algorithm and enters no bound. MST spends a third on columns, a
    third on the choice of pairs and a third on pairs (with one column, the first alone). AIM, of k
    columns in T rounds, spends 0.9·k/T on columns, and 0.9 of what is left on the chosen marginals.
    ``releases`` are drawn at each data set.
    """

    name: str
    says: str
    share: float | None
    releases: int


CASES = (
    Case("dpmm-mst-public", "dpmm MST, structure from public data (`fit(…, public=True)`)", 1.0,
         30_000),
    Case("dpmm-aim-rounds", "dpmm AIM, `rounds=1`, one column", 0.99, 25_000),
    Case("dpmm-aim", "dpmm AIM, rounds by default, one column", 0.9 + 0.09 / 16, 4_000),
    Case("dpmm-mst", "dpmm MST, one column", 1 / 3, 3_000),
    Case("dpmm-aim-overspent", "dpmm AIM, `rounds=1`, four columns", 3.6, 3_000),
    Case("pgm-mst", "mbi MST, two columns", 2 / 3, 60),
    Case("pgm-aim", "mbi AIM, two columns", 0.9 + 0.09 / 16, 600),
    Case("smartnoise-mst", "SmartNoise MST, two columns", None, 20),
    Case("smartnoise-aim", "SmartNoise AIM, two columns", 0.9 + 0.09 / 16, 20),
)  # fmt: skip


def implied_mu(epsilon: float, delta: float) -> float:
    """√(2ρ) for the largest ρ whose zCDP gives (ε, δ)-DP: what MST and AIM calibrate noise by.

    A Gaussian measurement that spends all of ρ is μ-GDP with this μ and no smaller one. The claim
    of the mechanism is (ε, δ)-DP alone: ρ-zCDP does not imply μ-GDP (Bun and Steinke 2016; Dong,
    Roth and Su 2022).
    """
    rho = brentq(lambda rho: zcdp_epsilon(delta, rho=rho) - epsilon, 1e-9, epsilon, xtol=1e-13)
    return math.sqrt(2 * float(rho))


def mu_from_guesses(right: int, sizes: tuple[int, int], *, alpha: float = ALPHA) -> float:
    """The largest μ that so many right guesses contradict; 0 if they contradict none.

    ``sizes`` are the releases guessed at the smaller and the larger data set, ``right`` the right
    guesses among all of them, by a rule fixed before the first release.

    Under μ-GDP a rule that is wrong about the smaller data set with probability a is right about
    the larger one with at most Φ(Φ⁻¹(a) + μ), so the right guesses have a mean of at most
    max over x of n₀·Φ(x) + n₁·Φ(μ − x), which is at x = μ/2 + ln(n₀/n₁)/μ. They are a sum of
    independent trials, whose tail a mean or more above is at most the binomial's of the same mean
    (Hoeffding 1956, Theorem 4). The mechanism is μ-GDP for no smaller μ with confidence 1 − α.
    Not claimed: that it is so for this μ.
    """
    n0, n1 = sizes
    n = n0 + n1

    def excess(mu: float) -> float:
        x = mu / 2 + math.log(n0 / n1) / mu
        mean = n0 * float(norm.cdf(x)) + n1 * float(norm.cdf(mu - x))
        p = float(binom.sf(right - 1, n, mean / n)) if right >= mean + 1 else 1.0
        return p - alpha

    if excess(1e-6) >= 0:
        return 0.0
    return float(brentq(excess, 1e-6, 40.0, xtol=1e-9))


def shown_by(score: Array, threshold: float, *, claim: float) -> float:
    """μ shown by a score (2, n), larger for the larger data set, at a threshold that is fixed.

    Where ``threshold`` is not halfway, as with whole numbers, it is the best one for guesses at
    unequal numbers of releases: the larger data set's last are left out, the fewer the closer.
    """
    off = threshold - (RECORDS + 0.5)
    larger = math.floor(score.shape[1] * math.exp(-off * claim**2))
    right = (score[0] < threshold).sum() + (score[1, :larger] >= threshold).sum()
    return mu_from_guesses(int(right), (score.shape[1], larger))


def judge(releases: Array, *, claim: float, seed: int = 1) -> dict[str, Any]:
    """What releases (2, n, 2), rows and fitted total at the two data sets, show of ``claim`` (μ).

    Three bounds for μ, each with confidence 0.95 by itself: of the model's total, of the rows, and
    ``dpaudit.audit_mechanism``'s of the rows, which learns from half of them what to count. And
    1/σ of the total, with a 95 % interval if its noise is Gaussian: an estimate, no bound.
    """
    rows, total = np.moveaxis(releases, 2, 0)
    degrees = 2 * (rows.shape[1] - 1)
    squares = ((total - total.mean(axis=1, keepdims=True)) ** 2).sum()
    row: dict[str, Any] = {
        "releases": rows.shape[1],
        "mu_total": shown_by(total, RECORDS + 0.5, claim=claim),
        "mu_rows": shown_by(rows, RECORDS + 1, claim=claim),
    }
    if squares > 0:
        quantiles = chi2.ppf([0.025, 0.975], degrees)
        row["estimate"] = math.sqrt(degrees / squares)
        row["interval"] = np.sqrt(quantiles / squares).tolist()
    if rows.shape[1] >= LEAST:
        audit = _audit(rows, claim=claim, seed=seed)
        assert audit.mu is not None
        row |= {"verdict": audit.verdict, "mu_audit": audit.mu.low, "epsilon": audit.epsilon.low}
    return row


def _audit(rows: Array, *, claim: float, seed: int) -> MechanismResult:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"at-{side}.npy" for side in (0, 1)]
        for file, side in zip(files, rows, strict=True):
            np.save(file, side)
        return dpaudit.audit_mechanism(
            f"file:{files[0]};{files[1]}", epsilon=EPSILON, delta=DELTA, mu=claim, alpha=ALPHA,
            samples=2 * rows.shape[1], seed=seed,
        )  # fmt: skip


def draw(case: Case, folder: Path, *, envs: Path, mbi: Path | None) -> dict[str, str] | None:
    """Releases of ``case`` in ``folder``, and the versions of its library; None without those."""
    library = case.name.partition("-")[0]
    python = envs / PLACES[library] / "bin" / "python"
    if not python.exists() or (library == "pgm" and mbi is None):
        print(f"{case.name} is left out: no {python}, or no --mbi", file=sys.stderr)
        return None
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    if library == "pgm":
        env["PYTHONPATH"] = f"{mbi}/src{os.pathsep}{mbi}/mechanisms"
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(python), str(PROGRAM), case.name, str(case.releases)]
    command.append(str(folder / f"{case.name}.npy"))
    out = subprocess.run(command, check=True, env=env, stdout=subprocess.PIPE, text=True).stdout
    versions: dict[str, str] = json.loads(out.splitlines()[-1])
    if library == "pgm":
        versions["ryan112358/mbi"] = commit_of(str(mbi))
    return {name: text.strip() for name, text in versions.items()}


def table(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    """The rows of the table, one text per case."""
    for row in rows:
        share = row["share"]
        cells = [row["says"], "–" if share is None else f"{share:.3g}"]
        cells.append("–" if share is None else f"{row['derived']:.3f}")
        cells.append(f"2 × {row['releases']:,}")
        low, high = row.get("interval", (0, 0))
        cells.append(f"{row['estimate']:.3f} [{low:.3f}, {high:.3f}]" if high else "no noise")
        cells += [f"{math.floor(1000 * row[key]) / 1000:.3f}" for key in ("mu_total", "mu_rows")]
        audit = row.get("mu_audit")
        cells.append("–" if audit is None else f"{math.floor(1000 * audit) / 1000:.3f}")
        cells.append(row.get("verdict", "–"))
        yield f"| {' | '.join(cells)} |"


HEAD = """| mechanism | share of ρ measured | its μ | releases | 1/σ of the total | μ ≥, total | \
μ ≥, rows | μ ≥, `dpaudit mechanism` | verdict |
|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    args = options(
        __doc__, names=(), envs=Path(".envs"), mbi=Path, keep=Path("runs/synthetic"), seed=1
    )
    claim, rows = implied_mu(EPSILON, DELTA), []
    for case in CASES:
        if args.names and case.name not in args.names:
            continue
        versions = draw(case, args.keep, envs=args.envs, mbi=args.mbi)
        if versions is None:
            continue
        releases = np.load(args.keep / f"{case.name}.npy")[:, : case.releases]
        row = judge(releases, claim=claim, seed=args.seed)
        derived = None if case.share is None else claim * math.sqrt(case.share)
        about = {"name": case.name, "says": case.says, "share": case.share, "derived": derived}
        rows.append({**about, **row, "versions": versions})
    head = f"ε = {EPSILON:g}, δ = {DELTA:g}: μ = {claim:.4f}; α = {ALPHA:g}; seed {args.seed}"
    versions = {name: text for row in rows for name, text in row["versions"].items()}
    listed = ", ".join(f"{name} {text}" for name, text in sorted(versions.items()))
    text = "\n".join([f"{head}; {MACHINE}; {listed}", "", HEAD, *table(rows), ""])
    print(text)
    if not args.names:
        document = {"machine": MACHINE, "alpha": ALPHA, "seed": args.seed, "claim": claim}
        write(RESULTS / "synthetic" / "results.json", {**document, "rows": rows})
        (RESULTS / "synthetic" / "results.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
