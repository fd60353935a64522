"""``import dpaudit``: its names, imported on use."""

import subprocess
import sys

import pytest

import dpaudit
from dpaudit.errors import UsageError


@pytest.fixture(scope="module")
def noise():
    return dpaudit.audit_sampler(
        "numpy:laplace", claim="gaussian:sigma=1", samples=20_000, seed=1, tests=["moments"]
    )


def test_audits_and_a_page(tmp_path, noise):
    whole = dpaudit.audit_mechanism(
        "numpy:laplace", claim_epsilon=0.1, claim_delta=0, neighbours="0,1", samples=2_000, seed=1
    )
    for result in (noise, whole):
        assert result.verdict == "finding"
        page = dpaudit.write_report(result, tmp_path / "report.html")
        assert "numpy:laplace" in page.read_text()
    with pytest.raises(UsageError, match="result=str"):
        dpaudit.write_report("report", tmp_path / "report.html")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        dpaudit.write_report(noise, tmp_path / "file" / "report.html")


def test_a_recovered_secret_stays_out_of_documents(noise):
    import dataclasses

    from dpaudit.documents import of_result

    secret = dataclasses.replace(
        noise, tests=(dataclasses.replace(noise.tests[0], details={"w": [0.5], "n": 1}),)
    )
    document = of_result(secret)
    assert document.result.tests[0].details == {"n": 1}
    assert document.result.tests[0] == dataclasses.replace(secret.tests[0], details={"n": 1})


def test_names_are_there_and_imported_late():
    assert set(dpaudit.__all__) >= {"audit_mechanism", "audit_sampler", "write_report"}
    assert all(hasattr(dpaudit, name) for name in dpaudit.__all__)
    with pytest.raises(AttributeError, match="no attribute 'audit'"):
        dpaudit.__getattr__("audit")
    slow = {"numpy", "scipy", "torch", "jinja2", "rich"}
    code = f"import dpaudit, sys; print(sorted({slow} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]"
