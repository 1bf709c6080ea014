"""Changes between two runs: `bench leaderboard NEW --check OLD`.

Cells are matched by label, dataset, IPC, target epsilon, setting and seed. Utility is compared over
the seeds that both runs have. The error of the mean difference has two components: the variation
over seeds, and the test-set intervals of both runs. The test rows are mostly the same in both, so
the second component is conservative. A single seed gives no estimate of the first component.

A check that passes has therefore found no significant loss, which does not show that there is none:
a large loss on a small test set, or among many rows that differ, can stay below significance. The
conclusion names the largest such loss.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import pandas as pd

from bench.errors import StoreError, printable
from bench.leaderboard.ranking.inference import Difference, difference, from_interval, from_seeds
from bench.leaderboard.ranking.rank import headline_metrics
from bench.leaderboard.tables import show
from bench.leaderboard.tables.load import GROUP, Results, records
from bench.plugins.metric import Direction
from bench.results.records import Status
from bench.stats.inference import holm

# A cell that failed early has neither adjacency nor unit, and must still be matched.
_IDENTITY = ["shown_label", *(name for name in GROUP if name not in ("adjacency", "unit"))]
_NO_SCORE = "no score"


@final
@dataclass(frozen=True)
class RowIdentity:
    """Identity of cells that differ only in their seeds."""

    label: str
    dataset: str
    ipc: str
    target: float | None
    setting: str
    """Empty unless another row has the same label, dataset, IPC and target."""


@final
@dataclass(frozen=True)
class UtilityChange:
    """The headline score in both runs, over the seeds that both have."""

    where: RowIdentity
    metric: str
    seeds: int
    old: float
    new: float
    observed: float
    """Mean improvement over the seeds, positive if better."""
    gain: Difference | None
    """The improvement with its test; None if its error is unknown."""
    p_holm: float | None
    """Holm-corrected p-value over all rows that differ and whose error is known."""
    significant: bool

    @property
    def worse(self) -> bool:
        """True for a significant loss."""
        return self.significant and self.gain is not None and self.gain.value < 0


@final
@dataclass(frozen=True)
class Change:
    """Another change, for some seeds of a row."""

    where: RowIdentity
    old: str
    new: str
    reason: str
    seeds: tuple[int, ...]


@final
@dataclass(frozen=True)
class Changes:
    """All differences between two runs."""

    alpha: float
    cells: int
    """Number of cells in both runs."""
    only_old: int
    only_new: int
    utility: tuple[UtilityChange, ...]
    """All rows whose headline score could be compared."""
    verdicts: tuple[Change, ...]
    proven: tuple[Change, ...]
    failing: tuple[Change, ...]
    """Cells that fail now but not before, or were ok and are now skipped."""
    finished: tuple[Change, ...]
    """Cells that are ok now but were not before."""
    sources: tuple[str, ...]
    """Methods whose code changed."""
    data: tuple[str, ...]
    """Datasets whose rows or split changed."""

    @property
    def worse(self) -> bool:
        """True if a check should fail."""
        lost = any(change.worse for change in self.utility)
        return lost or bool(self.verdicts) or bool(self.failing)


@final
@dataclass(frozen=True)
class _Partners:
    """One cell in both runs."""

    seed: int
    metric: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]


def find_changes(old: Results, new: Results, alpha: float = 0.05) -> Changes:
    """Compare two runs cell by cell, by the headline metric of the old run."""
    headlines = headline_metrics(new.cells, new.scores) | headline_metrics(old.cells, old.scores)
    _check_directions(old, new)
    olds, news = _cells(old, headlines), _cells(new, headlines)
    common = [key for key in olds if key in news]
    if not common:
        raise StoreError(
            f"runs {', '.join(new.runs)} and {', '.join(old.runs)} have no cell in common (label, "
            "dataset, IPC, epsilon, setting and seed); compare runs of the same grid"
        )
    rows: dict[tuple[Any, ...], list[_Partners]] = {}
    for key in sorted(common, key=str):
        one, other = olds[key], news[key]
        metric = headlines.get(one["shown_dataset"], "")
        rows.setdefault(key[:-1], []).append(_Partners(int(one["seed"]), metric, one, other))
    named = _identities(list(rows))
    partners = {named[key]: pairs for key, pairs in rows.items()}
    both = [pair for pairs in partners.values() for pair in pairs]
    return Changes(
        alpha=alpha,
        cells=len(common),
        only_old=len(olds) - len(common),
        only_new=len(news) - len(common),
        utility=_utility(partners, alpha),
        verdicts=_collected(partners, _verdict),
        proven=_collected(partners, _proven),
        failing=_collected(partners, _failing),
        finished=_collected(partners, _finished),
        sources=_differing(both, "source_hash", "shown_label"),
        data=_differing(both, "fingerprint", "shown_dataset"),
    )


def _cells(results: Results, headlines: Mapping[str, str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the cells with their headline score, by identity and repetition."""
    scores = {(score["key"], score["metric"]): score for score in records(results.scores)}
    by_identity = {}
    for cell in records(results.cells):
        score = scores.get((cell["key"], headlines.get(cell["shown_dataset"], "")), {})
        headline = {name: _number(score.get(name)) for name in ("value", "low", "high")}
        key = tuple(None if pd.isna(cell[name]) else cell[name] for name in _IDENTITY)
        by_identity[*key, cell["repetition"]] = {
            **cell,
            **headline,
            "direction": score.get("direction", ""),
            "score_reason": score.get("reason", ""),
        }
    return by_identity


def _check_directions(old: Results, new: Results) -> None:
    ways = [results.scores.groupby("metric")["direction"].first() for results in (old, new)]
    shared = ways[0].index.intersection(ways[1].index)
    for metric in shared[ways[0][shared] != ways[1][shared]]:
        raise StoreError(
            f"metric {metric!r} has different directions in the two runs, so they are not "
            "comparable; score the older run again with `bench score`"
        )


def _identities(keys: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], RowIdentity]:
    short = [key[:4] for key in keys]
    identities = {}
    for key in keys:
        values = dict(zip(_IDENTITY, key, strict=True))
        setting = ""
        if short.count(key[:4]) > 1:
            setting = ", ".join(f"{name} {values[name]}" for name in _IDENTITY[4:])
        identities[key] = RowIdentity(
            values["shown_label"],
            values["shown_dataset"],
            values["shown_ipc"],
            values["eps_target"],
            setting,
        )
    return identities


def _utility(
    rows: Mapping[RowIdentity, Sequence[_Partners]], alpha: float
) -> tuple[UtilityChange, ...]:
    changes = [
        change
        for where, pairs in rows.items()
        for change in [_compared(where, pairs, alpha)]
        if change is not None
    ]
    # Rows without any difference are not tested: there is nothing to detect.
    tested = [n for n, one in enumerate(changes) if one.gain is not None and one.gain.value != 0]
    p_values = [change.gain.p for n in tested for change in [changes[n]] if change.gain is not None]
    for n, p in zip(tested, holm(p_values), strict=True):
        changes[n] = replace(changes[n], p_holm=float(p), significant=bool(p < alpha))
    return tuple(changes)


def _compared(where: RowIdentity, pairs: Sequence[_Partners], alpha: float) -> UtilityChange | None:
    scored = [
        pair
        for pair in pairs
        if pair.metric
        and _end(pair.old, pair.metric) == _end(pair.new, pair.metric) == Status.OK.value
    ]
    if not scored:
        return None
    sign = -1.0 if scored[0].new["direction"] == Direction.LOWER.value else 1.0
    gains = [sign * (pair.new["value"] - pair.old["value"]) for pair in scored]
    parts = [from_seeds(statistics.stdev(gains), len(gains))] if len(gains) > 1 else []
    for cells in ([pair.old for pair in scored], [pair.new for pair in scored]):
        if all(_finite(cell["low"]) and _finite(cell["high"]) for cell in cells):
            low, high = (statistics.fmean(cell[end] for cell in cells) for end in ("low", "high"))
            parts.append(from_interval(low, high))
    return UtilityChange(
        where=where,
        metric=scored[0].metric,
        seeds=len(scored),
        old=statistics.fmean(pair.old["value"] for pair in scored),
        new=statistics.fmean(pair.new["value"] for pair in scored),
        observed=statistics.fmean(gains),
        gain=difference(statistics.fmean(gains), parts, alpha),
        p_holm=None,
        significant=False,
    )


def _verdict(pair: _Partners) -> tuple[str, str, str] | None:
    old, new = pair.old["verdict"], pair.new["verdict"]
    if not old or not new:
        return None
    for name in ("adjacency", "unit"):
        if pair.old[name] and pair.new[name] and pair.old[name] != pair.new[name]:
            old, new = f"{old}, {name} {pair.old[name]}", f"{new}, {name} {pair.new[name]}"
    return (old, new, pair.new["verdict_reason"]) if old != new else None


def _proven(pair: _Partners) -> tuple[str, str, str] | None:
    old, new = _number(pair.old["eps_proven"]), _number(pair.new["eps_proven"])
    if old is None or new is None or math.isclose(old, new, rel_tol=1e-9):
        return None
    return (f"{old:.6g}", f"{new:.6g}", "larger" if new > old else "smaller")


def _failing(pair: _Partners) -> tuple[str, str, str] | None:
    old, new = _end(pair.old, pair.metric), _end(pair.new, pair.metric)
    fine = (Status.OK.value, Status.SKIPPED.value)
    lost = new not in fine and old in fine
    if lost or (old == Status.OK.value and new == Status.SKIPPED.value):
        return (old, new, pair.new["score_reason"] if new == _NO_SCORE else pair.new["reason"])
    return None


def _finished(pair: _Partners) -> tuple[str, str, str] | None:
    old, new = _end(pair.old, pair.metric), _end(pair.new, pair.metric)
    return (old, new, "") if new == Status.OK.value and old != new else None


def _end(cell: Mapping[str, Any], metric: str) -> str:
    """Return the status, or `no score` for a cell that finished without a headline score."""
    if cell["status"] == Status.OK.value and metric and not _finite(cell["value"]):
        return _NO_SCORE
    return str(cell["status"])


def _collected(
    rows: Mapping[RowIdentity, Sequence[_Partners]],
    look: Callable[[_Partners], tuple[str, str, str] | None],
) -> tuple[Change, ...]:
    """Return one change for all seeds of a row with the same change."""
    seeds_of: dict[tuple[RowIdentity, str, str, str], list[int]] = {}
    for where, pairs in rows.items():
        for pair in pairs:
            change = look(pair)
            if change is not None:
                seeds_of.setdefault((where, *change), []).append(pair.seed)
    return tuple(
        Change(where, old, new, reason, tuple(sorted(seeds)))
        for (where, old, new, reason), seeds in seeds_of.items()
    )


def _differing(pairs: Iterable[_Partners], column: str, name: str) -> tuple[str, ...]:
    """Return the names of cells for which both runs have the column and disagree."""
    names = {
        pair.new[name]
        for pair in pairs
        if pair.old[column] and pair.new[column] and pair.old[column] != pair.new[column]
    }
    return tuple(sorted(names))


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


# Text for a terminal ------------------------------------------------------------------------------


def to_text(changes: Changes) -> str:
    """Return the changes as lines; the last one tells whether the check passed."""
    differing = [change for change in changes.utility if change.old != change.new]
    tested = [change for change in differing if change.p_holm is not None]
    significant = [change for change in tested if change.significant]
    lines = [
        f"{changes.cells} cells in both runs, {changes.only_old} only in the old one, "
        f"{changes.only_new} only in the new one.",
    ]
    for what, names in (("methods", changes.sources), ("datasets", changes.data)):
        if names:
            listed = ", ".join(plain(name) for name in names)
            lines.append(f"Changed code or data, {what}: {listed}.")
    lines += [
        f"Utility: {len(changes.utility)} rows compared, {len(differing)} differ, "
        f"{len(significant)} significantly (level {changes.alpha:g}, Holm over {len(tested)}).",
        *(_utility_line(change) for change in significant),
    ]
    if any(change.seeds == 1 for change in significant):
        lines.append(
            "  (one seed only: the interval covers the test rows, not the randomness of the method)"
        )
    unknown = [change for change in differing if change.gain is None]
    if unknown:
        lines.append(
            "Utility differs, but without an interval or a second seed it cannot be tested:"
        )
        lines += [_utility_line(change) for change in unknown]
    for title, group in (
        ("Verdicts changed", changes.verdicts),
        ("Proven epsilons changed", changes.proven),
        ("No longer ok", changes.failing),
        ("Newly ok", changes.finished),
    ):
        lines.append(f"{title}: {sum(len(change.seeds) for change in group)} cells.")
        lines += _change_lines(group)
    lines.append(_conclusion(changes))
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return text of an untrusted run without control characters."""
    return printable(text, kept="")


def _conclusion(changes: Changes) -> str:
    worse = sum(change.worse for change in changes.utility)
    reasons = [
        f"{count} {what}"
        for count, what in (
            (worse, "significantly worse"),
            (len(changes.verdicts), "with a changed verdict"),
            (len(changes.failing), "no longer ok"),
        )
        if count
    ]
    text = (
        f"Check failed: {', '.join(reasons)}."
        if reasons
        else "Check passed: no significant loss was found, no verdict changed, and no cell stopped "
        "finishing."
    )
    losses = _largest_losses(changes.utility)
    if losses:
        each = " of each metric" if len(losses) > 1 else ""
        listed = "; ".join(_utility_text(change) for change in losses)
        text += f" Largest observed loss{each} that is not significant: {listed}."
    return text


def _largest_losses(changes: Iterable[UtilityChange]) -> list[UtilityChange]:
    """Return the largest loss of each metric among those that are not significant.

    Losses of different metrics have different units.
    """
    largest: dict[str, UtilityChange] = {}
    for change in changes:
        if change.old == change.new or change.observed >= 0 or change.significant:
            continue
        there = largest.get(change.metric)
        if there is None or change.observed < there.observed:
            largest[change.metric] = change
    return [largest[metric] for metric in sorted(largest)]


def _utility_line(change: UtilityChange) -> str:
    word = "differs"
    if change.gain is not None:
        word = "worse" if change.gain.value < 0 else "better"
    return f"  {word}: {_utility_text(change)}"


def _utility_text(change: UtilityChange) -> str:
    text = f"{_in_words(change.where)}: {plain(change.metric)} "
    text += f"{show.number(change.old)} -> {show.number(change.new)}"
    text += f", gain {_signed(change.observed)}"
    if change.gain is None:
        text += " (not tested)"
    else:
        text += f" [{_signed(change.gain.low)}, {_signed(change.gain.high)}]"
    if change.p_holm is not None:
        text += f", corrected p {change.p_holm:.2g}"
    return f"{text}, {change.seeds} seed{'' if change.seeds == 1 else 's'}"


def _signed(value: float) -> str:
    """Return four decimals, or two significant digits of what would be rounded to zero."""
    return f"{value:+.4f}" if value == 0 or abs(value) >= 0.00005 else f"{value:+.2g}"


def _change_lines(changes: Sequence[Change]) -> list[str]:
    return [
        f"  {_in_words(change.where)}, {show.seeds(change.seeds)}: {plain(change.old)} -> "
        f"{plain(change.new)}" + (f" ({plain(change.reason)})" if change.reason else "")
        for change in changes
    ]


def _in_words(where: RowIdentity) -> str:
    text = f"{where.label} on {where.dataset}, {show.ipcs((where.ipc,))}"
    if where.target is not None:
        text += f", eps {where.target:g}"
    return plain(f"{text} ({where.setting})" if where.setting else text)
