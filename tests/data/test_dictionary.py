"""Data dictionaries: what is read, what is refused, and that a proposal is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.data.dictionary import PROPOSED, proposal_text, read_dictionary
from bench.data.schema import Categorical, Numeric, Role
from bench.errors import BenchError

COLUMNS = (
    Numeric(name="age", low=0, high=120, integer=True, description="in years, at admission"),
    Numeric(name="bmi", low=10, high=80.5, missing=True),
    Categorical(name="sex", categories=("f", "m", "(missing)")),
    Categorical(name="grade", categories=("1", "2", "3"), ordered=True),
    Categorical(name="odd", categories=("a|b", "c, d")),
    Categorical(name="y", categories=("0", "1"), role=Role.TARGET),
)


def test_a_proposal_is_read_back_and_counts_as_proposed(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(proposal_text(COLUMNS, {"age": "codebook"}))
    entries = read_dictionary(path).entries
    assert [one.kind for one in entries.values()] == [
        *("integer", "number", "category", "ordinal", "category", "category")
    ]
    assert (entries["bmi"].low, entries["bmi"].high, entries["bmi"].missing) == (10, 80.5, True)
    assert entries["sex"].categories == ("f", "m") and entries["sex"].missing
    assert entries["odd"].categories == ("a|b", "c, d")
    assert entries["age"].description == "in years, at admission"
    assert [name for name, one in entries.items() if not one.proposed] == ["age"]


def test_toml_says_the_same_and_the_keys_of_a_dataset_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(
        '[columns.age]\nkind = "numeric"\nlow = 0\nhigh = 120\ninteger = true\n'
        '[columns.grade]\nkind = "categorical"\ncategories = ["1", "2"]\nordered = true\n'
    )
    entries = read_dictionary(path).entries
    assert (entries["age"].kind, entries["grade"].kind) == ("integer", "ordinal")


HEAD = "column,kind,low,high,categories,missing,source\n"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "must name the columns"),
        ("name,type\nage,number\n", "unknown: name, type"),
        (HEAD, "describes no column"),
        (HEAD + "age,numbr,0,1,,,\n", "line 2: kind 'numbr' is not one of number"),
        (HEAD + "age,number,0,,,,\n", "line 2: high must be a finite number"),
        (HEAD + "age,number,0,inf,,,\n", "line 2: high must be a finite number"),
        (HEAD + "age,number,5,5,,,\n", "low 5 must be below high 5"),
        (HEAD + "sex,category,,,f,,\n", "two or more different categories"),
        (HEAD + "age,number,0,1,,maybe,\n", "missing must be yes or no"),
        (HEAD + "age,number,0,1,,,\nage,number,0,2,,,\n", "described twice"),
        (HEAD + "age,number,0,1,,,a,b\n", "put an entry with a comma into quotes"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "d.csv"
    path.write_text(text)
    with pytest.raises(BenchError, match=said):
        read_dictionary(path)


def test_the_mark_of_a_proposal_is_what_is_written() -> None:
    assert proposal_text(COLUMNS[:1], {}).splitlines()[1].endswith(PROPOSED)
