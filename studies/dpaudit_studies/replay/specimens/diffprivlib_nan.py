# diffprivlib 0.6.6. A value that is not a number is not clipped to the bounds, so the mean that
# goes to the mechanism is none either: one person shows for certain.
# Source: arXiv 2602.17454 (4.3.9); IBM/differential-privacy-library issue 80.
# At fault: diffprivlib/validation.py, ``clip_to_bounds`` (``np.clip``), called by tools/utils.py.
import numpy as np
from diffprivlib.tools import mean


def run(incomes: np.ndarray):
    return {"mean income": mean(incomes, epsilon=1.0, bounds=(0, 100))}
