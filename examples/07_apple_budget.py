"""What Apple's configuration files permit, and what the bits of two reports show.

Configurations are rebuilt from Tang et al. (2017), and the reports are those that it prints.
Run: python examples/07_apple_budget.py
"""

from pathlib import Path

from dpaudit_local.apple.bits.estimates import shown_epsilons
from dpaudit_local.apple.configuration import read_configuration, resolve
from dpaudit_local.apple.differences import compare
from dpaudit_local.apple.ledger import make_ledger
from dpaudit_local.apple.reports import read_reports

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

# 3. Claimed against shown: the noise has a law of its own, whatever was typed.
print("what the bits of the paper's reports from iOS 11 show of a record's ε")
ios11 = resolve(read_configuration(DATA / "ios-11"))
segments = (segment for report in read_reports(DATA / "reports") for segment in report.segments)
identified = [
    shown for shown in shown_epsilons(segments, resolved=ios11) if shown.verdict != "not identified"
]
for shown in sorted(identified, key=lambda s: -s.record.low / s.claimed)[:4]:
    print(
        f"  {shown.key}: {shown.record.low:.2f} … {shown.record.high:.2f} "
        f"(claimed: {shown.claimed:g})"
    )
