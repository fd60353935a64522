"""Do the results still stand? Seeded commands, compared with stored results.

`python tests/golden.py [ROW ...] [--write] [--jobs N]`, or `make golden`. Each row is a command as
a person types it; its facts are verdicts, p-values, bounds and released numbers, from the documents
that it writes, never a sentence or a time. They must equal ``tests/golden/expected.json``: whole
numbers and words exactly, floats to ``DIGITS`` significant digits. ``KERNELS`` chooses the same
kernels of BLAS and torch on every machine; ``LOOSE`` names what hangs on the last digits. A row
that differs is named with its facts; exit 1. ``--write`` stores what the rows give now: look at the
difference before you commit it. The facts' names belong to this file, so that documents may change
shape: then only the functions that read them do.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "tests" / "golden"
OWN = "python:tests/golden/samplers.py"
EXPECTED = HERE / "expected.json"
DIGITS = 9
SHORT = 12  # of a longer list: how many numbers, their sum, and their sum weighted by place
SHOWN = 12
KERNELS = {  # one set of kernels on every x86-64 processor since 2013, and one thread
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
}
TIMED = {"timing", "keyless-search"}  # tests whose numbers depend on a clock
LOOSE = {  # facts that count or measure rounding errors, which other processors make elsewhere
    "measure dpsgd-bits": {"infeasible_false": 0.05, "infeasible_false_least": 0.05},
    "measure dpsgd-training": {"infeasible_false": 0.05},
    "measure gradient-attack": {"float32_error": 0.5},
    "measure gradient-size": {
        "l2_diff_mean": 1e-7,
        "l2_diff_median": 1e-7,
        "l2_mean": 1e-7,
        "l2_median": 1e-7,
    },
    "measure next-batch": {"size": 1e-7},
    "measure opacus-replay": {"error": 0.5},
    "measure unknown-gradient": {"off": 0.5},
}
VOLATILE = ("seconds", "slowest", "parties", "provenance", "memory", "advice")
VOLATILE += ("harm", "topic", "component", "plugin")  # words and code, not results
VOLATILE += ("sp800_22",)  # by a package that is optional
Facts = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A command, ``{out}`` in it a folder of its own, and what its results say.

    ``before`` is a command that runs first, ``spec`` the text of {out}/spec.toml, ``document`` the
    file in {out} that holds the results, if they are not on stdout. {files}: ``golden/files.py``.
    """

    name: str
    command: str
    facts: Callable[[dict[str, Any]], Facts]
    before: str = ""
    spec: str = ""
    document: str = ""


def low_high(interval: dict[str, Any] | None) -> list[float] | None:
    return interval and [interval["low"], interval["high"]]


def audit_facts(told: dict[str, Any]) -> Facts:
    facts = {"verdict": told["verdict"], "samples": told["samples"], "cause": told.get("cause")}
    for test in told["tests"]:
        timed = test["name"] in TIMED
        facts[test["name"]] = test["finding"] if timed else [test["p"], test["p_adjusted"]]
    return facts


def mechanism_facts(told: dict[str, Any]) -> Facts:
    facts = {name: low_high(told[name]) for name in ("epsilon", "delta", "mu")}
    tests = {test["name"]: [test["p"], test["statistic"]] for test in told["tests"]}
    return {"verdict": told["verdict"], "samples": told["samples"], **facts, **tests}


def proof_facts(told: dict[str, Any]) -> Facts:
    names = ("verdict", "states", "outputs", "residual", "epsilon", "profile")
    facts = {name: told[name] for name in names}
    facts |= {name: low_high(told[name]) for name in ("total_variation", "log_ratio")}
    return {**facts, "coins": told["coin_count"]}


def p_values(told: dict[str, Any]) -> Facts:
    """Of an audit beside a search for a key that is over in time on some machines and not on
    others: what its tests say apart from that, before the correction for many tests."""
    return {test["name"]: test["p"] for test in told["tests"] if test["name"] not in TIMED}


def run_facts(
    told: dict[str, Any], of_audit: Callable[[dict[str, Any]], Facts] = audit_facts
) -> Facts:
    """The rows of its table, and every audit of its cells."""
    audited = [cell["outcome"] for cell in told["cells"] if cell["kind"] == "audit"]
    facts = plain([{**row, "audit": None} for row in told["rows"]])
    for i, outcome in enumerate(audited):
        facts |= {f"audit {i} {name}": fact for name, fact in of_audit(outcome).items()}
    return facts


def row_names(told: dict[str, Any]) -> Facts:
    """For a measure of times: what it measured, not how long that took."""
    return {f"row {i}": sorted(row) for i, row in enumerate(told["rows"])}


def plain(told: Any) -> Facts:
    """Every number, flag and word by its path; without times, sentences and where it ran."""
    return dict(leaves(told, ""))


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value.keys() >= {"low", "high"}:
        yield path, [value[name] for name in ("value", "low", "high") if name in value]
    elif isinstance(value, list) and len(flat := list(numbers(value))) > SHORT:
        sums = (math.fsum(flat), math.fsum(i * x for i, x in enumerate(flat)))
        yield path, [len(flat), *map(float, sums)]
    elif isinstance(value, list) and len(value) > SHORT and all(isinstance(x, dict) for x in value):
        columns = {name: None for one in value for name in one}
        yield from leaves({name: [one.get(name) for one in value] for name in columns}, path)
    elif isinstance(value, dict | list):
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            if not any(word in str(name) for word in VOLATILE):
                yield from leaves(one, f"{path}.{name}" if path else str(name))
    elif value is not None and not (isinstance(value, str) and set(value) & {" ", os.sep}):
        yield path, value


def numbers(value: Any) -> Iterator[float]:
    """The numbers of nested lists; nothing if there is anything else."""
    for one in value:
        if isinstance(one, list):
            yield from numbers(one)
        elif isinstance(one, int | float):
            yield float(one)


GAUSSIAN = (
    "normal wide cut hole sixteen_bits coarse low_bits correlated shared flat sphere antithetic "
    "lagged pool shrinking fixed_seed special legacy thick_pancake on_value"
)
UNTIMED = (
    "congruential,coordinates,correlation,covariance,drift,forks,goodness-of-fit,granularity,"
    "hidden-direction,kernel,last-digits,linear-complexity,moments,norms,order,predictable,"
    "projections,repeats,spectrum,state-recovery,support,tails,triggers,value-dependence"
)


def audits() -> Iterator[Row]:
    claims = dict.fromkeys(GAUSSIAN.split(), "gaussian:sigma=1")
    claims |= {"laplace": "laplace:scale=1", "laplace_wide": "laplace:scale=1"}
    claims |= {"rounded": "discrete-gaussian:sigma=2"}
    for name, claim in claims.items():
        samples = 20_000 if name == "on_value" else 300_000
        command = f"audit {OWN}:{name} --claim {claim} --samples {samples} --all --tests {UNTIMED}"
        yield Row(f"audit {name}", f"{command} --seed 1", audit_facts)
    for source in (
        "gaussian",
        "gaussian --mitigation rotation --claim gaussian:sigma=1 --dim 64",
        "secure-gaussian",
        "discrete-gaussian:sigma=10",
        "discrete-laplace:scale=10",
        "box-muller-f32",
        "pancake:key={files}/key.json",
    ):
        command = f"audit {source} --samples 100000 --seed 2"
        yield Row(f"audit {source}", command, audit_facts)


def mechanisms() -> Iterator[Row]:
    for name, pair in (
        ("add_laplace", "0,1"),
        ("add_narrow_laplace", "0,1"),
        ("add_grid_laplace", "0,1"),
        ("count_rows", "'{files}/a.csv;{files}/b.csv'"),
    ):
        command = f"mechanism {OWN}:{name} --neighbours {pair} --claim-epsilon 1 --samples 20000"
        yield Row(f"mechanism {name}", f"{command} --seed 1", mechanism_facts)
    counts = "mechanism counts:80,20,30,70 --claim-epsilon 1"
    yield Row("mechanism counts", counts, mechanism_facts)
    for name in ("train", "train_quietly"):
        command = f"training ./tests/golden/samplers.py:{name} --claim-mu 1 --seed 1"
        yield Row(f"training {name}", command, mechanism_facts)


def proofs() -> Iterator[Row]:
    for name in ("draw", "biased"):
        program = f"python:examples/11_discrete_laplace.py:{name}"
        prove = (
            f"prove {program} --claim discrete-laplace:scale=2 --format json --out {{out}}/proof"
        )
        yield Row(f"prove {name}", prove, proof_facts)
        verify = f"verify certificate {{out}}/proof/certificate.json.gz --program {program}"
        yield Row(f"verify {name}", verify, plain, before=prove)
    answer = "prove python:tests/data/prove/ours.py:answer --neighbours 0,1 --claim-epsilon 1"
    yield Row("prove answer", answer, proof_facts)


def deployments() -> Iterator[Row]:
    device = "--config tests/data/apple/10.12.3"
    yield Row(
        "deployment apple, simulated",
        f"deployment apple {device} --database {{files}}/device/database.sqlite"
        " --reports {files}/device/Reports",
        lambda told: plain({**told, "observed": None, "database": None}),
    )
    for command in (
        "apple --config tests/data/apple/ios-11 --against tests/data/apple/ios-10.1.1"
        " --reports tests/data/apple/reports",
        "census --nmf {files}/census --sums",
        "attribution --events {files}/events.jsonl --seed 1",
        "attribution --summary {files}/noisy.json --unnoised {files}/exact.json --seed 1",
    ):
        name = " ".join(command.split()[:2])
        yield Row(f"deployment {name}", f"deployment {command}", plain)


def attacks() -> Iterator[Row]:
    files = "--candidates {files}/candidates.npy --truth {files}/truth.npy"
    for attack, releases in (
        ("likelihood-ratio:key={files}/key.json,sigma=4", "releases"),
        ("nearest-peak:key={files}/key.json,sigma=4", "releases"),
        ("reach", "gaussian"),
    ):
        command = f"attack {attack} --releases {{files}}/{releases}.npy {files}"
        yield Row(f"attack {attack.partition(':')[0]}", command, plain)
    yield Row("key hardness", "key hardness --dim 128 --beta 1e-4", plain)


def runs() -> Iterator[Row]:
    yield Row("demo", "demo --out {out}/run", run_facts, document="run/results.json")
    stored = tomllib.loads((HERE / "measures.toml").read_text(encoding="utf-8"))
    for name, own in stored["measures"].items():
        spec = {"name": name, **stored[own.pop("like")], **own}
        if name not in ("attack", "audit"):
            spec |= {"measure": name, "column": [{"key": "x", "format": "text"}]}
        yield Row(
            f"measure {name}",
            "run {out}/spec.toml --out {out}/run",
            {"timing": row_names, "audit": partial(run_facts, of_audit=p_values)}.get(
                name, run_facts
            ),
            spec="".join(f"{key} = {toml(value)}\n" for key, value in spec.items()),
            document="run/results.json",
        )


def toml(value: Any) -> str:
    """A value as it stands in TOML, tables inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def results(row: Row, files: Path) -> Facts:
    """What the row says now, its exit code among it."""
    with tempfile.TemporaryDirectory() as folder:
        if row.spec:
            Path(folder, "spec.toml").write_text(row.spec, encoding="utf-8")
        for command in filter(None, (row.before, row.command)):
            text = command.replace("{out}", folder).replace("{files}", str(files))
            as_json = () if row.document or "--out {out}" in command else ("--format", "json")
            done = run("-m", "dpaudit", *shlex.split(text), *as_json)
        try:
            text = Path(folder, row.document).read_text("utf-8") if row.document else done.stdout
            value = json.loads(text)
            value = value["data"] if row.document else value
            facts = row.facts({k: v for k, v in value.items() if k not in ("schema", "kind")})
        except (ValueError, OSError, LookupError, TypeError) as error:
            facts = {"no results": f"{type(error).__name__}: {error}: {done.stderr[-600:]}"}
        return {"exit code": done.returncode, **json.loads(json.dumps(facts))}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **KERNELS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def same(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Equal; floats to ``DIGITS`` significant digits, all numbers within a relative tolerance."""
    if isinstance(one, float) or (tolerance and isinstance(one, int)):
        near = max(10.0**-DIGITS, tolerance)
        number = isinstance(other, float | int)
        return number and (math.isclose(one, other, rel_tol=near, abs_tol=1e-300) or one == other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def differences(row: str, expected: Facts, now: Facts) -> list[str]:
    missing, loose = object(), LOOSE.get(row, {})
    return [
        f"{name}: {expected.get(name, 'not there')!r} -> {now.get(name, 'gone')!r}"
        for name in {**expected, **now}
        if not same(
            expected.get(name, missing),
            now.get(name, missing),
            loose.get(name.rpartition(".")[2], 0.0),
        )
    ]


def main(argv: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows whose names contain this")
    parser.add_argument("--write", action="store_true", help="store what the rows give now")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    options = parser.parse_args(argv)
    every = [*runs(), *audits(), *mechanisms(), *proofs(), *deployments(), *attacks()]
    rows = [r for r in every if not options.rows or any(part in r.name for part in options.rows)]
    expected = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
    differ = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        files = Path(folder, "files")
        run(str(HERE / "files.py"), str(files)).check_returncode()
        jobs = [pool.submit(results, row, files) for row in rows]
        for row, job in zip(rows, jobs, strict=True):
            now = job.result()
            lines = differences(row.name, expected.get(row.name, {}), now)
            differ += bool(lines)
            print(f"{'DIFFERS' if lines else 'same':8}{row.name}", flush=True)
            for line in lines[:SHOWN]:
                print(f"        {line}")
            if len(lines) > SHOWN:
                print(f"        and {len(lines) - SHOWN} more")
            expected[row.name] = now
    if not options.rows:
        expected = {row.name: expected[row.name] for row in rows}
    if options.write:
        text = json.dumps(expected, indent=1, sort_keys=True, ensure_ascii=False)
        EXPECTED.write_text(text + "\n", encoding="utf-8")
    print(f"{len(rows) - differ} of {len(rows)} rows are as they were")
    return int(differ > 0 and not options.write)


if __name__ == "__main__":
    sys.exit(main())
