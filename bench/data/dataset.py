"""Datasets: a public declaration and a table, split so that each row is assigned by itself.

`splits.py` has the rule and why neighbouring tables stay neighbours.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.conform import Adjustment
from bench.data.encoder import EncodedRows, Encoder
from bench.data.files import Obtain, obtain_from_table
from bench.data.schema import Numeric, Schema, Task, read_toml, schema_from_table
from bench.data.splits import (
    SITE_PRESET,
    SPLITS,
    TUNING,
    assign_splits,
    check_preset,
    content_counts,
    expected_sizes,
    fixed_positions,
    home_site,
    identity_hashes,
    split_key,
)
from bench.errors import DataError, InputError, PrivacyContractError, SchemaError


@final
@dataclass(frozen=True)
class Declaration:
    """What is publicly declared about a dataset: the content of its TOML file."""

    title: str
    schema: Schema
    by_class: tuple[int, ...]
    """Rows of each class in the whole table."""
    by_site_class: Mapping[str, tuple[int, ...]]
    licence: str
    citation: str
    source: str
    unit: str = "row"
    id: str = ""
    """Column that identifies a row or a patient: the split follows from it, and no method sees it.
    Without one a row is identified by its content."""
    simulated: bool = False
    stands_for: str = ""
    """The closed dataset of a paper that this open or simulated one stands in for."""
    extra: str = ""
    """The extra of this distribution that brings the data, where it is not in the core."""
    arm: str = field(default="", repr=False)
    """Column with the arm of a trial: its first category is compared with all others."""
    obtain: Obtain | None = None
    """How to get the files, where they are not in an installed package."""


def declaration_from_toml(path: Path) -> Declaration:
    """Read the TOML file of a dataset."""
    return declaration_from_table(read_toml(path), str(path))


def declaration_from_table(table: Mapping[str, Any], where: str) -> Declaration:
    """Make a declaration from a parsed TOML file; many similar columns are added before."""
    try:
        counts = table["counts"]
        return Declaration(
            title=table["title"],
            schema=schema_from_table(table),
            by_class=tuple(counts["by_class"]),
            by_site_class={site: tuple(c) for site, c in counts.get("by_site_class", {}).items()},
            licence=table["licence"],
            citation=table["citation"],
            source=table["source"],
            unit=table.get("unit", "row"),
            id=table.get("id", ""),
            simulated=bool(table.get("simulated", False)),
            stands_for=table.get("stands_for", ""),
            extra=table.get("extra", ""),
            arm=_arm(table, where),
            obtain=obtain_from_table(table["obtain"]) if "obtain" in table else None,
        )
    except KeyError as missing:
        raise SchemaError(f"{where}: lacks the key {missing}") from None


def _arm(table: Mapping[str, Any], where: str) -> str:
    """Return the column of the arms, which must be a category that methods see."""
    name = table.get("arm", "")
    if name and table["columns"].get(name, {}).get("kind") != "categorical":
        raise SchemaError(f"{where}: arm = {name!r}; expected the name of a categorical column")
    return str(name)


@final
@dataclass(frozen=True)
class Counts:
    """Numbers of training rows that everybody is assumed to know.

    Constants of the dataset's file, the same for both neighbours and in both worlds of an audit:
    the guarantee is conditional on them. Under `--private-counts` they are paid for instead.
    `by_class` follows the schema's class order.
    """

    total: int
    by_class: tuple[int, ...]
    by_site: Mapping[str, int] = field(default_factory=dict)
    by_site_class: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    paid: bool = False
    """True when the counts were answered with noise instead of declared."""

    def part(self, key: str, name: str, classes: tuple[str, ...], parts: int) -> Counts:
        """Return the counts of one part: declared by class or site, an even share otherwise."""
        none = tuple(0 for _ in self.by_class)
        if key == "class":
            code = classes.index(name)
            only = self.by_class[code]
            return Counts(only, (*none[:code], only, *none[code + 1 :]), paid=self.paid)
        if key == "site":
            if name not in self.by_site:
                raise PrivacyContractError(
                    f"the dataset declares no count for site {name!r}; declare it in its file"
                )
            return Counts(self.by_site[name], self.by_site_class.get(name, none), paid=self.paid)
        share = [max(1, round(count / parts)) for count in self.by_class]
        return Counts(max(1, round(self.total / parts)), tuple(share), paid=self.paid)


@final
@dataclass(frozen=True)
class Split:
    """Rows of one split, in the units of the schema and encoded."""

    frame: pd.DataFrame
    rows: EncodedRows
    ids: pd.Series | None = None
    """Entries of the declared id column, which is not in `frame`."""

    def __len__(self) -> int:
        return len(self.rows)


@final
@dataclass(frozen=True)
class Dataset:
    """A table, split and encoded. Methods see it through `PrivateData` only."""

    name: str
    declaration: Declaration
    preset: str
    split_seed: int
    parameters: Mapping[str, Any]
    encoder: Encoder
    train: Split
    validation: Split
    control: Split
    """Never shown to a method: attacks use these rows as non-members."""
    test: Split
    counts: Counts
    """Public by declaration: training rows, also by class and by site."""
    validation_counts: Counts
    """Public counts of the validation rows."""
    official_test: bool
    """True where the test rows are fixed by the field, and no part of the table that is split."""
    fingerprint: str
    clipped: Mapping[str, int]
    """How many values lay outside the public bounds: non-private, for the evaluator only."""
    differs: str
    """How the rows differ from the declared counts, if they do: for the evaluator only."""
    adjusted: tuple[Adjustment, ...] = ()
    """What public rules changed in a user's table: non-private, for the evaluator only."""

    @property
    def schema(self) -> Schema:
        """Public schema."""
        return self.declaration.schema

    @property
    def task(self) -> Task:
        """What is predicted."""
        return self.schema.task

    @property
    def training_class_counts(self) -> tuple[int, ...]:
        """Rows of each class among the training rows: non-private, for the evaluator only."""
        counts = np.bincount(self.train.rows.labels, minlength=len(self.schema.classes))
        return tuple(counts.tolist())

    @property
    def home(self) -> str | None:
        """The only site that training rows come from, under a preset `site:<name>`."""
        return home_site(self.preset)


def check_split(name: str, declaration: Declaration, preset: str) -> None:
    """Refuse a split preset that does not exist, or a site that the dataset does not have."""
    check_preset(preset)
    home = home_site(preset)
    if home is None:
        return
    if declaration.schema.site is None or not declaration.by_site_class:
        raise InputError(
            f"dataset {name}: split {SITE_PRESET}{home} needs declared sites, it has none"
        )
    if home not in declaration.by_site_class:
        raise InputError(
            f"dataset {name}: no site {home!r}; known: {', '.join(declaration.by_site_class)}"
        )


def split_dataset(
    name: str,
    declaration: Declaration,
    frame: pd.DataFrame,
    official: pd.DataFrame | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    preset: str = "default",
    split_seed: int = 0,
) -> Dataset:
    """Split and encode a table; `official` holds the test rows where the field uses fixed ones."""
    check_split(name, declaration, preset)
    frame = frame.reset_index(drop=True)
    if frame.empty:
        raise DataError(f"dataset {name}: no rows")
    encoder = Encoder(declaration.schema)
    key = split_key(name, preset, split_seed)
    whole, hashes, clipped = _encoded(frame, declaration, encoder, key)
    members = _assigned(whole, hashes, declaration, preset, official is not None)
    splits = {split: _taken(whole, members == split) for split in SPLITS}
    if official is not None:
        splits["test"], _, outside = _encoded(
            official.reset_index(drop=True), declaration, encoder, key
        )
        clipped = {column: count + outside[column] for column, count in clipped.items()}
    if preset == "paper":
        splits["control"] = splits["test"]
    if preset == TUNING:
        scored = splits["validation"].rows.positions >= 0.5
        splits["test"] = _taken(splits["validation"], scored)
        splits["validation"] = _taken(splits["validation"], ~scored)
    return Dataset(
        name=name,
        declaration=declaration,
        preset=preset,
        split_seed=split_seed,
        parameters=parameters or {},
        encoder=encoder,
        train=splits["train"],
        validation=splits["validation"],
        control=splits["control"],
        test=splits["test"],
        counts=_declared_counts(declaration, preset, official is not None, "train"),
        validation_counts=_declared_counts(declaration, preset, official is not None, "validation"),
        official_test=official is not None,
        fingerprint=_fingerprint(
            [
                *(name, dict(parameters or {}), preset, split_seed),
                repr(_without_texts(declaration)),
                # Only where there is one: fingerprints are older than this declaration.
                *([can_be_missing] if (can_be_missing := _can_be_missing(declaration)) else []),
                *([f"arm {declaration.arm}"] if declaration.arm else []),
            ],
            frame,
            official,
        ),
        adjusted=(),
        clipped=clipped,
        differs=_differs(declaration, whole.rows.labels),
    )


def with_rows(dataset: Dataset, more: pd.DataFrame) -> Dataset:
    """Return the dataset of the same table with more rows, by everything that is done to a table.

    `more` holds the columns of the schema, and the id column where one is declared.
    """
    declaration = dataset.declaration
    tables = [_with_ids(split, declaration) for split in _table_splits(dataset)]
    return split_dataset(
        dataset.name,
        declaration,
        pd.concat([*tables, more], ignore_index=True),
        _with_ids(dataset.test, declaration) if dataset.official_test else None,
        parameters=dataset.parameters,
        preset=dataset.preset,
        split_seed=dataset.split_seed,
    )


def rule_of_new_rows(dataset: Dataset) -> Callable[[pd.DataFrame], str]:
    """Return the function that says which split a new row, a table of one row, would get."""
    declaration = dataset.declaration
    key = split_key(dataset.name, dataset.preset, dataset.split_seed)
    present: Counter[bytes] = Counter()
    if not declaration.id:
        for split in _table_splits(dataset):
            present += content_counts(split.rows, key)

    def rule(row: pd.DataFrame) -> str:
        table, hashes, _ = _encoded(row, declaration, dataset.encoder, key, present)
        members = _assigned(table, hashes, declaration, dataset.preset, dataset.official_test)
        return str(members[0])

    return rule


def _table_splits(dataset: Dataset) -> list[Split]:
    """Return the splits that together are the table."""
    if dataset.preset == TUNING:
        raise DataError(
            f"dataset {dataset.name}: preset {TUNING} leaves rows out, so that no row can be added "
            "to its table; use preset default"
        )
    names = [
        split
        for split in SPLITS
        if not (split == "control" and dataset.preset == "paper")
        and not (split == "test" and dataset.official_test)
    ]
    return [getattr(dataset, name) for name in names]


def _assigned(
    table: Split,
    hashes: npt.NDArray[np.uint64],
    declaration: Declaration,
    preset: str,
    official_test: bool,
) -> npt.NDArray[np.str_]:
    members = assign_splits(hashes, preset, official_test)
    home = home_site(preset)
    if home is not None and declaration.schema.site is not None:
        members[table.rows.sites != declaration.schema.site.categories.index(home)] = "test"
    return members


def _encoded(
    frame: pd.DataFrame,
    declaration: Declaration,
    encoder: Encoder,
    key: bytes,
    before: Mapping[bytes, int] | None = None,
) -> tuple[Split, npt.NDArray[np.uint64], Mapping[str, int]]:
    """Return a whole table with positions, the hashes of its rows, and the counts of clipping."""
    ids = None
    if declaration.id:
        if declaration.id not in frame.columns:
            raise SchemaError(f"the table lacks the column {declaration.id!r}, its declared id")
        ids, frame = frame[declaration.id], frame.drop(columns=declaration.id)
    rows, clipped = encoder.encode(frame)
    hashes = identity_hashes(rows, ids, key, before)
    placed = EncodedRows(rows.values, rows.labels, rows.sites, fixed_positions(hashes))
    return Split(frame, placed, ids), hashes, clipped


def _taken(whole: Split, chosen: npt.NDArray[np.bool_]) -> Split:
    ids = None if whole.ids is None else whole.ids[chosen].reset_index(drop=True)
    return Split(whole.frame[chosen].reset_index(drop=True), whole.rows.take(chosen), ids)


def _with_ids(split: Split, declaration: Declaration) -> pd.DataFrame:
    return split.frame if split.ids is None else split.frame.assign(**{declaration.id: split.ids})


def _declared_counts(
    declaration: Declaration, preset: str, official_test: bool, split: str
) -> Counts:
    def share(rows: int) -> int:
        return expected_sizes(rows, preset, official_test)[split]

    home = home_site(preset)
    if declaration.by_site_class:
        by_site_class = {
            site: tuple(share(rows) if home in (None, site) else 0 for rows in by_class)
            for site, by_class in declaration.by_site_class.items()
        }
        by_class = tuple(sum(column) for column in zip(*by_site_class.values(), strict=True))
        by_site = {site: sum(counts) for site, counts in by_site_class.items()}
        return Counts(sum(by_class), by_class, by_site, by_site_class)
    by_class = tuple(share(rows) for rows in declaration.by_class)
    return Counts(sum(by_class), by_class)


def _differs(declaration: Declaration, labels: npt.NDArray[np.integer]) -> str:
    actual = tuple(np.bincount(labels, minlength=len(declaration.by_class)).tolist())
    if actual == declaration.by_class:
        return ""
    return f"rows by class {actual}, declared {declaration.by_class}: see `bench data check`"


def _without_texts(declaration: Declaration) -> Declaration:
    """Return what can change a result: a corrected citation is the same dataset."""
    columns = tuple(
        replace(column, description="", source="") for column in declaration.schema.columns
    )
    return replace(
        declaration,
        schema=replace(declaration.schema, columns=columns),
        title="",
        licence="",
        citation="",
        source="",
        stands_for="",
        extra="",
        obtain=None,
    )


def _can_be_missing(declaration: Declaration) -> list[str]:
    columns = declaration.schema.columns
    return [one.name for one in columns if isinstance(one, Numeric) and one.missing]


def _fingerprint(facts: list[Any], frame: pd.DataFrame, official: pd.DataFrame | None) -> str:
    digest = hashlib.sha256()
    digest.update(json.dumps(facts).encode())
    for table in (frame, official):
        if table is not None:
            digest.update(json.dumps(list(map(str, table.columns))).encode())
            digest.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
    return digest.hexdigest()
