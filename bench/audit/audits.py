"""Audits from request to row: cached, resumable, failures recorded and never cached."""

from __future__ import annotations

import datetime
import functools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, final

from bench.audit.canaries import canaries, many_canaries
from bench.audit.one_run import FEWEST_CANARIES, one_run_audit
from bench.audit.trials import (
    FIRST,
    OUT,
    AuditTarget,
    Say,
    Stage,
    TrialStore,
    run_steps,
    run_trials,
    trial_ids,
    write_text,
)
from bench.audit.two_worlds import FEWEST_TRIALS, two_world_audit
from bench.cluster.batches import BatchError, Crew
from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.code import code_hash
from bench.engine.fit import for_fitting
from bench.errors import InputError, NotApplicable
from bench.plugins import registry
from bench.plugins.method import Method
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.results.audits import folder_of, stored_audit, write_audit
from bench.results.records import AuditRow, Status, Variant

Kind = Literal["two-world", "one-run"]

_COURSE = ("bench.audit.two_worlds", "bench.audit.one_run")
"""An audit depends on what these modules do, with all that they import from this room."""

MINUTES = 2.0
"""Time of all CPUs together for one method."""
_TRIALS = (4000, 2000, 1000, 400, 200)
"""With fewer refits, two worlds show less than many canaries in one run."""
_ONE_RUN_FITS = 6
_CANARIES = 200
_FAR_TOO_SLOW = 10.0
"""A first fit that takes this many times the allowed seconds is not repeated."""


@final
@dataclass(frozen=True)
class Request:
    """One audit of one method on one dataset."""

    method: Variant
    dataset: Variant
    epsilon: float | None
    trials: int
    kind: Kind = "two-world"
    ipc: int | None = 50
    full_size: bool = False
    delta: float = 1e-5
    seed: int = 0
    split: str = "default"
    split_seed: int = 0

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            Budget(self.epsilon, self.delta)  # refuses what is no budget
        fewest = FEWEST_TRIALS if self.kind == "two-world" else FEWEST_CANARIES
        what = "trials" if self.kind == "two-world" else "canaries (--trials)"
        if self.trials < fewest:
            raise InputError(
                f"{self.trials} {what} show nothing; a {self.kind} audit needs at least {fewest}"
            )
        if self.ipc is not None and self.ipc < 1:
            raise InputError(f"IPC {self.ipc} is not a positive number of rows per class")

    @functools.cached_property
    def built(self) -> Method:
        """The method with its parameters; a name that is not known is refused."""
        return registry.build_method(self.method.name, dict(self.method.parameters))

    def describe(self) -> str:
        """Return one line for people."""
        spend = "" if self.epsilon is None else f" at epsilon {self.epsilon:g}"
        return f"{self.method.label} on {self.dataset.label}{spend}"


@final
@dataclass(frozen=True)
class PreparedAudit:
    """A request with its target and keys."""

    request: Request
    dataset: Dataset
    source_hash: str
    key: str
    """Key of the stored results: of everything they depend on, the rows as well."""
    target: AuditTarget


def make_request(
    method: str,
    dataset: str,
    epsilon: float | None,
    trials: int,
    *,
    parameters: dict[str, Any] | None = None,
    dataset_parameters: dict[str, Any] | None = None,
    ipc: int | None = 50,
    full_size: bool = False,
    **others: Any,
) -> Request:
    """Return a request by names, without epsilon or IPC where the method does not use them."""
    given = tuple(sorted((parameters or {}).items()))
    kind = type(registry.build_method(method, dict(given)))
    if kind.uses_budget and epsilon is None:
        raise InputError(f"method {method} spends a budget; say which epsilon to audit (--eps)")
    shown = ",".join(f"{key}={value}" for key, value in given)
    source = tuple(sorted((dataset_parameters or {}).items()))
    registry.build_source(dataset, dict(source))
    return Request(
        Variant(method, f"{method}({shown})" if shown else method, given),
        Variant(dataset, dataset, source),
        epsilon if kind.uses_budget else None,
        trials,
        ipc=ipc if kind.uses_ipc and not full_size else None,
        full_size=full_size and kind.uses_ipc,
        **others,
    )


def load(request: Request) -> Dataset:
    """Load the dataset of a request."""
    source = registry.build_source(request.dataset.name, dict(request.dataset.parameters))
    return build_dataset(source, request.split, request.split_seed)


def prepare(request: Request, dataset: Dataset, method: Method | None = None) -> PreparedAudit:
    """Return target and keys. `method` is given for one that is no plugin (the known answers)."""
    built = method or request.built
    source_hash = keys.method_hash(type(built))
    identity = {
        "kind": request.kind,
        "method": [request.method.name, built.parameters()],
        "dataset": [request.dataset.name, request.dataset.parameters],
        "split": [request.split, request.split_seed],
        "epsilon": request.epsilon,
        "delta": request.delta,
        "ipc": [request.ipc, request.full_size],
        "trials": request.trials,
        "seed": request.seed,
    }
    # No row enters the seeds: numbers that depend on the table would distinguish two tables. Code
    # does not either, so that an edit of the method draws the same noise.
    seed_key = keys.hashed(identity)
    target = AuditTarget(
        built,
        for_fitting(dataset),
        request.ipc,
        None if request.epsilon is None else Budget(request.epsilon, request.delta),
        request.delta,
        seed_key,
        canaries(dataset)
        if request.kind == "two-world"
        else many_canaries(dataset, request.trials, keys.generator(seed_key, "canaries")),
        one_run=request.kind == "one-run",
    )
    key = keys.hashed(
        {
            **identity,
            "course": code_hash(*_COURSE),
            "source": source_hash,
            "libraries": {} if method is not None else keys.method_libraries(request.method.name),
            "fingerprint": dataset.fingerprint,
        }
    )
    return PreparedAudit(request, dataset, source_hash, key, target)


def audit(
    prepared: PreparedAudit, directory: Path, crew: Crew, say: Say = lambda text: None
) -> AuditRow:
    """Return the row of an audit: stored, or run now and stored. A method's failure is a status."""
    known = stored_audit(directory, prepared.key)
    if known is not None and known.status == Status.OK.value:
        say(f"{prepared.request.describe()}: audited before")
        return known
    return _stored(_audited(prepared, directory, crew, say), directory)


def _audited(prepared: PreparedAudit, directory: Path, crew: Crew, say: Say) -> AuditRow:
    request = prepared.request
    store = TrialStore(folder_of(directory, prepared.key))
    if len(store):
        say(f"{request.describe()}: resumes, {len(store)} refits were done before")
    target, blank = prepared.target, _blank_row(prepared)
    before = sum(trial.seconds for trial in store.all())
    started = time.perf_counter()
    try:
        _check_applicable(target.method)
        if request.kind == "two-world":
            steps = two_world_audit(target, request.trials, blank)
        else:
            steps = one_run_audit(target, blank)
        row = run_steps(steps, target, store, crew, say)
    except (BatchError, NotApplicable) as problem:
        return _failed(blank, problem, say)
    seconds = before + time.perf_counter() - started
    write_text(store.get([FIRST])[0].document, store.folder / "ledger.json")
    store.finish()
    return replace(row, refits=len(store), status=Status.OK.value, seconds=seconds)


def _check_applicable(method: Method) -> None:
    """Refuse methods whose guarantee is not about a row."""
    if method.unit:
        raise NotApplicable(
            f"its unit of privacy is the {method.unit}, and an audit plants one row: what it "
            "claims is not about rows"
        )


def _failed(blank: AuditRow, problem: BatchError | NotApplicable, say: Say) -> AuditRow:
    failed = isinstance(problem, BatchError) and not problem.skipped
    if isinstance(problem, BatchError) and problem.log:
        say(problem.log)
    status = Status.ERROR if failed else Status.SKIPPED
    return replace(blank, status=status.value, reason=str(problem))


def _stored(row: AuditRow, directory: Path) -> AuditRow:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    row = replace(row, finished_at=now)
    write_audit(directory, row)
    return row


def _blank_row(prepared: PreparedAudit) -> AuditRow:
    request = prepared.request
    return AuditRow(
        key=prepared.key,
        kind=request.kind,
        method=request.method.name,
        label=request.method.label,
        parameters=json.dumps(dict(request.method.parameters)),
        source_hash=prepared.source_hash,
        dataset=request.dataset.label,
        dataset_parameters=json.dumps(dict(request.dataset.parameters)),
        task=prepared.dataset.task.value,
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


# Many methods, each with as many trials as its speed allows ---


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
    """Yield one row per method, also for those that do not fit the dataset or are too slow.

    `quick` audits methods with their quick hyperparameters: the results hold for those.
    """
    dataset: Dataset | None = None
    allowed = 60.0 * minutes * cpus
    for name in names:
        given = {**(registry.method_class(name).quick if quick else {}), **(parameters or {})}
        request = make_request(
            name, dataset_name, epsilon, FEWEST_TRIALS, parameters=given, **(options or {})
        )
        dataset = dataset or load(request)
        sized = _begun(request, dataset, directory)
        if sized is None:
            prepared = prepare(request, dataset)
            blank = _blank_row(prepared)
            try:
                _check_applicable(prepared.target.method)
                seconds = _seconds_per_fit(prepared.target, crew, allowed)
            except (BatchError, NotApplicable) as problem:
                yield _stored(_failed(blank, problem, say), directory)
                continue
            sized = _sized(request, seconds, allowed)
            if sized is None:
                reason = (
                    f"one fit takes {seconds:.0f} s: an audit would take more than the "
                    f"{minutes:g} minutes it was given (--minutes)"
                )
                row = replace(blank, status=Status.SKIPPED.value, reason=reason)
                yield _stored(row, directory)
                continue
            say(f"{name}: {seconds:.2g} s per fit, {sized.kind} audit with {sized.trials}")
        yield audit(prepare(sized, dataset), directory, crew, say)


def _seconds_per_fit(target: AuditTarget, crew: Crew, allowed: float) -> float:
    """Return the time of the faster of two fits: the first one imports and calibrates."""
    method = target.method
    seconds: list[float] = []
    for trial in trial_ids(Stage.CHOOSE, OUT, 2):
        batches = crew.run(
            run_trials,
            target,
            [trial],
            cpus=method.resources.cpus,
            environment=method.environment,
        )
        seconds += [trial.seconds for batch in batches for trial in batch]
        if seconds[0] > _FAR_TOO_SLOW * allowed:
            break
    return min(seconds)


def _sized(request: Request, seconds: float, allowed: float) -> Request | None:
    """Return the largest audit that fits into the time; one run where refits are slow."""
    # A share is left for a replication.
    trials = int(allowed / max(seconds, 1e-4) / 1.5)
    for size in _TRIALS:
        if size <= trials:
            return replace(request, trials=size)
    return _one_run(request) if trials >= _ONE_RUN_FITS else None


def _one_run(request: Request) -> Request:
    return replace(request, kind="one-run", trials=_CANARIES)


def _begun(request: Request, dataset: Dataset, directory: Path) -> Request | None:
    """Return the audit that is finished or begun: another timing must not start a new one."""
    for sized in (*(replace(request, trials=size) for size in _TRIALS), _one_run(request)):
        key = prepare(sized, dataset).key
        known = stored_audit(directory, key)
        finished = known is not None and known.status == Status.OK.value
        if finished or len(TrialStore(folder_of(directory, key))):
            return sized
    return None
