"""Audits of many methods on one dataset, each with as many trials as its speed allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.audit.audit_store import folder_of, stored_audit, write_audit
from bench.audit.engine import audit, blank_row, ended
from bench.audit.laboratory import Say
from bench.audit.request import (
    FEWEST_TRIALS,
    Prepared,
    Request,
    check_applicable,
    load,
    make_request,
    prepare,
)
from bench.audit.trial_store import TrialStore
from bench.audit.trials import OUT, Stage, TrialId, run_trials
from bench.cluster.batches import BatchError, Crew
from bench.data.dataset import Dataset
from bench.errors import NotApplicable
from bench.plugins import registry
from bench.results.records import AuditRow, Status

MINUTES = 2.0
"""Of all CPUs together, for one method."""
_TRIALS = (4000, 2000, 1000, 400, 200)
"""With fewer refits, two worlds show less than many canaries in one."""
_ONE_RUN_FITS = 6
_HOPELESS = 10.0
_CANARIES = 200


def audit_many(
    names: Sequence[str],
    dataset_name: str,
    epsilon: float,
    directory: Path,
    crew: Crew,
    *,
    minutes: float = MINUTES,
    cpus: int = 1,
    quick: bool = False,
    parameters: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    say: Say = lambda text: None,
) -> Iterator[AuditRow]:
    """One row a method, also for those that do not fit the dataset or are too slow.

    `quick` audits methods with the hyperparameters that make them quick: what is found then holds
    for those.
    """
    dataset: Dataset | None = None
    for name in names:
        given = {**(registry.method_class(name).quick if quick else {}), **(parameters or {})}
        request = make_request(
            name, dataset_name, epsilon, FEWEST_TRIALS, parameters=given, **(options or {})
        )
        dataset = dataset or load(request)
        begun = _begun(request, dataset, directory)
        if begun is not None:
            yield audit(prepare(begun, dataset), directory, crew, say)
            continue
        prepared = prepare(request, dataset)
        allowed = 60.0 * minutes * cpus
        try:
            check_applicable(prepared.method)
            seconds = _seconds_of_a_fit(prepared, crew, allowed)
        except (BatchError, NotApplicable) as problem:
            failed = isinstance(problem, BatchError) and not problem.skipped
            status = Status.ERROR if failed else Status.SKIPPED
            row = replace(blank_row(prepared), status=status.value, reason=str(problem))
            yield _kept(row, directory)
            continue
        sized = _sized(request, seconds, allowed)
        if sized is None:
            reason = (
                f"one fit takes {seconds:.0f} s: an audit would take more than the {minutes:g} "
                "minutes it was given (--minutes)"
            )
            row = replace(blank_row(prepared), status=Status.SKIPPED.value, reason=reason)
            yield _kept(row, directory)
            continue
        say(f"{name}: {seconds:.2g} s a fit, {sized.kind} audit with {sized.trials}")
        yield audit(prepare(sized, dataset), directory, crew, say)


def _seconds_of_a_fit(prepared: Prepared, crew: Crew, allowed: float) -> float:
    """Of the quicker of two: the first one imports and calibrates; one, where all hope is gone."""
    method = prepared.method
    found: list[float] = []
    for number in range(2):
        batches = crew.run(
            run_trials,
            prepared.subject,
            [TrialId(Stage.CHOOSE, OUT, number)],
            cpus=method.resources.cpus,
            environment=method.environment,
        )
        found += [trial.seconds for batch in batches for trial in batch]
        if found[0] > _HOPELESS * allowed:
            break
    return min(found)


def _sized(request: Request, seconds: float, allowed: float) -> Request | None:
    """As many trials as fit into the time; few but many canaries where refits are slow."""
    # A share is left: where a bound speaks against a number, it is replicated.
    trials = int(allowed / max(seconds, 1e-4) / 1.5)
    for size in _TRIALS:
        if size <= trials:
            return replace(request, trials=size)
    return _one_run(request) if trials >= _ONE_RUN_FITS else None


def _one_run(request: Request) -> Request:
    return replace(request, kind="one-run", trials=_CANARIES)


def _begun(request: Request, dataset: Dataset, directory: Path) -> Request | None:
    """The size in which this audit is finished or half done: another timing must not begin anew."""
    for sized in (*(replace(request, trials=size) for size in _TRIALS), _one_run(request)):
        key = prepare(sized, dataset).key
        known = stored_audit(directory, key)
        finished = known is not None and known.status == Status.OK.value
        if finished or len(TrialStore(folder_of(directory, key))):
            return sized
    return None


def _kept(row: AuditRow, directory: Path) -> AuditRow:
    row = ended(row)
    write_audit(directory, row)
    return row
