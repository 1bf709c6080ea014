"""A user's own table: two commands, no Python."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from bench import Budget
from bench.cli.main import main
from bench.data.schema import Categorical, Numeric
from bench.data.splits import expected_sizes
from bench.errors import DataError
from bench.plugins.registry import build_source, dataset_names
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("BENCH_DATA", str(data))
    return data


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def mixed(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": np.repeat(np.arange(rows // 2), 2),
            "age": rng.integers(20, 90, rows),
            "crp": np.where(rng.random(rows) < 0.1, np.nan, rng.exponential(20, rows)),
            "sex": rng.choice(["F", "M"], rows),
            "ward": rng.choice(["A", "B", None], rows),
            "hospital": rng.choice(["north", "south"], rows),
            "note": [f"text {number}" for number in range(rows)],
            "constant": 1,
            "outcome": rng.choice(["no", "yes"], rows),
            "months": rng.exponential(30, rows),
            "dead": rng.integers(0, 2, rows),
        }
    )


def written(tmp_path: Path, frame: pd.DataFrame, name: str = "My Study.csv") -> Path:
    path = tmp_path / name
    frame.to_csv(path, index=False)
    return path


def test_a_csv_of_mixed_types_becomes_a_dataset(tmp_path: Path) -> None:
    frame = mixed().drop(columns=["months", "dead", "id"])
    result = bench("data", "add", written(tmp_path, frame), "--target", "outcome")
    assert result.exit_code == 0, result.output
    assert "my-study" in dataset_names()
    schema = build_source("my-study").declare().schema
    kinds = {column.name: type(column) for column in schema}
    assert kinds["age"] is kinds["crp"] is Numeric
    assert kinds["sex"] is kinds["ward"] is Categorical
    assert schema["ward"].categories == ("A", "B", "(missing)")  # type: ignore[attr-defined]
    assert "note" not in kinds and "constant" not in kinds
    dataset = build_dataset(build_source("my-study"))
    splits = (dataset.train, dataset.validation, dataset.control, dataset.test)
    assert sum(map(len, splits)) == len(frame) == sum(dataset.declaration.by_class)
    # 120 of 200 rows are expected: five standard deviations of a binomial number.
    assert dataset.counts.total == 120 == pytest.approx(len(dataset.train), abs=5 * 48**0.5)
    assert sum(dataset.clipped.values()) == 0


def test_looking_is_charged_until_the_user_confirms(tmp_path: Path, folder: Path) -> None:
    bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    toml = folder / "own" / "my-study.toml"

    def proven() -> float:
        dataset = build_dataset(build_source("my-study"))
        _, ledger = open_private(dataset, Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0)))
        return ledger.proof().epsilon

    assert math.isinf(proven())
    toml.write_text(toml.read_text().replace("inferred = true", "inferred = false"))
    assert proven() == 0.0


def test_survival_with_sites_and_patients(tmp_path: Path) -> None:
    frame = mixed().drop(columns=["outcome"])
    result = bench(
        "data", "add", written(tmp_path, frame), "--name", "cohort", "--time", "months",
        "--event", "dead", "--site", "hospital", "--patient", "id",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    declared = build_source("cohort").declare()
    assert declared.unit == "patient" and sum(declared.by_class) == 100
    dataset = build_dataset(build_source("cohort"))
    splits = (dataset.train, dataset.validation, dataset.control, dataset.test)
    labels = np.concatenate([split.rows.labels for split in splits])
    sites = np.concatenate([split.rows.sites for split in splits])
    for site, counts in declared.by_site_class.items():
        code = dataset.schema.site.categories.index(site) if dataset.schema.site else -1
        assert tuple(np.bincount(labels[sites == code], minlength=2)) == counts
        sizes = tuple(expected_sizes(rows, "default", False)["train"] for rows in counts)
        assert dataset.counts.by_site_class[site] == sizes


def test_a_patient_is_one_row_and_rows_without_a_patient_are_refused(tmp_path: Path) -> None:
    """All rows without an id would count as one patient: removing the first reveals the next."""
    frame = mixed().drop(columns=["months", "dead"])
    path = written(tmp_path, frame)
    assert bench("data", "add", path, "--target", "outcome", "--patient", "id").exit_code == 0
    loaded = build_source("my-study").load()
    first = frame.drop_duplicates("id")
    assert len(loaded) == 100 and loaded["age"].tolist() == first["age"].tolist()
    without = frame.assign(id=frame["id"].astype(object))
    without.loc[[3, 8], "id"] = None
    without.to_csv(path, index=False)
    with pytest.raises(DataError, match="'id': 2 rows name no patient"):
        build_source("my-study").load()
    refused = bench("data", "add", path, "--target", "outcome", "--patient", "id", "--name", "b")
    assert refused.exit_code == 2 and "2 rows name no patient" in refused.output


@pytest.mark.parametrize("form", ["parquet", "csv.gz", "zip"])
def test_parquet_gzip_and_zip(tmp_path: Path, form: str) -> None:
    frame = mixed()
    path = tmp_path / f"table.{form}"
    if form == "parquet":
        frame.to_parquet(path)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    else:
        frame.to_csv(path, index=False, compression={"method": "zip", "archive_name": "t.csv"})
    result = bench("data", "add", path, "--target", "outcome")
    assert result.exit_code == 0, result.output
    assert len(build_dataset(build_source("table")).train) > 100


def test_many_rows_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.plugins import user_tables as own_table

    monkeypatch.setattr(own_table, "_CHUNK", 30)
    result = bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    assert result.exit_code == 0
    assert sum(build_source("my-study").declare().by_class) == 200


def test_edits_are_validated_and_bounds_hold(tmp_path: Path, folder: Path) -> None:
    bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    toml = folder / "own" / "my-study.toml"
    text = toml.read_text()
    toml.write_text(text.replace("high = 90.0", "high = 60.0"))
    with pytest.raises(DataError, match=r"'age': \d+ values lie outside the declared bounds"):
        build_dataset(build_source("my-study"))
    toml.write_text(
        text.replace("high = 90.0", "high = 60.0").replace("clip = false", "clip = true")
    )
    assert build_dataset(build_source("my-study")).clipped["age"] > 0
    toml.write_text(text.replace('categories = ["F", "M"]', 'categories = ["F", "X"]'))
    with pytest.raises(DataError, match=r"'sex'.*not among the declared categories"):
        build_dataset(build_source("my-study"))


@pytest.mark.parametrize(
    "change, options, message",
    [
        ({}, ["--target", "result"], "missing, first 'result'"),
        ({}, [], "name the outcome"),
        ({}, ["--time", "months"], "name the outcome"),
        ({"outcome": "no"}, ["--target", "outcome"], "one class only"),
        ({"ward": None}, ["--target", "outcome"], "'ward': every entry is missing"),
        ({"months": -1.0}, ["--time", "months", "--event", "dead"], "negative times"),
        ({"dead": 2}, ["--time", "months", "--event", "dead"], "one class only|must be 0 or 1"),
        ({}, ["--target", "note"], "distinct outcomes"),
        ({}, ["--target", "outcome", "--name", "Bad Name"], "small letters"),
        ({}, ["--target", "outcome", "--name", "digits"], "built-in dataset"),
        ({}, ["--target", "outcome", "--separator", ";"], "separator seems to be ','"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, folder: Path, change: dict[str, object], options: list[str], message: str
) -> None:
    import re

    path = written(tmp_path, mixed().assign(**change))
    result = bench("data", "add", path, *options)
    assert result.exit_code == 2
    assert re.search(message, result.stderr), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list((folder / "own").glob("*.toml")) if (folder / "own").exists() else True


def test_events_that_are_not_zero_or_one(tmp_path: Path) -> None:
    frame = mixed()
    frame.loc[:50, "dead"] = 2
    result = bench("data", "add", written(tmp_path, frame), "--time", "months", "--event", "dead")
    assert result.exit_code == 2 and "events must be 0 or 1, found ['2']" in result.stderr


def test_a_name_is_not_taken_twice(tmp_path: Path) -> None:
    path = written(tmp_path, mixed())
    assert bench("data", "add", path, "--target", "outcome").exit_code == 0
    again = bench("data", "add", path, "--target", "outcome")
    assert again.exit_code == 2 and "exists" in again.stderr
