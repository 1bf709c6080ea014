"""Utility by group of test rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from bench.data.dataset import Dataset, Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.datasets.simulators.curial_sim import CurialSim
from bench.errors import NotComputable
from bench.metrics._shared.bootstrap import Joint
from bench.metrics.utility import groups
from bench.metrics.utility.groups import CrossSite, Subgroups
from bench.plugins.metric import Direction
from bench.plugins.release import Release
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers, evaluate, named


@final
@dataclass(frozen=True)
class TwoSexes(DatasetSource):
    """The marker separates the classes for men and women alike."""

    name: ClassVar[str] = "two-sexes"
    rows: int = 3000
    survival: bool = False

    def declare(self) -> Declaration:
        label = Categorical(
            name="outcome",
            categories=("0", "1"),
            role=Role.EVENT if self.survival else Role.TARGET,
        )
        columns = (
            Numeric(name="age", low=20, high=80, integer=True),
            Categorical(name="sex", categories=("female", "male")),
            Categorical(name="rare", categories=("usual", "rare", "never")),
            Numeric(name="marker", low=-6, high=6),
            *((Numeric(name="months", low=0, high=100, role=Role.TIME),) if self.survival else ()),
            label,
        )
        schema = Schema(
            columns,
            Task.SURVIVAL if self.survival else Task.CLASSIFICATION,
            quasi_identifiers=("age", "sex", "rare"),
        )
        half = self.rows // 2
        return Declaration("Two sexes", schema, (half, half), {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(2)
        label = np.repeat([0, 1], self.rows // 2)
        frame = pd.DataFrame(
            {
                "age": rng.integers(20, 81, self.rows),
                "sex": rng.choice(["female", "male"], self.rows),
                "rare": np.where(rng.random(self.rows) < 0.01, "rare", "usual"),
                "marker": np.clip(rng.normal(2 * label - 1, 1.2), -6, 6),
            }
        )
        if self.survival:
            frame["months"] = np.clip(rng.exponential(20 * np.exp(-frame["marker"])), 0.1, 100)
        frame["outcome"] = label
        return frame


@pytest.fixture(scope="module")
def sexes() -> Dataset:
    return build_dataset(TwoSexes())


def _marker_of_women_only(values: np.ndarray) -> np.ndarray:
    """Columns: age, sex (-1 female), three of rare, marker."""
    return np.where(values[:, 1] < 0, values[:, -1], 0.0)


def test_each_group_has_the_auroc_of_scikit_learn(sexes):
    model = Answers(lambda values: values[:, -1])
    table = Subgroups().compute(evaluate(sexes, Release(model=model))).details["subgroups"]
    frame = sexes.test.frame
    age = frame["age"].to_numpy()
    expected = {
        ("sex", "female"): frame["sex"] == "female",
        ("sex", "male"): frame["sex"] == "male",
        ("age", "20 to 39"): age < 40,
        ("age", "40 to 59"): (age >= 40) & (age < 60),
        ("age", "60 to 80"): age >= 60,
        ("rare", "usual"): frame["rare"] == "usual",
    }
    scored = table[table["reason"] == ""]
    assert {(row.column, row.group) for row in scored.itertuples()} == set(expected)
    for row in scored.itertuples():
        rows = np.asarray(expected[row.column, row.group])
        truth = roc_auc_score(frame["outcome"][rows], frame["marker"][rows])
        assert row.value == pytest.approx(truth, abs=1e-6)
        assert row.rows == rows.sum()
        assert row.positives == frame["outcome"][rows].sum()
        assert row.low < row.value < row.high


def test_groups_that_are_too_small_are_listed_with_the_reason(sexes):
    table = Subgroups().compute(evaluate(sexes, sexes.train)).details["subgroups"]
    (small,) = table[table["reason"] != ""].itertuples()
    assert (small.column, small.group) == ("rare", "rare")
    assert "at least 50" in small.reason
    assert np.isnan(small.value)
    # A group without any row is no group.
    assert "never" not in set(table["group"])


def test_gap_and_worst_are_those_of_the_table(sexes):
    scores = Subgroups().compute(evaluate(sexes, sexes.train))
    table = scores.details["subgroups"]
    scored = table[table["reason"] == ""].groupby("column")["value"]
    gap, worst = named(scores, "subgroups/gap"), named(scores, "subgroups/worst")
    assert gap.value == pytest.approx((scored.max() - scored.min()).max())
    assert worst.value == scored.min().min()
    for score in scores.scores:
        assert score.low <= score.value <= score.high
    real = table[table["reason"] == ""].groupby("column")["real"]
    excess = named(scores, "subgroups/excess").value
    assert excess == pytest.approx(gap.value - (real.max() - real.min()).max())
    assert [score.direction for score in (gap, worst)] == [Direction.LOWER, Direction.HIGHER]


def test_a_model_that_fails_men_has_a_gap_that_real_rows_do_not_explain(sexes):
    scores = Subgroups().compute(evaluate(sexes, Release(model=Answers(_marker_of_women_only))))
    gap, excess = named(scores, "subgroups/gap"), named(scores, "subgroups/excess")
    assert gap.low > 0.25
    assert excess.low > 0.2
    assert named(scores, "subgroups/worst").value == 0.5


def test_releasing_real_rows_adds_no_gap(sexes):
    excess = named(Subgroups().compute(evaluate(sexes, sexes.train)), "subgroups/excess")
    assert excess.low <= 0.0 <= excess.high
    assert abs(excess.value) < 0.03


def test_intervals_of_extremes_cover_the_truth():
    """Ten groups of equal truth: the plain largest difference is never 0, its interval holds it."""
    rng = np.random.default_rng(0)
    hits = {"gap": 0, "worst": 0}
    rounds = 200
    for _ in range(rounds):
        noise = rng.normal(0, 0.03, 10)
        joint = Joint(0.8 + noise, 0.8 + noise[:, None] + rng.normal(0, 0.03, (10, 1000)))
        low, high = groups._gap_interval(joint, [list(range(10))])
        hits["gap"] += low <= 0.0 <= high
        low, high = joint.lowest_interval()
        hits["worst"] += low <= 0.8 <= high
    assert min(hits.values()) / rounds >= 0.93


def test_survival_groups_have_a_concordance():
    from lifelines.utils import concordance_index

    dataset = build_dataset(TwoSexes(survival=True))
    scores = Subgroups().compute(
        evaluate(dataset, Release(model=Answers(lambda values: values[:, -1])))
    )
    table = scores.details["subgroups"].set_index("group")
    frame = dataset.test.frame[dataset.test.frame["sex"] == "male"]
    truth = concordance_index(frame["months"], -frame["marker"], frame["outcome"])
    assert table.loc["male", "value"] == pytest.approx(truth, abs=1e-3)
    # The Cox model trained on real rows ranks by the same marker.
    assert table.loc["male", "real"] == pytest.approx(truth, abs=0.02)


def test_more_than_two_classes_are_each_ranked_against_the_rest():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 40)
    answers = rng.random((120, 3)) + np.eye(3)[labels]
    ranking = groups.RankedRows(np.zeros((120, 1)), labels, None, 3)
    rows = np.arange(0, 120, 2)
    value = ranking.statistic(rows, answers)(np.ones((120, 1)))[0]
    parts = [roc_auc_score(labels[rows] == code, answers[rows, code]) for code in range(3)]
    assert value == pytest.approx(np.mean(parts))


def test_sites_are_groups_too(sexes):
    from bench.datasets.simulators.curial_sim import CurialSim

    dataset = build_dataset(CurialSim(rows=6000))
    listed = list(groups.groups_of(evaluate(dataset, dataset.train)))
    sites = {group.name: len(group.rows) for group in listed if group.column == "site"}
    assert sites == dataset.test.frame["site"].value_counts().to_dict()


def test_bands_share_their_edges_upwards():
    edges = np.array([0.0, 10.0, 20.0, 30.0])
    assert groups._band_names(edges, integer=True) == ["0 to 9", "10 to 19", "20 to 30"]
    assert groups._band_names(edges / 4, integer=False)[0] == "0 to 2.5"
    uneven = np.array([17, 41 + 1 / 3, 65 + 2 / 3, 90])
    assert groups._band_names(uneven, integer=True) == ["17 to 41", "42 to 65", "66 to 90"]


def test_absent_without_groups(sexes):
    schema = replace(sexes.schema, quasi_identifiers=())
    nobody = replace(sexes, declaration=replace(sexes.declaration, schema=schema))
    nobody = replace(nobody, encoder=replace(sexes.encoder, schema=schema), fingerprint="none")
    with pytest.raises(NotComputable, match="no quasi-identifiers and no sites"):
        Subgroups().compute(evaluate(nobody, sexes.train))
    few = replace(sexes, test=replace(sexes.test, rows=sexes.test.rows.take(np.arange(40))))
    with pytest.raises(NotComputable, match="no group of test rows"):
        Subgroups().compute(evaluate(few, sexes.train))
    none = replace(sexes, test=replace(sexes.test, rows=sexes.test.rows.take(np.arange(0))))
    with pytest.raises(NotComputable, match="no test rows"):
        Subgroups().compute(evaluate(none, sexes.train))


def test_one_large_group_has_no_gap(sexes):
    men = np.flatnonzero(sexes.test.frame["sex"] == "male")
    schema = replace(sexes.schema, quasi_identifiers=("sex",))
    dataset = replace(
        sexes,
        declaration=replace(sexes.declaration, schema=schema),
        test=replace(sexes.test, rows=sexes.test.rows.take(men)),
    )
    scores = Subgroups().compute(evaluate(dataset, sexes.train))
    assert "two groups" in named(scores, "subgroups/gap").reason
    assert "two groups" in named(scores, "subgroups/excess").reason
    assert named(scores, "subgroups/worst").value > 0.8


# A release from one site, tested at the others ----------------------------------------------------


_RESPIRATORY_RATE = 1


@pytest.fixture(scope="module")
def oxford() -> Dataset:
    return build_dataset(CurialSim(rows=12_000), "site:OUH")


def test_each_site_has_the_auroc_of_scikit_learn(oxford):
    model = Answers(lambda values: values[:, _RESPIRATORY_RATE])
    scores = CrossSite().compute(evaluate(oxford, Release(model=model)))
    frame = oxford.test.frame
    expected = {
        site: roc_auc_score(rows["covid"], rows["respiratory_rate"])
        for site, rows in frame.groupby("site", observed=True)
    }
    table = scores.details["cross-site"].set_index("site")
    assert table["value"].to_dict() == pytest.approx(expected, abs=1e-9)
    assert table["rows"].to_dict() == frame["site"].value_counts().to_dict()
    assert table["home"].to_dict() == {"PUH": False, "OUH": True, "UHB": False}
    away = [expected["PUH"], expected["UHB"]]
    assert named(scores, "cross-site/home").value == pytest.approx(expected["OUH"])
    assert named(scores, "cross-site/away").value == pytest.approx(np.mean(away))
    assert named(scores, "cross-site/worst").value == pytest.approx(min(away))
    real = table.loc[["PUH", "UHB"], "real"].mean()
    assert named(scores, "cross-site/ratio").value == pytest.approx(np.mean(away) / real)
    for score in scores.scores:
        assert score.low <= score.value <= score.high


def test_the_real_rows_of_the_home_site_travel_as_themselves(oxford):
    ratio = named(CrossSite().compute(evaluate(oxford, oxford.train)), "cross-site/ratio")
    assert ratio.low <= 1.0 <= ratio.high


def test_a_model_without_skill_is_seen_everywhere(oxford):
    model = Answers(lambda values: np.random.default_rng(0).random(len(values)))
    scores = CrossSite().compute(evaluate(oxford, Release(model=model)))
    assert named(scores, "cross-site/away").low < 0.5 < named(scores, "cross-site/away").high
    assert named(scores, "cross-site/ratio").high < 0.9


def test_a_home_or_other_sites_too_small_to_score(oxford):
    frame = oxford.test.frame
    few_at_home = np.flatnonzero((frame["site"] != "OUH") | (frame.index % 40 == 0))
    small = replace(oxford, test=replace(oxford.test, rows=oxford.test.rows.take(few_at_home)))
    scores = CrossSite().compute(evaluate(small, oxford.train))
    assert "home site" in named(scores, "cross-site/home").reason
    assert named(scores, "cross-site/away").value > 0.6
    at_home = np.flatnonzero(frame["site"] == "OUH")
    alone = replace(oxford, test=replace(oxford.test, rows=oxford.test.rows.take(at_home)))
    scores = CrossSite().compute(evaluate(alone, oxford.train))
    assert named(scores, "cross-site/home").value > 0.6
    assert "no other site" in named(scores, "cross-site/away").reason
    assert "no other site" in named(scores, "cross-site/ratio").reason


def test_absent_when_all_sites_trained(table):
    with pytest.raises(NotComputable, match='split = "site:<name>"'):
        CrossSite().compute(evaluate(table, table.train))
