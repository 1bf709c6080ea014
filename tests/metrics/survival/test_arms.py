"""The log-rank test between the arms of a trial."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lifelines import NelsonAalenFitter
from lifelines.statistics import logrank_test
from scipy.stats import norm

from bench.data.dataset import Dataset, declaration_from_table
from bench.data.schema import read_toml
from bench.errors import NotComputable, SchemaError
from bench.metrics.survival.arms import Arms, in_first_category
from bench.plugins.registry import build_source
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import evaluate, named


@pytest.fixture(scope="module")
def trial() -> Dataset:
    return build_dataset(build_source("actg175", {}))


def test_without_a_difference_the_p_value_is_that_of_another_library(trial: Dataset) -> None:
    frame, rows = trial.train.frame, trial.train.rows
    (block,) = (one for one in trial.encoder.blocks if one.column.name == "arms")
    days, event = frame["days"].astype(float), rows.labels == 1
    rng = np.random.default_rng(0)
    found = []
    for _ in range(40):
        values = rows.values.copy()
        values[:, block.slice] = values[rng.permutation(len(values))][:, block.slice]
        first = in_first_category(trial.encoder, "arms", values)
        peer = logrank_test(days[first], days[~first], event[first], event[~first])
        scores = Arms().compute(evaluate(trial, Release(Rows(values, rows.labels))))
        # Weights are one but for rounding; the variances are two estimates of the same number.
        p_value = named(scores, "arms/log-rank-p").value
        assert norm.isf(p_value / 2) == pytest.approx(norm.isf(peer.p_value / 2), rel=0.1)
        found.append(p_value)
    assert np.mean(found) == pytest.approx(0.5, abs=0.2)


def test_arms_that_differ_do_so_in_real_and_released_rows(trial: Dataset) -> None:
    frame, event = trial.train.frame, trial.train.rows.labels == 1
    scores = Arms().compute(evaluate(trial, trial.train))
    p_value = named(scores, "arms/log-rank-p-real").value
    assert p_value == pytest.approx(named(scores, "arms/log-rank-p").value, rel=1e-6)
    first, days = (frame["arms"] == "zidovudine").to_numpy(), frame["days"].astype(float)
    peer = logrank_test(days[first], days[~first], event[first], event[~first])
    assert peer.p_value < p_value < 1e-5
    # Zidovudine alone is worse: more events than expected, those of the pooled hazard.
    hazard = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(days, event)
    expected = hazard.cumulative_hazard_at_times(days[first]).sum()
    excess = named(scores, "arms/excess-real").value
    assert excess == pytest.approx(event[first].sum() / expected - 1, rel=0.02)
    assert excess == pytest.approx(named(scores, "arms/excess").value) and excess > 0.2


def test_a_release_of_events_alone_is_weighted(trial: Dataset) -> None:
    """Half of the censored rows left out: weighted back, the difference is nearly the same."""
    rows = trial.train.rows
    kept = (rows.labels == 1) | (np.arange(len(rows)) % 2 == 0)
    scores = Arms().compute(evaluate(trial, Release(Rows(rows.values[kept], rows.labels[kept]))))
    real = named(scores, "arms/excess-real").value
    assert named(scores, "arms/excess").value == pytest.approx(real, abs=0.05)


def test_absent_cases(trial: Dataset) -> None:
    without = replace(trial, declaration=replace(trial.declaration, arm=""))
    with pytest.raises(NotComputable, match="declares no column of arms"):
        Arms().compute(evaluate(without, without.train))
    first = in_first_category(trial.encoder, "arms", trial.train.rows.values)
    rows = trial.train.rows
    alone = Release(Rows(rows.values[first], rows.labels[first]))
    scores = Arms().compute(evaluate(trial, alone))
    assert "all rows are in one arm" in named(scores, "arms/log-rank-p").reason
    assert named(scores, "arms/log-rank-p-real").value < 1e-4


def test_the_arm_is_a_categorical_column() -> None:
    source = build_source("actg175", {})
    table = read_toml(source.toml_path())
    assert declaration_from_table(table, "t").arm == "arms"
    for wrong in ("age", "absent"):
        with pytest.raises(SchemaError, match="name of a categorical column"):
            declaration_from_table({**table, "arm": wrong}, "t")
