"""Data files: how a user obtains them, where they are put, and how they are read.

Light, without pandas until a table is read: the registry asks for the data folder.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, final

from bench.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

DATA_VARIABLE = "BENCH_DATA"

_DAMAGED = (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error)


@final
@dataclass(frozen=True)
class DataFile:
    """One file of a dataset, as its publisher names it (packed as .gz or in a .zip is fine)."""

    name: str
    sha256: str = ""
    """SHA-256 of the unpacked content; empty where the file has not been seen (closed data)."""
    url: str = ""
    """Only where the publisher allows direct download without an agreement."""
    optional: bool = False


@final
@dataclass(frozen=True)
class Obtain:
    """How an authorised person obtains the files of a dataset: public facts of its TOML file."""

    publisher: str
    agreement: str
    """What must be signed or agreed to; `none` for open data."""
    page: str
    how: str
    folder: str
    """Folder below the data folder where the files are looked for first."""
    files: tuple[DataFile, ...]


def obtain_from_table(table: Mapping[str, Any]) -> Obtain:
    """Read the `[obtain]` table of a dataset's TOML file."""
    return Obtain(
        publisher=table["publisher"],
        agreement=table.get("agreement", "none"),
        page=table["page"],
        how=table["how"],
        folder=table["folder"],
        files=tuple(DataFile(**entry) for entry in table["files"]),
    )


def data_folder() -> Path:
    """Return the folder of a user's data files: $BENCH_DATA (set by `--data-dir`) or the cache."""
    named = os.environ.get(DATA_VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "dp-release-bench" / "data"


def user_table_files() -> Mapping[str, Path]:
    """Return the TOML files of the user's own tables by name, as `bench data add` wrote them."""
    folder = data_folder() / "own"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))} if folder.is_dir() else {}


def find_file(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the path of the file, of the same with .gz appended, or of a zip that holds it."""
    for folder in folders:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    for folder in folders:
        if folder.is_dir():
            for archive in sorted(folder.glob("*.zip")):
                if not archive.name.startswith(".") and _member(archive, name) is not None:
                    return archive
    return None


def _member(archive: Path, name: str) -> str | None:
    try:
        with zipfile.ZipFile(archive) as file:
            inside = [entry for entry in file.namelist() if Path(entry).name == name]
    except (*_DAMAGED, OSError):
        return None
    return inside[0] if inside else None


@contextmanager
def open_data(path: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a data file as bytes, whether plain, gzip or in a zip; damage is reported as such."""
    try:
        if path.suffix == ".gz" and name != path.name:
            with gzip.open(path, "rb") as file:
                yield file  # type: ignore[misc]
        elif path.suffix == ".zip" and name != path.name:
            member = _member(path, name)
            if member is None:
                raise DataError(f"{path}: holds no {name}")
            with zipfile.ZipFile(path) as archive, archive.open(member) as inner:
                yield inner
        else:
            with path.open("rb") as plain:
                yield plain
    except _DAMAGED as problem:
        raise DataError(
            f"{path}: truncated or damaged ({problem}); obtain the file again"
        ) from None
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from None


def read_bytes(path: Path, name: str) -> bytes:
    """Return the whole unpacked content of a data file."""
    with open_data(path, name) as file:
        return file.read()


def fingerprint(path: Path, name: str) -> str:
    """Return the SHA-256 of the unpacked content, so that packing does not matter."""
    digest = hashlib.sha256()
    with open_data(path, name) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_csv(
    path: Path,
    name: str | None = None,
    *,
    separator: str = ",",
    columns: Iterable[str] | None = None,
    names: Sequence[str] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Read delimited text as UTF-8; what is wrong with it is said in one line.

    `columns` must all be there (the file may hold more); `names` are for files without a header.
    """
    import pandas as pd

    name = name or path.name.removesuffix(".gz")
    with open_data(path, name) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            if names is None:
                _check_header(path, text.readline(), separator, columns)
                text.seek(0)
            frame: pd.DataFrame = pd.read_csv(
                text,
                sep=separator,
                names=None if names is None else list(names),
                header=None if names else 0,
                **options,
            )
        except UnicodeDecodeError as problem:
            raise DataError(
                f"{path}: not UTF-8 text (byte {problem.start}); convert it, for example with "
                "`iconv -f latin1 -t utf-8`"
            ) from None
        except pd.errors.ParserError as problem:
            raise DataError(f"{path}: not a regular table ({str(problem).strip()})") from None
        except pd.errors.EmptyDataError:
            raise DataError(f"{path}: the file is empty") from None
    if frame.empty:
        raise DataError(f"{path}: a header and no rows")
    return frame


def _check_header(path: Path, line: str, separator: str, columns: Iterable[str] | None) -> None:
    if not line.strip():
        raise DataError(f"{path}: the file is empty")
    present = next(csv.reader([line.lstrip("\ufeff")], delimiter=separator, skipinitialspace=True))
    doubled = sorted({column for column in present if present.count(column) > 1})
    if doubled:
        raise DataError(f"{path}: the column {doubled[0]!r} is there twice; rename one")
    wanted = list(columns or ())
    missing = [column for column in wanted if column not in present]
    if not missing:
        return
    other = next((mark for mark in ",;\t|" if mark != separator and line.count(mark) > 1), None)
    if len(present) == 1 and other is not None:
        raise DataError(
            f"{path}: one column only; the separator seems to be {other!r}, expected {separator!r}"
        )
    near = difflib.get_close_matches(missing[0], present, n=1)
    hint = f" (found {near[0]!r}: renamed?)" if near else ""
    raise DataError(
        f"{path}: {len(missing)} expected columns are missing, first {missing[0]!r}{hint}"
    )
