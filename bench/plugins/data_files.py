"""What `bench data` does with the files of datasets: list, check and download them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from bench.data.conform import ROW_LEFT_OUT
from bench.data.dataset import Dataset
from bench.data.files import DataFile, data_folder, fingerprint
from bench.errors import BenchError, DataError
from bench.plugins import registry
from bench.plugins.source import FileSource, build_dataset
from bench.plugins.user_tables import OwnTable


@final
@dataclass(frozen=True)
class DatasetCheck:
    """Result of checking one dataset."""

    good: bool
    lines: tuple[str, ...]


def listing(as_json: bool) -> str:
    """Return every dataset with its state and, where files are missing, how to obtain them."""
    rows = [_row(name) for name in registry.dataset_names()]
    if as_json:
        return json.dumps(rows, indent=1)
    lines = [f"data folder: {data_folder()}", ""]
    for row in rows:
        lines.append(f"{row['state']:<8} {row['name']:<20} {row['title']}")
        if row["state"] == "missing":
            lines += [f"{'':<30}{line}" for line in _remedy(row)]
    ready = sum(row["state"] == "ready" for row in rows)
    lines += ["", f"{ready} ready, {len(rows) - ready} not"]
    return "\n".join(lines)


def _remedy(row: dict[str, Any]) -> list[str]:
    """Return how to obtain what is missing."""
    if "files" not in row:
        return [f"needs {row['page']} (licence: {row['licence']})"]
    lines = [
        f"needs {row['folder']}/{', '.join(row['files'])}",
        f"from {row['publisher']}: {row['page']} (agreement: {row['agreement']}; licence: "
        f"{row['licence']})",
    ]
    if row["download"]:
        lines.append(f"or: bench data get {row['name']}")
    return lines


def _row(name: str) -> dict[str, Any]:
    try:
        source = registry.build_source(name)
        declared = source.declare()
    except BenchError as problem:
        return {"name": name, "state": "broken", "title": str(problem)}
    row: dict[str, Any] = {
        "name": name,
        "state": "ready",
        "title": declared.title,
        "task": declared.schema.task.value,
        "rows": sum(declared.by_class),
        "licence": declared.licence,
        "simulated": declared.simulated,
        "stands_for": declared.stands_for,
    }
    if isinstance(source, FileSource):
        obtain = source.obtain()
        missing = source.missing()
        row |= {
            "state": "missing" if missing else "ready",
            "folder": obtain.folder,
            "files": [file.name for file in obtain.files if not file.optional],
            "missing": list(missing),
            "publisher": obtain.publisher,
            "agreement": obtain.agreement,
            "page": obtain.page,
            "how": obtain.how,
            "download": all(file.url for file in obtain.files if not file.optional),
        }
    elif declared.extra and not source.available():
        row |= {
            "state": "missing",
            "publisher": declared.source,
            "page": f"pip install 'dp-release-bench[{declared.extra}]'",
            "agreement": "none",
            "download": False,
        }
    return row


def check_dataset(name: str) -> DatasetCheck:
    """Check files, fingerprints, columns, row counts and bounds: everything that can differ."""
    source = registry.build_source(name)
    lines: list[str] = []
    good = True
    if isinstance(source, FileSource):
        for path in source.paths().values():
            lines.append(f"found {path}")
        differences = source.check()
        good = not differences
        lines += [f"differs: {difference}" for difference in differences]
    dataset = build_dataset(source)
    lines += _facts(dataset)
    compared = "published"
    if isinstance(source, OwnTable):
        compared = "declared"
        # Rows that were left out when the counts were declared are still as declared.
        replaced = any(one.rule != ROW_LEFT_OUT for one in dataset.adjusted)
        good = not replaced and not dataset.differs
        lines += [f"differs: {dataset.differs}"] if dataset.differs else []
        lines += [f"by rule: {one.describe()}" for one in dataset.adjusted]
    lines.append(f"{name}: {'as' if good else 'NOT as'} {compared}")
    return DatasetCheck(good, tuple(lines))


def _facts(dataset: Dataset) -> list[str]:
    declared = dataset.declaration
    total = sum(declared.by_class)
    shares = ", ".join(
        f"{label} {count / total:.1%}"
        for label, count in zip(declared.schema.classes, declared.by_class, strict=True)
    )
    outside = {name: count for name, count in dataset.clipped.items() if count}
    lines = [
        f"{total} rows, {len(declared.schema.features)} features; {shares}",
        f"train {len(dataset.train)}, validation {len(dataset.validation)}, control "
        f"{len(dataset.control)}, test {len(dataset.test)}",
    ]
    if outside:
        worst = ", ".join(f"{name} {count}" for name, count in sorted(outside.items()))
        lines.append(f"values outside the public bounds, clipped: {worst}")
    return lines


# Downloads ----------------------------------------------------------------------------------------
#
# The package pooch does not fit here: it restarts an interrupted download from the beginning, and
# its checksum is that of the packed file, whereas publishers repack the same content.

ShowProgress = Callable[[str, int, int | None], None]
"""Called with the name of the file, the bytes done and the bytes in all."""

_BLOCK = 1 << 16
_TIMEOUT_SECONDS = 30
_ATTEMPTS = 3


def download_dataset(name: str, show: ShowProgress) -> Path:
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


def download(file: DataFile, folder: Path, show: ShowProgress) -> Path:
    """Download one file and verify its content; an interrupted download is resumed."""
    if not file.url.startswith(("https://", "http://127.0.0.1")):
        raise DataError(f"{file.url}: only https addresses are downloaded")
    # A packed file keeps its packing: loaders look inside.
    published = file.url.rsplit("/", 1)[-1].split("?")[0]
    target = folder / (published if published.endswith((".gz", ".zip")) else file.name)
    if target.suffix == ".gz":
        target = folder / f"{file.name.removesuffix('.gz')}.gz"
    partial = folder / f".part-{target.name}"
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _fetch(file, partial, show)
            break
        except urllib.error.HTTPError as problem:
            raise DataError(f"{file.url}: the server answered {problem.code}") from None
        except (urllib.error.URLError, TimeoutError, ConnectionError) as problem:
            if attempt < _ATTEMPTS and partial.exists():
                continue  # the connection broke: resume
            raise DataError(
                f"{file.url}: cannot be reached ({getattr(problem, 'reason', problem)}); offline? "
                f"Put {file.name} into {folder} by hand, or run the command again to resume"
            ) from None
    if file.sha256 and _content_hash(partial, file.name) != file.sha256:
        partial.unlink()
        raise DataError(
            f"{file.url}: what came is not the published file (checksum differs); nothing was kept"
        )
    partial.replace(target)
    return target


def _fetch(file: DataFile, partial: Path, show: ShowProgress) -> None:
    """Append what is missing to the partial file."""
    done = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(file.url)
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as problem:
        if done and problem.code == 416:
            return  # everything was there already
        raise
    with answer:
        if answer.status != 206:
            done = 0  # the server does not resume: start again
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length else None
        with partial.open("ab" if done else "wb") as out:
            while block := answer.read(_BLOCK):
                out.write(block)
                done += len(block)
                show(file.name, done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def _content_hash(path: Path, name: str) -> str:
    try:
        return fingerprint(path, name)
    except DataError:
        return "damaged"
