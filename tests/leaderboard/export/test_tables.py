"""The CSV and the Markdown table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.leaderboard.pages.site import write_site


@pytest.fixture
def exported(tmp_path: Path) -> Callable[[Any], tuple[list[dict[str, str]], str]]:
    """The lines of the CSV, and the Markdown text."""

    def compute(run: Any) -> tuple[list[dict[str, str]], str]:
        write_site([run.write(tmp_path / "run")], tmp_path / "site")
        # As bytes: reading as text would turn a carriage return into a newline.
        text = (tmp_path / "site" / "leaderboard.csv").read_bytes().decode()
        markdown = (tmp_path / "site" / "leaderboard.md").read_text(encoding="utf-8")
        return list(csv.DictReader(io.StringIO(text, newline=""))), markdown

    return compute


def _line(lines: list[dict[str, str]], label: str, **wanted: str) -> dict[str, str]:
    (found,) = [
        line
        for line in lines
        if line["label"] == label and all(line[name] == value for name, value in wanted.items())
    ]
    return found


def test_csv_holds_every_row(mixed_run: Any, exported: Any) -> None:
    lines, _ = exported(mixed_run)
    assert len(lines) == 20
    failed = _line(lines, "ldpdc", dataset="curial-sim", eps_target="1.0")
    assert (failed["cells"], failed["cells_ok"], failed["cells_failed"]) == ("2", "1", "1")
    assert failed["problems"] == "timeout (seed 1): over 60 s"
    # Seed 0 before marginals, seed 1 last: (1 + 2) / 2.
    assert (failed["rank"], failed["rank_among"]) == ("1.5", "2")
    skipped = _line(lines, "picky", dataset="breast-cancer", eps_target="1.0")
    assert (skipped["cells_skipped"], skipped["not_ranked_because"]) == ("2", "skipped")
    assert skipped["headline"] == skipped["eps_proven"] == skipped["verdict"] == ""


def test_csv_numbers(mixed_run: Any, exported: Any) -> None:
    lines, _ = exported(mixed_run)
    real = _line(lines, "real", dataset="breast-cancer")
    assert (real["eps_target"], real["eps_claimed"], real["eps_proven"]) == ("", "", "inf")
    assert float(real["headline"]) == pytest.approx(0.905)
    assert float(real["headline_low"]) == pytest.approx(0.885)
    assert float(real["headline_seed_min"]) == pytest.approx(0.9)
    assert float(real["headline_seed_max"]) == pytest.approx(0.91)
    assert float(real["auroc"]) == pytest.approx(0.905)
    assert (real["reference"], real["rows_released"]) == ("ceiling", "341")
    ldpdc = _line(lines, "ldpdc", dataset="breast-cancer", eps_target="10.0")
    assert (ldpdc["eps_claimed"], ldpdc["eps_proven"], ldpdc["eps_audited"]) == ("10.0", "9.0", "")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_text_is_no_formula(run: Any, exported: Any, start: str) -> None:
    text = f'{start}HYPERLINK("http://x")'
    key = run.add(text, 0.5, dataset=text, verdict="unproven", verdict_reason=text)
    run.score(key, text, -0.25, direction="lower", family="fidelity")
    (line,) = exported(run)[0]
    for column in ("label", "method", "dataset", "verdict_reason"):
        assert line[column] == f"'{text}"
    assert not any(name.startswith(start) for name in line)
    assert line[f"'{text}"] == "-0.25"  # a number stays a number


def test_markdown_tables_are_rectangular(mixed_run: Any, exported: Any) -> None:
    mixed_run.fail("odd|name", reason="two\nlines | and <b>bars</b> *here*")
    _, text = exported(mixed_run)
    tables: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    for table in filter(None, tables):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "odd\\|name" in text
    assert "two lines \\| and &lt;b&gt;bars&lt;/b&gt; \\*here\\*" in text


def test_markdown_content(mixed_run: Any, exported: Any) -> None:
    _, text = exported(mixed_run)
    ranking, results = text.split("## Results")
    # breast-cancer: 1 and 1; curial-sim: 1.5 and 1.
    assert "| ldpdc | 87.5% | 1.13 | 87.7% | 2 | 2 | 4 | 8 | 1 |" in ranking
    assert "| marginals | 12.5% | 1.88 | 75.9% | 2 | 2 | 4 | 8 | 0 |" in ranking
    assert "| real |" not in ranking
    (real, _) = [line for line in results.splitlines() if line.startswith("| real")]
    cells = [cell.strip() for cell in real.split("|")[1:-1]]
    assert cells[0] == "real (ceiling)"
    assert cells[2:7] == ["own size", "–", "–", "∞", "–"]  # noqa: RUF001
    assert cells[7] == "non-private"
    utility = ["auroc 0.905 ↑", "[0.885, 0.925]", "0.900 to 0.910", "0.007", "2"]
    assert cells[10:15] == utility
    assert "timeout \\(seed 1\\): over 60 s" in results
    assert results.count("not ranked: unproven") == 4


def test_study_only_is_said_first(run: Any, exported: Any) -> None:
    run.add("a", 0.5, study_only=True)
    lines, text = exported(run)
    assert lines[0]["study_only"] == "True"
    assert text.splitlines()[2].startswith("> Study only. All cells used seeded noise")
    assert "| a (study only) |" in text


def test_parquet_holds_the_columns_of_the_csv(
    mixed_run: Any, exported: Any, tmp_path: Path
) -> None:
    lines, _ = exported(mixed_run)
    table = pq.read_table(tmp_path / "site" / "leaderboard.parquet")
    assert table.column_names == list(lines[0])
    types = {field.name: field.type for field in table.schema}
    assert types["rank"] == types["eps_proven"] == types["auroc low"] == pa.float64()
    assert types["cells"] == types["rank_among"] == types["headline_seeds"] == pa.int64()
    assert (types["study_only"], types["label"]) == (pa.bool_(), pa.string())
    for line, record in zip(lines, table.to_pylist(), strict=True):
        assert line == {k: "" if v is None else str(v) for k, v in record.items()}


def test_parquet_keeps_text_and_tells_metrics_from_columns(
    run: Any, exported: Any, tmp_path: Path
) -> None:
    key = run.add("=a", 0.5)
    run.score(key, "rank", 0.25)
    (line,), _ = exported(run)
    (record,) = pq.read_table(tmp_path / "site" / "leaderboard.parquet").to_pylist()
    assert (record["label"], line["label"]) == ("=a", "'=a")
    assert (record["rank"], record["rank (metric)"]) == (None, 0.25)
    assert line["rank (metric)"] == "0.25"


def test_an_empty_parquet(run: Any, exported: Any, tmp_path: Path) -> None:
    exported(run)
    table = pq.read_table(tmp_path / "site" / "leaderboard.parquet")
    assert (table.num_rows, table.schema.field("rank").type) == (0, pa.float64())


def test_markdown_says_who_is_better(mixed_run: Any, exported: Any) -> None:
    _, text = exported(mixed_run)
    section = text.split("## Who is better?")[1].split("## Results")[0]
    assert "with 4 blocks the smallest possible p-value is 0.12" in section
    assert "| 1-2 | ldpdc | 1.13 |" in section
