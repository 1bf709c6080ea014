"""Does a model trained on the release use the columns that a model of the real rows uses (SHAP)?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Direction,
    Encoder,
    Evaluation,
    Family,
    Floats,
    Metric,
    NotComputable,
    Output,
    ReleasedModel,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared import downstream_models
from bench.metrics._shared.bootstrap import (
    Array,
    Joint,
    Means,
    jointly,
    rank_correlation,
    seed_of_dataset,
)
from bench.metrics._shared.rows import real_test_rows

TOP = 10
"""Columns that are compared; at most half of them all, or every model would agree with every other.
"""


@final
@dataclass(frozen=True)
class _RealImportances:
    """Importances of the model trained on real rows, and the seed of their resamples."""

    importance: Joint
    strata: npt.NDArray[np.integer]
    seed: int


@final
class Explanations(Metric):
    """Agreement of SHAP importances."""

    name: ClassVar[str] = "shap"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Agreement of the column importances of XGBoost trained on the released rows and trained "
        "on the real training rows (fidelity paper, section 3.6.1; zero-order paper, section 2.5; "
        "AFT loss for survival). Importance: mean over the real test rows of the absolute SHAP "
        "value (exact TreeSHAP of the margin; the encoded columns of one category column are "
        "summed before the absolute value; more than two classes: mean over classes). Intervals: "
        "1000 bootstrap resamples of the test rows, the same for both models; training again on "
        "other rows is not part of them."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "shap/overlap",
            Direction.HIGHER,
            f"Share of the {TOP} most important real columns (half of all columns where there are "
            f"fewer than {2 * TOP}) that are among as many most important released ones; a column "
            "that the model never uses is not among them.",
        ),
        Output(
            "shap/ndcg",
            Direction.HIGHER,
            "Normalised discounted cumulative gain of the order of the released importances: sum "
            "of real importance / log2(rank + 1), over that of the real order; ties share their "
            "ranks. The fidelity paper expects close to 1; a random order gets the value that the "
            "details name as chance.",
        ),
        Output(
            "shap/rank-correlation",
            Direction.HIGHER,
            "Spearman's correlation of the two lists of importances.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)
    cost: ClassVar[str] = "seconds; as long again for the real rows of a dataset, once"

    def compute(self, evaluation: Evaluation) -> Scores:
        encoder = evaluation.dataset.encoder
        if evaluation.predictor is not None:
            raise NotComputable("the release is a model: TreeSHAP explains trees only")
        test = real_test_rows(evaluation)
        columns = [block.column.name for block in encoder.feature_blocks]
        if len(columns) < 2:
            raise NotComputable("the dataset has one feature: there is nothing to rank")
        survival = encoder.schema.task is Task.SURVIVAL
        model = (
            downstream_models.tree_survival if survival else downstream_models.tree_classifier
        )(evaluation)
        real = evaluation.reference("shap", lambda rng: _real(evaluation, rng))
        if not real.importance.values.any():
            raise NotComputable("the model trained on real rows uses no column")
        released = _importances(contributions(model, encoder, test.values), real.strata, real.seed)
        half = len(columns)
        both = real.importance.beside(released)
        used = int(np.count_nonzero(real.importance.values))
        top = min(TOP, half // 2, used)
        agreements = {
            "shap/overlap": lambda numbers: overlap(numbers[:half], numbers[half:], top),
            "shap/ndcg": lambda numbers: ndcg(numbers[:half], numbers[half:]),
            "shap/rank-correlation": lambda numbers: rank_correlation(
                numbers[:half], numbers[half:]
            ),
        }
        scores: list[Score] = []
        for output, agreement in agreements.items():
            try:
                scores.append(both.estimate(agreement).score(self, output))
            except NotComputable:
                reason = "the model trained on the release uses no column, or all of them alike"
                scores.append(self.absent(output, reason))
        details = {
            "shap": _table(columns, real.importance, released),
            "shap-agreement": _agreements(scores, real.importance.values, top),
        }
        return Scores(tuple(scores), details)


def _real(evaluation: Evaluation, rng: np.random.Generator) -> _RealImportances:
    dataset, test = evaluation.dataset, evaluation.dataset.test.rows
    model: ReleasedModel
    if dataset.task is Task.SURVIVAL:
        longest = 0.0 if dataset.schema.time is None else dataset.schema.time.high
        examples = downstream_models.real_examples(evaluation)
        model = downstream_models.fit_tree_survival(examples, longest, rng, evaluation.threads)
        strata = np.zeros_like(test.labels)
    else:
        model = downstream_models.real_tree_classifier(evaluation)
        strata = test.labels
    seed = seed_of_dataset(evaluation)
    importance = _importances(contributions(model, dataset.encoder, test.values), strata, seed)
    return _RealImportances(importance, strata, seed)


def contributions(model: ReleasedModel, encoder: Encoder, values: Floats) -> Array:
    """Absolute SHAP value of each row and schema column, mean over classes."""
    from bench.metrics.utility import _tree_shap

    if not isinstance(model, (downstream_models.TreeClassifier, downstream_models.TreeSurvival)):
        raise NotComputable("TreeSHAP explains trees only")
    features = np.asarray(values)[:, : encoder.feature_width]
    starts = [block.start for block in encoder.blocks if block.start < encoder.feature_width]
    column = np.searchsorted(starts, np.arange(encoder.feature_width), side="right") - 1
    absolute: Array = np.abs(_tree_shap.grouped_shap(model.booster, features, column)).mean(axis=1)
    return absolute


def _importances(absolute: Array, strata: npt.NDArray[np.integer], seed: int) -> Joint:
    numbers = np.ascontiguousarray(absolute.T)
    return jointly(Means(numbers), strata, np.random.default_rng(seed))


# Agreement of two lists of importances, (columns, resamples) each --------------------------------


def overlap(real: Array, released: Array, top: int) -> Array:
    """Share of the `top` columns of the one that are among those of the other."""
    share: Array = (_among(real, top) & _among(released, top)).sum(axis=0) / top
    return share


def _among(importance: Array, top: int) -> npt.NDArray[np.bool_]:
    """Whether a column is among the first; ties by column order, unused columns excluded."""
    order = np.argsort(-importance, axis=0, kind="stable")
    chosen = np.zeros(importance.shape, dtype=bool)
    np.put_along_axis(chosen, order[:top], True, axis=0)
    used: npt.NDArray[np.bool_] = chosen & (importance > 0)
    return used


def ndcg(real: Array, released: Array) -> Array:
    """Gain of the released order over that of the real one; tied columns share their discounts."""
    ratio: Array = (real * _discounts(released)).sum(axis=0) / (real * _discounts(real)).sum(axis=0)
    return ratio


def _discounts(importance: Array) -> Array:
    """1 / log2(rank + 1), the mean over the ranks of equal importances."""
    from scipy.stats import rankdata

    columns = len(importance)
    sums = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(columns) + 2.0))])
    first = rankdata(-importance, method="min", axis=0).astype(np.intp)
    last = rankdata(-importance, method="max", axis=0).astype(np.intp)
    means: Array = (sums[last] - sums[first - 1]) / (last - first + 1)
    return means


# Tables ------------------------------------------------------------------------------------------


def _table(columns: list[str], real: Joint, released: Joint) -> pd.DataFrame:
    table: dict[str, object] = {"column": columns}
    for name, joint in (("real", real), ("released", released)):
        table[name] = joint.values
        intervals = np.array([estimate.interval for estimate in joint.each()])
        table[f"{name}-low"], table[f"{name}-high"] = intervals.T
    return pd.DataFrame(table).sort_values("real", ascending=False, kind="stable")


def _agreements(scores: list[Score], real: Array, top: int) -> pd.DataFrame:
    """The scores beside what a random order of the columns would get."""
    tied = float(ndcg(real[:, None], np.zeros((len(real), 1)))[0])
    chance = {
        "shap/overlap": top / len(real),
        "shap/ndcg": tied,
        "shap/rank-correlation": 0.0,
    }
    rows = [
        (
            score.metric,
            math.nan if score.value is None else score.value,
            chance[score.metric],
            top,
        )
        for score in scores
    ]
    return pd.DataFrame(rows, columns=["output", "value", "chance", "top"])
