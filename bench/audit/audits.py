"""Audits as cells: how one is asked for, planned, run and judged.

An audit is a cell whose method is attacked instead of released. It has the key of a cell, is run by
the loop of all cells (`bench.cluster.driver`) and is kept in the journal of a run directory; only
how its trials follow from each other is decided here.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from bench.audit.canaries import Canary, canaries, many_canaries
from bench.audit.one_run import one_run_audit
from bench.audit.transcript_attack import transcript_audit
from bench.audit.transcripts import client_canaries, run_recordings
from bench.audit.trials import (
    FIRST,
    FIRST_RECORD,
    OUT,
    AuditSteps,
    AuditTarget,
    Say,
    Stage,
    Trial,
    TrialId,
    TrialStore,
    Wanted,
    read_trials,
    run_trials,
    trial_ids,
    write_file,
)
from bench.audit.two_worlds import two_world_audit
from bench.cluster.driver import RunSummary, carry_out, run_jobs
from bench.cluster.execute import Stop
from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.about import write_descriptions
from bench.engine.cell import blank_row, ended, failed_outcome
from bench.engine.fit import FitResult, MethodFacts, guarded
from bench.engine.options import RunOptions, circumstances
from bench.engine.plan import Action, Job, RunPlan, decide, load_dataset
from bench.engine.procedure import Work
from bench.errors import BenchError, InputError
from bench.plugins import registry
from bench.plugins.method import Method
from bench.plugins.release import Claim
from bench.privacy.accounting import Budget, Proof
from bench.privacy.ledger import Ledger
from bench.results.records import (
    ONE_RUN,
    TRANSCRIPT,
    TWO_WORLD,
    AuditSpec,
    Cell,
    CellRow,
    Outcome,
    Status,
    Variant,
)
from bench.results.run_directory import RunStore
from bench.results.verdicts import judge

MINUTES = 2.0
"""Time of all CPUs together for one method."""
_TRIALS = (4000, 2000, 1000, 400, 200)
"""With fewer refits, two worlds show less than many canaries in one run."""
_ONE_RUN_FITS = 6
_CANARIES = 200
_FAR_TOO_SLOW = 10.0
"""A first fit that takes this many times the allowed seconds is not repeated."""
_SAY_SECONDS = 10.0


def audit_cell(
    method: str,
    dataset: str,
    epsilon: float | None,
    audit: AuditSpec,
    *,
    parameters: Mapping[str, Any] | None = None,
    ipc: int | None = 50,
    full_size: bool = False,
    delta: float = 1e-5,
    seed: int = 0,
) -> Cell:
    """Return the cell of an audit by names, without epsilon or IPC that the method does not use."""
    given = tuple(sorted((parameters or {}).items()))
    kind = type(registry.build_method(method, dict(given)))
    registry.build_source(dataset, {})
    if kind.uses_budget and epsilon is None:
        raise InputError(f"method {method} spends a budget; say which epsilon to audit (--eps)")
    if epsilon is not None:
        Budget(epsilon, delta)  # refuses what is no budget
    if ipc is not None and ipc < 1:
        raise InputError(f"IPC {ipc} is not a positive number of rows per class")
    shown = ",".join(f"{key}={value}" for key, value in given)
    return Cell(
        Variant(method, f"{method}({shown})" if shown else method, given),
        Variant(dataset, dataset),
        ipc=ipc if kind.uses_ipc and not full_size else None,
        full_size=full_size and kind.uses_ipc,
        epsilon=epsilon if kind.uses_budget else None,
        delta=delta,
        seed=seed,
        split="default",
        split_seed=0,
        audit=audit,
    )


def instance_cell(
    method: Method,
    dataset: Dataset,
    epsilon: float | None,
    audit: AuditSpec,
    *,
    ipc: int | None = None,
    delta: float = 1e-5,
    seed: int = 0,
) -> Cell:
    """Return the cell of an audit of a method and a dataset that need not be plugins."""
    return Cell(
        Variant(method.name, method.name, tuple(sorted(method.parameters().items()))),
        Variant(dataset.name, dataset.name),
        ipc=ipc,
        full_size=False,
        epsilon=epsilon,
        delta=delta,
        seed=seed,
        split="default",
        split_seed=0,
        audit=audit,
    )


# One audit ---


class _Refits(ABC):
    """Refits of the method of a cell: what is common to an audit and to the timing before it."""

    def __init__(self, cell: Cell, dataset: Dataset, method: Method | None = None) -> None:
        """Prepare the cell. `method` is given for one that is no plugin (the known answers)."""
        self.cell = cell
        self.dataset = dataset
        self._method = method or registry.build_method(
            cell.method.name, dict(cell.method.parameters)
        )
        self.key = keys.cell_key(cell, dataset.fingerprint, self.kind)
        self._queue: deque[TrialId] = deque()

    @property
    def kind(self) -> type[Method]:
        """Class of the method."""
        return type(self._method)

    @property
    def attack(self) -> str:
        """Name of the attack."""
        assert self.cell.audit is not None
        return self.cell.audit.attack

    @property
    def work(self) -> Work:
        """What is done with the trials."""
        return run_recordings if self.attack == TRANSCRIPT else run_trials

    @functools.cached_property
    def shared(self) -> AuditTarget:
        """The target of the attack."""
        cell, spec = self.cell, self.cell.audit
        assert spec is not None
        # No row enters the seeds: numbers that depend on the table would distinguish two tables.
        # Code does not either, so that an edit of the method draws the same noise.
        seed = keys.seed_of(cell)
        return AuditTarget(
            self._method,
            self.dataset,
            cell.ipc,
            None if cell.epsilon is None else Budget(cell.epsilon, cell.delta),
            cell.delta,
            seed,
            self._canaries(spec, seed),
            one_run=spec.attack == ONE_RUN,
            clients=self._method.unit == "client",
        )

    def _canaries(self, spec: AuditSpec, seed: str) -> tuple[Canary, ...]:
        if self._method.unit == "client":
            return client_canaries(self.dataset)
        if spec.attack == ONE_RUN:
            return many_canaries(self.dataset, spec.trials, keys.generator(seed, "canaries"))
        return canaries(self.dataset)

    @property
    def blank(self) -> CellRow:
        """The row of the cell before anything has happened."""
        return blank_row(self.cell, self.key, self.dataset, MethodFacts.of(self.kind))

    def failed(self, fitted: FitResult) -> Outcome:
        """Return the outcome of a cell that could not be finished."""
        return failed_outcome(self.blank, fitted)

    @property
    def waiting(self) -> int:
        """Number of trials that can be run now."""
        return len(self._queue)

    def take(self, count: int) -> Sequence[TrialId]:
        """Return the next trials to run."""
        return [self._queue.popleft() for _ in range(min(count, len(self._queue)))]

    @abstractmethod
    def add(self, results: Sequence[Any]) -> None:
        """Take trials that were run, as `run_trials` returned them."""

    @property
    @abstractmethod
    def outcome(self) -> Outcome | None:
        """The outcome of the cell, once it has ended."""

    def inapplicable(self) -> Outcome | None:
        """Return the outcome for a method whose guarantee is not about a row."""
        if not self._method.unit or self.attack == TRANSCRIPT:
            return None
        reason = (
            f"its unit of privacy is the {self._method.unit}, and this attack plants one row: what "
            "it claims is not about rows; --attack transcript leaves out a whole client"
        )
        return self.failed(FitResult(Status.SKIPPED, reason=reason))


@final
class AuditProcedure(_Refits):
    """Runs the trials of an audit; those that are stored are not repeated."""

    def __init__(
        self,
        cell: Cell,
        dataset: Dataset,
        directory: Path,
        method: Method | None = None,
        say: Say = lambda text: None,
    ) -> None:
        super().__init__(cell, dataset, method)
        self.folder = RunStore(directory).audit_directory(self.key)
        self._say = say
        self._said = time.monotonic()
        self._outcome: Outcome | None = None
        self._wanted: Wanted | None = None

    @functools.cached_property
    def _trials(self) -> TrialStore:
        store = TrialStore(self.folder)
        if len(store):
            self._say(f"{self.cell.describe()}: resumes, {len(store)} refits were done before")
        return store

    @functools.cached_property
    def _steps(self) -> AuditSteps:
        assert self.cell.audit is not None
        if self.cell.audit.attack == ONE_RUN:
            return one_run_audit(self.shared, self.blank)
        if self.cell.audit.attack == TRANSCRIPT:
            return transcript_audit(self.shared, self.cell.audit.trials, self.blank)
        return two_world_audit(self.shared, self.cell.audit.trials, self.blank)

    @property
    def outcome(self) -> Outcome | None:
        if self._outcome is None and self._wanted is None:
            self._outcome = self.inapplicable()
            if self._outcome is None:
                self._advance(None)
        return self._outcome

    def add(self, results: Sequence[Any]) -> None:
        assert self._wanted is not None
        self._trials.add(read_trials(self.shared, results))
        left = len(self._trials.missing(self._wanted.trials))
        if not left:
            self._advance(self._trials.get(self._wanted.trials))
        elif time.monotonic() - self._said > _SAY_SECONDS:
            self._said = time.monotonic()
            self._say(f"{self.cell.describe()}: {self._wanted.purpose}, {left} refits left")

    def _advance(self, trials: list[Trial] | None) -> None:
        """Give the audit its trials, until it wants some that were not run or has ended."""
        while True:
            step = guarded(functools.partial(_next_step, self._steps, trials))
            if isinstance(step, FitResult):
                self._outcome = self.failed(step)
                return
            if isinstance(step, Outcome):
                self._outcome = self._finished(step)
                return
            self._wanted = step
            self._queue.extend(self._trials.missing(step.trials))
            if self._queue:
                return
            trials = self._trials.get(step.trials)

    def _finished(self, outcome: Outcome) -> Outcome:
        """Store ledger and trials, and judge: what is refuted is decided over all audits."""
        text = self._trials.get([FIRST_RECORD if self.attack == TRANSCRIPT else FIRST])[0].document
        row, proof = outcome.row, Ledger.from_json(text).proof()
        proven = 0.0 if row.eps_proven is None else row.eps_proven
        judgement = judge(
            None if row.eps_target is None else Budget(row.eps_target, row.delta),
            None if row.eps_claimed is None else Claim(row.eps_claimed, row.delta, "its claim"),
            Proof(proven, row.delta, proof.accountant, proof.reasons, proof.trust),
        )
        row = replace(
            row,
            accountant=proof.accountant,
            verdict=judgement.text,
            verdict_reason=judgement.reason,
            fit_seconds=sum(trial.seconds for trial in self._trials.all()),
        )
        write_file(self.folder / "ledger.json", text.encode())
        self._trials.finish()
        return replace(outcome, row=ended(row, Status.OK, ""))


def _next_step(steps: AuditSteps, trials: list[Trial] | None) -> Wanted | Outcome:
    try:
        return next(steps) if trials is None else steps.send(trials)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def plan_audits(audits: Sequence[AuditProcedure], store: RunStore) -> RunPlan:
    """Plan audits: those that are not finished are run, failed and skipped ones again."""
    jobs: list[Job] = []
    by_key = {audit.key: audit for audit in audits}
    for key, audit in by_key.items():
        row, _ = store.finished.get(key, (None, ()))
        intact = functools.partial(store.audit_intact, key)
        if decide(audit.cell, row, intact, ()).action is Action.FIT:
            jobs.append(Job(audit.cell, key, False, (), procedure=audit))
    return RunPlan(
        jobs=tuple(jobs),
        wanted=tuple((audit.cell, key) for key, audit in by_key.items()),
        cached=len(by_key) - len(jobs),
    )


def run_audits(
    audits: Sequence[AuditProcedure], store: RunStore, options: RunOptions, say: Say
) -> RunSummary:
    """Run what is missing of some audits, and keep them in an open run directory."""
    started = time.perf_counter()
    here = circumstances()
    if not store.manifest().get("grid"):
        store.write_manifest({"grid": "audits", **here})
    cells = [audit.cell for audit in audits]
    known = set(registry.method_names())  # mechanisms of the self-test are none
    write_descriptions(
        store.directory,
        (cell.method for cell in cells if cell.method.name in known),
        (cell.dataset for cell in cells),
    )
    plan = plan_audits(audits, store)
    if plan.jobs and here["dirty"]:
        store.write_manifest({"dirty": True})  # of a run by another checkout, too
    to_do = {job.key for job in plan.jobs}
    for cell, key in plan.wanted:
        if key not in to_do:
            say(f"{cell.describe()}: audited before")
    datasets = {audit.cell.dataset: audit.dataset for audit in audits}
    return carry_out(plan, datasets, store, options, lambda _: (), started, say)


def load(cell: Cell) -> Dataset:
    """Load the dataset of an audit."""
    dataset = load_dataset(cell.dataset, cell.split, cell.split_seed)
    if isinstance(dataset, BenchError):
        raise InputError(str(dataset))
    return dataset


# Many methods, each with as many trials as its speed allows ---


@final
class TimingProcedure(_Refits):
    """Times the fits of a method before its audit is sized. Nothing is stored."""

    def __init__(self, cell: Cell, dataset: Dataset, allowed: float) -> None:
        super().__init__(cell, dataset)
        self._allowed = allowed
        self._seconds: list[float] = []
        self._failed = self.inapplicable()
        self._queue.append(FIRST)

    @property
    def seconds(self) -> float:
        """Time of the faster of two fits: the first one imports and calibrates."""
        return min(self._seconds)

    @property
    def outcome(self) -> Outcome | None:
        done = len(self._seconds)
        if done == 2 or (done == 1 and self._seconds[0] > _FAR_TOO_SLOW * self._allowed):
            return Outcome(ended(self.blank, Status.OK, ""))
        return self._failed

    def add(self, results: Sequence[Any]) -> None:
        self._seconds += [trial.seconds for trial in read_trials(self.shared, results)]
        self._queue += trial_ids(Stage.CHOOSE, OUT, 2)[len(self._seconds) :]


def audit_many(
    cells: Sequence[Cell],
    store: RunStore,
    options: RunOptions,
    say: Say = lambda text: None,
    *,
    minutes: float = MINUTES,
    cpus: int = 1,
) -> RunSummary:
    """Run the largest audit of each cell's method that fits into the time.

    Of the cells, the trials are not used. Methods that do not fit the dataset or are too slow are
    recorded as skipped. An audit that is finished or begun keeps its size: another timing must not
    start a new one.
    """
    allowed = 60.0 * minutes * cpus
    datasets = {entry: load(cell) for entry, cell in {c.dataset: c for c in cells}.items()}
    sized = [_begun(cell, datasets[cell.dataset], store, say) for cell in cells]
    timings = {
        number: TimingProcedure(cell, datasets[cell.dataset], allowed)
        for number, cell in enumerate(cells)
        if sized[number] is None
    }
    stop = Stop(say)
    jobs = [Job(one.cell, one.key, False, (), procedure=one) for one in timings.values()]
    ended_badly = {
        job.key: outcome
        for job, outcome in run_jobs(jobs, datasets, store, options, stop, say)
        if outcome.row.status != Status.OK.value
    }
    if stop.asked:
        raise KeyboardInterrupt
    for number, timing in timings.items():
        outcome = ended_badly.get(timing.key)
        if outcome is None:
            spec = _sized(timing.seconds, allowed)
            if spec is not None:
                cell = replace(cells[number], audit=spec)
                seconds = f"{timing.seconds:.2g} s per fit"
                say(f"{cell.method.label}: {seconds}, {spec.attack} audit with {spec.trials}")
                sized[number] = AuditProcedure(cell, timing.dataset, store.directory, say=say)
                continue
            reason = (
                f"one fit takes {timing.seconds:.0f} s: an audit would take more than the "
                f"{minutes:g} minutes it was given (--minutes)"
            )
            outcome = timing.failed(FitResult(Status.SKIPPED, reason=reason))
        store.record(outcome, None)
    summary = run_audits([audit for audit in sized if audit is not None], store, options, say)
    keys_in_order = (
        timings[number].key if audit is None else audit.key for number, audit in enumerate(sized)
    )
    finished = tuple(key for key in dict.fromkeys(keys_in_order) if key in summary.journal)
    return replace(summary, keys=finished)


def _sized(seconds: float, allowed: float) -> AuditSpec | None:
    """Return the largest audit that fits into the time; one run where refits are slow."""
    # A share is left for a replication.
    trials = int(allowed / max(seconds, 1e-4) / 1.5)
    for size in _TRIALS:
        if size <= trials:
            return AuditSpec(TWO_WORLD, size)
    return AuditSpec(ONE_RUN, _CANARIES) if trials >= _ONE_RUN_FITS else None


def _begun(cell: Cell, dataset: Dataset, store: RunStore, say: Say) -> AuditProcedure | None:
    """Return the audit of this method that is finished or begun."""
    specs = [*(AuditSpec(TWO_WORLD, size) for size in _TRIALS), AuditSpec(ONE_RUN, _CANARIES)]
    for spec in specs:
        audit = AuditProcedure(replace(cell, audit=spec), dataset, store.directory, say=say)
        row, _ = store.finished.get(audit.key, (None, ()))
        finished = row is not None and row.status == Status.OK.value
        if finished or len(TrialStore(audit.folder)):
            return audit
    return None
