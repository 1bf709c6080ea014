"""`bench publish`, `bench submit` and `bench check-submission`: results that others may cite."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bench.cli import options as shared


@click.command()
@click.argument("runs", nargs=-1, required=True, type=shared.PATH)
@click.option(
    "--to",
    "target",
    default="published",
    metavar="VERSION|DIR",
    help="Version, such as 2026.11, or a directory; it is created if need be [default: the newest "
    "version of this package].",
)
@click.option(
    "--allow-dirty",
    is_flag=True,
    help="Also cells of a checkout with uncommitted changes; the log says so.",
)
@click.option(
    "--signed-off",
    multiple=True,
    metavar="METHOD=NAME",
    help="The author NAME has confirmed the results of METHOD: it is marked as verified; "
    "repeatable.",
)
def publish(
    runs: tuple[Path, ...], target: str, allow_dirty: bool, signed_off: tuple[str, ...]
) -> None:
    """Add the finished cells of RUNS to the published results, and write their LOG.md.

    A cell replaces the one with the same method, parameters, dataset, split, size, epsilon and
    seed. Cells of other code than the installed one, and of data that are not open to everybody,
    are left out and named. Publishing the same run again changes nothing.
    """
    from bench.engine.publish import publish as add
    from bench.leaderboard.tables.published import home, is_version, published_directory

    place = home() / target if is_version(target) else published_directory(target)
    signed = {}
    for text in signed_off:
        method, _, name = text.partition("=")
        if not method or not name.strip():
            raise click.UsageError("--signed-off needs METHOD=NAME")
        signed[method] = name.strip()
    done = add(runs, place, allow_dirty=allow_dirty, signed=signed)
    for text in done.left_out:
        shared.echo_error(f"left out: {text}")
    for text in done.remarks:
        shared.echo_error(f"warning: {text}")
    click.echo(
        f"{done.target}: {shared.counted(done.cells, 'cell')} ({done.added} added, "
        f"{done.replaced} replaced), {done.size / 1e6:.2f} MB"
    )
    sys.exit(1 if done.left_out else 0)


@click.command()
@click.argument("run", type=shared.PATH)
@click.option("-o", "--output", required=True, type=shared.PATH, help="Folder of the submission.")
@click.option("--method", required=True, help="Name of the submitted method.")
@click.option("--authors", default="", help="Authors of the method's code, comma-separated.")
@click.option("--licence", default="", help="SPDX expression of the licence of its code.")
@click.option("--code", default="", metavar="URL@COMMIT", help="Where its code is.")
@click.option("--explain", default="", help="Why cells have failed, if more than a few have.")
def submit(
    run: Path, output: Path, method: str, authors: str, licence: str, code: str, explain: str
) -> None:
    """Write a submission of METHOD for the published results, from the run directory RUN.

    Holds the results with their ledgers, the reference to the code, the environment, licence and
    authors. What is incomplete is refused, and all that is missing is named. docs/submitting.md
    says what happens with it.
    """
    from bench.engine.submission import About, incomplete, write_submission
    from bench.errors import printable

    about = About(method, shared.comma_separated(authors), licence, code, explain)
    _, problems = incomplete(run, about)
    if problems:
        for text in problems:
            shared.echo_error(printable(f"incomplete: {text}"))
        shared.fail(f"{run} is not complete enough to be submitted")
    done = write_submission(run, output, about)
    for text in done.remarks:
        shared.echo_error(f"note: {text}")
    click.echo(f"{done.directory}: {shared.counted(done.cells, 'cell')} of {method}")
    click.echo(f"next: bench check-submission {done.directory}")


@click.command(name="check-submission")
@click.argument("directory", type=shared.PATH)
@click.option(
    "--sample", default=3, show_default=True, type=click.IntRange(min=0), help="Cells to recompute."
)
@click.option("--seed", type=shared.SEED, default=0, show_default=True, help="Of that choice.")
@click.option("--data-dir", help=shared.DATA_DIR_HELP)
def check_submission(directory: Path, sample: int, seed: int, data_dir: str | None) -> None:
    """Check a submission as CI does: hashes, ledgers, keys and a sample of cells computed again.

    Exit code 1 says that it is refused; the reasons are printed.
    """
    import os

    # As in `bench verify`: before numpy is imported.
    os.environ["OMP_NUM_THREADS"] = "1"
    from bench.engine.options import use_data_folder
    from bench.engine.submission import check_submission as check
    from bench.engine.submission import to_text
    from bench.errors import printable

    use_data_folder(data_dir)
    report = check(directory, sample, seed, lambda text: shared.echo_error(printable(text)))
    click.echo(printable(to_text(report)))
    sys.exit(0 if report.good else 1)
