"""The classifiers beside XGBoost, against scikit-learn called directly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

from bench.errors import NotComputable
from bench.metrics._shared.models import Examples
from bench.metrics.utility import _classifiers
from bench.plugins.registry import build_source
from bench.plugins.source import build_dataset
from tests.support.real_data import real_folder

every_model = pytest.mark.parametrize("name", sorted(_classifiers.FITS))


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch, request):
    """Toy tables need no thousand steps."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(_classifiers, "STEPS", 200)


def _examples(features, labels, weights=None, soft=None):
    weights = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=float)
    return Examples(np.asarray(features), np.asarray(labels), weights / weights.mean(), None, soft)


def _of(split, weights=None):
    return _examples(split.rows.values, split.rows.labels, weights)


def _fit(name, examples, classes=2, seed=0):
    return _classifiers.FITS[name](examples, classes, np.random.default_rng(seed))


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
def test_the_scale_of_weights_does_not_matter(name, table):
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
    found = _fit("svm", _examples(rows.values[few], rows.labels[few])).predict(test)[:, 1]
    width = 1 / (values.shape[1] * values.var())
    within, across = rbf_kernel(values, gamma=width), rbf_kernel(test, values, gamma=width)

    def loss(theta):
        pull, offset = within @ theta[:-1], theta[-1]
        slack = np.maximum(0, 1 - signs * (pull + offset))
        slope = np.append(within @ (theta[:-1] - 2 * signs * slack), 0.0)
        slope[-1] = offset - 2 * (signs * slack).sum()
        return theta[:-1] @ pull / 2 + offset**2 / 2 + slack @ slack, slope

    best = minimize(loss, np.zeros(51), jac=True, options={"maxiter": 5000, "gtol": 1e-8}).x
    np.testing.assert_allclose(found, across @ best[:-1] + best[-1], atol=0.01)


def test_svm_and_mlp_see_what_is_not_linear():
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (800, 2)).astype(np.float32)
    labels = (values[:, 0] * values[:, 1] > 0).astype(int)
    areas = {
        name: roc_auc_score(
            labels[400:],
            _fit(name, _examples(values[:400], labels[:400])).predict(values[400:])[:, 1],
        )
        for name in _classifiers.FITS
    }
    assert min(areas["svm"], areas["mlp"], areas["forest"]) > 0.95
    assert areas["logistic"] < 0.65


def test_soft_labels_become_weighted_rows():
    soft = np.array([[0.25, 0.75], [1.0, 0.0], [0.0, 0.0], [-0.5, 2.0]])
    examples = _examples(np.arange(4.0)[:, None], [1, 0, 0, 1], [2, 1, 1, 4], soft)
    found = _classifiers.unfolded(examples, soft)
    np.testing.assert_array_equal(found.features[:, 0], [0, 0, 1, 2, 3])
    np.testing.assert_array_equal(found.labels, [0, 1, 0, 0, 1])
    np.testing.assert_allclose(found.weights, [0.25, 0.75, 0.5, 0.5, 2.0])
    with pytest.raises(NotComputable, match="soft labels"):
        _classifiers.unfolded(examples, np.full((4, 2), np.nan))


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
def test_more_rows_than_allowed_are_sampled_within_each_class(name, table, monkeypatch):
    monkeypatch.setattr(_classifiers, "ROWS_AT_MOST", 100)
    assert _area(_fit(name, _of(table.train)), table.test) > 0.85
    labels = np.repeat([0, 1, 2], [700, 299, 1])
    kept = _classifiers._sampled(labels, np.random.default_rng(0))
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
    for name in _classifiers.FITS:
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
