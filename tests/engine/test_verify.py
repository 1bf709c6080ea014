"""A run directory is checked against itself and against what the code computes now."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bench.cli.runs import verify as command
from bench.engine import keys
from bench.engine import verify as verification
from bench.engine.cell import failed_row, run_cell
from bench.engine.fit import InThisProcess
from bench.engine.verify import verify
from bench.errors import BenchError, InputError
from bench.plugins import registry
from bench.plugins.method import Environment
from bench.plugins.source import build_dataset
from bench.privacy import accounting
from bench.privacy.ledger import Ledger
from bench.results.integrity import RELEASE_FILES
from bench.results.records import Cell, CellRow, Outcome, ScoreRow, Status, Variant
from bench.results.run_directory import RunStore
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())


def cell_of(seed: int, method: str = "marginals") -> Cell:
    return Cell(
        Variant(method, method), Variant("toy-table", "toy-table"), 10, False, 1.0, 1e-5, seed,
        "default", 0,
    )  # fmt: skip


def computed(seed: int, method: str = "marginals", *metrics: str) -> Outcome:
    cell = cell_of(seed, method)
    key = keys.cell_key(cell, DATASET.fingerprint)
    return run_cell(cell, key, DATASET, metrics or ("ks", "tvd"))


GOOD = computed(0)
KEY = GOOD.row.key


@pytest.fixture(autouse=True)
def _toy_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy table is no plugin that a stored cell could be loaded from."""
    monkeypatch.setattr(verification, "load_dataset", lambda *_: DATASET)


def stored(directory: Path, *outcomes: Outcome) -> Path:
    with RunStore(directory) as store:
        for outcome in outcomes:
            store.record(outcome, DATASET.encoder)
        store.compact()
    return directory


def with_row(**facts: object) -> Outcome:
    return replace(GOOD, row=replace(GOOD.row, **facts))  # type: ignore[arg-type]


def rekeyed(outcome: Outcome) -> Outcome:
    """The outcome under the key that follows from its row."""
    key = keys.cell_key(outcome.row.cell, outcome.row.fingerprint)
    scores = tuple(replace(score, key=key) for score in outcome.scores)
    timings = tuple(replace(timing, key=key) for timing in outcome.timings)
    return replace(outcome, row=replace(outcome.row, key=key), scores=scores, timings=timings)


def bench_verify(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_what_was_computed_is_computed_again(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", *(computed(seed) for seed in range(4)))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = verify(run, sample=2)
    assert found.good and (found.cells, found.releases) == (4, 4)
    assert len(found.recomputed) == 2 and found.not_verifiable == []
    assert all(cell.remarks == () for cell in found.recomputed)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    drawn = [cell.key for cell in found.recomputed]
    assert [cell.key for cell in verify(run, sample=2).recomputed] == drawn
    others = {tuple(c.key for c in verify(run, sample=2, seed=s).recomputed) for s in range(1, 6)}
    assert others != {tuple(drawn)}


def test_the_exit_code_tells(tmp_path: Path) -> None:
    good = stored(tmp_path / "good", GOOD)
    result = bench_verify(good)
    assert result.exit_code == 0 and "computed again, the same: marginals" in result.stdout
    assert "computing again" in result.stderr
    assert bench_verify(good, "--sample", 0).stdout.endswith("no cell was computed again\n")
    first, *rest = GOOD.scores
    assert first.value is not None
    changed = (replace(first, value=first.value + 0.5), *rest)
    bad = stored(tmp_path / "bad", replace(GOOD, scores=changed))
    result = bench_verify(bad)
    assert result.exit_code == 1 and "DIFFERS" in result.stdout
    expected = f"differs: {first.metric} {first.value + 0.5:.10g} and {first.value:.10g}"
    assert expected in result.stdout


def _other_values(outcome: Outcome) -> Outcome:
    assert outcome.release is not None and outcome.release.rows is not None
    values = np.array(outcome.release.rows.values)
    values[3, 0] += 0.25
    rows = replace(outcome.release.rows, values=values)
    return replace(outcome, release=replace(outcome.release, rows=rows))


def _given_weights(outcome: Outcome) -> Outcome:
    assert outcome.release is not None and outcome.release.rows is not None
    rows = replace(outcome.release.rows, weights=np.ones(len(outcome.release.rows)))
    return replace(outcome, release=replace(outcome.release, rows=rows))


@pytest.mark.parametrize(
    "change, said",
    [
        (_other_values, "values of the release: 1 of 120 numbers differ, by up to 0.25"),
        (_given_weights, "weights of the release are given once and absent once"),
        (lambda _: with_row(verdict="unproven"), "verdict 'unproven' and now 'sound'"),
        (lambda _: with_row(eps_proven=0.5), "eps proven 0.5 and now"),
    ],
)
def test_each_difference_is_named(
    tmp_path: Path, change: Callable[[Outcome], Outcome], said: str
) -> None:
    (cell,) = verify(stored(tmp_path, change(GOOD))).recomputed
    assert len(cell.differences) == 1 and said in cell.differences[0]


def test_a_cell_that_fails_now_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise ValueError("no more")

    run = stored(tmp_path, GOOD)
    # A process of its own would import the method anew, without this fault.
    here = contextlib.nullcontext(InThisProcess())
    monkeypatch.setattr(verification, "isolated", lambda: here)
    monkeypatch.setattr(registry.method_class("marginals"), "synthesize", broken)
    (cell,) = verify(run).recomputed
    (difference,) = cell.differences
    assert difference.startswith("it was ok and is now error (ValueError at test_verify.py:")


def test_other_versions_are_offered_as_an_explanation(tmp_path: Path) -> None:
    versions = {**json.loads(keys.versions()), "numpy": "1.0"}
    outcome = with_row(verdict="unproven", versions=json.dumps(versions))
    (cell,) = verify(stored(tmp_path, outcome)).recomputed
    assert cell.remarks == (f"computed with other versions: numpy 1.0 -> {np.__version__}",)


def test_metrics_that_have_changed_are_not_compared(tmp_path: Path) -> None:
    hashes = {**json.loads(GOOD.row.metrics), "tvd": "older", "gone": "x"}
    gone = tuple(
        replace(score, value=9.0) if score.metric.startswith("tvd") else score
        for score in GOOD.scores
    )
    outcome = replace(with_row(metrics=json.dumps(hashes)), scores=gone)
    (cell,) = verify(stored(tmp_path, outcome)).recomputed
    assert cell.differences == ()
    assert cell.remarks == ("not compared, their source has changed: tvd, gone",)


@pytest.mark.parametrize(
    "facts, reason",
    [
        ({"source_hash": "older"}, "the source of method marginals has changed since"),
        ({"fingerprint": "other"}, "dataset toy-table has changed since"),
        ({"study_only": False}, "its noise was secure, which cannot be drawn again"),
        ({"method": "gone"}, "method gone is not installed"),
    ],
)
def test_what_cannot_be_verified_is_said(
    tmp_path: Path, facts: dict[str, object], reason: str
) -> None:
    outcome = with_row(**facts)
    run = stored(tmp_path, outcome if "method" in facts else rekeyed(outcome))
    found = verify(run)
    assert found.recomputed == [] and [c.reason for c in found.not_verifiable] == [reason]
    assert found.good
    assert f"not verifiable (1): {reason}" in bench_verify(run).stdout


def test_methods_that_cannot_be_repeated_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored(tmp_path, GOOD)
    kind = registry.method_class("marginals")
    monkeypatch.setattr(kind, "seeded", False)
    assert verify(run).not_verifiable[0].reason == "method marginals cannot be seeded"
    monkeypatch.setattr(kind, "environment", Environment("tiny", ("a==1",), ()))
    assert "runs in its own environment" in verify(run).not_verifiable[0].reason


def test_a_dataset_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stored(tmp_path, GOOD)
    monkeypatch.setattr(verification, "load_dataset", lambda *_: BenchError("not downloaded"))
    assert verify(run).not_verifiable[0].reason == "not downloaded"


def test_the_sample_is_not_used_up_by_what_cannot_be_verified(tmp_path: Path) -> None:
    lost = [
        Outcome(replace(GOOD.row, key=f"k{n}", source_hash="older"), (), GOOD.release, fitted=True)
        for n in range(6)
    ]
    found = verify(stored(tmp_path, *lost, GOOD), sample=1)
    assert [cell.key for cell in found.recomputed] == [KEY]


def test_one_cell_by_its_key(tmp_path: Path) -> None:
    failed = Outcome(failed_row(cell_of(1), "bad", DATASET, Status.ERROR, "oops"))
    run = stored(tmp_path, GOOD, computed(2), failed)
    assert [cell.key for cell in verify(run, cell=KEY).recomputed] == [KEY]
    assert verify(run, cell="bad").not_verifiable[0].reason == "it ended as error"
    with pytest.raises(InputError, match="holds no cell nothing"):
        verify(run, cell="nothing")


def test_of_a_model_only_scores_are_compared(tmp_path: Path) -> None:
    model = computed(0, "dp-sgd", "auroc")
    assert model.row.status == "ok" and model.row.rows_released is None
    (cell,) = verify(stored(tmp_path / "a", model)).recomputed
    assert cell.differences == () and "only its scores" in cell.remarks[0]
    assert any(score.value is not None for score in model.scores)
    other = tuple(_raised(score) for score in model.scores)
    (cell,) = verify(stored(tmp_path / "b", replace(model, scores=other))).recomputed
    assert cell.differences


def _raised(score: ScoreRow) -> ScoreRow:
    return score if score.value is None else replace(score, value=score.value + 1e-6)


# Cheap checks -------------------------------------------------------------------------------------


def problems(run: Path) -> str:
    return "\n".join(verify(run, sample=0).problems)


def test_a_damaged_release_is_found(tmp_path: Path) -> None:
    run = stored(tmp_path, GOOD)
    assert problems(run) == ""
    path = run / "releases" / KEY / "synthetic.parquet"
    path.write_bytes(path.read_bytes()[:50])
    assert "its release is missing or damaged" in problems(run)


def test_a_ledger_must_replay_to_the_epsilon_of_the_row(tmp_path: Path) -> None:
    run = stored(tmp_path, GOOD)
    path = run / "releases" / KEY / "ledger.json"
    ledger = json.loads(path.read_text())
    for entry in ledger["entries"]:
        entry["count"] *= 4
    path.write_text(json.dumps(ledger))
    assert f"the result table says {GOOD.row.eps_proven:.6g}." in problems(run)
    assert "ledger.json is not the file that was released" in problems(run)
    path.write_text('{"form": 1}')
    assert "cannot be replayed" in problems(run)


def test_an_infinite_epsilon_replays_to_infinity(tmp_path: Path) -> None:
    cell = replace(cell_of(0, "real"), epsilon=None, ipc=None)
    real = run_cell(cell, keys.cell_key(cell, DATASET.fingerprint), DATASET, ("ks",))
    assert real.row.eps_proven == math.inf
    assert problems(stored(tmp_path, real)) == ""


def test_tables_must_agree_with_the_journal(tmp_path: Path) -> None:
    run = stored(tmp_path, GOOD)
    other = computed(1)
    with RunStore(run) as store:
        store.record(other, DATASET.encoder)
    text = problems(run)
    assert f"lacks cells of the journal: 1 ({other.row.key})" in text
    assert f"scores.parquet lacks cells of the journal: 1 ({other.row.key})" in text
    with RunStore(run) as store:
        assert "a run is writing" in verify(run, sample=0).remarks[0]
        store.compact()
        store.record(with_row(verdict_reason="another"), DATASET.encoder)
    assert f"has other values than the journal: 1 ({KEY})" in problems(run)
    (run / "journal.jsonl").write_text("")
    assert "not in the journal: 2" in problems(run)
    (run / "cells.parquet").write_bytes(b"nonsense")
    assert "cannot be read" in problems(run)


def test_a_missing_table_is_said(tmp_path: Path) -> None:
    run = stored(tmp_path, GOOD)
    (run / "cells.parquet").unlink()
    assert "cells.parquet is missing" in problems(run)


def test_numbers_that_a_table_holds_otherwise_are_the_same(tmp_path: Path) -> None:
    # A grid that says 1 instead of 1.0 leaves an integer in the journal and a float in the table.
    row: CellRow = replace(GOOD.row, eps_target=1)
    assert problems(stored(tmp_path, rekeyed(replace(GOOD, row=row)))) == ""


# What was altered afterwards ----------------------------------------------------------------------


def rewritten(path: Path, change: Callable[[dict[str, list[Any]]], None]) -> None:
    """A table with other values; nothing else of the directory is touched."""
    table = pq.read_table(path)
    columns = table.to_pydict()
    change(columns)
    pq.write_table(pa.table(columns, schema=table.schema), path)


def raised(columns: dict[str, list[Any]]) -> None:
    columns["value"][0] += 0.4


def flipped(columns: dict[str, list[Any]]) -> None:
    columns["direction"][0] = "higher"


def renamed(columns: dict[str, list[Any]]) -> None:
    columns["metric"][0] = "another"


@pytest.mark.parametrize("change", [raised, flipped, renamed])
def test_a_score_that_was_altered_in_the_table(
    tmp_path: Path, change: Callable[[dict[str, list[Any]]], None]
) -> None:
    """Only the number of scores used to be compared: a better one was 'all good'."""
    run = stored(tmp_path, GOOD, computed(1))
    rewritten(run / "scores.parquet", change)
    result = bench_verify(run, "--sample", 0)
    assert result.exit_code == 1
    assert f"scores.parquet has other values than the journal: 1 ({KEY})" in result.stdout
    if change is raised:
        first = GOOD.scores[0]
        assert first.value is not None
        said = f"{first.metric} {first.value:.10g} and {first.value + 0.4:.10g}"
        assert said in result.stdout


@pytest.mark.parametrize("name", ["verdict", "eps_proven", "release_hashes", "seed"])
def test_a_cell_that_was_altered_in_the_table(tmp_path: Path, name: str) -> None:
    run = stored(tmp_path, GOOD)

    def change(columns: dict[str, list[Any]]) -> None:
        value = columns[name][0]
        columns[name][0] = value / 2 if isinstance(value, float) else type(value)("5")

    rewritten(run / "cells.parquet", change)
    assert f"cells.parquet has other values than the journal: 1 ({KEY})" in problems(run)


def change_line(run: Path, **facts: object) -> None:
    """Alter the cell in the journal, and write the tables from it."""
    path = run / "journal.jsonl"
    document = json.loads(path.read_text())
    document["cell"] |= facts
    path.write_text(json.dumps(document) + "\n")
    with RunStore(run) as store:
        store.compact()


def change_ledger(run: Path, **facts: object) -> float:
    """Alter the ledger, and return the epsilon that it replays to."""
    path = run / "releases" / KEY / "ledger.json"
    document = json.loads(path.read_text()) | facts
    path.write_text(json.dumps(document))
    return Ledger.from_json(path.read_text()).proof().epsilon


def without_digests(run: Path) -> None:
    """As an earlier version wrote it, or somebody who knows of them."""
    change_line(run, release_hashes="")


def test_a_ledger_of_another_delta(tmp_path: Path) -> None:
    """With the epsilon of the row to match, it was 'all good': epsilon 0, sound."""
    run = stored(tmp_path, GOOD)
    order = accounting.adaptive_order(accounting.Budget(1.0, 0.4))
    epsilon = change_ledger(run, delta=0.4, order=order)
    assert epsilon < 0.5
    reason = f"epsilon {epsilon:.4g} at delta 0.4 by PLD"
    change_line(run, eps_proven=epsilon, verdict_reason=reason, release_hashes="")
    text = problems(run)
    assert "The ledger is for delta 0.4, the result table says 1e-05." in text
    # With the delta of the row to match as well: it belongs to the key.
    change_line(run, delta=0.4)
    assert "its key does not follow from its row" in problems(run)
    assert bench_verify(run, "--sample", 0).exit_code == 1


@pytest.mark.parametrize(
    "facts, said",
    [
        ({"unit": "nobody"}, "The ledger protects each nobody, the result table says row."),
        ({"entries": []}, "The ledger proves epsilon 0, the result table says"),
    ],
)
def test_a_ledger_that_was_altered(tmp_path: Path, facts: dict[str, object], said: str) -> None:
    run = stored(tmp_path, GOOD)
    change_ledger(run, **facts)
    assert "ledger.json is not the file that was released" in problems(run)
    without_digests(run)
    assert said in problems(run) and "is not the file" not in problems(run)


@pytest.mark.parametrize(
    "facts, said",
    [
        ({"eps_proven": 0.01}, "The ledger proves epsilon 0.9993"),
        ({"eps_target": 3.0}, "The ledger was kept for a target of 1, the result table says 3."),
        ({"verdict": "non-private"}, "From the ledger the verdict is 'sound'"),
        ({"accountant": "RDP"}, "The ledger is accounted by"),
        ({"unit": "client"}, "The ledger protects each row, the result table says client."),
        ({"adjacency": "replace-one"}, "The ledger is for add-remove adjacency"),
        ({"eps_claimed": 9.0}, "The method claimed epsilon"),
        ({"rows_released": 7}, "rows, its row says 7"),
        ({"seed": 7}, "its key does not follow from its row"),
    ],
)
def test_a_row_that_was_altered(tmp_path: Path, facts: dict[str, object], said: str) -> None:
    run = stored(tmp_path, GOOD)
    assert problems(run) == ""
    change_line(run, **facts)
    assert said in problems(run)


@pytest.mark.parametrize("name", RELEASE_FILES)
def test_a_file_of_a_release_that_was_replaced(tmp_path: Path, name: str) -> None:
    """`encoded.parquet` overwritten by that of another release was 'all good'."""
    other = computed(1)
    run = stored(tmp_path, GOOD, other)
    (run / "releases" / KEY / "release.json").write_text(
        json.dumps(json.loads((run / "releases" / KEY / "release.json").read_text()))
    )
    shutil.copy(run / "releases" / other.row.key / name, target := run / "releases" / KEY / name)
    if name.endswith(".json"):
        target.write_text(target.read_text() + " ")
    assert f"{name} is not the file that was released: its digest is another." in problems(run)


def test_directories_of_earlier_versions_have_no_digests(tmp_path: Path) -> None:
    run = stored(tmp_path, GOOD)
    without_digests(run)
    assert problems(run) == ""
    (cell,) = verify(run).recomputed
    assert cell.differences == ()


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda scores: scores[1:], "is given now and was not stored"),
        (
            lambda scores: (replace(scores[0], direction="higher"), *scores[1:]),
            "'higher' and now 'lower'",
        ),
        (
            lambda scores: (*scores, replace(scores[0], metric="ks/new")),
            "ks/new was stored and is not given now",
        ),
    ],
)
def test_scores_that_were_left_out_or_turned_round(
    tmp_path: Path, change: Callable[[Any], Any], said: str
) -> None:
    (cell,) = verify(stored(tmp_path, replace(GOOD, scores=change(GOOD.scores)))).recomputed
    assert said in "; ".join(cell.differences)
