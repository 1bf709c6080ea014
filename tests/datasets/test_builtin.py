"""The datasets that need no download: their declarations agree with their rows, and teach."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from bench.data.dataset import Dataset
from bench.data.encoder import Encoder, category_codes
from bench.data.schema import Categorical, Numeric, Task
from bench.data.splits import PRESETS, SPLITS, split_shares
from bench.errors import InputError
from bench.plugins.registry import build_source
from bench.plugins.source import build_dataset

NAMES = ("actg175", "breast-cancer", "curial-sim", "digits", "gbsg2")
every_dataset = pytest.mark.parametrize("name", NAMES)
every_preset = pytest.mark.parametrize("preset", PRESETS)


@functools.cache
def loaded(name: str) -> pd.DataFrame:
    return build_source(name).load()


@functools.cache
def built(name: str, preset: str = "default", seed: int = 0) -> Dataset:
    return build_dataset(build_source(name), preset, seed)


def strata(frame: pd.DataFrame, dataset: Dataset) -> pd.Series:
    """Rows of each class, or of each site and class."""
    names = [column.name for column in (dataset.schema.site, dataset.schema.label) if column]
    return frame.astype(dict.fromkeys(names, str)).groupby(names).size()


@every_dataset
def test_declared_counts_are_the_loaded_rows(name: str) -> None:
    declaration, frame = build_source(name).declare(), loaded(name)
    label, site = declaration.schema.label, declaration.schema.site
    codes = category_codes(frame[label.name], label)
    assert tuple(np.bincount(codes, minlength=len(label.categories))) == declaration.by_class
    assert (site is None) == (not declaration.by_site_class)
    if site is not None:
        for place, counts in declaration.by_site_class.items():
            there = codes[(frame[site.name] == place).to_numpy()]
            assert tuple(np.bincount(there, minlength=len(label.categories))) == counts


@every_dataset
def test_declaration_names_its_origin(name: str) -> None:
    declaration = build_source(name).declare()
    for text in (
        declaration.title,
        declaration.licence,
        declaration.citation,
        declaration.source,
        declaration.unit,
    ):
        assert text.strip()
    for column in declaration.schema:
        assert column.source.strip(), f"{column.name}: where do its bounds or categories come from?"


@every_dataset
def test_table_holds_the_declared_columns_and_nothing_is_missing(name: str) -> None:
    frame, schema = loaded(name), build_source(name).declare().schema
    assert set(frame.columns) == {column.name for column in schema}
    assert not frame.isna().to_numpy().any()


@every_dataset
def test_nothing_lies_outside_the_public_bounds(name: str) -> None:
    assert not {column: count for column, count in built(name).clipped.items() if count}


@every_dataset
def test_every_real_row_obeys_the_rules(name: str) -> None:
    for rule in build_source(name).declare().schema.rules:
        assert not rule.broken(loaded(name)).any(), rule.name


@every_dataset
def test_encoding_and_decoding_give_the_table_back(name: str) -> None:
    frame, schema = loaded(name), build_source(name).declare().schema
    encoder = Encoder(schema)
    rows, _ = encoder.encode(frame)
    assert np.abs(rows.values).max() <= 1.0
    back = encoder.decode(rows.values, rows.labels)
    for column in (*(block.column for block in encoder.blocks), schema.label):
        if isinstance(column, Categorical):
            assert (back[column.name].astype(str) == frame[column.name].astype(str)).all()
        elif isinstance(column, Numeric) and column.integer:
            assert (back[column.name] == frame[column.name]).all()
        elif isinstance(column, Numeric):
            # The encoder keeps single precision: 2^-24 of the span.
            error = np.abs(back[column.name] - frame[column.name]).max()
            assert error <= (column.high - column.low) * 2**-23


@every_dataset
@every_preset
@pytest.mark.parametrize("seed", [0, 1])
def test_splits_are_disjoint_and_of_the_declared_shares(name: str, preset: str, seed: int) -> None:
    dataset = built(name, preset, seed)
    own = [split for split in SPLITS if not (preset == "paper" and split == "control")]
    whole = strata(loaded(name), dataset)
    for split in own:
        share = split_shares(preset, False)[split]
        found = strata(getattr(dataset, split).frame, dataset).reindex(whole.index, fill_value=0)
        # Five standard deviations of a binomial number, and one row.
        spread = 5.0 * np.sqrt(whole * share * (1.0 - share)) + 1.0
        assert ((found - share * whole).abs() <= spread).all()
    # Each row has its own position, equal rows too.
    positions = np.concatenate([getattr(dataset, split).rows.positions for split in own])
    assert len(np.unique(positions)) == len(positions) == len(loaded(name))
    if preset == "paper":
        assert dataset.control is dataset.test


@every_dataset
def test_another_seed_is_another_split(name: str) -> None:
    first, second = built(name, seed=0), built(name, seed=1)
    assert not np.array_equal(first.train.rows.values, second.train.rows.values)
    assert first.fingerprint != second.fingerprint
    again = build_dataset(build_source(name))
    assert again.fingerprint == first.fingerprint
    assert np.array_equal(again.train.rows.values, first.train.rows.values)


@every_dataset
@every_preset
def test_declared_training_counts_are_the_declared_share(name: str, preset: str) -> None:
    dataset = built(name, preset)
    share, counts = split_shares(preset, False)["train"], dataset.counts
    declared = np.array(dataset.declaration.by_class)
    # Rounded by class, or by site and class.
    slack = 1.5 * max(1, len(dataset.declaration.by_site_class))
    assert np.array(counts.by_class) == pytest.approx(share * declared, abs=slack)
    assert counts.total == sum(counts.by_class)
    assert sum(counts.by_site.values()) in (0, counts.total)


@every_dataset
def test_every_split_holds_every_class(name: str) -> None:
    dataset = built(name)
    for split in SPLITS:
        found = np.unique(getattr(dataset, split).rows.labels)
        assert len(found) == len(dataset.schema.classes)


def auroc(dataset: Dataset) -> float:
    from sklearn.metrics import roc_auc_score
    from xgboost import XGBClassifier

    model = XGBClassifier(n_estimators=100, max_depth=4, n_jobs=1, random_state=0)
    model.fit(dataset.train.rows.values, dataset.train.rows.labels)
    score = model.predict_proba(dataset.test.rows.values)[:, 1]
    return float(roc_auc_score(dataset.test.rows.labels, score))


def test_breast_cancer_can_be_learned() -> None:
    dataset = built("breast-cancer")
    assert dataset.schema.classes == ("benign", "malignant")
    assert auroc(dataset) > 0.97
    # Malignant nuclei are the larger ones: the labels are not swapped.
    means = loaded("breast-cancer").groupby("diagnosis")["mean_radius"].mean()
    assert means["malignant"] > means["benign"] + 4


def test_curial_simulator_is_neither_trivial_nor_hopeless() -> None:
    # The paper's full-data models reach 0.90 to 0.93 on ten times as many rows.
    assert 0.80 < auroc(built("curial-sim")) < 0.95


@pytest.mark.parametrize("name", ["actg175", "gbsg2"])
def test_survival_cohorts_can_be_learned(name: str) -> None:
    from lifelines import CoxPHFitter
    from lifelines.utils import concordance_index

    dataset = built(name)
    assert dataset.task is Task.SURVIVAL
    time = dataset.schema.time
    assert time is not None
    features = list(dataset.encoder.names[: dataset.encoder.feature_width])

    def table(split: str) -> pd.DataFrame:
        rows = getattr(dataset, split).rows
        frame = pd.DataFrame(rows.values[:, : len(features)].astype(float), columns=features)
        frame["time"] = getattr(dataset, split).frame[time.name]
        frame["event"] = rows.labels
        return frame

    # A small penalty: one-hot blocks add up to one.
    model = CoxPHFitter(penalizer=0.01).fit(table("train"), "time", "event")
    test = table("test")
    risk = model.predict_partial_hazard(test)
    assert concordance_index(test["time"], -risk, test["event"]) > 0.6


def test_actg175_codes_mean_what_the_trial_found() -> None:
    frame = loaded("actg175")
    # Hammer et al. 1996: zidovudine alone did worst, and 18 percent of the patients were women.
    assert frame.groupby("arms")["cens"].mean().idxmax() == "zidovudine"
    assert (frame["gender"] == "female").mean() == pytest.approx(0.18, abs=0.01)
    # The first patient, as in the copy of the UCI repository.
    first = frame.iloc[0]
    assert (first["age"], first["cd40"], first["days"], first["cens"]) == (48, 422, 948, 0)
    assert first["arms"] == "zidovudine and zalcitabine"


def test_actg175_keeps_baseline_columns_only() -> None:
    later = {"cd420", "cd820", "cd496", "r", "offtrt"}
    assert not ({*later, "pidnum", "zprior", "treat", "str2", "strat"} & set(loaded("actg175")))


def test_gbsg2_events_are_events() -> None:
    frame = loaded("gbsg2")
    # Events come before the end of follow-up, and worse grades have more of them.
    by_event = frame.groupby("cens")["time"].median()
    assert by_event[1] < by_event[0]
    assert frame.groupby("tgrade")["cens"].mean().is_monotonic_increasing


def test_digits_are_images_in_reading_order() -> None:
    from sklearn.datasets import load_digits

    dataset = built("digits")
    assert dataset.task is Task.IMAGE
    assert dataset.schema.image_shape == (1, 8, 8)
    pixels = [column.name for column in dataset.schema.features]
    images = loaded("digits")[pixels].to_numpy().reshape(-1, 8, 8)
    assert np.array_equal(images, load_digits().images)


def test_curial_schema_agrees_with_the_model() -> None:
    from bench.datasets.simulators import _curial_model as model
    from bench.datasets.simulators import _curial_parameters as curial

    schema = build_source("curial-sim").declare().schema
    assert tuple(column.name for column in schema.features) == curial.FEATURES
    numeric = [column for column in schema.features if isinstance(column, Numeric)]
    assert {column.name for column in numeric} == set(curial.BOUNDS)
    for column in numeric:
        bounds = curial.BOUNDS[column.name]
        assert (column.low, column.high) == (bounds.low, bounds.high), column.name
        assert column.integer == (bounds.decimals == 0), column.name
    for name, categories in (
        ("delivery_device", curial.DEVICES),
        ("sex", curial.SEXES),
        (curial.SITE_COLUMN, model.SITES),
    ):
        declared = schema[name]
        assert isinstance(declared, Categorical)
        assert declared.categories == categories
    assert schema.label.name == curial.TARGET_COLUMN
    assert schema.site is not None


def test_curial_is_marked_as_simulated() -> None:
    declaration = build_source("curial-sim").declare()
    assert declaration.simulated
    assert "simulated" in declaration.title.lower()
    assert not any(build_source(name).declare().simulated for name in NAMES if name != "curial-sim")


def test_curial_file_states_the_counts_of_the_default_size() -> None:
    from pathlib import Path

    from bench.data.dataset import declaration_from_toml
    from bench.datasets.simulators import curial_sim

    written = declaration_from_toml(Path(curial_sim.__file__).with_suffix(".toml"))
    assert written == build_source("curial-sim").declare()


def test_curial_counts_follow_its_size() -> None:
    source = build_source("curial-sim", {"rows": 3_000, "seed": 5})
    dataset = build_dataset(source)
    assert sum(source.declare().by_class) == 3_000
    splits = (dataset.train, dataset.validation, dataset.control, dataset.test)
    labels = np.concatenate([split.rows.labels for split in splits])
    assert tuple(np.bincount(labels)) == source.declare().by_class
    assert (
        sum(dataset.counts.by_site.values()) == dataset.counts.total == sum(dataset.counts.by_class)
    )
    # Rounded by site and class; the share of training rows is 60%.
    sites = len(source.declare().by_site_class)
    assert dataset.counts.total == pytest.approx(0.6 * 3_000, abs=1.5 * 2 * sites)
    assert dataset.parameters == {"rows": 3_000, "seed": 5}


def test_curial_table_depends_on_its_seed_alone() -> None:
    small = {"rows": 600}
    same = build_source("curial-sim", small).load()
    assert same.equals(build_source("curial-sim", small).load())
    assert not same.equals(build_source("curial-sim", {**small, "seed": 1}).load())


@pytest.mark.parametrize("wrong", [{"rows": 10}, {"rows": 1000.5}, {"seed": -1}])
def test_curial_refuses_what_it_cannot_simulate(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"curial-sim: .*(rows|integer|seed)"):
        build_source("curial-sim", wrong)


def test_listing_plugins_imports_no_heavy_library() -> None:
    modules = ", ".join(type(build_source(name)).__module__ for name in NAMES)
    code = (
        f"import sys, {modules}, bench.methods.gats.gats\n"
        "print(*({'lifelines', 'matplotlib', 'sklearn', 'torch', 'xgboost'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_curial_sim_knows_the_truth_about_its_rows() -> None:
    from sklearn.metrics import roc_auc_score

    from bench.data.truth import KnowsTruth

    source = build_source("curial-sim")
    assert isinstance(source, KnowsTruth)
    frame = source.load()
    odds = source.truth(frame).log_odds
    assert odds is not None
    # Pooled over sites the best AUROC is 0.934 at this size; nothing fitted gets near it.
    assert 0.91 < roc_auc_score(frame["covid"].astype(int), odds) < 0.955
