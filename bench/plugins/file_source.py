"""Datasets that live in files a user obtains: where they come from, whether they are there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bench.data.dataset import DatasetSource
from bench.data.files import find_file, fingerprint, open_data
from bench.data.folder import data_folder
from bench.data.obtain import Obtain
from bench.errors import DataError


class FileSource(DatasetSource):
    """A dataset whose files the user puts into the data folder.

    The TOML file beside the module has an `[obtain]` table. `read` gets the path of every file
    that is there and gives the table in the units of the schema.
    """

    @abstractmethod
    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        """The table from its files; `paths` maps the publisher's file names to where they are."""

    def load(self) -> pd.DataFrame:
        return self.read(self.paths())

    def obtain(self) -> Obtain:
        """How to get the files."""
        obtain = self.declare().obtain
        if obtain is None:
            raise DataError(f"dataset {self.name}: its TOML file lacks the [obtain] table")
        return obtain

    def paths(self) -> dict[str, Path]:
        """Where each file is; a missing one is answered with how to get it."""
        obtain = self.obtain()
        found: dict[str, Path] = {}
        for file in obtain.files:
            path = find_file(file.name, self._folders(obtain))
            if path is not None:
                found[file.name] = path
            elif not file.optional:
                raise DataError(
                    f"{file.name} is not in {data_folder() / obtain.folder}; obtain it from "
                    f"{obtain.publisher} ({obtain.page}; agreement: {obtain.agreement}) and see "
                    "`bench data list`"
                )
        return found

    def missing(self) -> tuple[str, ...]:
        """Names of required files that are not there."""
        obtain = self.obtain()
        folders = self._folders(obtain)
        return tuple(
            file.name
            for file in obtain.files
            if not file.optional and find_file(file.name, folders) is None
        )

    def check(self) -> list[str]:
        """What differs from the published dataset; an empty list means nothing does."""
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


def file_bytes(paths: Mapping[str, Path], name: str) -> bytes:
    """The whole unpacked content of one file."""
    with open_data(paths[name], name) as file:
        return file.read()
