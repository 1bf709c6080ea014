"""The tables and cohorts that come out of packages: on small files of the same form, and real."""

from __future__ import annotations

import bz2
import lzma
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rdata

from bench.data.encoder import Encoder
from bench.data.packages import origin_lines
from bench.data.schema import Task
from bench.engine.grid import load_grid
from bench.errors import DataError
from bench.plugins.registry import build_source, dataset_names
from bench.plugins.source import FileSource
from tests.support.places import ROOT

SETS = ("census-income-kdd", "rand-hie", "meps-drugs", "nhanes", "nafld", "dmlate", "colrec")
every_set = pytest.mark.parametrize("name", SETS)

CENSUS = (
    "73, Not in universe, 0, 0, High school graduate, 0, Not in universe, Widowed, Not in "
    "universe or children, Not in universe, White, All other, Female, Not in universe, Not "
    "in universe, Not in labor force, 0, 0, 0, Nonfiler, Not in universe, Not in universe, "
    "Householder, Householder, 1700.09, ?, ?, ?, Not in universe under 1 year old, ?, 0, Not "
    "in universe, United-States, United-States, ?, Native- Born in the United States, 0, Not "
    "in universe, 2, 0, 95, {}\n"
)
RAND = pd.DataFrame(
    {
        "zper": [7, 7, 8],
        "year": [2, 1, 3],
        "binexp": [1, 0, 1],
        "site": 1,
        "coins": 95,
        "idp": 0,
        "mdeoff": [None, None, 450.0],
        "pioff": 450,
        "tookphys": 1,
        "black": [0, 0, 0.2],
        "income": 8000,
        "xage": [31, 30, 5],
        "female": 1,
        "educdec": 12,
        "num": 4,
        "mhi": 80,
        "disea": 10.5,
        "physlm": 0.1,
        "xghindx": 70,
        "hlthg": [0, 1, 0],
        "hlthf": 0,
        "hlthp": [0, 0, 1],
    }
)
MEPS = pd.DataFrame(
    {
        "age": [70, 80],
        "drugexp": [70, 80],
        **dict.fromkeys(("female", "marry", "priolist", "msa", "multlc", "firmsz"), 1),
        "educyr": 12,
        "income": 20.5,
        "ssiratio": 0.4,
        "totchr": 2,
        "black": [1, 0],
        "hisp": [1, 0],
        "vegood": 0,
        "good": [1, 0],
        "fair": [1, 0],
        "poor": 0,
        "poverty": 0,
        "lowincome": [0, 1],
        "midincome": 0,
        "hi_empunion": [0, 1],
    }
)


def nhanes() -> bytes:
    table: dict[str, object] = {}
    for column in build_source("nhanes").declare().schema:
        categories = getattr(column, "categories", ())
        if "no" in categories:
            table[column.name] = [1.0, 0.0, 1.0, None]
        else:
            table[column.name] = categories[0] if categories else 5.397605346934028e-79
    table["AgeInYearsAtScreening"] = [66.0, 20.0, 19.0, 30.0]
    table["MinutesSedentaryActivity"] = [300.0, 9999.0, 300.0, 300.0]
    table["DoctorToldYouHaveDiabetes"] = ["1", "Borderline", "1", None]
    return pd.DataFrame(table).to_csv(sep="\t").encode()


def packed(value: object, folder: Path) -> bytes:
    """One object of a lazy-load database, as R packs it."""
    rdata.write_rds(folder / "made.rds", value, compression=None)
    plain = (folder / "made.rds").read_bytes()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
    content = lzma.compress(plain, lzma.FORMAT_RAW, filters=filters)
    return struct.pack(">I", len(plain)) + b"Z" + content


def nafld(folder: Path) -> dict[str, bytes]:
    people = pd.DataFrame(
        {
            "id": [1, 2],
            "age": [50.0, 60.0],
            "male": [0, 1],
            "height": [170.0, np.nan],
            "bmi": [25.0, np.nan],
            "futime": [100.0, 200.0],
            "status": [0.0, 1.0],
        }
    )
    events = pd.DataFrame(
        {"id": [1, 2, 2], "days": [-5.0, 3.0, 0.0], "event": ["htn", "stroke", "nafld"]}
    )
    return database({"nafld1": people, "nafld3": events}, folder)


def database(tables: Mapping[str, pd.DataFrame], folder: Path) -> dict[str, bytes]:
    """A lazy-load database of R, with one object after the other."""
    content, places = b"", {}
    for name, table in tables.items():
        one = packed(table, folder)
        places[name] = np.array([len(content), len(one)], dtype=np.int32)
        content += one
    index = {"variables": places, "compressed": np.array([3], dtype=np.int32)}
    rdata.write_rds(folder / "made.rdx", index)
    return {"Rdata.rdx": (folder / "made.rdx").read_bytes(), "Rdata.rdb": content}


def colrec(folder: Path) -> dict[str, bytes]:
    table = pd.DataFrame(
        {
            "sex": np.array([1, 2], dtype=np.int32),
            "age": [365.25 * 70, 365.25 * 50],
            "diag": [365.25 * 34.5, 365.25 * 40],
            "time": [16.0, 504.0],
            "stat": np.array([0, 1], dtype=np.int32),
            "stage": ["99", "3"],
            "site": ["rectum", "colon"],
        }
    )
    return database({"colrec": table}, folder)


def dmlate(folder: Path) -> dict[str, bytes]:
    table = pd.DataFrame(
        {
            "sex": ["M", "F"],
            "dobth": [1940.0, 1950.0],
            "dodm": [1996.0, 2000.0],
            "dodth": [2001.5, np.nan],
            "dooad": [1996.0, 2001.0],
            "doins": [np.nan, np.nan],
            "dox": [2001.5, 2009.9],
        }
    )
    rdata.write_rda(folder / "made.rda", {"DMlate": table})
    return {"DMlate.rda": (folder / "made.rda").read_bytes()}


def files_of(name: str, folder: Path) -> Mapping[str, bytes]:
    if name == "census-income-kdd":
        data = (CENSUS.format("- 50000.") + CENSUS.format("50000+.")).encode()
        return {"census-income.data": data, "census-income.test": data}
    if name == "rand-hie":
        return {"randhie.csv": RAND.to_csv(index=False).encode()}
    if name == "meps-drugs":
        return {"meps.csv.bz2": bz2.compress(MEPS.to_csv(index=False).encode())}
    if name == "nhanes":
        return {"NHANES_data_2017-2018.tsv": nhanes()}
    return {"nafld": nafld, "dmlate": dmlate, "colrec": colrec}[name](folder)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that returns a source whose small files are in the data folder."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))

    def build(name: str, damage: bool = False) -> FileSource:
        source = build_source(name)
        assert isinstance(source, FileSource)
        place = tmp_path / source.obtain().folder
        place.mkdir(exist_ok=True)
        for file, content in files_of(name, tmp_path).items():
            (place / file).write_bytes(content[: len(content) // 2] if damage else content)
        return source

    return build


@every_set
def test_small_files_are_read_and_encoded(name, small):
    source = small(name)
    frame, schema = source.load(), source.declare().schema
    assert list(frame.columns) == [column.name for column in schema]
    rows, _ = Encoder(schema).encode(frame)
    assert len(rows) == len(frame) == 2
    assert any("not the published" in line for line in source.check())


@pytest.mark.parametrize("name", ["meps-drugs", "nafld", "dmlate", "colrec"])
def test_damaged_packed_files_are_named(name, small):
    with pytest.raises(DataError, match="truncated or damaged"):
        small(name, damage=True).load()


def test_values(small):
    census = small("census-income-kdd").load()
    assert census["income"].tolist() == ["-50000", "50000+"]
    assert census["country of birth self"].tolist() == ["(missing)"] * 2
    # The first year of each person, and what the omitted indicator stands for.
    rand = small("rand-hie").load()
    assert rand["binexp"].tolist() == ["0", "1"]
    assert rand["health"].tolist() == ["good", "poor"]
    meps = small("meps-drugs").load()
    assert meps["race"].tolist() == ["black and hispanic", "other"]
    assert meps["health"].tolist() == ["fair", "excellent"]
    # Adults who answered; 9999 is no number of minutes, and 5.4e-79 is zero.
    nhanes = small("nhanes").load()
    assert nhanes["DoctorToldYouHaveDiabetes"].tolist() == ["yes", "no"]
    assert nhanes["MinutesSedentaryActivity"].isna().tolist() == [False, True]
    assert (nhanes["AlcoholGm_DR1TOT"] == 0).all()
    # Diagnoses after the index date are not known at the start.
    nafld = small("nafld").load()
    assert nafld["hypertension"].tolist() == ["yes", "no"]
    assert nafld["nafld"].tolist() == ["no", "yes"]
    assert nafld["stroke"].tolist() == ["no", "no"]
    dmlate = small("dmlate").load()
    assert dmlate["time"].tolist() == pytest.approx([5.5, 9.9])
    assert dmlate["death"].tolist() == ["1", "0"]
    assert dmlate["oral treatment"].tolist() == ["yes", "no"]
    colrec = small("colrec").load()
    assert colrec["sex"].tolist() == ["male", "female"]
    assert colrec["age"].tolist() == pytest.approx([70, 50])
    assert colrec["diagnosis"].tolist() == pytest.approx([1994.5, 2000])
    assert colrec["stage"].tolist() == ["unknown", "3"]
    assert colrec["death"].tolist() == ["0", "1"]


@every_set
def test_declarations_say_where_everything_comes_from(name):
    declared = build_source(name).declare()
    assert declared.licence and declared.citation and declared.source and not declared.simulated
    assert all(column.source.strip() for column in declared.schema)


@every_set
def test_the_real_files_are_as_published(name):
    source = build_source(name)
    assert isinstance(source, FileSource)
    if source.missing():
        pytest.skip(f"the files of {name} are not here: bench data get {name}")
    assert source.check() == []


def test_adult_out_of_a_package_equals_the_original_files(monkeypatch):
    """Cell by cell, in both files; the record beside the file says that a package brought it."""
    source = build_source("adult")
    assert isinstance(source, FileSource)
    folders = [parent / "shared" / "data" for parent in ROOT.parents]
    originals = next((folder for folder in folders if (folder / "adult").is_dir()), None)
    if source.missing() or not origin_lines(source.paths()["adult.data"]) or originals is None:
        pytest.skip("needs the files of `bench data get adult`, and the originals in shared/data")
    packaged = source.load(), source.load_official_test()
    monkeypatch.setenv("BENCH_DATA", str(originals))
    assert not origin_lines(source.paths()["adult.data"])
    for table, original in zip(packaged, (source.load(), source.load_official_test()), strict=True):
        pd.testing.assert_frame_equal(table, original, check_exact=True)
    assert [len(table) for table in packaged] == [32561, 16281]


def test_the_documentation_lists_every_packaged_dataset_with_its_counts():
    text = (ROOT / "docs" / "datasets" / "index.md").read_text(encoding="utf-8")
    lines = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    grid = {entry.name for entry in load_grid("real-data").datasets}
    for name in dataset_names():
        source = build_source(name)
        if not isinstance(source, FileSource) or not source.obtain().packages:
            assert name not in grid
            continue
        declared = source.declare()
        (package,) = source.obtain().packages
        shown = f"`{package.package}`"
        assert name in grid
        assert shown in lines[name] and declared.schema.task.value in lines[name]
        assert f" {sum(declared.by_class):,}" in lines[name]
        if declared.schema.task is Task.SURVIVAL:
            assert f" {declared.by_class[1]:,} died" in lines[name]
        if package.registry != "debian":
            assert f"{shown} {package.version} (" in lines[name]
