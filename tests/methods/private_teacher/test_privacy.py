"""Private calls of `private-teacher-dc`: reserved beforehand, bounded, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench import Budget, PrivateData
from bench.data.dataset import Dataset, Split
from bench.data.encoder import EncodedRows
from bench.methods.private_teacher.private_teacher_dc import PrivateTeacherDc
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.source import DatasetSource, build_dataset
from bench.privacy.accounting import compose_events
from bench.privacy.interception import Blind
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.privacy.rowwise import evaluate
from tests.support.tables import ToyClasses, ToySurvival, ToyTable

BUDGET = Budget(1.0, 1e-5)
SMALL: dict[str, Any] = {"steps": 3, "pool": 500, "judges": 200}
LARGE = ToyTable(negatives=3000, positives=2000)
"""Large enough for a teacher."""
SOURCES: list[DatasetSource] = [ToyTable(), ToyClasses(), ToySurvival()]
CASES: list[tuple[DatasetSource, dict[str, Any]]] = [
    *((source, {}) for source in SOURCES),
    (LARGE, {}),
    *(
        (source, {"teacher": teacher})
        for source in SOURCES[:2]
        for teacher in ("additive", "naive-bayes", "counts")
    ),
    (ToyTable(), {"teacher": "additive", "rounds": 3, "counts_share": 0.3}),
    (ToySurvival(), {"condense": False}),
]


def named(case: object) -> str:
    return case.name if isinstance(case, DatasetSource) else str(case)


def made(private: PrivateData, data: Dataset, **parameters: Any) -> Release:
    method = PrivateTeacherDc(**{**SMALL, **parameters})
    return method.synthesize(private, Spec(data.task, 10, BUDGET), np.random.default_rng(5))


def opened(data: Dataset, **options: Any) -> PrivateData:
    return open_private(data, BUDGET, SeededNoise(np.random.default_rng(4)), **options)[0]


def released(data: Dataset, **parameters: Any) -> bytes:
    rows = made(opened(data), data, **parameters).rows
    assert rows is not None
    return rows.values.tobytes() + rows.labels.tobytes()


def shuffled(split: Split, seed: int) -> Split:
    """Rows of other values, of which every second is gone."""
    rows, rng = split.rows, np.random.default_rng(seed)
    order = rng.permutation(len(rows))[::2]
    values = np.roll(rows.values, 1, axis=0)[order]
    changed = EncodedRows(values, rows.labels[order], rows.sites[order], rows.positions[order])
    return Split(split.frame.iloc[: len(order)], changed)


@pytest.mark.parametrize(("source", "parameters"), CASES, ids=named)
def test_calls_made_are_those_reserved(source: DatasetSource, parameters: dict[str, Any]) -> None:
    """Every event of the ledger was charged before the first answer, and asked exactly as often."""
    data = build_dataset(source)
    private, ledger = open_private(data, BUDGET, SeededNoise(np.random.default_rng(0)))
    calls: list[float] = []
    asked = {name: getattr(private, name) for name in ("gaussian_sum", "histograms")}
    charged_at_first: list[int] = []

    def spied(name: str) -> Any:
        def call(function: Any, second: Any, noise_multiplier: float) -> Any:
            if not calls:
                charged_at_first.append(sum(ledger.entries.values()))
            calls.append(noise_multiplier)
            return asked[name](function, second, noise_multiplier)

        return call

    for name in asked:
        setattr(private, name, spied(name))
    made(private, data, **parameters)
    events = compose_events((entry.event, count) for entry, count in ledger.entries.items())
    charged = Counter({event.noise_multiplier: count for event, count in events})
    assert Counter(calls) == charged
    assert charged_at_first == [len(calls)]
    assert not any(entry.adaptive for entry in ledger.entries)
    # One Gaussian mechanism, whatever the calls: 3.7307 at epsilon 1, delta 1e-5 (Balle and Wang).
    together = sum(count / multiplier**2 for multiplier, count in charged.items())
    assert together**-0.5 == pytest.approx(3.7307, abs=0.01)


@pytest.mark.parametrize("source", SOURCES, ids=named)
def test_no_row_is_cut_by_more_than_was_meant(source: DatasetSource) -> None:
    """Vectors that a row can have are within the clipping norm; only `clip` of a residual cuts."""
    data = build_dataset(source)
    private = opened(data)
    ask, share = private.gaussian_sum, []

    def spied(function: Any, clip: float, noise_multiplier: float) -> Any:
        vectors = evaluate(function, data.train.rows, check_rows=True)
        share.append(float(np.linalg.norm(vectors, axis=1).max()) / clip)
        return ask(function, clip, noise_multiplier)

    private.gaussian_sum = spied  # type: ignore[method-assign]
    made(private, data, teacher="additive")
    assert share and max(share) <= (1.0 if source.name == "toy-survival" else 2.0) + 1e-9


@pytest.mark.parametrize(("source", "parameters"), CASES, ids=named)
def test_blind_answers_make_the_same_release_from_any_rows(
    source: DatasetSource, parameters: dict[str, Any]
) -> None:
    """The same declared counts with other and fewer rows: nothing else was read from the rows."""
    data = build_dataset(source)
    other = replace(data, train=shuffled(data.train, 0), validation=shuffled(data.validation, 1))
    first, second = (
        made(opened(table, interceptor=Blind()), table, **parameters).rows
        for table in (data, other)
    )
    assert first is not None and second is not None
    assert first.values.tobytes() == second.values.tobytes()
    assert first.labels.tobytes() == second.labels.tobytes()


@pytest.mark.parametrize(("source", "parameters"), CASES, ids=named)
def test_validation_control_and_test_rows_are_never_read(
    source: DatasetSource, parameters: dict[str, Any]
) -> None:
    data = build_dataset(source)
    others = {
        name: shuffled(getattr(data, name), number)
        for number, name in enumerate(("validation", "control", "test"))
    }
    expected = released(data, **parameters)
    assert expected == released(replace(data, **others), **parameters)
    assert expected != released(replace(data, train=shuffled(data.train, 0)), **parameters)


@pytest.mark.parametrize(("source", "parameters"), CASES, ids=named)
def test_a_row_beyond_the_schema_raises_nothing(
    source: DatasetSource, parameters: dict[str, Any]
) -> None:
    """An error that only some rows cause would reveal that they exist."""
    data = build_dataset(source)
    rows = data.train.rows
    values = rows.values.copy()
    values[0], values[1] = 1e6, -1e6
    beyond = Split(data.train.frame, EncodedRows(values, rows.labels, rows.sites, rows.positions))
    released(replace(data, train=beyond), **parameters)


def test_with_private_counts_the_whole_budget_holds() -> None:
    """Counts that are paid for come first; what follows is then accounted as adaptive."""
    for source in (*SOURCES, LARGE):
        data = build_dataset(source)
        for teacher in ("auto", "additive"):
            noise = SeededNoise(np.random.default_rng(0))
            private, ledger = open_private(data, BUDGET, noise, private_counts=True)
            made(private, data, teacher=teacher)
            assert ledger.proof().epsilon <= BUDGET.epsilon
