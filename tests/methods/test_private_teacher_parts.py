"""Bins, counts, the additive teacher, students and pools: known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.core.dataset import Dataset, build_dataset
from bench.core.encode import Block
from bench.core.errors import PrivacyContractError
from bench.core.opening import open_private
from bench.core.privacy import PrivateData
from bench.core.privacy.accountant import canonical
from bench.core.privacy.counts import Counts
from bench.core.privacy.noise import SeededNoise
from bench.core.schema import Numeric
from bench.methods._condense_classes import drawn_by_class
from bench.methods._condense_herding import Traits, herded
from bench.methods._condense_pool import bin_chances, broken, draw_pool, drawn, offers
from bench.methods._condense_students import STUDENTS, Judges, expected_area
from bench.methods._teacher_additive import (
    Boosting,
    bins_worth,
    fit_additive,
    groups_of,
    plans,
)
from bench.methods._teacher_bins import (
    ClassCounts,
    ColumnBins,
    Grid,
    Merged,
    count_classes,
    merged_bins,
    simplex,
)
from bench.methods._teacher_kinds import NaiveBayes, declared_shares, probabilities
from tests.support.tables import ToyClasses, ToyTable

TABLE = build_dataset(ToyTable(negatives=3000, positives=2000))


def opened(data: Dataset = TABLE, seed: int = 0) -> PrivateData:
    """Without a budget: next to no noise is to be had, which no budget would allow."""
    noise = SeededNoise(np.random.default_rng(seed))
    return open_private(data, None, noise, check_rows=True)[0]


def bayes(counts: ClassCounts, priors: np.ndarray) -> NaiveBayes:
    tables = tuple(counts.shares(column) for column in range(len(counts.grid.columns)))
    return NaiveBayes(counts.grid, tables, priors)


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


class TestBins:
    def test_integers_have_a_bin_each_and_bounds_their_own(self) -> None:
        whole = ColumnBins.of(Block(Numeric(name="x", low=1, high=4, integer=True), 0, 1))
        assert whole.count == 4
        encoded = np.array([[-1.0], [-1 / 3], [1 / 3], [1.0]])
        assert whole.codes(encoded).tolist() == [0, 1, 2, 3]
        wide = ColumnBins.of(Block(Numeric(name="x", low=0, high=99999, integer=True), 0, 1))
        nothing, one, most = 0.0, 1.0, 99999.0
        codes = wide.codes(2 * np.array([[nothing], [one], [most - 1], [most]]) / 99999 - 1)
        assert codes[0] == 0 and codes[1] > 0
        assert codes[3] == wide.count - 1 and codes[2] < codes[3]

    def test_a_value_drawn_for_a_bin_lies_in_it(self) -> None:
        grid, rng = Grid.of(TABLE.encoder), np.random.default_rng(0)
        codes = np.column_stack([rng.integers(0, size, 500) for size in grid.sizes])
        values = grid.values(codes, rng)
        assert (grid.codes(values) == codes).all()
        assert (grid.codes(values.astype(np.float32)) == codes).all()
        ages = TABLE.encoder.decode(values, np.zeros(500, dtype=int))["age"]
        assert (ages == ages.round()).all() and ages.between(0, 100).all()

    def test_counts_without_noise_are_the_counts(self) -> None:
        counts = count_classes(opened(), Grid.of(TABLE.encoder), 1e-6)
        rows = TABLE.train.rows
        smokers = [int((rows.values[rows.labels == label, 2] > 0).sum()) for label in (0, 1)]
        assert counts.counts[2][:, 1] == pytest.approx(smokers, abs=1e-3)
        assert sum(map(np.sum, counts.counts)) == pytest.approx(4 * len(rows), abs=0.1)
        assert counts.shares(2)[:, 1] == pytest.approx(
            np.array(smokers) / np.bincount(rows.labels), abs=1e-6
        )

    def test_noise_on_counts_is_sqrt_features_times_the_multiplier(self) -> None:
        empty = build_dataset(ToyTable(negatives=20, positives=5))
        counts = count_classes(opened(empty), Grid.of(empty.encoder), 1000.0)
        assert counts.deviation == 2000.0
        noise = np.concatenate([part.ravel() for part in counts.counts])
        assert np.std(noise) == pytest.approx(2000.0, rel=0.2)

    def test_a_small_table_is_cut_coarsely(self) -> None:
        wide = Block(Numeric(name="x", low=0, high=99, integer=True), 0, 1)
        amount = Block(Numeric(name="x", low=0, high=1), 0, 1)
        assert (ColumnBins.of(wide).count, ColumnBins.of(wide, coarse=True).count) == (100, 18)
        # Sixteen widths, and the bounds themselves.
        assert ColumnBins.of(amount, coarse=True).count == 18
        sizes = [Grid.of(TABLE.encoder, coarse=coarse).sizes for coarse in (True, False)]
        fewer = [few < many for few, many in zip(*sizes, strict=True)]
        assert fewer == [True, True, False, False]

    @pytest.mark.parametrize("seed", range(5))
    def test_noisy_counts_become_the_nearest_that_sum_to_what_is_declared(self, seed: int) -> None:
        """Against a general solver of the same problem."""
        from scipy.optimize import minimize

        noisy = np.random.default_rng(seed).normal([30, 5, 0, 0, 0, 0, 0, 12], 10.0)
        found = simplex(noisy, 47.0)
        solved = minimize(
            lambda x: float(((x - noisy) ** 2).sum()),
            np.full(8, 47 / 8),
            jac=lambda x: 2 * (x - noisy),
            bounds=[(0, None)] * 8,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 47.0},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        assert found.sum() == pytest.approx(47.0) and found.min() >= 0.0
        assert found == pytest.approx(solved.x, abs=1e-3)

    def test_all_counts_below_zero_still_sum_to_what_is_declared(self) -> None:
        assert simplex(np.array([-5.0, -7.0]), 10.0) == pytest.approx([6.0, 4.0])
        assert simplex(np.array([-5.0, -50.0]), 10.0) == pytest.approx([10.0, 0.0])

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
            planned = plans(private, features, 2.0, Boosting(rounds=rounds, group=group))
            world = canonical((plan.event, plan.count) for plan in planned)
            precision = sum(count / event.noise_multiplier**2 for event, count in world)
            assert precision == pytest.approx(1 / 4.0)
        assert groups_of(7, 3) == ((0, 1, 2), (3, 4), (5, 6))

    def test_one_feature_without_noise_gives_the_log_odds_of_its_bins(self) -> None:
        """The saturated model: s(bin) = log(positives / negatives), known without a library."""
        data = build_dataset(ToyTable(negatives=3000, positives=2000))
        private, grid = opened(data), Grid.of(data.encoder)
        smoker = Grid(data.encoder, grid.columns[2:3])
        counts = count_classes(private, smoker, 1e-4)
        setting = Boosting(rounds=60, clip=1.0, prior=100.0)
        model = fit_additive(private, counts, 1e-4, setting)
        rows = data.train.rows
        scores = model.scores(rows.values)
        odds = scores[:, 1] - scores[:, 0]
        for smoking in (False, True):
            own = (rows.values[:, 2] > 0) == smoking
            positives = int(rows.labels[own].sum())
            expected = math.log(positives / (int(own.sum()) - positives))
            assert odds[own] == pytest.approx(expected, abs=0.01)

    def test_the_noise_of_a_sum_is_clip_times_multiplier_whatever_the_group(self) -> None:
        """A model fitted on noise alone: theta has the deviation that the docstring says."""
        empty = build_dataset(ToyTable(negatives=20, positives=5))
        setting = Boosting(rounds=1, step=1.0, momentum=0.0, prior=1e9, evidence=1e-9, group=2)
        private, grid = opened(empty), Grid.of(empty.encoder)
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
        counts = count_classes(private, Grid.of(TABLE.encoder), 1e-3)
        model = fit_additive(private, counts, 1e-3, Boosting(rounds=30))
        train, test = TABLE.train.rows, TABLE.test.rows
        scores = model.scores(test.values)
        plain = LogisticRegression().fit(train.values, train.labels)
        best = area(plain.decision_function(test.values), test.labels)
        assert area(scores[:, 1] - scores[:, 0], test.labels) > best - 0.01

    def test_a_larger_budget_gives_a_better_teacher(self) -> None:
        data = build_dataset(ToyTable(negatives=600, positives=400))
        found = []
        for noise in (200.0, 20.0, 2.0):
            areas = []
            for seed in range(4):
                private = opened(data, seed=seed)
                counts = count_classes(private, Grid.of(data.encoder), noise)
                scores = fit_additive(private, counts, noise, Boosting()).scores(
                    TABLE.test.rows.values
                )
                areas.append(area(scores[:, 1] - scores[:, 0], TABLE.test.rows.labels))
            found.append(np.mean(areas))
        assert found[0] < found[1] < found[2] and found[2] > 0.9

    def test_several_classes(self) -> None:
        data = build_dataset(ToyClasses())
        private = opened(data)
        counts = count_classes(private, Grid.of(data.encoder), 1e-2)
        for model in (
            fit_additive(private, counts, 1e-2, Boosting()),
            bayes(counts, declared_shares(private.counts)),
        ):
            scores = model.scores(data.test.rows.values)
            assert scores.shape == (len(data.test.rows), 3)
            assert (scores.argmax(axis=1) == data.test.rows.labels).mean() > 0.75

    def test_bayes_rule_on_four_rows(self) -> None:
        """One binary feature, counts 3:1 and 1:3, equal priors: odds of 3 to 1."""
        grid = Grid(TABLE.encoder, Grid.of(TABLE.encoder).columns[2:3])
        tables = (np.array([[0.75, 0.25], [0.25, 0.75]]),)
        values = np.zeros((2, TABLE.encoder.width))
        values[:, 2] = (-1.0, 1.0)
        chances = probabilities(NaiveBayes(grid, tables, np.array([0.5, 0.5])).scores(values))
        assert chances == pytest.approx(np.array([[0.75, 0.25], [0.25, 0.75]]))


class TestClasses:
    """Small tables: rows of each class from its own counts."""

    def test_each_class_has_the_means_that_its_counts_say(self) -> None:
        counts = count_classes(opened(), Grid.of(TABLE.encoder, coarse=True), 1e-6)
        rows, misses = TABLE.train.rows, {}
        for balanced in (True, False):
            off = []
            for seed in range(5):
                rng = np.random.default_rng(seed)
                values, labels = drawn_by_class(counts, (40, 40), 4000, rng, balanced=balanced)
                assert labels.tolist() == [0] * 40 + [1] * 40 and not broken(counts, values).any()
                assert len(np.unique(values, axis=0)) == 80
                for label in (0, 1):
                    real = rows.values[rows.labels == label].mean(axis=0)
                    off.append(np.abs(values[labels == label].mean(axis=0) - real).mean())
            misses[balanced] = np.mean(off)
        assert misses[True] < 0.03 < misses[False]

    def test_any_size_is_drawn(self) -> None:
        counts = count_classes(opened(), Grid.of(TABLE.encoder, coarse=True), 1e-6)
        for sizes in ((0, 3), (1, 1), (5000, 10)):
            values, labels = drawn_by_class(counts, sizes, 100, np.random.default_rng(0))
            assert len(values) == sum(sizes)
            assert np.bincount(labels, minlength=2).tolist() == list(sizes)


class TestStudents:
    def test_the_expected_area_of_certain_labels_is_the_area(self) -> None:
        from sklearn.metrics import roc_auc_score

        rng = np.random.default_rng(0)
        labels, scores = rng.integers(0, 2, 200), rng.integers(0, 12, 200).astype(float)
        assert expected_area(scores, labels.astype(float)) == pytest.approx(
            roc_auc_score(labels, scores)
        )

    def test_two_rows_by_hand(self) -> None:
        """p = (0.2, 0.8), ranked right: (0.2 * 0.8 / 2 + 0.8 * (0.8 + 0.2 / 2)) / 1 = 0.8."""
        chances = np.array([0.2, 0.8])
        assert expected_area(np.array([0.0, 1.0]), chances) == pytest.approx(0.8)
        assert expected_area(np.array([1.0, 0.0]), chances) == pytest.approx(0.2)
        assert expected_area(np.zeros(2), chances) == pytest.approx(0.5)

    @pytest.mark.parametrize("classes", [2, 3])
    def test_every_student_learns_what_is_plain(self, classes: int) -> None:
        rng = np.random.default_rng(0)
        labels = np.arange(60 * classes) % classes
        values = rng.normal(0, 0.3, (len(labels), 4)).astype(np.float32)
        values[np.arange(len(labels)), labels] += 2.0
        judges = Judges.of(values, np.eye(classes)[labels])
        for student in STUDENTS:
            assert judges.agreement(student(values, labels, classes, judges, 0)) > 0.97, student


class TestPool:
    def test_rows_keep_the_schemas_rules_and_the_counts(self) -> None:
        counts = count_classes(opened(), Grid.of(TABLE.encoder), 1e-6)
        pool = draw_pool(
            counts.grid, bin_chances(counts, np.array([0.5, 0.5])), 4000, np.random.default_rng(0)
        )
        assert len(pool) >= 4000 and not broken(counts, pool).any()
        rows = TABLE.train.rows
        means = [rows.values[rows.labels == label].mean(axis=0) for label in (0, 1)]
        assert pool.mean(axis=0) == pytest.approx(np.mean(means, axis=0), abs=0.05)
        young = pool[:2].copy()
        young[0, 0] = -1.0
        assert broken(counts, young).tolist() == [True, False]

    def test_many_rules_that_most_draws_break_still_leave_a_whole_pool(self) -> None:
        """Ten rules of the kind mean <= worst, noise alone: whole rows would hardly ever fit."""
        from bench.core.registry import build_source

        data = build_dataset(build_source("breast-cancer"))
        assert len(data.schema.rules) >= 10
        counts = count_classes(opened(data), Grid.of(data.encoder), 1000.0)
        pool = draw_pool(
            counts.grid, bin_chances(counts, np.array([0.5, 0.5])), 1000, np.random.default_rng(0)
        )
        assert len(pool) > 990 and not broken(counts, pool).any()

    def test_mended_rows_are_distributed_as_those_drawn_until_they_fit(self) -> None:
        """Rules that share a column, against plain rejection of whole rows."""
        from dataclasses import replace

        from bench.core.encode import Encoder
        from bench.core.schema import Comparison, Rule

        rules = (
            Rule(
                "young smokers", Comparison("age", "<=", "50"), (Comparison("smoker", "==", "yes"),)
            ),
            Rule(
                "no smoker has stage I",
                Comparison("stage", "!=", "I"),
                (Comparison("smoker", "==", "yes"),),
            ),
        )
        encoder = Encoder(replace(TABLE.schema, rules=rules))
        grid = Grid.of(encoder)
        even = tuple(np.full((2, size), 10_000 / size) for size in grid.sizes)
        counts = ClassCounts(grid, even, 1e-9, (10_000, 10_000))
        pool = draw_pool(
            counts.grid, bin_chances(counts, np.array([0.5, 0.5])), 20_000, np.random.default_rng(0)
        )
        free = ClassCounts(Grid.of(TABLE.encoder), counts.counts, 1e-9, (10_000, 10_000))
        plain = draw_pool(
            free.grid, bin_chances(free, np.array([0.5, 0.5])), 60_000, np.random.default_rng(1)
        )
        fitting = plain[~broken(counts, plain)]
        assert len(pool) == 20_000
        # The free table keeps those over nine years old: 91 of 101 ages, which moves the shares.
        smokers, known = (pool[:, 2] > 0).mean(), (fitting[:, 2] > 0).mean()
        ages = 51 / 101 * 2 / 3
        assert smokers == pytest.approx(ages / (1 + ages), abs=0.012)
        assert known == pytest.approx(41 / 91 * 2 / 3 / (1 + 41 / 91 * 2 / 3), abs=0.012)

    def test_a_rule_that_no_counted_value_keeps_gets_any_value_of_the_schema(self) -> None:
        """Noise may say that all are children, of whom the schema knows none."""
        grid = Grid.of(TABLE.encoder)
        children = [np.full((2, size), 1000 / size) for size in grid.sizes]
        children[0][:] = 0.0
        children[0][:, 3] = 1000.0
        counts = ClassCounts(grid, tuple(children), 1e-9, (1000, 1000))
        pool = draw_pool(
            counts.grid, bin_chances(counts, np.array([0.5, 0.5])), 200, np.random.default_rng(0)
        )
        assert len(pool) == 200 and not broken(counts, pool).any()

    def test_rules_that_nothing_keeps_are_said(self) -> None:
        from dataclasses import replace

        from bench.core.encode import Encoder
        from bench.core.schema import Comparison, Rule

        rules = tuple(Rule(sign, Comparison("age", sign, "50")) for sign in ("<", ">"))
        grid = Grid.of(Encoder(replace(TABLE.schema, rules=rules)))
        counts = ClassCounts(grid, tuple(np.ones((2, size)) for size in grid.sizes), 1e-9, (9, 9))
        with pytest.raises(PrivacyContractError, match="contradict"):
            draw_pool(
                counts.grid, bin_chances(counts, np.array([0.5, 0.5])), 20, np.random.default_rng(0)
            )

    def test_offers_have_the_shares_asked_for_and_sharpen(self) -> None:
        scores = np.column_stack([np.zeros(1001), np.linspace(-4, 4, 1001)])
        shares = np.array([0.75, 0.25])
        for sharpness in (1.0, 4.0, 16.0, 64.0):
            chances = offers(scores, shares, sharpness)
            assert chances.mean(axis=0) == pytest.approx(shares, abs=1e-4)
        assert chances[0, 0] > 0.999 and chances[-1, 1] > 0.999
        # A quarter of the rows is above 2.
        assert chances[:, 1] == pytest.approx((scores[:, 1] > 2.0).astype(float), abs=0.51)

    def test_offers_of_several_classes_from_far_away_scores(self) -> None:
        """A class that the scores call nearly impossible gets its share all the same."""
        usual = np.array([0.0, -20.0, 5.0, 0.0])
        scores = np.random.default_rng(0).normal(usual, 3.0, (500, 4))
        shares = np.array([0.1, 0.2, 0.3, 0.4])
        for sharpness in (1.0, 16.0):
            assert offers(scores, shares, sharpness).mean(axis=0) == pytest.approx(shares, abs=1e-4)

    def test_rows_are_drawn_without_repeats_while_there_are_enough(self) -> None:
        chances = np.full((50, 2), 0.5)
        chosen = drawn(chances, (50, 60), np.random.default_rng(0))
        assert sorted(chosen[:50]) == list(range(50)) and len(chosen) == 110
        certain = np.column_stack([np.arange(50) < 25, np.arange(50) >= 25]).astype(float)
        chosen = drawn(certain, (10, 10), np.random.default_rng(0))
        assert (chosen[:10] < 25).all() and (chosen[10:] >= 25).all()


class TestHerding:
    def test_it_ends_where_no_single_exchange_helps(self) -> None:
        centred = np.random.default_rng(0).normal(size=(20, 6, 3))
        rest, places = np.array([5.0, -3.0, 0.0]), np.arange(20)
        kept = herded(centred, rest)
        found = np.linalg.norm(rest + centred[places, kept].sum(axis=0))
        drawn_at_random = [np.linalg.norm(rest + centred[:, one].sum(axis=0)) for one in range(6)]
        assert found < 0.2 * np.mean(drawn_at_random)
        for place in places:
            for other in range(6):
                tried = kept.copy()
                tried[place] = other
                total = rest + centred[places, tried].sum(axis=0)
                assert np.linalg.norm(total) >= found - 1e-12

    def test_traits_of_a_row_are_its_values_coarse_bins_and_score(self) -> None:
        counts = count_classes(opened(), Grid.of(TABLE.encoder), 1e-6)
        shares = np.array([0.5, 0.5])
        pool = draw_pool(counts.grid, bin_chances(counts, shares), 2000, np.random.default_rng(0))
        scores = bayes(counts, shares).scores(pool)
        traits = Traits.of(counts.grid, bin_chances(counts, shares), pool, scores)
        table = traits.rows(pool, scores) * traits.scale
        # Six encoded columns; eight, eight, two and three coarse bins at most; six levels, a score.
        width = TABLE.encoder.feature_width
        assert table[:, :width] == pytest.approx(pool[:, :width])
        assert table[:, -1] == pytest.approx((scores[:, 1] - scores[:, 0]) / 2.0)
        assert table[:, -7:-1].sum(axis=1) == pytest.approx(np.ones(len(pool)))
        assert table[:, -7:-1].mean(axis=0) == pytest.approx(
            [0.1, 0.15, 0.25, 0.25, 0.15, 0.1], abs=0.03
        )
        assert traits.rows(pool[:3], scores[:3]) == pytest.approx(table[:3] / traits.scale)


def test_merged_sums_follow_the_maps() -> None:
    grid = Grid(TABLE.encoder, Grid.of(TABLE.encoder).columns[2:])
    fine = (np.array([[5.0, 5.0]]), np.array([[9.0, 1.0, 2.0]]))
    counts = ClassCounts(grid, fine, 0.0, (12,))
    merged = Merged.of(counts, 4.0)
    assert merged.sizes == (2, 2) and merged.offsets.tolist() == [0, 2, 4]
    assert merged.sums([np.array([5.0, 5.0]), np.array([9.0, 1.0, 2.0])]).tolist() == [5, 5, 9, 3]
