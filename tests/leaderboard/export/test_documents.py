"""Kept results, and the tables of documents that are made from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.engine import keys
from bench.errors import InputError, StoreError
from bench.leaderboard.export.documents import (
    differing_lines,
    filled,
    results_of,
    typed_tables,
)
from bench.results.kept import COLUMNS, keep, read_kept
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
