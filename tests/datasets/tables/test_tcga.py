"""TCGA-BRCA: 200 genes, three subtypes, the test file of the publisher."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.data.schema import Numeric
from bench.errors import DataError, SchemaError
from bench.plugins.registry import build_source
from bench.plugins.source import FileSource, build_dataset
from tests.support.real_data import real_folder

TRAINING, TEST = "breastTCGA_mrna_train.csv", "breastTCGA_mrna_test.csv"


def source() -> FileSource:
    built = build_source("tcga-brca")
    assert isinstance(built, FileSource)
    return built


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Path:
    return real_folder("tcga_brca", monkeypatch)


def test_declaration_lists_the_genes() -> None:
    schema = source().declare().schema
    assert len(schema.features) == 200
    assert schema.classes == ("Basal", "Her2", "LumA")
    for gene in schema.features:
        assert isinstance(gene, Numeric)
        assert (gene.low, gene.high) == (-10, 20) and gene.source


def test_real_files_are_the_published_ones(real: Path) -> None:
    assert source().check() == []
    training, test = source().load(), source().load_official_test()
    assert test is not None
    assert training["subtype"].value_counts().to_dict() == {"LumA": 75, "Basal": 45, "Her2": 30}
    assert test["subtype"].value_counts().to_dict() == {"LumA": 35, "Basal": 21, "Her2": 14}
    # Each tumour is another patient, in both files together.
    samples = pd.concat([pd.read_csv(real / f"{name}.gz")["sample"] for name in (TRAINING, TEST)])
    assert len(samples) == 220 and samples.is_unique


def test_real_files_become_a_dataset(real: Path) -> None:
    dataset = build_dataset(source())
    assert not any(dataset.clipped.values())
    splits = (dataset.train, dataset.validation, dataset.control)
    assert len(dataset.test) == 70 and sum(map(len, splits)) == 150
    # Rows and labels belong together: the nearest class mean finds the subtype of most tumours.
    rows = dataset.train.rows
    means = np.stack([rows.values[rows.labels == code].mean(axis=0) for code in range(3)])
    distances = ((dataset.test.rows.values[:, None] - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == dataset.test.rows.labels).mean() > 0.85


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A hand-written table of the same form, two rows a subtype, in both files."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    (tmp_path / "tcga_brca").mkdir()
    genes = [gene.name for gene in source().declare().schema.features]
    values = np.arange(6 * 200, dtype=float).reshape(6, 200) / 128 - 1
    frame = pd.DataFrame(values, columns=pd.Index(genes))
    frame.insert(0, "subtype", ["Basal", "Her2", "LumA"] * 2)
    frame.insert(0, "sample", [f"A{row}" for row in range(6)])
    for name in (TRAINING, TEST):
        write(frame, tmp_path / "tcga_brca" / name)
    return frame


def write(frame: pd.DataFrame, path: Path, separator: str = ",") -> None:
    frame.to_csv(path, index=False, sep=separator)


def training_file(tmp_path: Path) -> Path:
    return tmp_path / "tcga_brca" / TRAINING


def test_small_files_are_read(tmp_path: Path, table: pd.DataFrame) -> None:
    training, test = source().load(), source().load_official_test()
    assert test is not None
    assert "sample" not in training.columns
    assert training["HLA-H"].tolist() == table["HLA-H"].tolist() == test["HLA-H"].tolist()
    assert len(source().check()) == 3  # two fingerprints, 6 rows instead of 150


def test_packed_file_is_read(tmp_path: Path, table: pd.DataFrame) -> None:
    path = training_file(tmp_path)
    path.with_name(f"{TRAINING}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert len(source().load()) == 6


def test_wrong_tables_are_refused(tmp_path: Path, table: pd.DataFrame) -> None:
    path = training_file(tmp_path)
    write(table.drop(columns="PBX1"), path)
    with pytest.raises(DataError, match="first 'PBX1'"):
        source().load()
    write(table.rename(columns={"subtype": "Subtype"}), path)
    with pytest.raises(DataError, match="renamed"):
        source().load()
    write(table, path, separator=";")
    with pytest.raises(DataError, match="separator seems to be ';'"):
        source().load()
    write(pd.concat([table, table.head(1)]), path)
    with pytest.raises(DataError, match="the sample 'A0' is there twice"):
        source().load()
    write(table.assign(RTN2="high"), path)
    with pytest.raises(DataError, match="6 entries are not numbers"):
        source().load()
    write(table.head(0), path)
    with pytest.raises(DataError, match="no rows"):
        source().load()
    path.write_bytes(b"")
    with pytest.raises(DataError, match="empty"):
        source().load()


def test_other_subtypes_and_gaps_are_refused(tmp_path: Path, table: pd.DataFrame) -> None:
    write(table.assign(subtype="LumB"), training_file(tmp_path))
    with pytest.raises(SchemaError, match="6 values are not among the declared categories"):
        build_dataset(source())
    write(table.assign(RTN2=[np.nan, 1, 2, 3, 4, 5]), training_file(tmp_path))
    with pytest.raises(SchemaError, match="'RTN2': 1 missing values"):
        build_dataset(source())


def test_truncated_gzip_is_refused(tmp_path: Path, table: pd.DataFrame) -> None:
    path = training_file(tmp_path)
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_name(f"{TRAINING}.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="truncated or damaged"):
        source().load()
