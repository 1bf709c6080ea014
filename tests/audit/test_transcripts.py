"""Transcript audits: what a canary moves, the likelihood of it, and planted bugs of the kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pytest
from scipy.stats import binom, laplace, norm

from bench.audit import report, soundness, transcript_attack, transcripts
from bench.audit.audits import AuditProcedure, instance_cell
from bench.audit.foreign import ENVIRONMENT, Compared, compared
from bench.audit.replays import (
    Weakened,
    laplace_log_ratio,
    normal_log_ratio,
    replayed,
)
from bench.audit.report import conclude, markdown_table, page
from bench.audit.self_test import ExactGaussian, KnownCalls, SampledSums, TinyTable, TwoSums, Votes
from bench.audit.tradeoff import NoiseFamily
from bench.audit.transcript_attack import OF_VECTORS
from bench.audit.transcripts import (
    PLANTED,
    VECTORS,
    WILD,
    Answer,
    Choice,
    Transcript,
    recorded,
    without_client,
)
from bench.audit.trials import AuditTarget, Stage, TrialId
from bench.engine.cell import blank_row, ended
from bench.engine.fit import MethodFacts
from bench.engine.procedure import run_here
from bench.environments.overlays import EnvironmentState, inspect
from bench.errors import BenchError, NotApplicable, StoreError
from bench.plugins import registry
from bench.plugins.method import Method, Spec
from bench.plugins.release import Claim, Release, Rows
from bench.plugins.source import build_dataset
from bench.privacy import kernel
from bench.privacy.accounting import pld_epsilon
from bench.privacy.events import exponential, gaussian
from bench.privacy.grid import Grid
from bench.privacy.interception import Call
from bench.privacy.kernel import PrivateData
from bench.privacy.noise import NoiseSource, SeededNoise
from bench.privacy.selection import Distance
from bench.privacy.trusted.table import TABLE
from bench.results.audits import refutations
from bench.results.records import AuditRow, AuditSpec, Outcome, Status
from bench.stats.bounds import gaussian_bound, gaussian_epsilon, gaussian_mu, gaussian_test_bound
from bench.stats.exact_test import Tally

TINY = build_dataset(TinyTable())


def procedure(method: Method, trials: int, epsilon: float = 1.0, seed: int = 0) -> AuditProcedure:
    cell = instance_cell(method, TINY, epsilon, AuditSpec("transcript", trials), seed=seed)
    return AuditProcedure(cell, TINY, Path("nowhere"), method)


def audited(
    folder: Path, method: Method, trials: int = 4000, epsilon: float = 1.0, seed: int = 0
) -> Outcome:
    folder.mkdir(exist_ok=True)
    cell = instance_cell(method, TINY, epsilon, AuditSpec("transcript", trials), seed=seed)
    return run_here(AuditProcedure(cell, TINY, folder, method))


def numbers(outcome: Outcome) -> AuditRow:
    assert outcome.audit is not None, outcome.row.reason
    return outcome.audit


def target(method: Method, epsilon: float = 1.0) -> AuditTarget:
    return procedure(method, 400, epsilon).shared


def of(method: Method, canary: int = 0, number: int = 0, epsilon: float = 1.0) -> Transcript:
    return recorded(target(method, epsilon), TrialId(Stage.RECORD, canary, number)).transcript


class TestWhatACanaryMoves:
    def test_a_sum_by_the_clip(self) -> None:
        transcript = of(ExactGaussian())
        (answer,) = transcript.answers
        clip = TINY.encoder.max_norm * 2.0**-answer.grid.exponent
        norm_of = float(np.linalg.norm(answer.moved.astype(float)))
        assert transcript.calls == 1 and 0.99 * clip < norm_of <= clip

    def test_a_vote_by_twice_the_clip(self) -> None:
        (answer,) = of(Votes()).answers
        assert abs(float(answer.moved[0])) * 2.0**answer.grid.exponent == pytest.approx(
            2.0, rel=0.01
        )

    def test_a_sampled_sum_with_its_rate(self) -> None:
        answers = of(SampledSums(rate=0.2, count=5)).answers
        assert [answer.rate for answer in answers] == [0.2] * 5
        assert all(np.array_equal(answers[0].moved, answer.moved) for answer in answers)

    def test_counts_in_its_bins_only(self) -> None:
        transcript = of(Counting())
        assert transcript.calls == 3 and [len(one.moved) for one in transcript.answers] == [1] * 3
        assert {one.mechanism for one in transcript.answers} == {"laplace"}

    def test_rows_read_outside_of_the_kernel_are_no_transcript(self) -> None:
        with pytest.raises(NotApplicable, match="reads rows outside of the kernel"):
            of(Peeking())

    def test_a_transcript_is_stored_as_numbers(self) -> None:
        transcript = of(SampledSums(count=3))
        again = Transcript.of_numbers(transcript.to_numbers())
        assert again.calls == transcript.calls == 3
        assert np.array_equal(again.to_numbers(), transcript.to_numbers())


class _Direct(Method):
    title: ClassVar[str] = "For tests of the auditor"
    uses_ipc: ClassVar[bool] = False

    def released(self, spec: Spec, width: int) -> Release:
        claim = None if spec.budget is None else Claim.of(spec.budget, "a test")
        return Release(Rows(np.zeros((1, width)), np.zeros(1, dtype=np.int64)), claim=claim)


@final
@dataclass(frozen=True)
class Counting(_Direct):
    name: ClassVar[str] = "test-counting"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        private.histograms(lambda rows: (rows.values > 0).astype(float), [2, 2, 2], 4.0, "laplace")
        return self.released(spec, private.width)


@final
@dataclass(frozen=True)
class Peeking(_Direct):
    name: ClassVar[str] = "test-peeking"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        for _ in range(1 + len(private._rows) % 2):
            private.gaussian_sum(lambda rows: rows.values, 1.0, 30.0)
        return self.released(spec, private.width)


@final
@dataclass(frozen=True)
class Adaptive(_Direct):
    """The second question depends on the first answer."""

    name: ClassVar[str] = "test-adaptive"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        private.reserve(gaussian(8.0), 2)
        first = private.gaussian_sum(lambda rows: rows.values, 1.0, 8.0)
        private.gaussian_sum(lambda rows: rows.values * np.cos(first), 1.0, 8.0)
        return self.released(spec, private.width)


@final
@dataclass(frozen=True)
class Selecting(_Direct):
    """Two selections, the second after noisy scores of the same candidates."""

    name: ClassVar[str] = "test-selecting"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        plans = [private.plan(exponential(0.2), 2), private.plan(gaussian(10.0))]
        private.reserve_all(plans)
        rows = private.coded(lambda rows: (rows.values > 0).astype(np.int64), [2] * private.width)
        # One row more moves away from an empty table, and nearer to one that is too full.
        full = np.full(2, 2.0 * private.counts.total)
        candidates = [
            Distance((column,), full if column else np.zeros(2)) for column in range(private.width)
        ]
        private.select(rows, candidates, 0.2)
        private.scores(rows, candidates, 10.0)
        private.select(rows, candidates, 0.2)
        return self.released(spec, private.width)


@final
@dataclass(frozen=True)
class Short(_Direct):
    """Sums in which a row uses a twentieth of the clip, and votes that no row turns."""

    name: ClassVar[str] = "test-short"
    votes: bool = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        part = private.partition("class")["0"]
        if self.votes:
            models = part.fit_parts(part.partition("voter", parts=3), lambda *_: None)
            part.partition_sum(models, lambda _: np.full(4, 0.01), 1.0, 5.0)
        else:
            part.gaussian_sum(lambda rows: 0.1 * rows.values, 2.0 * private.encoder.max_norm, 5.0)
        return self.released(spec, private.width)


@final
@dataclass(frozen=True)
class Quarter(_Direct):
    """It claims that rows use a quarter of the clip at most; true for the default share."""

    name: ClassVar[str] = "test-quarter"
    share: float = 0.25

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        assert spec.budget is not None
        noise = private.calibrate(lambda noise: [private.plan(gaussian(noise))])
        private.reserve(gaussian(noise))
        private.gaussian_sum(lambda rows: self.share * rows.values, private.encoder.max_norm, noise)
        true = pld_epsilon(((gaussian(4.0 * noise), 1),), spec.budget.delta)
        claim = Claim(true, spec.budget.delta, "rows use a quarter of the clip")
        return replace(self.released(spec, private.width), claim=claim)


@final
@dataclass(frozen=True)
class TwoPartitions(_Direct):
    """Votes of two partitions of the same rows, whose parts have the same names."""

    name: ClassVar[str] = "test-two-partitions"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        noise = private.calibrate(lambda noise: [private.plan(gaussian(noise), 3)])
        private.reserve(gaussian(noise), 3)
        classes, teachers = private.partition("class"), private.partition("teacher", parts=2)
        assert set(classes) == set(teachers) == {"0", "1"}
        for parts in (classes, teachers, classes):
            models = private.fit_parts(parts, lambda *_: None)
            private.partition_sum(models, lambda _: np.full(2, 0.01), 1.0, noise)
        return self.released(spec, private.width)


@final
@dataclass(frozen=True)
class CodedCounts(_Direct):
    """Three tables of coded rows, with weights and without."""

    name: ClassVar[str] = "test-coded-counts"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        private.reserve(gaussian(6.0), 2)
        rows = private.coded(lambda rows: (rows.values > 0).astype(np.int64), [2] * private.width)
        private.marginals(rows, [(0,), (1, 2)], 6.0)
        private.marginals(rows, [(0,), (2,)], 6.0, weights=[3.0, 4.0])
        return self.released(spec, private.width)


class TestCodedCounts:
    def test_counts_and_noise_are_found_from_the_draw(self) -> None:
        answers = of(CodedCounts()).answers
        assert [one.moved.tolist() for one in answers] == [
            [1 << -one.grid.exponent] for one in answers
        ]
        scales = [6.0 * math.sqrt(2.0)] * 2 + [6.0 * 5.0 / 3.0, 6.0 * 5.0 / 4.0]
        assert [one.grid.scale for one in answers] == pytest.approx(scales)
        # The mu^2 of both calls together.
        assert of(CodedCounts()).strength == pytest.approx(2.0 / 36.0, rel=1e-6)

    def test_their_questions_are_compared_with_more_noise(self) -> None:
        first, wild = of(CodedCounts()), of(CodedCounts(), number=WILD)
        assert np.array_equal(first.to_numbers(), wild.to_numbers())

    def test_answers_that_are_no_counts_with_that_noise_are_refused(self) -> None:
        noise = transcripts._Remembering(np.random.default_rng(0))
        drawn = noise.normal(2.0**20, 4)
        with pytest.raises(BenchError, match="are no counts"):
            transcripts._counts_of(np.array([0.3, 1.7, 2.2, 0.1]) + drawn * 2.0**-20, noise)

    def test_less_noise_than_is_charged_is_refuted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        honest = Grid.of_counts
        monkeypatch.setattr(Grid, "of_counts", lambda scale: honest(0.2 * scale))
        outcome = audited(tmp_path, CodedCounts(), 8000)
        assert conclude(outcome, refutations([outcome])[outcome.row.key]).verdict == "proof refuted"


class TestWorstCaseVectors:
    @pytest.mark.parametrize("method", [Short(), Short(votes=True)], ids=["rows", "parts"])
    def test_they_use_the_whole_sensitivity(self, method: Short) -> None:
        # The first two canaries are of the rare class "0", which alone is asked.
        row, worst = of(method), of(method, number=VECTORS)
        assert row.strength < 0.01 / 25.0 and worst.strength == pytest.approx(1 / 25.0, rel=0.005)
        assert [len(answer.moved) for answer in worst.answers] == [1]

    @pytest.mark.parametrize("method", [Short(), Short(votes=True)], ids=["rows", "parts"])
    def test_rows_of_other_parts_have_none(self, method: Short) -> None:
        assert "common class" in target(method).canaries[2].name
        assert of(method, canary=2, number=VECTORS).answers == ()

    def test_every_poisson_sample_holds_the_canary(self) -> None:
        worst = of(SampledSums(rate=0.2, count=5), number=VECTORS)
        assert [len(answer.moved) for answer in worst.answers] == [1] * 5
        assert worst.strength == pytest.approx(
            of(SampledSums(rate=0.2, count=5)).strength, rel=0.02
        )

    def test_scores_of_a_selection_use_its_epsilon(self) -> None:
        worst = of(Selecting(), number=VECTORS)
        assert [choice.strength for choice in worst.choices] == pytest.approx(
            [0.2**2 * 2.0 / 9.0] * 2, rel=0.06
        )
        for choice in worst.choices:
            assert np.ptp(choice.ratios) == pytest.approx(0.2) and not choice.outside.any()

    def test_they_are_attacked_where_a_row_uses_less(self, tmp_path: Path) -> None:
        weak = numbers(audited(tmp_path / "weak", Short(), 20_000))
        full = numbers(audited(tmp_path / "full", TwoSums(), 2000))
        assert weak.canary.endswith(OF_VECTORS) and not full.canary.endswith(OF_VECTORS)
        assert weak.eps_gaussian is not None and weak.eps_gaussian > 0.1
        assert numbers(audited(tmp_path / "row", CodedCounts(), 2000)).canary == full.canary

    def test_a_sensitivity_that_no_row_uses_is_found_to_be_wrong(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        half_sensitivity(monkeypatch)
        outcome = audited(tmp_path, Short(votes=True), 20_000)
        assert conclude(outcome, refutations([outcome])[outcome.row.key]).verdict == "proof refuted"

    def test_a_true_claim_below_the_proof_is_not_refuted(self, tmp_path: Path) -> None:
        """A claim is about the method's own vectors; old audits refuted this one at p 1e-8."""
        outcome = audited(tmp_path, Quarter(), 4000, epsilon=4.0)
        row, audit = outcome.row, numbers(outcome)
        assert audit.canary.endswith(OF_VECTORS) and row.eps_proven is not None
        assert row.eps_claimed is not None and row.eps_audited is not None
        # The bound is one of the calls with other vectors, and contradicts the claim.
        assert row.eps_claimed < 0.9 < row.eps_audited < row.eps_proven
        assert audit.p_claim == audit.replicated_p_claim == 1.0
        refutation = refutations([outcome])[row.key]
        assert not refutation.claim and not refutation.proof
        assert conclude(outcome, refutation).verdict == "sound"
        text = report.report(outcome, refutation)
        assert "claim not tested, proof" in text and "The claim was not tested" in text
        assert "with 95% confidence, of its calls with worst-case vectors" in text

    @pytest.mark.parametrize("bug", ["less_noise", "half_sensitivity"])
    @pytest.mark.parametrize("method", [Quarter(), TwoPartitions()], ids=lambda one: one.name)
    def test_they_refute_the_proof_alone_of_a_broken_kernel(
        self, method: Method, bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transcript_attack, "_REPETITIONS", 1)
        {"less_noise": less_noise, "half_sensitivity": half_sensitivity}[bug](monkeypatch)
        outcome = audited(tmp_path, method, 8000, epsilon=4.0)
        audit, refutation = numbers(outcome), refutations([outcome])[outcome.row.key]
        assert audit.canary.endswith(OF_VECTORS)
        assert audit.p_claim == audit.replicated_p_claim == 1.0
        assert refutation.proof and not refutation.claim
        assert conclude(outcome, refutation).verdict == "proof refuted"
        text = report.report(outcome, refutation)
        assert text.count("claim not tested, proof") == 2, "of the first trials and the replication"

    def test_a_false_claim_is_refuted_by_own_rows(self, tmp_path: Path) -> None:
        outcome = audited(tmp_path, Quarter(share=1.0), 4000, epsilon=4.0)
        audit, refutation = numbers(outcome), refutations([outcome])[outcome.row.key]
        assert not audit.canary.endswith(OF_VECTORS)
        assert refutation.claim and not refutation.proof
        assert conclude(outcome, refutation).verdict == "claim refuted"
        assert "not tested" not in report.report(outcome, refutation)

    @pytest.mark.parametrize("canary", range(3))
    @pytest.mark.parametrize("number", [VECTORS, VECTORS + WILD])
    def test_of_two_partitions_with_the_same_names_one_part_each_is_replaced(
        self, number: int, canary: int
    ) -> None:
        """Each vote moves by twice the clip, as charged, whichever parts hold the canary."""
        answers = of(TwoPartitions(), canary, number, epsilon=4.0).answers
        moved = [answer.moved * 2.0**answer.grid.exponent for answer in answers]
        assert [one.tolist() for one in moved] == [[pytest.approx(2.0, rel=0.01)]] * 3

    def test_a_kernel_with_two_partitions_is_not_refuted(self, tmp_path: Path) -> None:
        outcome = audited(tmp_path, TwoPartitions(), 4000, epsilon=4.0)
        audit = numbers(outcome)
        assert audit.canary.endswith(OF_VECTORS) and audit.p_proof > 0.05
        assert refutations([outcome])[outcome.row.key].audited is None

    def test_a_client_has_them_in_both_worlds(self) -> None:
        method = registry.build_method("fedavg-client-dp", {})
        absent, worst = of(method), of(method, number=VECTORS)
        assert len(worst.answers[0].moved) == 1
        assert worst.strength > 4.0 * absent.strength > 0.0
        noise = target(method)
        assert noise.clients

    def test_many_entries_are_left_for_one_where_that_allows_more_trials(self) -> None:
        grid = Grid(-20, 10.0)
        wide = Transcript((Answer("gaussian", 1.0, grid, np.full(10**5, 2**12)),), 1)
        one = Transcript((Answer("gaussian", 1.0, grid, np.array([2**20])),), 1)
        assert transcript_attack._weaker(wide, one, 40_000)
        assert not transcript_attack._weaker(wide, one, 4000)
        assert not transcript_attack._weaker(one, one, 40_000)


class TestDelegated:
    def test_calls_are_compared_without_addresses(self) -> None:
        calls = [Call("delegate", (), mechanism=f"aim, <function f at 0x{n}> {n}") for n in "aab"]
        assert transcripts._alike(calls[0], calls[1])
        assert not transcripts._alike(calls[0], calls[2])

    @pytest.mark.parametrize(
        "name, parameter", [("smartnoise-mst", "rho"), ("smartnoise-mwem", "epsilon")]
    )
    def test_a_planted_bug_asks_for_less_noise(self, name: str, parameter: str) -> None:
        seen: list[float] = []

        def observe(rows: Any, encoder: Any, rng: Any, parameters: Any, inside: bool) -> float:
            seen.append(parameters[parameter])
            return 1.5

        entry = replace(TABLE[name], observe=observe)
        rows = TINY.train.rows
        call = transcripts._Delegated(entry, rows, TINY.encoder, {parameter: 0.1})
        recording = recorded(target(TwoSums()), TrialId(Stage.RECORD, 0, 0))
        recording = replace(recording, delegated=((call, call),))
        rng = np.random.default_rng(0)
        assert transcripts._observed(recording, rng, True) == 1.5
        transcripts._observed(recording, rng, True, PLANTED)
        noise = {"rho": lambda value: value**-0.5, "epsilon": lambda value: 1.0 / value}[parameter]
        assert noise(seen[1]) == pytest.approx(PLANTED * noise(seen[0]))


@final
@dataclass(frozen=True)
class OwnNoise(_Direct):
    """The noise of the second sum depends on the first answer, so that ledgers differ."""

    name: ClassVar[str] = "test-own-noise"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        clip = private.encoder.max_norm
        first = private.gaussian_sum(lambda rows: rows.values, clip, 6.0)
        private.gaussian_sum(lambda rows: rows.values, clip, 8.0 + float(first[0] > 0))
        private.gaussian_sum(lambda rows: rows.values, clip, 8.0 + float(first[1] > 0))
        private.gaussian_sum(lambda rows: rows.values, clip, 8.0 + float(first[2] > 0))
        return self.released(spec, private.width)


def test_noise_that_depends_on_answers_is_that_of_one_recorded_fit(tmp_path: Path) -> None:
    audit = numbers(audited(tmp_path, OwnNoise(), 4000, epsilon=4.0))
    assert "frozen" in audit.scorer and audit.planted is not None


class TestSelections:
    CHOICE = Choice(np.array([0.0, 0.7, 2.0]), np.array([0.5, 0.0, 3.0]))

    def test_the_weights_of_both_worlds_are_recorded_and_noisy_scores_too(self) -> None:
        transcript = of(Selecting())
        assert transcript.calls == 3
        assert len(transcript.choices) == 2 and len(transcript.answers) == 1
        for choice in transcript.choices:
            assert min(choice.outside) == min(choice.inside) == 0.0
            # epsilon bounds every ratio, and a Distance of one column uses most of it.
            assert 0.05 < np.abs(choice.ratios).max() <= 0.2
        wild = of(Selecting(), number=WILD)
        assert np.array_equal(wild.to_numbers(), transcript.to_numbers())

    def test_they_are_stored_as_numbers(self) -> None:
        transcript = of(Selecting())
        again = Transcript.of_numbers(transcript.to_numbers())
        assert np.array_equal(again.to_numbers(), transcript.to_numbers())
        assert len(again.choices) == 2 and again.strength == pytest.approx(transcript.strength)

    def test_a_strength_is_that_of_a_gaussian_of_the_same_divergence(self) -> None:
        ratio = self.CHOICE.ratios
        inside = np.exp(-self.CHOICE.inside) / np.exp(-self.CHOICE.inside).sum()
        assert self.CHOICE.strength == pytest.approx(2.0 * float(inside @ ratio))

    @pytest.mark.parametrize("world", [True, False])
    @pytest.mark.parametrize("factor", [1.0, 0.5])
    def test_replays_have_the_probabilities_of_their_world(
        self, world: bool, factor: float
    ) -> None:
        transcript = Transcript((), 1, (self.CHOICE,))
        noise: NoiseSource = SeededNoise(np.random.default_rng(3))
        used = noise if factor == 1.0 else Weakened(noise, factor)
        scores = replayed([transcript], 20_000, world, used)
        weights = np.exp(-(self.CHOICE.inside if world else self.CHOICE.outside) / factor)
        for ratio, share in zip(self.CHOICE.ratios, weights / weights.sum(), strict=True):
            seen = int(np.isclose(scores, ratio).sum())
            assert binom.ppf(1e-4, 20_000, share) <= seen <= binom.ppf(1 - 1e-4, 20_000, share)

    def test_an_audit_of_selections_refutes_nothing(self, tmp_path: Path) -> None:
        audit = numbers(audited(tmp_path, Selecting(), 2000))
        assert audit.replicated_p_proof > 0.05
        assert "3 of 3 noisy answers" in audit.scorer


class TestLighter:
    def test_the_largest_entries_are_kept_in_their_order(self) -> None:
        grid = Grid(-10, 2.0)
        moved = np.array([1, -90, 2, 40, -3, 10], dtype=np.int64)
        (kept,) = Transcript((Answer("gaussian", 1.0, grid, moved),), 1).lighter(0.98).answers
        assert kept.moved.tolist() == [-90, 40]
        (all_of_it,) = Transcript((Answer("gaussian", 1.0, grid, moved),), 1).lighter(1.0).answers
        assert all_of_it.moved.tolist() == moved.tolist()


class TestLikelihood:
    @pytest.mark.parametrize("scale", [0.7, 3.0, 2.0**13])
    def test_rounded_normal_by_its_masses(self, scale: float) -> None:
        noisy = np.array([-3.0, 0.0, 1.0, 2.0 * scale // 1])
        expected = [
            math.log(norm.cdf((x - 2 + 0.5) / scale) - norm.cdf((x - 2 - 0.5) / scale))
            - math.log(norm.cdf((x + 0.5) / scale) - norm.cdf((x - 0.5) / scale))
            for x in noisy
        ]
        ratio = normal_log_ratio(noisy, np.full(4, 2.0), scale)
        assert ratio == pytest.approx(expected, rel=1e-5, abs=1e-7)

    @pytest.mark.parametrize("scale", [0.7, 3.0, 500.0])
    def test_rounded_laplace_by_its_masses(self, scale: float) -> None:
        law, noisy = laplace(scale=scale), np.array([-3.0, 0.0, 1.0, 2.0, 9.0])
        expected = [
            math.log(law.cdf(x - 1.5) - law.cdf(x - 2.5))
            - math.log(law.cdf(x + 0.5) - law.cdf(x - 0.5))
            for x in noisy
        ]
        assert laplace_log_ratio(noisy, np.full(5, 2.0), scale) == pytest.approx(expected, rel=1e-6)

    def test_a_ratio_has_mean_one_without_the_canary(self) -> None:
        """E_out exp(score) = 1 for an exact likelihood ratio, whatever the mechanism."""
        grid = Grid(-20, 1.5)
        moved = np.array([2**20, -(2**19)], dtype=np.int64)
        answers = (
            Answer("gaussian", 1.0, grid, moved),
            Answer("gaussian", 0.3, grid, moved),
            Answer("laplace", 1.0, grid, moved),
            Answer("laplace", 0.3, grid, moved[:1]),
        )
        for answer in answers:
            one = [Transcript((answer,), 1)]
            out = np.exp(replayed(one, 40_000, False, SeededNoise(np.random.default_rng(1))))
            assert abs(out.mean() - 1.0) < 5.0 * out.std() / 200.0
            inside = np.exp(-replayed(one, 40_000, True, SeededNoise(np.random.default_rng(2))))
            assert abs(inside.mean() - 1.0) < 5.0 * inside.std() / 200.0

    def test_a_full_batch_transcript_is_a_gaussian_of_the_proven_mu(self) -> None:
        transcript = of(TwoSums(), epsilon=2.0)
        mu = math.sqrt(transcript.strength)
        scores = replayed([transcript], 20_000, False, SeededNoise(np.random.default_rng(0)))
        assert scores.mean() == pytest.approx(-mu * mu / 2, abs=4.5 * mu / math.sqrt(20_000))
        assert scores.std() == pytest.approx(mu, rel=0.03)


class TestAudit:
    def test_most_of_mu_is_found(self, tmp_path: Path) -> None:
        outcome = audited(tmp_path, TwoSums(), 20_000, epsilon=8.0)
        row, audit = outcome.row, numbers(outcome)
        assert row.eps_proven is not None and audit.eps_gaussian is not None
        assert 0.85 * row.eps_proven < audit.eps_gaussian
        assert "fixed questions" in audit.scorer and audit.planted is not None
        assert row.verdict == "sound"

    def test_most_of_a_sampled_epsilon_is_found(self, tmp_path: Path) -> None:
        outcome = audited(tmp_path, SampledSums(), 20_000, epsilon=8.0)
        row, audit = outcome.row, numbers(outcome)
        assert row.eps_proven is not None and audit.eps_curve is not None
        assert audit.eps_gaussian is None and 0.6 * row.eps_proven < audit.eps_curve

    def test_questions_that_depend_on_answers_are_frozen(self, tmp_path: Path) -> None:
        assert "questions of 4 fits, frozen" in numbers(audited(tmp_path, Adaptive(), 400)).scorer

    def test_the_same_audit_gives_the_same_numbers(self, tmp_path: Path) -> None:
        first, second = (
            numbers(audited(tmp_path / name, TwoSums(), 2000)) for name in ("one", "two")
        )
        assert first == second


# Planted bugs of the kernel ---


def less_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = NoiseSource.normal
    monkeypatch.setattr(
        NoiseSource, "normal", lambda self, scale, size: honest(self, 0.8 * scale, size)
    )


def half_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of `partition_sum` for a sensitivity of one clip instead of two."""

    class Halved(Grid):
        @staticmethod
        def of(scale: float, clip: float, columns: int) -> Grid:
            return Grid.of(scale / 2.0, clip, columns)

    monkeypatch.setattr(kernel, "Grid", Halved)


def rate_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events have half of the rate that rows are sampled with."""
    honest = NoiseSource.poisson_sample
    monkeypatch.setattr(
        NoiseSource,
        "poisson_sample",
        lambda self, rows, rate: honest(self, rows, min(1.0, 2.0 * rate)),
    )


def event_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reservation charges one event fewer than calls are made."""
    honest = PrivateData._admit

    def forgetful(self: PrivateData, plans: Any, trust: str = "") -> None:
        kept = [kernel.PlannedEvents(one.path, one.event, max(1, one.count - 1)) for one in plans]
        honest(self, kept, trust)

    monkeypatch.setattr(PrivateData, "_admit", forgetful)


BUGS: list[tuple[Callable[[pytest.MonkeyPatch], None], KnownCalls]] = [
    (less_noise, TwoSums()),
    (less_noise, SampledSums()),
    (half_sensitivity, Votes()),
    (rate_not_charged, SampledSums()),
    (event_dropped, TwoSums()),
]


@pytest.mark.parametrize(
    "bug, method", BUGS, ids=lambda one: getattr(one, "name", getattr(one, "__name__", ""))
)
def test_a_bug_of_the_kernel_refutes_the_proof(
    bug: Callable[[pytest.MonkeyPatch], None],
    method: KnownCalls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transcript_attack, "_REPETITIONS", 1)
    bug(monkeypatch)
    started = time.process_time()
    outcome = audited(tmp_path, method, 8000, epsilon=8.0)
    assert time.process_time() - started < 60.0
    refutation = refutations([outcome])[outcome.row.key]
    assert conclude(outcome, refutation).verdict == "proof refuted"


@pytest.mark.parametrize("method", [TwoSums(), SampledSums(), Votes()], ids=lambda one: one.name)
def test_without_a_bug_nothing_is_refuted(
    method: KnownCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_attack, "_REPETITIONS", 1)
    outcome = audited(tmp_path, method, 8000, epsilon=8.0)
    assert numbers(outcome).p_proof > 0.001
    assert refutations([outcome])[outcome.row.key].audited is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug, method", BUGS, ids=lambda one: getattr(one, "name", getattr(one, "__name__", ""))
)
def test_a_bug_is_found_at_epsilon_1_too(
    bug: Callable[[pytest.MonkeyPatch], None],
    method: KnownCalls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bug(monkeypatch)
    started = time.process_time()
    outcome = audited(tmp_path, method, 60_000)
    assert time.process_time() - started < 60.0
    refutation = refutations([outcome])[outcome.row.key]
    assert conclude(outcome, refutation).verdict == "proof refuted"


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", soundness.EPSILONS)
@pytest.mark.parametrize("method", soundness.MECHANISMS, ids=lambda one: one.name)
def test_exact_methods_are_seldom_refuted(method: KnownCalls, epsilon: float) -> None:
    """Over 200 repetitions, whose seeds alone differ."""
    counts = soundness.repeated(method, epsilon)
    assert counts.good, counts


def test_stored_repetitions_are_of_all_mechanisms_and_refute_at_most_5_percent() -> None:
    stored = soundness.read(Path("docs/audits/transcripts") / soundness.FILE)
    expected = {(one.name, epsilon) for epsilon in (1.0, 8.0) for one in soundness.MECHANISMS}
    assert {(one.mechanism, one.epsilon) for one in stored} == expected
    assert all(one.repetitions >= 200 and one.good for one in stored)


class TestRepetitions:
    COUNTS = soundness.Repeated(
        "m", 1.0, 200, 2000, direct=0, tighter=18, claim=3, proof=9, refuted=4
    )

    def test_limits_are_those_of_the_binomial(self) -> None:
        assert self.COUNTS.allowed == 18 and self.COUNTS.good
        assert binom.sf(18, 200, 0.05) <= 0.01 < binom.sf(17, 200, 0.05)
        assert binom.cdf(4, 200, self.COUNTS.highest) == pytest.approx(0.05, abs=1e-6)

    @pytest.mark.parametrize("worse", [{"refuted": 5}, {"tighter": 19}, {"proof": 19}])
    def test_more_errors_are_too_many(self, worse: dict[str, int]) -> None:
        assert not replace(self.COUNTS, **worse).good

    def test_a_kernel_with_less_noise_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        exact = soundness.repeated(TwoSums(), 8.0, repetitions=2)
        assert (exact.repetitions, exact.refuted, exact.proof) == (2, 0, 0)
        less_noise(monkeypatch)
        broken = soundness.repeated(TwoSums(), 8.0, repetitions=2)
        assert broken.refuted == broken.proof == broken.tighter == 2

    def test_they_are_stored(self, tmp_path: Path) -> None:
        file = tmp_path / soundness.FILE
        assert soundness.read(file) == ()
        soundness.write([self.COUNTS], file)
        assert soundness.read(file) == (self.COUNTS,)
        file.write_text("[1]")
        with pytest.raises(StoreError, match="no counts of repeated audits"):
            soundness.read(file)

    def test_the_page_shows_them(self) -> None:
        lines = report._soundness([self.COUNTS])
        assert "exceeds 18 of 200" in lines[0]
        assert "| m | 1 | 200 | 4 | 4.5% | 0 | 18 | 3 | 9 |" in lines[1]


def test_the_gaussian_bound_is_too_large_in_at_most_5_percent_by_enumeration() -> None:
    """All pairs of counts: the exact probability that the bound is above the true epsilon."""
    for epsilon in (1.0, 8.0):
        mu, n = gaussian_mu(epsilon, 1e-5), 30
        for cut in (-0.5, 0.0, 0.5):
            true, false = norm.cdf(mu / 2 - cut), norm.cdf(-mu / 2 - cut)
            hits, alarms = (binom.pmf(np.arange(n + 1), n, rate) for rate in (true, false))
            wrong = 0.0
            for alarm in range(n + 1):
                for hit in range(n, alarm, -1):
                    if gaussian_test_bound(Tally(hit, n, alarm, n), 1e-5) <= epsilon * (1 + 1e-9):
                        break
                    wrong += hits[hit] * alarms[alarm]
            assert wrong <= 0.05


class TestWholeClients:
    def test_a_client_is_left_out_whole(self) -> None:
        rows = TINY.train.rows
        half = len(rows) // 3
        parts = {"a": rows.take(np.arange(half)), "b": rows.take(np.arange(half, len(rows)))}
        largest, smallest = (without_client(TINY, parts, which) for which in (0, 2))
        assert np.array_equal(largest.train.rows.positions, parts["a"].positions)
        assert np.array_equal(smallest.train.rows.positions, parts["b"].positions)
        assert len(largest.train.frame) == half

    def test_a_federation_without_clients_has_no_canary(self) -> None:
        with pytest.raises(NotApplicable, match="no client to leave out"):
            without_client(TINY, {}, 0)


class TestNoiseFamily:
    def test_recorded_noise_gives_the_recorded_epsilon(self) -> None:
        release = recorded(target(SampledSums(), 2.0), TrialId(Stage.RECORD, 0, 0)).release
        assert release.ledger is not None
        family = NoiseFamily(release.ledger, {"split": "train"})
        assert family.exact and family.epsilon(0) == pytest.approx(2.0, rel=0.005)
        assert family.epsilon(10) < family.epsilon(0) < family.epsilon(-10)

    def test_counts_on_the_curve_give_about_its_epsilon(self) -> None:
        release = recorded(target(SampledSums(), 2.0), TrialId(Stage.RECORD, 0, 0)).release
        assert release.ledger is not None
        family = NoiseFamily(release.ledger, {"split": "train"})
        true = float(family.curve(0).frontier(np.array([0.2]))[0])
        bounds = [
            family.bound(Tally(round(n * true), n, round(0.2 * n), n)) for n in (1000, 100_000)
        ]
        assert bounds[0] < bounds[1] <= 2.0 and bounds[1] > 1.8

    def test_no_difference_gives_nothing(self) -> None:
        release = recorded(target(TwoSums()), TrialId(Stage.RECORD, 0, 0)).release
        assert release.ledger is not None
        assert NoiseFamily(release.ledger, {}).bound(Tally(10, 100, 12, 100)) == 0.0


class TestGaussianTestBound:
    @pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
    def test_it_is_above_the_rectangle_and_below_the_truth(self, mu: float) -> None:
        n = 20_000
        tally = Tally(round(n * norm.cdf(mu / 2)), n, round(n * norm.cdf(-mu / 2)), n)
        rectangle, exact = gaussian_bound(tally, 1e-5), gaussian_test_bound(tally, 1e-5)
        assert rectangle <= exact * 1.001 and exact < gaussian_epsilon(mu, 1e-5)

    def test_counts_without_error_or_difference(self) -> None:
        assert gaussian_test_bound(Tally(50, 100, 50, 100), 1e-5) == 0.0
        perfect = Tally(100, 100, 0, 100)
        assert gaussian_test_bound(perfect, 1e-5) == gaussian_bound(perfect, 1e-5)


def test_a_setting_is_one_line_with_both_kinds_of_audits() -> None:
    cell = instance_cell(TwoSums(), TINY, 1.0, AuditSpec("transcript", 400))
    audit = AuditRow(
        key="k", trials=320, refits=8, canary="c", scorer="s", threshold=0.0, false_positives=0.4,
        false_negatives=0.4, eps_gaussian=0.9, eps_detectable=5.0, p_claim=1.0, p_proof=1.0,
        planted=0.95, planted_bug="less noise",
    )  # fmt: skip
    outcomes = []
    for key, attack in (("k", "transcript"), ("l", "two-world")):
        asked = replace(cell, audit=AuditSpec(attack, 400))
        row = blank_row(asked, key, TINY, MethodFacts.of(TwoSums))
        row = replace(row, eps_claimed=1.0, eps_proven=1.0, eps_audited=0.5, verdict="sound")
        outcomes.append(Outcome(ended(row, Status.OK, ""), audit=replace(audit, key=key)))
    lines = [line for line in markdown_table(outcomes).splitlines() if "known-two-sums" in line]
    assert len(lines) == 1 and lines[0].count("≥ 0.5 (0.9 as Gaussian)") == 2
    assert "| 95% | 95% | 5; 5 | c; c | 320; 320 | sound |" in lines[0]
    text = page(outcomes)
    assert "the code that these methods use has changed since: known-two-sums." in text
    assert "At epsilon 1 the tightest bound of a method, on its best dataset, is 0.90 of" in text
    power = "| power against 0.8 of the noise: at least 90% | 1 | 95% | 1 of 1 | 1 of 1 | - |"
    assert power in text
    (transcript, release) = outcomes
    assert transcript.audit is not None
    weak = replace(transcript, audit=replace(transcript.audit, planted=0.5))
    assert "| 50% | 0 of 1 | 0 of 1 | known-two-sums (50%) |" in page([weak, release])


def test_the_page_says_whether_a_method_is_the_same_as_it_was() -> None:
    cell = instance_cell(
        registry.build_method("marginals", {}), TINY, 1.0, AuditSpec("transcript", 400)
    )
    row = ended(blank_row(cell, "k", TINY, MethodFacts.named("marginals")), Status.OK, "")
    assert report._made_by([row]).endswith("by the code of the methods as it is now.")
    older = replace(row, source_hash="other")
    assert report._made_by([row, older]).endswith("has changed since: marginals.")


def test_agreement_with_another_auditor() -> None:
    same = Compared("m", 4.0, 1.5, 1.5, 1.4)
    assert same.good and same.line.startswith("ok")
    assert not replace(same, theirs=1.6).good
    assert not replace(same, theirs_any=4.5).good


@pytest.mark.slow
def test_jax_privacy_gives_the_same_bounds() -> None:
    if inspect(ENVIRONMENT).state is not EnvironmentState.BUILT:
        pytest.skip("the environment is not built: bench audit --self-test --foreign")
    assert [one.good for one in compared()] == [True] * 3
