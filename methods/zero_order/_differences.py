"""Symmetric finite differences of a fitted model in every feature (zero-order condensation, eq. 7).

A `FittedTeacher` is asked for predictions, never for gradients. `slopes` is the product of
equation 6,

    sum over outputs k of w_k (f_k(x + h_j e_j) - f_k(x - h_j e_j)) / (2 h_j)   for every j,

which takes 2d predictions of a row if computed directly. All classes here return that very number,
not an approximation of it:

* `BlackBox`: any prediction function, 2d predictions, in batches of bounded memory.
* `Linear`: one step moves the margin by h_j times a coefficient. Without a link the slope is the
  coefficient itself.
* `Trees`: XGBoost. One feature changes a tree's leaf only where its step crosses a threshold on the
  row's path from the root, so that one walk per tree, and one per crossing, is enough.

The paper perturbs one column of all m rows at once with a step of that column; rows do not enter
each other's prediction, so that this is the same as perturbing row by row.

XGBoost itself adds up leaves in single precision; `Trees` does in double precision. The difference
of two of its predictions is therefore off by some 1e-7 of the prediction, and its slope by that
over 2h.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self, final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import xgboost
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    from bench.methods.zero_order._tree_kernels import FlatForest

Array = npt.NDArray[np.float64]
Link = Literal["identity", "sigmoid", "softmax"]

_BATCH = 2**22
"""Numbers in one batch of perturbed rows: 32 MiB, whatever the width of the table."""


class FittedTeacher(ABC):
    """A fitted model as a black box, with `outputs` numbers per row."""

    outputs: int

    @abstractmethod
    def predict(self, rows: Array) -> Array:
        """(m, d) -> (m, outputs)."""

    def slopes(self, rows: Array, steps: Array, weights: Array) -> Array:
        """(m, d): symmetric differences of each row in each feature, weighted over the outputs.

        rows (m, d), steps (d,) > 0, weights (m, outputs).
        """
        rows, steps, weights = _checked(rows, steps, weights, self.outputs)
        width = rows.shape[1]
        slopes = np.zeros(rows.size)
        pairs = max(1, _BATCH // (2 * max(1, width)))
        for places in _blocks(rows.size, pairs):
            row, column = np.divmod(np.arange(places.start, places.stop), width)
            batch = np.repeat(rows[row][None], 2, axis=0)
            each = np.arange(len(row))
            batch[0, each, column] += steps[column]
            batch[1, each, column] -= steps[column]
            above, below = np.split(self.predict(batch.reshape(-1, width)), 2)
            slopes[places] = np.sum(weights[row] * (above - below), axis=1) / (2 * steps[column])
        return slopes.reshape(rows.shape)


@final
@dataclass(frozen=True)
class BlackBox(FittedTeacher):
    """Any function of rows (m, d) with one number (m,) or several (m, outputs) per row."""

    function: Callable[[Array], npt.ArrayLike]
    outputs: int = 1

    def predict(self, rows: Array) -> Array:
        if not len(rows):
            return np.empty((0, self.outputs))
        predictions = np.asarray(self.function(rows), dtype=np.float64)
        if predictions.ndim == 1:
            predictions = predictions[:, None]
        if predictions.shape != (len(rows), self.outputs):
            raise ValueError(
                f"{self.outputs} outputs for {len(rows)} rows were expected, "
                f"and an array of shape {predictions.shape} was returned"
            )
        return predictions


@final
@dataclass(frozen=True)
class Linear(FittedTeacher):
    """Margins x B + a, through a link: Cox's log hazard, logistic and multinomial regression."""

    coefficients: Array
    intercept: Array | float = 0.0
    link: Link = "identity"
    outputs: int = field(init=False)

    def __post_init__(self) -> None:
        coefficients = np.asarray(self.coefficients, dtype=np.float64)
        if coefficients.ndim == 1:
            coefficients = coefficients[:, None]
        outputs = coefficients.shape[1]
        intercept = np.asarray(self.intercept, dtype=np.float64)
        if intercept.shape not in ((), (outputs,)):
            raise ValueError(f"{outputs} outputs, and an intercept of shape {intercept.shape}")
        object.__setattr__(self, "coefficients", coefficients)
        object.__setattr__(self, "outputs", outputs)

    def _margins(self, rows: Array) -> Array:
        margins: Array = rows @ self.coefficients + self.intercept
        return margins

    def predict(self, rows: Array) -> Array:
        return _linked(self._margins(np.asarray(rows, dtype=np.float64)), self.link)

    def slopes(self, rows: Array, steps: Array, weights: Array) -> Array:
        rows, steps, weights = _checked(rows, steps, weights, self.outputs)
        if self.link == "identity":
            return weights @ self.coefficients.T
        shifts = steps[:, None] * self.coefficients
        margins = self._margins(rows)[:, None, :]
        slopes = np.empty(rows.shape)
        for block in _blocks(len(rows), max(1, _BATCH // max(1, shifts.size))):
            change = _linked(margins[block] + shifts, self.link)
            change -= _linked(margins[block] - shifts, self.link)
            slopes[block] = np.matmul(change, weights[block, :, None])[:, :, 0] / (2 * steps)
        return slopes


@final
@dataclass(frozen=True)
class Trees(FittedTeacher):
    """A sum of trees, through a link; ties and missing values are treated as in the library."""

    forest: FlatForest
    width: int
    link: Link = "identity"
    threads: int = 1
    outputs: int = field(init=False)

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"{self.threads} threads: at least one is needed")
        object.__setattr__(self, "outputs", len(self.forest.base))

    @classmethod
    def of(
        cls,
        booster: xgboost.Booster,
        output: Literal["margin", "probability"] = "margin",
        threads: int = 1,
    ) -> Self:
        """Trees of XGBoost: read from its JSON, all of them, as `Booster.predict` uses them.

        `margin` is the sum of the leaves: log odds, or the logarithm of the time for survival:aft.
        `probability` is that of class 1 (one output), or of each of several classes. After early
        stopping give `booster[: best + 1]`.
        """
        from bench.methods.zero_order._tree_kernels import booster_trees, flatten

        learner = json.loads(bytes(booster.save_raw("json")))["learner"]
        objective = learner["objective"]["name"]
        if objective not in _OBJECTIVES:
            raise ValueError(f"objective {objective!r}: known are {', '.join(_OBJECTIVES)}")
        linked, base_margin = _OBJECTIVES[objective]
        if output == "probability" and linked == "identity":
            raise ValueError(f"objective {objective!r} has no output {output!r}")
        links: dict[str, Link] = {"margin": "identity", "probability": linked}
        parameters = learner["learner_model_param"]
        outputs = max(1, int(parameters["num_class"]), int(parameters["num_target"]))
        # One number for all outputs, or a list of them, depending on the version of XGBoost.
        score = np.atleast_1d(np.asarray(json.loads(parameters["base_score"]), dtype=np.float32))
        base = np.broadcast_to(base_margin(score.astype(np.float64)), outputs)
        forest = flatten(booster_trees(learner["gradient_booster"]), base)
        return cls(forest, int(parameters["num_feature"]), links[output], threads)

    @classmethod
    def of_forest(
        cls, model: RandomForestClassifier | RandomForestRegressor, threads: int = 1
    ) -> Self:
        """Trees of scikit-learn: probabilities (of class 1 alone if there are two), or the mean."""
        from bench.methods.zero_order._tree_kernels import flatten, forest_trees

        trees = forest_trees(model)
        base = np.zeros(1 + max(tree.group for tree in trees))
        return cls(flatten(trees, base), int(model.n_features_in_), "identity", threads)

    def predict(self, rows: Array) -> Array:
        from bench.methods.zero_order import _tree_kernels as kernels

        rows = self._complete(rows)
        results = np.empty((len(rows), self.outputs))
        link = _LINKS.index(self.link)
        self._share(len(rows), lambda a, b: kernels.predict(self.forest, link, rows, a, b, results))
        return results

    def slopes(self, rows: Array, steps: Array, weights: Array) -> Array:
        from bench.methods.zero_order import _tree_kernels as kernels

        rows, steps, weights = _checked(self._complete(rows), steps, weights, self.outputs)
        results = np.zeros(rows.shape)
        link = _LINKS.index(self.link)
        self._share(
            len(rows),
            lambda a, b: kernels.slopes(self.forest, link, rows, steps, weights, a, b, results),
        )
        return results

    def _complete(self, rows: Array) -> Array:
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ValueError(f"rows of shape {rows.shape} for trees of {self.width} features")
        return rows

    def _share(self, count: int, work: Callable[[int, int], None]) -> None:
        """Share the rows among threads; each writes one block of them."""
        blocks = list(_blocks(count, max(1, -(-count // self.threads))))
        if len(blocks) < 2:
            work(0, count)
            return
        with ThreadPoolExecutor(len(blocks)) as pool:
            list(pool.map(lambda block: work(block.start, block.stop), blocks))


_LINKS: tuple[Link, ...] = ("identity", "sigmoid", "softmax")
"""Links; the compiled loops know them by their position."""


def _same(score: Array) -> Array:
    return score


def _log_odds(score: Array) -> Array:
    odds: Array = np.log(score) - np.log1p(-score)
    return odds


_OBJECTIVES: dict[str, tuple[Link, Callable[[Array], Array]]] = {
    "binary:logistic": ("sigmoid", _log_odds),
    "multi:softprob": ("softmax", _same),
    "multi:softmax": ("softmax", _same),
    "reg:squarederror": ("identity", _same),
    "survival:aft": ("identity", np.log),
}
"""Link from margins to predictions, and the map from the stored base score to a margin."""


def _linked(margins: Array, link: Link) -> Array:
    from scipy.special import expit, softmax

    if link == "sigmoid":
        return np.asarray(expit(margins))
    if link == "softmax":
        return np.asarray(softmax(margins, axis=-1))
    return margins


def _blocks(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _checked(rows: Array, steps: Array, weights: Array, outputs: int) -> tuple[Array, Array, Array]:
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    steps = np.ascontiguousarray(steps, dtype=np.float64)
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    if rows.ndim != 2 or steps.shape != rows.shape[1:] or weights.shape != (len(rows), outputs):
        raise ValueError(
            f"rows {rows.shape}, steps {steps.shape} and weights {weights.shape} do not fit "
            f"{outputs} outputs"
        )
    if not (steps > 0).all():
        raise ValueError("steps must be positive")
    return rows, steps, weights
