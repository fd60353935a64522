# dp-recorder on diffprivlib's mechanisms: a wrapper for each that the regression calls.
import numpy as np
from diffprivlib.models import linear_regression
from dp_recorder.auditing.audit_primitives import audit_spec


def distance(a, b):
    far = float(np.abs(np.asarray(a) - np.asarray(b)).sum())
    return np.inf if np.isnan(far) else far


def audited(mechanism):
    @audit_spec(
        kind=mechanism.__name__,
        input_arg="value",
        sensitivity_arg="sensitivity",
        metric_fn=distance,
    )
    def randomise(value, sensitivity, epsilon, limits):
        return mechanism(epsilon=epsilon, sensitivity=sensitivity, **limits).randomise(value)

    class Audited:
        def __init__(self, *, epsilon, sensitivity, random_state=None, **limits):
            self.known = (sensitivity, epsilon, limits)

        def randomise(self, value):
            return randomise(value, *self.known)

    return Audited


def instrumented(pipeline):
    linear_regression.Laplace = audited(linear_regression.Laplace)
    linear_regression.LaplaceFolded = audited(linear_regression.LaplaceFolded)
    return pipeline.run
