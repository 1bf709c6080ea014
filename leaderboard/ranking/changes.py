"""What changed from one run to another: `bench leaderboard NEW --check OLD`.

Cells are the same if label, dataset, IPC, target epsilon, setting and seed are. Utility is
compared over the seeds that both runs have, seed by seed. The error of the mean difference has two
parts: what differs from seed to seed, and the test-set intervals of both runs. The test rows are
mostly the same in both, so the second part is rather too large than too small. A single seed says
nothing about the first part.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import pandas as pd

from bench.errors import StoreError
from bench.leaderboard.ranking.inference import Difference, difference, from_interval, from_seeds
from bench.leaderboard.ranking.rank import headline_metrics
from bench.leaderboard.tables import show
from bench.leaderboard.tables.load import GROUP, Results, records
from bench.plugins.metric import Direction
from bench.results.records import Status
from bench.stats.multiple_testing import holm

# A cell that was lost early knows neither adjacency nor unit, and must still find its partner.
_IDENTITY = ["shown_label", *(name for name in GROUP if name not in ("adjacency", "unit"))]
_NO_SCORE = "no score"


@final
@dataclass(frozen=True)
class RowIdentity:
    """The cells of one method that differ in their seeds only."""

    label: str
    dataset: str
    ipc: str
    target: float | None
    setting: str
    """Empty unless another of the runs' rows has the same label, dataset, IPC and target."""


@final
@dataclass(frozen=True)
class UtilityChange:
    """The headline score in both runs, over the seeds that both have."""

    where: RowIdentity
    metric: str
    seeds: int
    old: float
    new: float
    gain: Difference | None
    """How much better the new one is, whichever direction is better; None if no error is known."""
    p_holm: float | None
    """Corrected for all rows of which an error is known and that differ at all."""
    significant: bool

    @property
    def worse(self) -> bool:
        """True for a significant loss."""
        return self.significant and self.gain is not None and self.gain.value < 0


@final
@dataclass(frozen=True)
class Change:
    """Something else that is not as it was, for some seeds of a row."""

    where: RowIdentity
    old: str
    new: str
    reason: str
    seeds: tuple[int, ...]


@final
@dataclass(frozen=True)
class Changes:
    """All that differs between two runs."""

    alpha: float
    cells: int
    """In both runs."""
    only_old: int
    only_new: int
    utility: tuple[UtilityChange, ...]
    """Every row whose headline could be compared."""
    verdicts: tuple[Change, ...]
    proven: tuple[Change, ...]
    failing: tuple[Change, ...]
    """Not failing before, or ok before and skipped now."""
    finished: tuple[Change, ...]
    """Ok now and not before."""
    sources: tuple[str, ...]
    """Methods whose code is not the same."""
    data: tuple[str, ...]
    """Datasets whose rows or split are not the same."""

    @property
    def worse(self) -> bool:
        """True where a check should fail."""
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
    """Compare two runs cell by cell, by the old run's headline of each dataset."""
    headlines = headline_metrics(new.cells, new.scores) | headline_metrics(old.cells, old.scores)
    _check_directions(old, new)
    olds, news = _cells(old, headlines), _cells(new, headlines)
    common = [key for key in olds if key in news]
    if not common:
        raise StoreError(
            f"runs {', '.join(new.runs)} and {', '.join(old.runs)} have no cell in common (label, "
            "dataset, IPC, epsilon, setting and seed); check a run of the same grid"
        )
    rows: dict[tuple[Any, ...], list[_Partners]] = {}
    for key in sorted(common, key=str):
        one, other = olds[key], news[key]
        metric = headlines.get(one["shown_dataset"], "")
        rows.setdefault(key[:-1], []).append(_Partners(int(one["seed"]), metric, one, other))
    named = _places(list(rows))
    partners = {named[key]: own for key, own in rows.items()}
    both = [pair for own in partners.values() for pair in own]
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
    """Cells with their headline score, by identity and repetition."""
    scores = {(score["key"], score["metric"]): score for score in records(results.scores)}
    found = {}
    for cell in records(results.cells):
        score = scores.get((cell["key"], headlines.get(cell["shown_dataset"], "")), {})
        own = {name: _number(score.get(name)) for name in ("value", "low", "high")}
        key = tuple(None if pd.isna(cell[name]) else cell[name] for name in _IDENTITY)
        found[*key, cell["repetition"]] = {
            **cell,
            **own,
            "direction": score.get("direction", ""),
            "score_reason": score.get("reason", ""),
        }
    return found


def _check_directions(old: Results, new: Results) -> None:
    ways = [results.scores.groupby("metric")["direction"].first() for results in (old, new)]
    shared = ways[0].index.intersection(ways[1].index)
    for metric in shared[ways[0][shared] != ways[1][shared]]:
        raise StoreError(
            f"metric {metric!r} is better higher in one run and not in the other: they are not "
            "comparable; score the older run again with `bench score`"
        )


def _places(keys: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], RowIdentity]:
    short = [key[:4] for key in keys]
    found = {}
    for key in keys:
        values = dict(zip(_IDENTITY, key, strict=True))
        setting = ""
        if short.count(key[:4]) > 1:
            setting = ", ".join(f"{name} {values[name]}" for name in _IDENTITY[4:])
        found[key] = RowIdentity(
            values["shown_label"],
            values["shown_dataset"],
            values["shown_ipc"],
            values["eps_target"],
            setting,
        )
    return found


def _utility(
    rows: Mapping[RowIdentity, Sequence[_Partners]], alpha: float
) -> tuple[UtilityChange, ...]:
    found = [
        change
        for where, own in rows.items()
        for change in [_compared(where, own, alpha)]
        if change is not None
    ]
    # Rows without any difference are no tests: nothing could have been found there.
    tested = [n for n, one in enumerate(found) if one.gain is not None and one.gain.value != 0]
    p_values = [change.gain.p for n in tested for change in [found[n]] if change.gain is not None]
    for n, p in zip(tested, holm(p_values), strict=True):
        found[n] = replace(found[n], p_holm=float(p), significant=bool(p < alpha))
    return tuple(found)


def _compared(where: RowIdentity, own: Sequence[_Partners], alpha: float) -> UtilityChange | None:
    scored = [
        pair
        for pair in own
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
    """The status; `no score` for a cell that finished without a headline score."""
    if cell["status"] == Status.OK.value and metric and not _finite(cell["value"]):
        return _NO_SCORE
    return str(cell["status"])


def _collected(
    rows: Mapping[RowIdentity, Sequence[_Partners]],
    look: Callable[[_Partners], tuple[str, str, str] | None],
) -> tuple[Change, ...]:
    """One change for all seeds of a row to which the same happened."""
    found: dict[tuple[RowIdentity, str, str, str], list[int]] = {}
    for where, own in rows.items():
        for pair in own:
            change = look(pair)
            if change is not None:
                found.setdefault((where, *change), []).append(pair.seed)
    return tuple(
        Change(where, old, new, reason, tuple(sorted(seeds)))
        for (where, old, new, reason), seeds in found.items()
    )


def _differing(pairs: Iterable[_Partners], column: str, name: str) -> tuple[str, ...]:
    """What is named so where both runs know the column and disagree."""
    found = {
        pair.new[name]
        for pair in pairs
        if pair.old[column] and pair.new[column] and pair.old[column] != pair.new[column]
    }
    return tuple(sorted(found))


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


# Text for a terminal ------------------------------------------------------------------------------


def to_text(found: Changes) -> str:
    """What changed, in plain lines; the last one says whether anything got worse."""
    differing = [change for change in found.utility if change.old != change.new]
    tested = [change for change in differing if change.p_holm is not None]
    significant = [change for change in tested if change.significant]
    lines = [
        f"{found.cells} cells in both runs, {found.only_old} only in the old one, "
        f"{found.only_new} only in the new one.",
    ]
    for what, names in (("methods", found.sources), ("datasets", found.data)):
        if names:
            listed = ", ".join(plain(name) for name in names)
            lines.append(f"Other code or contents than before, {what}: {listed}.")
    lines += [
        f"Utility: {len(found.utility)} rows compared, {len(differing)} differ, "
        f"{len(significant)} significantly (level {found.alpha:g}, Holm over {len(tested)}).",
        *(_utility_line(change) for change in significant),
    ]
    if any(change.seeds == 1 for change in significant):
        lines.append("  (of one seed: its interval knows the test rows, not the seed's own chance)")
    unknown = [change for change in differing if change.gain is None]
    if unknown:
        lines.append("Utility differs, but no interval and no second seed say by what chance:")
        lines += [_utility_line(change) for change in unknown]
    for title, changes in (
        ("Verdicts changed", found.verdicts),
        ("Proven epsilons changed", found.proven),
        ("No longer ok", found.failing),
        ("Newly ok", found.finished),
    ):
        lines.append(f"{title}: {sum(len(change.seeds) for change in changes)} cells.")
        lines += _change_lines(changes)
    lines.append(_conclusion(found))
    return "\n".join(lines)


def plain(text: str) -> str:
    """Text of a stranger's run without what a terminal would obey."""
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text)


def _conclusion(found: Changes) -> str:
    worse = sum(change.worse for change in found.utility)
    reasons = [
        f"{count} {what}"
        for count, what in (
            (worse, "significantly worse"),
            (len(found.verdicts), "with another verdict"),
            (len(found.failing), "no longer ok"),
        )
        if count
    ]
    return f"Check failed: {', '.join(reasons)}." if reasons else "Check passed: nothing got worse."


def _utility_line(change: UtilityChange) -> str:
    text = f"{_place_in_words(change.where)}: {plain(change.metric)} "
    text += f"{show.number(change.old)} -> {show.number(change.new)}"
    word = "differs"
    if change.gain is not None:
        word = "worse" if change.gain.value < 0 else "better"
        text += f", gain {change.gain.value:+.4f} [{change.gain.low:+.4f}, {change.gain.high:+.4f}]"
    if change.p_holm is not None:
        text += f", corrected p {change.p_holm:.2g}"
    return f"  {word}: {text}, {change.seeds} seed{'' if change.seeds == 1 else 's'}"


def _change_lines(changes: Sequence[Change]) -> list[str]:
    return [
        f"  {_place_in_words(change.where)}, {show.seeds(change.seeds)}: {plain(change.old)} -> "
        f"{plain(change.new)}" + (f" ({plain(change.reason)})" if change.reason else "")
        for change in changes
    ]


def _place_in_words(where: RowIdentity) -> str:
    text = f"{where.label} on {where.dataset}, {show.ipcs((where.ipc,))}"
    if where.target is not None:
        text += f", eps {where.target:g}"
    return plain(f"{text} ({where.setting})" if where.setting else text)
