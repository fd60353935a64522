"""Each disclosure's reproducer shows what its draft says, on the version it names.

Each runs with that library alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "disclosures"
SCRIPTS = sorted(FOLDER.glob("*.py"))
LIBRARY = {
    "diffprivlib": "diffprivlib",
    "dp": "dp-transformers",
    "dpmm": "dpmm",
    "fastdp": "fastDP",
    "idp": "idp-sgd",
    "jax": "jax-privacy",
    "mostlyai": "mostlyai-engine",
    "opacus": "opacus",
    "pfl": "pfl",
    "pipeline": "pipeline-dp",
    "private": "private-transformers",
    "python": "python-dp",
    "tmlt": "tmlt.core",
    "torch": "torch",
}


def find_distribution(name: str) -> bool:
    return any(metadata.distributions(name=name))


def test_every_draft_has_a_reproducer_and_is_listed() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    drafts = [path for path in FOLDER.glob("*.md") if path.name != "README.md"]
    assert len(drafts) >= 5
    texts = {draft.stem: draft.read_text(encoding="utf-8") for draft in drafts}
    for name, text in texts.items():
        assert f"({name}.md)" in listed
        assert "not sent" in text
        assert f"({name}.py)" in text
    cited = set(re.findall(r"\(([a-z0-9_]+\.py)\)", "".join(texts.values())))
    assert cited == {script.name for script in SCRIPTS}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_reproducer_shows_it(script: Path) -> None:
    library = LIBRARY[script.stem.partition("_")[0]]
    if not find_distribution(library):
        pytest.skip(f"{library} is not installed")
    command = [sys.executable, "-W", "ignore", str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    lines = ran.stdout.strip().splitlines()
    counts = [int(count) for count in re.findall(r": (\d+) of", ran.stdout)]
    if script.stem.endswith("_seed"):  # all values by the public seed, next to none by another
        found = [
            list(map(int, re.findall(r": (\d+) of (\d+) values", row)[0])) for row in lines[:2]
        ]
        assert found[0][0] == found[0][1] > 2_000
        assert found[1][0] < 0.01 * found[1][1]
    elif script.stem == "diffprivlib_sum":
        assert [int(re.findall(r"\b\d+\b", line)[1]) for line in lines[1:]] == [0, 1000]
    elif script.stem == "dpmm_rounds":
        (overspent, allowed), right = (map(float, re.findall(r"\b\d\.\d+", row)) for row in lines)
        assert overspent == pytest.approx(7.2 * allowed, rel=0.01)
        assert next(right) <= allowed
    elif script.stem == "opacus_float64":
        assert min(counts[0], counts[3]) > 19_000
        assert max(counts[1], counts[2]) < 1_000
    elif script.stem == "opacus_norm":
        norms = [float(line.rpartition(" ")[2]) for line in lines]
        least = (1.001, 1.01, 1.1)
        assert all(norm > above for norm, above in zip(norms[1::2], least, strict=True))
    elif script.stem == "opacus_sharded":  # FSDP is right; then a, b, c, d
        rows = [[float(x) for x in re.findall(r"\d+\.\d\d", line)] for line in lines]
        ratios = [measured / claimed for measured, claimed, *_ in rows]
        assert ratios == pytest.approx([1, 1, 1 / 4, 4, 5 / 8.01], rel=0.02)
        assert [apart for _, _, apart, _ in rows] == pytest.approx([0, 50**0.5, 0, 0, 0], rel=0.02)
        assert rows[1][3] == pytest.approx(5 / 2**0.5, rel=0.02)
    elif script.stem == "torch_norm":
        errors = [[float(x) for x in re.findall(r"[-+][\d.]+e-\d+", line)] for line in lines]
        assert all(abs(right) < 1e-11 for _, right in errors)
        assert errors[-1][0] < -0.005
    else:
        total = int(re.search(r"of (\d+)", lines[0])[1])  # type: ignore[index]
        assert counts[0] > 0.1 * total
        assert counts[1] == 0
