"""What happens to a run from outside: lost workers, lost machines, Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from bench.results.journal import read_journal
from tests.support.installed import install_plugin

BENCH = [sys.executable, "-m", "bench"]


@dataclass
class Running:
    """A driver with cells that wait for the test."""

    folder: Path
    process: subprocess.Popen[str]
    mark: str

    @property
    def out(self) -> Path:
        return self.folder / "run"

    def announced(self) -> tuple[str, int, str]:
        """The next cell that starts: its mark, its process, its machine."""
        cell, pid, node = (self.folder / "running").read_text().split()
        return cell, int(pid), node

    def let_go(self, cell: str) -> None:
        (self.folder / f"go-{cell}").write_text("go")

    def until(self, text: str) -> str:
        """Read what the driver says until it says this."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if text in line:
                return said
        raise AssertionError(f"the driver never said {text!r}: {said}")

    def ended(self) -> str:
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        self.process.wait(120)
        return rest

    def left_behind(self) -> list[str]:
        """Processes that inherited the driver's environment and still run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found


@contextlib.contextmanager
def started(folder: Path, cells: Sequence[str], *options: str, cpus: int = 2) -> Iterator[Running]:
    mark = uuid.uuid4().hex
    os.mkfifo(folder / "running")
    for cell in cells:
        os.mkfifo(folder / f"go-{cell}")
    entries = ", ".join(
        f'{{name = "waits", label = "{cell}", '
        f'parameters = {{mark = "{cell}", folder = "{folder}"}}}}'
        for cell in cells
    )
    (folder / "grid.toml").write_text(
        f'datasets = ["gbsg2"]\nipc = [1]\nmetrics = ["ks"]\nmethods = [{entries}]\n'
    )
    command = [*BENCH, "run", "--grid", str(folder / "grid.toml"), "--out", str(folder / "run")]
    command += ["--no-mlflow", *(options or ("--cpus", str(cpus)))]
    environment = {**install_plugin(folder / "packages"), "BENCH_TEST_MARK": mark}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        running = Running(folder, process, mark)
        try:
            yield running
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def statuses(directory: Path) -> dict[str, str]:
    return {row.label: row.status for row, _ in read_journal(directory / "journal.jsonl").values()}


def test_a_killed_worker_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with started(tmp_path, ["one"]) as run:
        _, pid, _ = run.announced()
        os.kill(pid, signal.SIGKILL)
        assert "one on gbsg2" in run.until("its worker was lost")
        _, again, _ = run.announced()
        assert again != pid
        run.let_go("one")
        run.ended()
        assert run.process.returncode == 0
    assert statuses(run.out) == {"one": "ok"}
    assert len((run.out / "journal.jsonl").read_bytes().splitlines()) == 1


def test_ctrl_c_finishes_what_runs_and_starts_nothing_else(tmp_path: Path) -> None:
    cells = ["one", "two", "three", "four"]
    with started(tmp_path, cells, cpus=1) as run:
        first, _, _ = run.announced()
        # As a terminal does it: to every process of the group.
        os.killpg(run.process.pid, signal.SIGINT)
        run.until("stopping: cells that run are finished first")
        run.let_go(first)
        # One more was already handed to Ray: it is finished as well.
        second, _, _ = run.announced()
        run.let_go(second)
        assert "interrupted: run the same command again" in run.ended()
        assert run.process.returncode == 130
        assert run.left_behind() == []
    assert statuses(run.out) == {first: "ok", second: "ok"}
    assert len(pd.read_parquet(run.out / "cells.parquet")) == 2


def test_a_second_driver_is_refused_and_ctrl_c_twice_leaves_nothing_behind(tmp_path: Path) -> None:
    with started(tmp_path, ["one", "two"], cpus=1) as run:
        run.announced()
        second = subprocess.run(
            [*BENCH, "run", "--grid", "smoke", "--out", str(run.out)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert second.returncode == 2
        assert "in use by another `bench run`" in second.stderr
        os.killpg(run.process.pid, signal.SIGINT)
        run.until("stopping: cells that run are finished first")
        os.killpg(run.process.pid, signal.SIGINT)
        run.ended()
        assert run.process.returncode == 130
        assert run.left_behind() == []
    assert statuses(run.out) == {}
    # A later run resumes from what is there.
    again = subprocess.run(
        [*BENCH, "run", "--grid", "smoke", "--methods", "marginals", "--datasets", "gbsg2",
         "--metrics", "ks", "--no-mlflow", "--out", str(run.out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_directory_removed_in_the_middle_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with started(tmp_path, ["one", "two"], cpus=1) as run:
        first, _, _ = run.announced()
        shutil.rmtree(run.out)
        run.let_go(first)
        said = run.ended()
        assert run.process.returncode == 2, said
        assert "Traceback" not in said
        (told,) = [line for line in said.splitlines() if line.startswith("bench: ")]
        assert "its folder is missing, or was removed meanwhile" in told
        assert run.left_behind() == []
    assert not run.out.exists()


@pytest.mark.slow  # `make chaos` kills machines as well
def test_a_machine_that_dies_costs_nothing_but_time(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    packages = install_plugin(tmp_path / "packages0")["PYTHONPATH"]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = packages
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        other = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        folder = tmp_path / "driver"
        folder.mkdir()
        with started(folder, ["one", "two"], "--ray-address", cluster.address) as run:
            placed = {node: cell for cell, _, node in (run.announced(), run.announced())}
            assert len(placed) == 2, "both machines are used"
            lost = placed.pop(other.node_id)
            (stays,) = placed.values()
            cluster.remove_node(other, allow_graceful=False)
            run.until(f"{lost} on gbsg2")
            run.let_go(stays)
            cell, _, _ = run.announced()
            assert cell == lost, "it is started again on the machine that is left"
            run.let_go(lost)
            run.ended()
            assert run.process.returncode == 0
        assert statuses(run.out) == {"one": "ok", "two": "ok"}
    finally:
        cluster.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
