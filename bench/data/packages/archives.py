"""Takes named files out of the archive of a package: .whl, .zip, .tar.gz, .tgz and .deb.

Only regular files are taken, by their exact path: a link, a folder, a second entry of the same path
or a file that is larger than an archive of that size can hold is refused. Where a file is written
follows from the dataset's TOML, never from the archive.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import shutil
import stat
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast, final

from bench.data.files import DataFile, Member, Package, bounded, plausible_size
from bench.errors import DataError, ProgramMissingError

_DAMAGED = (
    EOFError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
_BLOCK = 1 << 20
_AR_MAGIC = b"!<arch>\n"


def take_members(
    package: Package, archive: Path, files: Mapping[str, DataFile], folder: Path
) -> list[Path]:
    """Write the package's members into the folder; all of them are right, or none is kept."""
    wanted = {member.path: member for member in package.members}
    written: dict[str, tuple[Path, Path]] = {}
    try:
        for path, content in _entries(archive, set(wanted)):
            member = wanted[path]
            if path in written:
                raise DataError(f"{archive.name}: holds {path} twice; refused")
            partial = folder / f".part-{member.file}"
            written[path] = partial, folder / member.file
            _copy(archive, member, content, files[member.file], partial)
        absent = [path for path in wanted if path not in written]
        if absent:
            raise DataError(f"{archive.name}: holds no {absent[0]}; another version?")
        for partial, target in written.values():
            partial.replace(target)
    except _DAMAGED as problem:
        raise DataError(
            f"{archive.name}: truncated or damaged ({problem}); run the command again"
        ) from None
    finally:
        for partial, _ in written.values():
            partial.unlink(missing_ok=True)
    return [target for _, target in written.values()]


def _copy(archive: Path, member: Member, content: IO[bytes], file: DataFile, partial: Path) -> None:
    most = plausible_size(archive.stat().st_size)
    if member.path.endswith(".gz") and not member.file.endswith(".gz"):
        content = cast("IO[bytes]", gzip.GzipFile(fileobj=content))
    source = bounded(content, archive, most, lines=False)
    digest = hashlib.sha256()
    with partial.open("wb") as out:
        while block := source.read(_BLOCK):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != file.sha256:
        raise DataError(
            f"{archive.name}: {member.path} is not the published {file.name} (checksum differs); "
            "nothing was kept"
        )


def _entries(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the wanted regular files of an archive, in its order."""
    if archive.name.endswith((".whl", ".zip")):
        yield from _zip_entries(archive, wanted)
    elif archive.name.endswith(".deb"):
        with _debian_tar(archive) as tar:
            yield from _tar_entries(archive, tar, wanted)
    else:
        with gzip.open(archive, "rb") as tar:
            yield from _tar_entries(archive, cast("IO[bytes]", tar), wanted)


def _zip_entries(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            if entry.filename not in wanted:
                continue
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if entry.is_dir() or kind not in (0, stat.S_IFREG) or entry.flag_bits & 1:
                raise _no_file(archive, entry.filename)
            with packed.open(entry) as content:
                yield entry.filename, content


def _tar_entries(
    archive: Path, tar: IO[bytes], wanted: set[str]
) -> Iterator[tuple[str, IO[bytes]]]:
    # All that is skipped is unpacked too, so that the whole is bounded.
    whole = bounded(tar, archive, plausible_size(archive.stat().st_size), lines=False)
    with tarfile.open(fileobj=whole, mode="r|") as packed:
        for entry in packed:
            path = entry.name.removeprefix("./")
            if path not in wanted:
                continue
            content = packed.extractfile(entry) if entry.isreg() else None
            if content is None:
                raise _no_file(archive, path)
            yield path, content


def _no_file(archive: Path, path: str) -> DataError:
    return DataError(f"{archive.name}: {path} is a link, a folder or encrypted, not a plain file")


@contextmanager
def _debian_tar(archive: Path) -> Iterator[IO[bytes]]:
    """Open the tar of the files of a Debian package: an `ar` archive with `data.tar.*` in it."""
    with archive.open("rb") as file:
        if file.read(len(_AR_MAGIC)) != _AR_MAGIC:
            raise DataError(f"{archive.name}: not a Debian package; run the command again")
        while len(header := file.read(60)) == 60:
            name = header[:16].decode("ascii", "replace").rstrip().removesuffix("/")
            size = header[48:58].strip()
            if not size.isdigit():
                break
            if name in ("data.tar.xz", "data.tar.gz"):
                part = cast("IO[bytes]", io.BufferedReader(_Part(file, int(size))))
                unpack = lzma.open if name.endswith("xz") else gzip.open
                with unpack(part, "rb") as tar:
                    yield cast("IO[bytes]", tar)
                return
            if name == "data.tar.zst":
                with _unpacked_by_dpkg(archive) as tar:
                    yield tar
                return
            file.seek(int(size) + int(size) % 2, 1)
    raise DataError(f"{archive.name}: truncated, or packed in an unknown way: no data.tar in it")


@final
class _Part(io.RawIOBase):
    """The next bytes of a file, as a file: what follows them is padding."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._file.read(min(len(buffer), self._left))
        buffer[: len(block)] = block
        self._left -= len(block)
        return len(block)


@contextmanager
def _unpacked_by_dpkg(archive: Path) -> Iterator[IO[bytes]]:
    """Zstandard is not in the standard library of this Python; dpkg's own program writes a tar."""
    program = shutil.which("dpkg-deb")
    if program is None:
        raise ProgramMissingError(
            f"{archive.name}: packed with zstd, which dpkg-deb unpacks, and dpkg-deb is not here"
        )
    with subprocess.Popen(
        [program, "--fsys-tarfile", str(archive)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()
