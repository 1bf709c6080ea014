"""Density ratios by nearest neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from bench.data.dataset import Split
from bench.errors import NotComputable
from bench.metrics.privacy.membership import _candidates, _density
from tests.metrics.helpers import evaluate
from tests.support.membership import some_rows


def test_scores_are_log_ratios_of_distances(table):
    evaluation = evaluate(table, some_rows(table.train, 60))
    chosen = _candidates.candidates(evaluation)
    ratios = _density.density_ratios(evaluation)
    assert len(ratios.members) == len(chosen.all_members)
    assert len(ratios.others) == len(chosen.others)
    queries = _candidates.split_points(evaluation, table.control)[chosen.others]
    reference = _candidates.split_points(evaluation, table.validation)
    population = np.sort(cdist(queries, reference), axis=1)[:, :5].mean(axis=1)
    closest = cdist(queries, _candidates.released_points(evaluation)).min(axis=1)
    assert ratios.others == pytest.approx(np.log(population / closest))


def test_copies_score_highest_and_finitely(table):
    evaluation = evaluate(table, table.train)
    ratios = _density.density_ratios(evaluation)
    assert np.isfinite(ratios.members).all()
    assert ratios.members.min() > ratios.others.max()


def test_rounding_does_not_rank_copies(table):
    rows = table.train.rows
    release = some_rows(table.train, len(table.train))
    noise = np.random.default_rng(0).uniform(-1e-8, 1e-8, rows.values.shape)
    moved = replace(
        release,
        rows=replace(release.rows, values=release.rows.values.astype(np.float64) + noise),
    )
    plain, shaken = (_density.density_ratios(evaluate(table, each)) for each in (release, moved))
    assert np.array_equal(plain.members, shaken.members)


def test_the_density_of_the_population_needs_reference_rows(table):
    few = Split(table.validation.frame[:4], table.validation.rows.take(np.arange(4)))
    dataset = replace(table, validation=few)
    with pytest.raises(NotComputable, match="4 validation rows"):
        _density.density_ratios(evaluate(dataset, dataset.train))
