"""Tiny datasets: fast, seeded, one per task and one per difficult case."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.dataset import Dataset, Declaration, Split
from bench.data.encoder import EncodedRows
from bench.data.schema import Categorical, Column, Comparison, Numeric, Role, Rule, Schema, Task
from bench.plugins.source import DatasetSource, build_dataset


@final
@dataclass(frozen=True)
class ToyTable(DatasetSource):
    """Two numeric, one binary, one three-way column; the class shifts the first number."""

    name: ClassVar[str] = "toy-table"
    negatives: int = 300
    positives: int = 200
    separation: float = 2.0

    def declare(self) -> Declaration:
        columns: tuple[Column, ...] = (
            Numeric(name="age", low=0, high=100, integer=True),
            Numeric(name="marker", low=-10, high=10),
            Categorical(name="smoker", categories=("no", "yes")),
            Categorical(name="stage", categories=("I", "II", "III")),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(
            columns,
            Task.CLASSIFICATION,
            quasi_identifiers=("age",),
            sensitive=("marker",),
            rules=(Rule("adult smokers", Comparison("age", ">=", "10")),),
        )
        return _declared("A toy table", schema, (self.negatives, self.positives))

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(7)
        label = np.repeat([0, 1], [self.negatives, self.positives])
        n = len(label)
        return pd.DataFrame(
            {
                "age": np.clip(rng.normal(50 + 5 * label, 12), 10, 100).round(),
                "marker": np.clip(rng.normal(self.separation * label, 1.0), -10, 10),
                "smoker": np.where(rng.random(n) < 0.3 + 0.2 * label, "yes", "no"),
                "stage": rng.choice(["I", "II", "III"], n),
                "outcome": label,
            }
        )


@final
@dataclass(frozen=True)
class ToySurvival(DatasetSource):
    """One risk factor that shortens exponential times; independent censoring."""

    name: ClassVar[str] = "toy-survival"
    rows: int = 400

    def declare(self) -> Declaration:
        columns: tuple[Column, ...] = (
            Numeric(name="risk", low=-4, high=4),
            Categorical(name="arm", categories=("control", "treated")),
            Numeric(name="months", low=0, high=120, role=Role.TIME),
            Categorical(name="death", categories=("0", "1"), role=Role.EVENT),
        )
        events = int(self.load()["death"].sum())  # a toy's constant, not a private count
        return _declared(
            "A toy survival table", Schema(columns, Task.SURVIVAL), (self.rows - events, events)
        )

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(11)
        risk = np.clip(rng.normal(size=self.rows), -4, 4)
        treated = rng.random(self.rows) < 0.5
        time = rng.exponential(40 * np.exp(-0.8 * risk + 0.4 * treated))
        censoring = rng.uniform(10, 120, self.rows)
        return pd.DataFrame(
            {
                "risk": risk,
                "arm": np.where(treated, "treated", "control"),
                "months": np.minimum(time, censoring),
                "death": (time <= censoring).astype(int),
            }
        )


@final
@dataclass(frozen=True)
class ToyImages(DatasetSource):
    """Three classes of 8x8 images: a bright row, a bright column, a bright square."""

    name: ClassVar[str] = "toy-images"
    per_class: int = 80

    def declare(self) -> Declaration:
        pixels: tuple[Column, ...] = tuple(
            Numeric(name=f"p{number}", low=0, high=16) for number in range(64)
        )
        target = Categorical(name="shape", categories=("0", "1", "2"), role=Role.TARGET)
        schema = Schema((*pixels, target), Task.IMAGE, image_shape=(1, 8, 8))
        return _declared("Toy images", schema, (self.per_class,) * 3)

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(3)
        label = np.repeat([0, 1, 2], self.per_class)
        images = rng.uniform(0, 6, (len(label), 8, 8))
        images[label == 0, 3, :] += 8
        images[label == 1, :, 3] += 8
        images[label == 2, 2:5, 2:5] += 8
        frame = pd.DataFrame(
            images.reshape(len(label), 64), columns=[f"p{number}" for number in range(64)]
        )
        frame["shape"] = label
        return frame


@final
@dataclass(frozen=True)
class ToyClasses(DatasetSource):
    """Three classes of different size, which differ in two numbers."""

    name: ClassVar[str] = "toy-classes"

    def declare(self) -> Declaration:
        columns: tuple[Column, ...] = (
            Numeric(name="length", low=0, high=10),
            Numeric(name="width", low=0, high=10),
            Categorical(name="colour", categories=("red", "green", "blue", "white")),
            Categorical(name="species", categories=("a", "b", "c"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION)
        return _declared("A toy table of three classes", schema, (200, 120, 60))

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(19)
        label = np.repeat([0, 1, 2], [200, 120, 60])
        return pd.DataFrame(
            {
                "length": np.clip(rng.normal(3 + 2 * label, 1.0), 0, 10),
                "width": np.clip(rng.normal(7 - 2 * label, 1.0), 0, 10),
                "colour": rng.choice(["red", "green", "blue", "white"], len(label)),
                "species": np.array(["a", "b", "c"])[label],
            }
        )


@final
@dataclass(frozen=True)
class ToyGaps(DatasetSource):
    """A table whose numbers are missing in part, more often in one class."""

    name: ClassVar[str] = "toy-gaps"

    def declare(self) -> Declaration:
        columns = (
            Numeric(name="age", low=18, high=90, integer=True),
            Numeric(name="bmi", low=10, high=60, missing=True),
            Categorical(name="smoker", categories=("no", "yes", "(missing)")),
            Numeric(name="visits", low=0, high=9, integer=True, missing=True),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION, quasi_identifiers=("age", "bmi"))
        return _declared("A toy table with missing entries", schema, (240, 160))

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(23)
        label = np.repeat([0, 1], [240, 160])
        bmi = np.clip(rng.normal(22 + 8 * label, 3.0), 10, 60)
        visits = rng.integers(0, 10, len(label)).astype(np.float64)
        return pd.DataFrame(
            {
                "age": np.clip(np.rint(rng.normal(50 + 10 * label, 12.0)), 18, 90),
                "bmi": np.where(rng.random(len(label)) < 0.2 + 0.4 * label, np.nan, bmi),
                "smoker": rng.choice(["no", "yes", "(missing)"], len(label), p=[0.6, 0.3, 0.1]),
                "visits": np.where(rng.random(len(label)) < 0.1, np.nan, visits),
                "outcome": np.array(["0", "1"])[label],
            }
        )


@final
@dataclass(frozen=True)
class ToyConstant(DatasetSource):
    """Two columns that never change beside one that does: no variance to divide by."""

    name: ClassVar[str] = "toy-constant"

    def declare(self) -> Declaration:
        columns: tuple[Column, ...] = (
            Numeric(name="signal", low=-5, high=5),
            Numeric(name="stuck", low=0, high=1),
            Categorical(name="ward", categories=("north", "south", "west")),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION)
        return _declared("A toy table with constant columns", schema, (150, 150))

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(23)
        label = np.repeat([0, 1], 150)
        return pd.DataFrame(
            {
                "signal": np.clip(rng.normal(label, 1.0), -5, 5),
                "stuck": np.zeros(len(label)),
                "ward": "north",
                "outcome": label,
            }
        )


@final
@dataclass(frozen=True)
class ToyOneFeature(DatasetSource):
    """One number, one label."""

    name: ClassVar[str] = "toy-one-feature"

    def declare(self) -> Declaration:
        columns: tuple[Column, ...] = (
            Numeric(name="signal", low=-5, high=5),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION)
        return _declared("A toy table of one feature", schema, (150, 150))

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(29)
        label = np.repeat([0, 1], 150)
        return pd.DataFrame({"signal": np.clip(rng.normal(label, 1.0), -5, 5), "outcome": label})


def _declared(title: str, schema: Schema, by_class: tuple[int, ...]) -> Declaration:
    return Declaration(
        title=title,
        schema=schema,
        by_class=by_class,
        by_site_class={},
        licence="CC0",
        citation="none",
        source="simulated",
        simulated=True,
    )


TASKS: Mapping[str, DatasetSource] = {
    "table": ToyTable(),
    "three classes": ToyClasses(),
    "survival": ToySurvival(),
    "images": ToyImages(),
}
"""One table of each kind: a method need not fit all of them."""

DIFFICULT: Mapping[str, DatasetSource] = {
    "tiny classes": ToyTable(negatives=20, positives=5),
    "constant columns": ToyConstant(),
    "one feature": ToyOneFeature(),
    "missing entries": ToyGaps(),
}

LARGE = "large table"


@functools.cache
def toy_dataset(name: str) -> Dataset:
    """Return one of the small tables, split and encoded."""
    large = ToyTable(negatives=1800, positives=1200)
    return build_dataset({**TASKS, **DIFFICULT, LARGE: large}[name])


_BEYOND = 1e6
"""Value far outside every schema."""


def other_tables(dataset: Dataset) -> Mapping[str, Dataset]:
    """Return tables of other values and other numbers of rows, by name; declared counts stay."""
    classes = len(dataset.schema.classes)
    uneven = np.arange(1.0, classes + 1.0)
    return {
        "other rows": _other_rows(dataset, uneven[::-1], 41),
        "no row of the first class": _other_rows(dataset, uneven - 1.0, 43),
    }


def _other_rows(dataset: Dataset, shares: npt.NDArray[np.float64], seed: int) -> Dataset:
    rng = np.random.default_rng(seed)

    def other(split: Split) -> Split:
        """Return two thirds as many rows, the first of which is far outside the schema."""
        rows = split.rows
        kept = rng.permutation(len(rows))[: -(-2 * len(rows) // 3)]
        values = rng.uniform(-1.0, 1.0, (len(kept), rows.values.shape[1]))
        values[:1] = _BEYOND
        labels = rng.choice(len(shares), len(kept), p=shares / shares.sum())
        changed = EncodedRows(
            values.astype(rows.values.dtype),
            labels.astype(rows.labels.dtype),
            rows.sites[kept],
            rows.positions[kept],
        )
        return Split(split.frame, changed)

    return replace(dataset, train=other(dataset.train), validation=other(dataset.validation))
