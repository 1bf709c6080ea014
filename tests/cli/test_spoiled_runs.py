"""Whatever lies in a run directory, a command ends with its exit code: no traceback, no hang.

Honest directories are spoiled at random by Hypothesis, one kind of file at a time, and read by
every command that reads. Nothing outside the directory may change, and memory stays bounded. The
normal suite tries a few fixed inputs of each kind; `make slow` tries many.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.errors import BenchError
from bench.leaderboard.tables.load import load_results
from bench.results.integrity import Ledgers
from bench.results.run_directory import RunStore
from tests.support.memory import megabytes_taken
from tests.support.strangers import KEY, bench, content, finished, honest, within

FEW, MANY = 12, 400
SECONDS = 10
MEGABYTES = 1000
"""More than the libraries that the commands import take, and far less than a bomb."""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status", "RUN"),
    ("status", "RUN", "--json"),
    ("verify", "RUN", "--sample", "0"),
    ("merge", "RUN", "OTHER", "-o", "MERGED"),
    ("compare", "RUN"),
    ("dossier", "RUN", KEY, "-o", "DOSSIER"),
    ("audit", "--table", "RUN"),
)
LEADERBOARD = ("leaderboard", "RUN", "-o", "SITE", "--cells", "all")

Spoil = Callable[[Path, st.DataObject], None]


# Random values --------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


HUGE = st.sampled_from(
    [
        *(0, -1, 10**18, -(10**30), 10**400, 1e308, -1e-320, math.inf, -math.inf, math.nan),
        *(
            "Infinity",
            "NaN",
            "",
            "\x00\x1b[2J",
            "\ud800",
            "x" * 10_000,
            "../../secret",
            "/dev/zero",
        ),
        *(None, True, [], {}, nested(30), nested(300)),
    ]
)
VALUES = st.recursive(
    HUGE | st.integers() | st.floats() | st.text(max_size=8) | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


def text_of(value: object) -> str:
    """JSON as a stranger would write it: infinities, and integers of any length, included."""
    return json.dumps(value)


def changed(document: Any, data: st.DataObject) -> Any:
    """A JSON document with one value somewhere replaced, removed or doubled."""
    if isinstance(document, dict) and document and data.draw(st.integers(0, 5)):
        name = data.draw(st.sampled_from(sorted(document)))
        copy = dict(document)
        if data.draw(st.integers(0, 6)) == 0:
            del copy[name]
        else:
            copy[name] = changed(document[name], data)
        return copy
    if isinstance(document, list) and document and data.draw(st.integers(0, 5)):
        place = data.draw(st.integers(0, len(document) - 1))
        return [*document[:place], changed(document[place], data), *document[place:]]
    return data.draw(VALUES)


def broken(whole: bytes, data: st.DataObject) -> bytes:
    """A file that was cut, overwritten in some places, or replaced."""
    how = data.draw(st.sampled_from(["cut", "overwritten", "random", "doubled"]))
    if how == "random":
        return data.draw(st.binary(max_size=300))
    if how == "doubled":
        return whole + whole
    place = data.draw(st.integers(0, max(0, len(whole) - 1)))
    if how == "cut":
        return whole[:place]
    piece = data.draw(st.binary(min_size=1, max_size=8))
    return whole[:place] + piece + whole[place + len(piece) :]


# Ways to spoil a run directory ----------------------------------------------------------------


def journal_bytes(run: Path, data: st.DataObject) -> None:
    path = run / "journal.jsonl"
    path.write_bytes(broken(path.read_bytes(), data))


def journal_values(run: Path, data: st.DataObject) -> None:
    path = run / "journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    place = data.draw(st.integers(0, len(lines) - 1))
    part = data.draw(st.sampled_from(["line", "cell", "scores"]))
    if part == "line":
        lines[place] = changed(lines[place], data)
    else:
        lines[place][part] = changed(lines[place][part], data)
    path.write_text("".join(text_of(line) + "\n" for line in lines))


def documents(run: Path, data: st.DataObject) -> None:
    names = ["run.json", "progress.json", "charges.jsonl", "about.json", "tracking.id"]
    path = run / data.draw(
        st.sampled_from([*names, f"releases/{KEY}/release.json", f"audits/{KEY}/ledger.json"])
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.read_bytes() if path.exists() else b'{"key": "abc", "running": []}\n'
    if data.draw(st.booleans()):
        path.write_bytes(broken(whole, data))
    else:
        path.write_text(text_of(changed(json.loads(whole), data)) + "\n")


def ledgers(run: Path, data: st.DataObject) -> None:
    path = run / "releases" / KEY / "ledger.json"
    if data.draw(st.integers(0, 4)) == 0:
        path.write_bytes(broken(path.read_bytes(), data))
    else:
        path.write_text(text_of(changed(json.loads(path.read_bytes()), data)))


def tables(run: Path, data: st.DataObject) -> None:
    names = ["cells.parquet", "scores.parquet", f"releases/{KEY}/encoded.parquet"]
    path = run / data.draw(st.sampled_from([*names, f"releases/{KEY}/synthetic.parquet"]))
    path.write_bytes(broken(path.read_bytes(), data))
    if data.draw(st.booleans()):
        (run / "journal.jsonl").unlink()


def table_values(run: Path, data: st.DataObject) -> None:
    """Values of the right types, as a stranger would choose them."""
    name = data.draw(st.sampled_from(["cells.parquet", "scores.parquet"]))
    table = pq.read_table(run / name)
    column = data.draw(st.sampled_from(table.column_names))
    kind = table.schema.field(column).type
    values = table.column(column).to_pylist()
    values[data.draw(st.integers(0, len(values) - 1))] = data.draw(
        HUGE.filter(lambda value: _fits(value, kind))
    )
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array(values, kind)), run / name)
    if data.draw(st.booleans()):
        (run / "journal.jsonl").unlink()


def _fits(value: object, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


def kinds_of_files(run: Path, data: st.DataObject) -> None:
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    more = ["audits", "audits.parquet", f"audits/{KEY}/trials.parquet", "about.json", "details"]
    path = run / data.draw(st.sampled_from([*names, *more]))
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    kind = data.draw(
        st.sampled_from(["fifo", "folder", "absent", "empty", "sparse", "link", "loop"])
    )
    targets = ["/dev/zero", "/dev/null", "/etc/passwd", str(run.parent / "outside"), "/nowhere"]
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "sparse":
            path.touch()
            os.truncate(path, 1 << data.draw(st.integers(20, 43)))
        case "link":
            path.symlink_to(data.draw(st.sampled_from(targets)))
        case "loop":
            path.symlink_to(path.name)


KINDS: tuple[Spoil, ...] = (
    journal_bytes,
    journal_values,
    documents,
    ledgers,
    tables,
    table_values,
    kinds_of_files,
)


# What must hold -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest run directory, and another for merging."""
    folder = tmp_path_factory.mktemp("fuzz")
    honest(folder / "run", finished(0), finished(1))
    honest(folder / "other", finished(0))
    (folder / "outside").mkdir()
    (folder / "outside" / "secret.txt").write_text("precious")
    return folder


@contextlib.contextmanager
def copied(base: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "all"
        shutil.copytree(base, folder)
        yield folder


def outside_of(folder: Path) -> dict[str, dict[str, bytes | str]]:
    return {name: content(folder / name) for name in ("other", "outside")}


def survives(folder: Path, *more: tuple[str, ...]) -> None:
    """Every command ends by itself, with a documented exit code and nothing changed elsewhere."""
    places = {
        "RUN": folder / "run",
        "OTHER": folder / "other",
        "MERGED": folder / "merged",
        "DOSSIER": folder / "dossier.html",
        "SITE": folder / "site",
    }
    before = outside_of(folder)
    for command in (*COMMANDS, *more):
        with within(SECONDS):
            result = bench(*(places.get(word, word) for word in command))
        assert result.exit_code in (0, 1, 2), (command, result.output)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code == 2:
            said = result.stderr.removeprefix("checking 2 cells\n").strip()
            # One line, but for the list of cells that a dossier could be about.
            assert said.startswith("bench: ") and ("\n" not in said or "Candidates" in said), said
        shutil.rmtree(places["MERGED"], ignore_errors=True)
    with within(SECONDS), contextlib.suppress(BenchError):
        load_results([places["RUN"]])
    # What `run`, `score` and `sync` do first.
    with within(SECONDS), contextlib.suppress(BenchError), RunStore(places["RUN"]) as store:
        for row, _ in store.all():
            row.cell.describe()
        with contextlib.suppress(OSError):  # a folder where a table should be written
            store.compact()
    assert outside_of(folder) == before
    there = {path.name for path in folder.iterdir()}
    assert there <= {"run", "other", "outside", "merged", "dossier.html", "site"}


def test_the_honest_directory_is_read_by_all(base: Path) -> None:
    with copied(base) as folder:
        survives(folder)
        assert bench("verify", folder / "run", "--sample", "0").exit_code == 0


FIXED = settings(
    max_examples=FEW,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(
    max_examples=MANY, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("spoil", KINDS, ids=lambda spoil: spoil.__name__)
@FIXED
@given(data=st.data())
def test_a_spoiled_directory_stops_nobody(base: Path, spoil: Spoil, data: st.DataObject) -> None:
    with copied(base) as folder:
        spoil(folder / "run", data)
        with megabytes_taken() as taken:
            survives(folder, *((LEADERBOARD,) if spoil is table_values else ()))
        assert taken() < MEGABYTES


@pytest.mark.slow
@pytest.mark.parametrize("spoil", KINDS, ids=lambda spoil: spoil.__name__)
@LONG
@given(data=st.data())
def test_many_spoiled_directories_stop_nobody(
    base: Path, spoil: Spoil, data: st.DataObject
) -> None:
    with copied(base) as folder:
        spoil(folder / "run", data)
        with megabytes_taken() as taken:
            survives(folder, *((LEADERBOARD,) if spoil is table_values else ()))
        assert taken() < MEGABYTES


def _value_in_tables(base: Path, column: str, value: object, *commands: tuple[str, ...]) -> None:
    """Of tables without a journal, as a stranger gives them away: one value, then a dossier."""
    with copied(base) as folder:
        run = folder / "run"
        (run / "journal.jsonl").unlink(missing_ok=True)
        table = pq.read_table(run / "cells.parquet")
        kind = table.schema.field(column).type
        place = table.column_names.index(column)
        values = pa.array([value] * table.num_rows, kind)
        pq.write_table(table.set_column(place, column, values), run / "cells.parquet")
        for command in commands:
            result = bench(*(run if word == "RUN" else word for word in command), folder / "out")
            assert result.exit_code in (0, 1, 2), (column, value, result.output)


DOSSIER = ("dossier", "RUN", KEY, "-o")
SITE = ("leaderboard", "RUN", "--cells", "all", "-o")


def _with_tables(base: Path) -> Path:
    with RunStore(base / "run") as store:
        store.compact()
    return base


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("eps_target", math.nan), ("eps_target", 1e308), ("eps_proven", 1e308), ("delta", 5e-324),
        ("fit_seconds", -math.inf), ("score_seconds", -1e300), ("split", "no such"),
    ],
)  # fmt: skip
def test_numbers_that_mean_nothing_stop_no_page(base: Path, column: str, value: object) -> None:
    _value_in_tables(_with_tables(base), column, value, DOSSIER, SITE)


@pytest.mark.slow
def test_no_value_of_any_column_stops_a_page(base: Path) -> None:
    tables = _with_tables(base) / "run" / "cells.parquet"
    odd = (math.nan, math.inf, -1e300, -1.0, 0.0, 5e-324, 1e308, -5, 2**60, "", "x" * 50)
    tried = 0
    for field in pq.read_schema(tables):
        for value in odd:
            if _fits(value, field.type):
                _value_in_tables(base, field.name, value, DOSSIER, SITE)
                tried += 1
    assert tried > 100


# Ledgers alone, which are quicker to try --------------------------------------------------------


def replay_is_quiet(base: Path, data: st.DataObject) -> None:
    text = (base / "run" / "releases" / KEY / "ledger.json").read_text()
    document = changed(json.loads(text), data)
    if data.draw(st.booleans()):
        document = changed(document, data)
    with within(SECONDS):
        found = Ledgers().replay(text_of(document))
    assert (found.proof is None) == bool(found.problem)
    if found.proof is not None:
        assert found.proof.epsilon >= 0 or math.isnan(found.proof.epsilon)


@FIXED
@given(data=st.data())
def test_a_spoiled_ledger_proves_nothing_or_something(base: Path, data: st.DataObject) -> None:
    replay_is_quiet(base, data)


@pytest.mark.slow
@settings(parent=LONG, max_examples=10 * MANY)
@given(data=st.data())
def test_many_spoiled_ledgers(base: Path, data: st.DataObject) -> None:
    replay_is_quiet(base, data)
