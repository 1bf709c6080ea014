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
    assert len(dataset.train) == dataset.counts.total
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
    for site, counts in dataset.counts.by_site_class.items():
        code = dataset.schema.site.categories.index(site) if dataset.schema.site else -1
        labels = dataset.train.rows.labels[dataset.train.rows.sites == code]
        assert tuple(np.bincount(labels, minlength=2)) == counts


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
    monkeypatch.setattr("bench.data.own_files._MOST_ROWS", 30)
    result = bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    assert result.exit_code == 0
    assert sum(build_source("my-study").declare().by_class) == 200


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
    assert (
        result.exit_code == 2 and "column 'dead', row 1: events must be 0 or 1\n" in result.stderr
    )


def test_a_name_is_not_taken_twice(tmp_path: Path) -> None:
    path = written(tmp_path, mixed())
    assert bench("data", "add", path, "--target", "outcome").exit_code == 0
    again = bench("data", "add", path, "--target", "outcome")
    assert again.exit_code == 2 and "exists" in again.stderr
