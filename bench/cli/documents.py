"""`bench keep` and `bench fill`: compact results, and the tables of documents made from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli import options as shared

if TYPE_CHECKING:
    import pandas as pd


@click.command()
@click.argument("runs", nargs=-1, required=True, type=shared.PATH)
@click.option("-o", "--output", required=True, type=shared.PATH, help="The Parquet file to write.")
@click.option("--metrics", default="", help="Single numbers to keep, such as auroc,dcr/copies.")
def keep(runs: tuple[Path, ...], output: Path, metrics: str) -> None:
    """Write compact results of RUNS to one file, for documents and for publishing."""
    from bench.results.kept import keep as write

    names = [name.strip() for name in metrics.split(",") if name.strip()]
    cells = write(runs, names, output)
    click.echo(f"{output}: {cells} cell{'' if cells == 1 else 's'}")


@click.command()
@click.argument("documents", nargs=-1, required=True, type=shared.PATH)
@click.option(
    "--check",
    is_flag=True,
    help="Change nothing: exit code 1 if a number does not follow from the kept results.",
)
def fill(documents: tuple[Path, ...], check: bool) -> None:
    """Make the tables of Markdown DOCUMENTS anew from the kept results beside them."""
    from bench.errors import InputError
    from bench.leaderboard.export.documents import (
        awaited_results,
        differing_lines,
        filled,
        results_of,
        typed_tables,
    )
    from bench.results.kept import read_kept
    from bench.results.writing import FOR_ALL, write_atomically, writing

    wrong = False
    for document in documents:
        if not document.is_file():
            raise InputError(f"{document}: no such file; name a Markdown document")
        lines = differing_lines(document)
        for result in results_of(document):
            for line in _older(read_kept(result)):
                click.echo(f"{result}: {line}")
        for result, grid in awaited_results(document).items():
            click.echo(
                f"{result}: not there yet, its tables stay typed: "
                f"bench run --grid {grid} --out DIR; bench keep DIR -o {result}"
            )
        typed = typed_tables(document)
        if typed:
            places = ", ".join(map(str, typed))
            click.echo(f"{document}: tables that were typed, not made from results: line {places}")
        if check and lines:
            wrong = True
            places = ", ".join(map(str, lines))
            click.echo(f"{document}: not what the kept results say in line {places}", err=True)
        elif lines:
            with writing(document):
                write_atomically(document, filled(document).encode(), FOR_ALL)
            click.echo(f"{document}: written")
    if wrong:
        raise SystemExit(1)


def _older(results: pd.DataFrame) -> list[str]:
    """Return a line for each method or metric whose code is not the one behind these results."""
    from bench.engine import keys
    from bench.plugins import registry

    lines = []
    for method, hashes in results.groupby("method")["source_hash"]:
        known = method in registry.method_names()
        if not known or set(hashes) != {keys.method_source_hash(str(method))}:
            lines.append(f"older than the code of the method {method}")
    metrics: dict[str, set[str]] = {}
    for text in results["metrics"].unique():
        for name, digest in json.loads(text).items():
            metrics.setdefault(name, set()).add(digest)
    for name, digests in sorted(metrics.items()):
        known = name in registry.metric_names()
        if not known or digests != {keys.metric_hash(name)}:
            lines.append(f"older than the code of the metric {name}")
    return lines
