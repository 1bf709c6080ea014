"""A user's own table as a dataset: a TOML file in the data folder, written by `bench data add`.

Kinds, bounds, categories and counts in that file are read off the rows at first. As long as it says
`inferred = true` this is charged as a raw look; a person who has checked them against a data
dictionary sets it to false.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import pandas as pd

from bench.data.dataset import Declaration, declaration_from_table
from bench.data.encoder import category_codes, spelled
from bench.data.files import read_csv
from bench.data.schema import Categorical, Numeric, Schema, read_toml
from bench.errors import DataError, SchemaError
from bench.plugins.source import DatasetSource

MISSING = "(missing)"
"""Category that stands for a missing entry."""


@dataclass(frozen=True)
class OwnTable(DatasetSource):
    """One own table; `own_table_class` gives it its name."""

    toml: ClassVar[Path]

    def toml_path(self) -> Path:
        return self.toml

    def declare(self) -> Declaration:
        return declaration_from_table(read_toml(self.toml), str(self.toml))

    def load(self) -> pd.DataFrame:
        table = read_toml(self.toml)
        schema = self.declare().schema
        frame = read_own(Path(table["file"]), [column.name for column in schema], table)
        frame = tidy(frame, schema)
        if not table.get("clip", False):
            refuse_outside(frame, schema, self.toml)
        return frame


def own_table_class(name: str, path: Path) -> type[DatasetSource]:
    """The plugin class of one own table."""
    return final(type("OwnTable", (OwnTable,), {"name": name, "toml": path}))


def read_own(path: Path, columns: list[str], table: dict[str, Any]) -> pd.DataFrame:
    """The declared columns of the file; one row a patient where a patient column is named."""
    patient = table.get("patient", "")
    wanted = [*columns, *([patient] if patient and patient not in columns else [])]
    if path.suffix == ".parquet":
        frame = _read_parquet(path, wanted)
    else:
        frame = read_csv(
            path,
            table.get("member") or None,
            separator=table.get("separator", ","),
            columns=wanted,
            usecols=wanted,
        )
    if patient:
        frame = frame.drop_duplicates(patient)
    return frame[columns].reset_index(drop=True)


def _read_parquet(path: Path, columns: list[str]) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pd.DataFrame(pq.read_table(path, columns=columns).to_pandas())
    except (pa.ArrowInvalid, OSError) as problem:
        raise DataError(f"{path}: not a readable Parquet file ({problem})") from None


def tidy(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Missing categories become a category of their own; text is stripped."""
    frame = frame.copy()
    for column in schema:
        if isinstance(column, Categorical):
            text = spelled(frame[column.name])
            frame[column.name] = text.fillna(MISSING) if MISSING in column.categories else text
        else:
            numbers = pd.to_numeric(frame[column.name], errors="coerce")
            wrong = int((numbers.isna() & frame[column.name].notna()).sum())
            if wrong:
                raise DataError(
                    f"column {column.name!r}: {wrong} entries are not numbers; declare it "
                    "categorical or mend the file"
                )
            frame[column.name] = numbers
    return frame


def refuse_outside(frame: pd.DataFrame, schema: Schema, where: Path) -> None:
    """Values outside the declared bounds are counted and refused, unless clipping was asked for."""
    for column in schema:
        if isinstance(column, Numeric):
            values = frame[column.name]
            outside = int(((values < column.low) | (values > column.high)).sum())
            if outside:
                raise DataError(
                    f"column {column.name!r}: {outside} values lie outside the declared bounds "
                    f"[{column.low:g}, {column.high:g}]; widen them in {where}, or set `clip = "
                    "true` there"
                )
        elif isinstance(column, Categorical):
            try:
                category_codes(frame[column.name].dropna(), column)
            except SchemaError as problem:
                raise DataError(f"{problem} (declared in {where})") from None
