"""Audits of methods whose answer is known, on tiny tables and in this process."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.audit import audits as auditing
from bench.audit import two_worlds
from bench.audit.audits import (
    AuditProcedure,
    audit_cell,
    instance_cell,
    plan_audits,
    run_audits,
)
from bench.audit.report import conclude, markdown_table, report
from bench.audit.self_test import ExactGaussian, RowCopier, TinyTable
from bench.audit.trials import (
    OUT,
    AuditTarget,
    Stage,
    TrialId,
    TrialStore,
    refit,
    run_trials,
)
from bench.cluster import driver
from bench.data.dataset import Dataset
from bench.data.encoder import Floats
from bench.engine import keys
from bench.engine.compare import compare_run
from bench.engine.options import RunOptions
from bench.engine.plan import explain, load_stored, plan_stored
from bench.engine.procedure import run_here
from bench.engine.verify import verify
from bench.errors import InputError, NotApplicable, StoreError
from bench.plugins.method import Method, Spec
from bench.plugins.release import Claim, Release, ReleasedModel, Rows
from bench.plugins.source import build_dataset
from bench.privacy.kernel import PrivateData
from bench.results.audits import refutations
from bench.results.reading import load_results, read_audits
from bench.results.records import AuditRow, AuditSpec, Cell, CellRow, Outcome
from bench.results.run_directory import RunStore
from bench.results.status import read_status
from tests.support.tables import ToyTable

TINY = build_dataset(TinyTable())


@pytest.fixture(autouse=True)
def few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the planted bug: forty would take most of the time here."""
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 4)


def prepared(
    method: Method,
    trials: int = 80,
    dataset: Dataset = TINY,
    directory: Path = Path("nowhere"),
    attack: str = "two-world",
    **others: Any,
) -> AuditProcedure:
    cell = instance_cell(method, dataset, 1.0, AuditSpec(attack, trials), **others)
    return AuditProcedure(cell, dataset, directory, method)


def run(directory: Path, method: Method, trials: int = 80, **others: Any) -> Outcome:
    """The audit as `bench audit --cpus 1` runs it."""
    audit = prepared(method, trials, directory=directory, **others)
    with RunStore(directory) as store:
        run_audits([audit], store, RunOptions(out=directory, cpus=1), print)
        return store.journal.outcome(audit.key)


def finished(directory: Path, method: Method, trials: int = 80, **others: Any) -> Finished:
    outcome = run(directory, method, trials, **others)
    assert outcome.audit is not None, outcome.row.reason
    return outcome.row, outcome.audit


Finished = tuple[CellRow, AuditRow]


def outcome_of(row: CellRow, audit: AuditRow) -> Outcome:
    return Outcome(row, audit=audit)


# Both worlds ---


def test_both_worlds_have_the_same_counts_and_differ_by_the_canary_alone() -> None:
    target = prepared(ExactGaussian(), dataset=build_dataset(ToyTable())).shared
    outside = target.table(TrialId(Stage.BOUND, OUT, 0))
    for number, canary in enumerate(target.canaries):
        inside = target.table(TrialId(Stage.BOUND, number, 0))
        assert inside.counts == outside.counts
        assert inside.validation_counts == outside.validation_counts
        mine, theirs = inside.train.rows, outside.train.rows
        assert len(mine) == len(theirs) + 1
        rest = mine.take(np.arange(len(theirs)))
        for name in ("values", "labels", "sites", "positions"):
            assert np.array_equal(getattr(rest, name), getattr(theirs, name))
        assert np.array_equal(mine.values[-1], canary.values)
        assert mine.labels[-1] == canary.label
        for split in ("validation", "control", "test"):
            here, there = getattr(inside, split), getattr(outside, split)
            assert np.array_equal(here.rows.values, there.rows.values)
            assert np.array_equal(here.rows.positions, there.rows.positions)


def test_no_two_trials_share_a_seed_and_no_seed_depends_on_the_rows() -> None:
    changed = replace(TINY, train=replace(TINY.train, rows=TINY.train.rows.take(np.arange(3))))
    changed = replace(changed, fingerprint="another table")
    first, second = prepared(ExactGaussian()), prepared(ExactGaussian(), dataset=changed)
    assert first.shared.seed_key == second.shared.seed_key
    assert first.key != second.key
    trials = [
        TrialId(stage, canary, number)
        for stage in Stage
        for canary in (OUT, 0, 1)
        for number in range(3)
    ]
    draws = {
        float(keys.generator(first.shared.seed_key, f"{trial.tag}/{purpose}").random())
        for trial in trials
        for purpose in ("noise", "parts", "public")
    }
    assert len(draws) == 3 * len(trials)
    other = prepared(ExactGaussian(), seed=1)
    assert other.shared.seed_key != first.shared.seed_key


@final
@dataclass(frozen=True)
class ReleasesRandomness(Method):
    """Releases the numbers that it was given as randomness."""

    name: ClassVar[str] = "releases-randomness"
    title: ClassVar[str] = "Releases its randomness"
    uses_ipc: ClassVar[bool] = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        noise = private.gaussian_sum(lambda rows: np.zeros((len(rows), 1)), 1.0, 10.0)
        values = np.array([[rng.random(), float(noise[0]), private._vault.public_entropy]])
        return Release(Rows(values / np.array([1.0, 100.0, 2.0**63]), np.array([0])))


def test_noise_and_public_randomness_are_fresh_in_every_trial_and_world() -> None:
    target = prepared(ReleasesRandomness()).shared
    seen = []
    for canary in (OUT, 0):
        for number in range(2):
            rows = refit(target, TrialId(Stage.BOUND, canary, number)).rows
            assert rows is not None
            seen.append(rows.values[0])
    again = refit(target, TrialId(Stage.BOUND, OUT, 0)).rows
    assert again is not None and np.array_equal(again.values[0], seen[0])
    for column in np.array(seen).T:
        assert len(set(column)) == len(column)


# The procedure of an audit ---


def test_halves_are_disjoint_and_as_large_as_asked(tmp_path: Path) -> None:
    row, audit = finished(tmp_path, ExactGaussian(), trials=80)
    trials = TrialStore(RunStore(tmp_path).audit_directory(row.key)).all()
    chose = {trial.id for trial in trials if trial.id.stage is Stage.CHOOSE}
    counted = {trial.id for trial in trials if trial.id.stage is Stage.BOUND}
    assert not {one.tag for one in chose} & {one.tag for one in counted}
    assert len(chose) == len(counted) == 40 and len(trials) == audit.refits == 80
    assert sum(one.canary == OUT for one in counted) == 20 == audit.trials / 2
    assert row.trials == 80
    # No two of them drew the same numbers.
    features = np.array([trial.features for trial in trials])
    assert len(np.unique(features, axis=0)) == len(trials)
    low = 0.025 ** (1 / 20)  # Clopper-Pearson of 20 of 20
    assert audit.eps_detectable == pytest.approx(math.log(low / (1 - low)), abs=1e-3)


def test_an_exact_mechanism_is_not_refuted_and_its_row_is_complete(tmp_path: Path) -> None:
    row, audit = finished(tmp_path, ExactGaussian(), trials=200)
    outcome = outcome_of(row, audit)
    assert (row.status, row.attack, row.reason) == ("ok", "two-world", "")
    assert (row.verdict, row.study_only, row.fingerprint) == ("sound", True, TINY.fingerprint)
    assert row.eps_target == row.eps_claimed == 1.0
    assert row.eps_proven == pytest.approx(1.0, abs=2e-3)
    assert row.eps_audited is not None and audit.eps_gaussian is not None
    assert row.eps_audited <= 1.0 and audit.planted is not None and 0.0 <= audit.planted <= 1.0
    refutation = refutations([outcome])[row.key]
    assert not refutation.claim and not refutation.proof
    conclusion = conclude(outcome, refutation)
    assert conclusion.verdict == "sound" and "proves nothing" in conclusion.sentence
    text = report(outcome, refutation)
    assert "eps detectable" in text and "planted bug" in text and "refuted" not in text
    assert read_audits(tmp_path) == (outcome,)
    (tmp_path / "journal.jsonl").unlink()  # what is given to others
    assert read_audits(tmp_path) == (outcome,)
    tables = load_results(tmp_path)
    assert tables.cells.empty and tables.audits["trials"].tolist() == [audit.trials]
    assert tables.audits["method"].tolist() == ["known-exact-gaussian"]


def test_a_copied_row_is_refuted_after_a_replication(tmp_path: Path) -> None:
    row, audit = finished(tmp_path, RowCopier(probability=0.8), trials=200)
    outcome = outcome_of(row, audit)
    assert row.eps_audited is not None and row.eps_audited > 1.0
    assert audit.p_claim < 0.05 and audit.replicated_p_claim < 0.05
    assert audit.replicated_eps is not None and audit.replicated_eps > 1.0
    assert audit.refits == 300 and audit.trials == 100
    refutation = refutations([outcome])[row.key]
    assert refutation.claim and refutation.proof
    conclusion = conclude(outcome, refutation)
    assert conclusion.refuted and conclusion.verdict == "proof refuted"
    # What is refuted is decided over all audits when they are read, never stored.
    assert row.verdict == "sound"
    table = markdown_table([outcome])
    assert "proof refuted" in table and "| known-row-copier | tiny-table | 1 | 1 |" in table
    # The same code on other rows, where the attack finds nothing: what is refuted stays refuted.
    blank = {"p_claim": 1.0, "p_proof": 1.0, "replicated_p_claim": 1.0, "replicated_p_proof": 1.0}
    other = outcome_of(
        replace(row, key="other", dataset="elsewhere"), replace(audit, key="other", **blank)
    )
    (line,) = (
        text for text in markdown_table([outcome, other]).splitlines() if "| elsewhere |" in text
    )
    assert "| proof refuted (on tiny-table) |" in line


def watched(monkeypatch: pytest.MonkeyPatch, before: Callable[[Sequence[TrialId]], None]) -> None:
    """Call this before trials are run."""

    def work(target: AuditTarget, trials: Sequence[TrialId]) -> list[dict[str, Any]]:
        before(trials)
        return run_trials(target, trials)

    monkeypatch.setattr(AuditProcedure, "work", staticmethod(work))
    # The test is not importable in another process.
    monkeypatch.setattr(driver, "_in_own_process", run_here)


def test_an_interrupted_audit_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    first = run(whole, ExactGaussian())
    folders = [RunStore(place).audit_directory(first.row.key) for place in (whole, broken)]
    calls: list[int] = []

    def interrupting(trials: Sequence[TrialId]) -> None:
        calls.append(len(trials))
        if len(calls) == 4:
            raise KeyboardInterrupt

    watched(monkeypatch, interrupting)
    with RunStore(broken) as store:
        audit = prepared(ExactGaussian(), directory=broken)
        summary = run_audits([audit], store, RunOptions(out=broken, cpus=1), print)
    assert summary.interrupted and summary.keys == ()
    kept = len(TrialStore(folders[1]))
    assert 0 < kept < 80
    again: list[int] = []
    watched(monkeypatch, lambda trials: again.append(len(trials)))
    outcome = run(broken, ExactGaussian())
    assert sum(again) == 80 - kept
    for name in ("trials.parquet", "ledger.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    timeless = {"fit_seconds": 0.0, "finished_at": ""}
    assert replace(outcome.row, **timeless) == replace(first.row, **timeless)
    assert outcome.audit == first.audit


def test_stored_trials_alone_give_the_same_rows(tmp_path: Path) -> None:
    """An audit is a function of its trials: none is run, and order and batches do not matter."""
    method = RowCopier(probability=0.8)
    row, audit = finished(tmp_path, method)
    assert audit.replicated_eps is not None
    again = prepared(method, directory=tmp_path).outcome  # nothing was taken
    assert again is not None and again.audit == audit
    timeless = {"fit_seconds": 0.0, "finished_at": ""}
    assert replace(again.row, **timeless) == replace(row, **timeless)


def test_audits_of_an_earlier_version_are_refused(tmp_path: Path) -> None:
    """They were no cells: each had a file, and the table had columns of cells."""
    folder = tmp_path / "old" / "audits" / "one"
    folder.mkdir(parents=True)
    (folder / "audit.json").write_text("{}")
    pq.write_table(pa.table({"key": ["one"], "method": ["ldpdc"]}), tmp_path / "audits.parquet")
    for directory in (tmp_path / "old", tmp_path):
        with pytest.raises(StoreError, match=r"earlier version.*`bench audit` again"):
            read_audits(directory)
        with pytest.raises(StoreError, match="earlier version"), RunStore(directory):
            pass


@pytest.mark.parametrize(
    "part, change",
    [
        ("audit", {"p_claim": 2.0}),
        ("audit", {"p_proof": None}),
        ("audit", {"trials": "many"}),
        ("audit", {"key": "another"}),
        ("cell", {"parameters": "[]"}),
        ("cell", {"status": "error"}),
    ],
)
def test_a_row_with_impossible_values_is_refused(
    part: str, change: dict[str, Any], tmp_path: Path
) -> None:
    run(tmp_path, ExactGaussian(), trials=40)
    path = tmp_path / "journal.jsonl"
    document = json.loads(path.read_text())
    document[part] |= change
    path.write_text(json.dumps(document) + "\n")
    (tmp_path / "cells.parquet").unlink()
    with pytest.raises(StoreError, match="bench audit` again"):
        read_audits(tmp_path)


def test_a_second_call_refits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(tmp_path, ExactGaussian(), trials=40)

    def forbidden(trials: Sequence[TrialId]) -> None:
        raise AssertionError("a refit")

    watched(monkeypatch, forbidden)
    assert run(tmp_path, ExactGaussian(), trials=40) == first
    # Trials that are gone are run again.
    RunStore(tmp_path).audit_directory(first.row.key).joinpath("trials.parquet").unlink()
    with RunStore(tmp_path) as store:
        plan = plan_audits([prepared(ExactGaussian(), 40, directory=tmp_path)], store)
    assert len(plan.jobs) == 1 and plan.cached == 0


def test_audits_of_a_checkout_with_changes_mark_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunStore(tmp_path) as store:
        store.write_manifest({"grid": "core", "commit": "a" * 40, "dirty": False})
    # Of the second call the audit is finished: nothing is computed by that checkout.
    for dirty, seed, marked in ((False, 0, False), (True, 0, False), (True, 1, True)):
        monkeypatch.setattr(auditing, "circumstances", lambda dirty=dirty: {"dirty": dirty})
        run(tmp_path, ExactGaussian(), trials=40, seed=seed)
        facts = RunStore(tmp_path).manifest()
        assert (facts["grid"], facts["commit"], facts["dirty"]) == ("core", "a" * 40, marked)


def test_an_audit_is_verified_without_refits(tmp_path: Path) -> None:
    row, audit = finished(tmp_path, ExactGaussian(), trials=40)
    result = verify(tmp_path)
    assert result.good and (result.cells, result.releases) == (1, 0)
    assert "`bench audit`" in result.not_verifiable[0].reason
    with RunStore(tmp_path) as store:
        store.record(outcome_of(replace(row, eps_proven=0.5), replace(audit, p_claim=0.5)), None)
    problems = " ".join(verify(tmp_path).problems)
    assert "its ledger replays to epsilon" in problems
    assert "audits.parquet has other values" in problems
    RunStore(tmp_path).audit_directory(row.key).joinpath("trials.parquet").write_text("no table")
    assert "its audit is missing or damaged" in " ".join(verify(tmp_path).problems)


def test_commands_about_releases_pass_audits_over(tmp_path: Path) -> None:
    row, _ = finished(tmp_path, ExactGaussian(), trials=40)
    with RunStore(tmp_path) as store:
        assert load_stored(store) == {}
        assert plan_stored(store, {}, ("ks",)).wanted == ()
        released = replace(row.cell, audit=None)
        assert explain([(released, "new")], store, ()) == ["1 cell: never run"]
    (line,) = read_status(tmp_path).slowest
    assert "two-world audit, 40" in line.cell
    assert compare_run(tmp_path) == ([], [])


# What can go wrong ---


@final
@dataclass(frozen=True)
class Breaking(Method):
    """Fails, or says that it does not fit."""

    name: ClassVar[str] = "breaking"
    title: ClassVar[str] = "Breaks"
    fits: bool = True

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if not self.fits:
            raise NotApplicable("only for images")
        raise ValueError("something broke")


@final
@dataclass(frozen=True)
class OfClients(Method):
    """Protects clients, not rows."""

    name: ClassVar[str] = "of-clients"
    title: ClassVar[str] = "Protects clients"
    unit: ClassVar[str] = "client"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        raise AssertionError("not to be fitted")


def test_failures_are_recorded_and_not_cached(tmp_path: Path) -> None:
    broken = run(tmp_path, Breaking()).row
    assert broken.status == "error" and "ValueError at test_audits.py:" in broken.reason
    assert "ValueError" in broken.log_tail and "something broke" not in str(broken)
    log = tmp_path / "logs" / f"{broken.key}.log"
    assert "ValueError: something broke" in log.read_text() and f"logs/{log.name}" in broken.reason
    assert run(tmp_path, Breaking()).row.finished_at != broken.finished_at
    assert "audit failed" in markdown_table(read_audits(tmp_path))
    skipped = run(tmp_path, Breaking(fits=False)).row
    assert (skipped.status, skipped.reason) == ("skipped", "only for images")
    clients = run(tmp_path, OfClients()).row
    assert clients.status == "skipped" and "unit of privacy is the client" in clients.reason
    table = markdown_table(read_audits(tmp_path))
    assert "not audited" in table and "only for images" in table


@final
@dataclass(frozen=True)
class Elsewhere(Method):
    """Claims an epsilon at another delta."""

    name: ClassVar[str] = "elsewhere"
    title: ClassVar[str] = "Claims at another delta"
    uses_ipc: ClassVar[bool] = False
    delta: float = 0.1

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        rows = Rows(np.zeros((1, private.width)), np.zeros(1, dtype=np.int64))
        return Release(rows, claim=Claim(1.0, self.delta, "its paper"))


def test_a_claim_at_a_larger_delta_is_not_tested_at_a_smaller_one(tmp_path: Path) -> None:
    row = run(tmp_path, Elsewhere()).row
    assert row.status == "error" and "--delta 0.1" in row.reason
    assert run(tmp_path, Elsewhere(), delta=0.1).row.eps_claimed == 1.0
    assert run(tmp_path, Elsewhere(delta=1e-9)).row.eps_claimed == 1.0


def test_the_table_shows_the_newest_audit_of_a_setting(tmp_path: Path) -> None:
    _, old = finished(tmp_path, ExactGaussian(), trials=40)
    _, new = finished(tmp_path, ExactGaussian(), trials=44)
    assert old.key != new.key and len(read_audits(tmp_path)) == 2
    lines = markdown_table(read_audits(tmp_path)).splitlines()
    assert len(lines) == 3 and f"| {new.trials} |" in lines[2] and new.trials != old.trials


@pytest.mark.parametrize(
    "change, text",
    [
        ({"epsilon": -1.0}, "not a positive finite number"),
        ({"trials": 10}, "at least 40"),
        ({"trials": 5, "attack": "one-run"}, "at least 10"),
        ({"attack": "bribe"}, "no attack; expected one of two-world, one-run, transcript"),
        ({"ipc": 0}, "not a positive number of rows"),
    ],
)
def test_invalid_audits_are_refused(change: dict[str, Any], text: str) -> None:
    asked = {"epsilon": 1.0, "trials": 100, "attack": "two-world", "ipc": 50, **change}

    def cell() -> Cell:
        spec = AuditSpec(asked["attack"], asked["trials"])
        return audit_cell("ldpdc", "breast-cancer", asked["epsilon"], spec, ipc=asked["ipc"])

    with pytest.raises(InputError, match=text):
        cell()


def test_an_audit_has_seeded_noise_and_declared_counts() -> None:
    cell = prepared(ExactGaussian()).cell
    for setting in ("secure_noise", "private_counts"):
        with pytest.raises(InputError, match="seeded noise and declared counts"):
            replace(cell, **{setting: True})
    assert "two-world audit, 80" in cell.describe()


# Models, and many canaries at once ---


@final
@dataclass(frozen=True)
class Memory(ReleasedModel):
    """Sure of the rows that it has seen, undecided about others."""

    seen: Floats

    def predict(self, values: Floats) -> np.ndarray:
        known = (np.abs(values[:, None] - self.seen[None]).max(axis=2) < 1e-6).any(axis=1)
        return np.where(known[:, None], [0.99, 0.01], [0.5, 0.5])


@final
@dataclass(frozen=True)
class Memorises(Method):
    """A model that has memorised its rows."""

    name: ClassVar[str] = "memorises"
    title: ClassVar[str] = "Memorises its rows"
    uses_ipc: ClassVar[bool] = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        return Release(model=Memory(private.raw("memorised").values))


@pytest.mark.parametrize("attack, trials", [("two-world", 80), ("one-run", 30)])
def test_a_model_that_has_memorised_its_rows_reaches_the_maximum_detectable_epsilon(
    attack: str, trials: int, tmp_path: Path
) -> None:
    dataset = build_dataset(ToyTable())
    row, audit = finished(tmp_path, Memorises(), trials, dataset=dataset, attack=attack)
    assert row.status == "ok" and row.eps_proven == math.inf and row.eps_claimed is None
    assert row.eps_audited == pytest.approx(audit.eps_detectable)
    assert audit.planted is None and audit.p_claim == audit.p_proof == 1.0
    outcome = outcome_of(row, audit)
    assert conclude(outcome, refutations([outcome])[row.key]).verdict == "non-private"


def test_a_one_run_audit_of_an_exact_mechanism_refutes_nothing(tmp_path: Path) -> None:
    dataset = build_dataset(ToyTable())
    row, audit = finished(tmp_path, ExactGaussian(), 40, dataset=dataset, attack="one-run")
    assert (row.trials, audit.refits) == (40, 5)
    assert audit.p_claim > 0.05 and audit.replicated_eps is None
    assert audit.planted is not None and "every row copied" in audit.planted_bug
    assert row.eps_audited is not None and row.eps_audited <= 1.0


def test_a_one_run_audit_needs_room_for_its_canaries(tmp_path: Path) -> None:
    row = run(tmp_path, ExactGaussian(), 40, attack="one-run").row
    # Three numbers have eight corners.
    assert row.status == "skipped" and "8 different canaries only" in row.reason


@pytest.mark.slow
def test_the_auditor_finds_both_bugs_and_spares_the_exact_ones(tmp_path: Path) -> None:
    from bench.audit.self_test import self_test

    checked = list(self_test(RunOptions(out=tmp_path / "audits", cpus=2)))
    assert [one.refuted for one in checked] == [False, False, True, True]
    assert all(one.good for one in checked)
