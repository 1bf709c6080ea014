"""Canaries, scorers and choices of an audit, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.audit import two_worlds
from bench.audit.attacks import Attack, choose_attacks, choose_canary, fit_shadow
from bench.audit.canaries import Canary, canaries, many_canaries
from bench.audit.scorers import MODEL_SCORERS, ROW_SCORERS, SHADOW, Attacker
from bench.audit.tradeoff import Promise
from bench.audit.trials import OUT, Stage, Trial, TrialId
from bench.data.dataset import Dataset, Split
from bench.plugins.release import Release, ReleasedModel, Rows
from bench.plugins.source import build_dataset
from bench.stats.bounds import (
    Threshold,
    epsilon_bound,
    gaussian_bound,
    gaussian_epsilon,
)
from tests.support.tables import ToyImages, ToySurvival, ToyTable

DATASETS = [build_dataset(source) for source in (ToyTable(), ToySurvival(), ToyImages())]
TABLE = DATASETS[0]


def without_rows(dataset: Dataset) -> Dataset:
    from dataclasses import replace

    rows = dataset.train.rows.take(np.zeros(0, dtype=np.intp))
    return replace(dataset, train=Split(dataset.train.frame.iloc[:0], rows))


# Canaries ---


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.name)
def test_canaries_are_legal_rows_that_follow_from_the_schema_alone(dataset: Dataset) -> None:
    made = canaries(dataset)
    assert 3 <= len(made) == len({canary.name for canary in made})
    for canary, blind in zip(made, canaries(without_rows(dataset)), strict=True):
        assert np.array_equal(canary.values, blind.values) and canary.label == blind.label
        frame = dataset.encoder.decode(canary.values[None], np.array([canary.label]))
        again, clipped = dataset.encoder.encode(frame)
        assert np.allclose(again.values[0], canary.values, atol=1e-6)
        assert not any(clipped.values())


def test_outliers_are_at_the_bounds_of_the_rarer_class() -> None:
    named = {canary.name: canary for canary in canaries(TABLE)}
    high = named["mislabelled outlier, high"]
    # age, marker, smoker, three stages; 200 positives of 500 rows.
    assert high.values.tolist() == [1, 1, 1, 0, 0, 1] and high.label == 1
    low = named["mislabelled outlier, low"]
    assert low.values.tolist() == [-1, -1, -1, 1, 0, 0]
    assert named["mislabelled outlier, high, common class"].label == 0
    rare = named["rare categories"]
    assert rare.values[2:].tolist() == [1, 0, 0, 1] and np.abs(rare.values[:2]).max() < 1
    assert np.linalg.norm(named["adversarial direction"].values) == pytest.approx(2.0)


def test_the_survival_outlier_has_the_earliest_event() -> None:
    named = {canary.name: canary for canary in canaries(DATASETS[1])}
    early = named["survival outlier, earliest event, low"]
    assert early.values[-1] == -1.0 and early.label == 1
    assert named["survival outlier, latest censoring"].label == 0


def test_many_canaries_are_different_corners() -> None:
    made = many_canaries(DATASETS[2], 50, np.random.default_rng(0))
    values = np.stack([canary.values for canary in made])
    assert len(np.unique(values, axis=0)) == 50
    # Corners, up to the step by which a canary becomes a training row.
    assert set(np.unique(np.round(values, 4))) == {-1.0, 1.0}
    few = many_canaries(TABLE, 100, np.random.default_rng(0))
    assert len(few) == 24  # 2 x 2 x 2 corners and 3 stages


# Scorers ---


def scored(values: list[list[float]], labels: list[int], canary: Canary) -> dict[str, float]:
    rows = Rows(np.array(values), np.array(labels), weights=np.ones(len(labels)))
    attacker = Attacker(TABLE.encoder, (canary,))
    scores = attacker.scores(Release(rows))
    assert scores.shape == (1, len(ROW_SCORERS))
    return dict(zip(ROW_SCORERS, scores[0].tolist(), strict=True))


def test_scores_of_a_release_of_three_rows() -> None:
    point = np.array([1, 1, 1, 0, 0, 1], dtype=np.float32)
    canary = Canary("one", point, 1, 0, TABLE.train.frame[:1])
    scores = scored(
        [[1, 1, 1, 0, 0, 1], [1, 1, -1, 0, 0, 1], [0, 0, 0, 0, 0, 0]], [0, 1, 1], canary
    )
    assert scores["nearest row"] == 0.0
    assert scores["nearest row of its class"] == -2.0
    assert scores["copies"] == 0.0
    assert scores["class share"] == pytest.approx(2 / 3)
    # |canary| = 2; its own class projects to 2 / 2 and 0.
    assert scores["projection"] == pytest.approx(0.5)
    assert scores["largest projection"] == pytest.approx(1.0)
    assert scores["second moment"] == pytest.approx(0.5)
    # Bandwidth 0.25 x 2: squared distances 4 and 4 give exp(-8) each.
    assert scores["density"] == pytest.approx(-8.0)
    # Age and marker in the last bin: one of two; smoker: the second alone counts as yes; stage:
    # one of two. Each share gets 1 / 3 more.
    expected = [0.5, 0.5, 0.5, 0.5]
    assert scores["histograms"] == pytest.approx(float(np.mean(np.log(np.array(expected) + 1 / 3))))


def test_a_planted_copy_is_seen_by_the_scorers_of_distance() -> None:
    canary = canaries(TABLE)[0]
    rows = Rows(np.zeros((4, 6)), np.array([0, 0, 1, 1]))
    attacker = Attacker(TABLE.encoder, (canary,))
    plain = dict(zip(ROW_SCORERS, attacker.scores(Release(rows))[0], strict=True))
    planted = dict(zip(ROW_SCORERS, attacker.planted(Release(rows), canary), strict=True))
    assert (plain["copies"], planted["copies"]) == (0.0, 1.0)
    assert planted["nearest row of its class"] == 0.0 > plain["nearest row of its class"]
    assert planted["class share"] == plain["class share"] == 0.5
    assert not rows.values.any()  # the release itself stays as it was


class Even(ReleasedModel):
    def predict(self, values: np.ndarray) -> np.ndarray:
        return np.tile([0.75, 0.25], (len(values), 1))


def test_a_model_is_scored_by_what_it_says_about_the_canary() -> None:
    attacker = Attacker(TABLE.encoder, canaries(TABLE))
    scores = attacker.scores(Release(model=Even()), only=2)
    assert scores.shape[1] == len(MODEL_SCORERS) and not scores[[0, 1, 3, 4]].any()
    assert scores[2].tolist() == pytest.approx([math.log(0.75), 0.25])
    assert attacker.features(Release(model=Even())).size > 0


def test_a_wide_release_has_a_short_summary() -> None:
    dataset = DATASETS[2]
    attacker = Attacker(dataset.encoder, canaries(dataset))
    rows = Rows(np.ones((6, 64)), np.array([0, 0, 1, 1, 2, 2]))
    assert len(attacker.features(Release(rows))) == 192


# Choices ---


def trial(stage: Stage, canary: int, number: int, scores: np.ndarray, features: object) -> Trial:
    planted = np.full(scores.shape[1], 9.0)
    return Trial(
        TrialId(stage, canary, number),
        scores,
        planted,
        np.asarray(features, dtype=np.float32),
        1.0,
        1.0,
        "",
        0.0,
    )


def trials(
    rng: np.random.Generator, stage: Stage, canary: int, count: int, shift: float, hidden: float
) -> list[Trial]:
    """Two canaries; scorer 3 of canary 1 moves by `shift`, a direction of the features too."""
    made = []
    for number in range(count):
        scores = rng.normal(size=(2, len(ROW_SCORERS)))
        features = rng.normal(size=6)
        if canary == 1:
            scores[1, 3] += shift
            features += hidden * np.array([1, -1, 1, -1, 0, 0])
        made.append(trial(stage, canary, number, scores, features))
    return made


def test_the_canary_and_scorer_that_show_most_are_chosen() -> None:
    rng = np.random.default_rng(0)
    outside = trials(rng, Stage.CHOOSE, OUT, 100, 0.0, 0.0)
    pilots = {canary: trials(rng, Stage.CHOOSE, canary, 20, 2.0, 0.0) for canary in (0, 1)}
    assert choose_canary(pilots, outside, 1e-5) == 1
    inside = trials(rng, Stage.CHOOSE, 1, 100, 2.5, 0.0)
    attack = choose_attacks(1, inside, outside, 1e-5).bound
    assert attack.scorer in (ROW_SCORERS[3], SHADOW) and attack.threshold.bound > 0.3
    fresh = (trials(rng, Stage.BOUND, 1, 200, 2.5, 0), trials(rng, Stage.BOUND, OUT, 200, 0, 0))
    assert epsilon_bound(attack.tally(*fresh), 1e-5) > 0.5


def test_the_shadow_classifier_sees_what_no_plain_scorer_sees() -> None:
    rng = np.random.default_rng(1)
    outside = trials(rng, Stage.CHOOSE, OUT, 200, 0.0, 0.0)
    inside = trials(rng, Stage.CHOOSE, 1, 200, 0.0, 1.0)
    attack = choose_attacks(1, inside, outside, 1e-5).bound
    assert attack.scorer == SHADOW
    fresh = (trials(rng, Stage.BOUND, 1, 300, 0, 1.0), trials(rng, Stage.BOUND, OUT, 300, 0, 0))
    inside_scores, outside_scores = (attack.scores(part) for part in fresh)
    # Two unit Gaussians at distance 2: the best score is the larger one with Phi(2 / sqrt 2).
    larger = float((inside_scores[:, None] > outside_scores[None, :]).mean())
    assert 0.85 < larger < 0.96
    assert epsilon_bound(attack.tally(*fresh), 1e-5) > 0.3
    none = choose_attacks(1, trials(rng, Stage.CHOOSE, 1, 200, 0, 0), outside, 1e-5).bound
    assert none.threshold.bound < 0.2


def test_the_curve_is_tested_in_the_middle() -> None:
    rng = np.random.default_rng(4)
    outside = trials(rng, Stage.CHOOSE, OUT, 2000, 0.0, 0.0)
    attack = choose_attacks(1, trials(rng, Stage.CHOOSE, 1, 2000, 2.0, 0.0), outside, 1e-5).curve
    fresh = (trials(rng, Stage.BOUND, 1, 2000, 2, 0), trials(rng, Stage.BOUND, OUT, 2000, 0, 0))
    tally = attack.tally(*fresh)
    # Best for two unit Gaussians at distance 2 is their middle: Phi(1) - Phi(-1) = 0.68.
    assert tally.true_positives - tally.false_positives > 0.55
    # The Gaussian bound is that of a distance just below 2.
    assert 0.85 < gaussian_bound(tally, 1e-5) / gaussian_epsilon(2.0, 1e-5) < 1.0


def test_the_shadow_classifier_is_the_known_direction() -> None:
    rng = np.random.default_rng(2)
    outside = rng.normal(size=(4000, 3)) * np.array([1.0, 2.0, 4.0])
    shadow = fit_shadow(outside[:2000] + np.array([1.0, 0.0, 0.0]), outside[2000:])
    weights = shadow.weights / np.abs(shadow.weights).max()
    assert weights == pytest.approx([1.0, 0.0, 0.0], abs=0.1)
    assert shadow.scores(outside).std() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("share, low, high", [(1.0, 1.0, 1.0), (0.0, 0.0, 0.2)])
def test_power_is_that_of_the_planted_share(
    share: float, low: float, high: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_worlds, "PLANTED", share)
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 10)
    rng = np.random.default_rng(3)
    halves = [
        (trials(rng, stage, 1, 60, 0, 0), trials(rng, stage, OUT, 60, 0, 0))
        for stage in (Stage.CHOOSE, Stage.BOUND)
    ]
    power, bug = two_worlds.planted_power(
        1, halves[0], halves[1], Promise(1.0, math.inf, 1e-5), "key"
    )
    assert power is not None and low <= power <= high and "copied" in bug
    nothing, why = two_worlds.planted_power(
        1, halves[0], halves[1], Promise(None, math.inf, 1e-5), "key"
    )
    assert nothing is None and "nothing is claimed" in why


def test_an_attack_reads_the_scorer_it_names() -> None:
    scores = np.arange(2.0 * len(ROW_SCORERS)).reshape(2, -1)
    one = trial(Stage.BOUND, 1, 0, scores, [0.0])
    attack = Attack(1, ROW_SCORERS[4], Threshold(0.0, True, 0.0))
    assert attack.scores([one]).tolist() == [scores[1, 4]]
