"""Methods that let the kernel select what they count: MST, AIM, PrivBayes and PrivSyn."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from bench import Budget, InputError, Method, Rows, SeededNoise, Spec, build_dataset, open_private
from bench.data.dataset import Dataset
from bench.methods.marginal.aim_kernel import AimKernel
from bench.methods.marginal.mst_kernel import MstKernel
from bench.methods.marginal.privbayes import PrivBayes, drawn, parent_sets
from bench.methods.marginal.privsyn import PrivSyn
from bench.privacy.events import in_words
from bench.privacy.ledger import Ledger
from tests.support.tables import ToyClasses, ToyGaps, ToyOneFeature, ToySurvival, ToyTable

METHODS = (
    MstKernel(bins=4, steps=60),
    MstKernel(bins=4, steps=60, by_class=False),
    AimKernel(bins=4, steps=20, rounds=2.0, last_steps=60),
    PrivBayes(bins=4, candidates=20),
    PrivBayes(bins=4, noise="laplace"),
    PrivSyn(bins=4, updates=5, records=200),
    MstKernel(bins=4, steps=60, discretiser="privtree"),
    AimKernel(bins=4, steps=20, rounds=2.0, last_steps=60, discretiser="quantile"),
    PrivBayes(bins=4, noise="laplace", discretiser="privtree"),
    PrivSyn(bins=4, updates=5, records=200, discretiser="quantile", discretiser_share=0.3),
)


def released(method: Method, data: Dataset, epsilon: float, ipc: int = 200) -> tuple[Rows, Ledger]:
    budget = Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    release = method.synthesize(private, Spec(data.task, ipc, budget), np.random.default_rng(1))
    assert release.rows is not None
    return release.rows, ledger


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(
    "source", [ToyTable(), ToyGaps(), ToyOneFeature(), ToyClasses(), ToySurvival()], ids=repr
)
def test_the_budget_is_spent_and_nobody_is_trusted(method: Method, source: ToyTable) -> None:
    for epsilon in (0.1, 3.0):
        rows, ledger = released(method, build_dataset(source), epsilon, ipc=20)
        proof = ledger.proof()
        assert 0.9 * epsilon < proof.epsilon <= epsilon
        assert not proof.trust and not proof.reasons
        assert np.bincount(rows.labels.astype(int)).tolist() == [20] * len(set(rows.labels))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_the_same_noise_gives_the_same_rows(method: Method) -> None:
    first, second = (released(method, build_dataset(ToyGaps()), 1.0)[0] for _ in range(2))
    assert np.array_equal(first.values, second.values, equal_nan=True)


def linked() -> tuple[Dataset, float]:
    """A table whose two numbers are nearly equal within each class."""
    rng = np.random.default_rng(3)
    data = build_dataset(ToyTable(negatives=3000, positives=3000))
    values = data.train.rows.values.copy()
    values[:, 1] = np.clip(values[:, 0] + rng.normal(0, 0.05, len(values)), -1, 1)
    rows = replace(data.train.rows, values=values.astype(np.float32))
    real = np.corrcoef(values[:, 0], values[:, 1])[0, 1]
    return replace(data, train=replace(data.train, rows=rows)), float(real)


@pytest.mark.parametrize(
    "method",
    [
        MstKernel(steps=200),
        MstKernel(steps=600, by_class=False),
        AimKernel(last_steps=200, steps=30, rounds=4.0),
        AimKernel(last_steps=200, steps=30, rounds=4.0, degree=3),
        PrivBayes(),
        PrivBayes(noise="laplace"),
        PrivSyn(updates=40, records=3000),
    ],
    ids=repr,
)
def test_dependence_is_found_and_kept(method: Method) -> None:
    data, real = linked()
    rows, _ = released(method, data, 10.0, ipc=1500)
    made = np.corrcoef(rows.values[:, 0], rows.values[:, 1])[0, 1]
    assert made == pytest.approx(real, abs=0.2)


def test_choices_and_counts_of_mst_are_fixed_in_advance_and_those_of_aim_are_not() -> None:
    fixed = released(METHODS[0], build_dataset(ToyGaps()), 1.0)[1]
    assert not any(entry.adaptive for entry in fixed.entries)
    words = {in_words(entry.event).split(",")[0] for entry in fixed.entries}
    assert words == {"Gaussian noise", "zero-concentrated DP"}
    assert any(
        entry.adaptive for entry in released(METHODS[2], build_dataset(ToyGaps()), 1.0)[1].entries
    )


def test_weights_of_aim_count_the_columns_in_common() -> None:
    weights = AimKernel(degree=2)._workload((2, 3, 4))
    # Pairs of three columns: (0, 1) shares two with itself and one with each of the others.
    assert weights == {(0,): 2, (1,): 2, (2,): 2, (0, 1): 4, (0, 2): 4, (1, 2): 4}
    assert (1, 2) not in AimKernel(marginal_cells=11)._workload((2, 3, 4))


class TestPrivBayes:
    def test_parent_sets_are_maximal_and_small_enough(self) -> None:
        sizes = (2, 3, 4, 5)
        for most in (1, 2, 6, 12, 24, 1000):
            found = set(parent_sets([0, 1, 2, 3], sizes, most))
            fitting = [
                set(one)
                for length in range(5)
                for one in itertools.combinations(range(4), length)
                if np.prod([sizes[column] for column in one]) <= most
            ]
            maximal = {tuple(sorted(a)) for a in fitting if not any(a < b for b in fitting)}
            assert found == maximal

    def test_rows_follow_the_network(self) -> None:
        rng = np.random.default_rng(0)
        # Column 0 equals the label; column 1 is column 0 reversed; -1 counts as nothing.
        copied = np.array([[9.0, -1.0], [0.0, 7.0]])
        swapped = np.array([[-2.0, 5.0], [3.0, 0.0]])
        rows = drawn([(0, (2,)), (1, (0,))], [copied, swapped], (2, 2, 2), [3, 4], rng)
        assert rows[:, 2].tolist() == rows[:, 0].tolist() == [0] * 3 + [1] * 4
        assert rows[:, 1].tolist() == [1] * 3 + [0] * 4

    @pytest.mark.parametrize("wrong", [{"beta": 0.0}, {"beta": 1.0}, {"theta": 0.0}])
    def test_parameters_are_checked(self, wrong: dict[str, float]) -> None:
        with pytest.raises(InputError, match="expected beta between 0 and 1"):
            PrivBayes(**wrong)  # type: ignore[arg-type]
