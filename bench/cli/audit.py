"""`bench audit`: attacks a method and reports a lower bound on its epsilon."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import options as shared
from bench.cli.options import echo_error

if TYPE_CHECKING:
    from bench.cluster.batches import Crew
    from bench.results.records import AuditRow


@click.command()
@click.argument("method", required=False)
@click.option("--dataset", help="Dataset to audit on; several with commas for several methods.")
@click.option("--eps", type=float, help="Target epsilon that the method is asked for.")
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    help="Refits in both worlds and both halves [default: 1000]; canaries of a one-run audit "
    "[default: 200].",
)
@click.option(
    "--attack",
    type=click.Choice(["two-world", "one-run"]),
    default="two-world",
    show_default=True,
    help="Many refits with and without a canary; or few with many canaries, for slow methods.",
)
@click.option("--ipc", default="50", show_default=True, help="Rows per class, or `full`.")
@click.option("--delta", type=float, default=1e-5, show_default=True)
@shared.parameters
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--out",
    type=shared.PATH,
    default=Path("runs/audits"),
    show_default=True,
    help="Run directory of the results.",
)
@click.option("--methods", help="Audit these, comma-separated; `bench audit all`: every method.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="For several methods: processor time per method and dataset; sets trials and attack.",
)
@click.option("--quick", is_flag=True, help="For several methods: use quick hyperparameters.")
@click.option("--self-test", is_flag=True, help="Audit methods of known epsilon instead.")
@click.option(
    "--table",
    type=shared.PATH,
    metavar="DIR",
    help="Print all audits of DIR as Markdown; run nothing.",
)
@click.option(
    "--page", type=shared.PATH, metavar="FILE", help="With --table: write the page of the docs."
)
@shared.as_json
@shared.cpus
@shared.ray_address
@shared.data_dir
def audit(**options: Any) -> None:
    """Attack METHOD: a lower bound on its epsilon, beside the claimed and the proven epsilon.

    Exit code 1 if an epsilon is refuted, or if the audit fails. The same command again resumes an
    interrupted audit; finished trials are not repeated. `all` audits every method on the dataset.
    """
    if options["table"] is not None:
        _show_table(options["table"], options["page"])
        return
    try:
        if options["self_test"]:
            sys.exit(_self_test(options))
        rows = _audited(options)
    except KeyboardInterrupt:
        echo_error("interrupted: run the same command again to resume")
        sys.exit(130)
    sys.exit(_show(rows, options["out"], options["as_json"]))


def _show_table(directory: Path, file: Path | None) -> None:
    from bench.audit.report import markdown_table, page
    from bench.audit.trials import write_text
    from bench.errors import StoreError
    from bench.results.reading import read_audits

    rows = read_audits(directory)
    if not rows:
        raise StoreError(f"{directory} holds no audits; `bench audit --out {directory}` makes one")
    if file is None:
        click.echo(markdown_table(rows, directory), nl=False)
        return
    write_text(page(rows, directory), file)
    click.echo(f"wrote {file}")


def _audited(options: dict[str, Any]) -> list[AuditRow]:
    from bench.audit.audits import audit as run_audit
    from bench.audit.audits import audit_many, load, make_request, prepare
    from bench.engine.grid import parse_ipc
    from bench.plugins import registry

    if options["dataset"] is None:
        raise click.UsageError("name a --dataset; `bench list datasets` shows them")
    ipc = parse_ipc(options["ipc"])
    common: dict[str, Any] = {
        "ipc": ipc,
        "full_size": ipc is None,
        "delta": options["delta"],
        "seed": options["seed"],
    }
    names = shared.comma_separated(options["methods"])
    if options["method"] == "all":
        names = registry.method_names()
    if names:
        if options["eps"] is None:
            raise click.UsageError("name an epsilon: --eps")
        datasets = shared.comma_separated(options["dataset"])
        with _crew(options) as (crew, cpus):
            return [
                row
                for dataset in datasets
                for row in audit_many(
                    names,
                    dataset,
                    options["eps"],
                    options["out"],
                    crew,
                    minutes=options["minutes"],
                    cpus=cpus,
                    quick=options["quick"],
                    parameters=options["parameters"],
                    options=common,
                    say=echo_error,
                )
            ]
    if options["method"] is None:
        raise click.UsageError("name a METHOD, --methods, --self-test or --table")
    one_run = options["attack"] == "one-run"
    request = make_request(
        options["method"],
        options["dataset"],
        options["eps"],
        options["trials"] or (200 if one_run else 1000),
        parameters=options["parameters"],
        kind=options["attack"],
        **common,
    )
    prepared = prepare(request, load(request))
    with _crew(options) as (crew, _):
        return [run_audit(prepared, options["out"], crew, echo_error)]


@contextmanager
def _crew(options: dict[str, Any]) -> Iterator[tuple[Crew, int]]:
    import os

    from bench.cluster.batches import Crew
    from bench.engine.options import RunOptions

    settings = RunOptions(
        out=options["out"], cpus=options["cpus"], ray_address=options["ray_address"]
    )
    with Crew(settings, echo_error) as crew:
        yield crew, options["cpus"] or os.cpu_count() or 1


def _show(rows: list[AuditRow], directory: Path, as_json: bool) -> int:
    from dataclasses import asdict

    from bench.audit.report import conclude, report
    from bench.results.audits import refutations
    from bench.results.journal import plain
    from bench.results.reading import read_audits
    from bench.results.records import Status

    # Corrected for all methods ever audited into this directory, not for those of this call.
    refuted = refutations(read_audits(directory))
    conclusions = [conclude(row, refuted.get(row.key), directory) for row in rows]
    if as_json:
        documents = [
            {**plain(asdict(row)), "verdict": said.verdict, "sentence": said.sentence}
            for row, said in zip(rows, conclusions, strict=True)
        ]
        click.echo(json.dumps(documents, indent=1))
    else:
        for row in rows:
            click.echo(report(row, refuted.get(row.key), directory))
            click.echo()
        click.echo(f"Results in {directory}")
    failed = any(row.status == Status.ERROR.value for row in rows)
    return 1 if failed or any(said.refuted for said in conclusions) else 0


def _self_test(options: dict[str, Any]) -> int:
    from bench.audit.self_test import TRIALS, self_test

    trials = options["trials"] or TRIALS
    with tempfile.TemporaryDirectory() as folder, _crew(options) as (crew, _):
        checked = list(self_test(Path(folder), crew, trials, options["seed"], echo_error))
    for one in checked:
        click.echo(one.line)
    if all(one.good for one in checked):
        click.echo("The auditor works: broken methods were refuted, exact ones were not.")
        return 0
    click.echo(
        "The auditor does NOT work as expected. An exact method is refuted by chance in less than "
        "one of a thousand runs; with few --trials, broken methods are missed."
    )
    return 1
