"""One site trains, all are tested."""

from __future__ import annotations

import numpy as np
import pytest

from bench import Budget
from bench.engine.grid import parse_grid
from bench.errors import GridError, InputError
from bench.plugins import registry
from bench.plugins.method import Spec
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

SOURCE = registry.build_source("curial-sim")


def test_only_the_home_site_is_seen_by_a_method() -> None:
    sites = SOURCE.declare().schema.site.categories
    dataset = build_dataset(SOURCE, f"site:{sites[0]}")
    assert dataset.home == sites[0]
    for split in (dataset.train, dataset.validation, dataset.control):
        assert len(split) and (split.rows.sites == 0).all()
    everywhere = build_dataset(SOURCE)
    assert everywhere.home is None
    total = sum(len(s) for s in (everywhere.train, everywhere.validation, everywhere.control))
    total += len(everywhere.test)
    parts = (dataset.train, dataset.validation, dataset.control, dataset.test)
    assert sum(len(split) for split in parts) == total
    assert set(np.unique(dataset.test.rows.sites)) == set(range(len(sites)))
    declared = SOURCE.declare().by_site_class[sites[0]]
    assert dataset.counts.total == pytest.approx(0.6 * sum(declared), abs=2)
    assert dataset.counts.total == pytest.approx(len(dataset.train), rel=0.1)
    assert dataset.fingerprint != everywhere.fingerprint


def test_methods_run_on_one_site() -> None:
    site = SOURCE.declare().schema.site.categories[0]
    dataset = build_dataset(SOURCE, f"site:{site}")
    budget = Budget(1.0, 1e-5)
    private, ledger = open_private(dataset, budget, SeededNoise(np.random.default_rng(0)))
    method = registry.build_method("ldpdc")
    method.synthesize(private, Spec(dataset.task, 10, budget), np.random.default_rng(0))
    assert ledger.proof().epsilon <= 1.0


def test_unknown_sites_and_tables_without_sites_are_refused() -> None:
    with pytest.raises(InputError, match="no site 'Mars'; known: "):
        build_dataset(SOURCE, "site:Mars")
    with pytest.raises(InputError, match="needs declared sites, it has none"):
        build_dataset(ToyTable(), "site:Mars")
    grid = 'datasets = ["curial-sim"]\nmethods = ["real"]\nsplit = "{}"\n'
    assert parse_grid(grid.format("site:OUH"), "g").split == "site:OUH"
    with pytest.raises(GridError, match="preset 'sites'; known: all, default, paper, tuning, and"):
        parse_grid(grid.format("sites"), "g")
