"""The result schema: what a run directory's tables hold. The leaderboard depends on it alone."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, final

from bench.errors import InputError, StoreError
from bench.results.opening import parse_object

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from bench.plugins.release import Release


class Status(enum.StrEnum):
    """How a cell ended."""

    OK = "ok"
    SKIPPED = "skipped"
    ERROR = "error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"


@final
@dataclass(frozen=True)
class Variant:
    """A plugin with parameters, under a label that distinguishes variants."""

    name: str
    label: str
    parameters: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        # Variants are looked up by value, also those with lists, which TOML and JSON read.
        frozen = tuple((name, _frozen(value)) for name, value in self.parameters)
        object.__setattr__(self, "parameters", frozen)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


_WHOLE_LIMIT = 2**63
"""Whole numbers of result tables have 64 bits."""


def _check_storable(what: str, value: object) -> None:
    """Refuse a parameter that JSON does not know, such as a date of TOML."""
    if isinstance(value, (list, tuple)):
        for item in value:
            _check_storable(what, item)
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_storable(what, name)
            _check_storable(what, item)
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise InputError(
            f"{what}: a {type(value).__name__} cannot be stored; expected a number, a text, a "
            "truth value or a list of them (a date in quotes is a text)"
        )
    elif isinstance(value, int) and not -_WHOLE_LIMIT <= value < _WHOLE_LIMIT:
        raise InputError(f"{what}: a number of more than 64 bits; expected a smaller one")
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{what}: {ascii(value)[:100]} is no text in UTF-8") from None


def ipc_text(ipc: int | None, full_size: bool) -> str:
    """Return the size of a release: rows per class, `full`, or `own` where the method decides."""
    return "full" if full_size else "own" if ipc is None else str(ipc)


TWO_WORLD = "two-world"
ONE_RUN = "one-run"
TRANSCRIPT = "transcript"

FEWEST_TRIALS = {TWO_WORLD: 40, ONE_RUN: 10, TRANSCRIPT: 400}
"""Attacks, and the smallest number of trials that can show anything."""
DEFAULT_TRIALS = {TWO_WORLD: 1000, ONE_RUN: 200, TRANSCRIPT: 40_000}


@final
@dataclass(frozen=True)
class AuditSpec:
    """How the method of a cell is attacked; nothing is released by such a cell."""

    attack: str
    """`two-world`, `one-run` or `transcript`."""
    trials: int
    """Refits in both worlds and both halves; canaries of a one-run audit; of a transcript audit the
    largest number of redrawn transcripts."""

    def __post_init__(self) -> None:
        if self.attack not in FEWEST_TRIALS:
            known = ", ".join(FEWEST_TRIALS)
            raise InputError(f"{str(self.attack)[:60]!r} is no attack; expected one of {known}")
        fewest = FEWEST_TRIALS[self.attack]
        if self.trials < fewest:
            what = "canaries (--trials)" if self.attack == ONE_RUN else "trials"
            raise InputError(
                f"{self.trials} {what} show nothing; a {self.attack} audit needs at least {fewest}"
            )


@final
@dataclass(frozen=True)
class Cell:
    """One method on one dataset at one IPC, epsilon and seed: released, or attacked."""

    method: Variant
    dataset: Variant
    ipc: int | None
    full_size: bool
    epsilon: float | None
    delta: float
    seed: int
    split: str
    split_seed: int
    private_counts: bool = False
    secure_noise: bool = False
    audit: AuditSpec | None = None
    """None for a cell that is released and scored."""

    def __post_init__(self) -> None:
        # Whatever is asked for must fit into the tables: found out after the cell was computed,
        # it would be too late.
        for name, number in (("seed", self.seed), ("split_seed", self.split_seed)):
            if not -_WHOLE_LIMIT <= number < _WHOLE_LIMIT:
                raise InputError(f"{name}: a number of more than 64 bits; expected a smaller one")
        for kind, variant in (("method", self.method), ("dataset", self.dataset)):
            _check_storable(kind, variant.label)
            for name, value in variant.parameters:
                _check_storable(f"{kind} {variant.label}: parameter {name}", value)
        if self.audit is not None and (self.private_counts or self.secure_noise):
            raise InputError(
                "an audit fits with seeded noise and declared counts; leave out private counts "
                "and secure noise"
            )

    @property
    def ipc_text(self) -> str:
        """Size of the release: rows per class, `full`, or `own` where the method decides."""
        return ipc_text(self.ipc, self.full_size)

    def describe(self) -> str:
        """Return one line for people."""
        size = {"full": " full size", "own": ""}.get(self.ipc_text, f" ipc={self.ipc_text}")
        spend = "" if self.epsilon is None else f" eps={self.epsilon:g}"
        attack = "" if self.audit is None else f" ({self.audit.attack} audit, {self.audit.trials})"
        return f"{self.method.label} on {self.dataset.label}{size}{spend} seed={self.seed}{attack}"


@final
@dataclass(frozen=True)
class CellRow:
    """One row of `cells.parquet`. JSON texts hold what has no fixed columns."""

    key: str
    method: str
    label: str
    """The method's name in this grid: distinguishes variants with other parameters."""
    parameters: str
    """JSON: hyperparameters of the method."""
    dataset: str
    dataset_parameters: str
    task: str
    ipc: int | None
    """Synthetic rows per class; None where the release has one size or full size was asked."""
    full_size: bool
    eps_target: float | None
    eps_claimed: float | None
    eps_proven: float | None
    """Infinity where nothing is proven; None where the cell did not finish."""
    eps_audited: float | None
    """Of an audit: the bound that is valid whatever the method does."""
    delta: float
    verdict: str
    """The verdict with the trusted library, if any; empty where the cell did not finish.

    Of an audit: without what it refutes, which is decided over all audits together."""
    verdict_reason: str
    claim_source: str
    accountant: str
    adjacency: str
    unit: str
    study_only: bool
    """True for seeded noise: no conclusion about releasing may be drawn."""
    private_counts: bool
    warnings: str
    seed: int
    split: str
    split_seed: int
    status: str
    reason: str
    log_tail: str
    """Places in the code where it failed. What it printed and the text of its exception may hold
    values of rows: they are in the internal log (`log_name`), not here."""
    rows_released: int | None
    notes: str
    """JSON: facts the method reported about itself."""
    fit_seconds: float | None
    score_seconds: float | None
    peak_memory_mb: float | None
    fingerprint: str
    """Hash of the dataset's rows with their split."""
    source_hash: str
    """Hash of what the method's code does."""
    metrics_hash: str
    """Hash of all metrics that scored the release."""
    versions: str
    """JSON: versions of Python and the libraries that computed the cell."""
    finished_at: str
    dataset_name: str = ""
    """The dataset plugin behind the label."""
    metrics: str = "{}"
    """JSON: metrics that scored the release, each with the hash of its source."""
    attack: str = ""
    """`two-world`, `one-run` or `transcript` for an audit; empty for a released cell."""
    trials: int | None = None
    """Trials that an audit was asked for."""
    release_hashes: str = ""
    """JSON: size and SHA-256 of each file of the release; empty where they were not recorded."""

    @property
    def ipc_text(self) -> str:
        """Size of the release: rows per class, `full`, or `own` where the method decides."""
        return ipc_text(self.ipc, self.full_size)

    @property
    def cell(self) -> Cell:
        """The cell that this row is the result of."""
        name = self.dataset_name or self.dataset
        return Cell(
            method=Variant(self.method, self.label, _parameters(self.parameters)),
            dataset=Variant(name, self.dataset, _parameters(self.dataset_parameters)),
            ipc=self.ipc,
            full_size=self.full_size,
            epsilon=self.eps_target,
            delta=self.delta,
            seed=self.seed,
            split=self.split,
            split_seed=self.split_seed,
            private_counts=self.private_counts,
            secure_noise=not self.study_only,
            audit=AuditSpec(self.attack, self.trials or 0) if self.attack else None,
        )


def _parameters(text: str) -> tuple[tuple[str, Any], ...]:
    try:
        return tuple(stored_object("parameters", text).items())
    except ValueError as problem:
        raise StoreError(f"a cell cannot be read: {problem}") from None


@final
@dataclass(frozen=True)
class ScoreRow:
    """One row of `scores.parquet`: one metric of one cell. Absent scores carry a reason."""

    key: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    direction: str
    family: str
    reason: str
    limit: float | None = None
    """The paper's acceptance threshold, where it has one: a worse value is not acceptable."""
    remark: str = ""
    shown: bool = True
    """On the leaderboard's page; the others are in its tables."""


PHASES = ("load", "fit", "prove", "score", "write")
"""Values of `TimingRow.phase`."""


@final
@dataclass(frozen=True)
class TimingRow:
    """One row of `timings.parquet`: what one step of one cell took.

    The row of a phase as a whole has no metric; those of single metrics are parts of `score`.
    """

    key: str
    phase: str
    """`load` (the dataset, in the row of the first cell of it that ended in a run; a stored release
    that is scored again), `fit`, `prove`, `score`, `write` (release and details)."""
    metric: str
    """Name of a metric; empty for the phase as a whole."""
    wall_seconds: float
    processor_seconds: float
    """Of all threads, and of child processes that have ended."""
    reference_seconds: float = 0.0
    """Part of `processor_seconds` for what depends on the real rows alone: it is done once for many
    releases of a dataset, and stands in the row of the cell that came first."""


@final
@dataclass(frozen=True)
class AuditRow:
    """One row of `audits.parquet`: what the cell of a finished audit has beside its `CellRow`.

    A bound is a lower bound on epsilon at 95%, from trials that were not used to choose canary,
    scorer and threshold. p-values are of the null hypothesis that the claimed (proven) guarantee
    holds; 1 where there is none, or no evidence against it. Whether a number is refuted is decided
    over all methods audited together (`bench.results.audits`).
    """

    key: str
    """Key of the cell."""
    trials: int
    """Refits in both worlds together that the bound is based on; canaries of a one-run audit."""
    refits: int
    """All fits of the method, those used for choosing and the replication included."""
    canary: str
    scorer: str
    threshold: float | None
    false_positives: float | None
    """Share of trials without the canary that were called `in`."""
    false_negatives: float | None
    eps_gaussian: float | None
    """The tighter bound for a ledger of full-batch Gaussians; None where it would not be valid."""
    eps_detectable: float
    """Maximum detectable epsilon: the largest bound that so many trials could have shown."""
    p_claim: float
    p_proof: float
    planted: float | None
    """Share of planted bugs (a method that copies the canary now and then) that were found."""
    planted_bug: str
    replicated_eps: float | None = None
    """Bound of a replication with fresh seeds, where the first trials contradict a number."""
    replicated_p_claim: float = 1.0
    replicated_p_proof: float = 1.0
    eps_curve: float | None = None
    """Of a transcript audit: the tighter bound if the mechanism is the recorded one with unknown
    noise, by the shape of its PLD curve; None where it would not be valid."""


@final
@dataclass(frozen=True)
class Outcome:
    """Everything a cell produced."""

    row: CellRow
    scores: tuple[ScoreRow, ...] = ()
    release: Release | None = None
    fitted: bool = False
    """False when a stored release was scored again."""
    details: Mapping[str, pd.DataFrame] | None = None
    audit: AuditRow | None = None
    """Of an audit that has finished."""
    log: str = ""
    """What a failed cell printed, and the text of its exception: for the internal log only."""
    timings: tuple[TimingRow, ...] = ()
    """What each step took; empty where it was not measured."""
    ledger: str = ""
    """The text of `ledger.json` from where the release was judged; empty where none was."""


def log_name(key: str) -> str:
    """Return where a run directory has the internal log of a failed cell."""
    return f"logs/{key}.log"


Columns = tuple[tuple[str, type[Any], bool], ...]
"""Name, type and whether it may be absent, of each column of a record."""

Record = type[CellRow] | type[ScoreRow] | type[AuditRow] | type[TimingRow]
AnyRecord = TypeVar("AnyRecord", CellRow, ScoreRow, AuditRow, TimingRow)


def required(item: Field[Any]) -> bool:
    """Return True for a column that every version has written."""
    return item.default is MISSING


SPELLED = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""How a journal spells what JSON has no number for."""


def from_values(kind: type[AnyRecord], values: Mapping[str, Any]) -> AnyRecord:
    """Return a record from what was stored, also by an earlier version or by a stranger.

    Later additions to the records have defaults. Raises `KeyError` for a column that is missing,
    and `ValueError` for a value that its column cannot hold.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"a {type(values).__name__} stands where a record should")
    given = {}
    for name, types, needed in _STORED_COLUMNS[kind.__name__]:
        if name in values or needed:
            value = values[name]
            if type(value) is str and float in types:
                value = SPELLED.get(value, value)
            _check_value(name, value, types)
            given[name] = value
    return kind(**given)


def _check_value(name: str, value: Any, types: frozenset[type]) -> None:
    """Raise `ValueError` for what a column of these types cannot hold, read or to be written."""
    found = type(value)
    # What is computed may be of a subclass, such as an enum of texts. A truth value is no number.
    if found not in types and (found is bool or not isinstance(value, tuple(types))):
        named = types - {type(None)} - ({int} if float in types else set())
        known = " or ".join(one.__name__ for one in named)
        nothing = " or nothing" if type(None) in types else ""
        raise ValueError(f"{name} is of type {found.__name__}, expected {known}{nothing}")
    if isinstance(value, int) and not -_WHOLE_LIMIT <= value < _WHOLE_LIMIT:
        raise ValueError(f"{name} is beyond 64 bits")
    if isinstance(value, str) and not value.isascii():
        # Half of a surrogate pair is a character in JSON and none in a file or on a terminal:
        # UnicodeEncodeError is a ValueError.
        value.encode()


def stored_object(name: str, text: str) -> dict[str, Any]:
    """Return the JSON object in a column; raise `ValueError` for what bench never writes there."""
    # Nearly all: parsed for every row, the others cost more than the rest of a journal.
    if text == "{}":
        return {}
    document = parse_object(text)
    if document is None:
        raise ValueError(f"{name} is not a JSON object, or one that is nested too deeply")
    if name in ("metrics", "versions") and not all(type(v) is str for v in document.values()):
        raise ValueError(f"{name} holds other values than texts")
    return document


_KINDS: Mapping[str, type[Any]] = {"str": str, "int": int, "float": float, "bool": bool}
DIRECTIONS = ("higher", "lower", "neutral")
"""Values of `ScoreRow.direction`."""
_DOCUMENTS = ("parameters", "dataset_parameters", "notes", "versions", "metrics")
"""Columns of `CellRow` that hold JSON objects."""


def check_record(record: CellRow | ScoreRow | AuditRow | TimingRow) -> None:
    """Raise `ValueError` for a value that its column in the result tables cannot hold."""
    for name, types, _ in _STORED_COLUMNS[type(record).__name__]:
        _check_value(name, getattr(record, name), types)


def check_outcome(outcome: Outcome) -> None:
    """Raise `ValueError` for an outcome that the journal or the tables could not hold."""
    row = outcome.row
    check_record(row)
    if row.status not in set(Status):
        raise ValueError(f"status {row.status[:40]!r} is not known")
    for name in _DOCUMENTS:
        stored_object(name, getattr(row, name))
    if row.eps_target is not None and not 0 < row.eps_target < float("inf"):
        raise ValueError("eps_target is not positive and finite")
    if row.attack and row.attack not in FEWEST_TRIALS:
        raise ValueError(f"attack {row.attack[:40]!r} is not known")
    for score in outcome.scores:
        check_record(score)
        if score.key != row.key:
            raise ValueError("it holds scores of another cell")
        if score.direction not in DIRECTIONS:
            raise ValueError(f"direction {score.direction[:40]!r} is not known")
    if len({score.metric for score in outcome.scores}) < len(outcome.scores):
        raise ValueError("it holds two values of one score")
    if outcome.audit is not None:
        check_record(outcome.audit)
    for timing in outcome.timings:
        check_record(timing)
        if timing.key != row.key:
            raise ValueError("it holds timings of another cell")
        check_timing(timing.phase, timing.metric, *seconds_of(timing))
    if len({(one.phase, one.metric) for one in outcome.timings}) < len(outcome.timings):
        raise ValueError("it holds two timings of one step")


_LONGEST_SECONDS = 1e10
"""Three centuries; what is longer was not measured."""


def seconds_of(timing: TimingRow) -> tuple[float, float, float]:
    """Return the numbers of a timing: wall, processor, and of that for references."""
    return timing.wall_seconds, timing.processor_seconds, timing.reference_seconds


def check_timing(phase: str, metric: str, *seconds: float) -> None:
    """Raise `ValueError` for a timing that no version writes."""
    if phase not in PHASES or (metric and phase != "score"):
        raise ValueError(f"phase {phase[:40]!r} is not known")
    # A comparison with NaN is false.
    if not all(0.0 <= value < _LONGEST_SECONDS for value in seconds):
        raise ValueError("a time is not a number of seconds that a cell can take")


def columns_of(record: Record) -> Columns:
    """Return the columns of a record."""
    return _COLUMNS[record.__name__]


_COLUMNS: Mapping[str, Columns] = {
    record.__name__: tuple(
        (item.name, _KINDS[str(item.type).removesuffix(" | None")], "None" in str(item.type))
        for item in fields(record)
    )
    for record in (CellRow, ScoreRow, AuditRow, TimingRow)
}


_STORED_COLUMNS: Mapping[str, tuple[tuple[str, frozenset[type], bool], ...]] = {
    record.__name__: tuple(
        (
            name,
            frozenset(
                {kind, *((int,) if kind is float else ()), *((type(None),) if optional else ())}
            ),
            required(item),
        )
        for (name, kind, optional), item in zip(columns_of(record), fields(record), strict=True)
    )
    for record in (CellRow, ScoreRow, AuditRow, TimingRow)
}
"""Names of columns, types that are stored in them, and whether every version has written them."""


def arrow_schema(record: Record) -> pa.Schema:
    """Return the columns of a result table."""
    import pyarrow as pa

    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    return pa.schema(
        [
            pa.field(item.name, kinds[str(item.type).removesuffix(" | None")])
            for item in fields(record)
        ]
    )


def to_table(rows: Iterable[AnyRecord], record: type[AnyRecord]) -> pa.Table:
    """Return rows as an Arrow table with the fixed schema, also when there are none."""
    import pyarrow as pa

    # Records hold plain values: `asdict` copies each of them, which takes ten times as long.
    return pa.Table.from_pylist([vars(row) for row in rows], schema=arrow_schema(record))
