"""Counts of resamples, and statistics that take them as bytes."""

from __future__ import annotations

import numpy as np
import pytest
from lifelines.utils import concordance_index
from sklearn.metrics import average_precision_score, roc_auc_score

from bench.errors import NotComputable
from bench.metrics._shared import bootstrap
from bench.metrics._shared.auroc import auprc, auroc, delong
from bench.metrics._shared.c_index import concordance

STRATA = np.array([1, 0, 1, 1, 0, 2, 1])


def _counts(strata, seed=0, resamples=50):
    blocks = bootstrap.resampled_counts(strata, np.random.default_rng(seed), resamples)
    return np.concatenate([*blocks], axis=1)


@pytest.fixture(autouse=True)
def nothing_kept():
    bootstrap._DRAWN.clear()
    yield
    bootstrap._DRAWN.clear()


def _xoshiro(state):
    """xoshiro256++ as its authors publish it, in whole numbers."""
    mask = 2**64 - 1

    def left(number, bits):
        return ((number << bits) | (number >> (64 - bits))) & mask

    s = [int(word) for word in state]
    while True:
        yield (left((s[0] + s[3]) & mask, 23) + s[0]) & mask
        shifted = (s[1] << 17) & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = left(s[3], 45)


def test_draws_are_those_of_the_published_generator():
    state = np.random.default_rng(0).integers(0, 2**64, size=4, dtype=np.uint64)
    numbers = _xoshiro(state)
    expected = np.zeros((len(STRATA), 70), dtype=int)
    for resample in range(70):
        for stratum in (0, 1, 2):
            rows = np.flatnonzero(stratum == STRATA)
            for start in range(0, len(rows), 2):
                number = next(numbers)
                for half in (number >> 32, number & (2**32 - 1))[: len(rows) - start]:
                    expected[rows[(half * len(rows)) >> 32], resample] += 1
    assert np.array_equal(_counts(STRATA, resamples=70), expected)


def test_counts_are_multinomial_within_each_stratum():
    strata = np.repeat([0, 1], [30, 10])
    counts = _counts(strata, resamples=4000).astype(float)
    assert (counts[:30].sum(axis=0) == 30).all()
    assert (counts[30:].sum(axis=0) == 10).all()
    for rows in (counts[:30], counts[30:]):
        share = 1 / len(rows)
        assert rows.mean(axis=1) == pytest.approx(1.0, abs=0.08)
        assert rows.var(axis=1) == pytest.approx(1.0 - share, abs=0.15)
        assert np.corrcoef(rows[0], rows[1])[0, 1] == pytest.approx(-share / (1 - share), abs=0.06)


def test_the_same_whether_kept_or_not_and_in_whatever_blocks(monkeypatch):
    first = _counts(STRATA)
    assert len(bootstrap._DRAWN) == 1
    again = _counts(STRATA)
    bootstrap._DRAWN.clear()
    monkeypatch.setattr(bootstrap, "_BLOCK_BYTES", 40)
    in_blocks = _counts(STRATA)
    assert not bootstrap._DRAWN
    assert np.array_equal(first, again)
    assert np.array_equal(first, in_blocks)


def test_what_is_drawn_afterwards_does_not_depend_on_what_was_kept():
    left = []
    for _ in range(2):
        rng = np.random.default_rng(3)
        [*bootstrap.resampled_counts(STRATA, rng, 20)]
        left.append(rng.random())
    assert left[0] == left[1]


def test_other_strata_other_seeds_and_other_numbers_are_other_counts():
    base = _counts(STRATA)
    assert not np.array_equal(base, _counts(STRATA, seed=1))
    assert not np.array_equal(base, _counts(STRATA[::-1].copy()))
    assert np.array_equal(base[:, :20], _counts(STRATA, resamples=20))


def test_kept_counts_are_bounded(monkeypatch):
    monkeypatch.setattr(bootstrap, "_KEPT_BYTES", 3 * 7 * 50)
    for seed in range(8):
        _counts(STRATA, seed)
    assert sum(kept.nbytes for kept in bootstrap._DRAWN.values()) <= 3 * 7 * 50


def _tables(levels):
    rng = np.random.default_rng(5)
    labels = (rng.random(120) < 0.3).astype(int)
    scores = rng.normal(labels, 1.0)
    times, risks = rng.exponential(10, 120), rng.normal(size=120)
    if levels:
        scores, times, risks = np.round(scores), np.ceil(times), np.round(risks)
    return labels, scores, times, risks


@pytest.mark.parametrize("levels", [False, True])
def test_statistics_of_counts_are_those_of_duplicated_rows(levels):
    labels, scores, times, risks = _tables(levels)
    counts = _counts(labels, resamples=30)
    known = {
        "auroc": (auroc(labels, scores), lambda d: roc_auc_score(labels[d], scores[d])),
        "auprc": (auprc(labels, scores), lambda d: average_precision_score(labels[d], scores[d])),
        "c-index": (
            concordance(times, labels, risks),
            lambda d: concordance_index(times[d], -risks[d], labels[d]),
        ),
        "mean": (bootstrap.mean(scores), lambda d: scores[d].mean()),
        "share": (
            bootstrap.share(labels * (scores > 0), scores > 0),
            lambda d: labels[d][scores[d] > 0].mean(),
        ),
    }
    for name, (statistic, by_library) in known.items():
        values = statistic(counts)
        assert np.array_equal(values, statistic(counts.astype(float))) or name == "mean"
        expected = [by_library(np.repeat(np.arange(120), column)) for column in counts.T]
        assert values == pytest.approx(expected, abs=1e-12), name


def test_a_statistic_of_some_rows_reads_them_from_the_whole_table():
    labels, scores, times, risks = _tables(True)
    rows = np.flatnonzero(np.arange(120) % 3 > 0)
    counts = _counts(labels, resamples=10)
    for statistic in (
        auroc(labels[rows], scores[rows]),
        auprc(labels[rows], scores[rows]),
        concordance(times[rows], labels[rows], risks[rows]),
        bootstrap.mean(scores[rows]),
        bootstrap.Means(np.stack([scores[rows], risks[rows]])),
        bootstrap.average([auroc(labels[rows], scores[rows])]),
    ):
        assert np.array_equal(statistic.at(rows)(counts), statistic(counts[rows]))


def test_weights_of_another_table_are_refused():
    labels, scores, *_ = _tables(False)
    with pytest.raises(ValueError, match="the weights are of 60 rows"):
        auroc(labels, scores)(np.ones((60, 1)))


def test_sums_of_coded_columns_and_of_others_are_a_matrix_product():
    rng = np.random.default_rng(0)
    columns = np.stack(
        [rng.integers(0, 2, 200), rng.normal(size=200), np.full(200, 7.0)]
        + [rng.integers(0, 3, 200) / 4 for _ in range(9)]
    ).astype(float)
    counts = _counts(np.zeros(200), resamples=25)
    expected = columns @ counts.astype(float)
    assert bootstrap.weighted_sums(columns, counts) == pytest.approx(expected, abs=1e-12)


def test_functions_that_know_no_counts_get_the_same_resamples_in_float64():
    labels, scores, *_ = _tables(False)
    ranked = auroc(labels, scores)

    def opaque(weights):
        assert weights.dtype == np.float64
        return ranked(weights)

    both = bootstrap.bootstrap_all(
        {"counted": ranked, "opaque": opaque}, labels, np.random.default_rng(0)
    )
    assert np.array_equal(both["counted"].samples, both["opaque"].samples)


# DeLong ------------------------------------------------------------------------------------------


def test_delong_is_the_variance_of_its_components():
    labels, scores, *_ = _tables(True)
    hits, misses = scores[labels == 1], scores[labels == 0]
    wins = (hits[:, None] > misses) + 0.5 * (hits[:, None] == misses)
    variance = wins.mean(axis=1).var(ddof=1) / len(hits)
    variance += wins.mean(axis=0).var(ddof=1) / len(misses)
    interval = delong(labels, scores)
    assert interval.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert interval.high - interval.value == pytest.approx(1.959964 * variance**0.5, rel=1e-6)
    assert interval.value - interval.low == pytest.approx(1.959964 * variance**0.5, rel=1e-6)


def test_delong_is_as_wide_as_the_bootstrap():
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1], [600, 200])
    scores = rng.normal(size=800) + labels
    low, high = bootstrap.bootstrap(auroc(labels, scores), labels, rng).interval
    interval = delong(labels, scores)
    assert high - low == pytest.approx(interval.high - interval.low, rel=0.08)


def test_delong_needs_two_rows_of_each_class():
    with pytest.raises(NotComputable, match="two rows of each class"):
        delong([0, 0, 1], [0.1, 0.2, 0.3])
