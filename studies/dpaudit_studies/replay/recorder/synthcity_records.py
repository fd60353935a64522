# dp-recorder on PrivBayes: its counts, and the number that it reads of the data without noise.
import numpy as np
from dp_recorder.auditing.audit_primitives import audit_spec, ensure_equality
from synthcity.plugins.privacy import plugin_privbayes


def distance(a, b):
    if np.shape(a) != np.shape(b):
        return np.inf
    far = float(np.abs(np.asarray(a) - np.asarray(b)).sum())
    return np.inf if np.isnan(far) else far


@audit_spec(kind="Laplace", input_arg="counts", sensitivity_arg="sensitivity", metric_fn=distance)
def laplace(counts, sensitivity, scale):
    return counts + np.random.laplace(0, scale=scale, size=len(counts))


def instrumented(pipeline):
    parent = plugin_privbayes.PrivBayes
    scale = parent._laplace_noise_parameter

    def _get_noisy_counts_for_attributes(self, raw_data, attributes):
        data = raw_data.loc[:, attributes].sort_values(attributes)
        stats = data.groupby(attributes).size().reset_index().rename(columns={0: "count"})
        wide = scale(self, *raw_data.shape)
        sensitivity = wide * self.epsilon
        stats["count"] = laplace(stats["count"].to_numpy(), sensitivity, wide)
        stats.loc[stats["count"] < 0, "count"] = 0
        return stats

    def _laplace_noise_parameter(self, n_items, n_features):
        return scale(self, ensure_equality(n_items=n_items), n_features)

    parent._get_noisy_counts_for_attributes = _get_noisy_counts_for_attributes
    parent._laplace_noise_parameter = _laplace_noise_parameter
    state = np.random.get_state()

    def run(people):
        np.random.set_state(state)
        return pipeline.run(people)

    return run
