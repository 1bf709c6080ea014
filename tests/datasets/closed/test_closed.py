"""Loaders of closed data: documented files load, everything else is refused in one line."""

from __future__ import annotations

import gzip
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.data.encoder import Encoder
from bench.data.schema import Categorical, Numeric
from bench.errors import BenchError, DataError, InputError
from bench.plugins.registry import build_source, dataset_names
from bench.plugins.source import FileSource, build_dataset
from tests.datasets.closed.closed_files import CASES, ROWS, Case
from tests.support.places import ROOT

every_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.name}-{case.label[:8]}"
)


# Tables 1 (zero-order), 3 and 4b (fidelity); patients of the MIMIC-III benchmark.
PUBLISHED = {
    "curial": 38_717 + 161_955 + 95_236,
    "dig": 6_800,
    "mimic3-ihm": 33_798,
    "nis": 116_008,
    "seer-incidence": 1_072_173,
    "texas-discharge": 50_000,
    "ukb-diabetes": 474_886,
    "ukb-proteomics": 52_999,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    return tmp_path


def refusal(case: Case) -> str:
    """What the loader, or the encoder after it, says in one line."""
    source = build_source(case.name, case.parameters)
    with pytest.raises(BenchError) as caught:
        build_dataset(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@every_case
def test_documented_file_loads_and_becomes_a_dataset(case: Case, folder: Path) -> None:
    case.put(folder)
    source = build_source(case.name, case.parameters)
    schema, frame = source.declare().schema, source.load()
    assert list(frame.columns) == [column.name for column in schema]
    rows, _ = Encoder(schema).encode(frame)
    assert len(rows) == len(frame) > 10
    assert np.isfinite(rows.values).all() and np.abs(rows.values).max() <= 1
    assert set(rows.labels) == {0, 1}
    for rule in schema.rules:
        assert not rule.broken(frame).any(), rule.name
    dataset = build_dataset(source, "paper")
    assert len(dataset.train) + len(dataset.validation) + len(dataset.test) == len(frame)
    assert source.check() == [f"{len(frame)} rows, expected {sum(source.declare().by_class)}"]


@every_case
def test_packed_file_gives_the_same_table(case: Case, folder: Path) -> None:
    path = case.put(folder)
    plain = build_source(case.name, case.parameters).load()
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    pd.testing.assert_frame_equal(build_source(case.name, case.parameters).load(), plain)


@every_case
def test_missing_file_is_answered_with_how_to_get_it(case: Case, folder: Path) -> None:
    obtain = build_source(case.name, case.parameters).obtain()
    said = refusal(case)
    assert obtain.publisher in said and obtain.agreement in said and obtain.page in said
    assert obtain.agreement != "none" and not any(file.url for file in obtain.files)


@every_case
def test_damaged_files_are_refused(case: Case, folder: Path) -> None:
    path = case.put(folder)
    whole = path.read_bytes()
    path.write_bytes(b"")
    assert "empty" in refusal(case)
    path.write_bytes(whole.splitlines(keepends=True)[0])
    assert "a header and no rows" in refusal(case)
    path.write_bytes(whole.replace(b"1", b"\xe9"))
    assert "UTF-8" in refusal(case) or "expected columns are missing" in refusal(case)
    path.unlink()
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(whole)[:-12])
    assert "truncated or damaged" in refusal(case)


@every_case
def test_wrong_separator_and_missing_columns_are_refused(case: Case, folder: Path) -> None:
    path = case.put(folder, separator=";")
    said = refusal(case)
    # The schema of the proteins comes from the header, which is looked at first.
    assert "separator" in said or "has no column" in said
    files = case.files()
    case.put(folder, {**files, case.target: files[case.target].drop(columns=case.label)})
    said = refusal(case)
    assert str(path) in said and case.label.split(" (")[0] in said


@every_case
def test_undocumented_codes_and_one_class_are_refused(case: Case, folder: Path) -> None:
    files = case.files()
    strange = files[case.target].astype(object)
    strange.loc[1, case.coded] = "green"
    case.put(folder, {**files, case.target: strange})
    said = refusal(case)
    assert case.coded in said and re.search(r"the first in row \d", said)
    assert "green" not in said  # the rows are closed: a message names them by number
    case.put(
        folder,
        {
            name: frame.assign(**{case.label: case.one_class}) if case.label in frame else frame
            for name, frame in files.items()
        },
    )
    assert "in every row" in refusal(case)


@pytest.mark.parametrize("case", [case for case in CASES if case.time], ids=lambda case: case.label)
def test_survival_needs_times_and_events(case: Case, folder: Path) -> None:
    files = case.files()
    table = files[case.target].astype(object)
    for column, entry, words in (
        (case.time, -3, "negative"),
        (case.time, "soon", "not numbers"),
        (case.label, 2, "neither 0 nor 1" if "recode" not in case.label else "documented"),
        (case.label, "", "missing"),
    ):
        wrong = table.copy()
        wrong.loc[2, column] = entry
        case.put(folder, {**files, case.target: wrong})
        said = refusal(case)
        assert column in said and words in said


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def loaded(folder: Path, name: str, change: Any = None, **parameters: Any) -> pd.DataFrame:
    """The table of a dataset whose files were put into the folder, changed or not."""
    case = case_of(name)
    files = case.files()
    if change is not None:
        change(files[case.target])
    case.put(folder, files)
    return build_source(name, parameters).load()


def bounds(column: Any) -> tuple[Any, ...]:
    if isinstance(column, Numeric):
        return column.name, column.role, column.low, column.high, column.integer
    assert isinstance(column, Categorical)
    return column.name, column.role, column.categories


def test_curial_has_the_schema_and_counts_of_its_simulator(folder: Path) -> None:
    from bench.datasets.simulators._curial_model import site_counts

    declared = build_source("curial").declare()
    simulated = build_source("curial-sim").declare()
    assert list(map(bounds, declared.schema)) == list(map(bounds, simulated.schema))
    assert declared.schema.sensitive == simulated.schema.sensitive
    assert declared.by_site_class == site_counts()
    assert [sum(counts) for counts in declared.by_site_class.values()] == [38717, 161955, 95236]
    # Every measurement has a public value for a missing one, inside its bounds.
    for column in declared.schema.features:
        if isinstance(column, Numeric) and column.name != "age":
            assert column.fill is not None and column.low <= float(column.fill) <= column.high


def test_curial_reads_the_asked_for_trusts_only(folder: Path) -> None:
    frame = loaded(folder, "curial", sites="BH,PUH")
    assert frame["site"].value_counts().to_dict() == {"PUH": ROWS, "BH": ROWS}
    assert frame["white_cell_count"].isna().sum() == 2
    (folder / "curial" / "ouh.csv").unlink()
    alone = build_source("curial", {"sites": "PUH"})
    assert "site" not in alone.load() and alone.declare().by_class == (36579, 2138)
    with pytest.raises(DataError, match=r"ouh\.csv is not in"):
        build_source("curial").load()
    for wrong in ("", "PUH,PUH", "puh", "PUH, OUH"):
        with pytest.raises(InputError, match="sites"):
            build_source("curial", {"sites": wrong})


def test_ukb_diabetes_has_the_features_of_its_simulator_and_decodes_the_showcase(
    folder: Path,
) -> None:
    declared = build_source("ukb-diabetes").declare().schema
    simulated = build_source("ukb-diabetes-sim").declare().schema
    assert list(map(bounds, declared.features)) == list(map(bounds, simulated.features))
    # Twenty covariates when the categories are counted one by one, as the paper does.
    widths = [len(c.categories) if isinstance(c, Categorical) else 1 for c in declared.features]
    assert sum(widths) - 1 == 20  # hypertension is one covariate
    frame = loaded(folder, "ukb-diabetes")
    expected = ["White", "South Asian", "Black", "Other", "Unanswered", "Unanswered", "Mixed"]
    assert frame["ethnicity"].tolist()[:7] == expected
    assert frame["sex"].tolist()[:4] == ["female", "male", "female", "male"]
    assert frame["smoker"].tolist()[:4] == ["never", "previous", "current", "current"]
    assert frame["smoker"].isna().tolist()[4:6] == [True, True]


def test_ukb_proteomics_takes_its_proteins_from_the_header(folder: Path) -> None:
    source = build_source("ukb-proteomics")
    named = [column.name for column in source.declare().schema.features]
    assert {"ACTA2", "SMNDC1"} < set(named) and len(named) == 10
    frame = loaded(folder, "ukb-proteomics")
    assert "HLA_DRA" in frame and "SMNDC1" not in frame and frame["CD5L"].isna().sum() == 1
    assert frame["ACTA2"].dtype == np.float32
    # 98 cases in the training data of the paper, at its split of 70, 10 and 20 percent.
    from bench.data.splits import expected_sizes

    positives = source.declare().by_class[1]
    assert expected_sizes(positives, "paper", False)["train"] == 98
    path = folder / "ukb_proteomics" / "olink_instance_0.csv"
    for old, new, words in (
        ("cd27", "cd28", "'CD27' has no column"),
        ("103,", "102,", "participant of row 3 is there twice"),
        ("-2.0,", "low,", "not a number"),
        ("\n1", "\n9", "no participant"),
    ):
        case_of("ukb-proteomics").put(folder)
        path.write_text(path.read_text().replace(old, new))
        assert words in refusal(case_of("ukb-proteomics"))
        assert source.declare().title  # a list of datasets survives a bad file


def test_mimic_keeps_the_first_stay_of_a_patient(folder: Path) -> None:
    frame = loaded(folder, "mimic3-ihm")
    every = loaded(folder, "mimic3-ihm", every_stay=True)
    assert (len(frame), len(every)) == (ROWS // 2, ROWS)
    # The second row of each pair came to the unit a month earlier.
    pd.testing.assert_frame_equal(frame, every[1::2].reset_index(drop=True))
    assert every["admission_age"].max() == 90
    stays = build_source("mimic3-ihm", {"every_stay": True}).declare()
    assert (sum(stays.by_class), stays.unit) == (42276, "row")
    assert build_source("mimic3-ihm").declare().unit == "patient"
    with pytest.raises(InputError, match="every_stay"):
        build_source("mimic3-ihm", {"every_stay": "first"})


def test_mimic_query_gives_the_documented_columns() -> None:
    from bench.datasets.closed import mimic3_ihm

    text = str(mimic3_ihm.__doc__)
    query = text[text.index("    SELECT") :].partition(";")[0]
    tables = {
        "icustay_detail": "subject_id hadm_id icustay_id intime admission_age gender "
        "ethnicity_grouped hospital_expire_flag",
        "icustays": "hadm_id icustay_id first_careunit last_careunit first_wardid last_wardid",
        "admissions": "hadm_id admission_type",
        "vitals_first_day": "icustay_id heartrate_mean sysbp_mean diasbp_mean resprate_mean "
        "tempc_mean spo2_mean glucose_mean",
        "labs_first_day": "icustay_id aniongap_max albumin_min bicarbonate_min bilirubin_max "
        "creatinine_max hematocrit_min hemoglobin_min lactate_max platelet_min potassium_max "
        "ptt_max inr_max sodium_min bun_max wbc_max",
        "gcs_first_day": "icustay_id mingcs",
        "urine_output_first_day": "icustay_id urineoutput",
        "ventilation_first_day": "icustay_id vent",
    }
    base = sqlite3.connect(":memory:")
    for name, columns in tables.items():
        base.execute(f"CREATE TABLE {name} ({', '.join(columns.split())})")
    # One adult stay that counts, one with a transfer, one of a child.
    for stay, age, unit in ((1, 70, "CCU"), (2, 70, "MICU"), (3, 17, "CCU")):
        base.execute("INSERT INTO icustays VALUES (?, ?, 'CCU', ?, 1, 1)", (stay, stay, unit))
        base.execute("INSERT INTO admissions VALUES (?, 'URGENT')", (stay,))
        row = (stay, stay, stay, "2101-01-01", age, "F", "white", 0)
        base.execute("INSERT INTO icustay_detail VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    answer = base.execute(query)
    found = [item[0] for item in answer.description]
    assert [row[0] for row in answer] == [1]
    wanted = [column.name for column in build_source("mimic3-ihm").declare().schema]
    assert set(found) == {*wanted, "subject_id", "icustay_id", "intime"}
    base.close()


def test_dig_counts_and_codes_are_the_published_ones(folder: Path) -> None:
    assert build_source("dig").declare().by_class == (6800 - 1181 - 1194, 1181 + 1194)
    failure = build_source("dig", {"endpoint": "whf"}).declare()
    assert failure.by_class == (6800 - 910 - 1180, 910 + 1180)
    frame = loaded(folder, "dig", endpoint="whf")
    assert not {"DEATH", "DEATHDAY", "ID"} & set(frame)
    assert len(build_source("dig").declare().schema.features) == 39
    for name, meanings in {
        "TRTMT": ["placebo", "digoxin"],
        "SEX": ["male", "female"],
        "RACE": ["white", "non-white"],
        "EJFMETH": ["radionuclide", "angiography", "2-D echo", "unknown"],
        "RALES": ["none or unknown", "present", "past", "present and past"],
        "FUNCTCLS": ["I", "II", "III", "IV", "unknown"],
        "CHFETIOL": ["ischemic", "hypertensive", "other", "idiopathic", "other", "other"],
        "VASOD": ["no", "yes"],
    }.items():
        assert frame[name].tolist()[: len(meanings)] == meanings, name
    with pytest.raises(InputError, match="endpoint"):
        build_source("dig", {"endpoint": "stroke"})


def test_texas_draws_the_same_rows_of_the_whole_year(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.datasets.closed import texas_discharge

    case, every = case_of("texas-discharge"), loaded(folder, "texas-discharge")
    assert len(every) == 4 * ROWS
    assert every["PAT_AGE"].tolist()[:4] == ["0", "1", "13", "26"]
    assert every["TYPE_OF_ADMISSION"].tolist()[:4] == ["1", "4", "INVALID", "INVALID"]
    assert every["SEX_CODE"].tolist()[:3] == ["F", "M", "U"]
    severe = every["ILLNESS_SEVERITY"].tolist()[:5]
    assert severe == [*["other"] * 3, *["major or extreme"] * 2]
    files = case.files()
    for number, name in enumerate(files):
        files[name] = files[name].assign(LENGTH_OF_STAY=range(number * ROWS, (number + 1) * ROWS))
    case.put(folder, files)
    monkeypatch.setattr(texas_discharge, "ROWS", 30)
    drawn = build_source("texas-discharge").load()["LENGTH_OF_STAY"].astype(int)
    # One random number per row of the year: the thirty smallest.
    numbers = np.random.default_rng(texas_discharge.SEED).random(4 * ROWS)
    assert drawn.tolist() == sorted(np.argsort(numbers)[:30])


def test_nis_derives_its_columns_from_codes(folder: Path) -> None:
    frame = loaded(folder, "nis")
    # Every fifth row has no critical limb ischaemia.
    assert len(frame) == ROWS * 4 // 5
    assert frame["MAJOR_AMPUTATION"].tolist()[:4] == [1, 0, 0, 1]
    assert frame["SMOKER"].tolist()[:4] == ["yes", "yes", "no", "yes"]
    assert frame["PRIOR_AMPUTATION"].tolist()[:4] == ["yes", "no", "yes", "no"]
    assert frame["FEMALE"].tolist()[:3] == ["male", "female", "unknown"]
    assert frame["AGE"].isna().tolist()[:4] == [False, False, True, False]
    assert frame["LOS"].isna().tolist()[:4] == [False, False, True, True]
    assert len(frame.columns) == 31  # table 3 of the paper
    with pytest.raises(DataError, match=r"440\.22"):
        loaded(folder, "nis", lambda table: table.__setitem__("DX1", "4019"))


def test_seer_keeps_a_patient_once_and_numbers_that_are_numbers(folder: Path) -> None:
    frame = loaded(folder, "seer-incidence")
    # Patient 1 has two tumours; every fifth survival from the fourth on is unknown.
    assert len(frame) == ROWS - 1 - ROWS // 5
    assert frame["Year of diagnosis"].tolist()[0] == 2005
    assert frame["Age recode"].tolist()[:2] == [85, 0]
    assert frame["Primary Site - labeled"].tolist()[:2] == ["C50.9", "C50.4"]
    again = loaded(
        folder, "seer-incidence", lambda table: table.update({"Patient ID": range(ROWS)})
    )
    sizes = again["CS tumor size"].tolist()
    assert sizes[0] == 15 and np.isnan(sizes[1]) and sizes[2] == 5 and np.isnan(sizes[3])
    assert again["Regional nodes positive"].tolist()[0] == 3
    assert np.isnan(again["Regional nodes positive"].tolist()[1])
    assert again["Grade"].tolist()[:2] == ["I", "unknown"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_closed_dataset_says_where_it_comes_from(name: str, folder: Path) -> None:
    import importlib

    source = build_source(name)
    assert isinstance(source, FileSource)
    declared, obtain = source.declare(), source.obtain()
    assert sum(declared.by_class) == PUBLISHED[name]
    assert not declared.simulated and not declared.stands_for
    assert "closed" in declared.licence and source.missing() == tuple(f.name for f in obtain.files)
    for column in declared.schema:
        assert column.source.strip(), column.name
        if isinstance(column, Categorical) and column.fill is not None:
            assert column.fill in column.categories, column.name
        elif isinstance(column, Numeric) and column.fill is not None:
            assert column.low <= float(column.fill) <= column.high, column.name
    text = str(importlib.import_module(type(source).__module__).__doc__)
    assert "stand-in" in text and ("Simulator: `" in text or "o simulator" in text)
    assert all(file.name[:11] in text for file in obtain.files)


def test_table_of_the_papers_names_registered_datasets_only() -> None:
    page = ROOT / "docs" / "datasets" / "papers.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    cells = [cell.strip() for row in rows for cell in row.split("|")]
    named = {word.strip("`") for cell in cells for word in cell.split() if word.startswith("`")}
    assert set(PUBLISHED) <= named
    assert named <= set(dataset_names())
