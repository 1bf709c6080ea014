"""interpret-core's private boosting machine: the noise used is the noise charged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from bench import Budget
from bench.data.encoder import EncodedRows
from bench.errors import PrivacyContractError
from bench.plugins.source import build_dataset
from bench.privacy.accounting import compose_events
from bench.privacy.noise import SeededNoise, SystemNoise
from bench.privacy.trusted.ebm import (
    FittedEbm,
    check_scale,
    epsilon_of,
    feature_bounds,
    feature_columns,
    gaussians,
    run_ebm,
)
from tests.support.kernel import DATASET, opened
from tests.support.tables import ToyClasses

FEATURES = 4


def parameters(**changes: float) -> dict[str, float]:
    usual = {
        "features": FEATURES,
        "rounds": 5,
        "binning": 20.0,
        "boosting": 50.0,
        "learning_rate": 0.1,
        "bins": 8,
        "leaves": 3,
        "declared": 300,
    }
    return {**usual, **changes}


def fitted(rows: EncodedRows = DATASET.train.rows, seed: int = 0, **changes: float) -> FittedEbm:
    return run_ebm(rows, DATASET.encoder, np.random.default_rng(seed), parameters(**changes))


def test_the_event_is_one_gaussian_per_feature_and_one_per_round_and_feature() -> None:
    world = {
        event.noise_multiplier: count
        for event, count in compose_events([(gaussians(parameters()), 1)])
    }
    assert world == {20.0: 4, 50.0: 20}


@pytest.mark.parametrize(("binning", "boosting"), [(1.5, 2000.0), (20.0, 50.0), (300.0, 3.0)])
def test_the_fitted_noise_scales_are_those_charged(binning: float, boosting: float) -> None:
    model = fitted(binning=binning, boosting=boosting)
    assert model.noise_scale_binning == pytest.approx(binning, rel=1e-4)
    assert model.noise_scale_boosting == pytest.approx(0.1 * boosting, rel=1e-4)
    assert model.noise_scale_binning >= binning
    assert model.noise_scale_boosting >= 0.1 * boosting


def test_the_library_agrees_that_these_scales_are_within_its_epsilon() -> None:
    """The library's function from (epsilon, delta / 2) to the multiplier is the inverse of ours."""
    from interpret.utils._privacy import calc_gdp_noise_multi

    for mu in (0.05, 0.3, 2.0):
        again = calc_gdp_noise_multi(7, epsilon_of(mu), 0.5e-5)
        assert again == pytest.approx(math.sqrt(7) / mu, rel=1e-7)


def test_other_noise_than_charged_is_refused() -> None:
    check_scale("binning", 2.0, 2.0)
    for used in (1.999, 2.01):
        with pytest.raises(PrivacyContractError, match="was charged"):
            check_scale("binning", used, 2.0)


def test_one_step_moves_by_the_learning_rate_times_the_mean_residual() -> None:
    """One round, 8,000 rows, little noise: mean residuals of a binary column known by hand.

    The update of a region is learning_rate x sum of (y - 1/2) / rows: the scale of one row's
    share of at most learning_rate, on which the multiplier is based.
    """
    labels = np.repeat([0, 0, 0, 1, 0, 1, 1, 1], 1000)
    smoker = np.repeat([-1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0], 1000)
    values = np.zeros((8000, DATASET.encoder.width), dtype=np.float32)
    values[:, 2], values[:, 3] = smoker, 1.0
    rows = EncodedRows(values, labels, np.zeros(8000, dtype=np.int64), np.zeros(8000))
    model = fitted(rows, rounds=1, learning_rate=0.1, binning=1.0, boosting=1.0, leaves=2, bins=4)
    low, high = model.effects[2][0], model.effects[2][-1]
    assert high - low == pytest.approx(0.1 * 0.5, rel=0.03)


def test_the_answers_are_those_of_the_librarys_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from interpret.privacy import DPExplainableBoostingClassifier

    seen = []
    original = DPExplainableBoostingClassifier.fit

    def fit(self, *arguments, **named):  # type: ignore[no-untyped-def]
        seen.append(self)
        return original(self, *arguments, **named)

    monkeypatch.setattr(DPExplainableBoostingClassifier, "fit", fit)
    model = fitted(binning=2.0, boosting=5.0)
    columns = feature_columns(DATASET.encoder, DATASET.train.rows.values)
    assert model.log_odds(columns) == pytest.approx(seen[0].decision_function(columns), abs=1e-9)


def test_one_class_alone_is_fitted_and_the_exact_number_of_rows_is_not_asked() -> None:
    rows = DATASET.train.rows
    fitted(rows.take(np.flatnonzero(rows.labels == 0)))
    fitted(rows.take(np.array([], dtype=np.intp)))
    # The same declared number: cuts of counts without noise move with the rows only.
    assert len(fitted(binning=1.0, declared=300).cuts[0]) > 1
    assert len(fitted(binning=1.0, declared=20_000).cuts[0]) == 0


def test_noise_follows_the_kernels_generator() -> None:
    first, again, other = fitted(seed=1), fitted(seed=1), fitted(seed=2)
    assert np.array_equal(np.concatenate(first.effects), np.concatenate(again.effects))
    assert first.effects[1].shape != other.effects[1].shape or not np.array_equal(
        first.effects[1], other.effects[1]
    )


@pytest.mark.parametrize("secure", [False, True], ids=["seeded", "secure"])
def test_secure_noise_does_not_come_from_a_seed(
    secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seed of 31 bits can be found by trying all; without one the library asks the system."""
    from interpret.utils._native import Native

    seeds: list[int | None] = []
    original = Native.create_rng

    def create_rng(self: Native, random_state: int | None) -> object:
        seeds.append(random_state)
        return original(self, random_state)

    monkeypatch.setattr(Native, "create_rng", create_rng)
    models = []
    for _ in range(2):
        noise = SystemNoise() if secure else SeededNoise(np.random.default_rng(5))
        private, _ = opened(Budget(5.0, 1e-5), noise=noise)
        models.append(private.delegate("interpret-dp-ebm", **parameters()))
    assert seeds and all((seed is None) == secure for seed in seeds)
    first, second = (np.concatenate([*model.cuts, *model.effects]) for model in models)  # type: ignore[attr-defined]
    assert np.array_equal(first, second) != secure


def test_unseeded_noise_of_the_library_has_the_scale_that_it_is_asked_for() -> None:
    from interpret.utils._native import Native
    from scipy import stats

    noise = Native.get_native_singleton().generate_gaussian_random(None, 3.0, 5000)
    assert stats.kstest(noise / 3.0, "norm").pvalue > 1e-6
    assert len(np.unique(noise)) == 5000


def test_bounds_are_public_and_categories_are_codes() -> None:
    assert feature_bounds(DATASET.encoder).tolist() == [[-1, 1], [-1, 1], [-1, 1], [-0.5, 2.5]]
    codes = feature_columns(DATASET.encoder, DATASET.train.rows.values)[:, 3]
    assert set(codes) == {0.0, 1.0, 2.0}


def test_a_delegated_call_is_charged_and_trusts_the_library() -> None:
    private, ledger = opened(Budget(5.0, 1e-5))
    private.delegate("interpret-dp-ebm", **parameters())
    proof = ledger.proof()
    assert proof.trust == ("interpret-core 0.7.8",)
    # 4 / 20^2 + 20 / 50^2 = 1 / 7.4536^2
    assert proof.epsilon == pytest.approx(epsilon_at(math.sqrt(4 / 400 + 20 / 2500)), rel=2e-3)


def epsilon_at(mu: float) -> float:
    """Epsilon of one Gaussian mechanism at delta 1e-5, by the analytic formula."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    return float(
        brentq(
            lambda e: norm.cdf(-e / mu + mu / 2) - math.exp(e) * norm.cdf(-e / mu - mu / 2) - 1e-5,
            0,
            20,
        )
    )


def test_a_table_that_was_not_charged_for_is_refused() -> None:
    with pytest.raises(PrivacyContractError, match="charged for 3 features"):
        fitted(features=3)
    classes = build_dataset(ToyClasses())
    with pytest.raises(PrivacyContractError, match="two classes"):
        run_ebm(
            classes.train.rows, classes.encoder, np.random.default_rng(0), parameters(features=3)
        )


class TestWhatTheLibraryIsAsked:
    def captured(self, monkeypatch: pytest.MonkeyPatch, seed: int = 3) -> tuple[Any, Any, Any]:
        """Return the library's model, the rows and the labels that it was fitted on."""
        from interpret.privacy import DPExplainableBoostingClassifier

        seen: list[tuple[Any, Any, Any]] = []
        original = DPExplainableBoostingClassifier.fit

        def fit(self: Any, X: Any, y: Any) -> Any:
            seen.append((self, X, y))
            return original(self, X, y)

        monkeypatch.setattr(DPExplainableBoostingClassifier, "fit", fit)
        fitted(seed=seed)
        return seen[0]

    def test_one_bag_no_validation_rows_and_the_drawn_seed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More bags, or rows held out, would be other events than those charged."""
        model, _, _ = self.captured(monkeypatch)
        assert (model.outer_bags, model.validation_size, model.n_jobs) == (1, 0, 1)
        assert (model.max_rounds, model.learning_rate) == (5, 0.1)
        assert (model.max_bins, model.max_leaves) == (8, 3)
        assert model.random_state == np.random.default_rng(3).integers(2**31)
        assert (model.composition, model.delta) == ("gdp", 1e-5)

    def test_one_public_row_of_each_class_at_the_lower_bounds_is_added(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, table, labels = self.captured(monkeypatch)
        bounds = feature_bounds(DATASET.encoder)
        assert len(table) == len(labels) == len(DATASET.train) + 2
        assert table[-2:].tolist() == [bounds[:, 0].tolist()] * 2
        assert labels[-2:].tolist() == [0, 1]
        assert np.array_equal(model.privacy_bounds, bounds)

    def test_binning_sees_the_declared_number_and_the_two_public_rows(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from interpret.utils import _preprocessor

        lengths = []
        original = _preprocessor.private_numeric_binning

        def binning(column: Any, *rest: Any, **named: Any) -> Any:
            lengths.append((len(column), column.shape[0]))
            return original(column, *rest, **named)

        monkeypatch.setattr(_preprocessor, "private_numeric_binning", binning)
        fitted(declared=777)
        assert lengths == [(779, len(DATASET.train) + 2)] * FEATURES
        assert _preprocessor.private_numeric_binning is binning

    @pytest.mark.parametrize("what", ["binning", "boosting"])
    @pytest.mark.parametrize("factor", [0.99, 1.01])
    def test_a_library_that_sets_other_noise_is_refused(
        self, what: str, factor: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from interpret.privacy import DPExplainableBoostingClassifier

        original = DPExplainableBoostingClassifier.fit

        def fit(self: Any, *arguments: Any) -> Any:
            model = original(self, *arguments)
            name = f"noise_scale_{what}_"
            setattr(model, name, factor * getattr(model, name))
            return model

        monkeypatch.setattr(DPExplainableBoostingClassifier, "fit", fit)
        with pytest.raises(PrivacyContractError, match=f"the noise of {what} has multiplier"):
            fitted()


def test_a_ten_thousandth_more_noise_than_charged_is_allowed() -> None:
    check_scale("binning", 2.0 * (1.0 + 100.0 * 1e-6), 2.0)
    with pytest.raises(PrivacyContractError):
        check_scale("binning", 2.0 * (1.0 + 100.5 * 1e-6), 2.0)
    with pytest.raises(PrivacyContractError):
        check_scale("binning", 2.0 * (1.0 - 2.0**-53), 2.0)


def test_epsilons_that_the_library_cannot_be_given_are_refused() -> None:
    # At epsilon 0 delta is 2 Phi(mu / 2) - 1, about 0.4 mu: half of 1e-5 is reached at 1.25e-5.
    for mu in (1e-6, 1.2e-5, 23.1813, 100.0):
        with pytest.raises(PrivacyContractError, match="cannot run a mechanism of mu"):
            epsilon_of(mu)
    # mu (mu / 2 + 10) is 500 at 23.166.
    for mu in (1.3e-5, 0.01, 5.0, 23.16):
        epsilon = epsilon_of(mu)
        curve = ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2)
        assert 0.0 < epsilon < mu * (mu / 2.0 + 10.0)
        assert curve == pytest.approx(0.5e-5, rel=1e-6)
