# dp-recorder on the covariance: its noise is a closure, so the sum is audited from outside.
import numpy as np
from dp_recorder.auditing.audit_primitives import audit_spec
from snsynth.models import dp_covariance


def distance(a, b):
    far = float(np.max(np.abs(np.asarray(a) - np.asarray(b)) / SENSITIVITY))
    return np.inf if np.isnan(far) else far


def instrumented(pipeline):
    global SENSITIVITY
    plain = dp_covariance.np
    SENSITIVITY = 1.0

    @audit_spec(
        kind="Laplace", input_arg="value", sensitivity_arg="sensitivity", metric_fn=distance
    )
    def covariance(value, sensitivity):
        return value

    class Numpy:
        def __getattr__(self, name):
            return getattr(plain, name)

        def cov(self, x):
            return covariance(plain.cov(x), 1.0)

    init = dp_covariance.DPcovariance.__init__

    def __init__(self, *args, **kwargs):
        global SENSITIVITY
        init(self, *args, **kwargs)
        low, both, high = np.asarray(self.sens)
        SENSITIVITY = np.array([[low, both], [both, high]])

    dp_covariance.DPcovariance.__init__ = __init__
    dp_covariance.np = Numpy()
    return pipeline.run
