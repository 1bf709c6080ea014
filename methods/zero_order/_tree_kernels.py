"""Boosted trees as flat arrays, and compiled walks through them. Import lazily: it brings in numba.

A tree sends a row left where its value is below the threshold and right where it is not, both in
single precision, and in the node's default direction where the value is missing. Leaves lead to
themselves, so that all walks of a tree are equally long: the processor then works on several trees
at a time, as it need not guess where a walk ends.

Each row is computed alone and in one order, in double precision: how rows are shared among threads
changes no bit of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Tree(NamedTuple):
    """One tree as libraries store it, node 0 being the root; leaves have the children -1."""

    left: Integers
    right: Integers
    feature: Integers
    threshold: npt.NDArray[np.float32]
    default_left: npt.NDArray[np.bool_]
    value: Array
    """What a leaf adds; meaningless elsewhere."""
    group: int
    """Output that the tree adds to."""


class FlatForest(NamedTuple):
    """All trees as rows of arrays. Siblings are next to each other, and a leaf leads to itself."""

    feature: Integers
    threshold: npt.NDArray[np.float32]
    """NaN at a leaf: no value is below it."""
    left: Integers
    """The left child; the right one follows it. A leaf follows its `left`."""
    missing: Integers
    """The child for missing values."""
    value: Array
    root: Integers
    depth: Integers
    """For each tree: splits on its longest path."""
    group: Integers
    base: Array
    """The margins before any tree."""


def booster_trees(booster: dict[str, Any]) -> list[Tree]:
    """Trees of the part `gradient_booster` in XGBoost's JSON."""
    if booster["name"] != "gbtree":
        raise ValueError(f"booster {booster['name']!r}: only 'gbtree' is a plain sum of trees")
    trees = []
    for tree, group in zip(booster["model"]["trees"], booster["model"]["tree_info"], strict=True):
        if int(tree["tree_param"]["size_leaf_vector"]) > 1:
            raise ValueError("trees with a vector in each leaf are not supported")
        if any(tree["split_type"]):
            raise ValueError("splits by sets of categories are not supported")
        # A leaf keeps its number in the place of the threshold.
        condition = np.array(tree["split_conditions"], dtype=np.float32)
        trees.append(
            Tree(
                np.array(tree["left_children"], dtype=np.int64),
                np.array(tree["right_children"], dtype=np.int64),
                np.array(tree["split_indices"], dtype=np.int64),
                condition,
                np.array(tree["default_left"], dtype=bool),
                condition.astype(np.float64),
                group,
            )
        )
    return trees


def forest_trees(model: RandomForestClassifier | RandomForestRegressor) -> list[Tree]:
    """Trees of a scikit-learn forest; a tree of several classes once for each of them."""
    if model.n_outputs_ != 1:
        raise ValueError(f"a forest of {model.n_outputs_} targets: one is supported")
    trees = []
    for member in model.estimators_:
        tree = member.tree_
        # Left is `value <= threshold` with a double threshold there: the same, for every single
        # precision value, as `value <` the next single precision number after it.
        below = tree.threshold.astype(np.float32)
        below = np.where(below > tree.threshold, np.nextafter(below, np.float32(-np.inf)), below)
        strict = np.nextafter(below, np.float32(np.inf))
        values = tree.value[:, 0, :] / len(model.estimators_)
        trees += [
            Tree(
                tree.children_left,
                tree.children_right,
                tree.feature,
                strict,
                tree.missing_go_to_left.astype(bool),
                column,
                group,
            )
            for group, column in enumerate(values.T[1:] if values.shape[1] == 2 else values.T)
        ]
    return trees


def flatten(trees: Sequence[Tree], base: Array) -> FlatForest:
    """All trees in one record; `base` holds the margins before any tree."""
    if not trees:
        raise ValueError("a model without trees")
    nodes, roots, depths = [], [0], []
    for tree in trees:
        arrays, depth = _levels(tree, roots[-1])
        nodes.append(arrays)
        roots.append(roots[-1] + len(arrays[0]))
        depths.append(depth)
    feature, threshold, left, missing, value = (
        np.concatenate(arrays) for arrays in zip(*nodes, strict=True)
    )
    return FlatForest(
        feature,
        threshold,
        left,
        missing,
        value,
        np.array(roots[:-1], dtype=np.int64),
        np.array(depths, dtype=np.int64),
        np.array([tree.group for tree in trees], dtype=np.int64),
        np.array(base, dtype=np.float64),
    )


def _levels(tree: Tree, start: int) -> tuple[tuple[npt.NDArray[Any], ...], int]:
    """The nodes of one tree, level by level, counted from `start`; and its depth."""
    children = np.column_stack([tree.left, tree.right]).astype(np.int64)
    levels = [np.zeros(1, dtype=np.int64)]
    while len(splits := levels[-1][children[levels[-1], 0] >= 0]):
        levels.append(children[splits].ravel())
    order = np.concatenate(levels)
    itself = start + np.arange(len(order))
    place = np.empty(len(children), dtype=np.int64)
    place[order] = itself

    leaf = children[order, 0] < 0
    left = np.where(leaf, itself - 1, place[children[order, 0]])
    return (
        np.where(leaf, 0, tree.feature[order]).astype(np.int64),
        np.where(leaf, np.float32(np.nan), tree.threshold[order]).astype(np.float32),
        left,
        np.where(leaf, itself, left + ~tree.default_left[order]),
        np.where(leaf, tree.value[order], 0.0).astype(np.float64),
    ), len(levels) - 1


_compiled = njit(nogil=True, error_model="numpy", cache=True)


@_compiled
def _apply(link: int, outputs: Any) -> None:
    """Margins to predictions, in place: 0 as they are, 1 sigmoid, 2 softmax."""
    if link == 1:
        for k in range(outputs.shape[0]):
            outputs[k] = 1.0 / (1.0 + np.exp(-outputs[k]))
    elif link == 2:
        highest, total = outputs[0], 0.0
        for k in range(outputs.shape[0]):
            highest = max(highest, outputs[k])
        for k in range(outputs.shape[0]):
            outputs[k] = np.exp(outputs[k] - highest)
            total += outputs[k]
        for k in range(outputs.shape[0]):
            outputs[k] /= total


@_compiled
def predict(
    forest: FlatForest, link: int, rows: Array, first: int, last: int, results: Array
) -> None:
    """Outputs of the rows first..last, written into `results`."""
    feature, threshold, left, missing, values, roots, depths, groups, base = forest
    for i in range(first, last):
        for k in range(base.shape[0]):
            results[i, k] = base[k]
        for tree in range(roots.shape[0]):
            node = roots[tree]
            for _ in range(depths[tree]):
                value = np.float32(rows[i, feature[node]])
                if value == value:
                    node = left[node] + (not value < threshold[node])
                else:
                    node = missing[node]
            results[i, groups[tree]] += values[node]
        _apply(link, results[i])


@_compiled
def slopes(
    forest: FlatForest,
    link: int,
    rows: Array,
    steps: Array,
    weights: Array,
    first: int,
    last: int,
    results: Array,
) -> None:
    """Weighted symmetric differences of the rows first..last, written into `results` (zeros).

    A feature changes a tree's leaf only where its step crosses a threshold on the row's path.
    Up to that node both paths are one, so that only the rest is walked again. What the leaves
    differ by is summed for each feature and direction, since a link comes after the sum.
    """
    feature, threshold, left, missing, values, roots, depths, groups, base = forest
    width, outputs = rows.shape[1], base.shape[0]
    # For each feature side by side: one step below, the value itself, one step above.
    around = np.empty((width, 3), dtype=np.float32)
    margins, lowered, raised = np.empty(outputs), np.empty(outputs), np.empty(outputs)
    # (feature, direction, output): zero except for the features in `touched`.
    shifts = np.zeros((width, 2, outputs))
    touched, is_touched = np.empty(width, dtype=np.int64), np.zeros(width, dtype=np.bool_)
    # Nodes of one path, and the splits above them; one place more, as what is no crossing is
    # written too, and then overwritten.
    crossed = np.empty(depths.max() + 1, dtype=np.int64)
    levels = np.empty(depths.max() + 1, dtype=np.int64)
    for i in range(first, last):
        for j in range(width):
            around[j, 0] = rows[i, j] - steps[j]
            around[j, 1] = rows[i, j]
            around[j, 2] = rows[i, j] + steps[j]
        for k in range(outputs):
            margins[k] = base[k]
        changed = 0
        for tree in range(roots.shape[0]):
            node = roots[tree]
            crossings = 0
            for level in range(depths[tree]):
                column, limit = feature[node], threshold[node]
                # Noted without a branch. False for a missing value and for the NaN of a leaf.
                crossed[crossings], levels[crossings] = node, level
                crossings += (around[column, 0] < limit) & (around[column, 2] >= limit)
                value = around[column, 1]
                if value == value:
                    node = left[node] + (not value < limit)
                else:
                    node = missing[node]
            group, leaf = groups[tree], values[node]
            margins[group] += leaf
            for c in range(crossings):
                node = crossed[c]
                column = feature[node]
                side = 1 if around[column, 1] < threshold[node] else 0
                known = False
                for earlier in range(c):
                    # The changed row has left this path already, further up.
                    known |= feature[crossed[earlier]] == column and (
                        around[column, 1] < threshold[crossed[earlier]]
                    ) == (side == 1)
                if known:
                    continue
                instead = around[column, 2 * side]
                for _ in range(levels[c], depths[tree]):
                    here = feature[node]
                    value = instead if here == column else around[here, 1]
                    if value == value:
                        node = left[node] + (not value < threshold[node])
                    else:
                        node = missing[node]
                shifts[column, side, group] += values[node] - leaf
                if not is_touched[column]:
                    is_touched[column] = True
                    touched[changed] = column
                    changed += 1
        for t in range(changed):
            column = touched[t]
            for k in range(outputs):
                lowered[k] = margins[k] + shifts[column, 0, k]
                raised[k] = margins[k] + shifts[column, 1, k]
                shifts[column, 0, k] = 0.0
                shifts[column, 1, k] = 0.0
            _apply(link, lowered)
            _apply(link, raised)
            total = 0.0
            for k in range(outputs):
                total += weights[i, k] * (raised[k] - lowered[k])
            results[i, column] = total / (2.0 * steps[column])
            is_touched[column] = False
