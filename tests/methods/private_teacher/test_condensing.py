"""Pools, draws by class, balanced draws and students of private-teacher-dc: known answers."""

from __future__ import annotations

import numpy as np
import pytest

from bench.errors import PrivacyContractError
from bench.methods.private_teacher._bins import ClassCounts, FeatureGrid, count_classes
from bench.methods.private_teacher._condense import Traits, draw_by_class, herded
from bench.methods.private_teacher._pool import (
    FeatureRules,
    bin_chances,
    class_offers,
    draw_pool,
    draw_rows,
)
from bench.methods.private_teacher._students import STUDENTS, Judges, expected_area
from bench.plugins.source import build_dataset
from tests.support.private_teacher import TABLE, bayes, opened


def broken(counts: ClassCounts, values: np.ndarray) -> np.ndarray:
    return FeatureRules.of(counts.grid.encoder).broken(values)


def nearest(counts: ClassCounts) -> list[np.ndarray]:
    return [counts.nearest(column) for column in range(len(counts.grid.columns))]


def even_pool(counts: ClassCounts, rows: int, seed: int = 0) -> np.ndarray:
    """A pool of both classes in equal shares."""
    chances = bin_chances(counts, np.array([0.5, 0.5]))
    return draw_pool(counts.grid, chances, rows, np.random.default_rng(seed))


class TestClasses:
    """Small tables: rows of each class from its counts."""

    def test_each_class_has_the_means_that_its_counts_say(self) -> None:
        counts = count_classes(opened(), FeatureGrid.of(TABLE.encoder, coarse=True), 1e-6)
        rows, misses = TABLE.train.rows, {}
        for balanced in (True, False):
            off = []
            for seed in range(5):
                rng = np.random.default_rng(seed)
                values, labels = draw_by_class(
                    counts.grid, nearest(counts), (40, 40), 4000, rng, balanced=balanced
                )
                assert labels.tolist() == [0] * 40 + [1] * 40 and not broken(counts, values).any()
                assert len(np.unique(values, axis=0)) == 80
                for label in (0, 1):
                    real = rows.values[rows.labels == label].mean(axis=0)
                    off.append(np.abs(values[labels == label].mean(axis=0) - real).mean())
            misses[balanced] = np.mean(off)
        assert misses[True] < 0.03 < misses[False]

    def test_any_size_is_drawn(self) -> None:
        counts = count_classes(opened(), FeatureGrid.of(TABLE.encoder, coarse=True), 1e-6)
        for sizes in ((0, 3), (1, 1), (5000, 10)):
            values, labels = draw_by_class(
                counts.grid, nearest(counts), sizes, 100, np.random.default_rng(0)
            )
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
    def test_rows_follow_the_schemas_rules_and_the_counts(self) -> None:
        counts = count_classes(opened(), FeatureGrid.of(TABLE.encoder), 1e-6)
        pool = even_pool(counts, 4000)
        assert len(pool) >= 4000 and not broken(counts, pool).any()
        rows = TABLE.train.rows
        means = [rows.values[rows.labels == label].mean(axis=0) for label in (0, 1)]
        assert pool.mean(axis=0) == pytest.approx(np.mean(means, axis=0), abs=0.05)
        young = pool[:2].copy()
        young[0, 0] = -1.0
        assert broken(counts, young).tolist() == [True, False]

    def test_many_rules_that_most_draws_break_still_leave_a_whole_pool(self) -> None:
        """Ten rules of the kind mean <= worst, noise alone: whole rows would hardly ever fit."""
        from bench.plugins.registry import build_source

        data = build_dataset(build_source("breast-cancer"))
        assert len(data.schema.rules) >= 10
        counts = count_classes(opened(data), FeatureGrid.of(data.encoder), 1000.0)
        pool = even_pool(counts, 1000)
        assert len(pool) > 990 and not broken(counts, pool).any()

    def test_fixed_rows_are_distributed_as_those_drawn_until_they_fit(self) -> None:
        """Rules that share a column, against plain rejection of whole rows."""
        from dataclasses import replace

        from bench.data.encoder import Encoder
        from bench.data.schema import Comparison, Rule

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
        grid = FeatureGrid.of(encoder)
        even = tuple(np.full((2, size), 10_000 / size) for size in grid.sizes)
        counts = ClassCounts(grid, even, 1e-9, (10_000, 10_000))
        pool = even_pool(counts, 20_000)
        free = ClassCounts(FeatureGrid.of(TABLE.encoder), counts.counts, 1e-9, (10_000, 10_000))
        plain = even_pool(free, 60_000, seed=1)
        fitting = plain[~broken(counts, plain)]
        assert len(pool) == 20_000
        # The free table keeps those over nine years old: 91 of 101 ages, which moves the shares.
        smokers, known = (pool[:, 2] > 0).mean(), (fitting[:, 2] > 0).mean()
        ages = 51 / 101 * 2 / 3
        assert smokers == pytest.approx(ages / (1 + ages), abs=0.012)
        assert known == pytest.approx(41 / 91 * 2 / 3 / (1 + 41 / 91 * 2 / 3), abs=0.012)

    def test_a_rule_that_no_counted_value_follows_gets_any_value_of_the_schema(self) -> None:
        """Noise may say that all are children, of whom the schema knows none."""
        grid = FeatureGrid.of(TABLE.encoder)
        children = [np.full((2, size), 1000 / size) for size in grid.sizes]
        children[0][:] = 0.0
        children[0][:, 3] = 1000.0
        counts = ClassCounts(grid, tuple(children), 1e-9, (1000, 1000))
        pool = even_pool(counts, 200)
        assert len(pool) == 200 and not broken(counts, pool).any()

    def test_rules_that_nothing_follows_raise_an_error(self) -> None:
        from dataclasses import replace

        from bench.data.encoder import Encoder
        from bench.data.schema import Comparison, Rule

        rules = tuple(Rule(sign, Comparison("age", sign, "50")) for sign in ("<", ">"))
        grid = FeatureGrid.of(Encoder(replace(TABLE.schema, rules=rules)))
        counts = ClassCounts(grid, tuple(np.ones((2, size)) for size in grid.sizes), 1e-9, (9, 9))
        with pytest.raises(PrivacyContractError, match="contradict"):
            even_pool(counts, 20)

    def test_offers_have_the_shares_asked_for_and_sharpen(self) -> None:
        scores = np.column_stack([np.zeros(1001), np.linspace(-4, 4, 1001)])
        shares = np.array([0.75, 0.25])
        for sharpness in (1.0, 4.0, 16.0, 64.0):
            chances = class_offers(scores, shares, sharpness)
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
            assert class_offers(scores, shares, sharpness).mean(axis=0) == pytest.approx(
                shares, abs=1e-4
            )

    def test_rows_are_drawn_without_repeats_while_there_are_enough(self) -> None:
        chances = np.full((50, 2), 0.5)
        chosen = draw_rows(chances, (50, 60), np.random.default_rng(0))
        assert sorted(chosen[:50]) == list(range(50)) and len(chosen) == 110
        certain = np.column_stack([np.arange(50) < 25, np.arange(50) >= 25]).astype(float)
        chosen = draw_rows(certain, (10, 10), np.random.default_rng(0))
        assert (chosen[:10] < 25).all() and (chosen[10:] >= 25).all()


class TestHerding:
    def test_it_ends_where_no_single_exchange_helps(self) -> None:
        centred = np.random.default_rng(0).normal(size=(20, 6, 3))
        rest, places = np.array([5.0, -3.0, 0.0]), np.arange(20)
        kept = herded(centred, rest)
        distance = np.linalg.norm(rest + centred[places, kept].sum(axis=0))
        drawn_at_random = [np.linalg.norm(rest + centred[:, one].sum(axis=0)) for one in range(6)]
        assert distance < 0.2 * np.mean(drawn_at_random)
        for place in places:
            for other in range(6):
                tried = kept.copy()
                tried[place] = other
                total = rest + centred[places, tried].sum(axis=0)
                assert np.linalg.norm(total) >= distance - 1e-12

    def test_traits_of_a_row_are_its_values_coarse_bins_and_score(self) -> None:
        counts = count_classes(opened(), FeatureGrid.of(TABLE.encoder), 1e-6)
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
