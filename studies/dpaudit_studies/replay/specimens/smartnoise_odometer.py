# smartnoise-sql 1.0.6. The odometer of a hundred equal releases has a term without its logarithm,
# sqrt(2 k / tol) for sqrt(2 k log(1 / tol)): it books more than is spent, never less.
# Source: arXiv 2602.17454; opendp/smartnoise-sdk issue 621.
# At fault: snsql/sql/odometer.py:32, ``np.sqrt(2 * self.k * (1/tol))``.
import numpy as np
from snsql import Privacy
from snsql.sql._mechanisms import Laplace
from snsql.sql.odometer import Odometer

DAYS = 20


def run(visits: np.ndarray):
    odometer = Odometer(Privacy(epsilon=0.05, delta=1e-6))
    mechanism = Laplace(0.05, sensitivity=1.0)
    counts = []
    for day in range(DAYS):
        counts += mechanism.release([float(np.count_nonzero(visits == day))])
        odometer.spend()
    return {"counts": counts, "spent": odometer.spent}
