"""SmartNoise Synth 1.0.8: synthetic people by MST, AIM, MWEM; (2, 1e-5)-DP, one more or less.

As in the library's examples: a transformer is fitted with half of ε (preprocessor_eps).
"""

import pandas as pd
from snsynth import Synthesizer

CITIES = ["Bonn", "Graz", "Wien"]


def _made(name, data, **how):
    frame = pd.DataFrame(data, columns=["age", "city"])
    frame["age"] = (frame["age"].clip(0, 99) // 25).astype(int)
    synthesizer = Synthesizer.create(name, epsilon=2.0, verbose=False, **how)
    synthesizer.fit(frame, preprocessor_eps=0.5, categorical_columns=["age", "city"])
    return synthesizer.sample(40)


def mst(data):
    """Marginals along a tree that is chosen with noise."""
    return _made("mst", data, delta=1e-5)


def aim(data):
    """Marginals chosen in rounds."""
    return _made("aim", data, delta=1e-5)


def mwem(data):
    """Multiplicative weights."""
    return _made("mwem", data)
