"""What Apple's configuration files permit, and what a made-up device submits in a month.

Also what the bits of its reports show. Configurations are rebuilt from Tang et al. (2017); macOS
10.12.3 is the newer one.
Run: python examples/07_apple_budget.py
"""

import tempfile
from pathlib import Path

from dpaudit.deployments.apple.bits.estimates import shown_epsilons
from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.configuration.resolving import resolve
from dpaudit.deployments.apple.database.reading import read_database
from dpaudit.deployments.apple.differences import compare
from dpaudit.deployments.apple.ledger import make_ledger
from dpaudit.deployments.apple.observed import observe
from dpaudit.deployments.apple.reports.reading import read_reports
from dpaudit.deployments.apple.simulation.scenario import make_scenario
from dpaudit.randomness import KeyedStream

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "apple"
old, new = read_configuration(DATA / "10.12.1"), read_configuration(DATA / "10.12.3")

# 1. The ledger: ε per record times records per day, budget by budget.
ledger = make_ledger(new, days=30)
print("macOS 10.12.3 permits")
for line in ledger.lines:
    if line.application:
        print(
            f"  {line.application:<12} ε {line.claimed.per_record:g} · "
            f"{line.records_per_day:g} per day"
        )
print(
    f"  together: ε = {ledger.permitted.per_day:g} per day, "
    f"{ledger.permitted.over_days:g} in {ledger.days} days"
)

# 2. What changed since 10.12.1.
print("since macOS 10.12.1")
for difference in compare(old, new):
    print(f"  {difference.what}: {difference.old} → {difference.new} {difference.note}".rstrip())

# 3. A month of a made-up device: every datum privatised, the daemon's tasks at their hours,
# reports in Apple's format.
folder = Path(tempfile.mkdtemp()) / "device"
make_scenario(new, out=folder, days=30, stream=KeyedStream.from_seed(7))
observed = observe(
    read_reports(folder / "Reports"), new, database=read_database(folder / "database.sqlite")
)
print(f"a month submits {observed.total.records} records: ε = {observed.total.claimed:g}")
print(f"  busiest day {observed.busiest.date}: ε = {observed.busiest.total.claimed:g}")

# 4. Claimed against shown: the noise has a law of its own, whatever was typed.
# Also in two reports that the paper prints.
ios11 = read_configuration(DATA / "ios-11")
for title, reports, configuration in (
    ("that month", folder / "Reports", new),
    ("the paper's reports from iOS 11", DATA / "reports", ios11),
):
    print(f"what the bits of {title} show of a record's ε")
    segments = (segment for report in read_reports(reports) for segment in report.segments)
    told = [
        s
        for s in shown_epsilons(segments, resolved=resolve(configuration))
        if s.verdict != "not identified"
    ]
    for s in sorted(told, key=lambda s: -s.record.low / s.claimed)[:4]:
        print(f"  {s.key}: {s.record.low:.2f} … {s.record.high:.2f} (claimed: {s.claimed:g})")
