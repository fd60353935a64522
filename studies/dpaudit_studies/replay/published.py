"""The published violations of grey-box auditing (arXiv 2602.17454), replayed on their releases.

``python -m dpaudit_studies.replay.published --envs DIR [--recorder CHECKOUT] [--only NAME …]
[--limit SECONDS] --out DIR``: each row of specimens.toml whose environment is there (DIR/NAME, by
`make envs`) is replayed as it ships, and, with a checkout of dp-recorder (or
DP_RECORDER), audited by that with the instrumentation in recorder/. Rows of results.json whose
specimen, environment and engine have not changed are kept. Writes results.json and README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import dpaudit
from dpaudit.audit.replay.request import ReplayResult
from dpaudit.audit.replay.run import replay
from dpaudit.errors import DpauditError
from dpaudit_studies.evidence import MACHINE, commit_of, write

__all__ = ["main"]

HERE = Path(__file__).resolve().parent
PAIRS, SEED = 20, "published"


def main() -> None:
    """Measure the rows whose environment is there, and write the table."""
    asked = _asked()
    table = tomllib.loads((HERE / "specimens.toml").read_text(encoding="utf-8"))
    path = asked.out / "results.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in kept if row["name"] in table}
    for name, specimen in table.items():
        python = asked.envs / specimen["environment"] / "bin" / "python"
        if (asked.only and name not in asked.only) or not python.is_file():
            continue
        digests = {"replay": _digest(name, specimen), "recorder": _digest(name, specimen, True)}
        row = rows.get(name) or {"name": name}
        row |= {key: specimen[key] for key in ("row", "release")}
        if row.get("replay", {}).get("digest") != digests["replay"]:
            row["replay"] = {
                **_replayed(specimen, python, asked.limit),
                "digest": digests["replay"],
            }
        if asked.recorder and row.get("recorder", {}).get("digest") != digests["recorder"]:
            found = _recorded(name, specimen, python, asked)
            row["recorder"] = {**found, "digest": digests["recorder"]}
            row["recorder"]["commit"] = commit_of(asked.recorder)
        rows[name] = row
        done = [rows[n] for n in table if n in rows]
        write(
            path,
            {"machine": MACHINE, "pairs": PAIRS, "seed": SEED, "limit": asked.limit, "rows": done},
        )
        print(f"{name}: {row['replay']['found']}; {row['replay']['says']}", flush=True)
    done = [rows[n] for n in table if n in rows]
    (asked.out / "README.md").write_text(_page(done, table), encoding="utf-8")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", type=Path, required=True)
    checkout = os.environ.get("DP_RECORDER")
    parser.add_argument("--recorder", type=Path, default=Path(checkout) if checkout else None)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for a row and tool")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def _digest(name: str, specimen: dict[str, Any], recorder: bool = False) -> str:
    """Of all that a row depends on: the specimen, its environment, and the tool that audits it."""
    files = [HERE / "specimens" / specimen["file"]]
    files.append(HERE.parent / "environments" / f"{specimen['environment']}.txt")
    if recorder:
        files += [_script(name, specimen), HERE / "recorder" / "driver.py"]
    else:
        files += sorted((Path(dpaudit.__file__).parent / "audit" / "replay").rglob("*.py"))
    digest = hashlib.blake2b(json.dumps([specimen, PAIRS, SEED]).encode(), digest_size=8)
    for file in files:
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()


def _script(name: str, specimen: dict[str, Any]) -> Path:
    """The instrumentation for dp-recorder, which rows may share."""
    return HERE / "recorder" / str(specimen.get("recorder", f"{name}.py"))


def _replayed(specimen: dict[str, Any], python: Path, limit: float) -> dict[str, Any]:
    """What a replay of the specimen finds, and whether it is the published violation."""
    target = f"python:{os.path.relpath(HERE / 'specimens' / specimen['file'])}:run"
    claim = {"epsilon": specimen.get("claim_epsilon"), "delta": specimen.get("claim_delta")}
    started = time.monotonic()
    try:
        result = replay(
            target, specimen["data"], python=python, form=specimen["form"], pairs=PAIRS,
            neighbours=specimen["neighbours"], bounds=specimen.get("bounds"), seed=SEED,
            cover=tuple(specimen["cover"]), time_limit=limit,
            **{key: value for key, value in claim.items() if value is not None},
        )  # fmt: skip
    except DpauditError as error:
        seconds = time.monotonic() - started
        return {"found": "error", "says": str(error)[:300], "seconds": round(seconds, 1)}
    return judged(result, specimen["expects"])


def judged(result: ReplayResult, expects: dict[str, Any]) -> dict[str, Any]:
    """The finding that is the published one, else the first; ``found`` says which."""
    findings = list(result.findings)
    right = [
        d
        for d in findings
        if d.kind in expects["kinds"]
        and re.search(expects["at"], f"{d.line} {d.at}")
        and re.search(expects.get("says", ""), f"{d.says} {d.origin}")
    ]
    best = next(iter(right or findings), None)
    found = "yes" if right else "for another reason" if findings else "no"
    row: dict[str, Any] = {
        "found": found, "verdict": result.verdict, "seconds": round(result.seconds, 1),
        "pairs": result.pairs, "run seconds": round(result.run_seconds, 2),
        "says": _plain(result.reason), "kind": "", "line": "", "at": "", "epsilon": None,
        "composed": _number(result.epsilon),
        "all": [
            {"kind": d.kind, "outcome": d.outcome, "line": _short(d.line), "at": _short(d.at),
             "says": _plain(d.says), "pair": d.origin}
            for d in result.divergences
        ],
        "unseen": [_plain(text) for text in (*result.unseen, *result.unknown)][:8],
    }  # fmt: skip
    if best is not None:
        row |= {"kind": best.kind, "line": _short(best.line), "at": _short(best.at)}
        row |= {"says": _plain(best.says), "epsilon": best.epsilon and _number(best.epsilon.low)}
    return row


def _number(value: Any) -> Any:
    """JSON has no infinity."""
    return str(value) if value in (float("inf"), float("-inf")) else value


def _short(place: str) -> str:
    """A place without the folders above the package."""
    return re.sub(r"^.*(site-packages|specimens|current|mechanisms)/", "", place)


def _plain(text: str) -> str:
    """A sentence without the folders above a package or the checkout."""
    return re.sub(r"/[^\s:'\"]*/(?=site-packages/|studies/)", "", text)


def _recorded(
    name: str, specimen: dict[str, Any], python: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    """What dp-recorder says with the instrumentation in recorder/, in a process of its own."""
    script = _script(name, specimen)
    if not script.is_file():
        return {"found": "not instrumented", "says": "", "seconds": 0.0, "lines": 0}
    question = {**specimen, "pairs": PAIRS, "recorder": str(script), "here": str(HERE)}
    command = [str(python), str(HERE / "recorder" / "driver.py"), json.dumps(question)]
    environment = {**os.environ, "PYTHONPATH": str(asked.recorder / "src"), "OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=asked.limit, env=environment,
                cwd=folder, check=False,
            )  # fmt: skip
            last = (run.stdout.strip().splitlines() or [""])[-1]
            says = json.loads(last)["says"] if run.returncode == 0 else run.stderr[-300:]
        except subprocess.TimeoutExpired:
            says, run = f"no answer in {asked.limit:.0f} s", None
    failed = run is None or run.returncode != 0
    right = bool(says) and bool(re.search(specimen["recorder_expects"], says))
    found = "error" if failed else "yes" if right else "for another reason" if says else "no"
    lines = _lines(script)
    seconds = round(time.monotonic() - started, 1)
    return {"found": found, "says": says[:300], "seconds": seconds, "lines": lines}


def _lines(script: Path) -> int:
    """Lines that a user of dp-recorder writes for this library: neither blank nor a comment."""
    text = script.read_text(encoding="utf-8").splitlines()
    return sum(1 for line in text if line.strip() and not line.strip().startswith("#"))


def _page(rows: list[dict[str, Any]], table: dict[str, Any]) -> str:
    head = (
        "| violation | release | dpaudit replay | kind | where | ε at least | seconds | "
        "lines of user code | dp-recorder | seconds | lines of instrumentation |\n"
    ) + f"{'|---' * 11}|\n"
    body, says = [], []
    for row in rows:
        ours, theirs = row["replay"], row.get("recorder") or {}
        where = " ".join(f"`{p}`" for p in dict.fromkeys((ours.get("at"), ours.get("line"))) if p)
        epsilon = ours.get("epsilon")
        cells = (
            row["row"], row["release"], ours["found"], ours.get("kind", ""), where,
            f"{epsilon:.3g}" if isinstance(epsilon, float) else epsilon or "", ours["seconds"], 0,
            theirs.get("found", ""), theirs.get("seconds", ""), theirs.get("lines", ""),
        )  # fmt: skip
        body.append("| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |")
        note = table[row["name"]].get("note", "")
        text = f"- **{row['row']}**: replay: {ours['says'] or 'nothing'}"
        text += f" dp-recorder: {theirs['says'] or 'nothing'}" if theirs else ""
        says.append(" ".join(f"{text} {note}".split()))
    found = sum(row["replay"]["found"] == "yes" for row in rows)
    lead = (
        "# Published violations, replayed\n\n"
        f"Replay finds {found} of {len(rows)} rows as published, {PAIRS} pairs each, seed "
        f"`{SEED}`. *For another reason*: it reports something else. Machine: {MACHINE}.\n\n"
    )
    return lead + head + "\n".join(body) + "\n\n## What each says\n\n" + "\n".join(says) + "\n"


if __name__ == "__main__":
    main()
