"""`bench tune`: choose the hyperparameters of a method by the protocol that all methods share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import options as shared

if TYPE_CHECKING:
    from bench.engine.tuning import Tuned


@click.command()
@click.argument("method")
@click.option("--out", type=shared.PATH, help="Run directory [default: runs/tune-<method>].")
@click.option(
    "--trials",
    type=click.IntRange(1, 1000),
    help="Combinations to try, the defaults among them [default: 20, as for every method].",
)
@click.option(
    "--datasets",
    callback=shared.comma(),
    help="Comma-separated datasets [default: those of the protocol].",
)
@click.option("--seeds", callback=shared.comma("parse_integer"), help="Seeds, comma-separated.")
@click.option("--dry-run", is_flag=True, help="Print the trials and the number of cells only.")
@click.option("--time-limit", type=shared.POSITIVE, help="Time limit per cell, in minutes.")
@shared.on_ray
def tune(**options: Any) -> None:
    """Try hyperparameters of METHOD on the tuning datasets' validation rows, and propose some.

    The same command again resumes; a larger --trials adds to what was tried. Trials are in the run
    directory, summed up in trials.json. Nothing is changed in the method's file.
    """
    from bench.engine import tuning
    from bench.engine.limits import Asked
    from bench.errors import DataError
    from bench.plugins.data_files import missing_datasets

    method = options["method"]
    trials = options["trials"] or tuning.TRIALS
    grid = tuning.tuning_grid(method, trials, options["datasets"], options["seeds"])
    if options["dry_run"]:
        for entry in grid.methods:
            shown = ", ".join(f"{name}={value}" for name, value in entry.parameters)
            click.echo(f"{entry.label}: {shown or 'as declared'}")
        click.echo(shared.counted(len(grid.cells()), "cell"))
        return
    missing = sorted(missing_datasets([entry.name for entry in grid.datasets]))
    if missing:
        # Another set of datasets would be another protocol: nothing is skipped silently.
        raise DataError(
            f"tuning needs {', '.join(missing)}, not obtained; expected all datasets of the "
            f"protocol: run bench data get {missing[0]}, or name others with --datasets"
        )
    out = options["out"] or Path(f"runs/{grid.name}")
    asked = Asked(options["time_limit"], None, None)
    from bench.cli.session import run_with_progress

    summary = run_with_progress(grid, shared.run_options(out, options, limits=asked))
    if summary.interrupted:
        sys.exit(130)
    tuned = tuning.outcome(out, grid)
    written = tuning.write(tuned, out)
    for line in report(tuned):
        click.echo(line)
    click.echo(f"trials: {written}")


def report(tuned: Tuned) -> list[str]:
    """Return the trials in order of their gain, and what is proposed."""
    lines = [f"{'trial':<10} {'gain':>8} {'+-':>7}  parameters"]
    ranked = sorted(tuned.trials, key=lambda one: (not one.complete, -one.gain))
    for trial in ranked:
        shown = ", ".join(f"{name}={value}" for name, value in trial.parameters.items())
        gain = f"{trial.gain:+8.4f} {trial.error:7.4f}" if trial.complete else f"{'failed':>16}"
        lines.append(f"{trial.label:<10} {gain}  {shown or 'as declared'}")
    choice = tuned.choice
    if choice.parameters:
        shown = ", ".join(f"{name}={value}" for name, value in choice.parameters.items())
        lines.append(f"proposed: {choice.label}: {shown}")
        seen = ", ".join(tuned.protocol["datasets"])
        lines.append(f"with these as defaults, tuned_on has {seen}")
    else:
        lines.append("proposed: the defaults; no trial is better by more than its standard error")
    return lines
