"""Datasets: tables split row by row; counts are declared, not counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest

from bench.data.dataset import Dataset, Declaration, split_dataset
from bench.data.schema import Column, Numeric
from bench.errors import DataError, InputError, SchemaError
from bench.plugins.source import DatasetSource, build_dataset
from tests.support.tables import ToySurvival, ToyTable


def test_splits_are_disjoint_and_together_the_table() -> None:
    dataset = build_dataset(ToyTable())
    parts = [getattr(dataset, name).frame for name in ("train", "validation", "control", "test")]
    together = pd.concat(parts).sort_values(["marker"]).reset_index(drop=True)
    table = ToyTable().load().sort_values(["marker"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(together, table)


def test_the_paper_preset_uses_the_test_rows_as_control() -> None:
    dataset = build_dataset(ToyTable(), preset="paper")
    assert dataset.control is dataset.test
    assert len(dataset.train) + len(dataset.validation) + len(dataset.test) == 500


@pytest.mark.parametrize("seed", [0, 1])
def test_declared_training_counts_are_constants_near_the_actual_ones(seed: int) -> None:
    for preset, total in (("default", 300), ("paper", 350), ("all", 500)):
        dataset = build_dataset(ToyTable(), preset, seed)
        assert dataset.counts.total == sum(dataset.counts.by_class) == total
        # Five standard deviations of a binomial number.
        assert abs(len(dataset.train) - total) <= 5 * np.sqrt(500 * 0.25) * (preset != "all")


def test_seeds_change_the_split_and_the_fingerprint_and_nothing_else_does() -> None:
    first, same, other = (build_dataset(ToyTable(), split_seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint == same.fingerprint != other.fingerprint
    pd.testing.assert_frame_equal(first.train.frame, same.train.frame)
    assert not first.train.frame.equals(other.train.frame)
    assert build_dataset(ToyTable(separation=2.1)).fingerprint != first.fingerprint


def test_texts_do_not_change_the_fingerprint_and_facts_do() -> None:
    source = ToyTable()
    declared, frame = source.declare(), source.load()
    column = declared.schema.columns[0]
    assert isinstance(column, Numeric)

    def fingerprint(changed: Declaration) -> str:
        return split_dataset(source.name, changed, frame).fingerprint

    def with_column(changed: Column) -> Declaration:
        columns = (changed, *declared.schema.columns[1:])
        return replace(declared, schema=replace(declared.schema, columns=columns))

    before = fingerprint(declared)
    assert fingerprint(replace(declared, citation="corrected", title="better")) == before
    assert fingerprint(with_column(replace(column, description="in years"))) == before
    assert fingerprint(with_column(replace(column, high=column.high + 1))) != before
    assert fingerprint(replace(declared, unit="patient")) != before


def test_a_dataset_keeps_its_name() -> None:
    assert build_dataset(ToySurvival()).name == ToySurvival.name


def test_positions_are_uniform_and_fixed() -> None:
    dataset = build_dataset(ToyTable())
    positions = dataset.train.rows.positions
    assert positions.min() >= 0 and positions.max() < 1 and len(set(positions)) == len(positions)
    assert np.array_equal(positions, build_dataset(ToyTable()).train.rows.positions)


@final
@dataclass(frozen=True)
class WithOfficialTest(DatasetSource):
    """A source whose field uses a fixed test file."""

    name: ClassVar[str] = "official"

    def declare(self) -> Declaration:
        return ToyTable().declare()

    def load(self) -> pd.DataFrame:
        return ToyTable().load()

    def load_official_test(self) -> pd.DataFrame:
        return ToyTable(negatives=20, positives=20).load()


def test_official_test_rows_are_used_as_they_are() -> None:
    dataset: Dataset = build_dataset(WithOfficialTest())
    assert len(dataset.test) == 40
    assert len(dataset.train) + len(dataset.validation) + len(dataset.control) == 500
    assert dataset.counts.total == 374  # 500 - 2 * (38 + 25)


@final
@dataclass(frozen=True)
class Broken(DatasetSource):
    """A source that gives something else than it declares."""

    name: ClassVar[str] = "broken"
    drop: str = ""
    empty: bool = False

    def declare(self) -> Declaration:
        return ToyTable().declare()

    def load(self) -> pd.DataFrame:
        frame = ToyTable().load()
        return frame.iloc[:0] if self.empty else frame.drop(columns=[self.drop])


def test_wrong_tables_are_refused() -> None:
    with pytest.raises(SchemaError, match="lacks the column 'outcome'"):
        build_dataset(Broken(drop="outcome"))
    with pytest.raises(SchemaError, match="lacks the column 'marker'"):
        build_dataset(Broken(drop="marker"))
    with pytest.raises(DataError, match="no rows"):
        build_dataset(Broken(empty=True))
    with pytest.raises(InputError, match="unknown split preset"):
        build_dataset(ToyTable(), preset="huge")
