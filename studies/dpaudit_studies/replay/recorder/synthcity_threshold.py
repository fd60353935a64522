# dp-recorder on PrivBayes' choice of an edge: on which side of the threshold its score is.
import numpy as np
from dp_recorder.auditing.audit_primitives import audit_spec, ensure_equality
from synthcity.plugins.privacy import plugin_privbayes


def distance(a, b):
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


@audit_spec(kind="EM", input_arg="scores", sensitivity_arg="sensitivity", metric_fn=distance)
def chosen(scores, sensitivity):
    return int(np.random.choice(len(scores), p=scores))


class Threshold(float):
    def __ge__(self, score):
        return ensure_equality(is_weak_mi=bool(float(self) >= score))


def instrumented(pipeline):
    parent = plugin_privbayes.PrivBayes
    plain = parent._exponential_mechanism

    def _exponential_mechanism(self, data, pairs, scores):
        self.mi_thresh = Threshold(self.mi_thresh)
        at = chosen(np.asarray(plain(self, data, pairs, scores)), 1.0)
        return [float(i == at) for i in range(len(pairs))]

    parent._exponential_mechanism = _exponential_mechanism
    state = np.random.get_state()

    def run(people):
        np.random.set_state(state)
        return pipeline.run(people)

    return run
