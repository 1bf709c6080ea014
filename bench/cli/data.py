"""`bench data`: which datasets are ready, how to obtain the others, and the user's own tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bench.cli import options as shared
from bench.errors import one_line


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
@click.argument("name")
@shared.data_dir
def get(name: str) -> None:
    """Download a dataset whose publisher allows it, with resume and checksum."""
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    from bench.plugins.data_files import download_dataset

    with Progress(*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn()) as bar:
        tasks: dict[str, Any] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        folder = download_dataset(name, show)
    click.echo(f"{name} is in {folder}")


@data.command()
@click.argument("file", type=shared.PATH)
@click.option("--name", help="Name of the dataset [default: from the file name].")
@click.option("--target", default="", help="Column to predict (classification).")
@click.option("--time", default="", help="Column with follow-up times (survival).")
@click.option("--event", default="", help="Column with 1 for an event, 0 for censored.")
@click.option("--site", default="", help="Column with the hospital or site.")
@click.option(
    "--patient", default="", help="Column that identifies patients: one row per patient is kept."
)
@click.option("--separator", default=",", help="Separator of the columns.")
@click.option("--clip", is_flag=True, hidden=True, expose_value=False)  # values always are clipped
@shared.data_dir
def add(file: Path, name: str | None, **options: Any) -> None:
    """Turn your own CSV or Parquet file (also .gz, .zip) into a dataset."""
    import re

    from bench.plugins import registry
    from bench.plugins.user_tables import NewTable, add_table

    stem = file.name.split(".")[0].lower()
    chosen = name or re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    added = add_table(NewTable(file=file, name=chosen, **options), registry.dataset_names())
    for remark in added.remarks:
        click.echo(one_line(remark))
    click.echo(f"wrote {added.toml}")
    click.echo(
        "Check its bounds and categories; until you set `inferred = false` there, they count"
    )
    click.echo("as non-private access and no release of this dataset is proven private.")
    click.echo(f"Then: bench run --datasets {chosen}")
