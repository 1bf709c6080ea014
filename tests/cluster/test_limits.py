"""Limits that cannot be switched off: lost watchers, set clocks, planted folders, hidden memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from bench.cluster import watcher as watching
from bench.cluster.private_folders import hold, make_private
from bench.cluster.processes import Process, SharedMemory, descendants, end_all, entries, memory_mb
from bench.cluster.watcher import Report, Ticket, Watcher, Watchers
from bench.engine.limits import Limits
from bench.errors import FolderClosedError, LimitsLostError, UnsafeFolderError
from bench.results.journal import read_journal
from tests.support.driven import BENCH, Running, started
from tests.support.sockets import command, family
from tests.support.uncontained import install_uncontained

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")

HIDDEN = ("greedy-orphan", "file", "folder", "unnamed", "mapped", "segment")
"""Memory beyond the limit, where a sum over the children of a worker does not find it."""


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test, for its watchers and cells."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def cell_process(ticket: Ticket, what: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code as a cell, in a process of its own."""
    code = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from bench.cluster.watcher import Ticket\nfrom bench.engine.limits import Limits\n"
        f"with Ticket({ticket.name!r}, {ticket.run!r}, {ticket.limits!r}, 1).shown():\n"
        f"    print('shown', flush=True)\n    {what}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tempfile.gettempdir()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            # Nothing, or no line end, where it was stopped before it could say so.
            assert process.stdout.readline() in ("shown\n", "shown", "")
            yield process
        finally:
            process.stdin.close()
            process.kill()


def ticket(name: str = "cell", seconds: float = 3600.0, memory_mb: float = 4096.0) -> Ticket:
    return Ticket(name, f"test-{uuid.uuid4().hex}", Limits(seconds, memory_mb), 1)


# A watcher that is lost ---------------------------------------------------------------------------


def watchers_of(run: Running) -> list[int]:
    return [pid for pid in family(run.process.pid) if command(pid).startswith("ray::Watcher")]


@linux
def test_a_killed_watcher_is_replaced_and_a_deadlocked_cell_still_stopped(tmp_path: Path) -> None:
    with started(tmp_path, ["one"], "--cpus", "1", "--time-limit", "0.3") as run:
        run.announced()  # and waits for ever from now on
        until(lambda: watchers_of(run))  # it starts at the same time as the cell
        (watcher,) = watchers_of(run)
        os.kill(watcher, signal.SIGKILL)
        said = run.until("the process that enforces the limits of cells was lost")
        assert "another one is started" in said
        run.ended()
        assert run.process.returncode == 1
        ((row, _),) = read_journal(run.out / "journal.jsonl").values()
        assert (row.status, row.reason) == ("timeout", "still running after 18 seconds")
        assert run.left_behind() == []


@linux
def test_a_watcher_whose_thread_fails_ends_so_that_it_is_missed(temporary: Path) -> None:
    code = (
        "import sys, tempfile, time; tempfile.tempdir = sys.argv[1]\n"
        "from bench.cluster import watcher\n"
        "def fails(base): raise RuntimeError('unforeseen')\n"
        "watcher._folders = fails\n"
        "watcher.Watcher('run')\n"
        "time.sleep(60)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(temporary)], capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 1 and "unforeseen" in ended.stderr


class FakeRay:
    """One machine whose watchers answer as the test wants; an answer of None never comes."""

    class exceptions:  # noqa: N801
        class RayError(Exception):
            pass

        class ActorDiedError(RayError):
            pass

    def __init__(self) -> None:
        self.answer: float | Exception | None = 0.0
        self.watchers = 0

    def remote(self, **_: object) -> Callable[[type], Any]:
        return lambda kind: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self.start))

    def start(self, run: str) -> Any:
        self.watchers += 1
        return SimpleNamespace(report=SimpleNamespace(remote=lambda: self.answer))

    def wait(self, answers: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return ([], answers) if answers == [None] else (answers, [])

    def get(self, answer: float | Exception) -> Report:
        if isinstance(answer, Exception):
            raise answer
        return Report(answer, {"a.1.run": "score mia", "b.1.run": ""})

    def kill(self, watcher: object) -> None:
        pass

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(namespace="run")


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", cast(ModuleType, fake))
    monkeypatch.setattr(watching, "nodes", lambda: ["machine"])
    monkeypatch.setattr(watching, "only_on", lambda node: node)
    return fake


@pytest.mark.parametrize(
    "answer, reason",
    [
        (None, "no answer for 61 s"),
        (61.0, "it has not looked for 61 s"),
        (FakeRay.exceptions.ActorDiedError("died\n  because"), "because"),
    ],
)
def test_a_watcher_that_does_not_watch_is_replaced_with_a_warning(
    fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    said: list[str] = []
    watchers = Watchers(said.append)
    watchers.refresh()
    assert (fake_ray.watchers, said) == (1, []), "this one watches"
    fake_ray.answer = answer
    watchers.refresh()  # takes the good answer, and asks again
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    watchers.refresh()
    assert fake_ray.watchers == 2
    (message,) = said
    assert message.startswith("warning: ") and f"({reason})" in message


def test_the_phase_of_an_attempt_is_known_once_its_machine_has_answered(
    fake_ray: FakeRay,
) -> None:
    watchers = Watchers(lambda text: None)
    assert watchers.phase("a.1.run") == "", "nobody has answered yet"
    watchers.refresh()
    assert watchers.phase("a.1.fit", "a.1.run") == "score mia"
    assert watchers.phase("b.1.run") == watchers.phase("c.1.run") == ""


def test_a_watcher_that_is_still_starting_is_waited_for(
    fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    fake_ray.answer = None
    said: list[str] = []
    watchers = Watchers(said.append)
    monkeypatch.setattr(time, "monotonic", lambda: now + 299)
    watchers.refresh()
    assert (fake_ray.watchers, said) == (1, []), "another one would make the machine busier"
    monkeypatch.setattr(time, "monotonic", lambda: now + 301)
    watchers.refresh()
    assert fake_ray.watchers == 2 and "(no answer for 301 s)" in said[0]


def test_a_run_without_enforceable_limits_is_stopped(fake_ray: FakeRay) -> None:
    fake_ray.answer = FakeRay.exceptions.ActorDiedError("the folder is another user's")
    said: list[str] = []
    watchers = Watchers(said.append)
    for _ in range(5):
        watchers.refresh()
    with pytest.raises(LimitsLostError, match=r"another user's.*run the same command to resume"):
        watchers.refresh()
    assert len(said) == 5


SERVER = """
import subprocess, sys, tempfile; tempfile.tempdir = sys.argv[1]
from bench.cluster.watcher import Ticket
from bench.engine.limits import Limits

hold = "import sys; kept = bytearray(400 * 2**20); print(1, flush=True); sys.stdin.read()"
command = [sys.executable, "-c", hold]
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
server.stdout.readline()
with TICKET.shown([server.pid]):
    print("shown", flush=True)
    sys.stdin.readline()
print("ended", flush=True)
sys.stdin.readline()
print(server.poll(), flush=True)
server.kill()
"""


@linux
def test_a_server_of_many_cells_is_neither_counted_nor_ended_with_one(temporary: Path) -> None:
    """Without `kept` it is killed for its memory, or at the end of a cell in which it was seen."""
    cell = ticket(memory_mb=250.0)
    watcher = Watcher(cell.run)
    with subprocess.Popen(
        [sys.executable, "-c", SERVER.replace("TICKET", repr(cell)), str(temporary)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        for said in ("shown\n", "ended\n"):
            assert process.stdout.readline() == said
            looked = watcher._looked
            until(lambda looked=looked: watcher._looked > looked + 1.0)  # some turns later
            assert watcher._deaths == {}
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.stdout.readline() == "None\n", "the server was ended"
    watcher.close()


SCORES = """
import sys, tempfile; tempfile.tempdir = sys.argv[1]
from bench.cluster.private_folders import base_folder
from bench.cluster.tasks import _watched
from bench.cluster.watcher import Ticket, _Watched
from bench.engine.isolation.processes import fit_server
from bench.engine.limits import Limits

ticket = TICKET
folder = base_folder(ticket.run) / ticket.name
server = fit_server() if sys.argv[2] == "after a fit" else None

def work(fits):
    kept = [process.pid for process in _Watched.read(folder).kept]
    return kept == ([] if server is None else [server.process.pid])

print(_watched(ticket, work, lambda fitted: fitted, None))
"""


@linux
@pytest.mark.parametrize("when", ["after a fit", "before any fit"])
def test_a_cell_that_fits_nothing_does_not_end_the_server_of_others(
    temporary: Path, when: str
) -> None:
    """It did where a watcher saw it, and the next fit of the worker met a reset connection."""
    code = SCORES.replace("TICKET", repr(ticket()))
    done = subprocess.run(
        [sys.executable, "-c", code, str(temporary), when],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"


# What others put into the shared temporary folder ------------------------------------------------


@pytest.mark.parametrize("name", ["watcher-abc", "in-use.lock", "cell.json"])
def test_files_of_strangers_do_not_keep_a_watcher_from_watching(temporary: Path, name: str) -> None:
    planted = temporary / f"bench-cells-{os.getuid()}-planted"
    planted.mkdir()
    (planted / name).touch()
    cell = ticket(seconds=0.0)
    watcher = Watcher(cell.run)
    try:
        with cell_process(cell, "sys.stdin.read()") as process:
            assert process.wait(60) == -signal.SIGKILL
        until(lambda: watcher._deaths)
        death = watcher.why(cell.name)
        assert death is not None and death.cause == "timeout"
    finally:
        watcher.close()
    assert planted.exists(), "not ours to remove"


def test_garbage_among_the_cells_is_passed_over(temporary: Path) -> None:
    cell = ticket(seconds=0.0)
    base = make_private(watching.base_folder(cell.run))
    for number, text in enumerate(
        [
            '"',
            "7",
            "[]",
            '["a", 1, 2, 3, 4, []]',
            "[1, 2, 3, 4, 5, 6]",
            "[1, 2, 3, 4, 5, [6]]",
            "{}",
        ]
    ):
        (base / str(number)).mkdir()
        (base / str(number) / "cell.json").write_text(text)
    (base / "a-file").touch()
    (base / "loop").symlink_to(base / "loop")
    watcher = Watcher(cell.run)
    try:
        with cell_process(cell, "sys.stdin.read()") as process:
            assert process.wait(60) == -signal.SIGKILL
    finally:
        watcher.close()


@pytest.mark.parametrize("kind", ["link", "open", "file"])
def test_a_prepared_folder_is_refused(temporary: Path, kind: str) -> None:
    cell = ticket()
    base = watching.base_folder(cell.run)
    if kind == "link":
        (temporary / "elsewhere").mkdir(mode=0o700)
        base.symlink_to(temporary / "elsewhere")
    elif kind == "open":
        base.mkdir()
        base.chmod(0o777)
    else:
        base.touch()
    for attempt in (lambda: Watcher(cell.run), lambda: cell.shown().__enter__()):
        with pytest.raises(UnsafeFolderError, match="expected a folder of this user"):
            attempt()


def test_folders_of_dead_watchers_are_removed_after_an_hour(temporary: Path) -> None:
    base = f"bench-cells-{os.getuid()}-"
    dead, replaced, alive = (make_private(temporary / f"{base}{i}") for i in range(3))
    for folder in (dead, replaced):
        lock = hold(folder)
        assert lock is not None
        os.close(lock)
    lock = hold(alive)
    for folder in (dead, alive):
        os.utime(folder / "in-use.lock", (0, time.time() - 4000))
    # As a cell leaves it that starts while its run is being stopped.
    unmarked, young = (make_private(temporary / f"{base}{name}") for name in ("old", "new"))
    os.utime(unmarked, (0, time.time() - 4000))
    Watcher(ticket().run).close()
    assert not dead.exists() and not unmarked.exists()
    assert replaced.exists() and alive.exists() and young.exists()
    assert lock is not None
    os.close(lock)


def test_a_cell_that_starts_when_its_run_has_ended_is_refused_and_leaves_nothing(
    temporary: Path,
) -> None:
    cell = ticket()
    watcher = Watcher(cell.run)
    with cell.shown() as running:
        (running / "scratch").mkdir()
        (running / "scratch" / "rows").write_text("private")
        watcher.close()
        assert not running.exists()
    with pytest.raises(FolderClosedError, match="the run has ended"), cell.shown():
        pass
    left = {path.name for path in watching.base_folder(cell.run).rglob("*")}
    assert left == {"closed", "in-use.lock"}, "removed by the driver, or in an hour"


# Clocks ------------------------------------------------------------------------------------------


@linux
def test_a_clock_that_is_set_neither_stops_a_cell_nor_lets_it_run_on(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 7200)
    patient, late = ticket("patient", 3600.0), ticket("late", 0.0)
    watcher = Watcher(patient.run)
    with cell_process(patient, "sys.stdin.read()") as process:
        looked = watcher._looked
        until(lambda: watcher._looked > looked + 0.5)  # some turns later
        assert process.poll() is None and watcher._deaths == {}
    watcher.close()
    monkeypatch.setattr(time, "time", lambda: real() - 7200)
    watcher = Watcher(late.run)
    with cell_process(late, "sys.stdin.read()") as process:
        assert process.wait(60) == -signal.SIGKILL
    watcher.close()


# Memory and processes that hide -------------------------------------------------------------------


@pytest.fixture(scope="module")
def escapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[pd.DataFrame, str]]:
    """A run of cells that try to get away, and the mark of what they start and create."""
    folder = tmp_path_factory.mktemp("limits")
    mark = f"bench-test-{uuid.uuid4().hex}"
    entries_text = ", ".join(
        f'{{name = "uncontained", label = "{how}", '
        f'parameters = {{how = "{how}", mark = "{mark}"}}}}'
        for how in (*HIDDEN, "leaves", "crash", "good")
    )
    (folder / "grid.toml").write_text(
        f'datasets = ["gbsg2"]\nipc = [1]\nmetrics = ["ks"]\nmethods = [{entries_text}]\n'
    )
    others = Path(f"/dev/shm/{mark}-of-the-test")
    others.write_bytes(b"not of a cell")
    try:
        result = subprocess.run(
            [*BENCH, "run", "--grid", str(folder / "grid.toml"), "--out", str(folder / "run"),
             "--no-mlflow", "--memory-limit", "900", "--cpus", "2"],
            capture_output=True, text=True, timeout=1800, check=False,
            env=install_uncontained(folder / "packages"),
        )  # fmt: skip
        assert result.returncode == 1, result.stdout + result.stderr
        assert others.exists(), "a file of another process was removed"
        assert segments_of(mark) == []
        yield pd.read_parquet(folder / "run" / "cells.parquet").set_index("label"), mark
    finally:
        for path in Path("/dev/shm").glob(f"{mark}*"):
            subprocess.run(["rm", "-rf", str(path)], check=True)
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


def segments_of(mark: str) -> list[int]:
    """Segments of System V with keys that follow from the mark."""
    first = int(mark[-7:], 16)
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    keys = [int(line.split()[0]) for line in lines]
    return [key for key in keys if first <= key < first + 100]


def marked(mark: str) -> list[int]:
    """Processes with this mark on their command line; the driver has it in a file only."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if mark in command(pid)]


@linux
@pytest.mark.parametrize("how", HIDDEN)
def test_hidden_memory_is_counted(escapes: tuple[pd.DataFrame, str], how: str) -> None:
    row = escapes[0].loc[how]
    assert row["status"] == "out-of-memory", row["reason"]
    assert "MB of memory; the limit is 900 MB" in row["reason"]


@linux
def test_cells_within_their_limits_are_not_disturbed(escapes: tuple[pd.DataFrame, str]) -> None:
    assert escapes[0].loc[["leaves", "good"], "status"].tolist() == ["ok", "ok"]
    assert "Segmentation fault" in escapes[0].loc["crash", "reason"]


@linux
def test_cells_leave_no_processes_behind(escapes: tuple[pd.DataFrame, str]) -> None:
    assert marked(escapes[1]) == []


@linux
def test_cells_leave_nothing_in_shared_memory(escapes: tuple[pd.DataFrame, str]) -> None:
    left = {path.name.removeprefix(escapes[1]) for path in Path("/dev/shm").glob(f"{escapes[1]}*")}
    assert left == {"-of-the-test"}


@linux
def test_a_file_that_another_process_holds_is_kept() -> None:
    before = entries()
    path = Path(f"/dev/shm/bench-test-{uuid.uuid4().hex}")
    holds = (
        "import sys; file = open(sys.argv[1], 'ab'); print('open', flush=True); sys.stdin.read()"
    )
    command_line = [sys.executable, "-c", holds, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    try:
        with (
            subprocess.Popen(command_line, **pipes) as cell,  # type: ignore[call-overload]
            subprocess.Popen(command_line, **pipes) as other,  # type: ignore[call-overload]
        ):
            for process in (cell, other):
                process.stdout.readline()
            member = Process.find(cell.pid)
            assert member is not None
            shared = SharedMemory(before)
            assert len(shared.sizes([member], look_at_mappings=True)) == 1
            shared.remove(member)
            assert path.exists(), "the other process still holds it"
            other.kill()
            other.wait()
            shared.remove(member)
            assert not path.exists()
            cell.kill()
    finally:
        path.unlink(missing_ok=True)


@linux
def test_what_a_cell_creates_before_its_watcher_starts_is_removed_as_well(temporary: Path) -> None:
    path = Path(f"/dev/shm/bench-test-{uuid.uuid4().hex}")
    cell = ticket()
    try:
        with cell_process(cell, f"file = open('{path}', 'wb'); sys.stdin.read()") as process:
            until(path.exists)
            watcher = Watcher(cell.run)
            until(lambda: watcher._guards)
            process.kill()
            until(lambda: not path.exists())
        watcher.close()
    finally:
        path.unlink(missing_ok=True)


@linux
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of a system call")
def test_a_process_lives_as_long_as_any_of_its_threads() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit: of the first thread only
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        status = Path(f"/proc/{process.pid}/stat")
        until(lambda: ") Z " in status.read_text())
        found = Process.find(process.pid)
        assert found is not None
        end_all({found})
        assert not found.alive and process.wait(60) == -signal.SIGKILL


@linux
def test_shared_memory_counts_once_however_many_processes_map_it() -> None:
    code = (
        "import mmap, os, sys\n"
        "block = mmap.mmap(-1, 100 * 2**20); block.write(bytes(100 * 2**20))\n"
        "child = os.fork()\n"
        "for start in range(0, 100 * 2**20, 4096): block[start]\n"  # both see every page
        "print('ready', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        root = Process.find(process.pid)
        assert root is not None
        members = {root, *descendants(root.pid)}
        assert len(members) == 2
        assert 100 <= memory_mb(members, {}, limit=0.0) < 190
        end_all(members)
