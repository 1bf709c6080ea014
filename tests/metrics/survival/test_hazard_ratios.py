"""Hazard ratios of a release against those of the real rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from scipy.stats import spearmanr

from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics.survival import _survival_models
from bench.metrics.survival.hazard_ratios import HazardRatios
from bench.plugins.registry import build_source
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers, evaluate, named
from tests.support.real_data import real_folder

TRUE = {"age": 0.6, "marker": -0.4, "noise": 0.0, "sex": 0.5, "stage": (0.0, 0.4, 0.9)}


@final
@dataclass(frozen=True)
class Ward(DatasetSource):
    """Known log hazard ratios, 12% of the rows with the event, and a column twice."""

    name: ClassVar[str] = "ward"
    rows: int = 4000

    def declare(self) -> Declaration:
        columns = (
            Numeric(name="age", low=-4, high=4),
            Numeric(name="marker", low=-4, high=4),
            Numeric(name="noise", low=-4, high=4),
            Categorical(name="sex", categories=("f", "m")),
            Categorical(name="stage", categories=("I", "II", "III")),
            Categorical(name="copy", categories=("I", "II", "III")),
            Numeric(name="months", low=0, high=30, role=Role.TIME),
            Categorical(name="death", categories=("0", "1"), role=Role.EVENT),
        )
        events = int(self.load()["death"].sum())
        schema = Schema(columns, Task.SURVIVAL)
        counts = (self.rows - events, events)
        return Declaration("Ward", schema, counts, {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(8)
        numbers = np.clip(rng.normal(size=(self.rows, 3)), -4, 4)
        male, stage = rng.random(self.rows) < 0.5, rng.choice(3, self.rows, p=[0.5, 0.3, 0.2])
        log_risk = numbers @ [TRUE["age"], TRUE["marker"], 0.0] + TRUE["sex"] * male
        log_risk += np.array(TRUE["stage"])[stage]
        life = rng.exponential(200 * np.exp(-log_risk))
        followed = rng.uniform(5, 30, self.rows)
        return pd.DataFrame(
            {
                "age": numbers[:, 0],
                "marker": numbers[:, 1],
                "noise": numbers[:, 2],
                "sex": np.where(male, "m", "f"),
                "stage": np.array(["I", "II", "III"])[stage],
                "copy": np.array(["I", "II", "III"])[stage],
                "months": np.minimum(life, followed),
                "death": (life <= followed).astype(int),
            }
        )


@pytest.fixture(scope="module")
def ward():
    return build_dataset(Ward())


def _halves(dataset, rows):
    """As many censored rows as events."""
    events, censored = (np.flatnonzero(rows.labels == status) for status in (1, 0))
    kept = np.concatenate([events, censored[: len(events)]])
    return Release(Rows(rows.values[kept], rows.labels[kept]))


def test_the_training_rows_agree_with_themselves(ward):
    scores = HazardRatios().compute(evaluate(ward, ward.train))
    for score in scores.scores:
        assert score.value == pytest.approx(1.0)
        assert score.low <= score.value <= score.high
    table = scores.details["hazards"]
    np.testing.assert_allclose(table["real"], table["released"])


def test_ratios_are_those_of_lifelines_against_the_commonest_category(ward):
    table = HazardRatios().compute(evaluate(ward, ward.train)).details["hazard-contrasts"]
    # `copy` adds nothing to `stage`; stage I is the commonest.
    assert table["covariate"].tolist() == ["age", "marker", "noise", "sex", "stage=II", "stage=III"]
    assert table["per"].tolist()[3:] == ["m against f", "against I", "against I"]
    frame = ward.train.frame
    design = frame[["age", "marker", "noise"]] / frame[["age", "marker", "noise"]].std(ddof=0)
    design["sex"] = frame["sex"] == "m"
    design["II"], design["III"] = frame["stage"] == "II", frame["stage"] == "III"
    design = design.astype(float)
    design["months"], design["death"] = frame["months"], frame["death"]
    fitted = CoxPHFitter().fit(design, "months", "death", robust=True)
    for end, log in (("", fitted.params_), ("-low", None), ("-high", None)):
        side = 0 if end == "-low" else 1
        log = fitted.confidence_intervals_.iloc[:, side] if log is None else log
        np.testing.assert_allclose(table[f"real{end}"], np.exp(log), rtol=2e-3)


def test_fresh_rows_agree(ward):
    scores = HazardRatios().compute(evaluate(ward, ward.test))
    assert named(scores, "hazard/direction-clear").value > 0.9
    assert named(scores, "hazard/rank").value > 0.8
    assert named(scores, "hazard/coverage").value > 0.6


def test_a_release_with_times_of_other_patients_does_not(ward):
    rows = ward.train.rows
    order = np.random.default_rng(0).permutation(len(rows))
    values = rows.values.copy()
    values[:, -1] = values[order, -1]
    scores = HazardRatios().compute(evaluate(ward, Release(Rows(values, rows.labels[order]))))
    assert named(scores, "hazard/rank").value < 0.8
    assert named(scores, "hazard/coverage").value < 0.7


def test_reversed_effects_have_no_direction_in_common(ward):
    rows = ward.train.rows
    values = rows.values.copy()
    values[:, :4] *= -1
    values[:, 4:7] = values[:, [6, 5, 4]]
    values[:, 7:10] = values[:, [9, 8, 7]]
    scores = HazardRatios().compute(evaluate(ward, Release(Rows(values, rows.labels))))
    assert named(scores, "hazard/direction-clear").value < 0.3
    assert named(scores, "hazard/rank").value < -0.5
    assert named(scores, "hazard/rank").high < 0


def test_a_balanced_release_has_the_ratios_of_the_population():
    """Without the weights half events and half censored rows shrink every ratio."""
    dataset = build_dataset(Ward(rows=20000))
    release = _halves(dataset, dataset.train.rows)
    table = HazardRatios().compute(evaluate(dataset, release)).details["hazard-contrasts"]
    logs = np.log(table.set_index("covariate")["released"])
    spread = dataset.train.frame[["age", "marker"]].std()
    assert logs["age"] / spread["age"] == pytest.approx(TRUE["age"], abs=0.08)
    assert logs["sex"] == pytest.approx(TRUE["sex"], abs=0.15)
    assert logs["stage=III"] == pytest.approx(0.9, abs=0.15)
    examples = _survival_models.population_examples(evaluate(dataset, release))
    frame = pd.DataFrame({"age": 4 * examples.features[:, 0].astype(float)})
    frame["t"], frame["e"] = examples.times, examples.labels
    assert CoxPHFitter().fit(frame, "t", "e").params_["age"] < 0.9 * logs["age"]


def test_coverage_of_fresh_rows_is_five_sixths(ward):
    """P(|N(0, 2)| < 1.96) = 0.834 for tables of one size: both ratios are estimates."""
    rng = np.random.default_rng(3)
    covered = []
    rows = ward.train.rows
    for seed in range(40):
        order = rng.permutation(len(rows))
        half = len(rows) // 2
        parts = [order[:half], order[half:]]
        split = replace(ward.train, frame=ward.train.frame.iloc[parts[0]], rows=rows.take(parts[0]))
        dataset = replace(ward, train=split)
        release = Release(Rows(rows.values[parts[1]], rows.labels[parts[1]]))
        scores = HazardRatios().compute(evaluate(dataset, release, seed))
        covered.append(named(scores, "hazard/coverage").value)
    assert np.mean(covered) == pytest.approx(0.834, abs=0.07)


def test_rank_and_direction_are_read_off_the_table(ward):
    scores = HazardRatios().compute(evaluate(ward, ward.test))
    table = scores.details["hazards"]
    # The schema holds one column twice: equal ratios, whatever the last bits of the sums are.
    logs = [np.log(table[name]).round(6) for name in ("real", "released")]
    assert len(set(logs[0])) == len(logs[0]) - 3
    assert named(scores, "hazard/rank").value == pytest.approx(spearmanr(*logs).statistic)
    same = (table["real"] > 1) == (table["released"] > 1)
    assert named(scores, "hazard/direction").value == pytest.approx(same.mean())


def test_what_the_release_cannot_estimate_does_not_agree(ward):
    """A constant column has no direction, and no interval that could cover."""
    rows = ward.train.rows
    values = rows.values.copy()
    values[:, 0] = 0.0
    scores = HazardRatios().compute(evaluate(ward, Release(Rows(values, rows.labels))))
    table = scores.details["hazard-contrasts"].set_index("covariate")
    assert np.isnan(table.loc["age", "released"])
    assert named(scores, "hazard/coverage").value == 5 / 6
    assert named(scores, "hazard/direction").value == pytest.approx(9 / 10)


def test_a_category_without_events_is_not_estimated(ward):
    rows = ward.train.rows
    kept = (rows.values[:, 6] < 0.5) | (rows.labels == 0)
    release = Release(Rows(rows.values[kept], rows.labels[kept]))
    table = HazardRatios().compute(evaluate(ward, release)).details["hazard-contrasts"]
    released = table.set_index("covariate")["released"]
    assert np.isnan(released["stage=III"])
    assert released.drop("stage=III").notna().all()


def test_fractions_of_categories_are_read_as_the_largest(ward):
    rows = ward.train.rows
    values = rows.values.copy()
    values[:, 4:10] = 0.2 + 0.5 * values[:, 4:10]
    soft, hard = (
        HazardRatios().compute(evaluate(ward, Release(Rows(v, rows.labels))))
        for v in (values, rows.values)
    )
    pd.testing.assert_frame_equal(
        soft.details["hazard-contrasts"], hard.details["hazard-contrasts"]
    )


def test_few_events_leave_coverage_absent_and_not_the_rest(ward):
    rows = ward.train.rows
    kept = np.concatenate([np.flatnonzero(rows.labels == status)[:8] for status in (0, 1)])
    release = Release(Rows(rows.values[kept], rows.labels[kept]))
    scores = HazardRatios().compute(evaluate(ward, release))
    assert "8 events for 6 covariates" in named(scores, "hazard/coverage").reason
    assert named(scores, "hazard/coverage-by-real").value is None
    assert named(scores, "hazard/direction").value is not None


def test_two_covariates_have_no_rank_correlation(patients):
    scores = HazardRatios().compute(evaluate(patients, patients.test))
    assert "needs 3" in named(scores, "hazard/rank").reason
    assert named(scores, "hazard/direction").value == 1.0


def test_no_ratios_without_events_rows_or_varying_features(ward):
    rows = ward.train.rows
    with pytest.raises(NotComputable, match="no training row has the event"):
        HazardRatios().compute(evaluate(ward, Release(Rows(rows.values, 0 * rows.labels))))
    with pytest.raises(NotComputable, match="a model, not rows"):
        HazardRatios().compute(evaluate(ward, Release(model=Answers(lambda v: v[:, 0]))))
    values = rows.values.copy()
    values[:, :-1] = values[0, :-1]
    with pytest.raises(NotComputable, match="constant"):
        HazardRatios().compute(evaluate(ward, Release(Rows(values, rows.labels))))


PAPER = {
    "Regional Node Positive": 1.155,
    "Grade=Poorly differentiated; Grade III": 1.098,
    "N Stage=N3": 1.092,
    "6th Stage=IIIC": 1.092,
    "Age": 1.088,
    "T Stage=T4": 1.077,
    "Race=Black": 1.074,
    "Tumor Size": 1.072,
    "Grade=Well differentiated; Grade I": 0.930,
    "Progesterone Status": 0.928,
    "Estrogen Status": 0.924,
    "N Stage=N1": 0.896,
    "Regional Node Examined": 0.892,
}
"""Table 5(b) of the zero-order paper, real rows, without the negatives of the two statuses."""


def test_ratios_of_seer_are_those_of_the_paper(monkeypatch):
    """The paper has one-hot columns for both values of a status: half the effect each."""
    real_folder("seer_breast", monkeypatch)
    dataset = build_dataset(build_source("seer-breast"), preset="paper")
    scores = HazardRatios().compute(evaluate(dataset, dataset.train))
    logs = np.log(scores.details["hazards"].set_index("covariate")["real"])
    logs[["Estrogen Status", "Progesterone Status"]] /= 2
    paper = np.log(pd.Series(PAPER))
    assert (np.sign(logs[paper.index]) == np.sign(paper)).all()
    assert spearmanr(logs[paper.index], paper).statistic > 0.85
    np.testing.assert_allclose(logs[paper.index], paper, atol=0.05)
    fresh = HazardRatios().compute(evaluate(dataset, dataset.test))
    assert named(fresh, "hazard/direction-clear").value > 0.8
