"""The HDF5 files of DeepSurv: what their nameless columns are, and what ails one of them."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.data.encoder import Encoder
from bench.data.splits import expected_sizes
from bench.datasets.survival._deepsurv import DeepSurvFile, read_groups
from bench.errors import DataError
from bench.plugins.registry import build_source
from bench.plugins.source import FileSource, build_dataset
from tests.support.real_data import real_folder

h5py = pytest.importorskip("h5py", reason="h5py (extra `files`) is not installed")

FOLDER = "survival_deepsurv"
# Rows in the file, events in the file (the README of the shared data gives the rows).
PUBLISHED = {
    "metabric": (1_904, 1_103),
    "support-deepsurv": (8_873, 6_036),
    "rotterdam-gbsg": (2_232, 1_267),
    "whas": (1_638, 690),
}
every_file = pytest.mark.parametrize("name", PUBLISHED)


def source_of(name: str) -> DeepSurvFile:
    source = build_source(name)
    assert isinstance(source, DeepSurvFile)
    return source


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Path:
    return real_folder(FOLDER, monkeypatch).parent


def raw(source: DeepSurvFile) -> pd.DataFrame:
    """The file as it is: columns 0, 1, ..., t, e and the group."""
    content = source.paths()[source.file].read_bytes()
    parts = []
    for name, group in read_groups(content, source.file, len(source.columns)).items():
        frame = pd.DataFrame(group.features)
        parts.append(frame.assign(t=group.times, e=group.events, group=name))
    return pd.concat(parts, ignore_index=True)


@every_file
def test_real_file_has_the_published_rows(real: Path, name: str) -> None:
    source = source_of(name)
    assert source.check() == []
    table = raw(source)
    assert (len(table), int(table["e"].sum())) == PUBLISHED[name]
    if name != "whas":  # which keeps each patient once
        assert len(source.load()) == len(table)


@every_file
def test_real_file_becomes_a_dataset(real: Path, name: str) -> None:
    dataset = build_dataset(source_of(name))
    # One progesterone receptor of 5004 lies above its public bound of 5000.
    expected = {"pgr": 1} if name == "rotterdam-gbsg" else {}
    assert {column: count for column, count in dataset.clipped.items() if count} == expected
    declared = dataset.declaration
    labels = np.concatenate(
        [
            split.rows.labels
            for split in (dataset.train, dataset.validation, dataset.control, dataset.test)
        ]
    )
    assert tuple(np.bincount(labels)) == declared.by_class
    strata = [*declared.by_site_class.values()] or [declared.by_class]
    sizes = [[expected_sizes(rows, "default", False)["train"] for rows in one] for one in strata]
    assert list(dataset.counts.by_class) == np.sum(sizes, axis=0).tolist()
    for rule in dataset.schema.rules:
        assert not rule.broken(source_of(name).load()).any()


def test_support_columns_are_those_of_support2(real: Path) -> None:
    original = real / "support2" / "support2.csv.gz"
    if not original.is_file():
        pytest.skip(f"{original} is absent")
    theirs = pd.read_csv(original)
    ours = source_of("support-deepsurv").load()
    for frame, time in ((ours, "time"), (theirs, "d.time")):
        frame["key"] = list(
            zip(
                frame["age"].astype(np.float32).round(3),
                frame[time].astype(int),
                frame["num.co"].astype(int),
                frame["sex"],
                strict=True,
            )
        )
    pairs = ours.merge(theirs, on="key", suffixes=("", "_original"))
    # Two pairs of patients share their key, and are matched crosswise as well.
    assert len(ours) <= len(pairs) <= len(ours) + 2
    for name in ("meanbp", "hrt", "resp", "temp", "sod", "wblc", "crea"):
        assert np.isclose(pairs[name], pairs[f"{name}_original"], atol=0.01).mean() > 0.999, name
    for name in ("diabetes", "dementia"):
        assert ((pairs[name] == "yes") == (pairs[f"{name}_original"] == 1)).mean() > 0.999, name
    assert (pairs["ca"] == pairs["ca_original"]).mean() > 0.999
    assert (pairs["race"] == pairs["race_original"].fillna("missing")).mean() > 0.999
    assert (pairs["event"] == pairs["death"]).all()


def test_gbsg_rows_are_those_of_the_trial(real: Path) -> None:
    from lifelines.datasets import load_gbsg2

    trial = load_gbsg2()
    frame = source_of("rotterdam-gbsg").load()
    assert frame["cohort"].value_counts().to_dict() == {"Rotterdam": 1_546, "GBSG": 686}
    ours = frame[frame["cohort"] == "GBSG"].reset_index(drop=True)
    for mine, original in (("age", "age"), ("nodes", "pnodes"), ("pgr", "progrec")):
        assert (ours[mine] == trial[original]).all()
    assert (ours["er"] == trial["estrec"]).all()
    assert (ours["hormone_therapy"] == trial["horTh"]).all()
    assert (ours["menopause"] == trial["menostat"].str.lower()).all()
    assert (ours["event"] == trial["cens"]).all()
    assert np.allclose(ours["time"], trial["time"] * 12 / 365.25, rtol=1e-5)
    bands = pd.cut(trial["tsize"], [0, 20, 50, 1000], labels=["<=20", "20-50", ">50"])
    assert (ours["size"] == bands.astype(str)).all()


def test_metabric_genes_behave_as_named(real: Path) -> None:
    """The biology that distinguishes the four genes: see the module."""
    frame = source_of("metabric").load()
    genes = frame[["EGFR", "PGR", "ERBB2", "MKI67"]]
    positive = frame["ER_positive"] == "yes"
    correlation = genes.corrwith(positive.astype(float))
    assert correlation["PGR"] > 0.3 and correlation["EGFR"] < -0.4
    assert genes.mean().idxmax() == "ERBB2" and genes.std().idxmin() == "MKI67"


def test_whas_file_is_a_nested_case_control_sample(real: Path) -> None:
    source = source_of("whas")
    table = raw(source)
    person = [1, 2, 3, 4, 5, "t", "e"]
    cases = table[table[0] == 1]
    assert (cases["e"] == 1).all()
    assert len(cases) * 6 == len(table)  # five controls each
    assert not cases.duplicated(person).any()
    deaths = table[table["e"] == 1].drop_duplicates(person)
    assert len(deaths) == len(cases)
    # DeepSurv's two groups share patients.
    groups = [set(map(tuple, part[person].to_numpy())) for _, part in table.groupby("group")]
    assert len(groups[0] & groups[1]) > 100


def test_whas_patient_is_in_one_split_only(real: Path) -> None:
    source = source_of("whas")
    frame = source.load()
    assert len(frame) == 557 and frame["event"].sum() == 273
    assert "case" not in frame.columns
    dataset = build_dataset(source)
    splits = (dataset.train, dataset.validation, dataset.control, dataset.test)
    everybody = pd.concat([split.frame for split in splits])
    assert len(everybody) == 557 and not everybody.duplicated().any()


# A hand-written file of the same form: two patients in `train`, one in `test`.
ROWS: dict[str, list[list[float]]] = {
    "metabric": [
        [5.6, 7.8, 10.8, 6.0, 1, 1, 0, 1, 56.84],
        [6.7, 5.3, 8.6, 5.7, 0, 0, 1, 0, 66.9],
        [5.3, 9.6, 10.2, 5.7, 1, 0, 0, 1, 85.9],
    ],
    "support-deepsurv": [
        [62.8, 0, 2, 1, 0, 0, 1, 97, 69, 22, 36, 141, 6, 1.2],
        [60.3, 1, 0, 5, 1, 0, 2, 43, 112, 34, 34.6, 132, 17, 5.5],
        [52.7, 1, 1, 3, 0, 1, 0, 70, 88, 28, 37.4, 134, 8.5, 2],
    ],
    "rotterdam-gbsg": [
        [0, 1, 0, 45, 3, 48, 66],
        [1, 2, 1, 66, 12, 0, 0],
        [1, 0, 1, 56, 7, 61, 77],
    ],
    # The first two rows are one patient: as a case, and as a control of an earlier one.
    "whas": [[1, 84, 0, 22.4, 1, 1], [0, 84, 0, 22.4, 1, 1], [0, 36, 1, 31.6, 0, 0]],
}
TIMES = {name: [12.5, 12.5, 0.0] if name == "whas" else [12.5, 30.0, 0.0] for name in ROWS}
EVENTS = [1, 1, 0]


def write(path: Path, name: str, **changes: Any) -> None:
    data = {"x": np.array(ROWS[name], "f4"), "t": np.array(TIMES[name], "f4"), "e": EVENTS}
    data |= changes
    with h5py.File(path, "w") as file:
        for group, part in (("train", slice(0, 2)), ("test", slice(2, 3))):
            for key, values in data.items():
                if values is not None:
                    file[f"{group}/{key}"] = np.asarray(values)[part]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    (tmp_path / FOLDER).mkdir()
    return tmp_path / FOLDER


@every_file
def test_small_file_fits_the_schema(place: Path, name: str) -> None:
    source = source_of(name)
    assert source.missing() == (source.file,)
    write(place / source.file, name)
    assert source.missing() == ()
    frame = source.load()
    schema = source.declare().schema
    assert set(frame.columns) == {column.name for column in schema}
    rows, clipped = Encoder(schema).encode(frame)
    assert not any(clipped.values())
    assert frame["time"].tolist() == ([12.5, 0.0] if name == "whas" else TIMES[name])
    assert rows.labels.tolist() == ([1, 0] if name == "whas" else EVENTS)


def test_codes_become_words(place: Path) -> None:
    for name in ("support-deepsurv", "rotterdam-gbsg", "whas"):
        write(place / source_of(name).file, name)
    support = source_of("support-deepsurv").load()
    assert support["sex"].tolist() == ["male", "female", "female"]
    assert support["race"].tolist() == ["white", "missing", "hispanic"]
    assert support["ca"].tolist() == ["no", "yes", "metastatic"]
    gbsg = source_of("rotterdam-gbsg").load()
    assert gbsg["cohort"].tolist() == ["Rotterdam", "Rotterdam", "GBSG"]
    assert gbsg["size"].tolist() == ["20-50", ">50", "<=20"]
    assert source_of("whas").load()["miord"].tolist() == ["recurrent", "first"]


def test_packed_file_is_read(place: Path) -> None:
    source = source_of("metabric")
    write(place / source.file, "metabric")
    (place / f"{source.file}.gz").write_bytes(gzip.compress((place / source.file).read_bytes()))
    (place / source.file).unlink()
    assert len(source.load()) == 3


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no times": ({"t": None}, "holds no numbers 'train/t'"),
    "words": ({"e": np.array([b"a", b"b", b"c"])}, "holds no numbers 'train/e'"),
    "eight columns": ({"x": np.zeros((3, 8), "f4")}, "9 columns"),
    "one dimension": ({"x": np.zeros(3, "f4")}, "9 columns"),
    "negative time": ({"t": np.array([1, -2, 3], "f4")}, "1 negative times"),
    "event 2": ({"e": [0, 2, 1]}, "events other than 0 and 1"),
    "not a number": ({"t": np.array([1, np.nan, 3], "f4")}, "missing or infinite"),
    "code 3": ({"x": np.array(ROWS["metabric"], "f4") * 3}, "hormone_therapy is 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_is_refused_in_one_line(place: Path, case: str) -> None:
    changes, message = WRONG[case]
    source = source_of("metabric")
    write(place / source.file, "metabric", **changes)
    with pytest.raises(DataError, match=message) as refusal:
        source.load()
    assert source.file in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"x,t,e\n1,2,3\n", None])
def test_what_is_not_hdf5_is_refused(place: Path, content: bytes | None) -> None:
    source = source_of("metabric")
    write(place / source.file, "metabric")
    if content is None:  # truncated
        content = (place / source.file).read_bytes()[:1500]
    (place / source.file).write_bytes(content)
    with pytest.raises(DataError, match="not a whole HDF5 file"):
        source.load()


def test_altered_copy_is_named_by_check(place: Path) -> None:
    source = source_of("metabric")
    write(place / source.file, "metabric")
    fingerprint, rows = source.check()
    assert "is not the published e959131973c9" in fingerprint
    assert rows == "3 rows, expected 1904"


def test_absent_file_is_answered_with_its_publisher(place: Path) -> None:
    source = build_source("whas")
    assert isinstance(source, FileSource)
    with pytest.raises(DataError, match="obtain it from DeepSurv"):
        source.load()


def test_without_h5py_the_extra_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of("metabric")
    write(place / source.file, "metabric")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"pip install 'dp-release-bench\[files\]'"):
        source.load()
