"""Everything that the pages show, computed once before any page is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pandas as pd

from bench.leaderboard.charts import gallery
from bench.leaderboard.charts.panels import MethodStyle, styles
from bench.leaderboard.ranking.paired import PairedTests
from bench.leaderboard.ranking.quantities import Standing, standings
from bench.leaderboard.ranking.rank import ranking_table
from bench.leaderboard.ranking.rows import Row, aggregate
from bench.leaderboard.ranking.significance import RankComparison, UncomparedMethod, compare
from bench.leaderboard.tables.about import About, mark_tuned, read_about
from bench.leaderboard.tables.load import GROUP, WITHHELD, Results, load_results
from bench.leaderboard.tables.public import redact
from bench.leaderboard.tables.show import ipc_order, plural
from bench.leaderboard.templates import rendering
from bench.results.records import Status


@final
@dataclass(frozen=True)
class CellCounts:
    """Number of cells by status."""

    cells: int
    ok: int
    failed: int
    skipped: int
    study_only: int


@final
@dataclass(frozen=True)
class Note:
    """A note at the top of the pages."""

    title: str
    text: str
    study_only: bool = False
    warning: bool = False
    """True for what the command says as well."""
    short: str = ""
    """What the line at the top says; the title where it is empty."""

    @property
    def line(self) -> str:
        """The note in a few words."""
        return self.short or self.title.removesuffix(".")


@final
@dataclass(frozen=True)
class Unranked:
    """A method without any rank, and the reasons."""

    label: str
    reference: str
    reasons: tuple[str, ...]


@final
@dataclass(frozen=True)
class Incident:
    """Cells of one method and dataset that ended the same way and were not ok."""

    label: str
    dataset: str
    status: str
    reason: str
    cells: int
    ipcs: tuple[str, ...]
    targets: tuple[float, ...]
    seeds: tuple[int, ...]
    key: str


@final
@dataclass(frozen=True)
class CellLink:
    """The page of one cell."""

    seed: int
    path: str


@final
@dataclass(frozen=True)
class Board:
    """Contents of one site."""

    results: Results
    rows: tuple[Row, ...]
    places: pd.DataFrame
    standings: tuple[Standing, ...]
    """Ranked methods, best first."""
    unranked: tuple[Unranked, ...]
    incidents: tuple[Incident, ...]
    comparisons: tuple[RankComparison, ...]
    """Tests of who is better, the one with the most results first."""
    uncompared: tuple[UncomparedMethod, ...]
    """Ranked methods that are in no comparison."""
    paired: PairedTests | None
    """Paired tests over the test rows, where there is one dataset; otherwise None."""
    counts: CellCounts
    notes: tuple[Note, ...]
    styles: Mapping[str, MethodStyle]
    """Colour and marker of each method, on every page the same."""
    about: About
    """Cards of methods and datasets of the runs."""
    alpha: float
    public: bool
    omitted: tuple[str, ...]
    """What a public site leaves out, in words; empty for an internal site."""
    cell_pages: Mapping[str, str]
    """Path of the page of each cell that has one, by the cell's key."""


def compile_board(
    run_directories: Sequence[Path],
    alpha: float = 0.05,
    *,
    public: bool = False,
    cells: int = 200,
    paired: PairedTests | None = None,
) -> Board:
    """Load, redact if the site is public, aggregate, rank and test.

    Tests are at level `alpha`; at most `cells` cells get a page. `paired` are the tests over test
    rows of a run with one dataset, which `bench compare` computes; they are left out where the
    scores of that dataset are.
    """
    directories = [Path(directory) for directory in run_directories]
    results = load_results(directories)
    about = read_about(results)
    results = mark_tuned(results, about)
    omitted: tuple[str, ...] = ()
    if public:
        results, omitted = redact(results, about)
    rows, places = aggregate(results)
    counts = _counts(results.cells)
    chosen = chosen_cells(results, cells)
    table = ranking_table(results.cells, results.scores)
    comparisons, uncompared = compare(table, alpha)
    reference = {row.label: row.reference for row in rows}
    return Board(
        results=results,
        rows=rows,
        places=places,
        standings=standings(places, rows, alpha),
        unranked=_unranked(places, reference),
        incidents=_incidents(rows),
        comparisons=comparisons,
        uncompared=uncompared,
        paired=None if WITHHELD in results.cells and results.cells[WITHHELD].any() else paired,
        counts=counts,
        notes=_notes(results, counts, omitted, len(chosen)),
        styles=styles(rows),
        about=about,
        alpha=alpha,
        public=public,
        omitted=omitted,
        cell_pages={key: rendering.cell_path(key) for key in chosen},
    )


def chart_results(run_directories: Sequence[Path], *, public: bool = False) -> gallery.Results:
    """Return what the charts over all results of these runs are drawn from."""
    board = compile_board(run_directories, public=public, cells=0)
    return gallery.Results(board.rows, board.styles, board.comparisons)


def _counts(cells: pd.DataFrame) -> CellCounts:
    ok = int((cells["status"] == Status.OK.value).sum())
    skipped = int((cells["status"] == Status.SKIPPED.value).sum())
    return CellCounts(
        cells=len(cells),
        ok=ok,
        failed=len(cells) - ok - skipped,
        skipped=skipped,
        study_only=int(cells["study_only"].astype(bool).sum()),
    )


def _notes(
    results: Results, counts: CellCounts, omitted: Sequence[str], pages: int
) -> tuple[Note, ...]:
    notes = []
    all_cells = plural(counts.cells, "cell")
    if results.unfinished:
        text = f"{' '.join(results.unfinished)} Compile the site again for the others."
        far = " ".join(results.unfinished)
        notes.append(Note("Not complete.", text, warning=True, short=far))
    if counts.study_only:
        every = counts.study_only == counts.cells
        some = f"{counts.study_only} of {all_cells}"
        which = "All cells" if every else some
        notes.append(
            Note(
                "Study only.",
                f"{which} used seeded noise, so that they can be repeated: anyone who knows the "
                "seed and the code can compute the noise and subtract it. No conclusion about "
                "publishing a release may be drawn from them.",
                study_only=True,
            )
        )
    if results.tampered:
        text = (
            f"The stored results of {results.tampered} of {all_cells} contradict "
            "each other: a row, its ledger or a file of the release was changed. Their reasons say "
            "which; nothing about them counts as proven."
        )
        notes.append(Note("Tampered.", text, warning=True))
    if results.without_ledger:
        text = (
            f"{results.without_ledger} of {all_cells} are called sound by their table, but have no "
            "ledger that could be accounted again: they are shown as unproven. A copy "
            "of a run needs releases/*/ledger.json, which holds no rows."
        )
        notes.append(Note("No ledger.", text, warning=True))
    if results.replaced:
        text = f"Left out: {plural(results.replaced, 'older result')} of cells that were run again."
        notes.append(Note("Repeated cells.", text))
    if results.unclaimed:
        text = f"Left out: {plural(results.unclaimed, 'score')} without a cell."
        notes.append(Note("Orphaned scores.", text))
    if omitted:
        notes.append(Note("Public page.", f"Left out: {'; '.join(omitted)}."))
    if pages < counts.cells:
        text = f"{pages} of {all_cells} have a page; use --cells for more."
        notes.append(Note("Cell pages.", text))
    return tuple(notes)


def _unranked(places: pd.DataFrame, reference: dict[str, str]) -> tuple[Unranked, ...]:
    ranked = set(places.loc[places["rank"].notna(), "shown_label"])
    others = places[~places["shown_label"].isin(ranked)]
    return tuple(
        Unranked(str(label), reference[str(label)], tuple(group["reason"].unique()))
        for label, group in others.groupby("shown_label")
    )


def _incidents(rows: Sequence[Row]) -> tuple[Incident, ...]:
    alike: dict[tuple[str, str, str, str], list[tuple[Row, Any]]] = {}
    for row in rows:
        for problem in row.problems:
            name = (row.label, row.dataset, problem.status, problem.reason)
            alike.setdefault(name, []).append((row, problem))
    incidents = []
    for (label, dataset, status, reason), members in alike.items():
        targets = {row.epsilons.target for row, _ in members if row.epsilons.target is not None}
        incidents.append(
            Incident(
                label=label,
                dataset=dataset,
                status=status,
                reason=reason,
                cells=sum(len(problem.seeds) for _, problem in members),
                ipcs=tuple(sorted({row.ipc for row, _ in members}, key=ipc_order)),
                targets=tuple(sorted(targets)),
                seeds=tuple(sorted({seed for _, problem in members for seed in problem.seeds})),
                key=members[0][1].key,
            )
        )
    # Failures need attention; skipped cells are expected.
    order = sorted(incidents, key=lambda item: (item.status == Status.SKIPPED.value, item.label))
    return tuple(order)


def chosen_cells(results: Results, limit: int) -> tuple[str, ...]:
    """Return the keys of at most `limit` cells: one seed of every row first, then the next."""
    cells = results.cells
    turn = cells.groupby(["shown_label", *GROUP], dropna=False, sort=False).cumcount()
    ordered = cells.assign(turn=turn).sort_values("turn", kind="stable")
    return tuple(ordered["key"].iloc[:limit])
