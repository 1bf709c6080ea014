"""Audits in the loop of all cells: batches of trials as tasks, watched and started again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.results.reading import read_audits, read_descriptions
from bench.results.records import Outcome
from bench.results.run_directory import RunStore
from tests.support.installed import install_plugin

SCRIPT = """
import sys
from pathlib import Path

from bench.audit.audits import AuditProcedure, audit_cell, load, run_audits
from bench.engine.options import RunOptions
from bench.results.records import AuditSpec
from bench.results.run_directory import RunStore

folder = Path(sys.argv[1])


def cell(method, trials=40, **parameters):
    spec = AuditSpec("two-world", trials)
    return audit_cell(method, "breast-cancer", 1.0, spec, ipc=2, parameters=parameters)


def audited(name, cpus, cells):
    out = folder / name
    dataset = load(cells[0])
    with RunStore(out) as store:
        audits = [AuditProcedure(cell, dataset, out) for cell in cells]
        summary = run_audits(audits, store, RunOptions(out=out, cpus=cpus), print)
        assert len(summary.keys) == len(cells)


marginals = cell("marginals", 60, bins=4)
audited("here", 1, [marginals])
faults = [cell("misbehaves", how=how) for how in ("raise", "skip", "exit")]
faults += [cell("hangs", how="lock"), cell("dies-once", folder=str(folder))]
audited("tasks", 2, [marginals, *faults])
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Audits on one CPU in `here`, on two in `tasks`; and what the latter said."""
    folder = tmp_path_factory.mktemp("audits")
    environment = install_plugin(folder / "packages")
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True, text=True, env=environment, timeout=1800, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


@pytest.fixture(scope="module")
def audits(runs: tuple[Path, str]) -> dict[str, Outcome]:
    outcomes = read_audits(runs[0] / "tasks")
    return {one.row.parameters if one.row.method == "misbehaves" else one.row.method: one
            for one in outcomes}  # fmt: skip


def test_tasks_give_the_same_bytes_as_one_process(runs: tuple[Path, str]) -> None:
    folder, _ = runs
    (here,) = read_audits(folder / "here")
    (there,) = (one for one in read_audits(folder / "tasks") if one.row.method == "marginals")
    assert here.audit is not None and here.audit == there.audit
    one, two = (RunStore(folder / name).audit_directory(here.row.key) for name in ("here", "tasks"))
    for name in ("trials.parquet", "ledger.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert not (two / "batches").exists()


def test_audits_say_what_was_audited(runs: tuple[Path, str]) -> None:
    """Without the descriptions, an audit on open data could not be published."""
    described = read_descriptions(runs[0] / "here")
    assert described is not None
    assert [card.name for card in described.methods] == ["marginals"]
    assert [(card.identity[0], card.open) for card in described.datasets] == [
        ("breast-cancer", True)
    ]


@pytest.mark.parametrize(
    "how, status, reason",
    [
        ('{"how": "raise"}', "error", "ValueError at misbehaves_plugin.py:"),
        ('{"how": "skip"}', "skipped", "not for this task"),
        ('{"how": "exit"}', "error", "os._exit(3)"),
        ("hangs", "timeout", "still running after 3 seconds"),
    ],
)
def test_a_fault_ends_its_audit_alone_and_is_named(
    runs: tuple[Path, str], audits: dict[str, Outcome], how: str, status: str, reason: str
) -> None:
    row = audits[how].row
    assert (row.status, audits[how].audit) == (status, None)
    assert reason in row.reason
    if status != "skipped":
        log = (runs[0] / "tasks" / "logs" / f"{row.key}.log").read_text()
        assert "about to" in log or "hanging" in log


def test_trials_of_a_lost_worker_are_run_again(
    runs: tuple[Path, str], audits: dict[str, Outcome]
) -> None:
    outcome = audits["dies-once"]
    assert outcome.row.status == "ok", outcome.row.reason
    assert outcome.audit is not None and outcome.audit.refits == 40
    assert "started again" in runs[1]
