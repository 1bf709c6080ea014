"""Parts of the data, and mechanisms of other libraries."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version as installed

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from bench import PrivateData, gaussian
from bench.data.encoder import EncodedRows
from bench.errors import BudgetExceededError, InputError, PrivacyContractError, UnknownNameError
from bench.privacy.clients import SkewedClients
from bench.privacy.kernel import PlannedEvents
from bench.privacy.ledger import Ledger
from bench.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from bench.privacy.opening import open_private
from bench.privacy.trusted.table import TrustedMechanism
from bench.results.verdicts import judge
from tests.support.kernel import BUDGET, DATASET, ones, opened


class TestParts:
    def test_parts_are_disjoint_and_cover_the_rows(self) -> None:
        private, _ = opened()
        for parts in (
            private.partition("class"),
            private.partition("client", parts=7),
            private.partition(
                lambda rows: np.where(rows.values[:, 0] > 0, "old", "young"),
                ["old", "young"],
                name="age band",
            ),
        ):
            together = np.concatenate([part._rows.positions for part in parts.values()])
            assert sorted(together) == sorted(DATASET.train.rows.positions)

    def test_an_absent_class_is_an_empty_part_that_returns_noise(self) -> None:
        from dataclasses import replace

        from bench.data.dataset import Split

        only = DATASET.train.rows.take(DATASET.train.rows.labels == 0)
        dataset = replace(DATASET, train=Split(DATASET.train.frame, only))
        private, ledger = open_private(dataset, None, SeededNoise(np.random.default_rng(0)))
        part = private.partition("class")["1"]
        assert len(part._rows) == 0 and part.counts.total == 120
        answer = part.poisson_sum(lambda rows: rows.values, 1.0, 1.0, 0.5)
        assert np.isfinite(answer).all() and np.abs(answer).max() > 0
        assert len(ledger.entries) == 1

    def test_part_vectors_are_clipped_noised_at_twice_the_clip_and_charged_once(self) -> None:
        private, ledger = opened()
        models = private.fit_parts(private.partition("slot", parts=400), lambda rows, _: len(rows))
        vectors = private.part_vectors(models, lambda count: np.full(25, 1e6), 2.0, 4.0)
        assert vectors.shape == (400, 25)
        # Each vector is clipped to norm 2: 0.4 per coordinate; the noise has deviation 2 * 2 * 4.
        assert vectors.mean() == pytest.approx(0.4, abs=5 * 16 / 100)
        assert vectors.std() == pytest.approx(16.0, rel=0.05)
        (entry,) = ledger.entries
        assert entry.event == gaussian(4.0) and entry.path == (("split", "train"),)
        other, _ = opened()
        with pytest.raises(PrivacyContractError, match="other private data"):
            other.part_vectors(models, lambda count: [1.0], 1.0, 1.0)

    def test_asking_twice_is_one_partition(self) -> None:
        private, ledger = opened()
        for _ in range(2):
            private.partition("class")["0"].gaussian_sum(ones, 1.0, 5.0)
        assert sum(ledger.entries.values()) == 2 and len({e.path for e in ledger.entries}) == 1

    def test_two_partitions_cannot_share_a_name(self) -> None:
        """A row could lie in part "x" of one and "y" of the other and pay for one only."""
        private, _ = opened()

        def halves(rows: EncodedRows) -> list[str]:
            return ["x" if value > 0 else "y" for value in rows.values[:, 0]]

        def other(rows: EncodedRows) -> list[str]:
            return ["x" if value > 0 else "y" for value in rows.values[:, 1]]

        private.partition(halves, ["x", "y"], name="half")
        private.partition(halves, ["x", "y"], name="half")
        with pytest.raises(PrivacyContractError, match="already called"):
            private.partition(other, ["x", "y"], name="half")

    @pytest.mark.parametrize("name", ["class", "site", "split"])
    def test_a_reserved_name_cannot_be_used(self, name: str) -> None:
        """An audit would look for its canary's class among parts that are no classes."""
        private, _ = opened()
        with pytest.raises(PrivacyContractError, match="must be the one by"):
            private.partition(lambda rows: ["x"] * len(rows), ["x"], name=name)

    def test_a_random_part_does_not_depend_on_other_rows(self) -> None:
        """Adding a row leaves every other row in its part."""
        private, _ = opened()
        all_parts = private.partition("teacher", parts=4)
        fewer = DATASET.train.rows.take(np.arange(1, len(DATASET.train)))
        from bench.privacy.partition import row_parts

        names = tuple(all_parts)
        whole = row_parts(DATASET.train.rows, "teacher", names, 4, 2, "here")
        assert np.array_equal(whole[1:], row_parts(fewer, "teacher", names, 4, 2, "here"))
        assert not np.array_equal(
            whole, row_parts(DATASET.train.rows, "teacher", names, 4, 2, "elsewhere")
        )

    def test_nested_random_parts_are_independent(self) -> None:
        private, _ = opened()
        inner = private.partition("client", parts=3)["0"].partition("teacher", parts=3)
        sizes = [len(part._rows) for part in inner.values()]
        assert min(sizes) > 15, sizes

    def test_a_partition_function_returns_one_part_for_each_row(self) -> None:
        private, _ = opened()
        for wrong in (lambda rows: ["x"], lambda rows: ["x"] * (len(rows) + 1), lambda rows: []):
            with pytest.raises(PrivacyContractError, match="one part for each row") as refusal:
                private.partition(wrong, ["x"], name="wrong")
            assert str(len(DATASET.train)) not in str(refusal.value)

    def test_parts_answer_with_vectors_of_one_length(self) -> None:
        """Which length a part has can depend on its rows: the message does not say it."""
        private, _ = opened()
        parts = private.partition("teacher", parts=3)
        models = private.fit_parts(parts, lambda rows, _: len(rows))
        sizes = iter([1, 2, 3, 1, 2, 3])
        for call in (private.partition_sum, private.part_vectors):
            with pytest.raises(PrivacyContractError, match="different lengths") as refusal:
                call(models, lambda _: np.ones(next(sizes)), 1.0, 1.0)
            assert not any(digit in str(refusal.value) for digit in "0123456789")

    @pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
    def test_a_part_that_answers_no_number_moves_the_sum_by_its_clip_at_most(
        self, bad: float
    ) -> None:
        private, _ = opened()
        models = private.fit_parts(private.partition("teacher", parts=3), lambda rows, _: len(rows))
        turn = iter([bad, 1.0, 1.0, bad, 1.0, 1.0])

        def answer(_: int) -> list[float]:
            return [next(turn), 0.0]

        total = private.partition_sum(models, answer, 1.0, 1e-9)
        expected = 3.0 if bad == 1e300 else 2.0
        assert total == pytest.approx([expected, 0.0], abs=0.02)
        vectors = private.part_vectors(models, answer, 1.0, 1e-9)
        assert vectors == pytest.approx(
            np.array([[expected - 2.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), abs=0.02
        )

    def test_answers_of_torch_are_accepted(self) -> None:
        import torch

        private, _ = opened()
        models = private.fit_parts(
            private.partition("teacher", parts=3),
            lambda rows, _: torch.ones(2, requires_grad=True),
        )
        total = private.partition_sum(models, lambda model: model, 10.0, 1e-9)
        assert total == pytest.approx([3.0, 3.0], abs=0.01)

    def test_a_partition_that_ranks_rows_is_caught(self) -> None:
        private, _ = opened(check_rows=True)

        def halves(rows: EncodedRows) -> np.ndarray:
            return np.where(rows.values[:, 0] > np.median(rows.values[:, 0]), "high", "low")

        with pytest.raises(PrivacyContractError, match="row by row"):
            private.partition(halves, ["high", "low"], name="half")

    def test_models_are_updated_inside_and_only_summed_outside(self) -> None:
        private, _ = opened()
        models = private.fit_parts(private.partition("teacher", parts=3), lambda rows, _: len(rows))
        models.update(lambda model, rows, _: model + len(rows))
        total = private.partition_sum(models, lambda model: [model], 1e9, 1e-12)
        assert total[0] == pytest.approx(2 * len(DATASET.train), abs=0.1)

    def test_models_answer_only_where_they_belong_and_on_disjoint_parts(self) -> None:
        private, ledger = opened()
        teachers = private.partition("teacher", parts=3)
        models = private.fit_parts(teachers, lambda rows, _: len(rows))
        for other in (private.partition("class")["0"], private.validation):
            with pytest.raises(PrivacyContractError, match="other private data"):
                other.partition_sum(models, lambda model: [model], 1.0, 1.0)
        overlapping = {**teachers, **private.partition("class")}
        twice = dict.fromkeys(["a", "b"], teachers["0"])
        for parts in (overlapping, twice):
            with pytest.raises(PrivacyContractError, match="one whole partition"):
                private.fit_parts(parts, lambda rows, _: len(rows))
        assert not ledger.entries and not hasattr(models, "ask")

    def test_the_randomness_of_a_part_does_not_affect_another(self) -> None:
        """Part 0 draws as many numbers as it has rows; part 1 must not change."""
        from dataclasses import replace

        from bench.data.dataset import Split

        answers = []
        for rows in (DATASET.train.rows, DATASET.train.rows.take(np.arange(1, len(DATASET.train)))):
            dataset = replace(DATASET, train=Split(DATASET.train.frame, rows))
            private, _ = open_private(dataset, None, SeededNoise(np.random.default_rng(0)))
            models = private.fit_parts(
                private.partition("teacher", parts=5),
                lambda part, rng: float(rng.normal(size=len(part))[-1]) + rng.random(),
            )
            answers.append(np.array(models._ask(float)))
        assert (answers[0] != answers[1]).sum() <= 1

    def test_parts_of_other_data_are_refused(self) -> None:
        private, _ = opened()
        inner = private.partition("class")["0"].partition("teacher", parts=2)
        with pytest.raises(PrivacyContractError, match="one whole partition"):
            private.fit_parts(inner, lambda rows, _: len(rows))

    @pytest.mark.parametrize(
        "ask",
        [
            lambda p: p.partition("site"),
            lambda p: p.partition("colour"),
            lambda p: p.partition(lambda rows: rows.labels),
            lambda p: p.partition("client", parts=0),
        ],
    )
    def test_unknown_partitions_are_refused(self, ask: Callable[[PrivateData], object]) -> None:
        with pytest.raises(PrivacyContractError):
            ask(opened()[0])


class TestDelegate:
    @staticmethod
    def mechanism(versions: tuple[str, ...], plugin: str = "") -> TrustedMechanism:
        return TrustedMechanism(
            name="noisy-count",
            library="numpy",
            versions=versions,
            event=lambda parameters: gaussian(parameters["noise"]),
            run=lambda rows, encoder, rng, parameters: len(rows),
            plugin=plugin,
        )

    def test_a_table_entry_is_sound_trusting_its_library(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from bench.privacy.trusted import table as trusted

        entry = self.mechanism((np.__version__,))
        monkeypatch.setattr(trusted, "TABLE", {"noisy-count": entry})
        private, ledger = opened(BUDGET)
        private.delegate("noisy-count", noise=6.0)
        judged = judge(BUDGET, None, ledger.proof())
        assert judged.text == f"sound, trusting numpy {np.__version__}"

    def test_an_unlisted_version_proves_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from bench.privacy.trusted import table as trusted

        monkeypatch.setattr(trusted, "TABLE", {"noisy-count": self.mechanism(("0.0.1",))})
        private, ledger = opened(BUDGET)
        private.delegate("noisy-count", noise=6.0)
        proof = ledger.proof()
        assert math.isinf(proof.epsilon) and "not among the versions" in proof.reasons[0]

    def test_the_packages_that_a_library_uses_for_noise_are_checked_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from bench.privacy.trusted import table as trusted

        entry = self.mechanism((np.__version__,))
        for version, proven in ((installed("torch"), True), ("0.0.1", False)):
            below = replace(entry, below=(("torch", version),))
            monkeypatch.setattr(trusted, "TABLE", {"noisy-count": below})
            private, ledger = opened(BUDGET)
            private.delegate("noisy-count", noise=6.0)
            proof = ledger.proof()
            assert math.isfinite(proof.epsilon) is proven
            assert proven or proof.reasons[0].startswith("torch ")

    def test_a_plugins_own_entry_names_the_plugin(self) -> None:
        private, ledger = opened(BUDGET)
        private.delegate(self.mechanism((), "my-plugin"), noise=6.0)
        assert judge(BUDGET, None, ledger.proof()).text == "sound, trusting my-plugin"
        with pytest.raises(PrivacyContractError, match="must name the plugin"):
            private.delegate(self.mechanism(()), noise=6.0)

    def test_over_budget_the_library_is_not_called(self) -> None:
        private, ledger = opened(BUDGET)
        with pytest.raises(BudgetExceededError):
            private.delegate(self.mechanism((), "p"), noise=0.5)
        assert not ledger.entries

    def test_a_trusted_library_gets_the_kernels_randomness(self) -> None:
        def draw(noise: NoiseSource) -> float:
            entry = TrustedMechanism(
                "draw", "numpy", (), lambda _: gaussian(6.0), lambda r, e, g, p: g.random(), "p"
            )
            return float(opened(noise=noise)[0].delegate(entry))  # type: ignore[arg-type]

        seeded = [draw(SeededNoise(np.random.default_rng(seed))) for seed in (0, 0, 1)]
        assert seeded[0] == seeded[1] != seeded[2]
        assert draw(SystemNoise()) != draw(SystemNoise())

    def test_unknown_names(self) -> None:
        with pytest.raises(UnknownNameError):
            opened()[0].delegate("nonsense")


class TestClientsAsUnit:
    def opened(self) -> PrivateData:
        noise = SeededNoise(np.random.default_rng(0))
        return open_private(DATASET, BUDGET, noise, unit="client")[0]

    def test_noise_that_hides_a_row_is_refused(self) -> None:
        private = self.opened()
        for call in (
            lambda: private.gaussian_sum(ones, 1.0, 9.0),
            lambda: private.poisson_sum(ones, 1.0, 9.0, 0.5),
            lambda: private.histograms(lambda rows: rows.labels[:, None], [2], 9.0),
        ):
            with pytest.raises(PrivacyContractError, match="unit of privacy is the client"):
                call()

    def test_only_sums_over_all_clients_hide_one(self) -> None:
        private = self.opened()
        parts = private.partition("teacher", parts=3)
        models = private.fit_parts(parts, lambda rows, _: len(rows))
        with pytest.raises(PrivacyContractError, match="unit of privacy is the client"):
            private.partition_sum(models, lambda model: [1.0], 1.0, 9.0)
        inner = private.partition("class")["0"]
        models = inner.fit_parts(inner.partition(SkewedClients(3)), lambda rows, _: len(rows))
        with pytest.raises(PrivacyContractError, match="unit of privacy is the client"):
            inner.partition_sum(models, lambda model: [1.0], 1.0, 9.0)
        models = private.fit_parts(private.partition(SkewedClients(3)), lambda rows, _: len(rows))
        assert np.isfinite(private.partition_sum(models, lambda model: [1.0], 1.0, 9.0)).all()

    def test_training_and_validation_rows_of_a_client_compose(self) -> None:
        """One sum over the clients on each split: a client takes part in both.

        Two Gaussians of multiplier s are one of multiplier s / sqrt(2), whose epsilon is computed
        here by the analytic formula (Balle and Wang 2018, theorem 8).
        """
        private, ledger = open_private(
            DATASET, BUDGET, SeededNoise(np.random.default_rng(0)), unit="client"
        )
        assert private.validation is not None
        both = (private, private.validation)

        def plans(noise: float) -> list[PlannedEvents]:
            return [data.plan(gaussian(noise)) for data in both]

        noise = private.calibrate(plans)
        private.reserve_all(plans(noise))
        for data in both:
            models = data.fit_parts(data.partition(SkewedClients(3)), lambda rows, _: len(rows))
            data.partition_sum(models, lambda model: [1.0], 1.0, noise)
        true = gaussian_epsilon(noise / math.sqrt(2.0), 1e-5)
        proven = ledger.proof().epsilon
        assert true <= proven <= 1.0 and proven == pytest.approx(true, rel=5e-3)
        assert Ledger.from_json(ledger.to_json()).proof().epsilon == proven
        with pytest.raises(BudgetExceededError):
            private.validation.reserve(gaussian(noise))

    @pytest.mark.parametrize("unit, composed", [("row", 1), ("patient", 1), ("client", 3)])
    def test_parts_compose_in_parallel_for_units_that_lie_in_one_of_them(
        self, unit: str, composed: int
    ) -> None:
        noise = SeededNoise(np.random.default_rng(0))
        private, ledger = open_private(DATASET, None, noise, unit=unit)
        assert private.validation is not None
        for data in (*private.partition("class").values(), private.validation):
            data.reserve(gaussian(4.0))
        true = gaussian_epsilon(4.0 / math.sqrt(composed), 1e-5)
        assert ledger.proof().epsilon == pytest.approx(true, rel=5e-3)

    def test_counts_of_clients_cannot_be_bought_with_noise_for_rows(self) -> None:
        noise = SeededNoise(np.random.default_rng(0))
        with pytest.raises(PrivacyContractError, match="unit of privacy is the client"):
            open_private(DATASET, BUDGET, noise, private_counts=True, unit="client")

    def test_an_unknown_unit_is_refused(self) -> None:
        noise = SeededNoise(np.random.default_rng(0))
        with pytest.raises(InputError, match="'hospital' is unknown; expected one of row, patient"):
            open_private(DATASET, BUDGET, noise, unit="hospital")


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian mechanism, by the analytic formula."""

    def excess(epsilon: float) -> float:
        near, far = (
            0.5 / multiplier - epsilon * multiplier,
            -0.5 / multiplier - epsilon * multiplier,
        )
        return float(norm.cdf(near) - math.exp(epsilon) * norm.cdf(far) - delta)

    return float(brentq(excess, 0.0, 50.0))


def test_a_partition_cannot_be_widened() -> None:
    private, _ = opened()
    parts = private.partition("class")
    with pytest.raises(TypeError):
        parts["all"] = private  # type: ignore[index]
