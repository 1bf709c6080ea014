"""From events to epsilon, and from a target epsilon to the noise: the only place that does so.

Adjacency is add/remove of one row. A *composition* is the multiset of events that one row can have
taken part in. Events fixed in advance are accounted by the tighter of RDP and PLD, both upper
bounds; where parameters were chosen from earlier outputs, only RDP at one order fixed beforehand
is valid (Feldman and Zrnic 2021, Theorem 4.3: an RDP filter at a fixed order), and that is used.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import final

from dp_accounting import PrivacyAccountant, dp_event

from bench.errors import CalibrationError, InputError
from bench.privacy.events import DpEvent, flattened, is_non_private

ADJACENCY = "add-remove"

_PLD_AT_MOST = 200.0
"""Beyond this RDP epsilon no PLD is computed: a PLD of almost no noise needs gigabytes."""
_TOLERANCE = 1e-3
"""Calibration stops when the epsilon is within this share below the target."""
_NOISE_AT_MOST = 1e6

ComposedEvents = tuple[tuple[DpEvent, int], ...]
"""Events that one row takes part in, with their counts, in a canonical order."""


@final
@dataclass(frozen=True)
class Budget:
    """Epsilon and delta that a release may spend."""

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
    """Epsilon that a ledger proves; infinite where nothing is proven, and `reasons` say why."""

    epsilon: float
    delta: float
    accountant: str
    reasons: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()


def compose_events(events: Iterable[tuple[DpEvent, int]]) -> ComposedEvents:
    """Merge equal events, flatten nested ones, sort: equal compositions become equal tuples."""
    counts: dict[DpEvent, int] = {}
    for composed, times in events:
        for event, count in flattened(composed, times):
            counts[event] = counts.get(event, 0) + count
    return tuple(sorted(counts.items(), key=lambda item: repr(item[0])))


def worst_epsilon(
    compositions: Iterable[ComposedEvents],
    delta: float,
    order: float | None = None,
    tight: bool = True,
) -> tuple[float, str]:
    """Return the largest epsilon over the compositions, and the accountant that bounds it.

    With `order` the accounting is adaptive: RDP at that order only. Without `tight` it is RDP
    alone, a quicker and larger bound.
    """
    ranked = sorted(
        ((rdp_epsilon(one, delta, order), one) for one in undominated(set(compositions))),
        key=lambda pair: -pair[0],
    )
    if order is not None or not tight:
        name = "RDP" if order is None else f"RDP, order {order:g} (adaptive)"
        return (ranked[0][0], name) if ranked else (0.0, "none")
    worst, by = 0.0, "none"
    # Largest RDP first: once it is below the worst, no further composition needs a PLD.
    for value, composition in ranked:
        if value <= worst:
            break
        convolved = pld_epsilon(composition, delta) if value < _PLD_AT_MOST else math.inf
        best, name = (convolved, "PLD") if convolved < value else (value, "RDP")
        if best > worst or by == "none":
            worst, by = best, name
    return worst, by


def supported(event: DpEvent) -> bool:
    """Whether at least one accountant bounds the event under add/remove adjacency."""
    from dp_accounting import pld, rdp

    return bool(rdp.RdpAccountant().supports(event) or pld.PLDAccountant().supports(event))


@functools.lru_cache(maxsize=1024)
def adaptive_order(budget: Budget | None) -> float:
    """RDP order of an adaptive ledger, fixed from the target before any row is read.

    It maximises B(a) / a, where B(a) is the RDP at order a that still converts to the target:
    the best order for full-batch Gaussians. Without a budget, (1, 1e-5) is used.
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


Elsewhere = Callable[[str, ComposedEvents, float, float | None], float | None]
"""Asks another process for an epsilon by "rdp" or "pld"; None where it has no answer."""

_elsewhere: Elsewhere | None = None


def account_elsewhere(ask: Elsewhere) -> None:
    """Ask another process for epsilons from now on.

    A fit is a short-lived process, and a calibration takes seconds: the process that runs cells
    computes it, and has it for the next fit and for the proof.
    """
    global _elsewhere
    _elsewhere = ask


@functools.lru_cache(maxsize=65536)
def rdp_epsilon(composition: ComposedEvents, delta: float, order: float | None = None) -> float:
    """Epsilon of a composition by RDP; infinite where it does not support an event."""
    if _elsewhere is not None:
        known = _elsewhere("rdp", composition, delta, order)
        if known is not None:
            return known
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant() if order is None else rdp.RdpAccountant(orders=[order])
    return _epsilon(accountant, composition, delta)


@functools.lru_cache(maxsize=65536)
def pld_epsilon(composition: ComposedEvents, delta: float) -> float:
    """Epsilon of a composition by PLD; infinite where it does not support an event."""
    if _elsewhere is not None:
        known = _elsewhere("pld", composition, delta, None)
        if known is not None:
            return known
    from dp_accounting import pld

    # Coarser cells are ten times faster and pessimistic, so still an upper bound: measured, they
    # add at most 0.05% above epsilon 0.3. Below that the fine grid is kept.
    # The order is named as `worst_epsilon` names it: the cache knows the answer then.
    interval = 1e-3 if rdp_epsilon(composition, delta, None) > 0.3 else 1e-4
    return _epsilon(pld.PLDAccountant(value_discretization_interval=interval), composition, delta)


def _epsilon(accountant: PrivacyAccountant, composition: ComposedEvents, delta: float) -> float:
    if any(is_non_private(event) for event, _ in composition):
        return math.inf
    with absl_silenced():
        for event, count in composition:
            if not accountant.supports(event):
                return math.inf
            accountant.compose(event, count)
        return float(accountant.get_epsilon(delta))


def undominated(compositions: set[ComposedEvents]) -> list[ComposedEvents]:
    """Drop compositions whose epsilon another one bounds, to save accountant calls.

    A Poisson-sampled Gaussian of smaller rate or larger noise, or repeated less often, is a
    post-processing of the other: with a public coin replace the output by pure noise. So the
    other composition's epsilon bounds it.
    """
    return [
        one
        for one in sorted(compositions, key=lambda item: (-len(item), repr(item)))
        if not any(_dominates(other, one) for other in compositions if other != one)
    ]


def _dominates(larger: ComposedEvents, smaller: ComposedEvents) -> bool:
    if len(larger) < len(smaller):
        return False
    first, second = _strengths(larger), _strengths(smaller)
    if first is None or second is None or first == second:
        return False
    return all(
        a[0] >= b[0] and a[1] >= b[1] and a[2] <= b[2] for a, b in zip(first, second, strict=False)
    )


def _strengths(composition: ComposedEvents) -> list[tuple[int, float, float]] | None:
    """(count, rate, noise) of each event, strongest first; None for other kinds of events."""
    strengths: list[tuple[int, float, float]] = []
    for event, count in composition:
        rate = 1.0
        if isinstance(event, dp_event.PoissonSampledDpEvent):
            rate, event = event.sampling_probability, event.event
        if not isinstance(event, dp_event.GaussianDpEvent):
            return None
        strengths.append((count, rate, event.noise_multiplier))
    return sorted(strengths, key=lambda item: (-item[0], -item[1], item[2]))


@contextlib.contextmanager
def absl_silenced() -> Iterator[None]:
    """Hide what dp-accounting logs through absl about orders at the edge of its grid."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# Calibration --------------------------------------------------------------------------------------


def calibrate_noise(
    epsilon_of: Callable[[float], float],
    target: float,
    quick: Callable[[float], float] | None = None,
) -> float:
    """Return the smallest noise multiplier with `epsilon_of(noise) <= target`, to 0.1%.

    `epsilon_of` must not increase with noise; `quick`, if given, is a cheaper upper bound of it
    that brackets the answer first. The noise returned always satisfies the target.
    """
    noise = 1.0 if quick is None else _search(quick, target, 1.0, tolerance=0.02)
    return _search(epsilon_of, target, noise, tolerance=_TOLERANCE)


def _search(
    epsilon_of: Callable[[float], float], target: float, start: float, *, tolerance: float
) -> float:
    low, high = _bracket(epsilon_of, target, start)
    if low == 0.0:
        return high[0]
    left = (math.log(low), _log_ratio(epsilon_of(low), target))
    right = (math.log(high[0]), _log_ratio(high[1], target))
    # Kept as it was evaluated: the exponential of its logarithm can be smaller.
    enough = high[0]
    for step in range(60):
        if right[1] >= math.log1p(-tolerance) or right[0] - left[0] < 1e-9:
            break
        # Regula falsi on log noise against log epsilon (nearly a straight line), with a bisection
        # every third step so that neither end can stick; aim a little inside the target.
        aim = math.log1p(-tolerance / 2)
        span = left[1] - right[1]
        share = 0.5 if step % 3 == 2 else (left[1] - aim) / span
        point = left[0] + min(max(share, 0.02), 0.98) * (right[0] - left[0])
        noise = math.exp(point)
        value = epsilon_of(noise)
        end = (point, _log_ratio(value, target))
        if value <= target:
            right, enough = end, noise
        else:
            left = end
    return enough


def _log_ratio(epsilon: float, target: float) -> float:
    """Log of epsilon / target; finite also where epsilon is 0 (all within delta) or infinite."""
    return min(max(math.log(max(epsilon, 1e-300) / target), -50.0), 50.0)


def _bracket(
    epsilon_of: Callable[[float], float], target: float, start: float
) -> tuple[float, tuple[float, float]]:
    """(too little noise, (enough noise, its epsilon)); the first is 0 if any noise is enough."""
    noise, value = start, epsilon_of(start)
    if value <= target:
        while value <= target:
            enough = (noise, value)
            noise /= 1.25 if value > 0.8 * target else 2.0
            if noise < 1e-3:
                return 0.0, enough
            value = epsilon_of(noise)
        return noise, enough
    while value > target:
        low = noise
        noise *= 1.25 if value < 1.2 * target else 2.0
        if noise > _NOISE_AT_MOST:
            raise CalibrationError(
                f"even a noise multiplier of {_NOISE_AT_MOST:g} spends more than epsilon {target:g}"
                "; earlier charges leave nothing to spend"
            )
        value = epsilon_of(noise)
    return low, (noise, value)
