"""``dpaudit prove`` and ``dpaudit verify certificate`` as a user types them."""

from __future__ import annotations

import gzip
import json
import math

import pytest

from tests.command_line import here

PROGRAM = """
import secrets
import time

def answer(truth):
    return truth if secrets.randbelow(4) < 3 else 1 - truth

def coin():
    return secrets.randbits(1)

def timed():
    return int(time.time()) % 2

def endless(rng):
    k = 0
    while rng.getrandbits(1):
        k += 1
    return k

def pair():
    nonce = secrets.randbits(3)
    return nonce, 7 - nonce

def two():
    return secrets.randbits(3), secrets.randbits(3)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "user_noise.py").write_text(PROGRAM)
    return tmp_path


def proved(folder, name, *options):
    return here("prove", f"python:./user_noise.py:{name}", *options, cwd=folder)


def test_a_proof_exits_with_0_and_its_certificate_holds(folder) -> None:
    done = proved(folder, "coin", "--claim", "bernoulli:p=1/2", "--out", "proof")
    assert done.returncode == 0
    assert "\nProved: python:./user_noise.py:coin has the law bernoulli:p=1/2" in done.stdout
    assert "every call reads 1 coin bits" in done.stdout
    document = json.loads((folder / "proof/result.json").read_text())
    assert (document["kind"], document["data"]["verdict"]) == ("proof", "proved")
    path = folder / "proof/certificate.json.gz"
    alone = here("verify", "certificate", path)
    assert alone.returncode == 3
    assert alone.stdout.startswith("Holds: ")
    assert "was not run" in alone.stderr
    name = "python:./user_noise.py:coin"
    ran = here("verify", "certificate", path, "--program", name, "--format", "json", cwd=folder)
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["holds"], found["replayed"]) == (0, True, 2)
    other = here("verify", "certificate", path, "--program", "python:os:system", cwd=folder)
    assert other.returncode == 2
    (folder / "user_noise.py").write_text(PROGRAM + "\n")
    changed = here("verify", "certificate", path, "--program", name, cwd=folder)
    assert changed.returncode == 1
    assert "not the file that was proved" in changed.stdout


def test_a_refutation_exits_with_1_and_shows_coins(folder) -> None:
    done = proved(folder, "coin", "--claim", "bernoulli:p=2/3", "--format", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (1, "refuted")
    assert found["counterexample"] == {
        "output": "0",
        "coins": [[2, 0]],
        "says": "P(0) ≥ 0.5, but bernoulli:p=2/3 gives it at most 0.3334",
    }


@pytest.mark.slow
def test_the_folder_of_a_proof_has_its_page_and_every_format(folder) -> None:
    options = ("--neighbours", "0,1", "--claim-epsilon", "1", "--out", "proof")
    done = proved(folder, "answer", *options)
    assert "report: proof/report.html" in done.stderr
    page = (folder / "proof/report.html").read_text(encoding="utf-8")
    assert "python:./user_noise.py:answer is not (1, 0)-DP for 0 and 1" in page.replace("<wbr>", "")
    result = json.loads((folder / "proof/result.json").read_text(encoding="utf-8"))["data"]
    again = "dpaudit prove python:./user_noise.py:answer --neighbours 0,1 --claim-epsilon 1"
    assert result["provenance"]["command"] == again
    low, high = (result["epsilon"][end] for end in ("low", "high"))
    assert low <= math.log(3) <= high < low + 1e-9
    assert [p["near"] for p in result["profile"]][:3] == [1.0, 0.0, 0.25]
    also = here("report", "proof", "--also", "junit,sarif", cwd=folder)
    assert also.returncode == 0
    assert '<failure type="finding"' in (folder / "proof/report.junit.xml").read_text()
    assert proved(folder, "answer", *options).returncode == 1  # the same again
    (sarif,) = json.loads((folder / "proof/report.sarif").read_text())["runs"]
    assert sarif["invocations"][0]["exitCode"] == 1


@pytest.mark.slow
def test_a_folder_keeps_another_result(folder) -> None:
    assert proved(folder, "coin", "--claim", "bernoulli:p=1/2", "--out", "x").returncode == 0
    before = (folder / "x/result.json").read_bytes()
    done = proved(folder, "coin", "--claim", "bernoulli:p=2/3", "--out", "x")
    assert "out=x: holds the result of another audit" in done.stderr
    audit = ("audit", "gaussian", "--claim", "gaussian:sigma=1", "--samples", "1000", "--out", "x")
    assert "out=x: holds the result of another audit" in here(*audit, cwd=folder).stderr
    assert (folder / "x/result.json").read_bytes() == before


def test_claimed_probabilities_stand_beside_the_exact_ones(folder) -> None:
    done = proved(folder, "coin", "--claim", "bernoulli:p=2/3", "--format", "json")
    found = json.loads(done.stdout)
    claimed = dict(zip((o for o, _ in found["law"]), found["claimed"], strict=True))
    for output, share in (("0", 1 / 3), ("1", 2 / 3)):
        assert claimed[output]["low"] <= share <= claimed[output]["high"] < share + 1e-15


@pytest.mark.slow
def test_a_file_that_is_no_certificate_is_a_usage_error(folder) -> None:
    bomb = folder / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b"[" * 50_000_000))
    for path in (folder / "user_noise.py", bomb, folder, folder / "missing"):
        done = here("verify", "certificate", path)
        assert done.returncode == 2
        assert "not a certificate" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_the_program_of_a_certificate_is_quoted_and_never_a_command(folder) -> None:
    """The arithmetic holds whatever the program is called; a stranger chose the name."""
    assert proved(folder, "coin", "--claim", "bernoulli:p=1/2", "--out", "proof").returncode == 0
    made = json.loads(gzip.decompress((folder / "proof/certificate.json.gz").read_bytes()))
    path = folder / "changed.json.gz"
    for name in ("python:os:system", "python:x:y\n--program python:os:system\x1b[2J\u202e"):
        path.write_bytes(gzip.compress(json.dumps(made | {"program": name}).encode()))
        done = here("verify", "certificate", path)
        assert (done.returncode, done.stdout[:6]) == (3, "Holds:")
        assert repr(name) in done.stderr
        assert f"--program {name}" not in done.stderr
        assert "--program python" not in done.stderr.replace(repr(name), "")
        other = here("verify", "certificate", path, "--program", "python:a:b")
        assert other.returncode == 2
        assert repr(name) in other.stderr


@pytest.mark.slow
def test_a_file_of_the_program_that_is_a_device_is_not_read(folder) -> None:
    assert proved(folder, "coin", "--claim", "bernoulli:p=1/2", "--out", "proof").returncode == 0
    path = folder / "proof/certificate.json.gz"
    made = json.loads(gzip.decompress(path.read_bytes()))
    made["files"] |= {"/dev/zero": "0" * 64}
    path.write_bytes(gzip.compress(json.dumps(made).encode()))
    name = "python:./user_noise.py:coin"
    done = here("verify", "certificate", path, "--program", name, cwd=folder)
    assert done.returncode == 1
    assert "/dev/zero: not a plain file" in done.stdout
