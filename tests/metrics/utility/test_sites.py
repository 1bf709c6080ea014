"""A release from one site, tested at the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bench.data.dataset import Dataset
from bench.datasets.simulators.curial_sim import CurialSim
from bench.errors import NotComputable
from bench.metrics.utility.sites import CrossSite
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named

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
