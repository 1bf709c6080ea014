"""The survival teacher: bins, hazard, score, pool and condensation against known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import Budget, PrivateData
from bench.data.dataset import Dataset
from bench.data.encoder import EncodedRows
from bench.errors import InputError, NotApplicable
from bench.methods._shared.cox import cox_coefficients
from bench.methods.private_teacher._bins import FeatureGrid, MergedBins, nearest_counts
from bench.methods.private_teacher._survival import (
    SurvivalSetting,
    fit_teacher,
    synthesize_survival,
)
from bench.methods.private_teacher._survival_condense import (
    ReleasePlaces,
    candidates,
    condense,
    quantiles,
    score_residuals,
)
from bench.methods.private_teacher._survival_model import (
    BaselineHazard,
    CoxRisk,
    bin_scores,
    correlations,
    denoised,
    design,
    design_norm,
    draw_weighted_pool,
    evidence,
    pair_norm,
    pair_products,
    positive_correlations,
    time_bins,
    time_ends,
)
from bench.methods.private_teacher.private_teacher_dc import PrivateTeacherDc
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.returned import check_release
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToySurvival

DATASET = build_dataset(ToySurvival(rows=4000))
ROWS = DATASET.train.rows
TIMES = ROWS.values[:, -1].astype(float)
GRID = FeatureGrid.equal_widths(DATASET.encoder, 32)


class Silent:
    """No noise at all, for answers that are known."""

    def normal(self, scale: float, size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)


def opened(epsilon: float = 1.0, seed: int = 0, data: Dataset = DATASET) -> PrivateData:
    noise = SeededNoise(np.random.default_rng([seed, 1]))
    return open_private(data, Budget(epsilon, 1e-5), noise, check_rows=True)[0]


def noiseless() -> PrivateData:
    return open_private(DATASET, Budget(50.0, 1e-5), Silent())[0]  # type: ignore[arg-type]


def released(
    epsilon: float = 1.0, ipc: int | None = 50, seed: int = 0, **parameters: Any
) -> Release:
    spec = Spec(DATASET.task, ipc, Budget(epsilon, 1e-5))
    rng = np.random.default_rng([seed, 2])
    return PrivateTeacherDc(**parameters).synthesize(opened(epsilon, seed), spec, rng)


def concordance(release: Release) -> float:
    """C-index of Cox's model of the release on test rows, by lifelines."""
    from lifelines.utils import concordance_index

    rows, test = release.rows, DATASET.test.rows
    assert rows is not None
    model = cox_coefficients(rows.values[:, :-1], rows.values[:, -1] + 1.0, rows.labels, 0.1)
    return float(concordance_index(test.values[:, -1], -test.values[:, :-1] @ model, test.labels))


def marginals() -> list[np.ndarray]:
    codes = GRID.codes(ROWS.values)
    return [np.bincount(codes[:, c], minlength=n) + 0.0 for c, n in enumerate(GRID.sizes)]


def merged() -> MergedBins:
    return MergedBins.by_mass(GRID, marginals(), 4)


class TestBins:
    def test_every_value_and_every_time_lies_in_its_bin(self) -> None:
        codes = np.array([[0, 0], [31, 1], [16, 1]])
        values = GRID.values(codes, np.full((3, 2), 0.5))
        assert (GRID.codes(values) == codes).all()
        ends = time_ends(8)
        assert (ends[0], ends[-1]) == (-1.0, 1.0) and (np.diff(ends) > 0).all()
        middles = (ends[:-1] + ends[1:])[:, None] / 2
        assert time_bins(middles, 8).tolist() == list(range(8))
        assert time_bins(np.array([[-7.0], [7.0]]), 8).tolist() == [0, 7]

    def test_rows_of_the_design_have_the_norm_that_is_charged(self) -> None:
        bins = merged()
        assert bins.sizes == (4, 2)
        norms = np.linalg.norm(design(bins, GRID.codes(ROWS.values)), axis=1)
        assert norms == pytest.approx(design_norm(bins))
        assert design_norm(bins) == pytest.approx(1.25**0.5)
        shares = np.bincount(bins.merge(GRID.codes(ROWS.values))[:, 0]) / len(ROWS)
        assert shares == pytest.approx(np.full(4, 0.25), abs=0.1)

    def test_projection_is_the_nearest_point_by_brute_force(self) -> None:
        values = np.array([3.0, -1.0, 2.0])
        nearest = nearest_counts(values, 3.0)
        assert nearest == pytest.approx([2.0, 0.0, 1.0])
        rng = np.random.default_rng(0)
        others = 3.0 * rng.dirichlet(np.ones(3), 2000)
        assert (np.linalg.norm(others - values, axis=1) >= np.linalg.norm(nearest - values)).all()

    def test_the_evidence_is_a_gaussian_density(self) -> None:
        from scipy.stats import multivariate_normal

        root = np.random.default_rng(0).normal(size=(3, 3))
        covariance, point = root @ root.T + np.eye(3), np.array([1.0, 0.0, -2.0])
        value, weights = evidence(covariance, point)
        known = multivariate_normal(np.zeros(3), covariance).logpdf(point)
        assert value - 1.5 * np.log(2 * np.pi) == pytest.approx(known, abs=1e-6)
        assert covariance @ weights == pytest.approx(point, abs=1e-6)

    def test_denoising_is_closer_to_the_truth_than_the_noise(self) -> None:
        rng = np.random.default_rng(0)
        truth = 400.0 * np.exp(-((np.arange(32) - 9.0) ** 2) / 30.0)
        noisy = truth + 60.0 * rng.standard_normal(32)
        counts = denoised(noisy, 60.0, truth.sum(), ordered=True)
        assert counts.sum() == pytest.approx(truth.sum()) and (counts >= 0).all()
        assert np.linalg.norm(counts - truth) < 0.6 * np.linalg.norm(noisy - truth)


class TestRisk:
    def test_the_hazard_without_risks_is_that_of_nelson_and_aalen(self) -> None:
        """By lifelines, up to the resolution of the bins of time."""
        from lifelines import NelsonAalenFitter

        count = 64
        times = time_bins(ROWS.values, count)
        events, censored = (
            np.bincount(times[ROWS.labels == label], minlength=count) + 0.0 for label in (1, 0)
        )
        hazard = BaselineHazard.of(events, censored, np.zeros(10), np.ones(10))
        known = NelsonAalenFitter().fit(TIMES + 1.0, ROWS.labels == 1)
        ends = time_ends(count)[1:] + 1.0
        inside = ends < np.quantile(TIMES + 1.0, 0.95)
        assert hazard.end[inside] == pytest.approx(
            known.cumulative_hazard_at_times(ends[inside]).to_numpy(), rel=0.02, abs=0.01
        )

    def test_a_score_vector_is_at_most_as_long_as_is_charged(self) -> None:
        bins = merged()
        risk = CoxRisk.none(bins)
        for middle in (np.zeros(32), np.linspace(0, 40, 32)):
            vectors = risk.score(BaselineHazard(middle, middle))(ROWS)
            assert np.linalg.norm(vectors, axis=1).max() <= risk.score_norm + 1e-9
        products = pair_products(bins)(ROWS)
        assert products.shape == (len(ROWS), 1)
        assert np.linalg.norm(products, axis=1).max() <= pair_norm(bins) + 1e-9

    def test_without_noise_the_teacher_ranks_as_coxs_model_does(self) -> None:
        teacher = fit_teacher(noiseless(), SurvivalSetting(), np.random.default_rng(0))
        known = cox_coefficients(ROWS.values[:, :-1], TIMES + 1.0, ROWS.labels, 1e-6)
        values = DATASET.test.rows.values
        ours = teacher.risk.at(GRID.codes(values))
        theirs = values[:, :-1] @ known
        assert np.corrcoef(ours, theirs)[0, 1] > 0.9

    def test_correlations_of_exact_sums_are_those_of_the_scores(self) -> None:
        bins = merged()
        products = pair_products(bins)(ROWS).sum(axis=0)
        exact = correlations(bins, marginals(), products, 0.0, len(ROWS))
        scores = bin_scores(bins, GRID.codes(ROWS.values))
        assert exact == pytest.approx(np.corrcoef(scores.T), abs=1e-9)
        drowned = correlations(bins, marginals(), products, 1e6, len(ROWS))
        assert drowned == pytest.approx(np.eye(2))


class TestPool:
    def test_marginals_and_correlations_are_as_asked(self) -> None:
        bins, asked = merged(), np.array([[1.0, 0.5], [0.5, 1.0]])
        pool = draw_weighted_pool(bins, marginals(), asked, 4000, np.random.default_rng(0))
        scores = bin_scores(bins, pool.codes)
        assert np.corrcoef(scores.T)[0, 1] == pytest.approx(0.5, abs=0.05)
        for column, counts in enumerate(marginals()):
            drawn = np.bincount(pool.codes[:, column], pool.weights, len(counts))
            assert np.abs(drawn / drawn.sum() - counts / counts.sum()).sum() < 0.15
        assert pool.broken == 0

    def test_any_symmetric_matrix_becomes_a_correlation_matrix(self) -> None:
        matrix = positive_correlations(
            np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
        )
        assert np.diag(matrix) == pytest.approx(np.ones(3))
        assert np.linalg.eigvalsh(matrix).min() > 0.0


class TestCondensation:
    def test_times_are_quantiles_of_the_counts(self) -> None:
        ends = np.array([-1.0, 0.0, 1.0])
        assert quantiles(np.array([0.0, 10.0]), ends, 2) == pytest.approx([0.25, 0.75])
        assert quantiles(np.array([3.0, 1.0]), ends, 4) == pytest.approx(
            [-5 / 6, -1 / 2, -1 / 6, 0.5]
        )

    def test_score_residuals_are_what_the_derivative_gains_with_a_row(self) -> None:
        """Lin and Wei: u_i is the derivative of Cox's score by its weight, by brute force."""
        rng = np.random.default_rng(0)
        features = rng.normal(size=(30, 2))
        features = (features - features.mean(axis=0)) / features.std(axis=0)
        times, labels = np.repeat(rng.exponential(size=15), 2), rng.integers(0, 2, 30)
        weights, point = rng.uniform(0.5, 2.0, 30), np.array([0.7, -0.4])

        def score(weighted: np.ndarray) -> np.ndarray:
            total = np.zeros(2)
            for row in np.flatnonzero(labels):
                risks = weighted * np.exp(features @ point) * (times >= times[row])
                total += weighted[row] * (features[row] - risks @ features / risks.sum())
            return total

        known = [
            (score(weights + 1e-6 * unit) - score(weights - 1e-6 * unit)) / 2e-6
            for unit in np.eye(30)
        ]
        residuals, _ = score_residuals(features, times, labels, weights, point, 0.1)
        assert residuals == pytest.approx(weights[:, None] * np.array(known), abs=1e-6)
        assert residuals.sum(axis=0) == pytest.approx(score(weights))

    def test_cox_of_few_rows_is_cox_of_the_large_cohort(self) -> None:
        teacher = fit_teacher(noiseless(), SurvivalSetting(), np.random.default_rng(0))
        places = ReleasePlaces.of((50, 50), (teacher.censored, teacher.events))
        offered = candidates(
            places, teacher.pool, teacher.log_risks, teacher.hazard, 1.0, np.random.default_rng(1)
        )
        cohort = condense(places, teacher.pool, teacher.risk.bins, offered, (300, 100), 0.1)

        def distance(rows: np.ndarray) -> float:
            features = teacher.pool.features[rows]
            fitted = cox_coefficients(features, places.times + 1.0, places.labels, 0.1)
            return float(np.linalg.norm((fitted - cohort.coefficients) * features.std(axis=0)))

        drawn = np.mean([distance(offered[:, draw]) for draw in range(20)])
        assert distance(cohort.rows) < 0.3 * drawn


class TestRelease:
    @pytest.mark.parametrize("condense", [True, False])
    def test_rows_lie_within_the_schema_and_half_of_them_are_events(self, condense: bool) -> None:
        release = released(ipc=30, condense=condense)
        check_release(release, DATASET.encoder)
        assert release.rows is not None
        assert np.bincount(release.rows.labels).tolist() == [30, 30]
        assert release.notes["teacher"] == "cox-score"

    def test_a_release_ranks_nearly_as_well_as_all_rows(self) -> None:
        real = concordance(Release(ROWS))  # type: ignore[arg-type]
        few = np.mean([concordance(released(seed=seed)) for seed in range(3)])
        assert few > real - 0.02

    def test_weighted_to_the_declared_shares_the_survival_curve_is_the_datasets(self) -> None:
        from lifelines import KaplanMeierFitter

        rows = released(epsilon=10.0, ipc=100).rows
        assert rows is not None
        weights = np.asarray(DATASET.counts.by_class)[rows.labels]
        ends = np.linspace(-0.95, 0.5, 20)
        made = KaplanMeierFitter().fit(rows.values[:, -1], rows.labels, weights=weights)
        real = KaplanMeierFitter().fit(TIMES, ROWS.labels)
        gap = made.survival_function_at_times(ends) - real.survival_function_at_times(ends)
        assert np.abs(gap).max() < 0.05

    def test_other_teachers_and_settings_are_refused(self) -> None:
        for wrong in ({"teacher": "ebm"}, {"soft_labels": True}):
            with pytest.raises(NotApplicable, match="one teacher"):
                released(**wrong)
        for wrong in ({"share_score": 0.9}, {"bins": 1}, {"sharpness": 0.0}):
            with pytest.raises(InputError, match="survival teacher"):
                SurvivalSetting(**wrong)

    def test_several_newton_steps_share_what_one_would_have(self) -> None:
        private, ledger = open_private(
            DATASET, Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0))
        )
        spec = Spec(DATASET.task, 10, Budget(1.0, 1e-5))
        setting = SurvivalSetting(rounds=3, pool=500)
        synthesize_survival(private, spec, np.random.default_rng(0), setting)
        assert 0.99 < ledger.proof().epsilon <= 1.0
        assert sum(ledger.entries.values()) == 6


def test_a_patient_adds_one_vector_that_depends_on_the_time() -> None:
    """Two patients alike but for the time: an early death has the larger residual."""
    hazard = BaselineHazard(np.linspace(0.0, 2.0, 32), np.linspace(0.0, 2.0, 32))
    values = np.repeat(ROWS.values[:1], 2, axis=0)
    values[:, -1] = (-0.9, 0.9)
    rows = EncodedRows(values, np.array([1, 1]), np.zeros(2, dtype=np.int64), np.zeros(2))
    residuals = CoxRisk.none(merged()).score(hazard)(rows)[:, -1]
    assert residuals[0] > 0.0 > residuals[1]
