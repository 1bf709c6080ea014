"""The coupling of neighbours, on four rows whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import pytest

from bench.conformance import coupling
from bench.conformance.coupling import Recorder, Replayer, compare_neighbours, neighbours
from bench.conformance.mistakes import MISTAKES, SOUND, row_functions
from bench.conformance.mistakes.sound import Example, around_class_means, fit_teacher, teachers_vote
from bench.conformance.model_state import state_digest
from bench.conformance.released import released
from bench.conformance.subject import CheckStatus, Subject
from bench.conformance.tables import toy_dataset
from bench.data.dataset import Counts
from bench.data.encoder import EncodedRows, Encoder
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.plugins import registry
from bench.plugins.method import Method, Spec
from bench.plugins.release import (
    Claim,
    Clients,
    Detector,
    Federation,
    Release,
    ReleasedModel,
    Rows,
    Traffic,
)
from bench.privacy.events import gaussian
from bench.privacy.interception import Blind, Call, Interceptor
from bench.privacy.kernel import PrivateData, Vault
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.trusted.table import TrustedMechanism

Array = npt.NDArray[np.float64]
Calls = Callable[[PrivateData], object]

ENCODER = Encoder(
    Schema(
        (
            Numeric(name="x", low=-1, high=1),
            Categorical(name="label", categories=("0", "1"), role=Role.TARGET),
        ),
        Task.CLASSIFICATION,
    )
)
FOUR = EncodedRows(
    np.array([[0.0], [0.2], [0.4], [0.6]]),
    np.array([0, 1, 0, 1]),
    np.zeros(4, dtype=int),
    np.array([0.1, 0.3, 0.5, 0.7]),
)
ADDED = np.array([0.9])
FIVE = EncodedRows(
    np.array([[1.0], [0.0], [0.2], [0.4], [0.6]]),
    np.array([1, 0, 1, 0, 1]),
    np.zeros(5, dtype=int),
    np.concatenate([ADDED, FOUR.positions]),
)
"""The added row is the first: all others have another number."""


def opened(rows: EncodedRows, interceptor: Interceptor, seed: int = 0) -> PrivateData:
    noise = SeededNoise(np.random.default_rng(seed))
    vault = Vault(Ledger(), noise, interceptor=interceptor)
    return PrivateData(rows, ENCODER, Counts(4, (2, 2)), vault, (("split", "train"),))


def replayed(method: Calls, rows: EncodedRows = FIVE, **options: Any) -> tuple[Any, list[str]]:
    """Return what a method answers on other rows than the four, and the problems found."""
    recorder = Recorder()
    first = method(opened(FOUR, recorder))
    replayer = Replayer(recorder.calls, **{"added": ADDED, **options})
    # Other noise: what is equal was replayed.
    second = method(opened(rows, replayer, seed=1))
    problems = replayer.finish()
    if not replayer.diverged:
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    return second, problems


def test_a_sound_call_gets_the_same_answer_and_has_no_problem() -> None:
    def total(private: PrivateData) -> Array:
        answer = private.gaussian_sum(lambda rows: rows.values, 1.0, 1.0)
        copy = answer.copy()
        answer += 1.0  # changing an answer in place does not change the record
        return copy

    assert replayed(total)[1] == []


def test_a_mean_of_the_rows_moves_the_vectors_of_the_others_by_a_known_amount() -> None:
    """The mean is 0.3 without and 0.44 with the row: 0.14 of the clip for each of the four."""
    _, (problem,) = replayed(
        lambda private: private.gaussian_sum(lambda rows: rows.values - rows.values.mean(), 1.0, 2)
    )
    assert problem == (
        "call 1, gaussian_sum on split=train (clip 1, noise multiplier 2): 4 of the 4 vectors of "
        "other rows changed, by up to 0.14 of the clip"
    )


@pytest.mark.parametrize(("error", "problems"), [(1e-7, 0), (1e-3, 1)])
def test_rounding_of_another_batch_is_tolerated(error: float, problems: int) -> None:
    found = replayed(
        lambda private: private.gaussian_sum(
            lambda rows: rows.values * (1.0 + error * len(rows)), 1.0, 1.0
        )
    )
    assert len(found[1]) == problems


def test_only_what_is_left_of_a_vector_after_clipping_counts() -> None:
    """A vector that is clipped to the same point, and rows that count as zero, did not change."""
    assert not replayed(
        lambda private: private.gaussian_sum(
            lambda rows: np.full((len(rows), 1), 5.0 * len(rows)), 1.0, 1.0
        )
    )[1]
    assert not replayed(
        lambda private: private.gaussian_sum(
            lambda rows: np.full((len(rows), 1), np.inf if len(rows) == 4 else np.nan), 1.0, 1.0
        )
    )[1]


def test_samples_of_common_rows_are_replayed_and_the_added_row_is_in_every_second() -> None:
    seen: list[list[float]] = []

    def sums(private: PrivateData) -> list[Array]:
        def values(rows: EncodedRows) -> Array:
            seen.append(rows.positions.tolist())
            return np.asarray(rows.values)

        return [private.poisson_sum(values, 1.0, 1.0, 0.5) for _ in range(6)]

    assert replayed(sums, each=2)[1] == []
    first, second = seen[:6], seen[6:]
    assert any(0 < len(positions) < 4 for positions in first)
    for number, (before, after) in enumerate(zip(first, second, strict=True), start=1):
        assert after == (ADDED.tolist() + before if number % 2 == 0 else before)
    seen.clear()
    assert replayed(sums, each=0)[1] == []
    assert seen[:6] == seen[6:]


def test_division_by_the_sample_is_found_only_with_the_row_in_it() -> None:
    def divided(private: PrivateData) -> Array:
        return private.poisson_sum(lambda rows: rows.values / max(1, len(rows)), 1.0, 1.0, 0.9)

    assert replayed(divided, each=1)[1] and not replayed(divided, each=0)[1]


def test_other_parameters_more_calls_and_fewer_calls_are_found() -> None:
    def calls(private: PrivateData, number: Callable[[int], int], clip: bool = False) -> list[int]:
        counted: list[int] = []

        def values(rows: EncodedRows) -> Array:
            counted.append(len(rows))
            return np.asarray(rows.values)

        private.gaussian_sum(values, 1.0, 1.0)
        for _ in range(number(counted[0])):
            private.gaussian_sum(values, float(counted[0]) if clip else 1.0, 1.0)
        return []

    (other,) = replayed(lambda private: calls(private, lambda rows: 2, clip=True))[1]
    assert "call 2 was gaussian_sum on split=train (clip 4" in other and "(clip 5" in other
    (more,) = replayed(lambda private: calls(private, lambda rows: rows))[1]
    assert "call 6, gaussian_sum" in more and "with the row only" in more
    (fewer,) = replayed(lambda private: calls(private, lambda rows: 5 - rows))[1]
    assert "call 2, gaussian_sum" in fewer and "not made any more" in fewer


def test_rows_that_change_their_part_are_found() -> None:
    def halves(private: PrivateData) -> Array:
        parts = private.partition(
            lambda rows: ["low" if x <= np.median(rows.values) else "high" for x in rows.values],
            ("low", "high"),
            name="half",
        )
        return np.stack(
            [part.gaussian_sum(lambda rows: rows.values, 1.0, 1.0) for part in parts.values()]
        )

    assert all("other rows than before" in problem for problem in replayed(halves)[1])
    assert replayed(halves)[1]


def test_bins_by_rank_are_found_and_bins_by_value_are_not() -> None:
    def counts(private: PrivateData, rank: bool) -> Array:
        def codes(rows: EncodedRows) -> npt.NDArray[np.int64]:
            by = rows.values[:, 0].argsort().argsort() if rank else (rows.values[:, 0] * 5)
            return by.astype(np.int64)[:, None]

        # The added value, 5, is beyond the last bin.
        return private.histograms(codes, [5], 1.0)[0]

    assert not replayed(lambda private: counts(private, rank=False))[1]
    moved = replace(FIVE, values=np.where(FIVE.values == 1.0, -0.5, FIVE.values))
    assert replayed(lambda private: counts(private, rank=True), moved)[1]


def votes(private: PrivateData, fit: Callable[[EncodedRows], Any]) -> Array:
    parts = private.partition("class")
    models = private.fit_parts(parts, lambda rows, _: fit(rows))
    # Votes are coarse: they are the same for all models of this test.
    return private.partition_sum(models, lambda model: [1.0, 0.0], 1.0, 1.0)


def test_a_shared_state_of_parts_is_found_though_their_votes_stay_the_same() -> None:
    assert not replayed(lambda private: votes(private, lambda rows: rows.values.sum()))[1]

    def shared(private: PrivateData) -> Array:
        sums = [0.0]

        def fit(rows: EncodedRows) -> float:
            sums.append(sums[-1] + float(rows.values.sum()))
            return sums[-1]

        return votes(private, fit)

    # The row is in the second part: the first, fitted before, does not see it.
    assert not replayed(shared)[1]
    first = replace(FIVE, labels=np.array([0, 0, 1, 0, 1]))
    (problem,) = replayed(shared, first)[1]
    assert "models of 1 of the 1 parts without an added row changed" in problem


def test_a_vector_of_every_part_is_compared_in_the_same_way() -> None:
    def vectors(private: PrivateData, fit: Callable[[EncodedRows], float]) -> Array:
        models = private.fit_parts(private.partition("class"), lambda rows, _: fit(rows))
        return private.part_vectors(models, lambda model: [model], 1.0, 1.0)

    largest = [-1.0]

    def record_of(rows: EncodedRows) -> float:
        largest[0] = max(largest[0], float(rows.values.max()))
        return largest[0]

    assert not replayed(lambda private: vectors(private, lambda rows: float(rows.values.sum())))[1]
    assert replayed(
        lambda private: vectors(private, record_of), replace(FIVE, labels=np.array([0, 0, 1, 0, 1]))
    )[1]


def test_a_delegated_result_is_replayed_and_its_parameters_are_compared() -> None:
    entry = TrustedMechanism(
        "mean",
        "numpy",
        (np.__version__,),
        lambda parameters: gaussian(1.0),
        lambda rows, encoder, generator, parameters: rows.values.mean(),
        plugin="a test",
    )
    assert replayed(lambda private: private.delegate(entry, bins=4)) == (pytest.approx(0.3), [])

    def counted(private: PrivateData) -> object:
        rows: list[int] = []
        private.gaussian_sum(lambda r: np.ones((rows.append(len(r)) or len(r), 1)), 1.0, 1.0)
        return private.delegate(entry, bins=rows[0])

    (problem,) = replayed(counted)[1]
    assert "mean, [('bins', 4)]" in problem and "mean, [('bins', 5)]" in problem


def test_a_table_of_other_rows_only_is_compared_by_its_answers() -> None:
    other = replace(FIVE, positions=np.linspace(0.8, 0.99, 5))
    options = {"added": other.positions, "removed": FOUR.positions}
    assert not replayed(
        lambda private: private.gaussian_sum(lambda rows: rows.values, 1.0, 1.0), other, **options
    )[1]


def test_blind_answers_are_those_of_an_empty_table() -> None:
    nobody = FOUR.take(np.zeros(0, dtype=np.intp))
    for method in (
        lambda private: private.gaussian_sum(lambda rows: rows.values, 1.0, 1.0),
        lambda private: private.histograms(lambda rows: rows.labels[:, None], [2], 1.0)[0],
    ):
        blind, empty = method(opened(FOUR, Blind())), method(opened(nobody, Recorder()))
        np.testing.assert_array_equal(blind, empty)


# States of models ---------------------------------------------------------------------------------


def test_the_digest_of_a_model_follows_what_it_holds() -> None:
    import torch

    def network(bias: float) -> torch.nn.Module:
        made = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
        for number in made.parameters():
            torch.nn.init.constant_(number, bias)
        return made

    def loop(value: float) -> dict[str, Any]:
        made: dict[str, Any] = {"value": value}
        made["self"] = made
        return made

    makers: list[Callable[[float], object]] = [
        lambda x: x,
        lambda x: np.array([0.0, x]),
        lambda x: {"a": [1, (2, {x})]},
        lambda x: np.random.default_rng(int(x)),
        lambda x: Claim(x, 0.0, ""),
        lambda x: np.array([x, "text"], dtype=object),
        network,
        loop,
    ]
    for maker in makers:
        assert state_digest(maker(1.0)) == state_digest(maker(1.0))
        assert state_digest(maker(1.0)) != state_digest(maker(2.0))


# Releases -----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Constant(ReleasedModel):
    value: float

    def predict(self, values: Any) -> Array:
        return np.full(len(values), self.value)


@final
@dataclass(frozen=True)
class Alarm(Detector):
    limit: float

    @property
    def threshold(self) -> float:
        return self.limit

    def predict(self, values: Any) -> Array:
        return np.zeros(len(values))


def test_every_part_of_a_release_is_compared() -> None:
    dataset = toy_dataset("table")
    rows = Rows(np.zeros((2, 6)), np.array([0, 1]))

    def sent(payload: bytes) -> Federation:
        traffic = Traffic()
        traffic.send("model", "up", payload)
        return Federation(Clients.of("clients", 2, 1.0), traffic.transfers())

    base, model = Release(rows), Release(model=Constant(0.0))
    cases: list[tuple[str, Release, Release]] = [
        ("rows", base, Release(replace(rows, values=np.ones((2, 6))))),
        ("labels", base, Release(replace(rows, labels=np.array([0, 0])))),
        ("weights", base, Release(replace(rows, weights=np.ones(2)))),
        ("soft labels", base, Release(replace(rows, soft_labels=np.eye(2)))),
        ("predictions", model, Release(model=Constant(1.0))),
        ("threshold", Release(model=Alarm(0.0)), Release(model=Alarm(1.0))),
        ("notes", base, replace(base, notes={"n": np.float64(3.0)})),
        ("claim", base, replace(base, claim=Claim(1.0, 1e-5, "it"))),
        ("transfers", *(replace(base, federation=sent(text)) for text in (b"1", b"12"))),
        ("ledger", *(replace(base, ledger=Ledger(delta=delta)) for delta in (1e-5, 1e-6))),
    ]
    for name, first, second in cases:
        assert released(first, dataset).differences(released(first, dataset)) == ()
        assert released(second, dataset).differences(released(first, dataset)) == (name,)


# Whole methods ------------------------------------------------------------------------------------


def test_neighbours_hold_all_rows_of_the_table_and_the_added_ones() -> None:
    dataset = toy_dataset("three classes")
    seen = []
    for neighbour in neighbours(dataset):
        for before, after in (
            (dataset.train.rows, neighbour.dataset.train.rows),
            (dataset.validation.rows, neighbour.dataset.validation.rows),
        ):
            kept = ~np.isin(after.positions, neighbour.added)
            stayed = ~np.isin(before.positions, neighbour.removed)
            np.testing.assert_array_equal(after.values[kept], before.values[stayed])
            np.testing.assert_array_equal(after.labels[kept], before.labels[stayed])
            seen.append(len(after) - len(before))
        assert neighbour.dataset.counts == dataset.counts
    many = len(dataset.train) // 2
    # One row of each of three classes, one never sampled, one of the validation rows.
    assert seen[:12] == [1, 0, 1, 0, 1, 0, 1, 0, 0, 1, many, 0]


@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.name)
def test_sound_examples_pass(kind: type[Method]) -> None:
    assert compare_neighbours(Subject(kind), toy_dataset("table")) == []


_IN_THE_SOURCE = ("global-generator", "fixed-noise")


@pytest.mark.parametrize(
    "kind", [kind for kind in MISTAKES if kind.name not in _IN_THE_SOURCE], ids=lambda k: k.name
)
def test_coupled_neighbours_alone_find_every_mistake_that_reads_rows(kind: type[Method]) -> None:
    """Also those that the kernel refuses when rows are evaluated alone, which no release does."""
    row_functions._CENTRE.clear()
    assert compare_neighbours(Subject(kind), toy_dataset("table"))


@final
@dataclass(frozen=True)
class SharedGenerator(Example):
    """Teachers draw from the public generator, as often as they have rows."""

    name: ClassVar[str] = "shared-generator"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        def fit(rows: EncodedRows, _: np.random.Generator) -> Array:
            return fit_teacher(rows.take(rng.integers(0, max(1, len(rows)), len(rows))), 2)

        return teachers_vote(private, spec, rng, fit)


@final
@dataclass(frozen=True)
class MessagePerRow(Example):
    """A federation whose clients send one message for each of their rows."""

    name: ClassVar[str] = "message-per-row"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        traffic = Traffic()

        def values(rows: EncodedRows) -> Any:
            for row in rows.values:
                traffic.send("release", "up", row.tobytes())
            return rows.values

        release = around_class_means(private, spec, rng, function=values)
        federation = Federation(Clients.of("clients", 2, 1.0), traffic.transfers())
        return replace(release, federation=federation)


@pytest.mark.parametrize(
    ("kind", "said"),
    [(SharedGenerator, "parts without an added row"), (MessagePerRow, "differs in its transfers")],
    ids=lambda value: getattr(value, "name", ""),
)
def test_further_mistakes_are_found(kind: type[Method], said: str) -> None:
    problems = compare_neighbours(Subject(kind), toy_dataset("table"))
    assert any(said in problem for problem in problems)


def test_a_delegated_method_is_compared_beside_its_library() -> None:
    subject = Subject(
        registry.method_class("private-teacher-dc"), {"teacher": "ebm"}, tables=("table",)
    )
    assert any(entry.trust for entry in subject.run("table").ledger.entries)
    (result,) = coupling.coupled_neighbours(subject)
    assert result.status is CheckStatus.PASSED, result.detail


def test_the_check_says_why_it_was_not_made() -> None:
    (result,) = coupling.coupled_neighbours(
        Subject(registry.method_class("real"), tables=("table",))
    )
    assert result.status is CheckStatus.NOT_CHECKED and "non-private access" in result.detail


def test_a_long_list_of_problems_is_cut_and_the_same_table_is_named_first() -> None:
    row_functions._CENTRE.clear()
    (result,) = coupling.coupled_neighbours(Subject(row_functions.RunningMean, tables=("table",)))
    first, *_, last = result.detail.splitlines()
    assert result.status is CheckStatus.FAILED
    assert first.startswith("table, the same table again: call 1, gaussian_sum")
    assert last.startswith("and ") and last.endswith(" more")


def test_a_call_in_words() -> None:
    call = Call("histograms", (("split", "train"), ("class", "1")), 2.0, bins=(3,))
    assert str(call) == "histograms on split=train/class=1 (noise multiplier 2, bins (3,))"
