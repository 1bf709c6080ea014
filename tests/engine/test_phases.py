"""The phase of a cell: entered where it is computed, read by whoever shows progress."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.engine import phases
from bench.engine.cell import run_cell
from bench.engine.grid import load_grid
from bench.engine.plan import load_dataset


def test_a_cell_goes_through_its_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read after every step from the folder, as a watcher does."""
    entered = []
    enter = phases.enter

    def watched(phase: str, what: str = "") -> None:
        enter(phase, what)
        entered.append(phases.read(tmp_path))

    monkeypatch.setattr(phases, "enter", watched)
    grid = load_grid("smoke").narrowed(methods=["marginals"], datasets=["gbsg2"])
    (cell,) = grid.cells()
    dataset = load_dataset(cell.dataset, grid.split, grid.split_seeds[0])
    with phases.showing(tmp_path):
        outcome = run_cell(cell, "k", dataset, ("ks", "tvd"))  # type: ignore[arg-type]
    assert outcome.row.status == "ok", outcome.row.reason
    assert entered == ["fit", "prove", "score ks", "score tvd"]


def test_nothing_is_written_outside_of_a_watched_cell(tmp_path: Path) -> None:
    with phases.showing(tmp_path):
        pass
    phases.enter("fit")
    assert list(tmp_path.iterdir()) == [] and phases.read(tmp_path) == ""


def test_a_folder_that_is_gone_does_not_disturb_the_cell(tmp_path: Path) -> None:
    with phases.showing(tmp_path / "gone"):
        phases.enter("fit")
    assert phases.read(tmp_path / "gone") == ""


def test_what_a_method_puts_there_is_bounded_and_never_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "phase"
    place.write_text("\x1b[2J" + "x" * 10_000)
    assert len(phases.read(tmp_path)) <= 80 and "\x1b" not in phases.read(tmp_path)
    place.unlink()
    os.mkfifo(place)
    assert phases.read(tmp_path) == ""
    place.unlink()
    (tmp_path / "secret").write_text("rows")
    place.symlink_to(tmp_path / "secret")
    assert phases.read(tmp_path) == ""
