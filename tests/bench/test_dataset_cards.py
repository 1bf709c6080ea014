"""The cards in the documentation are those of the plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.core import registry
from bench.dataset_cards import _card

PAGE = Path(__file__).resolve().parents[2] / "docs" / "datasets" / "cards.md"


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
