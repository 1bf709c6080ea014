"""GATS: the grid of the paper's table on Adult, and its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.engine.grid import load_grid
from bench.plugins.registry import build_source
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.gats import made
from tests.support.real_data import real_folder


def test_the_grid_of_the_paper_loads() -> None:
    grid = load_grid("paper:gats")
    grid.check_plugins()
    table = [entry for entry in grid.methods if entry.label.startswith("gats N=")]
    assert len(table) == 10
    assert sum(cell.full_size for cell in grid.cells()) == 3 * (len(grid.methods) - 1)


@pytest.mark.slow
def test_adult_falls_with_the_number_of_constituents(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.metrics import roc_auc_score
    from xgboost import XGBClassifier

    real_folder("adult", monkeypatch)
    dataset = build_dataset(build_source("adult"))

    def auroc(**parameters: Any) -> float:
        private, _ = open_private(dataset, None, SeededNoise(np.random.default_rng(0)))
        rows, test = made(private, None, mixed_ratio=0.3, **parameters), dataset.test.rows
        model = XGBClassifier(max_depth=5, learning_rate=0.1, subsample=0.7, n_jobs=1)
        model.fit(rows.values, rows.labels)
        return float(roc_auc_score(test.labels, model.predict_proba(test.values)[:, 1]))

    class_wise = [auroc(constituents=count, mixed_share=0.0) for count in (5, 25, 100)]
    assert class_wise[0] > class_wise[1] + 0.02 > class_wise[2] + 0.04
    assert auroc(constituents=100, mixed_share=0.4) > class_wise[2] + 0.02
    # Iterated mixup reaches the values of table 3, whatever the number of constituents.
    mixup = {"coefficients": "mixup", "concentration": 0.1, "votes": "weights", "filter": "off"}
    reached = [auroc(constituents=count, mixed_share=0.4, **mixup) for count in (5, 100)]
    assert min(reached) > 0.907 and abs(reached[0] - reached[1]) < 0.005
    # So do rows that are near copies.
    copies = {"concentration": 0.001, "votes": "weights", "filter": "off", "mixed_share": 0.4}
    assert min(auroc(constituents=count, **copies) for count in (5, 100)) > 0.9
