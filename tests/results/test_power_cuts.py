"""The power is cut at every write of a run directory: whatever the disk holds, the run resumes.

The writes of real runs (the driver with its journal, releases, details, logs, charges and tables; a
merge; an audit) are recorded and replayed up to each of them, with everything that was not synced
lost, torn, zeroed or reordered (`tests/support/power.py`). On each such disk:

- `bench status` reads the directory, and what it holds was reported: no cell that was reported as
  finished is lost, none is computed again, no charge of a budget is forgotten;
- every release that the journal refers to is there, byte by byte as it was recorded;
- the same command resumes, compacts, and ends with the bytes of an undisturbed run.

The suite takes some disks after each report and each line of a journal; `make slow` takes all.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bench.audit import trials
from bench.audit.trials import FIRST, Trial, TrialStore
from bench.cli.main import main
from bench.cluster import driver
from bench.cluster.driver import run_grid
from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.cell import blank_row, failed_outcome, run_cell
from bench.engine.fit import FitResult
from bench.engine.grid import Grid
from bench.engine.merge import merge_runs
from bench.engine.options import RunOptions
from bench.engine.plan import Job, load_dataset, stored_outcome
from bench.results import run_directory
from bench.results.journal import QUARANTINE, Journal
from bench.results.reading import load_results
from bench.results.records import AuditRow, AuditSpec, Cell, CellRow, Outcome, Status, Variant
from bench.results.run_directory import RunningCell, RunStore
from tests.support.power import Disk, Op, Recorder, Tree, digest, write_tree

BREAST = Variant("breast-cancer", "breast-cancer")
GRID = Grid(
    "power", (BREAST,), (Variant("marginals", "marginals"), Variant("real", "real")), ipc=(5,),
    epsilon=(1.0,), seeds=(0, 1), metrics=("ks",),
)  # fmt: skip
ROW_FILES = ("synthetic.parquet", "encoded.parquet")
RUN = "runs/run"
TABLES = ("cells.parquet", "scores.parquet")
TIMES = ["fit_seconds", "score_seconds", "peak_memory_mb", "finished_at"]
"""Columns that differ between two runs of a cell."""

Told = list[tuple[str, str, str]]
"""What was reported: (`finished` or `charged`, key, status)."""


class Computed:
    """Computes cells in this process, each once: what is tested is how they are stored."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, tuple[str, ...]], Outcome] = {}
        self.datasets: dict[Any, Any] = {}
        self.fitted: list[str] = []
        self.mark: Callable[[Any], None] = lambda said: None

    def load(self, entry: Variant, split: str, seed: int) -> Any:
        if entry not in self.datasets:
            self.datasets[entry] = load_dataset(entry, split, seed)
        return self.datasets[entry]

    def run_jobs(
        self,
        jobs: Sequence[Job],
        datasets: Any,
        store: RunStore,
        options: RunOptions,
        stop: Any,
        say: Any,
        running_now: Any,
    ) -> Generator[tuple[Job, Outcome], None, None]:
        for job in jobs:
            running_now([RunningCell(job.key, job.cell)])
            dataset = datasets[job.cell.dataset]
            stored = stored_outcome(job, store, dataset) if job.scoring else None
            if job.charges:
                store.charge(job.key, keys.charge_identity(job.cell, dataset.fingerprint))
                self.mark(("charged", job.key, ""))
            if not job.scoring:
                self.fitted.append(job.key)
            yield job, self.outcome(job, dataset, stored)

    def outcome(self, job: Job, dataset: Dataset, stored: Outcome | None) -> Outcome:
        asked = (job.key, job.metrics if job.scoring else ("fit", *job.metrics))
        if asked not in self.known:
            if job.cell.method.name == "real" and job.cell.seed == 1:
                result = FitResult(Status.ERROR, reason="ValueError at x.py:1", log="it said so")
                self.known[asked] = failed_outcome(blank_row(job.cell, job.key, dataset), result)
            else:
                self.known[asked] = run_cell(job.cell, job.key, dataset, job.metrics, stored)
        return self.known[asked]

    def planned(self, total: int, cached: int, notices: Sequence[str]) -> None:
        """Take note of nothing: this observer waits for results."""

    def finished(self, outcome: Outcome, store: RunStore) -> None:
        self.mark(("finished", outcome.row.key, outcome.row.status))

    def running(self, cells: Sequence[RunningCell]) -> None:
        """Take note of nothing, as above."""

    def run(self, root: Path, grid: Grid = GRID, *, secure: bool = False) -> None:
        self.fitted.clear()
        options = RunOptions(root / RUN, tracking=False, secure_noise=secure)
        run_grid(grid, options, lambda store: [self])


@pytest.fixture(scope="module")
def computed() -> Iterator[Computed]:
    here = Computed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "run_jobs", here.run_jobs)
        patch.setattr(driver, "load_dataset", here.load)
        # It asks git about the checkout, which takes as long as all the rest.
        patch.setattr(driver, "manifest", lambda grid, metrics: {"grid": grid.name})
        # The progress is written after every cell.
        patch.setattr(run_directory, "_EVERY_SECONDS", 0.0)
        yield here


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here needs to outlive the machine: only the recorder has to see the syncs."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "sync", lambda: None)


# Scenarios ----------------------------------------------------------------------------------------


@dataclass
class Scenario:
    """Writes that were recorded, and how to check a disk that was cut off from them."""

    recorder: Recorder
    check: Callable[[Path, Told], None]

    def disks(self, *, many: bool) -> Iterator[tuple[int, str, Told, Tree]]:
        """Return the disks that differ, each with the point and the way in which it came about."""
        seen: set[tuple[bytes, int]] = set()
        ops = self.recorder.ops
        for cut in range(len(ops) + 1):
            if not many and not _telling(ops, cut):
                continue
            disk = Disk(self.recorder, cut)
            for how, tree in disk.states(many=many):
                if not many and how not in FEW:
                    continue
                identity = (digest(tree), len(disk.said))
                if identity not in seen:
                    seen.add(identity)
                    yield cut, how, list(disk.said), tree


FEW = ("all that was done", "what was synced", "content with holes")


def _telling(ops: Sequence[Op], cut: int) -> bool:
    """True after a report, and where a line of a journal that is in use was written and synced."""
    if cut in (0, len(ops)):
        return cut > 0
    named = {op.target: op.name for op in ops if op.kind in ("create", "rename")}
    last = ops[cut - 1]
    line = named.get(last.inode, "").endswith(".jsonl")
    # A merge writes a whole journal before anybody can see it.
    return last.kind == "mark" or (line and any(op.kind == "mark" for op in ops[:cut]))


def states(tree: Path) -> dict[str, CellRow]:
    return {row.key: row for row, _ in Journal(tree / RUN / "journal.jsonl").all()}


def table(root: Path, name: str) -> pd.DataFrame:
    order = ["key", "metric"] if name == "scores.parquet" else ["key"]
    frame = pd.read_parquet(root / RUN / name).sort_values(order, ignore_index=True)
    return frame.drop(columns=TIMES, errors="ignore")


def files(root: Path, *rooms: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for room in rooms
        for path in (root / room).rglob("*")
        if path.is_file()
    }


def check_reports(root: Path, told: Told, without: frozenset[str] = frozenset()) -> None:
    """Check what can be seen before anything is repaired; `without` were damaged from the start."""
    run = root / RUN
    shown = CliRunner().invoke(main, ["status", str(run)])
    if not (run / "run.json").exists():
        assert not told, "all is lost that was reported"
        assert shown.exit_code == 2
        return
    assert shown.exit_code == 0, shown.output
    rows = states(root)
    if (run / "journal.jsonl").exists():
        assert set(load_results(run).cells["key"]) == set(rows), "as the leaderboard reads it"
    assert set(rows) >= {key for kind, key, _ in told if kind == "finished"}, "a cell is lost"
    last = {key: status for kind, key, status in told if kind == "finished"}
    assert {key: rows[key].status for key in last} == last
    store = RunStore(run)
    for key, row in rows.items():
        if row.verdict and key not in without:
            rows_of = {"rows.json"} if math.isinf(row.eps_proven or 0.0) else {*ROW_FILES}
            assert set(json.loads(row.release_hashes)) == {"ledger.json", "release.json", *rows_of}
            assert store.intact(row), "the journal refers to a release that is not there"
            assert (run / "details" / key / "ks.parquet").read_bytes()[-4:] == b"PAR1"
        if row.reason.endswith(".log"):
            assert (run / "logs" / f"{key}.log").read_bytes() == b"it said so"
    charges = store.charged() if (run / "charges.jsonl").exists() else set()
    assert charges >= {key for kind, key, _ in told if kind == "charged"}, "a charge is lost"


def check_end(root: Path, calm: Path, spent: frozenset[str] = frozenset()) -> None:
    """Compare a resumed run with an undisturbed one, but for cells whose budget was `spent`."""
    for name in TABLES:
        one, two = (table(side, name) for side in (root, calm))
        keep = ~one["key"].isin(spent), ~two["key"].isin(spent)
        one, two = one[keep[0]].reset_index(drop=True), two[keep[1]].reset_index(drop=True)
        pd.testing.assert_frame_equal(one, two)
    rooms = ("releases", "details", "logs")
    here, there = (files(side / RUN, *rooms) for side in (root, calm))
    lost = {name for name in there if any(key in name for key in spent)}
    assert {name: here[name] for name in there if name not in lost} == {
        name: content for name, content in there.items() if name not in lost
    }
    assert not [path for path in (root / RUN).rglob("*") if path.name.endswith(".part")]


def first_run(folder: Path, computed: Computed, *, secure: bool = False) -> Scenario:
    """A new run directory, its parents included; with `secure`, budgets are charged."""
    calm = folder / "calm"
    calm.mkdir()
    recorder = Recorder(calm)
    computed.mark = recorder.mark
    with recorder.recording():
        computed.run(calm, secure=secure)
    computed.mark = lambda said: None
    assert recorder.complete()

    def check(root: Path, told: Told) -> None:
        check_reports(root, told)
        reported = {key for kind, key, status in told if kind == "finished" and status == "ok"}
        spent: frozenset[str] = frozenset()
        before: dict[str, CellRow] = {}
        if (root / RUN / "run.json").exists():
            before = {key: row for key, row in states(root).items() if row.status == "ok"}
            spent = frozenset(key for key in RunStore(root / RUN).charged() if len(key) < 30)
            spent -= set(before)
        computed.run(root, secure=secure)
        assert not set(computed.fitted) & reported, "what was finished is not computed again"
        after = states(root)
        for key in spent & set(after):
            assert after[key].status == "error" and "its budget is spent" in after[key].reason
        check_end(root, calm, spent & set(after))

    return Scenario(recorder, check)


def resumed_run(folder: Path, computed: Computed) -> Scenario:
    """A directory with a bad line, a torn line and a damaged release, and one metric more."""
    calm = folder / "calm"
    calm.mkdir()
    computed.run(calm)
    path = calm / RUN / "journal.jsonl"
    damaged = next(key for key, row in states(calm).items() if row.method == "marginals")
    lines = path.read_bytes()
    path.write_bytes(b'{"cell": {"key": "strange"}}\n' + lines + lines[:100])
    (calm / RUN / "releases" / damaged / "encoded.parquet").write_bytes(b"PAR1")
    grid = replace(GRID, metrics=("ks", "wasserstein"))
    recorder = Recorder(calm)
    computed.mark = recorder.mark
    with recorder.recording():
        computed.run(calm, grid)
    computed.mark = lambda said: None
    assert recorder.complete()

    def check(root: Path, told: Told) -> None:
        refit = {key for kind, key, _ in told if kind == "finished"}
        check_reports(root, told, frozenset({damaged} - refit))
        kept = root / RUN / QUARANTINE
        strange = b'{"cell": {"key": "strange"}}\n'
        both = (root / RUN / "journal.jsonl").read_bytes()
        both += kept.read_bytes() if kept.exists() else b""
        assert strange in both, "a line that was moved away is lost"
        computed.run(root, grid)
        assert not set(computed.fitted) & (refit - failed_keys(computed))
        assert strange in kept.read_bytes()
        check_end(root, calm)

    return Scenario(recorder, check)


def failed_keys(computed: Computed) -> set[str]:
    """Return the keys of the cell that fails, with secure noise and without, whichever test ran."""
    return {key for (key, _), one in computed.known.items() if one.row.status == "error"}


def merged_runs(folder: Path, computed: Computed) -> Scenario:
    """Two directories become one, which is there as a whole or not at all."""
    calm = folder / "calm"
    calm.mkdir()
    computed.run(calm)
    (calm / RUN).rename(calm / "one")
    computed.run(calm, replace(GRID, seeds=(2,)))
    (calm / RUN).rename(calm / "two")
    recorder = Recorder(calm)
    with recorder.recording():
        merge_runs([calm / "one", calm / "two"], calm / RUN)
        recorder.mark(("merged", "", ""))
    assert recorder.complete()

    def check(root: Path, told: Told) -> None:
        if told or (root / RUN).exists():
            shown = CliRunner().invoke(main, ["status", str(root / RUN)])
            assert shown.exit_code == 0, shown.output
        else:
            merge_runs([root / "one", root / "two"], root / RUN)
        check_end(root, calm)
        store = RunStore(root / RUN)
        assert all(store.intact(row) for row in states(root).values() if row.verdict)

    return Scenario(recorder, check)


def audited(folder: Path, computed: Computed) -> Scenario:
    """An audit: batches of trials, which become one file, and then the line of its cell."""
    calm = folder / "calm"
    calm.mkdir()
    cell = Cell(
        Variant("marginals", "marginals"), BREAST, 5, False, 1.0, 1e-5, 0, "default", 0,
        audit=AuditSpec("two-world", 40),
    )  # fmt: skip
    key = "a" * 20
    row = replace(blank_row(cell, key, None), status="ok", verdict="sound")
    numbers = AuditRow(
        key, 4, 4, "none", "none", 0.5, 0.1, 0.1, None, 1.0, 1.0, 1.0, None, "", None
    )  # fmt: skip

    def trial(number: int) -> Trial:
        zeros = np.zeros((1, 1))
        return Trial(
            replace(FIRST, number=number), zeros, np.zeros(0), np.zeros(0, np.float32), 1.0, 1.0,
            "", 0.5,
        )  # fmt: skip

    def attack(root: Path, mark: Callable[[Any], None]) -> None:
        with RunStore(root / RUN) as store:
            if not (key in store.finished and store.intact(store.finished[key][0])):
                stored = TrialStore(store.audit_directory(key))
                for number in range(0, 4, 2):
                    new = stored.missing([trial(n).id for n in (number, number + 1)])
                    if new:
                        stored.add([trial(one.number) for one in new])
                        mark(("stored", str(number), ""))
                assert len(stored) == 4
                trials.write_file(store.audit_directory(key) / "ledger.json", b"{}")
                stored.finish()
                store.record(Outcome(row, audit=numbers), None)
                mark(("finished", key, "ok"))
            store.compact()

    recorder = Recorder(calm)
    with recorder.recording():
        attack(calm, recorder.mark)
    assert recorder.complete()

    def check(root: Path, told: Told) -> None:
        run = root / RUN
        if (run / "run.json").exists():
            rows = states(root)
            assert ("finished", key, "ok") not in told or key in rows, "an audit is lost"
            assert key not in rows or RunStore(run).audit_intact(key)
        else:
            assert not told
        again: list[Any] = []
        attack(root, again.append)
        assert ("finished", key, "ok") not in told or not again, "it is not attacked again"
        for name in ("audits.parquet", "cells.parquet"):
            assert (run / name).read_bytes() == (calm / RUN / name).read_bytes()
        here, there = (files(side / RUN, "audits") for side in (root, calm))
        assert here == there

    return Scenario(recorder, check)


SCENARIOS: dict[str, Callable[[Path, Computed], Scenario]] = {
    "a first run": first_run,
    "a run with secure noise": lambda folder, here: first_run(folder, here, secure=True),
    "a run that resumes": resumed_run,
    "a merge": merged_runs,
    "an audit": audited,
}


def survives_all_cuts(name: str, folder: Path, computed: Computed, *, many: bool) -> str:
    scenario = SCENARIOS[name](folder, computed)
    tried, cuts = 0, set()
    for cut, how, told, tree in scenario.disks(many=many):
        root = folder / "cut"
        root.mkdir()
        write_tree(tree, root)
        try:
            scenario.check(root, told)
        except BaseException as problem:
            last = [replace(op, content=op.content[:60]) for op in scenario.recorder.ops[:cut][-3:]]
            problem.add_note(f"{name}: cut before operation {cut}, on the disk: {how}; last {last}")
            raise
        shutil.rmtree(root)
        tried += 1
        cuts.add(cut)
    points = len(scenario.recorder.ops) + 1
    return f"{name}: {points} cut points, {len(cuts)} with other content, {tried} disks"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_power_cut_next_to_every_report_loses_nothing(
    name: str, tmp_path: Path, computed: Computed
) -> None:
    survives_all_cuts(name, tmp_path, computed, many=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_power_cut_at_every_write_loses_nothing(
    name: str, tmp_path: Path, computed: Computed, capsys: pytest.CaptureFixture[str]
) -> None:
    told = survives_all_cuts(name, tmp_path, computed, many=True)
    with capsys.disabled():
        print(f"\n{told}")
