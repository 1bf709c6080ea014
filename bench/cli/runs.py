"""Commands over run directories: show progress, compare, merge, verify, log to MLflow, show it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bench.cli import options as shared
from bench.cli.options import echo_error
from bench.cli.pages import run_figures


@click.command()
@click.argument("directory", type=shared.PATH)
@click.option(
    "--slow", is_flag=True, help="Show where the time went: the slowest metrics, methods and cells."
)
@shared.as_json
def status(directory: Path, slow: bool, as_json: bool) -> None:
    """Show the progress of a run, or how it ended; the run is not disturbed.

    Lists finished and remaining cells, failures by reason, the slowest cells, the expected end, and
    the last lines of the last failure.
    """
    if slow:
        from bench.results import slow as timings

        found = timings.read_slow(directory)
        click.echo(found.to_json() if as_json else timings.to_text(found))
        return
    from bench.results.status import read_status, to_text

    state = read_status(directory)
    click.echo(state.to_json() if as_json else to_text(state))


@click.command()
@click.argument("directory", type=shared.PATH)
@click.option("--metric", help="What to compare by [default: the headline of each task].")
@click.option("--methods", callback=shared.comma(), help="Only these, comma-separated.")
@shared.as_json
def compare(directory: Path, metric: str | None, methods: tuple[str, ...], as_json: bool) -> None:
    """Compare the methods of a run directory in pairs, on the same resampled test rows.

    Shows the difference with its 95% interval, a p-value, and the p-value after Holm's correction
    for all comparisons shown.
    """
    from bench.engine import compare as comparison

    pairs, notices = comparison.compare_run(directory, metric, methods)
    comparison.check_some(pairs, notices)
    if as_json:
        click.echo(comparison.to_json(pairs, notices))
        return
    click.echo(comparison.to_text(pairs))
    for notice in notices:
        click.echo(f"not compared: {notice}")


@click.command()
@click.argument("runs", nargs=-1, required=True, type=shared.PATH)
@click.option("-o", "--output", required=True, type=shared.PATH, help="New run directory.")
@click.option("--strict", is_flag=True, help="Write nothing where two runs contradict each other.")
@click.option(
    "--keep-private-rows",
    is_flag=True,
    help="Also take rows without a proven epsilon that the runs have kept.",
)
def merge(runs: tuple[Path, ...], output: Path, strict: bool, keep_private_rows: bool) -> None:
    """Merge run directories into a new one, cell by cell.

    Equal results in several runs are kept once, and a good result is kept instead of a failed one.
    Where two good results of one cell differ, the conflict is reported, the result of the run named
    first is kept, and the exit code is 1.
    """
    from bench.engine.merge import merge_runs
    from bench.errors import printable

    merged = merge_runs(runs, output, strict, keep_private_rows=keep_private_rows)
    for source in merged.sources:
        for notice in source.journal.notices:
            echo_error(printable(f"left out: {notice}"))
    for conflict in merged.conflicts:
        echo_error(printable(f"conflict: {conflict.describe()}"))
    if strict and merged.conflicts:
        echo_error(f"conflicts: {len(merged.conflicts)}; nothing was written")
        sys.exit(1)
    click.echo(
        f"{output}: {len(merged.choices)} cells from {len(merged.sources)} runs; "
        f"doubles left out: {merged.doubles}, conflicts: {len(merged.conflicts)}"
    )
    sys.exit(1 if merged.conflicts else 0)


@click.command()
@click.argument("directory", type=shared.PATH, required=False)
@click.option(
    "--published",
    is_flag=False,
    flag_value="published",
    metavar="[VERSION|DIR]",
    help="Verify published results instead [default: the newest version].",
)
@click.option(
    "--sample", default=5, show_default=True, type=click.IntRange(min=0), help="Cells to recompute."
)
@click.option(
    "--seed", type=shared.SEED, default=0, show_default=True, help="Seed of the choice of cells."
)
@click.option("--cell", default="", metavar="KEY", help="Recompute this cell only.")
@click.option("--data-dir", help=shared.DATA_DIR_HELP)
def verify(
    directory: Path | None,
    published: str | None,
    sample: int,
    seed: int,
    cell: str,
    data_dir: str | None,
) -> None:
    """Check a run directory, and recompute some of its cells; exit code 1 on a difference.

    All releases, ledgers and tables are checked. Cells that cannot be recomputed here (other data,
    other source, secure noise, ...) are listed with the reason.
    """
    import os

    # As in a worker: sums over several threads round differently. Before numpy is imported, hence
    # before the data folder is checked.
    os.environ["OMP_NUM_THREADS"] = "1"
    from bench.engine.options import use_data_folder
    from bench.engine.verify import to_text, verify_published
    from bench.engine.verify import verify as check
    from bench.errors import printable

    def say(text: str) -> None:
        echo_error(printable(text))

    use_data_folder(data_dir)
    if directory is not None:
        report = check(directory, sample, seed, cell, say)
    else:
        from bench.leaderboard.tables.published import published_directory

        report = verify_published(published_directory(published or ""), sample, seed, cell, say)
    click.echo(printable(to_text(report)))
    sys.exit(0 if report.good else 1)


@click.command()
@click.argument("directory", type=shared.PATH)
@shared.mlflow_uri
def sync(directory: Path, mlflow_uri: str | None) -> None:
    """Log a run directory to MLflow; cells logged before are not logged again."""
    from bench.errors import printable
    from bench.results.integrity import Ledgers, checked_row
    from bench.results.reading import held
    from bench.results.records import Status
    from bench.results.run_directory import RunStore
    from bench.tracking.tracker import Tracker

    store = RunStore.existing(directory)
    with held(directory):
        pass  # reports an active run clearly, where opening the store would advise another --out
    problems: list[str] = []
    with store:
        ledgers, altered, rows = Ledgers(), {}, []
        for row, _ in store.all():
            rows.append(row.status)
            shown = checked_row(directory, row, ledgers)
            if shown is not row:
                altered[row.key] = shown
        tracker = Tracker(store, mlflow_uri, problems.append, altered, run_figures(directory))
        tracker.planned(len(rows), len(rows), ())
        failed = sum(status not in (Status.OK, Status.SKIPPED) for status in rows)
        tracker.close(failed, patient=True)
    for row in altered.values():
        echo_error(
            printable(f"warning: {row.cell.describe()}: {row.verdict}, {row.verdict_reason}")
        )
    for text in problems:
        echo_error(text)
    if problems:
        sys.exit(1)
    click.echo(f"{len(rows)} cells of {directory} are in MLflow")


@click.command()
@click.argument("directory", type=shared.PATH)
@click.option("--port", default=5000, show_default=True, type=click.IntRange(1, 65535))
def ui(directory: Path, port: int) -> None:
    """Show a run directory in the MLflow interface, on 127.0.0.1."""
    from bench.tracking.server import serve
    from bench.tracking.tracker import ui_address, ui_command

    address = ui_address(directory, port)
    command, environment = ui_command(directory, port)
    click.echo(f"MLflow on {address} (Ctrl-C to stop)")
    sys.exit(serve(command, environment))
