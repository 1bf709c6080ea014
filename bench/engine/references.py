"""References kept for a whole run: what metrics compute from the real rows alone.

`Evaluation.reference` builds a value once per process. Within a run, all worker processes that
reach the run directory share these values through one folder in it:

* A file is named by a hash of the rows of the dataset, the purpose, what the code that builds the
  value does (`bench.engine.code`), and the versions of the libraries.
* It is created by an atomic rename, and one process builds while the others wait for it. A process
  that waits too long, or finds a file damaged, builds the value itself.
* A value is the same, to the byte, whether it was built or read: what was built is taken apart and
  put together as if it had been read.

The files hold arrays and JSON, nothing pickled. They follow from private rows: predictions about
them, distances between them. The folder is the owner's alone, its name is random, and it is removed
when the run ends; after a run that was killed, by the next one that opens the run directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import os
import secrets
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast, final

import numpy as np

from bench.engine.code import plugin_closure
from bench.engine.keys import versions
from bench.errors import InputError, StoreError
from bench.plugins.metric import keeping_references
from bench.plugins.reference_values import Parts, put_together, taken_apart
from bench.results.opening import open_file, open_to_write
from bench.results.writing import make_folder, replacing, writing

T = TypeVar("T")

_PREFIX = "references-"
_FORMAT = 1

WORTH_KEEPING = 0.1
"""Processor seconds below which building a value again is as good as reading it."""

LARGEST = 64 << 20
"""Bytes of a value that is kept: reading more takes as long as building most of them."""

_WAIT_SECONDS = 600.0
_LOOK_SECONDS = 0.02

_NO_PLACE = (OSError, StoreError)
"""What a full disk or a folder that is gone raise: references are then built per process."""


@contextlib.contextmanager
def references_folder(directory: Path) -> Iterator[Path]:
    """Provide the folder of a run in its directory, which this process holds; remove it at the end.

    What an earlier run left behind is removed as well.
    """
    for left in directory.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    # A random name: on another machine, a folder of this name is the same folder.
    folder = directory / f"{_PREFIX}{secrets.token_hex(16)}"
    with writing(folder):
        make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def shared_references(folder: str) -> Iterator[None]:
    """Share references through this folder where it is reached from here, otherwise with nobody."""
    if not folder or not Path(folder).is_dir():
        yield
        return
    with keeping_references(KeptReferences(Path(folder))):
        yield


@final
class KeptReferences:
    """References in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self, dataset: bytes, purpose: str, build: Callable[..., T], make: Callable[[], T]
    ) -> T:
        """Return what is kept for a purpose; otherwise make it, and keep it if it is worth it.

        `build` is the function whose code the value follows from.
        """
        key = _key(dataset, purpose, build)
        if key is None:
            return make()
        for found in self._read(key):
            return cast(T, found)
        with self._only_builder(key):
            for found in self._read(key):
                return cast(T, found)
            started = time.process_time()
            value = make()
            if time.process_time() - started >= WORTH_KEEPING:
                self._write(key, value)
            return value

    @contextlib.contextmanager
    def _only_builder(self, key: str) -> Iterator[None]:
        """Wait while another process builds the same; build as well where that takes too long.

        A process that ends releases its lock, whatever ended it. References that need each other
        are locked in the order in which one asks for the other, so that no two processes wait for
        each other.
        """
        file: IO[bytes] | None = None
        with contextlib.suppress(*_NO_PLACE):
            path = self._folder / f"{key}.lock"
            file = os.fdopen(open_to_write(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
        try:
            deadline = time.monotonic() + _WAIT_SECONDS
            while file is not None and time.monotonic() < deadline:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    time.sleep(_LOOK_SECONDS)
            yield
        finally:
            if file is not None:
                file.close()

    def _read(self, key: str) -> tuple[Any, ...]:
        """The value that is kept, or nothing."""
        try:
            file = open_file(self._folder, f"{key}.npz", most=2 * LARGEST)
        except _NO_PLACE:
            return ()
        if file is None:
            return ()
        with file:
            try:
                with np.load(file, allow_pickle=False) as content:
                    tree = json.loads(content["tree"].tobytes())
                    arrays = tuple(content[f"array{n}"] for n in range(len(content.files) - 1))
                return (put_together(Parts(tree, arrays)),)
            except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile):
                return ()  # damaged: built again, and replaced

    def _write(self, key: str, value: object) -> None:
        parts = taken_apart(value)
        if parts is None or parts.size > LARGEST:
            return
        content = io.BytesIO()
        tree = np.frombuffer(json.dumps(parts.tree).encode(), np.uint8)
        arrays = {f"array{n}": array for n, array in enumerate(parts.arrays)}
        np.savez(content, allow_pickle=False, tree=tree, **arrays)
        # Two processes may write the same value, if one of them did not wait for the other.
        own = self._folder / f"{key}.{os.getpid()}"
        with contextlib.suppress(*_NO_PLACE):
            with replacing(own, synced=False) as file:
                file.write(content.getbuffer())
            own.replace(self._folder / f"{key}.npz")


def _key(dataset: bytes, purpose: str, build: Callable[..., Any]) -> str | None:
    """Name of a reference; None where the code that builds it has no source to be read."""
    modules = sorted(_modules(build, set()))
    try:
        code = {module: plugin_closure(module).digest for module in modules}
    except InputError:
        return None
    facts = [_FORMAT, dataset.hex(), purpose, code, versions()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:40]


def _modules(build: object, seen: set[int]) -> set[str]:
    """Modules of a function and of the functions and classes that it was given."""
    if id(build) in seen:
        return set()
    seen.add(id(build))
    if isinstance(build, functools.partial):
        given = [build.func, *build.args, *build.keywords.values()]
    elif hasattr(build, "__func__"):
        given = [build.__func__]
    elif isinstance(build, type):
        return {build.__module__} - {"builtins"}
    elif hasattr(build, "__code__"):
        cells = getattr(build, "__closure__", None) or ()
        given = [cell.cell_contents for cell in cells if _filled(cell)]
        given += getattr(build, "__defaults__", None) or ()
        given += (getattr(build, "__kwdefaults__", None) or {}).values()
    else:
        return set()
    found = {str(build.__module__)} if hasattr(build, "__code__") else set()
    return found.union(*(_modules(one, seen) for one in given if callable(one)))


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
