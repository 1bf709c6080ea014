"""The simulators: declared counts, what the papers print, and a ground truth that is the truth."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import subprocess
import sys
import tomllib
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.data.dataset import Dataset
from bench.data.encoder import category_codes
from bench.data.schema import Numeric
from bench.data.splits import expected_sizes
from bench.data.truth import KnowsTruth, Truth, auroc_with_error
from bench.datasets.simulators import _mimic_model
from bench.errors import InputError
from bench.plugins.registry import build_source
from bench.plugins.source import build_dataset

SMALL: dict[str, dict[str, int]] = {
    "mimic-sim": {"rows": 3_001},
    "proteomics-sim": {"rows": 1_501, "proteins": 60},
    "tcga-sim": {"rows": 403, "genes": 60},
    "ukb-diabetes-sim": {"rows": 4_003},
}
every_simulator = pytest.mark.parametrize("name", SMALL)


@functools.cache
def small(name: str) -> pd.DataFrame:
    return build_source(name, SMALL[name]).load()


@functools.cache
def truth(name: str) -> Truth:
    source = build_source(name, SMALL[name])
    assert isinstance(source, KnowsTruth)
    return source.truth(small(name))


# Every simulator -------------------------------------------------------------------------------


@every_simulator
def test_names_say_that_it_is_simulated_and_what_it_stands_for(name: str) -> None:
    declared = build_source(name).declare()
    assert name.endswith("-sim")
    assert declared.simulated and "simulated" in declared.title and declared.stands_for
    assert declared.licence and declared.citation and "simulated by" in declared.source
    assert all(column.source.strip() for column in declared.schema)


@every_simulator
@pytest.mark.parametrize("seed", [0, 7])
def test_declared_counts_are_the_simulated_rows(name: str, seed: int) -> None:
    source = build_source(name, {**SMALL[name], "seed": seed})
    declared, frame = source.declare(), source.load()
    label = declared.schema.label
    counts = np.bincount(category_codes(frame[label.name], label), minlength=2)
    assert tuple(counts) == declared.by_class
    assert sum(declared.by_class) == SMALL[name]["rows"]


@every_simulator
def test_the_file_states_the_counts_of_the_default_size(name: str) -> None:
    source = build_source(name)
    written = tomllib.loads(source.toml_path().read_text(encoding="utf-8"))
    assert tuple(written["counts"]["by_class"]) == source.declare().by_class


@every_simulator
def test_the_table_obeys_its_schema(name: str) -> None:
    dataset = build_dataset(build_source(name, SMALL[name]))
    frame = small(name)
    assert set(frame.columns) == {column.name for column in dataset.schema}
    assert not frame.isna().to_numpy().any()
    assert not {column: count for column, count in dataset.clipped.items() if count}
    for rule in dataset.schema.rules:
        assert not rule.broken(frame).any(), rule.name
    for column in dataset.schema:
        if isinstance(column, Numeric) and column.integer:
            assert (frame[column.name] == np.round(frame[column.name])).all(), column.name
    declared = dataset.declaration.by_class
    by_class = np.zeros(len(declared), dtype=np.int64)
    for split in (dataset.train, dataset.validation, dataset.control, dataset.test):
        assert len(np.unique(split.rows.labels)) == len(dataset.schema.classes)
        by_class += np.bincount(split.rows.labels)
    assert tuple(by_class) == declared
    sizes = (expected_sizes(rows, "default", False)["train"] for rows in declared)
    assert dataset.counts.by_class == tuple(sizes)


def digest(frame: pd.DataFrame) -> str:
    values = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    return hashlib.sha256(values.tobytes()).hexdigest()


def test_the_same_seed_gives_the_same_bytes_whatever_the_threads() -> None:
    code = (
        "import sys, json, hashlib\n"
        "import pandas as pd\n"
        "from bench.plugins.registry import build_source\n"
        "for name, sizes in json.loads(sys.argv[1]).items():\n"
        "    frame = build_source(name, sizes).load()\n"
        "    values = pd.util.hash_pandas_object(frame, index=False).to_numpy()\n"
        "    print(hashlib.sha256(values.tobytes()).hexdigest())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, json.dumps(SMALL)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    )
    assert run.stdout.split() == [digest(small(name)) for name in SMALL]


@every_simulator
def test_another_seed_is_another_table(name: str) -> None:
    other = build_source(name, {**SMALL[name], "seed": 1}).load()
    assert digest(other) != digest(small(name))


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("mimic-sim", {"rows": 199}),
        ("mimic-sim", {"rows": 1000.5}),
        ("tcga-sim", {"genes": 23}),
        ("tcga-sim", {"seed": -1}),
        ("ukb-diabetes-sim", {"rows": "many"}),
        ("ukb-diabetes-sim", {"rows": 0}),
        ("proteomics-sim", {"proteins": 2_933}),
        ("proteomics-sim", {"rows": 195}),
        ("proteomics-sim", {"positives": 9}),
    ],
)
def test_sizes_that_cannot_be_simulated_are_refused(name: str, wrong: dict[str, Any]) -> None:
    (parameter,) = wrong
    with pytest.raises(InputError, match=rf"{name}: {parameter}=.*(or more|to 2)"):
        build_source(name, wrong)


# The truth -------------------------------------------------------------------------------------


def logistic_fit(odds: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Intercept, slope and the slope's standard error of labels on log-odds, by Newton's method."""
    design = np.column_stack([np.ones(len(odds)), odds])
    coefficients = np.zeros(2)
    for _ in range(50):
        chance = 1 / (1 + np.exp(-design @ coefficients))
        hessian = design.T @ (design * (chance * (1 - chance))[:, None])
        coefficients += np.linalg.solve(hessian, design.T @ (labels - chance))
    return coefficients[0], coefficients[1], math.sqrt(np.linalg.inv(hessian)[1, 1])


@pytest.mark.parametrize("name", ["mimic-sim", "proteomics-sim"])
def test_true_log_odds_are_calibrated_and_reach_the_bayes_auroc(name: str) -> None:
    found, frame = truth(name), small(name)
    assert found.log_odds is not None and found.bayes_auroc is not None
    labels = frame[build_source(name).declare().schema.label.name].to_numpy()
    intercept, slope, error = logistic_fit(found.log_odds, labels)
    assert abs(slope - 1) < 3.5 * error
    assert abs(intercept) < 0.35
    reached, spread = auroc_with_error(found.log_odds[labels == 0], found.log_odds[labels == 1])
    assert abs(reached - found.bayes_auroc) < 3.5 * spread
    assert 0 < found.error < 0.001


def test_true_log_odds_of_three_classes_are_calibrated() -> None:
    found, frame = truth("tcga-sim"), small("tcga-sim")
    assert found.log_odds is not None and found.log_odds.shape == (403, 3)
    chances = 1 / (1 + np.exp(-found.log_odds))
    assert np.allclose(chances.sum(axis=1), 1)
    labels = frame["subtype"].cat.codes.to_numpy()
    right = found.log_odds.argmax(axis=1) == labels
    # The share of correct decisions that the probabilities promise is the one that is seen.
    assert abs(right.mean() - chances.max(axis=1).mean()) < 3.5 * math.sqrt(0.1 * 0.9 / 403)
    assert found.bayes_accuracy == pytest.approx(right.mean(), abs=3.5 * math.sqrt(0.09 / 403))
    areas = [
        auroc_with_error(found.log_odds[labels != c, c], found.log_odds[labels == c, c])[0]
        for c in range(3)
    ]
    assert found.bayes_auroc == pytest.approx(np.mean(areas), abs=0.02)


def test_true_log_hazards_have_the_coefficient_one_in_a_cox_model() -> None:
    from lifelines import CoxPHFitter

    source = build_source("ukb-diabetes-sim", {"rows": 20_000})
    frame = source.load()
    found = source.truth(frame)  # type: ignore[attr-defined]
    table = frame[["days", "diabetes"]].assign(risk=found.log_hazards)
    fitted = CoxPHFitter().fit(table, "days", "diabetes")
    assert abs(fitted.params_["risk"] - 1) < 3.5 * fitted.standard_errors_["risk"]
    # 1,188 events leave a standard error of about 0.007.
    assert fitted.concordance_index_ == pytest.approx(found.concordance, abs=0.02)


def test_a_truth_about_part_of_a_table_is_part_of_the_truth() -> None:
    for name in ("mimic-sim", "proteomics-sim", "tcga-sim"):
        source = build_source(name, SMALL[name])
        part = source.truth(small(name).iloc[10:40])  # type: ignore[attr-defined]
        whole = truth(name).log_odds
        assert whole is not None and np.allclose(part.log_odds, whole[10:40])


# mimic-sim -------------------------------------------------------------------------------------


def test_mimic_has_the_benchmarks_size_and_mortality() -> None:
    declared = build_source("mimic-sim").declare()
    assert declared.by_class == (18_342, 2_797)
    assert sum(build_source("mimic-sim", {"rows": 42_000}).declare().by_class) == 42_000
    # The benchmark's 17 variables, and age and gender.
    assert len(declared.schema.features) == 19
    for name, (low, high) in _mimic_model.BOUNDS.items():
        column = declared.schema[name]
        assert isinstance(column, Numeric) and (column.low, column.high) == (low, high), name


def test_mimic_coma_scale_is_the_sum_of_its_parts() -> None:
    frame = small("mimic-sim")
    parts = frame[["gcseyes", "gcsverbal", "gcsmotor"]].sum(axis=1)
    assert (frame["mingcs"] == parts).all()


def test_mimic_constants_belong_to_its_population() -> None:
    frame = _mimic_model.stays(60_000, np.random.default_rng(5))
    assert _mimic_model.solve_intercept(frame) == pytest.approx(_mimic_model.INTERCEPT, abs=0.05)
    area, error = _mimic_model.bayes_auroc(60_000, np.random.default_rng(6))
    assert abs(area - _mimic_model.BAYES_AUROC) < 3.5 * error


def test_mimic_deaths_follow_severity_scores() -> None:
    means = small("mimic-sim").groupby("hospital_expire_flag").mean(numeric_only=True)
    higher = (means.loc[1] > means.loc[0]).to_dict()
    assert all(higher[name] for name in ("admission_age", "resprate_mean", "fio2_mean"))
    lower = ("mingcs", "spo2_mean", "ph_mean", "meanbp_mean", "sysbp_mean")
    assert not any(higher[name] for name in lower)


def tree_auroc(dataset: Dataset) -> float:
    """XGBoost as the metric trains it, on the training rows."""
    from sklearn.metrics import roc_auc_score

    from bench.metrics._shared.downstream_models import Examples, fit_tree_classifier

    train = Examples.of(dataset.encoder, dataset.train.rows.values, dataset.train.rows.labels)
    model = fit_tree_classifier(train, 2, np.random.default_rng(0))
    return float(
        roc_auc_score(dataset.test.rows.labels, model.predict(dataset.test.rows.values)[:, 1])
    )


def test_mimic_can_be_learned_about_as_well_as_the_benchmark() -> None:
    # Harutyunyan et al., table 2: 0.848 (logistic regression) to 0.870.
    assert 0.82 < tree_auroc(build_dataset(build_source("mimic-sim", {"rows": 12_000}))) < 0.90


# tcga-sim --------------------------------------------------------------------------------------


def test_tcga_markers_have_the_known_directions() -> None:
    frame = build_source("tcga-sim", {"rows": 2_000, "genes": 24}).load()
    means = frame.groupby("subtype", observed=True).mean()
    assert means["ESR1"].idxmax() == "LumA" and means["ESR1"].idxmin() == "Basal"
    assert means["ERBB2"].idxmax() == means["GRB7"].idxmax() == "Her2"
    assert means["KRT5"].idxmax() == means["FOXC1"].idxmax() == "Basal"
    assert means["MKI67"].idxmin() == "LumA"


def test_tcga_has_the_papers_size_and_the_shares_of_the_open_table() -> None:
    declared = build_source("tcga-sim").declare()
    assert declared.by_class == (330, 220, 550) and declared.schema.classes[0] == "Basal"
    assert len(declared.schema.features) == 200
    wide = build_source("tcga-sim", {"genes": 1_000}).declare()
    assert len(wide.schema.features) == 1_000


def test_tcga_can_be_learned_but_not_beyond_the_bayes_auroc() -> None:
    from sklearn.linear_model import LogisticRegression

    source = build_source("tcga-sim", {"rows": 1_100, "genes": 100})
    dataset = build_dataset(source)
    train, test = dataset.train.rows, dataset.test.rows
    model = LogisticRegression(C=10, max_iter=2_000).fit(train.values, train.labels)
    learned = model.score(test.values, test.labels)
    best = source.truth(dataset.test.frame).bayes_accuracy  # type: ignore[attr-defined]
    # 220 test rows leave a standard error of 0.02.
    assert 0.78 < learned < best + 0.04 < 1
