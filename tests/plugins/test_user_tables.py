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

    def proven() -> float:
        dataset = build_dataset(build_source("my-study"))
        _, ledger = open_private(dataset, Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0)))
        return ledger.proof().epsilon

    assert math.isinf(proven())
    done = bench("data", "confirm", "my-study", "--by", "A. Smith", "--because", "the codebook")
    assert done.exit_code == 0, done.output
    assert proven() == 0.0
    text = build_source("my-study").declare().schema["age"].source
    assert text.startswith("confirmed by A. Smith on 20") and text.endswith("because the codebook")


def test_a_flag_or_a_bound_that_is_changed_by_hand_does_not_suffice(
    tmp_path: Path, folder: Path
) -> None:
    """`inferred = false` once turned every bound that was read off the rows into a public one."""
    bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    toml = folder / "own" / "my-study.toml"
    toml.write_text("inferred = false\n" + toml.read_text())
    assert build_source("my-study").declare().schema.inferred
    bench("data", "confirm", "my-study", "--by", "A. Smith", "--because", "the codebook")
    assert not build_source("my-study").declare().schema.inferred
    toml.write_text(toml.read_text().replace("high = 90.0", "high = 120.0"))
    schema = build_source("my-study").declare().schema
    assert schema.inferred
    assert schema["age"].source.startswith("changed by hand since it was confirmed by A. Smith")
    listed = bench("data", "confirm", "my-study")
    assert "age: integer from 20 to 120; NOT PUBLIC: changed by hand" in listed.output
    bench("data", "confirm", "my-study", "--by", "B", "--because", "nobody is older")
    assert not build_source("my-study").declare().schema.inferred
    # The records of A stay: what was confirmed once, and edited back, is confirmed.
    toml.write_text(toml.read_text().replace("high = 120.0", "high = 90.0"))
    assert "A. Smith" in build_source("my-study").declare().schema["age"].source


def test_a_record_that_was_altered_ends_all_of_them(tmp_path: Path, folder: Path) -> None:
    bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    bench("data", "confirm", "my-study", "--by", "A. Smith", "--because", "the codebook")
    path = folder / "own" / "my-study.sources.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines).replace("the codebook", "a hunch"))
    schema = build_source("my-study").declare().schema
    assert schema.inferred and "was altered at line" in schema["age"].source
    refused = bench("data", "confirm", "my-study", "--by", "A", "--because", "b")
    assert refused.exit_code == 2 and "restore" in refused.output
    path.write_text("".join([*lines[:2], *lines[3:]]))
    assert build_source("my-study").declare().schema.inferred


def test_identifiers_are_left_out_unless_they_are_kept(tmp_path: Path) -> None:
    frame = mixed().drop(columns=["months", "dead"])
    frame["nhs_number"] = range(9_000_000_000, 9_000_000_000 + len(frame))
    frame["row"] = range(len(frame))
    frame["date_of_birth"] = [f"19{n % 70 + 20}-01-01" for n in range(len(frame))]
    frame["weight"] = np.random.default_rng(0).normal(70, 9, len(frame))
    path = written(tmp_path, frame)
    result = bench("data", "add", path, "--target", "outcome", "--keep-column", "row")
    names = [column.name for column in build_source("my-study").declare().schema]
    # In the order of the file; measurements with decimals may all be different.
    kept = ("nhs_number", "date_of_birth", "id", "note", "constant")
    assert names == [name for name in frame.columns if name not in kept]
    assert "column 'nhs_number' looks like an identifier (by its name and no entry" in result.output
    assert "column 'date_of_birth' looks like an identifier (by its name)" in result.output
    assert "column 'id' looks like an identifier (by its name)" in result.output
    assert "warning: column 'row' looks like an identifier (no entry occurs twice)" in result.output


def test_a_column_that_is_not_there_cannot_be_kept(tmp_path: Path) -> None:
    path = written(tmp_path, mixed())
    refused = bench("data", "add", path, "--target", "outcome", "--keep-column", "agee")
    assert refused.exit_code == 2 and "did you mean 'age'?" in refused.output


def test_missing_numbers_and_ordered_codes_are_declared(tmp_path: Path) -> None:
    frame = mixed().drop(columns=["months", "dead"]).assign(grade=lambda f: f["age"] % 12 // 3 + 9)
    frame.loc[::3, "age"] = np.nan
    bench("data", "add", written(tmp_path, frame), "--target", "outcome")
    schema = build_source("my-study").declare().schema
    assert schema["age"].missing and schema["age"].integer  # type: ignore[attr-defined]
    assert not isinstance(schema["grade"], Numeric)
    grade = schema["grade"]
    assert isinstance(grade, Categorical) and grade.ordered
    assert grade.categories == ("9", "10", "11", "12")  # by number, not by letter
    data = build_dataset(build_source("my-study"), "all")
    back = data.encoder.decode(data.train.rows.values, data.train.rows.labels)
    assert back["age"].isna().tolist() == data.train.frame["age"].isna().tolist()
    assert back["age"].isna().sum() == frame["age"].isna().sum()


def test_a_dictionary_states_bounds_and_what_it_leaves_out_is_read_off_the_rows(
    tmp_path: Path,
) -> None:
    frame = mixed().drop(columns=["months", "dead", "id", "note", "constant"])
    path = written(tmp_path, frame)
    lines = ["column,kind,low,high,categories,missing,description,source"]
    lines += ["age,integer,0,120,,no,in years,form v3", "sex,category,,,F|M|X,yes,,"]
    lines += ["outcome,category,,,no|yes,no,,", "shoe,number,1,2,,no,,"]
    dictionary = tmp_path / "codebook.csv"
    dictionary.write_text("\n".join(lines))
    done = bench("data", "add", path, "--target", "outcome", "--dictionary", str(dictionary))
    assert done.exit_code == 0, done.output
    assert "not in the table: column 'shoe' of codebook.csv" in done.output
    schema = build_source("my-study").declare().schema
    age, sex = schema["age"], schema["sex"]
    assert isinstance(age, Numeric) and (age.low, age.high, age.integer) == (0, 120, True)
    assert age.description == "in years" and age.source.startswith("dictionary codebook.csv (SHA")
    assert age.source.endswith("form v3")
    assert isinstance(sex, Categorical) and sex.categories == ("F", "M", "X", "(missing)")
    assert schema.inferred and "crp" in bench("data", "confirm", "my-study").output
    rest = [one.name for one in schema if one.source.startswith("inferred")]
    assert set(rest) == {"crp", "ward", "hospital"}


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


def test_a_patient_is_one_row_and_rows_without_a_patient_are_left_out(tmp_path: Path) -> None:
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
    identified = without.dropna(subset="id").drop_duplicates("id")
    assert build_source("my-study").load()["age"].tolist() == identified["age"].tolist()


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
        ({"months": -1.0}, ["--time", "months", "--event", "dead"], "row 1: negative times"),
        ({"months": 0.0}, ["--time", "months", "--event", "dead"], "all times are equal"),
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


# A run does not fail because of a row ---------------------------------------------------------


def test_values_that_contradict_the_schema_are_replaced_and_counted(
    tmp_path: Path, folder: Path
) -> None:
    bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    assert bench("data", "check", "my-study").output.endswith("my-study: as declared\n")
    toml = folder / "own" / "my-study.toml"
    text = toml.read_text()
    toml.write_text(text.replace("high = 90.0", "high = 60.0").replace('["F", "M"]', '["F", "X"]'))
    dataset = build_dataset(build_source("my-study"))
    outside = int((mixed()["age"] > 60).sum())
    assert dataset.clipped["age"] == outside > 0
    said = {one.column: one.describe() for one in dataset.adjusted}
    men = int((mixed()["sex"] == "M").sum())
    assert said == {
        "age": f"column 'age': {outside} values outside the declared bounds: clipped",
        "sex": f"column 'sex': {men} categories are undeclared: taken for 'F'",
    }
    result = bench("data", "check", "my-study")
    assert result.exit_code == 1 and all(
        f"by rule: {text}" in result.output for text in said.values()
    )


def test_an_old_file_with_clip_is_still_read(tmp_path: Path, folder: Path) -> None:
    assert (
        bench("data", "add", written(tmp_path, mixed()), "--target", "outcome", "--clip").exit_code
        == 0
    )
    toml = folder / "own" / "my-study.toml"
    plain = build_dataset(build_source("my-study")).fingerprint
    for value in ("true", "false"):
        toml.write_text(
            f"clip = {value}\n{toml.read_text()}"
            if "clip" not in toml.read_text()
            else toml.read_text().replace("clip = true", f"clip = {value}")
        )
        assert build_dataset(build_source("my-study")).fingerprint == plain


STRANGE: list[dict[str, object]] = [
    {"age": "1e400"},
    {"age": "-inf"},
    {"age": "old"},
    {"age": "9" * 400},
    {"crp": "n.a.!"},
    {"sex": "unheard of"},
    {"sex": ""},
    {"hospital": "elsewhere"},
    {"outcome": ""},
    {"outcome": "perhaps"},
    {"id": ""},
    {"ward": "\x1b[2J"},
]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda strange: "-".join(map(str, strange)))
@pytest.mark.parametrize("patient", [[], ["--patient", "id"]], ids=["rows", "patients"])
def test_a_strange_row_changes_no_other_row_and_fails_no_run(
    tmp_path: Path, strange: dict[str, object], patient: list[str]
) -> None:
    """Two tables that differ in this row: both load, and all other rows are the same."""
    if "id" in strange and not patient:
        pytest.skip("without patients, the column is a number like any other")
    table = mixed() if patient else mixed().drop(columns="id")
    path = written(tmp_path, table)
    options = ["--target", "outcome", "--site", "hospital", *patient]
    assert bench("data", "add", path, *options).exit_code == 0
    source = build_source("my-study")
    before = source.load().map(repr).agg("|".join, axis=1).tolist()
    row = table.iloc[[0]].assign(**{**({"id": 10**6} if patient else {}), **strange})
    pd.concat([table, row]).to_csv(path, index=False)
    after = source.load().map(repr).agg("|".join, axis=1).tolist()
    assert after[: len(before)] == before and len(after) <= len(before) + 1
    dataset = build_dataset(source)
    assert np.isfinite(dataset.train.rows.values).all()
    assert sum(one.count for one in dataset.adjusted) == 1
    said = bench("data", "check", "my-study").output
    (entry,) = strange.values()
    assert "by rule: column" in said and (not entry or str(entry) not in said)


def test_the_operator_of_a_run_is_told(tmp_path: Path, folder: Path) -> None:
    from bench.engine.plan import plan_cells
    from bench.results.records import Variant
    from bench.results.run_directory import RunStore

    bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    toml = folder / "own" / "my-study.toml"
    toml.write_text(toml.read_text().replace("high = 90.0", "high = 60.0"))
    entry = Variant("my-study", "my-study")
    dataset = build_dataset(build_source("my-study"))
    with RunStore(tmp_path / "run") as store:
        (notice,) = plan_cells([], {entry: dataset}, store, []).notices
    assert notice.startswith("my-study: rows contradict the schema:") and "data check" in notice


# What `bench data add` says about a file -------------------------------------------------------


def test_rows_without_a_patient_are_left_out_and_counted(tmp_path: Path) -> None:
    """Counted as one patient, several people would share one person's guarantee."""
    frame = mixed()
    frame["id"] = frame["id"].astype(object)
    frame.loc[:9, "id"] = None
    result = bench(
        "data", "add", written(tmp_path, frame), "--target", "outcome", "--patient", "id"
    )
    assert result.exit_code == 0
    assert "left out: 10 rows without an entry in 'id'" in result.output
    declared = build_source("my-study").declare()
    assert sum(declared.by_class) == frame["id"].nunique() == 95
    dataset = build_dataset(build_source("my-study"))
    assert not dataset.differs
    checked = bench("data", "check", "my-study")
    assert checked.exit_code == 0 and "'id': 10 entries are missing" in checked.output


def test_rows_without_an_outcome_are_left_out_and_counted(tmp_path: Path) -> None:
    frame = mixed()
    frame.loc[:4, "outcome"] = None
    result = bench("data", "add", written(tmp_path, frame), "--target", "outcome")
    assert "left out: 5 rows without an entry in 'outcome'" in result.output
    assert sum(build_source("my-study").declare().by_class) == 195
    assert not build_dataset(build_source("my-study")).differs


@pytest.mark.parametrize("form", ["csv", "twice.csv", "parquet"])
def test_an_index_of_pandas_is_left_out_and_said(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"table.{form}"
    frame = mixed().set_index(pd.Index(np.arange(200) * 3 + 7.5))
    if form == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path)
        if form == "twice.csv":
            pd.read_csv(path).to_csv(path)
    result = bench("data", "add", path, "--target", "outcome")
    assert result.exit_code == 0, result.output
    assert "the index of a pandas table" in result.output
    dataset = build_dataset(build_source("table"))
    assert not {"Unnamed: 0", "", "__index_level_0__"} & set(dataset.train.frame.columns)


def test_a_named_index_is_a_column(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    mixed().drop_duplicates("id").set_index("id").to_parquet(path)
    result = bench("data", "add", path, "--target", "outcome", "--patient", "id")
    assert result.exit_code == 0, result.output
    assert len(build_source("table").load()) == 100


def test_too_many_sites_are_an_error(tmp_path: Path) -> None:
    frame = mixed().assign(hospital=[f"site {number % 51}" for number in range(200)])
    path = written(tmp_path, frame)
    result = bench("data", "add", path, "--target", "outcome", "--site", "hospital")
    assert result.exit_code == 2 and "'hospital': more than 50 sites" in result.stderr


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["inf"], "column 'crp', row 1: a number is infinite or larger than 1e+100"),
        (["1", "-1e400"], "column 'crp', row 2: a number is infinite"),
        (["1"] * 40 + ["9" * 400], "column 'crp', row 41: a number is infinite"),
        (["5e-324", "0"] * 100, "column 'crp': all numbers lie within 1e-100"),
        (["1e-310", "0"] * 100, "column 'crp': all numbers lie within 1e-100"),
    ],
)
def test_numbers_that_cannot_be_scaled(tmp_path: Path, entries: list[str], message: str) -> None:
    frame = mixed().astype({"crp": object})
    if len(entries) < 200:
        frame.loc[: len(entries) - 1, "crp"] = entries
    else:
        frame["crp"] = entries
    result = bench("data", "add", written(tmp_path, frame), "--target", "outcome")
    assert result.exit_code == 2 and message in result.stderr, result.output


def test_no_message_repeats_an_entry(tmp_path: Path) -> None:
    secret = "Jane Doe"
    frame = mixed().astype(object)
    for change, options in (
        ({"dead": secret}, ["--time", "months", "--event", "dead"]),
        ({"months": secret}, ["--time", "months", "--event", "dead"]),
        ({"outcome": secret}, ["--target", "outcome"]),
        (
            {"hospital": [f"{secret} {n}" for n in range(200)]},
            ["--target", "outcome", "--site", "hospital"],
        ),
        ({"outcome": [f"{secret} {n}" for n in range(200)]}, ["--target", "outcome"]),
        ({"outcome": [secret * 100, "b"] * 100}, ["--target", "outcome"]),
    ):
        result = bench("data", "add", written(tmp_path, frame.assign(**change)), *options)
        assert result.exit_code == 2, result.output
        assert secret not in result.output


@pytest.mark.parametrize(
    "options",
    [
        ["--target", "outcome", "--site", "outcome"],
        ["--target", "outcome", "--patient", "outcome"],
        ["--time", "dead", "--event", "dead"],
    ],
)
def test_a_column_has_one_role(tmp_path: Path, options: list[str]) -> None:
    result = bench("data", "add", written(tmp_path, mixed()), *options)
    assert result.exit_code == 2 and "one column has two roles" in result.stderr


def test_names_that_json_and_toml_write_differently(tmp_path: Path) -> None:
    frame = mixed().rename(
        columns={"ward": 'w"a\\rd \U0001f600\x7f'.replace("\x7f", ""), "sex": "s.e=x]"}
    )
    frame["s.e=x]"] = frame["s.e=x]"].map({"F": "\U0001f600", "M": '"\\'})
    result = bench("data", "add", written(tmp_path, frame), "--target", "outcome")
    assert result.exit_code == 0, result.output
    dataset = build_dataset(build_source("my-study"))
    assert not dataset.adjusted and {'w"a\\rd \U0001f600', "s.e=x]"} <= set(dataset.train.frame)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("by_class = [", "by_class = 5 #", "counts.by_class must be a list, got 5"),
        ("by_class = [", "by_class = [1, ", "counts.by_class must be a list of 2 numbers"),
        ("by_class = [", 'by_class = ["a", ', "counts.by_class must be a list of 2 numbers"),
        ("[counts]", "[count]", "lacks the key 'counts'"),
        ("high = 90.0", 'high = "x"', "'age': high must be a number"),
        ("high = 90.0", "high = nan", "must be finite"),
        ("high = 90.0", "high = 1e308\nfill = 'x'", "fill 'x' is not a finite number"),
        ('categories = ["F", "M"]', 'categories = "FM"', "categories must be a list"),
        ('categories = ["F", "M"]', 'categories = ["F"]', "two or more distinct categories"),
        (
            'categories = ["F", "M"]',
            'categories = ["F", "M"]\nfill = "Z"',
            "not one of its categories",
        ),
        ('role = "target"', 'role = "king"', "'king' is not a valid Role"),
        ('kind = "numeric"', 'kind = ["numeric"]', "is not one of numeric, categorical"),
        ("quasi_identifiers = []", "quasi_identifiers = 3", "quasi_identifiers must be a list"),
        ("quasi_identifiers = []", 'quasi_identifiers = ["nobody"]', "no column 'nobody'"),
        ("patient = ", "patient = 3 #", "patient must be a text"),
        ("file = ", "file = 3 #", "file must be a text"),
        ("separator = ", 'separator = "(a+)+" #', "separator"),
        ("title = ", "title = [1] #", "title must be a text"),
    ],
)
def test_a_file_that_was_edited_wrongly_is_named(
    tmp_path: Path, folder: Path, old: str, new: str, message: str
) -> None:
    import re

    bench("data", "add", written(tmp_path, mixed()), "--target", "outcome")
    toml = folder / "own" / "my-study.toml"
    assert old in toml.read_text()
    toml.write_text(toml.read_text().replace(old, new, 1))
    result = bench("data", "check", "my-study")
    assert result.exit_code == 2, (result.output, result.exception)
    assert len(result.stderr.splitlines()) == 1
    assert re.search(message, result.stderr), result.stderr
    assert bench("data", "list").exit_code == 0  # the other datasets are still listed


def test_a_name_is_not_taken_twice(tmp_path: Path) -> None:
    path = written(tmp_path, mixed())
    assert bench("data", "add", path, "--target", "outcome").exit_code == 0
    again = bench("data", "add", path, "--target", "outcome")
    assert again.exit_code == 2 and "exists" in again.stderr


def test_numbers_with_a_few_texts_can_be_stated_by_a_dictionary(tmp_path: Path) -> None:
    """`> 89` among ages is common: without a dictionary the column would be texts."""
    frame = mixed().drop(columns=["months", "dead"])
    frame["age"] = (frame["age"] * 100).astype(str)
    frame.loc[[7, 30], "age"] = "> 89"
    path = written(tmp_path, frame)
    added = bench("data", "add", path, "--target", "outcome")
    assert "left out: column 'age' has more than 50 distinct texts; most are num" in added.output
    assert "row 8 is the first that is none" in added.output
    book = tmp_path / "book.csv"
    book.write_text("column,kind,low,high,missing\nage,integer,0,9000,yes\nsex,number,0,1,no\n")
    asked = ("data", "add", path, "--target", "outcome", "--name", "b", "--dictionary", book)
    refused = bench(*asked)
    assert refused.exit_code == 2 and "calls it number, but this entry is no" in refused.output
    book.write_text("column,kind,low,high,missing\nage,integer,0,9000,yes\n")
    added = bench(*asked)
    assert "has entries that are no number, the first in row 8: they count as" in added.output
    ages = build_source("b").load()["age"]
    assert ages.isna().sum() == 2 and ages.max() > 2000


def test_which_columns_a_stated_table_has_does_not_follow_from_its_rows(tmp_path: Path) -> None:
    frame = (
        mixed().drop(columns=["months", "dead"]).assign(serial=range(200), nhs_number=range(200))
    )
    book = tmp_path / "book.csv"
    lines = ["column,kind,low,high", "serial,integer,0,999", "nhs_number,integer,0,999"]
    book.write_text("\n".join(lines))
    path = written(tmp_path, frame)
    added = bench("data", "add", path, "--target", "outcome", "--dictionary", book)
    names = [column.name for column in build_source("my-study").declare().schema]
    assert "serial" in names and "nhs_number" not in names
    assert "--drop-column serial leaves it out" in added.output
