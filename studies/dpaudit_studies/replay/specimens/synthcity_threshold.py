# synthcity 0.2.12. The edge that the exponential mechanism chose is dropped if its true mutual
# information is below a threshold: the network shows on which side it is.
# Source: arXiv 2602.17454; the artefact's ``is_weak_mi``.
# At fault: synthcity/plugins/privacy/plugin_privbayes.py:272, ``self.mi_thresh >= mutual_info_list``.
import pandas as pd
import synthcity_tables  # noqa: F401
from synthcity.plugins.privacy.plugin_privbayes import PrivBayes


def run(people: pd.DataFrame):
    model = PrivBayes(epsilon=1.0, K=1, n_bins=4, mi_thresh=0.3)
    model.fit(people)
    return {"edges": sorted((child, sorted(parents)) for child, parents in model.dag)}
