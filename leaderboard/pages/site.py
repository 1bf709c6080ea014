"""Writes the leaderboard: a static site that needs no network, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from bench.leaderboard.charts import sheet
from bench.leaderboard.charts.chart import library
from bench.leaderboard.export import latex
from bench.leaderboard.export import tables as export
from bench.leaderboard.pages import card_pages, cell_pages, edition, front, plots_page
from bench.leaderboard.pages.board import Board, Note, compile_board
from bench.leaderboard.ranking.paired import PairedTests
from bench.leaderboard.tables.about import identity_of
from bench.leaderboard.tables.load import records
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page

CELL_PAGES = 200
"""Default number of cells that get a page."""


@final
@dataclass(frozen=True)
class SiteSummary:
    """Summary of a written site."""

    paths: tuple[Path, ...]
    cells: int
    methods: int
    datasets: int
    failed: int
    """Number of cells that ended in an error, a timeout or out of memory."""
    skipped: int
    warnings: tuple[str, ...] = ()
    """What whoever compiled the site should know: results that were altered or lack a ledger."""


def write_site(
    run_directories: Sequence[Path],
    output: Path,
    alpha: float = 0.05,
    *,
    public: bool = False,
    cells: int = CELL_PAGES,
    paired: PairedTests | None = None,
    notes: Sequence[Note] = (),
) -> SiteSummary:
    """Compile the tables of the runs into `output`; everything is computed before it is written.

    Tests are at level `alpha`. A `public` site leaves out what was computed from private rows; any
    other site that holds some of that can be read by its owner only. At most `cells` cells get a
    page. `paired` are the tests over test rows of a run with one dataset; `notes` are added to
    those at the top.
    """
    board = compile_board(run_directories, alpha, public=public, cells=cells, paired=paired)
    board = replace(board, notes=(*board.notes, *notes))
    return SiteSummary(
        paths=rendering.write(
            Path(output), tuple(_pages(board, run_directories)), private=_is_private(board)
        ),
        cells=board.counts.cells,
        methods=int(board.results.cells["shown_label"].nunique()),
        datasets=int(board.results.cells["shown_dataset"].nunique()),
        failed=board.counts.failed,
        skipped=board.counts.skipped,
        warnings=tuple(f"{note.title} {note.text}" for note in board.notes if note.warning),
    )


def _is_private(board: Board) -> bool:
    """Return True for a site with numbers that were computed from rows that are not public."""
    if board.public:
        return False
    homes, about = board.results.homes, board.about
    return not all(
        about.is_open(homes.get(cell["key"]), identity_of(cell))
        for cell in records(board.results.cells)
    )


def _pages(board: Board, run_directories: Sequence[Path]) -> Iterator[Page]:
    version = edition.edition(run_directories, board)
    yield from front.pages(board, version)
    if version is not None:
        yield from edition.pages(Path(run_directories[0]), version)
    yield from plots_page.pages(board)
    yield from card_pages.method_pages(board)
    yield from card_pages.dataset_pages(board)
    yield from cell_pages.pages(board)
    yield Page(sheet.LIBRARY, library())
    notes = [f"{note.title} {note.text}" for note in board.notes]
    markdown = export.to_markdown(board.rows, board.standings, board.comparisons, notes)
    yield Page("leaderboard.csv", export.to_csv(board.rows).encode())
    yield Page("leaderboard.parquet", export.to_parquet(board.rows))
    yield Page("leaderboard.md", markdown.encode())
    yield Page("leaderboard.tex", latex.to_latex(board.rows, board.alpha).encode())
