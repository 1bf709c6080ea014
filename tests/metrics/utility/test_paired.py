"""Two methods compared on the same resamples of the same test rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import false_discovery_control

from bench.errors import NotComputable
from bench.metrics.utility.paired import compare, t_test
from bench.stats.inference import holm

RNG = np.random.default_rng(1)
LABELS = RNG.integers(0, 2, 400)


def predictions(signal: float, seed: int) -> pd.DataFrame:
    noise = np.random.default_rng(seed).normal(size=len(LABELS))
    return pd.DataFrame({"label": LABELS, "score": signal * LABELS + noise})


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_better_method_is_found_and_an_equal_one_is_not() -> None:
    good, poor = predictions(2.0, 1), predictions(0.5, 2)
    estimate = compare("auroc", [good], [poor], rng())
    assert estimate.value > 0.2 and estimate.interval[0] > 0.1
    assert estimate.p_value == pytest.approx(2 / 1001)
    same = compare("auroc", [good], [good], rng())
    assert same.value == 0.0 and same.p_value == 1.0


def test_pairing_makes_nearly_equal_predictions_comparable() -> None:
    good = predictions(2.0, 1)
    spoilt = good.assign(score=good["score"].where(np.arange(len(good)) % 40 > 0, 0.0))
    together = compare("auroc", [good], [spoilt], rng()).interval
    alone = compare("auroc", [good], [predictions(2.0, 3)], rng()).interval
    assert together[1] - together[0] < (alone[1] - alone[0]) / 2


def test_the_null_is_rejected_as_often_as_promised() -> None:
    p_values = [
        compare("auroc", [predictions(1.0, seed)], [predictions(1.0, 1000 + seed)], rng()).p_value
        for seed in range(200)
    ]
    assert np.mean(np.array(p_values) < 0.05) < 0.1
    assert 0.35 < np.mean(p_values) < 0.65


def test_seeds_are_averaged_and_other_rows_are_refused() -> None:
    first = [predictions(2.0, seed) for seed in (1, 2)]
    second = [predictions(1.0, seed) for seed in (3, 4)]
    both = compare("auroc", first, second, rng()).value
    singles = [compare("auroc", [a], [b], rng()).value for a, b in zip(first, second, strict=True)]
    assert both == pytest.approx(np.mean(singles))
    other = first[0].assign(label=1 - LABELS)
    with pytest.raises(NotComputable, match="not tested on the same rows"):
        compare("auroc", first, [other], rng())


def test_more_classes_times_and_right_answers() -> None:
    labels = RNG.integers(0, 3, 300)
    good = pd.DataFrame(np.eye(3)[labels] + RNG.normal(size=(300, 3)), columns=list("abc"))
    poor = pd.DataFrame(RNG.normal(size=(300, 3)), columns=list("abc"))
    frames = [frame.assign(label=labels) for frame in (good, poor)]
    assert compare("auroc", [frames[0]], [frames[1]], rng()).interval[0] > 0
    times = RNG.exponential(size=300)
    risks = [pd.DataFrame({"time": times, "event": 1, "risk": r}) for r in (-times, times)]
    assert compare("c-index/cox", [risks[0]], [risks[1]], rng()).value == 1.0
    right = [pd.DataFrame({"label": labels, "predicted": p}) for p in (labels, 0 * labels)]
    assert compare("accuracy/convnet", [right[0]], [right[1]], rng()).value == pytest.approx(
        np.mean(labels != 0)
    )


def test_holm_by_hand_and_above_benjamini_hochberg() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []
    values = RNG.random(30)
    assert (holm(values) >= false_discovery_control(values) - 1e-12).all()


def test_the_t_test_over_seeds_is_scipys_paired_one() -> None:
    first, second = [0.81, 0.84, 0.80, 0.86], [0.79, 0.83, 0.77, 0.80]
    assert t_test(first, second) == pytest.approx(stats.ttest_rel(first, second).pvalue)
    # By hand: differences 1, 3, 2 have mean 2 and sd 1, t = 2 sqrt(3) with 2 degrees of freedom.
    assert t_test([1, 3, 2], [0, 0, 0]) == pytest.approx(0.0742, abs=1e-4)
    assert t_test([0.8], [0.7]) is None
    assert t_test([0.8, 0.8], [0.7, 0.7]) is None
