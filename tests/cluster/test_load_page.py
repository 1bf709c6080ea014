"""The page about a run of many small cells is generated from stored results."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def load():
    spec = importlib.util.spec_from_file_location("load_benchmark", BENCHMARKS / "load.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_that_of_the_stored_numbers(load):
    assert load.PAGE.read_text() == load.page(json.loads(load.RESULTS.read_text()))


def test_a_command_that_was_not_measured_is_named(load):
    few, many = json.loads(load.RESULTS.read_text())
    many["commands"].pop("bench status")
    line = next(
        line for line in load.page([few, many]).splitlines() if "`bench status`, time" in line
    )
    assert line.endswith("| not measured |")
    assert f"{few['commands']['bench status']['seconds']:.1f} s" in line
