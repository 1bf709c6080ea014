"""Exact SHAP values of boosted trees, for many rows at once and summed within groups of columns.

Import this module lazily: it imports numba.

The values are those of path-dependent TreeSHAP (Lundberg et al., From local explanations to global
understanding with explainable AI for trees, Nature Machine Intelligence 2020, algorithm 2), which
XGBoost computes row by row. Here each leaf is looked at once for all rows. A leaf whose path asks
about m different columns adds to a row an amount that depends only on which of these m answers the
row shares with the path: 2^m cases, computed beforehand (as in Yang, Fast TreeSHAP, 2021). The rest
is a look-up per row, leaf and column.

With z_k the share of the training rows that take the branches on column k, o_k one where the row
takes them too and zero otherwise, and v the value of the leaf, the amount of column j is

    v (o_j - z_j) sum over sets S of the other columns: |S|! (m - |S| - 1)! / m!
        x product over S of o_k x product over the others of z_k.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from bench import BenchError, Floats
from bench.metrics._shared.kernels import compiled

if TYPE_CHECKING:
    import xgboost

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

MOST_COLUMNS = 8
"""Different columns on one path at most: the case of a row is one byte."""

_ROWS_AT_A_TIME = 1024
"""Rows whose answers to the questions of one tree stay in the cache."""


@final
@dataclass(frozen=True)
class _Trees:
    """All trees of a booster, one after the other; children are places in these arrays."""

    left: Places
    """The left child; -1 for a leaf."""
    right: Places
    column: Places
    threshold: npt.NDArray[np.float32]
    """A row goes left where its number is below; for a leaf this is its value."""
    missing_left: npt.NDArray[np.bool_]
    cover: Array
    """Weight of the training rows that reach the node."""
    starts: Places
    """The root of each tree, and the number of nodes."""
    output: Places
    """The class that each tree adds to."""
    outputs: int

    @classmethod
    def of(cls, booster: xgboost.Booster) -> _Trees:
        learner = json.loads(bytes(booster.save_raw("json")))["learner"]
        model = learner["gradient_booster"]["model"]
        trees = model["trees"]
        if any(any(tree["split_type"]) for tree in trees):
            raise BenchError(
                "the trees have splits on categories; expected splits on numbers, as the trees of "
                "the metrics have: explain them with xgboost's own pred_contribs"
            )
        starts = np.cumsum([0, *(len(tree["left_children"]) for tree in trees)])

        def joined(name: str, kind: Any) -> Any:
            return np.concatenate([np.asarray(tree[name], dtype=kind) for tree in trees])

        def children(name: str) -> Places:
            inside, first = joined(name, np.int64), np.repeat(starts[:-1], np.diff(starts))
            return np.where(inside < 0, -1, inside + first)

        return cls(
            children("left_children"),
            children("right_children"),
            joined("split_indices", np.int64),
            joined("split_conditions", np.float32),
            joined("default_left", np.bool_),
            joined("sum_hessian", np.float64),
            starts.astype(np.int64),
            np.asarray(model["tree_info"], dtype=np.int64),
            max(1, int(learner["learner_model_param"]["num_class"])),
        )


def grouped_shap(booster: xgboost.Booster, features: Floats, groups: npt.ArrayLike) -> Array:
    """(rows, outputs, groups): SHAP values of the margin, summed within groups of columns.

    `groups` has the group of each column. Each row's sums run over trees and leaves in their order,
    on one thread: the same rows get the same bytes.
    """
    trees = _Trees.of(booster)
    columns = np.ascontiguousarray(np.asarray(features, dtype=np.float32).T)
    of_column = np.asarray(groups, dtype=np.int64)
    sums = np.zeros((trees.outputs, int(of_column.max(initial=-1)) + 1, columns.shape[1]))
    longest = _add_trees(
        trees.left,
        trees.right,
        trees.column,
        trees.threshold,
        trees.missing_left,
        trees.cover,
        trees.starts,
        trees.output,
        columns,
        of_column,
        sums,
    )
    if longest > MOST_COLUMNS:
        raise BenchError(
            f"a path of the trees asks about {longest} columns; expected at most {MOST_COLUMNS}: "
            "explain them with xgboost's own pred_contribs"
        )
    return np.ascontiguousarray(sums.transpose(2, 0, 1))


@compiled()
def _amounts(shares: Array, value: float, table: Array) -> None:
    """Fill (columns, cases) with what a leaf adds to each of its columns in each case.

    Bit k of the case is o_k. The products over all sets of the other columns are the coefficients
    of the polynomial product of (z_k + o_k y), summed with the weight of each degree.
    """
    width = len(shares)
    polynomial = np.empty(width)
    for case in range(1 << width):
        for column in range(width):
            polynomial[0] = 1.0
            degree = 0
            for other in range(width):
                if other == column:
                    continue
                taken = np.float64((case >> other) & 1)
                polynomial[degree + 1] = polynomial[degree] * taken
                for power in range(degree, 0, -1):
                    polynomial[power] = (
                        polynomial[power] * shares[other] + polynomial[power - 1] * taken
                    )
                polynomial[0] *= shares[other]
                degree += 1
            # |S|! (m - |S| - 1)! / m!, from one size to the next.
            weight = 1.0 / width
            total = 0.0
            for size in range(width):
                total += weight * polynomial[size]
                if size + 1 < width:
                    weight *= (size + 1.0) / (width - size - 1.0)
            table[column, case] = value * (((case >> column) & 1) - shares[column]) * total


@compiled()
def _add_trees(
    left: Places,
    right: Places,
    column: Places,
    threshold: npt.NDArray[np.float32],
    missing_left: npt.NDArray[np.bool_],
    cover: Array,
    starts: Places,
    output: Places,
    columns: npt.NDArray[np.float32],
    groups: Places,
    sums: Array,
) -> int:
    """Add the values of all trees to (outputs, groups, rows) sums.

    Return the number of different columns on the longest path; nothing more is added after a path
    with more than `MOST_COLUMNS`.
    """
    rows = columns.shape[1]
    most = 0
    for tree in range(len(output)):
        first, last = starts[tree], starts[tree + 1]
        size = last - first
        parent = np.full(size, -1, dtype=np.int64)
        for node in range(first, last):
            if left[node] >= 0:
                parent[left[node] - first] = node
                parent[right[node] - first] = node
        # What each leaf needs: the columns of its path, and which answers lead to it.
        leaves = np.empty(size, dtype=np.int64)
        used = np.empty((size, MOST_COLUMNS), dtype=np.int64)
        widths = np.zeros(size, dtype=np.int64)
        tables = np.empty((size, MOST_COLUMNS, 1 << MOST_COLUMNS))
        count = 0
        for leaf in range(first, last):
            if left[leaf] >= 0 or leaf == first:
                continue
            shares = np.ones(MOST_COLUMNS)
            width = 0
            node = leaf
            while parent[node - first] >= 0:
                above = parent[node - first]
                place = 0
                while place < width and used[count, place] != column[above]:
                    place += 1
                if place == MOST_COLUMNS:
                    return MOST_COLUMNS + 1
                if place == width:
                    used[count, place] = column[above]
                    width += 1
                shares[place] *= cover[node] / cover[above]
                node = above
            most = max(most, width)
            leaves[count], widths[count] = leaf, width
            _amounts(shares[:width], threshold[leaf], tables[count])
            count += 1
        answers = np.empty((size, _ROWS_AT_A_TIME), dtype=np.uint8)
        cases = np.empty(_ROWS_AT_A_TIME, dtype=np.uint8)
        agrees = np.empty(_ROWS_AT_A_TIME, dtype=np.uint8)
        for start in range(0, rows, _ROWS_AT_A_TIME):
            block = min(_ROWS_AT_A_TIME, rows - start)
            for node in range(first, last):
                if left[node] < 0:
                    continue
                numbers = columns[column[node], start : start + block]
                goes_left = answers[node - first]
                limit, missing = threshold[node], missing_left[node]
                for r in range(block):
                    number = numbers[r]
                    goes_left[r] = (number < limit) | ((number != number) & missing)
            for number in range(count):
                for r in range(block):
                    cases[r] = 0
                for place in range(widths[number]):
                    for r in range(block):
                        agrees[r] = 1
                    node = leaves[number]
                    while parent[node - first] >= 0:
                        above = parent[node - first]
                        if column[above] == used[number, place]:
                            goes_left = answers[above - first]
                            if left[above] == node:
                                for r in range(block):
                                    agrees[r] &= goes_left[r]
                            else:
                                for r in range(block):
                                    agrees[r] &= goes_left[r] ^ np.uint8(1)
                        node = above
                    bit = np.uint8(1 << place)
                    for r in range(block):
                        cases[r] |= agrees[r] * bit
                for place in range(widths[number]):
                    amounts = tables[number, place]
                    total = sums[output[tree], groups[used[number, place]]]
                    for r in range(block):
                        total[start + r] += amounts[cases[r]]
    return most
