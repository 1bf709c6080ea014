"""Coupled neighbours: the same method on a table and on that table plus a row, with equal answers.

The proof of a method says that one row moves the exact answer of each call by at most its
sensitivity, and that nothing else follows from the rows. Both are tested directly. A first run
records every call of the kernel: its parameters, the vector of each row (or the answer of each
part) and the noisy answer. A second run, on a table with one more row, gets the *recorded* answers
and samples. Whatever the method computes from answers and public randomness is then equal to the
last bit, so that every difference was caused by the row:

* a call that has other parameters, or is made only once, was chosen by looking at rows;
* the vectors of the rows that both tables hold must be equal: otherwise a row moves the sum through
  the vectors of others, by more than the clip;
* the answers of all parts but that of the added row must be equal;
* all that is released must be equal: rows, labels, weights, soft labels, predictions, notes, claim,
  transfers and ledger.

A row that is added may be the removed one as well: the test is symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from bench.audit.canaries import Canary, canaries
from bench.conformance.model_state import state_digest
from bench.conformance.released import Released, released
from bench.conformance.subject import CheckResult, CheckStatus, Subject, passed_unless
from bench.conformance.tables import other_tables, toy_dataset
from bench.data.dataset import Dataset, Split
from bench.data.encoder import EncodedRows
from bench.privacy.interception import AnsweringPart, Call, Indices, Interceptor, Vectors
from bench.privacy.noise import SeededNoise

Positions = npt.NDArray[np.floating]

TOLERANCE = 1e-4
"""Largest difference of a common row's clipped vector between the runs, in units of the clip.

A batch with one row more makes libraries add in another order. A vector computed in single
precision then changes by some units of 2^-24 = 6e-8 of its norm, times what cancels in it. One
extreme row among n moves a mean of the rows, and what is divided by n, by about 1 / n of its range:
1e-3 and more on the tables of the kit."""

_NONE: Positions = np.zeros(0)

_SHOWN = 3
"""Number of problems of one method that are written out."""


@final
@dataclass(frozen=True)
class RecordedPart:
    """What the first run saw of one part."""

    answer: Vectors
    """Clipped, in units of the clip."""
    model: str
    """Digest of the model's state."""


@final
@dataclass
class RecordedCall:
    """What the first run saw of one call."""

    call: Call
    sampled: Positions | None = None
    """Positions of the rows of a Poisson sample; None where all rows were asked."""
    positions: Positions = field(default_factory=lambda: np.zeros(0))
    """Positions of the rows with vectors: they identify the rows in both tables."""
    vectors: Vectors = field(default_factory=lambda: np.zeros((0, 0)))
    """Clipped vectors in units of the clip; bin numbers of `histograms` and `coded`."""
    parts: Mapping[str, RecordedPart] = field(default_factory=dict)
    answers: list[Vectors] = field(default_factory=list)
    result: object = None


@final
class Recorder(Interceptor):
    """Records all calls and changes nothing."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []

    def _of(self, call: Call) -> RecordedCall:
        if not self.calls or self.calls[-1].call is not call:
            self.calls.append(RecordedCall(call))
        return self.calls[-1]

    def sample(self, call: Call, rows: EncodedRows, drawn: Indices) -> Indices:
        self._of(call).sampled = rows.positions[drawn]
        return drawn

    def vectors(self, call: Call, rows: EncodedRows, vectors: Vectors) -> Vectors:
        record = self._of(call)
        record.positions, record.vectors = rows.positions.copy(), comparable(call, vectors)
        return vectors

    def parts(self, call: Call, parts: Sequence[AnsweringPart], vectors: Vectors) -> Vectors:
        self._of(call).parts = {
            part.name: RecordedPart(answer, state_digest(part.model))
            for part, answer in zip(parts, comparable(call, vectors), strict=True)
        }
        return vectors

    def answer(self, call: Call, answer: Vectors) -> Vectors:
        # A copy: a method may change in place what it receives.
        self._of(call).answers.append(answer.copy())
        return answer

    def delegated(self, call: Call, result: object) -> object:
        self._of(call).result = result
        return result


@final
class Replayer(Interceptor):
    """Gives recorded answers on another table, and notes what differs.

    `added` holds the positions of the rows that only this table has, `removed` those of rows that
    only the recorded one has. Every `each`-th Poisson sample includes the added rows (0: none
    does). After a call that was not recorded, the rest of the run is not compared.
    """

    def __init__(
        self,
        calls: Sequence[RecordedCall],
        added: Positions = _NONE,
        removed: Positions = _NONE,
        each: int = 1,
    ) -> None:
        self._calls = calls
        self._added = added
        self._removed = removed
        self._each = each
        self._made: list[Call] = []
        self._answered = 0
        self._samples = 0
        self.diverged = False
        self.problems: list[str] = []

    def finish(self) -> list[str]:
        """Return all problems, at the end of the run."""
        if not self.diverged and len(self._made) < len(self._calls):
            missed = self._calls[len(self._made)].call
            self._diverge(f"call {len(self._made) + 1}, {missed}, is not made any more")
        return self.problems

    def _diverge(self, problem: str) -> None:
        self.problems.append(problem)
        self.diverged = True

    def _report(self, problem: str) -> None:
        self.problems.append(f"call {len(self._made)}, {self._made[-1]}: {problem}")

    def _of(self, call: Call) -> RecordedCall | None:
        """Return what was recorded of this call; None once the runs have diverged."""
        if not self._made or self._made[-1] is not call:
            self._made.append(call)
            self._answered = 0
            number = len(self._made)
            if self.diverged:
                return None
            if number > len(self._calls):
                self._diverge(f"call {number}, {call}, is made with the row only")
            elif self._calls[number - 1].call != call:
                earlier = self._calls[number - 1].call
                self._diverge(f"call {number} was {earlier} and is {call}")
        return None if self.diverged else self._calls[len(self._made) - 1]

    def _common(self, rows: EncodedRows) -> npt.NDArray[np.bool_]:
        return ~np.isin(rows.positions, self._added)

    def sample(self, call: Call, rows: EncodedRows, drawn: Indices) -> Indices:
        record = self._of(call)
        if record is None or record.sampled is None:
            return drawn
        self._samples += 1
        chosen = np.isin(rows.positions, record.sampled)
        if self._each and self._samples % self._each == 0:
            chosen |= ~self._common(rows)
        return np.flatnonzero(chosen)

    def vectors(self, call: Call, rows: EncodedRows, vectors: Vectors) -> Vectors:
        record = self._of(call)
        if record is None:
            return vectors
        common = self._common(rows)
        stayed = ~np.isin(record.positions, self._removed)
        now = comparable(call, vectors)
        if not np.array_equal(rows.positions[common], record.positions[stayed]):
            self._report("other rows than before belong to this part of the data")
        elif now.shape[1] != record.vectors.shape[1]:
            self._report(f"vectors had {record.vectors.shape[1]} entries and have {now.shape[1]}")
        else:
            moved = _moved(now[common], record.vectors[stayed])
            if moved.max(initial=0.0) > TOLERANCE:
                self._report(
                    f"{np.count_nonzero(moved > TOLERANCE)} of the {len(moved)} vectors of other "
                    f"rows changed, by up to {moved.max():.2g} of the clip"
                )
        return vectors

    def parts(self, call: Call, parts: Sequence[AnsweringPart], vectors: Vectors) -> Vectors:
        record = self._of(call)
        if record is None:
            return vectors
        if [part.name for part in parts] != [*record.parts]:
            self._report(f"there were {len(record.parts)} parts and there are {len(parts)}")
            return vectors
        changed, others = 0, 0
        for part, answer in zip(parts, comparable(call, vectors), strict=True):
            # Where rows were removed, all were: no part is as before.
            if len(self._removed) or not self._common(part.rows).all():
                continue
            before = record.parts[part.name]
            others += 1
            changed += before.answer.shape != answer.shape or (
                bool(_moved(answer[None], before.answer[None])[0] > TOLERANCE)
                or state_digest(part.model) != before.model
            )
        if changed:
            self._report(
                f"the answers or models of {changed} of the {others} parts without an added row "
                "changed"
            )
        return vectors

    def answer(self, call: Call, answer: Vectors) -> Vectors:
        record = self._of(call)
        if record is None:
            return answer
        self._answered += 1
        if len(record.answers) < self._answered:
            self._diverge(f"call {len(self._made)}, {call}, gave no answer before")
            return answer
        return record.answers[self._answered - 1].copy()

    def delegated(self, call: Call, result: object) -> object:
        record = self._of(call)
        return result if record is None else record.result


def comparable(call: Call, vectors: Vectors) -> Vectors:
    """Return what the kernel adds up: vectors clipped, in units of the clip, or valid bin numbers.

    A row with a non-finite entry counts as zero, and a number out of range is in no bin (-1).
    """
    if call.kind in ("histograms", "coded"):
        bins = np.asarray(call.bins)
        codes = np.trunc(vectors)
        if codes.shape[1] != len(bins):
            return codes
        return np.where((codes >= 0) & (codes < bins), codes, -1.0)
    finite = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0) / call.clip
    return np.asarray(finite / np.maximum(1.0, np.linalg.norm(finite, axis=1, keepdims=True)))


def _moved(now: Vectors, before: Vectors) -> npt.NDArray[np.float64]:
    return np.asarray(np.linalg.norm(now - before, axis=1))


# Neighbours ---------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Neighbour:
    """A table with rows added to it."""

    name: str
    dataset: Dataset
    added: Positions
    """Positions of the added rows, which no other row has."""
    removed: Positions = field(default_factory=lambda: _NONE)
    """Positions of the rows that were removed."""
    each: int = 1
    """Every so many Poisson samples the added rows are sampled; 0 for never."""


def neighbours(dataset: Dataset) -> Iterator[Neighbour]:
    """Yield tables with one extreme row of the schema more, and tables that differ by many rows.

    There is a row of each class, in turns the last one, in all Poisson samples, and the first one,
    in every second sample; and a row in the middle that is never sampled. Many rows at once show
    what one row seldom moves on a small table: a stopping rule, a choice, a vote. Copies of one row
    lie in one part of every partition, so that all other parts must answer as before. A table of
    other rows alone must still give the same release, since the answers are the same.
    """
    rows = canaries(dataset)
    train, validation = len(dataset.train), len(dataset.validation)
    classes = dataset.schema.classes
    for code, label in enumerate(classes):
        row = [replace(rows[code % len(rows)], label=code)]
        place, said = (0, "first") if code % 2 else (train, "last")
        name = f"one more training row of class {label}, the {said}"
        # Position 0 is that of the first row of a random part; the others lie in other parts.
        yield _added(dataset, "train", name, row, place, code / len(classes), 1 + code % 2)
    name = "one more training row, never sampled"
    yield _added(dataset, "train", name, rows[2:3], train // 2, 0.6, each=0)
    if validation:
        yield _added(dataset, "validation", "one more validation row", rows[:1], validation, 0.0)
    many = max(1, train // 2)
    yield _added(dataset, "train", f"one row {many} times more", rows[:1] * many, 0, 0.9)
    yield _replaced(dataset)


def _added(
    dataset: Dataset,
    where: Literal["train", "validation"],
    name: str,
    chosen: Sequence[Canary],
    place: int,
    position: float,
    each: int = 1,
) -> Neighbour:
    """Return the dataset with rows inserted at one place, all of the same fixed position."""
    split = dataset.train if where == "train" else dataset.validation
    rows, taken = split.rows, _positions(dataset)
    while position in taken:
        position = float(np.nextafter(position, 1.0))
    together = EncodedRows(
        np.insert(rows.values, place, [canary.values for canary in chosen], axis=0),
        np.insert(rows.labels, place, [canary.label for canary in chosen]),
        np.insert(rows.sites, place, [canary.site for canary in chosen]),
        np.insert(rows.positions, place, [position] * len(chosen)),
    )
    changed = Split(split.frame, together)
    neighbour = (
        replace(dataset, train=changed)
        if where == "train"
        else replace(dataset, validation=changed)
    )
    return Neighbour(name, neighbour, np.array([position]), each=each)


def _replaced(dataset: Dataset) -> Neighbour:
    """Return a table of other rows, none of which the dataset has."""
    other = other_tables(dataset)["other rows"]
    rng = np.random.default_rng(47)

    def moved(split: Split) -> Split:
        return Split(split.frame, replace(split.rows, positions=rng.random(len(split))))

    changed = replace(other, train=moved(other.train), validation=moved(other.validation))
    removed, added = _positions(dataset), _positions(changed)
    assert not np.isin(added, removed).any()
    return Neighbour("other rows only", changed, added, removed)


def _positions(dataset: Dataset) -> Positions:
    return np.concatenate([dataset.train.rows.positions, dataset.validation.rows.positions])


# The check ----------------------------------------------------------------------------------------


def coupled_neighbours(subject: Subject) -> Iterator[CheckResult]:
    """With the same answers of the kernel, one more row changes nothing but its own vectors."""
    check = "coupled neighbours"
    if not subject.kind.seeded:
        reason = "it declares that it cannot be seeded: two runs differ in any case"
        yield CheckResult(check, CheckStatus.NOT_CHECKED, reason)
        return
    skipped: list[str] = []
    problems: list[str] = []
    compared: list[str] = []
    for name in subject.fitting:
        reasons = subject.run(name).ledger.proof().reasons
        if reasons:
            skipped.append(f"{name}: it has non-private access: {reasons[0]}")
            continue
        found = compare_neighbours(subject, toy_dataset(name))
        problems += [f"{name}, {text}" for text in found]
        compared.append(name)
    if not compared:
        yield CheckResult(check, CheckStatus.NOT_CHECKED, skipped[0])
        return
    hidden = len(problems) - _SHOWN
    shown = problems[:_SHOWN] + [f"and {hidden} more"] * (hidden > 0)
    yield CheckResult(
        check,
        passed_unless(problems),
        "\n".join(shown or [f"equal on {', '.join(compared)}", *skipped]),
        "a row function, or a model of a part, may use its own rows and public constants only and "
        "keep nothing between calls; all else must follow from the kernel's answers",
    )


def compare_neighbours(subject: Subject, dataset: Dataset) -> list[str]:
    """Return all that differs between a table and its neighbours."""
    recorder = Recorder()
    first = _run(subject, dataset, recorder)
    problems: list[str] = []
    for neighbour in neighbours(dataset):
        replayer = Replayer(recorder.calls, neighbour.added, neighbour.removed, neighbour.each)
        problems += [
            f"{neighbour.name}: {text}"
            for text in _differences(subject, neighbour.dataset, replayer, first)
        ]
    if problems:
        # Where even the same table gives another release, the author should look there first.
        again = Replayer(recorder.calls)
        same = _differences(subject, dataset, again, first)
        problems = [f"the same table again: {text}" for text in same] + problems
    return problems


def _differences(
    subject: Subject, dataset: Dataset, replayer: Replayer, first: Released
) -> Iterator[str]:
    try:
        second = _run(subject, dataset, replayer)
    except Exception as problem:
        # It did not fail with the first table: the error is a difference as any other.
        yield f"it ends with {type(problem).__name__}: {problem}"
        return
    yield from replayer.finish()
    # After another sequence of calls the releases differ in any case.
    if not replayer.diverged and (different := second.differences(first)):
        yield f"the release differs in its {', '.join(different)}"


def _run(subject: Subject, dataset: Dataset, interceptor: Interceptor) -> Released:
    noise = SeededNoise(np.random.default_rng([0, 0]))
    return released(subject.open(dataset, noise, interceptor=interceptor).release, dataset)
