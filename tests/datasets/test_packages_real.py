"""The real tables inside installed packages; those of extras where the extra is installed."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

from bench.data.dataset import Dataset
from bench.data.encoder import Encoder, category_codes
from bench.data.schema import Task
from bench.plugins.registry import build_source
from bench.plugins.source import build_dataset
from tests.support.extras import EXTRAS

everything = pytest.mark.parametrize("name", ["lung", *EXTRAS])


@functools.cache
def loaded(name: str) -> pd.DataFrame:
    source = build_source(name)
    if not source.available():
        pytest.skip(f"the package {EXTRAS[name][0]} is not installed (extra {EXTRAS[name][1]})")
    return source.load()


@functools.cache
def built(name: str) -> Dataset:
    loaded(name)
    return build_dataset(build_source(name))


# Every table -----------------------------------------------------------------------------------


@everything
def test_declared_counts_are_the_loaded_rows(name: str) -> None:
    frame, declared = loaded(name), build_source(name).declare()
    label = declared.schema.label
    codes = category_codes(frame[label.name], label)
    assert tuple(np.bincount(codes, minlength=len(label.categories))) == declared.by_class


@everything
def test_declarations_say_where_everything_comes_from(name: str) -> None:
    declared = build_source(name).declare()
    assert declared.licence and declared.citation and declared.source and not declared.simulated
    assert all(column.source.strip() for column in declared.schema)
    assert declared.extra == (EXTRAS[name][1] if name in EXTRAS else "")


@everything
def test_missing_values_have_public_fills_and_bounds_hold(name: str) -> None:
    frame, dataset = loaded(name), built(name)
    assert set(frame.columns) == {column.name for column in dataset.schema}
    for column in dataset.schema:
        if frame[column.name].isna().any():
            assert column.fill is not None and "fill" in column.source, column.name
    # Clipped: an albumin of 29 g/dL and one of 11, and a patient below 20 kg.
    expected = {"alb1": 2, "wtkilo1": 1} if name == "rhc" else {}
    assert {key: count for key, count in dataset.clipped.items() if count} == expected
    for rule in dataset.schema.rules:
        assert not rule.broken(frame).any(), rule.name


@pytest.mark.parametrize("name", ["lung", "flchain", "framingham", "rhc", "rotterdam", "whas500"])
def test_survival_can_be_learned(name: str) -> None:
    from lifelines.utils import concordance_index

    from bench.metrics._shared.downstream_models import Examples, fit_cox

    loaded(name)  # skips what is not installed
    found = []
    # Some 45 of the 228 patients are test rows of a split: one C-index varies by 0.06.
    for split_seed in range(20 if name == "lung" else 1):
        dataset = build_dataset(build_source(name), split_seed=split_seed)
        assert dataset.task is Task.SURVIVAL
        train, test = (
            Examples.of(dataset.encoder, split.rows.values, split.rows.labels)
            for split in (dataset.train, dataset.test)
        )
        assert test.times is not None
        risks = fit_cox(train).predict(test.features)
        found.append(concordance_index(test.times, -risks, test.labels))
    assert np.mean(found) > 0.6


@everything
def test_another_load_gives_the_same_table(name: str) -> None:
    assert loaded(name).equals(build_source(name).load())


# lung ------------------------------------------------------------------------------------------


def test_lung_means_what_the_trial_found() -> None:
    frame = loaded("lung")
    # The first patient of the R package survival: 306 days, died (coded 2 there), 74 years, male.
    first = frame.iloc[0]
    assert (first["time"], first["status"], first["age"], first["sex"]) == (306, 1, 74, "male")
    # Loprinzi et al.: women live longer, and the worse the performance the shorter.
    deaths = frame[frame["status"] == 1]
    by_sex = deaths.groupby("sex")["time"].median()
    assert by_sex["female"] > by_sex["male"]
    by_ecog = frame.groupby("ph.ecog")["status"].mean()
    assert by_ecog["0"] < by_ecog["1"] < by_ecog["2"]


def test_lung_keeps_missing_entries_until_they_are_filled_publicly() -> None:
    frame = loaded("lung")
    missing = frame.isna().sum()
    assert missing[missing > 0].to_dict() == {
        "ph.karno": 1,
        "pat.karno": 3,
        "meal.cal": 47,
        "wt.loss": 14,
    }
    assert (frame["ph.ecog"] == "unknown").sum() == 1
    assert "inst" not in frame
    encoder = Encoder(build_source("lung").declare().schema)
    rows, _ = encoder.encode(frame)
    back = encoder.decode(rows.values, rows.labels)
    assert (back.loc[frame["meal.cal"].isna(), "meal.cal"] == 2000).all()
    assert (back.loc[frame["wt.loss"].isna(), "wt.loss"] == 0).all()


# Extras: what the real tables say --------------------------------------------------------------


def test_real_tables_mean_what_their_studies_found() -> None:
    whas = loaded("whas500")
    assert whas.groupby("sho")["fstat"].apply(lambda event: (event == "1").mean())["yes"] > 0.6
    flchain = loaded("flchain")
    assert (flchain["sex"] == "female").sum() == 4_350
    assert flchain.groupby("death")["kappa"].median().diff().iloc[1] > 0.2
    digits = loaded("mnist-5k")
    assert digits["digit"].value_counts().unique().tolist() == [500]


def test_real_survset_tables_mean_what_their_studies_found() -> None:
    rotterdam = loaded("rotterdam")
    # R's survival::rotterdam: 2,982 women, 1,272 deaths; more nodes, more deaths.
    assert rotterdam["event"].sum() == 1_272
    assert rotterdam.groupby("event")["nodes"].mean().diff().iloc[1] > 1
    framingham = loaded("framingham")
    by_sex = framingham.groupby("sex")["event"].mean()
    assert by_sex["male"] > by_sex["female"]
    rhc = loaded("rhc")
    # Connors et al. 1996: 2,184 patients with a catheter, and more of them died.
    assert (rhc["swang1"] == "yes").sum() == 2_184
    assert rhc.groupby("swang1")["event"].mean().diff().iloc[1] > 0
