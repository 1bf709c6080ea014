"""A public site: nothing that was computed from private rows, in any of its files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench.leaderboard.charts.chart import library
from bench.leaderboard.charts.sheet import LIBRARY
from bench.leaderboard.pages.board import compile_board
from bench.leaderboard.pages.site import write_site
from bench.leaderboard.ranking.quantities import standings
from bench.leaderboard.ranking.rows import aggregate
from bench.leaderboard.tables.about import read_about
from bench.leaderboard.tables.load import Results, load_results
from bench.leaderboard.tables.public import redact, without_paths
from bench.leaderboard.templates.rendering import cell_path
from bench.plugins.description import FILE, ColumnDescription, DatasetDescription, Descriptions

OPEN = DatasetDescription("breast-cancer", "{}", "Breast cancer", open=True)
CLOSED = DatasetDescription("ward", "{}", "A ward of ours", licence="closed", open=False)
ALL = 10_000

# What must not be found in any file, and what a reader of an internal site finds there.
KEY = "c0ffee-key-of-the-ward"
PRINT = "c0ffee-fingerprint"
SECRET_TEXTS = ("c0ffee", "Mrs Miller", "noted-by-the-method", "too-few-deaths", "not-for-you")
SCORE = 0.71828182
SECONDS, MEMORY = 4321.0, 8765.0
HOME = "/home/somebody/secret-project/"


def cards(directory: Path, *datasets: DatasetDescription) -> Path:
    (directory / FILE).write_text(Descriptions(datasets=datasets).to_json(), encoding="utf-8")
    return directory


@pytest.fixture
def directory(run: Any, tmp_path: Path) -> Path:
    """Three methods on an open dataset, and on a closed one with a secret in every field."""
    for label, utility in (("alpha", 0.9), ("beta", 0.8), ("gamma", 0.7)):
        run.add(label, utility)
    run.fail(
        "delta",
        reason=f"cannot read {HOME}data/table.csv: no such file",
        log_tail=f'File "{HOME}bench/engine/cell.py", line 3',
    )
    private = {
        "dataset": "ward",
        "fingerprint": PRINT,
        "warnings": "too-few-deaths",
        "notes": json.dumps({"remark": "noted-by-the-method"}),
        "log_tail": "row 7: Mrs Miller",
        "fit_seconds": SECONDS,
        "peak_memory_mb": MEMORY,
        "finished_at": "2026-01-01T13:37:42.000+00:00",
    }
    for label, utility in (("alpha", SCORE), ("beta", SCORE - 0.2)):
        run.add(label, utility, key=f"{KEY}-{label}", **private)
    run.score(f"{KEY}-alpha", "dcr", None, family="privacy", reason="not-for-you")
    run.fail("gamma", key=f"{KEY}-gamma", **private | {"reason": "Mrs Miller has no age"})
    return cards(run.write(tmp_path / "run"), OPEN, CLOSED)


def redacted(directory: Path) -> tuple[Results, tuple[str, ...]]:
    results = load_results([directory])
    return redact(results, read_about(results))


def contents(site: Path) -> dict[str, str]:
    """Every file as text; tables as they are read; not the script of the charts' library."""
    found = {}
    for path in sorted(site.rglob("*")):
        if path.name == LIBRARY:
            assert path.read_bytes() == library()
            continue
        if path.suffix == ".parquet":
            found[path.name] = pd.read_parquet(path).to_csv()
        elif path.is_file():
            # Also inside packed downloads nothing is hidden from a search for plain bytes.
            found[str(path.relative_to(site))] = path.read_bytes().decode("utf-8", "replace")
    return found


def test_no_secret_is_in_any_file(directory: Path, tmp_path: Path) -> None:
    write_site([directory], tmp_path / "internal", cells=ALL)
    write_site([directory], tmp_path / "public", cells=ALL, public=True)
    internal, public = contents(tmp_path / "internal"), contents(tmp_path / "public")
    numbers = ("0.718", "0.698", "0.518", "0.498", "4,321", "4321", "8765", "8,765", "13:37")
    for secret in (*SECRET_TEXTS, *numbers, HOME, "somebody", str(directory.parent)):
        where = [name for name, text in public.items() if secret in text]
        assert not where, f"{secret} is in {where}"
    for secret in ("c0ffee", "Mrs Miller", "too-few-deaths", "0.718", "4321", "somebody"):
        assert any(secret in text for text in internal.values()), f"{secret}: the test sees nothing"


def test_what_was_computed_from_open_rows_stays(directory: Path, tmp_path: Path) -> None:
    write_site([directory], tmp_path / "public", cells=ALL, public=True)
    public = contents(tmp_path / "public")
    table = pd.read_csv(tmp_path / "public" / "leaderboard.csv")
    shown = table.set_index(["dataset", "label"])["headline"]
    assert shown["breast-cancer", "alpha"] == 0.9
    assert math.isnan(shown["ward", "alpha"])
    assert "table.csv" in public["leaderboard.md"]


def test_the_public_site_says_what_it_left_out(directory: Path, tmp_path: Path) -> None:
    _, omitted = redacted(directory)
    said = "; ".join(omitted)
    assert "all scores of 3 cells on data that are not public (ward): 3 values" in said
    assert "running time, memory" in said and "keys and fingerprints" in said
    board = compile_board([directory], public=True)
    assert any(said in note.text for note in board.notes)


def test_frames_are_cleaned_before_anything_is_computed(directory: Path) -> None:
    results, _ = redacted(directory)
    ward = results.cells[results.cells["dataset"] == "ward"]
    assert set(ward["fingerprint"]) == {""} and set(ward["log_tail"]) == {""}
    assert set(ward["reason"]) == {""} and set(ward["notes"]) == {"{}"}
    assert set(ward["finished_at"]) == {"2026-01-01"}
    for column in ("fit_seconds", "score_seconds", "peak_memory_mb", "eps_audited"):
        assert ward[column].isna().all()
    assert ward["status"].tolist() == ["ok", "ok", "error"]
    assert ward["verdict"].tolist() == ["sound", "sound", ""]
    assert not results.scores["key"].isin(ward["key"]).any()
    assert set(results.scores["key"]) <= set(results.cells["key"])
    assert set(results.homes) == set(results.cells["key"])
    assert not any("c0ffee" in key for key in results.homes)


def test_open_cells_keep_key_and_numbers(directory: Path) -> None:
    before = load_results([directory])
    after, _ = redacted(directory)
    kept = after.cells["dataset"] == "breast-cancer"
    assert after.cells.loc[kept, "key"].tolist() == before.cells.loc[kept, "key"].tolist()
    assert after.cells.loc[kept, "fit_seconds"].tolist()[:3] == [2.0, 2.0, 2.0]
    assert after.cells.loc[kept, "fingerprint"].tolist() == ["f"] * 4


def test_the_public_key_follows_from_what_was_asked_for_alone(
    new_run: Callable[[], Any], tmp_path: Path
) -> None:
    found = []
    for number, utility in enumerate((0.1, 0.9)):
        run = new_run()
        run.add("alpha", utility, dataset="ward", key=f"k{number}", fingerprint=f"f{number}")
        run.add("alpha", utility, dataset="ward", key=f"l{number}", fingerprint="f", seed=1)
        found.append(redacted(run.write(tmp_path / str(number)))[0].cells["key"].tolist())
    assert found[0] == found[1]
    assert len(set(found[0])) == 2 and all(key.startswith("public-") for key in found[0])


def test_what_was_left_out_is_not_ranked_as_failing(directory: Path) -> None:
    results, _ = redacted(directory)
    rows, places = aggregate(results)
    ranked = {one.label: one for one in standings(places, rows)}
    # On the open dataset alone: 1, 2, 3; the closed one ranks nobody.
    assert [ranked[name].mean_rank for name in ("alpha", "beta", "gamma")] == [1.0, 2.0, 3.0]
    assert sum(one.failing for one in ranked.values()) == 1  # delta, which failed on the open one
    assert {one.datasets for one in ranked.values()} == {1}
    ward = [row for row in rows if row.dataset == "ward"]
    assert {row.place.rank for row in ward} == {None}
    assert all("left out of the public site" in row.place.reason for row in ward)
    assert [row.failed for row in ward] == [0, 0, 1]


def test_without_cards_everything_counts_as_private(directory: Path, tmp_path: Path) -> None:
    (directory / FILE).unlink()
    results, omitted = redacted(directory)
    assert results.scores.empty and "7 cells" in omitted[0]
    write_site([directory], tmp_path / "public", cells=ALL, public=True)
    for name, text in contents(tmp_path / "public").items():
        assert "0.900" not in text and "0.880" not in text, name


def test_numbers_of_an_audit_go_and_its_verdict_stays(run: Any, tmp_path: Path) -> None:
    run.add(
        "alpha",
        dataset="ward",
        eps_audited=3.25,
        verdict="claim refuted",
        verdict_reason="audited 3.25 is more than claimed",
    )
    results, _ = redacted(run.write(tmp_path / "run"))
    cell = results.cells.iloc[0]
    assert cell["verdict"] == "claim refuted" and pd.isna(cell["eps_audited"])
    assert "3.25" not in cell["verdict_reason"]


def test_how_many_rows_came_out_is_kept_only_where_that_is_proven(
    run: Any, tmp_path: Path, non_private: dict[str, Any]
) -> None:
    run.add("alpha", dataset="ward", rows_released=100)
    run.add("real", dataset="ward", rows_released=341, **non_private)
    cells = redacted(run.write(tmp_path / "run"))[0].cells
    assert cells["rows_released"].tolist() == [100, pd.NA]


def test_names_that_differ_in_their_folder_stay_apart(run: Any, tmp_path: Path) -> None:
    for seed, folder in enumerate(("/home/a/", "/home/b/")):
        given = json.dumps({"table": f"{folder}x.csv"})
        run.add("alpha", 0.5, key=str(seed), parameters=given)
    cells = redacted(run.write(tmp_path / "run"))[0].cells
    assert cells["shown_label"].nunique() == 2
    assert not cells["shown_label"].str.contains("home").any()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("cannot read /home/a/b.csv: no", "cannot read [folder]/b.csv: no"),
        ("'/data/x y/b.csv'", "'[folder]/x y/b.csv'"),
        ("in ~/work/run/cells.parquet", "in [folder]/cells.parquet"),
        (r"C:\Users\a\b.csv", "[folder]/b.csv"),
        ("see https://host.org/a/b.html", "see https://host.org/a/b.html"),
        ("metric auroc/rf and c-index/cox", "metric auroc/rf and c-index/cox"),
        ("add/remove, 1/(10 n)", "add/remove, 1/(10 n)"),
        ("file:///home/a/b.csv", "[folder]/b.csv"),
        ("PYTHONPATH=/a/b/c:/d/e/f", "PYTHONPATH=[folder]/c:[folder]/f"),
        ("error:/home/a/b.csv", "error:[folder]/b.csv"),
    ],
)
def test_folders_go_and_names_stay(text: str, clean: str) -> None:
    assert without_paths(text) == clean


def test_a_schema_read_off_the_rows_is_left_out(run: Any, tmp_path: Path) -> None:
    run.add("alpha", 0.5, dataset="ward")
    column = ColumnDescription("age", "number", low=17.5, high=93.25)
    directory = run.write(tmp_path / "run")
    for inferred, shown in ((True, False), (False, True)):
        cards(directory, replace(CLOSED, columns=(column,), column_count=1, inferred=inferred))
        write_site([directory], tmp_path / "public", public=True, cells=0)
        pages = contents(tmp_path / "public")
        assert any("93.25" in text for text in pages.values()) is shown


def test_no_file_is_named_after_a_hash_of_private_rows(directory: Path, tmp_path: Path) -> None:
    """A page's name is a hash of the cell's key, and the key one of the private table."""
    internal, public = (
        {path.name for path in write_site([directory], tmp_path / str(only), public=only).paths}
        for only in (False, True)
    )
    cells = load_results([directory]).cells
    private = {Path(cell_path(key)).name for key in cells.loc[cells["dataset"] == "ward", "key"]}
    opened = {Path(cell_path(key)).name for key in cells.loc[cells["dataset"] != "ward", "key"]}
    assert private and private <= internal and not private & public
    assert opened <= public
