# smartnoise-synth 1.0.5. The data is clipped to its range into ``new_data``, and the covariance is
# that of the data as it was: its sensitivity has no bound.
# Source: arXiv 2602.17454; opendp/smartnoise-sdk issue 622.
# At fault: snsynth/models/dp_covariance.py:115, ``covar(data.values.T, self.intercept)``.
import sys

import pandas as pd
import sklearn.linear_model._base

sys.modules["sklearn.linear_model.base"] = sklearn.linear_model._base  # its name until 0.24
from snsynth.models.dp_covariance import DPcovariance

PEOPLE = 8


def run(people: pd.DataFrame):
    columns = ["age", "income"]
    ranges = pd.DataFrame({"age": [0, 100], "income": [0, 50]})
    release = DPcovariance(PEOPLE, columns, ranges, 1.0).release(people[columns])
    return dict(zip(["age, age", "age, income", "income, income"], release, strict=True))
