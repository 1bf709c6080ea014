"""Kept results, and the tables of documents that are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import ttest_rel

from bench.cli.main import main
from bench.engine import keys
from bench.engine.grid import load_grid
from bench.errors import InputError, StoreError
from bench.leaderboard.export.documents import (
    awaited_results,
    differing_lines,
    filled,
    results_of,
    specifications,
    typed_tables,
)
from bench.results.kept import COLUMNS, keep, read_kept
from bench.results.records import Cell, ipc_text
from tests.leaderboard.conftest import Run
from tests.support.places import ROOT

SHARE = 'metric = "auroc", percent = true, ratio_to = "perfect"'
PAGE = f"""# Page

<!-- table
results = "results/toy.parquet"
rows = ["1", "3"]
head = "epsilon"
columns = [
  {{ head = "paper", values = ["0.9"] }},
  {{ head = "AUROC", label = "ldpdc", epsilon = "{{row}}", metric = "auroc" }},
  {{ head = "of real", label = "ldpdc", epsilon = "{{row}}", {SHARE} }},
]
-->
<!-- end of table -->

The end.
"""

MADE = """| epsilon | paper | AUROC | of real |
|---|---|---|---|
| 1 | 0.9 | 0.700 (0.600 to 0.800) | 78% (67 to 89) |
| 3 | – | 0.850 | 94% |
"""  # noqa: RUF001 (an en dash is meant)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    run = Run()
    source = keys.method_source_hash("ldpdc")
    for seed, utility in enumerate((0.6, 0.8)):
        run.add("ldpdc", utility, seed=seed, notes='{"seen": "Jane Doe"}', source_hash=source)
    run.add("ldpdc", 0.85, eps_target=3.0, source_hash=source)
    for epsilon in (1.0, 3.0):
        run.add("perfect", 0.9, method="ldpdc", eps_target=epsilon, source_hash=source)
    run.fail("ldpdc", seed=7, reason="Jane Doe")
    (tmp_path / "results").mkdir()
    keep([run.write(tmp_path / "run")], ["auroc"], tmp_path / "results" / "toy.parquet")
    document = tmp_path / "page.md"
    document.write_text(PAGE, encoding="utf-8")
    return document


def bench(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


def test_tables_are_means_with_their_range(page: Path) -> None:
    assert filled(page) == PAGE.replace("<!-- end of", f"{MADE}<!-- end of")
    assert bench("fill", str(page)) == (0, f"{page}: written\n")
    assert differing_lines(page) == []
    assert bench("fill", str(page), "--check") == (0, "")


def test_an_edited_number_is_found(page: Path) -> None:
    bench("fill", str(page))
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("| 0.850 |", "| 0.870 |"), encoding="utf-8")
    line = next(at for at, line in enumerate(text.splitlines(), 1) if "0.850" in line)
    code, said = bench("fill", str(page), "--check")
    assert code == 1 and f"in line {line}\n" in said
    assert page.read_text(encoding="utf-8") != text
    bench("fill", str(page))
    assert page.read_text(encoding="utf-8") == text


def test_tables_that_were_typed_are_named(page: Path) -> None:
    assert typed_tables(page) == []
    text = page.read_text()
    typed = "\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    page.write_text(f"{text}\n<!-- typed: settings -->\n{typed.strip()}\n{typed}")
    line = page.read_text().splitlines().index("| a | b |", text.count("\n") + 5) + 1
    assert typed_tables(page) == [line]
    outcome = CliRunner().invoke(main, ["fill", "--check", str(page)])
    assert f"typed, not made from results: line {line}" in outcome.output


def test_a_table_whose_results_are_awaited_stays_typed(page: Path, tmp_path: Path) -> None:
    block = """<!-- table
results = "results/later.parquet"
grid = "paper:gats"
rows = ["1"]
head = "epsilon"
columns = [{ head = "AUROC", label = "ldpdc", epsilon = "{row}", metric = "auroc" }]
-->
| epsilon | AUROC |
|---|---|
| 1 | typed |
<!-- end of table -->
"""
    bench("fill", str(page))
    page.write_text(f"{page.read_text()}\n{block}")
    kept = tmp_path / "results" / "toy.parquet"
    later = tmp_path / "results" / "later.parquet"
    code, said = bench("fill", "--check", str(page))
    assert code == 0 and "bench run --grid paper:gats --out DIR; bench keep DIR -o" in said
    line = page.read_text().splitlines().index("| epsilon | AUROC |") + 1
    assert f"typed, not made from results: line {line}\n" in said
    assert (awaited_results(page), results_of(page)) == ({later: "paper:gats"}, [kept])
    later.write_bytes(kept.read_bytes())
    assert bench("fill", "--check", str(page))[0] == 1
    bench("fill", str(page))
    assert "| 1 | 0.700 (0.600 to 0.800) |" in page.read_text() and typed_tables(page) == []


def test_pairs_of_cells_are_tested(tmp_path: Path) -> None:
    run = Run()
    ours, others = (0.9, 0.8, 0.85, 0.7), (0.8, 0.75, 0.7)
    for seed, utility in enumerate(ours):
        run.add("ours", utility, seed=seed, method="ldpdc")
    for seed, utility in enumerate(others):
        run.add("others", utility, seed=seed, method="ldpdc", eps_target=3.0)
    (tmp_path / "results").mkdir()
    keep([run.write(tmp_path / "run")], [], tmp_path / "results" / "toy.parquet")
    column = '{ head = "less others", label = "{row}", minus = "others", metric = "auroc" }'
    column += ', { head = "verdict", label = "{row}", metric = "verdict" }'
    column += ', { head = "both", label = "{row}", metric = ["auroc", "auroc"], digits = 1 }'
    column += ', { head = "of seed 1", label = "{row}", seed = 1, metric = "auroc" }'
    column += ', { head = "n", label = "{row}", metric = "seeds" }'
    column += ', { head = "10 x", label = "{row}", metric = "auroc", scale = 10, digits = 1 }'
    document = tmp_path / "page.md"
    document.write_text(
        '<!-- table\nresults = "results/toy.parquet"\nrows = ["ours", "others"]\n'
        f'head = "m"\ncolumns = [{column}]\n-->\n<!-- end of table -->\n'
    )
    p_value = ttest_rel(ours[:3], others).pvalue
    made = filled(document)
    assert (
        f"| ours | +0.100 (p = {p_value:.2g}) | sound | 0.8 / 0.8 | 0.800 | 4 | 8.1 (7.0 to 9.0) |"
        in made
    )
    assert "| others | +0.000 | sound | 0.8 / 0.8 | 0.750 | 3 | 7.5 (7.0 to 8.0) |" in made


def test_the_grids_of_the_documents_have_the_cells_that_their_tables_show() -> None:
    """A table that waits for its results cannot be made: at least its cells must be planned."""
    shown = 0
    for document in sorted((ROOT / "docs").rglob("*.md")):
        for spec in specifications(document):
            if "grid" not in spec:
                continue
            cells = [cell for name in spec["grid"].split(", ") for cell in load_grid(name).cells()]
            rows = [str(row) for row in spec["rows"]]
            columns = [column for column in spec["columns"] if "metric" in column]
            # A model has no size: single places may stay empty, no whole row or column.
            found = np.array(
                [
                    [any(selected(cell, with_row(column, row)) for cell in cells) for row in rows]
                    for column in columns
                ]
            )
            assert found.any(axis=0).all() and found.any(axis=1).all(), (document, spec)
            shown += found.sum()
    assert shown > 100


def with_row(column: Mapping[str, Any], row: str) -> dict[str, str]:
    return {name: str(value).replace("{row}", row) for name, value in column.items()}


def selected(cell: Cell, wanted: dict[str, str]) -> bool:
    """Return True if a column shows this cell."""
    facts = {
        "label": cell.method.label,
        "method": cell.method.name,
        "dataset": cell.dataset.label,
        "ipc": ipc_text(cell.ipc, cell.full_size),
        "split": cell.split,
        "seed": str(cell.seed),
        "split_seed": str(cell.split_seed),
    }
    if "epsilon" in wanted and cell.epsilon != float(wanted["epsilon"]):
        return False
    return all(wanted.get(name, value) == value for name, value in facts.items())


def test_results_older_than_their_code_are_named(page: Path, tmp_path: Path) -> None:
    run = Run()
    run.add("ldpdc", 0.7, source_hash="of another day", metrics='{"auroc": "and this one"}')
    keep([run.write(tmp_path / "old")], [], tmp_path / "results" / "toy.parquet")
    code, said = bench("fill", str(page))
    assert code == 0
    assert "toy.parquet: older than the code of the method ldpdc\n" in said
    assert "toy.parquet: older than the code of the metric auroc\n" in said


def test_kept_results_hold_no_notes_and_no_failures(page: Path) -> None:
    (path,) = results_of(page)
    results = read_kept(path)
    assert tuple(results.columns) == COLUMNS
    assert set(results["status"]) == {"ok"}
    assert "Jane Doe" not in results.to_csv()


def test_a_later_run_replaces_the_cells_of_an_earlier_one(tmp_path: Path) -> None:
    first, second = Run(), Run()
    first.add("ldpdc", 0.6)
    first.add("ldpdc", 0.5, seed=1)
    second.add("ldpdc", 0.7, finished_at="2026-02-01T00:00:00.000+00:00")
    runs = [first.write(tmp_path / "first"), second.write(tmp_path / "second")]
    assert keep(runs, [], tmp_path / "kept.parquet") == 2
    assert sorted(read_kept(tmp_path / "kept.parquet")["value"]) == [0.5, 0.7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('head = "epsilon"', ""), "lacks head"),
        (('metric = "auroc" }', 'metrik = "auroc" }'), "unknown field metrik"),
        (('"{row}", metric = "auroc" }', '"{row}" }'), "neither `metric` nor `values`"),
        (('epsilon = "{row}"', 'epsilon = "one"'), "expected a number"),
        (("rows = [", "rows = {"), "not TOML"),
    ],
)
def test_a_wrong_description_is_named_with_its_line(
    page: Path, change: tuple[str, str], message: str
) -> None:
    page.write_text(PAGE.replace(*change), encoding="utf-8")
    with pytest.raises(InputError, match=f"line 3: .*{message}"):
        filled(page)


def test_what_is_not_kept_results_is_refused(page: Path, tmp_path: Path) -> None:
    run = Run()
    run.add("ldpdc", 0.6)
    directory = run.write(tmp_path / "other")
    with pytest.raises(StoreError, match="no cell has a score ks"):
        keep([directory], ["ks"], tmp_path / "kept.parquet")
    (tmp_path / "results" / "toy.parquet").write_bytes((directory / "cells.parquet").read_bytes())
    assert bench("fill", str(page))[0] == 2
    (tmp_path / "results" / "toy.parquet").unlink()
    code, said = bench("fill", str(page))
    assert code == 2 and "no such file; `bench keep DIR -o" in said


def test_the_documents_say_what_was_kept() -> None:
    for document in sorted((ROOT / "docs").rglob("*.md")):
        assert differing_lines(document) == [], document
