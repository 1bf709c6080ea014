"""Finite differences of every kind of teacher against 2d predictions by the library itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xgboost
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from bench.methods.zero_order import _differences
from bench.methods.zero_order._differences import BlackBox, Linear, Trees

WIDTH, TRAIN, ASKED = 7, 600, 40
STEPS = np.array([0.05, 0.1, 0.25, 0.5, 1.0, 0.3, 0.25])
RNG = np.random.default_rng(5)


def table(rows: int, seed: int, missing: float = 0.15) -> np.ndarray:
    """Numbers, numbers on a grid (ties), a flag and a constant; some are missing."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, WIDTH))
    values[:, 2:4] = np.round(values[:, 2:4] * 4) / 4
    values[:, 4] = rng.integers(0, 2, rows)
    values[rng.random(values.shape) < missing] = np.nan
    values[:, 5] = 0.5
    return values


FEATURES = table(TRAIN, 0)
SIGNAL = np.nan_to_num(FEATURES[:, 0] + FEATURES[:, 2] * FEATURES[:, 4] - FEATURES[:, 3])
OBJECTIVES = {
    "binary:logistic": {"scale_pos_weight": 2},
    "multi:softprob": {"num_class": 4},
    "multi:softmax": {"num_class": 4},
    "reg:squarederror": {},
    "survival:aft": {"aft_loss_distribution": "normal", "aft_loss_distribution_scale": 1.0},
}


def grown(objective: str, rounds: int = 30, **settings: object) -> xgboost.Booster:
    matrix = xgboost.DMatrix(FEATURES, nthread=1)
    if objective == "survival:aft":
        times = np.exp(SIGNAL)
        matrix.set_float_info("label_lower_bound", times)
        matrix.set_float_info("label_upper_bound", np.where(SIGNAL > 1, np.inf, times))
    elif objective == "reg:squarederror":
        matrix.set_label(SIGNAL + 3)
    else:
        classes = 2 if objective == "binary:logistic" else 4
        matrix.set_label(np.digitize(SIGNAL, [0, 1, 2][: classes - 1]))
    parameters = {"objective": objective, "max_depth": 5, "nthread": 1, "subsample": 0.7}
    return xgboost.train({**parameters, **OBJECTIVES[objective], **settings}, matrix, rounds)


def asked(booster: xgboost.Booster) -> np.ndarray:
    """New rows, half of their values moved onto thresholds or one step away from them."""
    rows = table(ASKED, 1)
    trees = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]
    pairs = [
        (feature, threshold)
        for tree in trees["trees"]
        for feature, threshold, child in zip(
            tree["split_indices"], tree["split_conditions"], tree["left_children"], strict=True
        )
        if child >= 0
    ]
    rng = np.random.default_rng(2)
    for row in rows:
        for _ in range(WIDTH):
            feature, threshold = pairs[rng.integers(len(pairs))]
            row[feature] = np.float32(threshold) + rng.choice([-1, 0, 1]) * STEPS[feature]
    return rows


def by_leaves(booster: xgboost.Booster, outputs: int) -> BlackBox:
    """Margins by the leaves that XGBoost itself reaches, added up in double precision."""
    model = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]
    numbers = [np.float64(np.float32(tree["split_conditions"])) for tree in model["trees"]]

    def margins(rows: np.ndarray) -> np.ndarray:
        leaves = booster.predict(xgboost.DMatrix(rows, nthread=1), pred_leaf=True).astype(int)
        result = np.zeros((len(rows), outputs))
        for place, group in enumerate(model["tree_info"]):
            result[:, group] += numbers[place][leaves.reshape(len(rows), -1)[:, place]]
        return result

    return BlackBox(margins, outputs)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("settings", [{}, {"base_score": 0.3}, {"num_parallel_tree": 3}], ids=str)
def test_trees_have_the_differences_of_the_booster_itself(objective, settings):
    booster = grown(objective, rounds=30 if "num_parallel_tree" not in settings else 8, **settings)
    rows = asked(booster)
    teacher = Trees.of(booster)
    weights = RNG.normal(size=(len(rows), teacher.outputs))
    itself = BlackBox(
        lambda batch: booster.predict(xgboost.DMatrix(batch, nthread=1), output_margin=True),
        teacher.outputs,
    )
    assert teacher.outputs == (4 if objective.startswith("multi") else 1)
    np.testing.assert_allclose(teacher.predict(rows), itself.predict(rows), atol=1e-5)
    slopes = teacher.slopes(rows, STEPS, weights)
    # The booster rounds to single precision, which the division by a small step makes visible.
    np.testing.assert_allclose(
        slopes * 2 * STEPS, itself.slopes(rows, STEPS, weights) * 2 * STEPS, atol=1e-5
    )
    exact = by_leaves(booster, teacher.outputs).slopes(rows, STEPS, weights)
    np.testing.assert_allclose(slopes, exact, atol=1e-10)
    assert np.mean(slopes != 0) > 0.2
    assert not slopes[:, 5].any()  # the constant column was never split


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob"])
def test_probabilities_of_trees_have_the_differences_of_the_booster_itself(objective):
    booster = grown(objective)
    rows = asked(booster)
    teacher = Trees.of(booster, "probability")
    weights = RNG.normal(size=(len(rows), teacher.outputs))
    itself = BlackBox(
        lambda batch: booster.predict(xgboost.DMatrix(batch, nthread=1)), teacher.outputs
    )
    np.testing.assert_allclose(teacher.predict(rows), itself.predict(rows), atol=1e-6)
    np.testing.assert_allclose(
        teacher.slopes(rows, STEPS, weights), itself.slopes(rows, STEPS, weights), atol=1e-5
    )
    # In double precision, 2d predictions of the same teacher are the same to the last digits.
    plain = BlackBox(teacher.predict, teacher.outputs).slopes(rows, STEPS, weights)
    np.testing.assert_allclose(teacher.slopes(rows, STEPS, weights), plain, atol=1e-12)


def test_aft_margins_are_logarithms_of_the_predicted_times():
    booster = grown("survival:aft")
    rows = asked(booster)
    times = booster.predict(xgboost.DMatrix(rows, nthread=1))
    np.testing.assert_allclose(Trees.of(booster).predict(rows)[:, 0], np.log(times), atol=1e-5)


def test_a_slice_of_a_booster_is_the_model_at_that_round():
    booster = grown("binary:logistic")
    rows = asked(booster)
    expected = booster.predict(xgboost.DMatrix(rows, nthread=1), iteration_range=(0, 7))
    np.testing.assert_allclose(
        Trees.of(booster[:7], "probability").predict(rows)[:, 0], expected, atol=1e-6
    )


@pytest.mark.parametrize("grow", ["depthwise", "lossguide"])
def test_deep_and_lopsided_trees_are_walked_to_their_end(grow):
    settings = {"max_depth": 0, "max_leaves": 60, "grow_policy": grow, "tree_method": "hist"}
    booster = grown("reg:squarederror", rounds=5, **settings)
    rows, teacher = asked(booster), Trees.of(booster)
    assert teacher.forest.depth.max() > 6
    weights = np.ones((len(rows), 1))
    np.testing.assert_allclose(
        teacher.slopes(rows, STEPS, weights),
        by_leaves(booster, 1).slopes(rows, STEPS, weights),
        atol=1e-10,
    )


def test_threads_change_no_bit():
    booster = grown("multi:softprob")
    rows = asked(booster)
    weights = RNG.normal(size=(len(rows), 4))
    single = Trees.of(booster, "probability")
    for threads in (2, 3, 64):
        shared = Trees.of(booster, "probability", threads=threads)
        assert np.array_equal(shared.predict(rows), single.predict(rows))
        assert np.array_equal(
            shared.slopes(rows, STEPS, weights), single.slopes(rows, STEPS, weights)
        )


def test_each_row_is_computed_alone():
    teacher = Trees.of(grown("multi:softprob"), "probability")
    rows, weights = table(ASKED, 3), RNG.normal(size=(ASKED, 4))
    together = teacher.slopes(rows, STEPS, weights)
    for i in range(0, ASKED, 7):
        alone = teacher.slopes(rows[i : i + 1], STEPS, weights[i : i + 1])
        assert np.array_equal(alone[0], together[i])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"booster": "dart"}, "'dart'"),
        ({"multi_strategy": "multi_output_tree", "tree_method": "hist"}, "vector in each leaf"),
    ],
)
def test_boosters_that_are_no_plain_sum_of_trees_are_refused(settings, message):
    booster = grown("multi:softprob", rounds=2, **settings)
    with pytest.raises(ValueError, match=message):
        Trees.of(booster)


def test_splits_by_categories_are_refused():
    codes = RNG.integers(0, 5, (TRAIN, 1))
    matrix = xgboost.DMatrix(codes, codes[:, 0] % 2, feature_types=["c"], enable_categorical=True)
    booster = xgboost.train({"max_cat_to_onehot": 1, "nthread": 1}, matrix, 2)
    with pytest.raises(ValueError, match="sets of categories"):
        Trees.of(booster)


def test_other_objectives_and_outputs_are_refused():
    matrix = xgboost.DMatrix(FEATURES, np.exp(SIGNAL), nthread=1)
    other = xgboost.train({"objective": "reg:gamma", "nthread": 1}, matrix, 2)
    with pytest.raises(ValueError, match="'reg:gamma': known are"):
        Trees.of(other)
    with pytest.raises(ValueError, match="no output 'probability'"):
        Trees.of(grown("survival:aft", rounds=2), "probability")


def forest_of(kind: type, classes: int | None, rows: np.ndarray):
    target = SIGNAL if classes is None else np.digitize(SIGNAL, [0, 1, 2][: classes - 1])
    return kind(n_estimators=20, min_samples_leaf=2, random_state=0).fit(rows, target)


@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        (RandomForestClassifier, 2),
        (RandomForestClassifier, 4),
        (ExtraTreesClassifier, 2),
        (RandomForestRegressor, None),
    ],
)
@pytest.mark.parametrize("missing", [True, False])
def test_forests_of_scikit_learn_have_their_own_differences(kind, classes, missing):
    # Its thresholds lie half way between values, often on the grid: `<=` goes left there.
    model = forest_of(kind, classes, FEATURES if missing else np.nan_to_num(FEATURES))
    rows = table(ASKED, 1, 0.15 if missing else 0.0)
    for i, tree in enumerate(model.estimators_):
        # An infinite threshold parts missing values from all others.
        split = np.flatnonzero((tree.tree_.feature >= 0) & np.isfinite(tree.tree_.threshold))
        feature, threshold = tree.tree_.feature[split], tree.tree_.threshold[split]
        rows[i, feature] = threshold
        rows[i + 20, feature] = threshold + STEPS[feature]

    def outputs(batch: np.ndarray) -> np.ndarray:
        if classes is None:
            return model.predict(batch)
        probabilities = model.predict_proba(batch)
        return probabilities[:, 1] if classes == 2 else probabilities

    teacher = Trees.of_forest(model)
    assert teacher.outputs == (4 if classes == 4 else 1)
    itself = BlackBox(outputs, teacher.outputs)
    weights = RNG.normal(size=(len(rows), teacher.outputs))
    np.testing.assert_allclose(teacher.predict(rows), itself.predict(rows), atol=1e-12)
    np.testing.assert_allclose(
        teacher.slopes(rows, STEPS, weights), itself.slopes(rows, STEPS, weights), atol=1e-11
    )


@pytest.mark.parametrize(
    ("outputs", "link"), [(1, "identity"), (3, "identity"), (1, "sigmoid"), (3, "softmax")]
)
def test_linear_models_have_the_differences_of_their_predictions(outputs, link, monkeypatch):
    monkeypatch.setattr(_differences, "_BATCH", 50)  # several blocks of rows
    teacher = Linear(RNG.normal(size=(WIDTH, outputs)) * 2, RNG.normal(size=outputs), link)
    rows, weights = RNG.normal(size=(11, WIDTH)), RNG.normal(size=(11, outputs))
    plain = BlackBox(teacher.predict, outputs).slopes(rows, STEPS, weights)
    np.testing.assert_allclose(teacher.slopes(rows, STEPS, weights), plain, atol=1e-12)


def test_without_a_link_the_slopes_are_the_coefficients():
    coefficients = RNG.normal(size=WIDTH)
    slopes = Linear(coefficients).slopes(np.full((2, WIDTH), 1e9), STEPS, np.ones((2, 1)))
    assert np.array_equal(slopes, np.tile(coefficients, (2, 1)))


@pytest.mark.parametrize("classes", [2, 4])
def test_a_logistic_regression_is_a_linear_teacher(classes):
    rows = np.nan_to_num(FEATURES)
    model = LogisticRegression().fit(rows, np.digitize(SIGNAL, [0, 1, 2][: classes - 1]))
    teacher = Linear(model.coef_.T, model.intercept_, "sigmoid" if classes == 2 else "softmax")
    expected = model.predict_proba(rows)
    np.testing.assert_allclose(
        teacher.predict(rows), expected[:, 1:] if classes == 2 else expected, atol=1e-12
    )


def test_a_support_vector_machine_is_a_black_box():
    rows = np.nan_to_num(FEATURES)
    model = SVC().fit(rows, SIGNAL > 0)
    few = rows[:5]
    slopes = BlackBox(model.decision_function).slopes(few, STEPS, np.ones((5, 1)))
    for j, step in enumerate(STEPS):
        shift = np.eye(WIDTH)[j] * step
        one = model.decision_function(few + shift) - model.decision_function(few - shift)
        np.testing.assert_allclose(slopes[:, j], one / (2 * step), atol=1e-12)


def test_black_box_batches_stay_small_whatever_the_width(monkeypatch):
    monkeypatch.setattr(_differences, "_BATCH", 100)
    asked_for: list[int] = []

    def cubes(rows: np.ndarray) -> np.ndarray:
        asked_for.append(rows.size)
        return np.stack([(rows**3).sum(axis=1), rows[:, 0] * rows[:, 1]], axis=1)

    rows, weights = RNG.normal(size=(9, WIDTH)), RNG.normal(size=(9, 2))
    slopes = BlackBox(cubes, 2).slopes(rows, STEPS, weights)
    assert max(asked_for) <= 100
    assert sum(asked_for) == 2 * 9 * WIDTH * WIDTH
    # ((x + h)^3 - (x - h)^3) / 2h = 3 x^2 + h^2
    expected = weights[:, :1] * (3 * rows**2 + STEPS**2)
    expected[:, :2] += weights[:, 1:] * rows[:, [1, 0]]
    np.testing.assert_allclose(slopes, expected, atol=1e-12)


def test_rows_are_not_changed_and_no_rows_give_no_slopes():
    booster = grown("binary:logistic", rounds=3)
    teachers = (Trees.of(booster), Linear(np.ones(WIDTH)), BlackBox(lambda r: r.sum(axis=1)))
    for teacher in teachers:
        rows = table(5, 4)
        before = rows.copy()
        teacher.slopes(rows, STEPS, np.ones((5, 1)))
        np.testing.assert_array_equal(rows, before)
        none = teacher.slopes(np.empty((0, WIDTH)), STEPS, np.empty((0, 1)))
        assert none.shape == (0, WIDTH)
        assert teacher.predict(np.empty((0, WIDTH))).shape == (0, 1)


def test_what_does_not_fit_is_refused():
    trees, rows, ones = Trees.of(grown("binary:logistic", rounds=2)), table(3, 0), np.ones((3, 1))
    for teacher in (trees, Linear(np.ones(WIDTH)), BlackBox(lambda r: r.sum(axis=1))):
        with pytest.raises(ValueError, match="do not fit"):
            teacher.slopes(rows, STEPS, np.ones((3, 2)))
        with pytest.raises(ValueError, match="do not fit"):
            teacher.slopes(rows, STEPS[:2], ones)
        with pytest.raises(ValueError, match="positive"):
            teacher.slopes(rows, np.zeros(WIDTH), ones)
    with pytest.raises(ValueError, match="trees of 7 features"):
        trees.predict(rows[:, :3])
    with pytest.raises(ValueError, match="1 outputs for 3 rows"):
        BlackBox(lambda r: r).predict(rows)
    with pytest.raises(ValueError, match="intercept"):
        Linear(np.ones(WIDTH), np.ones(2))
    with pytest.raises(ValueError, match="threads"):
        Trees.of(grown("binary:logistic", rounds=2), threads=0)
