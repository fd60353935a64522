# dpmm 0.1.9. Without a domain each column's is its true maximum plus one: the largest value shows
# in the size of every marginal that is noised.
# Source: arXiv 2602.17454; sassoftware/dpmm issue 18.
# At fault: dpmm/models/base/mechanisms/mechanism.py:113, ``df.astype(int).max(axis=0) + 1``.
import pandas as pd
from dpmm.models.aim import AIMGM


def run(people: pd.DataFrame):
    model = AIMGM(epsilon=1.0, delta=1e-5, rounds=2, n_iters=20, compress=False, n_jobs=1)
    model.fit(people)
    return model.generate(n_records=5)
