"""A simulated device: what is read back was simulated, and bits have the right flip rate."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.database.balances import check_balances
from dpaudit.deployments.apple.database.reading import read_bits, read_database, read_sketches
from dpaudit.deployments.apple.model import Configuration
from dpaudit.deployments.apple.reports.reading import read_reports
from dpaudit.deployments.apple.reports.records import decode
from dpaudit.deployments.apple.simulation.scenario import Scenario, make_scenario
from dpaudit.errors import UsageError
from dpaudit.local.reports import SketchReports
from dpaudit.randomness import KeyedStream

DATA = Path(__file__).parents[3] / "data" / "apple"
STREAM = KeyedStream.from_seed(8)
SIERRA = read_configuration(DATA / "10.12.3")


def with_properties(configuration: Configuration, name: str, **change: object) -> Configuration:
    properties = dict(configuration.properties)
    properties[name] = replace(properties[name], **change)  # type: ignore[arg-type]
    return replace(configuration, properties=properties)


@pytest.fixture(scope="module")
def sierra(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return make_scenario(
        SIERRA, out=tmp_path_factory.mktemp("sierra") / "device", days=12, stream=STREAM
    )


def test_the_database_is_read_back_as_it_was_simulated(sierra: Scenario) -> None:
    database = read_database(sierra.database)
    assert database.findings == ()
    assert database.balances == sierra.daemon.balances
    assert check_balances(database, SIERRA) == ()
    assert sum(c.rows for c in database.counts) == len(sierra.daemon.records)
    expected = Counter(
        (r.key, r.created, r.submitted, r.version, sierra.texts[r.number])
        for r in sierra.daemon.records
    )
    found = Counter(
        (b.key, b.created, b.submitted, b.version, f"{b.position},{'+1' if b.value else '-1'}")
        for b in read_bits(sierra.database)
    )
    found.update(
        (s.key, s.created, s.submitted, s.version, s.text) for s in read_sketches(sierra.database)
    )
    assert found == expected
    assert {c.submitted for c in database.counts} == {True, False}


def test_the_reports_are_read_back_as_they_were_simulated(sierra: Scenario) -> None:
    expected = Counter(
        (report.created.replace(microsecond=0), record.key, sierra.texts[record.number])
        for report in sierra.daemon.report_files
        for record in report.records
    )
    found: Counter[object] = Counter()
    budgets: Counter[str] = Counter()
    for report in read_reports(sierra.reports):
        assert report.findings == ()
        assert report.version == 11
        for segment in report.segments:
            properties = sierra.daemon.keys[segment.key].properties
            assert (properties.name == "Search") == report.path.name.endswith(".json.anon")
            assert segment.algorithm == properties.server_algorithm
            found.update((report.created, segment.key, text) for text in segment.records)
            budgets[properties.budget] += len(segment.records)
            decoded = decode(segment)
            assert (decoded.left_out, decoded.findings) == (0, ())
    assert found == expected
    # nothing is a month old yet, so all that was ever submitted is in the files
    assert budgets == +Counter(sierra.daemon.submitted)
    assert budgets["com.apple.keyboard.NewWords"] > 20


def test_words_have_the_coin_of_figure_20(sierra: Scenario) -> None:
    ones = bits = 0
    for report in read_reports(sierra.reports):
        for segment in report.segments:
            if segment.algorithm == "SequenceFragmentPuzzle+CountMedianSketch":
                for part in decode(segment).reports:
                    assert isinstance(part, SketchReports)
                    ones += int.from_bytes(part.bits.tobytes(), "big").bit_count()
                    bits += 8 * part.bits.size
    # bias 0.1192029 at PrivacyParameter 2; the bit that is turned over adds 0.76 in 32768
    expected = 0.1192029220221175 + (1 - 2 * 0.1192029220221175) / 32768
    assert bits > 10**6
    assert abs(ones / bits - expected) < 5 * (0.105 / bits) ** 0.5


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def contents(name: str, seed: int) -> dict[str, bytes]:
        out = tmp_path / name
        make_scenario(SIERRA, out=out, days=3, stream=KeyedStream.from_seed(seed))
        return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}

    first = contents("a", 1)
    assert first == contents("b", 1)
    assert first != contents("c", 2)
    assert "database.sqlite" in first
    assert len(first) > 3


def test_ios_11_writes_json_anon_with_hadamard_sketches_and_keeps_them_a_week(
    tmp_path: Path,
) -> None:
    configuration = read_configuration(DATA / "ios-11")
    scenario = make_scenario(
        configuration, out=tmp_path / "d", days=15, stream=STREAM, platform="ios"
    )
    reports = list(read_reports(scenario.reports))
    assert all(r.path.name.endswith(".json.anon") for r in reports)
    assert min(r.created for r in reports if r.created) > scenario.daemon.now - timedelta(
        days=7, seconds=1
    )
    decoded = [(s.algorithm, decode(s)) for r in reports for s in r.segments]
    assert all(d.findings == () and d.left_out == 0 for _, d in decoded)
    assert {"HadamardCountMedianSketch", "CountMedianSketch", "OneBitHistogram"} <= {
        a for a, _ in decoded
    }


def test_a_parameter_beyond_epsilon_max_goes_to_the_bits_table_and_no_report(
    tmp_path: Path,
) -> None:
    configuration = with_properties(SIERRA, "NewWords", parameter=3.0)
    scenario = make_scenario(configuration, out=tmp_path / "d", days=5, stream=STREAM)
    words = {
        name for name, key in scenario.daemon.keys.items() if key.properties.name == "NewWords"
    }
    tables = {c.table for c in read_database(scenario.database).counts if c.key in words}
    assert tables == {"ZOBHRECORD"}
    assert not words & {s.key for r in read_reports(scenario.reports) for s in r.segments}


def test_an_unknown_algorithm_is_left_out_and_said(tmp_path: Path) -> None:
    configuration = with_properties(SIERRA, "DeepLinks", algorithm="Rot13")
    scenario = make_scenario(configuration, out=tmp_path / "d", days=2, stream=STREAM)
    assert scenario.left_out == ("com.apple.parsec.AppDeepLink",)
    assert scenario.daemon.submitted["com.apple.parsec.AppDeepLink"] == 0


def test_parameters_that_cannot_be_worked_with(tmp_path: Path) -> None:
    for change, said in (({"p": "many"}, "p='many'"), ({"p": 1}, "positions=1")):
        parameters = dict(SIERRA.parameters) | {"OneBitHistogram": change}
        with pytest.raises(UsageError, match=said):
            make_scenario(
                replace(SIERRA, parameters=parameters), out=tmp_path / "d", days=2, stream=STREAM
            )
    puzzle = "SequenceFragmentPuzzle+CountMedianSketch"
    parameters = dict(SIERRA.parameters) | {
        puzzle: dict(SIERRA.parameters[puzzle]) | {"fragmentM": 64}
    }
    with pytest.raises(UsageError, match="must equal fragmentM"):
        make_scenario(
            replace(SIERRA, parameters=parameters), out=tmp_path / "d", days=2, stream=STREAM
        )
    assert not (tmp_path / "d").exists()


def test_no_keys_at_all(tmp_path: Path) -> None:
    scenario = make_scenario(replace(SIERRA, keys={}), out=tmp_path / "d", days=2, stream=STREAM)
    assert read_database(scenario.database).balances == scenario.daemon.balances
    assert list(read_reports(scenario.reports)) == []


def test_where_it_will_not_write(tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine.txt").write_text("keep")
    for out, said in (
        (used, "not empty"),
        (used / "mine.txt", "cannot be made"),
        (used / "mine.txt" / "x", "cannot be made"),
    ):
        with pytest.raises(UsageError, match=said):
            make_scenario(SIERRA, out=out, days=1, stream=STREAM)
    assert [p.name for p in used.iterdir()] == ["mine.txt"]
    for days in (0, 3661):
        with pytest.raises(UsageError, match="from 1 to 3660"):
            make_scenario(SIERRA, out=tmp_path / "new", days=days, stream=STREAM)
    assert not (tmp_path / "new").exists()
