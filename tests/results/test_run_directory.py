"""The run directory survives what happens to run directories."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from bench.engine import keys
from bench.engine.cell import run_cell, storable
from bench.errors import StoreError
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from bench.results.integrity import RELEASE_FILES
from bench.results.journal import Journal, plain, read_journal, unplain
from bench.results.opening import LARGEST_DOCUMENT
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunStore
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())


def outcome(method: str = "marginals", seed: int = 0) -> Outcome:
    epsilon = None if method == "real" else 1.0
    asked = Cell(
        Variant(method, method), Variant("toy-table", "toy-table"), 10, False, epsilon, 1e-5, seed,
        "default", 0,
    )  # fmt: skip
    return run_cell(asked, keys.cell_key(asked, DATASET.fingerprint), DATASET, ("ks",))


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    done = outcome()
    with RunStore(tmp_path / "run") as store:
        store.record(done, DATASET.encoder)
        store.compact()
    with RunStore(tmp_path / "run") as store:
        row, scores = store.finished[done.row.key]
        assert set(json.loads(row.release_hashes)) == set(RELEASE_FILES)
        assert replace(row, release_hashes="") == done.row and scores == done.scores
        release = store.read_release(row.key, DATASET.encoder)
        assert release is not None and release.rows is not None
        assert done.release is not None and done.release.rows is not None
        assert np.array_equal(release.rows.values, done.release.rows.values)
        assert release.ledger is not None and release.ledger.proof().epsilon == row.eps_proven
        assert release.claim == done.release.claim
    cells = pd.read_parquet(tmp_path / "run" / "cells.parquet")
    assert cells["verdict"].tolist() == ["sound"]
    assert len(pd.read_parquet(tmp_path / "run" / "scores.parquet")) == len(done.scores)
    synthetic = pd.read_parquet(tmp_path / "run" / "releases" / row.key / "synthetic.parquet")
    assert set(synthetic["smoker"]) <= {"yes", "no"} and len(synthetic) == 20
    assert (tmp_path / "run" / "details" / row.key / "ks.parquet").exists()


def test_cells_of_a_checkout_with_changes_stay_marked(tmp_path: Path) -> None:
    changed, clean = ({"commit": name, "dirty": name == "a"} for name in "ab")
    with RunStore(tmp_path) as store:
        store.write_manifest(changed)
        store.write_manifest(clean)
        assert store.manifest()["dirty"] is False  # no cell was computed before
        store.write_manifest(changed)
        store.record(outcome(), DATASET.encoder)
    with RunStore(tmp_path) as store:
        store.write_manifest(clean)
        assert (store.manifest()["commit"], store.manifest()["dirty"]) == ("b", True)


def test_a_checkout_with_changes_marks_a_directory_with_clean_cells(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.write_manifest({"dirty": False})
        store.record(outcome(), DATASET.encoder)
        store.write_manifest({"wall_seconds": 1.0})
        assert store.manifest()["dirty"] is False
        store.write_manifest({"dirty": True})
        store.write_manifest({"wall_seconds": 2.0})
        assert store.manifest()["dirty"] is True


def test_an_infinite_epsilon_survives_the_journal_as_valid_json(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.record(outcome("real"), DATASET.encoder)
        store.compact()
    line = (tmp_path / "journal.jsonl").read_text().splitlines()[0]
    json.loads(line, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    ((row, _),) = read_journal(tmp_path / "journal.jsonl").values()
    assert row.eps_proven == math.inf
    assert pq.read_table(tmp_path / "cells.parquet")["eps_proven"].to_pylist() == [math.inf]


def test_weights_and_soft_labels_are_kept(tmp_path: Path) -> None:
    values = np.zeros((2, DATASET.encoder.width), dtype=np.float32)
    rows = Rows(values, np.array([0, 1]), np.array([0.5, 2.0]), np.array([[0.9, 0.1], [0.2, 0.8]]))
    done = outcome()
    with RunStore(tmp_path) as store:
        release = Release(rows, ledger=done.release.ledger if done.release else None)
        store.record(replace(done, release=release), DATASET.encoder)
        back = store.read_release(done.row.key, DATASET.encoder)
    assert back is not None and back.rows is not None and back.rows.weights is not None
    assert back.rows.weights.tolist() == [0.5, 2.0] and back.rows.values.dtype == np.float32
    assert back.rows.soft_labels is not None and back.rows.soft_labels[1, 1] == 0.8


def test_a_torn_last_line_is_cut_off_and_work_goes_on(tmp_path: Path) -> None:
    first, second = outcome(seed=0), outcome(seed=1)
    with RunStore(tmp_path) as store:
        store.record(first, DATASET.encoder)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    with RunStore(tmp_path) as store:
        assert set(store.finished) == {first.row.key}
        store.record(second, DATASET.encoder)
    assert set(read_journal(path)) == {first.row.key, second.row.key}


def test_a_damaged_line_costs_its_own_cell_only(tmp_path: Path) -> None:
    first, second = outcome(seed=0), outcome(seed=1)
    with RunStore(tmp_path) as store:
        store.record(first, DATASET.encoder)
        store.record(second, DATASET.encoder)
    path = tmp_path / "journal.jsonl"
    one, two = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(one[:100] + b"\x00\x00" + one[102:-50] + b"\n" + two)
    with RunStore(tmp_path) as store:
        assert set(store.finished) == {second.row.key}
        store.record(first, DATASET.encoder)
        store.compact()
    assert set(read_journal(path)) == {first.row.key, second.row.key}
    assert len(pd.read_parquet(tmp_path / "cells.parquet")) == 2


def test_only_places_of_cells_are_kept_in_memory(tmp_path: Path) -> None:
    done = outcome()
    with RunStore(tmp_path) as store:
        for number in range(50):
            key = f"key{number}"
            scores = tuple(replace(score, key=key) for score in done.scores)
            row = replace(done.row, key=key)
            store.record(replace(done, row=row, scores=scores, timings=()), DATASET.encoder)
        assert isinstance(store.finished, Journal)
        kept = {"_path", "_start", "_places", "_statuses", "_audits", "_file"}
        kept |= {"notices", "lost_audits"}
        assert set(vars(store.finished)) == kept
        assert not store.finished._audits and not store.finished.notices
        assert set(map(type, store.finished._places.values())) == {int}
        assert [score.value for score in store.finished["key7"][1]] == [
            score.value for score in done.scores
        ]


def test_the_last_word_on_a_cell_counts(tmp_path: Path) -> None:
    done = outcome()
    failed = replace(done, row=replace(done.row, status="error"), release=None)
    with RunStore(tmp_path) as store:
        store.record(failed, None)
        store.record(done, DATASET.encoder)
    ((row, _),) = read_journal(tmp_path / "journal.jsonl").values()
    assert row.status == "ok"


@pytest.mark.parametrize("name", ["encoded.parquet", "synthetic.parquet", "ledger.json"])
def test_a_truncated_release_is_found(tmp_path: Path, name: str) -> None:
    done = outcome()
    with RunStore(tmp_path) as store:
        store.record(done, DATASET.encoder)
        assert store.release_intact(done.row.key)
        path = store.release_directory(done.row.key) / name
        path.write_bytes(path.read_bytes()[:40])
        assert not store.release_intact(done.row.key)


def test_two_writers_do_not_share_a_directory(tmp_path: Path) -> None:
    with RunStore(tmp_path), pytest.raises(StoreError, match="in use by another"):
        RunStore(tmp_path).__enter__()
    with RunStore(tmp_path):
        pass


def test_a_strangers_folder_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match="not a run directory"):
        RunStore(tmp_path).__enter__()
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        RunStore(file).__enter__()


def test_charges_outlive_the_process(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.charge("abc")
    with RunStore(tmp_path) as store:
        assert store.charged() == {"abc"}


def test_a_torn_charge_does_not_hide_later_ones(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.charge("a")
    path = tmp_path / "charges.jsonl"
    path.write_bytes(path.read_bytes() + b'{"key": "b')
    with RunStore(tmp_path) as store:
        store.charge("c")
        assert store.charged() == {"a", "c"}
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with RunStore(tmp_path) as store, pytest.raises(StoreError, match="damaged"):
        store.charged()


def test_a_charge_that_a_power_cut_has_torn_is_cut_off_and_no_other(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.charge("a")
    path = tmp_path / "charges.jsonl"
    path.write_bytes(path.read_bytes() + b'{"key": "b", "ide\0\0\0\0\0": ""}\n')
    assert RunStore(tmp_path).charged() == {"a"}, "also for who only reads"
    with RunStore(tmp_path) as store:
        store.charge("c")
    assert path.read_bytes() == b'{"key": "a"}\n{"key": "c"}\n'


def test_charges_that_are_too_many_to_be_read_are_not_cut(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.charge("a")
    path = tmp_path / "charges.jsonl"
    line = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(LARGEST_DOCUMENT + 10)
        file.seek(LARGEST_DOCUMENT)
        file.write(b"\n" + line[:5])
    size = path.stat().st_size
    with pytest.raises(StoreError, match="more than such a file can have"):
        RunStore(tmp_path).__enter__()
    assert path.stat().st_size == size


# Lines that an earlier version accepted and that no table can hold ------------------------------


def poisoned(change: dict[str, Any], part: str = "cell") -> str:
    """The line of a cell with other values."""
    done = outcome(seed=1)
    document: dict[str, Any] = {
        "cell": plain(asdict(done.row)),
        "scores": [plain(asdict(score)) for score in done.scores],
    }
    target = document["cell"] if part == "cell" else document["scores"][0]
    target.update(change)
    return json.dumps(document)


POISON = {
    "a claim in words": (poisoned({"eps_claimed": "abc"}), "eps_claimed is of type str"),
    "a seed beyond 64 bits": (poisoned({"seed": 2**70}), "seed is beyond 64 bits"),
    "lone surrogates": (poisoned({"notes": '{"a": "\ud800"}'}), "lone surrogates"),
    "a list": (poisoned({"ipc": [1, 2]}), "ipc is of type list"),
    "notes that are no JSON": (poisoned({"notes": "{a"}), "notes is not a JSON object"),
    "parameters that are a list": (
        poisoned({"parameters": "[]"}),
        "parameters is not a JSON object",
    ),
    "an unknown status": (poisoned({"status": "fine"}), "status 'fine' is not known"),
    "a score in words": (poisoned({"value": "high"}, "score"), "value is of type str"),
    "a score without direction": (poisoned({"direction": ""}, "score"), "direction '' is not"),
    "a score of another cell": (poisoned({"key": "x"}, "score"), "scores of another cell"),
    "an unknown attack": (poisoned({"attack": "shouting"}), "attack 'shouting' is not known"),
    "no cell": ('{"cell": [1]}', "no such record"),
    "no object": ("[1, 2]", "no such record"),
    "nothing": ("", "not JSON"),
    "a lack of columns": ('{"cell": {"key": "a"}, "scores": []}', "a line lacks"),
}


@pytest.mark.parametrize("kind", POISON)
def test_a_line_that_no_table_can_hold_is_quarantined(kind: str, tmp_path: Path) -> None:
    line, why = POISON[kind]
    good = outcome(seed=0)
    with RunStore(tmp_path) as store:
        store.record(good, DATASET.encoder)
    path = tmp_path / "journal.jsonl"
    before = path.read_bytes()
    path.write_bytes(line.encode() + b"\n" + before)
    assert list(Journal(path)) == [good.row.key], "readers pass over it"
    with RunStore(tmp_path) as store:
        (notice,) = store.notices
        assert "line 1 is not that of a cell" in notice and why in notice
        assert notice.endswith("moved to quarantine.jsonl")
        assert list(store.finished) == [good.row.key]
        store.compact()
        again = outcome(seed=1)
        store.record(again, DATASET.encoder)
        store.compact()
    assert len(pd.read_parquet(tmp_path / "cells.parquet")) == 2
    assert (tmp_path / "quarantine.jsonl").read_text() == f"{line}\n"
    assert path.read_bytes().startswith(before)
    with RunStore(tmp_path) as store:
        assert store.notices == ()


def test_many_bad_lines_are_counted_not_listed(tmp_path: Path) -> None:
    with RunStore(tmp_path):
        pass
    (tmp_path / "journal.jsonl").write_text("[]\n" * 50)
    with RunStore(tmp_path) as store:
        assert len(store.notices) == 6 and "45 more such lines" in store.notices[-1]


def test_a_row_that_no_table_can_hold_is_not_recorded(tmp_path: Path) -> None:
    done = outcome()
    bad = replace(done, row=replace(done.row, eps_claimed="abc"))  # type: ignore[arg-type]
    with RunStore(tmp_path) as store:
        with pytest.raises(StoreError, match="cannot be stored"):
            store.record(bad, DATASET.encoder)
        kept = storable(bad, done.row.cell, DATASET)
        store.record(kept, None)
        store.compact()
    assert kept.row.status == "error"
    assert kept.row.reason == (
        "its result cannot be stored: eps_claimed is of type str, expected float or nothing"
    )


def test_numbers_that_json_lacks_survive(tmp_path: Path) -> None:
    values = {"a": math.inf, "b": -math.inf, "c": 1.5, "d": "text", "e": None}
    text = json.dumps(plain(values), allow_nan=False)
    assert unplain(json.loads(text)) == values
    assert math.isnan(unplain(json.loads(json.dumps(plain({"a": math.nan}))))["a"])


def test_logs_of_failed_cells_are_kept_until_they_succeed(tmp_path: Path) -> None:
    done = outcome()
    failed = Outcome(
        replace(done.row, status="error", reason="ValueError"), log="row: \ud800 Smith"
    )
    with RunStore(tmp_path) as store:
        kept = store.record(failed, None)
        path = tmp_path / "logs" / f"{done.row.key}.log"
        assert kept.row.reason == f"ValueError; see logs/{path.name}"
        assert path.read_text() == "row: \\ud800 Smith"
        assert "Smith" not in (tmp_path / "journal.jsonl").read_text()
        store.record(done, DATASET.encoder)
        assert not path.exists()
