"""Transcripts: the noisy answers that the kernel gave to a method, and how far a canary moves each.

The worst-case attacker of the kernel sees every noisy answer, knows all rows but the canary, and
knows which of them each Poisson sample held (the proof of a sampled mechanism conditions on it: the
guarantee covers such an attacker too). Given the earlier answers, what the method asks next is
fixed. An answer is then a + noise without the canary and a + m + noise with it, where a is known
and m is the exact difference of the kernel's integers of both worlds: m is all that is needed of an
answer, beside the law of the noise (`replays`).

**Coupled fits.** m is measured, not derived. The method is fitted on one table and all answers are
recorded; it is fitted once more on the other table, with the same public randomness, the same
sampled rows (and the canary in each sample), and every answer replaced by the recorded one. Both
fits ask the same questions then. The difference of the integers to which the kernel adds noise
includes clipping and rounding as the kernel does them, the vectors of other rows where these depend
on the canary, and models of parts that were fitted with and without it. A method whose second fit
asks other questions has read rows outside of the kernel, and has no transcript.

**Fixed and adaptive questions.** A second recording gets answers with ten times the noise. Where
all m are the same, questions do not depend on answers: redrawing the noise gives new trials of the
method. Where they are not, the questions of several recorded fits are frozen: redrawing the noise
gives trials of those calls, which the events of the ledger must cover as well.

A selection by the exponential mechanism is recorded by the weights of its candidates in both
worlds; they decide its probabilities, and the recorded choice is given to the second fit.

**Worst-case vectors.** A row seldom uses the whole sensitivity that is charged: most rows are
shorter than the clip, and one row hardly turns a whole model of a part around. The proof holds for
every row function and every model, so that the attacker may also choose what the kernel sums, as
Nasr et al. (2021) choose gradients: the vector of the canary becomes (clip, 0, ..., 0), and that of
the part that holds it becomes the same with the canary and (-clip, 0, ..., 0) without. What is
replaced is what the kernel clips, so that clip, grid, noise and charge stay its own. For a whole
client both tables have its rows, since the charge covers their replacement by any others. The
scores of a selection are chosen in the same way: equal without the canary, with it half of them
larger and half smaller by their sensitivity; the kernel turns them into weights.

**Counts of coded rows.** The kernel shows the exact integers of all answers but those of
`PrivateData.marginals`. There the noise source remembers its last draw: the answer minus that noise
is the count, and the scale of the draw is the noise that the kernel chose.

Delegated mechanisms are observed where the trusted wrapper can (`TrustedMechanism.observe`): it
runs the library again and returns the log-likelihood ratio of its noisy measurements.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.audit.canaries import Canary, with_canaries
from bench.audit.trials import AuditTarget, Stage, TrialId, ledger_digest, of_claim
from bench.data.dataset import Dataset, Split
from bench.data.encoder import EncodedRows, Encoder
from bench.engine import keys
from bench.engine.fit import Randomness, run_method
from bench.engine.limits import threads_capped
from bench.errors import BenchError, NotApplicable
from bench.plugins.release import Release
from bench.privacy.events import is_non_private
from bench.privacy.grid import Grid
from bench.privacy.interception import AnsweringPart, Call, Indices, Interceptor, Vectors
from bench.privacy.ledger import PartPath
from bench.privacy.noise import NoiseSource, SeededNoise
from bench.privacy.selection import Candidate, CodedRows, exponents
from bench.privacy.trusted.table import TrustedMechanism

Integers = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]

WILD = 1
"""Number of the recording whose answers have much more noise, to see whether questions change."""
VECTORS = 1000
"""Recordings from this number on have worst-case vectors in place of those of the canary."""
BLOCK = 100
"""Runs of a delegated mechanism in one trial."""
PLANTED = 0.8
"""Share of its noise that a planted bug leaves."""
_LESS_NOISE = {
    "smartnoise-mst": ("rho", -2),
    "smartnoise-aim": ("rho", -2),
    "smartnoise-mwem": ("epsilon", -1),
}
"""Of trusted mechanisms, the parameter that sets the noise, and the power of the noise in it."""
_WILDER = 10.0
_KINDS = ("gaussian", "laplace")
_CHOICE = len(_KINDS)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_OTHER_CALLS = (
    "with the same answers it makes other calls on a neighbouring table: it reads rows outside of "
    "the kernel, so that noisy answers are not all that it knows; use --attack two-world"
)


@final
@dataclass(frozen=True)
class Answer:
    """One noisy answer: its noise, and how far the canary moves it."""

    mechanism: str
    """Distribution of the noise: `gaussian` or `laplace`."""
    rate: float
    """Probability that the canary was sampled."""
    grid: Grid
    moved: Integers
    """Entries of the difference of both worlds that are not 0, in units of the grid."""

    @property
    def scale(self) -> float:
        """Deviation (or Laplace scale) of the noise in units of the grid."""
        return self.grid.scale * 2.0**-self.grid.exponent

    @property
    def strength(self) -> float:
        """Square of the mu of the Gaussian mechanism that leaks about as much.

        For sampled Gaussians the central limit of Bu, Dong, Long and Su (2020), Theorem 5.
        """
        moved = self.moved.astype(np.float64) / self.scale
        if self.mechanism == "laplace":
            return float(np.abs(moved).sum() ** 2)
        square = float(moved @ moved)
        return square if self.rate >= 1.0 else self.rate**2 * float(np.expm1(min(square, 700.0)))


@final
@dataclass(frozen=True)
class Choice:
    """One selection by the exponential mechanism: its weights in both worlds."""

    outside: Array
    """Minus the log of each candidate's relative weight, without the canary; the least is 0."""
    inside: Array
    """The same with the canary."""

    def log_probabilities(self, inside: bool) -> Array:
        """Return the log of the probability of each candidate."""
        logs = -(self.inside if inside else self.outside)
        return np.asarray(logs - np.log(np.exp(logs).sum()))

    @property
    def ratios(self) -> Array:
        """Log-likelihood ratio of both worlds, for each candidate."""
        return self.log_probabilities(True) - self.log_probabilities(False)

    @property
    def strength(self) -> float:
        """Twice the divergence of both worlds: mu^2, for a Gaussian mechanism."""
        return float(2.0 * np.exp(self.log_probabilities(True)) @ self.ratios)


@final
@dataclass(frozen=True)
class Transcript:
    """The answers that a canary can move, in order."""

    answers: tuple[Answer, ...]
    calls: int
    """Number of noisy answers, also those that the canary cannot move."""
    choices: tuple[Choice, ...] = ()
    """Selections whose probabilities the canary changes."""

    @property
    def strength(self) -> float:
        """Square of the mu of a Gaussian mechanism that leaks about as much."""
        chosen = sum(choice.strength for choice in self.choices)
        return chosen + sum(answer.strength for answer in self.answers)

    def lighter(self, share: float) -> Transcript:
        """Return the transcript without the entries that the canary moves least.

        An attacker may ignore what it likes; of each answer, the largest entries with this share of
        the squared difference are kept. Noise of entries is independent, so that the ratio of the
        kept ones is exact.
        """
        kept = []
        for answer in self.answers:
            order = np.argsort(-np.abs(answer.moved), kind="stable")
            squares = answer.moved[order].astype(np.float64) ** 2
            enough = int(np.searchsorted(np.cumsum(squares), share * squares.sum())) + 1
            kept.append(replace(answer, moved=answer.moved[np.sort(order[:enough])]))
        return replace(self, answers=tuple(kept))

    def to_numbers(self) -> Array:
        """Return the transcript as one list of numbers, for storage."""
        pieces: list[Array] = [np.array([float(self.calls)])]
        for answer in self.answers:
            head = (
                _KINDS.index(answer.mechanism),
                answer.rate,
                answer.grid.exponent,
                answer.grid.scale,
                len(answer.moved),
            )
            # Exact: entries of a row are below 2^37, sums of a whole client below 2^53.
            pieces += [np.array(head, dtype=np.float64), answer.moved.astype(np.float64)]
        for choice in self.choices:
            head = (_CHOICE, 1.0, 0, 0.0, 2 * len(choice.outside))
            pieces += [np.array(head, dtype=np.float64), choice.outside, choice.inside]
        return np.concatenate(pieces)

    @classmethod
    def of_numbers(cls, numbers: Array) -> Transcript:
        """Return the transcript of a list that `to_numbers` made."""
        answers: list[Answer] = []
        choices: list[Choice] = []
        place = 1
        while place < len(numbers):
            kind, rate, exponent, scale, count = numbers[place : place + 5]
            place += 5
            if int(kind) == _CHOICE:
                half = int(count) // 2
                pair = numbers[place : place + half], numbers[place + half : place + int(count)]
                choices.append(Choice(*pair))
                place += int(count)
                continue
            moved = numbers[place : place + int(count)].astype(np.int64)
            place += int(count)
            grid = Grid(int(exponent), float(scale))
            answers.append(Answer(_KINDS[int(kind)], float(rate), grid, moved))
        return cls(tuple(answers), int(numbers[0]), tuple(choices))


# Recording ----------------------------------------------------------------------------------------


@final
@dataclass
class _Recorded:
    """One call of a recorded fit."""

    call: Call
    sampled: npt.NDArray[np.floating[Any]] | None = None
    """Positions of the sampled rows."""
    clipped: bool = False
    """Whether it sums clipped vectors or selects by scores, which an attacker may choose."""
    answers: list[Vectors] = field(default_factory=list)
    exact: list[Integers] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    exponents: Array | None = None
    """Of a selection: minus the log of each candidate's relative weight."""
    result: object = None
    delegated: _Delegated | None = None


@final
@dataclass(frozen=True)
class _Delegated:
    """A call of a trusted mechanism, with the rows that it saw."""

    entry: TrustedMechanism
    rows: EncodedRows
    encoder: Encoder
    parameters: Mapping[str, Any]


class _Remembering(NoiseSource):
    """A seeded source that remembers what it drew last."""

    reproducible = True

    def __init__(self, generator: np.random.Generator) -> None:
        self._source = SeededNoise(generator)
        self.scale = 0.0
        self.drawn: Integers = np.zeros(0, dtype=np.int64)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return self._source.words(count)

    def generator(self) -> np.random.Generator:
        return self._source.generator()

    def normal(self, scale: float, size: int) -> Integers:
        # By the class, not the source: what replaces its sampler (a planted bug) is seen.
        self.scale, self.drawn = scale, super().normal(scale, size)
        return self.drawn


@final
@dataclass(frozen=True)
class _Scored(Candidate):
    """A candidate whose score the attacker chose."""

    value: Fraction

    @property
    def sensitivity(self) -> Fraction:
        return Fraction(1)

    def check(self, rows: CodedRows) -> None:
        """Accept any rows: none are read."""

    def score(self, rows: CodedRows) -> Fraction:
        return self.value

    def digest(self) -> str:
        return f"{self.value}"


_NO_ROWS = CodedRows(None, np.zeros((0, 1)), (1,))


@final
@dataclass
class _Planted:
    """Worst-case vectors of a pair of fits: which rows and parts have them."""

    positions: npt.NDArray[np.floating[Any]]
    """Of the canary; empty for a client."""
    client: int | None = None
    """Number of a client of `CLIENTS`, instead of a row."""
    held: dict[int, set[str]] = field(default_factory=dict)
    """Parts that hold the canary, as the first of both fits found them, by the place of the call.

    Not by path and name: parts of two partitions of the same data may have the same names, and of
    each partition only one part holds the canary. Both fits make the same calls in the same order.
    """
    coded: set[PartPath] = field(default_factory=set)
    """Private data whose coded rows hold the canary, as the first of both fits found them."""

    def rows(self, call: Call, rows: EncodedRows, vectors: Vectors) -> Vectors:
        """Return the vectors of rows, with that of the canary replaced."""
        places = np.isin(rows.positions, self.positions)
        if places.any() and call.kind == "coded":
            self.coded.add(call.path)
        if not places.any() or not math.isfinite(call.clip):
            return vectors
        return self._put(call, vectors, places, 1.0)

    def exponents(self, call: Call, count: int, inside: bool) -> Sequence[Fraction] | None:
        """Return the exponents of worst-case scores; None for rows without the canary."""
        if call.path not in self.coded:
            return None
        signs = [1 if 2 * place < count else -1 for place in range(count)]
        scored = [_Scored(Fraction(sign if inside else 0)) for sign in signs]
        # What the kernel makes of scores: its factor is part of what is attacked.
        epsilon = float(call.mechanism.split("epsilon ")[1].partition(",")[0])
        return exponents(_NO_ROWS, scored, epsilon)

    def parts(
        self,
        call: Call,
        place: int,
        parts: Sequence[AnsweringPart],
        vectors: Vectors,
        inside: bool,
    ) -> Vectors:
        """Return the vectors of parts, with that of the canary's part replaced.

        `place` is that of the call among all calls of its fit.
        """
        if self.client is not None:
            names = {_client({part.name: part.rows for part in parts}, self.client)}
        elif inside:
            names = {one.name for one in parts if np.isin(one.rows.positions, self.positions).any()}
            self.held[place] = names
        else:
            names = self.held.get(place, set())
        places = np.array([part.name in names for part in parts])
        return self._put(call, vectors, places, 1.0 if inside else -1.0)

    @staticmethod
    def _put(call: Call, vectors: Vectors, places: npt.NDArray[np.bool_], sign: float) -> Vectors:
        changed = np.array(vectors, dtype=np.float64)
        changed[places] = 0.0
        changed[places, 0] = sign * call.clip
        return changed


class _Watching(Interceptor):
    """Keeps the exact integers of all answers; subclasses decide what the method receives."""

    def __init__(self, planted: _Planted | None = None, inside: bool = False) -> None:
        self.calls: list[_Recorded] = []
        self.parts_seen: dict[str, EncodedRows] = {}
        self.noise: _Remembering | None = None
        self._planted = planted
        self._inside = inside

    def of(self, call: Call) -> _Recorded:
        """Return the record of a call, a new one where it is new."""
        if not self.calls or self.calls[-1].call is not call:
            self.calls.append(_Recorded(call))
        return self.calls[-1]

    def vectors(self, call: Call, rows: EncodedRows, vectors: Vectors) -> Vectors:
        record = self.of(call)
        record.clipped = math.isfinite(call.clip)
        return vectors if self._planted is None else self._planted.rows(call, rows, vectors)

    def parts(self, call: Call, parts: Sequence[AnsweringPart], vectors: Vectors) -> Vectors:
        record = self.of(call)
        record.clipped = True
        self.parts_seen = {part.name: part.rows for part in parts}
        if self._planted is None:
            return vectors
        return self._planted.parts(call, len(self.calls) - 1, parts, vectors, self._inside)

    def exact(self, call: Call, grid: Grid, integers: Integers) -> None:
        record = self.of(call)
        record.exact.append(integers.copy())
        record.grids.append(grid)

    def recount(self, call: Call, answer: Vectors) -> None:
        """Find the exact counts of an answer whose integers the kernel did not show."""
        record = self.of(call)
        if record.exponents is None and len(record.exact) == len(record.answers):
            assert self.noise is not None
            grid, integers = _counts_of(answer, self.noise)
            self.exact(call, grid, integers)

    def choosing(self, call: Call, exponents: Sequence[Fraction]) -> None:
        record = self.of(call)
        record.clipped = len(exponents) > 1
        worst = None
        if self._planted is not None:
            worst = self._planted.exponents(call, len(exponents), self._inside)
        record.exponents = np.array([float(one) for one in worst or exponents])

    def delegating(
        self,
        call: Call,
        entry: TrustedMechanism,
        rows: EncodedRows,
        encoder: Encoder,
        parameters: Mapping[str, Any],
    ) -> None:
        self.of(call).delegated = _Delegated(entry, rows.copy(), encoder, dict(parameters))


@final
class _Recorder(_Watching):
    """Records a fit. With `wild`, the method receives answers of more noise."""

    def __init__(
        self,
        wild: np.random.Generator | None = None,
        planted: _Planted | None = None,
        inside: bool = False,
    ) -> None:
        super().__init__(planted, inside)
        self._wild = wild

    def sample(self, call: Call, rows: EncodedRows, drawn: Indices) -> Indices:
        if self._planted is not None:
            # The canary is in the recorded table, and has to be in every sample.
            added = np.flatnonzero(np.isin(rows.positions, self._planted.positions))
            drawn = np.union1d(drawn, added)
        self.of(call).sampled = rows.positions[drawn].copy()
        return drawn

    def answer(self, call: Call, answer: Vectors) -> Vectors:
        self.recount(call, answer)
        record = self.of(call)
        if self._wild is not None and record.exponents is not None:
            answer = self._wild.integers(len(record.exponents), size=1).astype(np.float64)
        elif self._wild is not None:
            scale = _WILDER * record.grids[-1].scale
            answer = answer + scale * self._wild.standard_normal(answer.shape)
        # A copy: a method may change in place what it receives.
        record.answers.append(answer.copy())
        return answer

    def delegated(self, call: Call, result: object) -> object:
        self.of(call).result = result
        return result


@final
class _Follower(_Watching):
    """Gives the recorded answers on another table, with its additional rows in every sample."""

    def __init__(
        self,
        recorded: Sequence[_Recorded],
        known: npt.NDArray[np.floating[Any]],
        planted: _Planted | None = None,
    ) -> None:
        super().__init__(planted)
        self._recorded = recorded
        self._known = known
        """Positions of the rows of the recorded table."""

    def _before(self, call: Call) -> _Recorded:
        self.of(call)
        number = len(self.calls) - 1
        if number >= len(self._recorded) or not _alike(self._recorded[number].call, call):
            raise NotApplicable(_OTHER_CALLS)
        return self._recorded[number]

    def sample(self, call: Call, rows: EncodedRows, drawn: Indices) -> Indices:
        before = self._before(call)
        if before.sampled is None:
            return drawn
        chosen = np.isin(rows.positions, before.sampled) | ~np.isin(rows.positions, self._known)
        return np.flatnonzero(chosen)

    def answer(self, call: Call, answer: Vectors) -> Vectors:
        self.recount(call, answer)
        given, number = self._before(call).answers, len(self.calls[-1].answers)
        self.calls[-1].answers.append(answer)
        return given[number].copy()

    def delegated(self, call: Call, result: object) -> object:
        return self._before(call).result


def _alike(one: Call, other: Call) -> bool:
    """Whether two calls ask the same; parameters that are functions are described by an address."""
    first, second = (
        replace(call, mechanism=_ADDRESS.sub("", call.mechanism)) for call in (one, other)
    )
    return first == second


@final
@dataclass(frozen=True)
class Recording:
    """Two coupled fits."""

    transcript: Transcript
    delegated: tuple[tuple[_Delegated, _Delegated], ...]
    """Calls of trusted mechanisms, without and with the canary."""
    release: Release
    clipped: int = 0
    """Number of calls whose vectors or scores an attacker may choose."""


def recorded(target: AuditTarget, trial: TrialId) -> Recording:
    """Fit the method on both tables, coupled, and return what the canary moves."""
    wild = None
    if trial.number % VECTORS == WILD:
        wild = keys.generator(target.seed_key, f"{trial.tag}/wild")
    first = _Recorder(wild)
    inside: _Watching
    outside: _Watching
    if trial.number >= VECTORS:
        # The fit with the canary comes first: it says which parts hold it.
        table, other, planted = _worlds_of_vectors(target, trial.canary)
        first = _Recorder(wild, planted, inside=True)
        release = _fit(target, trial, table, first, "first")
        second = _Follower(first.calls, table.train.rows.positions, planted)
        _fit(target, trial, other, second, "second")
        inside, outside = first, second
    elif target.clients:
        # The federation with all clients; its parts say which rows belong to one.
        release = _fit(target, trial, target.dataset, first, "first")
        other = without_client(target.dataset, first.parts_seen, trial.canary)
        second = _Follower(first.calls, target.dataset.train.rows.positions)
        _fit(target, trial, other, second, "second")
        inside, outside = first, second
    else:
        release = _fit(target, trial, target.dataset, first, "first")
        table = with_canaries(target.dataset, [target.canaries[trial.canary]])
        second = _Follower(first.calls, target.dataset.train.rows.positions)
        _fit(target, trial, table, second, "second")
        inside, outside = second, first
    if len(first.calls) != len(second.calls):
        raise NotApplicable(_OTHER_CALLS)
    pairs = list(zip(outside.calls, inside.calls, strict=True))
    answers = [answer for without, with_it in pairs for answer in _answers(without, with_it)]
    moved = tuple(answer for answer in answers if len(answer.moved))
    selections = [
        Choice(without.exponents, with_it.exponents)
        for without, with_it in pairs
        if without.exponents is not None and with_it.exponents is not None
    ]
    choices = tuple(one for one in selections if not np.array_equal(one.outside, one.inside))
    delegated = tuple(
        (without.delegated, with_it.delegated)
        for without, with_it in pairs
        if without.delegated is not None and with_it.delegated is not None
    )
    calls = len(answers) + len(selections)
    clipped = sum(one.clipped for one in first.calls)
    return Recording(Transcript(moved, calls, choices), delegated, release, clipped)


def _worlds_of_vectors(target: AuditTarget, canary: int) -> tuple[Dataset, Dataset, _Planted]:
    """Return the tables with and without a canary that has worst-case vectors."""
    dataset = target.dataset
    if target.clients:
        return dataset, dataset, _Planted(np.zeros(0), canary)
    table = with_canaries(dataset, [target.canaries[canary]])
    added = np.setdiff1d(table.train.rows.positions, dataset.train.rows.positions)
    return table, dataset, _Planted(added)


def _counts_of(answer: Vectors, noise: _Remembering) -> tuple[Grid, Integers]:
    """Return grid and exact integers of noisy counts, given the noise that was drawn for them.

    The answer is (counts 2^-k + noise) 2^k on the grid 2^k, a multiplication that is exact: only
    the right k leaves counts when the noise is subtracted.
    """
    drawn = noise.drawn.reshape(answer.shape)
    for exponent in range(0, -64, -1):
        unit = 2.0**exponent
        counts = answer - drawn * unit
        whole = np.rint(counts)
        if np.array_equal(counts, whole) and whole.min() >= 0.0 and noise.drawn.any():
            integers = whole.astype(np.int64) << -exponent
            # The kernel's own noise, as it was drawn.
            return Grid(exponent, noise.scale * unit), integers
    raise BenchError(
        "noisy counts of coded rows minus the drawn noise are no counts; expected "
        "PrivateData.marginals to add one draw of noise to each table. Correct "
        "bench/audit/transcripts.py to what the kernel does now"
    )


def _answers(without: _Recorded, with_it: _Recorded) -> Iterator[Answer]:
    call = without.call
    for grid, first, second in zip(without.grids, without.exact, with_it.exact, strict=True):
        difference = (second - first).reshape(-1)
        # The call of noisy scores also names its candidates.
        mechanism = call.mechanism.partition(",")[0]
        yield Answer(mechanism, call.rate, grid, difference[difference != 0])


def _fit(
    target: AuditTarget, trial: TrialId, dataset: Dataset, interceptor: _Watching, which: str
) -> Release:
    seed, canary = target.seed_key, f"{trial.stage.value}/{trial.canary}"
    noise = _Remembering(keys.generator(seed, f"{trial.tag}/{which}/noise"))
    interceptor.noise = noise
    release = run_method(
        target.method,
        dataset,
        Randomness(
            noise,
            # The same for all recordings of a canary: only noise distinguishes them.
            int(keys.generator(seed, f"{canary}/parts").integers(2**63)),
            keys.generator(seed, f"{canary}/public"),
        ),
        ipc=target.ipc,
        budget=target.budget,
        delta=target.delta,
        interceptor=interceptor,
    )
    assert release.ledger is not None
    if any(is_non_private(entry.event) for entry in release.ledger.entries):
        raise NotApplicable(
            "it reads rows without noise: nothing is proven that noisy answers could refute; use "
            "--attack two-world"
        )
    return release


CLIENTS = ("the largest client", "the client in the middle", "the smallest client")


def client_canaries(dataset: Dataset) -> tuple[Canary, ...]:
    """Return canaries that stand for whole clients, by size; their rows are in the table."""
    rows = dataset.train.rows
    nothing = np.zeros(rows.values.shape[1], dtype=np.float32)
    return tuple(Canary(name, nothing, 0, 0, dataset.train.frame.iloc[:0]) for name in CLIENTS)


def _client(parts: Mapping[str, EncodedRows], which: int) -> str:
    """Return the name of a client of `CLIENTS`."""
    held = sorted((name for name in parts if len(parts[name])), key=lambda name: -len(parts[name]))
    if not held:
        raise NotApplicable("it asks no models of clients: there is no client to leave out")
    return held[round(which * (len(held) - 1) / (len(CLIENTS) - 1))]


def without_client(dataset: Dataset, parts: Mapping[str, EncodedRows], which: int) -> Dataset:
    """Return the dataset without the training rows of one client."""
    client = parts[_client(parts, which)]
    rows = dataset.train.rows
    kept = ~np.isin(rows.positions, client.positions)
    frame = dataset.train.frame
    frame = frame[kept].reset_index(drop=True) if len(frame) == len(rows) else frame
    return replace(dataset, train=Split(frame, rows.take(kept)))


# Trials -------------------------------------------------------------------------------------------


def run_recordings(target: AuditTarget, trials: Sequence[TrialId]) -> list[dict[str, Any]]:
    """Record transcripts, or observe delegated mechanisms; `read_trials` reads what it returns.

    A trial of the stage RECORD is a transcript. Trials of other stages exist for delegated
    mechanisms only: their scores are the log-likelihood ratios of `BLOCK` runs. Those of the stage
    PLANT have the noise of a planted bug.
    """
    with threads_capped(1):
        ledgers: set[str] = set()
        known: dict[int, Recording] = {}
        return [_run(target, trial, ledgers, known) for trial in trials]


def _run(
    target: AuditTarget, trial: TrialId, ledgers: set[str], known: dict[int, Recording]
) -> dict[str, Any]:
    started = time.process_time()
    canary, inside = attacked_canary(trial)
    scores = np.zeros((1, 0))
    if trial.stage is Stage.RECORD:
        recording = recorded(target, trial)
        check_visible(recording)
    else:
        if canary not in known:
            known[canary] = recorded(target, TrialId(Stage.RECORD, canary, 0))
        recording = known[canary]
        generator = keys.generator(target.seed_key, f"{trial.tag}/observed")
        factor = PLANTED if trial.stage is Stage.PLANT else 1.0
        runs = [_observed(recording, generator, inside, factor) for _ in range(BLOCK)]
        scores = np.array([runs])
    ledger = recording.release.ledger
    assert ledger is not None
    plantable = all(one.entry.name in _LESS_NOISE for one, _ in recording.delegated)
    digest = ledger_digest(ledger)
    new = digest not in ledgers
    ledgers.add(digest)
    return {
        "id": [trial.stage.value, trial.canary, trial.number],
        "scores": scores,
        "planted": np.zeros(0),
        # How many delegated calls there are decides who makes the trials; how many others take
        # vectors or scores, whether an attacker may choose some; then whether a bug can be planted.
        "features": np.array(
            [len(recording.delegated), recording.clipped, plantable], dtype=np.float32
        ),
        "claimed": of_claim(recording.release.claim, target.delta),
        "digest": digest,
        "seconds": time.process_time() - started,
        "events": ledger.to_record() if new else None,
        "transcript": recording.transcript.to_numbers(),
    }


def without(canary: int) -> int:
    """Return the world without this canary, in which a delegated mechanism is observed."""
    return -2 - canary


def attacked_canary(trial: TrialId) -> tuple[int, bool]:
    """Return the canary that a trial is about, and whether it is in the table."""
    return (trial.canary, True) if trial.canary >= 0 else (-2 - trial.canary, False)


def check_visible(recording: Recording) -> None:
    """Refuse a method with a delegated mechanism whose measurements its library hides."""
    hidden = [one.entry.name for one, _ in recording.delegated if one.entry.observe is None]
    if hidden:
        raise NotApplicable(
            f"the library behind {', '.join(sorted(set(hidden)))} does not show its noisy "
            "measurements: there is no transcript to attack; use --attack two-world"
        )
    if recording.delegated and recording.transcript.calls:
        raise NotApplicable(
            "it uses a delegated mechanism beside noisy sums of the kernel; transcripts of both "
            "together are not supported; use --attack two-world"
        )


def _observed(
    recording: Recording, generator: np.random.Generator, inside: bool, factor: float = 1.0
) -> float:
    """Run the delegated mechanisms once more and return their log-likelihood ratio.

    With `factor`, a library is asked for so much of the noise that was charged: a planted bug.
    """
    total = 0.0
    for one, other in recording.delegated:
        assert one.entry.observe is not None
        parameters = dict(one.parameters)
        if factor != 1.0:
            name, power = _LESS_NOISE[one.entry.name]
            parameters[name] *= factor**power
        total += one.entry.observe(
            (one.rows, other.rows), one.encoder, generator, parameters, inside
        )
    return total
