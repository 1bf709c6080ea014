"""How numbers are written, the same in the page, the Markdown table and the plots."""

from __future__ import annotations

import datetime
import math
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


def number(value: float | None) -> str:
    """Three decimals where they say something, otherwise three digits."""
    if value is None or math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return INFINITE if value > 0 else f"-{INFINITE}"
    if value == 0 or 0.001 <= abs(value) < 100:
        return f"{value:.3f}"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def coded(text: str) -> Markup:
    """What stands between backticks as code; everything is escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    found = Markup("")
    for place, part in enumerate(parts):
        found += Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
    return found


def moment(text: str) -> str:
    """A time stamp to the minute; what is none stays as it is."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    if len(text) <= len("2026-01-01"):
        return text  # a public site keeps the day alone
    zone = "" if found.tzinfo is None else " UTC"
    known = found if found.tzinfo is None else found.astimezone(datetime.UTC)
    return f"{known:%Y-%m-%d %H:%M}{zone}"


def whole(value: float | None) -> str:
    """A count."""
    return ABSENT if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Tenths below ten seconds, whole ones above."""
    if value is None:
        return ABSENT
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def epsilon(value: float | None) -> str:
    """An epsilon: up to four digits, infinity as a sign."""
    if value is None or math.isnan(value):
        return ABSENT
    return INFINITE if math.isinf(value) else f"{value:.4g}"


def epsilon_span(span: Span | None) -> str:
    """An epsilon over seeds: one number, or the smallest and the largest."""
    if span is None:
        return ABSENT
    low, high = epsilon(span.low), epsilon(span.high)
    return low if low == high else f"{low} to {high}"


def whole_span(span: Span | None) -> str:
    """A count over seeds."""
    if span is None:
        return ABSENT
    low, high = whole(span.low), whole(span.high)
    return low if low == high else f"{low} to {high}"


def interval(measure: Measure) -> str:
    """The test-set interval, or nothing."""
    if measure.low is None or measure.high is None:
        return ""
    return f"[{number(measure.low)}, {number(measure.high)}]"


def spread(measure: Measure) -> str:
    """Smallest and largest over seeds, or nothing for fewer than two."""
    if measure.seeds is None:
        return ""
    return f"{number(measure.seeds.low)} to {number(measure.seeds.high)}"


def ipc_text(rows: int | None, full_size: bool) -> str:
    """Return the IPC as tables write it: rows per class, `full`, or `own` where none was asked."""
    return "full" if full_size else "own" if rows is None else str(rows)


def ipc(text: str) -> str:
    """Return an IPC of the tables in words."""
    return _IPCS.get(text, text)


def ipcs(texts: tuple[str, ...]) -> str:
    """`50, 100 rows per class, full size`."""
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
    """Which way is better, as a sign."""
    return _ARROWS.get(direction, "·")


def better(direction: str) -> str:
    """Which way is better, in words."""
    return _BETTER.get(direction, "neither way is better")


def seeds(values: tuple[int, ...]) -> str:
    """`seed 3` or `seeds 0, 1, 2`; many are counted."""
    if len(values) > 8:
        return f"{len(values)} seeds"
    return ("seed " if len(values) == 1 else "seeds ") + ", ".join(map(str, values))


def place(rank: float | None, labels: int) -> str:
    """`1.3 of 4`, or nothing."""
    return "" if rank is None else f"{rank:.3g} of {labels}"


def shortened(text: str, most: int) -> str:
    """The beginning of a text, with a sign that there is more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
