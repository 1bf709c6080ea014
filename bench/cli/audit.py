"""`bench audit`: attacks a method and reports a lower bound on its epsilon."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bench.cli import options as shared
from bench.cli.options import echo_error

if TYPE_CHECKING:
    from bench.cluster.driver import RunSummary
    from bench.engine.options import RunOptions
    from bench.results.records import Cell


_LISTED = (
    "method",
    "methods",
    "dataset",
    "eps",
    "trials",
    "attack",
    "ipc",
    "delta",
    "parameters",
    "seed",
    "minutes",
    "quick",
)
"""What a list of claims says itself."""


@click.command()
@click.argument("method", required=False)
@click.option("--dataset", help="Dataset to audit on; several with commas for several methods.")
@click.option("--eps", type=shared.POSITIVE, help="Target epsilon that the method is asked for.")
@click.option(
    "--trials",
    type=click.IntRange(1, 10**9),
    help="Refits in both worlds and both halves [default: 1000]; canaries of a one-run audit "
    "[default: 200]; redrawn transcripts at most [default: 40000].",
)
@click.option(
    "--attack",
    type=click.Choice(["two-world", "one-run", "transcript"]),
    default="two-world",
    show_default=True,
    help="Many refits with and without a canary; few with many canaries, for slow methods; or the "
    "kernel's noisy answers themselves, redrawn.",
)
@click.option("--ipc", default="50", show_default=True, help="Rows per class, or `full`.")
@click.option(
    "--delta",
    type=shared.FiniteRange(0, 1, min_open=True, max_open=True),
    default=1e-5,
    show_default=True,
)
@shared.parameters
@click.option("--seed", type=shared.SEED, default=0, show_default=True)
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
    type=shared.POSITIVE,
    default=2.0,
    show_default=True,
    help="For several methods: processor time per method and dataset; sets trials and attack.",
)
@click.option("--quick", is_flag=True, help="For several methods: use quick hyperparameters.")
@click.option("--self-test", is_flag=True, help="Audit methods of known epsilon instead.")
@click.option(
    "--foreign",
    is_flag=True,
    help="With --self-test: compare with the auditor of jax-privacy instead, in an environment of "
    "its own, which is built first.",
)
@click.option(
    "--table",
    type=shared.PATH,
    metavar="DIR",
    help="Print all audits of DIR as Markdown, with --attack only those; run nothing.",
)
@click.option(
    "--page", type=shared.PATH, metavar="FILE", help="With --table: write the page of the docs."
)
@click.option(
    "--claims",
    type=shared.PATH,
    metavar="FILE",
    help="Audit the published claims that FILE (TOML) lists; with --table: the page is about them.",
)
@click.option(
    "--keep",
    type=shared.PATH,
    metavar="DIR",
    help="With --table: write the finished audits to DIR/journal.jsonl, without logs.",
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
        source = click.get_current_context().get_parameter_source("attack")
        attack = options["attack"] if source is ParameterSource.COMMANDLINE else ""
        _show_table(options["table"], options["page"], options["claims"], options["keep"], attack)
        return
    if options["page"] is not None or options["keep"] is not None:
        raise click.UsageError("--page and --keep belong to --table DIR")
    try:
        if options["foreign"]:
            if not options["self_test"]:
                raise click.UsageError("--foreign belongs to --self-test")
            sys.exit(_compare_auditors(options))
        if options["self_test"]:
            sys.exit(_self_test(options))
        summary = _audited(options)
        if summary.interrupted:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        echo_error("interrupted: run the same command again to resume")
        sys.exit(130)
    sys.exit(_show(summary, options["as_json"]))


def _show_table(
    directory: Path, file: Path | None, claims: Path | None, kept: Path | None, attack: str
) -> None:
    from bench.audit import soundness
    from bench.audit.claims import JOURNAL, claims_page, keep_audits, read_claims
    from bench.audit.report import markdown_table, page
    from bench.errors import StoreError
    from bench.results.reading import read_audits
    from bench.results.writing import FOR_ALL, write_atomically, writing

    audits = tuple(one for one in read_audits(directory) if attack in ("", one.row.attack))
    if not audits:
        raise StoreError(f"{directory} holds no audits; `bench audit --out {directory}` makes one")
    if kept is not None:
        keep_audits(audits, kept)
        click.echo(f"wrote {kept / JOURNAL}")
    if claims is not None:
        text = claims_page(read_claims(claims), audits)
    else:
        counts = soundness.read(directory / soundness.FILE)
        text = markdown_table(audits) if file is None else page(audits, counts)
    if file is not None:
        with writing(file, "then run the same command again"):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, text.encode(), FOR_ALL)
        click.echo(f"wrote {file}")
    elif kept is None or claims is not None:
        click.echo(text, nl=False)


def _settings(options: dict[str, Any], out: Path) -> RunOptions:
    from bench.engine.options import RunOptions

    return RunOptions(
        out=out, cpus=options["cpus"], ray_address=options["ray_address"], tracking=False
    )


def _audited(options: dict[str, Any]) -> RunSummary:
    import os

    from bench.audit.audits import AuditProcedure, audit_cell, audit_many, load, run_audits
    from bench.engine.grid import parse_ipc
    from bench.plugins import registry
    from bench.results.records import (
        DEFAULT_TRIALS,
        FEWEST_TRIALS,
        TRANSCRIPT,
        TWO_WORLD,
        AuditSpec,
    )
    from bench.results.run_directory import RunStore

    settings = _settings(options, options["out"])
    if options["claims"] is not None:
        return _claims_audited(options, settings)
    if options["dataset"] is None:
        raise click.UsageError("name a --dataset; `bench list datasets` shows them")
    ipc = parse_ipc(options["ipc"])

    def cell(method: str, dataset: str, spec: AuditSpec, parameters: dict[str, Any]) -> Cell:
        return audit_cell(
            method,
            dataset,
            options["eps"],
            spec,
            parameters=parameters,
            ipc=ipc,
            full_size=ipc is None,
            delta=options["delta"],
            seed=options["seed"],
        )

    names = shared.comma_separated(options["methods"])
    if options["method"] == "all":
        names = registry.method_names()
    if names:
        if options["eps"] is None:
            raise click.UsageError("name an epsilon: --eps")
        quick = {
            name: registry.method_class(name).quick if options["quick"] else {} for name in names
        }
        transcript = options["attack"] == TRANSCRIPT
        spec = AuditSpec(TWO_WORLD, FEWEST_TRIALS[TWO_WORLD])
        if transcript:
            spec = AuditSpec(TRANSCRIPT, options["trials"] or DEFAULT_TRIALS[TRANSCRIPT])
        cells = [
            cell(name, dataset, spec, {**quick[name], **options["parameters"]})
            for dataset in shared.comma_separated(options["dataset"])
            for name in names
        ]
        cpus = options["cpus"] or os.cpu_count() or 1
        with RunStore(options["out"]) as store:
            if transcript:
                datasets = {one.dataset: one for one in cells}
                tables = {entry: load(one) for entry, one in datasets.items()}
                audits = [
                    AuditProcedure(one, tables[one.dataset], store.directory, say=echo_error)
                    for one in cells
                ]
                return run_audits(audits, store, settings, echo_error)
            minutes = options["minutes"]
            return audit_many(cells, store, settings, echo_error, minutes=minutes, cpus=cpus)
    if options["method"] is None:
        raise click.UsageError("name a METHOD, --methods, --claims, --self-test or --table")
    trials = options["trials"] or DEFAULT_TRIALS[options["attack"]]
    spec = AuditSpec(options["attack"], trials)
    asked = cell(options["method"], options["dataset"], spec, options["parameters"])
    dataset = load(asked)
    with RunStore(options["out"]) as store:
        procedure = AuditProcedure(asked, dataset, store.directory, say=echo_error)
        return run_audits([procedure], store, settings, echo_error)


def _claims_audited(options: dict[str, Any], settings: RunOptions) -> RunSummary:
    from bench.audit.audits import AuditProcedure, load, run_audits
    from bench.audit.claims import read_claims
    from bench.results.run_directory import RunStore

    context = click.get_current_context()
    for name in _LISTED:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            spelled = name.upper() if name == "method" else f"--{name}"
            raise click.UsageError(f"--claims lists what to audit; leave {spelled} out")
    claims = read_claims(options["claims"])
    cells = [claims.cell(audit) for audit in claims.audits]
    datasets = {
        cell.dataset: load(cell) for cell in {cell.dataset: cell for cell in cells}.values()
    }
    with RunStore(options["out"]) as store:
        procedures = [
            AuditProcedure(cell, datasets[cell.dataset], store.directory, say=echo_error)
            for cell in cells
        ]
        return run_audits(procedures, store, settings, echo_error)


def _show(summary: RunSummary, as_json: bool) -> int:
    from dataclasses import asdict

    from bench.audit.report import conclude, report
    from bench.results.audits import refutations
    from bench.results.journal import plain
    from bench.results.reading import read_audits
    from bench.results.records import Status

    directory = summary.directory
    # Corrected for all methods ever audited into this directory, not for those of this call.
    refuted = refutations(read_audits(directory))
    outcomes = [summary.journal.outcome(key) for key in summary.keys]
    conclusions = [conclude(one, refuted.get(one.row.key)) for one in outcomes]
    if as_json:
        documents = [
            {
                **plain(asdict(one.row)),
                **({} if one.audit is None else plain(asdict(one.audit))),
                "verdict": said.verdict,
                "sentence": said.sentence,
            }
            for one, said in zip(outcomes, conclusions, strict=True)
        ]
        click.echo(json.dumps(documents, indent=1))
    else:
        for one in outcomes:
            if one.row.log_tail:
                echo_error(one.row.log_tail)
            click.echo(report(one, refuted.get(one.row.key)))
            click.echo()
        click.echo(f"Results in {directory}")
    good = (Status.OK.value, Status.SKIPPED.value)
    failed = any(one.row.status not in good for one in outcomes)
    return 1 if failed or any(said.refuted for said in conclusions) else 0


def _compare_auditors(options: dict[str, Any]) -> int:
    from bench.audit.foreign import compared

    good = True
    for one in compared(options["seed"], echo_error):
        click.echo(one.line)
        good = good and one.good
    said = "agree" if good else "do NOT agree, or a bound is above the true epsilon"
    click.echo(f"This auditor and that of jax-privacy {said}.")
    return 0 if good else 1


def _self_test(options: dict[str, Any]) -> int:
    from bench.audit.self_test import TRIALS, self_test

    trials = options["trials"] or TRIALS
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(options, Path(folder) / "audits")
        checked = list(self_test(settings, trials, options["seed"], echo_error))
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
