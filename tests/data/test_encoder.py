"""The encoder knows the schema and nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.data.encoder import Encoder, spelled
from bench.errors import SchemaError
from tests.support.tables import ToySurvival, ToyTable

ENCODER = Encoder(ToyTable().declare().schema)


def four_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [0, 25, 50, 100],
            "marker": [-10.0, 0.0, 5.0, 10.0],
            "smoker": ["no", "yes", "no", "yes"],
            "stage": ["I", "II", "III", "I"],
            "outcome": [0, 1, 0, 1],
        }
    )


def test_known_answers() -> None:
    rows, clipped = ENCODER.encode(four_rows())
    assert ENCODER.names == ("age", "marker", "smoker", "stage=I", "stage=II", "stage=III")
    assert rows.values.tolist() == [
        [-1, -1, -1, 1, 0, 0],
        [-0.5, 0, 1, 0, 1, 0],
        [0, 0.5, -1, 0, 0, 1],
        [1, 1, 1, 1, 0, 0],
    ]
    assert rows.labels.tolist() == [0, 1, 0, 1]
    assert set(clipped.values()) == {0}


def test_round_trip() -> None:
    rows, _ = ENCODER.encode(four_rows())
    back = ENCODER.decode(rows.values, rows.labels)
    for name in ("age", "marker"):
        assert back[name].tolist() == pytest.approx(four_rows()[name].tolist(), abs=1e-5)
    for name in ("smoker", "stage"):
        assert back[name].tolist() == four_rows()[name].tolist()
    assert back["outcome"].astype(int).tolist() == [0, 1, 0, 1]


def test_out_of_range_values_are_clipped_and_counted() -> None:
    frame = four_rows()
    frame.loc[0, "age"] = 300
    frame.loc[1, "marker"] = -99
    rows, clipped = ENCODER.encode(frame)
    assert rows.values[0, 0] == 1 and rows.values[1, 1] == -1
    assert clipped == {"age": 1, "marker": 1}


def test_one_row_cannot_move_the_encoding_of_another() -> None:
    """Bounds come from the schema: an extreme row leaves the others where they are."""
    frame = four_rows()
    before, _ = ENCODER.encode(frame)
    frame.loc[3, ["age", "marker"]] = [1e9, -1e9]
    after, _ = ENCODER.encode(frame)
    assert np.array_equal(before.values[:3], after.values[:3])


@given(
    st.lists(
        st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.sampled_from(["no", "yes"])),
        min_size=1,
        max_size=20,
    )
)
def test_norm_never_exceeds_what_the_schema_allows(rows: list[tuple[float, float, str]]) -> None:
    frame = pd.DataFrame(rows, columns=["age", "marker", "smoker"])
    frame["stage"], frame["outcome"] = "II", 1
    encoded, _ = ENCODER.encode(frame)
    assert ENCODER.max_norm == pytest.approx(2.0)
    assert np.linalg.norm(encoded.values, axis=1).max() <= ENCODER.max_norm * (1 + 1e-6)


def test_decoding_stays_inside_the_schema_whatever_comes() -> None:
    values = np.random.default_rng(0).normal(0, 50, (200, ENCODER.width))
    frame = ENCODER.decode(values, np.zeros(200, dtype=int))
    assert frame["age"].between(0, 100).all() and (frame["age"] % 1 == 0).all()
    assert frame["marker"].between(-10, 10).all()
    again, clipped = ENCODER.encode(frame)
    assert set(clipped.values()) == {0} and np.isfinite(again.values).all()


def test_missing_values_need_a_public_fill() -> None:
    frame = four_rows()
    frame.loc[2, "marker"] = np.nan
    with pytest.raises(SchemaError, match="1 missing values and no public `fill`"):
        ENCODER.encode(frame)


def test_unknown_categories_and_absent_columns_are_named() -> None:
    frame = four_rows()
    frame.loc[0, "stage"] = "IV"
    with pytest.raises(SchemaError, match=r"'stage': 1 values are not among") as raised:
        ENCODER.encode(frame)
    assert "'IV'" not in str(raised.value)  # an entry of a private row
    with pytest.raises(SchemaError, match="lacks the column 'stage'"):
        ENCODER.encode(four_rows().drop(columns="stage"))


def test_labels_read_back_as_floats_are_understood() -> None:
    frame = four_rows().astype({"outcome": float})
    assert ENCODER.encode(frame)[0].labels.tolist() == [0, 1, 0, 1]


def test_time_is_the_last_encoded_column_of_a_survival_task() -> None:
    encoder = Encoder(ToySurvival().declare().schema)
    assert encoder.names == ("risk", "arm", "months")
    assert (encoder.width, encoder.feature_width) == (3, 2)


@pytest.mark.parametrize("first", [True, 1, 1.0, "1", None])
def test_how_an_entry_is_spelled_does_not_depend_on_the_rows_before_it(first: object) -> None:
    # True, 1 and 1.0 are equal keys of a table of distinct values.
    column = pd.Series([first, True, 1, 1.0, "1", None, 0, False], dtype=object)
    assert spelled(column).tolist()[1:] == ["True", "1", "1", "1", None, "0", "False"]
