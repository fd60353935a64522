"""What a report file's name says of the time it was made."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["ENDINGS", "is_report", "time_in"]

ENDINGS = (".dpsub", ".json.anon")
"""What report files end in (§2.1), in any case."""

_TIME = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)[-_T](\d\d)[-:.]?(\d\d)[-:.]?(\d\d)(?!\d)", re.ASCII)


def is_report(name: str) -> bool:
    """Whether a file of this name is a report."""
    return name.lower().endswith(ENDINGS)


def time_in(name: str) -> datetime | None:
    """The first date and time in a file name, taken for UTC; None where there is none.

    Tang et al. (§4.2.1) say that names contain the creation time, or that time adjusted forward by 7 hours, and show no
    name. Read are ``YYYY-MM-DD`` and ``HHMMSS`` joined by ``-``, ``_`` or ``T``, the hour, minute and second also with
    ``-``, ``:`` or ``.`` between: the way macOS names its diagnostic reports.

    >>> time_in("DifferentialPrivacy_2017-08-08-082230_mac.dpsub")
    datetime.datetime(2017, 8, 8, 8, 22, 30, tzinfo=datetime.timezone.utc)
    """
    for found in _TIME.finditer(name):
        try:
            return datetime.strptime("".join(found.groups()), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            continue
    return None
