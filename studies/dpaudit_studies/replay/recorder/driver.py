"""Runs one specimen under dp-recorder, in the specimen's environment; prints what it says as JSON.

dp-recorder is a checkout on PYTHONPATH. Its pictures are left out: they need libraries that no
audit does. Neighbours are its own, one strategy after the other, where the data is numbers;
otherwise a record is copied or removed. The first objection that is the published one ends the
audit; without one, the first objection is told.
"""

import importlib.util
import json
import re
import sys
import types

import numpy as np

sys.modules["dp_recorder.visualization"] = types.ModuleType("dp_recorder.visualization")
from dp_recorder.auditing import dataset_util
from dp_recorder.auditing.audit_primitives import Auditor

WAYS = ("copy_random", "uniform_supported", "insert_nan", "insert_inf", "insert_large_outliers",
        "insert_shifted_outliers")  # fmt: skip


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.rpartition("/")[2][:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def neighbours(data, replace, rng, count):
    """Rows of neighbours of ``data``, a list of rows."""
    numbers = all(isinstance(v, (int, float)) for row in data for v in row)
    whole = np.array(data, dtype=float if numbers else object)
    for i in range(count):
        mode = "bounded:replace" if replace else ("unbounded:remove", "unbounded:add")[i % 2]
        way = WAYS[i // (1 if replace else 2) % len(WAYS)]
        if numbers:
            more = {} if mode == "unbounded:remove" else {"strategy": way}
            yield dataset_util.generate_neighbors(whole, 1, mode=mode, rng=rng, **more)[0]
            continue
        at = len(data) - 1 - i // 2 % len(data)
        rest = [*data[:at], *data[at + 1 :]]
        yield np.array(rest if mode == "unbounded:remove" else [*data, data[at]], dtype=object)


def audit(question):
    """What dp-recorder objects to; empty if to nothing."""
    form, rows = question["form"], question["data"]
    columns = list(rows[0]) if isinstance(rows[0], dict) else None
    plain = [list(r.values()) if columns else r if isinstance(r, list) else [r] for r in rows]

    def made(rows):
        if form == "array":
            array = np.array(rows, dtype=float)
            return array if isinstance(question["data"][0], list) else array.ravel()
        import pandas

        frame = pandas.DataFrame(rows, columns=columns)
        whole = [c for c in frame if numbers and all(float(v).is_integer() for v in frame[c])]
        return frame.astype(dict.fromkeys(whole, int))

    numbers = all(isinstance(v, (int, float)) for row in plain for v in row)
    sys.path.insert(0, f"{question['here']}/specimens")
    pipeline = loaded(f"{question['here']}/specimens/{question['file']}")
    hooks = loaded(question["recorder"])
    run = hooks.instrumented(pipeline)
    rng, first = np.random.default_rng(0), ""
    for other in neighbours(plain, question["neighbours"] == "replace", rng, question["pairs"]):
        auditor = Auditor()
        with auditor:
            run(made(plain))
        auditor.set_replay()
        try:
            with auditor:
                run(made(other))
            auditor.validate_records()
            says = hooks.more(auditor) if hasattr(hooks, "more") else ""
        except Exception as error:  # noqa: BLE001 what it has found, or the pipeline's own
            says = f"{type(error).__name__}: {error}"
        if says and re.search(question["recorder_expects"], says):
            return says
        first = first or says
    return first


if __name__ == "__main__":
    print(json.dumps({"says": audit(json.loads(sys.argv[1]))}))
