"""Cuts at noisy quantiles and by a noisy tree, against counting by hand, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench import (
    Budget,
    EncodedRows,
    Encoder,
    InputError,
    PrivacyContractError,
    PrivateData,
    SeededNoise,
    build_dataset,
    open_private,
)
from bench.conformance.coupling import coupled_neighbours
from bench.conformance.privacy import rows_come_through_the_kernel
from bench.conformance.subject import CheckStatus, Subject
from bench.data.dataset import Dataset
from bench.data.schema import Numeric
from bench.methods._shared.codes import Codes
from bench.methods.marginal import _discretise
from bench.methods.marginal._bins import Cut
from bench.methods.marginal._discretise import (
    BinnedMethod,
    Discretisation,
    Histogram,
    split_now,
)
from bench.methods.marginal.mst_kernel import MstKernel
from bench.privacy.ledger import Ledger
from tests.support.tables import ToyGaps, ToySurvival, ToyTable

NOISY = ("quantile", "privtree")


def opened(data: Dataset, budget: Budget | None = None) -> tuple[PrivateData, Ledger]:
    return open_private(data, budget or Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0)))


def skewed(rows: int = 20_000) -> tuple[Dataset, np.ndarray]:
    """A table whose first number crowds at the lower end; the numbers as shares of their range."""
    data = build_dataset(ToyTable(negatives=rows // 2, positives=rows // 2))
    values = data.train.rows.values.copy()
    shares = np.random.default_rng(1).beta(0.8, 12.0, len(values))
    values[:, 0] = 2.0 * shares - 1.0
    return replace(data, train=replace(data.train, rows=replace(data.train.rows, values=values))), (
        values[:, 0].astype(np.float64) + 1.0
    ) / 2.0


class TestHistogram:
    def test_quantiles_are_the_ends_of_cells_where_the_share_is_passed(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(50):
            counts = rng.integers(0, 30, 20).astype(float)
            bins = int(rng.integers(2, 8))
            ends = np.linspace(0, 1, 21)
            found = Histogram(ends, counts).edges(bins)
            expected = set()
            for k in range(1, bins):
                cell = next(
                    c for c in range(20) if counts[: c + 1].sum() >= k / bins * counts.sum()
                )
                expected.add(cell + 1)
            for cell in range(20):
                if counts[cell] > counts.sum() / bins:
                    expected |= {cell, cell + 1}
            expected -= {0, 20}
            if len(expected) < bins:
                assert found.tolist() == [ends[place] for place in sorted(expected)]
            else:
                assert len(found) == bins - 1

    def test_a_heavy_cell_is_a_bin_of_its_own(self) -> None:
        counts = np.array([5.0, 5.0, 80.0, 5.0, 5.0])
        assert Histogram(np.arange(6.0), counts).edges(4).tolist() == [2.0, 3.0]

    def test_too_many_cuts_lose_those_between_the_lightest_bins(self) -> None:
        counts = np.array([10.0, 1.0, 2.0, 10.0])
        assert Histogram(np.arange(5.0), counts, leaves=True).edges(4).tolist() == [1.0, 2.0, 3.0]
        assert Histogram(np.arange(5.0), counts, leaves=True).edges(3).tolist() == [1.0, 3.0]

    def test_nothing_but_noise_gives_cuts_of_equal_width(self) -> None:
        edges = Histogram(np.linspace(0, 1, 9), np.full(8, -1.0)).edges(4)
        assert edges == pytest.approx([0.25, 0.5, 0.75])


def test_a_node_is_split_by_the_rule_of_privtree() -> None:
    leaves = {(0, 4): 30.0, (4, 8): 9.0, (8, 10): 50.0}
    assert split_now(leaves, 8.0, 0.0, 4, 16) == [(0, 4), (4, 8)]
    assert split_now(leaves, 8.0, 1.5, 4, 16) == [(0, 4)]  # 9 - 1.5 is not above 8
    assert split_now(leaves, 8.0, 0.0, 4, 4) == [(0, 4)]  # four leaves at most: the largest first
    assert split_now(leaves, 8.0, 0.0, 4, 3) == []


class TestCut:
    def test_numbers_are_cut_at_shares_of_their_range(self) -> None:
        cut = Cut.at(Numeric(name="x", low=0, high=8), [0.25, 0.375])
        assert cut.lower.tolist() == [0, 0, 2, 3]
        assert cut.upper.tolist() == [0, 2, 3, 8]
        scaled = np.array([0, 0.5, 2, 2.9, 3, 8]) / 4.0 - 1.0
        assert cut.codes(scaled).tolist() == [0, 1, 2, 2, 3, 3]

    def test_whole_numbers_fall_where_the_cell_of_their_share_falls(self) -> None:
        column = Numeric(name="x", low=0, high=10, integer=True)
        for shares in ([0.3], [0.31, 0.39], [0.05, 0.5, 0.95], [0.01], [0.99]):
            cut = Cut.at(column, shares)
            numbers = np.arange(11)
            codes = cut.codes(numbers / 5.0 - 1.0)
            assert codes[0] == 0 and (codes[1:] > 0).all()
            inside = np.searchsorted(shares, numbers[1:] / 10 + 1e-12)
            # The same two numbers share a bin as share an interval between the cuts.
            assert ((codes[1:, None] == codes[1:]) == (inside[:, None] == inside)).all()


@pytest.mark.parametrize("kind", NOISY)
def test_bins_of_a_skewed_number_hold_about_equally_many_rows(kind: str) -> None:
    data, shares = skewed()
    private, _ = opened(data, Budget(1e4, 1e-5))
    binning = Discretisation(kind, 0.5).cuts(private, 8, 0.01).binning(8)  # type: ignore[arg-type]
    codes = binning.codes(data.train.rows)[:, 0]
    counts = np.bincount(codes, minlength=binning.sizes[0])[1:]
    assert 4 <= len(counts) <= 8
    equal = np.bincount(np.minimum((8 * shares).astype(int), 7), minlength=8)
    assert counts.max() < 0.4 * len(codes) < equal.max()
    if kind == "quantile":
        assert counts.min() > 0.04 * len(codes)


@pytest.mark.parametrize("kind", NOISY)
@pytest.mark.parametrize("source", [ToyTable(), ToyGaps(), ToySurvival()], ids=repr)
def test_the_planned_events_are_those_that_are_asked_for(kind: str, source: ToyTable) -> None:
    data = build_dataset(source)
    private, ledger = opened(data)
    discretisation = Discretisation(kind, 0.2)  # type: ignore[arg-type]
    plans = discretisation.plans(private, 4, 6.0)
    private.reserve_all(plans)
    charged = ledger.proof().epsilon
    found = discretisation.cuts(private, 4, 6.0)
    assert ledger.proof().epsilon == charged
    assert not any(private._vault.reserved.values())
    # Fewer or more bins than were asked for follow at no cost.
    assert max(found.binning(2).sizes) <= max(found.binning(4).sizes)
    assert ledger.proof().epsilon == charged


@pytest.mark.parametrize("kind", NOISY)
def test_the_share_is_that_of_the_zero_concentrated_budget(kind: str) -> None:
    private, _ = opened(build_dataset(ToyTable()))
    discretisation = Discretisation(kind, 0.2)  # type: ignore[arg-type]
    rho = sum(
        plan.count * 0.5 / plan.event.noise_multiplier**2  # type: ignore[attr-defined]
        for plan in discretisation.plans(private, 4, 3.0)
    )
    rest = 0.5 / discretisation.rest(private, 4, 3.0) ** 2
    assert rho == pytest.approx(0.2 * 0.5 / 9.0)
    assert rho + rest == pytest.approx(0.5 / 9.0)


def test_equal_bins_and_tables_without_numbers_cost_nothing() -> None:
    private, _ = opened(build_dataset(ToyTable()))
    assert Discretisation("uniform", 0.3).plans(private, 4, 1.0) == []
    assert Discretisation("uniform", 0.3).rest(private, 4, 1.0) == 1.0
    narrow = opened(build_dataset(ToyGaps()))[0]
    many = Discretisation("quantile", 0.3)
    wide = [
        block.column
        for block in narrow.encoder.blocks
        if isinstance(block.column, Numeric) and not block.column.integer
    ]
    assert bool(many.plans(narrow, 10**9, 1.0)) == bool(wide)


def test_a_method_says_how_it_cuts() -> None:
    assert issubclass(MstKernel, BinnedMethod)
    for wrong in ({"discretiser": "tree"}, {"discretiser_share": 1.0}):
        with pytest.raises(InputError, match="expected uniform, quantile or privtree"):
            MstKernel(**wrong)  # type: ignore[arg-type]


def checked(method: type[BinnedMethod], kind: str) -> set[CheckStatus]:
    subject = Subject(method, {"discretiser": kind}, tables=("table",))
    checks = (rows_come_through_the_kernel, coupled_neighbours)
    return {result.status for check in checks for result in check(subject)}


@pytest.mark.parametrize("kind", NOISY)
def test_one_more_row_changes_nothing_but_its_own_cells(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checked(MstKernel, kind) == {CheckStatus.PASSED}

    def by_the_largest(encoder: Encoder, rows: EncodedRows, *rest: Any) -> Codes:
        """Cells between the largest numbers of these rows, which one more row can move."""
        largest = np.abs(rows.values).max(axis=0, initial=1e-9)
        return cells(encoder, replace(rows, values=rows.values / largest), *rest)

    cells = _discretise._cells
    monkeypatch.setattr(_discretise, "_cells", by_the_largest)
    with pytest.raises(PrivacyContractError, match="row by row"):
        checked(MstKernel, kind)
