"""Harrell's C-index as a function of weights on the rows, in O(n log n) per resample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from bench import NotComputable
from bench.metrics._shared.bootstrap import Array, Counted, Counts, Index, contiguous, ratio


@final
@dataclass(frozen=True, eq=False)
class Concordance(Counted):
    """Share of comparable pairs whose risks are in the right order."""

    order: Index
    """Rows by descending key."""
    starts: Index
    """Place where each key starts among them, and their number."""
    events: npt.NDArray[np.uint8]
    ranks: Index
    """Rank of the risk of each of them, from 1."""
    risks: int
    """Different risks."""

    def __call__(self, weights: Array | Counts) -> Array:
        from bench.metrics._shared import resample_kernels

        won, pairs = resample_kernels.concordant(
            contiguous(weights, self.order),
            self.order,
            self.starts,
            self.events,
            self.ranks,
            self.risks,
        )
        return ratio(won / 2, pairs)

    def at(self, rows: Index) -> Concordance:
        return replace(self, order=np.asarray(rows)[self.order])


def concordance(times: npt.ArrayLike, events: npt.ArrayLike, risks: npt.ArrayLike) -> Concordance:
    """Harrell's C-index: the share of comparable pairs whose risks are in the right order.

    With ties as in lifelines: a pair (i, j) is comparable when i had the event and j was followed
    for longer, or for equally long and censored; it is concordant when risk_i > risk_j and counts
    one half when the risks are equal. As a quadratic form in the weights it is w'Aw / w'Bw.

    Comparable pairs are those with key_i < key_j and event_i, where the key ranks rows by time,
    events before censored rows of the same time. Rows are visited from the largest key down, and
    the weights of those visited are kept in a tree of sums by risk: O(n log n) for each resample,
    without the n x n matrices.
    """
    had_event = np.asarray(events) == 1
    ranked_times = np.unique(np.asarray(times, dtype=np.float64), return_inverse=True)[1]
    keys = 2 * ranked_times + ~had_event
    order = np.argsort(-keys, kind="stable")
    descending = keys[order]
    changes = np.flatnonzero(descending[1:] != descending[:-1]) + 1
    starts = np.concatenate([[0], changes, [len(order)]])
    event_in_order = had_event[order]
    if not event_in_order[starts[1] :].any():
        raise NotComputable("no two rows can be compared: no event before another row's time")
    values, ranks = np.unique(np.asarray(risks, dtype=np.float64), return_inverse=True)
    return Concordance(
        order, starts, event_in_order.astype(np.uint8), ranks[order] + 1, len(values)
    )
