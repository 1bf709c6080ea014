"""Puts a run beside the published methods, without computing them again.

Results may stand beside each other where the rows of the dataset, their split, the size, epsilon,
delta and setting, and the code of the metrics are the same. The published cells of which that is
true are written as a small directory of published results, which the leaderboard compiles together
with the run. Everything else is left out, and what does not agree is named.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from bench.errors import UnknownNameError
from bench.plugins import registry
from bench.results import published
from bench.results.records import ipc_text

if TYPE_CHECKING:
    import pandas as pd

_DATASET = ("dataset_name", "dataset_parameters")
_SPLIT = ("split", "split_seed")
_SIZE = ("ipc", "full_size")
_SETTING = ("delta", "private_counts", "study_only")
_HASHED = "fingerprint"


@final
@dataclass(frozen=True)
class Beside:
    """Published results that may stand beside a run."""

    version: str
    directory: Path
    cells: int
    left_out: int
    """Published cells that are of no concern to the run, or do not agree with it."""
    named: tuple[str, ...]
    """What does not agree, in sentences."""


@contextlib.contextmanager
def beside(runs: Sequence[Path], directory: Path) -> Iterator[Beside]:
    """Give the published cells that agree with the runs, in a folder that exists meanwhile."""
    import pandas as pd

    version = published.check_published(directory)
    all_of_it = published.compact(directory)
    mine = pd.concat([published.compact(run).cells for run in runs], ignore_index=True)
    named: list[str] = []
    cells = all_of_it.cells
    theirs = cells[_agreeing(mine[mine["attack"] == ""], cells, named)]
    theirs = theirs[_same_code(mine, theirs, named)]
    kept = all_of_it.only(list(theirs["key"]))
    kept.scores = _same_metrics(mine, kept, named)
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


def _same_metrics(mine: pd.DataFrame, theirs: published.Compact, named: list[str]) -> pd.DataFrame:
    """Return the published scores of metrics whose code is that of the run.

    A metric that the run does not have says nothing about it, and stays.
    """
    hashes: dict[str, set[str]] = {}
    for text in mine["metrics"].unique():
        for name, digest in json.loads(text).items():
            hashes.setdefault(name, set()).add(digest)
    outdated: dict[str, set[str]] = {}
    for key, text in zip(theirs.cells["key"], theirs.cells["metrics"], strict=True):
        for name, digest in json.loads(text).items():
            if name in hashes and hashes[name] != {digest}:
                outdated.setdefault(name, set()).add(key)
    scores = theirs.scores
    for name, keys in sorted(outdated.items()):
        gone = scores["metric"].isin(_outputs(name, scores)) & scores["key"].isin(keys)
        scores = scores[~gone]
        named.append(
            f"metric {name} has other code than published: its published scores are left out "
            f"(score the run with the code of that version, or wait for the next)"
        )
    return scores.reset_index(drop=True)


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
