"""`bench leaderboard`, `bench dossier` and `bench plot`: pages and figures of run directories."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli import options as shared
from bench.errors import BenchError, one_line, shortened
from bench.results.records import Status

if TYPE_CHECKING:
    import pandas as pd

    from bench.leaderboard.pages.board import Note
    from bench.leaderboard.ranking.paired import PairedTests
    from bench.leaderboard.tables.load import Results


def _count_or_all(_: click.Context, __: click.Parameter, value: str) -> int:
    """Read a number, `all` or `none`; `all` is more than any run has."""
    if value in ("all", "none"):
        return sys.maxsize if value == "all" else 0
    if not (value.isascii() and value.isdecimal()):
        raise click.BadParameter(f"{shortened(value)} is not a number, `all` or `none`")
    # More digits than fit into an index are more than any run has.
    return int(value) if len(value) < len(str(sys.maxsize)) else sys.maxsize


@click.command()
@click.argument("runs", nargs=-1, required=True, type=shared.PATH)
@click.option("-o", "--output", type=shared.PATH, help="Folder of the site.")
@click.option(
    "--check",
    type=shared.PATH,
    metavar="OLD",
    help="Compare with this older run: exit code 1 for a significant loss, a changed verdict or a "
    "cell that no longer finishes.",
)
@click.option(
    "--with",
    "beside",
    metavar="published|VERSION|DIR",
    help="Show the runs among published results, where these agree; what does not is named.",
)
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=shared.FiniteRange(0, 1, min_open=True, max_open=True),
    help="Level of all tests.",
)
@click.option(
    "--public",
    is_flag=True,
    help="Leave out what was computed from private rows, and list what was left out.",
)
@click.option(
    "--cells",
    default="200",
    show_default=True,
    metavar="N|all|none",
    callback=_count_or_all,
    help="How many cells get their own page.",
)
def leaderboard(
    runs: tuple[Path, ...],
    output: Path | None,
    check: Path | None,
    beside: str | None,
    alpha: float,
    public: bool,
    cells: int,
) -> None:
    """Compile run directories into a static site and tables, or compare them with an older run.

    `published` stands for the newest published version, `2026.11` for that one.

    A check fails if a headline score got significantly worse, a verdict changed, or a cell no
    longer finishes.
    """
    if output is None and check is None:
        raise click.UsageError("name -o SITE, --check OLD or both")
    if output is None and public:
        raise click.UsageError("--public concerns the site: name -o SITE too")
    runs = tuple(_named(run) for run in runs)
    check = None if check is None else _named(check)
    if output is None and beside is not None:
        raise click.UsageError("--with concerns the site: name -o SITE too")
    if output is not None:
        from bench.leaderboard.pages.site import write_site

        paired = None if beside else _paired_tests(runs, alpha)
        with _beside(runs, beside) as (places, notes):
            summary = write_site(
                places, output, alpha, public=public, cells=cells, paired=paired, notes=notes
            )
        for warning in summary.warnings:
            shared.echo_error(f"warning: {warning}")
        click.echo(f"wrote {output / 'index.html'}")
    if check is not None:
        from bench.leaderboard.ranking.changes import find_changes, to_text
        from bench.leaderboard.tables.load import load_results

        changes = find_changes(load_results([check]), load_results(list(runs)), alpha)
        click.echo(to_text(changes))
        sys.exit(1 if changes.worse else 0)


@contextlib.contextmanager
def _beside(runs: Sequence[Path], name: str | None) -> Iterator[tuple[list[Path], list[Note]]]:
    """Give the directories of a site with the published results that agree with the runs."""
    if name is None:
        yield list(runs), []
        return
    from bench.engine.beside import beside
    from bench.leaderboard.pages.board import Note
    from bench.leaderboard.tables.published import published_directory

    with beside(runs, published_directory(name)) as found:
        for text in found.named:
            shared.echo_error(f"with {found.version}: {text}")
        click.echo(
            f"{shared.counted(found.cells, 'cell')} of version {found.version} beside the runs, "
            f"{found.left_out} left out"
        )
        text = (
            f"Beside the runs are {shared.counted(found.cells, 'cell')} of version "
            f"{found.version}, those with the same rows, split, size, epsilon, setting and "
            "metrics. "
        )
        missing = " ".join(f"{one[0].upper()}{one[1:]}." for one in found.named)
        note = Note(
            f"With version {found.version}.", text + missing, short="with published results"
        )
        yield [found.directory, *runs], [note]


def _named(run: Path) -> Path:
    """Return the directory of a run, or of published results by the name of their version."""
    if run.is_dir():
        return run
    from bench.leaderboard.tables.published import NEWEST, is_version, published_directory

    name = str(run)
    return published_directory(name) if name == NEWEST or is_version(name) else run


def run_figures(directory: Path) -> Callable[[], Sequence[tuple[str, bytes]]]:
    """Return what draws the charts over all results of a run directory, once, for MLflow."""

    @functools.cache
    def draw() -> Sequence[tuple[str, bytes]]:
        from bench.leaderboard.charts.gallery import run_files
        from bench.leaderboard.pages.board import chart_results

        return tuple(run_files(chart_results([directory])))

    return draw


_MOST_COMPARED = 8
"""Methods that are compared in pairs: the time grows with their square."""


def _best(cells: pd.DataFrame, results: Results) -> list[str]:
    """Return the methods of these cells, at most `_MOST_COMPARED`, by their mean headline."""
    from bench.leaderboard.ranking.rank import headline_metrics

    metrics = set(headline_metrics(results.cells, results.scores).values())
    scores = results.scores[results.scores["metric"].isin(metrics)]
    means = cells.merge(scores, on="key").groupby("label")["value"].mean()
    return list(means.sort_values(ascending=False).index[:_MOST_COMPARED])


def _paired_tests(runs: tuple[Path, ...], alpha: float) -> PairedTests | None:
    """Compare the best sound methods of one run with one dataset, as `bench compare` does.

    None for several runs or datasets, where datasets are the unit of the tests.
    """
    from bench.engine.compare import compare_run
    from bench.leaderboard.ranking.paired import PairedDifference, PairedTests
    from bench.leaderboard.ranking.rank import is_sound
    from bench.leaderboard.tables.load import read_results
    from bench.results.published import version_of

    if len(runs) != 1:
        return None
    results = read_results(list(runs))
    cells = results.cells
    finished = cells[cells["status"] == Status.OK.value]
    if (
        cells["shown_dataset"].nunique() != 1
        or (finished["shown_label"] != finished["label"]).any()
    ):
        return None
    sound = _best(finished[finished["verdict"].map(is_sound)], results)
    if len(sound) < 2:
        return None
    if version_of(runs[0]) is not None:
        return PairedTests(alpha, (), problem="published results hold no predictions for them")
    try:
        comparisons, notices = compare_run(runs[0], methods=sound)
    except BenchError as problem:
        # A copy of the tables alone has no journal and no predictions.
        return PairedTests(alpha, (), problem=one_line(str(problem)))
    differences = tuple(
        PairedDifference(
            ipc=one.ipc,
            target=one.eps_target,
            metric=one.metric,
            first=one.first,
            second=one.second,
            seeds=one.seeds,
            difference=one.difference,
            low=one.low,
            high=one.high,
            p_holm=one.p_holm,
            p_seeds=one.p_seeds,
        )
        for one in comparisons
    )
    missing = "" if differences else (notices[0] if notices else "no two methods finished")
    return PairedTests(alpha, differences, missing)


@click.command()
@click.argument("directory", type=shared.PATH)
@click.argument("cell")
@click.option(
    "-o", "--output", type=shared.PATH, help="HTML file [default: named after the release]."
)
@click.option(
    "--public", is_flag=True, help="Leave out everything that was computed from private rows."
)
@click.option("--pdf", is_flag=True, help="Write a PDF, printed by the Chromium of this machine.")
@shared.data_dir
def dossier(directory: Path, cell: str, output: Path | None, public: bool, pdf: bool) -> None:
    """Write the dossier of one release: what it is, what is proven, what attacks found.

    CELL is a key, the beginning of one, or method/dataset/epsilon/ipc/seed, where parts may be left
    out at the end and `*` matches anything: `ldpdc/gbsg2`, `mst/adult/1/full/0`.
    """
    from bench.leaderboard.dossier.material import gather
    from bench.leaderboard.dossier.page import concluded, file_name, write_dossier

    material = gather(directory, cell)
    place = output or Path(file_name(material.row, public, "pdf" if pdf else "html"))
    if pdf:
        from bench.leaderboard.dossier.pdf import write_pdf

        write_pdf(material, place, public)
    else:
        write_dossier(material, place, public)
    click.echo(f"wrote {place}")
    if material.schema is not None and material.schema.unread:
        name = material.row.dataset_name or material.row.dataset
        shared.echo_error(
            f"warning: table {name!r} is not in the data folder, so that the dossier cannot "
            "say what was proposed from its rows; name the folder by --data-dir"
        )
    conclusion = concluded(material)
    if conclusion.tone != "plain":
        shared.echo_error(one_line(f"{conclusion.head}: {conclusion.text}"))


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIR... KIND")
@click.option(
    "-o",
    "--output",
    required=True,
    type=shared.PATH,
    help="The figure: .pdf, .svg, .png, or .json for its Vega-Lite specification. "
    "For KIND `all`: a folder.",
)
@click.option("--cell", default="", help="Cell of a chart of one cell, named as in bench dossier.")
@click.option("--dataset", default="", help="Draw this dataset only, where there is one per panel.")
@click.option("--ipc", default="", help="Rows per class [default: those with the most results].")
@click.option("--columns", default=3, show_default=True, type=click.IntRange(1, 12))
@click.option(
    "--public", is_flag=True, help="Leave out everything that was computed from private rows."
)
def plot(
    directories: tuple[str, ...],
    output: Path,
    cell: str,
    dataset: str,
    ipc: str,
    columns: int,
    public: bool,
) -> None:
    """Write a chart of run directories, or of one cell, as a file for a paper.

    \b
    KIND of charts over all results:
      pareto, epsilon, ranks, datasets, ipc, attacks-utility, time, memory, audit,
      all (of these that there are results for, each as .svg and .pdf)
    KIND of charts of one cell (--cell):
      survival, roc, confusion, hazards, importance, marginals, correlations,
      embedding, closest, attacks, attributes
    """
    from bench.leaderboard.charts import chart, gallery
    from bench.leaderboard.charts.chart import ChartError
    from bench.results.writing import FOR_ALL, OWNER_ONLY, write_atomically, writing

    def write(place: Path, content: bytes) -> None:
        with writing(place, "or give another -o"):
            write_atomically(place, content, FOR_ALL if public else OWNER_ONLY)
        click.echo(f"wrote {place}")

    *places, kind = directories
    known = (*gallery.KINDS, "all", *gallery.OF_A_CELL)
    if not places or kind not in known:
        raise click.UsageError(
            f"name one or more run directories and then a kind of chart: {', '.join(known)}"
        )
    ending = output.suffix.removeprefix(".").lower()
    if kind != "all" and ending not in chart.FORMATS:
        raise click.UsageError(f"-o ends in one of .{', .'.join(chart.FORMATS)}")
    if (kind in gallery.OF_A_CELL) != bool(cell):
        many = "needs --cell" if kind in gallery.OF_A_CELL else "is drawn from all cells, not one"
        raise click.UsageError(f"{kind} {many}")
    if cell:
        from bench.leaderboard.dossier.material import gather
        from bench.leaderboard.tables.details import CellFiles

        if len(places) > 1 or public:
            raise click.UsageError(
                "a chart of a cell is drawn from the rows of one run directory, and is not public"
            )
        row = gather(Path(places[0]), cell).row
        charts = gallery.cell_charts(CellFiles(Path(places[0]), row.key), kind)
    else:
        from bench.leaderboard.pages.board import chart_results

        results = chart_results([_named(Path(place)) for place in places], public=public)
        results = replace(results, ipc=ipc, dataset=dataset)
        if kind == "all":
            drawn = dict(gallery.run_files(results, ("svg", "pdf"), columns))
            if not drawn:
                raise ChartError("nothing to draw: no method has a score that may be shown")
            with writing(output, "or give another -o"):
                output.mkdir(parents=True, exist_ok=True)
            for name, content in drawn.items():
                write(output / name, content)
            return
        charts = gallery.all_charts(results, kind)
    write(output, chart.to_file(chart.combined(charts, columns), ending))
