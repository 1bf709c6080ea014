"""Self-test of the auditor: audits of methods whose true epsilon is known. None is a plugin.

All release one row, the noisy sum of all rows. The exact one is a Gaussian mechanism of known
epsilon. The other two have bugs of the kind that an audit is for, which the ledger cannot see: they
bypass the kernel, as no plugin may.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.audit.audits import AuditProcedure, instance_cell, run_audits
from bench.audit.replays import Weakened
from bench.audit.trials import Say
from bench.data.dataset import Declaration
from bench.data.encoder import EncodedRows
from bench.data.schema import Categorical, Column, Numeric, Role, Schema, Task
from bench.engine.options import RunOptions
from bench.errors import NotApplicable
from bench.plugins.method import Method, Spec
from bench.plugins.release import Claim, Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from bench.privacy.accounting import calibrate_noise, pld_epsilon
from bench.privacy.events import gaussian, sampled_gaussian
from bench.privacy.kernel import PlannedEvents, PrivateData
from bench.results.audits import refutations
from bench.results.records import TWO_WORLD, AuditSpec, Outcome
from bench.results.run_directory import RunStore

Floats = npt.NDArray[np.float64]

TRIALS = 20_000
_SHARE_FOR_LARGE = 10
"""Factor by which the audit at epsilon 8 needs fewer trials."""


class NoisySum(Method):
    """A noisy sum of all rows, which subclasses release as it is or with a bug."""

    title: ClassVar[str] = "A mechanism of known epsilon, for tests of the auditor"
    uses_ipc: ClassVar[bool] = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if spec.budget is None:
            raise NotApplicable("it needs a budget")
        noise = _noise(spec.budget.epsilon, spec.budget.delta)
        private.reserve(gaussian(noise))
        values = self.released(private, noise, rng)
        rows = Rows(values[None, :], np.zeros(1, dtype=np.int64))
        return Release(rows, claim=Claim.of(spec.budget, "one Gaussian mechanism"))

    @abstractmethod
    def released(self, private: PrivateData, noise: float, rng: np.random.Generator) -> Floats:
        """Return the released row."""


@functools.lru_cache(maxsize=64)
def _noise(epsilon: float, delta: float) -> float:
    """Return the noise that `calibrate` gives for one Gaussian sum; the same for every refit."""
    return calibrate_noise(lambda noise: pld_epsilon(((gaussian(noise), 1),), delta), epsilon)


def _summed(private: PrivateData, noise: float) -> Floats:
    return private.gaussian_sum(lambda rows: rows.values, private.encoder.max_norm, noise)


@final
@dataclass(frozen=True)
class ExactGaussian(NoisySum):
    """A method that spends exactly what it claims and proves."""

    name: ClassVar[str] = "known-exact-gaussian"

    def released(self, private: PrivateData, noise: float, rng: np.random.Generator) -> Floats:
        return _summed(private, noise)


@final
@dataclass(frozen=True)
class HalvedNoise(NoisySum):
    """A bug: half of the noise that the ledger records. At epsilon 1 it truly spends 2.15."""

    name: ClassVar[str] = "known-halved-noise"

    def released(self, private: PrivateData, noise: float, rng: np.random.Generator) -> Floats:
        private._vault.noise = Weakened(private._vault.noise, 0.5)
        return _summed(private, noise)


@final
@dataclass(frozen=True)
class RowCopier(NoisySum):
    """A bug: with a small probability the row of largest norm is released as it is.

    Its true epsilon is infinite at every delta below `probability`.
    """

    name: ClassVar[str] = "known-row-copier"
    probability: float = 0.01

    def released(self, private: PrivateData, noise: float, rng: np.random.Generator) -> Floats:
        values = _summed(private, noise)
        if rng.random() >= self.probability:
            return values
        rows = np.asarray(private._rows.values, dtype=np.float64)
        return np.asarray(rows[int(np.argmax(np.linalg.norm(rows, axis=1)))])


class KnownCalls(Method):
    """Calls of the kernel with fixed noise, of which a canary uses the whole sensitivity."""

    title: ClassVar[str] = "Calls of known epsilon, for tests of the auditor of transcripts"
    uses_ipc: ClassVar[bool] = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if spec.budget is None:
            raise NotApplicable("it needs a budget")
        noise = private.calibrate(lambda noise: [self.planned(private, noise)])
        private.reserve_all([self.planned(private, noise)])
        for _ in range(self.planned(private, noise).count):
            self.ask(private, noise)
        rows = Rows(np.zeros((1, private.width)), np.zeros(1, dtype=np.int64))
        return Release(rows, claim=Claim.of(spec.budget, "calls of known epsilon"))

    @abstractmethod
    def planned(self, private: PrivateData, noise: float) -> PlannedEvents:
        """Return the events of all calls."""

    @abstractmethod
    def ask(self, private: PrivateData, noise: float) -> None:
        """Make one call."""


@final
@dataclass(frozen=True)
class TwoSums(KnownCalls):
    """Two Gaussian sums over all rows, each of which a canary moves by the whole clip."""

    name: ClassVar[str] = "known-two-sums"

    def planned(self, private: PrivateData, noise: float) -> PlannedEvents:
        return private.plan(gaussian(noise), 2)

    def ask(self, private: PrivateData, noise: float) -> None:
        _summed(private, noise)


@final
@dataclass(frozen=True)
class SampledSums(KnownCalls):
    """Gaussian sums over Poisson samples, each of which a canary moves by the whole clip."""

    name: ClassVar[str] = "known-sampled-sums"
    rate: float = 0.2
    count: int = 20

    def planned(self, private: PrivateData, noise: float) -> PlannedEvents:
        return private.plan(sampled_gaussian(self.rate, noise), self.count)

    def ask(self, private: PrivateData, noise: float) -> None:
        clip = private.encoder.max_norm
        private.poisson_sum(lambda rows: rows.values, clip, noise, self.rate)


@final
@dataclass(frozen=True)
class Votes(KnownCalls):
    """One vote of each part, which a canary turns round: the sensitivity of two clips is used."""

    name: ClassVar[str] = "known-votes"

    def planned(self, private: PrivateData, noise: float) -> PlannedEvents:
        return private.plan(gaussian(noise))

    def ask(self, private: PrivateData, noise: float) -> None:
        parts = private.partition("part", parts=2)
        bound = 0.99 * private.encoder.max_norm

        def fit(rows: EncodedRows, rng: np.random.Generator) -> float:
            norms = np.linalg.norm(np.asarray(rows.values, dtype=np.float64), axis=1)
            return 1.0 if bool((norms > bound).any()) else -1.0

        models = private.fit_parts(parts, fit)
        private.partition_sum(models, lambda vote: np.array([vote]), 1.0, noise)


@final
@dataclass(frozen=True)
class TinyTable(DatasetSource):
    """Thirty simulated rows of three numbers: a refit takes a millisecond."""

    name: ClassVar[str] = "tiny-table"

    def declare(self) -> Declaration:
        numbers: tuple[Column, ...] = tuple(
            Numeric(name=f"x{number}", low=-1, high=1) for number in range(3)
        )
        label = Categorical(name="label", categories=("0", "1"), role=Role.TARGET)
        return Declaration(
            title="A tiny simulated table",
            schema=Schema((*numbers, label), Task.CLASSIFICATION),
            by_class=(15, 15),
            by_site_class={},
            licence="CC0",
            citation="none",
            source="simulated",
            simulated=True,
        )

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(5)
        table = {f"x{number}": rng.uniform(-0.5, 0.5, 30) for number in range(3)}
        return pd.DataFrame({**table, "label": np.repeat([0, 1], 15)})


@final
@dataclass(frozen=True)
class KnownAnswer:
    """A method with what the auditor should say about it."""

    method: Method
    epsilon: float
    broken: bool
    trials: int


@final
@dataclass(frozen=True)
class CheckedAnswer:
    """An audit of a method whose answer is known."""

    known: KnownAnswer
    outcome: Outcome
    refuted: bool

    @property
    def good(self) -> bool:
        """True where the auditor was right."""
        return self.outcome.audit is not None and self.refuted == self.known.broken

    @property
    def line(self) -> str:
        """Summary in one line."""
        row, audit = self.outcome.row, self.outcome.audit
        if audit is None:
            return f"FAILED  {row.label} at epsilon {row.eps_target:g}: {row.reason}"
        said = "refuted" if self.refuted else "not refuted"
        wanted = "broken" if self.known.broken else "exact"
        gaussian = "" if audit.eps_gaussian is None else f", {audit.eps_gaussian:.3g} as a Gaussian"
        again = "" if audit.replicated_eps is None else f", replicated {audit.replicated_eps:.3g}"
        return (
            f"{'ok' if self.good else 'WRONG':<7} {row.label} at epsilon {row.eps_target:g} "
            f"({wanted}): {said}; audited {row.eps_audited:.3g}{gaussian}{again}, "
            f"detectable {audit.eps_detectable:.3g}, p {min(audit.p_claim, audit.p_proof):.2g}, "
            f"{audit.refits} refits in {row.fit_seconds or 0.0:.0f} s"
        )


def known_answers(trials: int = TRIALS) -> tuple[KnownAnswer, ...]:
    """Return two exact methods and two broken ones."""
    few = max(400, trials // _SHARE_FOR_LARGE)
    return (
        KnownAnswer(ExactGaussian(), 8.0, False, few),
        KnownAnswer(ExactGaussian(), 1.0, False, trials),
        KnownAnswer(HalvedNoise(), 1.0, True, trials),
        KnownAnswer(RowCopier(), 1.0, True, trials),
    )


def self_test(
    options: RunOptions, trials: int = TRIALS, seed: int = 0, say: Say = lambda text: None
) -> Iterator[CheckedAnswer]:
    """Audit all known answers; refutations are corrected for all of them together."""
    dataset = build_dataset(TinyTable())
    answers = known_answers(trials)
    with RunStore(options.out) as store:
        audits = [
            AuditProcedure(
                instance_cell(
                    known.method,
                    dataset,
                    known.epsilon,
                    AuditSpec(TWO_WORLD, known.trials),
                    seed=seed,
                ),
                dataset,
                store.directory,
                known.method,
                say,
            )
            for known in answers
        ]
        journal = run_audits(audits, store, options, say).journal
        outcomes = [journal.outcome(audit.key) for audit in audits]
    together = refutations(outcomes)
    for known, outcome in zip(answers, outcomes, strict=True):
        refutation = together.get(outcome.row.key)
        refuted = refutation is not None and (refutation.claim or refutation.proof)
        yield CheckedAnswer(known, outcome, refuted)
