"""MOSTLY AI engine: the only person with a value is seen; value protection claims ε = 1 in all."""

import tempfile
from pathlib import Path

import pandas as pd
from mostlyai import engine
from mostlyai.engine.domain import DifferentialPrivacyConfig

private = DifferentialPrivacyConfig(max_epsilon=10.0, delta=1e-5, value_protection_epsilon=1.0)


def share(cities, runs=300):
    seen = 0
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            engine.split(pd.DataFrame({"city": cities}), workspace_dir=folder)
            engine.analyze(workspace_dir=folder, differential_privacy=private)
            text = Path(folder, "ModelStore/tgt-stats/stats.json").read_text()
            seen += "Graz" in text
    return seen / runs


print(f"{share(['Bonn'] * 100):.3f} of models know Graz, where nobody is")
print(f"{share(['Bonn'] * 99 + ['Graz']):.3f} of models know Graz, where one person is")
