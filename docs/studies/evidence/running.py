"""Studies run one after another, or a few at once; each leaves its results and their record."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from dpaudit.provenance import hardware
from evidence.code import ROOT, commit, dependencies, git
from evidence.plan import Study
from evidence.record import Record, stale

__all__ = ["run_stale"]

TRACE = Path(__file__).with_name("trace")
_RUNNING: set[subprocess.Popen[bytes]] = set()


def run_stale(studies: list[Study], *, jobs: int, budget: float) -> int:
    """Run what is stale, cheapest first, those that run alone last; 0 if all is fresh now, else 1.

    A study that fails stops no other. What ``jobs`` processes have begun when ``budget`` hours of
    the clock are over goes on to its end; an interrupted run goes on with the same command, unless
    the code has changed since.

    Raises:
        SystemExit: this is no git checkout, or it has changes that no commit has.
    """
    try:
        changed = _changed()
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(
            f"{ROOT}: git cannot tell its state; as a result is of a commit, "
            "run this in a git checkout"
        ) from None
    if changed:
        raise SystemExit(
            f"{changed.splitlines()[0].strip()}: not committed; a result is of a commit: "
            "commit, or put the changes away (docs/ and tables that studies write may differ)"
        )
    waiting = [study for study in studies if any(stale(study, Record.of(study.name)))]
    able = [study for study in waiting if not any(study.missing())]
    for study in waiting:
        if study not in able:
            _say(study, f"left out: needs {', '.join(study.missing())}")
    total = sum(study.minutes for study in able)
    print(f"{len(able)} of {len(studies)} studies are to be run: about {total:.0f} minutes of CPU")
    until = time.monotonic() + 3600 * budget
    left = []
    for at_once, alone in ((jobs, False), (1, True)):
        some = [study for study in able if study.alone == alone]
        with ThreadPoolExecutor(at_once) as pool:
            try:
                done = list(pool.map(lambda study: time.monotonic() < until and _run(study), some))
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(_RUNNING):
                    os.killpg(process.pid, signal.SIGTERM)
                raise SystemExit("interrupted: the same command goes on") from None
        left += [study.name for study, fine in zip(some, done, strict=True) if not fine]
    if left:
        print(f"not done: {', '.join(left)}")
    return int(bool(left) or len(able) < len(waiting))


def _changed() -> str:
    """Changes that no commit has, apart from documents and tables that studies write."""
    return git("status", "--porcelain", "--", ".", ":!docs", ":!dpaudit/*.csv")


def _run(study: Study) -> bool:
    """One study, with its record; False, and said why, if a command failed."""
    code = commit()
    begun = study.out / "begun"
    if not begun.exists() or begun.read_text() != code:
        shutil.rmtree(study.out, ignore_errors=True)  # rows of other code are not gone on with
        study.out.mkdir(parents=True)
        study.results.mkdir(parents=True, exist_ok=True)
        for name in study.files:
            if (study.results / name).exists():
                shutil.move(study.results / name, study.out / f"before-{name.replace('/', '-')}")
        begun.write_text(code)
    _say(study, f"begins, about {study.minutes:g} minutes")
    status, spent = _shell(study)
    if status:
        _say(study, f"failed with {status}: {(study.out / 'log').relative_to(ROOT)} has the rest")
        return False
    for name in study.files:
        if (study.out / name).exists():
            (study.results / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(study.out / name, study.results / name)
        if not (study.results / name).exists():
            _say(study, f"failed: {name} is not there")
            return False
    if commit() != code or _changed():
        _say(study, "failed: the code changed while it ran")
        return False
    if not (study.out / "trace").exists():
        _say(study, "failed: no process noted what it used; is one of them Python?")
        return False
    files, packages = dependencies((study.out / "trace").read_text(errors="replace").splitlines())
    Record(
        commit=code,
        day=datetime.now(UTC).date().isoformat(),
        machine=hardware(),
        cpu_minutes=round(spent, 1),
        run=list(study.run),
        files=files,
        packages=packages,
    ).write(study.results)
    _say(study, f"done, {spent:.1f} minutes of CPU")
    return True


def _shell(study: Study) -> tuple[int, float]:
    """Exit status of its commands, and their CPU minutes, those of all starts together."""
    environment = os.environ | {
        "EVIDENCE_ROOT": str(ROOT),
        "EVIDENCE_TRACE": str(study.out / "trace"),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": os.pathsep.join([str(TRACE), os.environ.get("PYTHONPATH", "")]).rstrip(":"),
    }
    with (study.out / "log").open("ab") as log:
        process = subprocess.Popen(
            ("bash", "-e", "-o", "pipefail", "-c", "\n".join(study.commands())),
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        _RUNNING.add(process)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            _RUNNING.discard(process)
    process.returncode = os.waitstatus_to_exitcode(status)
    kept = study.out / "seconds"
    seconds = usage.ru_utime + usage.ru_stime + (float(kept.read_text()) if kept.exists() else 0)
    kept.write_text(f"{seconds:.1f}")
    return process.returncode, seconds / 60


def _say(study: Study, text: str) -> None:
    print(f"{datetime.now().strftime('%H:%M')} {study.name}: {text}", flush=True)
