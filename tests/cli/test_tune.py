"""`bench tune` as a user meets it; the trials themselves are tested in tests/engine."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from bench.cli import session
from bench.cli.main import main
from bench.engine.grid import Grid
from bench.engine.options import RunOptions
from tests.leaderboard.conftest import Run


def tune(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", *arguments])


def test_a_dry_run_lists_the_trials() -> None:
    done = tune("fedavg-dp", "--trials", "3", "--datasets", "digits", "--seeds", "0,1", "--dry-run")
    lines = done.output.splitlines()
    assert done.exit_code == 0 and lines[0] == "defaults: as declared" and lines[-1] == "6 cells"
    assert lines[1].startswith("trial 01: hidden=") and len(lines) == 4


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("real",), "declares nothing to tune"),
        (("mstt",), "did you mean mst"),
        (("mst", "--trials", "0"), "0 is not in the range"),
    ],
)
def test_refusals_have_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = tune(*arguments)
    assert done.exit_code == 2 and message in done.output and done.output.count("\n") == 1


def test_a_missing_dataset_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = tune("mst", "--data-dir", str(tmp_path))
    assert done.exit_code == 2 and "tuning needs dmlate, meps-drugs, nhanes" in done.output


@pytest.mark.parametrize("better", [True, False])
def test_what_is_proposed_follows_from_the_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: bool
) -> None:
    def ran(grid: Grid, options: RunOptions) -> SimpleNamespace:
        assert grid.split == "tuning"
        run = Run()
        for number, entry in enumerate(grid.methods):
            for seed in grid.seeds:
                run.add(
                    entry.label,
                    0.8 + seed / 100 + (number if better else -number) * (0.02 + seed / 1000),
                    method=entry.name,
                    dataset="digits",
                    seed=seed,
                    parameters=json.dumps(dict(entry.parameters)),
                )
        run.write(options.out)
        return SimpleNamespace(interrupted=False)

    monkeypatch.setattr(session, "run_with_progress", ran)
    out = tmp_path / "run"
    done = tune("fedavg-dp", "--trials", "3", "--datasets", "digits", "--out", str(out))
    assert done.exit_code == 0, done.output
    chosen = json.loads((out / "trials.json").read_text())["chosen"]
    if better:
        assert chosen == "trial 02" and "proposed: trial 02: hidden=" in done.output
        assert "tuned_on has digits" in done.output
    else:
        assert chosen == "defaults" and "proposed: the defaults" in done.output
