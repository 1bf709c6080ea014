"""Every run describes its plugins, and says who may have the rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.cluster.driver import run_grid
from bench.engine.about import join_descriptions, write_descriptions
from bench.engine.cell import failed_row
from bench.engine.grid import Grid
from bench.engine.merge import merge_runs
from bench.engine.options import RunOptions
from bench.plugins import registry
from bench.plugins.description import (
    FILE,
    DatasetDescription,
    Descriptions,
    MethodDescription,
    describe_dataset,
)
from bench.results.reading import read_descriptions
from bench.results.records import Cell, Outcome, Status, Variant
from bench.results.run_directory import RunStore


def card_of(name: str) -> DatasetDescription:
    return describe_dataset(registry.build_source(name))


def grid_of(*datasets: str) -> Grid:
    return Grid(
        "g",
        datasets=tuple(Variant(name, name) for name in datasets),
        methods=(Variant("ldpdc", "ldpdc"), Variant("ldpdc", "more", (("group_size", 9.0),))),
    )


def describe(directory: Path, *datasets: str) -> None:
    grid = grid_of(*datasets)
    write_descriptions(directory, grid.methods, grid.datasets)


def known(directory: Path) -> Descriptions:
    cards = read_descriptions(directory)
    assert cards is not None
    return cards


def test_every_method_has_a_card_that_can_be_read_back(tmp_path: Path) -> None:
    methods = tuple(Variant(name, name) for name in registry.method_names())
    write_descriptions(tmp_path, methods, [Variant("gbsg2", "gbsg2")])
    cards = known(tmp_path).methods
    assert [card.name for card in cards] == list(registry.method_names())
    assert all(card.title and card.text for card in cards)


@pytest.mark.parametrize("inferred", [True, False])
def test_a_users_own_table_is_never_open_and_its_place_is_not_told(
    inferred: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "hidden-folder"
    data.mkdir()
    monkeypatch.setenv("BENCH_DATA", str(data))
    rows = [f"{20 + n % 50},{'f' if n % 3 else 'm'},{n % 2}" for n in range(200)]
    (data / "ward.csv").write_text("\n".join(["age,sex,died", *rows]), encoding="utf-8")
    done = CliRunner().invoke(main, ["data", "add", str(data / "ward.csv"), "--target", "died"])
    assert done.exit_code == 0, done.output
    if not inferred:
        words = ["--by", "A. Smith", "--because", "the form says so"]
        confirmed = CliRunner().invoke(main, ["data", "confirm", "ward", *words])
        assert confirmed.exit_code == 0, confirmed.output
    describe(tmp_path, "ward")
    (card,) = known(tmp_path).datasets
    assert (card.open, card.inferred, card.origin) == (False, inferred, "the user's own table")
    assert "hidden-folder" not in (tmp_path / FILE).read_text(encoding="utf-8")


# Run directories ----------------------------------------------------------------------------------


def test_cards_of_an_earlier_grid_stay(tmp_path: Path) -> None:
    describe(tmp_path, "gbsg2")
    describe(tmp_path, "lung")
    cards = known(tmp_path)
    assert [card.name for card in cards.datasets] == ["gbsg2", "lung"]
    assert [card.name for card in cards.methods] == ["ldpdc"]
    assert all(card.open for card in cards.datasets)


def test_what_was_once_not_open_stays_so(tmp_path: Path) -> None:
    before = Descriptions(datasets=(replace(card_of("lung"), open=False),))
    (tmp_path / FILE).write_text(before.to_json(), encoding="utf-8")
    describe(tmp_path, "lung")
    assert not known(tmp_path).datasets[0].open


def test_a_damaged_file_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{", encoding="utf-8")
    describe(tmp_path, "lung")
    assert [card.name for card in known(tmp_path).datasets] == ["lung"]


def folder(path: Path, *cards: DatasetDescription) -> Path:
    path.mkdir()
    if cards:
        text = Descriptions((MethodDescription("m", "M"),), cards).to_json()
        (path / FILE).write_text(text, encoding="utf-8")
    return path


def test_joined_runs_keep_their_cards(tmp_path: Path) -> None:
    lung, gbsg2 = card_of("lung"), card_of("gbsg2")
    a, b = folder(tmp_path / "a", lung), folder(tmp_path / "b", gbsg2)
    target = folder(tmp_path / "c")
    join_descriptions(target, {a: {lung.identity}, b: {gbsg2.identity}})
    cards = known(target)
    assert cards.datasets == (lung, gbsg2) and [card.name for card in cards.methods] == ["m"]


def test_a_run_that_says_nothing_closes_what_another_opened(tmp_path: Path) -> None:
    lung = card_of("lung")
    a, b = folder(tmp_path / "a", lung), folder(tmp_path / "b")
    target = folder(tmp_path / "c")
    join_descriptions(target, {a: {lung.identity}, b: {lung.identity}})
    assert not known(target).datasets[0].open
    join_descriptions(folder(tmp_path / "d"), {b: {lung.identity}})
    assert read_descriptions(tmp_path / "d") is None


def test_a_run_writes_its_cards_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    # No file of it is there: its cells fail before Ray is asked for.
    grid = replace(grid_of("nis"), seeds=(0,), epsilon=(1.0,), ipc=(10,))
    summary = run_grid(grid, RunOptions(out=tmp_path / "run", tracking=False), lambda store: ())
    assert summary.failed == 2
    cards = known(tmp_path / "run")
    assert [(card.name, card.open) for card in cards.datasets] == [("nis", False)]
    assert [card.name for card in cards.methods] == ["ldpdc"]


def test_a_merge_keeps_the_cards(tmp_path: Path) -> None:
    for number, name in enumerate(("lung", "gbsg2")):
        with RunStore(tmp_path / name) as store:
            store.write_manifest({"grid": "g"})
            cell = Cell(
                Variant("ldpdc", "ldpdc"), Variant(name, name), 10, False, 1.0, 1e-5, number,
                "default", 0,
            )  # fmt: skip
            lost = failed_row(cell, f"key{number}", None, Status.ERROR, "oops")
            store.record(Outcome(lost), None)
            store.compact()
        describe(tmp_path / name, name)
    merge_runs([tmp_path / "lung", tmp_path / "gbsg2"], tmp_path / "both")
    cards = known(tmp_path / "both").datasets
    assert [(card.name, card.open) for card in cards] == [("lung", True), ("gbsg2", True)]
    (tmp_path / "gbsg2" / FILE).unlink()
    merge_runs([tmp_path / "lung", tmp_path / "gbsg2"], tmp_path / "again")
    assert [card.name for card in known(tmp_path / "again").datasets] == ["lung"]


def test_cells_of_the_leaderboard_command_are_a_number_all_or_none(tmp_path: Path) -> None:
    for given in ("-1", "some", "1.5", ""):
        done = CliRunner().invoke(
            main, ["leaderboard", str(tmp_path), "-o", str(tmp_path / "s"), "--cells", given]
        )
        assert done.exit_code == 2 and "is not a number" in done.output
    alone = CliRunner().invoke(main, ["leaderboard", "x", "--check", "y", "--public"])
    assert alone.exit_code == 2 and "--public concerns the site" in alone.output
