"""The trade-off curve that a ledger proves, and the test of an attack against it.

A proof says more than one (epsilon, delta): its privacy loss distribution bounds delta for every
epsilon, and each point bounds every attack. Together (Dong, Roth and Su 2022, Proposition 6) they
bound the false negative rate at false positive rate a from below by

    f(a) = max over epsilon of max(0, 1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)).

An attack that beats f anywhere refutes the proof, also where it does not beat the one point that
is reported. The curve of a ledger with parts is the pointwise worst over all worlds that a row can
be in (delta(epsilon) is the largest over them, as the reported epsilon is); who knows the part the
canary lies in names it, and gets the tighter curve of the worlds with that part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from dp_accounting import PrivacyAccountant, dp_event

from bench.errors import InputError
from bench.privacy import accounting as accountant
from bench.privacy import ledger as ledgers
from bench.privacy.accounting import ComposedEvents
from bench.privacy.events import is_non_private
from bench.privacy.ledger import Entry, Ledger
from bench.stats.bounds import gaussian_delta, gaussian_epsilon
from bench.stats.exact_test import exact_p_value
from bench.stats.tally import Tally

Floats = npt.NDArray[np.float64]

_POINTS = 256
_SMALLEST_DELTA = 1e-9
"""No audit has the billions of trials that the curve beyond this point would need."""
_HOPELESS = 200.0
"""A PLD of almost no noise would need gigabytes; RDP bounds such worlds."""
_WORLDS_AT_MOST = 64


@final
@dataclass(frozen=True)
class Curve:
    """Points (epsilon, delta) that all hold at once."""

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.epsilons or len(self.epsilons) != len(self.deltas):
            raise InputError(
                f"{len(self.epsilons)} epsilons and {len(self.deltas)} deltas: a curve needs at "
                "least one point, and both numbers of each"
            )

    def frontier(self, false: Floats) -> Floats:
        """Largest true positive rate at each false positive rate: 1 - f."""
        shape, false = np.shape(false), np.ravel(np.asarray(false, dtype=np.float64))
        # Epsilons of hundreds prove nothing that a count could show; their powers must not spill.
        power = np.exp(np.minimum(np.asarray(self.epsilons), 500.0))[:, None]
        delta = np.asarray(self.deltas)[:, None]
        allowed = np.minimum(power * false + delta, 1.0 - (1.0 - delta - false) / power)
        highest: Floats = np.clip(allowed.min(axis=0), 0.0, 1.0)
        return highest.reshape(shape)

    def smallest_false_negatives(self, false: npt.ArrayLike) -> Floats:
        """f: the smallest false negative rate that the proof leaves to any attack."""
        return 1.0 - self.frontier(np.asarray(false, dtype=np.float64))


def tradeoff_p_value(tally: Tally, curve: Curve) -> float:
    """p-value of "the proven curve holds": exact, for every ledger, one point or many."""
    return exact_p_value(tally, curve.frontier)


def tradeoff_curve(ledger: Ledger, parts: Mapping[str, str] | None = None) -> Curve | None:
    """What the ledger proves, as a curve; None where it proves nothing.

    `parts` names, for some partitions, the part that the canary lies in. Where noise was chosen
    from outputs, an RDP filter proves its budget: then the curve is that one point.
    """
    proof = ledger.proof()
    if not math.isfinite(proof.epsilon):
        return None
    reported = (proof.epsilon, proof.delta)
    entries = _within(ledger.entries, parts or {})
    if not entries:
        return Curve((0.0,), (0.0,))
    worlds = None if any(entry.adaptive for entry in entries) else ledgers.compositions(entries)
    remaining = accountant.undominated(worlds) if worlds else []
    if not 0 < len(remaining) <= _WORLDS_AT_MOST:
        return Curve((reported[0],), (reported[1],))
    epsilons, deltas = _points([_Loss.of(world) for world in remaining])
    return Curve((*epsilons, reported[0]), (*deltas, reported[1]))


def is_full_batch_gaussian(ledger: Ledger) -> bool:
    """True where the proven curve is exactly that of one Gaussian, so that `gaussian_bound` holds.

    All events are Gaussians without sampling, fixed beforehand: then every world is mu-GDP with
    mu^2 the sum of 1 / multiplier^2 (Dong, Roth and Su 2022, Corollary 3.3).
    """
    return bool(ledger.entries) and all(
        isinstance(entry.event, dp_event.GaussianDpEvent) and not entry.adaptive and not entry.trust
        for entry in ledger.entries
    )


def gaussian_mu_of(world: ComposedEvents) -> float | None:
    """mu of a world of full-batch Gaussians; None for any other."""
    total = 0.0
    for event, count in world:
        if not isinstance(event, dp_event.GaussianDpEvent):
            return None
        total += count / event.noise_multiplier**2
    return math.sqrt(total)


@final
@dataclass(frozen=True)
class _Loss:
    """delta(epsilon) of one world: in closed form, by PLD or, where it has none, by RDP."""

    mu: float | None
    accountant: PrivacyAccountant | None
    convolved: bool = False

    @classmethod
    def of(cls, world: ComposedEvents) -> _Loss:
        from dp_accounting import pld, rdp

        mu = gaussian_mu_of(world)
        if mu is not None:
            return cls(mu, None)
        rough = accountant.rdp_epsilon(world, _SMALLEST_DELTA)
        used = pld.PLDAccountant(value_discretization_interval=1e-3 if rough > 1 else 1e-4)
        convolved = rough < _HOPELESS and all(used.supports(event) for event, _ in world)
        if not convolved:
            used = rdp.RdpAccountant()
        with accountant.absl_silenced():
            for event, count in world:
                used.compose(event, count)
        return cls(None, used, convolved)

    def epsilon(self, delta: float) -> float:
        if self.accountant is None:
            return gaussian_epsilon(self.mu or 0.0, delta)
        with accountant.absl_silenced():
            return float(self.accountant.get_epsilon(delta))

    def deltas(self, epsilons: Floats) -> Floats:
        if self.accountant is None:
            return np.array([gaussian_delta(self.mu or 0.0, epsilon) for epsilon in epsilons])
        with accountant.absl_silenced():
            if self.convolved:
                return np.asarray(self.accountant.get_delta(epsilons), dtype=np.float64)
            return np.array([self.accountant.get_delta(epsilon) for epsilon in epsilons])


def _points(losses: Iterable[_Loss]) -> tuple[list[float], list[float]]:
    losses = list(losses)
    last = max(loss.epsilon(_SMALLEST_DELTA) for loss in losses)
    epsilons = np.linspace(0.0, last if math.isfinite(last) else _HOPELESS, _POINTS)
    deltas = np.max([loss.deltas(epsilons) for loss in losses], axis=0)
    return epsilons.tolist(), np.clip(deltas, 0.0, 1.0).tolist()


def _within(entries: Mapping[Entry, int], parts: Mapping[str, str]) -> dict[Entry, int]:
    """Events that a row of these parts can have taken part in."""
    return {
        entry: count
        for entry, count in entries.items()
        if not is_non_private(entry.event)
        and all(parts.get(key, part) == part for key, part in entry.path)
    }
