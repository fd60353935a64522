# mostlyai-engine 1.4.0. Which categories there are is read from the data, and so is how many get
# noise; how many were too rare is released exactly.
# Source: arXiv 2602.17454 (MOSTLY AI, data-dependent control flow).
# At fault: mostlyai/engine/_common.py:868, ``size=len(value_counts)``, and
# _encoding_types/tabular/categorical.py:82, ``len(known_categories) - len(categories)``.
import json
import tempfile
from pathlib import Path

import pandas as pd
from mostlyai.engine.analysis import analyze
from mostlyai.engine.domain import DifferentialPrivacyConfig
from mostlyai.engine.splitting import split


def run(people: pd.DataFrame):
    with tempfile.TemporaryDirectory() as folder:
        split(people, tgt_encoding_types={"town": "TABULAR_CATEGORICAL"}, workspace_dir=folder)
        budget = DifferentialPrivacyConfig(value_protection_epsilon=1.0)
        analyze(differential_privacy=budget, workspace_dir=folder)
        text = (Path(folder) / "ModelStore" / "tgt-stats" / "stats.json").read_text()
    town = json.loads(text)["columns"]["town"]
    return {name: town[name] for name in ("codes", "no_of_rare_categories")}
