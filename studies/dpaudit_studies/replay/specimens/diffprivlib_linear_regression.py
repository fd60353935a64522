# diffprivlib 0.6.6. The sensitivity of a squared feature is that of its lower bound alone: for
# ages from 0 to 100 it is 0, so the sum of squares gets no noise.
# Source: arXiv 2602.17454; IBM/differential-privacy-library issue 105.
# At fault: diffprivlib/models/linear_regression.py:144, ``np.abs([bounds_X[0][i], bounds_X[0][i]])``.
import pandas as pd
from diffprivlib.models import LinearRegression


def run(people: pd.DataFrame):
    model = LinearRegression(epsilon=1.0, bounds_X=(0, 100), bounds_y=(0, 10), fit_intercept=False)
    model.fit(people[["age"]].to_numpy(), people["visits"].to_numpy())
    return {"visits per year of age": float(model.coef_[0])}
