"""The genetic search of Private-GSD against one that stores and counts every dataset in full."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench import InputError
from bench.methods.marginal.projection._adaptive import Measured
from bench.methods.marginal.projection._genetic import Search, Targets, evolved, marginal
from bench.methods.marginal.projection.private_gsd import PrivateGsd

SIZES = (3, 2, 4, 2)


def counted(table: np.ndarray, weights: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    """A weighted marginal, row by row."""
    shares = np.zeros([SIZES[column] for column in columns])
    for row, weight in zip(table, weights, strict=True):
        shares[tuple(row[list(columns)])] += weight
    return shares


def loss(table: np.ndarray, weights: np.ndarray, measured: list[Measured]) -> float:
    largest = max(one.deviation for one in measured)
    return sum(
        (largest / one.deviation) ** 2
        * float(np.square(counted(table, weights, one.columns) - one.shares).sum())
        for one in measured
    )


def in_full(
    population: list[np.ndarray],
    weights: np.ndarray,
    measured: list[Measured],
    search: Search,
    rng: np.random.Generator,
) -> np.ndarray:
    """The same search, where every member of the elite is a table and every loss is computed."""
    losses = [loss(one, weights, measured) for one in population]
    best = int(np.argmin(losses))
    order = [best, *(place for place in range(len(population)) if place != best)]
    elite = [(losses[place], population[place]) for place in order]
    table, current = population[best], losses[best]
    unchanged = 0
    for _ in range(search.generations):
        better = None
        for number in range(search.mutations + search.crossovers):
            row = int(rng.random() * len(table))
            column = int(rng.random() * (len(SIZES) - 1))
            if number < search.mutations:
                code = int(rng.random() * SIZES[column])
            else:
                member = elite[int(rng.random() * len(elite))][1]
                code = member[int(rng.random() * len(table)), column]
            if code == table[row, column]:
                continue
            candidate = table.copy()
            candidate[row, column] = code
            value = loss(candidate, weights, measured)
            worst = int(np.argmax([one for one, _ in elite]))
            if value < elite[worst][0] - 1e-12:
                elite[worst] = (value, candidate)
            if value < current - 1e-12 and (better is None or value < better[0] - 1e-12):
                better = (value, candidate)
        if better is None:
            unchanged += 1
            if unchanged >= search.patience:
                break
            continue
        unchanged = 0
        current, table = better
    return table


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("search", [Search(60, 4, 0, 1, 20), Search(60, 3, 5, 3, 20)])
def test_the_search_is_that_of_whole_datasets(seed: int, search: Search) -> None:
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], 9)
    # Weights and marginals without symmetries: no two candidates have the same loss.
    weights = rng.dirichlet(np.ones(len(labels)))
    measured = [
        Measured(one, rng.normal(0.2, 0.2, [SIZES[c] for c in one]), float(rng.uniform(0.5, 2)))
        for one in [(0,), (0, 1), (1, 2), (0, 3), (0, 2, 3)]
    ]
    population = [
        np.column_stack([*(rng.integers(0, size, len(labels)) for size in SIZES[:-1]), labels])
        for _ in range(search.elite)
    ]
    expected = in_full(population, weights, measured, search, np.random.default_rng(seed))
    targets = Targets.of(measured, len(SIZES))
    before = [one.copy() for one in population]
    found = evolved(population, weights, SIZES, targets, search, np.random.default_rng(seed))
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, population[0])
    assert all(np.array_equal(a, b) for a, b in zip(population, before, strict=True))
    assert targets.loss(found, weights) == pytest.approx(loss(found, weights, measured))
    assert (found[:, -1] == labels).all()


def test_marginals_have_their_axes_in_the_order_that_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(0, size, 20) for size in SIZES])
    weights = rng.dirichlet(np.ones(20))
    for length in (1, 2, 3):
        for columns in itertools.permutations(range(4), length):
            made = marginal(table, weights, SIZES, columns)
            assert made == pytest.approx(counted(table, weights, columns))


def test_one_shot_asks_for_all_pairs_at_once() -> None:
    from bench import build_dataset
    from tests.methods.marginal.projection.test_projection import released
    from tests.support.tables import ToyTable

    method = PrivateGsd(bins=4, records=40, generations=50, selection="one-shot")
    _, ledger = released(method, build_dataset(ToyTable()), 1.0, ipc=20)
    assert len(ledger.entries) == 1
    assert 0.99 < ledger.proof().epsilon <= 1.0


@pytest.mark.parametrize("wrong", [{"elite": 0}, {"mutations": 0, "crossovers": 0}, {"records": 0}])
def test_parameters_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="private-gsd"):
        PrivateGsd(**wrong)  # type: ignore[arg-type]
