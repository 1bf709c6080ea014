"""An isolation forest on real rows that nobody kept apart: what a detector is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from bench import Floats, NotComputable, ReleasedModel

if TYPE_CHECKING:
    from sklearn.ensemble import IsolationForest

TREES = 100
ROWS = 256
"""Each tree is grown on so many rows (Liu, Ting and Zhou, Isolation Forest, ICDM 2008)."""


@final
@dataclass(frozen=True)
class Forest(ReleasedModel):
    """Scores in (0, 1], near 1 for rows that few cuts set apart."""

    forest: IsolationForest

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        """s(x) = 2^(-mean depth / expected depth), equation 2 of the paper."""
        if not len(values):
            return np.zeros(0)
        scores: Any = self.forest.score_samples(np.asarray(values, dtype=np.float64))
        return np.asarray(-scores, dtype=np.float64)


def fit_forest(features: Floats, rng: np.random.Generator) -> Forest:
    """scikit-learn's isolation forest; one thread, so that the sums are always the same."""
    from sklearn.ensemble import IsolationForest

    if len(features) < 2:
        raise NotComputable(f"{len(features)} real rows: no isolation forest can be grown")
    forest = IsolationForest(
        n_estimators=TREES,
        max_samples=min(ROWS, len(features)),
        random_state=int(rng.integers(2**32)),
        n_jobs=1,
    )
    return Forest(forest.fit(np.asarray(features, dtype=np.float64)))
