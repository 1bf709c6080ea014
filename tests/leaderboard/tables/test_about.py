"""What runs say about their plugins is joined, and never trusted further than it reaches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.leaderboard.tables.about import read_about
from bench.leaderboard.tables.load import load_results
from bench.plugins.description import (
    FILE,
    DatasetDescription,
    Descriptions,
    MethodDescription,
)

METHOD = MethodDescription("ldpdc", "Noisy sums")
DATASET = DatasetDescription("breast-cancer", "{}", "Breast cancer", open=True)


def described(directory: Path) -> Path:
    text = Descriptions((METHOD,), (DATASET,)).to_json()
    (directory / FILE).write_text(text, encoding="utf-8")
    return directory


def test_a_run_without_descriptions_has_none(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    results = load_results([run.write(tmp_path / "run")])
    about = read_about(results)
    assert (about.methods, about.datasets, about.notes) == ({}, {}, ())
    assert not about.is_open(tmp_path / "run", DATASET.identity)


def test_a_run_with_descriptions(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    directory = described(run.write(tmp_path / "run"))
    about = read_about(load_results([directory]))
    assert about.methods["ldpdc"] == METHOD
    assert about.datasets["breast-cancer", "{}"] == DATASET
    assert about.is_open(directory, ("breast-cancer", "{}"))
    assert not about.is_open(directory, ("breast-cancer", '{"rows": 3}'))
    assert not about.is_open(None, ("breast-cancer", "{}"))


def test_what_one_run_says_does_not_open_the_rows_of_another(
    new_run: Callable[[], Any], tmp_path: Path
) -> None:
    first, second = new_run(), new_run()
    first.add("ldpdc", 0.8, seed=0)
    second.add("ldpdc", 0.8, seed=1)
    directories = [first.write(tmp_path / "first"), second.write(tmp_path / "second")]
    described(directories[0])
    about = read_about(load_results(directories))
    assert about.is_open(directories[0], DATASET.identity)
    assert not about.is_open(directories[1], DATASET.identity)


def test_an_unreadable_file_is_left_out_and_said(run: Any, tmp_path: Path) -> None:
    """What is refused is tested with the reader, in tests/plugins/test_description.py."""
    run.add("ldpdc", 0.8)
    directory = run.write(tmp_path / "run")
    (directory / FILE).write_text('{"form": 2}', encoding="utf-8")
    about = read_about(load_results([directory]))
    assert (about.methods, about.datasets, about.open) == ({}, {}, frozenset())
    (note,) = about.notes
    assert note.startswith("the descriptions of run run are left out")
