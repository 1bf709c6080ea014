"""How the files of a dataset are obtained: public facts of its TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class DataFile:
    """One file of a dataset, as its publisher names it (packed as .gz or in a .zip is fine)."""

    name: str
    sha256: str = ""
    """Of the unpacked content; empty where nobody here has seen the file (closed data)."""
    url: str = ""
    """Only where the publisher allows direct download without an agreement."""
    optional: bool = False


@final
@dataclass(frozen=True)
class Obtain:
    """How an authorised person gets the files."""

    publisher: str
    agreement: str
    """What must be signed or agreed to; `none` for open data."""
    page: str
    how: str
    folder: str
    """Folder below the data folder where the files are looked for first."""
    files: tuple[DataFile, ...]


def obtain_from_table(table: Mapping[str, Any]) -> Obtain:
    """The `[obtain]` table of a dataset's TOML file."""
    return Obtain(
        publisher=table["publisher"],
        agreement=table.get("agreement", "none"),
        page=table["page"],
        how=table["how"],
        folder=table["folder"],
        files=tuple(DataFile(**entry) for entry in table["files"]),
    )
