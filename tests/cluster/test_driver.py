"""What happens to a run from outside: Ctrl-C, a removed folder, lost machines."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.results.journal import read_journal
from tests.support.driven import started
from tests.support.installed import install_plugin


def statuses(directory: Path) -> dict[str, str]:
    return {row.label: row.status for row, _ in read_journal(directory / "journal.jsonl").values()}


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


def test_a_second_driver_is_refused_and_ctrl_c_twice_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path, ["one", "two"], cpus=1) as run:
        run.announced()
        second = CliRunner().invoke(main, ["run", "--grid", "smoke", "--out", str(run.out)])
        assert second.exit_code == 2
        assert "in use by another `bench run`" in second.stderr
        os.killpg(run.process.pid, signal.SIGINT)
        run.until("stopping: cells that run are finished first")
        os.killpg(run.process.pid, signal.SIGINT)
        run.ended()
        assert run.process.returncode == 130
        assert run.left_behind() == []
    assert statuses(run.out) == {}
    # A later run can have the directory, and resumes from what is there; this one needs no Ray.
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "no data"))
    (tmp_path / "no data").mkdir()
    (tmp_path / "next.toml").write_text('datasets = ["adult"]\nmethods = ["real"]\n')
    again = CliRunner().invoke(
        main, ["run", "--grid", str(tmp_path / "next.toml"), "--no-mlflow", "--out", str(run.out)]
    )
    assert again.exit_code == 1, again.output
    assert statuses(run.out) == {"real": "error"}, "its dataset is missing"


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
            lost = placed.pop(str(other.all_processes["raylet"][0].process.pid))
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
