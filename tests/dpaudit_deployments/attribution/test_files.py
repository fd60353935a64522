"""``dpaudit deployment attribution`` on files, in the formats that tools record."""

import json

import pytest
from command_line import here

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.render import read_report
from dpaudit_deployments.attribution.measure import event_sources, summary_batches
from dpaudit_deployments.attribution.records import read_batch, read_events
from dpaudit_deployments.attribution.registration import Registration

DAY = 86_400
NAVIGATION = Registration.default("navigation", epsilon=8.0)


def lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def events(path, flaw="none", *, size=2_000):
    stream = KeyedStream.from_seed(1)
    sources = event_sources(flaw, registration=NAVIGATION, size=size, stream=stream)
    rows = [{"reported": s.record.reported, "true": s.record.true} for s in sources]
    return lines(path, ({"source": str(i)} | row for i, row in enumerate(rows)))


def attribution(*args, code=0):
    result = here("deployment", "attribution", *map(str, args))
    assert result.returncode == code, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    return result.stdout


def told(*args, code=0):
    return json.loads(attribution(*args, "--seed", 1, "--format", "json", code=code))


def aggregatable(source, values, *, batch="a", report=0, scheduled=0):
    info = {"api": "attribution-reporting", "version": "1.0", "report_id": f"{source}-{report}"}
    info |= {"scheduled_report_time": str(scheduled), "attribution_destination": "https://shop"}
    contributions = [{"bucket": "0x1", "value": v} for v in values]
    row = {"source": source, "batch": batch, "contributions": contributions}
    return row | {"shared_info": json.dumps(info)}


def test_without_files_the_laws_of_the_default_registrations():
    last = attribution().splitlines()[-1]
    assert last == "No finding: the laws that registrations have, without any reports."
    claims = {c["source_type"]: c for c in told()["claims"]}
    assert claims["navigation"]["states"] == 2925
    assert claims["event"]["pick_rate"] == pytest.approx(2.494582008677539e-06, rel=1e-12)


def test_a_registration_that_browsers_refuse_is_told(tmp_path):
    config = tmp_path / "source.json"
    config.write_text(json.dumps([{"trigger_data": list(range(16))}, {"source_type": "event"}]))
    assert [c["allowed"] for c in told("--config", config)["claims"]] == [False, True]


@pytest.mark.slow
def test_events_from_a_file(tmp_path):
    document = told("--events", events(tmp_path / "honest.jsonl"), "--event-epsilon", 8)
    (claim,) = document["claims"]
    assert (document["verdict"], claim["known"], claim["epsilon"]) == ("no-finding", 2_000, 8.0)
    out = tmp_path / "out"
    flawed = events(tmp_path / "flawed.jsonl", "sources with reports are spared", size=4_000)
    text = attribution("--events", flawed, "--event-epsilon", 8, "--out", out, code=1)
    assert text.splitlines()[-1].startswith("Finding: flip")
    assert read_report(out / "result.json").verdict == "finding"
    page = (out / "report.html").read_text()
    assert "flips-by-truth" in page
    assert "<svg" in page


def test_a_record_states_its_registration_and_its_rate(tmp_path):
    register = {"source_type": "event", "event_level_epsilon": 2}
    rows = [
        {"source": i, "reported": [[1, 0]], "registration": register,
         "randomized_trigger_rate": rate}
        for i, rate in enumerate([0.319484, 0.003])
    ]  # fmt: skip
    document = told("--events", lines(tmp_path / "e.jsonl", rows), code=1)
    (finding,) = document["findings"]
    assert "randomized_trigger_rate = 0.003, which is ε = 6.9" in finding["message"]
    assert finding["serious"]
    assert document["claims"][0]["states"] == 3
    plain = lines(tmp_path / "f.jsonl", rows[:1])
    assert told("--events", plain, code=3)["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1"),
        ('{"source": 1}', "`reported`"),
        ('{"source": 1, "reported": [[8, 0]]}', "no output of the source's registration"),
        ('{"source": 1, "reported": [[0, 0], [0, 0], [0, 0], [0, 0]]}', "no output"),
        ('{"source": 1, "reported": [], "registration": {"source_type": "x"}}', "navigation"),
        ('{"source": 1, "reported": [], "registration": [[[[[[[[1]]]]]]]]}', "an object"),
    ],
)
def test_bad_lines_are_refused(tmp_path, line, says):
    path = tmp_path / "events.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UsageError, match=says):
        list(read_events(path, default=NAVIGATION))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--epsilon", "65"), "0 < ε ≤ 64"),
        (("--event-epsilon", "-1"), "in 0 … 700"),
        (("--alpha", "1"), "alpha="),
        (("--unnoised", "x.json"), "one per --summary"),
        (("--events", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--events", "broken.jsonl"), "broken.jsonl"),
        (("--summary", "nowhere.json"), "nowhere.json"),
        (("--summary", "huge.json"), "beyond 2^52"),
    ],
)
def test_bad_options_and_files_are_usage_errors(tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.jsonl").write_text("{\n")
    lines(tmp_path / "huge.json", [{"bucket": 1, "unnoised_metric": 0, "noise": 1 << 60}])
    result = here("deployment", "attribution", *options)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert says in " ".join(result.stderr.split())


def test_the_output_of_the_local_testing_tool(tmp_path):
    """``output.json`` with noise, and again with ``--no_noising``."""
    stream = KeyedStream.from_seed(1)
    (batch, *_) = summary_batches("none", epsilon=10.0, size=480, stream=stream)
    wrong = summary_batches("half the noise", epsilon=10.0, size=480, stream=stream)[0]
    true = {f"\x00bucket {i}ø": 32_768 + i for i in range(120)}
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps([{"bucket": b, "metric": v} for b, v in true.items()]))
    codes = []
    for made in (batch, wrong):
        noisy = tmp_path / "output.json"
        noise = zip(true.items(), made.noise.tolist(), strict=True)
        noisy.write_text(json.dumps([{"bucket": b, "metric": v + x} for (b, v), x in noise]))
        assert (read_batch(noisy, values=true).noise == made.noise).all()
        result = here("deployment", "attribution", f"--summary={noisy}", f"--unnoised={plain}")
        codes.append(result.returncode)
    assert codes == [0, 1]


def test_debug_summary_reports_and_empty_buckets(tmp_path):
    debug = lines(tmp_path / "debug.json", [{"bucket": "a", "unnoised_metric": 50, "noise": -7}])
    assert read_batch(debug).noise.tolist() == [-7]
    rows = [{"bucket": "a", "metric": 5000}, {"bucket": "b", "metric": -9900}]
    more = {"bucket": "c", "metric": 9, "unnoised_metric": 4}
    both = lines(tmp_path / "both.json", [*rows, more])
    batch = read_batch(both, empty=frozenset(["a"]))
    assert (batch.noise.tolist(), batch.buckets, batch.rows) == ([5000, 5], ("a", "c"), 3)
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps(["a", {"bucket": "b"}]))
    document = told("--summary", lines(tmp_path / "s.json", rows), "--empty", empty)
    assert document["noise"]["values"] == 2
    unknown = told("--summary", lines(tmp_path / "s.json", rows), code=3)
    assert unknown["verdict"] == "inconclusive"


def test_noise_repeated_between_batches_of_a_file_each(tmp_path):
    first, second, *_ = summary_batches(
        "none", epsilon=10.0, size=400, stream=KeyedStream.from_seed(1)
    )
    paths = []
    for name, batch in (("a", first), ("b", second), ("c", first)):
        noise = enumerate(batch.noise.tolist())
        rows = [{"bucket": i, "unnoised_metric": 0, "noise": x} for i, x in noise]
        paths.append(lines(tmp_path / f"{name}.json", rows))
    document = told(*(word for path in paths for word in ("--summary", path)), code=1)
    (test,) = [t for t in document["tests"] if t["finding"]]
    assert test["name"] == "noise-batches"
    assert "a.json and c.json: the same noise in 100 of 100 common" in test["effect"]
    assert told("--summary", paths[0], "--summary", paths[1])["verdict"] == "no-finding"


def test_budgets_that_are_kept(tmp_path):
    rows = [aggregatable("s", [32_768, 32_768]), aggregatable("t", [100], report=1)]
    document = told("--reports", lines(tmp_path / "r.jsonl", rows), "--epsilon", 4)
    budget = document["budget"]
    assert (document["verdict"], document["findings"]) == ("no-finding", [])
    assert (budget["reports"], budget["sources"], budget["shared_ids"]) == (2, 2, 1)
    assert budget["largest"] == {"source": "s", "reports": 1, "value": 65_536, "epsilon": 4.0}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([aggregatable("s", [65_536, 1])], "contributions of 65,537; at most 65,536"),
        ([aggregatable("s", [1], report=i) for i in range(21)], "21 aggregatable reports"),
        ([aggregatable("s", [1] * 21)], "21 contributions in a report"),
        ([aggregatable("s", [1]), aggregatable("s", [1])], "aggregated more than once"),
        ([aggregatable("s", [1]), aggregatable("t", [1], batch="b", scheduled=3599)], "(a, b)"),
        ([aggregatable("s", [40_000], batch=["a", "b"])], "a loss of ε = 12.2"),
    ],
)
def test_budgets_that_are_exceeded(tmp_path, rows, says):
    document = told("--reports", lines(tmp_path / "r.jsonl", rows), code=1)
    assert any(says in f["message"] for f in document["findings"])


def test_shared_ids_differ_by_hour_and_filtering_id(tmp_path):
    later = aggregatable("t", [1], batch="b", scheduled=3600)
    other = aggregatable("u", [1], batch="c") | {"filtering_id": 2}
    rows = [aggregatable("s", [1], batch="a"), later, other]
    document = told("--reports", lines(tmp_path / "r.jsonl", rows))
    assert (document["budget"]["shared_ids"], document["findings"]) == (3, [])


def party(i, *, origin="https://ads", time=0.0, reported=((1, 0),)):
    return {
        "source": i, "reported": list(reported), "true": list(reported), "time": time,
        "source_site": "https://news", "destination": "https://shop", "reporting_origin": origin,
    }  # fmt: skip


def test_rate_limits_of_attributions(tmp_path):
    kept = [party(i, time=i * 31 * DAY / 100) for i in range(150)]
    document = told("--events", lines(tmp_path / "kept.jsonl", kept), "--event-epsilon", 14)
    assert document["parties"] == [
        {"source_site": "https://news", "destination": "https://shop",
         "reporting_origin": "https://ads", "sources": 150, "attributions": 150,
         "epsilon": 150 * 14.0, "busiest": 97}
    ]  # fmt: skip
    many = told("--events", lines(tmp_path / "many.jsonl", [party(i) for i in range(101)]), code=1)
    assert "101 attributions within 30 days; at most 100" in many["findings"][0]["message"]


def test_too_many_reporting_origins(tmp_path):
    rows = [party(i, origin=f"https://ads{i}") for i in range(11)]
    found = told("--events", lines(tmp_path / "o.jsonl", rows), code=1)["findings"]
    assert "11 reporting origins within 30 days; at most 10" in found[0]["message"]
    apart = [party(i, origin=f"https://ads{i}", time=i * 4 * DAY) for i in range(11)]
    assert told("--events", lines(tmp_path / "p.jsonl", apart))["findings"] == []


@pytest.mark.slow
def test_a_false_output_is_one_attribution_states_have_no_order_and_text_is_harmless(tmp_path):
    evil = "\x1b[2J<script>alert(1)</script>"
    row = party(1, origin=evil, reported=[(3, 1), (1, 0), (1, 0)]) | {"true": []}
    path = lines(tmp_path / "e.jsonl", [row])
    options = "--events", path, "--event-epsilon", 8
    assert "\x1b[2J" not in attribution(*options, "--out", tmp_path / "out")
    assert "<script>alert" not in (tmp_path / "out" / "report.html").read_text()
    assert told(*options)["parties"][0]["attributions"] == 1
    (source,) = read_events(path, default=NAVIGATION)
    assert list(NAVIGATION.index)[source.reported] == ((1, 0), (1, 0), (3, 1))
