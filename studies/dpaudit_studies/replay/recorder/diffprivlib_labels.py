# dp-recorder on the one mechanism of logistic regression, and on the labels that it reads.
import numpy as np
from diffprivlib.models import logistic_regression
from dp_recorder.auditing.audit_primitives import ensure_equality


def instrumented(pipeline):
    plain = logistic_regression.np

    class Numpy:
        def __getattr__(self, name):
            return getattr(plain, name)

        def unique(self, labels):
            return ensure_equality(classes=np.unique(labels))

    logistic_regression.np = Numpy()
    return pipeline.run
