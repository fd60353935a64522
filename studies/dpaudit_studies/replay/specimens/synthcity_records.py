# synthcity 0.2.12. PrivBayes counts, and noises the counts with a scale of 2 (d - K) / (n epsilon):
# the true number of records n sets the noise, and makes it n times too small.
# Source: arXiv 2602.17454 (the first of Synthcity).
# At fault: synthcity/plugins/privacy/plugin_privbayes.py:291, ``/ (n_items * self.epsilon)``.
import pandas as pd
import synthcity_tables  # noqa: F401
from synthcity.plugins.privacy.plugin_privbayes import PrivBayes


def run(people: pd.DataFrame):
    model = PrivBayes(epsilon=1.0, K=1, n_bins=4)
    model.fit(people)
    tables = {cpd.variable: cpd.get_values() for cpd in model.network.get_cpds()}
    return {"edges": sorted(model.network.edges()), "tables": tables}
