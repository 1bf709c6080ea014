"""The file `encoded.parquet` of a release: the numbers as models train on them.

Columns are named by their place: `v0`, `v1`, ... for the encoded values, `label`, `weight` where
rows have weights, and `s0`, `s1`, ... for soft labels. A column of a user's table can have any
name, one of ours (`(label)`) or that of a category (`g=a`) included: names of the table are kept in
the metadata of the file, where none can hide another. They are compared when the file is read, so
that rows of another schema are not taken for these.

Files of earlier versions have the names of the table. They are read where all names differ; where
two are the same, one of the columns was lost when the file was written: the release counts as
damaged, and `bench run` makes it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from bench.data.encoder import Encoder
from bench.errors import StoreError
from bench.plugins.release import Rows
from bench.results.opening import parse_object

if TYPE_CHECKING:
    import pyarrow as pa

FILE = "encoded.parquet"

_METADATA = b"bench"
_FORMAT_VERSION = 2
"""The first format had no metadata."""


@final
@dataclass(frozen=True)
class Layout:
    """Names of the columns of an encoded table, by what they hold."""

    values: tuple[str, ...]
    label: str
    weight: str
    soft_labels: tuple[str, ...]
    """Of all classes; the file has them all or none."""

    @classmethod
    def by_place(cls, width: int, classes: int) -> Layout:
        """Return the names that are written."""
        return cls(
            tuple(f"v{number}" for number in range(width)),
            "label",
            "weight",
            tuple(f"s{code}" for code in range(classes)),
        )

    @classmethod
    def of_earlier_versions(cls, names: Sequence[str], classes: Sequence[str]) -> Layout:
        """Return the names of the first format: those of the table."""
        return cls(tuple(names), "(label)", "(weight)", tuple(f"(soft) {name}" for name in classes))

    def columns(self, present: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that a file with these columns must have, in order."""
        weight = (self.weight,) if self.weight in present else ()
        soft = self.soft_labels if set(self.soft_labels) & set(present) else ()
        return (*self.values, self.label, *weight, *soft)


def encoded_table(rows: Rows, encoder: Encoder) -> pa.Table:
    """Return the table that is stored."""
    import pyarrow as pa

    classes = encoder.schema.classes
    layout = Layout.by_place(len(encoder.names), len(classes))
    columns: dict[str, Any] = {
        name: rows.values[:, number] for number, name in enumerate(layout.values)
    }
    columns[layout.label] = rows.labels
    if rows.weights is not None:
        columns[layout.weight] = rows.weights
    if rows.soft_labels is not None:
        for code, name in enumerate(layout.soft_labels):
            columns[name] = rows.soft_labels[:, code]
    facts = {
        "format_version": _FORMAT_VERSION,
        "columns": list(encoder.names),
        "classes": list(classes),
    }
    table = pa.table({name: np.ascontiguousarray(values) for name, values in columns.items()})
    return table.replace_schema_metadata({_METADATA: json.dumps(facts)})


def rows_of(table: pa.Table, encoder: Encoder) -> Rows:
    """Return the rows of a stored table; raise `StoreError` where it is not one of this schema."""
    layout = _layout(table.schema, encoder)
    expected = layout.columns(table.column_names)
    if tuple(table.column_names) != expected or len(set(expected)) < len(expected):
        raise StoreError(
            f"{FILE}: its columns are not those of the schema, or two have one name; make the "
            "release again with `bench run`"
        )

    def column(name: str) -> np.ndarray[Any, Any]:
        return np.asarray(table.column(name).to_numpy())

    weighted, soft = layout.weight in expected, layout.soft_labels[0] in expected
    return Rows(
        values=np.column_stack([column(name) for name in layout.values]),
        labels=column(layout.label),
        weights=column(layout.weight) if weighted else None,
        soft_labels=np.column_stack([column(n) for n in layout.soft_labels]) if soft else None,
    )


def _layout(schema: pa.Schema, encoder: Encoder) -> Layout:
    names, classes = encoder.names, encoder.schema.classes
    facts = _facts(schema)
    if facts is None:
        return Layout.of_earlier_versions(names, classes)
    if facts.get("columns") != list(names) or facts.get("classes") != list(classes):
        raise StoreError(f"{FILE}: written for another schema than the dataset has now")
    return Layout.by_place(len(names), len(classes))


def _facts(schema: pa.Schema) -> dict[str, Any] | None:
    """Return what the file says about itself; None for a file of the first format."""
    text = (schema.metadata or {}).get(_METADATA)
    if text is None:
        return None
    facts = parse_object(text)
    if facts is None or facts.get("format_version") != _FORMAT_VERSION:
        raise StoreError(
            f"{FILE}: this version reads format version {_FORMAT_VERSION} of its columns"
        )
    return facts


@final
@dataclass(frozen=True)
class SpecialColumns:
    """Columns of a stored table that a reader without the schema can recognise."""

    label: str
    weighted: bool
    soft: bool


def special_columns(schema: pa.Schema) -> SpecialColumns:
    """Return how the label column is named, and what rows have besides."""
    names = schema.names
    if _facts(schema) is None:
        soft = any(name.startswith("(soft)") for name in names)
        return SpecialColumns("(label)", "(weight)" in names, soft)
    return SpecialColumns("label", "weight" in names, "s0" in names)
