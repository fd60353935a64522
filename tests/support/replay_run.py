"""Replays the cases of ``replay_cases``: a line for each, and what they say in sum.

``python tests/support/replay_run.py right --out right.jsonl``: a case that the file has is not run
again, unless it was changed, or with ``--again``. ``--root`` is the checkout whose engine runs.
"""

import argparse
import functools
import importlib.util
import inspect
import json
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).with_name("replay_cases")


@functools.cache
def cases(path):
    """The cases of a file by name, each with the numbers of its marked lines."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {}
    for name, case in module.CASES.items():
        lines, first = inspect.getsourcelines(getattr(module, name))
        marked = {str(first + i) for i, line in enumerate(lines) if "# mistake" in line}
        found[name] = case | {"marked": marked, "digest": zlib.crc32(repr((lines, case)).encode())}
    return found


def replayed(path, name, **how):
    """What the replay of a case says, and whether that is ``ok``; one that raises is not.

    Of a right case, that its ε is not known or not confirmed is ok.
    """
    from dpaudit import replay

    case, started = cases(path)[name], time.monotonic()
    expected = set(case.get("expect", "").split(", ")) - {""}
    kept = {"file": path.stem, "name": name, "digest": case["digest"], "found": [], "hit": False}
    how = {"pairs": 20, "samples": 1000, "seed": "1", "time_limit": 60, **case["claim"], **how}
    how["neighbours"] = "replace" if case["adjacency"] == "replace" else "search"
    try:
        result = replay(f"python:{path}:{name}", case["data"], bounds=case.get("bounds"), **how)
    except Exception as error:  # noqa: BLE001 a line like any other
        kept |= {"ok": False, "verdict": "error", "reason": str(error)[:300]}
    else:
        told = [[d.kind, d.line.rpartition(":")[2], d.says] for d in result.divergences]
        kept["found"], kept["advice"] = told[: len(result.findings)], told[len(result.findings) :]
        kinds, lines = {one[0] for one in kept["found"]}, {one[1] for one in kept["found"]}
        silent = not kinds and "raises" not in result.reason
        kept["ok"] = bool(kinds & expected) if expected else silent
        kept["hit"] = bool(lines & case["marked"])
        for part in ("verdict", "reason", "epsilon", "unknown", "unseen", "pairs"):
            kept[part] = getattr(result, part)
    return kept | {"seconds": round(time.monotonic() - started, 1)}


def main():
    """Run, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=("right", "planted"))
    parser.add_argument("--only", action="append", help="a case or a file; more than once")
    for name, default in (("--pairs", 20), ("--samples", 1000)):
        parser.add_argument(name, type=int, default=default)
    for name, default in (("--confirm", True), ("--again", False)):
        parser.add_argument(name, action=argparse.BooleanOptionalAction, default=default)
    for name, default in (("--out", Path("replay.jsonl")), ("--root", HERE.parents[2])):
        parser.add_argument(name, type=Path, default=default)
    parser.add_argument("--results", type=Path, help="results.json to put the group's rows in")
    args, ran = parser.parse_args(), []
    sys.path[0] = str(args.root.resolve())
    from dpaudit.audit.replay import run

    run._CONFIRMED *= args.confirm
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    done = {(one["file"], one["name"]): one for one in map(json.loads, lines)}
    paths = sorted((HERE / args.group).glob("*.py"))
    for path, name in [(file, name) for file in paths for name in cases(file)]:
        if args.only and not {path.stem, name} & set(args.only):
            continue
        one = done.get((path.stem, name), {})
        if args.again or one.get("digest") != cases(path)[name]["digest"]:
            one = replayed(path, name, pairs=args.pairs, samples=args.samples)
            with args.out.open("a") as file:
                file.write(json.dumps(one) + "\n")
        ran.append(one)
        kinds = ",".join(dict.fromkeys(kind for kind, *_ in one["found"])) or "-"
        print("ok " if one["ok"] else "BAD", f"{path.stem}.{name}", one["verdict"], kinds,
              "hit" if one["hit"] else "-", f"ε={one.get('epsilon')}", one["seconds"], "s",
              one["reason"][:100], flush=True)  # fmt: skip
    ok, hit, seconds = (sum(one[part] for one in ran) for part in ("ok", "hit", "seconds"))
    print(f"{args.group}: {ok} of {len(ran)} ok, {hit} at the marked line, {seconds:.0f} s,",
          dict(Counter(one["verdict"] for one in ran)))  # fmt: skip
    if args.results:
        put(args.results, args.group, ran)


def put(path, group, ran):
    """The rows of a group in a results file, beside those of the other."""
    from dpaudit_studies.evidence import MACHINE, write

    kept = json.loads(path.read_text())["rows"] if path.exists() else []
    parts = ("file", "name", "verdict", "ok", "hit", "epsilon", "seconds")
    rows = [{"group": group} | {part: one.get(part) for part in parts} for one in ran]
    for row, one in zip(rows, ran, strict=True):
        row["kinds"] = sorted({kind for kind, *_ in one["found"]})
        row["epsilon"] = None if row["epsilon"] is None else f"{row['epsilon']:.4g}"
    rows += [row for row in kept if row["group"] != group]
    write(path, {"machine": MACHINE, "pairs": 20, "rows": rows})


if __name__ == "__main__":
    main()
