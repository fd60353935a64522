# dp-recorder on the mechanism of diffprivlib's mean.
import numpy as np
from diffprivlib.tools import utils
from dp_recorder.auditing.audit_primitives import audit_spec


def distance(a, b):
    far = float(np.abs(np.asarray(a) - np.asarray(b)).sum())
    return np.inf if np.isnan(far) else far


def instrumented(pipeline):
    mechanism = utils.LaplaceTruncated

    @audit_spec(
        kind="LaplaceTruncated",
        input_arg="value",
        sensitivity_arg="sensitivity",
        metric_fn=distance,
    )
    def randomise(value, sensitivity, known):
        return mechanism(sensitivity=sensitivity, **known).randomise(value)

    class Audited:
        def __init__(self, *, sensitivity, random_state=None, **known):
            self.known = (sensitivity, known)

        def randomise(self, value):
            return randomise(value, *self.known)

    utils.LaplaceTruncated = Audited
    return pipeline.run
