"""Puts a run beside the published methods, without computing them again.

Results may stand beside each other where the rows of the dataset, their split, the size, epsilon,
delta and setting, and the code of the metrics are the same. The published cells of which that is
true are written as a small directory of published results, which the leaderboard compiles together
with the run. Everything else is left out, and what does not agree is named. Where the run and the
published results have the same cell, the board shows that of the run.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from bench.errors import UnknownNameError
from bench.plugins import registry
from bench.results import published
from bench.results.records import Status, ipc_text

if TYPE_CHECKING:
    import pandas as pd

_DATASET = ("dataset_name", "dataset_parameters")
_SHOWN = ("dataset", "dataset_parameters")
"""Columns that distinguish the datasets of the board."""
_SPLIT = ("split", "split_seed")
_SIZE = ("ipc", "full_size")
_SETTING = ("delta", "private_counts", "study_only")
_HASHED = "fingerprint"
_SEEDS = ("seed", "split_seed")
_ROW = tuple(name for name in published.IDENTITY if name not in _SEEDS)
"""Columns of what one row of the board averages over its seeds."""
_CELL = ("label", "dataset", *published.IDENTITY)
"""Columns of a cell of the board: under another label it is another row."""


@final
@dataclass(frozen=True)
class Beside:
    """Published results that may stand beside a run."""

    version: str
    directory: Path
    cells: int
    left_out: int
    """Published cells that are of no concern to the run, do not agree with it, or are its own."""
    named: tuple[str, ...]
    """What does not agree, in sentences."""


@contextlib.contextmanager
def beside(runs: Sequence[Path], directory: Path) -> Iterator[Beside]:
    """Give the published cells that agree with the runs, in a folder that exists meanwhile."""
    import pandas as pd

    version = published.check_published(directory)
    all_of_it = published.compact(directory)
    own = [published.compact(run) for run in runs]
    mine = pd.concat([one.cells for one in own], ignore_index=True)
    named: list[str] = []
    cells = all_of_it.cells
    theirs = cells[_agreeing(mine[mine["attack"] == ""], cells, named)]
    theirs = theirs[_same_code(mine, theirs, named)]
    theirs = theirs[_not_mine(mine, theirs)]
    kept = _same_metrics(own, all_of_it.only(list(theirs["key"])), named)
    with tempfile.TemporaryDirectory(prefix="bench-published-") as folder:
        place = Path(folder) / directory.resolve().name
        published.write(place, kept, version, "")
        left = len(cells) - len(kept.cells)
        yield Beside(version.version, place, len(kept.cells), left, tuple(named))


def _agreeing(mine: pd.DataFrame, theirs: pd.DataFrame, named: list[str]) -> pd.Series[bool]:
    """Return which published cells are in a group of the run; name what none agrees with."""
    groups: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
    sizes: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
    prints: dict[tuple[Any, ...], set[str]] = {}
    for row in _lines(mine):
        place = _of(row, (*_DATASET, *_SPLIT))
        groups.setdefault(place, set()).add(_group(row))
        sizes.setdefault(place, set()).add(_of(row, _SIZE))
        if row[_HASHED]:
            prints.setdefault(place, set()).add(row[_HASHED])
    good, seen, met = [], dict.fromkeys(groups, 0), set()
    other_rows = set()
    for row in _lines(theirs):
        place = _of(row, (*_DATASET, *_SPLIT))
        if place not in groups:
            good.append(False)
            continue
        seen[place] += 1
        if row[_HASHED] and row[_HASHED] not in prints.get(place, set()):
            other_rows.add(place)
            good.append(False)
        elif row["attack"]:
            good.append(True)  # it changes verdicts of the same code, and is no row
        elif row["eps_target"] is None:
            # Real rows and other references: without a budget there is no delta to agree on.
            good.append(row["ipc"] is None or _of(row, _SIZE) in sizes[place])
        else:
            met.add((place, _group(row)))
            good.append(_group(row) in groups[place])
    import pandas as pd

    for place, count in seen.items():
        if not count:
            named.append(f"{_dataset(place)} is not published")
        elif place in other_rows:
            named.append(
                f"{_dataset(place)} has other rows or another split than published: its published "
                "results are left out"
            )
        else:
            for group in sorted(groups[place], key=str):
                if group[2] is not None and (place, group) not in met:
                    named.append(f"{_dataset(place)}, {_described(group)}: no published results")
    return pd.Series(good, index=theirs.index, dtype=bool)


def _group(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return _of(row, (*_SIZE, "eps_target", *_SETTING))


def _of(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _dataset(place: tuple[Any, ...]) -> str:
    name, parameters, split, split_seed = place
    more = "" if parameters == "{}" else f" {parameters}"
    usual = (split, split_seed) == ("default", 0)
    return f"dataset {name}{more}" + ("" if usual else f", split {split} {split_seed}")


def _described(group: tuple[Any, ...]) -> str:
    ipc, full, epsilon, delta, private_counts, study_only = group
    size = ipc_text(ipc, bool(full))
    said = [f"{size} rows per class" if size.isdigit() else f"{size} size", f"epsilon {epsilon:g}"]
    said.append(f"delta {delta:g}")
    said += ["private counts"] if private_counts else []
    said += [] if study_only else ["secure noise"]
    return ", ".join(said)


def _same_code(mine: pd.DataFrame, theirs: pd.DataFrame, named: list[str]) -> pd.Series[bool]:
    """Return which published cells are not of a method that the run has with other code.

    One row of the board would average seeds of two methods.
    """
    hashes: dict[str, set[str]] = {}
    for method, digest in zip(mine["method"], mine["source_hash"], strict=True):
        if digest:
            hashes.setdefault(method, set()).add(digest)
    same = [
        method not in hashes or not digest or hashes[method] == {digest}
        for method, digest in zip(theirs["method"], theirs["source_hash"], strict=True)
    ]
    import pandas as pd

    good = pd.Series(same, index=theirs.index, dtype=bool)
    named += [
        f"method {method} has other code than published: its published results are left out"
        for method in sorted(theirs.loc[~good, "method"].unique())
    ]
    return good


def _not_mine(mine: pd.DataFrame, theirs: pd.DataFrame) -> pd.Series[bool]:
    """Return which published cells the run has not computed itself.

    Of two results of one cell the leaderboard shows the one that finished last, which can be the
    published one. Audits stay: an audit of the run that failed must not hide a refutation.
    """
    released = mine[mine["attack"] == ""]
    keys = set(released["key"])
    cells = {_of(row, _CELL) for row in _lines(released)}
    other = [
        bool(row["attack"]) or (row["key"] not in keys and _of(row, _CELL) not in cells)
        for row in _lines(theirs)
    ]
    import pandas as pd

    return pd.Series(other, index=theirs.index, dtype=bool)


def _same_metrics(
    own: Sequence[published.Compact], theirs: published.Compact, named: list[str]
) -> published.Compact:
    """Return the published results without the scores of metrics whose code is not that of the run.

    A cell whose headline metric is outdated is left out whole: a finished cell without its headline
    score would rank last, as one that failed. A metric that the run does not have says nothing
    about it, and stays.
    """
    headlines = _headlines([*own, theirs])
    headline_of = {
        key: headlines.get(shown, "")
        for key, shown in zip(theirs.cells["key"], _shown_dataset(theirs.cells), strict=True)
    }
    dataset_of = dict(zip(theirs.cells["key"], theirs.cells["dataset"], strict=True))
    scores = theirs.scores
    whole: set[str] = set()
    for name, keys in sorted(_outdated(own, theirs).items()):
        outputs = _outputs(name, scores)
        ranked = {key for key in keys if headline_of[key] in outputs}
        whole |= ranked
        what = []
        if ranked:
            datasets = sorted({dataset_of[key] for key in ranked})
            plural = "dataset" if len(datasets) == 1 else "datasets"
            what.append(
                f"the published cells that it ranks with that code ({plural} "
                f"{', '.join(datasets)}) are left out, with all their scores"
            )
        if keys - ranked:
            where = " of other datasets" if ranked else ""
            what.append(f"its published scores{where} are left out")
        named.append(
            f"metric {name} has other code than published: {', and '.join(what)} "
            f"(score the run with the code of that version, or wait for the next)"
        )
        scores = scores[~(scores["metric"].isin(outputs) & scores["key"].isin(keys))]
    whole |= _only_failures(theirs.cells, whole)
    theirs.scores = scores.reset_index(drop=True)
    return theirs.only([key for key in theirs.cells["key"] if key not in whole])


def _outdated(
    own: Sequence[published.Compact], theirs: published.Compact
) -> Mapping[str, set[str]]:
    """Return the keys of published cells by the metrics that have scored them with other code."""
    hashes: dict[str, set[str]] = {}
    for text in {text for one in own for text in one.cells["metrics"]}:
        for name, digest in json.loads(text).items():
            hashes.setdefault(name, set()).add(digest)
    outdated: dict[str, set[str]] = {}
    for key, text in zip(theirs.cells["key"], theirs.cells["metrics"], strict=True):
        for name, digest in json.loads(text).items():
            if name in hashes and hashes[name] != {digest}:
                outdated.setdefault(name, set()).add(key)
    return outdated


def _headlines(results: Sequence[published.Compact]) -> Mapping[str, str]:
    """Return the metric by which a board of all these results ranks each dataset."""
    import pandas as pd

    from bench.leaderboard.ranking.rank import headline_metrics

    cells = pd.concat([one.cells[["key", *_SHOWN, "task"]] for one in results], ignore_index=True)
    # A cell that failed early does not know its task.
    cells = cells[cells["task"] != ""].drop_duplicates("key")
    columns = ["key", "metric", "value", "family", "direction"]
    scores = pd.concat([one.scores[columns] for one in results], ignore_index=True)
    return headline_metrics(cells.assign(shown_dataset=_shown_dataset(cells)), scores)


def _shown_dataset(cells: pd.DataFrame) -> list[str]:
    """Return a name for each dataset of the board."""
    return [f"{label} {more}" for label, more in cells[list(_SHOWN)].itertuples(index=False)]


def _only_failures(cells: pd.DataFrame, gone: Set[str]) -> set[str]:
    """Return the cells of rows of which no finished one is left.

    Such a row would be ranked by its failures alone.
    """
    rows = {row["key"]: (_of(row, _ROW), row["status"]) for row in _lines(cells)}
    cut = {identity for key, (identity, _) in rows.items() if key in gone}
    cut -= {
        identity
        for key, (identity, status) in rows.items()
        if key not in gone and status == Status.OK.value
    }
    return {key for key, (identity, _) in rows.items() if identity in cut}


def _outputs(name: str, scores: pd.DataFrame) -> set[str]:
    """Return the names of the scores of a metric."""
    try:
        declared = {output.name for output in registry.metric(name).declared()}
    except UnknownNameError:
        declared = set()
    return declared | {one for one in scores["metric"].unique() if one.partition("/")[0] == name}


def _lines(frame: pd.DataFrame) -> list[dict[str, Any]]:
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in line.items()} for line in plain.to_dict("records")]
