"""MOSTLY AI engine 2.7.3: synthetic people by TabularARGN; (10, 1e-5)-DP, one record more or less.

max_epsilon is 10, of which value_protection_epsilon takes 1 for the ranges and categories.
"""

import pandas as pd
from mostlyai.engine import TabularARGN
from mostlyai.engine.domain import DifferentialPrivacyConfig


def run(data):
    """Trained for one epoch; 40 synthetic records are released."""
    frame = pd.DataFrame(data, columns=["age", "city"])
    private = DifferentialPrivacyConfig(max_epsilon=10.0, delta=1e-5, noise_multiplier=1.5)
    model = TabularARGN(max_epochs=1, differential_privacy=private, device="cpu")
    model.fit(frame)
    return model.sample(n_samples=40)
