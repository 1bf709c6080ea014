"""Bins, counts and the teachers of private-teacher-dc: known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.data.dataset import Counts
from bench.data.encoder import Block
from bench.data.schema import Numeric
from bench.methods.private_teacher._bins import (
    ClassCounts,
    EdgeBins,
    FeatureGrid,
    MergedBins,
    count_classes,
    merged_bins,
    nearest_counts,
)
from bench.methods.private_teacher._teachers import (
    Boosting,
    NaiveBayes,
    additive_plans,
    bins_worth,
    declared_shares,
    fit_additive,
    groups_of,
    probabilities,
)
from bench.plugins.source import build_dataset
from bench.privacy.accounting import compose_events
from tests.support.private_teacher import TABLE, bayes, opened
from tests.support.tables import ToyClasses, ToyTable


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


class TestBins:
    def test_each_integer_and_each_bound_has_a_bin(self) -> None:
        whole = EdgeBins.of(Block(Numeric(name="x", low=1, high=4, integer=True), 0, 1))
        assert whole.count == 4
        encoded = np.array([[-1.0], [-1 / 3], [1 / 3], [1.0]])
        assert whole.codes(encoded).tolist() == [0, 1, 2, 3]
        wide = EdgeBins.of(Block(Numeric(name="x", low=0, high=99999, integer=True), 0, 1))
        nothing, one, most = 0.0, 1.0, 99999.0
        codes = wide.codes(2 * np.array([[nothing], [one], [most - 1], [most]]) / 99999 - 1)
        assert codes[0] == 0 and codes[1] > 0
        assert codes[3] == wide.count - 1 and codes[2] < codes[3]

    def test_a_value_drawn_for_a_bin_lies_in_it(self) -> None:
        grid, rng = FeatureGrid.of(TABLE.encoder), np.random.default_rng(0)
        codes = np.column_stack([rng.integers(0, size, 500) for size in grid.sizes])
        values = grid.draw(codes, rng)
        assert (grid.codes(values) == codes).all()
        assert (grid.codes(values.astype(np.float32)) == codes).all()
        ages = TABLE.encoder.decode(values, np.zeros(500, dtype=int))["age"]
        assert (ages == ages.round()).all() and ages.between(0, 100).all()

    def test_counts_without_noise_are_the_counts(self) -> None:
        counts = count_classes(opened(), FeatureGrid.of(TABLE.encoder), 1e-6)
        rows = TABLE.train.rows
        smokers = [int((rows.values[rows.labels == label, 2] > 0).sum()) for label in (0, 1)]
        assert counts.counts[2][:, 1] == pytest.approx(smokers, abs=1e-3)
        assert sum(map(np.sum, counts.counts)) == pytest.approx(4 * len(rows), abs=0.1)
        assert counts.shares(2)[:, 1] == pytest.approx(
            np.array(smokers) / np.bincount(rows.labels), abs=1e-6
        )

    def test_noise_on_counts_is_sqrt_features_times_the_multiplier(self) -> None:
        empty = build_dataset(ToyTable(negatives=20, positives=5))
        counts = count_classes(opened(empty), FeatureGrid.of(empty.encoder), 1000.0)
        assert counts.deviation == 2000.0
        noise = np.concatenate([part.ravel() for part in counts.counts])
        assert np.std(noise) == pytest.approx(2000.0, rel=0.2)

    def test_a_small_table_is_cut_coarsely(self) -> None:
        wide = Block(Numeric(name="x", low=0, high=99, integer=True), 0, 1)
        amount = Block(Numeric(name="x", low=0, high=1), 0, 1)
        assert (EdgeBins.of(wide).count, EdgeBins.of(wide, coarse=True).count) == (100, 18)
        # Sixteen widths, and the bounds themselves.
        assert EdgeBins.of(amount, coarse=True).count == 18
        sizes = [FeatureGrid.of(TABLE.encoder, coarse=coarse).sizes for coarse in (True, False)]
        fewer = [few < many for few, many in zip(*sizes, strict=True)]
        assert fewer == [True, True, False, False]

    @pytest.mark.parametrize("seed", range(5))
    def test_noisy_counts_become_the_nearest_that_sum_to_what_is_declared(self, seed: int) -> None:
        """Against a general solver of the same problem."""
        from scipy.optimize import minimize

        noisy = np.random.default_rng(seed).normal([30, 5, 0, 0, 0, 0, 0, 12], 10.0)
        nearest = nearest_counts(noisy, 47.0)
        solved = minimize(
            lambda x: float(((x - noisy) ** 2).sum()),
            np.full(8, 47 / 8),
            jac=lambda x: 2 * (x - noisy),
            bounds=[(0, None)] * 8,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 47.0},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        assert nearest.sum() == pytest.approx(47.0) and nearest.min() >= 0.0
        assert nearest == pytest.approx(solved.x, abs=1e-3)

    def test_all_counts_below_zero_still_sum_to_what_is_declared(self) -> None:
        assert nearest_counts(np.array([-5.0, -7.0]), 10.0) == pytest.approx([6.0, 4.0])
        assert nearest_counts(np.array([-5.0, -50.0]), 10.0) == pytest.approx([10.0, 0.0])

    def test_neighbours_are_joined_and_rare_categories_are_one(self) -> None:
        counts = np.array([5.0, 1.0, -2.0, 4.0, 9.0, 1.0])
        assert merged_bins(counts, True, 5.0).tolist() == [0, 1, 1, 1, 2, 2]
        assert merged_bins(counts, False, 5.0).tolist() == [0, 2, 2, 2, 1, 2]
        assert merged_bins(np.zeros(3), True, 5.0).tolist() == [0, 0, 0]
        assert merged_bins(np.zeros(3), False, 5.0).tolist() == [0, 0, 0]


class TestTeachers:
    def test_bins_are_worth_their_noise_by_public_numbers(self) -> None:
        """By hand: d = 2 sqrt(4) / 2 = 2, H = 6.5 d = 13, rows = 13 / 0.25 = 52 of 520."""
        even = Counts(520, (260, 260))
        assert bins_worth(even, 4, 2.0, 0.1, Boosting()) == pytest.approx(10.0)
        # Twice the noise of a count, 2 * 60 * sqrt(4) = 240 rows, is more than that.
        assert bins_worth(even, 4, 2.0, 60.0, Boosting()) == pytest.approx(520 / 240)

    def test_rounds_and_groups_cost_one_gaussian_mechanism(self) -> None:
        private = opened()
        for rounds, group, features in ((1, 1, 4), (8, 16, 4), (5, 3, 7)):
            planned = additive_plans(private, features, 2.0, Boosting(rounds=rounds, group=group))
            events = compose_events((plan.event, plan.count) for plan in planned)
            precision = sum(count / event.noise_multiplier**2 for event, count in events)
            assert precision == pytest.approx(1 / 4.0)
        assert groups_of(7, 3) == ((0, 1, 2), (3, 4), (5, 6))

    def test_one_feature_without_noise_gives_the_log_odds_of_its_bins(self) -> None:
        """The saturated model: s(bin) = log(positives / negatives), known without a library."""
        data = build_dataset(ToyTable(negatives=3000, positives=2000))
        private, grid = opened(data), FeatureGrid.of(data.encoder)
        smoker = FeatureGrid(data.encoder, grid.columns[2:3])
        counts = count_classes(private, smoker, 1e-4)
        setting = Boosting(rounds=60, clip=1.0, prior=100.0)
        model = fit_additive(private, counts, 1e-4, setting)
        rows = data.train.rows
        scores = model.scores(rows.values)
        odds = scores[:, 1] - scores[:, 0]
        for smoking in (False, True):
            alike = (rows.values[:, 2] > 0) == smoking
            positives = int(rows.labels[alike].sum())
            expected = math.log(positives / (int(alike.sum()) - positives))
            assert odds[alike] == pytest.approx(expected, abs=0.01)

    def test_the_noise_of_a_sum_is_clip_times_multiplier_whatever_the_group(self) -> None:
        """A model fitted on noise alone: theta has the deviation that the docstring says."""
        empty = build_dataset(ToyTable(negatives=20, positives=5))
        setting = Boosting(rounds=1, step=1.0, momentum=0.0, prior=1e9, evidence=1e-9, group=2)
        private, grid = opened(empty), FeatureGrid.of(empty.encoder)
        fine = tuple(np.full((2, size), 1e6) for size in grid.sizes)
        counts = ClassCounts(grid, fine, 1.0, private.counts.by_class)
        model = fit_additive(private, counts, 1e5, setting)
        shares = declared_shares(private.counts)
        curvature = 2e6 * shares[0] * shares[1]
        deviation = 1e5 * math.sqrt(4) * setting.clip
        assert len(model.effects) == sum(grid.sizes)
        assert np.std(model.effects) == pytest.approx(deviation / curvature, rel=0.15)

    def test_the_teacher_ranks_as_well_as_a_logistic_regression_without_noise(self) -> None:
        from sklearn.linear_model import LogisticRegression

        private = opened()
        counts = count_classes(private, FeatureGrid.of(TABLE.encoder), 1e-3)
        model = fit_additive(private, counts, 1e-3, Boosting(rounds=30))
        train, test = TABLE.train.rows, TABLE.test.rows
        scores = model.scores(test.values)
        plain = LogisticRegression().fit(train.values, train.labels)
        best = area(plain.decision_function(test.values), test.labels)
        assert area(scores[:, 1] - scores[:, 0], test.labels) > best - 0.01

    def test_a_larger_budget_gives_a_better_teacher(self) -> None:
        data = build_dataset(ToyTable(negatives=600, positives=400))
        means = []
        for noise in (200.0, 20.0, 2.0):
            areas = []
            for seed in range(4):
                private = opened(data, seed=seed)
                counts = count_classes(private, FeatureGrid.of(data.encoder), noise)
                scores = fit_additive(private, counts, noise, Boosting()).scores(
                    TABLE.test.rows.values
                )
                areas.append(area(scores[:, 1] - scores[:, 0], TABLE.test.rows.labels))
            means.append(np.mean(areas))
        assert means[0] < means[1] < means[2] and means[2] > 0.9

    def test_several_classes(self) -> None:
        data = build_dataset(ToyClasses())
        private = opened(data)
        counts = count_classes(private, FeatureGrid.of(data.encoder), 1e-2)
        for model in (
            fit_additive(private, counts, 1e-2, Boosting()),
            bayes(counts, declared_shares(private.counts)),
        ):
            scores = model.scores(data.test.rows.values)
            assert scores.shape == (len(data.test.rows), 3)
            assert (scores.argmax(axis=1) == data.test.rows.labels).mean() > 0.75

    def test_bayes_rule_on_four_rows(self) -> None:
        """One binary feature, counts 3:1 and 1:3, equal priors: odds of 3 to 1."""
        grid = FeatureGrid(TABLE.encoder, FeatureGrid.of(TABLE.encoder).columns[2:3])
        tables = (np.array([[0.75, 0.25], [0.25, 0.75]]),)
        values = np.zeros((2, TABLE.encoder.width))
        values[:, 2] = (-1.0, 1.0)
        chances = probabilities(NaiveBayes(grid, tables, np.array([0.5, 0.5])).scores(values))
        assert chances == pytest.approx(np.array([[0.75, 0.25], [0.25, 0.75]]))


def test_merged_sums_follow_the_maps() -> None:
    grid = FeatureGrid(TABLE.encoder, FeatureGrid.of(TABLE.encoder).columns[2:])
    fine = (np.array([[5.0, 5.0]]), np.array([[9.0, 1.0, 2.0]]))
    counts = ClassCounts(grid, fine, 0.0, (12,))
    merged = MergedBins.by_count(counts, 4.0)
    assert merged.sizes == (2, 2) and merged.offsets.tolist() == [0, 2, 4]
    sums = merged.sums([np.array([5.0, 5.0]), np.array([9.0, 1.0, 2.0])])
    assert [part.tolist() for part in sums] == [[5, 5], [9, 3]]
