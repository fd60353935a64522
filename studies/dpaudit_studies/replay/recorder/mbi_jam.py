# dp-recorder on JAM: its two primitives, with the sensitivities that it tells them.
import numpy as np
from dp_recorder.auditing.audit_primitives import audit_spec
from jam import JAM


def largest(a, b):
    return max(abs(a[key] - b[key]) for key in a)


@audit_spec(kind="EM", input_arg="scores", sensitivity_arg="sensitivity", metric_fn=largest)
def exponential(scores, sensitivity, epsilon):
    names, values = list(scores), np.array(list(scores.values()))
    p = np.exp(0.5 * epsilon / sensitivity * (values - values.max()))
    return names[np.random.choice(len(names), p=p / p.sum())]


def instrumented(pipeline):
    def exponential_mechanism(self, qualities, epsilon, sensitivity=1.0, base_measure=None):
        return exponential(dict(qualities), sensitivity, epsilon)

    JAM.exponential_mechanism = exponential_mechanism
    return pipeline.run
