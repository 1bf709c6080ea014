"""The tree of noisy pairs: which pairs, what it keeps, what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.data.dataset import Dataset
from bench.methods.marginal.marginals import Marginals
from bench.methods.marginal.noisy_tree import NoisyTree, chosen_pairs
from bench.plugins.method import Spec
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.privacy.events import in_words
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyGaps, ToyOneFeature, ToyTable

TREE = NoisyTree(steps=100)


def test_dependent_pairs_are_chosen_and_independent_ones_are_not() -> None:
    linked, free = np.array([[50.0, 0.0], [0.0, 50.0]]), np.full((2, 2), 25.0)
    weaker = np.array([[40.0, 10.0], [10.0, 40.0]])
    tables = {(0, 1): linked, (0, 2): weaker, (1, 2): weaker - 1.0, (0, 3): free}
    tables |= {(1, 3): free, (2, 3): free}
    # Without a loop: the weakest of three that depend on each other is left out.
    assert chosen_pairs(tables, 100, 0.0, 4) == [(0, 1), (0, 2)]
    assert chosen_pairs(tables, 100, 19.5, 4) == [(0, 1)]  # noise alone would explain the others
    assert chosen_pairs(tables, 100, 1e3, 4) == []


def released(
    source: ToyTable | ToyGaps | ToyOneFeature, epsilon: float, method: NoisyTree = TREE
) -> tuple[object, Ledger]:
    data, budget = build_dataset(source), Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    spec = Spec(data.task, 2000, budget)
    release = method.synthesize(private, spec, np.random.default_rng(1))
    assert release.rows is not None
    return data.encoder.decode(release.rows.values, release.rows.labels), ledger


@pytest.mark.parametrize("source", [ToyTable(), ToyGaps(), ToyOneFeature()])
def test_the_budget_is_spent_and_not_more_however_small_the_forest(source: ToyTable) -> None:
    """At a small epsilon no pair is beyond the noise: the tables that are left out are made up."""
    for epsilon in (0.01, 1.0):
        for method in (TREE, NoisyTree(steps=20, discretiser="quantile")):
            proof = released(source, epsilon, method)[1].proof()
            assert 0.99 * epsilon < proof.epsilon <= epsilon
            assert not proof.trust


def test_two_rounds_of_gaussians_are_all_that_is_recorded() -> None:
    _, ledger = released(ToyGaps(), 1.0)
    assert all("Gaussian" in in_words(entry.event) for entry in ledger.entries)
    assert not any(entry.adaptive for entry in ledger.entries)


def _by_marginals(data: Dataset, budget: Budget) -> float:
    private, _ = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    spec = Spec(data.task, 3000, budget)
    rows = Marginals().synthesize(private, spec, np.random.default_rng(1)).rows
    assert rows is not None
    first = rows.labels == 0  # within a class: both columns differ between classes
    return float(np.corrcoef(rows.values[first, 0], rows.values[first, 1])[0, 1])


def test_dependence_within_a_class_is_kept() -> None:
    """Marker and age are drawn independently by `marginals`; here their relation is measured."""
    rng = np.random.default_rng(3)
    data = build_dataset(ToyTable(negatives=3000, positives=3000))
    values = data.train.rows.values.copy()
    values[:, 1] = np.clip(values[:, 0] + rng.normal(0, 0.05, len(values)), -1, 1)
    rows = replace(data.train.rows, values=values.astype(np.float32))
    data = replace(data, train=replace(data.train, rows=rows))
    budget = Budget(10.0, 1e-5)
    private, _ = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    release = NoisyTree().synthesize(private, Spec(data.task, 3000, budget), rng)
    assert release.rows is not None
    real = np.corrcoef(values[:, 0], values[:, 1])[0, 1]
    made = np.corrcoef(release.rows.values[:, 0], release.rows.values[:, 1])[0, 1]
    assert made == pytest.approx(real, abs=0.2)
    assert abs(_by_marginals(data, budget)) < 0.3
