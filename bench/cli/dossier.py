"""`bench dossier`: one page about one release, for whoever decides whether it may leave."""

from __future__ import annotations

from pathlib import Path

import click

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("directory", type=_PATH)
@click.argument("cell")
@click.option("-o", "--output", type=_PATH, help="HTML file [default: named after the release].")
@click.option(
    "--public", is_flag=True, help="Leave out everything that was computed from private rows."
)
def dossier(directory: Path, cell: str, output: Path | None, public: bool) -> None:
    """Write the dossier of one release: what it is, what is proven, what attacks found.

    CELL is a key, the beginning of one, or method/dataset/epsilon/ipc/seed, where parts may be
    left out at the end and `*` stands for anything: `ldpdc/gbsg2`, `mst/adult/1/full/0`.
    """
    from bench.leaderboard.dossier.material import gather
    from bench.leaderboard.dossier.page import file_name, write_dossier

    material = gather(directory, cell)
    place = output or Path(file_name(material.row, public))
    write_dossier(material, place, public)
    click.echo(f"wrote {place}")
    if material.row.study_only:
        click.echo("study only: seeded noise, so the page draws no conclusion", err=True)
