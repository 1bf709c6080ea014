"""Condensation of a private teacher: budget, release and utility."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data.dataset import Dataset, Split
from bench.errors import InputError, NotApplicable
from bench.methods.private_teacher._bins import ClassCounts
from bench.methods.private_teacher.private_teacher_dc import PrivateTeacherDc
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.returned import check_release
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.results.verdicts import Verdict, judge
from tests.support.tables import ToyClasses, ToyImages, ToyOneFeature, ToyTable

TABLE = build_dataset(ToyTable(negatives=3000, positives=2000))
SMALL = {"steps": 5, "pool": 1000, "judges": 300}


def released(
    data: Dataset = TABLE,
    epsilon: float = 1.0,
    ipc: int | None = 20,
    seed: int = 0,
    **parameters: object,
) -> tuple[Release, Ledger]:
    budget = Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng([seed, 1])))
    method = PrivateTeacherDc(**{**SMALL, **parameters})  # type: ignore[arg-type]
    spec = Spec(data.task, ipc, budget)
    return method.synthesize(private, spec, np.random.default_rng([seed, 2])), ledger


def area(release: Release, *splits: Split) -> float:
    """AUROC of a logistic regression on these rows; on the test rows by default."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    rows, others = release.rows, [split.rows for split in splits or (TABLE.test,)]
    assert rows is not None
    model = LogisticRegression(max_iter=1000).fit(rows.values, rows.labels)
    chances = model.decision_function(np.concatenate([part.values for part in others]))
    return float(roc_auc_score(np.concatenate([part.labels for part in others]), chances))


@pytest.mark.parametrize("teacher", ["auto", "additive", "naive-bayes", "ebm", "counts"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_whole_budget_is_spent_and_no_more(teacher: str, epsilon: float) -> None:
    _, ledger = released(epsilon=epsilon, teacher=teacher, condense=False)
    proof = ledger.proof()
    assert 0.99 * epsilon < proof.epsilon <= epsilon
    verdict = judge(Budget(epsilon, 1e-5), None, proof).verdict
    assert verdict is (Verdict.SOUND_TRUSTING if teacher == "ebm" else Verdict.SOUND)


def test_all_calls_together_are_one_gaussian_mechanism() -> None:
    """Analytic Gaussian mechanism, epsilon 1, delta 1e-5: multiplier 3.7307 (Balle and Wang)."""
    for parameters in ({}, {"counts_share": 0.5}, {"rounds": 2}, {"teacher": "ebm"}):
        release, _ = released(condense=False, **parameters)
        assert release.notes["noise_multiplier"] == pytest.approx(3.7307, abs=0.01)


def test_the_same_seeds_give_the_same_rows() -> None:
    first, again, other = (released(seed=seed)[0].rows for seed in (3, 3, 4))
    assert first is not None and again is not None and other is not None
    assert first.values.tobytes() == again.values.tobytes()
    assert first.values.tobytes() != other.values.tobytes()


@pytest.mark.parametrize("source", [ToyTable(), ToyClasses(), ToyOneFeature()])
@pytest.mark.parametrize("condense", [True, False])
def test_rows_lie_within_the_schema_and_its_rules(source, condense: bool) -> None:  # type: ignore[no-untyped-def]
    data = build_dataset(source)
    release, _ = released(data, ipc=30, condense=condense)
    check_release(release, data.encoder)
    rows = release.rows
    assert rows is not None
    assert np.bincount(rows.labels).tolist() == [30] * len(data.schema.classes)
    frame = data.encoder.decode(rows.values, rows.labels)
    again, clipped = data.encoder.encode(frame)
    assert not any(clipped.values())
    assert again.values == pytest.approx(rows.values, abs=1e-5)
    assert not any(rule.broken(frame).any() for rule in data.schema.rules)


def test_with_a_large_budget_few_rows_rank_like_all() -> None:
    release, _ = released(epsilon=50.0, ipc=50)
    rows = TABLE.train.rows
    real = Release(rows)  # type: ignore[arg-type]
    assert area(release) > area(real) - 0.02


def test_the_release_is_better_for_a_larger_budget() -> None:
    data = build_dataset(ToyTable(negatives=600, positives=400, separation=1.0))
    low, high = (
        np.mean([area(released(data, e, seed=s)[0], data.test) for s in range(3)])
        for e in (0.02, 10.0)
    )
    assert high > low + 0.05


def test_the_search_is_an_improvement_in_the_students_eyes() -> None:
    notes = released(steps=40, ipc=10)[0].notes
    assert notes["agreement_start"] < notes["agreement_end"] <= notes["agreement_teacher"]
    assert notes["steps_kept"] >= 1


def test_nearest_counts_are_computed_once_per_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soft labels and rows of `counts` come from the same tables."""
    calls: list[int] = []
    nearest = ClassCounts.nearest

    def spied(counts: ClassCounts, column: int) -> np.ndarray:
        calls.append(column)
        return nearest(counts, column)

    monkeypatch.setattr(ClassCounts, "nearest", spied)
    released(teacher="counts", soft_labels=True)
    assert calls == list(range(len(TABLE.schema.features)))


def test_a_small_table_has_counts_and_a_large_one_a_teacher() -> None:
    """By declared counts and budget, not by seeds."""
    small = build_dataset(ToyTable(negatives=150, positives=100))
    assert released(small)[0].notes["teacher"] == "counts"
    assert released(small, seed=1)[0].notes["teacher"] == "counts"
    assert released(small, epsilon=20.0)[0].notes["teacher"] == "additive"
    assert released()[0].notes["teacher"] == "additive"
    assert released(small, teacher="additive")[0].notes["teacher"] == "additive"
    soft = released(small, soft_labels=True)[0].rows
    assert soft is not None and soft.soft_labels is not None


def test_a_clinical_table_of_some_hundred_rows_is_no_worse_than_its_marginals() -> None:
    """Breast-cancer at epsilon 1, where a teacher's sums are drowned: validation and control."""
    from bench.methods.marginal.marginals import Marginals
    from bench.plugins.registry import build_source

    data = build_dataset(build_source("breast-cancer"))
    budget, others = Budget(1.0, 1e-5), (data.validation, data.control)
    areas: dict[str, list[float]] = {"condensed": [], "marginals": []}
    for seed in range(5):
        areas["condensed"].append(area(released(data, ipc=50, seed=seed)[0], *others))
        private, _ = open_private(data, budget, SeededNoise(np.random.default_rng([seed, 1])))
        baseline = Marginals().synthesize(
            private, Spec(data.task, 50, budget), np.random.default_rng([seed, 2])
        )
        areas["marginals"].append(area(baseline, *others))
    assert np.mean(areas["condensed"]) > np.mean(areas["marginals"]) - 0.01
    assert min(areas["condensed"]) > 0.85


def test_soft_labels_are_the_teachers_chances_at_the_shares_of_the_release() -> None:
    release, _ = released(soft_labels=True, ipc=200, condense=False, epsilon=20.0)
    rows = release.rows
    assert rows is not None and rows.soft_labels is not None
    assert rows.soft_labels.sum(axis=1) == pytest.approx(np.ones(400))
    assert rows.soft_labels[:, 1].mean() == pytest.approx(0.5, abs=0.1)
    assert rows.soft_labels[rows.labels == 1, 1].mean() > 0.7


def test_full_size_has_the_declared_counts() -> None:
    release, _ = released(ipc=None)
    assert release.rows is not None
    assert np.bincount(release.rows.labels).tolist() == list(TABLE.counts.by_class)


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    with pytest.raises(NotApplicable, match="shapes"):
        released(build_dataset(ToyImages()))
    with pytest.raises(NotApplicable, match="two classes"):
        released(build_dataset(ToyClasses()), teacher="ebm")
    for wrong in ({"teacher": "oracle"}, {"counts_share": 1.0}, {"rounds": 0}, {"pool": 1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            PrivateTeacherDc(**wrong)  # type: ignore[arg-type]
