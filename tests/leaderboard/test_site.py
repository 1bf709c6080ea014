"""The page: complete, harmless, and nothing half-written."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bench.core.errors import StoreError
from bench.core.result import ScoreRow
from bench.leaderboard.site import write_site

SCRIPT = "<script>alert(1)</script>"


class Page(HTMLParser):
    """Collects what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.rows: list[dict[str, str]] = []
        """Of the results: text of each cell by its label."""
        self.row_attributes: list[dict[str, str | None]] = []
        self.text = ""
        self._table = ""
        self._label = ""
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self._script = tag == "script"
        if tag == "table":
            self._table = attributes.get("id") or ""
        if self._table != "results":
            return
        if tag == "tr" and "data-cohort" in attributes:
            self.rows.append({})
            self.row_attributes.append(attributes)
        if tag in ("th", "td") and self.rows:
            self._label = attributes.get("data-label") or ("Method" if tag == "th" else "")

    def handle_endtag(self, tag: str) -> None:
        self._script = False
        if tag == "table":
            self._table = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts.append(data)
            return
        self.text += data
        if self._table == "results" and self.rows and self._label:
            row = self.rows[-1]
            row[self._label] = " ".join(f"{row.get(self._label, '')} {data}".split())

    def row(self, method: str, dataset: str, target: str) -> dict[str, str]:
        (found,) = [
            row
            for row in self.rows
            if row["Method"].split()[0] == method
            and row["Dataset"] == dataset
            and row["ε target"] == target
        ]
        return found


@pytest.fixture
def render(tmp_path: Path) -> Callable[[Any], Page]:
    """The page of a run, parsed."""

    def compute(run: Any) -> Page:
        write_site([run.write(tmp_path / "run")], tmp_path / "site")
        return Page((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))

    return compute


def test_summary_and_files(mixed_run: Any, tmp_path: Path) -> None:
    output = tmp_path / "deep" / "site"
    summary = write_site([mixed_run.write(tmp_path / "run")], output)
    assert sorted(path.name for path in output.iterdir()) == [
        "index.html",
        "leaderboard.csv",
        "leaderboard.md",
        "leaderboard.parquet",
        "leaderboard.tex",
    ]
    assert set(summary.paths) == set(output.iterdir())
    assert (summary.cells, summary.methods, summary.datasets) == (40, 6, 2)
    assert (summary.failed, summary.skipped) == (1, 8)


def test_the_same_tables_give_the_same_bytes(mixed_run: Any, tmp_path: Path) -> None:
    directory = mixed_run.write(tmp_path / "run")
    first = write_site([directory], tmp_path / "1")
    second = write_site([directory], tmp_path / "2")
    for one, other in zip(first.paths, second.paths, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_four_epsilons(mixed_run: Any, render: Any) -> None:
    mixed_run.add("audited", 0.5, eps_claimed=0.95, eps_audited=0.125)
    page = render(mixed_run)
    names = ["ε target", "ε claimed", "ε proven", "ε audited"]
    real = page.row("real", "breast-cancer", "–")  # noqa: RUF001
    assert [real[name] for name in names] == ["–", "–", "∞", "–"]  # noqa: RUF001
    pate = page.row("pate", "breast-cancer", "10")
    assert [pate[name] for name in names] == ["10", "10", "∞", "–"]  # noqa: RUF001
    audited = page.row("audited", "breast-cancer", "1")
    assert [audited[name] for name in names] == ["1", "0.95", "0.75", "0.125"]


def test_verdict_with_its_reason(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    reason = "claims epsilon 1 (a paper), but rows were read without noise"
    assert reason in page.row("pate", "curial-sim", "1")["Verdict"]
    badges = [a for tag, a in page.tags if tag == "span" and "badge" in (a.get("class") or "")]
    assert {"class": "badge unproven", "title": reason} in badges


def test_utility_interval_and_seeds(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    shown = page.row("real", "breast-cancer", "–")["auroc ↑"]  # noqa: RUF001
    assert shown == "0.905 [0.885, 0.925] auroc ↑ 2 seeds: 0.900 to 0.910"
    # Apart from the interval: |0.91 - 0.90| / sqrt(2).
    assert page.row("real", "breast-cancer", "–")["Seeds sd ↓"] == "0.007"  # noqa: RUF001


def test_ranked_and_not_ranked(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    assert page.row("ldpdc", "breast-cancer", "1")["Rank ↓"] == "1 of 2"
    assert page.row("ldpdc", "curial-sim", "1")["Rank ↓"] == "1.5 of 2"
    assert page.row("pate", "breast-cancer", "1")["Rank ↓"] == "not ranked: unproven"
    assert page.row("marginals", "breast-cancer", "1")["Method"] == "marginals floor"


def test_failed_and_skipped_cells_are_visible(mixed_run: Any, render: Any) -> None:
    mixed_run.fail("broken", reason="ValueError: no such thing")
    page = render(mixed_run)
    failed = page.row("ldpdc", "curial-sim", "1")["Cells"]
    assert failed == "1 ok, 1 failed timeout, seed 1: over 60 s"
    broken = page.row("broken", "breast-cancer", "1")
    assert broken["Cells"] == "1 failed error, seed 0: ValueError: no such thing"
    assert broken["Rank ↓"] == "3 of 3"
    skipped = page.row("picky", "breast-cancer", "1")
    assert skipped["Cells"] == "2 skipped skipped, seeds 0, 1: takes images only"
    assert "2 failed" in page.text  # in the head of the page
    assert "8 skipped" in page.text


def test_direction_on_every_metric_column(mixed_run: Any, render: Any) -> None:
    key = mixed_run.add("a", 0.5)
    mixed_run.score(key, "ks", 0.1, direction="lower", family="fidelity")
    mixed_run.score(key, "dcr", 0.5, direction="neutral", family="privacy")
    mixed_run.score(key, "recall", 0.5)
    page = render(mixed_run)
    row = page.row("a", "breast-cancer", "1")
    assert (row["ks ↓"], row["dcr ·"], row["recall ↑"]) == ("0.100", "0.500", "0.500")
    titles = {a["title"] for tag, a in page.tags if tag == "button" and a.get("title")}
    assert {
        "ks: lower is better",
        "dcr: neither way is better",
        "recall: higher is better",
    } <= titles


def test_thresholds_remarks_and_what_is_not_shown(run: Any, tmp_path: Path) -> None:
    key = run.add("leaky", 0.8)
    run.scores += [
        ScoreRow(key, "risk", 0.3, 0.2, 0.4, "lower", "privacy", "", 0.2),
        ScoreRow(key, "share", 0.9, None, None, "higher", "privacy", "", 0.8),
        ScoreRow(key, "attack", 0.5, None, None, "lower", "privacy", "", None, "weak: misses 0.51"),
        ScoreRow(key, "hidden", 0.123, None, None, "lower", "privacy", "", shown=False),
        ScoreRow(key, "gone", None, None, None, "lower", "privacy", "no rows"),
        ScoreRow(key, "lost", None, None, None, "lower", "privacy", "no rows", shown=False),
    ]
    write_site([run.write(tmp_path / "run")], tmp_path / "site")
    html = (tmp_path / "site" / "index.html").read_text()
    assert re.search(r'class="bad" title="[^"]*">beyond 0.200<', html)
    assert re.search(r'<small title="[^"]*">within 0.800<', html)
    assert '<small title="weak: misses 0.51">weak</small>' in html
    assert "0.123" not in html
    assert "No gone, lost" in html
    assert "hidden" in (tmp_path / "site" / "leaderboard.csv").read_text()


def test_study_only_is_stamped(run: Any, render: Any) -> None:
    run.add("a", 0.5, study_only=True)
    run.add("b", 0.5)
    page = render(run)
    assert "Study only. 1 of 2 cells used seeded noise" in page.text
    assert [row["Method"] for row in page.rows] == ["b", "a study only"]
    assert page.rows[1]["Dataset"] == "breast-cancer seeded noise"


def test_no_stamp_without_seeded_noise(mixed_run: Any, render: Any) -> None:
    assert "study only" not in render(mixed_run).text.lower()


def test_strange_names_are_harmless(run: Any, render: Any) -> None:
    evil = SCRIPT + "\"' onmouseover=alert(1) {{ 7 * 7 }} &amp;</style></svg></title>"
    key = run.add(
        evil,
        0.5,
        dataset=evil,
        verdict=evil,
        verdict_reason=evil,
        warnings=evil,
        claim_source=evil,
        accountant=evil,
        adjacency=evil,
        unit=evil,
        parameters=evil,
        split=evil,
        finished_at=evil,
        task=evil,
    )
    run.score(key, evil, 0.3, direction="lower", family=evil)
    run.score(key, f"{evil} 2", None, reason=evil)
    run.fail(evil, reason=evil, key=evil, dataset=evil, seed=1, split=evil, parameters=evil)
    run.add("real", 0.9, dataset=evil, split=evil, eps_target=None)
    page = render(run)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 1
    assert tags.count("style") == 1
    assert tags.count("title") > 1  # of the page, and inside the plots
    assert not [name for _, a in page.tags for name in a if name.startswith("on")]
    assert page.rows[-1]["Method"] == " ".join(evil.split())
    assert page.row_attributes[-1]["data-method"] == f"={evil}"
    assert SCRIPT not in page.source


def test_only_our_own_script_may_run(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv")]
    digest = base64.b64encode(hashlib.sha256("".join(page.scripts).encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_nothing_is_fetched(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    links = {a.get("href") or "" for _, a in page.tags if "href" in a}
    assert links == {
        "#ranking",
        "#better",
        "#table",
        "#plots",
        "#incidents",
        "#reading",
        "leaderboard.csv",
        "leaderboard.parquet",
        "leaderboard.md",
        "leaderboard.tex",
    }
    assert not [a for _, a in page.tags if "src" in a]
    assert not re.search(r"url\(|@import|https?://", page.source)
    anchors = {a["id"] for _, a in page.tags if "id" in a}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors


def test_the_machine_stays_out_of_the_page(mixed_run: Any, tmp_path: Path, render: Any) -> None:
    assert str(tmp_path) not in render(mixed_run).source


def test_filters_offer_what_is_there(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    options = {a["value"] for tag, a in page.tags if tag == "option"}
    for attributes in page.row_attributes:
        for name in ("cohort", "method", "size", "target", "verdict"):
            assert attributes[f"data-{name}"] in options


def test_an_empty_run(run: Any, render: Any) -> None:
    page = render(run)
    assert page.rows == []
    assert "The runs hold no cells yet." in page.text


def test_several_runs(new_run: Callable[[], Any], tmp_path: Path) -> None:
    one, two = new_run(), new_run()
    one.add("a", 0.5)
    two.add("b", 0.5)
    two.add("a", 0.7, finished_at="2027-01-01T00:00:00.000+00:00")
    directories = [one.write(tmp_path / "one"), two.write(tmp_path / "two")]
    summary = write_site(directories, tmp_path / "site")
    assert (summary.cells, summary.methods) == (2, 2)
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "1 older results of cells that were run again are left out." in text


def test_a_bad_directory_writes_nothing(mixed_run: Any, tmp_path: Path) -> None:
    good = mixed_run.write(tmp_path / "run")
    with pytest.raises(StoreError, match="no such folder"):
        write_site([good, tmp_path / "nowhere"], tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_output_that_cannot_be_written(mixed_run: Any, tmp_path: Path) -> None:
    (tmp_path / "site").write_text("a file", encoding="utf-8")
    with pytest.raises(StoreError, match=r"site: the leaderboard cannot be written there"):
        write_site([mixed_run.write(tmp_path / "run")], tmp_path / "site")


def _twelve_blocks(run: Any, best: str, worst: str) -> None:
    for number in range(12):
        run.add(best, 0.9 - 0.001 * number, dataset=f"d{number:02}")
        run.add(worst, 0.7 + 0.002 * number, dataset=f"d{number:02}")


def test_who_is_better(run: Any, render: Any) -> None:
    _twelve_blocks(run, "good", "poor")
    page = render(run)
    text = " ".join(page.text.split())
    assert "On these 12 datasets: good is better than poor." in text
    assert "Over 12 blocks: combinations of dataset" in text
    assert "1 good 1.00 [1.00, 1.00] poor 2 poor 2.00 [2.00, 2.00] " in text
    (drawing,) = [a for tag, a in page.tags if tag == "svg" and a.get("class") == "diagram"]
    assert "best first: good 1.00, poor 2.00." in (drawing["aria-label"] or "")
    assert "100%" in text.split("Win rates")[1]


def test_too_few_blocks_are_said_to_be_too_few(mixed_run: Any, render: Any) -> None:
    text = " ".join(render(mixed_run).text.split())
    assert "Nothing can be told apart, pair by pair: the smallest p-value that 4 blocks" in text
    assert "1-2 ldpdc" in text


def test_strange_names_are_harmless_where_they_are_compared(run: Any, render: Any) -> None:
    _twelve_blocks(run, SCRIPT, f"{SCRIPT}\"'</svg></title>")
    page = render(run)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert SCRIPT not in page.source
    assert f"{SCRIPT} is better than" in page.text


def test_alpha_is_passed_on(run: Any, tmp_path: Path) -> None:
    _twelve_blocks(run, "good", "poor")
    directory = run.write(tmp_path / "run")
    write_site([directory], tmp_path / "site", alpha=0.0001)
    text = (tmp_path / "site" / "index.html").read_text()
    assert "99.99% interval" in text
    assert "Nothing can be told apart" in text
