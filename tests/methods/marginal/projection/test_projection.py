"""RAP, GEM and Private-GSD: the loop that they share, and relaxed rows against sums by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from bench import Budget, InputError, Method, Rows, SeededNoise, Spec, build_dataset, open_private
from bench.data.dataset import Dataset
from bench.methods.marginal.projection._adaptive import AdaptiveProjection, Measured
from bench.methods.marginal.projection._mixture import marginal
from bench.methods.marginal.projection.gem import Gem
from bench.methods.marginal.projection.private_gsd import PrivateGsd
from bench.methods.marginal.projection.rap import Rap
from bench.privacy.ledger import Ledger
from tests.support.tables import ToyClasses, ToyGaps, ToyOneFeature, ToySurvival, ToyTable

SMALL: tuple[AdaptiveProjection, ...] = (
    Rap(bins=4, rounds=2, per_round=2, relaxed_rows=40, steps=10),
    Gem(bins=4, rounds=3, batch=40, hidden=(8,), steps=10),
    PrivateGsd(bins=4, rounds=2, per_round=2, records=40, generations=50),
    PrivateGsd(bins=4, records=40, generations=50, selection="one-shot"),
    PrivateGsd(bins=4, rounds=2, records=40, generations=50, discretiser="quantile"),
)


def released(method: Method, data: Dataset, epsilon: float, ipc: int) -> tuple[Rows, Ledger]:
    budget = Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    release = method.synthesize(private, Spec(data.task, ipc, budget), np.random.default_rng(1))
    assert release.rows is not None
    return release.rows, ledger


@pytest.mark.parametrize("method", SMALL, ids=repr)
@pytest.mark.parametrize(
    "source", [ToyTable(), ToyGaps(), ToyOneFeature(), ToyClasses(), ToySurvival()], ids=repr
)
def test_the_budget_is_spent_in_advance_and_nobody_is_trusted(
    method: AdaptiveProjection, source: ToyTable
) -> None:
    rows, ledger = released(method, build_dataset(source), 1.0, ipc=20)
    proof = ledger.proof()
    assert 0.9 < proof.epsilon <= 1.0
    assert not proof.trust and not proof.reasons
    assert not any(entry.adaptive for entry in ledger.entries)
    assert np.bincount(rows.labels.astype(int)).tolist() == [20] * len(set(rows.labels))


@pytest.mark.parametrize("method", SMALL, ids=repr)
def test_the_same_noise_gives_the_same_rows(method: AdaptiveProjection) -> None:
    first, second = (released(method, build_dataset(ToyGaps()), 1.0, ipc=9)[0] for _ in range(2))
    assert np.array_equal(first.values, second.values, equal_nan=True)


@pytest.mark.parametrize(
    "method",
    [
        Rap(rounds=2, per_round=3, relaxed_rows=100, steps=60),
        Gem(rounds=6, batch=200, hidden=(64,), steps=100),
        PrivateGsd(rounds=2, per_round=3, records=1000, generations=20_000),
        PrivateGsd(records=1000, generations=20_000, selection="one-shot", discretiser="privtree"),
    ],
    ids=repr,
)
def test_dependence_is_found_and_kept(method: AdaptiveProjection) -> None:
    rng = np.random.default_rng(3)
    data = build_dataset(ToyTable(negatives=3000, positives=3000))
    values = data.train.rows.values.copy()
    values[:, 1] = np.clip(values[:, 0] + rng.normal(0, 0.05, len(values)), -1, 1)
    data = replace(data, train=replace(data.train, rows=replace(data.train.rows, values=values)))
    rows, _ = released(method, data, 10.0, ipc=1500)
    real = np.corrcoef(values[:, 0], values[:, 1])[0, 1]
    assert np.corrcoef(rows.values[:, 0], rows.values[:, 1])[0, 1] == pytest.approx(real, abs=0.2)


def test_a_marginal_is_the_weighted_sum_of_products() -> None:
    random = torch.Generator().manual_seed(0)
    columns = [torch.rand(7, size, generator=random).softmax(dim=1) for size in (2, 3, 4)]
    weights = torch.rand(7, generator=random)
    for length in (1, 2, 3):
        for chosen in itertools.permutations(range(3), length):
            table = marginal(columns, weights, chosen)
            for cell in itertools.product(*(range(columns[place].shape[1]) for place in chosen)):
                expected = sum(
                    float(weights[row])
                    * np.prod(
                        [float(columns[p][row, x]) for p, x in zip(chosen, cell, strict=True)]
                    )
                    for row in range(7)
                )
                assert float(table[cell]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "method",
    [
        Rap(relaxed_rows=100),
        Gem(batch=100, hidden=(64,), steps=200),
        PrivateGsd(records=600, generations=10_000),
    ],
)
def test_a_projection_fits_marginals_and_draws_every_class(method: AdaptiveProjection) -> None:
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(24)).reshape(3, 4, 2)
    classes = joint.sum(axis=(0, 1))
    projection = method.start((3, 4, 2), classes, rng)
    # The label is not fitted: it is exact from the start.
    assert projection.shares((2,)) == pytest.approx(classes, abs=1e-5)
    measured = [Measured((0, 2), joint.sum(axis=1), 0.01), Measured((0, 1, 2), joint, 0.01)]
    for _ in range(4):
        projection.fit(measured)
    assert np.abs(projection.shares((0, 1, 2)) - joint).sum() < 0.05
    for label in (0, 1):
        drawn = projection.draw(label, 4000, rng)
        made = np.zeros((3, 4))
        np.add.at(made, (drawn[:, 0], drawn[:, 1]), 1 / 4000)
        assert np.abs(made - joint[:, :, label] / classes[label]).sum() < 0.12


def test_the_three_kinds_of_noise_cost_the_budget_together() -> None:
    method = Rap(rounds=3, per_round=2, columns_share=0.2, choice_share=0.25)
    single, epsilon, counts = method._noise(2.0)
    rho = 0.5 / single**2, 6 * epsilon**2 / 8, 6 * 0.5 / counts**2
    assert sum(rho) == pytest.approx(0.5 / 2.0**2)
    assert np.array(rho) / sum(rho) == pytest.approx([0.2, 0.8 * 0.25, 0.8 * 0.75])


def test_the_workload_has_small_marginals_of_two_and_three_columns() -> None:
    assert Rap()._workload((2, 3, 4)) == [(0, 1), (0, 2), (1, 2), (0, 1, 2)]
    assert Rap(marginal_cells=8)._workload((2, 3, 4)) == [(0, 1), (0, 2)]
    assert Rap(degree=2)._workload((2, 3, 4)) == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    "wrong", [{"rounds": 0}, {"degree": 1}, {"choice_share": 1.0}, {"columns_share": 0.0}]
)
def test_parameters_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected positive numbers"):
        Rap(**wrong)  # type: ignore[arg-type]
