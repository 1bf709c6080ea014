"""Natural breaks against hand tables and against trying every partition."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from bench.metrics.privacy.disclosure import _jenks
from bench.metrics.privacy.disclosure._jenks import natural_breaks


def within(values: npt.NDArray[np.float64], upper: npt.NDArray[np.float64]) -> float:
    """Squared deviations inside the classes, without any trick."""
    places = np.searchsorted(upper, values)
    return sum(
        float(((values[places == place] - values[places == place].mean()) ** 2).sum())
        for place in np.unique(places)
    )


def best_by_trying(values: npt.NDArray[np.float64], classes: int) -> float:
    distinct = np.unique(values)
    return min(
        within(values, np.array([*inner, distinct[-1]]))
        for inner in combinations(distinct[:-1], classes - 1)
    )


def test_a_hand_table():
    """1 2 3 | 10 11 12: 4 of 125.5 squared deviations stay inside the two classes."""
    breaks = natural_breaks([12, 1, 10, 3, 11, 2])
    assert breaks.upper.tolist() == [3.0, 12.0]
    assert breaks.goodness == pytest.approx(1 - 4 / 125.5)
    assert breaks.classes([0, 3, 3.5, 12, 99]).tolist() == [0, 0, 1, 1, 1]
    assert not breaks.grouped


def test_the_first_number_of_classes_above_the_goodness():
    values = [1, 2, 3, 10, 11, 12]
    assert len(natural_breaks(values, 0.0)) == 2  # one class explains nothing
    assert len(natural_breaks(values, 1 - 4 / 125.5 + 1e-9)) == 3


@pytest.mark.parametrize("seed", range(30))
def test_no_partition_is_better(seed):
    rng = np.random.default_rng(seed)
    values = rng.choice([rng.normal(size=9), np.round(rng.exponential(3, 9))][seed % 2], 25)
    values = values + (1e6 if seed % 3 == 0 else 0.0)  # far from zero
    breaks = natural_breaks(values)
    total = float(((values - values.mean()) ** 2).sum())
    assert 1 - within(values, breaks.upper) / total == pytest.approx(breaks.goodness, abs=1e-9)
    assert 1 - best_by_trying(values, len(breaks)) / total == pytest.approx(
        breaks.goodness, abs=1e-9
    )
    assert breaks.goodness > 0.8
    fewer = len(breaks) - 1
    assert fewer == 0 or 1 - best_by_trying(values, fewer) / total <= 0.8 + 1e-12


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_units_do_not_matter(scale):
    values = np.random.default_rng(1).gamma(2.0, size=200)
    assert len(natural_breaks(values * scale)) == len(natural_breaks(values))


def test_a_constant_is_one_class():
    breaks = natural_breaks([0.1] * 7)
    assert len(breaks) == 1
    assert breaks.goodness == 1.0
    assert breaks.classes([0.0, 0.1, 5.0]).tolist() == [0, 0, 0]


def test_many_distinct_values_are_grouped_first_and_nearly_nothing_is_lost(monkeypatch):
    values = np.random.default_rng(2).normal(size=1500)
    grouped = natural_breaks(values)
    monkeypatch.setattr(_jenks, "DISTINCT_AT_MOST", 10_000)
    exact = natural_breaks(values)
    assert grouped.grouped
    assert not exact.grouped
    assert len(grouped) == len(exact)
    assert grouped.goodness == pytest.approx(exact.goodness, abs=1e-4)
    # The stated goodness holds for the ungrouped values.
    total = float(((values - values.mean()) ** 2).sum())
    assert grouped.goodness == pytest.approx(1 - within(values, grouped.upper) / total, abs=1e-9)


def test_one_heavy_value_among_many():
    values = np.concatenate([np.zeros(50_000), np.arange(1.0, 5001.0)])
    breaks = natural_breaks(values)
    assert breaks.grouped
    assert breaks.goodness > 0.8
    assert breaks.classes([0.0])[0] == 0


def test_missing_values_are_refused():
    with pytest.raises(ValueError, match="no missing"):
        natural_breaks([1.0, np.nan])
