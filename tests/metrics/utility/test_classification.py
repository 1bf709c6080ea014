"""Classification scores of a release, against scikit-learn on the stored predictions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    confusion_matrix,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
    roc_curve,
)

from bench.errors import NotComputable
from bench.metrics._shared import bootstrap, downstream_models
from bench.metrics._shared.auroc import auroc
from bench.metrics.utility import classification
from bench.metrics.utility.classification import Auroc, Classification, Downstream
from bench.plugins.metric import Direction, Evaluation
from bench.plugins.registry import build_source
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, release_of
from tests.support.real_data import real_folder
from tests.support.tables import ToyTable

EVERY = (Auroc, Classification, Downstream)


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch, request):
    """Toy tables need no thousand steps of a network."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(downstream_models, "STEPS", 100)


def _auroc(evaluation):
    score = named(Auroc().compute(evaluation), "auroc")
    return score.value, score.low, score.high


def test_auroc_of_the_training_rows_is_high_and_its_table_reproduces_it(table):
    scores = Auroc().compute(evaluate(table, table.train))
    score = named(scores, "auroc")
    assert 0.8 < score.low < score.value < score.high <= 1.0
    assert score.value > 0.9
    predictions = scores.details["predictions"]
    assert list(predictions["label"]) == list(table.test.rows.labels)
    assert score.value == pytest.approx(roc_auc_score(predictions["label"], predictions["score"]))


def test_the_curve_of_the_real_rows_is_that_of_scikit_learn(table):
    evaluation = evaluate(table, table.test)
    details = Auroc().compute(evaluation).details
    scores = classification.real_scores(evaluation, "xgboost").test[:, 1]
    alarms, hits, _ = roc_curve(table.test.rows.labels, scores)
    expected = np.interp(np.linspace(0, 1, 101), alarms, hits)
    assert details["roc-real"]["fpr"].to_numpy() == pytest.approx(np.linspace(0, 1, 101))
    assert details["roc-real"]["tpr"].to_numpy() == pytest.approx(expected)


def test_auroc_of_shuffled_labels_is_chance(table):
    rows = table.train.rows
    labels = np.random.default_rng(0).permutation(rows.labels)
    value, low, high = _auroc(evaluate(table, Release(Rows(rows.values, labels))))
    assert low < 0.5 < high
    assert value < 0.7


def test_scores_equal_scikit_learn_at_the_threshold_of_the_validation_rows(table):
    evaluation = evaluate(table, table.train)
    labels, validation = table.test.rows.labels, table.validation.rows
    model = downstream_models.tree_classifier(evaluation)
    probability = model.predict(table.test.rows.values)[:, 1]
    least = classification.threshold(validation.labels, model.predict(validation.values)[:, 1])
    positive = model.predict(validation.values)[validation.labels == 1, 1] >= least
    assert 0.85 <= positive.mean() < 0.85 + 1 / len(positive)
    share = table.counts.by_class[1] / table.counts.total
    above = classification.prevalence_threshold(model.predict(validation.values)[:, 1], share)
    (negative, wrong), (missed, right) = confusion_matrix(labels, probability >= least)
    expected = {
        "auprc": average_precision_score(labels, probability),
        "accuracy": accuracy_score(labels, probability > 0.5),
        "accuracy/prevalence": accuracy_score(labels, probability > above),
        "f1": f1_score(labels, probability >= least),
        "sensitivity": right / (right + missed),
        "specificity": negative / (negative + wrong),
        "ppv": right / (right + wrong),
        "npv": negative / (negative + missed),
    }
    scores = Classification().compute(evaluation).scores
    assert {score.metric: score.value for score in scores} == pytest.approx(expected)
    for score in scores:
        assert score.low < score.value < score.high
        assert score.direction is Direction.HIGHER


def test_the_sensitivity_is_a_parameter(table):
    evaluation = evaluate(table, table.train)
    answers = classification.released_scores(evaluation, "xgboost")
    once = np.ones((len(table.test), 1))
    rates = [
        classification.score_statistics(evaluation, answers, asked)["sensitivity"](once)[0]
        for asked in (0.5, 0.85, 1.0)
    ]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_ratio_is_taken_on_the_same_resamples(table):
    rows = table.train.rows
    noisy = np.where(np.random.default_rng(0).random(len(rows)) < 0.3, 1 - rows.labels, rows.labels)
    evaluation = evaluate(table, Release(Rows(rows.values, noisy)))
    score = named(Auroc().compute(evaluation), "auroc/ratio")
    labels = table.test.rows.labels
    released, real = (
        bootstrap.bootstrap(
            auroc(labels, answers.test[:, 1]),
            labels,
            bootstrap.of_dataset(evaluation),
        )
        for answers in (
            classification.released_scores(evaluation, "xgboost"),
            classification.real_scores(evaluation, "xgboost"),
        )
    )
    assert score.value == pytest.approx(released.value / real.value)
    assert (score.low, score.high) == pytest.approx(
        np.quantile(released.samples / real.samples, [0.025, 0.975])
    )
    assert score.value < 1.0


def test_the_real_rows_themselves_have_a_ratio_near_one(table):
    score = named(Auroc().compute(evaluate(table, table.train)), "auroc/ratio")
    assert score.value == pytest.approx(1.0, abs=0.03)
    assert score.low < 1.0 < score.high


def test_real_models_are_trained_once_for_all_releases(table, monkeypatch):
    # A separate dataset: what is kept for the shared one depends on the order of the tests.
    fresh = replace(table, fingerprint="trained once")
    trained = []

    def counted(name, fit):
        def fitting(examples, *more):
            trained.append((name, len(examples.labels)))
            return fit(examples, *more)

        return fitting

    fits = {name: counted(name, fit) for name, fit in downstream_models.FITS.items()}
    monkeypatch.setattr(downstream_models, "FITS", fits)
    monkeypatch.setattr(
        downstream_models,
        "fit_tree_classifier",
        counted("xgboost", downstream_models.fit_tree_classifier),
    )
    few = np.arange(0, len(fresh.train), 3)
    rows = Rows(fresh.train.rows.values[few], fresh.train.rows.labels[few])
    for seed in (0, 1):
        evaluation = Evaluation(fresh, Release(rows), seed)
        for metric in EVERY:
            metric().compute(evaluation)
    for name in ("xgboost", *fits):
        assert trained.count((name, len(fresh.train))) == 1
        assert trained.count((name, len(few))) == 2


def test_a_released_model_is_asked_directly_and_only_in_place_of_xgboost(table):
    seen = []

    def marker(values):
        seen.append(values.shape)
        return np.column_stack([-values[:, 1], values[:, 1]])

    evaluation = evaluate(table, Release(model=Answers(marker)))
    value, _, _ = _auroc(evaluation)
    test = table.test
    assert value == pytest.approx(roc_auc_score(test.rows.labels, test.frame["marker"]))
    rates = Classification().compute(evaluation)
    assert 0.5 < named(rates, "sensitivity").value < 0.95
    width = table.encoder.feature_width
    assert seen == [(len(test) + len(table.validation), width)]
    with pytest.raises(NotComputable, match="model, not rows"):
        Downstream().compute(evaluation)


def test_one_risk_a_row_has_rates_but_no_accuracy(table):
    evaluation = evaluate(table, Release(model=Answers(lambda values: 5 * values[:, 1])))
    scores = Classification().compute(evaluation)
    assert named(scores, "accuracy").value is None
    assert "no probability" in named(scores, "accuracy").reason
    assert named(scores, "ppv").value > 0.6
    probability = Release(model=Answers(lambda values: (values[:, 1] + 1) / 2))
    assert named(Classification().compute(evaluate(table, probability)), "accuracy").value > 0.5


def test_a_constant_model_has_no_npv(table):
    evaluation = evaluate(table, Release(model=Answers(lambda values: np.full(len(values), 0.3))))
    scores = Classification().compute(evaluation)
    assert named(scores, "npv").value is None
    assert "not defined" in named(scores, "npv").reason
    assert named(scores, "specificity").value == 0.0
    assert named(scores, "sensitivity").value == 1.0
    assert _auroc(evaluation) == (0.5, 0.5, 0.5)


def test_without_positive_validation_rows_there_is_no_threshold(table):
    rows = table.validation.rows
    kept = replace(table.validation, rows=rows.take(rows.labels == 0))
    scores = Classification().compute(evaluate(replace(table, validation=kept), table.train))
    for name in ("f1", "sensitivity", "specificity", "ppv", "npv"):
        assert named(scores, name).value is None
        assert "validation rows hold no positive" in named(scores, name).reason
    assert named(scores, "accuracy").value > 0.8
    empty = replace(table.validation, rows=rows.take(np.arange(0)))
    scores = Classification().compute(evaluate(replace(table, validation=empty), table.train))
    assert named(scores, "ppv").value is None


def test_without_test_rows_nothing_is_scored(table):
    empty = replace(table.test, rows=table.test.rows.take(np.arange(0)))
    evaluation = evaluate(replace(table, test=empty), table.train)
    for metric in EVERY:
        with pytest.raises(NotComputable, match="no test rows"):
            metric().compute(evaluation)


def test_several_classes_are_averaged_and_have_no_rates(images):
    evaluation = evaluate(images, images.train)
    scores = Auroc().compute(evaluation)
    predictions = scores.details["predictions"]
    assert list(predictions.columns) == ["label", "score-0", "score-1", "score-2"]
    labels, answers = predictions["label"], predictions.drop(columns="label").to_numpy()
    decided = answers.argmax(axis=1)
    assert named(scores, "auroc").value == pytest.approx(
        roc_auc_score(labels, answers, multi_class="ovr", average="macro")
    )
    assert 0.9 < named(scores, "auroc/ratio").value <= 1.1
    others = Classification().compute(evaluation)
    expected = {
        "auprc": average_precision_score(np.eye(3)[labels], answers, average="macro"),
        "accuracy": accuracy_score(labels, decided),
        "f1": f1_score(labels, decided, average="macro"),
    }
    for score in others.scores:
        if score.metric in expected:
            assert score.value == pytest.approx(expected[score.metric])
        else:
            assert score.value is None
            assert score.reason == "defined for two classes, the dataset has 3"
    beside = Downstream().compute(evaluation)
    assert min(score.value for score in beside.scores) > 0.9


def test_a_class_that_the_release_lacks_costs_utility_but_not_the_score(images):
    rows = images.train.rows
    kept = rows.labels != 2
    evaluation = evaluate(images, Release(Rows(rows.values[kept], rows.labels[kept])))
    assert 0.5 < _auroc(evaluation)[0] < 0.99
    beside = Downstream().compute(evaluation)
    # The third class is a constant: an area of one half among the three.
    assert all(0.5 < score.value < 0.85 for score in beside.scores)


def test_downstream_table_holds_every_score_of_every_model():
    # Of 300 rows and a hundred steps, networks of two seeds differ by more than the 0.02 below.
    table = build_dataset(ToyTable(negatives=900, positives=600))
    evaluation = evaluate(table, table.train)
    scores = Downstream().compute(evaluation)
    downstream = scores.details["downstream"].set_index(["model", "score"])
    assert list(downstream.columns) == ["value", "low", "high", "real", "reason"]
    models = ["xgboost", "forest", "logistic", "svm", "mlp"]
    assert list(downstream.index) == [(m, score) for m in models for score in classification.SCORES]
    assert downstream[["value", "low", "high", "real"]].notna().all(axis=None)
    first = named(Auroc().compute(evaluation), "auroc")
    assert tuple(downstream.loc[("xgboost", "auroc"), ["value", "low", "high"]]) == (
        first.value,
        first.low,
        first.high,
    )
    predictions = scores.details["predictions-downstream"]
    for model in models[1:]:
        score = named(scores, f"auroc/{model}")
        assert (score.value, score.low, score.high) == tuple(
            downstream.loc[(model, "auroc"), ["value", "low", "high"]]
        )
        of_model = predictions[predictions["model"] == model]
        assert score.value == pytest.approx(roc_auc_score(of_model["label"], of_model["score"]))
        # The release is the real rows: another seed, the same model.
        assert downstream.loc[(model, "auroc"), "real"] == pytest.approx(score.value, abs=0.02)


def test_predictions_of_other_models_are_kept_only_if_they_are_few(table, monkeypatch):
    monkeypatch.setattr("bench.metrics.utility.classification.STORED_AT_MOST", 100)
    assert set(Downstream().compute(evaluate(table, table.train)).details) == {"downstream"}


def test_one_model_that_cannot_be_trained_leaves_the_others_alone(table, monkeypatch):
    def diverges(examples, classes, rng):
        raise NotComputable("diverged")

    monkeypatch.setattr(downstream_models, "FITS", {**downstream_models.FITS, "mlp": diverges})
    # The real side of the shared dataset may be known already.
    scores = Downstream().compute(evaluate(replace(table, fingerprint="diverges"), table.train))
    assert named(scores, "auroc/mlp").reason == "diverged"
    assert named(scores, "auroc/svm").value > 0.9
    downstream = scores.details["downstream"].set_index("model")
    assert set(downstream.loc["mlp", "reason"]) == {"diverged"}
    assert downstream.loc["mlp", ["value", "real"]].isna().all(axis=None)


@pytest.mark.parametrize("metric", EVERY)
def test_same_seed_same_scores(metric, table):
    first, again, other = (metric().compute(evaluate(table, table.train, s)) for s in (1, 1, 2))
    assert first.scores == again.scores
    assert first.scores != other.scores
    for name, frame in first.details.items():
        assert frame.equals(again.details[name])


def test_weights_of_the_release_are_used(table):
    rows = table.train.rows
    flipped = np.concatenate([rows.labels, 1 - rows.labels])
    values = np.concatenate([rows.values, rows.values])
    trusted = np.repeat([1.0, 1e-3], len(rows))
    value, _, _ = _auroc(evaluate(table, Release(Rows(values, flipped, trusted))))
    assert value > 0.85


def test_soft_labels_of_the_release_reach_the_models_that_take_them(table):
    rows = table.train.rows
    release = release_of(table.train, soft_labels=np.eye(2)[1 - rows.labels])
    scores = Downstream().compute(evaluate(table, release))
    assert named(scores, "auroc/logistic").value < 0.2
    assert named(scores, "auroc/forest").value > 0.9


@pytest.mark.parametrize("weightless", [False, True])
def test_one_class_has_no_scores(table, weightless):
    rows = table.train.rows
    release = (
        release_of(table.train, weights=(rows.labels == 1).astype(float))
        if weightless
        else Release(Rows(rows.values, np.ones_like(rows.labels)))
    )
    for metric in (Auroc, Classification):
        with pytest.raises(NotComputable, match="one class only"):
            metric().compute(evaluate(table, release))
    for score in Downstream().compute(evaluate(table, release)).scores:
        assert score.value is None
        assert "one class only" in score.reason


@pytest.mark.parametrize("metric", EVERY)
def test_every_declared_number_is_given_once(metric, table):
    scores = metric().compute(evaluate(table, table.train)).scores
    assert [score.metric for score in scores] == [output.name for output in metric.declared()]
    assert all(output.definition for output in metric.declared())


@pytest.mark.slow
def test_adult_at_the_size_of_a_usual_release(monkeypatch):
    real_folder("adult", monkeypatch)
    adult = build_dataset(build_source("adult"))
    rows = adult.train.rows
    evaluation = evaluate(adult, Release(Rows(rows.values[:10_000], rows.labels[:10_000])))
    scores = Auroc().compute(evaluation)
    # 0.9234 and 0.998: the real model has 0.9252 on all training rows.
    assert 0.92 < named(scores, "auroc").value < 0.93
    assert 0.99 < named(scores, "auroc/ratio").value < 1.0
    rates = Classification().compute(evaluation)
    assert 0.80 < named(rates, "sensitivity").value < 0.88
    assert 0.80 < named(rates, "specificity").value < 0.88
    for score in Downstream().compute(evaluation).scores:
        assert 0.88 < score.value < 0.93


# Thresholds and rates -----------------------------------------------------------------------------


def _value(statistic, rows):
    return statistic(np.ones((rows, 1)))[0]


def test_threshold_of_a_hand_table():
    labels, scores = [1, 1, 1, 1, 0, 0], [0.9, 0.8, 0.4, 0.2, 0.85, 0.1]
    # 0.85 of four positives are 3.4: all four. 0.75 are three, 0.7 as well.
    assert classification.threshold(labels, scores) == 0.2
    assert classification.threshold(labels, scores, 0.75) == 0.4
    assert classification.threshold(labels, scores, 0.7) == 0.4
    assert classification.threshold(labels, scores, 0.25) == 0.9
    assert classification.threshold(labels, scores, 1.0) == 0.2


def test_the_declared_share_of_the_rows_is_called_positive():
    scores = np.array([0.9, 0.8, 0.4, 0.2, 0.85, 0.1])

    def called(share):
        return (scores > classification.prevalence_threshold(scores, share)).tolist()

    assert called(0.5) == [True, True, False, False, True, False]
    assert called(0.49) == [True, False, False, False, True, False]
    assert not any(called(0.0))
    assert all(called(1.0))
    tied = classification.prevalence_threshold([0.5, 0.5, 0.5, 0.1], 0.5)
    assert tied == 0.5  # two of three tied rows would fit: none is called
    with pytest.raises(NotComputable, match="no validation rows"):
        classification.prevalence_threshold([], 0.5)
    with pytest.raises(ValueError, match=r"got 1\.5"):
        classification.prevalence_threshold(scores, 1.5)


@pytest.mark.parametrize("sensitivity", [0.07, 0.14, 0.28, 0.29, 0.56, 0.57, 0.58, 0.85])
def test_rounding_does_not_ask_for_one_positive_too_many(sensitivity):
    """0.07 x 100 is 7.000000000000001."""
    scores = np.arange(100, 0, -1)
    wanted = round(100 * sensitivity)
    assert classification.threshold(np.ones(100), scores, sensitivity) == 101 - wanted


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=1, max_size=30),
    st.sampled_from([0.05, 0.5, 0.8, 0.85, 0.9, 1.0]),
)
def test_threshold_is_the_largest_that_reaches_the_sensitivity(rows, sensitivity):
    labels, scores = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    if not labels.any():
        with pytest.raises(NotComputable, match="no positive"):
            classification.threshold(labels, scores, sensitivity)
        return
    reached = [
        value
        for value in np.unique(scores)
        if (scores[labels] >= value).sum() >= sensitivity * labels.sum() - 1e-9
    ]
    assert classification.threshold(labels, scores, sensitivity) == max(reached)


@pytest.mark.parametrize("sensitivity", [0.0, -0.1, 1.1])
def test_a_sensitivity_is_a_share(sensitivity):
    with pytest.raises(ValueError, match="sensitivity"):
        classification.threshold([1, 0], [0.3, 0.2], sensitivity)


def test_rates_of_a_hand_table():
    """TP 3, FN 1, FP 2, TN 4."""
    labels = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    decided = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]
    values = {
        name: _value(rate, 10)
        for name, rate in classification.decision_rates(labels, decided).items()
    }
    assert values == pytest.approx(
        {
            "sensitivity": 3 / 4,
            "specificity": 4 / 6,
            "ppv": 3 / 5,
            "npv": 4 / 5,
            "f1": 2 * 3 / (4 + 5),
        }
    )


def test_rates_equal_scikit_learn_for_any_weights():
    rng = np.random.default_rng(0)
    labels, decided = rng.integers(0, 2, 100), rng.integers(0, 2, 100)
    weights = rng.integers(0, 4, (100, 8)).astype(float)
    rates = {
        name: rate(weights) for name, rate in classification.decision_rates(labels, decided).items()
    }
    for column, counts in enumerate(weights.T):
        expected = {
            "sensitivity": recall_score(labels, decided, sample_weight=counts),
            "specificity": recall_score(1 - labels, 1 - decided, sample_weight=counts),
            "ppv": precision_score(labels, decided, sample_weight=counts),
            "npv": precision_score(1 - labels, 1 - decided, sample_weight=counts),
            "f1": f1_score(labels, decided, sample_weight=counts),
        }
        assert {name: values[column] for name, values in rates.items()} == pytest.approx(expected)


def test_macro_f1_equals_scikit_learn_for_any_weights():
    rng = np.random.default_rng(1)
    labels, decided = rng.integers(0, 3, 100), rng.integers(0, 3, 100)
    weights = rng.integers(0, 4, (100, 8)).astype(float)
    scores = classification.macro_f1(labels, decided, 3)(weights)
    for value, counts in zip(scores, weights.T, strict=True):
        assert value == pytest.approx(
            f1_score(labels, decided, average="macro", sample_weight=counts)
        )


def test_a_rate_of_nothing_has_no_value():
    """Everything is called positive: no negative call to be right about."""
    rates = classification.decision_rates([1, 0, 0], [1, 1, 1])
    assert np.isnan(_value(rates["npv"], 3))
    assert _value(rates["specificity"], 3) == 0.0
    assert _value(rates["ppv"], 3) == pytest.approx(1 / 3)


def test_scores_depend_neither_on_the_order_of_metrics_nor_on_which_are_asked_for(table):
    from bench.metrics.federated.anomaly import AnomalyDetection
    from bench.metrics.utility.explanations import Explanations
    from bench.metrics.utility.regression import Regression

    metrics = (Auroc(), Classification(), Downstream(), Explanations(), Regression())
    metrics += (AnomalyDetection(),)
    rows = table.train.rows
    release = Release(Rows(rows.values[::3], rows.labels[::3]))
    alone = {}
    for metric in metrics:
        bootstrap._DRAWN.clear()
        alone[metric.name] = metric.compute(evaluate(table, release)).scores
    for order in (metrics, metrics[::-1]):
        bootstrap._DRAWN.clear()
        together = evaluate(table, release)
        for metric in order:
            assert metric.compute(together).scores == alone[metric.name]
