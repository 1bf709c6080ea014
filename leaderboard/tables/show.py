"""Formats numbers and texts, the same in pages, Markdown tables and plots."""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from bench.plugins.metric import Direction

if TYPE_CHECKING:
    from bench.leaderboard.tables.measures import Measure, Span

ABSENT = "–"  # noqa: RUF001 (an en dash is meant)
INFINITE = "∞"

_IPCS = {"full": "full size", "own": "own size"}
_BETTER = {Direction.HIGHER.value: "higher is better", Direction.LOWER.value: "lower is better"}
_ARROWS = {Direction.HIGHER.value: "↑", Direction.LOWER.value: "↓"}


def fixed(value: float, decimals: int) -> str:
    """Return a number with so many decimals; halves are rounded away from zero.

    This is `toFixed` of a page's script, where Python's own formats round halves to even. Rounding
    errors of a mean are removed first, so that 2.1249999999999996 is 2.125 and then 2.13.
    """
    if not abs(value) < _LARGEST:  # tables of strangers hold any number
        return ABSENT if math.isnan(value) else f"{value:.4g}".replace("inf", INFINITE)
    step = _STEPS[decimals]
    return str(Decimal(round(value, 9)).quantize(step, ROUND_HALF_UP))


_LARGEST = 1e15
"""No number of ours is larger, and a decimal has 28 digits."""
_STEPS = tuple(Decimal(1).scaleb(-decimals) for decimals in range(7))


@functools.lru_cache(maxsize=1 << 16)
def number(value: float | None) -> str:
    """Return three decimals for moderate values, otherwise three significant digits."""
    if value is None or math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return INFINITE if value > 0 else f"-{INFINITE}"
    if value == 0 or 0.001 <= abs(value) < 100:
        return fixed(value, 3)
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def as_shown(value: float) -> float:
    """Return the number that `number` prints: numbers that are printed equal are equal."""
    if not math.isfinite(value):
        return value
    return float(number(value).replace(",", ""))


def deviation(value: float | None) -> str:
    """Return a standard deviation with the decimals of `number`, or `<0.001`."""
    if value is None or not 0 < value < 0.001:
        return number(value)
    return fixed(value, 3) if as_shown(value) >= 0.0005 else "<0.001"


def share(value: float | None) -> str:
    """Return a share as a percentage with one decimal: `93.8%`."""
    return ABSENT if value is None else f"{fixed(100 * value, 1)}%"


def percent(value: float) -> str:
    """Return a share of a count as a whole percentage: `33%`, `<1%` for what is not zero."""
    text = fixed(100 * value, 0)
    if value > 0 and text == "0":
        return "<1%"
    return ">99%" if value < 1 and text == "100" else f"{text}%"


def mean_rank(value: float | None) -> str:
    """Return a mean rank with two decimals."""
    return ABSENT if value is None else fixed(value, 2)


def rank_interval(low: float | None, high: float | None) -> str:
    """Return the interval of a mean rank; a dash where there is none."""
    if low is None or high is None:
        return ABSENT
    return f"[{fixed(low, 2)}, {fixed(high, 2)}]"


def p_value(value: float) -> str:
    """Return a p-value with two digits; very small ones as a bound."""
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def plural(count: int, noun: str) -> str:
    """Return `1 cell`, `2 cells`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some(texts: Sequence[str], most: int = 3) -> str:
    """Return the first texts and how many more there are: `a, b, c and 6 more`."""
    # "1 more" takes as much room as a name.
    kept = texts if len(texts) <= most + 1 else texts[:most]
    more = len(texts) - len(kept)
    return ", ".join(kept) + (f" and {more} more" if more else "")


def coded(text: str) -> Markup:
    """Return escaped text in which backticks become code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    marked = Markup("")
    for place, part in enumerate(parts):
        marked += Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
    return marked


def moment(text: str) -> str:
    """Return a time stamp to the minute; other text unchanged."""
    try:
        parsed = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    if len(text) <= len("2026-01-01"):
        return text  # a public site keeps only the day
    zone = "" if parsed.tzinfo is None else " UTC"
    known = parsed if parsed.tzinfo is None else parsed.astimezone(datetime.UTC)
    return f"{known:%Y-%m-%d %H:%M}{zone}"


def whole(value: float | None) -> str:
    """Return a count."""
    return ABSENT if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Return seconds, with tenths below ten."""
    if value is None:
        return ABSENT
    return fixed(value, 1) if value < 9.95 else f"{value:,.0f}"


def epsilon(value: float | None) -> str:
    """Return an epsilon with up to four digits, infinity as a symbol."""
    if value is None or math.isnan(value):
        return ABSENT
    return INFINITE if math.isinf(value) else f"{value:.4g}"


def epsilon_span(span: Span | None) -> str:
    """Return an epsilon over seeds: one number, or the smallest and the largest."""
    if span is None:
        return ABSENT
    low, high = epsilon(span.low), epsilon(span.high)
    return low if low == high else f"{low} to {high}"


def whole_span(span: Span | None) -> str:
    """Return a count over seeds: one number, or the smallest and the largest."""
    if span is None:
        return ABSENT
    low, high = whole(span.low), whole(span.high)
    return low if low == high else f"{low} to {high}"


def interval(measure: Measure) -> str:
    """Return the test-set interval, or an empty text."""
    if measure.low is None or measure.high is None:
        return ""
    return f"[{number(measure.low)}, {number(measure.high)}]"


def spread(measure: Measure) -> str:
    """Return the smallest and largest value over seeds, or an empty text for fewer than two."""
    if measure.seeds is None:
        return ""
    return f"{number(measure.seeds.low)} to {number(measure.seeds.high)}"


def ipc(text: str) -> str:
    """Return an IPC of the tables in words."""
    return _IPCS.get(text, text)


def ipcs(texts: tuple[str, ...]) -> str:
    """Return several IPCs in words: `50, 100 rows per class, full size`."""
    numbers = [text for text in texts if text.isdigit()]
    counted = [f"{', '.join(numbers)} rows per class"] if numbers else []
    return ", ".join([*counted, *(ipc(text) for text in texts if not text.isdigit())])


def ipc_order(ipc: str) -> tuple[int, int]:
    """Return a sort key: numbers by value, then full size, then methods that set their own size."""
    if ipc.isdigit():
        return (0, int(ipc))
    return (1 if ipc == "full" else 2, 0)


def largest_ipc_first(ipc: str) -> tuple[bool, int, int]:
    """Return a sort key: full size, then larger before smaller, own sizes last."""
    kind, rows = ipc_order(ipc)
    return (ipc == "own", -kind, -rows)


def arrow(direction: str) -> str:
    """Return an arrow that shows which direction is better."""
    return _ARROWS.get(direction, "·")


def better(direction: str) -> str:
    """Return in words which direction is better."""
    return _BETTER.get(direction, "neither direction is better")


def seeds(values: tuple[int, ...]) -> str:
    """Return `seed 3`, `seeds 0, 1, 2`, or the number of seeds if there are many."""
    if len(values) > 8:
        return f"{len(values)} seeds"
    return ("seed " if len(values) == 1 else "seeds ") + ", ".join(map(str, values))


def place(rank: float | None, among: int) -> str:
    """Return `1.3 of 4`, or an empty text."""
    return "" if rank is None else f"{short(rank)} of {among}"


def short(value: float) -> str:
    """Return up to two decimals, without zeros at the end: `1.33`, `2`."""
    return fixed(value, 2).rstrip("0").rstrip(".")


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text; an ellipsis marks the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
