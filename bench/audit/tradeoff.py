"""The trade-off curve that a ledger proves, and the test of an attack against it.

A proof says more than one (epsilon, delta): its privacy loss distribution bounds delta for every
epsilon, and each point bounds every attack. Together (Dong, Roth and Su 2022, Proposition 6) they
bound the false negative rate at false positive rate a from below by

    f(a) = max over epsilon of max(0, 1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)).

An attack that beats f anywhere refutes the proof, also where it does not beat the one point that
is reported. The curve of a ledger with parts is the pointwise worst over all compositions that a
row can take part in (delta(epsilon) is the largest over them, as the reported epsilon is); where
the part of the canary is known, the tighter curve of the compositions with that part is used.

**Selections.** The ledger records a selection by the kernel at epsilon as epsilon^2 / 8 zCDP, which
has no privacy loss distribution; curves by RDP are loose in the middle, where counts are most
telling. But its log-likelihood ratios lie in an interval of length epsilon (Dong, Durfee and Rogers
2020): in one [t - epsilon, t], where the largest delta is that of two outcomes at its ends,

    delta(a) = sup over t in [0, epsilon] of q_t (e^t - e^a),
    q_t = (1 - e^(t - epsilon)) / (e^t - e^(t - epsilon)).

For a in [-epsilon, epsilon] the supremum is at t = (epsilon + a) / 2 (`selection_deltas`),

    delta(a) = (1 - e^((a - epsilon) / 2))^2 / (1 - e^-epsilon).

A distribution with these deltas dominates the selection, also where t depends on earlier answers,
and is convolved with the others. It holds for selections of the kernel only: what a library spends
in zCDP may be any mechanism.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from bench.audit.canaries import Canary
from bench.audit.trials import AuditTarget, History, TrialId
from bench.errors import InputError
from bench.privacy import accounting as accountant
from bench.privacy import events
from bench.privacy import ledger as ledgers
from bench.privacy.accounting import ComposedEvents
from bench.privacy.ledger import Entry, Ledger
from bench.results.records import CellRow
from bench.stats.bounds import gaussian_delta, gaussian_epsilon
from bench.stats.exact_test import Tally, exact_p_value
from bench.stats.inference import CONFIDENCE, Floats

_POINTS = 256
_SMALLEST_DELTA = 1e-9
"""The curve beyond this point would need billions of trials."""
_LARGEST_PLD = 200.0
"""A PLD of almost no noise would need gigabytes; RDP bounds such compositions."""
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
        """Return the largest true positive rate at each false positive rate: 1 - f."""
        shape, false = np.shape(false), np.ravel(np.asarray(false, dtype=np.float64))
        # Epsilons of hundreds prove nothing that counts could show; powers must not overflow.
        power = np.exp(np.minimum(np.asarray(self.epsilons), 500.0))[:, None]
        delta = np.asarray(self.deltas)[:, None]
        allowed = np.minimum(power * false + delta, 1.0 - (1.0 - delta - false) / power)
        highest: Floats = np.clip(allowed.min(axis=0), 0.0, 1.0)
        return highest.reshape(shape)

    def smallest_false_negatives(self, false: npt.ArrayLike) -> Floats:
        """Return f: the smallest false negative rate that the proof allows to any attack."""
        return 1.0 - self.frontier(np.asarray(false, dtype=np.float64))


def tradeoff_p_value(tally: Tally, curve: Curve) -> float:
    """Return the exact p-value of "the proven curve holds"."""
    return exact_p_value(tally, curve.frontier)


def tradeoff_curve(
    ledger: Ledger, parts: Mapping[str, str] | None = None, frozen: bool = False
) -> Curve | None:
    """Return what the ledger proves as a curve; None where it proves nothing.

    `parts` names, for some partitions, the part that the canary is in. Where noise was chosen from
    outputs, an RDP filter proves its budget: then the curve is that one point. With `frozen` the
    calls are repeated as they were recorded: nothing is chosen, and their events have a curve.
    """
    proof = ledger.proof()
    if not math.isfinite(proof.epsilon):
        return None
    reported = (proof.epsilon, proof.delta)
    of_kernel = _of_kernel(ledger)
    # A client has rows in all parts.
    entries = _within(ledger.entries, {} if ledger.unit == "client" else parts or {})
    if not entries:
        return Curve((0.0,), (0.0,))
    adaptive = any(entry.adaptive for entry in entries) and not frozen
    remaining = [] if adaptive else _worlds(entries, ledger.unit)
    if not remaining:
        return Curve((reported[0],), (reported[1],))
    epsilons, deltas = _points([_Loss.of(world, of_kernel) for world in remaining])
    return Curve((*epsilons, reported[0]), (*deltas, reported[1]))


def _of_kernel(ledger: Ledger) -> bool:
    """Whether all events are of the kernel, whose events of zCDP are selections."""
    return not any(entry.trust for entry in ledger.entries)


def _worlds(entries: Mapping[Entry, int], unit: str) -> list[ComposedEvents]:
    """Return the compositions that decide the curve; none where there are too many."""
    worlds = ledgers.compositions(entries, unit)
    remaining = accountant.undominated(worlds) if worlds else []
    return remaining if len(remaining) <= _WORLDS_AT_MOST else []


_STEP = 1.01
"""Noise of neighbouring curves of `curve_bound`."""
_STEPS_AT_MOST = 460
"""Noise up to a hundred times, or down to a hundredth, of what was recorded."""


@final
class NoiseFamily:
    """The curves of a ledger with more or less noise than it records: one for each factor.

    All noise multipliers are multiplied by the same factor; sampling rates and counts stay.
    """

    def __init__(self, ledger: Ledger, parts: Mapping[str, str]) -> None:
        whole = ledger.unit == "client"
        self._worlds = _worlds(_within(ledger.entries, {} if whole else parts), ledger.unit)
        self._delta = ledger.delta
        self._of_kernel = _of_kernel(ledger)

    @property
    def exact(self) -> bool:
        """True where the curves are those of the mechanisms, by closed form or PLD, not by RDP."""
        return bool(self._worlds) and all(
            loss.accountant is None or loss.convolved for loss in self._at(0)
        )

    def _at(self, step: int) -> tuple[_Loss, ...]:
        return _with_more_noise(tuple(self._worlds), step, self._of_kernel)[0]

    def epsilon(self, step: int) -> float:
        """Return epsilon at the ledger's delta with noise times 1.01^step."""
        return max(loss.epsilon(self._delta) for loss in self._at(step))

    def curve(self, step: int) -> Curve:
        """Return the curve with noise times 1.01^step."""
        return _with_more_noise(tuple(self._worlds), step, self._of_kernel)[1]

    def bound(self, tally: Tally, confidence: float = CONFIDENCE) -> float:
        """Lower bound of epsilon *if* the mechanism is the recorded one with unknown noise.

        Noise is increased until the exact test of both counts refutes the curve: with probability
        `confidence` the true noise is less, and epsilon larger (Nasr et al. 2023, section 4, with
        the curve of the whole ledger).
        """

        def holds(step: int) -> bool:
            return tradeoff_p_value(tally, self.curve(step)) >= 1.0 - confidence

        if tally.true_positives <= tally.false_positives or holds(_STEPS_AT_MOST):
            return 0.0
        # Most answers are near the recorded noise: the bracket grows from there.
        width, sign = 4, 1 if holds(0) else -1
        kept, other = 0, sign * width
        while abs(other) < _STEPS_AT_MOST and holds(other) == (sign > 0):
            width *= 2
            kept, other = other, max(-_STEPS_AT_MOST, min(_STEPS_AT_MOST, other + sign * width))
        first, last = min(kept, other), max(kept, other)
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if holds(middle) else (first, middle)
        return self.epsilon(last)


@functools.lru_cache(maxsize=128)
def _with_more_noise(
    worlds: tuple[ComposedEvents, ...], step: int, of_kernel: bool
) -> tuple[tuple[_Loss, ...], Curve]:
    """Return compositions with noise times 1.01^step, and their curve."""
    factor = _STEP**step
    scaled = [
        tuple((events.with_noise(event, factor), count) for event, count in world)
        for world in worlds
    ]
    losses = tuple(_Loss.of(world, of_kernel) for world in scaled)
    return losses, Curve(*map(tuple, _points(losses)))


def is_full_batch_gaussian(ledger: Ledger, frozen: bool = False) -> bool:
    """True where the proven curve is exactly that of one Gaussian, so that `gaussian_bound` holds.

    All events are Gaussians without sampling, fixed beforehand: every composition is mu-GDP with
    mu^2 the sum of 1 / multiplier^2 (Dong, Roth and Su 2022, Corollary 3.3).
    """
    return bool(ledger.entries) and all(
        isinstance(entry.event, dp_event.GaussianDpEvent)
        and (frozen or not entry.adaptive)
        and not entry.trust
        for entry in ledger.entries
    )


def gaussian_mu_of(world: ComposedEvents) -> float | None:
    """Return mu of a composition of full-batch Gaussians; None for any other."""
    total = 0.0
    for event, count in world:
        if not isinstance(event, dp_event.GaussianDpEvent):
            return None
        total += count / event.noise_multiplier**2
    return math.sqrt(total)


class _Accountant(Protocol):
    """What a curve needs of an accountant."""

    def get_epsilon(self, target_delta: float) -> float:
        """Return epsilon at this delta."""

    def get_delta(self, target_epsilon: Any) -> Any:
        """Return delta at this epsilon, or at each of several."""


@final
class _Convolved:
    """The privacy loss distribution of a composition with selections of the kernel."""

    def __init__(self, world: ComposedEvents, interval: float) -> None:
        from dp_accounting import pld

        selections = [(event.rho, count) for event, count in world if _is_selection(event)]
        finest = min(math.sqrt(8.0 * rho) for rho, _ in selections) / _CELLS
        interval = min(interval, finest)
        others = pld.PLDAccountant(value_discretization_interval=interval)
        with accountant.absl_silenced():
            for event, count in world:
                if not _is_selection(event):
                    others.compose(event, count)
        # The accountant has no other way to its distribution.
        self._total: Any = others._pld
        for rho, count in selections:
            chosen = selection_loss(math.sqrt(8.0 * rho), interval)
            self._total = self._total.compose(chosen.self_compose(count))

    def get_epsilon(self, target_delta: float) -> float:
        return float(self._total.get_epsilon_for_delta(target_delta))

    def get_delta(self, target_epsilon: Any) -> Any:
        return self._total.get_delta_for_epsilon(target_epsilon)


_CELLS = 16
"""Cells of a discretised selection on either side of 0, at least."""


def selection_deltas(epsilon: float, at: Floats) -> Floats:
    """Return the largest delta that a selection at `epsilon` can have at each of these epsilons.

    With T = e^t, E = e^epsilon and A = e^a, q_t (e^t - e^a) is (E + A - T - E A / T) / (E - 1),
    which is largest at T = sqrt(E A): between max(1, A) and E for every a in [-epsilon, epsilon].
    """
    inside = np.clip(at, -epsilon, epsilon)
    deltas = np.expm1((inside - epsilon) / 2.0) ** 2 / -math.expm1(-epsilon)
    # Below the interval everything is left, above it nothing.
    return np.asarray(np.where(at < -epsilon, -np.expm1(np.minimum(at, 0.0)), deltas))


@functools.lru_cache(maxsize=512)
def selection_loss(epsilon: float, interval: float) -> Any:
    """Return the privacy loss distribution that dominates a selection at `epsilon`."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    last = math.ceil(epsilon / interval)
    places = np.arange(-last, last + 1)
    deltas = selection_deltas(epsilon, np.asarray(places * interval, dtype=np.float64))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(interval, places, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def _is_selection(event: dp_event.DpEvent) -> bool:
    return isinstance(event, dp_event.ZCDpEvent)


@final
@dataclass(frozen=True)
class _Loss:
    """Delta at epsilon of one composition: in closed form, by PLD or, where it has none, by RDP."""

    mu: float | None
    accountant: _Accountant | None
    convolved: bool = False

    @classmethod
    def of(cls, world: ComposedEvents, of_kernel: bool = False) -> _Loss:
        from dp_accounting import pld, rdp

        mu = gaussian_mu_of(world)
        if mu is not None:
            return cls(mu, None)
        rough = accountant.rdp_epsilon(world, _SMALLEST_DELTA)
        interval = 1e-3 if rough > 1 else 1e-4
        used = pld.PLDAccountant(value_discretization_interval=interval)
        chosen = [event for event, _ in world if of_kernel and _is_selection(event)]
        convolved = rough < _LARGEST_PLD and all(
            event in chosen or used.supports(event) for event, _ in world
        )
        if convolved and chosen:
            return cls(None, _Convolved(world, interval), True)
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
    epsilons = np.linspace(0.0, last if math.isfinite(last) else _LARGEST_PLD, _POINTS)
    deltas = np.max([loss.deltas(epsilons) for loss in losses], axis=0)
    return epsilons.tolist(), np.clip(deltas, 0.0, 1.0).tolist()


def _within(entries: Mapping[Entry, int], parts: Mapping[str, str]) -> dict[Entry, int]:
    """Return the events that a row of these parts can have taken part in."""
    return {
        entry: count
        for entry, count in entries.items()
        if not events.is_non_private(entry.event)
        and all(parts.get(key, part) == part for key, part in entry.path)
    }


def parts_of(target: AuditTarget, canary: Canary) -> dict[str, str]:
    """Return the parts that a canary is known to be in."""
    schema = target.dataset.schema
    parts = {"split": "train", "class": schema.classes[canary.label]}
    if schema.site is not None:
        parts["site"] = schema.site.categories[canary.site]
    return parts


@final
@dataclass(frozen=True)
class Promise:
    """The guarantees that the trials are tested against."""

    claimed: float | None
    proven: float
    delta: float
    curve: Curve | None = None
    """What the ledger of every trial proves about the canary's part; None where trials had
    different ledgers, or nothing is proven."""
    gaussian: bool = False
    """True where that ledger holds full-batch Gaussians only."""

    @classmethod
    def of(
        cls,
        target: AuditTarget,
        history: History,
        canary: Canary | None = None,
        frozen: Sequence[TrialId] = (),
    ) -> Promise:
        """Return the guarantees of the trials so far; with a canary, also the curve of its part.

        `frozen` names the recordings whose calls are repeated, if any: the curve is theirs.
        """
        claimed, proven, delta = history.claimed(), history.proven(), target.delta
        if canary is None or not history.one_ledger(frozen):
            return cls(claimed, proven, delta)
        ledger = history.ledger(frozen[0] if frozen else None)
        curve = tradeoff_curve(ledger, parts_of(target, canary), bool(frozen))
        return cls(claimed, proven, delta, curve, is_full_batch_gaussian(ledger, bool(frozen)))

    def stated(self, row: CellRow) -> CellRow:
        """Return the row of the audit with what is claimed and proven."""
        return replace(row, eps_claimed=self.claimed, eps_proven=self.proven)

    @property
    def claimed_or_infinite(self) -> float:
        """The claimed epsilon; infinite where nothing is claimed."""
        return math.inf if self.claimed is None else self.claimed

    @property
    def smallest(self) -> float | None:
        """The stronger of claim and proof; None where there is neither."""
        smallest = min(self.proven, self.claimed_or_infinite)
        return smallest if math.isfinite(smallest) else None
