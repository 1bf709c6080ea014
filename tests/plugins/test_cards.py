"""The cards in the documentation are those of the plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.plugins import registry
from bench.plugins.cards import (
    DATASETS,
    DEFAULTS,
    METRICS,
    dataset_card,
    dataset_page,
    defaults_line,
    metric_card,
)
from tests.support.places import ROOT


@pytest.mark.parametrize("name", registry.dataset_names())
def test_the_page_has_this_dataset_as_declared(name: str) -> None:
    """Run `make cards` after a dataset was added or changed."""
    page = (ROOT / "docs" / DATASETS).read_text(encoding="utf-8")
    assert f"\n## {name}\n" in page
    section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    for line in dataset_card(registry.build_source(name)):
        # Missing values are measured only where the files are at hand.
        if line.startswith("| ") and not line.startswith("| missing values"):
            assert line in section


@pytest.mark.parametrize("name", registry.metric_names())
def test_the_page_has_this_metric_as_declared(name: str) -> None:
    """Run `make cards` after a metric was added or changed."""
    page = (ROOT / "docs" / METRICS).read_text(encoding="utf-8")
    assert "\n".join(metric_card(registry.metric(name))) in page + "\n"


@pytest.mark.parametrize("name", registry.method_names())
def test_the_page_has_the_defaults_of_this_method(name: str) -> None:
    """Run `make cards` after `tuned_on` of a method was changed."""
    page = (ROOT / "docs" / DEFAULTS).read_text(encoding="utf-8")
    assert f"\n{defaults_line(name)}\n" in page


def test_what_was_measured_elsewhere_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the files of Adult its missing values are those of the earlier page."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    card = dataset_card(registry.build_source("adult"))
    facts = [line for line in card if "missing values" not in line]
    gaps = "| missing values | workclass 5.6% |"
    before = "\n".join(["# Cards", "", *facts, gaps, "", "## other", ""])
    assert gaps in dataset_page(before)
    assert gaps not in dataset_page()
    assert gaps not in dataset_page(before.replace("32,561", "100"))
