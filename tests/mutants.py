"""Does a test fail when the product is wrong?

`python tests/mutants.py [NAME ...]`, or `make mutants`. Each table ``[[mutant]]`` of
``tests/mutants.toml`` is one realistic mistake in statistics, privacy accounting, cryptography or
the sandbox: the ``function`` it is in (``package.module:Class.method``), the ``pattern`` of code
that is there once, what stands ``instead``, and the ``tests`` that must fail. Space does not count
in a pattern, nor a comma before a closing bracket, so that formatting changes nothing. The tree is
copied, the mistake is made in the copy, and the tests run there until the first failure, quick ones
first. At the end the tests that failed run without any mistake, since a red test proves nothing.
One line a mutant, a sum at the end; exit 1 if one survives.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "mutants.toml"
PACKAGES = {
    "dpaudit": ".",
    "dpaudit_attacks": "attacks",
    "dpaudit_mitigations": "mitigations",
    "dpaudit_deployments": "extensions",
    "dpaudit_local": "extensions",
    "dpaudit_prove": "extensions",
    "dpaudit_studies": "studies",
    "tests": ".",
}
# seconds for one run; a mutant that hangs counts as killed (each test has a timeout)
LIMIT = 600
QUICK = "not slow and not gpu and not packaging and not browser"
SLOW = "slow and not gpu and not packaging and not browser"
NOTHING = 5  # pytest: no test has these marks


def file_of(function: str) -> Path:
    """The file of ``package.module:NAME``, relative to the root."""
    module = function.partition(":")[0].split(".")
    path = Path(PACKAGES[module[0]], *module)
    return path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")


def span(text: str, name: str) -> tuple[int, int]:
    """Where the function, method or module constant ``name`` begins and ends in a file."""
    place: Any = ast.parse(text)
    for part in name.split("."):
        place = next(n for n in place.body if part in names_of(n))
    lines = text.splitlines(keepends=True)
    first = min([place.lineno, *(d.lineno for d in getattr(place, "decorator_list", ()))]) - 1
    return sum(map(len, lines[:first])), sum(map(len, lines[: place.end_lineno]))


def names_of(node: ast.AST) -> set[str]:
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return {getattr(node, "name", ""), *(t.id for t in targets if isinstance(t, ast.Name))} - {""}


def matcher(pattern: str) -> re.Pattern[str]:
    """The pattern's tokens, with any space between them."""
    tokens = re.findall(r"\w+|[^\w\s]", pattern)
    return re.compile(r"\s*".join(r",?\s*" * (t in ")]}") + re.escape(t) for t in tokens))


def mutated(text: str, mutant: dict[str, Any]) -> str:
    """The file with the mistake.

    Raises:
        SystemExit: the function is gone, or its pattern is not there once.
    """
    try:
        begin, end = span(text, mutant["function"].partition(":")[2])
    except StopIteration:
        raise SystemExit(f"function={mutant['function']}: not there") from None
    made, count = matcher(mutant["pattern"]).subn(lambda _: mutant["instead"], text[begin:end])
    if count != 1:
        raise SystemExit(f"function={mutant['function']}: {mutant['pattern']!r} is there {count} ×")
    return text[:begin] + made + text[end:]


def copied(to: Path) -> Path:
    """The working tree at ``to``: what git tracks, and what is new and not ignored."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, names)):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def first_failure(tree: Path, *tests: str, marks: str) -> str | None:
    """The first of these tests that fails, as pytest names it; None if none does."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(tree / name) for name in sorted({*PACKAGES.values()})),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marks]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=tree,
            env=environment,
            timeout=LIMIT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT} s"
    if done.returncode in (0, NOTHING):
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode not in (1, 2) or failed is None:  # 2: a module that no longer imports
        raise SystemExit(
            f"pytest ended with {done.returncode} for tests={tests}:\n"
            f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return failed[1]


def killer(tree: Path, mutant: dict[str, Any]) -> str | None:
    """The test that sees the mistake, quick tests first; None if none does."""
    place = tree / file_of(mutant["function"])
    text = place.read_text(encoding="utf-8")
    place.write_text(mutated(text, mutant), encoding="utf-8")
    try:
        return next(
            filter(None, (first_failure(tree, *mutant["tests"], marks=m) for m in (QUICK, SLOW))),
            None,
        )
    finally:
        place.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="mutants whose function contains this")
    options = parser.parse_args()
    mutants = [
        one
        for one in tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutant"]
        if not options.names or any(name in one["function"] for name in options.names)
    ]
    for one in mutants:
        mutated((ROOT / file_of(one["function"])).read_text(encoding="utf-8"), one)
    killers: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        survived = 0
        for one in mutants:
            started = time.monotonic()
            test = killer(tree, one)
            survived += test is None
            killers |= {test} - {None}
            print(
                f"{'SURVIVED' if test is None else 'killed':9}{time.monotonic() - started:6.1f} s  "
                f"{one['function']}  {one['pattern']} -> {one['instead']}  {test or ''}",
                flush=True,
            )
        named = sorted(test for test in killers if "::" in test)
        if named and (red := first_failure(tree, *named, marks=f"({QUICK}) or ({SLOW})")):
            raise SystemExit(f"{red} fails without any mutant")
    print(f"{len(mutants) - survived} of {len(mutants)} mutants killed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
