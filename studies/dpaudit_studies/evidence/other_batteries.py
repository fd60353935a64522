"""Who finds what, at about equal CPU: the audit, TestU01's Rabbit, and PractRand.

Flawed and right samplers of other languages (`dpaudit_studies.real_samplers`). The audit sees
`--samples` values, and stops where a finding is certain. The others see the top 16 bits of Φ(z) of
the values of the same program under another seed, as `dpaudit audit --bits` writes them: Rabbit
2^24 bits per test (24 million values; SmallCrush would need 453 million), PractRand 32 MB (17
million values). Each is stopped after 15 CPU seconds, or as many as the audit took where that is
more. Drawing is in no row's seconds. A p-value of Rabbit is a finding beyond 1e-4 (39 of them:
0.8 % for right bits), one of PractRand where it says FAIL.

docs/studies/other-batteries.md says how both programs (`--testu01`, `--practrand`) are built. What
is not given or not installed is left out. Writes docs/studies/results/other-batteries/results.json
after every row, and resumes there.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.battery import SEARCH
from dpaudit.claims import Claim
from dpaudit.codec import to_dict
from dpaudit.errors import DpauditError
from dpaudit.protocols import Request
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit_studies.evidence import MACHINE, RESULTS, options, write
from dpaudit_studies.keyless import children_cpu
from dpaudit_studies.real_samplers import CASES
from dpaudit_studies.real_samplers.measure import ProgramSampler
from dpaudit_studies.real_samplers.programs import LANGUAGES

WRITTEN = RESULTS / "other-batteries" / "results.json"
SEED = "20261123"
GIVEN = 1 << 25  # values for the others
PIECE = 1 << 20
LEAST_CPU = 15  # seconds
FLAWED = (
    "R: Marsaglia-Multicarry/Ahrens-Dieter", "C: drand48", "Octave: randn-single",
    "C, GSL: rand/polar", "C, GSL: minstd/polar", "R: Marsaglia-Multicarry/Kinderman-Ramage",
    "C, GSL: knuthran/polar", "C, GSL: zuf/polar", "C, GSL: r250/polar", "C, GSL: ran0/polar",
    "C++: minstd_rand", "C: rand", "JavaScript: gaussian", "Python: jax", "Tcl: rand()",
)  # fmt: skip
RIGHT = ("Python: numpy.PCG64",)


def open_program(name: str, stream: KeyedStream) -> ProgramSampler:
    """The program of a case, not yet started."""
    case = CASES[name]
    language = LANGUAGES[case.language]
    command = (*language.command(), case.method)
    return ProgramSampler(command, name=name, stream=stream)


def audit(name: str, stream: KeyedStream, samples: int) -> dict[str, Any]:
    """Verdict, first finding and CPU seconds of the audit; the program's own are apart."""
    tests = tuple(sorted(set(registry.plugins("tests")) - {SEARCH}))
    how = AuditOptions(samples=samples, seed=f"{SEED}/{name}", tests=tests)
    began = time.process_time()
    with open_program(name, stream.child("audited")).open(timeout=60) as sampler:
        result = run_audit(sampler, claim=Claim.parse("gaussian:sigma=1"), options=how)
    spent = time.process_time() - began
    findings = [test for test in result.tests if test.finding]
    return {
        "found": result.verdict == "finding",
        "shows": f"{findings[0].name}: {findings[0].effect}" if findings else "",
        "values": result.samples,
        "cpu_seconds": round(spent, 1),
    }


def others(
    name: str, stream: KeyedStream, programs: dict[str, list[str]], *, cpu: int
) -> dict[str, dict[str, Any]]:
    """The programs' results on the bits of one stream of values, read by all of them at once."""
    readers = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        open_program(name, stream.child("bits")).open(timeout=60) as sampler,
    ):
        for key, command in programs.items():
            readers[key] = Reader(command, Path(folder, key), cpu=cpu)
        drawn = 0
        while drawn < GIVEN and any(reader.reading for reader in readers.values()):
            u = scipy.special.ndtr(sampler.ask(Request(PIECE, 1), timeout=600.0).values.ravel())
            bits = np.minimum(u * 65536, 65535).astype("<u2").tobytes()  # as BitWriter
            drawn += PIECE
            for reader in readers.values():
                reader.write(bits)
        return {key: reader.end() for key, reader in readers.items()}


class Reader:
    """A program that reads bits on standard input, for at most ``cpu`` seconds of CPU time."""

    def __init__(self, command: Sequence[str], path: Path, *, cpu: int) -> None:
        self._path, self._values = path, 0
        self.reading = True
        with path.open("wb") as log:
            self._program = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu)),
            )

    def write(self, bits: bytes) -> None:
        """Give it bits, unless it has ended."""
        if self.reading:
            try:
                self._program.stdin.write(bits)  # type: ignore[union-attr]
                self._values += len(bits) // 2
            except OSError:
                self.reading = False

    def end(self) -> dict[str, Any]:
        """Its result: how many of its statistics fail, and the first of them."""
        with contextlib.suppress(OSError):
            self._program.stdin.close()  # type: ignore[union-attr]
        before = children_cpu()
        self._program.wait()
        spent = children_cpu() - before
        failed = failures(self._path.read_text(errors="replace"))
        return {
            "found": bool(failed),
            "shows": "; ".join(failed[:3]),
            "failed": len(failed),
            "values": self._values,
            "ended": self._program.returncode,
            "cpu_seconds": round(spent, 1),
        }


def failures(output: str) -> list[str]:
    r"""The statistics that failed: lines of testu01.c, PractRand's with FAIL.

    >>> failures("failed: BirthdaySpacings, p = 0\n1 of 15 p-values beyond 1e-4")
    ['BirthdaySpacings, p = 0']
    >>> failures("  BCFN(2+0,13-2,T)   R= +2.1  p = 1e-12    FAIL           \n  ...and 1 more")
    ['BCFN(2+0,13-2,T)']
    """
    practrand = re.findall(r"^\s+(\S+)\s+R=.*\bFAIL", output, re.MULTILINE)
    return [*practrand, *re.findall(r"^failed: (.+)$", output, re.MULTILINE)]


def main() -> None:
    """One row per sampler and battery, on screen and in the results."""
    args = options(
        __doc__, samples=3_000_000, testu01=str, practrand=str, samplers=[*FLAWED, *RIGHT]
    )
    programs = {}
    if args.testu01:
        programs["Rabbit"] = [args.testu01, str(1 << 24)]
    if args.practrand:
        programs["PractRand"] = [args.practrand, "stdin16", "-tlmin", "1MB", "-tlmax", "32MB"]
    audit(RIGHT[0], KeyedStream.from_seed(SEED), 200_000)  # compiles
    rows: list[dict[str, Any]] = json.loads(WRITTEN.read_text())["rows"] if WRITTEN.exists() else []
    done = {row["sampler"] for row in rows}
    for name in args.samplers:
        if name in done:
            continue
        stream = KeyedStream.from_seed(SEED).child(name)
        try:
            row = {"audit": audit(name, stream, args.samples)}
            cpu = max(LEAST_CPU, int(row["audit"]["cpu_seconds"]))
            row |= others(name, stream, programs, cpu=cpu)
        except DpauditError as error:
            print(f"{name}: left out, {error}", flush=True)
            continue
        case = CASES[name]
        about = {"version": case.version, "generator": case.generator, "transform": case.transform}
        rows.append({"sampler": name, **about, "flawed": name in FLAWED, "by": row})
        print(f"{name}: " + ", ".join(f"{k} {v['found']}" for k, v in row.items()), flush=True)
        provenance = to_dict(collect(seed=SEED, plugins=()))
        write(WRITTEN, {"hardware": MACHINE, "seed": SEED, "provenance": provenance, "rows": rows})


if __name__ == "__main__":
    main()
