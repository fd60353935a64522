# dp-recorder on SmartNoise's Laplace mechanism; what the odometer books is not compared by it.
import numpy as np
from dp_recorder.auditing.audit_primitives import audit_spec


def distance(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).sum())


def instrumented(pipeline):
    parent, mechanisms = pipeline.Laplace, []

    class Laplace(parent):
        def release(self, values):
            mechanisms[:] = [self]  # no parameter: dp-recorder compares those as text
            return release(values, 1.0)

    @audit_spec(
        kind="Laplace", input_arg="values", sensitivity_arg="sensitivity", metric_fn=distance
    )
    def release(values, sensitivity):
        return parent.release(mechanisms[0], values)

    pipeline.Laplace = Laplace
    return pipeline.run
