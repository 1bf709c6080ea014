"""The compiled walks against a walk in plain Python, on trees that no library would grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.methods.zero_order._differences import BlackBox, Trees
from bench.methods.zero_order._tree_kernels import Tree, flatten

WIDTH = 4
_VALUES = [-1.0, -0.5, 0.0, 0.25, 0.5, 1.0]
"""Few values for thresholds, rows and steps: ties everywhere."""


def grown(seed: int, splits: int, groups: int) -> Tree:
    """A random tree, its nodes in random order except for the root, with one that is left out."""
    rng = np.random.default_rng(seed)
    count = 2 * splits + 2  # the last one is reached from nowhere
    left, right = np.full(count, -1), np.full(count, -1)
    leaves, free = [0], list(rng.permutation(np.arange(1, count - 1)))
    for _ in range(splits):
        node = leaves.pop(rng.integers(len(leaves)))
        left[node], right[node] = free.pop(), free.pop()
        leaves += [left[node], right[node]]
    return Tree(
        left,
        right,
        rng.integers(0, WIDTH, count),
        rng.choice(_VALUES, count).astype(np.float32),
        rng.random(count) < 0.5,
        rng.normal(size=count),
        int(rng.integers(groups)),
    )


def walked(tree: Tree, row: np.ndarray) -> float:
    node = 0
    while tree.left[node] >= 0:
        value = np.float32(row[tree.feature[node]])
        goes_left = tree.default_left[node] if np.isnan(value) else value < tree.threshold[node]
        node = tree.left[node] if goes_left else tree.right[node]
    return float(tree.value[node])


def margins(trees: list[Tree], base: np.ndarray, rows: np.ndarray) -> np.ndarray:
    result = np.tile(base, (len(rows), 1))
    for i, row in enumerate(rows):
        for tree in trees:
            result[i, tree.group] += walked(tree, row)
    return result


def link_of(name: str, numbers: np.ndarray) -> np.ndarray:
    if name == "sigmoid":
        return 1 / (1 + np.exp(-numbers))
    if name == "softmax":
        return np.exp(numbers) / np.exp(numbers).sum(axis=1, keepdims=True)
    return numbers


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    groups=st.integers(1, 3),
    link=st.sampled_from(["identity", "sigmoid", "softmax"]),
)
def test_differences_of_random_trees_are_those_of_plain_walks(seed, sizes, groups, link):
    trees = [grown(seed + place, splits, groups) for place, splits in enumerate(sizes)]
    rng = np.random.default_rng(seed)
    base = rng.normal(size=groups)
    rows = rng.choice([*_VALUES, np.nan], (3, WIDTH))
    steps = rng.choice([0.25, 0.5, 1.0, 3.0, 1e-9], WIDTH)
    weights = rng.normal(size=(3, groups))
    teacher = Trees(flatten(trees, base), WIDTH, link)
    plain = BlackBox(lambda asked: link_of(link, margins(trees, base, asked)), groups)
    np.testing.assert_allclose(teacher.predict(rows), plain.predict(rows), rtol=1e-12)
    differences = teacher.slopes(rows, steps, weights) * 2 * steps
    expected = plain.slopes(rows, steps, weights) * 2 * steps
    np.testing.assert_allclose(differences, expected, atol=1e-12)


def stump(threshold: float, default_left: bool = True) -> Tree:
    """1 below the threshold, 5 from it on."""
    numbers = np.array([threshold, 0, 0], dtype=np.float32)
    left, right = np.array([1, -1, -1]), np.array([2, -1, -1])
    values, default = np.array([0.0, 1.0, 5.0]), np.full(3, default_left)
    return Tree(left, right, np.zeros(3, dtype=np.int64), numbers, default, values, 0)


def of_stump(threshold: float, default_left: bool = True) -> Trees:
    return Trees(flatten([stump(threshold, default_left)], np.zeros(1)), 1)


@pytest.mark.parametrize(
    ("value", "step", "difference"),
    [
        (0.5, 0.25, 4.0),  # on the threshold: right, and one step below is left
        (0.25, 0.25, 4.0),  # one step above is on the threshold, thus right
        (0.75, 0.25, 0.0),  # one step below is on the threshold, thus still right
        (0.0, 0.25, 0.0),
        (0.5, 1e-9, 0.0),  # too small a step for single precision: both sides are the threshold
        (np.nan, 1.0, 0.0),
    ],
)
def test_ties_go_right_on_both_sides_of_a_step(value, step, difference):
    slopes = of_stump(0.5).slopes(np.array([[value]]), np.array([step]), np.ones((1, 1)))
    assert slopes[0, 0] == difference / (2 * step)


def test_a_missing_value_takes_the_default_direction():
    missing = np.array([[np.nan]])
    assert of_stump(0.5, True).predict(missing)[0, 0] == 1.0
    assert of_stump(0.5, False).predict(missing)[0, 0] == 5.0


def test_a_tree_without_a_split_adds_its_leaf_and_no_slope():
    leaf = Tree(
        np.array([-1]),
        np.array([-1]),
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.float32),
        np.zeros(1, dtype=bool),
        np.array([3.0]),
        0,
    )
    teacher = Trees(flatten([leaf, leaf], np.array([0.5])), 2)
    rows = np.array([[0.0, np.inf], [np.nan, -1.0]])
    assert teacher.predict(rows).tolist() == [[6.5], [6.5]]
    assert not teacher.slopes(rows, np.ones(2), np.ones((2, 1))).any()


def test_a_feature_that_a_path_meets_twice_counts_once():
    # x < 2: (x < 1: 1, else 10), else 100. From x = 0 a step of 5 crosses both, and ends at 100.
    tree = Tree(
        np.array([1, 3, -1, -1, -1]),
        np.array([2, 4, -1, -1, -1]),
        np.zeros(5, dtype=np.int64),
        np.array([2, 1, 0, 0, 0], dtype=np.float32),
        np.zeros(5, dtype=bool),
        np.array([0.0, 0.0, 100.0, 1.0, 10.0]),
        0,
    )
    teacher = Trees(flatten([tree], np.zeros(1)), 1)
    for value, expected in ((0.0, 99.0), (1.5, 99.0), (3.0, 99.0), (-9.0, 0.0)):
        slopes = teacher.slopes(np.array([[value]]), np.array([5.0]), np.ones((1, 1)))
        assert slopes[0, 0] * 10 == pytest.approx(expected)


def test_a_model_without_trees_is_refused():
    with pytest.raises(ValueError, match="without trees"):
        flatten([], np.zeros(1))
