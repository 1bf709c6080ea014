"""A site of a run that is going: what has ended so far, and how far that is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd

from bench.leaderboard.pages.site import write_site
from bench.leaderboard.tables.load import load_results
from bench.results.records import Outcome, TimingRow
from bench.results.run_directory import Progress
from tests.support.tracked_runs import opened, outcome

NOW = "2126-01-02T03:04:05+00:00"
"""After the start of the run, whenever the test is run."""


def timed(key: str, **changes: object) -> Outcome:
    rows = (
        TimingRow(key, "fit", "", 2.0, 1.5),
        TimingRow(key, "score", "", 12.0, 11.25, 0.5),
        TimingRow(key, "score", "auroc", 9.0, 8.75, 0.5),
    )
    item = outcome(key, NOW, task="survival", verdict="unproven", **changes)
    return dataclasses.replace(item, timings=rows)


def test_a_site_of_a_run_that_is_going_says_how_far_it_is(tmp_path: Path) -> None:
    run, site = tmp_path / "run", tmp_path / "site"
    with opened(run) as store:
        progress = Progress(store, total=10, cached=0)
        for number in range(3):
            store.record(timed(f"k{number}", seed=number), None)
            store.compact() if number == 1 else None
        assert len(pd.read_parquet(run / "cells.parquet")) == 2
        summary = write_site([run], site)
        text = "The run run is active: 3 of 10 planned cells so far."
        assert summary.cells == 3 and any(text in warning for warning in summary.warnings)
        assert text in (site / "index.html").read_text(encoding="utf-8")
        progress.end("interrupted")
    assert "was interrupted: 3 of 10" in load_results([run]).unfinished[0]


def test_a_site_of_a_run_that_has_ended_says_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as store:
        progress = Progress(store, total=1, cached=0)
        store.record(timed("a"), None)
        store.compact()
        progress.end("finished")
    assert load_results([tmp_path / "run"]).unfinished == ()


def test_the_page_of_a_cell_shows_what_its_steps_took(tmp_path: Path) -> None:
    run, site = tmp_path / "run", tmp_path / "site"
    with opened(run) as store:
        store.record(timed("a"), None)
        store.compact()
    write_site([run], site)
    (page,) = (site / "cells").glob("*.html")
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert "time by phase" in text and "time by metric" in text
    row = '<span class="name">score</span></th><td class="num">12.0</td><td class="num">11.2</td>'
    assert row in text and '<td class="num">88%</td>' in text
    assert '<span class="name">auroc</span></th><td class="num">9.000</td>' in text


def test_a_public_page_of_rows_that_are_not_public_leaves_times_out(tmp_path: Path) -> None:
    """Times depend on the rows: they go as scores do. The dataset is not declared here."""
    run, site = tmp_path / "run", tmp_path / "site"
    with opened(run) as store:
        store.record(timed("a", dataset="own", dataset_name="own"), None)
        store.compact()
    write_site([run], site, public=True)
    for page in site.rglob("*.html"):
        assert "time by phase" not in page.read_text(encoding="utf-8")
