"""Trials: the method fitted again on one of two neighbouring tables, and the scores of its release.

Every trial has its own noise and its own public randomness. All of it follows from the seed key (a
hash of what was asked for, without any row), the stage, the world and the number of the trial: two
worlds share no seed, and none depends on the table. A key that is a hash of the private rows would
not do: numbers drawn from it would distinguish two tables whatever the noise.

Trials are stored as they end, one file per batch, and as one file when the audit is finished:

    <folder of the audit>/batches/*.parquet   written under another name and renamed
                          trials.parquet      all trials in order, once the audit is finished

Nothing is pickled; an interrupted audit reads the batches and resumes.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import math
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.audit.canaries import Canary, with_canaries
from bench.audit.scorers import Attacker
from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.fit import Randomness, run_method
from bench.engine.limits import threads_capped
from bench.errors import InputError, InvalidReleaseError, StoreError
from bench.plugins.method import Method
from bench.plugins.release import Claim, Release
from bench.privacy.accounting import Budget
from bench.privacy.ledger import Entry, Ledger
from bench.results.opening import names_in
from bench.results.parquet_files import read_parquet
from bench.results.records import Outcome
from bench.results.writing import make_folder, sync_folder, write_atomically, writing

Say = Callable[[str], None]

OUT = -1
"""World without a canary."""


class Stage(enum.StrEnum):
    """Purpose of a trial. A trial serves one stage only."""

    CHOOSE = "choose"
    """First half: canary, scorer and threshold are chosen on it."""
    BOUND = "bound"
    """Second half: the bound is computed from it."""
    REPLICATE = "replicate"
    """Fresh trials, where the bound contradicts a number."""
    RECORD = "record"
    """Transcripts: how far a canary moves each noisy answer."""
    PILOT = "pilot"
    """Runs of a delegated mechanism that choose the canary."""
    PLANT = "plant"
    """Runs of a delegated mechanism with less noise than is charged: a planted bug."""


@final
@dataclass(frozen=True, order=True)
class TrialId:
    """Identity of a trial: its randomness follows from this and the seed key."""

    stage: Stage
    canary: int
    """Number of the canary that is in the table, or OUT."""
    number: int

    @property
    def tag(self) -> str:
        """Part of every seed of the trial."""
        world = "out" if self.canary == OUT else f"in/{self.canary}"
        return f"{self.stage.value}/{world}/{self.number}"


FIRST = TrialId(Stage.CHOOSE, OUT, 0)
"""First trial of every audit with refits."""
FIRST_RECORD = TrialId(Stage.RECORD, 0, 0)
"""First trial of every audit of transcripts."""


def trial_ids(stage: Stage, canary: int, count: int) -> list[TrialId]:
    """Return the first `count` trials of one stage and world."""
    return [TrialId(stage, canary, number) for number in range(count)]


@final
@dataclass(frozen=True)
class Trial:
    """Numbers computed from the release of a trial."""

    id: TrialId
    scores: npt.NDArray[np.float64]
    """(canaries, scorers): a release without a canary counts for all of them, one with a canary
    for that one; the others are 0."""
    planted: npt.NDArray[np.float64]
    """(scorers,) of the same release with the canary copied into it; empty where it was out. In a
    one-run audit (canaries x scorers), each canary that is in copied by itself; 0 for the others.
    """
    features: npt.NDArray[np.float32]
    claimed: float
    """NaN for a method that claims nothing."""
    proven: float
    ledger: str
    """Digest of its ledger: trials with other ledgers have other trade-off curves."""
    seconds: float
    """Processor time of the fit: how many trials are affordable must not depend on the load of the
    machine."""
    document: str = ""
    """The whole ledger, of the first trial and of recordings."""
    transcript: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Of the stage RECORD: the numbers of a `Transcript`."""


@final
@dataclass(frozen=True)
class AuditTarget:
    """What is attacked; it is sent to workers."""

    method: Method
    dataset: Dataset
    ipc: int | None
    budget: Budget | None
    delta: float
    seed_key: str
    canaries: tuple[Canary, ...]
    one_run: bool = False
    """True includes every canary by an independent coin, instead of one canary or none."""
    clients: bool = False
    """True where a canary stands for a whole client, whose rows are in the table."""

    @functools.cached_property
    def attacker(self) -> Attacker:
        """Scorer of the releases."""
        return Attacker(self.dataset.encoder, self.canaries)

    def coins(self, trial: TrialId) -> npt.NDArray[np.bool_]:
        """Which canaries are in, in a one-run audit: fair coins, fixed before the fit."""
        return keys.generator(self.seed_key, f"{trial.tag}/coins").random(len(self.canaries)) < 0.5

    def table(self, trial: TrialId) -> Dataset:
        """Return the table of a trial. Declared counts are the same in every world."""
        if self.one_run:
            inside = [self.canaries[number] for number in np.flatnonzero(self.coins(trial))]
            return with_canaries(self.dataset, inside)
        if trial.canary == OUT:
            return self.dataset
        # The last one is kept: trials of one canary come together, and tables may be large.
        if trial.canary not in self._tables:
            self._tables.clear()
            table = with_canaries(self.dataset, [self.canaries[trial.canary]])
            self._tables[trial.canary] = table
        return self._tables[trial.canary]

    def proven(self, ledger: Ledger, digest: str) -> float:
        """Return the proven epsilon; ledgers of the same events have the same."""
        if digest not in self._proofs:
            self._proofs[digest] = ledger.proof().epsilon
        return self._proofs[digest]

    @functools.cached_property
    def _proofs(self) -> dict[str, float]:
        return {}

    @functools.cached_property
    def _tables(self) -> dict[int, Dataset]:
        return {}


def refit(target: AuditTarget, trial: TrialId) -> Release:
    """Fit the method once more; the release carries its ledger."""
    return run_method(
        target.method,
        target.table(trial),
        Randomness.of(lambda purpose: keys.generator(target.seed_key, f"{trial.tag}/{purpose}")),
        ipc=target.ipc,
        budget=target.budget,
        delta=target.delta,
    )


def run_trials(target: AuditTarget, trials: Sequence[TrialId]) -> list[dict[str, Any]]:
    """Run several trials in one process, on one thread; `read_trials` reads what it returns.

    A method runs here, so that it is left to the reader to prove what the ledgers say.
    """
    with threads_capped(1):
        ledgers: set[str] = set()
        return [_run(target, trial, ledgers) for trial in trials]


def _run(target: AuditTarget, trial: TrialId, ledgers: set[str]) -> dict[str, Any]:
    started = time.process_time()
    release = refit(target, trial)
    seconds = time.process_time() - started
    ledger = release.ledger
    assert ledger is not None
    attacker, digest = target.attacker, ledger_digest(ledger)
    inside = trial.canary != OUT and not target.one_run
    new = digest not in ledgers
    ledgers.add(digest)
    return {
        "id": [trial.stage.value, trial.canary, trial.number],
        # The scores of a release with one canary are used for that canary only.
        "scores": attacker.scores(release, trial.canary if inside else None),
        "planted": _planted(target, trial, release),
        "features": attacker.features(release),
        "claimed": of_claim(release.claim, target.delta),
        "digest": digest,
        "seconds": seconds,
        "events": ledger.to_record() if new else None,
    }


def read_trials(target: AuditTarget, results: Sequence[Any]) -> list[Trial]:
    """Return the trials of a batch, with what their ledgers prove."""
    trials: list[Trial] = []
    ledgers: dict[str, Ledger] = {}
    for result in results:
        try:
            stage, canary, number = result["id"]
            identity = TrialId(Stage(stage), int(canary), int(number))
            digest = str(result["digest"])[:64]
            if result["events"] is not None:
                ledgers[digest] = Ledger.from_record(result["events"])
            ledger = ledgers[digest]
            trial = Trial(
                identity,
                _numbers(result["scores"], 2, np.float64),
                _numbers(result["planted"], 1, np.float64),
                _numbers(result["features"], 1, np.float32),
                float(result["claimed"]),
                target.proven(ledger, digest),
                digest,
                float(result["seconds"]),
                ledger.to_json() if identity == FIRST or stage == Stage.RECORD else "",
                _numbers(result.get("transcript", np.empty(0)), 1, np.float64),
            )
        except (LookupError, TypeError, ValueError) as problem:
            raise InvalidReleaseError(
                f"a batch of trials holds what is no trial ({type(problem).__name__}): the method "
                "has changed the harness in its process"
            ) from None
        trials.append(trial)
    return trials


def _numbers(values: object, sides: int, kind: type[np.floating[Any]]) -> npt.NDArray[Any]:
    if not isinstance(values, np.ndarray) or values.ndim != sides or values.dtype != kind:
        raise TypeError("not the numbers of a trial")
    return values


def _planted(target: AuditTarget, trial: TrialId, release: Release) -> npt.NDArray[np.float64]:
    attacker = target.attacker
    if target.one_run:
        copied = [
            attacker.planted(release, canary) if inside else None
            for canary, inside in zip(target.canaries, target.coins(trial), strict=True)
        ]
        width = next((len(scores) for scores in copied if scores is not None), 0)
        return np.concatenate([np.zeros(width) if scores is None else scores for scores in copied])
    if trial.canary == OUT:
        return np.empty(0)
    return attacker.planted(release, target.canaries[trial.canary])


def of_claim(claim: Claim | None, delta: float) -> float:
    """Return the claimed epsilon at the audit's delta: a claim at a smaller one implies it."""
    if claim is None:
        return math.nan
    if claim.delta > delta * (1 + 1e-9):
        raise InputError(
            f"it claims epsilon {claim.epsilon:g} at delta {claim.delta:g}, which says nothing at "
            f"the smaller delta {delta:g} of this audit; audit it with --delta {claim.delta:g}"
        )
    return claim.epsilon


def ledger_digest(ledger: Ledger) -> str:
    """Return a text that is equal for ledgers of the same events."""
    return _digest(tuple(ledger.entries.items()))


@functools.lru_cache(maxsize=256)
def _digest(entries: tuple[tuple[Entry, int], ...]) -> str:
    text = repr(sorted(map(repr, entries)))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# Storage ---

_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("canary", pa.int32()),
        ("number", pa.int32()),
        ("canaries", pa.int32()),
        ("scores", pa.list_(pa.float64())),
        ("planted", pa.list_(pa.float64())),
        ("features", pa.list_(pa.float32())),
        ("claimed", pa.float64()),
        ("proven", pa.float64()),
        ("ledger", pa.string()),
        ("seconds", pa.float64()),
        ("document", pa.string()),
        ("transcript", pa.list_(pa.float64())),
    ]
)
_LISTS = ("scores", "planted", "features", "transcript")
_RESUME = "then run the same command again: finished trials are kept"


@final
class TrialStore:
    """Trials of one audit, by their identity."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._batches = folder / "batches"
        self._trials: dict[TrialId, Trial] = {}
        batches = [name for name in names_in(folder, "batches") if name.endswith(".parquet")]
        for parts in [("trials.parquet",), *(("batches", name) for name in batches)]:
            self._trials |= {trial.id: trial for trial in _read(folder, *parts)}

    def __len__(self) -> int:
        return len(self._trials)

    def missing(self, wanted: Iterable[TrialId]) -> list[TrialId]:
        """Return those that have not been run."""
        return [trial for trial in wanted if trial not in self._trials]

    def get(self, wanted: Iterable[TrialId]) -> list[Trial]:
        """Return these trials, in this order."""
        return [self._trials[trial] for trial in wanted]

    def all(self) -> list[Trial]:
        """Return every trial, in order."""
        return self.get(sorted(self._trials))

    def add(self, trials: Sequence[Trial]) -> None:
        """Store a batch."""
        name = hashlib.sha256("".join(trial.id.tag for trial in trials).encode()).hexdigest()[:16]
        with writing(self.folder, _RESUME):
            for folder in (self.folder.parent, self.folder, self._batches):
                make_folder(folder)
        _write_table(_table(trials), self._batches / f"{name}.parquet")
        self._trials |= {trial.id: trial for trial in trials}

    def finish(self) -> None:
        """Replace the batches by one file; the seconds of a trial are no part of its result."""
        table = _table(self.all())
        zeros = pa.array(np.zeros(len(table)))
        table = table.set_column(table.schema.get_field_index("seconds"), "seconds", zeros)
        _write_table(table, self.folder / "trials.parquet")
        shutil.rmtree(self._batches, ignore_errors=True)
        # The journal will refer to it: its folder must be there after a power cut as well.
        with writing(self.folder, _RESUME):
            for folder in (self.folder, self.folder.parent, self.folder.parent.parent):
                sync_folder(folder)


def _write_table(table: pa.Table, path: Path) -> None:
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    write_file(path, content.getvalue().to_pybytes())


def write_file(path: Path, content: bytes) -> None:
    """Write a file of an audit, whole or not at all; its folder exists."""
    with writing(path, _RESUME):
        write_atomically(path, content)


def _table(trials: Sequence[Trial]) -> pa.Table:
    columns = {
        "stage": [trial.id.stage.value for trial in trials],
        "canary": [trial.id.canary for trial in trials],
        "number": [trial.id.number for trial in trials],
        "canaries": [len(trial.scores) for trial in trials],
        "scores": [trial.scores.reshape(-1) for trial in trials],
    }
    rest = [name for name in _SCHEMA.names if name not in columns]
    columns |= {name: [getattr(trial, name) for trial in trials] for name in rest}
    return pa.Table.from_pydict(columns, schema=_SCHEMA)


def _read(folder: Path, *parts: str) -> list[Trial]:
    try:
        table = read_parquet(folder, *parts)
        if table is None:
            return []
        if "transcript" not in table.column_names:  # trials of earlier versions
            nothing = pa.array([[]] * len(table), type=pa.list_(pa.float64()))
            table = table.append_column("transcript", nothing)
        return _trials(table.select(_SCHEMA.names).cast(_SCHEMA))
    except (AttributeError, KeyError, TypeError, ValueError, StoreError) as problem:
        raise StoreError(
            f"{folder.joinpath(*parts)}: not a table of trials ({problem}); remove it and run the "
            "audit again"
        ) from None


def _trials(table: pa.Table) -> list[Trial]:
    # Lists one at a time, each straight from Arrow: one Python float per number takes minutes.
    columns = {
        name: [item.values.to_numpy(zero_copy_only=False) for item in table.column(name)]
        if name in _LISTS
        else table.column(name).to_pylist()
        for name in table.column_names
    }
    lines = zip(*columns.values(), strict=True)
    rows = (dict(zip(columns, line, strict=True)) for line in lines)
    return [
        Trial(
            TrialId(Stage(row["stage"]), row["canary"], row["number"]),
            row["scores"].reshape(row["canaries"], -1),
            row["planted"],
            row["features"],
            row["claimed"],
            row["proven"],
            row["ledger"],
            row["seconds"],
            row["document"],
            row["transcript"],
        )
        for row in rows
    ]


# What an audit asks for, and how it gets it ---


@final
@dataclass(frozen=True)
class Wanted:
    """Trials that an audit needs before it can continue."""

    trials: tuple[TrialId, ...]
    purpose: str


AuditSteps = Generator[Wanted, list[Trial], Outcome]
"""An audit as a generator: it yields the trials that it wants, receives them and returns its rows.

Nothing is run or stored by it, so that the same trials always give the same numbers.
"""


@final
class History:
    """Trials that an audit has received so far, and the guarantees that they came with."""

    def __init__(self) -> None:
        self._trials: dict[TrialId, Trial] = {}

    def ask(
        self, wanted: Iterable[TrialId], purpose: str
    ) -> Generator[Wanted, list[Trial], list[Trial]]:
        """Ask for trials and keep them."""
        trials = yield Wanted(tuple(wanted), purpose)
        self._trials |= {trial.id: trial for trial in trials}
        return trials

    @property
    def refits(self) -> int:
        """Number of trials so far."""
        return len(self._trials)

    def ledger(self, trial: TrialId | None = None) -> Ledger:
        """Return the ledger of a recording; by default, that of the first trial."""
        first = FIRST if FIRST in self._trials else FIRST_RECORD
        return Ledger.from_json(self._trials[trial or first].document)

    def claimed(self) -> float | None:
        """Return the largest claim of all trials; None where nothing is claimed."""
        claims = [trial.claimed for trial in self._trials.values()]
        return max((claim for claim in claims if not math.isnan(claim)), default=None)

    def proven(self) -> float:
        """Return the largest proven epsilon of all trials."""
        return max(trial.proven for trial in self._trials.values())

    def one_ledger(self, only: Sequence[TrialId] = ()) -> bool:
        """True where all trials, or these, had the same events: they have one trade-off curve."""
        return len({self._trials[trial].ledger for trial in only or self._trials}) == 1
