# dp-recorder on diffprivlib's mechanisms: one wrapper for each that k-means calls.
import numpy as np
from diffprivlib.models import k_means
from dp_recorder.auditing.audit_primitives import audit_spec, ensure_equality


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
    def randomise(value, sensitivity, epsilon, lower, upper, source):
        return mechanism(
            epsilon=epsilon, sensitivity=sensitivity, lower=lower, upper=upper, random_state=source
        ).randomise(value)

    class Audited:
        def __init__(self, *, epsilon, sensitivity, lower, upper, random_state=None):
            self.known = (sensitivity, epsilon, lower, upper, None)

        def randomise(self, value):
            return randomise(value, *self.known)

    return Audited


def instrumented(pipeline):
    k_means.GeometricFolded = audited(k_means.GeometricFolded)
    k_means.LaplaceBoundedDomain = audited(k_means.LaplaceBoundedDomain)
    plain, state = k_means.KMeans._calc_iters, np.random.get_state()

    def _calc_iters(self, dims, count, threshold=0.005):
        np.random.set_state(state)  # the first centers, the same in both runs
        return ensure_equality(iters=plain(self, dims, count, threshold))

    k_means.KMeans._calc_iters = _calc_iters
    return pipeline.run
