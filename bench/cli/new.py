"""`bench new`: a working plugin to start from."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("kind", type=click.Choice(["method", "dataset", "metric"]))
@click.argument("name")
@click.option(
    "--folder", "as_folder", is_flag=True, help="Write a method as a folder with a helper module."
)
@click.option(
    "--group",
    help="Folder below methods/, datasets/ or metrics/ to write into [default: none for a method, "
    "tables for a dataset, fidelity for a metric].",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("."),
    help="The checkout to write into; the current folder by default.",
)
def new(kind: str, name: str, as_folder: bool, group: str | None, root: Path) -> None:
    """Write a working plugin, its test and its documentation entry.

    What is written runs as it stands: change it step by step, and check after each.
    """
    from bench.plugins.scaffold import write_plugin

    written = write_plugin(kind, name, root, group=group, as_folder=as_folder)
    for path in written.created:
        click.echo(f"wrote {path}")
    for path in written.extended:
        click.echo(f"added an entry to {path}")
    click.echo("\nNext:")
    for command in written.next_steps:
        click.echo(f"  {command}")
