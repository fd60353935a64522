"""Exact laws by `dpaudit prove`: samplers that are right, planted bugs, and what sampling shows.

    python -m dpaudit_prove.evidence samplers bugs mechanisms specimens opendp --out FOLDER
    python -m dpaudit_prove.evidence sampling --out FOLDER

The samplers of others are found in the folders of DPAUDIT_PROVE_PATH (os.pathsep between them):
discretegauss.py as published. Those that are missing are left out, by name.
Each part writes PART.json as soon as a row is known, and takes up what it finds there.

    python -m dpaudit_prove.evidence library --python PYTHON --out FOLDER

compares the model of OpenDP 0.14.1 with the library: `--python` is one of an environment that has
it (`make envs ONLY=opendp-0.14.1`).
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from scipy.stats import chi2

from dpaudit.provenance import hardware

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "data" / "prove"
MACHINE = f"{hardware()}, Python {platform.python_version()}"
SCALES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
RELEASES = 10**6
VALUES = 10**6
DRAW_SETTINGS = [("laplace", 2), ("laplace", 3), ("laplace", 10), ("gaussian", 2), ("gaussian", 4)]
Row = dict[str, Any]


@cache
def tables_of(kind: str) -> list[dict[str, Any]]:
    """Programs to prove: a table of ``evidence.toml``, or a "bug" that changes a right program."""
    name = "bugs.toml" if kind == "bug" else "evidence.toml"
    tables: list[dict[str, Any]] = tomllib.loads((PROGRAMS / name).read_text("utf-8"))[kind]
    return tables


def environment() -> dict[str, str]:
    paths = [
        PROGRAMS,
        PROGRAMS / "third_party",
        *os.environ.get("DPAUDIT_PROVE_PATH", "").split(os.pathsep),
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, paths)))}


def run_dpaudit(*arguments: str) -> tuple[int, Row, float, str]:
    """Exit code, JSON, CPU seconds and standard error of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "dpaudit", *arguments, "--format", "json"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        result = json.loads(done.stdout)
    except ValueError:
        result = {}
    return done.returncode, result, cpu, done.stderr.strip()


def prove_program(program: str, *options: str, check: bool = True) -> Row:
    """A proof with its certificate, and the certificate's check."""
    with tempfile.TemporaryDirectory() as folder:
        code, result, cpu, error = run_dpaudit("prove", program, *options, "--out", folder)
        if not result:
            last = error.splitlines()[-1] if error else ""
            return {"exit": code, "error": re.sub(r"/\S*/site-packages/", "", last)}
        row = {
            "exit": code,
            "cpu_seconds": cpu,
            **{name: result[name] for name in ("verdict", "states", "outputs", "residual")},
            **{name: result.get(name) for name in ("total_variation", "log_ratio", "profile")},
            "reason": result["reason"],
            "coin_count": result.get("coin_count"),
            "disjoint": result.get("disjoint"),
            "counterexample": result.get("counterexample"),
        }
        for file in Path(folder).glob("certificate.json.gz"):
            row["certificate_bytes"] = file.stat().st_size
            with gzip.open(file) as content:
                row["certificate_json_bytes"] = len(content.read())
            if not check:
                continue
            code, checked, cpu, error = run_dpaudit(
                "verify", "certificate", str(file), "--program", program
            )
            row["check"] = {
                "exit": code,
                "cpu_seconds": cpu,
                "error": "" if code == 0 else error,
                "says": checked.get("says", ""),
            }
        return row


def samplers() -> Iterator[tuple[str, Callable[[], Row]]]:
    computed = {"BIASED": biased_claim, "DIFFPRIVLIB": diffprivlib_claim}
    for table in tables_of("sampler"):
        program, arguments = table["program"], json.dumps(table.get("arguments", {}))
        module = program.partition(":")[0]
        if run_python(f"import {module}").returncode:
            print(f"left out: {module} is not on DPAUDIT_PROVE_PATH", file=sys.stderr)
            continue
        claim = computed.get(table["claim"], lambda t=table: t["claim"])()
        options = ["--claim", claim, "--args", arguments]
        row = {"arguments": {}, **table, "claim": claim}
        yield (
            f"{program} {arguments}",
            lambda o=options, r=row, p=program: {**r, **prove_program(f"python:{p}", *o)},
        )


def run_python(
    code: str, python: str = sys.executable, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )


def biased_claim() -> str:
    probability = Fraction(int(run_python("import ours; print(ours.LIE_2)").stdout), 1 << 64)
    return f"bernoulli:p={probability}"


def diffprivlib_claim() -> str:
    scale = run_python("import with_diffprivlib as d; print(repr(float(d.GAUSSIAN._scale)))").stdout
    return f"discrete-gaussian:sigma={Fraction(float(scale))}"


def plant_bug(bug: Row, folder: Path) -> str:
    """The file with a bug."""
    text = (PROGRAMS / bug.get("file", "right.py")).read_text(encoding="utf-8")
    assert text.count(bug["before"]) == 1, bug["name"]
    path = folder / "planted.py"
    path.write_text(text.replace(bug["before"], bug["after"]), encoding="utf-8")
    return str(path)


def bugs() -> Iterator[tuple[str, Callable[[], Row]]]:
    for bug in tables_of("bug"):
        yield bug["name"], lambda bug=bug: one_bug(bug)


def one_bug(bug: Row) -> Row:
    options = [f"--{name}={bug[name]}" for name in ("residual", "tolerance") if name in bug]
    claim = (
        ["--claim", bug["claim"]]
        if "claim" in bug
        else claim_options(bug, delta=bug.get("delta", "0"))
    )
    with tempfile.TemporaryDirectory() as folder:
        program = f"python:{plant_bug(bug, Path(folder))}:{bug['function']}"
        return {**bug, **prove_program(program, *options, *claim, check=False)}


def specimens() -> Iterator[tuple[str, Callable[[], Row]]]:
    for name in ("pancake", "seed_in_noise", "honest", "honest_laplace"):
        yield name, lambda n=name: prove_program(f"python:specimens:{n}", "--disjoint")


def mechanisms() -> Iterator[tuple[str, Callable[[], Row]]]:
    for table in tables_of("mechanism"):
        row = {name: table[name] for name in ("program", "neighbours", "epsilon", "delta")}
        yield (
            table["name"],
            lambda r=row: {**r, **prove_program(f"python:{r['program']}", *claim_options(r))},
        )


def claim_options(row: Row, *, delta: str | None = None) -> list[str]:
    """The options of a claim about two neighbours."""
    delta = row["delta"] if delta is None else delta
    claim = ["--claim-epsilon", row["epsilon"], "--claim-delta", delta]
    return ["--neighbours", row["neighbours"], *claim]


def opendp() -> Iterator[tuple[str, Callable[[], Row]]]:
    for scale in SCALES:
        yield f"laplace {scale}", lambda s=scale: profile("laplace_mechanism", s, f"1/{s}")
    for sigma in (1, 2, 4):
        yield f"gaussian {sigma}", lambda s=sigma: profile("gaussian_mechanism", s, "1")


def profile(function: str, parameter: int, epsilon: str) -> Row:
    row = prove_program(
        f"python:opendp_0_14_1:{function}",
        *("--neighbours", "0,1", "--claim-epsilon", epsilon, "--claim-delta", "1e-9"),
        *("--args", json.dumps([parameter])),
        check=False,
    )
    return {"function": function, "parameter": parameter, "claimed": epsilon, **row}


DRAW_SCRIPT = """
import collections, json, sys
from importlib.metadata import version
import opendp.prelude as dp
dp.enable_features("contrib")
make = {"laplace": dp.m.make_laplace, "gaussian": dp.m.make_gaussian}[sys.argv[1]]
metric = {"laplace": dp.l1_distance(T=int), "gaussian": dp.l2_distance(T=float)}[sys.argv[1]]
draw = make(dp.vector_domain(dp.atom_domain(T=int)), metric, scale=float(sys.argv[2]))
counts = collections.Counter()
for _ in range(int(sys.argv[3]) // 10_000):
    counts.update(draw([0] * 10_000))
print(json.dumps([version("opendp"), sorted(counts.items())]))
"""


def library(python: str | None) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Compare OpenDP itself with the model of it."""
    if python is None or run_python("import opendp", python).returncode:
        print("left out: --python names no Python with opendp==0.14.1", file=sys.stderr)
        return
    for law, parameter in DRAW_SETTINGS:
        yield f"{law} {parameter}", lambda a=law, b=parameter: compare_draws(python, a, b)


def compare_draws(python: str, law: str, parameter: int) -> Row:
    """χ² of values of the library against the exact law of the model, and against the right one."""
    done = run_python(DRAW_SCRIPT, python, law, str(parameter), str(VALUES))
    if done.returncode:
        return {"exit": done.returncode, "error": done.stderr.strip().splitlines()[-1]}
    version, pairs = json.loads(done.stdout)
    counts = dict(map(tuple, pairs))
    model = dpaudit_law(law, parameter)
    power, scale = (1, parameter) if law == "laplace" else (2, 2 * parameter**2)
    weights = {x: math.exp(-(abs(x) ** power) / scale) for x in range(-2000, 2001)}
    right = {x: w / sum(weights.values()) for x, w in weights.items()}
    return {
        "law": law,
        "parameter": parameter,
        "version": version,
        "values": sum(counts.values()),
        "model": chi_squared(counts, model),
        "right": chi_squared(counts, right),
        "apart": sum(abs(model.get(x, 0) - p) for x, p in right.items()) / 2,
    }


def dpaudit_law(law: str, parameter: int) -> dict[int, float]:
    sys.path.insert(0, str(PROGRAMS))
    model = import_module("opendp_0_14_1")

    from dpaudit_prove.run import prove_law

    law_ = prove_law(getattr(model, f"discrete_{law}"), parameter)
    return {int(x): float(p) for x, p in law_.mass.items()}  # type: ignore[call-overload]


def chi_squared(counts: Mapping[int, int], law: Mapping[int, float]) -> Row:
    """Pearson's statistic; values that are expected less than ten times are one cell."""
    total = sum(counts.values())
    cells = {x: p * total for x, p in law.items() if p * total >= 10}
    rest = total - sum(cells.values())
    observed = [counts.get(x, 0) for x in cells]
    pairs = [*zip(observed, cells.values(), strict=True)]
    if rest >= 1:
        pairs.append((total - sum(observed), rest))
    statistic = sum((o - e) ** 2 / e for o, e in pairs)
    freedom = len(pairs) - 1
    return {"chi2": statistic, "freedom": freedom, "p": float(chi2.sf(statistic, freedom))}


def sampling() -> Iterator[tuple[str, Callable[[], Row]]]:
    for table in [*tables_of("release"), *(t for t in tables_of("mechanism") if "sampled" in t)]:
        yield table["name"], lambda t=table: compare_sampling(t)


def compare_sampling(table: Row) -> Row:
    """A claim that is proved or refuted, and what 10^6 releases per neighbour show of it."""
    program, epsilon = table["program"], table["epsilon"]
    options = claim_options(
        table, delta=table.get("delta") if table.get("delta") == "0.0073" else "1e-9"
    )
    with tempfile.TemporaryDirectory() as folder:
        bug = next((bug for bug in tables_of("bug") if bug["name"] == table["name"]), None)
        if bug is not None:
            program = f"{plant_bug(bug, Path(folder))}:laplace_mechanism"
        exact = prove_program(f"python:{program}", *options, check=False)
        options[1] = options[1].replace("],[", ";").strip("[]")
        options[3] = str(value_of(epsilon))
        code, result, cpu, error = run_dpaudit(
            *("mechanism", f"python:{program}", "--call", "f(value)", *options),
            *("--samples", str(RELEASES), "--seed", "20261224", "--time-limit", "3000"),
        )
    fields = {name: result.get(name) for name in ("verdict", "reason", "epsilon", "delta")}
    return {
        "claimed": epsilon,
        "proved": exact,
        "sampled": {"exit": code, "cpu_seconds": cpu, "releases": RELEASES, **fields}
        | ({} if result else {"error": error}),
    }


def value_of(epsilon: str) -> float:
    """The number: of ``1/3``, or of ``ln(4/3)``."""
    if epsilon.startswith("ln("):
        return math.log(Fraction(epsilon[3:-1]))
    return float(Fraction(epsilon))


PARTS: dict[str, Callable[..., Iterator[Any]]] = {
    f.__name__: f for f in (samplers, bugs, mechanisms, specimens, opendp, library, sampling)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", help="for library: one that has opendp==0.14.1")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts:
        path = options.out / f"{part}.json"
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else {}
        for name, make in library(options.python) if part == "library" else PARTS[part]():
            if name not in rows:
                rows[name] = make()
            print(part, name, json.dumps(rows[name])[:400], sep=" | ", flush=True)
            text = json.dumps({"machine": MACHINE, "rows": rows}, indent=1, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
