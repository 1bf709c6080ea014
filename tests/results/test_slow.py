"""Where the time of a run went."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.results.records import Outcome, TimingRow
from bench.results.slow import read_slow
from tests.support.tracked_runs import opened, outcome


def timed(key: str, label: str, fit: float, **metrics: float) -> Outcome:
    rows = [TimingRow(key, "fit", "", 2 * fit, fit)]
    rows.append(TimingRow(key, "score", "", 9.0, sum(metrics.values())))
    rows += [TimingRow(key, "score", name, 1.0, value) for name, value in metrics.items()]
    return dataclasses.replace(outcome(key, label=label), timings=tuple(rows))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with opened(tmp_path / "run") as store:
        store.record(timed("a", "quick one", 1.0, ks=2.0, mia=4.0), None)
        store.record(timed("b", "slow one", 10.0, ks=3.0), None)
        store.compact()
        store.record(timed("c", "slow one", 20.0, ks=0.0), None)
        store.record(outcome("d"), None)
    return tmp_path / "run"


def test_the_worst_are_named(run: Path) -> None:
    slow = read_slow(run)
    assert (slow.cells, slow.without, slow.seconds) == (3, 1, 40.0)
    assert [(one.name, one.seconds, one.cells) for one in slow.methods] == [
        ("slow one", 30.0, 2), ("quick one", 1.0, 1),
    ]  # fmt: skip
    assert [(one.name, one.seconds, one.most) for one in slow.metrics] == [
        ("ks", 5.0, 3.0), ("mia", 4.0, 4.0),
    ]  # fmt: skip
    assert slow.metrics[0].slowest.startswith("slow one on gbsg2")
    assert [one.seconds for one in slow.phases] == [31.0, 9.0]
    assert slow.methods[0].share == 0.75


def test_the_command_prints_them_while_a_run_is_going(run: Path) -> None:
    with opened(run):
        text = CliRunner().invoke(main, ["status", str(run), "--slow"]).output
        found = json.loads(
            CliRunner().invoke(main, ["status", str(run), "--slow", "--json"]).output
        )
    assert "40.0 s of processor time in 3 cells" in text
    assert "1 cell without timings" in text
    lines = text.splitlines()
    first = {name: lines[lines.index(next(x for x in lines if x.startswith(name))) + 1].split()[0]
             for name in ("metrics", "methods")}  # fmt: skip
    assert first == {"metrics": "ks", "methods": "slow"}
    assert "20.0 s  slow one on gbsg2 ipc=50 eps=1 seed=3 (c)" in text
    assert found["metrics"][0]["name"] == "ks"


def test_a_run_without_timings_says_so(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as store:
        store.record(outcome("a"), None)
    text = CliRunner().invoke(main, ["status", str(tmp_path / "run"), "--slow"]).output
    assert "no cell has timings" in text
