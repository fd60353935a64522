"""Does a test fail when the product is wrong?

`python tests/mutants.py [FILE.toml ...] [--tests-from COMMIT]`. Each table ``[[mutant]]`` of
``tests/mutants/*.toml`` is one realistic mistake: ``file``, the text ``before`` (once in that
file), the text ``after``, and the ``tests`` that must fail. The tree is copied, the mistake is made
in the copy, and the tests run there until the first failure. First they run without any mistake,
since a red test proves nothing. One line a mutant, a sum at the end; exit 1 if one survives.
``--tests-from COMMIT`` takes ``tests/`` as it was at that commit, to compare two suites on the same
mutants.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# seconds for one run; a mutant that hangs counts as killed (each test has a timeout)
LIMIT = 600


def copied(to: Path, commit: str | None) -> Path:
    """The working tree at ``to``: what git tracks, and ``tests/`` of ``commit`` if one is named."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, names)):
        if (ROOT / name).is_file() and not (commit and name.startswith("tests/")):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    if commit:
        archive = subprocess.run(
            ["git", "archive", commit, "tests"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        ).stdout
        subprocess.run(["tar", "-x"], cwd=to, input=archive, check=True)
    return to


def passes(tree: Path, tests: list[str]) -> bool:
    paths = os.pathsep.join(str(tree / name) for name in (".", "attacks", "mitigations"))
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            timeout=LIMIT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1, 2):  # 2: a module that no longer imports
        raise SystemExit(
            f"pytest ended with {done.returncode} for tests={tests}:\n"
            f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "files", nargs="*", type=Path, help="tables of mutants (default: all in tests/mutants)"
    )
    parser.add_argument(
        "--tests-from", metavar="COMMIT", help="the suite of that commit instead of this one"
    )
    options = parser.parse_args()
    files = options.files or sorted((ROOT / "tests" / "mutants").glob("*.toml"))
    mutants = [
        one for file in files for one in tomllib.loads(file.read_text(encoding="utf-8"))["mutant"]
    ]
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder), options.tests_from)
        sound = {
            tests: passes(tree, list(tests)) for tests in {tuple(one["tests"]) for one in mutants}
        }
        if red := [" ".join(tests) for tests, green in sound.items() if not green]:
            raise SystemExit("these tests fail without any mutant: " + "; ".join(red))
        for one in mutants:
            place, started = tree / one["file"], time.monotonic()
            text = place.read_text(encoding="utf-8")
            if text.count(one["before"]) != 1:
                raise SystemExit(
                    f"file={one['file']}: the text before={one['before']!r} is there "
                    f"{text.count(one['before'])} times"
                )
            place.write_text(text.replace(one["before"], one["after"]), encoding="utf-8")
            alive = passes(tree, list(one["tests"]))
            place.write_text(text, encoding="utf-8")
            survived += alive
            before, after = (one[key].strip().splitlines() for key in ("before", "after"))
            print(
                f"{'SURVIVED' if alive else 'killed':9}{time.monotonic() - started:6.1f} s  "
                f"{one['file']}  {before[0]!r} -> {after[:1]}",
                flush=True,
            )
    print(f"{len(mutants) - survived} of {len(mutants)} mutants killed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
