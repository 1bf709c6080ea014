"""The page about the time that scoring takes is generated from stored results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def scoring():
    spec = importlib.util.spec_from_file_location("scoring", ROOT / "benchmarks" / "scoring.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_stored_numbers(scoring):
    stored = json.loads(scoring.RESULTS.read_text())
    assert scoring.PAGE.read_text() == scoring.page(stored)


def test_a_score_outside_the_old_interval_is_named(scoring):
    taken = {"first": {"a": 1.0}, "further": {"a": 0.5}}
    before = taken | {"scores": {"x": (0.5, 0.4, 0.6), "y": (0.5, 0.4, 0.6), "z": (1, None, None)}}
    after = taken | {"scores": {"x": (0.45, 0.4, 0.5), "y": (0.7, 0.6, 0.8), "z": (1, None, None)}}
    compared = scoring._compared(before, after)
    assert (compared["inside"], compared["without_interval"]) == (1, 1)
    assert [one["score"] for one in compared["outside"]] == ["y"]
    after["scores"]["x"] = (None, None, None)
    assert scoring._compared(before, after)["absent_in_one"] == ["x"]


def test_only_metrics_of_both_versions_are_compared(scoring):
    result = {
        "before": {"by_metric": {"a": 3.0, "gone": 5.0}},
        "after": {"by_metric": {"a": 1.0, "new": 7.0}},
    }
    assert [scoring._of_both(result, side) for side in ("before", "after")] == [3.0, 1.0]
