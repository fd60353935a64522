# dpmm 0.1.9. A record with a missing value is no error of the noise but of the program: the whole
# release is an exception that names the column.
# Source: arXiv 2602.17454 (4.3.9).
# At fault: dpmm/models/base/mechanisms/mechanism.py:113, ``df.astype(int)``.
import pandas as pd
from dpmm.models.priv_bayes import PrivBayesGM

SIZES = {"a": 4, "b": 2}


def run(people: pd.DataFrame):
    model = PrivBayesGM(epsilon=1.0, delta=1e-5, n_iters=20, n_jobs=1)
    model.set_domain(SIZES)
    model.fit(people)
    return model.generate(n_records=5)
