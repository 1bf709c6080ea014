"""Numbers without a meaning are absent, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.pages.site import write_site
from bench.leaderboard.ranking.rows import aggregate
from bench.leaderboard.tables.load import load_results
from bench.leaderboard.tables.meaning import unmeant


def test_the_gap_of_an_attack_that_predicts_nothing_is_absent(run: Any, tmp_path: Path) -> None:
    """Issue 24: `aia/gap` was 6.6 for a useless release."""
    for label, skill in (("useless", -6.2), ("useful", 0.3)):
        key = run.add(label, 0.8)
        run.score(key, "aia/r2", skill, direction="lower", family="privacy")
        run.score(key, "aia/gap", 6.6, 6.0, 7.0, "lower", "privacy")
    directory = run.write(tmp_path / "run")
    rows, _ = aggregate(load_results([directory]))
    gaps = {row.label: row.measures["aia/gap"] for row in rows}
    assert (gaps["useless"].value, gaps["useless"].low) == (None, None)
    assert gaps["useless"].reasons == (
        "not meaningful: the attack is worse than predicting the mean (aia/r2 is -6.2)",
    )
    assert gaps["useful"].value == pytest.approx(6.6)
    write_site([directory], tmp_path / "site")
    pages = {
        path: path.read_text(encoding="utf-8") for path in (tmp_path / "site/cells").glob("*.html")
    }
    (useless,) = [text for text in pages.values() if "<h1>" in text and ">useless<" in text]
    assert "6.600" not in useless and "worse than predicting the mean" in useless


def test_what_is_not_known_to_be_meaningless_stays() -> None:
    assert unmeant("aia/r2", None) == "" == unmeant("aia/r2", float("nan"))
    assert unmeant("aia/r2", 0.0) == ""
    assert unmeant("aia/r2", -0.01).startswith("not meaningful")
