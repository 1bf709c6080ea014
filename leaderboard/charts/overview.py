"""Charts over all datasets: utility against epsilon, the Pareto picture, rank intervals.

Utility is the share of that of the real rows, the mean over datasets with equal weight. Only
datasets on which all drawn methods have a value are averaged, so that methods are compared on the
same datasets. Results of a method on datasets that were in view when its defaults were chosen are
left out, as of its rank; the note below the chart says so. Intervals are Student's over five or
more datasets; with one dataset, those of its test rows.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

from markupsafe import Markup

from bench.leaderboard.charts.chart import (
    IS_PICKED,
    Chart,
    Spec,
    colour,
    columns,
    finite,
)
from bench.leaderboard.charts.draw import Axis, Panel, chosen, draw, finished
from bench.leaderboard.charts.panels import (
    Look,
    MethodStyle,
    Point,
    Scene,
    drawable,
    ipcs_first_to_last,
    scene,
)
from bench.leaderboard.charts.sheet import LegendEntry, Sheet, legend, sign
from bench.leaderboard.ranking.quantities import FEWEST, headline_of_real, quantile
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import Row, ceilings
from bench.leaderboard.ranking.significance import RankComparison
from bench.leaderboard.tables import show

SHARE = "% of real utility ↑"
_LEVEL = 0.95
_ROOM = 0.2
"""Least distance of two labels on a logarithmic axis, in powers of ten."""
_NAMED = 3
"""Number of methods that the note below a chart names."""
_FEW = 30
"""Number of distinct sets of datasets whose pairs are tried."""


@final
@dataclass(frozen=True)
class Aggregate:
    """One method at one target epsilon, over datasets."""

    series: str
    target: float
    share: float
    low: float | None
    high: float | None
    proven: float
    """The largest over the averaged rows."""
    audited: float | None
    """The largest over the averaged rows; None where none was audited."""
    sound: bool
    datasets: int

    @property
    def text(self) -> str:
        """The tooltip."""
        ends = "" if self.low is None else f" [{show.share(self.low)}, {show.share(self.high)}]"
        audited = "not audited" if self.audited is None else f"audited {show.epsilon(self.audited)}"
        return (
            f"{self.series}, target ε {show.epsilon(self.target)}: {show.share(self.share)}{ends} "
            f"of the utility of the real rows, {_datasets(self.datasets)}; proven ε "
            f"{show.epsilon(self.proven)}, {audited}; {'sound' if self.sound else 'not sound'}"
        )

    def point(self, x: float, left: float | None = None, right: float | None = None) -> Point:
        """Return its point in a panel: the percentage as it is printed."""
        low, high = (None if end is None else _percent(end) for end in (self.low, self.high))
        share = _percent(self.share)
        return Point(self.series, x, share, self.sound, self.text, low, high, left, right)


@final
@dataclass(frozen=True)
class Aggregates:
    """All methods at one IPC, and the datasets that were averaged."""

    ipc: str
    members: tuple[Aggregate, ...]
    datasets: tuple[str, ...]
    left_out: tuple[str, ...]
    """Methods that lack a value on some of these datasets."""
    tuned: Mapping[str, tuple[str, ...]]
    """Methods whose results on some datasets are left out, since their defaults were chosen there.
    """

    @property
    def words(self) -> str:
        """What was averaged."""
        spread = "intervals are those of the test rows"
        if len(self.datasets) >= FEWEST:
            spread = "intervals are Student's over datasets"
        elif len(self.datasets) > 1:
            spread = f"no intervals: fewer than {FEWEST} datasets"
        text = f"{_datasets(len(self.datasets))}, {show.ipcs((self.ipc,))}; {spread}"
        if self.left_out:
            text += f"; not on all of them, so not drawn: {show.some(self.left_out)}"
        if self.tuned:
            many = len(self.tuned) > _NAMED
            where = show.plural(len(self.tuned), "method") if many else "; ".join(self.where_tuned)
            text += f"; without results where defaults were chosen: {where}"
        return text

    @property
    def where_tuned(self) -> tuple[str, ...]:
        """Which results are left out because defaults were chosen there: `a on one, two`."""
        return tuple(f"{label} on {', '.join(names)}" for label, names in self.tuned.items())

    @property
    def details(self) -> Markup:
        """The names that `words` leaves out, folded; empty where it has all."""
        parts = []
        if len(self.left_out) > _NAMED + 1:
            parts.append(f"Not on all datasets: {', '.join(self.left_out)}.")
        if len(self.tuned) > _NAMED:
            named = "; ".join(self.where_tuned)
            parts.append(f"Left out where defaults were chosen: {named}.")
        if not parts:
            return Markup("")
        lines = Markup("").join(Markup("<p>{}</p>").format(part) for part in parts)
        return Markup(
            '<details class="averaged"><summary>Which results are left out</summary>{}</details>'
        ).format(lines)


def _percent(share: float) -> float:
    """Return a share as the percentage that is printed."""
    return float(show.fixed(100 * share, 1))


def _datasets(count: int) -> str:
    return "1 dataset" if count == 1 else f"mean over {count} datasets"


def share(row: Row, real: Row | None) -> tuple[float, float | None, float | None] | None:
    """Return headline utility over that of the real rows, with the interval over test rows.

    None where either is missing or not positive, or lower is better: a share has no meaning.
    """
    value = headline_of_real(row, {} if real is None else {(row.dataset, row.split): real})
    released, top = row.headline, None if real is None else real.headline
    if value is None or released is None or top is None or top.value is None:
        return None
    ends = [
        end / top.value if end is not None and finite(end) else None
        for end in (released.low, released.high)
    ]
    return value, ends[0], ends[1]


def aggregate(
    setting: Scene, rows: Sequence[Row], ipc: str = "", *, with_tuned: bool = False
) -> Aggregates | None:
    """Return the means over datasets at one IPC, the one with most results; None without any.

    `with_tuned` averages also over datasets on which the defaults of a method were chosen.
    """
    sizes = (ipc,) if ipc else ipcs_first_to_last(setting)
    for size in sizes:
        found = _aggregate(setting, rows, size, with_tuned)
        if found is not None:
            return found
    return None


def _aggregate(
    setting: Scene, rows: Sequence[Row], ipc: str, with_tuned: bool
) -> Aggregates | None:
    tops = ceilings(rows)
    cells: dict[tuple[str, float], dict[str, list[tuple[Row, Any]]]] = {}
    tuned: dict[str, set[str]] = {}
    for row in rows:
        target = row.epsilons.target
        value = share(row, tops.get((row.dataset, row.split)))
        if row.ipc != ipc or target is None or value is None:
            continue
        if row.tuned and not with_tuned:
            tuned.setdefault(row.label, set()).add(row.dataset)
            continue
        place = cells.setdefault((row.label, target), {})
        place.setdefault(row.dataset, []).append((row, value))
    if not cells:
        return None
    # As many results as possible: fewer datasets with more methods, or more with fewer.
    known = {frozenset(by_dataset) for by_dataset in cells.values()}
    possible = known | {frozenset.intersection(*known)}
    if len(known) <= _FEW:
        possible |= {one & other for one in known for other in known}
    possible -= {frozenset()}
    sets = [set(by_dataset) for by_dataset in cells.values()]
    common = max(
        possible,
        # In a tie, more methods.
        key=lambda names: (
            sum(names <= own for own in sets) * len(names),
            -len(names),
            sorted(names),
        ),
    )
    members, left_out = [], set()
    for (label, target), by_dataset in cells.items():
        if not common <= set(by_dataset):
            left_out.add(label)
            continue
        members.append(_member(label, target, {name: by_dataset[name] for name in common}))
    order = list(setting.roles)
    members.sort(key=lambda item: (order.index(item.series), item.target))
    kept = {item.series for item in members}
    return Aggregates(
        ipc,
        tuple(members),
        tuple(sorted(common)),
        tuple(sorted(left_out - kept)),
        {label: tuple(sorted(tuned[label])) for label in sorted(tuned)},
    )


def _member(
    label: str, target: float, by_dataset: Mapping[str, Sequence[tuple[Row, Any]]]
) -> Aggregate:
    rows = [row for pairs in by_dataset.values() for row, _ in pairs]
    means = [
        statistics.fmean(value[0] for _, value in by_dataset[name]) for name in sorted(by_dataset)
    ]
    low, high = student(means)
    if len(means) == 1:
        ends = [value[1:] for pairs in by_dataset.values() for _, value in pairs]
        if all(None not in pair for pair in ends):
            low, high = (statistics.fmean(pair[k] for pair in ends) for k in (0, 1))
    proven = [math.inf if r.epsilons.proven is None else r.epsilons.proven.high for r in rows]
    audited = [row.epsilons.audited.high for row in rows if row.epsilons.audited is not None]
    return Aggregate(
        label,
        target,
        statistics.fmean(means),
        low,
        high,
        max(proven),
        max(audited, default=None),
        all(is_sound(row.verdict) for row in rows),
        len(means),
    )


def student(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return Student's interval of a mean; none for values of few datasets, as for mean ranks."""
    count = len(values)
    if count < FEWEST:
        return None, None
    reach = quantile(count, 1 - _LEVEL) * statistics.stdev(values) / math.sqrt(count)
    middle = statistics.fmean(values)
    return middle - reach, middle + reach


def by_epsilon(setting: Scene, rows: Sequence[Row], ipc: str = "") -> Chart | None:
    """Return utility against target epsilon, over datasets, with intervals."""
    found = aggregate(setting, rows, ipc)
    if found is None:
        return None
    targets = sorted({item.target for item in found.members})
    points = [item.point(item.target) for item in found.members]
    panel = Panel(
        name="Utility against epsilon",
        subject=SHARE,
        where=found.words,
        axis=chosen({target: show.epsilon(target) for target in targets}, "target ε"),
        points=tuple(points),
        higher=True,
    )
    return _titled(draw(setting, panel), found)


def pareto_picture(
    setting: Scene, rows: Sequence[Row], ipc: str = "", *, with_tuned: bool = False
) -> Chart | None:
    """Return utility against proven epsilon; a line leads down to the audited one.

    Where nothing is proven, the position is that of infinity, at the end of the axis. The front
    joins the sound results that no other sound one beats in both respects.
    """
    found = aggregate(setting, rows, ipc, with_tuned=with_tuned)
    if found is None:
        return None
    known = [item.proven for item in found.members if 0 < item.proven < math.inf]
    known += [item.audited for item in found.members if item.audited and finite(item.audited)]
    if not known:
        return None
    endless = any(not finite(item.proven) for item in found.members)
    axis = _epsilons(known, endless)
    assert axis.domain is not None
    first, last = axis.domain
    points = []
    for item in found.members:
        x = min(max(item.proven, first), last) if finite(item.proven) else math.inf
        audited = item.audited
        ends = (None, None) if audited is None else (min(max(audited, first), last), min(x, last))
        points.append(item.point(x, *ends))
    panel = Panel(
        name="Utility and privacy",
        subject=SHARE,
        where=found.words,
        axis=axis,
        points=tuple(points),
        higher=True,
        joined=True,
    )
    chart = draw(setting, panel)
    return _titled(chart, found)


def _epsilons(known: Sequence[float], endless: bool) -> Axis:
    low, high = min(known), max(known)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    marks = [f * 10.0**power for power in powers for f in (1, 3)]
    inside = [mark for mark in marks if low / 1.5 <= mark <= high * 1.5] or [low]
    # A proven epsilon is a little below its target: 0.4997 needs the mark of 0.5.
    inside += [end for end in (_rounded(low), _rounded(high)) if _clear_of(end, inside)]
    inside.sort()
    axis = chosen(
        {mark: f"{mark:g}" for mark in inside}, "proven ε", show.INFINITE if endless else ""
    )
    assert axis.domain is not None
    ends = (min(axis.domain[0], low / 1.2), max(axis.domain[1], high * 1.2))
    return Axis(axis.title, True, axis.ticks, axis.labels, ends)


def _rounded(epsilon: float) -> float:
    """Return an epsilon with one digit."""
    return float(f"{epsilon:.1g}")


def _clear_of(mark: float, marks: Sequence[float]) -> bool:
    """Return whether there is room for the label of one more mark on a logarithmic axis."""
    return all(abs(math.log10(mark / other)) > _ROOM for other in marks)


def _titled(chart: Chart, found: Aggregates) -> Chart:
    note = found.words[:1].upper() + found.words[1:] + "."
    return replace(chart, note=note, details=found.details)


def front_picture(
    rows: Sequence[Row], styles: Mapping[str, MethodStyle], *, with_tuned: bool = False
) -> Markup:
    """Return the Pareto picture with its legend, data included; a reason where there is none.

    `with_tuned` is the picture for the switch that ranks methods on all datasets.
    """
    setting = scene(rows, styles)
    chart = pareto_picture(setting, rows, with_tuned=with_tuned)
    if chart is None:
        return Markup('<p class="faint">{}</p>').format(
            "No picture of utility and epsilon: no result with a target epsilon can be compared "
            "with the real rows."
        )
    sheet = Sheet("tuned-" if with_tuned else "front-")
    # Without scripts nobody can turn the switch.
    figure = sheet.place(chart, static=not with_tuned)
    drawn = {name for table in chart.data.values() for name in table.get("series", ())}
    entries = method_legend(setting, rows, drawn)
    return Markup('<div class="front-chart">{}{}{}</div>').format(
        figure, legend(entries), sheet.data()
    )


def method_legend(
    setting: Scene, rows: Sequence[Row], drawn: Collection[str] | None = None
) -> tuple[LegendEntry, ...]:
    """Return the highlighted methods that are drawn; hollow markers for those never sound."""
    sound = {row.label for row in rows if is_sound(row.verdict)}
    reference = {row.label: row.reference for row in rows}
    if drawn is None:
        drawn = {row.label for row in rows if drawable(row.headline) is not None}
    look = setting.look
    styles = zip(look.names, look.colours, look.shapes, look.dashes, strict=True)
    return tuple(
        LegendEntry(
            name, sign(hue, shape, dashes, hollow=name not in sound), reference.get(name, "")
        )
        for name, hue, shape, dashes in styles
        if name in drawn
    )


# Ranks --------------------------------------------------------------------------------------------


_ROW = 20
"""Pixels per method."""


def rank_intervals(result: RankComparison, styles: Mapping[str, MethodStyle]) -> Chart:
    """Return mean ranks with their intervals; bars join methods that cannot be distinguished.

    The content of the diagram of Demsar (JMLR 7 (2006), figure 1), with one row per method. The
    ruler is Nemenyi's critical difference, from the best mean rank.
    """
    order = [standing.label for standing in result.standings]
    records = []
    for standing in result.standings:
        ends = "" if standing.low is None else f" [{standing.low:.2f}, {standing.high:.2f}]"
        text = f"{standing.label}: place {standing.place}, mean rank {standing.mean_rank:.2f}{ends}"
        records.append(
            (standing.label, standing.place, standing.mean_rank, standing.low, standing.high, text)
        )
    last = len(order)
    step = max(1, last - 1) / 24
    bars = [
        (name, number, last + step * (1.5 + number), f"indistinguishable: {', '.join(clique)}")
        for number, clique in enumerate(result.cliques)
        for name in clique
    ]
    best = result.standings[0].mean_rank if result.standings else 1.0
    ruler = (order[0], best, min(best + result.critical_difference, last)) if order else ()
    tables = {
        "ranks": columns(("series", "place", "rank", "low", "high", "text"), records),
        "ruler": columns(
            ("series", "rank", "end", "text"),
            [(*ruler, f"critical difference {result.critical_difference:.2f}")] if ruler else [],
        ),
    }
    if bars:
        tables["bars"] = columns(("series", "clique", "at", "text"), bars)
    names = tuple(order)
    hues = tuple(styles[name].colour if name in styles else "text" for name in order)
    end = last + step * (1.5 + len(result.cliques))
    return Chart(
        title="Mean ranks",
        subject=f"over {result.blocks} blocks, 1 is best",
        text=description(result),
        build=partial(_rank_spec, names, hues, end, bool(bars)),
        data=tables,
        headings={
            "series": "method",
            "place": "place",
            "rank": "mean rank",
            "low": "low",
            "high": "high",
        },
    )


def description(result: RankComparison) -> str:
    """Return the content of the diagram in words."""
    ranks = ", ".join(f"{s.label} {s.mean_rank:.2f}" for s in result.standings)
    bars = "; ".join(" and ".join(clique) for clique in result.cliques) or "none"
    return (
        f"Critical difference diagram. Mean ranks over {result.blocks} blocks, best first: "
        f"{ranks}. Critical difference {result.critical_difference:.2f}. Indistinguishable: {bars}."
    )


@functools.lru_cache(maxsize=64)
def _rank_spec(
    names: tuple[str, ...], hues: tuple[str, ...], end: float, with_bars: bool, legend: bool
) -> Spec:
    import altair as alt

    del legend  # methods are named on the axis
    look = Look(names, hues, (), ())
    count = len(names)
    step = 1 + (count - 1) // 15
    x = alt.X(
        "rank:Q",
        title="mean rank",
        scale=alt.Scale(domain=[1 - 0.02 * end, max(end, 2)], nice=False, clamp=True),
        axis=alt.Axis(values=list(range(1, count + 1, step)), format="d"),
    )
    y = alt.Y(
        "series:N",
        title=None,
        scale=alt.Scale(domain=list(names)),
        axis=alt.Axis(grid=False, ticks=False, domain=False, labelLimit=150),
    )
    hue = alt.Color(
        "series:N",
        scale=alt.Scale(domain=list(look.names), range=[colour(each) for each in look.colours]),
        legend=None,
    )
    shade = alt.when(IS_PICKED).then(alt.value(1)).otherwise(alt.value(0.2))
    ranks = alt.Chart(alt.NamedData(name="ranks"))
    ruler = alt.Chart(alt.NamedData(name="ruler"))
    layers = [
        ruler.mark_rule(strokeWidth=5, opacity=0.2, color=colour("text")).encode(
            x=x, x2="end:Q", y=y, tooltip="text:N"
        ),
        ranks.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.6)
        .encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=hue, opacity=shade),
        ranks.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, color=hue, opacity=shade, tooltip="text:N"
        ),
    ]
    if with_bars:
        bars = alt.Chart(alt.NamedData(name="bars"))
        at = alt.X("at:Q")
        layers += [
            bars.mark_line(strokeWidth=3, strokeCap="round", color=colour("text")).encode(
                x=at, y=y, detail="clique:N"
            ),
            bars.mark_point(filled=True, size=32, opacity=1, color=colour("text")).encode(
                x=at, y=y, tooltip="text:N"
            ),
        ]
    return finished(alt.layer(*layers).properties(width=520, height=_ROW * count + 10))
