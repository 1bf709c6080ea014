"""Trials: the method fitted again on one of two neighbouring tables, and the scores of its release.

Every trial has noise of its own and public randomness of its own. All of it follows from the seed
key (a hash of what was asked for, without any row), the stage, the world and the number of the
trial: two worlds share no seed, and none depends on the table. A cell's own key is a hash of the
private rows, so numbers drawn from it would tell two tables apart whatever the noise.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.attacks import Attacker
from bench.audit.canaries import Canary, with_canaries
from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.cell_log import threads_capped
from bench.engine.fit import Randomness, run_method
from bench.errors import InputError
from bench.plugins.method import Method
from bench.plugins.release import Claim, Release
from bench.privacy.accounting import Budget
from bench.privacy.ledger import Entry, Ledger

OUT = -1
"""The world without a canary."""


class Stage(enum.StrEnum):
    """What a trial is for. A trial serves one stage only."""

    CHOOSE = "choose"
    """First half: says which canary, scorer and threshold to use."""
    BOUND = "bound"
    """Second half: gives the bound."""
    REPLICATE = "replicate"
    """Fresh ones, where the bound spoke against a number."""


@final
@dataclass(frozen=True, order=True)
class TrialId:
    """Which trial: its randomness follows from this and the seed key."""

    stage: Stage
    canary: int
    """Number of the canary that is in the table, or OUT."""
    number: int

    @property
    def tag(self) -> str:
        """Part of every seed of the trial."""
        world = "out" if self.canary == OUT else f"in/{self.canary}"
        return f"{self.stage.value}/{world}/{self.number}"


FIRST = TrialId(Stage.CHOOSE, OUT, 0)
"""The trial that every audit begins with."""


@final
@dataclass(frozen=True)
class Trial:
    """What is kept of a trial: numbers computed from its release."""

    id: TrialId
    scores: npt.NDArray[np.float64]
    """(canaries, scorers): a release without a canary counts for all of them, one with a canary
    for that one; the others are 0."""
    planted: npt.NDArray[np.float64]
    """(scorers,) of the same release with the canary copied into it; empty where it was out. In a
    one-run audit (canaries x scorers), each canary that is in copied by itself; 0 for the others.
    """
    features: npt.NDArray[np.float32]
    claimed: float
    """NaN for a method that claims nothing."""
    proven: float
    ledger: str
    """Digest of its ledger: trials with other ledgers have other trade-off curves."""
    seconds: float
    """Of the processor, for the fit: how many trials are affordable must not hang on what else the
    machine does."""
    document: str = ""
    """The whole ledger, of the first trial only."""


@final
@dataclass(frozen=True)
class Subject:
    """What is attacked; crosses to workers."""

    method: Method
    dataset: Dataset
    ipc: int | None
    budget: Budget | None
    delta: float
    seed_key: str
    canaries: tuple[Canary, ...]
    one_run: bool = False
    """True puts every canary in by a coin of its own, instead of one or none."""

    @functools.cached_property
    def attacker(self) -> Attacker:
        """Scores the releases."""
        return Attacker(self.dataset.encoder, self.canaries)

    def coins(self, trial: TrialId) -> npt.NDArray[np.bool_]:
        """Which canaries are in, in a one-run audit: fair coins, fixed before the fit."""
        return keys.generator(self.seed_key, f"{trial.tag}/coins").random(len(self.canaries)) < 0.5

    def table(self, trial: TrialId) -> Dataset:
        """The table of a trial. Declared counts are the same in every world."""
        if self.one_run:
            inside = [self.canaries[k] for k in np.flatnonzero(self.coins(trial))]
            # Positions of their own, the same in every run: not all in one part.
            places = keys.generator(self.seed_key, "positions").random(len(self.canaries))
            return with_canaries(self.dataset, inside, places[self.coins(trial)].tolist())
        if trial.canary == OUT:
            return self.dataset
        # The last one is kept: trials of one canary come together, and tables may be large.
        kept = self._tables.get(trial.canary)
        if kept is None:
            self._tables.clear()
            kept = with_canaries(self.dataset, [self.canaries[trial.canary]])
            self._tables[trial.canary] = kept
        return kept

    def proven(self, ledger: Ledger, digest: str) -> float:
        """The proven epsilon; ledgers of the same events have the same."""
        if digest not in self._proofs:
            self._proofs[digest] = ledger.proof().epsilon
        return self._proofs[digest]

    @functools.cached_property
    def _proofs(self) -> dict[str, float]:
        return {}

    @functools.cached_property
    def _tables(self) -> dict[int, Dataset]:
        return {}


def refit(subject: Subject, trial: TrialId) -> Release:
    """Fit the method once more; the release carries its ledger."""
    return run_method(
        subject.method,
        subject.table(trial),
        Randomness.of(lambda purpose: keys.generator(subject.seed_key, f"{trial.tag}/{purpose}")),
        ipc=subject.ipc,
        budget=subject.budget,
        delta=subject.delta,
    )


def run_trials(subject: Subject, trials: Sequence[TrialId]) -> list[Trial]:
    """Many trials in one process, on one thread."""
    with threads_capped(1):
        return [_run(subject, trial) for trial in trials]


def _run(subject: Subject, trial: TrialId) -> Trial:
    started = time.process_time()
    release = refit(subject, trial)
    seconds = time.process_time() - started
    ledger = release.ledger
    assert ledger is not None
    attacker, digest = subject.attacker, ledger_digest(ledger)
    inside = trial.canary != OUT and not subject.one_run
    return Trial(
        trial,
        # A release with one canary says nothing that is used about the others.
        attacker.scores(release, trial.canary if inside else None),
        _planted(subject, trial, release),
        attacker.features(release),
        _claimed(release.claim, subject.delta),
        subject.proven(ledger, digest),
        digest,
        seconds,
        ledger.to_json() if trial == FIRST else "",
    )


def _planted(subject: Subject, trial: TrialId, release: Release) -> npt.NDArray[np.float64]:
    attacker = subject.attacker
    if subject.one_run:
        copied = [
            attacker.planted(release, canary) if inside else None
            for canary, inside in zip(subject.canaries, subject.coins(trial), strict=True)
        ]
        width = next((len(scores) for scores in copied if scores is not None), 0)
        return np.concatenate([np.zeros(width) if scores is None else scores for scores in copied])
    if trial.canary == OUT:
        return np.empty(0)
    return attacker.planted(release, subject.canaries[trial.canary])


def _claimed(claim: Claim | None, delta: float) -> float:
    """The claimed epsilon at the audit's delta: a claim at a smaller one says it there too."""
    if claim is None:
        return math.nan
    if claim.delta > delta * (1 + 1e-9):
        raise InputError(
            f"it claims epsilon {claim.epsilon:g} at delta {claim.delta:g}, which says nothing at "
            f"the smaller delta {delta:g} of this audit; audit it with --delta {claim.delta:g}"
        )
    return claim.epsilon


def ledger_digest(ledger: Ledger) -> str:
    """Equal for ledgers of the same events."""
    return _digest(tuple(ledger.entries.items()))


@functools.lru_cache(maxsize=256)
def _digest(entries: tuple[tuple[Entry, int], ...]) -> str:
    text = repr(sorted(map(repr, entries)))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
