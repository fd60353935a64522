# synthcity 0.2.12. With as many parents as columns, K = d, the scale of the noise of all counts is
# 2 (d - K) / (n epsilon) = 0: the counts are released as they are.
# Source: arXiv 2602.17454 (4.3.3).
# At fault: synthcity/plugins/privacy/plugin_privbayes.py:291, ``2 * (n_features - self.K)``.
import pandas as pd
import synthcity_tables  # noqa: F401
from synthcity.plugins.privacy.plugin_privbayes import PrivBayes


def run(people: pd.DataFrame):
    model = PrivBayes(epsilon=1.0, K=2, n_bins=4)
    model.fit(people)
    return {cpd.variable: cpd.get_values() for cpd in model.network.get_cpds()}
