"""The numbers that several pages print: each is defined here once, computed here once.

A *row* is one method, dataset, IPC, target epsilon and setting; its cells differ only in seeds. A
*group* is one dataset, IPC, target epsilon and setting, in which several methods have a row.

`utility` of a row
    The headline metric of its dataset, mean over the seeds that have a value. Printed by
    `show.number`: three decimals.
`rank` of a row
    Among the sound methods of its group, by utility as it is printed: two methods whose utilities
    are printed equal are tied, and share the mean of their ranks. Ranks are taken seed by seed,
    over the seeds that all of them ran, and averaged; a failed cell ranks last. A row on a dataset
    that was in view when the defaults of its method were chosen (`Method.tuned_on`) has no rank,
    and the others are ranked without it. Printed by `show.place`: up to two decimals.
`of real` of a row
    Its utility divided by that of the row of the method `real` on the same dataset and split: means
    over the seeds of each, so that `real` itself is 100%. The reference is that row, which is shown
    beside the others, and not the model that a metric such as `auroc/ratio` trains for itself on
    the same rows with other random numbers: pages leave such metrics out. Without a row of `real`
    there is no share, nor where a lower value is better. Printed by `show.share`: one decimal of a
    percentage, and means are taken of what is printed.
`mean rank` of a method
    The mean over datasets of the mean over the groups of each dataset in which it is ranked, so
    that every dataset weighs the same. Two decimals. It orders nothing: being last of two is rank
    2, and would improve the mean of a method that is fifth of twenty elsewhere.
`win rate` of a method
    Likewise of the share of the other ranked methods that it beats; a tie counts half. In a group
    of n it is (n - rank) / (n - 1), so that groups of different sizes can be averaged, and methods
    that all meet everywhere are ordered as by their mean ranks. One decimal of a percentage. It
    orders the methods; those whose win rates are printed equal are tied.
`apart` of a method
    Whether its win rate cannot be held against those of the others: it is ranked on fewer than
    half of the datasets on which any method is, or only among models of their own size where others
    release tables. Such methods come last.
`interval` of a mean rank
    Student's interval of the means of the datasets, cut off at 1 and at the last place; none for
    fewer than `FEWEST` datasets. It speaks of the choice of datasets, not of test rows or seeds.
`of real` of a method
    The mean over datasets of the mean over groups of the share of its rows, in the groups in which
    it is ranked and has a share.

The script of the front page computes the same for the rows that are chosen there, from the same
printed numbers; a test compares both. Quantities are marked in the pages by `data-quantity`, whose
value is `identity`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import pandas as pd
from scipy import stats

from bench.leaderboard.ranking.rank import group_identity
from bench.leaderboard.ranking.rows import Row, ceilings
from bench.leaderboard.tables import show
from bench.leaderboard.tables.load import records
from bench.plugins.metric import Direction
from bench.results.records import ipc_text

OWN_SIZE = ipc_text(None, False)
"""IPC of what has no number of rows to ask for: models, and the real rows."""
FEWEST = 5
"""With fewer datasets no interval of a mean rank is computed."""

UTILITY, OF_REAL, RANK = "utility", "of real", "rank"
MEAN_RANK, RANK_INTERVAL = "mean rank", "mean rank interval"

RATIOS = ("/ratio", "-ratio")
"""Endings of metrics that divide by a model of their own of the real rows."""


def identity(aggregate: str, row: Row | None = None, method: str = "", metric: str = "") -> str:
    """Return the name of a quantity: what is aggregated over what, of which row or method."""
    if row is None:
        return f"{method}|{aggregate}"
    target = "" if row.epsilons.target is None else show.epsilon(row.epsilons.target)
    parts = (row.label, row.dataset, row.ipc, target, row.variant, metric, aggregate)
    return "|".join(parts)


# Shares of the utility of the real rows -----------------------------------------------------------


def share_of_real(value: float | None, real: float | None) -> float | None:
    """Return the share as it is printed; None where it has no meaning."""
    if value is None or real is None or not (math.isfinite(value) and 0 < real < math.inf):
        return None
    return float(show.fixed(100 * value / real, 1)) / 100


def of_real(row: Row, metric: str, real: Row | None) -> float | None:
    """Return the share of the metric of a row in that of the real rows."""
    measure = row.measures.get(metric)
    best = None if real is None else real.measures.get(metric)
    if measure is None or best is None or measure.direction != Direction.HIGHER.value:
        return None
    return share_of_real(measure.value, best.value)


def headline_of_real(row: Row, tops: Mapping[tuple[str, str], Row]) -> float | None:
    """Return the share of the headline of a row."""
    if row.headline is None:
        return None
    return of_real(row, row.headline.metric, tops.get((row.dataset, row.split)))


def is_ratio_of(metric: str, headlines: Iterable[str]) -> bool:
    """Return whether a metric is another share of a headline in the real rows."""
    for headline in headlines:
        kind = headline.partition("/")[0]
        if metric in (*(f"{headline}{end}" for end in RATIOS), f"{kind}/ratio"):
            return True
    return False


# Means over datasets ------------------------------------------------------------------------------


def by_dataset(values: Iterable[tuple[str, float]]) -> list[float]:
    """Return the mean of each dataset of pairs of a dataset and a value."""
    gathered: dict[str, list[float]] = {}
    for dataset, value in values:
        gathered.setdefault(dataset, []).append(value)
    return [statistics.fmean(members) for members in gathered.values()]


def over_datasets(values: Iterable[tuple[str, float]]) -> float | None:
    """Return the mean over datasets of the means within them; None for no values."""
    means = by_dataset(values)
    return statistics.fmean(means) if means else None


def rank_interval(
    means: Sequence[float], last: float, alpha: float
) -> tuple[float, float] | tuple[None, None]:
    """Return Student's interval of a mean over datasets, within the places from 1 to `last`."""
    count = len(means)
    if count < FEWEST:
        return None, None
    middle = statistics.fmean(means)
    reach = quantile(count, alpha) * statistics.stdev(means) / math.sqrt(count)
    return max(1.0, middle - reach), min(last, middle + reach)


def quantile(count: int, alpha: float) -> float:
    """Return the upper quantile of Student's distribution for the mean of so many datasets."""
    return float(stats.t.ppf(1 - alpha / 2, count - 1))


# Methods over all their groups --------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Standing:
    """A method over the groups in which it is ranked."""

    label: str
    reference: str
    mean_rank: float
    low: float | None
    """Ends of the interval over datasets; None for too few."""
    high: float | None
    of_real: float | None
    among: float
    """Mean number of methods ranked together."""
    beaten: float
    """Its win rate: the share of the other methods that it beats."""
    datasets: int
    groups: int
    cells: int
    failing: int
    apart: bool = False
    """Whether it met too few of the others, so that it is listed after them."""


def standings(
    places: pd.DataFrame, rows: Sequence[Row], alpha: float = 0.05
) -> tuple[Standing, ...]:
    """Return the ranked methods, best first and those apart last.

    `places` as of `rank.placements`.
    """
    tops = ceilings(rows)
    row_of = {(row.label, group_of(row)): row for row in rows}
    reference = {row.label: row.reference for row in rows}
    ranked: dict[str, list[tuple[Row, Mapping[str, float]]]] = {}
    last = 1.0
    for record in records(places[places["rank"].notna()]):
        row = row_of[record["shown_label"], group_identity(record)]
        ranked.setdefault(row.label, []).append((row, record))
        last = max(last, float(record["among"]))
    datasets = {row.dataset for members in ranked.values() for row, _ in members}
    sized = {label for label, members in ranked.items() if any(map(_has_size, members))}
    found = []
    for label, members in ranked.items():
        ranks = [(row.dataset, float(record["rank"])) for row, record in members]
        shares = [(row.dataset, headline_of_real(row, tops)) for row, _ in members]
        low, high = rank_interval(by_dataset(ranks), last, alpha)
        found.append(
            Standing(
                label=label,
                reference=reference[label],
                mean_rank=_mean(ranks),
                low=low,
                high=high,
                of_real=over_datasets((name, share) for name, share in shares if share is not None),
                among=_mean((row.dataset, float(record["among"])) for row, record in members),
                beaten=_mean((row.dataset, float(record["beaten"])) for row, record in members),
                datasets=(own := len({row.dataset for row, _ in members})),
                apart=2 * own < len(datasets) or bool(sized and label not in sized),
                groups=len(members),
                cells=sum(int(record["cells"]) for _, record in members),
                failing=sum(int(record["failing"]) for _, record in members),
            )
        )
    return tuple(
        sorted(found, key=lambda one: (one.apart, -printed_win_rate(one.beaten), one.label))
    )


def printed_win_rate(value: float) -> float:
    """Return a win rate in percent as it is printed."""
    return float(show.share(value).removesuffix("%"))


def _has_size(member: tuple[Row, Mapping[str, float]]) -> bool:
    """Return whether a row is of a release whose number of rows was asked for."""
    return member[0].ipc != OWN_SIZE


def _mean(values: Iterable[tuple[str, float]]) -> float:
    mean = over_datasets(values)
    if mean is None:
        raise ValueError("a standing without groups")
    return mean


def group_of(row: Row) -> tuple[object, ...]:
    """Return the group of a row, as `rank.group_identity` returns that of a cell."""
    setting = (row.split, row.delta, row.private_counts, row.study_only, row.adjacency, row.unit)
    return (row.dataset, row.ipc, row.epsilons.target, *setting)


def leaders(order: Sequence[Standing]) -> tuple[Standing, ...]:
    """Return the first method and all that are tied with it: same win rate, as many groups."""
    if not order:
        return ()
    best = order[0]
    return tuple(
        one
        for one in order
        if printed_win_rate(one.beaten) == printed_win_rate(best.beaten)
        and (one.groups, one.apart) == (best.groups, best.apart)
    )
