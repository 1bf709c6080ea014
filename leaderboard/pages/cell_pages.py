"""One page a cell: what was asked, what is proven, all scores, figures, and how to make it again.

Whatever was computed from rows that not everybody may have is marked `internal`. A public site
leaves it out, and says so; keys and fingerprints, which are hashes over such rows, go with it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

import pandas as pd
from markupsafe import Markup

from bench.data.schema import Task
from bench.leaderboard.charts.cell_figures import figures
from bench.leaderboard.pages import cell_release, cell_scores, links, shell, show
from bench.leaderboard.pages.cell_release import Grid
from bench.leaderboard.pages.shell import Page
from bench.leaderboard.ranking.rank import WITHHELD, is_sound
from bench.leaderboard.tables.about import identity_of
from bench.leaderboard.tables.board import Board
from bench.leaderboard.tables.details import Files, NoSuchFile, Unavailable, shortened
from bench.leaderboard.tables.load import GROUP, load_results, records
from bench.results.records import CellRow, ScoreRow, Status
from bench.results.reproduce import Repeat, json_object, repeat

_LONGEST_LOG = 20_000
_LONGEST_REASON = 4_000
_LONGEST_COMMAND = 20_000


@final
@dataclass(frozen=True)
class Sibling:
    """The same with another seed."""

    seed: int
    path: str


@final
@dataclass(frozen=True)
class Access:
    """Who may see what of a cell."""

    public: bool
    closed: bool
    """Not everybody may have the rows."""
    withheld: bool
    """Left out for that reason."""

    @property
    def internal(self) -> bool:
        """To be marked."""
        return self.closed and not self.withheld


@final
@dataclass(frozen=True)
class Download:
    """The released rows beside the page, or why they are not there."""

    path: str
    content: bytes
    reason: str

    @property
    def kilobytes(self) -> str:
        """Size, in words."""
        return f"{max(1, len(self.content) // 1024):,} kB"


def pages(board: Board) -> Iterator[Page]:
    """One page a cell, and its release as a table where that is allowed and small."""
    cells = board.results.cells[board.results.cells["key"].isin(board.cell_pages)]
    scores = _scores(board)
    folders = _folders(board)
    siblings = _siblings(cells, board.cell_pages)
    for cell in records(cells):
        yield from _pages(board, cell, scores.get(cell["key"], ()), folders, siblings)


def _pages(
    board: Board,
    cell: Mapping[str, Any],
    scores: Sequence[ScoreRow],
    folders: Mapping[str, str],
    siblings: Mapping[str, tuple[Sibling, ...]],
) -> Iterator[Page]:
    row, path = _row(cell), board.cell_pages[cell["key"]]
    home = board.results.homes.get(row.key)
    closed = (
        bool(cell[WITHHELD])
        if WITHHELD in cell
        else not board.about.is_open(home, identity_of(cell))
    )
    access = Access(board.public, closed, board.public and closed)
    files = Files(home, folders.get(row.key, ""))
    asked = tuple(json_object(row.metrics))
    finished = row.status == Status.OK.value
    drawn = figures(files, row.task, scores, asked) if finished and not access.withheld else ()
    download = _download(row, access, files, path)
    repeated = repeat(row)
    yield shell.page(
        path,
        "cell.html",
        cell_style=Markup(shell.asset("cell.css")),
        row=row,
        entrant=cell["entrant"],
        cohort=cell["cohort"],
        size=cell["size"],
        access=access,
        kind=_kind(row.verdict),
        reason=_text(row.reason, access),
        warnings=[text for text in _text(row.warnings, access).split("; ") if text],
        log=_end(row.log_tail) if not board.public else "",
        method_page=links.method_path(cell["entrant"]),
        dataset_page=links.dataset_path(cell["cohort"]),
        siblings=siblings.get(row.key, ()),
        blocks=() if access.withheld else cell_scores.blocks(scores),
        absences=() if access.withheld else cell_scores.absences(scores),
        figures=[figure for figure in drawn if figure.drawn is not None],
        missing=[figure for figure in drawn if figure.drawn is None],
        grid=_grid(row, access, files),
        download=download,
        repeated=Repeat(
            _written(repeated.command, _LONGEST_COMMAND),
            _written(repeated.grid, _LONGEST_COMMAND),
        ),
        dossier=_dossier(board, row, home, cell["size"]),
        facts=_facts(row, access),
        cost=() if access.withheld else _cost(row),
    )
    if download.content:
        yield Page(download.path, download.content)


_KINDS: Mapping[str, Callable[[Any], Any]] = {"str": str, "int": int, "float": float, "bool": bool}


def _row(cell: Mapping[str, Any]) -> CellRow:
    """The record of the table; what is absent there is None."""
    values: dict[str, Any] = {}
    for item in fields(CellRow):
        kind = str(item.type)
        absent = kind.endswith("| None") and pd.isna(cell[item.name])
        read = _KINDS[kind.removesuffix(" | None")]
        values[item.name] = None if absent else read(cell[item.name])
    return CellRow(**values)


def _scores(board: Board) -> dict[str, list[ScoreRow]]:
    scores = board.results.scores
    names = [item.name for item in fields(ScoreRow)]
    found: dict[str, list[ScoreRow]] = {}
    for score in records(scores.loc[scores["key"].isin(board.cell_pages), names]):
        for name in ("value", "low", "high", "limit"):
            if pd.isna(score[name]):
                score[name] = None
        found.setdefault(score["key"], []).append(ScoreRow(**score))
    return found


def _folders(board: Board) -> dict[str, str]:
    """Where the files of a cell are. A public site has other keys: the tables know the folder."""
    shown = board.results.cells["key"]
    if not board.public:
        return dict(zip(shown, shown, strict=True))
    original = load_results(board.results.directories).cells["key"]
    return dict(zip(shown, original, strict=True)) if len(original) == len(shown) else {}


def _siblings(cells: pd.DataFrame, paths: Mapping[str, str]) -> dict[str, tuple[Sibling, ...]]:
    found: dict[str, tuple[Sibling, ...]] = {}
    for _, own in cells.groupby(["entrant", *GROUP], dropna=False, sort=False):
        keys = list(zip(own["key"], own["seed"], strict=True))
        for key, _ in keys:
            found[key] = tuple(
                Sibling(int(seed), paths[other]) for other, seed in keys if other != key
            )
    return found


def _kind(verdict: str) -> str:
    """The verdict without the library it trusts: a class of the style sheet."""
    return "-".join(verdict.split(" ")[:2]).replace(",", "") if verdict else "none"


def _text(text: str, access: Access) -> str:
    return "" if access.withheld else shortened(text, _LONGEST_REASON)


def _end(log: str) -> str:
    return log if len(log) <= _LONGEST_LOG else f"…{log[-_LONGEST_LOG:]}"


def _download(row: CellRow, access: Access, files: Files, page: str) -> Download:
    path = f"{page.removesuffix('.html')}.csv"
    if row.status != Status.OK.value:
        return Download(path, b"", "the cell did not finish")
    if access.public and row.study_only:
        reason = "left out of a public site: its noise is seeded, and can be subtracted"
        return Download(path, b"", reason)
    if access.public and not is_sound(row.verdict):
        return Download(path, b"", "left out of a public site: nothing proves it private")
    try:
        return Download(path, cell_release.as_csv(files), "")
    except (Unavailable, NoSuchFile) as problem:
        return Download(path, b"", str(problem))


def _grid(row: CellRow, access: Access, files: Files) -> Grid | str:
    """Released images, or why there are none; nothing for tables."""
    if row.task != Task.IMAGE.value or row.status != Status.OK.value:
        return ""
    if access.public and (row.study_only or not is_sound(row.verdict)):
        return "left out of a public site, as the release is"
    try:
        return cell_release.image_grid(files)
    except (Unavailable, NoSuchFile) as problem:
        return str(problem)


def _dossier(board: Board, row: CellRow, home: Path | None, size: str) -> str:
    """The command that writes the dossier; by name where keys are not shown."""
    if home is None or row.status != Status.OK.value:
        return ""
    cell = row.key
    if board.public:
        target = "*" if row.eps_target is None else f"{row.eps_target:g}"
        cell = f"{row.label}/{row.dataset}/{target}/{'*' if size == 'own' else size}/{row.seed}"
    public = ["--public"] if board.public else []
    return shortened(shlex.join(["bench", "dossier", home.name, cell, *public]), _LONGEST_REASON)


def _facts(row: CellRow, access: Access) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {version}" for name, version in json_object(row.versions).items())
    found = [
        ("Method", f"{row.method} {_parameters(row.parameters)}"),
        ("Dataset", f"{row.dataset_name or row.dataset} {_parameters(row.dataset_parameters)}"),
        ("Split", f"{row.split}, seed {row.split_seed}"),
        ("Finished", row.finished_at),
    ]
    if not access.withheld:
        notes = json_object(row.notes).items()
        found += [(f"The method says: {name}", str(value)) for name, value in notes]
    found += [("Versions", versions), ("Hash of the method's source", row.source_hash)]
    if not access.public:
        found += [("Fingerprint of the data", row.fingerprint), ("Key", row.key)]
    return [(_written(name, 120), _written(text, _LONGEST_REASON)) for name, text in found]


def _written(text: str, most: int) -> str:
    """Half of a surrogate pair is a character in JSON and none in a file."""
    return shortened(text, most).encode("utf-8", "replace").decode()


def _parameters(document: str) -> str:
    given = json_object(document)
    shown = ", ".join(f"{name} = {value}" for name, value in given.items())
    return f"({shown})" if given else ""


def _cost(row: CellRow) -> tuple[tuple[str, str], ...]:
    return (
        ("Fit", f"{show.seconds(row.fit_seconds)} s"),
        ("Scores", f"{show.seconds(row.score_seconds)} s"),
        ("Peak memory", f"{show.whole(row.peak_memory_mb)} MB"),
    )
