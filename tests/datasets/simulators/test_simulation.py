"""What the simulators share: measurements, exact counts, the factor model and its best."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from bench.data.truth import auroc_with_error
from bench.datasets.simulators import _tcga_model
from bench.datasets.simulators._factor_model import DiseaseState, FactorModel, log_odds
from bench.datasets.simulators._simulation import Measurement, correlated_scores, with_counts
from bench.plugins.registry import build_source


def test_measurements_have_the_stated_quartiles_and_stay_within_bounds() -> None:
    one = Measurement("x", 0, 50, 1, median=4, upper_quartile=7)
    values = one.report(np.random.default_rng(0).standard_normal(100_000))
    assert np.quantile(values, [0.5, 0.75]) == pytest.approx([4, 7], abs=0.1)
    assert one.report(np.array([-50.0, 50.0])) == pytest.approx([0, 50])
    from scipy.stats import johnsonsb

    start, width = -0.05, 50.1
    slope = (math.log(7.05 / 43.05) - math.log(4.05 / 46.05)) / 0.6744897501960817
    law = johnsonsb(math.log(46.05 / 4.05) / slope, 1 / slope, loc=start, scale=width)
    assert np.quantile(values, 0.975) == pytest.approx(law.ppf(0.975), rel=0.03)


def test_scores_have_the_asked_correlations() -> None:
    wanted = np.array([[1, 0.5, -0.3], [0.5, 1, 0.1], [-0.3, 0.1, 1]])
    scores = correlated_scores(100_000, wanted, np.random.default_rng(1))
    assert np.corrcoef(scores.T) == pytest.approx(wanted, abs=0.015)
    assert scores.std(axis=0) == pytest.approx([1, 1, 1], abs=0.01)


def test_drawing_to_exact_counts_keeps_the_law_within_a_class() -> None:
    rng = np.random.default_rng(3)

    def draw(count: int) -> tuple[pd.DataFrame, np.ndarray]:
        labels = (rng.random(count) < 0.02).astype(np.int64)
        return pd.DataFrame({"x": rng.normal(3.0 * labels), "y": labels}), labels

    table = with_counts((900, 400), draw, rng)
    assert table["y"].value_counts().to_dict() == {0: 900, 1: 400}
    means = table.groupby("y")["x"].mean()
    assert means.to_numpy() == pytest.approx([0, 3], abs=0.2)
    # Shuffled: neither class is all at one end.
    assert table["y"].iloc[:650].mean() == pytest.approx(400 / 1300, abs=0.08)


def test_factor_likelihoods_agree_with_a_dense_gaussian() -> None:
    from scipy.stats import multivariate_normal

    model = _tcga_model.panel(30)
    frame = build_source("tcga-sim", {"rows": 60, "genes": 30}).load()
    dense = np.zeros((30, model.factor_count))
    np.put_along_axis(dense, model.factors, model.loadings, axis=1)
    covariance = dense @ dense.T + np.diag(model.unique**2)
    assert np.allclose(np.diag(covariance), 1)
    values = frame[list(model.names)].to_numpy(dtype=np.float64)
    relative = (values - model.means) / model.spreads
    scores = np.log1p(model.skewness * relative) / model.skewness
    expected = np.column_stack(
        [
            np.log(
                sum(
                    state.chance * multivariate_normal.pdf(scores, state.share * shift, covariance)
                    for state in model.states
                )
            )
            for shift in model.shifts
        ]
    )
    found = model.log_likelihoods(frame)
    # Equal but for a term common to the classes.
    assert np.allclose(found - found[:, :1], expected - expected[:, :1], atol=1e-6)


def test_bayes_scores_agree_with_the_closed_form_of_two_gaussians() -> None:
    from scipy.stats import norm

    names = ("a", "b")
    plain = FactorModel(
        names=names,
        factor_count=3,
        factors=np.array([[0, 1, 2], [0, 1, 2]]),
        loadings=np.zeros((2, 3)),
        means=np.zeros(2),
        spreads=np.ones(2),
        skewness=np.full(2, 0.1),
        shifts=np.array([[0.0, 0.0], [1.2, 0.9]]),
        states=(DiseaseState(1.0, 1.0),),
        bounds=(-100.0, 100.0),
    )
    # Distance sqrt(1.2^2 + 0.9^2) = 1.5: AUROC Phi(1.5 / sqrt 2), accuracy Phi(0.75).
    found = plain.bayes_scores((1.0, 1.0), 100_000, seed=0)
    assert found.auroc == pytest.approx(norm.cdf(1.5 / math.sqrt(2)), abs=4 * found.error)
    assert found.accuracy == pytest.approx(norm.cdf(0.75), abs=4 * found.error)


def test_odds_against_the_rest_are_those_of_bayes() -> None:
    likelihoods = np.log([[0.2, 0.5, 0.1]])
    joint = np.array([0.2 * 3, 0.5 * 2, 0.1 * 5])
    expected = np.log(joint / (joint.sum() - joint))
    assert log_odds(likelihoods, (3, 2, 5)) == pytest.approx(expected[None, :])


def test_auroc_and_its_error_agree_with_sklearn_and_with_repetition() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    negative, positive = np.round(rng.normal(0, 1, 300), 1), np.round(rng.normal(1, 1, 80), 1)
    area, error = auroc_with_error(negative, positive)
    labels = np.repeat([0, 1], [300, 80])
    assert area == pytest.approx(roc_auc_score(labels, np.concatenate([negative, positive])))
    repeated = [
        auroc_with_error(rng.normal(0, 1, 300), rng.normal(1, 1, 80))[0] for _ in range(400)
    ]
    assert error == pytest.approx(np.std(repeated), rel=0.25)
