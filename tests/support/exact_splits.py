"""Datasets whose splits have exactly the declared sizes: for expectations that need known numbers.

`build_dataset` gives the splits of the harness: each row is assigned by itself, so that their sizes
vary around the declared ones by chance.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from bench.data.dataset import Dataset, Split
from bench.data.splits import ALL, SPLITS, expected_sizes
from bench.plugins.source import DatasetSource, build_dataset


def exact_splits(source: DatasetSource) -> Dataset:
    """The dataset with as many rows of each class in each split as are declared, drawn at random.

    Rows are drawn as the harness did while its splits were stratified permutations: what other
    programs computed from the rows of such a split can still be compared. Sites are not strata.
    """
    whole = build_dataset(source, ALL)
    usual = build_dataset(source)
    seed = int.from_bytes(hashlib.sha256(f"split/{source.name}/default".encode()).digest()[:8])
    generator = np.random.default_rng(np.random.SeedSequence([seed, 0]))
    labels = whole.train.rows.labels
    members = np.empty(len(labels), dtype="<U10")
    for label in np.unique(labels):
        order = generator.permutation(np.flatnonzero(labels == label))
        sizes = expected_sizes(len(order), "default", usual.official_test)
        members[order] = np.repeat(SPLITS, [sizes[split] for split in SPLITS])
    splits = {
        split: Split(
            whole.train.frame[members == split].reset_index(drop=True),
            whole.train.rows.take(members == split),
        )
        for split in SPLITS
        if not (split == "test" and usual.official_test)
    }
    return replace(usual, **splits)
