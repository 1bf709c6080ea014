"""Datasets: a public declaration and a table that is split before neighbours are defined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.conform import Adjustment
from bench.data.encoder import EncodedRows, Encoder, category_codes
from bench.data.files import Obtain, obtain_from_table
from bench.data.schema import Schema, Task, read_toml, schema_from_table
from bench.errors import DataError, InputError, PrivacyContractError, SchemaError

SPLITS = ("train", "validation", "control", "test")

PRESETS: Mapping[str, tuple[float, float, float]] = {
    "default": (0.10, 0.10, 0.20),
    # The zero-order paper's 70/10/20: no rows are left for a control, the test rows stand in.
    "paper": (0.10, 0.0, 0.20),
}
"""Shares of validation, control and test rows; training rows are the rest."""

SITE_PRESET = "site:"
"""`site:<name>` trains on one site and tests on all: the rows of that site are split as by
`default`, those of all other sites are test rows."""


def check_preset(preset: str) -> None:
    """Refuse a split preset that does not exist."""
    if preset not in PRESETS and not preset.startswith(SITE_PRESET):
        raise InputError(
            f"unknown split preset {preset!r}; known: {', '.join(sorted(PRESETS))}, and "
            f"{SITE_PRESET}<name> for datasets with sites"
        )


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
    simulated: bool = False
    stands_for: str = ""
    """The closed dataset of a paper that this open or simulated one stands in for."""
    extra: str = ""
    """The extra of this distribution that brings the data, where it is not in the core."""
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
            simulated=bool(table.get("simulated", False)),
            stands_for=table.get("stands_for", ""),
            extra=table.get("extra", ""),
            obtain=obtain_from_table(table["obtain"]) if "obtain" in table else None,
        )
    except KeyError as missing:
        raise SchemaError(f"{where}: lacks the key {missing}") from None


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
    def home(self) -> str | None:
        """The only site that training rows come from, under a preset `site:<name>`."""
        return _home(self.preset)


def check_split(name: str, declaration: Declaration, preset: str) -> None:
    """Refuse a split preset that does not exist, or a site that the dataset does not have."""
    check_preset(preset)
    home = _home(preset)
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
    home = _home(preset)
    frame = frame.reset_index(drop=True)
    if frame.empty:
        raise DataError(f"dataset {name}: no rows")
    generator = np.random.default_rng(
        np.random.SeedSequence([_number(f"split/{name}/{preset}"), split_seed])
    )
    encoder = Encoder(declaration.schema)
    strata = _strata(frame, declaration.schema)
    members = _assign(strata, preset, official is not None, generator)
    if home is not None and declaration.schema.site is not None:
        members[frame[declaration.schema.site.name].astype(str).to_numpy() != home] = "test"
    positions = generator.random(len(frame))
    clipped: dict[str, int] = dict.fromkeys((block.column.name for block in encoder.blocks), 0)
    splits: dict[str, Split] = {}
    for split in SPLITS:
        chosen = members == split
        part = frame[chosen].reset_index(drop=True)
        where = positions[chosen]
        if split == "test" and official is not None:
            part, where = official.reset_index(drop=True), generator.random(len(official))
        rows, outside = encoder.encode(part, where)
        splits[split] = Split(part, rows)
        for column, count in outside.items():
            clipped[column] += count
    if preset == "paper":
        splits["control"] = splits["test"]
    return Dataset(
        name=name,
        declaration=declaration,
        preset=preset,
        split_seed=split_seed,
        parameters=parameters or {},
        encoder=encoder,
        **splits,
        counts=_declared_counts(declaration, preset, official is not None, "train"),
        validation_counts=_declared_counts(declaration, preset, official is not None, "validation"),
        fingerprint=_fingerprint(
            [name, dict(parameters or {}), preset, split_seed, repr(_without_texts(declaration))],
            frame,
            official,
        ),
        adjusted=(),
        clipped=clipped,
        differs=_differs(declaration, strata % len(declaration.by_class)),
    )


def split_sizes(rows: int, preset: str, official_test: bool) -> dict[str, int]:
    """Rows of a stratum in each split: a public formula, the same for every seed."""
    validation, control, test = PRESETS["default" if _home(preset) else preset]
    if official_test:
        rest = 1.0 - test
        validation, control, test = validation / rest, control / rest, 0.0
    sizes = {
        "validation": round(rows * validation),
        "control": round(rows * control),
        "test": round(rows * test),
    }
    return {"train": rows - sum(sizes.values()), **sizes}


def _home(preset: str) -> str | None:
    return preset.removeprefix(SITE_PRESET) if preset.startswith(SITE_PRESET) else None


def _assign(
    strata: npt.NDArray[np.int64], preset: str, official_test: bool, rng: np.random.Generator
) -> npt.NDArray[np.str_]:
    members = np.empty(len(strata), dtype="<U10")
    for stratum in np.unique(strata):
        order = rng.permutation(np.flatnonzero(strata == stratum))
        start = 0
        for split, size in split_sizes(len(order), preset, official_test).items():
            members[order[start : start + size]] = split
            start += size
    return members


def _strata(frame: pd.DataFrame, schema: Schema) -> npt.NDArray[np.int64]:
    for column in (schema.label, schema.site):
        if column is not None and column.name not in frame.columns:
            raise SchemaError(
                f"the table lacks the column {column.name!r} that its schema declares"
            )
    codes = category_codes(frame[schema.label.name], schema.label)
    if schema.site is not None:
        sites = category_codes(frame[schema.site.name], schema.site)
        codes = codes + len(schema.classes) * sites
    return codes


def _declared_counts(
    declaration: Declaration, preset: str, official_test: bool, split: str
) -> Counts:
    def share(rows: int) -> int:
        return split_sizes(rows, preset, official_test)[split]

    home = _home(preset)
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


def _differs(declaration: Declaration, labels: npt.NDArray[np.int64]) -> str:
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


def _fingerprint(facts: list[Any], frame: pd.DataFrame, official: pd.DataFrame | None) -> str:
    digest = hashlib.sha256()
    digest.update(json.dumps(facts).encode())
    for table in (frame, official):
        if table is not None:
            digest.update(json.dumps(list(map(str, table.columns))).encode())
            digest.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
    return digest.hexdigest()


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
