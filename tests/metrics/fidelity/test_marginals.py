"""Errors of marginals and of random queries, against counts by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bench.metrics.fidelity._pooled import feature_columns, pooled
from bench.metrics.fidelity.columns import binned
from bench.metrics.fidelity.marginals import Marginals, column_sets, queries
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import evaluate, named

NAMES = ("marginal-error/1-way", "marginal-error/2-way", "marginal-error/3-way")


def coded(evaluation) -> tuple[pd.DataFrame, np.ndarray, int, list[int]]:
    """Codes of all rows, weights of the released ones, number of real ones, bins."""
    rows = pooled(evaluation)
    columns = [*feature_columns(evaluation), evaluation.dataset.schema.label]
    pairs = [binned(rows, column) for column in columns]
    frame = pd.DataFrame({k: codes for k, (codes, _) in enumerate(pairs)})
    return frame, rows.released_weights, rows.real, [count for _, count in pairs]


@pytest.mark.parametrize("which", ["table", "patients"])
def test_distances_and_queries_are_those_of_counting(which, request):
    dataset = request.getfixturevalue(which)
    evaluation = evaluate(dataset, dataset.control)
    scores = Marginals().compute(evaluation)
    frame, weights, real, counts = coded(evaluation)
    frame["weight"] = np.concatenate([np.full(real, 1 / real), weights])
    width = len(counts)
    ordered = [not hasattr(column, "categories") for column in feature_columns(evaluation)]
    for size, name in enumerate(NAMES, start=1):
        distances, errors = [], []
        for columns in column_sets(evaluation, width, size):
            keys = list(columns)
            before = frame[:real].groupby(keys)["weight"].sum()
            after = frame[real:].groupby(keys)["weight"].sum()
            distances.append(before.subtract(after, fill_value=0.0).abs().sum() / 2)
            if size == 3:
                parts = queries(evaluation, [*ordered, False], counts, columns)
                for query in range(len(parts[0])):
                    chosen = np.ones(len(frame), dtype=bool)
                    for part, key in zip(parts, keys, strict=True):
                        chosen &= part[query][frame[key]]
                    share = frame["weight"].where(chosen, 0.0)
                    errors.append(abs(share[:real].sum() - share[real:].sum()))
        assert named(scores, name).value == pytest.approx(np.mean(distances), rel=1e-9)
    assert named(scores, "query-error/3-way").value == pytest.approx(np.mean(errors), rel=1e-9)
    # SDNist's formula, 500 (2 - mean sum of absolute differences).
    expected = 500 * (2 - 2 * np.mean(distances))
    assert named(scores, "k-marginal").value == pytest.approx(expected, rel=1e-9)


def test_training_rows_are_perfect_and_intervals_hold_the_value(table):
    copied = Marginals().compute(evaluate(table, table.train))
    assert named(copied, "k-marginal").value == pytest.approx(1000.0)
    for name in (*NAMES, "query-error/3-way"):
        assert named(copied, name).value == pytest.approx(0.0, abs=1e-12)
    for score in Marginals().compute(evaluate(table, table.control)).scores:
        assert score.low <= score.value <= score.high
        assert score.low < score.high or score.metric == NAMES[0]


def test_larger_sets_of_columns_differ_more(table):
    scores = Marginals().compute(evaluate(table, table.control))
    one, two, three = (named(scores, name).value for name in NAMES)
    assert 0 < one < two < three < 1


def test_columns_that_lost_their_company_show_from_two_columns_on(table):
    rng = np.random.default_rng(0)
    rows = table.train.rows
    values = rows.values.copy()
    for block in table.encoder.blocks:
        for label in np.unique(rows.labels):
            members = np.flatnonzero(rows.labels == label)
            values[members, block.slice] = values[rng.permutation(members), block.slice]
    scores = Marginals().compute(evaluate(table, Release(Rows(values, rows.labels))))
    assert named(scores, NAMES[0]).value == pytest.approx(0.0, abs=1e-12)
    assert named(scores, NAMES[2]).value > 0.02
