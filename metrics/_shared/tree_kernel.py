"""Sums of leaves of shallow trees, compiled. Import this module lazily: it imports numba."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.metrics._shared.kernels import Floats, Integers, compiled

_ROWS = 2048
"""Rows at a time: their columns stay in the cache from tree to tree."""


@compiled()
def add_leaves(
    columns: Floats,
    features: Integers,
    thresholds: Floats,
    missing_right: npt.NDArray[np.bool_],
    leaves: Floats,
    outputs: Integers,
    sums: Floats,
) -> None:
    """Add the leaf of each row in each tree of depth 3, in the order of the trees.

    `columns` is (columns, rows), `sums` (outputs, rows). Nodes are numbered level by level: the
    children of node k are 2k + 1 and 2k + 2. A row goes right where its value is not below the
    threshold. All seven comparisons are made, without branches: a vector unit does several rows at
    once, and is faster at it than at three comparisons after each of which rows go different ways.
    """
    for start in range(0, columns.shape[1], _ROWS):
        stop = min(start + _ROWS, columns.shape[1])
        for tree in range(len(features)):
            f, t, m, leaf = features[tree], thresholds[tree], missing_right[tree], leaves[tree]
            total = sums[outputs[tree], start:stop]
            x0, x1 = columns[f[0], start:stop], columns[f[1], start:stop]
            x2, x3 = columns[f[2], start:stop], columns[f[3], start:stop]
            x4, x5 = columns[f[4], start:stop], columns[f[5], start:stop]
            x6 = columns[f[6], start:stop]
            t0, t1, t2, t3, t4, t5, t6 = t[0], t[1], t[2], t[3], t[4], t[5], t[6]
            m0, m1, m2, m3, m4, m5, m6 = m[0], m[1], m[2], m[3], m[4], m[5], m[6]
            l0, l1, l2, l3 = leaf[0], leaf[1], leaf[2], leaf[3]
            l4, l5, l6, l7 = leaf[4], leaf[5], leaf[6], leaf[7]
            for j in range(stop - start):
                r0 = (x0[j] >= t0) | (m0 & (x0[j] != x0[j]))
                r1 = (x1[j] >= t1) | (m1 & (x1[j] != x1[j]))
                r2 = (x2[j] >= t2) | (m2 & (x2[j] != x2[j]))
                r3 = (x3[j] >= t3) | (m3 & (x3[j] != x3[j]))
                r4 = (x4[j] >= t4) | (m4 & (x4[j] != x4[j]))
                r5 = (x5[j] >= t5) | (m5 & (x5[j] != x5[j]))
                r6 = (x6[j] >= t6) | (m6 & (x6[j] != x6[j]))
                a, b = (l1 if r3 else l0), (l3 if r4 else l2)
                c, d = (l5 if r5 else l4), (l7 if r6 else l6)
                left, right = (b if r1 else a), (d if r2 else c)
                total[j] += right if r0 else left
