"""One audit from request to row: cached, resumable, failures recorded and never cached."""

from __future__ import annotations

import datetime
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

from bench.audit.audit_store import folder_of, stored_audit, write_audit
from bench.audit.laboratory import Laboratory, Say
from bench.audit.one_run import one_run_audit
from bench.audit.request import Prepared, check_applicable
from bench.audit.trial_store import TrialStore, write_text
from bench.audit.two_worlds import two_world_audit
from bench.cluster.batches import BatchError, Crew
from bench.engine import keys
from bench.errors import NotApplicable
from bench.results.records import AuditRow, Status


def audit(
    prepared: Prepared, directory: Path, crew: Crew, say: Say = lambda text: None
) -> AuditRow:
    """The row of an audit: stored, or run now and stored. The method's own failure is a status."""
    known = stored_audit(directory, prepared.key)
    if known is not None and known.status == Status.OK.value:
        say(f"{prepared.request.describe()}: audited before")
        return known
    row = _audited(prepared, directory, crew, say)
    write_audit(directory, row)
    return row


def _audited(prepared: Prepared, directory: Path, crew: Crew, say: Say) -> AuditRow:
    request = prepared.request
    store = TrialStore(folder_of(directory, prepared.key))
    if len(store):
        say(f"{request.describe()}: going on, {len(store)} refits were done before")
    laboratory = Laboratory(prepared.subject, store, crew, say)
    blank = blank_row(prepared)
    before = sum(trial.seconds for trial in store.all())
    started = time.perf_counter()
    try:
        check_applicable(prepared.method)
        if request.kind == "two-world":
            finding = two_world_audit(laboratory, request.trials)
        else:
            finding = one_run_audit(laboratory)
    except NotApplicable as reason:
        return ended(replace(blank, status=Status.SKIPPED.value, reason=str(reason)))
    except BatchError as problem:
        status = Status.SKIPPED if problem.skipped else Status.ERROR
        if problem.log:
            say(problem.log)
        return ended(replace(blank, status=status.value, reason=str(problem)))
    seconds = before + time.perf_counter() - started
    document = laboratory.ledger().to_json()
    write_text(document, store.folder / "ledger.json")
    store.finish()
    row = replace(blank, **asdict(finding), status=Status.OK.value, seconds=seconds)
    return ended(row)


def blank_row(prepared: Prepared) -> AuditRow:
    """The row before anything has happened."""
    request, dataset = prepared.request, prepared.dataset
    return AuditRow(
        key=prepared.key,
        kind=request.kind,
        method=request.method.name,
        label=request.method.label,
        parameters=json.dumps(dict(request.method.parameters)),
        source_hash=prepared.source_hash,
        dataset=request.dataset.label,
        dataset_parameters=json.dumps(dict(request.dataset.parameters)),
        task=dataset.task.value,
        ipc=request.ipc,
        full_size=request.full_size,
        eps_target=request.epsilon,
        eps_claimed=None,
        eps_proven=None,
        delta=request.delta,
        trials=0,
        refits=0,
        canary="",
        scorer="",
        threshold=None,
        false_positives=None,
        false_negatives=None,
        eps_audited=None,
        eps_gaussian=None,
        eps_detectable=None,
        p_claim=1.0,
        p_proof=1.0,
        replicated_eps=None,
        replicated_p_claim=1.0,
        replicated_p_proof=1.0,
        planted=None,
        planted_bug="",
        seed=request.seed,
        status="",
        reason="",
        seconds=None,
        versions=keys.versions(),
        finished_at="",
    )


def ended(row: AuditRow) -> AuditRow:
    """With the time of day."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return replace(row, finished_at=now)
