"""Run directories of strangers: honest ones, and ways to spoil them."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.engine import keys
from bench.engine.cell import run_cell
from bench.plugins.source import build_dataset
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunStore
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())


def _asked(seed: int = 0, method: str = "marginals") -> tuple[Cell, str]:
    """A cell and its key."""
    cell = Cell(
        Variant(method, method), Variant("toy-table", "toy-table"), 10, False, 1.0, 1e-5, seed,
        "default", 0,
    )  # fmt: skip
    return cell, keys.cell_key(cell, DATASET.fingerprint)


_, KEY = _asked()


@cache
def finished(seed: int = 0, method: str = "marginals") -> Outcome:
    """A cell that was computed, once for all tests."""
    return run_cell(*_asked(seed, method), DATASET, ("ks", "tvd"))


def honest(directory: Path, *outcomes: Outcome) -> Path:
    """A run directory with a cell, its release and tables, as a run leaves it."""
    with RunStore(directory) as store:
        store.write_manifest({"grid": "toy", "started_at": "2026-01-01T00:00:00+00:00"})
        for outcome in outcomes or (finished(),):
            store.record(outcome, DATASET.encoder)
        store.compact()
    return directory


def change_journal(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change every line of the journal."""
    path = run / "journal.jsonl"
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    for document in documents:
        change(document)
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))


def rename_cell(run: Path, key: str) -> None:
    """Give the only cell of a journal another key."""

    def change(document: dict[str, Any]) -> None:
        document["cell"]["key"] = key
        for score in document["scores"]:
            score["key"] = key

    change_journal(run, change)


def bench(*arguments: object) -> Result:
    """The command, as a user calls it."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail instead of hanging: after so much processor time, or twelve times as long a wait.

    A busy machine slows everything down, and is no hang.
    """

    def late(*_: object) -> None:
        raise AssertionError(f"not done after {seconds} s of a processor or {12 * seconds} s")

    numbers = (signal.SIGALRM, signal.SIGPROF)
    before = [signal.signal(number, late) for number in numbers]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(12 * seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


_MOST = 1 << 26


def content(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder, as it lies there."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file() and path.stat().st_size > _MOST:
            found[name] = f"{path.stat().st_size} bytes"  # a file with holes, larger than memory
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "folder"
    return found
