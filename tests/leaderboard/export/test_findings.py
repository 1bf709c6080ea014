"""Findings: tables of a report that follow from a published version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

from bench.cli.main import main
from bench.errors import InputError
from bench.leaderboard.charts.gallery import KINDS as KINDS_OF_CHARTS
from bench.leaderboard.export import findings
from bench.leaderboard.export.documents import differing_lines, filled, typed_tables
from bench.leaderboard.export.findings import KINDS, Material
from tests.leaderboard.tables.test_audits import REFUTED, write_audits
from tests.support.places import ROOT
from tests.support.published_site import small_version

HALF = stats.norm.ppf(0.975)


def block(kind: str) -> str:
    return (
        f'<!-- finding\nresults = "versions/2026.11"\nkind = "{kind}"\n-->\n'
        "old\n<!-- end of finding -->\n"
    )


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_version(tmp_path_factory.mktemp("findings"))


@pytest.fixture(scope="module")
def found(version: Path) -> Material:
    return Material(version, version.parent.parent / "page.md")


def lines(text: str) -> list[dict[str, str]]:
    """Return the rows of a Markdown table by their headings."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def values(version: Path) -> pd.DataFrame:
    cells = pd.read_parquet(version / "cells.parquet")
    scores = pd.read_parquet(version / "scores.parquet")
    return cells.merge(scores[scores["metric"].isin(["auroc", "c-index/cox"])], on="key")


def test_a_document_is_filled_once_and_stays(version: Path) -> None:
    document = version.parent.parent / "page.md"
    document.write_text("# Page\n\n" + "\n".join(map(block, KINDS)), encoding="utf-8")
    assert differing_lines(document)
    document.write_text(filled(document), encoding="utf-8")
    text = document.read_text(encoding="utf-8")
    assert text.count("| data |") >= 3 and "old" not in text.splitlines()
    assert differing_lines(document) == typed_tables(document) == []
    edited = text.replace("| tables | 1 |", "| tables | 2 |", 1)
    assert edited != text
    document.write_text(edited, encoding="utf-8")
    result = CliRunner().invoke(main, ["fill", "--check", str(document)])
    assert result.exit_code == 1 and "not what the kept results say" in result.output


@pytest.mark.parametrize(
    "spec, told",
    [
        ('kind = "best"', "lacks results"),
        ('results = "versions/2026.11"\nkind = "wishes"', "'wishes' is not one of version, best"),
        ("kind", "is not TOML"),
    ],
)
def test_a_wrong_description_is_refused(version: Path, spec: str, told: str) -> None:
    document = version.parent.parent / "wrong.md"
    document.write_text(f"<!-- finding\n{spec}\n-->\n<!-- end of finding -->\n", encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(told)):
        filled(document)


def test_the_loss_against_real_rows(version: Path, found: Material) -> None:
    """Of the best method, by pandas: means over seeds, then datasets; Welch's interval."""
    table = values(version)
    for line in lines(KINDS["best"](found)):
        label = line["best"].strip("`")
        names = {"tables": "classification", "survival cohorts": "survival"}
        own = table[(table["task"] == names[line["data"]]) & (table["label"] == label)]
        own = own[own["eps_target"] == float(line["ε"])]
        real = table[table["label"] == "real"].groupby("dataset")[["value", "low", "high"]].mean()
        gaps, parts = [], []
        for dataset, group in own.groupby("dataset"):
            by_seed = group["value"] - real.loc[dataset, "value"]
            gaps.append(by_seed.mean())
            parts.append((by_seed.var() / len(by_seed), len(by_seed) - 1))
            for low, high in (
                (group["low"].mean(), group["high"].mean()),
                (real.loc[dataset, "low"], real.loc[dataset, "high"]),
            ):
                parts.append((((high - low) / 2 / HALF) ** 2, float("inf")))
        variance = sum(part for part, _ in parts) / len(gaps) ** 2
        shares = sum((part / len(gaps) ** 2 / variance) ** 2 / nu for part, nu in parts)
        reach = stats.t.ppf(0.975, 1 / shares) * variance**0.5
        middle = sum(gaps) / len(gaps)
        expected = f"{middle:+.3f} [{middle - reach:+.3f}, {middle + reach:+.3f}]"
        assert line["difference to real rows"] == expected


def test_the_floor_pays_for_the_choice_of_the_best(found: Material) -> None:
    rows = lines(KINDS["floor"](found))
    assert [row["dataset"] for row in rows] == ["d1", "d2", "d3"]
    # Four methods beside the floor, three datasets.
    for row in rows:
        label = row["best"].strip("`")
        wanted: dict[str, Any] = {"eps_target": 1.0, "shown_dataset": row["dataset"]}
        others = {
            name: findings.answers.versus(
                found.chosen(name, **wanted), found.chosen("marginals", **wanted), name, 0.05
            )
            for name in ("alpha", "beta", "gamma", "delta")
        }
        gaps = {name: one.difference for name, one in others.items() if one is not None}
        assert label == max(gaps, key=lambda name: gaps[name])
        chosen = others[label]
        assert chosen is not None
        assert row["difference to the floor"].startswith(f"{chosen.difference:+.3f}")
        printed = 0.001 if row["corrected p"].startswith("<") else float(row["corrected p"])
        assert printed >= min(1.0, 4 * chosen.p) * 0.95
        assert (row["beats the floor"] == "yes") == (printed < 0.05)


def test_condensation_against_synthesis(tmp_path: Path) -> None:
    from bench.plugins.description import FILE, Descriptions, MethodDescription

    version = small_version(tmp_path)
    cards = tuple(
        MethodDescription(name, name, family=family, tuned_on=())
        for name, family in (("alpha", "marginals"), ("beta", "condensation"))
    )
    (version / FILE).write_text(Descriptions(methods=cards).to_json(), encoding="utf-8")
    rows = lines(KINDS["families"](Material(version, version)))
    assert {row["best condensation"] for row in rows} == {"`beta`"}
    assert {row["data"] for row in rows} == {"tables", "survival cohorts"}
    for row in rows:
        assert re.match(r"[+-]0\.\d{3} \[", row["difference (condensation - synthesis)"])


def test_what_was_not_run_is_said(found: Material) -> None:
    assert KINDS["audits"](found) == "No results of this version say anything about it.\n"


def test_audits_are_counted_by_method_and_attack(tmp_path: Path) -> None:
    version = small_version(tmp_path)
    write_audits(
        version,
        {"attack": "transcript"},
        {"key": "two", "attack": "transcript", "eps_audited": 0.5, "eps_detectable": 3.0},
        {"key": "three", "attack": "release", **REFUTED},
    )
    release, transcript = lines(KINDS["audits"](Material(version, version)))
    assert release["attack"] == "release" and release["refuted"] == "1 of 1"
    assert release["audited (95% lower bound)"] == "≥ 2"
    assert transcript["audits"] == "2" and transcript["refuted"] == "0 of 2"
    assert transcript["audited (95% lower bound)"] == "≥ 0.5"
    assert transcript["maximum detectable"] == "4.2"


def test_the_report_names_the_figures_that_there_are(version: Path, tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    found = Material(version, document)
    assert "bench plot published all" in KINDS["figures"](found)
    folder = tmp_path / findings.FIGURES
    told = CliRunner().invoke(main, ["plot", str(version), "all", "-o", str(folder)])
    assert told.exit_code == 0, told.output
    drawn = {path.stem for path in folder.glob("*.svg")}
    assert drawn == {path.stem for path in folder.glob("*.pdf")}
    # No audit.
    assert {"pareto", "datasets"} <= drawn <= set(KINDS_OF_CHARTS) - {"audit"}
    text = KINDS["figures"](found)
    assert re.findall(r"\(findings/([\w-]+)\.svg\)", text) == [
        kind for kind in KINDS_OF_CHARTS if kind in drawn
    ]


def test_a_version_that_is_not_there_yet_is_said(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(block("best"), encoding="utf-8")
    assert "There are no results of version 2026.11 yet." in filled(document)


def test_costs_and_verdicts_count_all_cells(version: Path, found: Material) -> None:
    cells = pd.read_parquet(version / "cells.parquet")
    verdicts = lines(KINDS["verdicts"](found))
    assert sum(int(row["sound"]) for row in verdicts) == (cells["verdict"] == "sound").sum()
    costs = lines(KINDS["cost"](found))
    tried = sum(int(row["failed cells"].split(" of ")[1]) for row in costs)
    assert tried == (cells["status"] != "skipped").sum()


def test_every_finding_has_its_place_in_the_report() -> None:
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert re.findall(r'^kind = "(\w+)"$', text, re.M) == list(KINDS)
    assert typed_tables(ROOT / "docs" / "findings.md") == []
