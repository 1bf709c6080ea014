"""`bench data get`: downloads what a publisher allows, with resume and checksum."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from bench.data.files import fingerprint
from bench.data.folder import data_folder
from bench.data.obtain import DataFile
from bench.errors import DataError
from bench.plugins import registry
from bench.plugins.source import FileSource

Show = Callable[[str, int, int | None], None]
"""Is told file, bytes done and bytes in all."""

_BLOCK = 1 << 16
_TIMEOUT_SECONDS = 30


def download_dataset(name: str, show: Show) -> Path:
    """Bring the missing files of a dataset into the data folder."""
    source = registry.build_source(name)
    if not isinstance(source, FileSource):
        raise DataError(f"{name} comes with an installed package or is simulated: nothing to get")
    obtain = source.obtain()
    closed = [file.name for file in obtain.files if not file.url and not file.optional]
    if closed:
        raise DataError(
            f"{name}: {closed[0]} cannot be downloaded directly; obtain it from "
            f"{obtain.publisher} ({obtain.page}; agreement: {obtain.agreement})"
        )
    folder = data_folder() / obtain.folder
    folder.mkdir(parents=True, exist_ok=True)
    missing = set(source.missing())
    for file in obtain.files:
        if file.name in missing:
            download(file, folder, show)
    return folder


def download(file: DataFile, folder: Path, show: Show) -> Path:
    """One file; an interrupted download goes on where it stopped."""
    # A packed file keeps its packing: loaders look inside.
    published = file.url.rsplit("/", 1)[-1].split("?")[0]
    packed = published.endswith((".gz", ".zip"))
    final_place = folder / (published if packed else file.name)
    if final_place.suffix == ".gz":
        final_place = folder / f"{file.name.removesuffix('.gz')}.gz"
    partial = folder / f".part-{final_place.name}"
    done = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(file.url)
    if not file.url.startswith(("https://", "http://127.0.0.1")):
        raise DataError(f"{file.url}: only https addresses are downloaded")
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            if done and answer.status != 206:
                done = 0  # the server does not resume: start again
            length = answer.headers.get("Content-Length")
            total = done + int(length) if length else None
            with partial.open("ab" if done else "wb") as out:
                while block := answer.read(_BLOCK):
                    out.write(block)
                    done += len(block)
                    show(file.name, done, total)
    except urllib.error.HTTPError as problem:
        if problem.code != 416:  # 416: everything was there already
            raise DataError(f"{file.url}: the server answered {problem.code}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as problem:
        reason = getattr(problem, "reason", problem)
        raise DataError(
            f"{file.url}: cannot be reached ({reason}); offline? Put {file.name} into {folder} "
            "by hand, or run the command again to resume"
        ) from None
    if file.sha256 and _unpacked_hash(partial, file.name) != file.sha256:
        partial.unlink()
        raise DataError(
            f"{file.url}: what came is not the published file (checksum differs); nothing was kept"
        )
    partial.replace(final_place)
    return final_place


def _unpacked_hash(path: Path, name: str) -> str:
    try:
        return fingerprint(path, name)
    except DataError:
        return "damaged"
