"""Each disclosure's reproducer shows what its draft says, on the version it names.

Each runs with that library alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "disclosures"
SCRIPTS = sorted(FOLDER.glob("*.py"))
LIBRARY = {
    "diffprivlib": "diffprivlib",
    "opacus": "opacus",
    "python": "python-dp",
    "torch": "torch",
}
WHOLE = re.compile(r"\b\d+\b")


def test_every_draft_has_a_reproducer_and_is_listed() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    drafts = [path for path in FOLDER.glob("*.md") if path.name != "README.md"]
    assert len(drafts) >= 5
    for draft in drafts:
        text = draft.read_text(encoding="utf-8")
        assert f"({draft.name})" in listed
        assert "not sent" in text
        assert all((FOLDER / name).is_file() for name in re.findall(r"\(([a-z0-9_]+\.py)\)", text))
        assert f"({draft.stem}.py)" in text
    cited = "".join(draft.read_text(encoding="utf-8") for draft in drafts)
    assert all(f"({script.name})" in cited for script in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_reproducer_is_short_and_needs_the_library_alone(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 20
    assert "dpaudit" not in text


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_reproducer_shows_it(script: Path) -> None:
    if script.stem.startswith("tmlt"):
        python = str(Path(os.environ.get("DPAUDIT_ENVS", ".envs")) / "tmlt-core" / "bin" / "python")
        if not Path(python).exists():
            pytest.skip("no environment with tmlt.core; make envs")
    else:
        python, library = sys.executable, LIBRARY[script.stem.partition("_")[0]]
        try:
            version(library)
        except PackageNotFoundError:
            pytest.skip(f"{library} is not installed")
    ran = subprocess.run(
        [python, "-W", "ignore", str(script)],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    lines = ran.stdout.strip().splitlines()
    if script.stem == "diffprivlib_sum":
        counts = [int(WHOLE.findall(line)[1]) for line in lines[1:]]
        assert counts == [0, 1000]
    elif script.stem == "opacus_float64":
        counts = [int(re.search(r": (\d+) of", line)[1]) for line in lines]  # type: ignore[index]
        assert min(counts[0], counts[3]) > 19_000
        assert max(counts[1], counts[2]) < 1_000
    elif script.stem == "opacus_norm":
        norms = [float(line.rpartition(" ")[2]) for line in lines]
        assert all(
            norm > least for norm, least in zip(norms[1::2], (1.001, 1.01, 1.1), strict=True)
        )
    elif script.stem == "torch_norm":
        errors = [[float(x) for x in re.findall(r"[-+][\d.]+e-\d+", line)] for line in lines]
        assert all(abs(right) < 1e-11 for _, right in errors)
        assert errors[-1][0] < -0.005
    else:
        found = [re.search(r": (\d+) of", line) for line in lines]
        impossible = [int(one[1]) for one in found]  # type: ignore[index]
        total = int(re.search(r"of (\d+)", lines[0])[1])  # type: ignore[index]
        assert impossible[0] > 0.1 * total
        assert impossible[1] == 0
