"""Replays the cases of ``replay_cases``: a line for each, and what they say in sum.

``python tests/support/replay_run.py right --out right.jsonl``: a case that the file has is not run
again, unless it was changed, or with ``--again``.
"""

import argparse
import importlib.util
import inspect
import json
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).with_name("replay_cases")
MARK = "# mistake"


def cases(group):
    """The cases of a group: ``(path, name, case)``, of those files that can be imported here."""
    for path in sorted((HERE / group).glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"{group}_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            print(f"{path.stem} is left out: {error}", file=sys.stderr)
            continue
        for name, case in module.CASES.items():
            source, first = inspect.getsourcelines(getattr(module, name))
            marked = [first + i for i, line in enumerate(source) if MARK in line]
            digest = zlib.crc32(repr(("".join(source), case)).encode())
            yield path, name, {"marked": marked, "digest": digest, **case}


def replayed(path, name, case, **how):
    """What the replay of a case says; see :func:`judged`."""
    from dpaudit import replay

    how = {"pairs": 20, "samples": 1000, "seed": "1", "time_limit": 60, **how}
    return replay(
        f"python:{path}:{name}", case["data"], bounds=case.get("bounds"), **case["claim"],
        neighbours="replace" if case["adjacency"] == "replace" else "search", **how,
    )  # fmt: skip


def judged(result, case):
    """The parts of a result that are kept, and whether it is right about the case."""
    found = [[d.kind, d.line.rpartition(":")[2], d.says] for d in result.findings]
    expected = set(case.get("expect", "").split(", ")) - {""}
    hit = any(line == str(n) for _, line, _ in found for n in case["marked"])
    ok = bool({kind for kind, *_ in found} & expected) if expected else not found
    return {
        "verdict": result.verdict, "ok": ok and result.verdict != "inconclusive", "hit": hit,
        "found": found, "advice": [[d.kind, d.says] for d in result.divergences][len(found):],
        "reason": result.reason, "epsilon": result.epsilon, "unknown": result.unknown[:2],
        "unseen": result.unseen[:2], "raised": [d.says for d in result.divergences if
        d.kind == "exception"], "pairs": result.pairs,
    }  # fmt: skip


def main():
    """Run, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=("right", "planted"))
    parser.add_argument("--only", action="append", help="names of cases or files")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--confirm", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--root", type=Path, default=HERE.parents[2], help="whose engine is to run")
    args = parser.parse_args()
    sys.path[0] = str(args.root.resolve())
    from dpaudit.audit.replay import run

    if not args.confirm:
        run._CONFIRMED = 0
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    done = {(one["file"], one["name"]): one for one in map(json.loads, lines)}
    for path, name, case in cases(args.group):
        key = path.stem, name
        if args.only and not {path.stem, name} & set(args.only):
            continue
        if args.again or done.get(key, {}).get("digest") != case["digest"]:
            started = time.monotonic()
            try:
                one = judged(
                    replayed(path, name, case, pairs=args.pairs, samples=args.samples), case
                )
            except Exception as error:  # noqa: BLE001 a line like any other
                one = {"verdict": "error", "ok": False, "found": [], "reason": str(error)[:300]}
            seconds = round(time.monotonic() - started, 1)
            done[key] = {"file": path.stem, "name": name, "digest": case["digest"],
                         "seconds": seconds, **one}  # fmt: skip
            with args.out.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
        one = done[key]
        kinds = ",".join(dict.fromkeys(kind for kind, *_ in one["found"])) or "-"
        print("ok  " if one["ok"] else "BAD ", f"{path.stem}.{name}", one["verdict"], kinds,
              "hit" if one.get("hit") else "-", f"ε={one.get('epsilon')}", f"{one['seconds']} s",
              one["reason"][:100], flush=True)  # fmt: skip
    ok = sum(one["ok"] for one in done.values())
    hits = sum(bool(one.get("hit")) for one in done.values())
    print(f"{args.group}: {ok} of {len(done)} are right, {hits} at the marked line,",
          f"{sum(one['seconds'] for one in done.values()):.0f} s")  # fmt: skip


if __name__ == "__main__":
    main()
