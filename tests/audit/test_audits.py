"""Audits of methods whose answer is known, on tiny tables and in this process."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench.audit import trials as audit_trials
from bench.audit import two_worlds
from bench.audit.audits import PreparedAudit, Request, audit, prepare
from bench.audit.report import conclude, markdown_table, report
from bench.audit.self_test import ExactGaussian, RowCopier, TinyTable
from bench.audit.trials import (
    OUT,
    AuditTarget,
    Stage,
    Trial,
    TrialId,
    TrialStore,
    refit,
    run_trials,
)
from bench.cluster.batches import Crew
from bench.data.dataset import Dataset
from bench.data.encoder import Floats
from bench.engine import keys
from bench.engine.options import RunOptions
from bench.errors import InputError, NotApplicable, StoreError
from bench.plugins.method import Method, Spec
from bench.plugins.release import Claim, Release, ReleasedModel, Rows
from bench.plugins.source import build_dataset
from bench.privacy.kernel import PrivateData
from bench.results.audits import folder_of, refutations
from bench.results.reading import read_audits
from bench.results.records import AuditRow, Variant
from tests.support.tables import ToyTable

TINY = build_dataset(TinyTable())


@pytest.fixture(autouse=True)
def few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the planted bug: forty would take most of the time here."""
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 4)


def prepared(
    method: Method, trials: int = 80, dataset: Dataset = TINY, epsilon: float = 1.0, **others: Any
) -> PreparedAudit:
    entry = Variant(method.name, method.name)
    request = Request(
        entry, Variant(dataset.name, dataset.name), epsilon, trials, ipc=None, **others
    )
    return prepare(request, dataset, method)


def run(asked: PreparedAudit, directory: Path) -> AuditRow:
    with Crew(RunOptions(out=directory, cpus=1)) as crew:
        return audit(asked, directory, crew)


# Both worlds ---


def test_both_worlds_have_the_same_counts_and_differ_by_the_canary_alone() -> None:
    target = prepared(ExactGaussian(), dataset=build_dataset(ToyTable())).target
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
        assert (mine.labels[-1], mine.positions[-1]) == (canary.label, 0.0)


def test_no_two_trials_share_a_seed_and_no_seed_depends_on_the_rows() -> None:
    changed = replace(TINY, train=replace(TINY.train, rows=TINY.train.rows.take(np.arange(3))))
    changed = replace(changed, fingerprint="another table")
    first, second = prepared(ExactGaussian()), prepared(ExactGaussian(), dataset=changed)
    assert first.target.seed_key == second.target.seed_key
    assert first.key != second.key
    trials = [
        TrialId(stage, canary, number)
        for stage in Stage
        for canary in (OUT, 0, 1)
        for number in range(3)
    ]
    draws = {
        float(keys.generator(first.target.seed_key, f"{trial.tag}/{purpose}").random())
        for trial in trials
        for purpose in ("noise", "parts", "public")
    }
    assert len(draws) == 3 * len(trials)
    other = prepared(ExactGaussian(), seed=1)
    assert other.target.seed_key != first.target.seed_key


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
    target = prepared(ReleasesRandomness()).target
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
    asked = prepared(ExactGaussian(), trials=80)
    row = run(asked, tmp_path)
    trials = TrialStore(folder_of(tmp_path, asked.key)).all()
    chose = {trial.id for trial in trials if trial.id.stage is Stage.CHOOSE}
    counted = {trial.id for trial in trials if trial.id.stage is Stage.BOUND}
    assert not {one.tag for one in chose} & {one.tag for one in counted}
    assert len(chose) == len(counted) == 40 and len(trials) == row.refits == 80
    assert sum(one.canary == OUT for one in counted) == 20 == row.trials / 2
    # No two of them drew the same numbers.
    features = np.array([trial.features for trial in trials])
    assert len(np.unique(features, axis=0)) == len(trials)
    low = 0.025 ** (1 / 20)  # Clopper-Pearson of 20 of 20
    assert row.eps_detectable == pytest.approx(math.log(low / (1 - low)), abs=1e-3)


def test_an_exact_mechanism_is_not_refuted_and_its_row_is_complete(tmp_path: Path) -> None:
    asked = prepared(ExactGaussian(), trials=200)
    row = run(asked, tmp_path)
    assert (row.status, row.kind, row.reason) == ("ok", "two-world", "")
    assert row.eps_target == row.eps_claimed == 1.0
    assert row.eps_proven == pytest.approx(1.0, abs=2e-3)
    assert row.eps_audited is not None and row.eps_gaussian is not None
    assert row.eps_audited <= 1.0 and row.planted is not None and 0.0 <= row.planted <= 1.0
    refutation = refutations([row])[row.key]
    assert not refutation.claim and not refutation.proof
    conclusion = conclude(row, refutation, tmp_path)
    assert conclusion.verdict == "sound" and "proves nothing" in conclusion.sentence
    text = report(row, refutation, tmp_path)
    assert "eps detectable" in text and "planted bug" in text and "refuted" not in text
    assert read_audits(tmp_path) == (row,)


def test_a_copied_row_is_refuted_after_a_replication(tmp_path: Path) -> None:
    asked = prepared(RowCopier(probability=0.8), trials=200)
    row = run(asked, tmp_path)
    assert row.eps_audited is not None and row.eps_audited > 1.0
    assert row.p_claim < 0.05 and row.replicated_p_claim < 0.05
    assert row.replicated_eps is not None and row.replicated_eps > 1.0
    assert row.refits == 300 and row.trials == 100
    refutation = refutations([row])[row.key]
    assert refutation.claim and refutation.proof
    conclusion = conclude(row, refutation, tmp_path)
    assert conclusion.refuted and conclusion.verdict == "proof refuted"
    table = markdown_table([row], tmp_path)
    assert "proof refuted" in table and "| known-row-copier | tiny-table | 1 | 1 |" in table
    # The same code on other rows, where the attack finds nothing: what is refuted stays refuted.
    blank = {"p_claim": 1.0, "p_proof": 1.0, "replicated_p_claim": 1.0, "replicated_p_proof": 1.0}
    other = replace(row, key="other", dataset="elsewhere", **blank)
    (line,) = (
        text
        for text in markdown_table([row, other], tmp_path).splitlines()
        if "| elsewhere |" in text
    )
    assert "| proof refuted (on tiny-table) |" in line


def test_an_interrupted_audit_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = prepared(ExactGaussian(), trials=80)
    run(asked, tmp_path / "whole")
    calls = 0

    def interrupting(target: AuditTarget, trials: Sequence[TrialId]) -> list[Trial]:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return run_trials(target, trials)

    monkeypatch.setattr(audit_trials, "run_trials", interrupting)
    with pytest.raises(KeyboardInterrupt):
        run(asked, tmp_path / "broken")
    kept = len(TrialStore(folder_of(tmp_path / "broken", asked.key)))
    assert 0 < kept < 80
    again = 0

    def counting(target: AuditTarget, trials: Sequence[TrialId]) -> list[Trial]:
        nonlocal again
        again += len(trials)
        return run_trials(target, trials)

    monkeypatch.setattr(audit_trials, "run_trials", counting)
    row = run(asked, tmp_path / "broken")
    assert again == 80 - kept
    files = [folder_of(tmp_path / name, asked.key) for name in ("whole", "broken")]
    for name in ("trials.parquet", "ledger.json"):
        assert (files[0] / name).read_bytes() == (files[1] / name).read_bytes()
    (whole,) = read_audits(tmp_path / "whole")
    assert replace(row, seconds=0, finished_at="") == replace(whole, seconds=0, finished_at="")


def test_stored_trials_alone_give_the_same_row(tmp_path: Path) -> None:
    """An audit is a function of its trials: none is run, and order and batches do not matter."""
    asked = prepared(RowCopier(probability=0.8), trials=80)
    row = run(asked, tmp_path)
    assert row.replicated_eps is not None
    store = TrialStore(folder_of(tmp_path, asked.key))

    def forbidden(work: object, target: object, trials: Sequence[TrialId], **_: object) -> Any:
        assert not trials
        yield from ()

    forgotten = replace(row, eps_proven=None, eps_audited=None, replicated_eps=None, p_claim=1.0)
    steps = two_worlds.two_world_audit(asked.target, 80, forgotten)
    with Crew(RunOptions(out=tmp_path, cpus=1)) as crew:
        crew.run = forbidden  # type: ignore[method-assign]
        assert audit_trials.run_steps(steps, asked.target, store, crew, print) == row


@pytest.mark.parametrize("from_table", [False, True])
def test_a_row_of_an_earlier_version_is_read(tmp_path: Path, from_table: bool) -> None:
    """The maximum detectable epsilon had another name."""
    row = run(prepared(ExactGaussian(), trials=40), tmp_path)
    path = folder_of(tmp_path, row.key) / "audit.json"
    path.write_text(path.read_text().replace('"eps_detectable"', '"ceiling"'))
    if from_table:
        path.unlink()
        table = pq.read_table(tmp_path / "audits.parquet")
        names = ["ceiling" if name == "eps_detectable" else name for name in table.column_names]
        pq.write_table(table.rename_columns(names), tmp_path / "audits.parquet")
    assert read_audits(tmp_path) == (row,)


@pytest.mark.parametrize(
    "change", [{"p_claim": 2.0}, {"p_proof": None}, {"trials": "many"}, {"parameters": "[]"}]
)
def test_a_row_with_impossible_values_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    row = run(prepared(ExactGaussian(), trials=40), tmp_path)
    path = folder_of(tmp_path, row.key) / "audit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StoreError, match="run the audit again"):
        read_audits(tmp_path)


def test_a_second_call_refits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prepared(ExactGaussian(), trials=40)
    first = run(asked, tmp_path)

    def forbidden(target: AuditTarget, trials: Sequence[TrialId]) -> list[Trial]:
        raise AssertionError("a refit")

    monkeypatch.setattr(audit_trials, "run_trials", forbidden)
    assert run(asked, tmp_path) == first


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
    broken = run(prepared(Breaking()), tmp_path)
    assert broken.status == "error" and "something broke" in broken.reason
    assert run(prepared(Breaking()), tmp_path).finished_at != broken.finished_at
    assert "audit failed" in markdown_table(read_audits(tmp_path), tmp_path)
    skipped = run(prepared(Breaking(fits=False)), tmp_path)
    assert (skipped.status, skipped.reason) == ("skipped", "only for images")
    clients = run(prepared(OfClients()), tmp_path)
    assert clients.status == "skipped" and "unit of privacy is the client" in clients.reason
    table = markdown_table(read_audits(tmp_path), tmp_path)
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
    row = run(prepared(Elsewhere()), tmp_path)
    assert row.status == "error" and "--delta 0.1" in row.reason
    assert run(prepared(Elsewhere(), delta=0.1), tmp_path).eps_claimed == 1.0
    assert run(prepared(Elsewhere(delta=1e-9)), tmp_path).eps_claimed == 1.0


def test_the_table_shows_the_newest_audit_of_a_setting(tmp_path: Path) -> None:
    old = run(prepared(ExactGaussian(), trials=40), tmp_path)
    new = run(prepared(ExactGaussian(), trials=44), tmp_path)
    assert old.key != new.key and len(read_audits(tmp_path)) == 2
    lines = markdown_table(read_audits(tmp_path), tmp_path).splitlines()
    assert len(lines) == 3 and f"| {new.trials} |" in lines[2] and new.trials != old.trials


@pytest.mark.parametrize(
    "change, text",
    [
        ({"epsilon": -1.0}, "not a positive finite number"),
        ({"trials": 10}, "at least 40"),
        ({"trials": 5, "kind": "one-run"}, "at least 10"),
        ({"ipc": 0}, "not a positive number of rows"),
    ],
)
def test_invalid_requests_are_refused(change: dict[str, Any], text: str) -> None:
    good = {"epsilon": 1.0, "trials": 100}
    with pytest.raises(InputError, match=text):
        Request(Variant("ldpdc", "ldpdc"), Variant("t", "t"), **{**good, **change})


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


@pytest.mark.parametrize("kind, trials", [("two-world", 80), ("one-run", 30)])
def test_a_model_that_has_memorised_its_rows_reaches_the_maximum_detectable_epsilon(
    kind: str, trials: int, tmp_path: Path
) -> None:
    dataset = build_dataset(ToyTable())
    row = run(prepared(Memorises(), trials, dataset, kind=kind), tmp_path)
    assert row.status == "ok" and row.eps_proven == math.inf and row.eps_claimed is None
    assert row.eps_detectable is not None and row.eps_audited == pytest.approx(row.eps_detectable)
    assert row.planted is None and row.p_claim == row.p_proof == 1.0
    assert conclude(row, refutations([row])[row.key], tmp_path).verdict == "non-private"


def test_a_one_run_audit_of_an_exact_mechanism_refutes_nothing(tmp_path: Path) -> None:
    dataset = build_dataset(ToyTable())
    row = run(prepared(ExactGaussian(), 40, dataset, kind="one-run"), tmp_path)
    assert (row.status, row.trials, row.refits) == ("ok", row.trials, 5)
    assert row.p_claim > 0.05 and row.replicated_eps is None
    assert row.planted is not None and "every row copied" in row.planted_bug
    assert row.eps_audited is not None and row.eps_audited <= 1.0


def test_a_one_run_audit_needs_room_for_its_canaries(tmp_path: Path) -> None:
    row = run(prepared(ExactGaussian(), 40, kind="one-run"), tmp_path)
    # Three numbers have eight corners.
    assert row.status == "skipped" and "8 different canaries only" in row.reason


@pytest.mark.slow
def test_the_auditor_finds_both_bugs_and_spares_the_exact_ones(tmp_path: Path) -> None:
    from bench.audit.self_test import self_test

    with Crew(RunOptions(out=tmp_path, cpus=2)) as crew:
        checked = list(self_test(tmp_path, crew))
    assert [one.refuted for one in checked] == [False, False, True, True]
    assert all(one.good for one in checked)
