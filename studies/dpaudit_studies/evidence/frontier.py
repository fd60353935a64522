"""The detectability map in the package, from a run that measured it.

`dpaudit run frontier --out runs/frontier` (20 minutes), then `python -m
dpaudit_studies.evidence.frontier --run runs/frontier`: writes dpaudit/audit/frontier.csv.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from dpaudit.audit.power import COLUMNS
from dpaudit.codec import convert_value, to_dict
from dpaudit.errors import UsageError
from dpaudit.experiments import Store
from dpaudit.provenance import collect
from dpaudit.results.files import write_file
from dpaudit.types import PowerPoint
from dpaudit_studies.evidence import ROOT, options

TABLE = ROOT / "dpaudit" / "audit" / "frontier.csv"


def read_points(folder: Path) -> Iterator[PowerPoint]:
    """The map that a run of the experiment ``frontier`` measured.

    Raises:
        UsageError: the folder holds another experiment.
    """
    with Store.read(folder) as store:
        if store.spec.get("name") != "frontier":
            raise UsageError(
                f"run={folder}: holds {store.spec.get('name')!r}, not a frontier; "
                "run dpaudit run frontier --out DIR first"
            )
        results = store.results()
    for result in results:
        grid, outcome = result.settings["grid"], result.outcome
        if outcome["size"] is not None:
            point = {name: grid[name] for name in ("flaw", "dim", "samples")}
            point |= {"size": float(f"{outcome['size']:.4g}")}
            point |= {name: outcome[name] for name in ("unit", "by")}
            point |= {f"found_{end}": round(outcome["found"][end], 4) for end in ("low", "high")}
            yield convert_value(point, PowerPoint)


def main() -> None:
    """Write the table."""
    file = io.StringIO()
    file.write(
        "# dpaudit run frontier; python -m dpaudit_studies.evidence.frontier --run runs/frontier\n"
        f"# {collect(seed='as in the spec', plugins=()).hardware}\n"
    )
    rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    rows.writeheader()
    rows.writerows(to_dict(point) for point in read_points(options(__doc__, run=Path).run))
    write_file(TABLE, file.getvalue())


if __name__ == "__main__":
    main()
