"""How numbers and third-party text are written, on the page and in the terminal.

Bounds are rounded outwards (a lower bound down, an upper bound up): a rounded report never claims
more than was shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from dpaudit.results.text import printable

__all__ = [
    "NOTHING",
    "at_least",
    "at_most",
    "between",
    "bounds",
    "count",
    "date_text",
    "epsilon",
    "listed",
    "number",
    "p_value",
    "percent",
    "proportion",
    "quantity",
    "ranged",
    "seconds",
    "setting",
    "upwards",
]

NOTHING = "–"
"""The cell of a table that has no value."""

_TINIEST = 1e-300


def number(value: object) -> float | None:
    """The number of a JSON value, ``"inf"`` and ``"-inf"`` included; None for anything else.

    >>> number("inf"), number("nan"), number(True)
    (inf, None, None)
    """
    if isinstance(value, str) and value in {"inf", "-inf"}:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return None if math.isnan(result) else result


def count(value: object) -> str:
    """A whole number with thousands separators.

    >>> count(1000000)
    '1,000,000'
    """
    x = number(value)
    return NOTHING if x is None else "∞" if math.isinf(x) else f"{round(x):,}"


def quantity(value: object, *, digits: int = 4) -> str:
    """A number to ``digits`` significant digits; in powers of ten if very large or small.

    >>> quantity(1432.1), quantity(25.5), quantity(1e-10), quantity("inf")
    ('1,432', '25.5', '1e-10', '∞')
    """
    x = number(value)
    if x is None:
        return NOTHING
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == 0:
        return "0"
    if not 1e-3 <= abs(x) < 1e7:
        return f"{x:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    text = f"{x:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ranged(text: str, low: float | None, high: float | None, *, digits: int = 4) -> str:
    """A written number with its interval, rounded outwards.

    >>> ranged("12.5", 12.00001, 13.00001), ranged("12.5", 12.0, None)
    ('12.5 [12, 13.01]', '12.5')
    """
    if text == NOTHING or low is None or high is None:
        return text
    ends = (
        x if math.isinf(x) else float(_outwards(x, up=up, digits=digits))
        for x, up in ((low, False), (high, True))
    )
    return f"{text} [{', '.join(quantity(x, digits=digits) for x in ends)}]"


def seconds(value: object) -> str:
    """A duration.

    >>> seconds(0.1234), seconds(75)
    ('0.12 s', '1 min 15 s')
    """
    x = number(value)
    if x is None or math.isinf(x):
        return NOTHING
    if x < 60:
        return f"{quantity(x, digits=2)} s"
    minutes, rest = divmod(round(x), 60)
    return f"{minutes:,} min {rest} s"


def percent(value: object) -> str:
    """A share in percent: one decimal, two or a bound where one would read as certainty.

    >>> percent(0.5015), percent(0.9999), percent(0.9999999), percent(1.0)
    ('50.1 %', '99.99 %', '> 99.99 %', '100.0 %')
    """
    x = number(value)
    if x is None or math.isinf(x):
        return NOTHING
    if 0 < x < 1:
        for decimals in (1, 2):
            text = f"{100 * x:.{decimals}f}"
            if 0 < float(text) < 100:
                return f"{text} %"
        return "< 0.01 %" if x < 0.5 else "> 99.99 %"
    return f"{100 * x:.1f} %"


def proportion(value: object, low: float | None = None, high: float | None = None) -> str:
    """A share with its interval, rounded outwards.

    >>> proportion(0.999, 0.9964, 0.99988)
    '99.9 % [99.6, 100.0]'
    """
    text, low, high = percent(value), number(low), number(high)
    if text == NOTHING or low is None or high is None or math.isinf(low) or math.isinf(high):
        return text
    tenth = Decimal("0.1")
    ends = (
        (Decimal(repr(low)) * 100).quantize(tenth, ROUND_FLOOR),
        (Decimal(repr(high)) * 100).quantize(tenth, ROUND_CEILING),
    )
    return f"{text} [{ends[0]}, {ends[1]}]"


def p_value(value: object) -> str:
    """A p-value: three decimals, or a power of ten below 0.001.

    >>> p_value(0.03), p_value(3.21e-7), p_value(0.0), p_value(1.0)
    ('0.030', '3.2e-07', '< 1e-300', '1')
    """
    x = number(value)
    if x is None:
        return NOTHING
    if x < _TINIEST:
        return "< 1e-300"
    if x < 1e-3:
        return f"{x:.1e}"
    return "1" if x >= 1 else f"{min(x, 0.999):.3f}"


def epsilon(value: object) -> str:
    """An ε.

    >>> epsilon(0.25), epsilon(math.inf)
    ('0.25', '∞')
    """
    x = number(value)
    return NOTHING if x is None else "∞" if x == math.inf else f"{x:.3g}"


def bounds(low: object, high: object = math.inf) -> str:
    """What is known of an ε: a lower and an upper bound; an undefined bound is none.

    >>> bounds(49000.0), bounds(0.0, 0.2551), bounds(1.0, 2.0), bounds(0.25, 0.25), bounds(0, "inf")
    ('≥ 4.9e+04', '≤ 0.256', '1 … 2', '0.25', 'unknown')
    >>> bounds(0.24997, 0.25001), bounds(0.2444, 0.2446)
    ('0.25', '0.244 … 0.245')
    """
    low, high = number(low), number(high)
    low = 0.0 if low is None else low
    high = math.inf if high is None else high
    if low == math.inf:
        return "∞"
    # the same in the digits that are shown
    if f"{low:.3g}" == f"{high:.3g}" and math.isclose(low, high, rel_tol=1e-3):
        return f"{low:.3g}"
    if low <= 0:
        return "unknown" if math.isinf(high) else f"≤ {_outwards(high, up=True)}"
    if math.isinf(high):
        return f"≥ {_outwards(low, up=False)}"
    return f"{_outwards(low, up=False)} … {_outwards(high, up=True)}"


def at_least(value: float, *, digits: int = 4) -> str:
    """A proved lower bound, rounded down.

    >>> at_least(0.15479), at_least(2.15e-13, digits=2), at_least(math.inf)
    ('0.1547', '2.1e-13', '∞')
    >>> at_least(0.1), at_least(0.5)
    ('0.1', '0.5')
    """
    return _end(value, up=False, digits=digits)


def at_most(value: float, *, digits: int = 4) -> str:
    """A proved upper bound, rounded up.

    >>> at_most(0.15471), at_most(0.0)
    ('0.1548', '0')
    """
    return _end(value, up=True, digits=digits)


def between(low: float, high: float, *, digits: int = 4) -> str:
    """A number in proved bounds, in words.

    >>> between(0.15479, 0.15481), between(0.0, 0.25), between(1.25, math.inf), between(0.5, 0.5)
    ('between 0.1547 and 0.1549', 'at most 0.25', 'at least 1.25', 'exactly 0.5')
    """
    least, most = at_least(low, digits=digits), at_most(high, digits=digits)
    if low == high and least == most:
        return f"exactly {least}"
    if high == math.inf:
        return f"at least {least}"
    return f"at most {most}" if low == 0 else f"between {least} and {most}"


def _end(value: float, *, up: bool, digits: int) -> str:
    if value == 0 or not math.isfinite(value):
        return quantity(value)
    exact = Decimal(value)  # of the float itself: no error in the last digit is forgiven
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(step, ROUND_CEILING if up else ROUND_FLOOR)
    return quantity(float(rounded), digits=digits)


def _outwards(x: float, *, up: bool, digits: int = 3) -> str:
    if math.isclose(x, float(f"{x:.{digits}g}"), rel_tol=1e-12):
        return f"{x:.{digits}g}"
    exact = Decimal(repr(x))
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{float(exact.quantize(step, ROUND_CEILING if up else ROUND_FLOOR)):.{digits}g}"


def setting(value: object) -> str:
    """A setting or any other JSON value on one line.

    >>> setting(0.25), setting(True), setting([1, 64]), setting("a")
    ('0.25', 'true', '1, 64', 'a')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**40 else quantity(value)
    if isinstance(value, float):
        return quantity(value, digits=6).replace(",", "")
    if value is None:
        return NOTHING
    if isinstance(value, (list, tuple)) and not any(
        isinstance(v, (list, tuple, Mapping)) for v in value
    ):
        return printable(", ".join(setting(v) for v in value), limit=400)
    if isinstance(value, (list, tuple, Mapping)):
        return printable(json.dumps(value, ensure_ascii=False, default=str), limit=400)
    return printable(value, limit=400)


def date_text(value: object) -> str:
    """A time in ISO format as people write it.

    >>> date_text("2026-11-23T06:20:01+00:00")
    '2026-11-23 06:20:01 UTC'
    """
    return str(value or "").replace("T", " ").replace("+00:00", " UTC")


def listed(names: Sequence[str], *, word: str) -> str:
    """Names as a phrase: ``a, b or c``; of more than five the first four.

    >>> listed(["a", "b", "c"], word="or")
    'a, b or c'
    """
    if len(names) > 5:
        return f"{', '.join(names[:4])} {word} {len(names) - 4} others"
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def upwards(value: object) -> str:
    """An upper bound to four digits, never rounded down.

    >>> upwards(2 / 7), upwards(16.0), upwards(None)
    ('0.2858', '16', '–')
    """
    bound = number(value)
    return NOTHING if bound is None else at_most(bound)
