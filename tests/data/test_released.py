"""A table to give away has the order, types and gaps of the original."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd

from bench.data.encoder import Encoder
from bench.data.released import as_its_owner_wrote
from bench.data.schema import Categorical, Numeric, Role, Schema, Task

ORIGINAL = """y,age,weight,visits,dose,grade,code,sex,flag
0,50,70.5,,1.0,2,01,f,True
1,61,81.25,3,2.0,,02,,False
"""
SCHEMA = Schema(
    (
        Categorical(name="y", categories=("0", "1"), role=Role.TARGET),
        Numeric(name="age", low=0, high=100, integer=True),
        Numeric(name="weight", low=0, high=200),
        Numeric(name="visits", low=0, high=10, integer=True, missing=True),
        Numeric(name="dose", low=0, high=4, integer=True, decimal=True),
        Categorical(name="grade", categories=("1", "2", "(missing)"), ordered=True),
        Categorical(name="code", categories=("01", "02")),
        Categorical(name="sex", categories=("f", "m", "(missing)")),
        Categorical(name="flag", categories=("False", "True")),
    ),
    Task.CLASSIFICATION,
)


def test_a_table_that_is_encoded_and_given_away_is_the_original() -> None:
    read = pd.read_csv(io.StringIO(ORIGINAL), dtype=str)
    numbers = ["age", "weight", "visits", "dose"]
    frame = read.assign(**{name: read[name].astype(float) for name in numbers})
    frame = frame.fillna({"grade": "(missing)", "sex": "(missing)"})
    encoder = Encoder(SCHEMA)
    rows, _ = encoder.encode(frame)
    table = as_its_owner_wrote(encoder.decode(rows.values, rows.labels), SCHEMA)
    assert table.to_csv(index=False) == ORIGINAL
    assert table["age"].dtype == np.int64 and str(table["visits"].dtype) == "Int64"
    assert table["sex"].isna().tolist() == [False, True]


def test_numbers_have_no_digits_that_the_encoding_has_lost() -> None:
    frame = pd.DataFrame({"y": ["0"], "weight": [70.30000019073486]})
    assert as_its_owner_wrote(frame, SCHEMA)["weight"].tolist() == [70.3]
