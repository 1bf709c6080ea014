"""What makes a site that of a published version: answers first, what changed, downloads, citation.

A site of exactly one directory of published results is such a site. Everything here follows from
that directory; what changed follows from it and the version before, where that lies beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from bench.errors import BenchError
from bench.leaderboard.pages.board import Board
from bench.leaderboard.ranking.answers import Answer, answers
from bench.leaderboard.ranking.changes import find_changes, to_text
from bench.leaderboard.tables.load import load_results
from bench.leaderboard.tables.published import before
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page
from bench.results.opening import read_bytes
from bench.results.published import FILES, LOG, Version, check_published, version_of

CHANGES = "changes.html"
CITE = "cite.html"
DOWNLOADS = "results"
"""Folder of the site with the files of the version."""
SOFTWARE = "dp-release-bench"


@final
@dataclass(frozen=True)
class Download:
    """One file of the version."""

    path: str
    name: str
    size: int
    text: str


_MEANING = {
    "cells.parquet": "one row per cell: method, dataset, epsilons, verdict, seconds, versions, "
    "hashes; audits too",
    "scores.parquet": "one row per cell and metric, with intervals",
    "timings.parquet": "wall and processor seconds of each step",
    "audits.parquet": "numbers of the audits",
    "ledgers.parquet": "the ledgers behind the proven epsilons",
    "about.json": "descriptions of methods and datasets",
    "run.json": "version, and what was computed where",
    LOG: "machine, dates, versions, failures with reasons, core-hours",
}


@final
@dataclass(frozen=True)
class Edition:
    """One published version, for its pages."""

    version: Version
    answers: tuple[Answer, ...]
    previous: str
    """Name of the version before; empty for the first."""
    changes: str
    """What changed since, as text; empty for the first."""
    downloads: tuple[Download, ...]
    commits: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the name of the version."""
        return self.version.version

    @property
    def key(self) -> str:
        """Return the key of the version in a bibliography."""
        return f"{SOFTWARE}-{self.name}".replace("-", "_").replace(".", "_")


def edition(run_directories: Sequence[Path], board: Board) -> Edition | None:
    """Return the version that a site is about; None for a site of other runs."""
    if len(run_directories) != 1:
        return None
    directory = Path(run_directories[0])
    # A directory that holds tables alone, a copy for others, has no `run.json`.
    if not (directory / "run.json").is_file() or version_of(directory) is None:
        return None
    version = check_published(directory)
    older = before(directory)
    return Edition(
        version=version,
        answers=answers(board.results, board.rows, board.places, alpha=board.alpha),
        previous="" if older is None else older.name,
        changes="" if older is None else _changes(older, directory, board.alpha),
        downloads=tuple(_downloads(directory)),
        commits=tuple(dict.fromkeys(one.commit[:12] for one in version.slices if one.commit)),
    )


def _changes(older: Path, newer: Path, alpha: float) -> str:
    try:
        return to_text(find_changes(load_results([older]), load_results([newer]), alpha))
    except BenchError as problem:
        return f"The two versions cannot be compared: {problem}"


def _downloads(directory: Path) -> Iterator[Download]:
    for name in FILES:
        content = read_bytes(directory, name)
        if content is not None:
            yield Download(f"{DOWNLOADS}/{name}", name, len(content), _MEANING[name])


def pages(directory: Path, found: Edition) -> Iterator[Page]:
    """Yield the files of the version, and the pages on changes and citing."""
    for download in found.downloads:
        yield Page(download.path, read_bytes(directory, download.name) or b"")
    yield rendering.page(CITE, "cite.html", edition=found)
    if found.previous:
        yield rendering.page(CHANGES, "changes.html", edition=found)
