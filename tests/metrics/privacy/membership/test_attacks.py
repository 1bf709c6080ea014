"""Membership attacks: what they report, that they see copies, and that they see nothing else."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import roc_auc_score, roc_curve

from bench.data.dataset import Dataset, Split
from bench.errors import NotComputable
from bench.metrics._shared import bootstrap, encoded_distance, record_distance
from bench.metrics._shared.shallow_trees import BinnedRows
from bench.metrics.privacy.membership import _roc as _membership_roc
from bench.metrics.privacy.membership import attacks
from bench.metrics.privacy.membership._roc import AttackScores
from bench.metrics.privacy.membership.attacks import (
    DensityRatioAttack,
    NeighbourAttack,
    ThresholdAttack,
)
from bench.plugins import registry
from bench.plugins.metric import Direction, Evaluation
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from bench.privacy import events
from bench.privacy.accounting import Budget
from bench.privacy.ledger import Entry, Ledger
from tests.metrics.helpers import Answers, evaluate, named, release_of
from tests.support.exact_splits import exact_splits
from tests.support.membership import RepeatedRecords, some_rows, within_noise
from tests.support.real_data import real_folder
from tests.support.tables import ToyTable

ATTACKS = (NeighbourAttack, DensityRatioAttack, ThresholdAttack)


@pytest.fixture(scope="module")
def table(exact_table: Dataset) -> Dataset:
    """50 control rows, as many as an attack needs."""
    return exact_table


@pytest.fixture(scope="module")
def larger() -> Dataset:
    return exact_splits(ToyTable(negatives=900, positives=600))


@pytest.fixture(scope="module")
def cancer() -> Dataset:
    return build_dataset(registry.build_source("breast-cancer"))


def ones(count: int) -> np.ndarray:
    return np.ones((count, 1))


def judged(
    membership: list[int], scores: list[float], claims: list[int] | None = None
) -> AttackScores:
    return AttackScores(
        np.array(membership),
        np.array(scores, dtype=float),
        np.array(claims or [0] * len(scores), dtype=bool),
        np.zeros(len(scores), dtype=np.int64),
    )


# Candidates --------------------------------------------------------------------------------------


def test_members_and_others_are_equally_many_of_each_class_and_stand_in_both_tables_once():
    dataset = build_dataset(RepeatedRecords())
    evaluation = evaluate(dataset, dataset.test)
    chosen = attacks.candidates(evaluation)
    inside = np.bincount(dataset.train.rows.labels[chosen.members])
    outside = np.bincount(dataset.control.rows.labels[chosen.others])
    assert np.array_equal(inside, outside)
    records = [
        record_distance.real_records(evaluation, name).take(places)
        for name, places in (("train", chosen.members), ("control", chosen.others))
    ]
    rows = np.concatenate([np.column_stack([r.numbers, r.codes]) for r in records])
    assert len(np.unique(rows, axis=0)) == len(rows) < 2 * len(dataset.control)
    assert set(chosen.members) < set(chosen.all_members)
    assert chosen.membership.tolist() == [1] * len(inside.repeat(inside)) + [0] * outside.sum()


def test_all_releases_of_a_dataset_are_attacked_on_the_same_rows(table):
    first = attacks.candidates(evaluate(table, table.train, seed=1))
    again = attacks.candidates(evaluate(table, table.test, seed=2))
    assert np.array_equal(first.members, again.members)
    assert np.array_equal(first.others, again.others)


@pytest.mark.parametrize("attack", ATTACKS)
def test_too_few_control_rows_are_absent_with_the_reason(attack):
    dataset = exact_splits(ToyTable(negatives=150, positives=100))
    reason = "25 training and as many control rows"
    if attack is NeighbourAttack:
        scores = attack().compute(evaluate(dataset, dataset.train))
        assert reason in named(scores, "mia/auroc").reason
        assert named(scores, "mia/auroc").value is None
    else:
        with pytest.raises(NotComputable, match=reason):
            attack().compute(evaluate(dataset, dataset.train))


# What is reported --------------------------------------------------------------------------------


def test_auroc_and_advantage_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    rows = judged(rng.integers(0, 2, 400).tolist(), rng.integers(0, 30, 400).tolist())
    false, true, _ = roc_curve(rows.membership, rows.scores, drop_intermediate=False)
    area, advantage, _ = _membership_roc.summary(rows, ())(ones(400))[:, 0]
    assert area == pytest.approx(roc_auc_score(rows.membership, rows.scores))
    assert advantage == pytest.approx((true - false).max())
    _, area = _membership_roc.risk_and_auroc(rows.membership, rows.scores)(ones(400))[:, 0]
    assert area == pytest.approx(roc_auc_score(rows.membership, rows.scores))


def test_weights_are_the_same_as_repeated_rows():
    rng = np.random.default_rng(1)
    rows = judged(rng.integers(0, 2, 60).tolist(), rng.integers(0, 9, 60).tolist())
    weights = rng.integers(0, 4, (60, 3)).astype(float)
    rows = replace(rows, claims=rng.random(60) < 0.3)
    for statistic in (
        lambda j: _membership_roc.summary(j, (0.1, 0.3)),
        lambda j: _membership_roc.risk_and_auroc(j.membership, j.scores),
    ):
        for column, values in enumerate(statistic(rows)(weights).T):
            index = np.repeat(np.arange(60), weights[:, column].astype(int))
            copied = judged(
                *(part[index].tolist() for part in (rows.membership, rows.scores, rows.claims))
            )
            assert statistic(copied)(ones(len(index)))[:, 0] == pytest.approx(values)


def test_the_compiled_pass_gives_what_the_curves_give():
    """With ties, unequal weights, several parts, and rates that are reached late or never."""
    rng = np.random.default_rng(0)
    membership = np.repeat([1, 0], [90, 70])
    scores = rng.integers(0, 40, 160) + 3.0 * membership
    judged = AttackScores(membership, scores, scores > 20, np.arange(160) % 2)
    rates = (0.01, 0.3, 0.99)
    weights = rng.integers(1, 4, (160, 5)).astype(np.uint8)
    expected = np.zeros((6, 5))
    for part in (0, 1):
        rows = np.flatnonzero(judged.parts == part)
        drawn = weights[rows].astype(float)
        curve = _membership_roc._RocCurve.of(membership[rows], scores[rows])
        members, others = curve.cumulated(drawn)
        called = (scores[rows] > 20)[:, None] * drawn
        inside = membership[rows] == 1
        expected += [
            curve.area(members, others),
            np.maximum(curve.gaps(members, others).max(axis=0), 0),
            called[inside].sum(axis=0) / members[-1] - called[~inside].sum(axis=0) / others[-1],
            *(curve.sensitivity(members, others, rate) for rate in rates),
        ]
    summary = _membership_roc.summary(judged, rates)
    assert summary(weights) == pytest.approx(expected / 2, abs=1e-12)
    assert summary(weights.astype(float)) == pytest.approx(expected / 2, abs=1e-12)
    order = rng.permutation(160)
    moved = np.empty_like(weights)
    moved[order] = weights
    assert summary.at(order)(moved) == pytest.approx(expected / 2, abs=1e-12)


def test_statistics_are_averages_over_the_parts():
    rows = judged([1, 0, 1, 0], [2, 1, 1, 2], [1, 0, 0, 0])
    parts = replace(rows, parts=np.array([0, 0, 1, 1]))
    # One part right, one wrong.
    assert _membership_roc.summary(parts, ())(ones(4))[:, 0].tolist() == [0.5, 0.5, 0.5]


def test_intervals_of_an_average_over_trained_attacks_are_wider():
    whole = judged([1, 0] * 5, [0.0] * 10)
    assert whole.widening == 1.0
    assert replace(whole, parts=np.repeat(np.arange(5), 2)).widening == 1.5
    estimate = bootstrap.Estimate(0.5, np.array([0.4, 0.5, 0.6]))
    widened = _membership_roc._widened(estimate, 1.5, 0.4)
    assert widened.value == 0.5
    assert widened.samples == pytest.approx([0.4, 0.5, 0.65])  # nothing lies below


def sensitivity(rows, rate):
    """The last of the statistics of the rows themselves."""
    return _membership_roc.summary(rows, (rate,))(ones(len(rows.scores)))[-1].item()


def test_sensitivity_by_hand():
    # Nine non-members 1..9: place 0.1 * 10 = 1, so the threshold is the largest of them.
    rows = judged([0] * 9 + [1] * 4, [*range(1, 10), 9.5, 10, 3, 8])
    assert sensitivity(rows, 0.1) == 0.5
    # Place 1.5: halfway between members above 9 (2 of 4) and above 8 (2, and half of the tied one).
    assert sensitivity(rows, 0.15) == pytest.approx((0.5 + (2 + 0.5) / 4) / 2)


def test_sensitivity_of_an_attack_without_an_opinion_is_the_rate():
    rows = judged([0] * 30 + [1] * 50, [1.0] * 80)
    for rate in (0.1, 0.01, 0.5):
        assert sensitivity(rows, rate) == pytest.approx(rate)


def test_sensitivity_is_the_rate_on_average_for_few_rows_too():
    """The usual definition would give 2/12 instead of 0.1 with eleven non-members."""
    rng = np.random.default_rng(2)
    rates = [
        sensitivity(judged([0] * 11 + [1] * 11, rng.integers(0, 40, 22).tolist()), 0.1)
        for _ in range(1500)
    ]
    assert within_noise(rates, 0.1)


def test_risk_is_taken_at_the_first_threshold_with_half_of_the_members():
    # Distances of members 0, 0, 1, 3 and of others 0, 1, 2, 3: threshold 0 has recall 1/2.
    membership_ = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    distances = np.array([0.0, 0, 1, 3, 0, 1, 2, 3])
    risk, _ = _membership_roc.risk_and_auroc(membership_, -distances)(ones(8))[:, 0]
    assert risk == pytest.approx(2 * (2 / 3) - 1)


def test_the_threshold_is_the_best_one():
    assert _membership_roc.best_threshold(np.array([0, 1, 0, 1]), np.array([1.0, 3, 2, 4])) == 3
    assert _membership_roc.best_threshold(np.array([1, 0]), np.array([1.0, 2])) == math.inf


def test_every_declared_output_is_given_with_its_interval(larger):
    for attack in ATTACKS:
        scores = attack().compute(evaluate(larger, some_rows(larger.train, 300)))
        assert [s.metric for s in scores.scores] == [o.name for o in attack.declared()]
        for score in scores.scores:
            if score.value is None:
                assert score.reason
            else:
                assert score.low - 1e-12 <= score.value <= score.high + 1e-12
                assert score.direction is Direction.LOWER


def test_the_boosted_trees_are_as_good_as_scikit_learns(cancer):
    """Same settings, another implementation: the AUROCs differ by less than their noise."""
    evaluation = evaluate(cancer, some_rows(cancer.train, 170))
    nearest = encoded_distance.neighbours(
        attacks.candidate_points(evaluation), attacks.released_points(evaluation), 5
    )
    features = attacks.distance_statistics(nearest)
    labels = attacks.candidates(evaluation).membership
    parts = attacks._stratified_parts(labels, 5, np.random.default_rng(0))
    ours, theirs = [], []
    rows = BinnedRows.of(features, exact=True)
    columns = np.ascontiguousarray(features.T, dtype=np.float32)
    for part in range(5):
        test = parts == part
        answers = attacks._boosted(rows, columns, labels, test)[1]
        ours.append(roc_auc_score(labels[test], answers))
        model = GradientBoostingClassifier(random_state=0).fit(features[~test], labels[~test])
        theirs.append(roc_auc_score(labels[test], model.predict_proba(features[test])[:, 1]))
    assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=0.06)


def test_fifteen_statistics_by_hand():
    distances = np.array([[1.0, 2.0, 2.0, 3.0, 7.0]])
    nearest = encoded_distance.NearestDistances(distances, 2 * distances, 0 * distances)
    expected = [3.0, 1.0, 7.0, math.sqrt(4.4), 6.0]
    assert attacks.distance_statistics(nearest)[0] == pytest.approx(
        [*expected, *(2 * value for value in expected), *[0.0] * 5]
    )


def test_precision_and_recall_are_tabled_for_each_share_known_to_the_attacker(larger):
    scores = ThresholdAttack().compute(evaluate(larger, larger.train))
    details = scores.details["mia-threshold"]
    assert sorted(details["known"].unique()) == [0.05, 0.1, 0.2, 0.5, 1.0]
    assert details[details["known"] == 0.05]["records"].unique() == [15]
    whole = details[details["known"] == 1.0].set_index("above_least")
    assert whole.loc[0, "threshold"] == 0
    assert whole["recall"].iloc[-1] == 1.0
    assert whole["precision"].iloc[-1] == 0.5  # everybody is called a member
    risk = named(scores, "mia-threshold/risk")
    assert risk.value == pytest.approx(2 * whole.loc[0, "precision"] - 1)
    assert risk.limit == 0.2


def test_precision_of_the_surest_claims_weighs_members_and_others_equally():
    assert attacks._balanced(0.9, 9.0) == pytest.approx(0.5)
    assert attacks._balanced(1.0, 9.0) == 1.0
    assert attacks._balanced(0.0, 9.0) == 0.0


# Bounds ------------------------------------------------------------------------------------------


def with_ledger(release: Release, *recorded: Entry, epsilon: float = 1.0) -> Release:
    ledger = Ledger(Budget(epsilon, 1e-5))
    for entry in recorded:
        ledger.add(entry)
    return replace(release, ledger=ledger)


def test_the_bound_follows_from_the_proven_epsilon(table):
    release = with_ledger(release_of(table.test), Entry((), events.gaussian(3.0)))
    scores = NeighbourAttack().compute(evaluate(table, release))
    proven = release.ledger.proof().epsilon
    assert 0 < proven < 3
    bound = named(scores, "mia/bound")
    assert bound.value == pytest.approx((math.exp(proven) - 1) / (math.exp(proven) + 1) + 1e-5)
    assert bound.direction is Direction.NEUTRAL
    swap = (math.exp(2 * proven) - 1) / (math.exp(2 * proven) + 1)
    swap += 1e-5 * (1 + math.exp(proven))
    assert named(scores, "mia/bound-swap").value == pytest.approx(swap)


def test_a_raw_look_proves_nothing_and_the_bound_is_one(table):
    looked = Entry((), events.dp_event.NonPrivateDpEvent(), reason="rows were read")
    scores = NeighbourAttack().compute(evaluate(table, with_ledger(release_of(table.test), looked)))
    assert named(scores, "mia/bound").value == named(scores, "mia/bound-swap").value == 1.0


def test_the_bound_is_never_below_the_exact_one():
    for epsilon in (0.0, 0.1, 1.0, 5.0, 800.0, math.inf):
        for delta in (0.0, 1e-5, 0.3):
            exact = 1.0
            if epsilon < 700:
                exact = (math.exp(epsilon) - 1 + 2 * delta) / (math.exp(epsilon) + 1)
            assert min(1.0, exact) - 1e-12 <= attacks.advantage_bound(epsilon, delta) <= 1.0


def test_without_a_ledger_the_bound_is_absent(table):
    bound = named(NeighbourAttack().compute(evaluate(table, table.test)), "mia/bound")
    assert bound.value is None
    assert "no ledger" in bound.reason


# Absent ------------------------------------------------------------------------------------------


def test_fewer_rows_than_neighbours_leave_the_bound_alone(table):
    release = with_ledger(some_rows(table.train, 4), Entry((), events.gaussian(3.0)))
    scores = NeighbourAttack().compute(evaluate(table, release))
    assert "4 released rows" in named(scores, "mia/auroc").reason
    assert named(scores, "mia/auroc").value is None
    assert named(scores, "mia/bound").value is not None


def test_a_rare_false_positive_needs_enough_non_members(table):
    """Ten in each test part: one false positive among them is 0.1."""
    scores = NeighbourAttack().compute(evaluate(table, table.train))
    assert named(scores, "mia/tpr-at-fpr-0.1").value > 0.8
    assert named(scores, "mia/tpr-at-fpr-0.01").value is None
    assert "10 non-members" in named(scores, "mia/tpr-at-fpr-0.01").reason


@pytest.mark.parametrize("attack", [DensityRatioAttack, ThresholdAttack])
def test_a_model_has_no_rows_to_attack(table, attack):
    with pytest.raises(NotComputable, match="a model, not rows"):
        attack().compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))


def test_attacks_that_would_take_hours_are_absent_with_the_reason(table, monkeypatch):
    monkeypatch.setattr(attacks, "COMPARISONS_AT_MOST", 1000)
    for attack in (DensityRatioAttack, ThresholdAttack):
        with pytest.raises(NotComputable, match="never of a sample"):
            attack().compute(evaluate(table, table.train))


# Determinism -------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS)
def test_same_seed_same_scores_for_any_number_of_threads(table, attack):
    release = some_rows(table.train, 150)
    one, two = (
        attack().compute(Evaluation(table, release, seed=3, threads=threads)) for threads in (1, 2)
    )
    assert one.scores == two.scores
    for name, details in one.details.items():
        assert details.equals(two.details[name])


# Power and null ----------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS)
def test_releasing_the_training_rows_is_caught(attack, larger, cancer):
    for dataset in (larger, cancer):
        scores = attack().compute(evaluate(dataset, dataset.train))
        area = named(scores, f"{attack.name}/auroc")
        assert area.value > 0.95
        assert area.low > 0.9
    if attack is ThresholdAttack:
        assert named(scores, "mia-threshold/risk").low > 0.9
    else:
        assert named(scores, f"{attack.name}/advantage-held-out").low > 0.9
        assert named(scores, f"{attack.name}/tpr-at-fpr-0.1").low > 0.9


def test_condensed_copies_with_fractional_categories_are_caught(patients):
    """Survival rows whose values were moved a little: no copy is exact any more."""
    rows = patients.train.rows
    moved = rows.values + np.random.default_rng(0).normal(0, 1e-3, rows.values.shape)
    evaluation = evaluate(patients, Release(Rows(moved, rows.labels)))
    for attack in (NeighbourAttack, DensityRatioAttack):
        assert named(attack().compute(evaluation), f"{attack.name}/auroc").low > 0.8


def test_fresh_rows_are_not_caught():
    """Over 8 splits every average is within noise of guessing."""
    guessing = {
        "mia/auroc": 0.5,
        "mia/advantage-held-out": 0.0,
        "mia/tpr-at-fpr-0.1": 0.1,
        "domias/auroc": 0.5,
        "domias/advantage-held-out": 0.0,
        "domias/tpr-at-fpr-0.1": 0.1,
        "domias/precision": 0.5,
        "mia-threshold/auroc": 0.5,
        "mia-threshold/risk": 0.0,
    }
    values: dict[str, list[float]] = {name: [] for name in guessing}
    for split_seed in range(8):
        dataset = build_dataset(RepeatedRecords(), split_seed=split_seed)
        evaluation = evaluate(dataset, dataset.test)
        for attack in ATTACKS:
            for score in attack().compute(evaluation).scores:
                if score.metric in guessing:
                    values[score.metric].append(score.value)
    for name, expected in guessing.items():
        assert within_noise(values[name], expected), (name, np.mean(values[name]))
        assert abs(np.mean(values[name]) - expected) < 0.05, (name, np.mean(values[name]))


def test_a_hundred_raw_rows_are_seen_by_the_surest_claims(cancer):
    """100 of 341 rows: all claims are right, and the averages rise too."""
    scores = DensityRatioAttack().compute(evaluate(cancer, some_rows(cancer.train, 100)))
    precision = named(scores, "domias/precision")
    assert precision.value == 1.0
    assert precision.low > 0.75
    assert named(scores, "domias/auroc").value > 0.55
    assert precision.remark == ""
    assert named(scores, "domias/auroc").remark.startswith("weak")


@pytest.mark.slow
def test_on_adult_too(monkeypatch):
    real_folder("adult", monkeypatch)
    dataset = build_dataset(registry.build_source("adult"))
    full = evaluate(dataset, dataset.train)
    fresh = evaluate(dataset, some_rows(dataset.test, 10_000))
    for attack in ATTACKS:
        output = f"{attack.name}/auroc"
        assert named(attack().compute(full), output).low > 0.95
        nothing = named(attack().compute(fresh), output)
        assert abs(nothing.value - 0.5) < 0.03
    few = DensityRatioAttack().compute(evaluate(dataset, some_rows(dataset.train, 100)))
    # 100 of 24,421 rows: nothing on average, but the surest claims are right.
    assert named(few, "domias/precision").low > 0.5
    assert abs(named(few, "domias/auroc").value - 0.5) < 0.03


# Density ratios -----------------------------------------------------------------------------------


def test_scores_are_log_ratios_of_distances(table):
    evaluation = evaluate(table, some_rows(table.train, 60))
    chosen = attacks.candidates(evaluation)
    ratios = attacks.density_ratios(evaluation)
    assert len(ratios.members) == len(chosen.all_members)
    assert len(ratios.others) == len(chosen.others)
    queries = attacks.split_points(evaluation, table.control)[chosen.others]
    reference = attacks.split_points(evaluation, table.validation)
    population = np.sort(cdist(queries, reference), axis=1)[:, :5].mean(axis=1)
    closest = cdist(queries, attacks.released_points(evaluation)).min(axis=1)
    assert ratios.others == pytest.approx(np.log(population / closest))


def test_copies_score_highest_and_finitely(table):
    evaluation = evaluate(table, table.train)
    ratios = attacks.density_ratios(evaluation)
    assert np.isfinite(ratios.members).all()
    assert ratios.members.min() > ratios.others.max()


def test_rounding_does_not_rank_copies(table):
    rows = table.train.rows
    release = some_rows(table.train, len(table.train))
    noise = np.random.default_rng(0).uniform(-1e-8, 1e-8, rows.values.shape)
    moved = replace(
        release,
        rows=replace(release.rows, values=release.rows.values.astype(np.float64) + noise),
    )
    plain, shaken = (attacks.density_ratios(evaluate(table, each)) for each in (release, moved))
    assert np.array_equal(plain.members, shaken.members)


def test_the_density_of_the_population_needs_reference_rows(table):
    few = Split(table.validation.frame[:4], table.validation.rows.take(np.arange(4)))
    dataset = replace(table, validation=few)
    with pytest.raises(NotComputable, match="4 validation rows"):
        attacks.density_ratios(evaluate(dataset, dataset.train))
