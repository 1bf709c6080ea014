"""Compiled loops over resamples. Import this module lazily: it imports numba.

A resample is a column of counts: how often each row was drawn. Rows are visited once, in an order
that was fixed beforehand, and every step is one operation on the counts of a row in all resamples,
which lie side by side in memory. Sums are in double precision and whole numbers, hence exact below
2^53; weights that are no counts (double precision) are accepted in place of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bench.metrics._shared.kernels import compiled

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer[Any]]
Weights = npt.NDArray[np.uint8] | npt.NDArray[np.float64]

POSITIVE, TIED, FIRST = 1, 2, 4
"""Bits that describe a row among the sorted ones; see `wins` and `precisions`."""

_TOGETHER = 64
"""Resamples that are drawn before their counts are written side by side: as much as the cache
holds of a table with some ten thousand rows."""


@compiled()
def draw(state: npt.NDArray[np.uint64], rows: Integers, ends: Integers, counts: Counts) -> None:
    """Draw each stratum with replacement, as many rows as it has, once per column of `counts`.

    `rows` lists the rows stratum by stratum, `ends` where each stratum ends. The generator is
    xoshiro256++ (Blackman and Vigna, 2021); its `state` is advanced, so that the draws are the same
    in whatever blocks they are asked for. Each output serves two draws: floor(size x u / 2^32) of a
    half of 32 bits, which favours no row by more than size / 2^32 of its share.
    """
    total, resamples = counts.shape
    first, second, third, fourth = state
    drawn = np.empty((min(_TOGETHER, resamples), total), dtype=np.uint8)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for start in range(0, resamples, _TOGETHER):
        width = min(_TOGETHER, resamples - start)
        for column in range(width):
            times = drawn[column]
            times[:] = 0
            begin = 0
            for end in ends:
                size = np.uint64(end - begin)
                done = begin
                while done < end:
                    sums = first + fourth
                    number = ((sums << np.uint64(23)) | (sums >> np.uint64(41))) + first
                    shifted = second << np.uint64(17)
                    third ^= first
                    fourth ^= second
                    second ^= third
                    first ^= fourth
                    third ^= shifted
                    fourth = (fourth << np.uint64(45)) | (fourth >> np.uint64(19))
                    times[rows[begin + np.int64(((number >> half) * size) >> half)]] += 1
                    if done + 1 < end:
                        times[rows[begin + np.int64(((number & low) * size) >> half)]] += 1
                    done += 2
                begin = end
        for row in range(total):
            for column in range(width):
                counts[row, start + column] = drawn[column, row]
    state[0], state[1], state[2], state[3] = first, second, third, fourth


@compiled()
def sums_by_code(weights: Weights, codes: Integers, sums: Floats) -> None:
    """Add the weights of the rows of each code to (codes, resamples) `sums`."""
    resamples = weights.shape[1]
    for row in range(len(codes)):
        weight, total = weights[row], sums[codes[row]]
        for r in range(resamples):
            total[r] += weight[r]


@compiled()
def wins(
    weights: Weights, order: Integers, kinds: Integers, factors: Floats
) -> tuple[Floats, Floats]:
    """Return twice the weighted wins of positive over negative rows, and the weight of pairs.

    `order` lists rows by ascending score, of equal ones the negatives first. A row is POSITIVE or
    not; TIED where positives and negatives share its score, and FIRST where such a group starts. A
    tied pair is one win of twice the half. The weights of positives are multiplied by `factors`.
    """
    resamples = weights.shape[1]
    below, before = np.zeros(resamples), np.zeros(resamples)
    won, positives = np.zeros(resamples), np.zeros(resamples)
    for place in range(len(order)):
        weight, kind, factor = weights[order[place]], kinds[place], factors[place]
        if kind & FIRST:
            for r in range(resamples):
                before[r] = below[r]
        if not kind & POSITIVE:
            for r in range(resamples):
                below[r] += weight[r]
        elif kind & TIED:
            for r in range(resamples):
                won[r] += factor * weight[r] * (before[r] + below[r])
                positives[r] += factor * weight[r]
        else:
            for r in range(resamples):
                won[r] += factor * weight[r] * (below[r] + below[r])
                positives[r] += factor * weight[r]
    return won, positives * below


@compiled()
def precisions(weights: Weights, order: Integers, kinds: Integers) -> tuple[Floats, Floats]:
    """Return the sum over positives of the precision at their score, and the weight of positives.

    `order` lists rows by descending score. A row is POSITIVE or not; TIED where further rows of the
    same score follow: its precision is taken at the last of them.
    """
    resamples = weights.shape[1]
    hits, above = np.zeros(resamples), np.zeros(resamples)
    waiting, sums = np.zeros(resamples), np.zeros(resamples)
    any_waiting = False
    for place in range(len(order)):
        weight, kind = weights[order[place]], kinds[place]
        positive = kind & POSITIVE != 0
        if positive and not kind & TIED and not any_waiting:
            for r in range(resamples):
                drawn = np.float64(weight[r])
                hits[r] += drawn
                above[r] += drawn
                # Nothing scores as much only where the row itself was not drawn: 0 x 0 / 1.
                sums[r] += drawn * hits[r] / (above[r] if above[r] > 0.0 else 1.0)
            continue
        for r in range(resamples):
            above[r] += weight[r]
        if positive:
            any_waiting = True
            for r in range(resamples):
                waiting[r] += weight[r]
        if any_waiting and not kind & TIED:
            for r in range(resamples):
                hits[r] += waiting[r]
                sums[r] += waiting[r] * hits[r] / (above[r] if above[r] > 0.0 else 1.0)
                waiting[r] = 0.0
            any_waiting = False
    return sums, hits


@compiled()
def concordant(
    weights: Weights, order: Integers, starts: Integers, events: Counts, ranks: Integers, risks: int
) -> tuple[Floats, Floats]:
    """Return twice the weighted concordant pairs, and the weight of comparable pairs.

    `order` lists rows by descending key; rows of one key, from `starts[k]` up to `starts[k + 1]`,
    are not comparable with each other. `ranks` (from 1 to `risks`) and `events` are in the same
    order. Rows that were followed for longer are kept in a tree of sums by risk (Fenwick, 1994).
    """
    resamples = weights.shape[1]
    won, pairs = np.zeros(resamples), np.zeros(resamples)
    width = min(resamples, max(16, (1 << 19) // (risks + 1)))
    for start in range(0, resamples, width):
        stop = min(resamples, start + width)
        block = stop - start
        tree = np.zeros((risks + 1, block))
        later, lower = np.zeros(block), np.zeros(block)
        for group in range(len(starts) - 1):
            for place in range(starts[group], starts[group + 1]):
                if not events[place]:
                    continue
                weight = weights[order[place], start:stop]
                lower[:] = 0.0
                # Risks below count twice and equal ones once: the sums up to both ranks.
                for rank in (ranks[place] - 1, ranks[place]):
                    while rank > 0:
                        part = tree[rank]
                        for r in range(block):
                            lower[r] += part[r]
                        rank &= rank - 1
                for r in range(block):
                    won[start + r] += weight[r] * lower[r]
                    pairs[start + r] += weight[r] * later[r]
            for place in range(starts[group], starts[group + 1]):
                weight = weights[order[place], start:stop]
                for r in range(block):
                    later[r] += weight[r]
                rank = ranks[place]
                while rank <= risks:
                    part = tree[rank]
                    for r in range(block):
                        part[r] += weight[r]
                    rank += rank & -rank
    return won, pairs


@compiled()
def roc_summary(
    weights: Weights,
    order: Integers,
    members: Counts,
    ends: Counts,
    claimed: Counts,
    rates: Floats,
    results: Floats,
) -> None:
    """Add the statistics of one ROC curve to (3 + rates, resamples) `results`.

    `order` lists rows by descending score; in the same order `members` tells members from others,
    `ends` the last row of each group of equal scores, and `claimed` the rows that are called
    members. Added are the area (a tied pair counts one half), the largest TPR - FPR (0 at least),
    TPR - FPR of the claims, and the sensitivity at each of the ascending `rates`: at the place
    rate x (others + 1) among the others, between two of them where that is no whole number.
    """
    resamples = weights.shape[1]
    places = 2 * len(rates)
    all_members, all_others = np.zeros(resamples), np.zeros(resamples)
    right, wrong = np.zeros(resamples), np.zeros(resamples)
    for place in range(len(order)):
        weight = weights[order[place]]
        total = all_members if members[place] else all_others
        for r in range(resamples):
            total[r] += weight[r]
        if claimed[place]:
            total = right if members[place] else wrong
            for r in range(resamples):
                total[r] += weight[r]
    won, lost = np.zeros(resamples), np.zeros(resamples)
    won_before, lost_before = np.zeros(resamples), np.zeros(resamples)
    twice, largest = np.zeros(resamples), np.zeros(resamples)
    # Places that were not reached yet; the share of members above those that were.
    wanted = np.empty((places, resamples))
    shares = np.zeros((places, resamples))
    for number in range(len(rates)):
        for r in range(resamples):
            whole = np.floor(rates[number] * (all_others[r] + 1.0))
            wanted[2 * number, r], wanted[2 * number + 1, r] = whole, whole + 1.0
    missing = np.zeros(places, dtype=np.int64)
    for number in range(places):
        for r in range(resamples):
            if wanted[number, r] > all_others[r]:
                shares[number, r] = 1.0
            elif wanted[number, r] > 0.0:
                missing[number] += 1
    for place in range(len(order)):
        weight = weights[order[place]]
        total = won if members[place] else lost
        for r in range(resamples):
            total[r] += weight[r]
        if not ends[place]:
            continue
        for r in range(resamples):
            twice[r] += (lost[r] - lost_before[r]) * (won[r] + won_before[r])
            largest[r] = max(largest[r], won[r] / all_members[r] - lost[r] / all_others[r])
        for number in range(places):
            if missing[number]:
                aims = wanted[number]
                for r in range(resamples):
                    aim = aims[r]
                    if lost_before[r] < aim <= lost[r]:
                        tied = (won[r] - won_before[r]) * (aim - lost_before[r])
                        above = won_before[r] + tied / (lost[r] - lost_before[r] + 1.0)
                        shares[number, r] = above / all_members[r]
                        missing[number] -= 1
        for r in range(resamples):
            won_before[r], lost_before[r] = won[r], lost[r]
    for r in range(resamples):
        results[0, r] += twice[r] / (2.0 * all_members[r] * all_others[r])
        results[1, r] += largest[r]
        results[2, r] += right[r] / all_members[r] - wrong[r] / all_others[r]
        for number in range(len(rates)):
            lower, upper = shares[2 * number, r], shares[2 * number + 1, r]
            part = rates[number] * (all_others[r] + 1.0) - wanted[2 * number, r]
            results[3 + number, r] += lower + part * (upper - lower)
