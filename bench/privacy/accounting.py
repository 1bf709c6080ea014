"""From events to epsilon: the only place in the harness that does so.

Adjacency is add/remove of one row. A *world* is the multiset of events that one row can have
taken part in. Events fixed in advance are accounted by the tighter of RDP and PLD, both upper
bounds; where parameters were chosen from earlier outputs, only RDP at one order fixed beforehand
is valid (Feldman and Zrnic 2021, Theorem 4.3: an RDP filter at a fixed order), and that is used.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

from dp_accounting import PrivacyAccountant, dp_event

from bench.errors import InputError
from bench.privacy.events import DpEvent, flattened, is_non_private

ADJACENCY = "add-remove"

_HOPELESS = 200.0

World = tuple[tuple[DpEvent, int], ...]
"""Events of one row with their counts, in a canonical order."""


@final
@dataclass(frozen=True)
class Budget:
    """What a release may spend."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise InputError(f"epsilon {self.epsilon} is not a positive finite number")
        if not 0 < self.delta < 1:
            raise InputError(f"delta {self.delta} is not between 0 and 1")


@final
@dataclass(frozen=True)
class Proof:
    """What a ledger proves. `epsilon` is infinite where nothing is proven; `reasons` say why."""

    epsilon: float
    delta: float
    accountant: str
    reasons: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()


def canonical(events: Iterable[tuple[DpEvent, int]]) -> World:
    """Merge equal events, flatten composition, sort: equal worlds become equal tuples."""
    counts: dict[DpEvent, int] = {}
    for composed, times in events:
        for event, count in flattened(composed, times):
            counts[event] = counts.get(event, 0) + count
    return tuple(sorted(counts.items(), key=lambda item: repr(item[0])))


def worst_epsilon(
    worlds: Iterable[World], delta: float, order: float | None = None, tight: bool = True
) -> tuple[float, str]:
    """Largest epsilon over the worlds, and the accountant that gave it.

    With `order` the accounting is adaptive: RDP at that order only. Without `tight` it is RDP
    alone, a quicker and larger bound.
    """
    remaining = _undominated(set(worlds))
    ranked = sorted(
        ((rdp_epsilon(world, delta, order), world) for world in remaining),
        key=lambda pair: -pair[0],
    )
    if order is not None or not tight:
        name = "RDP" if order is None else f"RDP, order {order:g} (adaptive)"
        return (ranked[0][0], name) if ranked else (0.0, "none")
    worst, by = 0.0, "none"
    # Largest RDP first: once it is below the worst, no further world needs a PLD.
    for value, world in ranked:
        if value <= worst:
            break
        # Far beyond any use, and a PLD of almost no noise would need gigabytes.
        convolved = pld_epsilon(world, delta) if value < _HOPELESS else math.inf
        best, name = (convolved, "PLD") if convolved < value else (value, "RDP")
        if best > worst or by == "none":
            worst, by = best, name
    return worst, by


def supported(event: DpEvent) -> bool:
    """True when at least one accountant bounds the event under add/remove adjacency."""
    from dp_accounting import pld, rdp

    return bool(rdp.RdpAccountant().supports(event) or pld.PLDAccountant().supports(event))


@functools.lru_cache(maxsize=1024)
def adaptive_order(budget: Budget | None) -> float:
    """The one RDP order of an adaptive ledger, fixed from the target before any row is touched.

    It maximises B(a) / a, where B(a) is the RDP at order a that still converts to the target:
    the best order for full-batch Gaussians. Without a budget, (1, 1e-5) stands in.
    """
    budget = budget or Budget(1.0, 1e-5)

    def efficiency(order: float) -> float:
        # Conversion of Canonne, Kamath and Steinke 2020, Proposition 12 (the NDPDC paper's
        # Lemma II.4), solved for the RDP value.
        allowed = (
            budget.epsilon
            - math.log1p(-1 / order)
            + (math.log(budget.delta) + math.log(order)) / (order - 1)
        )
        return allowed / order

    # Whole orders: fractional ones are loose for sampled Gaussians in dp-accounting. Small targets
    # need large ones (about 2 log(1/delta) / epsilon).
    orders = {*range(2, 257), *(round(256 * 1.03**step) for step in range(220))}
    return float(max(sorted(orders), key=efficiency))


@functools.lru_cache(maxsize=65536)
def rdp_epsilon(world: World, delta: float, order: float | None = None) -> float:
    """Epsilon of a world by RDP; infinite where it does not support an event."""
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant() if order is None else rdp.RdpAccountant(orders=[order])
    return _epsilon(accountant, world, delta)


@functools.lru_cache(maxsize=65536)
def pld_epsilon(world: World, delta: float) -> float:
    """Epsilon of a world by PLD; infinite where it does not support an event."""
    from dp_accounting import pld

    # Coarser cells are ten times faster and pessimistic, so still an upper bound: measured, they
    # add at most 0.05% above epsilon 0.3. Below that the fine grid is kept.
    interval = 1e-3 if rdp_epsilon(world, delta) > 0.3 else 1e-4
    return _epsilon(pld.PLDAccountant(value_discretization_interval=interval), world, delta)


def _epsilon(accountant: PrivacyAccountant, world: World, delta: float) -> float:
    if any(is_non_private(event) for event, _ in world):
        return math.inf
    with _quiet():
        for event, count in world:
            if not accountant.supports(event):
                return math.inf
            accountant.compose(event, count)
        return float(accountant.get_epsilon(delta))


def _undominated(worlds: set[World]) -> list[World]:
    """Drop worlds that another one makes superfluous, to save accountant calls.

    A Poisson-sampled Gaussian of smaller rate or larger noise, or repeated less often, is a
    post-processing of the other: with a public coin replace the output by pure noise. So the
    other world's epsilon bounds it.
    """
    kept: list[World] = []
    for world in sorted(worlds, key=lambda item: (-len(item), repr(item))):
        if not any(_dominates(other, world) for other in worlds if other != world):
            kept.append(world)
    return kept


def _dominates(larger: World, smaller: World) -> bool:
    if len(larger) < len(smaller):
        return False
    first, second = _strengths(larger), _strengths(smaller)
    if first is None or second is None or first == second:
        return False
    return all(
        a[0] >= b[0] and a[1] >= b[1] and a[2] <= b[2] for a, b in zip(first, second, strict=False)
    )


def _strengths(world: World) -> list[tuple[int, float, float]] | None:
    """(count, rate, noise) of each event, strongest first; None for other kinds of events."""
    strengths: list[tuple[int, float, float]] = []
    for event, count in world:
        rate = 1.0
        if isinstance(event, dp_event.PoissonSampledDpEvent):
            rate, event = event.sampling_probability, event.event
        if not isinstance(event, dp_event.GaussianDpEvent):
            return None
        strengths.append((count, rate, event.noise_multiplier))
    return sorted(strengths, key=lambda item: (-item[0], -item[1], item[2]))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """dp-accounting warns through absl about orders at the edge of its grid: not for users."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
