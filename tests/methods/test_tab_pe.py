"""Private evolution of tables: votes, selection and variations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench import Budget, InputError, Rows, SeededNoise, Spec, build_dataset, gaussian, open_private
from bench.data.dataset import Dataset
from bench.methods.tab_pe import Domain, TabPe, drawn, largest
from bench.privacy.ledger import Ledger
from tests.support.tables import ToyClasses, ToyGaps, ToyOneFeature, ToySurvival, ToyTable

SMALL = TabPe(samples=15, rounds=4, sampled_rounds=2)


def released(method: TabPe, data: Dataset, epsilon: float, ipc: int) -> tuple[Rows, Ledger]:
    budget = Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    release = method.synthesize(private, Spec(data.task, ipc, budget), np.random.default_rng(1))
    assert release.rows is not None
    return release.rows, ledger


@pytest.mark.parametrize(
    "source", [ToyTable(), ToyGaps(), ToyOneFeature(), ToyClasses(), ToySurvival()], ids=repr
)
def test_the_budget_is_spent_on_one_gaussian_per_class_and_round(source: ToyTable) -> None:
    rows, ledger = released(SMALL, build_dataset(source), 1.0, ipc=20)
    proof = ledger.proof()
    assert 0.9 < proof.epsilon <= 1.0
    assert not proof.trust and not proof.reasons
    assert not any(entry.adaptive for entry in ledger.entries)
    assert len({repr(entry.event) for entry in ledger.entries}) == 1
    assert np.bincount(rows.labels.astype(int)).tolist() == [20] * len(set(rows.labels))


def test_the_same_noise_gives_the_same_rows() -> None:
    first, second = (released(SMALL, build_dataset(ToyGaps()), 1.0, ipc=9)[0] for _ in range(2))
    assert np.array_equal(first.values, second.values, equal_nan=True)


def test_rows_vote_for_the_nearest_candidate() -> None:
    rng = np.random.default_rng(0)
    data = build_dataset(ToyGaps())
    domain = Domain(data.encoder)
    candidates = domain.random(40, rng)
    rows = data.train.rows
    votes = domain.nearest(candidates)(rows)[:, 0]
    own = domain.table(rows.values)
    numbers = np.array([size == 0 for size in domain.categories])
    # Numbers are in [-1, 1], a range of 2; another category is sqrt(2) / 3 away.
    far = (np.square((own[:, None] - candidates[None]) / 2.0) * numbers).sum(axis=2)
    far += ((own[:, None] != candidates[None]) & ~numbers).sum(axis=2) * 2.0 / 9.0
    nearest = np.sqrt(far.min(axis=1))
    assert np.sqrt(far[np.arange(len(far)), votes]) == pytest.approx(nearest, abs=0.01)
    assert (votes == far.argmin(axis=1)).mean() > 0.9
    alone = [domain.nearest(candidates)(rows.take(np.arange(len(rows)) == n))[0, 0] for n in (0, 7)]
    assert alone == votes[[0, 7]].tolist()


def test_variations_stay_in_the_domain_and_move_by_the_rate() -> None:
    rng = np.random.default_rng(0)
    domain = Domain(build_dataset(ToyGaps()).encoder)
    table = domain.random(3000, rng)
    for rate in (0.5, 0.01):
        new = domain.varied(table, rate, rng)
        for place, size in enumerate(domain.categories):
            if size:
                assert set(new[:, place]) <= set(range(size))
                changed = (new[:, place] != table[:, place]).mean()
                assert changed == pytest.approx(rate * (1 - 1 / size), abs=0.03)
            else:
                assert np.abs(new[:, place]).max() <= 1.0
                steps = np.abs(new[:, place] - table[:, place])
                column = domain.encoder.blocks[place].column
                step = 2.0 / (column.high - column.low)  # type: ignore[attr-defined]
                slack = step if column.integer else 1e-9  # type: ignore[attr-defined]
                assert steps.max() <= 2.0 * rate + slack


def test_tables_become_rows_and_back() -> None:
    for source in (ToyClasses(), ToySurvival(), ToyGaps()):
        domain = Domain(build_dataset(source).encoder)
        table = domain.random(50, np.random.default_rng(0))
        again = domain.table(domain.values(table))
        for place, block in enumerate(domain.encoder.blocks):
            indicator = domain.encoder.indicator(block)
            present = np.ones(50, dtype=bool)
            if indicator is not None:
                present = table[:, domain.encoder.blocks.index(indicator)] == 1
            # A number that is missing becomes the stand-in.
            assert again[present, place] == pytest.approx(table[present, place], abs=1e-6)


def test_the_rate_falls_as_published() -> None:
    method = TabPe()
    assert (method.rate(0), method.rate(30)) == pytest.approx((0.5, 0.01))
    assert method.rate(15) == pytest.approx(0.5 - 0.49 * 0.5**0.2)


def test_selection_by_votes() -> None:
    votes = np.array([-4.0, 3.0, 0.0, 9.0])
    assert largest(votes, 2).tolist() == [3, 1]
    places = drawn(votes, 4000, np.random.default_rng(0))
    assert np.bincount(places, minlength=4) / 4000 == pytest.approx([0, 0.25, 0, 0.75], abs=0.03)
    assert set(drawn(-votes[1:], 100, np.random.default_rng(0))) == {0, 1, 2}


def test_dependence_is_found_and_kept() -> None:
    rng = np.random.default_rng(3)
    data = build_dataset(ToyTable(negatives=3000, positives=3000))
    values = data.train.rows.values.copy()
    values[:, 1] = np.clip(values[:, 0] + rng.normal(0, 0.05, len(values)), -1, 1)
    data = replace(data, train=replace(data.train, rows=replace(data.train.rows, values=values)))
    rows, ledger = released(TabPe(samples=100, rounds=12), data, 10.0, ipc=300)
    real = np.corrcoef(values[:, 0], values[:, 1])[0, 1]
    assert np.corrcoef(rows.values[:, 0], rows.values[:, 1])[0, 1] == pytest.approx(real, abs=0.2)
    assert all(type(entry.event) is type(gaussian(1.0)) for entry in ledger.entries)


@pytest.mark.parametrize(
    "wrong", [{"samples": 0}, {"rounds": 0}, {"last_rate": 0.9}, {"first_rate": 1.5}, {"decay": 0}]
)
def test_parameters_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected positive numbers"):
        TabPe(**wrong)  # type: ignore[arg-type]
