"""The loaders of Adult, SEER, Diabetes-130 and SUPPORT2 on hand-written and on wrong files."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from bench.data.encoder import Encoder
from bench.errors import DataError, SchemaError
from bench.plugins.registry import build_source
from bench.plugins.source import FileSource

ADULT = b"""\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K
54, ?, 180211, Some-college, 10, Married-civ-spouse, ?, Husband, Asian-Pac-Islander, Male, 0, 0, 60, ?, >50K

"""  # noqa: E501
ADULT_TEST = b"""\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Machine-op-inspct, Own-child, Black, Male, 0, 0, 40, United-States, <=50K.
44, Private, 160323, Some-college, 10, Married-civ-spouse, Machine-op-inspct, Husband, Black, Male, 7688, 0, 40, United-States, >50K.

"""  # noqa: E501
SEER_HEADER = (
    "Age,Race ,Marital Status,T Stage ,N Stage,6th Stage,Grade,A Stage,Tumor Size,Estrogen Status,"
    "Progesterone Status,Regional Node Examined,Reginol Node Positive,Survival Months,Status"
)
SEER_ROWS = (
    '43,"Other (American Indian/AK Native, Asian/Pacific Islander)",Married (including common law),'
    "T2,N3,IIIC,Moderately differentiated; Grade II,Regional,40,Positive,Positive,19,11,1,Alive",
    "67,White ,Single (never married) ,T1 ,N1,IIA,Well differentiated; Grade I,Regional,12,"
    "Negative,Positive,3,1,60,Dead ",
)
SEER = "\n".join((SEER_HEADER, *SEER_ROWS, "")).encode()

SUPPORT_ROW: Mapping[str, str] = {
    "sno": "1",
    "age": " 62.84998",
    "death": "0",
    "sex": "male",
    "hospdead": "0",
    "d.time": "2029",
    "dzgroup": "Lung Cancer",
    "num.co": "0",
    "edu": "11",
    "income": "$11-$25k",
    "scoma": "  0",
    "race": "other",
    "aps": " 20",
    "hday": "  1",
    "diabetes": "0",
    "dementia": "0",
    "ca": "metastatic",
    "meanbp": " 97.0",
    "wblc": "  6.0",
    "hrt": " 69.0",
    "resp": "22",
    "temp": "36.0",
    "pafi": "388.0",
    "alb": " 1.8",
    "bili": " 0.2",
    "crea": " 1.2",
    "sod": "141",
    "ph": "7.46",
    "glucose": "",
    "bun": "",
    "urine": "",
    "adlp": " 7",
    "adls": " 7",
}
"""The first row of the published file, without the columns that nobody reads."""

_DRUGS = """
metformin repaglinide nateglinide chlorpropamide glimepiride acetohexamide glipizide glyburide
tolbutamide pioglitazone rosiglitazone acarbose miglitol troglitazone tolazamide examide citoglipton
glyburide-metformin glipizide-metformin glimepiride-pioglitazone metformin-rosiglitazone
metformin-pioglitazone"""
DIABETES_ROW: Mapping[str, str] = {
    "encounter_id": "10",
    "patient_nbr": "1",
    "race": "Caucasian",
    "gender": "Female",
    "age": "[50-60)",
    "weight": "?",
    "admission_type_id": "1",
    "discharge_disposition_id": "1",
    "admission_source_id": "7",
    "time_in_hospital": "3",
    "payer_code": "MC",
    "medical_specialty": "Surgery-General",
    "num_lab_procedures": "59",
    "num_procedures": "0",
    "num_medications": "18",
    "number_outpatient": "0",
    "number_emergency": "0",
    "number_inpatient": "0",
    "diag_1": "276",
    "diag_2": "250.01",
    "diag_3": "V27",
    "number_diagnoses": "9",
    "max_glu_serum": "None",
    "A1Cresult": "None",
    **dict.fromkeys(_DRUGS.split(), "No"),
    "insulin": "Up",
    "change": "Ch",
    "diabetesMed": "Yes",
    "readmitted": ">30",
}


def as_csv(*rows: Mapping[str, str]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


FILES: Mapping[str, Mapping[str, bytes]] = {
    "adult": {"adult.data": ADULT, "adult.test": ADULT_TEST},
    "diabetes130": {"diabetic_data.csv": as_csv(DIABETES_ROW)},
    "seer-breast": {"SEER_Breast_Cancer_IEEE.csv": SEER},
    "support2": {"support2.csv": as_csv(SUPPORT_ROW)},
}
every_table = pytest.mark.parametrize("name", FILES)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    return tmp_path


def source_with(folder: Path, name: str, **replaced: bytes) -> FileSource:
    """The source, with its small files in the data folder; `main` replaces the first one."""
    source = build_source(name)
    assert isinstance(source, FileSource)
    place = folder / source.obtain().folder
    place.mkdir(exist_ok=True)
    for position, (file, content) in enumerate(FILES[name].items()):
        (place / file).write_bytes(replaced.get("main", content) if position == 0 else content)
    return source


@every_table
def test_small_files_are_read_and_encoded(name: str, folder: Path) -> None:
    source = source_with(folder, name)
    frame, schema = source.load(), source.declare().schema
    assert list(frame.columns) == [column.name for column in schema]
    rows, clipped = Encoder(schema).encode(frame)
    assert len(rows) == len(frame)
    assert not any(clipped.values())


@every_table
def test_packed_files_give_the_same_table(name: str, folder: Path) -> None:
    source = source_with(folder, name)
    plain = source.load()
    place, file = folder / source.obtain().folder, source.obtain().files[0].name
    content = (place / file).read_bytes()
    (place / file).unlink()
    with zipfile.ZipFile(place / "download.zip", "w") as archive:
        archive.writestr(f"inside/{file}", content)
    pd.testing.assert_frame_equal(source.load(), plain)
    (place / "download.zip").unlink()
    (place / f"{file}.gz").write_bytes(gzip.compress(content))
    pd.testing.assert_frame_equal(source.load(), plain)


@every_table
def test_another_version_is_named(name: str, folder: Path) -> None:
    source = source_with(folder, name)
    differences = source.check()
    assert any("fingerprint" in line and "not the published" in line for line in differences)
    assert any(f"expected {sum(source.declare().by_class)}" in line for line in differences)


@every_table
def test_absent_files_are_answered_with_how_to_get_them(name: str, folder: Path) -> None:
    source = build_source(name)
    assert isinstance(source, FileSource)
    assert source.missing() == tuple(FILES[name])
    with pytest.raises(DataError, match=rf"obtain it from .*{source.obtain().page[:20]}"):
        source.load()


def test_adult_values(folder: Path) -> None:
    source = source_with(folder, "adult")
    frame, test = source.load(), source.load_official_test()
    assert not {"education", "fnlwgt"} & set(frame)
    assert frame["age"].tolist() == [39, 54]
    assert frame["workclass"].tolist() == ["State-gov", "(missing)"]
    assert frame["native-country"].tolist() == ["United-States", "(missing)"]
    assert frame["income"].tolist() == ["<=50K", ">50K"]
    assert test is not None
    assert test["income"].tolist() == ["<=50K", ">50K"]
    assert test["age"].tolist() == [25, 44]


def test_seer_values(folder: Path) -> None:
    frame = source_with(folder, "seer-breast").load()
    assert frame["Race"].tolist() == [
        "Other (American Indian/AK Native, Asian/Pacific Islander)",
        "White",
    ]
    assert frame["T Stage"].tolist() == ["T2", "T1"]
    assert frame["Regional Node Positive"].tolist() == [11, 1]
    assert frame["Status"].tolist() == ["0", "1"]


def test_seer_takes_the_file_with_an_empty_column(folder: Path) -> None:
    plain = source_with(folder, "seer-breast").load()
    header = SEER_HEADER.replace("Marital Status,", "Marital Status,,")
    rows = [row.replace(",T", ",,T", 1) for row in SEER_ROWS]
    wider = "\n".join((header, *rows)).encode()
    pd.testing.assert_frame_equal(source_with(folder, "seer-breast", main=wider).load(), plain)


def test_seer_refuses_a_copy_with_more_rows(folder: Path) -> None:
    many = "\n".join((SEER_HEADER, *(SEER_ROWS * 3_554))).encode()
    source = source_with(folder, "seer-breast", main=many)
    for act in (source.load, source.check):
        with pytest.raises(DataError, match=r"7,108 rows, but 4,024 were published: an altered"):
            act()


def test_diabetes_keeps_the_first_encounter_of_who_can_return(folder: Path) -> None:
    later = {**DIABETES_ROW, "encounter_id": "30", "readmitted": "<30", "gender": "Male"}
    died = {**DIABETES_ROW, "encounter_id": "20", "patient_nbr": "2"}
    died["discharge_disposition_id"] = "11"
    returned = {**died, "encounter_id": "25", "discharge_disposition_id": "1"}
    early = {**DIABETES_ROW, "encounter_id": "5", "patient_nbr": "3", "readmitted": "<30"}
    table = as_csv(later, DIABETES_ROW, died, returned, early)
    frame = source_with(folder, "diabetes130", main=table).load()
    # Patient 2 died at the first encounter: nothing is kept, whatever the file says of later.
    assert frame["readmitted"].tolist() == ["<30", "NO or >30"]
    assert frame["gender"].tolist() == ["Female", "Female"]
    assert not {"encounter_id", "patient_nbr", "weight", "examide", "citoglipton"} & set(frame)


def test_diabetes_values(folder: Path) -> None:
    unknown = {**DIABETES_ROW, "encounter_id": "11", "patient_nbr": "2"}
    unknown |= {"race": "?", "diag_1": "?", "diag_2": "8", "diag_3": "785.0", "payer_code": "?"}
    unknown |= {"medical_specialty": "?", "admission_type_id": "6", "A1Cresult": ">8"}
    frame = source_with(folder, "diabetes130", main=as_csv(DIABETES_ROW, unknown)).load()
    assert frame["diag_1"].tolist() == ["other", "(missing)"]
    assert frame["diag_2"].tolist() == ["diabetes", "other"]
    assert frame["diag_3"].tolist() == ["other", "circulatory"]
    assert frame["race"].tolist() == ["Caucasian", "(missing)"]
    assert frame["payer_code"].tolist() == ["Medicare", "(missing)"]
    assert frame["medical_specialty"].tolist() == ["surgery", "(missing)"]
    assert frame["admission_type_id"].tolist() == ["emergency", "(missing)"]
    # The word None is a result: not measured.
    assert frame["A1Cresult"].tolist() == ["None", ">8"]


@pytest.mark.parametrize(
    ("code", "group"),
    [
        ("139", "other"),
        ("140", "neoplasms"),
        ("239.9", "neoplasms"),
        ("249", "other"),
        ("250.83", "diabetes"),
        ("251", "other"),
        ("459", "circulatory"),
        ("460", "respiratory"),
        ("629", "genitourinary"),
        ("739", "musculoskeletal"),
        ("788", "genitourinary"),
        ("789", "other"),
        ("996", "injury"),
        ("E878", "other"),
        ("V57", "other"),
    ],
)
def test_diabetes_chapters(code: str, group: str) -> None:
    from bench.datasets.tables.diabetes130 import chapter

    assert chapter(code) == group


def test_diabetes_knows_every_code_of_the_published_mapping() -> None:
    from bench.datasets.tables import diabetes130

    # IDs_mapping.csv: types 1-8, dispositions 1-30, sources 1-26 without 16.
    kept = set(range(1, 31)) - {11, 13, 14, 19, 20, 21}
    assert set(diabetes130._CODES["admission_type_id"]) == set(range(1, 9))
    assert set(diabetes130._CODES["discharge_disposition_id"]) == kept
    assert set(diabetes130._CODES["admission_source_id"]) == set(range(1, 27)) - {16}


def test_support2_values(folder: Path) -> None:
    unknown = {**SUPPORT_ROW, "race": "", "income": "", "alb": "", "death": "1", "d.time": "4"}
    source = source_with(folder, "support2", main=as_csv(SUPPORT_ROW, unknown))
    frame = source.load()
    assert frame["race"].tolist() == ["other", "(missing)"]
    assert frame["income"].tolist() == ["$11-$25k", "(missing)"]
    assert frame["alb"].isna().tolist() == [False, True]
    assert frame["death"].tolist() == ["0", "1"]
    encoder = Encoder(source.declare().schema)
    rows, _ = encoder.encode(frame)
    # The published normal value, not the mean of the rows.
    assert encoder.decode(rows.values, rows.labels)["alb"].tolist() == pytest.approx([1.8, 3.5])


def test_support2_takes_copies_without_a_name_for_the_row_number(folder: Path) -> None:
    plain = source_with(folder, "support2").load()
    unnamed = as_csv(SUPPORT_ROW).replace(b"sno,", b"", 1)
    pd.testing.assert_frame_equal(source_with(folder, "support2", main=unnamed).load(), plain)


# Wrong files --------------------------------------------------------------------------------------


@every_table
def test_empty_file(name: str, folder: Path) -> None:
    with pytest.raises(DataError, match="the file is empty"):
        source_with(folder, name, main=b"").load()


@every_table
def test_truncated_gzip(name: str, folder: Path) -> None:
    source = source_with(folder, name)
    file = folder / source.obtain().folder / source.obtain().files[0].name
    packed = gzip.compress(file.read_bytes() * 50)
    file.unlink()
    file.with_name(f"{file.name}.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="truncated or damaged"):
        source.load()


@every_table
def test_wrong_separator(name: str, folder: Path) -> None:
    content = next(iter(FILES[name].values())).replace(b",", b";")
    with pytest.raises(DataError, match=r"separator seems to be ';'|1 comma-separated values"):
        source_with(folder, name, main=content).load()


@every_table
def test_not_utf8(name: str, folder: Path) -> None:
    content = next(iter(FILES[name].values()))
    source = source_with(folder, name, main=content.replace(b"er", b"\xe9r"))
    with pytest.raises(DataError, match="not UTF-8"):
        source.load()


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "diabetes130",
            b"readmitted",
            b"readmit",
            "missing, first 'readmitted'.*'readmit': renamed",
        ),
        ("seer-breast", b"Status\n", b"Vital\n", "missing, first 'Status'"),
        ("seer-breast", b"Age,", b"Survival Months,", "'Survival Months' is there twice"),
        ("support2", b",death,", b",dead,", "missing, first 'death'"),
        ("adult", b", <=50K", b"", "14 comma-separated values, expected the 15"),
        ("adult", b"39, ", b"young, ", "'age': 1 entries are not numbers"),
        ("support2", b"141", b"high", "'sod': 1 entries are not numbers"),
        ("diabetes130", b"10,1,", b"10,one,", "'patient_nbr' holds entries that are not whole"),
        ("diabetes130", b",276,", b",flu,", "diagnosis 'flu' is not an ICD-9 code"),
        ("diabetes130", b"?,1,1,7,", b"?,1,44,7,", "the code 44 is not in the publisher's"),
        ("seer-breast", b"Dead ", b"Lost", "the status 'Lost' is neither of Alive, Dead"),
    ],
)
def test_wrong_content(name: str, old: bytes, new: bytes, message: str, folder: Path) -> None:
    content = next(iter(FILES[name].values()))
    assert old in content
    with pytest.raises(DataError, match=message):
        source_with(folder, name, main=content.replace(old, new, 1)).load()


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("adult", b"<=50K", b"poor", r"'income': 1 values are not among .*'<=50K', '>50K'"),
        ("seer-breast", b"IIIC", b"IV", "'6th Stage': 1 values are not among"),
        ("diabetes130", b"[50-60)", b"55", "'age': 1 values are not among"),
        ("support2", b"metastatic", b"NA", "'ca': 1 values are not among"),
        ("support2", b"2029", b"", "'d.time': 1 missing values and no public `fill`"),
    ],
)
def test_values_outside_the_dictionary(
    name: str, old: bytes, new: bytes, message: str, folder: Path
) -> None:
    content = next(iter(FILES[name].values()))
    source = source_with(folder, name, main=content.replace(old, new, 1))
    with pytest.raises(SchemaError, match=message):
        Encoder(source.declare().schema).encode(source.load())
