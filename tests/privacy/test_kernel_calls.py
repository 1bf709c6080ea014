"""Single calls of the kernel: scale, refusals, what counts as an output, room for rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench import Budget, PrivateData, gaussian, laplace
from bench.data.dataset import Counts
from bench.data.encoder import EncodedRows
from bench.data.schema import Task
from bench.errors import BudgetExceededError, PrivacyContractError
from bench.privacy import kernel
from bench.privacy.kernel import PlannedEvents, Vault
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.privacy.partition import mixed_positions
from bench.privacy.trusted.table import TrustedMechanism
from tests.support.kernel import BUDGET, DATASET, ones, opened

ENTRY = TrustedMechanism(
    "count", "numpy", (), lambda _: gaussian(6.0), lambda rows, e, g, p: len(rows), "plugin"
)


def no_codes(rows: EncodedRows) -> np.ndarray:
    return np.full((len(rows), 4), -1.0)


class TestHistograms:
    def test_laplace_noise_scales_with_the_number_of_binnings(self) -> None:
        """One row moves a count in each of k binnings: k in L1. |X| of scale b has mean b."""
        answers = opened()[0].histograms(no_codes, [5000] * 4, 2.0, mechanism="laplace")
        assert np.abs(np.concatenate(answers)).mean() == pytest.approx(2.0 * 4, rel=0.03)

    def test_the_event_is_that_of_the_mechanism(self) -> None:
        for mechanism, event in (("laplace", laplace(2.0)), ("gaussian", gaussian(2.0))):
            private, ledger = opened()
            private.histograms(no_codes, [3] * 4, 2.0, mechanism=mechanism)  # type: ignore[arg-type]
            assert ledger.entries == {next(iter(ledger.entries)): 1}
            assert next(iter(ledger.entries)).event == event

    def test_one_column_per_binning(self) -> None:
        for bins in ([3] * 3, [3] * 5):
            with pytest.raises(PrivacyContractError, match=f"4 columns for {len(bins)} binnings"):
                opened()[0].histograms(no_codes, bins, 1.0)


class TestRates:
    @pytest.mark.parametrize("rate", [1.0 + 2.0**-52, 1.5, 2.0])
    def test_above_one_is_refused_and_charges_nothing(self, rate: float) -> None:
        private, ledger = opened()
        with pytest.raises(PrivacyContractError, match="not in"):
            private.poisson_sum(ones, 1.0, 1.0, rate)
        assert not ledger.entries and not private.adaptive

    def test_one_is_the_whole(self) -> None:
        private, ledger = opened()
        total = private.poisson_sum(ones, 1.0, 1e-9, 1.0)[0]
        assert total == pytest.approx(len(DATASET.train), rel=1e-3)
        assert [entry.event for entry in ledger.entries] == [gaussian(1e-9)]

    @pytest.mark.parametrize("total, expected, rate", [(0, 1, 1.0), (1, 1, 1.0), (4, 1, 0.25)])
    def test_follow_a_declared_count_of_one_at_least(
        self, total: int, expected: int, rate: float
    ) -> None:
        private, _ = opened()
        private.counts = Counts(total, (total, 0))
        assert private.rate(expected) == rate


class TestOutputs:
    """What leaves the kernel may decide later parameters: from then on accounting is adaptive."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda private: private.gaussian_sum(ones, 1.0, 9.0),
            lambda private: private.poisson_sum(ones, 1.0, 9.0, 0.5),
            lambda private: private.histograms(no_codes, [3] * 4, 9.0),
            lambda private: private.delegate(ENTRY),
            lambda private: private.raw("a test"),
        ],
        ids=["gaussian_sum", "poisson_sum", "histograms", "delegate", "raw"],
    )
    def test_every_answer_is_one(self, call: Callable[[PrivateData], Any]) -> None:
        private, ledger = opened(Budget(10.0, 1e-5))
        part = private.partition("class")["1"]
        assert private.adaptive is part.adaptive is False
        call(private)
        assert private.adaptive is part.adaptive is True
        part.reserve(gaussian(8.0))
        assert [entry.adaptive for entry in ledger.entries] == [False, True]

    def test_a_plan_and_a_reservation_are_none(self) -> None:
        private, ledger = opened(Budget(10.0, 1e-5))
        private.plan(gaussian(9.0))
        private.reserve(gaussian(9.0))
        private.partition("class")
        assert not private.adaptive and len(ledger.entries) == 1

    def test_a_reserved_call_is_used_up(self) -> None:
        """Two reserved calls are paid for; the third is charged, as adaptive."""
        private, ledger = opened(Budget(10.0, 1e-5))
        private.reserve(gaussian(9.0))
        private.reserve(gaussian(9.0))
        counts = []
        for _ in range(3):
            private.gaussian_sum(ones, 1.0, 9.0)
            counts.append(sorted((entry.adaptive, n) for entry, n in ledger.entries.items()))
        assert counts == [[(False, 2)], [(False, 2)], [(False, 2), (True, 1)]]

    def test_a_reservation_holds_on_its_own_part_only(self) -> None:
        private, ledger = opened(Budget(10.0, 1e-5))
        parts = private.partition("class")
        parts["0"].reserve(gaussian(9.0))
        parts["1"].gaussian_sum(ones, 1.0, 9.0)
        assert sorted(entry.path[-1] for entry in ledger.entries) == [
            ("class", "0"),
            ("class", "1"),
        ]

    def test_plans_of_no_calls_cost_nothing(self) -> None:
        private, ledger = opened(BUDGET)
        private.reserve_all([private.plan(gaussian(1e-6), 0), private.plan(gaussian(20.0), 2)])
        assert list(ledger.entries.values()) == [2]
        noise = private.calibrate(
            lambda s: [private.plan(gaussian(1e-6), 0), private.plan(gaussian(s))]
        )
        assert 1.0 < noise < 20.0


class TestDefaults:
    def test_a_planned_event_is_one_call(self) -> None:
        private, ledger = opened(BUDGET)
        private.reserve_all([PlannedEvents((("split", "train"),), gaussian(20.0))])
        private.gaussian_sum(ones, 1.0, 20.0)
        assert list(ledger.entries.values()) == [1]

    def test_the_kernels_own_mechanisms_trust_nobody(self) -> None:
        private, ledger = opened(BUDGET)
        private.reserve(gaussian(30.0))
        for _ in range(2):
            private.gaussian_sum(ones, 1.0, 30.0)
        assert len(ledger.entries) == 2 and ledger.proof().trust == ()

    def test_a_vault_has_answered_nothing_and_evaluates_rows_once(self) -> None:
        vault = Vault(Ledger(), SeededNoise(np.random.default_rng(0)))
        private = PrivateData(DATASET.train.rows, DATASET.encoder, DATASET.counts, vault, ())
        assert not private.adaptive and vault.public_entropy == 0
        asked = []

        def function(rows: EncodedRows) -> np.ndarray:
            asked.append(len(rows))
            return np.ones((len(rows), 1))

        private.gaussian_sum(function, 1.0, 1.0)
        assert asked == [len(DATASET.train)]


class TestBudget:
    def test_room_for_rounding_is_a_billionth(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for share, admitted in ((1.0, True), (1.0 + 0.5e-9, True), (1.0 + 2e-9, False)):
            monkeypatch.setattr(
                Ledger, "spent", lambda self, tight=True, share=share: (3.0 * share, "PLD")
            )
            private, ledger = opened(Budget(3.0, 1e-5))
            if admitted:
                private.reserve(gaussian(1.0))
            else:
                with pytest.raises(BudgetExceededError):
                    private.reserve(gaussian(1.0))
            assert len(ledger.entries) == admitted

    def test_a_refusal_lists_all_that_was_asked_for(self) -> None:
        private, _ = opened(BUDGET)
        asked = r"^2 x Gaussian noise, multiplier 0\.5; 3 x Laplace noise, multiplier 1 would"
        with pytest.raises(BudgetExceededError, match=asked):
            private.reserve_all([private.plan(gaussian(0.5), 2), private.plan(laplace(1.0), 3)])

    def test_calibration_asks_rdp_first_unless_it_is_adaptive(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PLD takes longer. Adaptive accounting is RDP anyway."""
        given: list[Any] = []

        def search(epsilon_of: Any, target: float, quick: Any) -> float:
            given.append((epsilon_of, target, quick))
            return 5.0

        monkeypatch.setattr(kernel, "calibrate_noise", search)
        private, _ = opened(Budget(2.0, 1e-5))

        def plans(noise: float) -> list[kernel.PlannedEvents]:
            return [private.plan(gaussian(noise))]

        private.calibrate(plans)
        epsilon_of, target, quick = given[0]
        fixed = Ledger(Budget(2.0, 1e-5))
        fixed.add(kernel.Entry((("split", "train"),), gaussian(4.0)))
        assert target == 2.0
        assert epsilon_of(4.0) == fixed.spent()[0] < quick(4.0) == fixed.spent(tight=False)[0]
        private.calibrate(plans, epsilon=0.5)
        private.calibrate(plans, epsilon=7.0)
        assert [target for _, target, _ in given] == [2.0, 0.5, 2.0]
        private.gaussian_sum(ones, 1.0, 30.0)
        private.calibrate(plans)
        assert given[-1][2] is None


class TestPartsOfTheKernel:
    def test_a_task_and_a_width(self) -> None:
        private, _ = opened()
        assert private.task is Task.CLASSIFICATION
        assert private.width == DATASET.encoder.width == private.raw("width").values.shape[1]

    def test_random_parts_follow_from_the_path(self) -> None:
        """Another name, or another parent, cuts the rows in another way; always the same one."""
        private, _ = opened()
        for parent, where in (
            (private, "split=train/teacher/3="),
            (private.partition("class")["1"], "split=train/class=1/teacher/3="),
        ):
            positions = mixed_positions(parent._rows.positions, where)
            parts = parent.partition("teacher", parts=3)
            assert [len(part._rows) for part in parts.values()] == [
                sum(int(3 * position) == number for position in positions) for number in range(3)
            ]

    def test_one_part_is_enough(self) -> None:
        private, _ = opened()
        models = private.fit_parts(private.partition("all", parts=1), lambda rows, _: len(rows))
        assert private.partition_sum(models, lambda _: [0.5], 1.0, 1e-9) == pytest.approx([0.5])
        assert private.part_vectors(models, lambda _: [0.5], 1.0, 1e-9).shape == (1, 1)

    def test_an_answer_of_a_part_that_is_no_number_is_refused_as_such(self) -> None:
        private, _ = opened()
        models = private.fit_parts(private.partition("class"), lambda rows, _: "secret")
        with pytest.raises(PrivacyContractError, match="the answer of a part returned") as refusal:
            private.partition_sum(models, lambda model: [model], 1.0, 1.0)
        assert "secret" not in str(refusal.value)

    def test_a_shape_is_kept(self) -> None:
        private, _ = opened()
        models = private.fit_parts(private.partition("class"), lambda rows, _: len(rows))
        total = private.partition_sum(models, lambda _: np.eye(2), 2.0, 1e-9)
        assert total == pytest.approx(2 * np.eye(2), abs=1e-6)
        vectors = private.part_vectors(models, lambda _: np.eye(2), 2.0, 1e-9)
        assert vectors == pytest.approx(np.tile(np.eye(2).ravel(), (2, 1)), abs=1e-6)


class TestClientsAsUnit:
    def opened(self) -> PrivateData:
        noise = SeededNoise(np.random.default_rng(0))
        return open_private(DATASET, BUDGET, noise, unit="client")[0]

    def test_a_library_that_hides_rows_is_refused(self) -> None:
        private = self.opened()
        with pytest.raises(PrivacyContractError, match="unit of privacy is the client"):
            private.delegate(ENTRY)
        assert not private._vault.ledger.entries

    def test_non_private_access_is_recorded_all_the_same(self) -> None:
        private = self.opened()
        private.raw("a test")
        assert math.isinf(private._vault.ledger.proof().epsilon)


class TestSecureNoise:
    def test_a_library_with_a_secure_mode_is_called_in_it(self) -> None:
        """Seeded cells must be reproducible; others draw from the operating system."""
        from dataclasses import replace

        from bench.privacy.noise import SystemNoise

        both = replace(ENTRY, run_secure=lambda rows, encoder, parameters: "secure")
        assert opened(noise=SystemNoise())[0].delegate(both) == "secure"
        assert opened()[0].delegate(both) == len(DATASET.train)
        assert opened(noise=SystemNoise())[0].delegate(ENTRY) == len(DATASET.train)
