"""Findings: tables of a report that follow from a published version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, final

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
from bench.plugins.description import FILE, Descriptions, MethodDescription
from bench.results import published
from bench.results.published import Version
from tests.leaderboard.conftest import Run
from tests.leaderboard.tables.test_audits import REFUTED, write_audits
from tests.support.places import ROOT
from tests.support.published_site import SLICE, small_version

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
    assert {row["size"] for row in rows} == {"50 rows per class"}
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
        assert row["methods compared"] == str(len(gaps)) == "4" and row["left out"] == "none"
        assert label == max(gaps, key=lambda name: gaps[name])
        chosen = others[label]
        assert chosen is not None
        assert row["difference to the floor"].startswith(f"{chosen.difference:+.3f}")
        printed = 0.001 if row["corrected p"].startswith("<") else float(row["corrected p"])
        assert printed >= min(1.0, 4 * chosen.p) * 0.95
        assert (row["beats the floor"] == "yes") == (printed < 0.05)


@final
class OneEpsilon(Run):
    """A run at epsilon 1 in which the method of a cell is all that differs."""

    def utility(self, dataset: str, method: str, value: float, **changes: Any) -> None:
        """Add a cell with an AUROC whose interval is 0.01 to both sides."""
        key = self.add(method, dataset=dataset, **changes)
        self.score(key, "auroc", value, value - 0.01, value + 0.01)

    def material(self, folder: Path, **tuned_on: tuple[str, ...]) -> Material:
        """Write the run, with the cards of methods whose defaults were chosen on a dataset."""
        directory = self.write(folder / "run")
        cards = tuple(
            MethodDescription(name, name, tuned_on=datasets) for name, datasets in tuned_on.items()
        )
        (directory / "run.json").write_text('{"format_version": 1}', encoding="utf-8")
        (directory / FILE).write_text(Descriptions(methods=cards).to_json(), encoding="utf-8")
        version = Version("2026.11", "2026-11-18", "2026-11-19", (SLICE,))
        home = folder / "versions" / "2026.11"
        published.write(home, published.compact(directory), version, "# Log\n")
        return Material(home, folder / "page.md")


def test_the_floor_counts_the_methods_of_each_row(tmp_path: Path) -> None:
    """A method that never met the floor of a dataset costs its best nothing there."""
    run = OneEpsilon()
    for dataset in ("d1", "d2"):
        run.utility(dataset, "marginals", 0.7)
    run.utility("d1", "alpha", 0.717)
    run.utility("d1", "tuned", 0.9)
    # On d2 the best of two is worse than the floor.
    for method, value in (("beta", 0.6), ("gamma", 0.5)):
        run.utility("d2", method, value)
    run.utility("d2", "alpha", 0.55, ipc=None, full_size=True)
    run.utility("d2", "marginals", 0.55, ipc=None, full_size=True)
    for place in range(4):
        run.utility("d2", f"tuned-{place}", 0.8)
    chosen = {f"tuned-{place}": ("d2",) for place in range(4)}
    found = run.material(tmp_path, tuned=("d1",), **chosen)
    first, second, third = lines(KINDS["floor"](found))
    assert [first[name] for name in ("dataset", "methods compared", "best")] == [
        "d1",
        "1",
        "`alpha`",
    ]
    assert first["left out"] == "`tuned`"
    alone = 2 * stats.norm.sf(0.017 / (2**0.5 * 0.01 / HALF))
    # The second smallest of three p-values; only one method was compared.
    assert float(first["corrected p"]) == pytest.approx(2 * alone, rel=0.05)
    assert first["beats the floor"] == "yes"
    assert (second["size"], second["methods compared"], second["left out"]) == (
        *("50 rows per class", "2", "4"),
    )
    assert second["best"] == "`beta`" and second["corrected p"] == "< 0.001"
    assert second["beats the floor"] == "no: worse"
    assert (third["size"], third["methods compared"], third["left out"]) == (
        "full size",
        "1",
        "none",
    )
    assert third["corrected p"] == "1" and third["beats the floor"] == "not shown"


def test_sizes_say_which_datasets_they_cover(tmp_path: Path) -> None:
    run = OneEpsilon()
    for dataset, methods in (("d1", ("alpha", "beta")), ("d2", ("alpha", "gamma")), ("d3", ())):
        for place, method in enumerate((*methods, "tuned")):
            run.utility(dataset, method, 0.8 - 0.1 * place)
        real = {"eps_target": None, "eps_claimed": None, "eps_proven": float("inf"), "ipc": None}
        run.utility(dataset, "real", 0.9, **real, verdict="non-private")
    found = run.material(tmp_path, tuned=("d1", "d2", "d3"))
    (row,) = lines(KINDS["sizes"](found))
    assert row["best"] == "`alpha`" and row["datasets of the best"] == "2 of 3: d1, d2"
    assert row["methods compared"] == "3" and row["left out"] == "`tuned`"
    assert row["next"] in ("`beta`", "`gamma`") and row["datasets in common"] == "1"
    (best,) = lines(KINDS["best"](found))
    assert best["datasets"] == "2 of 3" and best["datasets with real rows"] == "2"
    assert best["datasets in common"] == "1"


def test_condensation_against_synthesis(tmp_path: Path) -> None:
    version = small_version(tmp_path)
    cards = tuple(
        MethodDescription(name, name, family=family, tuned_on=())
        for name, family in (("alpha", "marginals"), ("beta", "condensation"))
    )
    (version / FILE).write_text(Descriptions(methods=cards).to_json(), encoding="utf-8")
    rows = lines(KINDS["families"](Material(version, version)))
    assert {row["best condensation"] for row in rows} == {"`beta`"}
    assert {row["data"] for row in rows} == {"tables", "survival cohorts"}
    assert [row["datasets in common"] for row in rows] == ["2", "1"]
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
