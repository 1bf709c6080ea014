"""Downstream models against the libraries called directly."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits
from xgboost import XGBClassifier

from bench.errors import NotComputable
from bench.metrics._shared import downstream_models
from bench.metrics._shared.downstream_models import Examples
from bench.plugins.registry import build_source
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, release_of
from tests.support.real_data import real_folder
from tests.support.tables import ToyTable


def _rows(dataset, split="train", weights=None):
    rows = getattr(dataset, split).rows
    return Examples.of(dataset.encoder, rows.values, rows.labels, weights)


def _seed(rng_seed):
    return int(np.random.default_rng(rng_seed).integers(2**31))


@pytest.mark.parametrize("weighted", [False, True])
def test_classifier_is_that_of_section_4_7(table, weighted):
    train = table.train.rows
    weights = np.random.default_rng(0).uniform(0.5, 2, len(train)) if weighted else None
    model = downstream_models.fit_tree_classifier(
        _rows(table, weights=weights), 2, np.random.default_rng(3)
    )
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
    model = downstream_models.fit_tree_classifier(examples, 3, np.random.default_rng(3))
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
    monkeypatch.setattr(downstream_models, "_ROWS_WORTH_THREADS", 0)
    first, second = (
        downstream_models.fit_tree_classifier(_rows(table), 2, np.random.default_rng(0), threads)
        for threads in (1, 2)
    )
    values = table.test.rows.values
    assert first.predict(values).tobytes() == second.predict(values).tobytes()


def test_cox_is_that_of_lifelines(patients):
    examples = _rows(patients)
    frame = pd.DataFrame(examples.features.astype(float), columns=["risk", "arm"])
    frame["months"] = patients.train.frame["months"].to_numpy()
    frame["death"] = patients.train.frame["death"].to_numpy()
    expected = CoxPHFitter(penalizer=0.1).fit(frame, "months", "death")
    model = downstream_models.fit_cox(examples)
    np.testing.assert_allclose(model.coefficients, expected.params_, atol=1e-5)
    assert model.coefficients[0] > 0  # the risk factor shortens times


def test_weights_of_a_release_count_like_repeated_rows(patients):
    train = patients.train.rows
    counts = np.random.default_rng(0).integers(0, 3, len(train))
    repeated = np.repeat(np.arange(len(train)), counts)
    weighted = downstream_models.fit_cox(_rows(patients, weights=counts))
    plain = downstream_models.fit_cox(
        Examples.of(patients.encoder, train.values[repeated], train.labels[repeated])
    )
    # Not closer, because lifelines standardises columns without looking at weights.
    np.testing.assert_allclose(weighted.coefficients, plain.coefficients, rtol=0.03)


def test_the_scale_of_weights_does_not_matter(table, patients):
    """Weights that sum to one would otherwise be too light for a single split."""
    tiny = np.full(len(patients.train), 1 / len(patients.train))
    np.testing.assert_allclose(
        downstream_models.fit_cox(_rows(patients, weights=tiny)).coefficients,
        downstream_models.fit_cox(_rows(patients)).coefficients,
        rtol=1e-6,
    )
    tiny = np.full(len(table.train), 1 / len(table.train))
    values = table.test.rows.values
    heavy, light = (
        downstream_models.fit_tree_classifier(
            _rows(table, weights=weights), 2, np.random.default_rng(0)
        )
        for weights in (None, tiny)
    )
    np.testing.assert_allclose(heavy.predict(values), light.predict(values), atol=1e-4)


def test_constant_columns_get_no_coefficient(patients):
    train = patients.train.rows
    values = train.values.copy()
    values[:, 1] = 1.0
    model = downstream_models.fit_cox(Examples.of(patients.encoder, values, train.labels))
    assert model.coefficients[1] == 0.0
    assert model.coefficients[0] != 0.0
    values[:, 0] = 0.3
    with pytest.raises(NotComputable, match="constant"):
        downstream_models.fit_cox(Examples.of(patients.encoder, values, train.labels))


def test_times_are_decoded_and_scaled_by_equation_1(patients):
    examples = _rows(patients)
    months = patients.train.frame["months"].to_numpy()
    np.testing.assert_allclose(examples.times, months, atol=1e-4)
    assert examples.features.shape[1] == 2
    # Quartiles 2 and 4 of 1..5; an IQR of zero gives way to the median.
    assert downstream_models.time_scale(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == 2.0
    assert downstream_models.time_scale(np.array([1.0, 7.0, 7.0, 7.0, 7.0, 9.0])) == 7.0


def test_aft_does_not_depend_on_the_unit_of_time(patients):
    examples = _rows(patients)
    years = Examples(examples.features, examples.labels, examples.weights, examples.times / 12)
    in_months = downstream_models.fit_tree_survival(examples, 120, np.random.default_rng(0))
    in_years = downstream_models.fit_tree_survival(years, 10, np.random.default_rng(0))
    np.testing.assert_allclose(
        in_months.predict(examples.features), in_years.predict(examples.features), atol=1e-3
    )


def test_aft_uses_censoring(patients):
    """Were censored rows events, the predicted times would be shorter."""
    examples = _rows(patients)
    events = Examples(
        examples.features, np.ones_like(examples.labels), examples.weights, examples.times
    )
    right = downstream_models.fit_tree_survival(examples, 120, np.random.default_rng(0))
    wrong = downstream_models.fit_tree_survival(events, 120, np.random.default_rng(0))
    scale = downstream_models.time_scale(examples.times[examples.labels == 1])
    wrong_scale = downstream_models.time_scale(examples.times)
    predicted = scale * np.exp(-right.predict(examples.features))
    too_short = wrong_scale * np.exp(-wrong.predict(examples.features))
    assert np.median(predicted) > 1.15 * np.median(too_short)


def test_aft_takes_times_that_were_clipped_to_zero_as_very_short_ones(patients):
    train = patients.train.rows
    below, short = train.values.copy(), train.values.copy()
    below[::4, -1] = -3.0  # below the public bound: decoded as 0 months
    short[::4, -1] = 2 * 0.12 / 120 - 1  # a thousandth of the public bound
    clipped, floored = (
        Examples.of(patients.encoder, values, train.labels) for values in (below, short)
    )
    assert (clipped.times == 0).sum() == len(below[::4])
    answers = [
        downstream_models.fit_tree_survival(examples, 120, np.random.default_rng(0)).predict(
            examples.features
        )
        for examples in (clipped, floored)
    ]
    assert np.isfinite(answers[0]).all()
    np.testing.assert_allclose(*answers, atol=1e-3)


def test_models_are_trained_once_for_all_metrics(table, patients):
    evaluation = evaluate(table, table.train)
    assert downstream_models.tree_classifier(evaluation) is downstream_models.tree_classifier(
        evaluation
    )
    evaluation = evaluate(patients, patients.train)
    assert downstream_models.cox(evaluation) is downstream_models.cox(evaluation)
    assert downstream_models.tree_survival(evaluation) is not downstream_models.cox(evaluation)


def test_the_model_of_the_real_rows_is_trained_once_for_all_releases(table):
    first, second = (
        downstream_models.real_tree_classifier(evaluate(table, split, seed))
        for seed, split in enumerate((table.train, table.validation))
    )
    assert first is second
    again = downstream_models.fit_tree_classifier(_rows(table), 2, np.random.default_rng(0))
    values = table.test.rows.values
    # Another seed of the same model: rows near a cut of the trees can differ by a third.
    apart = np.abs(first.predict(values) - again.predict(values))
    assert apart.mean() < 0.05
    assert np.quantile(apart, 0.9) < 0.15


def test_rows_without_weight_lose_their_soft_labels_too(table):
    rows = table.train.rows
    soft = np.column_stack([1 - rows.labels, rows.labels]) * np.arange(len(rows))[:, None]
    weights = np.arange(len(rows)) % 2
    examples = Examples.of(table.encoder, rows.values, rows.labels, weights, soft)
    np.testing.assert_array_equal(examples.soft_labels.sum(axis=1), np.arange(1, len(rows), 2))
    evaluation = evaluate(table, release_of(table.train, weights=weights, soft_labels=soft))
    released = downstream_models.released_examples(evaluation)
    np.testing.assert_array_equal(released.soft_labels, examples.soft_labels)
    assert downstream_models.real_examples(evaluation).soft_labels is None


def test_a_released_model_stands_in_for_downstream_models(table):
    model = Answers(lambda values: values[:, 0])
    evaluation = evaluate(table, Release(model=model))
    assert downstream_models.tree_classifier(evaluation) is model
    assert downstream_models.cox(evaluation) is model


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda labels: np.zeros_like(labels), "no training row has the event"),
        (None, "every row has weight 0"),
    ],
)
def test_survival_models_need_events_and_weight(patients, change, reason):
    rows = patients.train.rows
    release = (
        release_of(patients.train, weights=np.zeros(len(rows)))
        if change is None
        else Release(Rows(rows.values, change(rows.labels)))
    )
    for fit in (downstream_models.cox, downstream_models.tree_survival):
        with pytest.raises(NotComputable, match=reason):
            fit(evaluate(patients, release))


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
        downstream_models.one_score(Answers(answer), np.zeros((5, 2)))


def test_both_forms_of_answers_are_read():
    features = np.linspace(0, 1, 5)[:, None]
    one = Answers(lambda v: v[:, 0])
    two = Answers(lambda v: np.column_stack([1 - v[:, 0], v[:, 0]]))
    np.testing.assert_array_equal(downstream_models.one_score(one, features), features[:, 0])
    np.testing.assert_array_equal(downstream_models.one_score(two, features), features[:, 0])
    np.testing.assert_array_equal(
        downstream_models.class_scores(one, features, 2),
        downstream_models.class_scores(two, features, 2),
    )
    with pytest.raises(NotComputable, match="3 classes"):
        downstream_models.class_scores(two, features, 3)


# Classifiers beside XGBoost -----------------------------------------------------------------------


every_model = pytest.mark.parametrize("name", sorted(downstream_models.FITS))


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch, request):
    """Toy tables need no thousand steps."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(downstream_models, "STEPS", 200)


def _examples(features, labels, weights=None, soft=None):
    weights = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=float)
    return Examples(np.asarray(features), np.asarray(labels), weights / weights.mean(), None, soft)


def _of(split, weights=None):
    return _examples(split.rows.values, split.rows.labels, weights)


def _fit(name, examples, classes=2, seed=0):
    return downstream_models.FITS[name](examples, classes, np.random.default_rng(seed))


def _area(model, split):
    return roc_auc_score(split.rows.labels, model.predict(split.rows.values)[:, 1])


@every_model
def test_every_model_learns_the_table(name, table):
    model = _fit(name, _of(table.train))
    assert _area(model, table.test) > 0.9
    answers = model.predict(table.test.rows.values)
    assert answers.shape == (len(table.test), 2)
    assert (answers.argmax(axis=1) == table.test.rows.labels).mean() > 0.8


@every_model
def test_every_model_learns_several_classes(name, images):
    model = _fit(name, _of(images.train), 3)
    answers = model.predict(images.test.rows.values)
    assert (answers.argmax(axis=1) == images.test.rows.labels).mean() > 0.9


@every_model
def test_same_seed_same_bytes_for_any_number_of_threads(name, table):
    answers = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            answers.append(_fit(name, _of(table.train)).predict(table.test.rows.values))
    assert answers[0].tobytes() == answers[1].tobytes()


@every_model
def test_weights_are_used(name, table):
    rows = table.train.rows
    examples = _examples(
        np.concatenate([rows.values, rows.values]),
        np.concatenate([rows.labels, 1 - rows.labels]),
        np.repeat([1.0, 1e-3], len(rows)),
    )
    assert _area(_fit(name, examples), table.test) > 0.85


@every_model
def test_the_scale_of_weights_does_not_matter_to_other_classifiers(name, table):
    plain = _fit(name, _of(table.train)).predict(table.test.rows.values)
    rows = table.train.rows
    scaled = Examples(rows.values, rows.labels, np.full(len(rows), 1e-4), None)
    again = _fit(name, scaled).predict(table.test.rows.values)
    # Steps of a network add up what rounding leaves.
    np.testing.assert_allclose(plain, again, atol=0.01 if name == "mlp" else 1e-6)


@every_model
def test_one_class_is_refused(name, table):
    rows = table.train.rows
    with pytest.raises(NotComputable, match="one class only"):
        _fit(name, _examples(rows.values, np.ones_like(rows.labels)))


@every_model
@pytest.mark.parametrize("present", [(0, 1), (1, 2)])
def test_a_class_that_was_never_seen_is_never_the_answer(name, present, images):
    rows = images.train.rows
    kept = np.isin(rows.labels, present)
    model = _fit(name, _examples(rows.values[kept], rows.labels[kept]), 3)
    answers = model.predict(images.test.rows.values)
    (missing,) = {0, 1, 2} - set(present)
    assert answers.shape == (len(images.test), 3)
    assert len(np.unique(answers[:, missing])) == 1
    assert set(answers.argmax(axis=1)) == set(present)


def test_forest_and_logistic_are_those_of_scikit_learn_with_balanced_classes(table):
    rows, test = table.train.rows, table.test.rows.values
    examples = _of(table.train)
    seed = int(np.random.default_rng(0).integers(2**31))
    forest = RandomForestClassifier(
        100, min_samples_leaf=5, class_weight="balanced", random_state=seed
    ).fit(rows.values, rows.labels)
    np.testing.assert_allclose(
        _fit("forest", examples).predict(test), forest.predict_proba(test), atol=1e-9
    )
    logistic = LogisticRegression(class_weight="balanced", max_iter=1000)
    logistic.fit(rows.values, rows.labels)
    np.testing.assert_allclose(
        _fit("logistic", examples).predict(test), logistic.predict_proba(test), atol=1e-4
    )


def test_svm_of_a_small_release_minimises_the_squared_hinge_loss_of_the_exact_kernel(table):
    rows, test = table.train.rows, table.test.rows.values.astype(float)
    few = np.concatenate([np.flatnonzero(rows.labels == code)[:25] for code in (0, 1)])
    values, signs = rows.values[few].astype(float), 2.0 * rows.labels[few] - 1
    margins = _fit("svm", _examples(rows.values[few], rows.labels[few])).predict(test)[:, 1]
    width = 1 / (values.shape[1] * values.var())
    within, across = rbf_kernel(values, gamma=width), rbf_kernel(test, values, gamma=width)

    def loss(theta):
        pull, offset = within @ theta[:-1], theta[-1]
        slack = np.maximum(0, 1 - signs * (pull + offset))
        slope = np.append(within @ (theta[:-1] - 2 * signs * slack), 0.0)
        slope[-1] = offset - 2 * (signs * slack).sum()
        return theta[:-1] @ pull / 2 + offset**2 / 2 + slack @ slack, slope

    best = minimize(loss, np.zeros(51), jac=True, options={"maxiter": 5000, "gtol": 1e-8}).x
    np.testing.assert_allclose(margins, across @ best[:-1] + best[-1], atol=0.01)


def test_svm_and_mlp_see_what_is_not_linear():
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (800, 2)).astype(np.float32)
    labels = (values[:, 0] * values[:, 1] > 0).astype(int)
    areas = {
        name: roc_auc_score(
            labels[400:],
            _fit(name, _examples(values[:400], labels[:400])).predict(values[400:])[:, 1],
        )
        for name in downstream_models.FITS
    }
    assert min(areas["svm"], areas["mlp"], areas["forest"]) > 0.95
    assert areas["logistic"] < 0.65


def test_soft_labels_become_weighted_rows():
    soft = np.array([[0.25, 0.75], [1.0, 0.0], [0.0, 0.0], [-0.5, 2.0]])
    examples = _examples(np.arange(4.0)[:, None], [1, 0, 0, 1], [2, 1, 1, 4], soft)
    rows = downstream_models.unfolded(examples, soft)
    np.testing.assert_array_equal(rows.features[:, 0], [0, 0, 1, 2, 3])
    np.testing.assert_array_equal(rows.labels, [0, 1, 0, 0, 1])
    np.testing.assert_allclose(rows.weights, [0.25, 0.75, 0.5, 0.5, 2.0])
    with pytest.raises(NotComputable, match="soft labels"):
        downstream_models.unfolded(examples, np.full((4, 2), np.nan))


def test_logistic_regression_minimises_the_cross_entropy_of_soft_labels():
    rng = np.random.default_rng(2)
    values = rng.uniform(-1, 1, (60, 2))
    values = np.concatenate([values, -values])
    share = 1 / (1 + np.exp(-3 * values[:, 0] + values[:, 1]))  # sums to half: classes balance
    soft = np.column_stack([1 - share, share])
    model = _fit("logistic", _examples(values, (share > 0.5).astype(int), soft=soft))

    def loss(theta):
        margin = values @ theta[:2] + theta[2]
        # Unfolding makes two rows of weight share each; their mean is brought back to 1.
        entropy = np.logaddexp(0, margin) - share * margin
        return 2 * entropy.sum() + theta[:2] @ theta[:2] / 2

    best = minimize(loss, np.zeros(3)).x
    np.testing.assert_allclose(model.estimator.coef_[0], best[:2], atol=1e-3)


@pytest.mark.parametrize("name, used", [("logistic", True), ("mlp", True), ("forest", False)])
def test_which_models_use_soft_labels(name, used, table):
    rows = table.train.rows
    upside_down = np.eye(2)[1 - rows.labels]
    model = _fit(name, _examples(rows.values, rows.labels, soft=upside_down))
    area = _area(model, table.test)
    assert (area < 0.2) if used else (area > 0.9)


@every_model
def test_more_rows_than_allowed_are_sampled_within_each_class(name, monkeypatch):
    table = build_dataset(ToyTable(negatives=1800, positives=1200))
    monkeypatch.setattr(downstream_models, "ROWS_AT_MOST", 100)
    assert _area(_fit(name, _of(table.train)), table.test) > 0.85
    labels = np.repeat([0, 1, 2], [700, 299, 1])
    kept = downstream_models._sampled(labels, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(labels[kept]), [70, 29, 1])
    assert len(np.unique(kept)) == 100


def test_a_network_that_diverges_has_no_answer(table):
    rows = table.train.rows
    values = np.array(rows.values, dtype=np.float32)
    values[:10] = 3e38
    with np.errstate(all="ignore"), pytest.raises(NotComputable, match="diverged"):
        _fit("mlp", _examples(values, rows.labels))


def test_constant_rows_give_constant_answers():
    labels = np.arange(30) % 2
    for name in downstream_models.FITS:
        answers = _fit(name, _examples(np.zeros((30, 2)), labels)).predict(np.zeros((5, 2)))
        assert len(np.unique(answers[:, 1])) == 1


@pytest.mark.slow
def test_adult_baselines(monkeypatch):
    real_folder("adult", monkeypatch)
    dataset = build_dataset(build_source("adult"))
    # On the 24,421 training rows: 0.911, 0.904, 0.908, 0.901.
    least = {"forest": 0.90, "logistic": 0.90, "svm": 0.90, "mlp": 0.89}
    for name, bound in least.items():
        assert bound < _area(_fit(name, _of(dataset.train)), dataset.test) < 0.93


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rows", [60, 700])
def test_the_network_takes_the_steps_of_scikit_learn(classes, rows):
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(4)
    features = rng.normal(size=(rows, 5))
    labels = (features[:, 0] > 0).astype(int) + (classes == 3) * (features[:, 1] > 0)
    examples = _examples(features, labels)
    network = downstream_models.fit_mlp(examples, classes, np.random.default_rng(7))
    training = downstream_models._training(examples, classes, np.random.default_rng(7), soft=True)
    size = min(downstream_models.BATCH, rows)
    epochs = -(-downstream_models.STEPS // -(-rows // size))
    theirs = MLPClassifier(
        **downstream_models.MLP,
        batch_size=size,
        max_iter=epochs,
        tol=0.0,
        n_iter_no_change=epochs + 1,
        random_state=int(np.random.default_rng(7).integers(2**31)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(training.features, training.labels, sample_weight=training.weights)
    asked = rng.normal(size=(300, 5))
    # A thousand steps in single precision: rounding moves an answer, not the network.
    assert network.predict(asked) == pytest.approx(theirs.predict_proba(asked), abs=0.02)


def test_equal_rows_have_equal_answers_wherever_they_stand():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 7))
    network = downstream_models.fit_mlp(_examples(features, np.arange(50) % 2), 2, rng)
    asked = np.repeat(features[:1], 333, axis=0)
    assert len(np.unique(network.predict(asked)[:, 1])) == 1


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_the_linear_machine_is_that_of_scikit_learn(share):
    """The same convex problem, solved by another way: the same coefficients and decisions."""
    from sklearn.svm import LinearSVC

    rng = np.random.default_rng(0)
    features = rng.normal(size=(1500, 20))
    positive = features[:, 0] + features[:, 1] ** 2 + rng.normal(size=1500) > 3 - 4 * share
    weights = rng.uniform(0.1, 3.0, 1500)
    rival = LinearSVC(dual=False, tol=1e-10, max_iter=10_000).fit(features, positive, weights)
    ours = downstream_models.squared_hinge(features, positive, weights)
    assert ours == pytest.approx([*rival.coef_[0], rival.intercept_[0]], abs=1e-5)
