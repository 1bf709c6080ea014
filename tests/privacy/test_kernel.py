"""The kernel does to the rows what it records, and records what it does."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from bench import Budget, gaussian, laplace, sampled_gaussian
from bench.data.encoder import EncodedRows
from bench.errors import BudgetExceededError, PrivacyContractError
from bench.plugins.source import build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from bench.privacy.opening import open_private
from bench.results.verdicts import judge
from tests.support.kernel import BUDGET, DATASET, ones, opened
from tests.support.tables import ToySurvival


class TestNoiseHasTheRecordedScale:
    @pytest.mark.parametrize("source", [SeededNoise, SystemNoise], ids=["seeded", "system"])
    def test_gaussian_sum(self, source: type[NoiseSource]) -> None:
        noise = SystemNoise() if source is SystemNoise else SeededNoise(np.random.default_rng(1))
        private, _ = opened(noise=noise)
        clip, multiplier, size = 0.5, 3.0, 20_000
        answer = private.gaussian_sum(
            lambda rows: np.full((len(rows), size), 1.0), clip, multiplier
        )
        expected = len(DATASET.train) * clip / math.sqrt(size)
        standard = (answer - expected) / (clip * multiplier)
        assert stats.kstest(standard, "norm").pvalue > 1e-6

    @pytest.mark.parametrize("source", [SeededNoise, SystemNoise], ids=["seeded", "system"])
    def test_laplace_histogram(self, source: type[NoiseSource]) -> None:
        noise = SystemNoise() if source is SystemNoise else SeededNoise(np.random.default_rng(1))
        private, _ = opened(noise=noise)
        (answer,) = private.histograms(
            lambda rows: np.zeros((len(rows), 1)), [20_000], 4.0, mechanism="laplace"
        )
        assert stats.kstest(answer[1:] / 4.0, "laplace").pvalue > 1e-6

    def test_histograms_scale_with_the_root_of_the_number_of_binnings(self) -> None:
        private, _ = opened()
        answers = private.histograms(lambda rows: np.full((len(rows), 4), -1), [5000] * 4, 2.0)
        assert np.std(np.concatenate(answers)) == pytest.approx(2.0 * math.sqrt(4), rel=0.03)

    def test_partition_sum_has_twice_the_clip_as_sensitivity(self) -> None:
        private, ledger = opened()
        models = private.fit_parts(private.partition("teacher", parts=5), lambda rows, _: len(rows))
        answer = private.partition_sum(models, lambda _: np.zeros(20_000), 1.5, 2.0)
        assert np.std(answer) == pytest.approx(2 * 1.5 * 2.0, rel=0.03)
        assert [entry.event for entry in ledger.entries] == [gaussian(2.0)]
        assert next(iter(ledger.entries)).path == (("split", "train"),)


class TestSampling:
    @pytest.mark.parametrize("source", [SeededNoise, SystemNoise], ids=["seeded", "system"])
    def test_rate_is_as_recorded_and_rows_are_chosen_independently(
        self, source: type[NoiseSource]
    ) -> None:
        noise = SystemNoise() if source is SystemNoise else SeededNoise(np.random.default_rng(2))
        rows, rate, draws = 40, 0.3, 4000
        member = np.zeros((draws, rows))
        for draw in range(draws):
            chosen = noise.poisson_sample(rows, rate)
            assert len(set(chosen)) == len(chosen)
            member[draw, chosen] = 1
        # Each row at its rate, the size binomial, and pairs uncorrelated: a Poisson sample.
        assert np.abs(member.mean(axis=0) - rate).max() < 5 * math.sqrt(rate * 0.7 / draws)
        assert member.sum(axis=1).var() == pytest.approx(rows * rate * (1 - rate), rel=0.12)
        pairs = np.corrcoef(member.T)[np.triu_indices(rows, 1)]
        assert np.abs(pairs).max() < 6 / math.sqrt(draws)

    def test_a_sampled_sum_is_the_sum_over_the_sample(self) -> None:
        private, _ = opened()
        sums = [private.poisson_sum(ones, 1.0, 1e-6, 0.25)[0] for _ in range(300)]
        assert np.mean(sums) == pytest.approx(0.25 * len(DATASET.train), rel=0.02)

    def test_rate_follows_the_declared_count(self) -> None:
        part = opened()[0].partition("class")["1"]
        assert part.counts.total == 120
        assert part.rate(30) == pytest.approx(0.25)
        assert part.rate(500) == 1.0


class TestClipping:
    def test_each_vector_is_clipped_to_the_norm(self) -> None:
        private, _ = opened()
        answer = private.gaussian_sum(lambda rows: np.full((len(rows), 4), 1e6), 2.0, 1e-9)
        assert answer == pytest.approx(np.full(4, len(DATASET.train) * 1.0), rel=1e-6)

    def test_short_vectors_are_unchanged(self) -> None:
        private, _ = opened()
        answer = private.gaussian_sum(lambda rows: np.full((len(rows), 1), 0.25), 1.0, 1e-9)
        assert answer[0] == pytest.approx(0.25 * len(DATASET.train), rel=1e-6)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
    def test_non_finite_and_overflowing_vectors_cannot_break_the_bound(self, bad: float) -> None:
        private, _ = opened()

        def function(rows: EncodedRows) -> np.ndarray:
            vectors = np.ones((len(rows), 2))
            vectors[0, 0] = bad
            return vectors

        answer = private.gaussian_sum(function, math.sqrt(2), 1e-9)
        assert np.isfinite(answer).all()
        # Removing the bad row moves the sum by no more than the clip.
        assert np.linalg.norm(answer - (len(DATASET.train) - 1)) <= math.sqrt(2) + 1e-6


class TestHistogramCodes:
    @pytest.mark.filterwarnings("error")
    def test_codes_that_are_no_bins_count_nowhere_and_warn_of_nothing(self) -> None:
        """A conversion of NaN or 1e300 to an integer is not defined, and warns of the rows."""
        private, _ = opened()
        strange = [math.nan, math.inf, -math.inf, 1e300, -1e300, 2.0**63, -0.5, -1.0, 3.0, 1e18]

        def codes(rows: EncodedRows) -> np.ndarray:
            numbers = np.ones((len(rows), 1))
            numbers[: len(strange), 0] = strange
            return numbers

        (answer,) = private.histograms(codes, [3], 1e-9)
        assert answer == pytest.approx([0.0, len(DATASET.train) - len(strange), 0.0], abs=1e-6)

    def test_a_code_counts_in_the_bin_that_it_lies_in(self) -> None:
        private, _ = opened()
        (answer,) = private.histograms(lambda rows: np.full((len(rows), 1), 1.9), [3], 1e-9)
        assert answer == pytest.approx([0.0, len(DATASET.train), 0.0], abs=1e-6)


class TestRecord:
    def test_every_call_is_recorded_with_its_event_and_path(self) -> None:
        private, ledger = opened()
        private.gaussian_sum(ones, 1.0, 2.0)
        private.poisson_sum(ones, 1.0, 3.0, 0.1)
        private.partition("class")["0"].histograms(lambda r: r.labels[:, None], [2], 4.0)
        train = ("split", "train")
        assert {(entry.path, entry.event): count for entry, count in ledger.entries.items()} == {
            ((train,), gaussian(2.0)): 1,
            ((train,), sampled_gaussian(0.1, 3.0)): 1,
            ((train, ("class", "0")), gaussian(4.0)): 1,
        }

    def test_an_event_not_reserved_before_an_output_is_adaptive(self) -> None:
        private, ledger = opened(BUDGET)
        private.reserve(gaussian(20.0), 2)
        for _ in range(3):
            private.gaussian_sum(ones, 1.0, 20.0)
        flags = sorted((entry.adaptive, count) for entry, count in ledger.entries.items())
        assert flags == [(False, 2), (True, 1)]

    def test_validation_rows_are_charged_separately(self) -> None:
        private, ledger = opened()
        assert private.validation is not None
        private.reserve(gaussian(5.0))
        alone = ledger.proof().epsilon
        private.validation.reserve(gaussian(5.0))
        private.validation.gaussian_sum(ones, 1.0, 5.0)
        assert {entry.path[0][1] for entry in ledger.entries} == {"train", "validation"}
        assert ledger.proof().epsilon == alone

    def test_raw_returns_the_rows_and_makes_epsilon_infinite_for_its_reason(self) -> None:
        private, ledger = opened()
        assert len(private.raw("a test")) == len(DATASET.train)
        proof = ledger.proof()
        assert math.isinf(proof.epsilon) and proof.reasons == ("a test",)
        with pytest.raises(PrivacyContractError, match="reason"):
            private.raw("  ")

    def test_non_private_access_with_a_claim_is_unproven(self) -> None:
        from bench.plugins.release import Claim

        private, ledger = opened(BUDGET)
        private.raw("standardised with the rows")
        claim = Claim(1.0, 1e-5, "the paper")
        judged = judge(BUDGET, claim, ledger.proof())
        assert judged.text == "unproven" and "standardised with the rows" in judged.reason


class TestBudget:
    def test_reserving_too_much_is_refused_and_nothing_is_charged(self) -> None:
        private, ledger = opened(BUDGET)
        with pytest.raises(BudgetExceededError, match=r"over the budget of 1 "):
            private.reserve(gaussian(1.0))
        assert not ledger.entries

    def test_calls_beyond_the_budget_are_refused(self) -> None:
        private, ledger = opened(BUDGET)
        noise = private.calibrate(lambda s: [private.plan(gaussian(s))])
        private.reserve(gaussian(noise))
        private.gaussian_sum(ones, 1.0, noise)
        with pytest.raises(BudgetExceededError):
            private.gaussian_sum(ones, 1.0, noise)
        assert ledger.proof().epsilon <= 1.0

    def test_repeated_calls_add_up_until_the_budget_refuses_one(self) -> None:
        """Unreserved calls with the same noise are the same event: each of them counts."""
        private, ledger = opened(BUDGET)
        answered = 0
        with contextlib.suppress(BudgetExceededError):
            for _ in range(200):
                private.gaussian_sum(ones, 1.0, 20.0)
                answered += 1
        assert sum(ledger.entries.values()) == answered
        # By hand: RDP of the Gaussian at one order (Mironov 2017, proposition 7), converted to
        # (epsilon, delta). As many calls as fit are answered, and not one more.
        order = ledger.order
        rest = math.log1p(-1 / order) - (math.log(1e-5) + math.log(order)) / (order - 1)
        assert answered * order / (2 * 20.0**2) + rest <= 1.0
        assert (answered + 1) * order / (2 * 20.0**2) + rest > 1.0

    def test_what_is_reserved_twice_is_charged_twice(self) -> None:
        private, ledger = opened(BUDGET)
        private.reserve(gaussian(20.0), 2)
        private.reserve(gaussian(20.0), 3)
        assert list(ledger.entries.values()) == [5]
        with pytest.raises(BudgetExceededError):
            private.reserve(gaussian(20.0), 195)
        assert list(ledger.entries.values()) == [5]

    def test_a_reservation_stays_charged_though_unused(self) -> None:
        private, ledger = opened(BUDGET)
        private.reserve(gaussian(5.0))
        assert ledger.proof().epsilon > 0.5

    @pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 10.0])
    def test_calibrated_noise_meets_the_budget_closely(self, epsilon: float) -> None:
        private, _ = opened(Budget(epsilon, 1e-5))
        parts = private.partition("class").values()

        def plans(noise: float) -> list:
            return [part.plan(sampled_gaussian(part.rate(20), noise), 30) for part in parts]

        noise = private.calibrate(plans)
        private.reserve_all(plans(noise))
        spent = private._vault.ledger.proof().epsilon
        assert 0.995 * epsilon <= spent <= epsilon
        with pytest.raises(BudgetExceededError):
            opened(Budget(epsilon, 1e-5))[0].reserve_all(plans(noise * 0.99))

    def test_calibrated_noise_falls_as_epsilon_grows(self) -> None:
        noises = []
        for epsilon in (0.5, 1.0, 3.0, 10.0):
            private, _ = opened(Budget(epsilon, 1e-5))
            noises.append(
                private.calibrate(lambda s, p=private: [p.plan(sampled_gaussian(0.1, s), 100)])
            )
        assert noises == sorted(noises, reverse=True)

    def test_calibration_counts_what_is_already_charged(self) -> None:
        private, ledger = opened(BUDGET)
        first = private.calibrate(lambda s: [private.plan(laplace(s))], epsilon=0.3)
        private.reserve(laplace(first))
        assert ledger.proof().epsilon == pytest.approx(0.3, rel=0.01)
        second = private.calibrate(lambda s: [private.plan(gaussian(s))])
        private.reserve(gaussian(second))
        assert 0.99 <= ledger.proof().epsilon <= 1.0

    def test_no_budget_no_calibration(self) -> None:
        private, _ = opened()
        with pytest.raises(PrivacyContractError, match="needs a budget"):
            private.calibrate(lambda s: [private.plan(gaussian(s))])


class TestContractOfRowFunctions:
    def test_a_width_that_depends_on_the_rows_is_caught(self) -> None:
        private, _ = opened(check_rows=True)
        with pytest.raises(PrivacyContractError, match="fails when there are no rows"):
            private.gaussian_sum(lambda rows: np.eye(rows.labels.max() + 1)[rows.labels], 1.0, 1.0)

    def test_a_function_that_fails_for_no_rows_gets_advice(self) -> None:
        private, _ = opened(check_rows=True)
        with pytest.raises(PrivacyContractError, match="write lengths out"):
            private.gaussian_sum(lambda rows: rows.values.reshape(len(rows), -1), 1.0, 1.0)

    def test_rows_cannot_be_changed_in_place(self) -> None:
        private, _ = opened()

        def vandal(rows: EncodedRows) -> np.ndarray:
            rows.values[:] = 0
            return rows.values

        with pytest.raises(ValueError, match="read-only"):
            private.gaussian_sum(vandal, 1.0, 1.0)

    def test_the_noise_scale_does_not_follow_a_small_number_type(self) -> None:
        private, _ = opened()
        answer = private.gaussian_sum(
            lambda rows: np.zeros((len(rows), 5000)), np.int8(100), np.int8(2)
        )
        assert np.std(answer) == pytest.approx(200, rel=0.05)

    def test_a_function_that_mixes_rows_is_caught(self) -> None:
        private, _ = opened(check_rows=True)
        with pytest.raises(PrivacyContractError, match="row by row"):
            private.gaussian_sum(lambda rows: rows.values - rows.values.mean(axis=0), 1.0, 1.0)
        private.gaussian_sum(lambda rows: rows.values, 1.0, 1.0)

    @pytest.mark.parametrize("wrong", [lambda rows: rows.labels, lambda rows: rows.values[:-1]])
    def test_shape_is_one_vector_per_row(self, wrong: Callable[[EncodedRows], np.ndarray]) -> None:
        with pytest.raises(PrivacyContractError, match="one vector per row"):
            opened()[0].gaussian_sum(wrong, 1.0, 1.0)

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda rows: [["secret 4711"]] * len(rows),
            lambda rows: [[1.0] * (number % 2 + 1) for number in range(len(rows))],
            lambda rows: None,
        ],
    )
    def test_answers_that_are_no_numbers_are_refused_unquoted(
        self, wrong: Callable[[EncodedRows], object]
    ) -> None:
        with pytest.raises(PrivacyContractError) as refusal:
            opened()[0].gaussian_sum(wrong, 1.0, 1.0)
        assert "4711" not in str(refusal.value) and refusal.value.__cause__ is None

    @pytest.mark.parametrize(
        "clip, noise",
        [(0, 1), (1, 0), (-1, 1), (math.nan, 1), (1, math.inf), (1e-310, 1), (1e300, 1)],
    )
    def test_meaningless_mechanisms_are_refused(self, clip: float, noise: float) -> None:
        private, ledger = opened()
        with pytest.raises(PrivacyContractError, match="positive"):
            private.gaussian_sum(ones, clip, noise)
        assert not ledger.entries

    def test_torch_answers_are_accepted(self) -> None:
        import torch

        private, _ = opened()
        answer = private.gaussian_sum(
            lambda rows: torch.as_tensor(rows.values).requires_grad_(), 10.0, 1e-9
        )
        assert answer == pytest.approx(DATASET.train.rows.values.sum(axis=0), rel=1e-3, abs=1e-3)


class TestPrivateCounts:
    def test_counts_are_charged_and_all_later_events_are_adaptive(self) -> None:
        private, ledger = opened(BUDGET, private_counts=True)
        assert private.counts.paid and private.counts != DATASET.counts
        assert private.validation is not None and private.validation.counts.paid
        assert private.counts.total == pytest.approx(DATASET.counts.total, abs=400)
        noise = private.calibrate(lambda s: [private.plan(gaussian(s))])
        private.reserve(gaussian(noise))
        private.gaussian_sum(ones, 1.0, noise)
        proof = ledger.proof()
        assert proof.epsilon == 1.0 and "adaptive" in proof.accountant
        assert 0.99 <= ledger.spent()[0] <= 1.0
        assert laplace(1 / 0.05) in {entry.event for entry in ledger.entries}

    def test_declared_counts_do_not_follow_the_rows(self) -> None:
        from dataclasses import replace

        from bench.data.dataset import Split

        fewer = DATASET.train.rows.take(np.arange(10))
        dataset = replace(DATASET, train=Split(DATASET.train.frame, fewer))
        private, _ = open_private(dataset, BUDGET, SeededNoise(np.random.default_rng(0)))
        assert private.counts == DATASET.counts


def test_the_ledger_replays_from_its_file() -> None:
    private, ledger = opened(Budget(3.0, 1e-5))
    private.reserve(sampled_gaussian(0.1, 2.0), 20)
    for part in private.partition("class").values():
        part.reserve(gaussian(4.0))
    for part in private.partition("class").values():
        part.gaussian_sum(ones, 1.0, 4.0)
    assert Ledger.from_json(ledger.to_json()).proof() == ledger.proof()
    assert ledger.proof().accountant == "PLD"
    private.gaussian_sum(ones, 1.0, 30.0)
    replayed = Ledger.from_json(ledger.to_json())
    assert replayed.proof() == ledger.proof()
    assert replayed.to_json() == ledger.to_json()
    private.raw("a test")
    assert Ledger.from_json(ledger.to_json()).proof().reasons == ("a test",)


def test_a_ledger_of_the_first_releases_is_read() -> None:
    private, ledger = opened(BUDGET)
    private.reserve(gaussian(9.0))
    text = ledger.to_json().replace('"format_version"', '"form"')
    assert Ledger.from_json(text).proof() == ledger.proof()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"format_version": 99}',
        '{"format_version": 1, "adjacency": "replace-one"}',
        '{"format_version": 1, "adjacency": "add-remove", "unit": "row", "target_epsilon": 1,'
        '"delta": 1e-5, "order": 5, "entries": [{"path": [], "event": {"kind": "os.system"},'
        '"count": 1, "adaptive": false, "reason": "", "trust": ""}]}',
    ],
)
def test_an_unreadable_ledger_file_is_refused(text: str) -> None:
    from bench.errors import InputError

    with pytest.raises(InputError, match="not a ledger"):
        Ledger.from_json(text)


def test_inferred_bounds_are_non_private_access() -> None:
    from dataclasses import replace

    declaration = replace(DATASET.declaration, schema=replace(DATASET.schema, inferred=True))
    dataset = replace(DATASET, declaration=declaration)
    _, ledger = open_private(dataset, BUDGET, SeededNoise(np.random.default_rng(0)))
    assert "inferred from the rows" in ledger.proof().reasons[0]


def test_survival_classes_are_event_statuses() -> None:
    dataset = build_dataset(ToySurvival())
    private, _ = open_private(dataset, None, SeededNoise(np.random.default_rng(0)))
    parts = private.partition("class")
    assert list(parts) == ["0", "1"]
    assert [part.counts.total for part in parts.values()] == list(dataset.counts.by_class)
    assert private.width == 3  # risk, arm and the time
