"""`bench list`, `bench new` and `bench check`: plugins and their conformance."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bench.cli import options as shared


@click.command(name="list")
@click.argument("kind", type=click.Choice(["methods", "datasets", "metrics"]))
@click.argument("name", required=False)
@shared.as_json
def list_plugins(kind: str, name: str | None, as_json: bool) -> None:
    """List plugins with a description of each, cut to the width of the terminal.

    With a NAME, or as JSON, the description is complete.
    """
    from bench.plugins.catalogue import listing, skipped

    for line in skipped(kind):
        shared.echo_error(line)
    click.echo(listing(kind, as_json, name))


@click.command()
@click.argument("kind", type=click.Choice(["method", "dataset", "metric"]))
@click.argument("name")
@click.option(
    "--folder", "as_folder", is_flag=True, help="Write a method as a folder with a helper module."
)
@click.option(
    "--wrap", "wraps", is_flag=True, help="Write a method that fits a library on a data frame."
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
def new(kind: str, name: str, as_folder: bool, wraps: bool, group: str | None, root: Path) -> None:
    """Write a working plugin, its test and its documentation entry.

    The plugin runs as it is: change it step by step, and check after each step.
    """
    from bench.plugins.scaffold import write_plugin

    written = write_plugin(kind, name, root, group=group, as_folder=as_folder, wraps=wraps)
    for path in written.created:
        click.echo(f"wrote {path}")
    for path in written.extended:
        click.echo(f"added an entry to {path}")
    click.echo("\nNext:")
    for command in written.next_steps:
        click.echo(f"  {command}")


@click.command()
@click.argument("method", required=False)
@shared.parameters
@click.option("--no-audit", is_flag=True, help="Leave out the quick audit.")
@click.option(
    "--self-test", is_flag=True, help="Check methods with known mistakes instead: are all caught?"
)
def check(
    method: str | None, parameters: dict[str, object], no_audit: bool, self_test: bool
) -> None:
    """Check METHOD: contract, determinism, budget, noise, difficult tables, a quick audit.

    It runs with its quick hyperparameters, which --parameters overrides. Exit code 1 if anything
    must be fixed, or if the self-test misses a mistake.
    """
    from bench.conformance.kit import check_method, to_text
    from bench.conformance.privacy import quick_audit

    if (method is None) != self_test:
        raise click.UsageError("give the name of a method, or --self-test without one")
    if self_test:
        sys.exit(_self_test())
    assert method is not None
    further = () if no_audit else (quick_audit,)
    report = check_method(method, parameters, further=further, say=_say)
    click.echo(to_text(report))
    sys.exit(1 if report.failed else 0)


def _self_test() -> int:
    from bench.conformance.self_test import self_test, to_text

    result = self_test(_say)
    click.echo(to_text(result))
    return 0 if result.passed else 1


def _say(text: str) -> None:
    shared.echo_error(f"... {text}")
