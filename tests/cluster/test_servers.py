"""What a run on this machine opens to others: loopback, with a token, in a private folder.

The same run loses a worker in its only cell: it is started again, and leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.cluster import ray_cluster
from bench.results.journal import read_journal
from tests.support.driven import Running, started
from tests.support.sockets import Listener, command, family, listeners

linux = pytest.mark.skipif(sys.platform != "linux", reason="sockets are read from /proc")


@dataclass
class Seen:
    """What a test saw while a cell ran, and what was left afterwards."""

    listening: list[Listener]
    modes: dict[Path, int]
    tokens: list[Path]
    texts: list[str]
    """The tokens themselves."""
    reachable: list[int]
    """Ports of Ray's control store that answered without a token."""
    environments: list[str]
    left: list[Path]
    commands: list[str]
    """Of the driver and all processes below it."""
    workers: list[int]
    """Those that ran the cell: the first one was killed."""
    said: str
    """By the driver, when it noticed that."""
    out: Path


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("servers")
    temporary = Path(f"/tmp/b{os.getpid()}")  # short, since sockets are below it
    temporary.mkdir(mode=0o700)
    try:
        with started(folder, ["one"], cpus=1, TMPDIR=str(temporary)) as run:
            _, worker, _ = run.announced()
            found = listeners(run.process.pid)
            modes = {
                path: stat.S_IMODE(path.stat().st_mode)
                for path in (*temporary.iterdir(), *temporary.glob("*/token"))
            }
            tokens = [path for path in modes if path.name == "token"]
            texts = [path.read_text() for path in tokens]
            reachable = [one.port for one in found if "gcs_server" in one.process]
            reachable = [port for port in reachable if answers_without_token(port)]
            environments = environments_of(run)
            commands = list(map(command, family(run.process.pid)))
            os.kill(worker, signal.SIGKILL)
            said = run.until("its worker was lost")
            _, again, _ = run.announced()
            run.let_go("one")
            run.ended()
            assert run.process.returncode == 0
        left = [*temporary.iterdir()]
        yield Seen(
            found, modes, tokens, texts, reachable, environments, left, commands,
            [worker, again], said, run.out,
        )  # fmt: skip
    finally:
        subprocess.run(["rm", "-rf", str(temporary)], check=True)


def environments_of(run: Running) -> list[str]:
    # Workers inherit that of the raylet, and write their titles over it.
    pids = [pid for pid in family(run.process.pid) if "raylet/raylet " in command(pid)]
    return [Path(f"/proc/{pid}/environ").read_text(errors="replace") for pid in pids]


def answers_without_token(port: int) -> bool:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetClusterId")
        code = call.future(b"", timeout=30).code()
    return bool(code != grpc.StatusCode.UNAUTHENTICATED)


@linux
def test_everything_listens_on_loopback_only(seen: Seen) -> None:
    assert [one for one in seen.listening if not one.loopback] == []
    # The list is complete: the parts of Ray that talk to each other are on it.
    assert {"gcs_server", "raylet/raylet", "ray::"} <= {
        part
        for part in ("gcs_server", "raylet/raylet", "ray::")
        for one in seen.listening
        if part in one.process
    }


@linux
def test_no_metrics_are_exported(seen: Seen) -> None:
    silent = ("monitor.py", "dashboard.py")
    assert [one for one in seen.listening if any(part in one.process for part in silent)] == []


@linux
def test_ray_starts_no_process_that_no_run_uses(seen: Seen) -> None:
    for unused in ("log_monitor.py", "monitor.py", "dashboard/dashboard.py"):
        assert [each for each in seen.commands if unused in each] == []
    assert [each for each in seen.commands if "raylet/raylet " in each], "the list is complete"


def test_the_watcher_starts_without_the_libraries_of_a_cell() -> None:
    code = "import sys, bench.cluster.watcher; print(*{'numpy', 'pandas'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@linux
def test_ray_asks_for_a_token_of_this_run(seen: Seen) -> None:
    assert seen.reachable == []
    (path,), (token,), (environment,) = seen.tokens, seen.texts, seen.environments
    assert len(token) == 64 and seen.modes[path] == 0o600
    assert f"RAY_AUTH_TOKEN_PATH={path}" in environment and token not in environment


@linux
def test_files_are_private_and_gone_afterwards(seen: Seen) -> None:
    assert {path.name.rsplit("-", 1)[0] for path in seen.modes} >= {
        f"bench-ray-{os.getuid()}", f"bench-cells-{os.getuid()}-bench",
    }  # fmt: skip
    assert {path: mode for path, mode in seen.modes.items() if mode & 0o077} == {}
    assert seen.left == []


@linux
def test_a_killed_worker_is_started_again_and_nothing_is_lost(seen: Seen) -> None:
    assert "one on gbsg2" in seen.said
    assert len(set(seen.workers)) == 2
    ((row, _),) = read_journal(seen.out / "journal.jsonl").values()
    assert (row.label, row.status) == ("one", "ok")
    assert len((seen.out / "journal.jsonl").read_bytes().splitlines()) == 1


def test_what_a_killed_driver_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ray_cluster, "_SOCKET", "")
    prefix = f"bench-ray-{os.getuid()}-"
    with ray_cluster._private_folder() as running:
        killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), prefix], check=False)
        assert killed.returncode == -9
        (left,) = (path for path in tmp_path.iterdir() if path != running)
        (tmp_path / f"{prefix}file").touch()
        (tmp_path / f"{prefix}link").symlink_to(running)
        (tmp_path / f"{prefix}stranger").mkdir(mode=0o755)
        (tmp_path / f"{prefix}stranger" / "in-use.lock").touch()
        with ray_cluster._private_folder() as another:
            names = {path.name for path in tmp_path.iterdir()}
        assert left.name not in names
        assert {running.name, another.name} <= names
        assert {f"{prefix}file", f"{prefix}link", f"{prefix}stranger"} <= names
    assert not running.exists() and not another.exists()


_KILLED = """
import os, sys, tempfile
from pathlib import Path
from bench.cluster.private_folders import hold
hold(Path(tempfile.mkdtemp(dir=sys.argv[1], prefix=sys.argv[2])))
os.kill(os.getpid(), 9)
"""


def test_a_slow_start_of_ray_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import services

    asked: list[tuple[object, ...]] = []

    def slow(*arguments: object) -> str:
        asked.append(arguments)
        if len(asked) < 3:
            raise RuntimeError("no such node")
        return "node"

    monkeypatch.setattr(services, "get_node", slow)
    with ray_cluster._patience():
        assert services.get_node("address", "node id") == "node"
    assert asked == [("address", "node id")] * 3 and services.get_node is slow
    monkeypatch.setattr(ray_cluster, "_START_SECONDS", 0.0)
    asked.clear()
    with ray_cluster._patience(), pytest.raises(RuntimeError, match="no such node"):
        services.get_node()


def test_a_long_name_of_the_temporary_folder_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster.tempfile, "gettempdir", lambda: str(tmp_path / ("x" * 60)))
    with ray_cluster._private_folder() as folder:
        assert len(str(folder / ray_cluster._SOCKET)) <= 100
    assert not folder.exists()


def test_a_run_leaves_the_environment_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of a cluster")
    monkeypatch.setenv("DASHBOARD_METRIC_PORT", "44227")  # metrics are asked for
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    import ray  # noqa: F401 (sets variables, too)

    before = dict(os.environ)
    with ray_cluster._protected(tmp_path):
        assert os.environ["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN" not in os.environ
        assert os.environ["DASHBOARD_METRIC_PORT"] == "44227"
        assert os.environ["AUTOSCALER_METRIC_PORT"] == "-1"
        assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert dict(os.environ) == before
