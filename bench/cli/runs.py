"""Commands over run directories: how a run is going, join runs, check one, log one to MLflow."""

from __future__ import annotations

import sys
from pathlib import Path

import click

_DIRECTORY = click.Path(path_type=Path)


@click.command()
@click.argument("directory", type=_DIRECTORY)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def status(directory: Path, as_json: bool) -> None:
    """Say how a run is going, or how it ended; the run is not disturbed.

    Shows what is done and left, failures by reason, the slowest cells, the expected end, and the
    last lines of the last failure.
    """
    from bench.results.status import read_status, to_text

    found = read_status(directory)
    click.echo(found.to_json() if as_json else to_text(found))


@click.command()
@click.argument("runs", nargs=-1, required=True, type=_DIRECTORY)
@click.option("-o", "--output", required=True, type=_DIRECTORY, help="New run directory.")
@click.option("--strict", is_flag=True, help="Write nothing where two runs contradict each other.")
def merge(runs: tuple[Path, ...], output: Path, strict: bool) -> None:
    """Join run directories into a new one, cell by cell.

    The same result in several runs is kept once, a good one is kept instead of a failed one. Where
    two good results of one cell differ, that is said, the one of the run named first is kept, and
    the exit code is 1.
    """
    from bench.engine.merge import merge_runs
    from bench.results.reading import printable

    merged = merge_runs(runs, output, strict)
    for conflict in merged.conflicts:
        click.echo(printable(f"conflict: {conflict.describe()}"), err=True)
    if strict and merged.conflicts:
        click.echo(f"conflicts: {len(merged.conflicts)}; nothing was written", err=True)
        sys.exit(1)
    click.echo(
        f"{output}: {len(merged.choices)} cells from {len(merged.sources)} runs; "
        f"doubles left out: {merged.doubles}, conflicts: {len(merged.conflicts)}"
    )
    sys.exit(1 if merged.conflicts else 0)


@click.command()
@click.argument("directory", type=_DIRECTORY)
@click.option(
    "--sample", default=5, show_default=True, type=click.IntRange(min=0), help="Cells to recompute."
)
@click.option("--seed", default=0, show_default=True, help="Which cells are drawn.")
@click.option("--cell", default="", metavar="KEY", help="Recompute this cell only.")
@click.option("--data-dir", help="Folder with data files you obtained [default: $BENCH_DATA].")
def verify(directory: Path, sample: int, seed: int, cell: str, data_dir: str | None) -> None:
    """Check a run directory, and compute some of its cells again; exit code 1 on a difference.

    All releases, ledgers and tables are checked. Cells that cannot be computed again here (other
    data, other source, secure noise, ...) are named with the reason.
    """
    import os

    # As in a worker: sums of several threads are rounded otherwise. Before numpy is imported.
    os.environ["OMP_NUM_THREADS"] = "1"
    from bench.engine.options import use_data_folder
    from bench.engine.verify import to_text
    from bench.engine.verify import verify as check
    from bench.results.reading import printable

    use_data_folder(data_dir)
    found = check(directory, sample, seed, cell, lambda text: click.echo(printable(text), err=True))
    click.echo(printable(to_text(found)))
    sys.exit(0 if found.good else 1)


@click.command()
@click.argument("directory", type=_DIRECTORY)
@click.option("--mlflow-uri", help="MLflow tracking URI [default: sqlite in the run directory].")
def sync(directory: Path, mlflow_uri: str | None) -> None:
    """Log a run directory to MLflow; what is there already is not logged again."""
    from bench.results.reading import held
    from bench.results.records import Status
    from bench.results.run_directory import RunStore
    from bench.tracking.tracker import Tracker

    store = RunStore.existing(directory)
    with held(directory):
        pass  # says clearly that a run is going on, where opening it would advise another --out
    said: list[str] = []
    with store:
        tracker = Tracker(store, mlflow_uri, said.append)
        rows = [row.status for row, _ in store.all()]
        tracker.planned(len(rows), len(rows), ())
        tracker.close(sum(status not in (Status.OK, Status.SKIPPED) for status in rows))
    for text in said:
        click.echo(text, err=True)
    if said:
        sys.exit(1)  # a tracker speaks only when it could not go on
    click.echo(f"{len(rows)} cells of {directory} are in MLflow")


COMMANDS = (status, merge, verify, sync)
