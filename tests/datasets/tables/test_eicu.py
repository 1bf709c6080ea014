"""eICU and its demo: one row per patient, -1 and `> 89` read, no outcome among the features."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.data.encoder import Encoder
from bench.data.schema import Categorical, Numeric
from bench.data.splits import expected_sizes
from bench.datasets.tables._eicu import read_stays
from bench.errors import DataError, SchemaError
from bench.plugins.registry import build_source
from bench.plugins.source import FileSource, build_dataset
from tests.support.real_data import real_folder

FILES = ("patient.csv", "apacheApsVar.csv", "apachePatientResult.csv", "hospital.csv")
both = pytest.mark.parametrize("name", ["eicu", "eicu-demo"])


def source(name: str = "eicu-demo") -> FileSource:
    built = build_source(name)
    assert isinstance(built, FileSource)
    return built


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Path:
    return real_folder("eicu_demo", monkeypatch)


def test_real_demo_has_the_published_rows(real: Path) -> None:
    # Before anything is left out: 2,520 unit stays, 8.4% expired.
    stays = read_stays(real / "patient.csv.gz", "patient.csv")
    assert len(stays) == 2_520 and stays["uniquepid"].nunique() == 1_841
    expired = stays["hospitaldischargestatus"] == "Expired"
    assert expired.sum() == 212 and round(100 * expired.mean(), 1) == 8.4
    # Afterwards: one row per patient whose outcome is known.
    assert source().missing() == () and source().check() == []
    frame = source().load()
    assert frame["hospitaldischargestatus"].value_counts().to_dict() == {
        "Alive": 1_652,
        "Expired": 166,
    }


def test_real_demo_becomes_a_dataset(real: Path) -> None:
    dataset = build_dataset(source())
    # Entered in another unit (a height of 0.3) or wrong (admitted to hospital after the unit), and
    # three patients with more than ten litres of urine.
    assert {name: count for name, count in dataset.clipped.items() if count} == {
        "admissionheight": 9,
        "admissionweight": 1,
        "hospitaladmitoffset": 16,
        "urine": 3,
    }
    frame, declared = source().load(), dataset.declaration
    found = frame.groupby(["region", "hospitaldischargestatus"]).size()
    for site, counts in declared.by_site_class.items():
        assert (found[site, "Alive"], found[site, "Expired"]) == counts
        sizes = tuple(expected_sizes(rows, "default", False)["train"] for rows in counts)
        assert dataset.counts.by_site_class[site] == sizes
    splits = (dataset.train, dataset.validation, dataset.control, dataset.test)
    labels = np.concatenate([split.rows.labels for split in splits])
    assert tuple(np.bincount(labels)) == declared.by_class
    for rule in dataset.schema.rules:
        assert not rule.broken(frame).any()


def test_real_score_predicts_death_as_it_should(real: Path) -> None:
    """APACHE IV was published with an AUROC of 0.88: rows and outcomes belong together."""
    from sklearn.metrics import roc_auc_score

    frame = source().load().dropna(subset="apachescore")
    auroc = roc_auc_score(frame["hospitaldischargestatus"] == "Expired", frame["apachescore"])
    assert 0.78 < auroc < 0.90


def test_no_outcome_and_no_identifier_is_a_feature() -> None:
    schema = source().declare().schema
    for name in [column.name for column in schema.features]:
        assert not any(word in name for word in ("discharge", "actual", "predicted", "unabridged"))
        assert not name.endswith(("id", "pid"))
    assert schema.site is not None and schema.site.name == "region"


@both
def test_missing_values_have_public_replacements(name: str) -> None:
    declared = source(name).declare()
    assert declared.unit == "patient"
    for column in declared.schema.features:
        if isinstance(column, Numeric):
            # `hospitaladmitoffset` is never missing.
            assert column.fill is not None or column.name == "hospitaladmitoffset"
            assert column.fill is None or column.low <= float(column.fill) <= column.high
        elif isinstance(column, Categorical):
            assert "missing" in column.categories or column.name == "unittype"


def test_declared_counts_of_the_full_database_follow_from_its_publication() -> None:
    declared = source("eicu").declare()
    stays = {"Midwest": 65_950, "Northeast": 14_429, "South": 60_294, "West": 46_348}
    stays["missing"] = 200_859 - sum(stays.values())
    for region, count in stays.items():
        share = 139_367 * count / 200_859
        expected = (round(share * 181_104 / 200_859), round(share * 18_004 / 200_859))
        assert declared.by_site_class[region] == expected
    totals = tuple(sum(column) for column in zip(*declared.by_site_class.values(), strict=True))
    assert declared.by_class == totals


# Six patients. P1 has two hospital stays (and two unit stays in the first), P2 is above 89, P3 has
# nothing measured, P4 no outcome, P5 and P6 are there for the other class and an unlisted source.
STAYS = pd.DataFrame(
    [
        (11, 1, "Female", "70", "Caucasian", 1, 170, -60, "Alive", "MICU", "Floor", 2, 60, "P1"),
        (12, 1, "Female", "70", "Caucasian", 1, 170, -30, "Alive", "MICU", "Floor", 1, 60, "P1"),
        (10, 2, "Female", "71", "Caucasian", 2, 170, -30, "Expired", "SICU", "PACU", 1, 60, "P1"),
        (13, 3, "Male", "> 89", "Asian", 2, 160, -10, "Expired", "SICU", "ICU", 1, 70, "P2"),
        (14, 4, None, None, None, 3, None, -10, "Alive", "SICU", None, 1, None, "P3"),
        (15, 5, "Male", "50", "Hispanic", 2, 180, -10, None, "SICU", "ICU", 1, 70, "P4"),
        (16, 6, "Male", "51", "Hispanic", 2, 180, -10, "Expired", "SICU", "Tent", 1, 70, "P5"),
        (17, 7, "Male", "52", "Hispanic", 9, 180, -10, "Alive", "SICU", "ICU", 1, 70, "P6"),
    ],
    columns=[
        *("patientunitstayid", "patienthealthsystemstayid", "gender", "age", "ethnicity"),
        *("hospitalid", "admissionheight", "hospitaladmitoffset", "hospitaldischargestatus"),
        *("unittype", "unitadmitsource", "unitvisitnumber", "admissionweight", "uniquepid"),
    ],
).assign(hospitaldischargeyear=[2014, 2014, 2015, 2015, 2015, 2015, 2015, 2015], wardid=7)
APS_COLUMNS = (
    *("intubated", "vent", "dialysis", "eyes", "motor", "verbal", "meds", "urine", "wbc"),
    *("temperature", "respiratoryrate", "sodium", "heartrate", "meanbp", "ph", "hematocrit"),
    *("creatinine", "albumin", "pao2", "pco2", "bun", "glucose", "bilirubin", "fio2"),
)
APS = pd.DataFrame(
    [
        [12, *(1, 0, 0, 3, 6, 5, 0, -1, 10.2, 36.2, 39, 139, 88, 108, -1, 37.8, 1.04, -1, -1, -1)],
        [13, *(0, 1, 1, -1, -1, -1, -1, 500, -1, 37, 20, 140, 90, 60, 7.3, 30, 2, 3, 80, 40)],
    ],
    columns=["patientunitstayid", *APS_COLUMNS[:20]],
).assign(bun=28, glucose=61, bilirubin=-1, fio2=-1)
RESULT = pd.DataFrame(
    {
        "patientunitstayid": [12, 12, 13, 13],
        "apacheversion": ["IV", "IVa", "IV", "IVa"],
        "acutephysiologyscore": [23, 23, -1, -1],
        "apachescore": [47, 47, -1, -1],
        "actualhospitalmortality": ["ALIVE", "ALIVE", "EXPIRED", "EXPIRED"],
    }
)
HOSPITAL = pd.DataFrame({"hospitalid": [1, 2, 3], "region": ["Midwest", "South", None]})
TABLES = dict(zip(FILES, (STAYS, APS, RESULT, HOSPITAL), strict=True))

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the hand-written tables, some of them replaced, for both datasets."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))

    def written(spell: Callable[[str], str] = str, **replaced: pd.DataFrame) -> None:
        for folder in ("eicu", "eicu_demo"):
            (tmp_path / folder).mkdir(exist_ok=True)
            for name, table in TABLES.items():
                table = replaced.get(name.removesuffix(".csv"), table)
                table.to_csv(tmp_path / folder / spell(name), index=False)

    return written


@both
def test_one_row_a_patient(write: Write, name: str) -> None:
    write()
    frame = source(name).load()
    # P4 has no outcome; P1's first unit stay of the first hospital stay counts.
    assert frame["age"].tolist()[:2] == [70, 90] and np.isnan(frame["age"][2])
    assert frame["hospitaldischargestatus"].tolist() == [
        "Alive",
        "Expired",
        "Alive",
        "Expired",
        "Alive",
    ]
    assert frame["apachescore"].tolist()[0] == 47
    assert frame["region"].tolist() == ["Midwest", "South", "missing", "South", "missing"]


def test_missing_is_understood(write: Write) -> None:
    write()
    frame = source().load()
    first, second, third = (frame.loc[row] for row in range(3))
    assert first["intubated"] == "1" and first["meds"] == "0" and second["meds"] == "missing"
    assert np.isnan(first["urine"]) and second["urine"] == 500
    assert np.isnan(second["eyes"]) and np.isnan(second["apachescore"])
    # P3 has no row in the APACHE tables at all, and hardly any in the first one.
    for name in ("gender", "ethnicity", "unitadmitsource", "vent", "dialysis"):
        assert third[name] == "missing"
    assert frame["unitadmitsource"].tolist() == ["Floor", "ICU", "missing", "Other", "ICU"]
    rows, _ = Encoder(source().declare().schema).encode(frame)
    assert np.isfinite(rows.values).all()


def test_both_spellings_of_the_files_are_found(write: Write, tmp_path: Path) -> None:
    write(spell=str.lower)
    assert source().missing() == ()
    assert len(source().load()) == 5
    for path in (tmp_path / "eicu_demo").iterdir():
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len(source().load()) == 5


def test_absent_files_are_named_as_published(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    assert source("eicu").missing() == FILES
    with pytest.raises(DataError, match="credentialed"):
        source("eicu").load()


def test_check_tells_how_far_the_declared_counts_are_off(write: Write) -> None:
    write()
    assert source("eicu").check() == ["5 rows, expected 138153"]
    assert len(source("eicu-demo").check()) == 5  # four fingerprints and the rows


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"patient": STAYS.drop(columns="hospitaldischargestatus")}, "'hospitaldischargestatus'"),
        ({"patient": STAYS.assign(age="old")}, "the age in row 1 is neither a number nor '> 89'"),
        (
            {"patient": pd.concat([STAYS, STAYS])},
            r"the patientunitstayid of row \d+ is there twice",
        ),
        ({"apacheApsVar": APS.drop(columns="wbc")}, "first 'wbc'"),
        (
            {"apacheApsVar": pd.concat([APS, APS])},
            r"the patientunitstayid of row \d+ is there twice",
        ),
        ({"apacheApsVar": APS.assign(wbc="many")}, "'wbc': 2 entries are not numbers"),
        ({"apachePatientResult": RESULT.assign(apacheversion="IVa")}, r"of row \d+ is there twice"),
        (
            {"hospital": pd.concat([HOSPITAL, HOSPITAL])},
            r"the hospitalid of row \d+ is there twice",
        ),
        ({"hospital": HOSPITAL.head(0)}, "no rows"),
    ],
)
def test_wrong_tables_are_refused(
    write: Write, replaced: dict[str, pd.DataFrame], message: str
) -> None:
    write(**replaced)
    with pytest.raises(DataError, match=message) as refusal:
        source().load()
    assert "\n" not in str(refusal.value)


def test_unknown_categories_are_refused(write: Write) -> None:
    write(patient=STAYS.assign(unittype="Burns"))
    with pytest.raises(SchemaError, match=r"'unittype': \d+ values are not among"):
        build_dataset(source())
    write(hospital=HOSPITAL.assign(region="Atlantis"))
    with pytest.raises(SchemaError, match=r"'region': \d+ values are not among"):
        build_dataset(source())


def test_truncated_table_is_refused(write: Write, tmp_path: Path) -> None:
    write()
    path = tmp_path / "eicu_demo" / "patient.csv"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_name("patient.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="truncated or damaged"):
        source().load()
