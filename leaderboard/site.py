"""Writes the leaderboard: a static page that needs no network, and the same as tables."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from bench.core.errors import StoreError
from bench.core.result import Status
from bench.leaderboard import export, latex, plots, show
from bench.leaderboard.aggregate import Row, aggregate, size_order
from bench.leaderboard.critical_difference import diagram
from bench.leaderboard.load import Results, load_results
from bench.leaderboard.rank import REFERENCES, mean_ranks, ranking_table
from bench.leaderboard.significance import Absent, Comparison, compare


@final
@dataclass(frozen=True)
class SiteSummary:
    """What was written, and from how much."""

    paths: tuple[Path, ...]
    cells: int
    methods: int
    datasets: int
    failed: int
    """Cells that ended in an error, out of time or out of memory."""
    skipped: int


@final
@dataclass(frozen=True)
class Counts:
    """How the cells ended."""

    cells: int
    ok: int
    failed: int
    skipped: int
    study_only: int


@final
@dataclass(frozen=True)
class Note:
    """Something to know before reading any number."""

    title: str
    text: str
    study_only: bool = False


@final
@dataclass(frozen=True)
class Column:
    """A metric beside the headline."""

    metric: str
    direction: str
    family: str


@final
@dataclass(frozen=True)
class Standing:
    """A line of the overall ranking."""

    entrant: str
    reference: str
    mean_rank: float
    entrants: float
    beaten: float
    datasets: int
    groups: int
    cells: int
    failing: int


@final
@dataclass(frozen=True)
class Unranked:
    """A method without any rank, and why."""

    entrant: str
    reference: str
    reasons: tuple[str, ...]


@final
@dataclass(frozen=True)
class Incident:
    """Cells of one method and dataset that ended the same way and were not ok."""

    entrant: str
    cohort: str
    status: str
    reason: str
    cells: int
    sizes: tuple[str, ...]
    targets: tuple[float, ...]
    seeds: tuple[int, ...]
    key: str


@final
@dataclass(frozen=True)
class Findings:
    """What can be told apart, and who takes no part in that."""

    comparisons: tuple[Comparison, ...]
    absent: tuple[Absent, ...]


def write_site(
    run_directories: Sequence[Path], output: Path, alpha: float = 0.05, seed: int = 0
) -> SiteSummary:
    """Compile the tables of the runs into `output`; all is computed before anything is written.

    Tests are at level `alpha`; `seed` draws the blocks of the bootstrap.
    """
    results = load_results([Path(directory) for directory in run_directories])
    rows, places = aggregate(results)
    standings = mean_ranks(places)
    counts = _counts(results.cells)
    notes = _notes(results, counts)
    table = ranking_table(results.cells, results.scores)
    found = Findings(*compare(table, np.random.default_rng(seed), alpha))
    markdown = export.to_markdown(
        rows, standings, found.comparisons, [f"{note.title} {note.text}" for note in notes]
    )
    files = {
        "index.html": _page(results, rows, places, standings, found, counts, notes).encode(),
        "leaderboard.csv": export.to_csv(rows).encode(),
        "leaderboard.parquet": export.to_parquet(rows),
        "leaderboard.md": markdown.encode(),
        "leaderboard.tex": latex.to_latex(rows, alpha).encode(),
    }
    return SiteSummary(
        paths=_write(Path(output), files),
        cells=counts.cells,
        methods=int(results.cells["entrant"].nunique()),
        datasets=int(results.cells["cohort"].nunique()),
        failed=counts.failed,
        skipped=counts.skipped,
    )


def _write(output: Path, files: dict[str, bytes]) -> tuple[Path, ...]:
    """Each file under another name first: a reader sees the old or the new one, nothing between."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        waiting = []
        for name, content in files.items():
            temporary = output / f".{name}.part"
            temporary.write_bytes(content)
            waiting.append((temporary, output / name))
        for temporary, path in waiting:
            os.replace(temporary, path)
    except OSError as problem:
        raise StoreError(
            f"{output}: the leaderboard cannot be written there ({problem}); give another folder"
        ) from None
    return tuple(path for _, path in waiting)


def _counts(cells: pd.DataFrame) -> Counts:
    ok = int((cells["status"] == Status.OK.value).sum())
    skipped = int((cells["status"] == Status.SKIPPED.value).sum())
    return Counts(
        cells=len(cells),
        ok=ok,
        failed=len(cells) - ok - skipped,
        skipped=skipped,
        study_only=int(cells["study_only"].astype(bool).sum()),
    )


def _notes(results: Results, counts: Counts) -> tuple[Note, ...]:
    notes = []
    if counts.study_only:
        every = counts.study_only == counts.cells
        which = "All cells" if every else f"{counts.study_only} of {counts.cells} cells"
        notes.append(
            Note(
                "Study only.",
                f"{which} used seeded noise, so that they can be repeated: whoever knows seed and "
                "code can compute that noise and subtract it. No conclusion about letting a "
                "release out may be drawn from them.",
                study_only=True,
            )
        )
    if results.replaced:
        text = f"{results.replaced} older results of cells that were run again are left out."
        notes.append(Note("Run again.", text))
    if results.unclaimed:
        text = f"{results.unclaimed} scores belong to no cell and are left out."
        notes.append(Note("Without a cell.", text))
    return tuple(notes)


def _page(
    results: Results,
    rows: Sequence[Row],
    places: pd.DataFrame,
    standings: pd.DataFrame,
    found: Findings,
    counts: Counts,
    notes: Sequence[Note],
) -> str:
    environment = _environment()
    used = plots.styles(rows)
    script = _asset(environment, "page.js")
    finished = [text for text in results.cells["finished_at"] if text]
    reference = {row.entrant: row.reference for row in rows}
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("index.html").render(
        style=Markup(_asset(environment, "page.css")),
        script=Markup(script),
        script_digest=digest,
        runs=results.runs,
        counts=counts,
        notes=notes,
        last_finished=max(finished, default=""),
        rows=rows,
        columns=_metric_columns(rows),
        standings=_standings(standings, reference),
        comparisons=[(result, diagram(result, used)) for result in found.comparisons],
        absent_entrants=found.absent,
        datasets=sorted({row.cohort for row in rows}),
        methods=sorted({row.entrant for row in rows}),
        sizes=sorted({row.size for row in rows}, key=size_order),
        targets=sorted({row.epsilons.target for row in rows if row.epsilons.target is not None}),
        verdicts=sorted({row.verdict_kind for row in rows}),
        unranked=_unranked(places, reference),
        incidents=_incidents(rows),
        figures=plots.figures(rows, used),
        legend=plots.legend(rows, used),
        references=REFERENCES,
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bench.leaderboard", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("number", "whole", "seconds", "epsilon", "epsilon_span", "whole_span"):
        environment.filters[name] = getattr(show, name)
    for name in ("interval", "spread", "size", "sizes", "arrow", "better", "seeds"):
        environment.filters[name] = getattr(show, name)
    environment.globals["place"] = show.place
    environment.globals["absent"] = show.ABSENT
    return environment


def _asset(environment: jinja2.Environment, name: str) -> str:
    if environment.loader is None:
        raise TypeError("the template environment has no loader")
    return environment.loader.get_source(environment, name)[0]


def _metric_columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    known = {m.metric: m for row in rows for m in row.measures.values()}
    names = export.metric_names(rows, beside_headlines=True)
    return tuple(Column(name, known[name].direction, known[name].family) for name in names)


def _standings(standings: pd.DataFrame, reference: dict[str, str]) -> tuple[Standing, ...]:
    return tuple(
        Standing(
            entrant=record["entrant"],
            reference=reference[record["entrant"]],
            mean_rank=float(record["mean_rank"]),
            entrants=float(record["entrants"]),
            beaten=float(record["beaten"]),
            datasets=int(record["datasets"]),
            groups=int(record["groups"]),
            cells=int(record["cells"]),
            failing=int(record["failing"]),
        )
        for record in standings.to_dict("records")
    )


def _unranked(places: pd.DataFrame, reference: dict[str, str]) -> tuple[Unranked, ...]:
    ranked = set(places.loc[places["rank"].notna(), "entrant"])
    others = places[~places["entrant"].isin(ranked)]
    return tuple(
        Unranked(str(entrant), reference[str(entrant)], tuple(own["reason"].unique()))
        for entrant, own in others.groupby("entrant")
    )


def _incidents(rows: Sequence[Row]) -> tuple[Incident, ...]:
    alike: dict[tuple[str, str, str, str], list[tuple[Row, Any]]] = {}
    for row in rows:
        for problem in row.problems:
            name = (row.entrant, row.cohort, problem.status, problem.reason)
            alike.setdefault(name, []).append((row, problem))
    found = []
    for (entrant, cohort, status, reason), own in alike.items():
        targets = {row.epsilons.target for row, _ in own if row.epsilons.target is not None}
        found.append(
            Incident(
                entrant=entrant,
                cohort=cohort,
                status=status,
                reason=reason,
                cells=sum(len(problem.seeds) for _, problem in own),
                sizes=tuple(sorted({row.size for row, _ in own}, key=size_order)),
                targets=tuple(sorted(targets)),
                seeds=tuple(sorted({seed for _, problem in own for seed in problem.seeds})),
                key=own[0][1].key,
            )
        )
    # What failed needs somebody's attention; what was skipped is as it should be.
    order = sorted(found, key=lambda item: (item.status == Status.SKIPPED.value, item.entrant))
    return tuple(order)
