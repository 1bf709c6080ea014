"""`bench run` and `bench score`: compute the cells of a grid, or score stored releases."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import options as shared

if TYPE_CHECKING:
    from bench.cluster.driver import RunSummary
    from bench.engine.grid import Grid
    from bench.results.records import Cell


@click.command()
@click.option(
    "--grid",
    default="quick",
    show_default=True,
    help="smoke, quick, real-data, core, full, paper:NAME or a .toml file.",
)
@click.option("--out", type=shared.PATH, help="Run directory [default: runs/<grid>].")
@click.option(
    "--methods", callback=shared.comma(), help="Comma-separated methods instead of the grid's."
)
@click.option("--datasets", callback=shared.comma(), help="Comma-separated datasets.")
@click.option(
    "--ipc", callback=shared.comma("parse_ipc"), help="Rows per class, or `full`; comma-separated."
)
@click.option(
    "--eps", callback=shared.comma("parse_float"), help="Target epsilons, comma-separated."
)
@click.option(
    "--delta",
    type=shared.FiniteRange(0, 1, min_open=True, max_open=True),
    help="Delta of the guarantee [default: the grid's, or min(1e-5, 1/(10 n)) for n declared rows; "
    "1e-8 with --private-counts].",
)
@click.option("--seeds", callback=shared.comma("parse_integer"), help="Seeds, comma-separated.")
@click.option(
    "--metrics",
    callback=shared.comma(),
    help="Metrics, families, `default`, `headline`, `all` or `none`; comma-separated [default: the "
    "grid's].",
)
@click.option(
    "--train-on",
    type=click.Choice(["split", "all"]),
    default="split",
    show_default=True,
    help="`all` uses every row for training, for a release that is to be published: no rows are "
    "left to evaluate it with.",
)
@click.option("--dry-run", is_flag=True, help="Print the cells and their number; run nothing.")
@click.option(
    "--estimate",
    is_flag=True,
    help="With --dry-run: project the cost in core-hours from stored timings.",
)
@click.option(
    "--timings",
    multiple=True,
    type=shared.PATH,
    metavar="DIR",
    help="With --estimate: a run directory whose timings count before those of this package; "
    "repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="With --estimate: machine-readable output.")
@shared.on_ray
@click.option(
    "--secure-noise",
    is_flag=True,
    help="Noise from the operating system's entropy: not reproducible, not `study only`.",
)
@click.option(
    "--private-counts",
    is_flag=True,
    help="Spend part of the budget on noisy class counts instead of treating them as public.",
)
@click.option(
    "--keep-private-rows",
    is_flag=True,
    help="Store rows without a proven epsilon too, in non-private-rows/; they may be private rows. "
    "They are never copied to a site, MLflow or an export.",
)
@click.option(
    "--time-limit",
    type=shared.POSITIVE,
    help="Time limit per cell, in minutes.",
)
@click.option(
    "--memory-limit",
    type=shared.POSITIVE,
    help="Megabytes of memory a cell may use [default: by the dataset and the method].",
)
@click.option(
    "--disk-limit",
    type=shared.POSITIVE,
    help="Megabytes of temporary files a cell may write [default: 4096].",
)
@click.option(
    "--published",
    is_flag=False,
    flag_value="published",
    metavar="[VERSION|DIR]",
    help="Leave out cells that are published with the same key and metrics [default: the newest "
    "version].",
)
@click.option(
    "--skip-failed",
    is_flag=True,
    help="With --published: leave out the cells too that are published as failed.",
)
@click.option(
    "--budget-minutes",
    type=shared.POSITIVE,
    help="After this time start no further cell; the same command resumes.",
)
@click.option(
    "--ship-code",
    is_flag=True,
    help="Send this code and third-party plugins to the cluster's workers.",
)
def run(**options: Any) -> None:
    """Run a grid of cells on Ray; the same command again runs only what is missing."""
    from bench.engine.grid import built_in, load_grid
    from bench.engine.limits import Asked

    if options["estimate"] and not options["dry_run"]:
        raise click.UsageError("--estimate runs nothing: give --dry-run too")
    if (options["timings"] or options["as_json"]) and not options["estimate"]:
        raise click.UsageError("--timings and --json concern --estimate: give it too")
    if options["skip_failed"] and not options["published"]:
        raise click.UsageError("--skip-failed concerns --published: give it too")
    grid = load_grid(options["grid"]).narrowed(
        methods=options["methods"],
        datasets=options["datasets"],
        ipc=options["ipc"],
        epsilon=options["eps"],
        delta=options["delta"],
        seeds=options["seeds"],
        metrics=options["metrics"],
        split="all" if options["train_on"] == "all" else "",
    )
    grid.check_plugins()
    if options["dry_run"]:
        _dry_run(grid, options)
        return
    if built_in(options["grid"]) and not options["datasets"]:
        grid = _obtained(grid, options["grid"])
    _say_left_out(grid)
    settings = shared.run_options(
        options["out"] or Path(f"runs/{grid.name}"),
        options,
        secure_noise=options["secure_noise"],
        private_counts=options["private_counts"],
        keep_private_rows=options["keep_private_rows"],
        limits=Asked(options["time_limit"], options["memory_limit"], options["disk_limit"]),
        ship_code=options["ship_code"],
        published=_published(options["published"]),
        skip_failed=options["skip_failed"],
        minutes=options["budget_minutes"],
    )
    from bench.cli.session import run_with_progress

    sys.exit(_exit_code(run_with_progress(grid, settings)))


def _published(name: str | None) -> Path | None:
    """Return the published results whose cells are left out."""
    if name is None:
        return None
    from bench.leaderboard.tables.published import published_directory
    from bench.results.published import check_published

    directory = published_directory(name)
    check_published(directory)
    return directory


def _obtained(grid: Grid, name: str, cells: Sequence[Cell] = ()) -> Grid:
    """Return the grid without datasets that are not here, each of which is named."""
    from bench.plugins.data_files import missing_datasets

    missing = missing_datasets([entry.name for entry in grid.datasets])
    skipped = [entry for entry in grid.datasets if entry.name in missing]
    for entry in skipped:
        fetched = f"run bench data get {entry.name}"
        way = fetched if missing[entry.name] else "see bench data list for how to obtain it"
        count = sum(cell.dataset == entry for cell in cells)
        counted = f" ({shared.counted(count, 'cell')})" if count else ""
        # To the error stream: the list of cells, or the JSON, stays what it is.
        shared.echo_error(f"{entry.label}{counted}: skipped: not obtained, {way}")
    if any(missing.values()):
        shared.echo_error(f"all of them that can be fetched: bench data get --grid {name}")
    return grid if cells else grid.without([entry.label for entry in skipped])


def _dry_run(grid: Grid, options: Mapping[str, Any]) -> None:
    """Print the cells, or what they cost; and which datasets are not there."""
    from bench.engine.grid import built_in
    from bench.plugins.data_files import remedies

    cells = grid.cells()
    if options["estimate"]:
        _estimate(grid, cells, options)
    else:
        for cell in cells:
            click.echo(cell.describe())
    if built_in(options["grid"]) and not options["datasets"]:
        _obtained(grid, options["grid"], cells)
    else:
        for entry in grid.datasets:
            count = sum(cell.dataset == entry for cell in cells)
            for number, line in enumerate(remedies(entry.name, dict(entry.parameters))):
                head = f"missing: {entry.label} ({shared.counted(count, 'cell')} would fail): "
                shared.echo_error(f"{head if number == 0 else '  '}{line}")
    _say_left_out(grid)
    if not options["estimate"]:
        click.echo(shared.counted(len(cells), "cell"))


def _say_left_out(grid: Grid) -> None:
    for because, count in grid.counts_left_out().items():
        shared.echo_error(f"left out of this grid: {shared.counted(count, 'cell')}: {because}")


def _estimate(grid: Grid, cells: Sequence[Cell], options: Mapping[str, Any]) -> None:
    from bench.engine.estimate import project, stored_timings, to_text
    from bench.engine.timing_table import shipped_origin
    from bench.plugins import registry

    metrics = registry.select_metrics(grid.metrics) if grid.metrics else ()
    projection = project(cells, metrics, stored_timings(options["timings"]))
    if options["as_json"]:
        click.echo(projection.to_json())
        return
    named = ", ".join(map(str, options["timings"]))
    origin = f"{named}; where they lack some, {shipped_origin()}" if named else shipped_origin()
    click.echo(to_text(projection, origin))


@click.command()
@click.argument("directory", type=shared.PATH)
@click.option(
    "--metrics",
    callback=shared.comma(),
    help="Metrics, families, `default`, `headline` or `all`; comma-separated [default: default].",
)
@shared.on_ray
def score(**options: Any) -> None:
    """Score the stored releases of a run directory; nothing is fitted again.

    Only scores that are missing or were computed by another version of a metric are computed; the
    others stay. Metrics that need refits fit copies of the method and leave the release unchanged.
    """
    from bench.plugins import registry

    metrics = registry.select_metrics(options["metrics"])
    from bench.cli.session import score_with_progress

    settings = shared.run_options(options["directory"], options)
    sys.exit(_exit_code(score_with_progress(metrics, settings)))


def _exit_code(summary: RunSummary) -> int:
    if summary.interrupted:
        return 130
    return 1 if summary.failed else 0
