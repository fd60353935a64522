"""dpmm 0.1.9: synthetic people by MST, AIM and PrivBayes; (1, 1e-5)-DP, one record more or less.

Bounds and categories are public, as the library asks; 40 synthetic records are released.
"""

import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline

DOMAIN = {
    "age": {"lower": 0, "upper": 100},
    "income": {"lower": 0, "upper": 100},
    "city": {"categories": ["Bonn", "Graz", "Wien"]},
}


def _made(pipeline, data):
    frame = pd.DataFrame(data, columns=list(DOMAIN))
    frame["city"] = pd.Categorical(frame["city"], categories=DOMAIN["city"]["categories"])
    model = pipeline(
        epsilon=0.9, delta=1e-5, proc_epsilon=0.1, n_bins=4, n_jobs=1, gen_kwargs={"n_iters": 100}
    )
    model.fit(frame, DOMAIN)
    return model.generate(n_records=40)


def mst(data):
    """Marginals along a tree that is chosen with noise."""
    return _made(MSTPipeline, data)


def aim(data):
    """Marginals chosen in rounds."""
    return _made(AIMPipeline, data)


def priv_bayes(data):
    """A Bayesian network."""
    return _made(PrivBayesPipeline, data)
