"""Downstream models against the libraries called directly."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from xgboost import XGBClassifier

from bench.errors import NotComputable
from bench.metrics._shared import models as _models
from bench.metrics._shared.models import Examples
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, release_of


def _rows(dataset, split="train", weights=None):
    rows = getattr(dataset, split).rows
    return Examples.of(dataset.encoder, rows.values, rows.labels, weights)


def _seed(rng_seed):
    return int(np.random.default_rng(rng_seed).integers(2**31))


@pytest.mark.parametrize("weighted", [False, True])
def test_classifier_is_that_of_section_4_7(table, weighted):
    train = table.train.rows
    weights = np.random.default_rng(0).uniform(0.5, 2, len(train)) if weighted else None
    model = _models.fit_tree_classifier(_rows(table, weights=weights), 2, np.random.default_rng(3))
    share = np.ones(len(train)) if weights is None else weights
    expected = XGBClassifier(
        n_estimators=100,
        learning_rate=0.1,
        max_depth=5,
        subsample=0.7,
        scale_pos_weight=share[train.labels == 0].sum() / share[train.labels == 1].sum(),
        random_state=_seed(3),
        n_jobs=1,
    ).fit(train.values, train.labels, sample_weight=share / share.mean())
    test = table.test.rows.values
    np.testing.assert_allclose(model.predict(test), expected.predict_proba(test), atol=1e-6)


def test_classifier_of_several_classes_gives_each_the_same_weight(images):
    train, test = images.train.rows, images.test.rows
    kept = np.flatnonzero((train.labels != 0) | (np.arange(len(train)) % 4 == 0))
    examples = Examples.of(images.encoder, train.values[kept], train.labels[kept])
    model = _models.fit_tree_classifier(examples, 3, np.random.default_rng(3))
    counts = np.bincount(examples.labels)
    expected = XGBClassifier(
        n_estimators=100,
        learning_rate=0.1,
        max_depth=5,
        subsample=0.7,
        random_state=_seed(3),
        n_jobs=1,
    ).fit(
        examples.features,
        examples.labels,
        sample_weight=len(kept) / (3 * counts[examples.labels]),
    )
    answers = model.predict(test.values)
    np.testing.assert_allclose(answers, expected.predict_proba(test.values), atol=1e-6)
    assert (answers.argmax(axis=1) == test.labels).mean() > 0.9


def test_trees_are_the_same_for_any_number_of_threads(table, monkeypatch):
    monkeypatch.setattr(_models, "_ROWS_WORTH_THREADS", 0)
    first, second = (
        _models.fit_tree_classifier(_rows(table), 2, np.random.default_rng(0), threads)
        for threads in (1, 2)
    )
    values = table.test.rows.values
    assert first.predict(values).tobytes() == second.predict(values).tobytes()


def test_cox_is_that_of_lifelines(cohort):
    examples = _rows(cohort)
    frame = pd.DataFrame(examples.features.astype(float), columns=["risk", "arm"])
    frame["months"] = cohort.train.frame["months"].to_numpy()
    frame["death"] = cohort.train.frame["death"].to_numpy()
    expected = CoxPHFitter(penalizer=0.1).fit(frame, "months", "death")
    model = _models.fit_cox(examples)
    np.testing.assert_allclose(model.coefficients, expected.params_, atol=1e-5)
    assert model.coefficients[0] > 0  # the risk factor shortens times


def test_weights_of_a_release_count_like_repeated_rows(cohort):
    train = cohort.train.rows
    counts = np.random.default_rng(0).integers(0, 3, len(train))
    repeated = np.repeat(np.arange(len(train)), counts)
    weighted = _models.fit_cox(_rows(cohort, weights=counts))
    plain = _models.fit_cox(
        Examples.of(cohort.encoder, train.values[repeated], train.labels[repeated])
    )
    # Not closer, because lifelines standardises columns without looking at weights.
    np.testing.assert_allclose(weighted.coefficients, plain.coefficients, rtol=0.03)


def test_the_scale_of_weights_does_not_matter(table, cohort):
    """Weights that sum to one would otherwise be too light for a single split."""
    tiny = np.full(len(cohort.train), 1 / len(cohort.train))
    np.testing.assert_allclose(
        _models.fit_cox(_rows(cohort, weights=tiny)).coefficients,
        _models.fit_cox(_rows(cohort)).coefficients,
        rtol=1e-6,
    )
    tiny = np.full(len(table.train), 1 / len(table.train))
    values = table.test.rows.values
    heavy, light = (
        _models.fit_tree_classifier(_rows(table, weights=weights), 2, np.random.default_rng(0))
        for weights in (None, tiny)
    )
    np.testing.assert_allclose(heavy.predict(values), light.predict(values), atol=1e-4)


def test_constant_columns_get_no_coefficient(cohort):
    train = cohort.train.rows
    values = train.values.copy()
    values[:, 1] = 1.0
    model = _models.fit_cox(Examples.of(cohort.encoder, values, train.labels))
    assert model.coefficients[1] == 0.0
    assert model.coefficients[0] != 0.0
    values[:, 0] = 0.3
    with pytest.raises(NotComputable, match="constant"):
        _models.fit_cox(Examples.of(cohort.encoder, values, train.labels))


def test_times_are_decoded_and_scaled_by_equation_1(cohort):
    examples = _rows(cohort)
    months = cohort.train.frame["months"].to_numpy()
    np.testing.assert_allclose(examples.times, months, atol=1e-4)
    assert examples.features.shape[1] == 2
    # Quartiles 2 and 4 of 1..5; an IQR of zero gives way to the median.
    assert _models.time_scale(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == 2.0
    assert _models.time_scale(np.array([1.0, 7.0, 7.0, 7.0, 7.0, 9.0])) == 7.0


def test_aft_does_not_depend_on_the_unit_of_time(cohort):
    examples = _rows(cohort)
    years = Examples(examples.features, examples.labels, examples.weights, examples.times / 12)
    in_months = _models.fit_tree_survival(examples, 120, np.random.default_rng(0))
    in_years = _models.fit_tree_survival(years, 10, np.random.default_rng(0))
    np.testing.assert_allclose(
        in_months.predict(examples.features), in_years.predict(examples.features), atol=1e-3
    )


def test_aft_uses_censoring(cohort):
    """Were censored rows events, the predicted times would be shorter."""
    examples = _rows(cohort)
    events = Examples(
        examples.features, np.ones_like(examples.labels), examples.weights, examples.times
    )
    right = _models.fit_tree_survival(examples, 120, np.random.default_rng(0))
    wrong = _models.fit_tree_survival(events, 120, np.random.default_rng(0))
    scale = _models.time_scale(examples.times[examples.labels == 1])
    wrong_scale = _models.time_scale(examples.times)
    predicted = scale * np.exp(-right.predict(examples.features))
    too_short = wrong_scale * np.exp(-wrong.predict(examples.features))
    assert np.median(predicted) > 1.15 * np.median(too_short)


def test_aft_takes_times_that_were_clipped_to_zero_as_very_short_ones(cohort):
    train = cohort.train.rows
    below, short = train.values.copy(), train.values.copy()
    below[::4, -1] = -3.0  # below the public bound: decoded as 0 months
    short[::4, -1] = 2 * 0.12 / 120 - 1  # a thousandth of the public bound
    clipped, floored = (
        Examples.of(cohort.encoder, values, train.labels) for values in (below, short)
    )
    assert (clipped.times == 0).sum() == len(below[::4])
    answers = [
        _models.fit_tree_survival(examples, 120, np.random.default_rng(0)).predict(
            examples.features
        )
        for examples in (clipped, floored)
    ]
    assert np.isfinite(answers[0]).all()
    np.testing.assert_allclose(*answers, atol=1e-3)


def test_models_are_trained_once_for_all_metrics(table, cohort):
    evaluation = evaluate(table, table.train)
    assert _models.tree_classifier(evaluation) is _models.tree_classifier(evaluation)
    evaluation = evaluate(cohort, cohort.train)
    assert _models.cox(evaluation) is _models.cox(evaluation)
    assert _models.tree_survival(evaluation) is not _models.cox(evaluation)


def test_the_model_of_the_real_rows_is_trained_once_for_all_releases(table):
    first, second = (
        _models.real_tree_classifier(evaluate(table, split, seed))
        for seed, split in enumerate((table.train, table.validation))
    )
    assert first is second
    again = _models.fit_tree_classifier(_rows(table), 2, np.random.default_rng(0))
    values = table.test.rows.values
    # Another seed of the same model.
    np.testing.assert_allclose(first.predict(values), again.predict(values), atol=0.3)


def test_rows_without_weight_lose_their_soft_labels_too(table):
    rows = table.train.rows
    soft = np.column_stack([1 - rows.labels, rows.labels]) * np.arange(len(rows))[:, None]
    weights = np.arange(len(rows)) % 2
    examples = Examples.of(table.encoder, rows.values, rows.labels, weights, soft)
    np.testing.assert_array_equal(examples.soft_labels.sum(axis=1), np.arange(1, len(rows), 2))
    evaluation = evaluate(table, release_of(table.train, weights=weights, soft_labels=soft))
    released = _models.released_examples(evaluation)
    np.testing.assert_array_equal(released.soft_labels, examples.soft_labels)
    assert _models.real_examples(evaluation).soft_labels is None


def test_a_released_model_stands_in_for_downstream_models(table):
    model = Answers(lambda values: values[:, 0])
    evaluation = evaluate(table, Release(model=model))
    assert _models.tree_classifier(evaluation) is model
    assert _models.cox(evaluation) is model


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda labels: np.zeros_like(labels), "no training row has the event"),
        (None, "every row has weight 0"),
    ],
)
def test_survival_models_need_events_and_weight(cohort, change, reason):
    rows = cohort.train.rows
    release = (
        release_of(cohort.train, weights=np.zeros(len(rows)))
        if change is None
        else Release(Rows(rows.values, change(rows.labels)))
    )
    for fit in (_models.cox, _models.tree_survival):
        with pytest.raises(NotComputable, match=reason):
            fit(evaluate(cohort, release))


@pytest.mark.parametrize(
    "answer, reason",
    [
        (lambda v: np.full(len(v), np.nan), "NaN or infinite"),
        (lambda v: np.zeros((len(v), 3)), "3 columns"),
        (lambda v: np.zeros(len(v) + 1), "shape"),
    ],
)
def test_answers_that_are_no_scores_are_refused(answer, reason):
    with pytest.raises(NotComputable, match=reason):
        _models.one_score(Answers(answer), np.zeros((5, 2)))


def test_both_forms_of_answers_are_read():
    features = np.linspace(0, 1, 5)[:, None]
    one = Answers(lambda v: v[:, 0])
    two = Answers(lambda v: np.column_stack([1 - v[:, 0], v[:, 0]]))
    np.testing.assert_array_equal(_models.one_score(one, features), features[:, 0])
    np.testing.assert_array_equal(_models.one_score(two, features), features[:, 0])
    np.testing.assert_array_equal(
        _models.class_scores(one, features, 2), _models.class_scores(two, features, 2)
    )
    with pytest.raises(NotComputable, match="3 classes"):
        _models.class_scores(two, features, 3)
