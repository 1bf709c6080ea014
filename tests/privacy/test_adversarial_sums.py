"""Attacks on sensitivity, on decisions in doubles and on composition, in exact arithmetic.

Each looks for one counterexample to a sentence of a proof, where one would be most likely.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting import pld, rdp

from bench.privacy import noise as sampling
from bench.privacy.accounting import Budget, absl_silenced, adaptive_order
from bench.privacy.events import DpEvent, gaussian, laplace, sampled_gaussian
from bench.privacy.grid import Grid, clip_before_rounding
from bench.privacy.ledger import Entry, Ledger, PartPath

Array = npt.NDArray[np.float64]

LARGEST = float(np.finfo(np.float64).max)

# Sensitivity --------------------------------------------------------------------------------------


def hostile_rows(columns: int, clip: float, exponent: int, rng: np.random.Generator) -> list[Array]:
    """Rows near the clip, near the ends of doubles, and with all entries about to round up."""
    normal = rng.normal(size=columns)
    normal *= clip / np.linalg.norm(normal)
    spike = np.zeros(columns)
    spike[0], spike[-1] = -1e308, 1e-308
    equal = [clip, 1e308, LARGEST, 1.3407807929942597e154, 5e-324, 1e-160, -0.0]
    rows = [np.full(columns, value) for value in equal]
    rows += [normal, normal * (1.0 + 2.0**-52), np.full(columns, clip / math.sqrt(columns)), spike]
    rows.append(np.exp(50.0 * rng.normal(size=columns)))
    limit, grid = clip_before_rounding(exponent, clip, columns), 2.0**exponent
    each = math.floor(limit / math.sqrt(columns) / grid)
    rows += [np.nextafter(np.full(columns, (each + k) * grid), np.inf) for k in (-0.5, 0.5, 1.5)]
    halves = np.full(columns, np.nextafter(0.5 * grid, 1.0))
    halves[0] = math.sqrt(max(0.0, limit**2 - (columns - 1) * (0.5 * grid) ** 2))
    return [*rows, halves]


@pytest.mark.parametrize("columns", [1, 2, 3, 30, 1000, 20_000])
def test_no_hostile_row_moves_the_sum_by_more_than_the_recorded_clip(columns: int) -> None:
    rng = np.random.default_rng(columns)
    clips = [1.0, 1.0 + 2.0**-52, 1.0 - 2.0**-53, math.sqrt(columns), 1e-100, 1e100]
    ratios = [1e-15, 2.0**-36, 2.0**-20, 1e-3, 1.0, 50.0, 2.0**31, 1e12]
    some = rng.permutation(list(itertools.product(clips, ratios)))[: 48 if columns < 1000 else 8]
    for clip, ratio in some.tolist():
        grid = Grid.of(ratio * clip, clip, columns)
        allowed = (Fraction(clip) / Fraction(2) ** grid.exponent) ** 2
        for row in hostile_rows(columns, clip, grid.exponent, rng):
            moved = grid.sum(row[None].copy(), clip)
            assert sum(int(entry) ** 2 for entry in moved) <= allowed


# Decisions in doubles -----------------------------------------------------------------------------

STEPS = [
    *(law(s) for law in (sampling._Normal, sampling._Laplace) for s in (0.3, 2.0**20 * 1.7)),
    sampling._Normal(2.0**32),
    *(sampling._Gaps(rate) for rate in (1e-12, 1e-3, 0.5, 1.0 - 1e-12)),
]


def words_near(boundary: Any, bits: int) -> Iterator[int]:
    """Words on both sides of a boundary: next to it, and at distances up to 2^48."""
    place = int(mpmath.floor(boundary * mpmath.mpf(2) ** bits))
    for distance in (0, *(sign * 2**power for power in range(0, 49, 4) for sign in (1, -1))):
        if 0 < place + distance < 2**bits:
            yield place + distance


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: f"{type(steps).__name__}{steps.scale:g}")
def test_doubles_decide_no_word_near_a_boundary_wrongly(steps: sampling._Steps) -> None:
    # A word is a cell of real numbers: decided means that both ends of it have this floor.
    sign = 0 if isinstance(steps, sampling._Gaps) else 1
    bits, limit = 64 - sign, 10.0**7
    largest = min(limit, 8.0 * steps.scale)
    decided = 0
    with mpmath.workprec(320):
        for step in {2, 3, *(max(2, int(share * largest)) for share in (0.001, 0.1, 0.4, 0.99))}:
            cells = list(words_near(steps.boundary(step, mpmath.mp), bits))
            if not cells:  # beyond the smallest number of 64 bits
                continue
            words = np.array([cell << sign for cell in cells], dtype=np.uint64)
            floors, undecided = sampling._sure_floors(
                words,
                sign,
                steps.quantiles(words, sign),
                steps.scale,
                steps.offset,
                limit,
                sampling._RELATIVE,
            )
            for index in set(range(len(cells))) - set(undecided.tolist()):
                floor = int(floors[index])
                low, high = (mpmath.mpf(cells[index] + end) / 2**bits for end in (0, 1))
                assert floor < 1 or high <= steps.boundary(floor, mpmath.mp)
                assert floor >= limit or low >= steps.boundary(floor + 1, mpmath.mp)
                decided += 1
    assert decided


# Composition --------------------------------------------------------------------------------------

Tree = dict[str, dict[str, Any]]
"""Partitions with their parts, each with the partitions inside it."""


def random_tree(depth: int, rng: np.random.Generator) -> Tree:
    if not depth:
        return {}
    return {
        f"partition {number}": {
            str(part): random_tree(depth - 1, rng) if rng.random() < 0.5 else {}
            for part in range(rng.integers(1, 4))
        }
        for number in range(rng.integers(0, 3))
    }


def places(tree: Tree, path: PartPath = ()) -> Iterator[PartPath]:
    yield path
    for key, parts in tree.items():
        for part, inside in parts.items():
            yield from places(inside, (*path, (key, part)))


def possible_rows(tree: Tree, path: PartPath = ()) -> list[frozenset[PartPath]]:
    """All parts that one row is in, for each row that there can be."""
    choices = [
        [
            row | {(*path, (key, part))}
            for part, inside in parts.items()
            for row in possible_rows(inside, (*path, (key, part)))
        ]
        for key, parts in tree.items()
    ]
    return [frozenset({path}).union(*chosen) for chosen in itertools.product(*choices)]


@functools.cache
def spent_by(events: tuple[tuple[DpEvent, int], ...], delta: float, order: float | None) -> float:
    """Epsilon of one row's events, by the accountants themselves."""
    accountants: list[Any] = [rdp.RdpAccountant() if order is None else rdp.RdpAccountant([order])]
    if order is None:
        accountants.append(pld.PLDAccountant(value_discretization_interval=1e-3))
    for accountant, (event, count) in itertools.product(accountants, events):
        accountant.compose(event, count)
    return min(float(accountant.get_epsilon(delta)) for accountant in accountants)


def test_random_ledgers_never_prove_less_than_the_worst_row_spends() -> None:
    rng = np.random.default_rng(3)
    kinds = [gaussian(4.0), gaussian(20.0), laplace(10.0), sampled_gaussian(0.05, 2.0)]
    for _ in range(12):
        tree: Tree = {"split": {"train": random_tree(2, rng), "validation": random_tree(1, rng)}}
        paths = list(places(tree))
        ledger = Ledger(Budget(100.0, 1e-5))
        for _ in range(rng.integers(1, 6)):
            path, event = paths[rng.integers(len(paths))], kinds[rng.integers(len(kinds))]
            ledger.add(Entry(path, event, adaptive=rng.random() < 0.1), int(rng.integers(1, 20)))
        adaptive = any(entry.adaptive for entry in ledger.entries)
        order = adaptive_order(ledger.budget) if adaptive else None
        with absl_silenced():
            worst = max(
                spent_by(
                    tuple((e.event, n) for e, n in ledger.entries.items() if e.path in row),
                    ledger.delta,
                    order,
                )
                for row in set(possible_rows(tree))
            )
        assert worst * (1.0 - 1e-9) <= ledger.spent()[0] <= worst * 1.01 + 1e-3
