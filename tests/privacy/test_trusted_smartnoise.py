"""MST, AIM and MWEM as they are called: what they spend is what is charged, and what they choose.

Noise and choices of the library are replaced by scripted ones that take note of their arguments, so
that every private step is compared with its formula. In the methods' own environment:
`<environment>/bin/python -P -m pytest -m isolated` and this file.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from bench.data.encoder import EncodedRows
from bench.errors import PrivacyContractError
from bench.privacy.trusted import mwem, smartnoise
from bench.privacy.trusted.smartnoise import NoisyMarginal, NoisyMarginals

pytestmark = [
    pytest.mark.isolated,
    pytest.mark.skipif(
        importlib.util.find_spec("snsynth") is None,
        reason="smartnoise-synth is not installed in this environment",
    ),
]

RHO = 0.3
SIZES = (2, 3, 2, 2)
NOISE = 0.3
"""Not a multiple of 1/1024: what is released is."""
GRID_NOISE = round(NOISE * 1024) / 1024


def table(rows: int = 4000) -> np.ndarray:
    """Codes of four columns; all codes are frequent, and some pairs depend on each other."""
    rng = np.random.default_rng(2)
    first = rng.integers(0, 2, rows)
    second = np.where(rng.random(rows) < 0.5, first, rng.integers(0, 3, rows))
    third = np.where(rng.random(rows) < 0.9, first, rng.integers(0, 2, rows))
    label = rng.integers(0, 2, rows)
    return np.stack([first, second, third, label], axis=1)


def as_rows(codes: np.ndarray) -> EncodedRows:
    count = len(codes)
    return EncodedRows(
        codes.astype(np.float32),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.float64),
    )


def parameters(totals: Sequence[float], **others: Any) -> dict[str, Any]:
    return {
        "rho": RHO,
        "codes": lambda rows: rows.values,
        "sizes": SIZES,
        "totals": totals,
        **others,
    }


def counted(codes: np.ndarray, columns: Sequence[int], sizes: Sequence[int] = SIZES) -> np.ndarray:
    found = np.zeros([sizes[column] for column in columns])
    np.add.at(found, tuple(codes[:, column] for column in columns), 1.0)
    return found


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@dataclass
class Spending:
    """What the private steps were called with."""

    deviations: list[float] = field(default_factory=list)
    choices: list[tuple[np.ndarray, float]] = field(default_factory=list)

    @property
    def rho(self) -> float:
        counts = sum(0.5 / deviation**2 for deviation in self.deviations)
        return counts + sum(epsilon**2 / 8 for _, epsilon in self.choices)


# MST ----------------------------------------------------------------------------------------------


@pytest.fixture
def mst(monkeypatch: pytest.MonkeyPatch) -> Spending:
    from snsynth.mst import mst as library

    spent = Spending()

    def noise(deviation: float, size: int) -> list[float]:
        spent.deviations.append(deviation)
        return [NOISE] * size

    def choose(self: Any, scores: np.ndarray, epsilon: float, sensitivity: float) -> int:
        assert sensitivity == 1.0
        spent.choices.append((scores, epsilon))
        return int(np.argmax(scores))

    monkeypatch.setattr(library, "gaussian_noise", noise)
    monkeypatch.setattr(library.MSTSynthesizer, "exponential_mechanism", choose)
    return spent


def run_mst(table: np.ndarray, **given: Any) -> tuple[NoisyMarginals, ...]:
    return smartnoise.run_mst(as_rows(table), None, generator(), given)  # type: ignore[arg-type]


def distances(
    codes: np.ndarray, total: float, sizes: Sequence[int]
) -> dict[tuple[int, int], float]:
    """L1 distances of pairs from independence, by brute force."""
    columns = range(len(sizes))
    single = [
        smartnoise.nearest_counts(counted(codes, [one], sizes) + GRID_NOISE, total)
        for one in columns
    ]
    return {
        (one, two): float(
            np.abs(
                counted(codes, [one, two], sizes) - np.outer(single[one], single[two]) / total
            ).sum()
        )
        for one, two in itertools.combinations(columns, 2)
    }


def test_mst_spends_rho_in_thirds(mst: Spending) -> None:
    codes = table()
    (noisy,) = run_mst(codes, **parameters([4000.0]))
    assert mst.rho == pytest.approx(RHO)
    singles, pairs = mst.deviations[:4], mst.deviations[4:]
    assert sum(0.5 / one**2 for one in singles) == pytest.approx(RHO / 3)
    assert len(pairs) == 3 and sum(0.5 / one**2 for one in pairs) == pytest.approx(RHO / 3)
    assert [epsilon for _, epsilon in mst.choices] == pytest.approx([math.sqrt(8 * RHO / 9)] * 3)
    for marginal, deviation in zip(noisy.marginals, mst.deviations, strict=True):
        exact = counted(codes, marginal.columns)
        assert np.array_equal(marginal.counts, exact + GRID_NOISE)
        assert marginal.deviations.shape == exact.shape
        assert np.allclose(marginal.deviations, deviation)
    assert noisy.sizes == SIZES


def test_mst_chooses_a_tree_by_distance_from_independence(mst: Spending) -> None:
    codes, total = table(), 5000.0  # declared, not the number of rows
    (noisy,) = run_mst(codes, **parameters([total]))
    expected = distances(codes, total, SIZES)
    part = {column: column for column in range(4)}
    tree = []
    for scores, _ in mst.choices:
        allowed = {pair: one for pair, one in expected.items() if part[pair[0]] != part[pair[1]]}
        assert scores == pytest.approx([*allowed.values()])
        best = max(allowed, key=lambda pair: allowed[pair])
        tree.append(best)
        joined = part[best[1]]
        part = {column: part[best[0]] if of == joined else of for column, of in part.items()}
    assert [one.columns for one in noisy.marginals] == [(0,), (1,), (2,), (3,), *tree]


def test_mst_of_classes_has_one_table_each_without_the_label(mst: Spending) -> None:
    codes = table()
    released = run_mst(codes, **parameters([2000.0, 2500.0]))
    assert len(released) == 2
    assert mst.rho == pytest.approx(2 * RHO), "a row lies in one of them"
    for label, (noisy, total) in enumerate(zip(released, (2000.0, 2500.0), strict=True)):
        part = codes[codes[:, -1] == label, :-1]
        for marginal in noisy.marginals:
            exact = counted(part, marginal.columns)
            assert np.array_equal(marginal.counts, exact + GRID_NOISE)
        scores, _ = mst.choices[2 * label]
        assert scores == pytest.approx([*distances(part, total, SIZES[:-1]).values()])


def test_mst_of_one_column_chooses_nothing(mst: Spending) -> None:
    codes = table()[:, [0, 3]]
    given = {**parameters([2000.0, 2000.0]), "sizes": (2, 2)}
    released = run_mst(codes, **given)
    assert not mst.choices
    assert [len(noisy.marginals) for noisy in released] == [1, 1]


def test_mst_of_two_columns_spends_its_third_on_one_choice(mst: Spending) -> None:
    codes = table()[:, [0, 2]]
    run_mst(codes, **{**parameters([4000.0]), "sizes": (2, 2)})
    assert len(mst.choices) == 1
    assert mst.rho == pytest.approx(RHO)


def test_codes_out_of_range_and_missing_ones_are_the_nearest(mst: Spending) -> None:
    codes = table().astype(np.float64)
    codes[:5, 1] = (7.0, -3.0, np.nan, np.inf, 1.5)
    (noisy,) = run_mst(codes, **parameters([4000.0]))
    codes[:5, 1] = (2.0, 0.0, 0.0, 2.0, 1.0)
    assert np.array_equal(
        noisy.marginals[1].counts, counted(codes.astype(np.int64), [1]) + GRID_NOISE
    )


def test_codes_that_depend_on_other_rows_are_refused(mst: Spending) -> None:
    given = {**parameters([4000.0]), "codes": lambda rows: rows.values - rows.values.mean(0)}
    with pytest.raises(PrivacyContractError):
        run_mst(table(), **given)


def test_rare_codes_are_merged_before_pairs_are_counted(mst: Spending) -> None:
    codes = table()
    codes[:, 1] = np.where(np.arange(4000) < 4, 2, codes[:, 0])
    (noisy,) = run_mst(codes, **parameters([4000.0]))
    assert noisy.kept[1].tolist() == [True, True, False]
    assert noisy.sizes == SIZES, "the rare one alone is the last"
    for marginal in noisy.marginals:
        assert np.array_equal(marginal.counts, counted(codes, marginal.columns) + GRID_NOISE)


def test_a_code_is_rare_below_three_deviations() -> None:
    def often(*counts: float) -> list[bool]:
        one = NoisyMarginal((0,), np.array(counts), np.full(len(counts), 2.0))
        return smartnoise.frequent_codes(one).tolist()

    assert often(6.0, 100.0, 5.9) == [True, True, False]
    assert often(100.0, 5.9, 1.0) == [True, True, True], "one code alone would be no column"
    assert often(7.0, 7.0) == [True, True]


def test_merged_codes_are_the_last_and_their_noise_adds_up() -> None:
    kept = np.array([True, False, True, False])
    assert smartnoise.merging(kept).tolist() == [0, 2, 1, 2]
    one = NoisyMarginal((3,), np.array([9.0, 1.0, 8.0, 2.5]), np.array([1.0, 3.0, 1.0, 4.0]))
    merged = smartnoise.merged_counts(one, kept)
    assert merged.columns == (3,)
    assert merged.counts.tolist() == [9.0, 8.0, 3.5]
    assert merged.deviations.tolist() == [1.0, 1.0, 5.0]
    assert smartnoise.merged_counts(one, np.ones(4, dtype=bool)) is one
    shown = NoisyMarginals((), (kept, np.ones(4, dtype=bool), np.array([True, True, False])))
    assert shown.sizes == (3, 4, 3)


def test_the_nearest_counts_keep_what_is_above_the_last_positive() -> None:
    near = smartnoise.nearest_counts(np.array([10.0, 6.0, 1.0, -4.0]), 12.0)
    assert near.tolist() == [8.0, 4.0, 0.0, 0.0]
    # The shift is that of all positive ones: that of the first alone would be another.
    assert smartnoise.nearest_counts(np.array([5.0, 4.0, 3.0]), 9.0).tolist() == [4.0, 3.0, 2.0]


# AIM ----------------------------------------------------------------------------------------------


@dataclass
class Scripted:
    """An estimator whose models move by a given part of what counts as noise."""

    moves: list[float]
    sizes: tuple[int, ...]
    total: float
    allowed: set[tuple[int, ...]] | None = None
    measured: list[NoisyMarginal] = field(default_factory=list)
    asked: list[Sequence[tuple[int, ...]]] = field(default_factory=list)
    fits: int = 0

    def fit(self, measured: Sequence[NoisyMarginal]) -> Scripted:
        self.measured = list(measured)
        self.fits += 1
        return self

    def counts(self, columns: tuple[int, ...]) -> np.ndarray:
        shape = [self.sizes[column] for column in columns]
        # From a level that is not zero, but where equality must not be lost to rounding.
        found = np.full(shape, 0.0 if 1.0 in self.moves else 50.0)
        last = self.measured[-1]
        if self.fits > 1 and last.columns == columns and self.answering:
            move = self.moves[self.fits - 2] if self.fits - 2 < len(self.moves) else 2.0
            size = int(np.prod(shape))
            deviation = float(last.deviations.flat[0])
            found.flat[0] -= move * (deviation * math.sqrt(2.0 / math.pi) * size)
        return found

    @property
    def answering(self) -> bool:
        # Before the last measurement, a model has not moved.
        return len(self.measured) > self.before

    before: int = 0

    def affordable(self, sets: Sequence[tuple[int, ...]]) -> bool:
        self.asked.append(sets)
        return self.allowed is None or sets[-1] in self.allowed


@dataclass
class Aim:
    """AIM with scripted noise, choices and models."""

    spent: Spending
    candidates: list[dict[tuple[str, ...], int]] = field(default_factory=list)
    estimators: list[Scripted] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)
    pairs: list[tuple[str, ...]] = field(default_factory=list)

    def run(
        self,
        codes: np.ndarray,
        totals: Sequence[float] = (4000.0,),
        moves: Sequence[float] = (),
        rounds: float = 4.0,
        cells: int = 1000,
        allowed: set[tuple[int, ...]] | None = None,
        rho: float = RHO,
    ) -> tuple[NoisyMarginals, ...]:
        def estimator(sizes: tuple[int, ...], total: float) -> Scripted:
            self.estimators.append(Scripted(list(moves), tuple(sizes), total, allowed))
            return self.estimators[-1]

        given = parameters(totals, rounds=rounds, cells=cells, estimator=estimator)
        given["rho"] = rho
        return smartnoise.run_aim(as_rows(codes), None, generator(), given)  # type: ignore[arg-type]


@pytest.fixture
def aim(monkeypatch: pytest.MonkeyPatch) -> Aim:
    import snsynth.utils
    from snsynth.aim import aim as library

    called = Aim(Spending())

    def noise(deviation: float, size: int) -> list[float]:
        called.spent.deviations.append(deviation)
        return [NOISE] * size

    def choose(
        self: Any,
        candidates: dict[tuple[str, ...], int],
        answers: dict[tuple[str, ...], np.ndarray],
        model: Any,
        epsilon: float,
        deviation: float,
    ) -> tuple[str, ...]:
        assert max(candidates.values()) > 0
        estimator = called.estimators[-1]
        for names in candidates:
            assert model.domain.size(names) == answers[names].size
            # What is compared is what the model says, in one dimension.
            assert model.project(names).datavector().shape == answers[names].shape
        called.spent.choices.append((np.zeros(0), epsilon))
        called.candidates.append(dict(candidates))
        called.deviations.append(deviation)
        chosen = max(candidates, key=lambda names: (len(names), names))
        called.pairs.append(chosen)
        estimator.before = len(estimator.measured)
        return chosen

    monkeypatch.setattr(snsynth.utils, "gaussian_noise", noise)
    monkeypatch.setattr(library.AIMSynthesizer, "_worst_approximated", choose)
    return called


def schedule(rounds: float, columns: int, moves: Sequence[float]) -> list[tuple[float, float]]:
    """Deviation and epsilon of each round, in rho: Algorithm 2 of the paper."""
    planned = rounds * columns
    count_rho, choice_rho = 0.9 * RHO / planned, 0.1 * RHO / planned
    left = RHO - columns * count_rho
    found = []
    for number in itertools.count():
        cost = count_rho + choice_rho
        last = left < 2 * cost
        if last:
            count_rho, choice_rho = 0.9 * left, 0.1 * left
        left -= cost
        found.append((math.sqrt(0.5 / count_rho), math.sqrt(8 * choice_rho)))
        if last:
            return found
        if number < len(moves) and moves[number] <= 1.0:
            count_rho, choice_rho = 4 * count_rho, 4 * choice_rho
    raise AssertionError


@pytest.mark.parametrize(
    "moves", [(), (1.0,), (0.99, 1.01), (1.01, 0.5, 0.5), (1.2, 1.1, 0.9), (0.2,)]
)
def test_aim_follows_its_schedule_and_spends_rho(aim: Aim, moves: tuple[float, ...]) -> None:
    codes = table()
    (noisy,) = aim.run(codes, moves=moves)
    assert aim.spent.rho == pytest.approx(RHO)
    expected = schedule(4.0, 4, moves)
    assert aim.deviations == pytest.approx([deviation for deviation, _ in expected])
    assert [one for _, one in aim.spent.choices] == pytest.approx([one for _, one in expected])
    first = math.sqrt(16 / (1.8 * RHO))
    assert aim.spent.deviations == pytest.approx([first] * 4 + aim.deviations)
    for marginal, deviation in zip(noisy.marginals, aim.spent.deviations, strict=True):
        exact = counted(codes, marginal.columns)
        assert np.array_equal(marginal.counts, exact + GRID_NOISE)
        assert marginal.deviations.shape == exact.shape
        assert np.allclose(marginal.deviations, deviation)
    assert [one.columns for one in noisy.marginals[:4]] == [(0,), (1,), (2,), (3,)]
    assert noisy.sizes == SIZES
    assert all(kept.all() for kept in noisy.kept)


def test_aim_chooses_among_all_pairs_and_columns_by_their_weight(aim: Aim) -> None:
    aim.run(table())
    names = [f"column{number}" for number in range(4)]
    assert set(aim.candidates[0]) == {
        *((one,) for one in names),
        *itertools.combinations(names, 2),
    }
    # A column lies in three pairs; a pair meets itself twice and four others once.
    assert aim.candidates[0][("column0",)] == 3
    assert aim.candidates[0][("column0", "column1")] == 6


def test_aim_keeps_columns_whose_pairs_are_too_large(aim: Aim) -> None:
    aim.run(table(), cells=4)
    # Column 1 has three codes: its pairs have six.
    assert aim.candidates[0][("column1",)] == 1
    assert not [names for names in aim.candidates[0] if len(names) == 2 and "column1" in names]


def test_aim_leaves_out_what_makes_its_model_too_large(aim: Aim) -> None:
    aim.run(table(), allowed={(0, 2)})
    offered = {names for one in aim.candidates for names in one if len(names) == 2}
    assert offered == {("column0", "column2")}
    singles = {names for names in aim.candidates[0] if len(names) == 1}
    assert len(singles) == 4, "they are in the model already"
    asked = aim.estimators[0].asked
    assert [*asked[0][:4]] == [(0,), (1,), (2,), (3,)] and len(asked[0]) == 5
    assert not [sets for sets in asked if sets[-1] in sets[:-1]], "what is measured is not asked"


def test_aim_of_classes_has_the_whole_rho_for_each(aim: Aim) -> None:
    codes = table()
    released = aim.run(codes, totals=(2000.0, 2500.0))
    assert aim.spent.rho == pytest.approx(2 * RHO)
    assert [(one.sizes, one.total) for one in aim.estimators] == [
        (SIZES[:-1], 2000.0),
        (SIZES[:-1], 2500.0),
    ]
    for label, noisy in enumerate(released):
        part = codes[codes[:, -1] == label]
        for marginal in noisy.marginals:
            assert np.array_equal(marginal.counts, counted(part, marginal.columns) + GRID_NOISE)


@pytest.mark.parametrize("rounds", [0.0, 0.99, math.nan])
def test_aim_with_less_than_a_round_would_overspend_and_is_refused(aim: Aim, rounds: float) -> None:
    with pytest.raises(PrivacyContractError, match="more than rho"):
        aim.run(table(), rounds=rounds)
    assert not aim.spent.deviations


def test_aim_with_one_round_is_the_least(aim: Aim) -> None:
    aim.run(table(), rounds=1.0)
    assert aim.spent.rho == pytest.approx(RHO)
    assert len(aim.spent.choices) == 1


def test_rho_must_be_positive(mst: Spending, aim: Aim) -> None:
    with pytest.raises(PrivacyContractError):
        run_mst(table(), **{**parameters([4000.0]), "rho": 0.0})
    with pytest.raises(PrivacyContractError):
        aim.run(table(), rho=-1.0)


# MWEM ---------------------------------------------------------------------------------------------


@dataclass
class Mwem:
    """What MWEM's steps were called with."""

    scales: list[float] = field(default_factory=list)
    epsilons: list[float] = field(default_factory=list)
    offered: list[int] = field(default_factory=list)
    starts: list[np.ndarray] = field(default_factory=list)
    exact: list[np.ndarray] = field(default_factory=list)
    answers: list[dict[int, list[float]]] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)

    @staticmethod
    def run(table: np.ndarray, **others: Any) -> tuple[tuple[np.ndarray, ...], ...]:
        given = {
            "groups": ((0, 1), (2,)),
            "width": 2,
            "iterations": 5,
            "epsilon": 0.25,
            "updates": 7,
            **others,
        }
        everything = {**parameters([1500.0, 2500.0]), **given}
        rows = as_rows(table)
        return mwem.run_mwem(rows, None, generator(), everything)  # type: ignore[arg-type]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Mwem:
    from snsynth.mwem import MWEMSynthesizer

    seen = Mwem()

    def laplace(self: Any, scale: float) -> float:
        seen.scales.append(scale)
        return NOISE

    def choose(
        self: Any, hist: Any, synth: Any, queries: Any, eps: float, measured: Any, iteration: int
    ) -> int:
        assert measured == {}, "the library would draw again"
        seen.epsilons.append(eps)
        seen.offered.append(len(queries))
        return len(queries) - 1

    def update(
        self: Any, synth: np.ndarray, queries: Any, answers: Any, hist: np.ndarray, times: int
    ) -> np.ndarray:
        seen.starts.append(synth.copy())
        seen.exact.append(hist.copy())
        seen.answers.append({number: list(one) for number, one in answers.items()})
        seen.updates.append(times)
        return synth + 1.0

    monkeypatch.setattr(MWEMSynthesizer, "_laplace", laplace)
    monkeypatch.setattr(MWEMSynthesizer, "_exponential_mechanism", choose)
    monkeypatch.setattr(MWEMSynthesizer, "_multiplicative_weights", update)
    return seen


def test_mwem_measures_each_marginal_once_with_what_is_charged(called: Mwem) -> None:
    codes = table()
    released = called.run(codes)
    # Two classes; three marginals of two columns, one of one.
    assert called.offered == [3, 2, 1, 1] * 2
    assert called.epsilons == [0.25] * 8
    assert set(called.scales) == {4.0}
    cells = [6, 3, 2, 2]  # of the pair, of column 1, of column 0, of column 2
    assert len(called.scales) == 2 * sum(cells)
    event = mwem.choices_and_counts(
        {"epsilon": 0.25, "groups": ((0, 1), (2,)), "width": 2, "iterations": 5}
    )
    assert [one.count for one in event.events] == [4, 4]
    assert [len(one) for one in released] == [2, 2]
    for label, total in enumerate((1500.0, 2500.0)):
        part = codes[codes[:, -1] == label]
        start = 4 * label
        assert np.allclose(called.starts[start], np.full((2, 3), total / 6))
        assert np.allclose(called.starts[start + 3], np.full((2,), total / 2))
        assert np.array_equal(called.exact[start], counted(part, [0, 1]))
        assert np.array_equal(called.exact[start + 3], counted(part, [2]))
        answers = called.answers[start + 2]
        assert sorted(answers) == [0, 1, 2]
        expected = np.sort(counted(part, [0, 1]).ravel() + GRID_NOISE)
        assert np.sort(answers[2]).tolist() == expected.tolist()
        assert np.allclose(released[label][0], total / 6 + 3.0)
        assert released[label][0].dtype == np.float64
        assert released[label][1].shape == (2,)
    assert called.updates == [7] * 8


def test_mwem_stops_at_its_iterations_and_width(called: Mwem) -> None:
    called.run(table(), iterations=2)
    assert called.offered == [3, 2, 1] * 2
    called.offered.clear()
    called.run(table(), width=1)
    assert called.offered == [2, 1, 1] * 2


def test_the_number_of_marginals_of_a_group() -> None:
    assert mwem.iterations_of((0, 1, 2, 3), 2, 100) == 4 + 6
    assert mwem.iterations_of((0, 1, 2, 3), 1, 100) == 4
    assert mwem.iterations_of((0, 1, 2, 3), 2, 3) == 3


def test_mwem_refuses_what_reads_other_rows_and_no_epsilon(called: Mwem) -> None:
    with pytest.raises(PrivacyContractError):
        called.run(table(), codes=lambda rows: rows.values - rows.values.mean(0))
    with pytest.raises(PrivacyContractError):
        called.run(table(), epsilon=0.0)


class TestLikelihoodRatio:
    """An exact likelihood ratio has mean one without the canary: E exp(ratio) = 1."""

    RUNS = 200

    @pytest.mark.parametrize("inside", [False, True])
    @pytest.mark.parametrize("mechanism", ["mst", "mwem"])
    def test_its_mean_is_one(self, mechanism: str, inside: bool) -> None:
        codes = table(300)
        rows = as_rows(codes), as_rows(np.concatenate([codes, [[1, 2, 1, 1]]]))
        shared = {"codes": lambda one: one.values, "sizes": SIZES}
        run, given = {
            "mst": (smartnoise.observe_mst, {**shared, "rho": RHO, "totals": (300,)}),
            "mwem": (
                mwem.observe_mwem,
                {
                    **shared,
                    "totals": (150, 150),
                    "groups": ((0, 1, 2),),
                    "width": 2,
                    "iterations": 3,
                    "epsilon": 0.5,
                    "updates": 5,
                },
            ),
        }[mechanism]
        encoder: Any = None
        ratios = np.array(
            [
                run(rows, encoder, np.random.default_rng(number), given, inside)
                for number in range(self.RUNS)
            ]
        )
        sign = -1.0 if inside else 1.0
        weights = np.exp(sign * ratios)
        assert abs(weights.mean() - 1.0) < 5.0 * weights.std() / math.sqrt(self.RUNS)
        # And it distinguishes the worlds: otherwise zeros would pass.
        assert sign * ratios.mean() < -3.0 * ratios.std() / math.sqrt(self.RUNS)
