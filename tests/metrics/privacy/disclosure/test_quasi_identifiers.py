"""The quasi-identifier match: hand tables, power, null, and releases of every kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd
import pytest

from bench.data.dataset import Dataset, Declaration, Split
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics.privacy.disclosure import _matching
from bench.metrics.privacy.disclosure._matching import MatchedTable, ReadableTable
from bench.metrics.privacy.disclosure.quasi_identifiers import (
    CLOSE,
    QuasiIdentifierMatch,
    inferred_rightly,
)
from bench.plugins.metric import Direction
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers, evaluate, named


@final
@dataclass(frozen=True)
class Ward(DatasetSource):
    """Age, weight and sex are known; dose and disease are not, and depend on nothing."""

    name: ClassVar[str] = "ward"
    rows: int = 600
    known: tuple[str, ...] = ("age", "sex")
    sensitive: tuple[str, ...] = ("dose", "disease")

    def declare(self) -> Declaration:
        columns = (
            Numeric(name="age", low=0, high=100, integer=True),
            Numeric(name="weight", low=0, high=200),
            Categorical(name="sex", categories=("f", "m")),
            Numeric(name="dose", low=0, high=10),
            Categorical(name="disease", categories=("flu", "gout", "measles", "mumps")),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(
            columns,
            Task.CLASSIFICATION,
            quasi_identifiers=self.known,
            sensitive=self.sensitive,
        )
        half = self.rows // 2
        return Declaration("Ward", schema, (half, half), {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(3)
        return pd.DataFrame(
            {
                "age": rng.integers(0, 100, self.rows),
                "weight": rng.uniform(40, 120, self.rows),
                "sex": rng.choice(["f", "m"], self.rows),
                "dose": rng.uniform(0, 10, self.rows),
                "disease": rng.choice(["flu", "gout", "measles", "mumps"], self.rows),
                "outcome": np.repeat([0, 1], self.rows // 2),
            }
        )


def split_of(dataset: Dataset, rows: list[tuple[Any, ...]]) -> Split:
    """A split of the given records: age, weight, sex, dose, disease, outcome."""
    frame = pd.DataFrame(rows, columns=["age", "weight", "sex", "dose", "disease", "outcome"])
    return Split(frame, dataset.encoder.encode(frame)[0])


TRAIN = [
    (30, 60.0, "f", 1.0, "flu", 0),
    (30, 60.0, "f", 5.0, "gout", 1),
    (40, 60.0, "m", 5.0, "measles", 0),
    (50, 60.0, "m", 9.0, "mumps", 1),
]
CONTROL = [
    (30, 60.0, "f", 3.0, "mumps", 0),
    (90, 60.0, "f", 3.0, "mumps", 0),
]
RELEASED = [
    (30, 10.0, "f", 1.0, "gout", 0),  # matches the first two: dose 3, gout
    (30, 20.0, "f", 3.0, "gout", 0),
    (30, 30.0, "f", 9.0, "mumps", 0),
    (40, 60.0, "m", 5.05, "measles", 1),  # matches the third
    (50, 60.0, "f", 9.0, "mumps", 1),  # nobody of that age and sex
]


@pytest.fixture(scope="module")
def ward() -> Dataset:
    return build_dataset(Ward())


@pytest.fixture(scope="module")
def four(ward: Dataset) -> Dataset:
    return replace(ward, train=split_of(ward, TRAIN), control=split_of(ward, CONTROL))


def test_a_hand_table_of_four_records(ward, four):
    scores = QuasiIdentifierMatch().compute(evaluate(four, split_of(ward, RELEASED)))
    assert named(scores, "qi-match/matched").value == 3 / 4
    assert named(scores, "qi-match/matched-control").value == 1 / 2
    # Gout of the second and measles of the third; the dose of the third is 0.05 off.
    assert named(scores, "qi-match/accuracy-overall").value == 2 / 4
    assert named(scores, "qi-match/close-overall").value == 1 / 4
    assert named(scores, "qi-match/right").value == pytest.approx(3 / 8)
    table = scores.details["qi-match"].set_index(["attribute", "rows"])
    assert table.loc[("disease", "train"), ["records", "matched", "right"]].tolist() == [4, 3, 2]
    assert table.loc[("dose", "train"), ["records", "matched", "right"]].tolist() == [4, 3, 1]
    assert table.loc[("dose", "control"), ["records", "matched", "right"]].tolist() == [2, 1, 1]
    assert table["declared"].all()
    gap, among = named(scores, "qi-match/gap"), named(scores, "qi-match/accuracy")
    assert gap.value is None and "at least 10" in gap.reason
    assert among.value is None and "3 training records have a match" in among.reason


def test_shares_among_the_matched(ward):
    """The same four records, ten times: shares are those of the hand table."""
    many = replace(ward, train=split_of(ward, TRAIN * 10), control=split_of(ward, CONTROL * 10))
    scores = QuasiIdentifierMatch().compute(evaluate(many, split_of(ward, RELEASED)))
    assert named(scores, "qi-match/accuracy").value == pytest.approx(2 / 3)
    assert named(scores, "qi-match/close").value == pytest.approx(1 / 3)
    right = named(scores, "qi-match/right")
    assert right.low < 3 / 8 < right.high
    assert named(scores, "qi-match/right-control").value == pytest.approx(1 / 4)


def test_weights_of_released_rows_decide_mode_and_median(ward, four):
    rows = split_of(ward, RELEASED).rows
    weights = np.array([1.0, 1.0, 5.0, 1.0, 0.0])
    release = Release(Rows(rows.values, rows.labels, weights=weights))
    scores = QuasiIdentifierMatch().compute(evaluate(four, release))
    table = scores.details["qi-match"].set_index(["attribute", "rows"])
    # Age 30 now implies mumps and 9.
    assert table.loc[("disease", "train"), "right"] == 1
    assert table.loc[("disease", "control"), "right"] == 1
    nobody = Release(Rows(rows.values, rows.labels, weights=np.zeros(5)))
    with pytest.raises(NotComputable, match="weight 0"):
        QuasiIdentifierMatch().compute(evaluate(four, nobody))


def test_median_and_mode_are_those_of_numpy_and_pandas():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 40, 500)
    values, codes = rng.normal(size=500), rng.integers(0, 5, 500).astype(float)
    table = ReadableTable({"number": values, "code": codes}, np.ones(500))
    numeric = Numeric(name="number", low=-9, high=9)
    categorical = Categorical(name="code", categories=tuple("abcde"))
    frame = pd.DataFrame({"class": classes, "number": values, "code": codes})
    medians = frame.groupby("class")["number"].median()
    modes = frame.groupby("class")["code"].agg(lambda column: column.mode().min())
    inferred = _matching.infer(numeric, MatchedTable(table, classes))
    assert inferred.guesses == pytest.approx(medians.to_numpy(), abs=1e-12)
    assert inferred.classes.tolist() == medians.index.tolist()
    assert (
        _matching.infer(categorical, MatchedTable(table, classes)).guesses.tolist()
        == modes.tolist()
    )
    assert np.isnan(inferred.of(np.array([99]))).all()
    # A weight is a number of copies.
    weights = rng.integers(1, 4, 500)
    copies = ReadableTable(
        {name: np.repeat(column, weights) for name, column in table.columns.items()},
        np.ones(weights.sum()),
    )
    weighted = ReadableTable(table.columns, weights / 7.0)
    for column in (numeric, categorical):
        left = _matching.infer(column, MatchedTable(weighted, classes)).guesses
        right = _matching.infer(column, MatchedTable(copies, np.repeat(classes, weights))).guesses
        assert left == pytest.approx(right, abs=1e-12)


def test_continuous_numbers_match_in_cells_of_the_public_range():
    weight = Numeric(name="weight", low=0, high=200)
    table = ReadableTable({"weight": np.array([0.0, 3.9, 4.0, 4.0 - 1e-6, 200.0])}, np.ones(5))
    (classes,) = _matching.equivalence_classes((weight,), table)
    assert classes[0] == classes[1]
    assert classes[1] != classes[2]
    assert classes[2] == classes[3]  # rounding on an edge
    age = Numeric(name="weight", low=0, high=200, integer=True)
    (classes,) = _matching.equivalence_classes((age,), table)
    assert len(set(classes.tolist())) == 3


def test_many_quasi_identifiers_do_not_overflow():
    rng = np.random.default_rng(1)
    columns = tuple(Numeric(name=f"q{i}", low=0, high=1e6, integer=True) for i in range(30))
    values = {column.name: rng.integers(0, 10**6, 50).astype(float) for column in columns}
    table = ReadableTable(values, np.ones(50))
    first, second = _matching.equivalence_classes(columns, table, table)
    assert len(set(first.tolist())) == 50
    assert first.tolist() == second.tolist()


def test_close_is_a_share_of_the_public_range():
    dose = Numeric(name="dose", low=0, high=10)
    truth, guesses = np.zeros(4), np.array([0.0, CLOSE * 10, CLOSE * 10 * 1.01, np.nan])
    assert inferred_rightly(dose, truth, guesses).tolist() == [True, True, False, False]


def test_the_training_rows_released_leave_a_gap(ward):
    scores = QuasiIdentifierMatch().compute(evaluate(ward, ward.train))
    gap = named(scores, "qi-match/gap")
    assert gap.value > 0.3
    assert gap.low > 0.2
    assert gap.direction is Direction.LOWER
    assert named(scores, "qi-match/matched").value == 1.0
    assert named(scores, "qi-match/right").value > named(scores, "qi-match/right-control").value


def test_fresh_rows_leave_no_gap():
    """Over 20 splits the mean gap is within its standard error; intervals hold zero."""
    gaps, held = [], 0
    for split_seed in range(20):
        dataset = build_dataset(Ward(known=("age",)), split_seed=split_seed)
        gap = named(QuasiIdentifierMatch().compute(evaluate(dataset, dataset.test)), "qi-match/gap")
        gaps.append(gap.value)
        held += gap.low <= 0 <= gap.high
    assert abs(np.mean(gaps)) < 2.5 * np.std(gaps, ddof=1) / np.sqrt(20)
    assert held >= 16


def test_soft_rows_are_read_as_their_largest_category(ward):
    rows = ward.train.rows
    soft = rows.values * 0.6
    soft[:, 4:8] += 0.1  # disease
    release = Release(Rows(np.where(np.arange(8) >= 4, soft, rows.values), rows.labels))
    hard = QuasiIdentifierMatch().compute(evaluate(ward, ward.train)).scores
    assert QuasiIdentifierMatch().compute(evaluate(ward, release)).scores == hard


def test_without_quasi_identifiers_it_is_absent(patients):
    with pytest.raises(NotComputable, match="no quasi-identifiers"):
        QuasiIdentifierMatch().compute(evaluate(patients, patients.train))


def test_an_attribute_that_is_known_is_not_inferred():
    dataset = build_dataset(Ward(known=("age", "dose"), sensitive=("dose", "disease")))
    scores = QuasiIdentifierMatch().compute(evaluate(dataset, dataset.train))
    assert set(scores.details["qi-match"]["attribute"]) == {"disease"}
    close = named(scores, "qi-match/close")
    assert close.value is None and close.reason == "no numeric attribute is attacked"
    dataset = build_dataset(Ward(known=("age", "dose"), sensitive=("dose",)))
    with pytest.raises(NotComputable, match="is a quasi-identifier"):
        QuasiIdentifierMatch().compute(evaluate(dataset, dataset.train))


def test_undeclared_attributes_are_chosen_and_said_so():
    dataset = build_dataset(Ward(sensitive=()))
    table = QuasiIdentifierMatch().compute(evaluate(dataset, dataset.test)).details["qi-match"]
    assert set(table["attribute"]) == {"weight", "dose"}
    assert not table["declared"].any()


def test_without_control_rows_only_the_comparison_is_absent(ward):
    dataset = replace(ward, control=split_of(ward, []))
    scores = QuasiIdentifierMatch().compute(evaluate(dataset, dataset.train))
    for output in ("matched-control", "right-control", "gap"):
        assert named(scores, f"qi-match/{output}").value is None
    assert named(scores, "qi-match/matched").value == 1.0


def test_every_output_and_the_same_again(ward):
    first, again = (
        QuasiIdentifierMatch().compute(evaluate(ward, ward.test, 5)).scores for _ in range(2)
    )
    assert first == again
    assert [score.metric for score in first] == [o.name for o in QuasiIdentifierMatch.outputs]


def test_a_model_has_no_rows_to_match(ward):
    with pytest.raises(NotComputable, match="a model, not rows"):
        QuasiIdentifierMatch().compute(evaluate(ward, Release(model=Answers(lambda v: v[:, 0]))))
