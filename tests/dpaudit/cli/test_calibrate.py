"""`dpaudit frontier --calibrate`: the rows, the document, the page, and usage errors."""

import json

import pytest

from dpaudit.cli import frontiers
from dpaudit.errors import UsageError
from dpaudit_mitigations.smoothing.smoothing import Smoothing

PLAIN = {
    "dim": 64,
    "samples": 1e6,
    "seconds": 15,
    "table": None,
    "write": None,
    "out": None,
    "output": "text",
}


def show(**options):
    frontiers.show(**{**PLAIN, **options})


def test_the_sentence_and_the_caveats(capsys):
    show(calibrate=True)
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "Pancakes with γ up to 1.154 are found; smoothing τ = 1 (L2 × 1.414) covers the rest"
        in text
    )
    assert "smoothing:tau=0.1356" in text  # under γ ≥ 2√d
    assert "what two servers cost" in text


def test_the_document_and_the_page(capsys, tmp_path):
    show(calibrate=True, eta=1e-4, dim=None, output="json", out=tmp_path)
    document = json.loads(capsys.readouterr().out)
    assert document["proposal"]["gamma_seen"] == pytest.approx(18.68)
    assert document["proposal"]["eta"] == 1e-4
    (row,) = document["rows"]
    name, _, tau = row["mitigation"].partition(":tau=")
    assert name == "smoothing"
    assert row["tau"] <= float(tau) < 1.001 * row["tau"]
    made = Smoothing(tau=float(tau))
    assert made.l2_factor == pytest.approx(row["l2_factor"], rel=1e-4)
    page = (tmp_path / "report.html").read_text()
    assert "Smoothing behind an audit" in page
    assert json.loads((tmp_path / "result.json").read_text())["caveats"] == document["caveats"]


def test_slips():
    with pytest.raises(UsageError, match=r"eta=0\.1: .* add --calibrate"):
        show(eta=0.1)
    with pytest.raises(UsageError, match=r"eta=2: must lie"):
        show(calibrate=True, eta=2)
    with pytest.raises(UsageError, match="must be at least"):
        show(calibrate=True, samples=1e3)
    show(output="json")  # and without it, the map as before
