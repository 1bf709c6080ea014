"""Published cells that are computed again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.engine import keys
from bench.engine.publish import publish
from bench.engine.verify import to_text, verify_published
from bench.results.records import Outcome
from tests.support.publishing import changed, failed, finished, run_of


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def version(tmp_path: Path, *outcomes: Outcome) -> Path:
    target = tmp_path / "versions" / "2026.11"
    publish([run_of(tmp_path / "run", *outcomes)], target)
    return target


def moved(outcome: Outcome, by: float) -> Outcome:
    """Return the outcome with another headline, and the interval around it."""

    def shifted(number: float | None) -> float | None:
        return None if number is None else number + by

    scores = tuple(
        replace(one, value=shifted(one.value), low=shifted(one.low), high=shifted(one.high))
        if one.metric == "c-index/cox"
        else one
        for one in outcome.scores
    )
    return replace(outcome, scores=scores)


def test_bytes_and_scores_are_the_same(tmp_path: Path) -> None:
    target = version(tmp_path, finished(), finished("real", 0, None), failed(finished(seed=1)))
    result = cli("verify", "--published", target, "--sample", 20)
    assert result.exit_code == 0, result.output
    assert result.output.count("computed again, the same") == 2
    # `real` has no proven epsilon: its rows are not stored, and the digest of `rows.json` agrees.
    assert result.output.count("released files: the same bytes") == 2


def test_a_score_that_is_not_given_again_differs(tmp_path: Path) -> None:
    target = version(tmp_path, moved(finished(), 1e-6))
    result = cli("verify", "--published", target, "--sample", 1)
    assert result.exit_code == 1 and "differs: c-index/cox" in result.output


def older(outcome: Outcome) -> Outcome:
    """Return the outcome as one of other versions of the libraries."""
    versions = json.loads(outcome.row.versions) | {"scipy": "0.1"}
    return changed(outcome, versions=json.dumps(versions))


def test_with_other_versions_a_score_may_move_within_its_interval(tmp_path: Path) -> None:
    inside = version(tmp_path / "a", older(moved(finished(), 1e-3)))
    found = verify_published(inside, 1)
    assert found.good and "within their intervals; 1 of" in to_text(found)
    outside = version(tmp_path / "b", older(moved(finished(), 0.4)))
    score = next(one for one in finished().scores if one.metric == "c-index/cox")
    assert score.high is not None and score.value is not None
    assert score.high - score.value < 0.4
    found = verify_published(outside, 1)
    assert not found.good


def headline(outcome: Outcome, **facts: object) -> Outcome:
    """Return the outcome with a headline that says something else."""
    scores = tuple(
        replace(one, **facts) if one.metric == "c-index/cox" else one  # type: ignore[arg-type]
        for one in outcome.scores
    )
    return replace(outcome, scores=scores)


@pytest.mark.parametrize(
    "facts, told",
    [
        ({"value": 0.9999, "low": -1e9, "high": 1e9}, "c-index/cox 0.9999 and 0."),
        ({"low": -1e9, "high": 1e9}, "low of c-index/cox -1000000000.0 and now"),
        ({"low": None, "high": None}, "high of c-index/cox None and now"),
        ({"direction": "lower"}, "direction of c-index/cox 'lower' and now 'higher'"),
    ],
)
def test_with_other_versions_what_is_stored_excuses_nothing(
    tmp_path: Path, facts: dict[str, object], told: str
) -> None:
    found = verify_published(version(tmp_path, older(headline(finished(), **facts))), 1)
    assert not found.good and told in to_text(found)


def test_with_other_versions_a_score_that_is_left_out_is_told(tmp_path: Path) -> None:
    scores = tuple(one for one in finished().scores if one.metric != "c-index/cox")
    found = verify_published(version(tmp_path, older(replace(finished(), scores=scores))), 1)
    assert not found.good and "c-index/cox is given now and was not stored" in to_text(found)


def test_released_rows_with_other_bytes_are_said(tmp_path: Path) -> None:
    target = version(tmp_path, finished())
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = target / "cells.parquet"
    table = pq.read_table(place)
    hashes = json.loads(table.column("release_hashes")[0].as_py())
    hashes["encoded.parquet"][1] = "0" * 64
    column = table.schema.get_field_index("release_hashes")
    new = table.set_column(column, "release_hashes", pa.array([json.dumps(hashes)]))
    pq.write_table(new, place)
    assert "released files with other bytes: encoded.parquet" in to_text(
        verify_published(target, 1)
    )


def test_a_verdict_without_its_ledger_is_a_problem(tmp_path: Path) -> None:
    target = version(tmp_path, finished())
    (target / "ledgers.parquet").unlink()
    found = verify_published(target, 0)
    assert not found.good and "ledger.json is not stored" in found.problems[0]


def test_one_cell_by_its_key(tmp_path: Path) -> None:
    target = version(tmp_path, finished(), finished(seed=1))
    found = verify_published(target, cell=finished(seed=1).row.key)
    assert [one.key for one in found.recomputed] == [finished(seed=1).row.key]
    result = cli("verify", "--published", target, "--cell", "nothing")
    assert result.exit_code == 2 and "holds no cell nothing" in result.output


@pytest.mark.parametrize("arguments", [[], ["runs/x", "--published"]])
def test_either_a_run_or_published_results(arguments: list[str]) -> None:
    result = cli("verify", *arguments)
    assert result.exit_code == 2


def test_other_code_cannot_be_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = version(tmp_path, finished())
    monkeypatch.setattr(keys, "method_source_hash", lambda name: "0" * 64)
    found = verify_published(target, 1)
    assert found.recomputed == []
    assert found.not_verifiable[0].reason == "the source of method marginals has changed since"
