"""The list of numbers in the documentation is that of the metrics."""

from __future__ import annotations

import pytest

from bench.plugins import registry
from bench.plugins.metric_cards import card
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "metrics" / "list.md"


@pytest.mark.parametrize("name", registry.metric_names())
def test_the_page_has_this_metric_as_declared(name: str) -> None:
    """Run `make cards` after a metric was added or changed."""
    assert "\n".join(card(registry.metric(name))) in PAGE.read_text(encoding="utf-8") + "\n"
