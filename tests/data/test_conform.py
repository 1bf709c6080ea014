"""Every entry of a user's table follows a public rule, and no row makes a run fail."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data.conform import conform, numbers_of, texts_of
from bench.data.encoder import Encoder
from bench.data.schema import Categorical, Numeric, Role, Schema, Task

SCHEMA = Schema(
    columns=(
        Numeric(name="age", low=0, high=99, integer=True),
        Numeric(name="crp", low=0, high=10, fill=2.0),
        Categorical(name="sex", categories=("f", "m")),
        Categorical(name="ward", categories=("a", "b", "(missing)")),
        Categorical(name="stage", categories=("1", "2", "(other)")),
        Categorical(name="arm", categories=("x", "y"), fill="y"),
        Categorical(name="site", role=Role.SITE, categories=("north", "south", "(missing)")),
        Categorical(name="y", role=Role.TARGET, categories=("0", "1")),
    ),
    task=Task.CLASSIFICATION,
)
GOOD = {
    "age": "40",
    "crp": "1.5",
    "sex": "f",
    "ward": "b",
    "stage": "2",
    "arm": "x",
    "site": "south",
    "y": "1",
}


def one(**change: Any) -> pd.DataFrame:
    return pd.DataFrame([{**GOOD, **change}], dtype=object)


@pytest.mark.parametrize(
    ("column", "entry", "expected", "described"),
    [
        ("age", "1e400", 99, "1 values outside the declared bounds: clipped"),
        ("age", "-inf", 0, "1 values outside the declared bounds: clipped"),
        ("age", "100", 99, "1 values outside the declared bounds: clipped"),
        ("age", "9" * 400, 99, "1 values outside the declared bounds: clipped"),
        ("age", None, 49, "1 entries are missing: taken for the middle of the bounds"),
        ("age", "old", 49, "1 entries are no number: taken for the middle of the bounds"),
        ("age", "1_0", 49, "1 entries are no number: taken for the middle of the bounds"),
        ("crp", None, math.nan, ""),
        ("crp", "many", math.nan, "1 entries are no number: taken for missing"),
        ("sex", None, "f", "1 entries are missing: taken for 'f'"),
        ("sex", "diverse", "f", "1 categories are undeclared: taken for 'f'"),
        ("ward", None, "(missing)", ""),
        ("ward", "z", "(missing)", "1 categories are undeclared: taken for '(missing)'"),
        ("stage", None, "(other)", "1 entries are missing: taken for '(other)'"),
        ("stage", "3", "(other)", "1 categories are undeclared: taken for '(other)'"),
        ("stage", "02", "2", ""),
        ("stage", "2.0", "2", ""),
        ("stage", 2.0, "2", ""),
        ("arm", None, "y", ""),
        ("arm", "z", "y", "1 categories are undeclared: taken for 'y'"),
        ("site", None, "(missing)", ""),
    ],
)
def test_each_entry_has_a_rule(column: str, entry: Any, expected: Any, described: str) -> None:
    conformed = conform(one(**{column: entry}), SCHEMA)
    found = conformed.frame[column].iloc[0]
    assert found == expected or (math.isnan(expected) and math.isnan(found))
    said = [adjustment.describe() for adjustment in conformed.adjustments]
    assert said == ([f"column {column!r}: {described}"] if described else [])
    assert not any(str(entry) in text for text in said if isinstance(entry, str) and len(entry) > 2)
    Encoder(SCHEMA).encode(conformed.frame)


@pytest.mark.parametrize(
    ("column", "entry"), [("y", None), ("y", "2"), ("site", "west"), ("y", "yes")]
)
def test_a_row_without_label_or_site_is_not_in_the_table(column: str, entry: Any) -> None:
    table = pd.concat([one(), one(**{column: entry}), one(age="50")], ignore_index=True)
    conformed = conform(table, SCHEMA)
    assert conformed.frame["age"].tolist() == [40, 50]
    (adjustment,) = conformed.adjustments
    assert adjustment.count == 1 and adjustment.rule == "these rows are not in the table"


def test_a_row_without_a_time_is_not_in_the_table() -> None:
    schema = Schema(
        columns=(
            Numeric(name="x", low=0, high=1),
            Numeric(name="months", low=0, high=60, role=Role.TIME),
            Categorical(name="dead", role=Role.EVENT, categories=("0", "1")),
        ),
        task=Task.SURVIVAL,
    )
    table = pd.DataFrame(
        {
            "x": ["0", "1", "0", "1"],
            "months": ["5", None, "soon", "99"],
            "dead": ["0", "1", "1", "1"],
        }
    )
    assert conform(table, schema).frame["months"].tolist() == [5, 60]


ENTRIES = st.one_of(
    st.none(),
    st.sampled_from(
        ["0", "1", "2", "01", "1.0", "f", "m", "a", "x", "south", "(missing)", "", "True"]
    ),
    st.sampled_from(["inf", "-1e400", "1e-320", "nan", "9" * 30, "-5", str(2**64), "0x10", "٣"]),
    st.floats(allow_nan=False).map(str),
    st.text(max_size=5),
)
ROWS = st.lists(st.fixed_dictionaries(dict.fromkeys(GOOD, ENTRIES)), max_size=6)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(rows=ROWS, extra=st.fixed_dictionaries(dict.fromkeys(GOOD, ENTRIES)))
def test_a_row_is_treated_alike_whatever_the_others_are(
    rows: list[dict[str, Any]], extra: dict[str, Any]
) -> None:
    """What a neighbouring table adds or removes is this row, and nothing else."""

    def whole(table: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        frame = conform(pd.DataFrame(table, columns=list(GOOD), dtype=object), SCHEMA).frame
        rows, _ = Encoder(SCHEMA).encode(frame)
        assert np.isfinite(rows.values).all()
        columns = (rows.values.tolist(), rows.labels.tolist(), rows.sites.tolist())
        return list(map(repr, zip(*columns, strict=True)))

    alone = [found for row in [*rows, extra] for found in whole([row])]
    assert whole([*rows, extra]) == alone
    assert whole(rows) == alone[: len(whole(rows))]


def test_numbers_and_texts_do_not_depend_on_the_column() -> None:
    """`pandas.to_numeric` turns all of these into objects because of two of them."""
    column = pd.Series([str(2**64 - 1), "-1", "x", None, "1e5"], dtype=object)
    assert numbers_of(column).tolist()[:2] == [float(2**64 - 1), -1.0]
    assert np.isnan(numbers_of(column)[2:4]).all() and numbers_of(column)[4] == 1e5
    for entry in ("1_0", "٣", "x", None, 1.5, True, "1e400", " 7 ", ""):
        together = numbers_of(pd.Series(["2", entry, "3"], dtype=object))
        assert repr(together[1]) == repr(numbers_of(pd.Series([entry], dtype=object))[0])
        assert together[[0, 2]].tolist() == [2.0, 3.0]
    assert texts_of(pd.Series(["01", "1", "x"])).tolist() == ["01", "1", "x"]
    assert texts_of(pd.Series([1.0, None, 2.5])).tolist() == ["1", None, "2.5"]
