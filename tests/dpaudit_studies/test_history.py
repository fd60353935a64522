"""``dpaudit history``: releases from an index, environments, one α, first and last bad release."""

import json
import zipfile
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from dpaudit.errors import SamplerError, UnknownNameError, UsageError
from dpaudit.protocols import Facts
from dpaudit_studies.history import installing, measure, subjects
from dpaudit_studies.history.elsewhere_main import Packages
from dpaudit_studies.history.installing import NotInstallableError, Requirements
from dpaudit_studies.history.measure import history_spec, rows_of, summary
from dpaudit_studies.history.options import HistoryOptions
from dpaudit_studies.history.subjects import SUBJECTS, Check, Subject, subject
from tests.command_line import here

ADAPTER = """
from dpaudit.targets.adapters.base import Library, LibraryMechanism, additive, claims

def make(module, *, scale):
    return additive(lambda size: module.noise(scale, size))

LIBRARY = Library(
    name="toy", module="toydp", install="", distribution="toydp", tested="1.1",
    table={"gaussian": LibraryMechanism(
        make=make, options={"scale": 1.0}, claim=claims("gaussian:sigma", "scale"), told=False)},
)
"""
CODE = """
import secrets
import numpy
rng = numpy.random.Generator(numpy.random.PCG64(secrets.randbits(128)))
def noise(scale, size):
    return {factor} * scale * rng.standard_normal(size)
"""


def wheel(folder, version, code, *, requires=(), tag="py3-none-any"):
    folder.mkdir(parents=True, exist_ok=True)
    about = f"toydp-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: toydp\nVersion: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    files = {
        "toydp.py": code,
        f"{about}/METADATA": "\n".join(lines) + "\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{name},,\n" for name in files) + f"{about}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"toydp-{version}-{tag}.whl", "w") as made:
        for name, text in {**files, f"{about}/RECORD": record}.items():
            made.writestr(zipfile.ZipInfo(name, (2024, 5, 6, 0, 0, 0)), text)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Three releases in a cache: one too wide, one right, one for another Python."""
    wheels = tmp_path / "cache" / "wheels"
    wheel(wheels, "1.0", CODE.format(factor=1.3))
    wheel(wheels, "1.1", CODE.format(factor=1.0), requires=["elsewhere>=3", "other ; extra == 'x'"])
    wheel(wheels, "1.2", CODE.format(factor=1.0), tag="cp27-none-any")
    (tmp_path / "toy_adapter.py").write_text(ADAPTER, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    checks = (Check("gaussian"), Check("gaussian", "events", 1.0, 1e-5))
    about = {"adapter": "toy_adapter:LIBRARY", "checks": checks, "shared": True}
    monkeypatch.setitem(SUBJECTS, "toy", Subject(name="toy", requires=(), only=(), **about))
    monkeypatch.setenv("DPAUDIT_HISTORY", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.slow
def test_a_history_names_the_last_bad_release_and_resumes(toy, monkeypatch):
    words = ["history", "toy:gaussian:scale=2", "--samples", "5000", "--allow-predictable"]
    words += ["--offline", "--out", toy / "out", "--cache", toy / "cache"]
    done = here(*words, "--format", "json")
    assert done.returncode == 1, done.stderr
    old, new, other = json.loads(done.stdout)["rows"]
    names = ("version", "verdict", "first", "last", "after")
    assert [old[name] for name in names] == ["1.0", "finding", "1.0", "1.0", "1.1"]
    assert (new["version"], new["verdict"], new["built"]) == ("1.1", "no-finding", "2024-05-06")
    assert new["claim"] == "gaussian:sigma=2"
    assert (other["version"], other["verdict"]) == ("1.2", "not installed")
    assert not list((toy / "cache" / "environments").iterdir())
    assert (toy / "out" / "report.html").exists()

    def refuse(*words):
        raise SamplerError(f"pip {words}: an installed release is audited again")

    monkeypatch.setattr(installing, "_pip", refuse)
    wheel(toy / "cache" / "wheels", "1.3", CODE.format(factor=1.0))  # newer than the first start
    again = here(*words, "--resume")
    assert (again.returncode, "1.3" in again.stdout) == (1, False)


def test_releases_come_from_pip_and_are_chosen_by_specifiers(monkeypatch):
    said = SimpleNamespace(
        stdout="toy (2.0)\nAvailable versions: 2.0, 1.10, 1.9, 1.0rc1\n", stderr=""
    )
    monkeypatch.setattr(installing, "_pip", lambda *_: said)
    monkeypatch.delenv("DPAUDIT_HISTORY_OFFLINE", raising=False)
    for chosen, releases in (
        ([], ["1.9", "1.10", "2.0"]),
        ([">=1.10"], ["1.10", "2.0"]),
        (["<1.10", "==2.0"], ["1.9", "2.0"]),
    ):
        assert installing.versions("toy", chosen) == releases
    for bad in (">3", "new"):
        with pytest.raises(UsageError, match=bad):
            installing.versions("toy", [bad])
    said.stdout, said.stderr = "", "ERROR: no such host\n"
    with pytest.raises(UsageError, match="no such host"):
        installing.versions("toy")


@pytest.mark.parametrize(
    ("said", "error", "match"),
    [
        ("connection broken\nERROR: No matching distribution found for toy", SamplerError, "index"),
        ("ERROR: No matching distribution found for toy==1", NotInstallableError, "for Python 3"),
        ("ERROR: ResolutionImpossible", NotInstallableError, "ResolutionImpossible"),
    ],
)
def test_a_release_that_cannot_be_installed_says_why(tmp_path, monkeypatch, said, error, match):
    monkeypatch.setenv("DPAUDIT_HISTORY", str(tmp_path))
    monkeypatch.delenv("DPAUDIT_HISTORY_OFFLINE", raising=False)
    refused = SimpleNamespace(stdout="", stderr=said, returncode=1)
    monkeypatch.setattr(installing, "_pip", lambda *_: refused)
    with (
        pytest.raises(error, match=match),
        installing.environment("toy==1", Requirements()),
    ):
        pass
    assert not list((tmp_path / "environments").iterdir())


def test_offline_needs_a_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPAUDIT_HISTORY", str(tmp_path))
    monkeypatch.setenv("DPAUDIT_HISTORY_OFFLINE", "1")
    with pytest.raises(UsageError, match="no wheel of toy; run once without --offline"):
        installing.versions("toy")


def test_only_the_named_dependencies_are_installed(toy):
    for named, wanted in ((["elsewhere", "other"], ["elsewhere>=3"]), ([], [])):
        assert installing._dependencies("toydp==1.1", named) == wanted


@pytest.mark.parametrize(
    "text", ["gaussian:scale=2 battery", "laplace reach 0.5", "x events 1 1e-05"]
)
def test_a_check_is_what_it_writes(text):
    assert str(Check.parse(text)) == text


@pytest.mark.parametrize("text", ["a battery 1", "a reach", "a reach x", "a reach 1 2 3"])
def test_a_check_without_its_claim_is_refused(text):
    with pytest.raises(UsageError, match="must be MECHANISM battery"):
        Check.parse(text)


def test_alpha_is_shared_by_all_pairs(monkeypatch):
    options = HistoryOptions(samples=1000, releases=1000, alpha=0.06, seed="1")
    spec = history_spec("numpy", versions=["1", "2", "3"], options=options)
    checks = len(SUBJECTS["numpy"].checks)
    assert (spec.grid["pairs"], len(spec.cells())) == (3 * checks, 3)
    levels = []

    def seen(sampler, *, claim, options):
        levels.append(options.alpha)
        raise SamplerError("seen")

    monkeypatch.setattr(measure, "run_audit", seen)
    session = SimpleNamespace(facts=Facts({"noise"}, claim="gaussian:sigma=1"))
    target = SimpleNamespace(open=lambda *, timeout: nullcontext(session))
    where = SimpleNamespace(sampler=lambda _: target)
    grid = spec.cells()[0].grid(measure.HistoryGrid)
    row = measure._run_check(where, Check("normal"), grid, "1")
    assert (row["verdict"], row["failed"]) == ("cannot run", "seen")
    assert levels == [pytest.approx(0.06 / (3 * checks))]


def cell(version, *verdicts, failed=None):
    audits = [
        {"mechanism": f"m{i}", "method": "battery", "verdict": verdict, "finding": "moments"}
        for i, verdict in enumerate(verdicts)
    ]
    return {"library": "toy", "version": version, "audits": audits, "failed": failed}


def test_first_and_last_bad_release_are_those_of_each_check():
    bad, good = "finding", "no-finding"
    cells = [cell("1.10", good, bad), cell("1.9", bad, good), cell("1.8", good, "cannot run")]
    rows = rows_of([*cells, cell("1.7", bad, good), cell("1.6", failed="no wheel")])
    versions = ["1.6", *("1.7",) * 2, *("1.8",) * 2, *("1.9",) * 2, *("1.10",) * 2]
    assert [row["version"] for row in rows] == versions
    names = ("mechanism", "first", "last", "after")
    found = [tuple(r[n] for n in names) for r in rows if r["verdict"] == "finding"]
    assert found == [("m0", "1.7", "1.9", "1.10")] * 2 + [("m1", "1.10", "1.10", None)]
    said = summary(rows)
    for part in ("m0 by battery: moments in 1.7 to 1.9 (1 of them without)", "Not installed: 1.6"):
        assert part in said


def test_a_mechanism_has_its_own_checks_or_the_battery():
    opendp = subject("opendp")
    assert {c.method for c in opendp.of("discrete-laplace")} == {"battery", "events"}
    assert opendp.of("discrete-laplace:scale=3") == (Check("discrete-laplace:scale=3"),)
    for call in (lambda: opendp.of("discrete-lapplace"), lambda: subject("openpd")):
        with pytest.raises(UnknownNameError):
            call()
    with pytest.raises(UsageError, match="no releases of its own"):
        subject("stdlib")


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_every_check_of_a_library_is_one_that_its_adapter_has(name):
    about = subject(name)
    for check in about.checks:
        mechanism, _ = about.library.find(check.mechanism)
        assert mechanism.make is not None
        assert (check.method == "battery") <= (mechanism.claim is not None)
    assert subjects.SUBJECTS[name].name == name


def test_empty_modules_stand_in_for_what_cannot_be_imported(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "__init__.py").touch()
    finder = Packages({"ours": str(tmp_path / "ours" / "__init__.py")}, ["spark"])
    assert finder.find_spec("ours").submodule_search_locations == [str(tmp_path / "ours")]
    assert finder.find_spec("sparkle") is None
    assert finder.find_spec("ours.part") is None
    spec = finder.find_spec("spark.sql")
    module = spec.loader.create_module(spec)
    assert isinstance(module.DataFrame, type)
    assert module.SparkSession.getActiveSession() is None
    with pytest.raises(AttributeError):
        module.__wrapped__  # noqa: B018
