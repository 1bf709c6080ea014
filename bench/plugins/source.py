"""The contract of a dataset plugin: a public declaration beside a loader.

`FileSource` is for datasets whose files a user obtains: it says where they come from and whether
they are there.
"""

from __future__ import annotations

import importlib.util
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from bench.data.conform import Conformed, clipped_by
from bench.data.dataset import (
    Dataset,
    Declaration,
    check_split,
    declaration_from_toml,
    split_dataset,
)
from bench.data.files import Obtain, data_folder, find_file, fingerprint
from bench.errors import DataError


class DatasetSource(ABC):
    """A dataset plugin: a frozen dataclass of parameters with a loader.

    The declaration is read from the TOML file beside the module unless `declare` is overridden.
    """

    name: ClassVar[str]
    package: ClassVar[str] = ""
    """Import name of an optional package that brings the data."""

    def declare(self) -> Declaration:
        """Return the public facts, without reading a row."""
        return declaration_from_toml(self.toml_path())

    def toml_path(self) -> Path:
        """Return the TOML file beside the module of the plugin."""
        return Path(inspect.getfile(type(self))).with_suffix(".toml")

    @abstractmethod
    def load(self) -> pd.DataFrame:
        """Return the whole table, in the units of the schema."""

    def load_conformed(self) -> Conformed:
        """Return the table, and what was changed in it where rows contradicted the schema."""
        return Conformed(self.load(), ())

    def available(self) -> bool:
        """Return False when the package that brings the data is not installed."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def load_official_test(self) -> pd.DataFrame | None:
        """Return the official test rows, where the field uses fixed ones; `load` has the rest."""
        return None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of this source, for keys and result tables."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]


def build_dataset(source: DatasetSource, preset: str = "default", split_seed: int = 0) -> Dataset:
    """Load, split and encode a source."""
    declaration = source.declare()
    # Before loading: a typing mistake should not cost minutes.
    check_split(source.name, declaration, preset)
    loaded = source.load_conformed()
    dataset = split_dataset(
        source.name,
        declaration,
        loaded.frame,
        source.load_official_test(),
        parameters=source.parameters(),
        preset=preset,
        split_seed=split_seed,
    )
    if not loaded.adjustments:
        return dataset
    clipped = clipped_by(loaded.adjustments)
    return replace(
        dataset,
        adjusted=loaded.adjustments,
        clipped={name: count + clipped.get(name, 0) for name, count in dataset.clipped.items()},
    )


class FileSource(DatasetSource):
    """A dataset whose files the user puts into the data folder.

    The TOML file beside the module has an `[obtain]` table. `read` gets the path of every file
    that is there and returns the table in the units of the schema.
    """

    @abstractmethod
    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        """Return the table from its files; `paths` are those of the publisher's file names."""

    def load(self) -> pd.DataFrame:
        return self.read(self.paths())

    def obtain(self) -> Obtain:
        """Return how to obtain the files."""
        obtain = self.declare().obtain
        if obtain is None:
            raise DataError(f"dataset {self.name}: its TOML file lacks the [obtain] table")
        return obtain

    def paths(self) -> dict[str, Path]:
        """Return where each file is; the error for a missing one says how to obtain it."""
        obtain = self.obtain()
        paths = self._found(obtain)
        missing = self._missing(obtain, paths)
        if missing:
            get = f"run `bench data get {self.name}`, or " if obtain.packaged(missing[0]) else ""
            raise DataError(
                f"{missing[0]} is not in {data_folder() / obtain.folder}; {get}obtain it from "
                f"{obtain.publisher} ({obtain.page}; agreement: {obtain.agreement}) and see "
                "`bench data list`"
            )
        return paths

    def missing(self) -> tuple[str, ...]:
        """Return the names of required files that are not there."""
        obtain = self.obtain()
        return self._missing(obtain, self._found(obtain))

    def _found(self, obtain: Obtain) -> dict[str, Path]:
        folders = self._folders(obtain)
        found = {file.name: find_file(file.name, folders) for file in obtain.files}
        return {name: path for name, path in found.items() if path is not None}

    def _missing(self, obtain: Obtain, found: Mapping[str, Path]) -> tuple[str, ...]:
        """Return the required files of which neither they nor all of their stand-ins are there."""
        missing = []
        for file in obtain.files:
            others = [other.name for other in obtain.files if other.instead_of == file.name]
            replaced = bool(others) and all(other in found for other in others)
            if file.required and file.name not in found and not replaced:
                missing.append(file.name)
        return tuple(missing)

    def check(self) -> list[str]:
        """Return what differs from the published dataset; an empty list means nothing does."""
        obtain = self.obtain()
        declared = self.declare()
        paths = self.paths()
        differences: list[str] = []
        for file in obtain.files:
            path = paths.get(file.name)
            if path is None or not file.sha256:
                continue
            actual = fingerprint(path, file.name)
            if actual != file.sha256:
                differences.append(
                    f"{file.name}: fingerprint {actual[:12]} is not the published "
                    f"{file.sha256[:12]}: an altered or another version"
                )
        frame = self.load()
        label = declared.schema.label
        counts = tuple(int((frame[label.name].map(str) == c).sum()) for c in label.categories)
        if len(frame) != sum(declared.by_class):
            differences.append(f"{len(frame)} rows, expected {sum(declared.by_class)}")
        elif counts != declared.by_class:
            differences.append(f"rows by class {counts}, expected {declared.by_class}")
        return differences

    def _folders(self, obtain: Obtain) -> list[Path]:
        base = data_folder()
        return [base / obtain.folder, base]
