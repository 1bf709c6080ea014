"""Equation 6 by hand, its three variants, power and null."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bench.data.dataset import Dataset, Split
from bench.data.encoder import Encoder
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics.privacy.disclosure.disclosure_risk import DisclosureRisk, error_assumptions
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named
from tests.metrics.privacy.disclosure.test_quasi_identifiers import CONTROL, Ward, split_of


@pytest.fixture(scope="module")
def ward() -> Dataset:
    return build_dataset(Ward(known=("age", "sex")))


# Weight and outcome are shared by at least half of the rows: they are never informative.
TRAIN = [
    (30, 60.0, "f", 1.0, "flu", 0),
    (30, 60.0, "f", 1.0, "gout", 1),
    (40, 60.0, "m", 5.0, "measles", 0),
    (50, 60.0, "m", 9.0, "mumps", 1),
]
RELEASED = [
    (30, 60.0, "f", 7.0, "gout", 0),
    (30, 60.0, "f", 7.0, "gout", 0),
    (40, 60.0, "m", 5.0, "mumps", 0),
    (50, 60.0, "m", 0.0, "mumps", 1),
]


def test_equation_6_by_hand(ward):
    """f = 2, 2, 1, 1. Disease: gout of the second (1/2) and mumps of the fourth (1).

    Doses 1 1 5 9 have natural classes 1 | 5 9 (goodness 36/44 = 0.82); one holds half of the
    rows and so does the other: no dose is rare. Mean of the largest: (0 + 1/2 + 0 + 1) / 4.
    """
    four = replace(ward, train=split_of(ward, TRAIN), control=split_of(ward, CONTROL))
    scores = DisclosureRisk().compute(evaluate(four, split_of(ward, RELEASED)))
    plain = 1.5 / 4
    reference = (1 + (0.23 * (1 - 0.0426)) ** 2) / 2
    assert named(scores, "disclosure-risk/no-errors").value == pytest.approx(plain)
    assert named(scores, "disclosure-risk/conservative").value == pytest.approx(0.8 * plain)
    assert named(scores, "disclosure-risk/reference").value == pytest.approx(reference * plain)
    table = scores.details["disclosure-risk"].set_index(["variable", "variant"])
    assert table.loc[("dose", "no-errors"), "classes"] == 2
    assert table.loc[("dose", "no-errors"), "goodness"] == pytest.approx(36 / 44)
    assert table.loc[("dose", "no-errors"), "risk"] == 0.0
    assert table.loc[("disease", "no-errors"), "risk"] == pytest.approx(plain)
    assert table.loc[("(total)", "reference"), "risk"] == pytest.approx(reference * plain)
    assert table.loc[("disease", "no-errors"), "at-risk"] == 0.5
    assert set(table.index.get_level_values(0)) == {
        "weight", "dose", "disease", "outcome", "(total)",
    }  # fmt: skip
    for variant in ("reference", "conservative", "no-errors"):
        assert named(scores, f"disclosure-risk/{variant}").limit == 0.05


def test_numbers_are_learned_by_their_natural_class(ward):
    """Doses 0 5 10: three classes of one row each; 4.4 is read as 5, 5.1 as 10."""
    rows = [(30, 60.0, "f", 0.0, "flu", 0), (40, 60.0, "m", 5.0, "flu", 1),
            (50, 60.0, "m", 10.0, "flu", 0)]  # fmt: skip
    guessed = [(40, 60.0, "m", 4.4, "flu", 0), (50, 60.0, "m", 5.1, "flu", 0)]
    three = replace(ward, train=split_of(ward, rows), control=split_of(ward, CONTROL))
    scores = DisclosureRisk().compute(evaluate(three, split_of(ward, guessed)))
    table = scores.details["disclosure-risk"].set_index(["variable", "variant"])
    assert table.loc[("dose", "no-errors"), "classes"] == 3
    assert table.loc[("dose", "no-errors"), "risk"] == pytest.approx(2 / 3)
    assert table.loc[("disease", "no-errors"), "risk"] == 0.0  # everybody has it


def test_the_printed_factor_and_that_of_the_papers_tables():
    """Reference over no errors in tables 8a (k = 3) and 8b (k = 4); conservative over no errors."""
    printed = ((3, 0.00718, 0.028470, 0.035588), (4, 0.005592, 0.023122, 0.028903))
    for known, reference, conservative, plain in printed:
        first, second, third = error_assumptions(known)
        assert first.factor == pytest.approx((1 + (0.23 * 0.9574) ** known) / 2)
        assert first.tables == pytest.approx(reference / plain, rel=2e-3)
        assert third.factor == third.tables == 1.0
        assert second.factor == second.tables == pytest.approx(conservative / plain, rel=1e-4)


def test_a_missing_value_weighs_half():
    columns = (
        Numeric(name="age", low=0, high=100, integer=True),
        Categorical(name="job", categories=("a", "b", "(missing)")),
        Numeric(name="pay", low=0, high=10, fill=0.0),
        Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
    )
    schema = Schema(columns, Task.CLASSIFICATION, quasi_identifiers=("age",))
    dataset = build_dataset(Ward())
    declaration = replace(dataset.declaration, schema=schema)
    encoder = Encoder(schema)

    def split(rows: list[tuple[object, ...]]) -> Split:
        frame = pd.DataFrame(rows, columns=["age", "job", "pay", "outcome"])
        return Split(frame, encoder.encode(frame)[0])

    train = split([(1, "(missing)", np.nan, 0), (2, "a", 5.0, 1), (3, "b", 10.0, 0)])
    dataset = replace(dataset, declaration=declaration, encoder=encoder, train=train, control=train)
    table = DisclosureRisk().compute(evaluate(dataset, train)).details["disclosure-risk"]
    risk = table[table["variant"] == "no-errors"].set_index("variable")["risk"]
    assert risk["job"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert risk["pay"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert risk["(total)"] == pytest.approx(2.5 / 3)


def test_the_training_rows_released_are_beyond_the_limit(ward):
    scores = DisclosureRisk().compute(evaluate(ward, ward.train))
    risk = named(scores, "disclosure-risk/reference")
    assert risk.low > risk.limit
    gap = named(scores, "disclosure-risk/gap")
    assert gap.value > 0.1
    assert gap.low > 0.05
    # The quasi-identifiers alone distinguish records: at most 1 / f.
    sizes = ward.train.frame.groupby(["age", "sex"])["age"].transform("size")
    assert named(scores, "disclosure-risk/no-errors").value <= float((1 / sizes).mean()) + 1e-12


def test_fresh_rows_leave_no_gap():
    gaps, held = [], 0
    for split_seed in range(20):
        dataset = build_dataset(Ward(known=("age",)), split_seed=split_seed)
        scores = DisclosureRisk().compute(evaluate(dataset, dataset.test))
        gap = named(scores, "disclosure-risk/gap")
        gaps.append(gap.value)
        held += gap.low <= 0 <= gap.high
    assert abs(np.mean(gaps)) < 2.5 * np.std(gaps, ddof=1) / np.sqrt(20)
    assert held >= 16


def test_a_release_that_matches_nobody_has_no_risk(ward):
    strangers = split_of(ward, [(99, 60.0, "f", 1.0, "flu", 0)] * 5)
    train = ward.train.frame[ward.train.frame["age"] < 99]
    four = replace(ward, train=Split(train, ward.encoder.encode(train)[0]))
    scores = DisclosureRisk().compute(evaluate(four, strangers))
    value = named(scores, "disclosure-risk/no-errors")
    assert (value.value, value.low, value.high) == (0.0, 0.0, 0.0)


def test_soft_rows_are_read_as_their_largest_category(ward):
    rows = ward.train.rows
    soft = np.where(np.arange(8) >= 4, rows.values * 0.6 + 0.1, rows.values)
    hard = DisclosureRisk().compute(evaluate(ward, ward.train)).scores
    release = Release(Rows(soft, rows.labels))
    assert DisclosureRisk().compute(evaluate(ward, release)).scores == hard


def test_without_quasi_identifiers_it_is_absent(patients):
    with pytest.raises(NotComputable, match="no quasi-identifiers"):
        DisclosureRisk().compute(evaluate(patients, patients.train))


def test_every_output_and_the_same_again(ward):
    first, again = (DisclosureRisk().compute(evaluate(ward, ward.test, 5)).scores for _ in range(2))
    assert first == again
    assert [score.metric for score in first] == [o.name for o in DisclosureRisk.outputs]


def test_a_model_has_no_rows_to_match(ward):
    with pytest.raises(NotComputable, match="a model, not rows"):
        DisclosureRisk().compute(evaluate(ward, Release(model=Answers(lambda v: v[:, 0]))))
