# mostlyai-engine 1.4.0. A numeric column's share of the budget is spent twice: whole for its range,
# and whole again for its frequent values.
# Source: arXiv 2602.17454 (MOSTLY AI, composition).
# At fault: mostlyai/engine/_encoding_types/tabular/numeric.py:244 and 274, both with
# ``value_protection_epsilon``.
import json
import tempfile
from pathlib import Path

import pandas as pd
from mostlyai.engine.analysis import analyze
from mostlyai.engine.domain import DifferentialPrivacyConfig
from mostlyai.engine.splitting import split

KEPT = ("codes", "bins", "min", "max")


def run(people: pd.DataFrame):
    with tempfile.TemporaryDirectory() as folder:
        types = dict.fromkeys(people.columns, "TABULAR_NUMERIC_AUTO")
        split(people, tgt_encoding_types=types, workspace_dir=folder)
        budget = DifferentialPrivacyConfig(value_protection_epsilon=1.0)
        analyze(differential_privacy=budget, workspace_dir=folder)
        text = (Path(folder) / "ModelStore" / "tgt-stats" / "stats.json").read_text()
    columns = json.loads(text)["columns"]
    return {n: {k: c[k] for k in KEPT if k in c} for n, c in columns.items()}
