"""The encoder knows the schema and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.data.dataset import split_dataset
from bench.data.encoder import Encoder, spelled
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import SchemaError
from bench.plugins.source import build_dataset
from tests.support.tables import ToyGaps, ToySurvival, ToyTable

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


# Numbers that can be missing ----------------------------------------------------------------------


def with_gaps(fill: float | None = None) -> Encoder:
    schema = Schema(
        (
            Numeric(name="age", low=0, high=100, integer=True),
            Numeric(name="bmi", low=10, high=50, missing=True, fill=fill),
            Numeric(name="time", low=0, high=10, role=Role.TIME),
            Categorical(name="event", categories=("0", "1"), role=Role.EVENT),
        ),
        Task.SURVIVAL,
    )
    return Encoder(schema)


def rows_with_gaps() -> pd.DataFrame:
    return pd.DataFrame(
        {"age": [50, 0], "bmi": [np.nan, 40.0], "time": [5.0, 10.0], "event": [1, 0]}
    )


def test_a_missing_number_has_a_second_block_and_the_time_stays_last() -> None:
    encoder = with_gaps()
    assert encoder.names == ("age", "bmi", "bmi (present)", "time")
    assert (encoder.feature_width, encoder.max_norm) == (3, 2.0)
    assert [block.column.name for block in encoder.feature_blocks] == list(encoder.names[:3])
    rows, clipped = encoder.encode(rows_with_gaps())
    assert rows.values.tolist() == [[0.0, 0.0, -1.0, 0.0], [-1.0, 0.5, 1.0, 1.0]]
    assert set(clipped.values()) == {0}
    assert np.linalg.norm(rows.values, axis=1).max() <= encoder.max_norm


def test_what_is_missing_is_missing_again_and_a_complete_table_says_so_in_a_column() -> None:
    encoder = with_gaps(fill=20.0)
    rows, _ = encoder.encode(rows_with_gaps())
    back = encoder.decode(rows.values, rows.labels)
    assert list(back.columns) == ["age", "bmi", "time", "event"]
    assert back["bmi"].isna().tolist() == [True, False]
    complete = encoder.decode(rows.values, rows.labels, complete=True)
    assert complete["bmi"].tolist() == pytest.approx([20.0, 40.0])
    assert complete["bmi (present)"].tolist() == ["no", "yes"]
    for frame in (back, complete):
        again, _ = encoder.encode(frame)
        assert again.values.tolist() == rows.values.tolist()


def test_an_undecided_presence_is_read_as_present() -> None:
    encoder = with_gaps()
    back = encoder.decode(np.zeros((1, encoder.width)), np.zeros(1, dtype=np.int64))
    assert back["bmi"].tolist() == [30.0]


def test_the_name_of_the_second_block_is_reserved() -> None:
    bmi = Numeric(name="bmi", low=0, high=1, missing=True)
    other = Numeric(name="bmi (present)", low=0, high=1)
    label = Categorical(name="y", categories=("0", "1"), role=Role.TARGET)
    with pytest.raises(SchemaError, match="rename that one"):
        Schema((bmi, other, label), Task.CLASSIFICATION)
    with pytest.raises(SchemaError, match="a row without its time is not in the table"):
        Numeric(name="t", low=0, high=1, missing=True, role=Role.TIME)


def test_datasets_without_missing_numbers_keep_their_fingerprints() -> None:
    # Computed before numbers could be missing: their keys, and stored results, stay valid.
    assert build_dataset(ToyTable()).fingerprint.startswith("ec93de6a49697a2fcbda")
    assert build_dataset(ToySurvival()).fingerprint.startswith("f7b1e0264e12dd48adb6")
    declared = with_gaps().schema
    present = replace(declared["bmi"], missing=False)
    columns = tuple(present if one.name == "bmi" else one for one in declared.columns)
    assert repr(replace(declared, columns=columns)) == repr(declared)


def test_whether_a_number_can_be_missing_changes_the_fingerprint() -> None:
    source = ToyGaps()
    declared = source.declare()
    columns = tuple(
        replace(one, missing=False, fill=one.low) if isinstance(one, Numeric) else one
        for one in declared.schema.columns
    )
    filled = replace(declared, schema=replace(declared.schema, columns=columns))
    frame = source.load().fillna({"bmi": 10.0, "visits": 0.0})
    gaps = [split_dataset("g", one, frame).fingerprint for one in (declared, filled)]
    assert gaps[0] != gaps[1]
