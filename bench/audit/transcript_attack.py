"""The transcript audit: an attacker of the kernel's noisy answers, who scores by likelihood.

It tests the proof and the code of the kernel on the calls that a method makes; what an outsider
sees of a release is tested by refits (`two_worlds`). Of N trials:

1. every canary is recorded once (`transcripts`); the one that moves the answers most, relative to
   their noise, is recorded again with worst-case vectors and scores in place of its own, where the
   method sums clipped vectors or selects. These are attacked where the row itself uses less than
   95% of what they use, or where so many of its entries move that less than half of the trials
   could be drawn. One more recording shows whether questions depend on answers; if so, the
   questions of four recorded fits are frozen (of one, where these have other noise);
2. a fifth of the trials chooses the thresholds;
3. the bounds are computed from the others: half with the canary, half without;
4. if they contradict claim or proof at 5%, as many fresh trials are drawn. With worst-case vectors
   the proof alone is tested: a claim is about the method's own vectors.

Trials are replays: only noise is drawn (`replays`). Those of delegated mechanisms run the library.

*Validity.* Refutations use the counts of two fixed thresholds and the exact test against the whole
proven curve, as all audits do: they assume nothing about the scores. With frozen questions, the
trials are those of several fixed sequences of calls, each of which must obey the curve of its
events. The curve is concave in the false positive rate, so the mean rates obey it as well; and sums
of independent coins of different probabilities are no more spread than binomial ones (Hoeffding
1956, Theorem 4). The two tighter bounds, by the Gaussian and by the PLD curve, assume that the
mechanism is the recorded one with unknown noise, and refute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.replays import Weakened, cost, replayed
from bench.audit.tradeoff import Curve, NoiseFamily, Promise, parts_of, tradeoff_p_value
from bench.audit.transcripts import BLOCK, PLANTED, VECTORS, WILD, Transcript, without
from bench.audit.trials import AuditSteps, AuditTarget, History, Stage, Trial, TrialId, Wanted
from bench.engine import keys
from bench.privacy.noise import SeededNoise
from bench.results.records import AuditRow, CellRow, Outcome
from bench.stats.bounds import (
    Threshold,
    best_threshold,
    epsilon_bound,
    gaussian_test_bound,
    max_detectable,
    middle_cut,
    middle_threshold,
    p_value,
)
from bench.stats.exact_test import Tally, rectangle_error

Array = npt.NDArray[np.float64]
Scores = tuple[Array, Array]
"""Scores with and without the canary."""
Draw = Generator[Wanted, list[Trial], Scores]

OF_VECTORS = ", with worst-case vectors"
"""Follows the name of a canary whose vectors and scores the attacker chose."""
ALPHA = 0.05
"""A p-value below this triggers a replication."""
_CHOOSING = 0.2
"""Share of the trials that chooses the thresholds."""
_FROZEN = 4
"""Recorded fits whose questions are frozen, where they depend on answers."""
_NUMBERS = 1e9
"""Noise that the trials of an audit may draw: some forty seconds of one core."""
_SHARE = 0.98
"""Of an answer's squared difference, what is attacked where all of it would take too long: 1% of mu
is given up for many more trials."""
_NEARLY = 0.95
"""Share of the largest mu from which on a row is attacked rather than a vector."""
_REPETITIONS = 20
_MIDDLE_CUTS = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
"""Quantiles of the scores that are tried where the curve is not a Gaussian's: few, so that the
best one is not merely a lucky one."""


@final
@dataclass(frozen=True)
class _Thresholds:
    """Thresholds of the bound (mostly in a tail) and of the curve (mostly in the middle)."""

    bound: Threshold
    curve: Threshold

    @classmethod
    def of(cls, scores: Scores, promise: Promise) -> _Thresholds:
        middle = (
            middle_cut(*scores)
            if promise.gaussian
            else middle_threshold(*scores, quantiles=_MIDDLE_CUTS)
        )
        return cls(best_threshold(*scores, promise.delta), middle)

    def tallies(self, scores: Scores) -> tuple[Tally, Tally]:
        return self.bound.tally(*scores), self.curve.tally(*scores)


def transcript_audit(
    target: AuditTarget, trials: int, blank: CellRow, *, power: bool = True
) -> AuditSteps:
    """Ask for recordings, redraw their noise and complete the rows of the audit.

    Without `power`, no bug is planted: for repeated audits (`soundness`).
    """
    history = History()
    first = [TrialId(Stage.RECORD, number, 0) for number in range(len(target.canaries))]
    pilots = yield from history.ask(first, "to record transcripts")
    attack: _Attack
    if pilots[0].features[0] > 0:
        attack = yield from _delegated(target, history, trials)
    else:
        attack = yield from _replayable(target, history, pilots, trials)
    canary, delta = target.canaries[attack.canary], target.delta
    attacked = canary.name + (OF_VECTORS if attack.vectors else "")
    choosing = yield from attack.scores(history, Stage.CHOOSE, attack.choosing)
    promise = Promise.of(target, history, canary, attack.recordings)
    thresholds = _Thresholds.of(choosing, promise)
    scores = yield from attack.scores(history, Stage.BOUND, attack.counting)
    tallies = thresholds.tallies(scores)
    tally, curve = tallies
    p_claim, p_proof = _p_values(tallies, promise, attack.vectors)
    family = NoiseFamily(history.ledger(attack.recordings[0]), parts_of(target, canary))
    by_curve = promise.curve is not None and not promise.gaussian and family.exact
    found, bug = (yield from _power(attack, history, promise)) if power else (None, "")
    row = promise.stated(replace(blank, eps_audited=epsilon_bound(tally, delta)))
    audit = AuditRow(
        key=blank.key,
        trials=2 * attack.counting,
        refits=attack.fits(history),
        canary=attacked,
        scorer=attack.described,
        threshold=thresholds.curve.value,
        false_positives=curve.false_positives,
        false_negatives=curve.false_negatives,
        eps_gaussian=gaussian_test_bound(curve, delta) if promise.gaussian else None,
        eps_detectable=max_detectable(attack.counting, attack.counting, delta),
        p_claim=p_claim,
        p_proof=p_proof,
        planted=found,
        planted_bug=bug,
        eps_curve=family.bound(curve) if by_curve else None,
    )
    if min(p_claim, p_proof) >= ALPHA:
        return Outcome(row, audit=audit)
    fresh = yield from attack.scores(history, Stage.REPLICATE, attack.counting)
    again = thresholds.tallies(fresh)
    p_claim, p_proof = _p_values(again, promise, attack.vectors)
    audit = replace(
        audit,
        replicated_eps=epsilon_bound(again[0], delta),
        replicated_p_claim=p_claim,
        replicated_p_proof=p_proof,
    )
    return Outcome(row, audit=audit)


def _p_values(tallies: tuple[Tally, Tally], promise: Promise, vectors: bool) -> tuple[float, float]:
    """Return the p-values of claim and proof; the curve is tested by both counts.

    With worst-case `vectors` the claim is not tested, whatever its size. It may rest on what the
    method does with a row (use a part of the clip only), and the vectors are the attacker's. The
    proof holds for any vectors.
    """
    claim = 1.0 if vectors else p_value(tallies[0], promise.claimed_or_infinite, promise.delta)
    curve = promise.curve
    if curve is None:
        return claim, p_value(tallies[0], promise.proven, promise.delta)
    smaller = min(tradeoff_p_value(counts, curve) for counts in tallies)
    return claim, min(1.0, 2.0 * smaller)


@final
@dataclass(frozen=True)
class _Attack:
    """The canary that is attacked, and how its trials are made."""

    target: AuditTarget
    canary: int
    trials: int
    """Largest number of trials of all stages but the replication."""
    transcripts: tuple[Transcript, ...]
    """Empty for delegated mechanisms."""
    described: str
    recordings: tuple[TrialId, ...]
    """Whose calls are repeated."""
    vectors: bool = False
    """Whether the canary has worst-case vectors."""
    plantable: bool = True
    """False for a library that cannot be asked for less noise than is charged."""

    @property
    def choosing(self) -> int:
        """Trials of each world that choose the thresholds."""
        return self._whole(_CHOOSING * self.trials / 2)

    @property
    def counting(self) -> int:
        """Trials of each world that the bounds are computed from."""
        return self._whole((1.0 - _CHOOSING) * self.trials / 2)

    def _whole(self, trials: float) -> int:
        """Return a number of trials that can be made: delegated ones come in blocks."""
        return int(trials) if self.transcripts else BLOCK * max(1, round(trials / BLOCK))

    def fits(self, history: History) -> int:
        """Number of fits of the method: two for each recording."""
        return 2 * history.refits

    def scores(self, history: History, stage: Stage, count: int, factor: float = 1.0) -> Draw:
        """Return scores of both worlds; `factor` plants a bug in the kernel's noise."""
        if self.transcripts:
            inside, outside = (
                self._redrawn(stage, count, world, factor) for world in (True, False)
            )
            return inside, outside
        blocks, first = count // BLOCK, 0
        if factor != 1.0:
            # One stage for both parts: the counted ones follow the choosing ones.
            first = self.choosing // BLOCK if stage is Stage.BOUND else 0
            stage = Stage.PLANT
        wanted = [
            TrialId(stage, world, number)
            for world in (self.canary, without(self.canary))
            for number in range(first, first + blocks)
        ]
        made = yield from history.ask(wanted, f"runs of the library ({stage.value})")
        scores = np.concatenate([trial.scores.reshape(-1) for trial in made])
        return scores[: blocks * BLOCK], scores[blocks * BLOCK :]

    def _redrawn(self, stage: Stage, count: int, inside: bool, factor: float) -> Array:
        world = "in" if inside else "out"
        tag = f"{stage.value}/{world}/replays" + ("" if factor == 1.0 else "/planted")
        noise = SeededNoise(keys.generator(self.target.seed_key, tag))
        used = noise if factor == 1.0 else Weakened(noise, factor)
        return replayed(self.transcripts, count, inside, used)


def _replayable(
    target: AuditTarget, history: History, pilots: Sequence[Trial], trials: int
) -> Generator[Wanted, list[Trial], _Attack]:
    """Return the attack on the noisy answers of the kernel."""
    recorded = [Transcript.of_numbers(trial.transcript) for trial in pilots]
    canary = max(range(len(recorded)), key=lambda number: (recorded[number].strength, -number))
    pilot, base = pilots[canary], 0
    if pilot.features[1] > 0:
        (worst,) = yield from history.ask(
            [TrialId(Stage.RECORD, canary, VECTORS)], "to record worst-case vectors"
        )
        if _weaker(recorded[canary], Transcript.of_numbers(worst.transcript), trials):
            pilot, base = worst, VECTORS
    first = pilot.transcript
    transcripts, frozen = [Transcript.of_numbers(first)], [pilot.id]
    (wild,) = yield from history.ask(
        [TrialId(Stage.RECORD, canary, base + WILD)], "to compare questions"
    )
    fixed = np.array_equal(wild.transcript, first)
    # Noise that is chosen from answers makes another ledger, with another curve, of each fit.
    if not fixed and wild.ledger == pilot.ledger:
        numbers = range(base + WILD + 1, base + WILD + _FROZEN)
        more = yield from history.ask(
            [TrialId(Stage.RECORD, canary, number) for number in numbers], "to freeze questions"
        )
        more = [trial for trial in more if trial.ledger == pilot.ledger]
        transcripts += [Transcript.of_numbers(trial.transcript) for trial in more]
        frozen += [trial.id for trial in more]
    moved = len(transcripts[0].answers) + len(transcripts[0].choices)
    if trials * cost(transcripts) > _NUMBERS:
        transcripts = [one.lighter(_SHARE) for one in transcripts]
    fits = "1 fit" if len(transcripts) == 1 else f"{len(transcripts)} fits"
    said = "fixed questions" if fixed else f"questions of {fits}, frozen"
    described = f"log-likelihood ratio of {moved} of {transcripts[0].calls} noisy answers; {said}"
    affordable = min(trials, int(_NUMBERS / cost(transcripts)))
    return _Attack(
        target,
        canary,
        max(affordable, 400),
        tuple(transcripts),
        described,
        tuple(frozen),
        vectors=base > 0,
    )


def _weaker(row: Transcript, worst: Transcript, trials: int) -> bool:
    """Whether a row shows less than worst-case vectors: by its size, or by the trials it allows."""
    if math.sqrt(row.strength) < _NEARLY * math.sqrt(worst.strength):
        return True
    drawn = row.lighter(_SHARE) if trials * cost([row]) > _NUMBERS else row
    return trials * cost([drawn]) > 2.0 * _NUMBERS and cost([worst]) < cost([drawn])


def _delegated(
    target: AuditTarget, history: History, trials: int
) -> Generator[Wanted, list[Trial], _Attack]:
    """Return the attack on the measurements of a library; the canary of the largest mean ratio."""
    wanted = [TrialId(Stage.PILOT, number, 0) for number in range(len(target.canaries))]
    pilots = yield from history.ask(wanted, "to choose a canary")
    canary = max(range(len(pilots)), key=lambda number: float(pilots[number].scores.mean()))
    described = "log-likelihood ratio of the library's noisy measurements and choices"
    plantable = bool(pilots[0].features[2])
    first = (TrialId(Stage.RECORD, 0, 0),)
    return _Attack(target, canary, trials, (), described, first, plantable=plantable)


def _power(
    attack: _Attack, history: History, promise: Promise
) -> Generator[Wanted, list[Trial], tuple[float | None, str]]:
    """Return the share of repetitions that refute a kernel with less noise, and the bug in words.

    The bug is planted in the noise that the kernel draws, or in what a library is asked for. In a
    repetition the trials of both parts are drawn again with replacement, and the thresholds are
    chosen anew. Found means that the counts contradict the proven curve at 5%.
    """
    who = "the kernel recorded" if attack.transcripts else "is charged for the library"
    bug = f"{PLANTED:g} of the noise that {who}"
    if promise.curve is None:
        return None, f"{bug}: nothing is proven that it could break"
    if not attack.plantable:
        return None, f"{bug}: not planted, since the library draws its own noise"
    choosing = yield from attack.scores(history, Stage.CHOOSE, attack.choosing, PLANTED)
    counting = yield from attack.scores(history, Stage.BOUND, attack.counting, PLANTED)
    rng = keys.generator(attack.target.seed_key, "planted")
    found = 0
    for _ in range(_REPETITIONS):
        first, second = (
            (rng.choice(inside, len(inside)), rng.choice(outside, len(outside)))
            for inside, outside in (choosing, counting)
        )
        found += _refutes(_Thresholds.of(first, promise).tallies(second), promise.curve)
    return found / _REPETITIONS, bug


def _refutes(tallies: tuple[Tally, Tally], curve: Curve) -> bool:
    """Whether the counts contradict the curve at 5%; where the rectangle shows it, by that alone.

    The p-value is at most four times the error of the rectangle, and mostly above a half of it.
    """
    error = min(rectangle_error(tally, curve.frontier) for tally in tallies)
    if 4.0 * error < ALPHA or error > 2.0 * ALPHA:
        return 4.0 * error < ALPHA
    return 2.0 * min(tradeoff_p_value(tally, curve) for tally in tallies) < ALPHA
