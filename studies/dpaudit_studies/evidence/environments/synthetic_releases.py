"""Synthetic data from equal records, many times over, in the environment of its library.

Started by synthetic.py: ``python synthetic_releases.py CASE RELEASES FILE``. FILE becomes an array
(2, RELEASES, 2): of data sets of ``RECORDS`` and ``RECORDS + 1`` equal records in turn, the number
of synthetic rows that the library returns by default and its fitted model's total. An earlier
FILE is continued. Prints the versions as JSON.

Every column has one possible value, so a marginal is one number: the records, with noise. Nothing
is left to fit but the total, whatever the iterations: where the library lets its user choose, it
is one. Two things are done for speed alone: in dpmm the rate that (ε, δ) allows, which it computes
anew for every fit, is kept, and rows are counted as ``int(total)``, which is what ``generate``
makes (checked in every process).
"""

import contextlib
import copy
import functools
import json
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

RECORDS, EPSILON, DELTA = 100, 1.0, 1e-2
BLOCK = 2500
QUICK = {"compress": False, "max_model_size": None}  # with one cell there is nothing to cut
warnings.filterwarnings("ignore")


def equal_records(columns, n):
    return pd.DataFrame({f"c{i}": np.zeros(n, dtype=int) for i in range(columns)})


def dpmm(kind, columns, *, public=False, **options):
    """A function of a data set; with ``public`` the model's structure comes from public data."""
    from dpmm.models import AIMGM, MSTGM
    from dpmm.models.base.mechanisms import mechanism

    mechanism.cdp_rho = functools.lru_cache(mechanism.cdp_rho)
    domain = {f"c{i}": 1 for i in range(columns)}
    model = {"mst": MSTGM, "aim": AIMGM}[kind](
        epsilon=EPSILON, delta=DELTA, domain=domain, n_iters=1, n_jobs=1, **options
    )
    if public:
        model.fit(equal_records(columns, RECORDS), public=True)

    def release(frame, whole):
        fresh = copy.deepcopy(model)
        fresh.fit(frame)
        total = fresh.generator.model.total
        rows = len(fresh.generate()) if whole else int(total)
        assert rows == int(total)
        return rows, total

    return columns, release


def smartnoise(kind, columns):
    from snsynth.aim import AIMSynthesizer
    from snsynth.mst import MSTSynthesizer

    def release(frame, _):
        synthesizer = {"mst": MSTSynthesizer, "aim": AIMSynthesizer}[kind](EPSILON, DELTA)
        synthesizer.fit(frame.astype(str), categorical_columns=list(frame))
        return len(synthesizer.sample()), float(synthesizer.synthesizer.total)

    return columns, release


def private_pgm(kind, columns):
    """mst.py and aim.py of a checkout of ryan112358/mbi, whose folders are on PYTHONPATH."""
    import mbi

    domain = mbi.Domain([f"c{i}" for i in range(columns)], [1] * columns)

    def release(frame, _):
        data = mbi.Dataset({c: frame[c].to_numpy() for c in frame}, domain)
        if kind == "mst":
            from mst import MST

            rows = MST(data, EPSILON, DELTA).records
            return rows, float(rows)
        from aim import AIM

        model, synthetic = AIM(EPSILON, DELTA).run(data, [(tuple(domain.attrs), 1.0)])
        return synthetic.records, float(model.total)

    return columns, release


CASES = {
    "dpmm-mst": lambda: dpmm("mst", 1),
    "dpmm-mst-public": lambda: dpmm("mst", 1, public=True),
    "dpmm-aim": lambda: dpmm("aim", 1, degree=1, **QUICK),
    "dpmm-aim-rounds": lambda: dpmm("aim", 1, degree=1, rounds=1, **QUICK),
    "dpmm-aim-overspent": lambda: dpmm("aim", 4, rounds=1),
    "smartnoise-mst": lambda: smartnoise("mst", 2),
    "smartnoise-aim": lambda: smartnoise("aim", 2),
    "pgm-mst": lambda: private_pgm("mst", 2),
    "pgm-aim": lambda: private_pgm("aim", 2),
}


def main():
    case, releases, path = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    columns, release = CASES[case]()
    frames = [equal_records(columns, RECORDS + side) for side in (0, 1)]
    drawn = list(np.load(path).transpose(1, 0, 2)) if path.exists() else []
    began = len(drawn)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        while len(drawn) < releases:
            whole = len(drawn) < began + 20
            drawn.append(np.array([release(frame, whole) for frame in frames]))
            if len(drawn) % BLOCK == 0 or len(drawn) == releases or columns == 2:
                np.save(path, np.array(drawn).transpose(1, 0, 2))
    names = {"dpmm": ("dpmm", "opendp"), "smartnoise": ("smartnoise-synth", "mbi", "opendp")}
    print(json.dumps({n: version(n) for n in names.get(case.partition("-")[0], ("jax",))}))


if __name__ == "__main__":
    main()
