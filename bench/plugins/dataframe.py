"""Wraps a library that is fitted on a data frame: `DataFrameMethod`.

A subclass says how to fit the library and how to sample from it; decoding of the rows, checks of
what was sampled and encoding are done here. Such a library gets the rows themselves, so that no
accountant can follow what it does with them: what it says it spent is recorded as a claim, and the
verdict is `unproven`. `docs/wrapping.md` shows a real one, and the way from there to a proof.
"""

from __future__ import annotations

import importlib.metadata
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.encoder import Encoder, spelled
from bench.data.schema import Categorical, Column, Numeric, Schema, Task
from bench.errors import InvalidReleaseError, NotApplicable, SchemaError
from bench.plugins.method import Method, Spec
from bench.plugins.release import Claim, Release, Rows
from bench.privacy.kernel import PrivateData
from bench.privacy.third_party import seeded_global_generators

Sampler = Callable[[int], pd.DataFrame]
"""Returns so many rows, with the columns of the table that was fitted."""

_TABLES: Final = (Task.CLASSIFICATION, Task.SURVIVAL)
_ROUNDING: Final = 1e-6
"""Share of a column's range by which a number may lie outside of it: rounding to 32 bits."""
_DRAWS: Final = 20
"""How often a sampler is asked for more rows, where a class is rare among what it returns."""
_SMALLEST_DRAW: Final = 200


@final
@dataclass(frozen=True)
class FitRequest:
    """What a library may need besides the rows; all of it is public."""

    schema: Schema
    """Columns with bounds and categories. Give them to the library: what it reads off the rows
    instead is access that its epsilon does not cover."""
    epsilon: float | None
    """None for a method without a budget (`uses_budget = False`)."""
    delta: float | None
    seed: int
    """For a library that takes a seed; the global generators are seeded in any case."""

    @property
    def label(self) -> str:
        """Name of the column that is predicted, or of the event."""
        return self.schema.label.name


class DataFrameMethod(Method):
    """Fits a library on a data frame of the training rows, and samples from it."""

    package: ClassVar[str]
    """Name of the wrapped distribution, whose installed version the claim names."""
    clips: ClassVar[bool] = False
    """True clips sampled numbers to the bounds of the schema, where the library cannot be given
    them; False refuses such a release."""

    @abstractmethod
    def fit(self, frame: pd.DataFrame, request: FitRequest) -> Sampler:
        """Fit the library; return a function that samples n rows.

        The frame has the schema's columns in units: whole numbers as integers, other numbers as
        floats, categories as text, missing entries as missing.
        """

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        """Decode the rows, fit, sample, check and encode."""
        if private.task not in _TABLES:
            raise NotApplicable("it wraps a library for tables; the rows are images")
        name = self._name()
        encoder = private.encoder
        rows = private.raw(f"{name} is fitted on the rows as a data frame; its noise is its own")
        frame = plain_frame(encoder.decode(rows.values, rows.labels), encoder.schema)
        budget = spec.budget
        request = FitRequest(
            encoder.schema,
            None if budget is None else budget.epsilon,
            None if budget is None else budget.delta,
            int(rng.integers(2**31)),
        )
        with seeded_global_generators(rng):
            sampled = _Sampled(self.fit(frame, request), encoder, self.clips)
            wanted = spec.rows_per_class(private.counts)
            released = sampled.whole(sum(wanted)) if spec.ipc is None else sampled.by_class(wanted)
        return Release(released, claim=Claim.of(budget, name), notes=sampled.notes)

    def _name(self) -> str:
        try:
            return f"{self.package} {importlib.metadata.version(self.package)}"
        except importlib.metadata.PackageNotFoundError:
            raise NotApplicable(
                f"the package {self.package} is not installed; install it, or name it in "
                "`environment`"
            ) from None


def plain_frame(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return a decoded table in the types that libraries expect: int64, float64 and text."""
    columns: dict[str, Any] = {}
    for column in schema:
        if column.name not in frame.columns:
            continue  # a site is not released
        series = frame[column.name]
        if isinstance(column, Categorical):
            columns[column.name] = series.astype(object)
        elif isinstance(column, Numeric) and column.integer and not series.isna().any():
            columns[column.name] = series.astype(np.int64)
        else:
            columns[column.name] = series.astype(np.float64)
    return pd.DataFrame(columns)


@final
class _Sampled:
    """Samples of a fitted library, checked and encoded."""

    def __init__(self, sampler: Sampler, encoder: Encoder, clips: bool) -> None:
        if not callable(sampler):
            raise InvalidReleaseError(
                f"fit returned a {type(sampler).__name__}; expected a function that samples n rows"
            )
        self._sampler = sampler
        self._encoder = encoder
        self._clips = clips
        self._clipped = 0
        self._repeated = 0

    @property
    def notes(self) -> dict[str, float | str]:
        """What the reader of a release should know about the sampling."""
        notes = {"numbers clipped": self._clipped, "rows repeated": self._repeated}
        return {name: float(count) for name, count in notes.items() if count}

    def whole(self, rows: int) -> Rows:
        """Return so many rows, with the classes as the library samples them."""
        return self._draw(rows)

    def by_class(self, wanted: tuple[int, ...]) -> Rows:
        """Return so many rows of each class, drawn until there are enough.

        Rows of a class that stays too rare are repeated; without a single one, it is refused.
        """
        values: list[list[npt.NDArray[np.float32]]] = [[] for _ in wanted]
        have = [0] * len(wanted)
        size, drawn = max(_SMALLEST_DRAW, 2 * sum(wanted)), 0
        for _ in range(_DRAWS):
            rows = self._draw(size)
            drawn += size
            for code in range(len(wanted)):
                chosen = rows.values[rows.labels == code]
                values[code].append(np.asarray(chosen, np.float32))
                have[code] += len(chosen)
            if all(count >= size for count, size in zip(have, wanted, strict=True)):
                break
        parts = []
        for code, size in enumerate(wanted):
            found = np.concatenate(values[code])
            if size and not len(found):
                name = self._encoder.schema.classes[code]
                raise InvalidReleaseError(
                    f"no row of class {name} among {drawn} sampled rows; a release needs {size}"
                )
            self._repeated += max(0, size - len(found))
            parts.append(found[np.resize(np.arange(len(found)), size)])
        labels = np.repeat(np.arange(len(wanted)), wanted)
        return Rows(np.concatenate(parts), labels)

    def _draw(self, rows: int) -> Rows:
        frame = self._sampler(rows)
        encoded, clipped = encoded_frame(frame, rows, self._encoder, clips=self._clips)
        self._clipped += clipped
        return encoded


def encoded_frame(
    frame: object, rows: int, encoder: Encoder, *, clips: bool = False
) -> tuple[Rows, int]:
    """Encode what a library has sampled; the second value is how many numbers were clipped.

    Whatever contradicts the schema is refused with the column and the number of values. The values
    themselves are not shown: they may be those of private rows.
    """
    if not isinstance(frame, pd.DataFrame):
        raise InvalidReleaseError(
            f"the library sampled a {type(frame).__name__}; expected a pandas DataFrame"
        )
    if len(frame) != rows:
        raise InvalidReleaseError(f"asked for {rows} rows, the library sampled {len(frame)}")
    schema = encoder.schema
    # The encoder adds a block that says whether a number is there, which is no column of the table.
    declared = {column.name for column in schema}
    features = [block.column for block in encoder.blocks if block.column.name in declared]
    needed = [*features, schema.label]
    names = [str(name) for name in frame.columns]
    if absent := [column.name for column in needed if column.name not in names]:
        raise InvalidReleaseError(f"the sampled table lacks the columns {', '.join(absent)}")
    if doubled := sorted({column.name for column in needed if names.count(column.name) > 1}):
        raise InvalidReleaseError(f"the sampled table has several columns {', '.join(doubled)}")
    # Other columns than the schema's are left out, and so is the index.
    clean: dict[str, Any] = {}
    clipped = 0
    for column in needed:
        series = frame.iloc[:, names.index(column.name)].reset_index(drop=True)
        if isinstance(column, Numeric):
            clean[column.name], outside = _numbers(series, column, clips)
            clipped += outside
        elif isinstance(column, Categorical):
            clean[column.name] = _categories(series, column)
    table = pd.DataFrame(clean)
    if schema.site is not None:
        table[schema.site.name] = schema.site.categories[0]  # not released
    try:
        encoded, _ = encoder.encode(table)
    except SchemaError as problem:
        raise InvalidReleaseError(f"the sampled table does not fit the schema: {problem}") from None
    return Rows(encoded.values, encoded.labels), clipped


def _numbers(
    series: pd.Series[Any], column: Numeric, clips: bool
) -> tuple[npt.NDArray[np.float64], int]:
    numbers = pd.to_numeric(series.astype(object), errors="coerce").to_numpy(np.float64)
    missing = series.isna().to_numpy(bool)
    wrong = int((np.isnan(numbers) & ~missing).sum())
    if wrong:
        raise _refused(column, wrong, len(series), "are not numbers")
    endless = int(np.isinf(numbers).sum())
    if endless:
        raise _refused(column, endless, len(series), "are infinite")
    margin = _ROUNDING * (column.high - column.low)
    outside = int(((numbers < column.low - margin) | (numbers > column.high + margin)).sum())
    if outside and not clips:
        raise _refused(
            column,
            outside,
            len(series),
            f"lie outside {column.low:g} to {column.high:g}; give the library these bounds, or set "
            "`clips = True`",
        )
    return np.clip(numbers, column.low, column.high), outside


def _categories(series: pd.Series[Any], column: Categorical) -> pd.Series[Any]:
    texts = spelled(series)
    known = set(column.categories)
    wrong = int((texts.notna() & ~texts.isin(known)).sum())
    if wrong:
        raise _refused(column, wrong, len(series), "are not among the declared categories")
    if texts.isna().any() and column.fill is None:
        missing = int(texts.isna().sum())
        raise _refused(column, missing, len(series), "are missing, and the schema allows none")
    return texts


def _refused(column: Column, count: int, of: int, why: str) -> InvalidReleaseError:
    return InvalidReleaseError(f"column {column.name!r}: {count} of {of} sampled values {why}")
