"""Runs one cell: fit, prove, judge, score. No Ray here; any exception becomes a status.

A method with its own environment is fitted there (`bench.engine.fit`); the rest happens here. What
proves and scores does not import the method where it is told the method's facts.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from bench.data.dataset import Dataset
from bench.engine import keys, phases
from bench.engine.fit import FitResult, Fits, InThisProcess, MethodFacts, guarded
from bench.engine.limits import peak_memory_mb, reset_peak_memory
from bench.engine.score import kept_scores, score_release
from bench.errors import BenchError, one_line
from bench.plugins.release import Release
from bench.privacy.accounting import ADJACENCY, Budget
from bench.results import private_rows
from bench.results.journal import plain
from bench.results.records import (
    Cell,
    CellRow,
    Outcome,
    Status,
    TimingRow,
    check_outcome,
)
from bench.results.timings import Stopwatch, added_to, kept
from bench.results.verdicts import judge

_STACK_CHARACTERS = 5_000


@final
@dataclass(frozen=True)
class Remake:
    """A cell whose rows were not stored, and are made again so that they can be scored."""

    stored: Outcome
    digest: str
    """Digest of the rows that were released, see `private_rows.digest`."""


def run_cell(
    cell: Cell,
    key: str,
    dataset: Dataset,
    metrics: Sequence[str],
    stored: Outcome | Remake | None = None,
    threads: int = 1,
    fits: Fits | None = None,
    facts: MethodFacts | None = None,
) -> Outcome:
    """Fit (unless a stored release is given) and score one cell. Never raises.

    Scores of a stored release that other metrics gave are kept. `fits` is where the method runs,
    by default this process; `facts` are given where the method shall not be imported.
    """
    fits = fits or InThisProcess()
    remake = stored if isinstance(stored, Remake) else None
    if stored is None or isinstance(stored, Remake) or stored.release is None:
        phases.enter("fit")
        fitted = fits.fit(cell, dataset)
        return finish_cell(cell, key, dataset, metrics, fitted, threads, fits, facts, remake)
    reset_peak_memory()
    facts = facts or MethodFacts.named(cell.method.name)
    scoring = _Scoring(cell, dataset, metrics, threads, fits, facts)
    before = kept(stored.timings, metrics)
    return _scored_outcome(scoring, stored.row, stored.release, before, stored=stored)


def finish_cell(
    cell: Cell,
    key: str,
    dataset: Dataset,
    metrics: Sequence[str],
    fitted: FitResult,
    threads: int = 1,
    fits: Fits | None = None,
    facts: MethodFacts | None = None,
    remake: Remake | None = None,
) -> Outcome:
    """Prove, judge and score what was fitted, here or in another environment. Never raises.

    What was made again is scored only, and only if it is what was released.
    """
    reset_peak_memory()
    known = facts or MethodFacts.named(cell.method.name)
    scoring = _Scoring(cell, dataset, metrics, threads, fits or InThisProcess(), known)
    if remake is not None:
        return _remade_outcome(scoring, fitted, remake)
    row = blank_row(cell, key, dataset, known)
    if fitted.release is None:
        return failed_outcome(row, fitted)
    release = fitted.release
    phases.enter("prove")
    watch = Stopwatch()
    judged = guarded(lambda: _judged(cell, row, fitted, release, known))
    timings = (*_fit_timing(key, fitted), watch.lap(key, "prove"))
    if isinstance(judged, FitResult):
        return replace(failed_outcome(row, judged), timings=timings)
    row, release = judged
    return _scored_outcome(scoring, row, release, timings)


def _fit_timing(key: str, fitted: FitResult) -> tuple[TimingRow, ...]:
    """What the fit took; nothing where its process was lost."""
    if fitted.seconds is None or fitted.processor_seconds is None:
        return ()
    return (TimingRow(key, "fit", "", fitted.seconds, fitted.processor_seconds),)


@final
@dataclass(frozen=True)
class _Scoring:
    """By what a release is scored."""

    cell: Cell
    dataset: Dataset
    metrics: Sequence[str]
    threads: int
    fits: Fits
    facts: MethodFacts


def _remade_outcome(scoring: _Scoring, fitted: FitResult, remake: Remake) -> Outcome:
    release, stored = fitted.release, remake.stored
    if release is None:
        return not_remade(stored, fitted)
    if release.rows is None or private_rows.digest(release.rows) != remake.digest:
        other = FitResult(Status.ERROR, reason="the same seed gave other rows than were released")
        return not_remade(stored, other)
    before = kept(stored.timings, scoring.metrics)
    return _scored_outcome(scoring, stored.row, release, before, stored=stored)


def not_remade(stored: Outcome, fitted: FitResult) -> Outcome:
    """Return the outcome of a cell whose rows could not be made again.

    What was released stays released: its row keeps the verdict and the scores.
    """
    # One that was skipped would count as done.
    status = Status.ERROR if fitted.status is Status.SKIPPED else fitted.status
    reason = f"its rows, which are not stored, could not be made again: {fitted.reason}"
    row = ended(stored.row, status, reason, fitted.stack)
    return Outcome(row, stored.scores, log=fitted.log, timings=stored.timings)


def _judged(
    cell: Cell, row: CellRow, fitted: FitResult, release: Release, facts: MethodFacts
) -> tuple[CellRow, Release]:
    ledger = release.ledger
    if ledger is None:
        raise BenchError(f"method {cell.method.name}: its release came without a ledger")
    if not facts.seeded:
        release = replace(release, notes={**release.notes, "reproducible": "no"})
    budget = None if cell.epsilon is None else Budget(cell.epsilon, cell.delta)
    proof = ledger.proof()
    judgement = judge(budget, release.claim, proof)
    row = replace(
        row,
        eps_claimed=None if release.claim is None else release.claim.epsilon,
        claim_source="" if release.claim is None else release.claim.source,
        eps_proven=proof.epsilon,
        accountant=proof.accountant,
        verdict=judgement.text,
        verdict_reason=one_line(judgement.reason),
        rows_released=None if release.rows is None else len(release.rows),
        notes=json.dumps(plain(release.notes)),
        fit_seconds=fitted.seconds,
        peak_memory_mb=fitted.peak_memory_mb,
        versions=json.dumps({**json.loads(row.versions), **fitted.versions}),
    )
    return row, release


def _scored_outcome(
    how: _Scoring,
    row: CellRow,
    release: Release,
    before: tuple[TimingRow, ...],
    stored: Outcome | None = None,
) -> Outcome:
    watch, metrics = Stopwatch(), how.metrics
    scored = score_release(
        how.cell, row.key, how.dataset, release, metrics, how.threads, how.fits,
        how.facts.environment,
    )  # fmt: skip
    hashes = json.loads(row.metrics) if stored is not None else {}
    hashes |= keys.metric_hashes(metrics)
    for name in scored.problems:
        del hashes[name]  # tried again next time
    took = watch.lap(row.key, "score", reference=scored.reference_seconds)
    row = replace(
        row,
        score_seconds=took.wall_seconds,
        metrics=json.dumps(hashes, sort_keys=True),
        metrics_hash=keys.metrics_hash(hashes),
        peak_memory_mb=max(peak_memory_mb() or 0.0, row.peak_memory_mb or 0.0) or None,
    )
    status = Status.ERROR if scored.problems else Status.OK
    failures = "; ".join(f"metric {name}: {text}" for name, text in scored.problems.items())
    row = ended(row, status, failures, scored.stack)
    scores = (*kept_scores(stored, metrics), *scored.scores)
    fitted = stored is None
    ledger = "" if release.ledger is None or not fitted else release.ledger.to_json()
    return Outcome(
        row,
        scores,
        release,
        fitted=fitted,
        details=scored.details,
        log=scored.log,
        ledger=ledger,
        timings=added_to(before, took, *scored.timings),
    )


def blank_row(
    cell: Cell, key: str, dataset: Dataset | None, facts: MethodFacts | None = None
) -> CellRow:
    """Return the row of a cell before anything has happened.

    `facts` are given for a method that is no plugin, and where it shall not be imported.
    """
    facts = facts or MethodFacts.named(cell.method.name)
    warnings = []
    total = dataset.counts.total if dataset and not cell.private_counts else 0
    if cell.epsilon is not None and total and cell.delta > 1 / (10 * total):
        warnings.append(f"delta {cell.delta:g} is above 1/(10 n) = {1 / (10 * total):.2g}")
    if not facts.seeded:
        warnings.append("not reproducible: the method cannot be seeded")
    return CellRow(
        key=key,
        method=cell.method.name,
        label=cell.method.label,
        parameters=json.dumps(dict(cell.method.parameters)),
        dataset=cell.dataset.label,
        dataset_parameters=json.dumps(dict(cell.dataset.parameters)),
        task=dataset.task.value if dataset else "",
        ipc=cell.ipc,
        full_size=cell.full_size,
        eps_target=cell.epsilon,
        eps_claimed=None,
        eps_proven=None,
        eps_audited=None,
        delta=cell.delta,
        verdict="",
        verdict_reason="",
        claim_source="",
        accountant="",
        adjacency=ADJACENCY,
        unit=facts.unit or (dataset.declaration.unit if dataset else ""),
        study_only=not cell.secure_noise,
        private_counts=cell.private_counts,
        warnings="; ".join(warnings),
        seed=cell.seed,
        split=cell.split,
        split_seed=cell.split_seed,
        status="",
        reason="",
        log_tail="",
        rows_released=None,
        notes="{}",
        fit_seconds=None,
        score_seconds=None,
        peak_memory_mb=None,
        fingerprint=dataset.fingerprint if dataset else "",
        source_hash=facts.source_hash,
        metrics_hash="",
        versions=keys.versions(),
        finished_at="",
        dataset_name=cell.dataset.name,
        attack="" if cell.audit is None else cell.audit.attack,
        trials=None if cell.audit is None else cell.audit.trials,
    )


def failed_row(
    cell: Cell, key: str, dataset: Dataset | None, status: Status, reason: str
) -> CellRow:
    """Return the row of a cell that was lost outside its code (worker died, no dataset)."""
    return ended(blank_row(cell, key, dataset), status, reason)


def failed_outcome(row: CellRow, fitted: FitResult) -> Outcome:
    """Return the outcome of a cell whose fit failed."""
    row = ended(row, fitted.status, fitted.reason, fitted.stack)
    return Outcome(row, log=fitted.log, timings=_fit_timing(row.key, fitted))


def storable(outcome: Outcome, cell: Cell, dataset: Dataset | None) -> Outcome:
    """Return the outcome, or that of a failed cell where the tables cannot hold it.

    The last check before the journal: whatever gets past the contracts costs its own cell only.
    """
    try:
        check_outcome(outcome)
    except ValueError as problem:
        reason = f"its result cannot be stored: {one_line(str(problem), 200)}"
        return Outcome(failed_row(cell, outcome.row.key, dataset, Status.ERROR, reason))
    return outcome


def ended(row: CellRow, status: Status, reason: str, stack: str = "") -> CellRow:
    """Return the row with the end of the cell: now, by this status."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return replace(
        row,
        status=status.value,
        reason=one_line(reason),
        log_tail=stack[-_STACK_CHARACTERS:],
        finished_at=now,
    )
