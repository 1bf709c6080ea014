"""Singling out by predicates that come from the release."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from bench.errors import NotComputable
from bench.metrics._shared.record_distance import distinct_records, real_records
from bench.metrics.privacy.disclosure import singling_out
from bench.metrics.privacy.disclosure.singling_out import (
    AT_LEAST,
    AT_MOST,
    EQUAL,
    Predicates,
    SinglingOut,
)
from bench.plugins import registry
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, without_control
from tests.support.exact_splits import exact_splits
from tests.support.real_data import real_folder
from tests.support.tables import ToyTable

# Two numbers and one category; four rows.
FOUR = np.array([[1.0, 1.0, 2.0, 5.0], [7.0, 8.0, 8.0, 9.0], [0.0, 0.0, 1.0, 0.0]])


def conditions(predicates: Predicates) -> set[tuple[int, int, float]]:
    return set(
        zip(
            predicates.columns[:, 0].tolist(),
            predicates.operators[:, 0].tolist(),
            predicates.values[:, 0].tolist(),
            strict=True,
        )
    )


def test_one_column_predicates_are_values_and_extremes_of_one_record():
    predicates = singling_out.univariate(FOUR, 2, 100, np.random.default_rng(0))
    assert conditions(predicates) == {
        (0, EQUAL, 2.0),
        (0, EQUAL, 5.0),
        (0, AT_LEAST, 5.0),
        (1, EQUAL, 7.0),
        (1, EQUAL, 9.0),
        (1, AT_MOST, 7.0),
        (1, AT_LEAST, 9.0),
        (2, EQUAL, 1.0),
    }
    assert (predicates.counts(FOUR) == 1).all()
    assert len(singling_out.univariate(FOUR, 2, 3, np.random.default_rng(0))) == 3


def test_no_value_that_one_record_has_gives_no_predicate():
    twice = np.array([[1.0, 1.0, 2.0, 2.0]])
    assert not len(singling_out.univariate(twice, 1, 100, np.random.default_rng(0)))


def test_predicates_on_several_columns_fit_one_record_and_differ():
    predicates = singling_out.multivariate(FOUR, 2, 2, 100, 5000, np.random.default_rng(0))
    assert (predicates.counts(FOUR) == 1).all()
    seen = {
        tuple(zip(columns, operators, values, strict=True))
        for columns, operators, values in zip(
            predicates.columns.tolist(),
            predicates.operators.tolist(),
            predicates.values.tolist(),
            strict=True,
        )
    }
    assert len(seen) == len(predicates)
    # The last record, away from the medians 1.5 and 8; the third by its category.
    assert ((0, AT_LEAST, 5.0), (1, AT_LEAST, 9.0)) in seen
    assert ((1, AT_MOST, 8.0), (2, EQUAL, 1.0)) in seen


def test_predicates_are_conjunctions():
    predicate = Predicates(
        np.array([[0, 2]]), np.array([[AT_LEAST, EQUAL]], dtype=np.int8), np.array([[1.5, 0.0]])
    )
    assert predicate.counts(FOUR).tolist() == [1]
    each = [predicate.counts(FOUR[:, [row]]).tolist() for row in range(4)]
    assert each == [[0], [0], [0], [1]]


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 1000])
def test_counts_are_those_of_comparing_every_cell(rows):
    """Missing values fit nothing, also at the ends of the chunks that are compared together."""
    rng = np.random.default_rng(rows)
    table = rng.integers(3, size=(4, rows)).astype(float)
    table[rng.random(table.shape) < 0.1] = np.nan
    columns = rng.integers(4, size=(60, 3))
    operators = rng.integers(3, size=(60, 3)).astype(np.int8)
    values = rng.integers(3, size=(60, 3)).astype(float)
    compare = {EQUAL: np.equal, AT_MOST: np.less_equal, AT_LEAST: np.greater_equal}
    plain = [
        np.logical_and.reduce(
            [compare[how](table[column], value) for column, how, value in zip(*one, strict=True)]
        ).sum()
        for one in zip(columns, operators, values, strict=True)
    ]
    predicates = Predicates(columns, operators, values)
    assert predicates.counts(table).tolist() == plain
    stopped = predicates.counts(table, enough=2)
    assert np.minimum(stopped, 2).tolist() == np.minimum(plain, 2).tolist()


def test_a_predicate_needs_a_condition():
    nothing = np.empty((1, 0))
    empty = Predicates(nothing.astype(np.intp), nothing.astype(np.int8), nothing)
    with pytest.raises(ValueError, match="at least one condition"):
        empty.counts(FOUR)


def test_successes_on_the_same_row_weigh_as_one():
    same = Predicates(
        np.array([[0], [0], [1]]),
        np.full((3, 1), EQUAL, dtype=np.int8),
        np.array([[5.0], [2.0], [9.0]]),
    )
    hits = same.hits(FOUR)
    assert hits.counts.tolist() == [1, 1, 1]
    assert hits.together == pytest.approx((2**2 + 1) / 3)


def test_released_training_rows_are_singled_out(table):
    scores = SinglingOut().compute(evaluate(table, table.train))
    for kind in ("univariate", "multivariate"):
        risk = named(scores, f"singling-out/{kind}")
        assert risk.value > 0.97
        assert risk.low > 0.9
        assert risk.high <= 1.0
        assert 0 <= named(scores, f"singling-out/{kind}-control").value < 0.5


def test_fresh_rows_single_nobody_out():
    """Over 16 splits: means near 0, and no interval is sure of a risk."""
    by_kind = {"univariate": [], "multivariate": []}
    for split_seed in range(16):
        dataset = build_dataset(ToyTable(), split_seed=split_seed)
        scores = SinglingOut().compute(evaluate(dataset, dataset.test))
        for kind, scored in by_kind.items():
            scored.append(named(scores, f"singling-out/{kind}"))
    for kind, near in (("univariate", 0.02), ("multivariate", 0.08)):
        assert abs(np.mean([score.value for score in by_kind[kind]])) < near
        assert sum(score.low > 0 for score in by_kind[kind]) <= 1


def test_a_hundred_raw_rows_are_seen(table):
    pick = np.random.default_rng(0).permutation(len(table.train))[:100]
    rows = table.train.rows.take(pick)
    scores = SinglingOut().compute(evaluate(table, Release(Rows(rows.values, rows.labels))))
    assert named(scores, "singling-out/univariate").low > 0.5


def test_repeating_released_rows_hides_nothing(table):
    rows = table.train.rows
    twice = Rows(np.repeat(rows.values, 2, axis=0), np.repeat(rows.labels, 2))
    scores = SinglingOut().compute(evaluate(table, Release(twice)))
    assert named(scores, "singling-out/multivariate").low > 0.9


def test_details_count_every_predicate(table):
    details = SinglingOut().compute(evaluate(table, table.train)).details["singling-out"]
    univariate = details[details["kind"] == "univariate"]
    assert univariate["predicates"].sum() <= SinglingOut.attacks
    # The release is the training table: every predicate fits one training row.
    assert (details["training-rows"] == 1).all()


def test_few_predicates_are_absent_with_the_reason(table):
    same = Release(Rows(np.zeros((20, table.encoder.width)), np.zeros(20, dtype=np.int64)))
    scores = SinglingOut().compute(evaluate(table, same))
    for score in scores.scores:
        assert score.value is None
        assert "fit exactly one released record" in score.reason


def test_without_control_rows_there_is_no_risk(table):
    with pytest.raises(NotComputable, match="0 control rows"):
        SinglingOut().compute(evaluate(without_control(table), table.train))


def test_a_model_has_no_rows_to_guess_from(table):
    with pytest.raises(NotComputable, match="a model, not rows"):
        SinglingOut().compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))


@pytest.mark.parametrize(
    ("release", "predicates", "successes"), [("test", 68, 4), ("train", 86, 5)]
)
def test_predicates_on_adult_are_those_of_the_paper_s_code(
    release, predicates, successes, monkeypatch
):
    """All one-column predicates of 3,000 rows: numbers of anonymeter 1.1.0 on the same tables.

    Its training rows were those of a stratified split.
    """
    real_folder("adult", monkeypatch)
    dataset = exact_splits(registry.build_source("adult"))
    rows = getattr(dataset, release).rows.take(np.arange(3000))
    evaluation = evaluate(dataset, Release(Rows(rows.values, rows.labels)))
    released = distinct_records(evaluation)
    singled = singling_out.univariate(
        singling_out.columns_of(released),
        released.numbers.shape[1],
        10**6,
        np.random.default_rng(0),
    )
    train = real_records(evaluation, "train")
    counts = singled.counts(singling_out.columns_of(train))
    assert (len(singled), np.count_nonzero(counts == 1)) == (predicates, successes)


# Extrapolation of the control ---------------------------------------------------------------------


def test_fewer_rows_need_no_model():
    """Exactly one of 4 rows fits, given matches among 10: the mean over all subsets."""
    matches = np.array([0, 1, 2, 10])
    expected = np.mean([hypergeom.pmf(1, 10, k, 4) for k in matches])
    assert singling_out.exactly_one(matches, 10, 4) == pytest.approx(expected)
    assert singling_out.exactly_one(matches, 10, 10) == pytest.approx(0.25)


def test_more_rows_are_extrapolated():
    """Six times the rows: the rate is met for narrow, exponential and wide distributions."""
    rng = np.random.default_rng(1)
    for shape in (0.3, 1.0, 20.0):
        weights = np.minimum(rng.gamma(shape, 1 / (shape * 300), 100_000), 1.0)
        matches = rng.binomial(50, weights)
        truth = np.mean(rng.binomial(300, weights) == 1)
        assert singling_out.exactly_one(matches, 50, 300) == pytest.approx(truth, abs=0.012)


def test_groups_with_different_means_are_fitted_separately():
    """One column whose values never recur, one whose values do: a single mean would be far off."""
    rng = np.random.default_rng(2)
    weights = np.concatenate([np.zeros(5000), np.full(1000, 0.02)])
    groups = np.repeat([4, 9], [5000, 1000])
    matches = rng.binomial(50, weights)
    truth = np.mean(rng.binomial(300, weights) == 1)
    assert truth < 0.005
    assert singling_out.exactly_one(matches, 50, 300, groups) == pytest.approx(truth, abs=0.005)
    assert singling_out.exactly_one(matches, 50, 300) > 0.03


def test_groups_that_do_not_differ_stay_together():
    rng = np.random.default_rng(3)
    matches = rng.binomial(50, 1 / 3000, 1000)
    groups = np.arange(1000) % 30
    assert singling_out.exactly_one(matches, 50, 300, groups) == singling_out.exactly_one(
        matches, 50, 300
    )


def test_what_is_never_seen_is_never_expected():
    assert singling_out.exactly_one(np.zeros(100, dtype=np.int64), 50, 300) == 0.0
