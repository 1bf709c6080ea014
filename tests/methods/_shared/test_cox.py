"""Cox's model against lifelines, and on constant columns."""

from __future__ import annotations

import numpy as np
import pytest

from bench.methods._shared.cox import cox_coefficients


def test_cox_coefficients_are_those_of_lifelines_without_ties() -> None:
    import pandas as pd
    from lifelines import CoxPHFitter

    generator = np.random.default_rng(1)
    features = generator.normal(size=(200, 3)) * [1.0, 5.0, 0.2]
    times = generator.exponential(np.exp(-features @ [0.5, 0.1, -2.0]))
    events = (generator.random(200) < 0.7).astype(int)
    frame = pd.DataFrame(features).assign(time=times, event=events)
    expected = CoxPHFitter(penalizer=0.1).fit(frame, "time", "event").params_.to_numpy()
    assert cox_coefficients(features, times, events, 0.1) == pytest.approx(expected, rel=1e-3)


def test_constant_columns_of_a_cox_model_count_nothing() -> None:
    generator = np.random.default_rng(1)
    features = np.column_stack([generator.normal(size=50), np.full(50, 3.0)])
    fitted = cox_coefficients(features, generator.exponential(size=50), np.ones(50, int), 0.1)
    assert fitted[1] == 0.0 and np.isfinite(fitted).all()
