# diffprivlib 0.6.6. The set of labels is read from the data: without the one person of a rare
# class the model has another shape.
# Source: arXiv 2602.17454; IBM/differential-privacy-library issue 106.
# At fault: diffprivlib/models/logistic_regression.py:227 and 368, ``np.unique(y)``.
import pandas as pd
from diffprivlib.models import LogisticRegression


def run(patients: pd.DataFrame):
    model = LogisticRegression(epsilon=1.0, data_norm=2.0)
    model.fit(patients[["x1", "x2"]].to_numpy(), patients["diagnosis"].to_numpy())
    return {"coefficients": model.coef_, "intercepts": model.intercept_}
