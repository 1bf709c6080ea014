"""Schemas say what is public, and refuse what contradicts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.data.schema import (
    Categorical,
    Comparison,
    Numeric,
    Role,
    Rule,
    Schema,
    Task,
    read_toml,
    schema_from_table,
)
from bench.errors import SchemaError

LABEL = Categorical(name="y", categories=("0", "1"), role=Role.TARGET)
AGE = Numeric(name="age", low=0, high=100)


def table(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "task": "classification",
        "columns": {
            "age": {"kind": "numeric", "low": 0, "high": 120, "integer": True},
            "sex": {"kind": "binary", "categories": ["f", "m"]},
            "y": {"kind": "binary", "role": "target"},
        },
        "quasi_identifiers": ["age", "sex"],
        "rules": [{"name": "r", "then": "age >= 18", "when": ["sex == m"]}],
    }
    return {**base, **changes}


def test_a_schema_from_a_table() -> None:
    schema = schema_from_table(table())
    assert [column.name for column in schema.features] == ["age", "sex"]
    assert schema.classes == ("0", "1")
    assert schema.time is None and schema.site is None
    assert isinstance(schema["age"], Numeric) and schema["age"].integer


def test_rules_find_the_rows_that_break_them() -> None:
    (rule,) = schema_from_table(table()).rules
    frame = pd.DataFrame({"age": [10, 10, 30], "sex": ["m", "f", "m"], "y": [0, 1, 0]})
    assert rule.broken(frame).tolist() == [True, False, False]


def test_rules_compare_two_columns() -> None:
    rule = Rule("positive among examined", Comparison.parse("positive <= examined"))
    frame = pd.DataFrame({"positive": [1, 5, np.nan], "examined": [3, 3, 3]})
    assert rule.broken(frame).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "cooking"}, "cooking"),
        ({"columns": {"y": {"kind": "binary", "role": "target"}}}, "no feature"),
        ({"columns": {"age": {"kind": "numeric", "low": 0, "high": 1}}}, "exactly one target"),
        ({"columns": {"age": {"kind": "numeric", "low": 0}}}, "high"),
        ({"columns": {"age": {"kind": "text"}}}, "not one of numeric"),
        ({"quasi_identifiers": ["height"]}, "no column 'height'"),
        ({"rules": [{"name": "r", "then": "height > 3"}]}, "no column 'height'"),
        ({"rules": [{"name": "r", "then": "nonsense"}]}, "expected"),
    ],
)
def test_contradictions_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema_from_table(table(**change))


@pytest.mark.parametrize("low, high", [(1, 1), (2, 1), (0, float("inf")), (float("nan"), 1)])
def test_bounds_must_be_finite_and_ordered(low: float, high: float) -> None:
    with pytest.raises(SchemaError, match="finite, low < high"):
        Numeric(name="x", low=low, high=high)


@pytest.mark.parametrize("categories", [("a",), ("a", "a"), ()])
def test_categories_must_be_distinct(categories: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError, match="distinct"):
        Categorical(name="x", categories=categories)


def test_columns_declared_twice() -> None:
    with pytest.raises(SchemaError, match="twice: age"):
        Schema((AGE, AGE, LABEL), Task.CLASSIFICATION)


def test_survival_needs_time_and_two_statuses() -> None:
    three = Categorical(name="e", categories=("0", "1", "2"), role=Role.EVENT)
    time = Numeric(name="t", low=0, high=9, role=Role.TIME)
    with pytest.raises(SchemaError, match="two-category event"):
        Schema((AGE, time, three), Task.SURVIVAL)
    with pytest.raises(SchemaError, match="exactly one time"):
        Schema((AGE, Categorical(name="e", categories=("0", "1"), role=Role.EVENT)), Task.SURVIVAL)


def test_image_shape_must_match_the_pixels() -> None:
    pixels = tuple(Numeric(name=f"p{i}", low=0, high=1) for i in range(4))
    Schema((*pixels, LABEL), Task.IMAGE, image_shape=(1, 2, 2))
    with pytest.raises(SchemaError, match="does not match 4 pixel"):
        Schema((*pixels, LABEL), Task.IMAGE, image_shape=(1, 3, 3))


def test_unreadable_toml_names_the_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("a = [1,")
    with pytest.raises(SchemaError, match=r"broken\.toml: not valid TOML"):
        read_toml(broken)
    with pytest.raises(SchemaError, match="cannot be read"):
        read_toml(tmp_path / "absent.toml")


def test_numbers_compare_as_numbers() -> None:
    frame = pd.DataFrame({"age": np.array([9.0, 10.0])})
    assert Comparison.parse("age >= 10").holds(frame).tolist() == [False, True]
