"""The catalogue, by dpaudit, DP-Sniper and DP-Auditorium. Part of `make evidence ONLY=peers`.

    python -m dpaudit_studies.evidence.catalogue_peers [--samples 1e5] [--seed 1] [NAME …]

All three see the same releases, half of them to learn from and half to count, at the same α. The
peers run in environments of their own (dp-sniper and dp-auditorium in $DPAUDIT_ENVS or .envs) and
from checkouts of their public repositories, as PyPI has no package of either: $DP_SNIPER is a
checkout of eth-sri/dp-sniper, $DP_AUDITORIUM the folder python/dp_auditorium of one of
google/differential-privacy. Where these name checkouts, `make envs` makes the environments. A peer
without its checkout or its environment is left out, with a sentence. How each is called:
dp_sniper_bounds.py and dp_auditorium_bounds.py in environments/.

Releases and the peers' answers are kept in ``--keep`` and used again. Seconds are CPU seconds of
one thread, training included, releases not. An interval holds the difference of two bounds in 95 %
of 200 parametric bootstrap samples: all counts are drawn anew at the rates seen. Writes
docs/studies/results/peers/catalogue.json and its table in README.md there; with names, or
without a peer, it prints alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from dpaudit.audit.mechanism.bounds import epsilon_bounds
from dpaudit.audit.mechanism.judge import CURVE_SHARE, LearnedEvents
from dpaudit.provenance import collect
from dpaudit_studies.evidence import RESULTS, ROOT, commit_of, options, write
from dpaudit_studies.evidence.catalogue import (
    ALPHA,
    CASES,
    STOP,
    Array,
    Case,
    best_event,
    draw_releases,
    learn_and_judge,
)
from dpaudit_studies.evidence.peers_tables import catalogue_table, replace_between

SECONDS = 30.0
RESAMPLED = 200


@dataclass(frozen=True)
class Peer:
    """An auditor in an environment of its own; ``checkout`` is the variable that names its code."""

    name: str
    checkout: str
    repository: str

    @property
    def python(self) -> Path:
        return Path(os.environ.get("DPAUDIT_ENVS", ".envs")) / self.name / "bin" / "python"

    def missing(self) -> str:
        """Why it is left out; empty if it can run."""
        if not os.environ.get(self.checkout):
            return f"{self.name} is left out: no checkout of {self.repository} in {self.checkout}"
        if not self.python.exists():
            return f"{self.name} is left out: no environment at {self.python}; make envs"
        return ""

    def start(self, files: list[str], code: str, stdout: Any) -> subprocess.CompletedProcess[str]:
        """Its program on ``files``, with the code of a checkout; of what is installed if empty."""
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        env["PYTHONPATH"] = code
        program = Path(__file__).parent / f"environments/{self.name.replace('-', '_')}_bounds.py"
        command = [str(self.python), str(program), *files]
        return subprocess.run(command, check=True, env=env, stdout=stdout, text=True)

    def answer(self, folders: list[Path]) -> None:
        """Put its answer into each folder that has none."""
        left = [str(f) for f in folders if not (f / f"{self.name}.json").exists()]
        if left:
            self.start(left, os.environ[self.checkout], sys.stderr)


_GOOGLE = "google/differential-privacy (its folder python/dp_auditorium)"
PEERS = (
    Peer("dp-sniper", "DP_SNIPER", "eth-sri/dp-sniper"),
    Peer("dp-auditorium", "DP_AUDITORIUM", _GOOGLE),
)


def record_releases(case: Case, folder: Path, *, samples: int, seed: int) -> None:
    """Releases of ``case`` in a file that all three read."""
    if (folder / "releases.npz").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    x, y = draw_releases(case, samples=samples, seed=seed)
    job = {
        "alpha": ALPHA,
        "epsilon": case.claim,
        "delta": case.delta,
        "seed": seed,
        "flags": [STOP] if any((side == STOP).any() for side in x) else [],
    }
    np.savez(
        folder / "releases.npz", x0=x[0], x1=x[1], y0=y[0], y1=y[1], job=np.array(json.dumps(job))
    )


def ours(case: Case, folder: Path, *, seed: int) -> tuple[dict[str, Any], Array]:
    """Our audit of the kept releases, and its ε from counts drawn anew."""
    archive = np.load(folder / "releases.npz", allow_pickle=False)
    x, y = ([archive[f"{half}{side}"] for side in (0, 1)] for half in "xy")
    learned, judged, seconds = learn_and_judge(case, x, y, seed=seed, seconds=SECONDS)
    row = {
        "epsilon": judged.epsilon,
        "delta": judged.delta,
        "finding": any(test.finding for test in judged.tests if not test.advisory),
        "event": best_event(judged),
        "seconds": seconds,
    }
    return row, _resampled_bounds(learned, *y, case=case, rng=np.random.default_rng([seed, 1]))


def _resampled_bounds(
    learned: LearnedEvents, y0: Array, y1: Array, *, case: Case, rng: np.random.Generator
) -> Array:
    """Our ε from counts drawn anew at the rates seen, (200,): each event's by itself."""
    largest = np.zeros(RESAMPLED)
    sizes = len(y0), len(y1)
    for event, share, _, advisory in learned.events:
        if advisory:
            continue
        here, there = sizes[event.likelier], sizes[1 - event.likelier]
        inside, outside = event.counts(y0, y1)
        drawn_anew = (
            rng.binomial(n, k / n, RESAMPLED) for k, n in ((inside, here), (outside, there))
        )
        bounds = epsilon_bounds(
            *drawn_anew, draws=here + there, delta=case.delta, alpha=share * ALPHA
        )
        largest = np.maximum(largest, bounds)
    if learned.nested is None:
        return largest
    nested = learned.nested
    cells = [nested.cells.counts(nested.statistic.of(y))[nested.order] for y in (y0, y1)]
    anew = [
        rng.multinomial(c.sum(), c / c.sum(), RESAMPLED).cumsum(axis=1)[:, nested.ends]
        for c in cells
    ]
    curves = [
        nested.band(c0, sizes[0], c1, sizes[1], alpha=CURVE_SHARE * ALPHA).epsilon(case.delta)
        for c0, c1 in zip(*anew, strict=True)
    ]
    return np.maximum(largest, curves)


def theirs(peer: Peer, case: Case, folder: Path, *, seed: int) -> tuple[dict[str, Any], Array]:
    """A peer's answer, and its ε from counts drawn anew."""
    row = json.loads((folder / f"{peer.name}.json").read_text())
    archive = np.load(folder / f"{peer.name}.npz", allow_pickle=False)
    side = int(archive["likelier"])
    weights = [np.asarray(archive[f"in{s}"], np.float64) for s in (side, 1 - side)]
    rng = np.random.default_rng([seed, 2])
    counts = [rng.binomial(len(w), w.mean(), RESAMPLED) for w in weights]
    low = beta.ppf(ALPHA / 2, counts[0], len(weights[0]) - counts[0] + 1)
    high = beta.ppf(1 - ALPHA / 2, counts[1] + 1, len(weights[1]) - counts[1])
    low = np.nan_to_num(low, nan=0.0) - case.delta
    with np.errstate(divide="ignore", invalid="ignore"):
        again = np.where(low > 0, np.log(low) - np.log(np.nan_to_num(high, nan=1.0)), 0.0)
    return row, again.clip(0.0)


def compare(case: Case, folder: Path, peers: list[Peer], *, seed: int) -> dict[str, Any]:
    """One row: each tool's bound, and ours less each peer's with its interval."""
    row, again = ours(case, folder, seed=seed)
    about = {"name": case.name, "claim": case.claim, "delta": case.delta, "true": case.true}
    table_row: dict[str, Any] = {**about, "sound": case.sound, "dpaudit": row}
    for peer in peers:
        answer, resampled = theirs(peer, case, folder, seed=seed)
        differences = again - resampled
        answer["ours_less"] = row["epsilon"] - answer["epsilon"]
        answer["interval"] = np.quantile(differences, [0.025, 0.975]).tolist()
        table_row[peer.name] = answer
    return table_row


def main() -> None:
    args = options(__doc__, names=(), samples=100_000, seed=1, keep=ROOT / "runs" / "peers")
    samples = args.samples
    cases = [case for case in CASES if not args.names or case.name in args.names]
    for peer in PEERS:
        print(peer.missing() or f"{peer.name}: {peer.python}", file=sys.stderr)
    peers = [peer for peer in PEERS if not peer.missing()]
    commits = {peer.name: commit_of(os.environ[peer.checkout]) for peer in peers}
    keep = args.keep / "-".join([str(samples), str(args.seed), *commits.values()])
    for case in cases:
        record_releases(case, keep / case.name, samples=samples, seed=args.seed)
    for peer in peers:
        peer.answer([keep / case.name for case in cases])
    rows = []
    for case in cases:
        rows.append(compare(case, keep / case.name, peers, seed=args.seed))
        print(f"{case.name}: ε ≥ {rows[-1]['dpaudit']['epsilon']:.3f}", file=sys.stderr)
    provenance = collect(seed=str(args.seed), plugins=())
    document = {
        "command": "make evidence ONLY=peers", "alpha": ALPHA, "samples": samples, "peers": commits,
        "rows": rows, "provenance": dataclasses.asdict(provenance),
    }  # fmt: skip
    table = catalogue_table(document)
    if not args.names and len(peers) == len(PEERS):
        write(RESULTS / "peers" / "catalogue.json", document)
        replace_between(RESULTS / "peers" / "README.md", "catalogue", table)
    print(table)


if __name__ == "__main__":
    main()
