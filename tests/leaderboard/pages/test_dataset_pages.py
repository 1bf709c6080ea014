"""The page of a dataset: what is declared about it, and who did how well on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.pages import card_pages
from bench.leaderboard.pages.board import compile_board
from bench.leaderboard.templates import rendering
from bench.plugins.description import (
    FILE,
    ClassCount,
    ColumnDescription,
    DatasetDescription,
    Descriptions,
)
from tests.support.card_page import CardPage, parsed

CARD = DatasetDescription(
    name="breast-cancer",
    parameters="{}",
    title="Breast cancer of Wisconsin",
    task="classification",
    licence="CC BY 4.0",
    citation="Wolberg 1995",
    source="sklearn",
    origin="an installed package",
    stands_for="a closed one",
    unit="patient",
    open=True,
    column_count=4,
    columns=(
        ColumnDescription(
            "age", "whole number", low=18.0, high=90.0, text="in years", source="protocol"
        ),
        ColumnDescription("sex", "binary", categories=("f", "m"), category_count=2),
        ColumnDescription("ward", "category", role="site", categories=("a", "b"), category_count=7),
    ),
    label="diagnosis",
    by_class=(ClassCount("benign", 300), ClassCount("malignant", 100)),
    by_site=(ClassCount("Oxford", 250), ClassCount("Bedford", 150)),
    quasi_identifiers=("age",),
    sensitive=("sex",),
    rules=("nobody is older than 120",),
)


def page_of(
    directory: Path,
    dataset: str = "breast-cancer",
    card: DatasetDescription | None = None,
    *,
    public: bool = False,
    cells: int = 0,
) -> CardPage:
    if card is not None:
        (directory / FILE).write_text(Descriptions(datasets=(card,)).to_json(), encoding="utf-8")
    board = compile_board([directory], public=public, cells=cells)
    return parsed(card_pages.dataset_pages(board))[rendering.dataset_path(dataset)]


def test_facts_and_class_balance(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, unit="patient")
    page = page_of(run.write(tmp_path / "run"), card=CARD)
    told = page.sections["facts"]
    for text in ("CC BY 4.0", "Wolberg 1995", "sklearn", "an installed package", "a closed one"):
        assert text in told
    assert "400 in the whole table" in told
    assert "benign 300 (75.0%)" in told and "malignant 100 (25.0%)" in told
    assert "Oxford 250 , Bedford 150" in told
    # 75% of a bar of 400.
    assert '<rect x="0.00" width="300.00"' in page.source
    assert '<rect x="300.00" width="100.00"' in page.source
    assert "open: the rows are public" in page.sections[""]


def test_what_is_public_by_declaration(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, unit="patient")
    told = page_of(run.write(tmp_path / "run"), card=CARD).sections["public"]
    assert "everything else about a patient, features and label together" in told
    assert "(quasi-identifiers): age . Sensitive: sex ." in told
    assert "nobody is older than 120" in told


def test_private_counts_are_said(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, private_counts=True)
    told = page_of(run.write(tmp_path / "run"), card=CARD).sections["public"]
    assert "noisy counts were estimated from the budget" in told and "conditional" not in told


@pytest.mark.parametrize("mixed", [False, True])
def test_counts_that_were_paid_for_are_not_published_exactly(
    run: Any, tmp_path: Path, mixed: bool
) -> None:
    run.add("ldpdc", 0.8, private_counts=True)
    if mixed:
        run.add("gats", 0.8)
    directory, closed = run.write(tmp_path / "run"), replace(CARD, open=False)
    exact = ("400 in the whole table", "benign 300", "malignant 100", "Oxford 250", "300.00")
    internal, public = page_of(directory, card=closed), page_of(directory, public=True)
    assert all(count in internal.sections["facts"] for count in exact[:4])
    assert not any(count in public.source for count in exact)
    assert "Columns 4" in public.sections["facts"]
    assert ("which this page leaves out" in public.sections["public"]) == mixed


def test_schema(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    page = page_of(run.write(tmp_path / "run"), card=CARD)
    assert page.row("schema", "age")[1:] == [
        "whole number",
        "18 to 90",
        "quasi-identifier",
        "in years",
        "protocol",
    ]
    assert page.row("schema", "sex")[1:4] == ["binary", "f, m", "sensitive"]
    assert page.row("schema", "ward")[1:4] == ["category", "a, b and 5 more", "site"]
    assert "3 of 4 columns" in page.sections["schema"]


def test_without_a_card_it_counts_as_not_open(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    page = page_of(run.write(tmp_path / "run"))
    assert "no card: treated as not open" in page.sections[""]
    assert "The run has no card of this dataset" in page.sections["facts"]
    assert "0.800" in page.sections["results"]


def test_methods_by_epsilon_with_the_reference_lines(mixed_run: Any, tmp_path: Path) -> None:
    page = page_of(mixed_run.write(tmp_path / "run"), "curial-sim")
    rows = page.rows["results"]
    assert rows[0] == ["Method", "target ε 1", "target ε 10"]
    # The ceiling first, sound methods by rank, then the others; the floor closes the table.
    assert [row[0] for row in rows[1:]] == [
        "real ceiling",
        "ldpdc",
        "gats",
        "pate",
        "picky",
        "marginals floor",
    ]
    # Real rows: 0.80 and 0.81; one for all epsilons.
    assert rows[1][1].startswith("0.805 [0.785, 0.825] seeds sd 0.007 non-private")
    assert rows[1][1].endswith("independent of ε") and len(rows[1]) == 2
    assert rows[2][1] == "0.700 [0.680, 0.720] rank 1.5 of 2 · 87.0% of real 1 of 2 failed"
    assert rows[2][2] == "0.700 [0.680, 0.720] seeds sd 0.000 rank 1 of 2 · 87.0% of real"
    assert rows[4][1] == "0.500 [0.480, 0.520] seeds sd 0.000 unproven · 62.1% of real"
    assert rows[5][1] == "skipped"


def test_sizes_have_tables_of_their_own_the_largest_first(run: Any, tmp_path: Path) -> None:
    for ipc in (10, 50):
        run.add("ldpdc", 0.8, ipc=ipc)
    run.add("ldpdc", 0.8, ipc=None, full_size=True)
    run.add("fedavg", 0.8, ipc=None)
    page = page_of(run.write(tmp_path / "run"))
    heads = [line for line in page.source.splitlines() if line.startswith("<h3>")]
    assert [head.split("<h3>")[1].split(" <")[0] for head in heads] == [
        "50 rows per class",
        "10 rows per class",
        "full size",
        "own size",
    ]


def test_a_run_of_real_rows_alone(run: Any, tmp_path: Path, non_private: dict[str, Any]) -> None:
    run.add("real", 0.9, ipc=None, **non_private)
    page = page_of(run.write(tmp_path / "run"))
    assert page.row("results", "real ceiling")[1].startswith("0.900")


def test_failures_with_their_reason(mixed_run: Any, tmp_path: Path) -> None:
    page = page_of(mixed_run.write(tmp_path / "run"), "curial-sim")
    assert page.row("failures", "ldpdc")[1:4] == ["timeout", "1", "over 60 s"]


def test_a_closed_dataset_in_public(mixed_run: Any, tmp_path: Path) -> None:
    directory = mixed_run.write(tmp_path / "run")
    page = page_of(directory, card=replace(CARD, open=False), public=True)
    assert "Scores and ranks are left out" in page.sections["results"]
    assert "0.800" not in page.source and "rank 1" not in page.source
    assert page.row("results", "ldpdc")[1:] == ["– sound", "– sound"]  # noqa: RUF001
    # What is declared is public, whoever may have the rows.
    assert page.row("schema", "age")[2] == "18 to 90"


def test_a_schema_read_off_the_rows_is_not_public(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    inferred = replace(CARD, open=False, inferred=True)
    directory = run.write(tmp_path / "run")
    assert "18 to 90" in page_of(directory, card=inferred).source
    page = page_of(directory, card=inferred, public=True)
    assert "it was inferred from the rows" in page.sections["schema"]
    for text in ("18 to 90", "benign", "Oxford", "400 in"):
        assert text not in page.source


def test_names_are_harmless(run: Any, tmp_path: Path) -> None:
    bad = '"><script>alert(1)</script>'
    run.add(bad, 0.8, dataset=bad, split=bad)
    run.fail(bad, reason=bad, dataset=bad, seed=5, split=bad)
    column = ColumnDescription(
        bad, bad, bad, categories=(bad,), category_count=9, text=bad, source=bad
    )
    card = DatasetDescription(
        bad, "{}", bad, bad, bad, bad, bad, bad, bad, bad, bad, column_count=1, columns=(column,),
        label=bad, by_class=(ClassCount(bad, 1),), by_site=(ClassCount(bad, 1),),
        quasi_identifiers=(bad,), sensitive=(bad,), rules=(bad,),
    )  # fmt: skip
    page = page_of(run.write(tmp_path / "run"), bad, card)
    assert page.tags.count("script") == 2 and page.source.count("&lt;script&gt;") > 20


def test_a_class_balance_of_nothing(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    empty = replace(CARD, by_class=(ClassCount("benign", 0),))
    page = page_of(run.write(tmp_path / "run"), card=empty)
    assert "<rect x=" not in page.sections["facts"] and "benign" not in page.sections["facts"]
