"""Released rows that break declared rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from bench.data.dataset import Dataset
from bench.data.schema import Categorical, Comparison, Role, Rule, Schema
from bench.errors import NotComputable
from bench.metrics.fidelity.consistency import ClinicalConsistency
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named
from tests.support.real_data import real_folder


def with_rules(table: Dataset, *rules: Rule) -> Dataset:
    schema: Schema = replace(table.schema, rules=rules)
    return replace(
        table,
        declaration=replace(table.declaration, schema=schema),
        encoder=replace(table.encoder, schema=schema),
    )


def test_broken_rows_are_counted_once_with_an_exact_interval(table):
    """Of 80 rows, 8 are 5 years old, and 4 of these have a marker above 9."""
    rows = table.train.rows
    values = rows.values[:80].copy()
    values[:, 0] = np.maximum(values[:, 0], 0.0)
    values[:, 1] = np.minimum(values[:, 1], 0.5)
    values[:8, 0] = -0.9
    values[:4, 1] = 0.95
    dataset = with_rules(
        table,
        Rule("adult", Comparison("age", ">=", "10")),
        Rule("marker", Comparison("marker", "<=", "9")),
    )
    scores = ClinicalConsistency().compute(
        evaluate(dataset, Release(Rows(values, rows.labels[:80])))
    )
    broken, excess = (named(scores, f"consistency/{name}") for name in ("broken", "excess"))
    exact = binomtest(8, 80).proportion_ci(0.95, "exact")
    assert (broken.value, broken.low, broken.high) == pytest.approx((0.1, exact.low, exact.high))
    assert (excess.value, excess.low, excess.high) == pytest.approx((0.1, exact.low, exact.high))
    details = scores.details["consistency"].set_index("rule")
    assert details.loc["adult", "released"] == pytest.approx(0.1)
    assert details.loc["marker", "released"] == pytest.approx(0.05)
    assert (details["real"] == 0.0).all()


def test_conditions_limit_a_rule(table):
    condition = Comparison("smoker", "==", "yes")
    dataset = with_rules(table, Rule("old smokers", Comparison("age", ">=", "50"), (condition,)))
    scores = ClinicalConsistency().compute(evaluate(dataset, dataset.control))
    frame = dataset.control.frame
    expected = ((frame["smoker"] == "yes") & (frame["age"] < 50)).mean()
    assert named(scores, "consistency/broken").value == pytest.approx(expected)
    real = dataset.train.frame
    share = ((real["smoker"] == "yes") & (real["age"] < 50)).mean()
    assert named(scores, "consistency/excess").value == pytest.approx(expected - share)
    assert scores.details["consistency"]["real"][0] == pytest.approx(share)


def test_training_rows_have_no_excess(table):
    dataset = with_rules(table, Rule("odd", Comparison("age", "!=", "50")))
    scores = ClinicalConsistency().compute(evaluate(dataset, dataset.train))
    assert named(scores, "consistency/broken").value > 0
    excess = named(scores, "consistency/excess")
    assert excess.value == 0.0
    assert excess.low < 0 < excess.high


def test_weights_do_not_count(table):
    dataset = with_rules(table, Rule("odd", Comparison("age", "!=", "50")))
    rows = dataset.train.rows
    plain, weighted = (
        ClinicalConsistency().compute(
            evaluate(dataset, Release(Rows(rows.values, rows.labels, weights=weights)))
        )
        for weights in (None, np.arange(len(rows), dtype=float))
    )
    assert plain.scores == weighted.scores


def test_absent_without_rules_or_rows(table, patients):
    with pytest.raises(NotComputable, match="no consistency rules"):
        ClinicalConsistency().compute(evaluate(patients, patients.train))
    with pytest.raises(NotComputable, match="a model, not rows"):
        ClinicalConsistency().compute(
            evaluate(table, Release(model=Answers(lambda values: values[:, 0])))
        )


def test_rules_about_the_site_cannot_be_judged(table):
    site = Categorical(name="site", categories=("a", "b"), role=Role.SITE)
    schema = replace(table.schema, columns=(*table.schema.columns, site), rules=())
    with_site = replace(
        table,
        declaration=replace(table.declaration, schema=schema),
        encoder=replace(table.encoder, schema=schema),
    )
    about_site = Rule("site", Comparison("site", "==", "a"))
    with pytest.raises(NotComputable, match="releases do not hold"):
        ClinicalConsistency().compute(evaluate(with_rules(with_site, about_site), table.control))
    dataset = with_rules(with_site, about_site, Rule("adult", Comparison("age", ">=", "10")))
    scores = ClinicalConsistency().compute(evaluate(dataset, table.control))
    assert scores.details["consistency"]["rule"].tolist() == ["adult"]


def test_shuffled_columns_of_adult_make_husbands_who_never_married(monkeypatch):
    real_folder("adult", monkeypatch)
    from bench.plugins import registry

    dataset = build_dataset(registry.build_source("adult"))
    rows = dataset.train.rows
    kept = ClinicalConsistency().compute(evaluate(dataset, dataset.control))
    assert named(kept, "consistency/broken").high < 0.005
    rng = np.random.default_rng(0)
    values = rows.values.copy()
    for block in dataset.encoder.blocks:
        values[:, block.slice] = values[rng.permutation(len(values)), block.slice]
    torn = ClinicalConsistency().compute(evaluate(dataset, Release(Rows(values, rows.labels))))
    assert named(torn, "consistency/excess").low > 0.1
    details = torn.details["consistency"].set_index("rule")
    assert details.loc["people who never married are not husbands", "released"] > 0.1
