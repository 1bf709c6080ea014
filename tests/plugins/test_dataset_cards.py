"""The cards in the documentation are those of the plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.plugins import registry
from bench.plugins.dataset_cards import _card, cards
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "datasets" / "cards.md"


@pytest.mark.parametrize("name", registry.dataset_names())
def test_the_page_has_this_card_as_declared(name: str) -> None:
    """Run `make cards` after a dataset was added or changed."""
    page = PAGE.read_text(encoding="utf-8")
    assert f"\n## {name}\n" in page
    written = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    for line in _card(registry.build_source(name)):
        # Missing values are measured only where the files are at hand.
        if line.startswith("| ") and not line.startswith("| missing values"):
            assert line in written


def test_what_was_measured_elsewhere_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the files of Adult its missing values are those of the page that there was."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    facts = [line for line in _card(registry.build_source("adult")) if "missing values" not in line]
    gaps = "| missing values | workclass 5.6% |"
    before = "\n".join(["# Cards", "", *facts, gaps, "", "## other", ""])
    assert gaps in cards(before)
    assert gaps not in cards() and gaps not in cards(before.replace("32,561", "100"))
