"""The site of a published version: every number of its front page follows from Parquet files.

The numbers are computed here by pandas and scipy alone, and what is left of the text of the page
once they are taken out must hold no other number.
"""

from __future__ import annotations

import html
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy import stats

from bench.cli.main import main
from bench.leaderboard.pages.site import write_site
from bench.leaderboard.tables.published import versions
from tests.support.front_page import FrontPage
from tests.support.published_site import small_version

METRICS = {"classification": "auroc", "survival": "c-index/cox", "image": "accuracy/convnet"}
NUMBER = re.compile(r"(?<![A-Za-z0-9.])[+-]?\d[\d,]*(?:\.\d+)?%?(?![A-Za-z0-9])")


def text_of(markup: str) -> str:
    """Return the text of a part of a page."""
    return html.unescape(" ".join(re.sub("<[^>]+>", " ", markup).split()))


def tenth(share: float) -> str:
    """Return a percentage with one decimal; halves are rounded up, as on paper."""
    return f"{100 * share + 1e-9:.1f}"


class Tables:
    """The Parquet files of a version, and aggregates of them by pandas alone."""

    def __init__(self, directory: Path) -> None:
        self.cells = pd.read_parquet(directory / "cells.parquet")
        self.released = self.cells[self.cells["attack"] == ""]
        scores = pd.read_parquet(directory / "scores.parquet")
        table = self.released.merge(scores[["key", "metric", "value", "low", "high"]], on="key")
        self.table = table[table["metric"] == table["task"].map(METRICS)]
        about = json.loads((directory / "about.json").read_text())
        self.tuned = {
            (card["name"], dataset)
            for card in about["methods"]
            for dataset in (card["tuned_on"] or ())
        }

    def sound(self, task: str, target: float) -> pd.DataFrame:
        """Return what is ranked, failed cells without a value."""
        cells = self.released[
            (self.released["task"] == task)
            & (self.released["eps_target"] == target)
            & (self.released["status"] != "skipped")
        ]
        cells = cells.merge(self.table[["key", "value", "low", "high"]], on="key", how="left")
        finished = cells[cells["verdict"] != ""]
        good = set(finished.loc[finished["verdict"].str.startswith("sound"), "label"])
        bad = set(finished.loc[~finished["verdict"].str.startswith("sound"), "label"])
        cells = cells[cells["label"].isin(good - bad)]
        pairs = pd.Series(list(zip(cells["method"], cells["dataset_name"], strict=True)),
                          index=cells.index)  # fmt: skip
        cells = cells[~pairs.isin(list(self.tuned))]
        # Models have no size; where releases of rows are ranked, these alone are compared.
        sized = cells["ipc"].notna() | cells["full_size"]
        return cells[sized] if sized.any() else cells

    def wins(self, task: str, target: float) -> pd.Series[float]:
        """Return shares of the others beaten: over seeds, then sizes, then datasets; best first."""
        cells = self.sound(task, target).assign(
            printed=lambda frame: [round(value + 1e-12, 3) for value in frame["value"]]
        )
        found = []
        for place, group in cells.groupby(["dataset", "ipc", "full_size"], dropna=False):
            wide = group.pivot(index="seed", columns="label", values="printed")
            there = group.pivot(index="seed", columns="label", values="key").notna().all(axis=1)
            wide = wide[there]
            if wide.shape[1] < 2 or wide.empty:
                continue
            # A failed cell has the last place, whoever else failed.
            ranks = wide.rank(axis=1, ascending=False).where(wide.notna(), wide.shape[1])
            others = wide.shape[1] - 1
            for label, rank in ranks.mean().items():
                found.append((label, place[0], (others + 1 - rank) / others))
        frame = pd.DataFrame(found, columns=["label", "dataset", "wins"])
        by_dataset = frame.groupby(["label", "dataset"])["wins"].mean()
        count = by_dataset.groupby("label").size()
        datasets = frame["dataset"].nunique()  # on which any method has a rank
        means = by_dataset.groupby("label").mean()
        return means[2 * count >= datasets].sort_values(kind="stable", ascending=False)

    def share(self, label: str, task: str, target: float) -> float:
        """Return the share of the real rows: of each row as printed, then over datasets."""
        own = self.sound(task, target)
        own = own[own["label"] == label]
        real = self.table[self.table["label"] == "real"].groupby("dataset")["value"].mean()
        rows = own.groupby(["dataset", "ipc", "full_size"], dropna=False)["value"].mean()
        shares = pd.Series(
            [round(100 * value / real[place[0]] + 1e-9, 1) for place, value in rows.items()],
            index=[place[0] for place in rows.index],
        )
        return float(shares.groupby(level=0).mean().mean())

    def test(self, one: str, two: str, task: str, target: float) -> tuple[float, ...] | None:
        """Return difference, low, high and p of two methods, by the formula of Welch."""
        cells = self.sound(task, target)
        cells = cells[cells["value"].notna()]
        parts, differences = [], []
        for _, group in cells.groupby("dataset"):
            sides = [group[group["label"] == label] for label in (one, two)]
            places = [set(zip(s["ipc"].fillna(-1), s["full_size"], strict=True)) for s in sides]
            common = places[0] & places[1]
            seeds = None
            for side in sides:
                for ipc, full in common:
                    here = side[(side["ipc"].fillna(-1) == ipc) & (side["full_size"] == full)]
                    seeds = set(here["seed"]) if seeds is None else seeds & set(here["seed"])
            if not seeds:
                continue
            kept = []
            for side in sides:
                sizes = zip(side["ipc"].fillna(-1), side["full_size"], strict=True)
                here = np.array([place in common for place in sizes])
                kept.append(side[side["seed"].isin(seeds).to_numpy() & here])
            gaps = kept[0].groupby("seed")["value"].mean() - kept[1].groupby("seed")["value"].mean()
            differences.append(float(gaps.mean()))
            if len(gaps) > 1:
                parts.append((gaps.var(ddof=1) / len(gaps), len(gaps) - 1))
            for side in kept:
                if side["low"].notna().all():
                    width = float((side["high"] - side["low"]).mean())
                    parts.append(((width / 2 / stats.norm.ppf(0.975)) ** 2, math.inf))
        if not parts:
            return None
        total = sum(variance for variance, _ in parts) / len(differences) ** 2
        shares = sum(
            (variance / len(differences) ** 2 / total) ** 2 / freedom for variance, freedom in parts
        )
        freedom = 1 / shares if shares else math.inf
        middle, error = float(np.mean(differences)), math.sqrt(total)
        reach = stats.t.ppf(0.975, freedom) * error
        p = 2 * stats.t.sf(abs(middle) / error, freedom)
        return middle, middle - reach, middle + reach, float(p)


def corrected(p_values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return p-values after Holm's correction, step by step."""
    found, largest = {}, 0.0
    for place, pair in enumerate(sorted(p_values, key=lambda one: p_values[one])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[pair]))
        found[pair] = largest
    return found


def trace(directory: Path, page: str) -> int:
    """Assert that the answers and the head of a front page follow from Parquet; count numbers."""
    tables = Tables(directory)
    section = page.split('<section id="answers">')[1].split("</section>")[0]
    articles = re.findall('<article class="answer-of">(.*?)</article>', section, re.DOTALL)
    texts = {"tables": "classification", "survival cohorts": "survival", "images": "image"}
    checked = 0
    for article in articles:
        said = text_of(article)
        head = re.match(r"Best for (.+?) at ε = ([\d.]+)", said)
        assert head is not None
        task, target = texts[head[1]], float(head[2])
        quantities = re.findall(r'data-quantity="([^"]+)">([^<]+)<', article)
        printed = {html.unescape(name): html.unescape(value) for name, value in quantities}
        wins = tables.wins(task, target)
        largest = [label for label in wins.index if tenth(wins[label]) == tenth(wins.max())]
        best = str(sorted(largest)[0])
        assert text_of(article.split('<p class="who">')[1].split("</p>")[0]) == best
        place = f"{best}|{task}|{target:g}"
        expected: list[str] = [head[2]]
        assert printed.pop(f"{place}|of real") == f"{tables.share(best, task, target) + 1e-9:.1f}%"
        assert printed.pop(f"{place}|win rate") == f"{tenth(wins[best])}%"
        pairs = list(itertools.combinations(wins.index, 2))
        tests = {
            pair: test for pair in pairs if (test := tables.test(*pair, task, target)) is not None
        }
        p_values = corrected({pair: test[3] for pair, test in tests.items()})
        order = sorted(wins.index, key=lambda label: (-float(tenth(wins[label])), label))
        # Two methods that are ranked on other datasets have nothing in common to be tested on.
        met = {label for pair in tests for label in pair if best in pair} - {best}
        order = [best, *(label for label in order if label in met)]
        second = next(iter(order[1:]), None)
        if second is not None:
            pair = (best, second) if (best, second) in tests else (second, best)
            sign = 1 if pair == (best, second) else -1
            middle, *ends = (sign * value for value in tests[pair][:3])
            low, high = sorted(ends)
            gap = f"{middle:+.3f} [{low:+.3f}, {high:+.3f}]"
            assert printed.pop(f"{place}|difference to {second}") == gap
            p = printed.pop(f"{place}|p of {second}")
            assert (
                p == "< 0.001"
                if p_values[pair] < 0.001
                else (float(p) == pytest.approx(p_values[pair], rel=0.06))
            )
            assert int(printed.pop(f"{task}|{target:g}|pairs")) == len(tests)
            sure = p_values[pair] < 0.05
            word = ("Better" if middle > 0 else "Worse") if sure else "Not distinguishable"
            assert f"{word} {'than' if sure else 'from'} the next , {second}" in said
            for words, wanted in (("Not distinguishable from the best:", False),
                                  ("Better than", True)):  # fmt: skip
                labels = [
                    label
                    for label in order[1:]
                    for one in [(best, label) if (best, label) in tests else (label, best)]
                    if (p_values[one] < 0.05) is wanted
                    and (not wanted or tests[one][0] * (1 if one[0] == best else -1) > 0)
                ]
                listed = said.split(words)[-1].split(".")[0] if labels else ""
                assert [label.strip() for label in listed.split(",") if label.strip()] == labels
                expected.append(str(len(labels)))  # of the line that opens the lists
        assert printed == {}
        # What is left are counts of datasets, and names.
        rest = re.sub(r'<[^>]*data-quantity="[^"]*">[^<]*<', "<", article)
        rest = re.sub(r"<a [^>]*>[^<]*</a>", "", rest)
        datasets = tables.released.loc[tables.released["task"] == task, "dataset"]
        words = text_of(rest)
        for name in sorted(datasets.unique(), key=len, reverse=True):
            words = words.replace(name, "")
        own = set(tables.sound(task, target).groupby("label")["dataset"].unique()[best])
        expected += [str(len(own)), str(datasets.nunique())]
        assert f"({', '.join(sorted(own))}" in said
        assert sorted(NUMBER.findall(words)) == sorted(expected), words
        checked += 7 + len(expected)
    checked += _head(directory, page, tables, section)
    return checked


def _head(directory: Path, page: str, tables: Tables, section: str) -> int:
    """The counts at the top, and the line of the version."""
    facts = text_of(page.split('<p class="facts">')[1].split("</p>")[0])
    status = tables.released["status"].value_counts()
    failed = int(status.sum() - status.get("ok", 0) - status.get("skipped", 0))
    expected = [
        tables.released["label"].nunique(),
        tables.released["dataset"].nunique(),
        len(tables.released),
        int(status.get("ok", 0)),
        failed,
        int(status.get("skipped", 0)),
    ]
    counted = [int(text.replace(",", "")) for text in NUMBER.findall(facts.split(" Run")[0])]
    assert counted == expected
    slices = json.loads((directory / "run.json").read_text())["published"]["slices"]
    hours = re.findall(r'data-quantity="version\|core-hours">([^<]+)<', section)
    assert hours == [f"{sum(one['core_hours'] for one in slices):.1f}"]
    return len(expected) + 1


def board_rows(directory: Path, page: str) -> int:
    """Assert that the rows of the board follow from Parquet; return how many there are."""
    tables = Tables(directory)
    rows = FrontPage(page).rows
    for row in rows:
        target, own = row.facts["target"], tables.table
        spent = own["eps_target"]
        own = own[
            (own["label"] == row.words["label"])
            & (own["dataset"] == row.words["dataset"])
            & (spent.isna() if target is None else spent == target)
        ]
        if row.utility["value"] is not None and len(own):
            means = own.groupby(["ipc", "full_size"], dropna=False)["value"].mean()
            assert min(abs(means - row.utility["value"])) < 5.1e-4
    return len(rows)


@pytest.mark.parametrize("complete", [True, False])
def test_every_number_of_the_answers_is_in_the_tables(tmp_path: Path, complete: bool) -> None:
    directory = small_version(tmp_path, complete=complete)
    write_site([directory], tmp_path / "site", cells=0)
    page = (tmp_path / "site" / "index.html").read_text()
    assert trace(directory, page) >= 2 * 10
    assert board_rows(directory, page) >= 25


def published_versions() -> Sequence[Any]:
    found = versions()
    return found[-1:] or [pytest.param(None, marks=pytest.mark.skip("no version is published"))]


@pytest.mark.parametrize("directory", published_versions())
def test_every_number_of_the_published_front_page_is_in_the_tables(
    tmp_path: Path, directory: Path
) -> None:
    write_site([directory], tmp_path / "site", public=True, cells=0)
    page = (tmp_path / "site" / "index.html").read_text()
    assert trace(directory, page) > 6
    assert board_rows(directory, page) > 0


def test_a_number_that_is_not_in_the_tables_is_found(tmp_path: Path) -> None:
    directory = small_version(tmp_path)
    write_site([directory], tmp_path / "site", cells=0)
    page = (tmp_path / "site" / "index.html").read_text()
    for old, new in (
        (r"(\+\d\.\d\d)\d \[", r"\g<1>x ["),
        (r"\d\d\.\d%</span> of the utility", "97.3%</span> of the utility"),
        ("</article>", "<b>12</b></article>"),
    ):
        section = page.split('<section id="answers">')[1]
        changed, count = re.subn(old, new, section, count=1)
        assert count == 1
        with pytest.raises((AssertionError, KeyError, ValueError)):
            trace(directory, page.replace(section, changed))


def test_what_a_version_offers(tmp_path: Path) -> None:
    older = small_version(tmp_path, "2026.05")
    directory = small_version(tmp_path, "2026.11", complete=False)
    write_site([directory], tmp_path / "site", cells=0)
    site = tmp_path / "site"
    page = (site / "index.html").read_text()
    assert "What changed since 2026.05" in page and "Version 2026.11" in page
    assert page.index('id="answers"') < page.index('id="lead"')
    changes = text_of((site / "changes.html").read_text())
    assert "No longer ok" in changes and "gamma on d2" in changes
    for name in ("cells.parquet", "scores.parquet", "ledgers.parquet", "LOG.md"):
        assert (site / "results" / name).read_bytes() == (directory / name).read_bytes()
    cite = (site / "cite.html").read_text()
    assert "dp_release_bench_2026_11" in cite and "c0ffee" in cite
    links = re.findall(r'href="([^"#]+)"', page.split('id="answers"')[1].split("</section>")[0])
    assert links and all((site / link).is_file() for link in links)
    write_site([older], tmp_path / "first", cells=0)
    first = (tmp_path / "first" / "index.html").read_text()
    assert "The first version" in first and not (tmp_path / "first" / "changes.html").exists()


def test_other_runs_have_no_version(tmp_path: Path) -> None:
    directory = small_version(tmp_path)
    run = tmp_path / "run-2026.11"
    write_site([run], tmp_path / "site", cells=0)
    assert 'id="answers"' not in (tmp_path / "site" / "index.html").read_text()
    assert not (tmp_path / "site" / "cite.html").exists()
    write_site([directory, run], tmp_path / "both", cells=0)
    assert 'id="answers"' not in (tmp_path / "both" / "index.html").read_text()


def test_the_site_of_a_named_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.leaderboard.tables import published as where

    directory = small_version(tmp_path)
    monkeypatch.setattr(where, "home", lambda: directory.parent)
    for name in ("published", "2026.11"):
        out = tmp_path / f"site-{name}"
        result = CliRunner().invoke(main, ["leaderboard", name, "-o", str(out)])
        assert result.exit_code == 0, result.output
        assert "Leaderboard 2026.11" in (out / "index.html").read_text()
    result = CliRunner().invoke(main, ["leaderboard", "2020.01", "-o", str(tmp_path / "x")])
    assert result.exit_code == 2 and "there are: 2026.11" in result.output


def test_a_version_of_one_dataset_says_why_no_test_rows_are_compared(tmp_path: Path) -> None:
    version = small_version(tmp_path)
    cells = pq.read_table(version / "cells.parquet")
    (task,) = {"classification"} & set(cells["task"].to_pylist())
    first = min(cells.filter(pc.field("task") == task)["dataset"].to_pylist())
    pq.write_table(cells.filter(pc.field("dataset") == first), version / "cells.parquet")
    done = CliRunner().invoke(main, ["leaderboard", str(version), "-o", str(tmp_path / "site")])
    assert done.exit_code == 0, done.output
    page = text_of((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    assert "are missing: published results hold no predictions for them." in page
