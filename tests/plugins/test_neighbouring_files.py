"""Two files that differ in one row give two datasets that differ in one row, whatever the row is.

What is read of a row must not depend on the others: a type guessed from a whole column is read off
all of its rows.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.data.dataset import Dataset
from bench.data.splits import SPLITS
from bench.plugins.source import build_dataset
from bench.plugins.user_tables import own_table_class

ROWS = 60

CODES = '[columns."code"]\nkind = "categorical"\ncategories = {categories}\n'
NUMBERS = '[columns."code"]\nkind = "numeric"\nlow = 0.0\nhigh = 1e18\n'


def dataset_of(folder: Path, rows: list[str], column: str, patient: str = "") -> Dataset:
    """The dataset of a table of patients, codes and outcomes."""
    file, toml = folder / "ward.csv", folder / "ward.toml"
    file.write_text("\n".join(["patient,code,y", *rows]) + "\n", encoding="utf-8")
    toml.write_text(
        f"""inferred = false
title = "ward"
task = "classification"
file = "{file}"
member = "ward.csv"
separator = ","
patient = "{patient}"
clip = true
licence = "own"
citation = "none"
source = "ward.csv"
unit = "{"patient" if patient else "row"}"
[counts]
by_class = [30, 30]
{column}
[columns."y"]
role = "target"
kind = "categorical"
categories = ["0", "1"]
""",
        encoding="utf-8",
    )
    return build_dataset(own_table_class("ward", toml)())


def members(dataset: Dataset) -> Counter[tuple[str, bytes, int, float]]:
    """All that a method could see of a table: rows with their split and position."""
    return Counter(
        (split, rows.values[index].tobytes(), int(rows.labels[index]), float(rows.positions[index]))
        for split in SPLITS
        for rows in [getattr(dataset, split).rows]
        for index in range(len(rows))
    )


def table(codes: list[str], patients: list[str] | None = None) -> list[str]:
    names = patients or [str(number) for number in range(ROWS)]
    return [f"{names[i]},{codes[i % len(codes)]},{i % 2}" for i in range(ROWS)]


CASES = {
    "leading zeros": (["0", "01", "1", "02"], '["0", "1", "2", "01", "02", "A"]', "A"),
    "undeclared text": (["0", "1", "2"], '["0", "1", "2"]', "A"),
    "whole floats": (["0.0", "1.0", "2.0"], '["0", "1", "2", "A"]', "A"),
    "booleans": (["TRUE", "FALSE"], '["True", "False", "TRUE", "FALSE", "unknown"]', "unknown"),
    "a missing entry": (["0", "1"], '["0", "1"]', ""),
    "a float among integers": (["0", "1"], '["0", "1", "0.5"]', "0.5"),
}


@pytest.mark.parametrize("place", [0, ROWS])
@pytest.mark.parametrize("case", CASES)
def test_one_row_changes_the_reading_of_no_other_category(
    tmp_path: Path, case: str, place: int
) -> None:
    codes, categories, odd = CASES[case]
    column, rows = CODES.format(categories=categories), table(codes)
    more = [*rows[:place], f"900,{odd},0", *rows[place:]]
    first = members(dataset_of(tmp_path, rows, column))
    second = members(dataset_of(tmp_path, more, column))
    assert not first - second and (second - first).total() == 1


@pytest.mark.parametrize("odd", ["0.5", "1e400", "inf", " 7 ", "+7", "9" * 30, "text", "", "-0.0"])
def test_one_row_changes_the_reading_of_no_other_number(tmp_path: Path, odd: str) -> None:
    # Whole numbers beyond 2^53, which a column of floats rounds.
    rows = table([str(2**57 + 2**33 * number + 1) for number in range(ROWS)])
    first = members(dataset_of(tmp_path, rows, NUMBERS))
    second = members(dataset_of(tmp_path, [*rows, f"900,{odd},0"], NUMBERS))
    assert not first - second and (second - first).total() == 1


@pytest.mark.parametrize("odd", ["1.5", "1e3", "A", "0900"])
@pytest.mark.parametrize(
    "patients",
    [
        [str(2**53 + number) for number in range(ROWS)],
        [f"{'0' * (number % 2)}{number // 2}" for number in range(ROWS)],
    ],
    ids=["beyond 2^53", "leading zeros"],
)
def test_one_patient_merges_no_others(tmp_path: Path, patients: list[str], odd: str) -> None:
    rows = table([str(10**16 * number) for number in range(ROWS)], patients)
    first = members(dataset_of(tmp_path, rows, NUMBERS, "patient"))
    second = members(dataset_of(tmp_path, [*rows, f"{odd},{10**15},0"], NUMBERS, "patient"))
    assert not first - second and (second - first).total() == 1
