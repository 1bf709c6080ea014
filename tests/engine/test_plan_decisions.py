"""Decisions of a plan that cost a budget, a result or a day if they are wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from bench.engine import keys
from bench.engine import plan as planning
from bench.engine.cell import run_cell
from bench.engine.plan import Action, Decision, Job
from bench.plugins.source import build_dataset
from bench.results.journal import Finished
from bench.results.records import Cell, CellRow, Outcome, Variant
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())
CELL = Cell(
    Variant("marginals", "marginals"), Variant("toy-table", "toy"), 5, False, 2.0, 1e-5, 3,
    "default", 0,
)  # fmt: skip
SECURE = replace(CELL, secure_noise=True)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_cell(CELL, keys.cell_key(CELL, DATASET.fingerprint), DATASET, ("ks",))


@pytest.fixture
def row(outcome: Outcome) -> CellRow:
    return outcome.row


@dataclass(frozen=True)
class Memory:
    """What is stored, without a directory."""

    finished: Mapping[str, Finished] = field(default_factory=dict)
    charges: frozenset[str] = frozenset()

    def all(self) -> Iterator[Finished]:
        return iter(self.finished.values())

    def release_intact(self, key: str) -> bool:
        return True

    def rows_not_stored(self, key: str) -> str:
        return ""

    def charged(self) -> set[str]:
        return set(self.charges)


def planned(*cells: Cell, stored: Memory | None = None) -> planning.RunPlan:
    return planning.plan_cells(cells, {CELL.dataset: DATASET}, stored or Memory(), ("ks",))


class TestBudgetsThatAreSpentOnce:
    @pytest.mark.parametrize(
        "cell, scoring, charges",
        [
            (SECURE, False, True),
            (SECURE, True, False),
            (CELL, False, False),
            (replace(SECURE, epsilon=None), False, False),
        ],
    )
    def test_starting_a_fit_with_secure_noise_and_a_budget_charges(
        self, cell: Cell, scoring: bool, charges: bool
    ) -> None:
        assert Job(cell, "key", scoring, ()).charges is charges

    def test_a_charged_cell_is_refused_and_says_by_whom(self) -> None:
        key = keys.cell_key(SECURE, DATASET.fingerprint)
        identity = keys.charge_identity(SECURE, DATASET.fingerprint)
        for charge, text in ((key, "did not finish"), (identity, "another version")):
            plan = planned(SECURE, stored=Memory(charges=frozenset({charge})))
            assert not plan.jobs and plan.cached == 0
            (refusal,) = plan.refused
            assert (refusal.cell, refusal.key) == (SECURE, key) and text in refusal.reason
            assert plan.wanted == ((SECURE, key),)

    def test_seeded_cells_and_cells_without_a_budget_are_done_again(self) -> None:
        for cell in (CELL, replace(SECURE, epsilon=None)):
            fingerprint = DATASET.fingerprint
            charges = {keys.cell_key(cell, fingerprint), keys.charge_identity(cell, fingerprint)}
            plan = planned(cell, stored=Memory(charges=frozenset(charges)))
            assert len(plan.jobs) == 1 and not plan.refused

    def test_a_charge_does_not_depend_on_the_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = keys.cell_key(SECURE, "rows"), keys.charge_identity(SECURE, "rows")
        monkeypatch.setattr(keys, "method_hash", lambda kind: "other code")
        assert keys.cell_key(SECURE, "rows") != before[0]
        assert keys.charge_identity(SECURE, "rows") == before[1]
        assert keys.charge_identity(SECURE, "other rows") != before[1]
        assert keys.charge_identity(replace(SECURE, seed=4), "rows") != before[1]


class TestOneCell:
    def test_a_skipped_cell_is_kept_though_nothing_is_stored(self, row: CellRow) -> None:
        skipped = replace(row, status="skipped", verdict="")
        assert planning.decide(CELL, skipped, lambda: False, ("ks",)).action is Action.KEEP

    def test_a_kept_cell_has_nothing_to_compute_and_nothing_to_say(self, row: CellRow) -> None:
        assert planning.decide(CELL, row, lambda: True, ("ks",)) == Decision(Action.KEEP)

    def test_only_missing_metrics_are_computed_of_a_stored_release(self, row: CellRow) -> None:
        found = planning.decide(CELL, row, lambda: True, ("ks", "tvd"))
        assert found == Decision(Action.SCORE, ("tvd",))
        failed = replace(row, status="error")
        assert planning.decide(CELL, failed, lambda: True, ("ks",)) == Decision(Action.SCORE, ())

    def test_a_fit_computes_all(self) -> None:
        found = planning.decide(CELL, None, lambda: True, ["ks", "tvd"])
        assert found == Decision(Action.FIT, ("ks", "tvd"))

    def test_files_are_looked_at_only_where_they_matter(self, row: CellRow) -> None:
        def never() -> bool:
            raise AssertionError("there is no release")

        failed = replace(row, status="error", verdict="")
        assert planning.decide(CELL, failed, never, ("ks",)).action is Action.FIT
        assert planning.decide(CELL, None, never, ("ks",)).action is Action.FIT


class TestOrder:
    def test_scoring_takes_a_tenth_of_fitting_and_comes_last(self, row: CellRow) -> None:
        other = replace(CELL, seed=9)
        stored = replace(row, metrics="{}", fit_seconds=30.0, score_seconds=10.0)
        plan = planned(CELL, other, stored=Memory({row.key: (stored, ())}))
        assert [(job.cell.seed, job.scoring) for job in plan.jobs] == [(9, False), (3, True)]
        fit, score = (job.expected_seconds for job in plan.jobs)
        assert score == pytest.approx(0.1 * fit) and fit > 0.0

    def test_cells_of_one_kind_keep_the_order_of_the_grid(self) -> None:
        cells = [replace(CELL, seed=seed) for seed in (5, 1, 9, 2)]
        plan = planned(*cells)
        assert [job.cell for job in plan.jobs] == cells
        assert [cell for cell, _ in plan.wanted] == cells and plan.cached == 0
        assert not plan.reasons, "nothing is stored: no reason is needed"


class TestKeys:
    def test_twenty_digits_of_the_facts_in_any_order(self) -> None:
        facts = {"b": 1, "a": [None, "x"]}
        text = '{"a": [null, "x"], "b": 1}'
        expected = hashlib.sha256(text.encode()).hexdigest()[:20]
        assert keys.hashed(facts) == keys.hashed(dict(reversed(facts.items()))) == expected

    def test_a_generator_has_all_256_bits_of_seed_and_purpose(self) -> None:
        digest = int(hashlib.sha256(b"abc/noise").hexdigest(), 16)
        same = np.random.default_rng(np.random.SeedSequence(digest))
        assert keys.generator("abc", "noise").random() == same.random()

    @pytest.mark.parametrize(
        "requirement, name",
        [
            ("SciPy>=1.7,<1.8", "scipy"),
            ("scikit_learn==1.7", "scikit-learn"),
            (" zope.interface ", "zope-interface"),
            ("torch[cpu]>2", "torch"),
            ("a__b--c==1", "a-b-c"),
        ],
    )
    def test_names_of_requirements(self, requirement: str, name: str) -> None:
        assert keys._distribution(requirement) == name

    def test_import_names(self) -> None:
        assert keys._import_name("scikit-learn") == "sklearn"
        assert keys._import_name("xgboost-cpu") == "xgboost"
        assert keys._import_name("dp-accounting") == "dp_accounting"

    def test_labels_of_variants_do_not_enter_but_parameters_do(self) -> None:
        def key(**facts: object) -> str:
            return keys.cell_key(replace(CELL, **facts), "rows")  # type: ignore[arg-type]

        assert key(method=Variant("marginals", "another label")) == key()
        assert key(dataset=Variant("toy-table", "another label")) == key()
        assert key(dataset=Variant("toy-table", "toy", (("rows", 3),))) != key()
        others = {
            key(ipc=6), key(full_size=True), key(epsilon=1.0), key(delta=1e-6), key(seed=4),
            key(split="paper"), key(split_seed=1), key(secure_noise=True),
            key(private_counts=True), keys.cell_key(CELL, "other rows"), key(),
        }  # fmt: skip
        assert len(others) == 11

    def test_versions_are_those_that_are_installed(self) -> None:
        import platform
        import sys

        found = json.loads(keys.versions())
        assert found["numpy"] == np.__version__
        assert found["python"] == platform.python_version() and found["platform"] == sys.platform


def test_a_guess_is_the_mean_of_what_such_cells_took(
    row: CellRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []

    def expected(resources: object, dataset: object, typical: float | None) -> float:
        given.append(typical)
        return 10.0

    monkeypatch.setattr(planning, "expected_seconds", expected)
    stored = {
        "a": replace(row, key="a", fit_seconds=1.0, score_seconds=0.5),
        "b": replace(row, key="b", fit_seconds=2.0, score_seconds=None),
        "c": replace(row, key="c", fit_seconds=None),  # it failed
        "d": replace(row, key="d", fit_seconds=900.0, attack="one-run"),
        "e": replace(row, key="e", fit_seconds=900.0, label="another"),
    }
    guess = planning._Guess(Memory({key: (one, ()) for key, one in stored.items()}))
    assert guess.seconds(CELL, DATASET, share=0.5) == 5.0
    assert guess.seconds(replace(CELL, dataset=Variant("toy-table", "other")), DATASET) == 10.0
    assert given == [1.75, None]
