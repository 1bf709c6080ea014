"""Plugins that misbehave in every way we know: each costs itself alone, and is named."""

from __future__ import annotations

import json
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from bench.cli.main import main
from tests.support.driven import BENCH, left_behind
from tests.support.installed import SECRET, install_plugin
from tests.support.pools import install_pools

FAULTS = {
    "raise": ("error", "ValueError at misbehaves_plugin.py:"),
    "exit": ("error", "os._exit(3)"),
    "leave": ("error", "sys.exit() at misbehaves_plugin.py:"),
    "skip": ("skipped", "not for this task"),
    "crash": ("error", "Segmentation fault"),
    "leak": ("out-of-memory", "MB of memory; the limit is 900 MB"),
    "file": ("error", "OSError (File too large) at misbehaves_plugin.py:"),
    "files": ("error", "MB of temporary files; the limit is 40 MB"),
    "nothing": ("error", "returned a NoneType, not a Release"),
    "nan": ("error", "2 rows hold NaN"),
    "abort": ("error", "the cell crashed its process: Aborted"),
    "kill-itself": ("error", "the process of its fit was killed"),
    "kill-its-server": ("error", "the process that starts fits was killed"),
    "close-files": ("error", "process"),  # killed, or ended by itself: whoever is first
    "hang-up": ("error", "the process of its fit was killed"),
    "scribble": ("error", "the process of its fit sent what is no result (WireError)"),
    "half": ("error", "the process of its fit was killed"),
    "replace-the-wall": ("error", "2 rows hold NaN"),
    "replace-the-ledger": ("error", "the process of its fit sent what is no result"),
}
NONSENSE = {
    "long-doubles": "values have type float128; expected floating-point numbers of 32 or 64 bits",
    "endless-rows": "numbers; a release holds at most 268,435,456",
    "complex-numbers": "values have type complex128",
    "objects": "values have type object",
    "lists": "values are a list; expected a numpy array",
    "nested": "values are a dict; expected a numpy array",
    "labels-beyond": "labels lie outside 0..1",
    "soft-negative": "soft labels must be finite and not negative",
    "weights-infinite": "weights must be one finite non-negative number per row",
    "surrogates": "note 'found' holds lone surrogates",
    "tuple-keys": "the name of a note is a tuple; expected text",
    "long-notes": "note 'all' has 50,000,000 characters",
    "word-as-claim": "the claim has epsilon 'abc'; expected a number",
    "federation-of-words": "the federation must be a Federation with its Clients",
    "ledger-of-surrogates": "a text of the ledger holds lone surrogates",
    "model-of-words": "the released model is a str; expected a ReleasedModel",
    "model-that-answers-words": "the released model answers with values of type <U3",
    "generator-exit": "GeneratorExit at misbehaves_plugin.py:",
    "interrupt": "KeyboardInterrupt at misbehaves_plugin.py:",
    "unusual": "Unusual at misbehaves_plugin.py:",
    "mute": "Mute at misbehaves_plugin.py:",
    "tell": "ValueError at misbehaves_plugin.py:",
}
FAULTS |= {how: ("error", reason) for how, reason in NONSENSE.items()}
FAULTS["shout"] = ("skipped", "too loud too loud")
HANGS = ("loop", "child", "lock")
GOOD = ("marginals", "ldpdc", "real", "pool", "folders")
"""`pool` uses `multiprocessing`, `folders` looks at who could read its temporary files."""
POOLS = ("stuck", "pools")


@dataclass
class Run:
    """A run that has ended."""

    result: subprocess.CompletedProcess[str]
    out: Path
    mark: str
    """In the environment of all its processes."""
    temporary: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """All of them in one run: to start it, and a worker, takes longer than most of the cells."""
    folder, mark = tmp_path_factory.mktemp("faults"), uuid.uuid4().hex
    methods = [f'"{name}"' for name in GOOD[:3]]
    methods += [
        f'{{name = "{method}", label = "{how}", parameters = {{how = "{how}"}}}}'
        for method, kinds in (
            ("misbehaves", [how for how in FAULTS if how not in NONSENSE and how != "shout"]),
            ("nonsense", [*NONSENSE, "shout", *GOOD[3:]]),
            ("hangs", HANGS),
        )
        for how in kinds
    ]
    methods += [f'"{name}"' for name in POOLS]
    (folder / "faults.toml").write_text(
        'datasets = ["gbsg2"]\nipc = [10]\nepsilon = [1]\nmetrics = ["ks", "c-index/cox"]\n'
        f"methods = [{', '.join(methods)}]\n"
    )
    arguments = ["run", "--grid", str(folder / "faults.toml"), "--out", str(folder / "run")]
    arguments += ["--memory-limit", "900", "--disk-limit", "40", "--cpus", "2"]
    for install in (install_plugin, install_pools):
        environment = install(folder / "packages")
    # Short, since Ray puts sockets below it.
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp") as temporary:
        result = subprocess.run(
            [*BENCH, *arguments], capture_output=True, text=True, check=False, timeout=1800,
            umask=0o022, env={**environment, "BENCH_TEST_MARK": mark, "TMPDIR": temporary},
        )  # fmt: skip
        yield Run(result, folder / "run", mark, Path(temporary))


@pytest.fixture(scope="module")
def rows(run: Run) -> pd.DataFrame:
    assert run.result.returncode == 1, run.result.stdout + run.result.stderr
    assert "Traceback" not in run.result.stdout + run.result.stderr
    return pd.read_parquet(run.out / "cells.parquet").set_index("label")


def log_of(run: Run, row: pd.Series) -> str:
    path = run.out / "logs" / f"{row['key']}.log"
    assert row["reason"].endswith(f"; see logs/{path.name}")
    return path.read_text()


def test_the_grid_has_enough_kinds_of_faults() -> None:
    assert len(FAULTS) + len(HANGS) >= 25


@pytest.mark.parametrize("label", GOOD)
def test_every_other_cell_is_ok(rows: pd.DataFrame, label: str) -> None:
    assert rows.loc[label, "status"] == "ok", rows.loc[label, "reason"]


@pytest.mark.parametrize("how", FAULTS)
def test_every_fault_is_named(run: Run, rows: pd.DataFrame, how: str) -> None:
    status, reason = FAULTS[how]
    assert rows.loc[how, "status"] == status
    assert reason in rows.loc[how, "reason"]
    assert len(rows.loc[how, "reason"]) < 2200
    if status != "skipped":
        assert f"about to {how}" in log_of(run, rows.loc[how]), "the last lines of its log"


@pytest.mark.parametrize("how", HANGS)
def test_a_cell_that_hangs_is_stopped(run: Run, rows: pd.DataFrame, how: str) -> None:
    assert rows.loc[how, "status"] == "timeout"
    assert rows.loc[how, "reason"].startswith("still running after 3 seconds; see logs/")
    assert f"hanging in a {how}" in log_of(run, rows.loc[how])


def test_nothing_is_tried_twice(run: Run) -> None:
    assert "started again" not in run.result.stdout
    lines = [json.loads(line) for line in (run.out / "journal.jsonl").open()]
    cells = (*FAULTS, *HANGS, *GOOD, *POOLS)
    assert len(lines) == len(cells)


def test_nothing_is_left_behind(run: Run) -> None:
    assert left_behind(run.mark) == []
    left = [path.name for path in run.temporary.iterdir() if not path.name.startswith("ray")]
    assert left == [], "folders of cells, or their temporary files"


def test_what_a_plugin_says_about_rows_stays_in_the_internal_log(
    run: Run, rows: pd.DataFrame
) -> None:
    assert SECRET in log_of(run, rows.loc["tell"]), "whoever owns the run can read it"
    assert f"ValueError: row content: {SECRET}" in log_of(run, rows.loc["tell"])
    assert SECRET not in run.result.stdout + run.result.stderr
    assert not rows.astype(str).map(lambda text: SECRET in text).any().any()
    elsewhere = [
        path.relative_to(run.out)
        for path in run.out.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert elsewhere and all(path.parts[0] == "logs" for path in elsewhere)


def test_control_characters_and_long_messages_are_cut(run: Run, rows: pd.DataFrame) -> None:
    assert "\x1b[2J" not in run.result.stdout and "\x1b" not in rows.loc["shout", "reason"]
    assert "[cut: 54,000,004 characters]" in rows.loc["shout", "reason"]
    assert len(run.result.stdout) < 200_000


def test_everything_is_for_the_owner_only(run: Run) -> None:
    """The run was started with a mask that would let everybody read."""
    wide = [
        f"{path.relative_to(run.out.parent)} {stat.filemode(path.stat().st_mode)}"
        for path in [run.out, *run.out.rglob("*")]
        if path.stat().st_mode & 0o077
    ]
    assert wide == []


def test_the_site_says_nothing_of_the_rows(run: Run, tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["leaderboard", str(run.out), "-o", str(tmp_path / "s")])
    assert told.exit_code == 0, told.output
    pages = [path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file()]
    assert any(b"misbehaves_plugin.py" in page for page in pages)
    assert not any(SECRET.encode() in page for page in pages)


def test_faults_show_in_mlflow(run: Run) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run.out / 'mlflow.db'}")
    logged = client.search_runs([e.experiment_id for e in client.search_experiments()])
    found = {one.data.params["label"]: one.data.tags["status"] for one in logged if one.data.params}
    assert {how: found[how] for how in FAULTS} == {how: FAULTS[how][0] for how in FAULTS}
    assert {found[how] for how in HANGS} == {"timeout"}


# Pools of a wrapped library -----------------------------------------------------------------------


def test_a_stuck_pool_is_one_timeout_and_others_are_not(rows: pd.DataFrame) -> None:
    assert rows.loc[[*POOLS], "status"].to_dict() == {"stuck": "timeout", "pools": "ok"}
    assert "still running after 6 seconds" in rows.loc["stuck", "reason"]
    assert rows.loc["pools", "verdict"] == "unproven"
    assert rows.loc["pools", "claim_source"] == "pools 1.0"
