"""`PYTHONPATH=docs/studies python -m evidence run|status|changed [STUDY …]`."""

from __future__ import annotations

import argparse
import os

from evidence.changes import changes
from evidence.plan import Study, chosen
from evidence.record import Record, stale
from evidence.running import run_stale


def status(studies: list[Study]) -> int:
    """A line for each study; 1 if one is stale that a machine without a GPU can run."""
    worst, fresh, minutes = 0, 0, 0.0
    for study in studies:
        record = Record.of(study.name)
        reasons = list(stale(study, record))
        made = f"{record.commit} {record.day} {record.cpu_minutes:6.1f} min" if record else "–"
        needs = ", ".join(study.missing()) if reasons else ""
        said = f"stale: {'; '.join(reasons)}" if reasons else "fresh"
        print(f"{study.name:22} {made:33} {said}{needs and f' (needs {needs})'}")
        worst = max(worst, bool(reasons) and not study.gpu)
        fresh += not reasons
        if not study.gpu:
            minutes += record.cpu_minutes if record else study.minutes
    print(
        f"{fresh} of {len(studies)} are fresh; without a GPU all take {minutes:.0f} minutes of CPU"
    )
    return int(worst)


def main() -> int:
    parser = argparse.ArgumentParser(prog="evidence", description=__doc__)
    parser.add_argument("what", choices=("run", "status", "changed"))
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="names of the plan; all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="studies at once; cores")
    parser.add_argument("--hours", type=float, default=24, help="begin none after so many hours")
    parser.add_argument("--since", default="HEAD", help="changed: the commit to compare with")
    args = parser.parse_intermixed_args()
    studies = chosen(args.studies)
    if args.what == "status":
        return status(studies)
    if args.what == "changed":
        for study in studies:
            for change in changes(study, args.since):
                print(change)
        return 0
    return run_stale(studies, jobs=max(1, args.jobs), budget=args.hours)


if __name__ == "__main__":
    raise SystemExit(main())
