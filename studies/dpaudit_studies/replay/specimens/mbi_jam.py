# mbi 1.1.0 with mechanisms/jam.py of commit c4c90e1. The score of a public marginal is the error
# of the model minus that of the public data: one record moves it by 4, and the exponential
# mechanism is told 2.
# Source: arXiv 2602.17454; ryan112358/mbi issue 65.
# At fault: mechanisms/jam.py:164, ``score_sensitivity_exp_mech = 2.0``.
import numpy as np
import pandas as pd
from jam import JAM
from mbi import Dataset, Domain

DOMAIN = Domain(["a", "b"], [4, 4])
PUBLIC = {"a": np.array([0, 1, 2, 3]), "b": np.array([3, 2, 1, 0])}


def run(people: pd.DataFrame):
    columns = {name: people[name].to_numpy().astype(int) for name in ("a", "b")}
    mechanism = JAM(1.0, 1e-6, degree=2, optim_iters=10, rounds=2)
    workload = [("a",), ("b",), ("a", "b")]
    model, _ = mechanism.run(Dataset(columns, DOMAIN), Dataset(PUBLIC, DOMAIN), workload)
    return np.asarray(model.project(("a", "b")).datavector())
