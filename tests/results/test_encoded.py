"""A stored release is read back as it was, whatever the columns of the table are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Column, Numeric, Role, Schema, Task
from bench.engine import keys
from bench.engine.cell import run_cell
from bench.errors import StoreError
from bench.leaderboard.dossier.material import gather
from bench.plugins.release import Rows
from bench.plugins.source import DatasetSource, build_dataset
from bench.results import encoded
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunStore
from tests.support.tables import ToyTable


@final
@dataclass(frozen=True)
class Colliding(DatasetSource):
    """Columns that are called like ours, like a category of another column, and like places."""

    name: ClassVar[str] = "colliding"

    def declare(self) -> Declaration:
        numbers = ("(label)", "(weight)", "g=a", "(soft) 0", "label", "v0", "s0", "weight")
        columns: tuple[Column, ...] = (
            *(Numeric(name=name, low=-10, high=10) for name in numbers),
            Categorical(name="g", categories=("a", "b", "c")),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        return replace(ToyTable().declare(), title="x", schema=Schema(columns, Task.CLASSIFICATION))

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(3)
        label = np.repeat([0, 1], [300, 200])
        names = [column.name for column in self.declare().schema.features[:-1]]
        frame = {
            name: np.clip(rng.normal(number * label, 1.0), -10, 10)
            for number, name in enumerate(names)
        }
        return pd.DataFrame({**frame, "g": rng.choice(["a", "b", "c"], 500), "outcome": label})


DATASET = build_dataset(Colliding())
PLAIN = build_dataset(ToyTable())
METRICS = ("ks", "tvd", "auroc")


def outcome() -> Outcome:
    cell = Cell(
        Variant("marginals", "marginals"), Variant("colliding", "colliding"), 40, False, 3.0, 1e-5,
        0, "default", 0,
    )  # fmt: skip
    return run_cell(cell, keys.cell_key(cell, DATASET.fingerprint), DATASET, METRICS)


def test_scoring_a_stored_release_gives_the_scores_of_the_direct_run(tmp_path: Path) -> None:
    """Columns with one name used to replace each other: 2.35 against 1.95."""
    direct = outcome()
    with RunStore(tmp_path) as store:
        store.record(direct, DATASET.encoder)
        release = store.read_release(direct.row.key, DATASET.encoder)
        assert release is not None and release.rows is not None and direct.release is not None
        assert direct.release.rows is not None
        assert np.array_equal(release.rows.values, direct.release.rows.values)
        assert np.array_equal(release.rows.labels, direct.release.rows.labels)
        stored = replace(direct, release=release, scores=())
        again = run_cell(direct.row.cell, direct.row.key, DATASET, METRICS, stored)
    assert again.scores == direct.scores
    assert any(score.value is not None for score in again.scores)


def rows(weights: bool, soft: bool) -> Rows:
    rng = np.random.default_rng(0)
    width = len(DATASET.encoder.names)
    given: dict[str, Any] = {"weights": rng.random(7)} if weights else {}
    if soft:
        given["soft_labels"] = rng.dirichlet([1, 1], 7)
    return Rows(rng.random((7, width)), rng.integers(0, 2, 7), **given)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_everything_is_read_back(weights: bool, soft: bool) -> None:
    given = rows(weights, soft)
    table = encoded.encoded_table(given, DATASET.encoder)
    back = encoded.rows_of(table, DATASET.encoder)
    for name in ("values", "labels", "weights", "soft_labels"):
        one, two = getattr(given, name), getattr(back, name)
        assert (one is None) == (two is None) and (one is None or np.array_equal(one, two))
    special = encoded.special_columns(table.schema)
    assert (special.weighted, special.soft) == (weights, soft)


def old_table(given: Rows, names: tuple[str, ...], classes: tuple[str, ...]) -> pa.Table:
    """A table as the first format wrote it: one column for each distinct name."""
    columns: dict[str, Any] = {name: given.values[:, k] for k, name in enumerate(names)}
    columns["(label)"] = given.labels
    for code, name in enumerate(classes):
        columns[f"(soft) {name}"] = given.soft_labels[:, code]  # type: ignore[index]
    return pa.table(columns)


def test_files_of_earlier_versions() -> None:
    """They are read where no name hides another, and count as damaged where one does."""
    encoder = PLAIN.encoder
    rng = np.random.default_rng(0)
    given = Rows(
        rng.random((7, len(encoder.names))), rng.integers(0, 2, 7), soft_labels=rng.random((7, 2))
    )
    table = old_table(given, encoder.names, encoder.schema.classes)
    back = encoded.rows_of(table, encoder)
    assert np.array_equal(back.values, given.values) and np.array_equal(back.labels, given.labels)
    assert back.weights is None and np.array_equal(back.soft_labels, given.soft_labels)  # type: ignore[arg-type]
    special = encoded.special_columns(table.schema)
    assert (special.label, special.weighted, special.soft) == ("(label)", False, True)
    colliding = old_table(rows(False, True), DATASET.encoder.names, ("0", "1"))
    with pytest.raises(StoreError, match="make the release again"):
        encoded.rows_of(colliding, DATASET.encoder)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda table: table.drop_columns(["v3"]), "not those of the schema"),
        (lambda table: table.append_column("v99", table.column("v0")), "not those of the schema"),
        (lambda table: table.select(list(reversed(table.column_names))), "not those"),
        (lambda table: table.replace_schema_metadata({"bench": "{}"}), "format version"),
        (lambda table: table.replace_schema_metadata({"bench": b"\xff"}), "format version"),
        (lambda table: table.replace_schema_metadata({}), "not those of the schema"),
    ],
)
def test_other_columns_are_not_taken_for_ours(
    change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    table = change(encoded.encoded_table(rows(True, True), DATASET.encoder))
    with pytest.raises(StoreError, match=said):
        encoded.rows_of(table, DATASET.encoder)


def test_rows_of_another_schema_are_not_taken_for_these(tmp_path: Path) -> None:
    table = encoded.encoded_table(rows(False, False), DATASET.encoder)
    with pytest.raises(StoreError, match="another schema"):
        encoded.rows_of(table, PLAIN.encoder)


def test_a_dossier_counts_the_rows_of_each_class(tmp_path: Path) -> None:
    direct = outcome()
    with RunStore(tmp_path) as store:
        store.record(direct, DATASET.encoder)
        store.compact()
    files = gather(tmp_path, direct.row.key).files
    assert files.by_class == (40, 40) and files.rows == 80 and files.beside == ()
    path = tmp_path / "releases" / direct.row.key / "encoded.parquet"
    assert pq.read_schema(path).names[:2] == ["v0", "v1"]
