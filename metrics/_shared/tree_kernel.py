"""Shallow boosted trees: growing them and adding up their leaves, compiled.

Import this module lazily: it imports numba.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.metrics._shared.kernels import Floats, Integers, compiled

_ROWS = 2048
"""Rows at a time: their columns stay in the cache from tree to tree."""

_LEAST_GAIN = 1e-6
"""Gain below which a node is a leaf, as in XGBoost."""

_SAME = 1.0 + 1e-10
"""Ratio of two gains up to which they count as equal."""

_NOTHING = 1e-10
"""Share of a node's curvature that counts as none: histograms of siblings are differences."""


@compiled()
def grow(
    bins: Integers,
    starts: Integers,
    ordered: npt.NDArray[np.bool_],
    groups: Integers,
    lowest: Floats,
    highest: Floats,
    target: Floats,
    weights: Floats,
    logistic: bool,
    rounds: int,
    rate: float,
    chosen: Integers,
    thresholds: Floats,
    leaves: Floats,
) -> Floats:
    """Grow trees of depth 3 by second-order boosting without penalties; return the predictions.

    `bins` is (rows, groups): the bin of each row in each group of columns, numbered through;
    `starts` says where each group begins. Groups at the places `groups` take part. An ordered group
    is split between two bins, any other one into one bin and the rest. `lowest` and `highest` are
    the least and the greatest value in each bin. Written are, for each tree, the bin that the right
    side of a node begins with or consists of (`chosen`, -1 for no node), the `thresholds` midway
    between values of the node's rows, and the `leaves`; nodes are numbered as in `add_leaves`.

    A split gains G_l^2 / H_l + G_r^2 / H_r - G^2 / H for sums G of gradients and H of curvatures
    (Chen and Guestrin 2016, equation 7, lambda = 0), and a leaf is -rate G / H. Of two siblings the
    smaller one is counted; the larger one is what is left of the parent.
    """
    rows = len(bins)
    total = starts[-1]
    histograms = np.zeros((7, total, 2))
    gradients, curvatures = np.empty(rows), np.empty(rows)
    predictions = np.zeros(rows)
    order, scratch = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    begin, end = np.zeros(15, dtype=np.int64), np.zeros(15, dtype=np.int64)
    slope, curve = np.zeros(15), np.zeros(15)
    for tree in range(rounds):
        slope[0], curve[0] = 0.0, 0.0
        for row in range(rows):
            if logistic:
                chance = 1.0 / (1.0 + np.exp(-predictions[row]))
                gradients[row] = (chance - target[row]) * weights[row]
                curvatures[row] = max(chance * (1.0 - chance), 1e-16) * weights[row]
            else:
                gradients[row] = (predictions[row] - target[row]) * weights[row]
                curvatures[row] = weights[row]
            slope[0] += gradients[row]
            curve[0] += curvatures[row]
            order[row] = row
        begin[:], end[:] = 0, 0
        end[0] = rows
        _count(histograms[0], bins, groups, order[:rows], gradients, curvatures)
        for node in range(7):
            if end[node] <= begin[node]:
                continue
            histogram = histograms[node]
            whole, weight = slope[node], curve[node]
            nothing = _NOTHING * weight
            # Without the parent's own part, which all splits share. Of equal splits the first one
            # is taken: they differ by rounding only.
            best, best_bin, best_group, best_before = (
                (whole * whole / weight + _LEAST_GAIN) * _SAME,
                -1,
                -1,
                -1,
            )
            right_slope, right_curve = 0.0, 0.0
            for group in groups:
                first, last = starts[group], starts[group + 1]
                if ordered[group]:
                    below_slope, below_curve, before = 0.0, 0.0, -1
                    for place in range(first, last):
                        here = histogram[place, 1]
                        if here <= nothing:
                            continue
                        above_curve = weight - below_curve
                        if before >= 0 and above_curve > nothing:
                            above_slope = whole - below_slope
                            gain = (
                                below_slope * below_slope / below_curve
                                + above_slope * above_slope / above_curve
                            )
                            if gain > best:
                                best, best_bin, best_group = gain * _SAME, place, group
                                best_before = before
                                right_slope, right_curve = above_slope, above_curve
                        below_slope += histogram[place, 0]
                        below_curve += here
                        before = place
                else:
                    for place in range(first, last):
                        here = histogram[place, 1]
                        others = weight - here
                        if here <= nothing or others <= nothing:
                            continue
                        in_bin = histogram[place, 0]
                        rest = whole - in_bin
                        gain = in_bin * in_bin / here + rest * rest / others
                        if gain > best:
                            best, best_bin, best_group = gain * _SAME, place, group
                            right_slope, right_curve = in_bin, here
            left, right = 2 * node + 1, 2 * node + 2
            start, stop = begin[node], end[node]
            if best_bin < 0:
                # A leaf above the last level: as many equal leaves as would be below it.
                level = 0 if node == 0 else (1 if node < 3 else 2)
                below = 8 >> level
                value = -rate * whole / weight
                place = (node + 1 - (1 << level)) * below
                for leaf in range(place, place + below):
                    leaves[tree, leaf] = value
                for at in range(start, stop):
                    predictions[order[at]] += value
                continue
            chosen[tree, node] = best_bin
            is_ordered = ordered[best_group]
            if is_ordered:
                thresholds[tree, node] = np.float32(
                    0.5 * (np.float64(highest[best_before]) + np.float64(lowest[best_bin]))
                )
            else:
                thresholds[tree, node] = 0.5
            kept, moved = start, 0
            for at in range(start, stop):
                row = order[at]
                place = bins[row, best_group]
                if (place >= best_bin) if is_ordered else (place == best_bin):
                    scratch[moved] = row
                    moved += 1
                else:
                    order[kept] = row
                    kept += 1
            for at in range(moved):
                order[kept + at] = scratch[at]
            slope[left], curve[left] = whole - right_slope, weight - right_curve
            slope[right], curve[right] = right_slope, right_curve
            if node < 3:
                begin[left], end[left], begin[right], end[right] = start, kept, kept, stop
                smaller, larger = (right, left) if moved < kept - start else (left, right)
                _count(
                    histograms[smaller],
                    bins,
                    groups,
                    order[begin[smaller] : end[smaller]],
                    gradients,
                    curvatures,
                )
                for group in groups:
                    for place in range(starts[group], starts[group + 1]):
                        for part in range(2):
                            histograms[larger, place, part] = (
                                histogram[place, part] - histograms[smaller, place, part]
                            )
            else:
                for side in range(2):
                    child = left + side
                    value = -rate * slope[child] / curve[child]
                    leaves[tree, child - 7] = value
                    first, last = (start, kept) if side == 0 else (kept, stop)
                    for at in range(first, last):
                        predictions[order[at]] += value
    return predictions


@compiled()
def _count(
    histogram: Floats,
    bins: Integers,
    groups: Integers,
    rows: Integers,
    gradients: Floats,
    curvatures: Floats,
) -> None:
    """Sums of gradients and curvatures of some rows in each bin."""
    histogram[:] = 0.0
    for row in rows:
        gradient, curvature = gradients[row], curvatures[row]
        places = bins[row]
        for group in groups:
            place = places[group]
            histogram[place, 0] += gradient
            histogram[place, 1] += curvature


@compiled()
def add_leaves(
    columns: Floats,
    features: Integers,
    thresholds: Floats,
    leaves: Floats,
    sums: Floats,
) -> None:
    """Add the leaf of each row in each tree of depth 3, in the order of the trees.

    `columns` is (columns, rows). Nodes are numbered level by level: the children of node k are
    2k + 1 and 2k + 2. A row goes right where its value is not below the threshold. All seven
    comparisons are made, without branches: a vector unit does several rows at once, and is faster
    at it than at three comparisons after each of which rows go different ways.
    """
    for start in range(0, columns.shape[1], _ROWS):
        stop = min(start + _ROWS, columns.shape[1])
        total = sums[start:stop]
        for tree in range(len(features)):
            f, t, leaf = features[tree], thresholds[tree], leaves[tree]
            x0, x1 = columns[f[0], start:stop], columns[f[1], start:stop]
            x2, x3 = columns[f[2], start:stop], columns[f[3], start:stop]
            x4, x5 = columns[f[4], start:stop], columns[f[5], start:stop]
            x6 = columns[f[6], start:stop]
            t0, t1, t2, t3, t4, t5, t6 = t[0], t[1], t[2], t[3], t[4], t[5], t[6]
            l0, l1, l2, l3 = leaf[0], leaf[1], leaf[2], leaf[3]
            l4, l5, l6, l7 = leaf[4], leaf[5], leaf[6], leaf[7]
            for j in range(stop - start):
                a = l1 if x3[j] >= t3 else l0
                b = l3 if x4[j] >= t4 else l2
                c = l5 if x5[j] >= t5 else l4
                d = l7 if x6[j] >= t6 else l6
                left = b if x1[j] >= t1 else a
                right = d if x2[j] >= t2 else c
                total[j] += right if x0[j] >= t0 else left
