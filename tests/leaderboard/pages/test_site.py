"""The page: complete, harmless, and nothing half-written."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.errors import StoreError
from bench.leaderboard.pages.site import write_site
from bench.results.records import ScoreRow
from tests.support.front_page import FrontPage

SCRIPT = "<script>alert(1)</script>"


SHARED = [
    "index.html",
    "leaderboard.csv",
    "leaderboard.md",
    "leaderboard.parquet",
    "leaderboard.tex",
    "plots.html",
]


@pytest.fixture
def render(tmp_path: Path) -> Callable[[Any], FrontPage]:
    """The front page of a run, parsed."""

    def compute(run: Any) -> FrontPage:
        write_site([run.write(tmp_path / "run")], tmp_path / "site")
        return FrontPage((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))

    return compute


def test_summary_and_files(mixed_run: Any, tmp_path: Path) -> None:
    output = tmp_path / "deep" / "site"
    summary = write_site([mixed_run.write(tmp_path / "run")], output)
    written = {path for path in output.rglob("*") if path.is_file()}
    assert sorted(path.name for path in output.iterdir() if path.is_file()) == [
        *SHARED,
        "site-files.json",
        "vega.js",
    ]
    assert len(list((output / "methods").glob("*.html"))) == 6
    assert len(list((output / "datasets").glob("*.html"))) == 2
    assert len(list((output / "cells").glob("*.html"))) == 40
    assert set(summary.paths) == written
    assert (summary.cells, summary.methods, summary.datasets) == (40, 6, 2)
    assert (summary.failed, summary.skipped) == (1, 8)


def test_nothing_of_an_earlier_site_stays(mixed_run: Any, run: Any, tmp_path: Path) -> None:
    """An internal site, then a public one in the same folder, which is then given away."""
    output = tmp_path / "site"
    write_site([mixed_run.write(tmp_path / "run")], output)
    (output / "methods" / "own-notes.html").write_text("kept", encoding="utf-8")
    (output / "robots.txt").write_text("kept", encoding="utf-8")
    run.add("alone", 0.9, dataset="another")
    summary = write_site([run.write(tmp_path / "other")], output, public=True)
    there = {path for path in output.rglob("*") if path.is_file()}
    foreign = {output / "methods" / "own-notes.html", output / "robots.txt"}
    assert there == {*summary.paths, *foreign}
    # The list of files names no page of the first site either.
    listed = json.loads((output / "site-files.json").read_text(encoding="utf-8"))["files"]
    assert {output / name for name in listed} == there - foreign - {output / "site-files.json"}


@pytest.mark.parametrize(
    "name", ["../outside.html", "/outside.html", "link/outside.html", "link.html", "a/b/c"]
)
def test_the_list_of_an_earlier_site_is_not_trusted(
    mixed_run: Any, tmp_path: Path, name: str
) -> None:
    output, outside = tmp_path / "site", tmp_path / "outside.html"
    (output / "a" / "b").mkdir(parents=True)
    outside.write_text("mine", encoding="utf-8")
    (output / "a" / "b" / "c").write_text("mine", encoding="utf-8")
    (output / "link").symlink_to(tmp_path, target_is_directory=True)
    (output / "link.html").symlink_to(outside)
    named = str(outside) if name.startswith("/") else name
    (output / "site-files.json").write_text(json.dumps({"files": [named]}), encoding="utf-8")
    write_site([mixed_run.write(tmp_path / "run")], output)
    assert outside.read_text(encoding="utf-8") == "mine"
    assert (output / "link.html").is_symlink() and (output / "a" / "b" / "c").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}', '{"files": [3]}', "\xff", "[" * 9000])
def test_a_list_that_is_none_is_said_to_be_none(mixed_run: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site-files.json").write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match="is not the list of the files of a site"):
        write_site([mixed_run.write(tmp_path / "run")], tmp_path / "site")


def test_the_same_tables_give_the_same_bytes(mixed_run: Any, tmp_path: Path) -> None:
    directory = mixed_run.write(tmp_path / "run")
    first = write_site([directory], tmp_path / "1")
    second = write_site([directory], tmp_path / "2")
    for one, other in zip(first.paths, second.paths, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_four_epsilons(mixed_run: Any, render: Any) -> None:
    mixed_run.add("audited", 0.5, eps_claimed=0.95, eps_audited=0.125)
    page = render(mixed_run)

    def four(*name: Any) -> list[float | None]:
        row = page.row(*name)
        return [row.facts[name] for name in ("target", "claimed", "proven", "audited")]

    assert four("real", "breast-cancer", None) == [None, None, math.inf, None]
    assert four("pate", "breast-cancer", 10.0) == [10, 10, math.inf, None]
    assert four("audited", "breast-cancer", 1.0) == [1, 0.95, 0.75, 0.125]
    heads = {a["data-column"]: a["data-label"] for _, a in page.tags if "data-column" in a}
    names = ["target", "claimed", "proven", "audited"]
    assert [heads[name] for name in names] == ["ε target ·", *(f"ε {n} ↓" for n in names[1:])]


def test_verdict_with_its_reason(mixed_run: Any, render: Any) -> None:
    row = render(mixed_run).row("pate", "curial-sim", 1.0)
    reason = "claims epsilon 1 (a paper), but rows were read without noise"
    assert (row.words["verdict"], row.words["kind"]) == ("unproven", "unproven")
    assert row.words["why"] == row.detail["Why"] == reason


def test_utility_interval_and_seeds(mixed_run: Any, render: Any) -> None:
    row = render(mixed_run).row("real", "breast-cancer", None)
    shown = {name: row.utility[name] for name in ("value", "low", "high", "least", "largest")}
    assert row.words["metric"] == "auroc"
    assert shown == {"value": 0.905, "low": 0.885, "high": 0.925, "least": 0.9, "largest": 0.91}
    assert row.utility["count"] == 2
    # Apart from the interval: |0.91 - 0.90| / sqrt(2).
    assert row.utility["deviation"] == round(0.01 / math.sqrt(2), 3)


def test_ranked_and_not_ranked(mixed_run: Any, render: Any) -> None:
    """Ranks are taken by the page's script: here, what it takes them from."""
    page = render(mixed_run)
    ldpdc, floor = (page.row(name, "curial-sim", 1.0) for name in ("ldpdc", "marginals"))
    assert ldpdc.facts["group"] == floor.facts["group"]
    assert list(ldpdc.seeds.values()) == [pytest.approx(0.7), None]  # the second failed
    assert list(floor.seeds.values()) == [pytest.approx(0.6), pytest.approx(0.6)]
    assert floor.words["reference"] == "floor"
    assert ldpdc.words["barred"] == ""
    assert page.row("ldpdc", "curial-sim", 10.0).facts["group"] != ldpdc.facts["group"]
    pate = page.row("pate", "breast-cancer", 1.0)
    assert (pate.words["barred"], pate.seeds) == ("unproven", {})


def test_failed_and_skipped_cells_are_visible(mixed_run: Any, render: Any) -> None:
    mixed_run.fail("broken", reason="ValueError: no such thing")
    page = render(mixed_run)

    def counts(row: Any) -> list[float | None]:
        return [row.facts[name] for name in ("finished", "failed", "skipped")]

    failed = page.row("ldpdc", "curial-sim", 1.0)
    assert counts(failed) == [1, 1, 0]
    assert failed.detail["timeout, seed 1"] == "over 60 s"
    broken = page.row("broken", "breast-cancer", 1.0)
    assert counts(broken) == [0, 1, 0]
    assert broken.detail["error, seed 0"] == "ValueError: no such thing"
    # Not barred: it takes part, without a score, and so in the last place.
    assert (broken.words["barred"], list(broken.seeds.values())) == ("", [None])
    skipped = page.row("picky", "breast-cancer", 1.0)
    assert counts(skipped) == [0, 0, 2]
    assert skipped.detail["skipped, seeds 0, 1"] == "takes images only"
    assert skipped.words["barred"] == "skipped"
    assert "2 failed, 8 skipped" in page.plain
    assert "timeout 1 over 60 s" in page.plain  # among the incidents


def test_direction_on_every_metric_column(mixed_run: Any, render: Any) -> None:
    key = mixed_run.add("a", 0.5)
    mixed_run.score(key, "ks", 0.1, direction="lower", family="fidelity")
    mixed_run.score(key, "dcr", 0.5, direction="neutral", family="privacy")
    mixed_run.score(key, "recall", 0.5)
    page = render(mixed_run)
    row = page.row("a", "breast-cancer", 1.0)
    values = {name: own["value"] for name, own in row.measures.items()}
    assert values == {"ks": 0.1, "dcr": 0.5, "recall": 0.5}
    labels = {a["data-label"] for _, a in page.tags if "data-column" in a}
    assert {"ks ↓", "dcr ·", "recall ↑", "Utility ↑", "Failed ↓"} <= labels
    assert all(label and label[-1] in "↑↓·" for label in labels)
    titles = {a["title"] for tag, a in page.tags if tag == "button" and a.get("title")}
    assert {
        "ks: lower is better",
        "dcr: neither direction is better",
        "recall: higher is better",
    } <= titles
    assert page.data["directions"] | {"auroc": "higher", "ks": "lower"} == page.data["directions"]


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
    page = FrontPage((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    (row,) = page.rows
    limits = {name: own.get("limit") for name, own in row.measures.items()}
    assert limits == {"risk": 0.2, "share": 0.8, "attack": None}  # gone has no value
    assert row.measures["attack"]["remark"] == "weak: misses 0.51"
    assert "remark" not in row.measures["risk"]  # a column without any is not written
    assert "0.123" not in page.source
    assert row.detail["No gone, lost"] == "no rows"
    assert "hidden" in (tmp_path / "site" / "leaderboard.csv").read_text()


def test_study_only_is_stamped(run: Any, render: Any) -> None:
    run.add("a", 0.5, study_only=True)
    run.add("b", 0.5)
    page = render(run)
    assert "Study only. 1 of 2 cells used seeded noise" in page.text
    assert [(row.words["label"], row.facts["study"]) for row in page.rows] == [("b", 0), ("a", 1)]
    assert page.rows[1].words["variant"] == "seeded noise"


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
    assert tags.count("script") == 3  # data and charts, which cannot run, and our own
    assert tags.count("style") == 2
    assert not [name for _, a in page.tags for name in a if name.startswith("on")]
    assert page.rows[-1].words["label"] == evil
    assert evil in {a.get("value") for tag, a in page.tags if tag == "input"}
    assert SCRIPT not in page.source
    assert "<" not in page.block


def test_only_our_own_script_may_run(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv")]
    digest = base64.b64encode(hashlib.sha256(page.script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'strict-dynamic' 'sha256-{digest}';" in policy


def test_nothing_is_fetched(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    links = {a.get("href") or "" for _, a in page.tags if "href" in a}
    files = {link for link in links if not link.startswith("#")}
    assert set(SHARED) - {"index.html"} <= files
    assert not [link for link in files if ":" in link or link.startswith(("/", "."))]
    assert not [a for _, a in page.tags if "src" in a]
    plain = re.sub(
        r'"\$schema":"[^"]*"|xmlns(:xlink)?="[^"]*"', "", page.source
    )  # names, not links
    assert not re.search(r"url\(|@import|https?://", plain)
    anchors = {a["id"] for _, a in page.tags if "id" in a}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors


def test_the_machine_stays_out_of_the_page(mixed_run: Any, tmp_path: Path, render: Any) -> None:
    assert str(tmp_path) not in render(mixed_run).source


def test_filters_offer_what_is_there(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    options = {a["value"] for tag, a in page.tags if tag == "option"}
    methods = {a["value"] for tag, a in page.tags if tag == "input" and a.get("name") == "method"}
    for row in page.rows:
        target = row.facts["target"]
        assert f"={'' if target is None else f'{target:g}'}" in options
        for name in ("dataset", "task", "ipc", "kind"):
            assert f"={row.words[name]}" in options
        assert row.words["label"] in methods
    assert "=xgboost" in options  # the model behind `auroc`


def test_an_empty_run(run: Any, render: Any) -> None:
    page = render(run)
    assert page.rows == ()
    assert page.data == {}
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
    assert "Left out: 1 older result of cells that were run again." in text


def test_a_bad_directory_writes_nothing(mixed_run: Any, tmp_path: Path) -> None:
    good = mixed_run.write(tmp_path / "run")
    with pytest.raises(StoreError, match="no such directory"):
        write_site([good, tmp_path / "nowhere"], tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_output_that_cannot_be_written(mixed_run: Any, tmp_path: Path) -> None:
    (tmp_path / "site").write_text("a file", encoding="utf-8")
    with pytest.raises(
        StoreError, match=r"site: cannot be written .* a file is where a folder should be"
    ):
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
    assert "Based on 12 blocks: combinations of dataset" in text
    assert "1 good 1.00 [1.00, 1.00] poor 2 poor 2.00 [2.00, 2.00] " in text
    labels = [a["aria-label"] or "" for _, a in page.tags if a.get("role") == "img"]
    assert [text for text in labels if "best first: good 1.00, poor 2.00." in text]
    assert "100%" in text.split("Win rates")[1]


def test_too_few_blocks_are_said_to_be_too_few(mixed_run: Any, render: Any) -> None:
    text = " ".join(render(mixed_run).text.split())
    assert "No pair of methods can be distinguished: with 4 blocks" in text
    assert "1-2 ldpdc" in text


def test_strange_names_are_harmless_where_they_are_compared(run: Any, render: Any) -> None:
    _twelve_blocks(run, SCRIPT, f"{SCRIPT}\"'</svg></title>")
    page = render(run)
    # The code, the results, and the chart of ranks; no real rows, so no picture.
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert SCRIPT not in page.source
    assert f"{SCRIPT} is better than" in page.text


def test_alpha_is_passed_on(run: Any, tmp_path: Path) -> None:
    _twelve_blocks(run, "good", "poor")
    directory = run.write(tmp_path / "run")
    write_site([directory], tmp_path / "site", alpha=0.0001)
    text = (tmp_path / "site" / "index.html").read_text()
    assert "99.99% interval" in text
    assert "No pair of methods can be distinguished" in text
