"""Reading data files that people obtained somewhere: plain, gzip or zip, and what goes wrong."""

from __future__ import annotations

import csv
import difflib
import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pandas as pd

from bench.errors import DataError

_DAMAGED = (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error)


def find_file(name: str, folders: Sequence[Path]) -> Path | None:
    """The file, or the same with .gz behind it, or a zip that holds it, in one of the folders."""
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
    """The bytes of a data file, whatever it is packed in; damage is named."""
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


def fingerprint(path: Path, name: str) -> str:
    """SHA-256 of the unpacked content, so that packing does not matter."""
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
    """Read delimited text as UTF-8, refusing in one line whatever is wrong with it.

    `columns` must all be there (the file may hold more); `names` are for files without a header.
    """
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
    found = next(csv.reader([line.lstrip("\ufeff")], delimiter=separator, skipinitialspace=True))
    doubled = sorted({column for column in found if found.count(column) > 1})
    if doubled:
        raise DataError(f"{path}: the column {doubled[0]!r} is there twice; rename one")
    wanted = list(columns or ())
    missing = [column for column in wanted if column not in found]
    if not missing:
        return
    other = next((mark for mark in ",;\t|" if mark != separator and line.count(mark) > 1), None)
    if len(found) == 1 and other is not None:
        raise DataError(
            f"{path}: one column only; the separator seems to be {other!r}, expected {separator!r}"
        )
    near = difflib.get_close_matches(missing[0], found, n=1)
    hint = f" (found {near[0]!r}: renamed?)" if near else ""
    raise DataError(
        f"{path}: {len(missing)} expected columns are missing, first {missing[0]!r}{hint}"
    )
