"""MOSTLY AI engine: the only person with a value is seen; value protection claims ε = 1 in all."""

import tempfile
from pathlib import Path

import pandas as pd
from mostlyai import engine
from mostlyai.engine.domain import DifferentialPrivacyConfig

private = DifferentialPrivacyConfig(max_epsilon=10.0, delta=1e-5, value_protection_epsilon=1.0)


def known(city):
    table = pd.DataFrame({name: ["Bonn"] * 99 + [city] for name in "ABCDE"})  # five columns
    with tempfile.TemporaryDirectory() as folder:
        engine.split(table, workspace_dir=folder)
        engine.analyze(workspace_dir=folder, differential_privacy=private)
        statistics = Path(folder, "ModelStore/tgt-stats/stats.json").read_text()
    return "Graz" in statistics.partition('"B"')[0]  # of the first column


for city in ("Graz", "Bonn"):
    seen = sum(known(city) for _ in range(60))
    print(f"the last person lives in {city}: {seen} of 60 models know Graz")
