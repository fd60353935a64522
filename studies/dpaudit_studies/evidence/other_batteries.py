"""Who finds what, at equal CPU: the audit, TestU01's Rabbit, and PractRand.

Every sampler of other languages (`dpaudit_studies.real_samplers`), or those of `--samplers`. The
audit sees `--samples` values, and stops where a finding is certain. The others see the top 16 bits
of Φ(z) of the values of the same program under another seed, as `dpaudit audit --bits` writes
them: Rabbit 2^24 bits per test (24 million values; SmallCrush would need 453 million), PractRand
32 MB (17 million values), which take 5 and 11 CPU seconds; and more, in proportion, where the audit
took more than `CHEAP` seconds. Drawing is in no row's seconds. A p-value of Rabbit is a
finding beyond 1e-4 (39 of them: 0.8 % for right bits), one of PractRand where it says FAIL.

docs/studies/other-batteries.md says how both programs (`--testu01`, `--practrand`) are built, and
what the samplers need; what is not installed is left out, by name. Writes
docs/studies/results/other-batteries/results.json after every row, and resumes there: a row that is
in it is not run again.
"""

from __future__ import annotations

import contextlib
import json
import re
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

WRITTEN = RESULTS / "other-batteries" / "results.json"
SEED = "20261123"
PIECE = 1 << 20  # values
CHEAP = 4.0  # CPU seconds
RABBIT, PRACTRAND = 1 << 24, 1 << 15  # bits per test, KB


def open_program(name: str, stream: KeyedStream) -> ProgramSampler:
    """The program of a case, not yet started."""
    return ProgramSampler(CASES[name].command(), name=name, stream=stream)


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
    name: str, stream: KeyedStream, programs: dict[str, list[str]]
) -> dict[str, dict[str, Any]]:
    """The programs' results on the bits of one stream of values, read by all of them at once."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_program(name, stream.child("bits")).open(timeout=60) as sampler,
    ):
        readers = {key: Reader(words, Path(folder, key)) for key, words in programs.items()}
        while any(reader.reading for reader in readers.values()):
            u = scipy.special.ndtr(sampler.ask(Request(PIECE, 1), timeout=600.0).values.ravel())
            bits = np.minimum(u * 65536, 65535).astype("<u2").tobytes()  # as BitWriter
            for reader in readers.values():
                reader.write(bits)
        return {key: reader.end() for key, reader in readers.items()}


class Reader:
    """A program that reads bits on standard input, until it has read enough."""

    def __init__(self, command: Sequence[str], path: Path) -> None:
        self._path, self._values = path, 0
        self.reading = True
        with path.open("wb") as log:
            self._program = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
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
        """Its result: how many of its statistics fail, and the first of them.

        Raises:
            SystemExit: it ended without a result.
        """
        with contextlib.suppress(OSError):
            self._program.stdin.close()  # type: ignore[union-attr]
        before = children_cpu()
        status = self._program.wait()
        spent = children_cpu() - before
        output = self._path.read_text(errors="replace")
        if status not in (0, 1):
            raise SystemExit(f"{self._program.args!r}: ended with {status}: {output[-200:]}")
        failed = failures(output)
        return {
            "found": bool(failed),
            "shows": "; ".join(failed[:3]),
            "failed": len(failed),
            "values": self._values,
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


def commands(testu01: str | None, practrand: str | None, share: float) -> dict[str, list[str]]:
    """The programs, to read ``share`` times as much as they do at least."""
    programs = {}
    if testu01:
        programs["Rabbit"] = [testu01, str(int(share * RABBIT))]
    if practrand:
        limits = ("-tlmin", "1MB", "-tlmax", f"{int(share * PRACTRAND)}KB")
        programs["PractRand"] = [practrand, "stdin16", *limits]
    return programs


def main() -> None:
    """One row per sampler and battery, on screen and in the results."""
    args = options(__doc__, samples=3_000_000, testu01=str, practrand=str, samplers=[*CASES])
    audit("Python: numpy.PCG64", KeyedStream.from_seed(SEED), 200_000)  # compiles
    rows: list[dict[str, Any]] = json.loads(WRITTEN.read_text())["rows"] if WRITTEN.exists() else []
    done = {row["sampler"] for row in rows}
    for name in args.samplers:
        if name in done:
            continue
        stream = KeyedStream.from_seed(SEED).child(name)
        try:
            row = {"audit": audit(name, stream, args.samples)}
            share = max(1.0, row["audit"]["cpu_seconds"] / CHEAP)
            row |= others(name, stream, commands(args.testu01, args.practrand, share))
        except DpauditError as error:
            print(f"{name}: left out, {error}", flush=True)
            continue
        case = CASES[name]
        about = {"version": case.version, "generator": case.generator, "transform": case.transform}
        rows.append({"sampler": name, **about, "by": row})
        print(f"{name}: " + ", ".join(f"{k} {v['found']}" for k, v in row.items()), flush=True)
        provenance = to_dict(collect(seed=SEED, plugins=()))
        write(WRITTEN, {"hardware": MACHINE, "seed": SEED, "provenance": provenance, "rows": rows})


if __name__ == "__main__":
    main()
