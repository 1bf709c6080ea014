"""What was computed from the real rows of a dataset, kept for all its releases.

A grid scores many releases of one dataset, and a worker process scores one after the other: models
trained on the real rows and distances among them are computed once in each process.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, cast, final

import numpy as np

from bench.data.dataset import Dataset

T = TypeVar("T")

DATASETS_AT_MOST = 2
"""A worker goes through a grid dataset by dataset, or nearly so."""


@final
class References:
    """Results by purpose, for one content of the rows."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest
        self._built: dict[str, Any] = {}

    def get(self, purpose: str, build: Callable[[np.random.Generator], T]) -> T:
        """What was built for this purpose, or is built now."""
        if purpose not in self._built:
            own = hashlib.sha256(self._digest + purpose.encode()).digest()
            rng = np.random.default_rng(np.random.SeedSequence(int.from_bytes(own, "big")))
            self._built[purpose] = build(rng)
        return cast(T, self._built[purpose])


_KEPT: OrderedDict[bytes, References] = OrderedDict()


def references_of(dataset: Dataset) -> References:
    """Those of this dataset: told apart by its rows, not by its name or its place in memory."""
    digest = hashlib.blake2b(dataset.fingerprint.encode(), digest_size=16)
    for split in (dataset.train, dataset.validation, dataset.control, dataset.test):
        for array in (split.rows.values, split.rows.labels, split.rows.sites):
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).data)
    key = digest.digest()
    references = _KEPT.setdefault(key, References(key))
    _KEPT.move_to_end(key)
    while len(_KEPT) > DATASETS_AT_MOST:
        _KEPT.popitem(last=False)
    return references
