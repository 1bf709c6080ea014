"""The regression attack: against scikit-learn, on a planted leak, and where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

from bench.data.dataset import Dataset, Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics._shared.bootstrap import ResampledSums
from bench.metrics.privacy.disclosure import attribute_inference
from bench.metrics.privacy.disclosure.attribute_inference import (
    AttributeInference,
    EncodedTable,
    EqualDraws,
    accuracy,
    linearised_auroc,
    r2,
    trained,
)
from bench.plugins import metric
from bench.plugins.metric import Direction
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers, evaluate, named, without_control


@final
@dataclass(frozen=True)
class Secrets(DatasetSource):
    """Numbers that are informative about `level`; `secret`, `flag` and `group` are pure chance."""

    name: ClassVar[str] = "secrets"
    rows: int = 500
    sensitive: tuple[str, ...] = ("secret", "flag", "group")

    def declare(self) -> Declaration:
        columns = (
            Numeric(name="first", low=-5, high=5),
            Numeric(name="second", low=-5, high=5),
            Numeric(name="level", low=-10, high=10),
            Numeric(name="secret", low=-5, high=5),
            Categorical(name="flag", categories=("no", "yes")),
            Categorical(name="group", categories=("a", "b", "c")),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION, sensitive=self.sensitive)
        half = self.rows // 2
        return Declaration("Secrets", schema, (half, half), {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(8)
        first, second, secret = np.clip(rng.normal(size=(3, self.rows)), -5, 5)
        return pd.DataFrame(
            {
                "first": first,
                "second": second,
                "level": np.clip(first + second + rng.normal(0, 0.5, self.rows), -10, 10),
                "secret": secret,
                "flag": rng.choice(["no", "yes"], self.rows),
                "group": rng.choice(["a", "b", "c"], self.rows),
                "outcome": np.repeat([0, 1], self.rows // 2),
            }
        )


@pytest.fixture(scope="module")
def secrets() -> Dataset:
    return build_dataset(Secrets())


def attacked_by_scikit_learn(dataset: Dataset, rows: Rows, target: int) -> np.ndarray:
    """Predictions about one single-column target of the training rows."""
    train = dataset.train.rows
    known = np.column_stack([rows.values, 2.0 * rows.labels - 1])
    asked = np.column_stack([train.values, 2.0 * train.labels - 1])
    model = GradientBoostingRegressor(
        n_estimators=100, max_depth=3, learning_rate=0.1, random_state=0
    )
    model.fit(np.delete(known, target, 1), known[:, target], sample_weight=rows.weights)
    return model.predict(np.delete(asked, target, 1))


@pytest.mark.parametrize("released", ["train", "test"])
def test_it_is_the_attack_of_scikit_learn(secrets, released):
    rows = getattr(secrets, released).rows
    release = Release(Rows(rows.values, rows.labels))
    scores = AttributeInference().compute(evaluate(secrets, release))
    table = scores.details["aia"].set_index(["attribute", "number"])["value"]
    truth = secrets.train.rows.values
    assert release.rows is not None
    secret = attacked_by_scikit_learn(secrets, release.rows, 3)
    # Asked about rows that it learned from; elsewhere, and for a binary attribute, equally good
    # splits and thresholds between two values may be chosen differently.
    if released == "train":
        assert table["secret", "r2"] == pytest.approx(r2_score(truth[:, 3], secret), abs=1e-4)
    near = 0.01 if released == "train" else 0.05
    assert table["secret", "r2"] == pytest.approx(r2_score(truth[:, 3], secret), abs=near)
    flag = attacked_by_scikit_learn(secrets, release.rows, 4)
    assert table["flag", "r2"] == pytest.approx(r2_score(truth[:, 4], flag), abs=near)
    assert table["flag", "auroc"] == pytest.approx(roc_auc_score(truth[:, 4], flag), abs=near)
    right = np.mean((flag > 0) == (truth[:, 4] > 0))
    assert table["flag", "accuracy"] == pytest.approx(right, abs=0.05)


def test_statistics_of_four_rows_by_hand():
    truth = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    predicted = np.array([[-1.0], [0.5], [0.5], [1.0]])
    column = Categorical(name="flag", categories=("no", "yes"))
    answers = attribute_inference._answers(column, truth, predicted)
    rows = ResampledSums(4, np.random.default_rng(0))
    everybody = np.ones(4, dtype=bool)
    planned = [make(rows, truth, answers, everybody) for make in (r2, accuracy, linearised_auroc)]
    planned.append(r2(rows, truth, answers, everybody, unbiased=True))
    # Errors 0, 2.25, 0.25, 0 of 4; one of four is wrong; 3.5 of 4 pairs are in order.
    values = [statistic()[0] for statistic in planned if statistic is not None]
    assert values == pytest.approx([1 - 2.5 / 4, 3 / 4, 3.5 / 4, 1 - 2.5 / 4 * 3 / 4])
    kept = np.array([True, True, False, False])
    assert r2(rows, truth, answers, kept) is None  # constant among those


def test_several_categories_are_one_regression_each():
    truth = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    predicted = np.array([[0.8, 0.1, 0.1], [0.5, 0.4, 0.1], [0, 0, 1], [0, 0, 1]])
    column = Categorical(name="group", categories=("a", "b", "c"))
    answers = attribute_inference._answers(column, truth, predicted)
    assert answers.right is not None
    assert answers.right.tolist() == [True, False, True, True]
    assert answers.errors == pytest.approx([0.06, 0.62, 0, 0])
    rows = ResampledSums(4, np.random.default_rng(0))
    statistic = r2(rows, truth, answers, np.ones(4, dtype=bool))
    assert statistic is not None
    assert statistic()[0] == pytest.approx(
        r2_score(truth, predicted, multioutput="variance_weighted")
    )


def test_areas_of_resamples_are_near_those_of_resampled_rows():
    """The linear form against areas computed anew; both give the same interval."""
    rng = np.random.default_rng(5)
    truth = np.where(rng.random((400, 1)) < 0.4, 1.0, -1.0)
    predictions = truth + rng.normal(0, 2, (400, 1))
    column = Categorical(name="flag", categories=("no", "yes"))
    answers = attribute_inference._answers(column, truth, predictions)
    rows = ResampledSums(400, np.random.default_rng(0))
    statistic = linearised_auroc(rows, truth, answers, np.ones(400, dtype=bool))
    assert statistic is not None
    samples = statistic()[1:]
    direct = []
    for _ in range(200):
        index = rng.integers(0, 400, 400)
        direct.append(roc_auc_score(truth[index, 0] > 0, predictions[index, 0]))
    assert samples.std() == pytest.approx(np.std(direct), rel=0.2)


def test_a_planted_leak_is_seen(secrets):
    """Attributes that nothing predicts: whoever predicts them has learned the rows."""
    scores = AttributeInference().compute(evaluate(secrets, secrets.train))
    gap, excess = named(scores, "aia/gap"), named(scores, "aia/r2-excess")
    assert gap.value > 0.5
    assert gap.low > 0.3
    assert named(scores, "aia/r2").value > 0.4
    assert named(scores, "aia/auroc").value > 0.85
    assert named(scores, "aia/auroc-control").value < 0.65
    # From 50 rows only, as many as the control rows: a weaker witness than the gap.
    assert excess.value > 0.1
    assert named(scores, "aia/auroc-excess").value > 0.03
    assert named(scores, "aia/accuracy").value > 0.75
    for score in scores.scores:
        assert score.low <= score.value <= score.high
    assert (gap.direction, excess.direction) == (Direction.LOWER, Direction.LOWER)


def test_population_knowledge_is_not_leakage():
    """`level` follows from the others: R2 is high from any rows, and nothing exceeds it."""
    dataset = build_dataset(Secrets(rows=1000, sensitive=("level",)))
    scores = AttributeInference().compute(evaluate(dataset, dataset.test))
    assert named(scores, "aia/r2").value > 0.8
    assert named(scores, "aia/r2-control").value > 0.7
    for output in ("aia/r2-excess", "aia/gap"):
        score = named(scores, output)
        assert score.low <= 0 <= score.high
    auroc_score = named(scores, "aia/auroc")
    assert auroc_score.value is None and "no binary attribute" in auroc_score.reason
    assert "no categorical" in named(scores, "aia/accuracy-excess").reason


def test_fresh_rows_leave_no_gap_and_no_excess():
    """Over 10 splits the means are within their standard errors; intervals hold zero."""
    by_output: dict[str, list[float]] = {"aia/gap": [], "aia/r2-excess": [], "aia/auroc-excess": []}
    held = dict.fromkeys(by_output, 0)
    for split_seed in range(10):
        dataset = build_dataset(Secrets(sensitive=("secret", "flag")), split_seed=split_seed)
        scores = AttributeInference().compute(evaluate(dataset, dataset.test))
        for output, values in by_output.items():
            score = named(scores, output)
            values.append(score.value)
            held[output] += score.low <= 0 <= score.high
    for output, values in by_output.items():
        assert abs(np.mean(values)) < 2.5 * np.std(values, ddof=1) / np.sqrt(10), output
        assert held[output] >= 8, output


def test_the_attacked_attribute_is_removed_with_all_its_columns(secrets):
    rows = secrets.train.rows
    design = EncodedTable.of(secrets.encoder, rows.values, rows.labels)
    group = secrets.schema["group"]
    assert design.values.shape[1] == secrets.encoder.width + 1
    place = design.places["group"]
    beside = design.binned.groups_beside(place)
    assert len(beside) == design.binned.bins.shape[1] - 1
    used = design.binned.columns[design.binned.starts[beside]]
    assert not set(used) & set(range(place.start, place.stop))
    assert design.target(group).sum(axis=1).tolist() == [1.0] * len(rows)
    label = secrets.schema["outcome"]
    assert np.array_equal(design.target(label)[:, 0], 2.0 * rows.labels - 1)


def test_the_label_can_be_attacked_and_otherwise_helps(secrets):
    dataset = build_dataset(Secrets(sensitive=("outcome",)))
    scores = AttributeInference().compute(evaluate(dataset, dataset.train))
    assert scores.details["aia"]["attribute"].unique().tolist() == ["outcome"]
    assert named(scores, "aia/auroc").value > 0.85


def test_a_weight_is_a_number_of_copies(secrets):
    rows = secrets.test.rows
    copies = np.random.default_rng(0).integers(0, 4, len(rows))
    flag = secrets.schema["flag"]
    released = EncodedTable.of(secrets.encoder, rows.values, rows.labels)
    index = np.repeat(np.arange(len(rows)), copies)
    kept = np.flatnonzero(copies)
    weighted = trained(released.take(kept), copies[kept].astype(float), flag).asked(released)
    copied = trained(released.take(index), np.ones(len(index)), flag).asked(released)
    assert weighted.errors == pytest.approx(copied.errors, abs=2e-3)
    release = Release(Rows(rows.values, rows.labels, weights=copies.astype(float)))
    scores = AttributeInference().compute(evaluate(secrets, release))
    assert scores.details["aia"]["released-rows"].unique().tolist() == [len(kept)]


def test_the_comparison_does_not_depend_on_earlier_releases(secrets):
    """Soft and hard releases are learned from in different forms; control rows in one."""
    rows = secrets.train.rows
    soft = rows.values.copy()
    soft[:, 5:] = 0.7 * soft[:, 5:] + 0.1
    releases = [Release(Rows(values, rows.labels)) for values in (rows.values, soft)]
    tables = []
    for order in (releases, releases[::-1]):
        metric._KEPT.clear()
        found = [AttributeInference().compute(evaluate(secrets, one)).scores for one in order]
        tables.append(found if order is releases else found[::-1])
    assert tables[0] == tables[1]


def test_soft_rows_and_values_beyond_the_bounds(secrets):
    """Fractional categories are learned as they are; what lies beyond the bounds is clipped."""
    rows = secrets.train.rows
    values = rows.values.copy()
    values[:, 5:] = 0.7 * values[:, 5:] + 0.1
    soft = EncodedTable.of(secrets.encoder, values, rows.labels)
    assert not soft.hard
    scores = AttributeInference().compute(evaluate(secrets, Release(Rows(values, rows.labels))))
    assert named(scores, "aia/gap").low > 0.2
    beyond = values.copy()
    beyond[:, :4] *= 50.0
    clipped = EncodedTable.of(secrets.encoder, beyond, rows.labels).values
    assert clipped.min() >= -1.0
    assert clipped.max() <= 1.0


def test_equally_many_rows_are_compared():
    assert EqualDraws.of(100, 4000) == EqualDraws(100, 100, 4000)
    assert EqualDraws.of(10_000, 4000).size == 4000
    assert EqualDraws.of(4000, 4000).size == 2000
    assert EqualDraws.of(9, 4000).size == 0
    rng = np.random.default_rng(0)
    assert len(EqualDraws(100, 100, 4000).draws(100, rng)) == 1
    draws = EqualDraws(100, 100, 4000).draws(4000, rng)
    assert [len(np.unique(draw)) for draw in draws] == [100] * 5


def test_undeclared_attributes_are_chosen_and_said_so():
    dataset = build_dataset(Secrets(sensitive=()))
    table = AttributeInference().compute(evaluate(dataset, dataset.test)).details["aia"]
    assert table["attribute"].unique().tolist() == ["first", "second", "level", "secret", "flag"]
    assert not table["declared"].any()


def test_a_pixel_is_no_attribute(images):
    with pytest.raises(NotComputable, match="pixels are not sensitive"):
        AttributeInference().compute(evaluate(images, images.train))


def test_survival_rows_are_attacked_with_time_and_event_known(patients):
    scores = AttributeInference().compute(evaluate(patients, patients.validation))
    assert scores.details["aia"]["attribute"].unique().tolist() == ["risk", "arm"]
    assert named(scores, "aia/r2").value is not None


def test_without_control_rows_only_the_comparison_is_absent(secrets):
    scores = AttributeInference().compute(evaluate(without_control(secrets), secrets.train))
    for score in scores.scores:
        beside = score.metric.endswith(("-control", "-excess", "gap"))
        assert (score.value is None) == beside, score.metric
    assert "0 control" in named(scores, "aia/r2-excess").reason
    assert "occur only once" in named(scores, "aia/gap").reason


def test_few_released_rows(secrets):
    rows = secrets.train.rows
    few = Release(Rows(rows.values[:4], rows.labels[:4]))
    scores = AttributeInference().compute(evaluate(secrets, few))
    assert named(scores, "aia/r2").value is not None
    assert named(scores, "aia/r2-excess").value is None
    with pytest.raises(NotComputable, match="nothing to learn from"):
        AttributeInference().compute(
            evaluate(secrets, Release(Rows(rows.values[:1], rows.labels[:1])))
        )


def test_every_output_and_the_same_again(secrets):
    first, again = (
        AttributeInference().compute(evaluate(secrets, secrets.validation, 5)).scores
        for _ in range(2)
    )
    assert first == again
    assert [score.metric for score in first] == [o.name for o in AttributeInference.outputs]


def test_a_model_has_no_rows_to_learn_from(secrets):
    with pytest.raises(NotComputable, match="a model, not rows"):
        AttributeInference().compute(evaluate(secrets, Release(model=Answers(lambda v: v[:, 0]))))
