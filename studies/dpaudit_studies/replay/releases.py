"""Current releases of libraries, replayed as their documentation writes pipelines.

    python -m dpaudit_studies.replay.releases [--envs DIR] [--out DIR] [--limit SECONDS] [NAME …]

The pipelines are in ``current/``. Those of the environment "main" run in this Python; others in
DIR/NAME, which `make envs` makes, and are left out if it is not there.
"""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dpaudit.audit.replay.run import replay
from dpaudit.errors import DpauditError
from dpaudit_studies.evidence import MACHINE, options, write
from dpaudit_studies.replay.published import HERE, PAIRS, judged

__all__ = ["main"]

SEED = "current"


def replayed(pipeline: dict[str, Any], python: Path | None, limit: float) -> dict[str, Any]:
    """What a replay of a pipeline says, 20 pairs or until the limit."""
    folder = HERE / "current"
    try:
        result = replay(
            f"python:{folder / pipeline['file']}:{pipeline['function']}",
            folder / pipeline["data"], form=pipeline["form"], epsilon=pipeline["claim_epsilon"],
            delta=pipeline["claim_delta"], neighbours=pipeline["neighbours"], pairs=PAIRS,
            bounds=pipeline.get("bounds"), python=python, samples=1000, seed=SEED,
            time_limit=limit,
        )  # fmt: skip
    except DpauditError as error:
        return {"verdict": "error", "says": str(error)[:300]}
    row = judged(result, {"kinds": [], "at": ""})
    del row["found"]
    return row | {"kinds": sorted({d.kind for d in result.findings})}


def _version(environment: str, file: str, libraries: dict[str, str]) -> str:
    """The library's release: of the environment's list, or of this Python's package."""
    name = next((libraries[start] for start in libraries if file.startswith(start)), file)
    path = HERE.parent / "environments" / f"{environment}.txt"
    lines = [] if environment == "main" else path.read_text(encoding="utf-8").splitlines()
    try:
        return next((s for s in lines if s.startswith(name)), "") or f"{name}=={version(name)}"
    except PackageNotFoundError:
        return name


def main() -> None:
    """Replay all whose environment is there; rows of another engine are measured again."""
    asked = options(
        __doc__, names=(), envs=Path(".envs"), out=Path("runs/replay-current"), limit=60.0
    )
    table = tomllib.loads((HERE / "current" / "current.toml").read_text(encoding="utf-8"))
    path = asked.out / "results.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    rows = {row["name"]: row for row in kept}
    for pipeline in table["pipeline"]:
        name, environment = pipeline["name"], pipeline["environment"]
        python = None if environment == "main" else asked.envs / environment / "bin" / "python"
        if (asked.names and name not in asked.names) or (python and not python.is_file()):
            continue
        found = replayed(pipeline, python, asked.limit)
        release = _version(environment, pipeline["file"], table["libraries"])
        about = {key: pipeline.get(key) for key in ("claim_epsilon", "claim_delta", "planted")}
        rows[name] = {"name": name, "release": release, **about, **found}
        print(f"{name}: {found['verdict']} {found.get('kinds', '')} {found['says']}", flush=True)
        write(path, {"machine": MACHINE, "seed": SEED, "pairs": PAIRS, "rows": [*rows.values()]})


if __name__ == "__main__":
    main()
