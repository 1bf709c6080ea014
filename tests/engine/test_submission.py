"""Submissions: what is incomplete is refused by name, and what was changed afterwards is found."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.engine import keys, submission
from bench.engine.options import hash_of_lines, installed
from bench.engine.submission import About, check_submission
from bench.plugins import registry
from bench.results import published
from bench.results.published import Compact
from bench.results.records import CellRow
from tests.results.test_audits import audit_outcome
from tests.support.publishing import changed, failed, finished, run_of

ABOUT = About("marginals", ("A. Author",), "Apache-2.0", "https://example.org/marginals@0123abcd")
SAID = (
    *("--method", "marginals", "--authors", "A. Author", "--licence", "Apache-2.0"),
    *("--code", ABOUT.code),
)


@pytest.fixture(autouse=True)
def _its_defaults_were_chosen_on_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = registry.method_class("marginals")
    monkeypatch.setattr(kind, "paper", "none: ours")
    monkeypatch.setattr(kind, "tuned_on", ())


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three seeds, in this environment."""
    outcomes = [finished(seed=seed) for seed in range(3)]
    run = tmp_path_factory.mktemp("complete") / "run"
    return run_of(run, *outcomes, finished("real", 0, None), environment_hash=lock_hash())


def lock_hash() -> str:
    return hash_of_lines(installed())


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def written(complete: Path, tmp_path: Path) -> Path:
    result = cli("submit", complete, "-o", tmp_path / "submission", *SAID)
    assert result.exit_code == 0, result.output
    return tmp_path / "submission"


def test_a_submission_holds_all_that_a_reviewer_needs(written: Path) -> None:
    about = json.loads((written / "submission.json").read_text())
    assert about["authors"] == ["A. Author"] and about["licence"] == "Apache-2.0"
    assert about["code"] == ABOUT.code and len(about["source_hash"]) >= 16
    lines = (written / "environment.txt").read_text().splitlines()
    assert any(line.startswith("numpy==") for line in lines)
    cells = pq.read_table(written / "results" / "cells.parquet").to_pylist()
    assert [row["method"] for row in cells] == ["marginals"] * 3
    assert pq.read_metadata(written / "results" / "ledgers.parquet").num_rows == 1
    for name, digest in about["files"].items():
        assert hashlib.sha256((written / name).read_bytes()).hexdigest() == digest


def test_an_honest_submission_passes(written: Path) -> None:
    result = cli("check-submission", written, "--sample", 1)
    assert result.exit_code == 0, result.output
    assert "computed again, the same" in result.output
    assert result.output.strip().endswith("may be reviewed")
    assert "it has no audit" in result.output


@pytest.mark.parametrize(
    "left, told",
    [
        ("--authors", "no authors"),
        ("--licence", "no licence"),
        ("--code", "no reference to the method's code"),
    ],
)
def test_who_and_which_code_must_be_said(
    complete: Path, tmp_path: Path, left: str, told: str
) -> None:
    place = SAID.index(left)
    result = cli("submit", complete, "-o", tmp_path / "x", *SAID[:place], *SAID[place + 2 :])
    assert result.exit_code == 2 and f"incomplete: {told}" in result.output
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "code", ["https://example.org/x", "git@example.org:x@0123abcd", "https://example.org/x@main"]
)
def test_code_without_a_commit_is_no_reference(complete: Path, tmp_path: Path, code: str) -> None:
    result = cli("submit", complete, "-o", tmp_path / "x", *SAID, "--code", code)
    assert result.exit_code == 2 and "expected https://host/repository@commit" in result.output


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", finished(epsilon=2.0), failed(finished(seed=1, epsilon=2.0)))
    result = cli("submit", run, "-o", tmp_path / "x", *SAID)
    assert result.exit_code == 2
    for told in (
        "not those of the run: submit from the environment",
        "1 of 2 cells have failed (such as: it did not converge)",
        "fewer than 3 seeds (such as marginals on gbsg2 at epsilon 2: 2)",
        "no cell at epsilon 1",
    ):
        assert told in result.output


def test_a_failure_may_be_explained(tmp_path: Path) -> None:
    outcomes = [finished(seed=0), finished(seed=1), failed(finished(seed=2))]
    run = run_of(tmp_path / "run", *outcomes, environment_hash=lock_hash())
    assert cli("submit", run, "-o", tmp_path / "x", *SAID).exit_code == 2
    explained = cli("submit", run, "-o", tmp_path / "x", *SAID, "--explain", "a step too long")
    assert explained.exit_code == 0, explained.output
    assert json.loads((tmp_path / "x" / "submission.json").read_text())["explanation"]


def test_other_code_and_changed_ledgers_are_incomplete(tmp_path: Path) -> None:
    outcomes = [changed(finished(seed=seed), source_hash="0" * 64) for seed in range(3)]
    run = run_of(tmp_path / "a", *outcomes, environment_hash=lock_hash())
    result = cli("submit", run, "-o", tmp_path / "x", *SAID)
    assert "the code of method marginals is not the installed one" in result.output
    lied = [changed(finished(seed=seed), eps_proven=0.25) for seed in range(3)]
    run = run_of(tmp_path / "b", *lied, environment_hash=lock_hash())
    result = cli("submit", run, "-o", tmp_path / "x", *SAID)
    assert result.exit_code == 2 and "The ledger proves epsilon" in result.output


def test_a_method_says_its_paper_and_its_tuning_data(
    complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.plugins.method import UNKNOWN

    kind = registry.method_class("marginals")
    monkeypatch.setattr(kind, "paper", "")
    monkeypatch.setattr(kind, "tuned_on", (UNKNOWN,))
    result = cli("submit", complete, "-o", tmp_path / "x", *SAID)
    assert "names no paper" in result.output and "set `tuned_on`" in result.output


def test_secure_noise_cannot_be_drawn_again(tmp_path: Path) -> None:
    secure = changed(finished(seed=2), study_only=False)
    outcomes = [finished(seed=0), finished(seed=1), secure]
    run = run_of(tmp_path / "run", *outcomes, environment_hash=lock_hash())
    result = cli("submit", run, "-o", tmp_path / "x", *SAID)
    assert result.exit_code == 2 and "1 cells have secure noise" in result.output


def test_audits_stay_in_the_run(tmp_path: Path) -> None:
    attack = audit_outcome("f" * 20, "marginals", label="marginals", dataset="gbsg2")
    attack = changed(attack, finished_at=finished().row.finished_at)
    outcomes = [*(finished(seed=seed) for seed in range(3)), attack]
    run = run_of(tmp_path / "run", *outcomes, environment_hash=lock_hash())
    assert len(published.compact(run).audits) == 1
    result = cli("submit", run, "-o", tmp_path / "x", *SAID)
    assert result.exit_code == 0, result.output
    results = published.compact(tmp_path / "x" / "results")
    assert len(results.cells) == 3 and results.audits.empty
    assert check_submission(tmp_path / "x", 0).good


def test_a_method_that_is_not_there(complete: Path, tmp_path: Path) -> None:
    result = cli("submit", complete, "-o", tmp_path / "x", "--method", "mine")
    assert result.exit_code == 2 and "it has marginals, real" in result.output


def test_nothing_is_written_over(complete: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "letter.txt").write_text("mine")
    result = cli("submit", complete, "-o", tmp_path / "x", *SAID)
    assert result.exit_code == 2 and "is there already" in result.output


# What was changed afterwards ----------------------------------------------------------------------


def rehashed(directory: Path) -> None:
    """Make `submission.json` agree with the files again, as a forger would."""
    about = json.loads((directory / "submission.json").read_text())
    about["files"] = {
        name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in about["files"]
    }
    (directory / "submission.json").write_text(json.dumps(about))


def set_column(path: Path, name: str, value: object) -> None:
    table = pq.read_table(path)
    place = table.schema.get_field_index(name)
    column = pa.array([value] * len(table), table.schema.field(place).type)
    pq.write_table(table.set_column(place, name, column), path)


def refused(directory: Path, sample: int = 0) -> str:
    report = check_submission(directory, sample)
    assert not report.good
    return submission.to_text(report)


def test_a_changed_file_is_found(written: Path) -> None:
    set_column(written / "results" / "scores.parquet", "value", 0.99)
    assert "scores.parquet is not the file whose digest is in submission.json" in refused(written)


def test_a_better_epsilon_does_not_follow_from_the_ledger(written: Path) -> None:
    set_column(written / "results" / "cells.parquet", "eps_proven", 0.25)
    rehashed(written)
    assert "The ledger proves epsilon" in refused(written)


def test_a_key_must_follow_from_its_row(written: Path) -> None:
    set_column(written / "results" / "cells.parquet", "delta", 1e-3)
    rehashed(written)
    assert "its key does not follow from its row" in refused(written)


def test_better_scores_are_found_by_computing_again(written: Path) -> None:
    set_column(written / "results" / "scores.parquet", "value", 0.99)
    rehashed(written)
    assert check_submission(written, 0).good  # nothing else can know
    told = refused(written, 1)
    assert "computed again, DIFFERS" in told and "c-index/cox 0.99" in told


def test_other_code_is_not_checked(written: Path) -> None:
    about = json.loads((written / "submission.json").read_text())
    about["source_hash"] = "0" * 64
    (written / "submission.json").write_text(json.dumps(about))
    assert "installed code of method marginals is not the submitted one" in refused(written)
    about["method"] = "not-there"
    (written / "submission.json").write_text(json.dumps(about))
    assert "not-there is not installed" in refused(written)


def test_what_has_no_place_in_a_submission(written: Path) -> None:
    (written / "results" / "run.sh").write_text("echo")
    told = refused(written)
    assert "results/run.sh is not named" in told and "has no place in a submission" in told
    (written / "results" / "run.sh").unlink()
    (written / "results" / "cells.parquet").unlink()
    assert "results/cells.parquet is missing" in refused(written)


def test_another_environment_is_found(written: Path) -> None:
    with (written / "environment.txt").open("a") as file:
        file.write("zzz==1\n")
    rehashed(written)
    assert "environment.txt is not the environment of the run" in refused(written)


def test_a_folder_without_a_submission(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    result = cli("check-submission", tmp_path / "x")
    assert result.exit_code == 1 and "`bench submit` writes a submission" in result.output


@pytest.mark.parametrize("content", ["[]", "{}", '{"format_version": 9}', "not json"])
def test_a_spoiled_description_is_refused_in_one_line(written: Path, content: str) -> None:
    (written / "submission.json").write_text(content)
    result = cli("check-submission", written, "--sample", 0)
    assert result.exit_code == 1 and result.output.count("problem:") == 1


# Made up ------------------------------------------------------------------------------------------


def forge(directory: Path, change: Callable[[Compact], None]) -> None:
    """Change the results of a submission, and make all else agree with them."""
    results = directory / "results"
    found, version = published.compact(results), published.check_published(results)
    change(found)
    published.write(results, found, version, "")
    rehashed(directory)


def forge_row(directory: Path, number: int, **values: Any) -> str:
    """Change one row of a submission, with the key that follows from it; return the key."""
    rows = published.rows_of(directory / "results")
    old = sorted(rows)[number]
    row = replace(rows[old], **values)
    key = keys.cell_key(row.cell, row.fingerprint)

    def change(found: Compact) -> None:
        for name, value in values.items():
            found.cells.loc[found.cells["key"] == old, name] = value
        for frame in (found.cells, found.scores, found.timings):
            frame.loc[frame["key"] == old, "key"] = key

    forge(directory, change)
    return key


@pytest.mark.parametrize("method", ["marginals", "privsyn"])
def test_an_audit_is_no_part_of_a_submission(written: Path, method: str) -> None:
    audit = audit_outcome("f" * 20, method, p_claim=1e-9, p_proof=1e-9).audit
    assert audit is not None

    def change(found: Compact) -> None:
        row = found.cells.iloc[[0]].assign(
            key="f" * 20, method=method, label=method, attack="transcript", trials=40_000
        )
        found.cells = pd.concat([found.cells, row], ignore_index=True)
        found.audits = pd.DataFrame([asdict(audit)])

    forge(written, change)
    told = refused(written)
    assert "it holds audits (1): only those that the maintainers run are published" in told
    assert ("it holds cells of other methods: privsyn" in told) == (method != "marginals")


def test_a_finished_cell_has_the_hash_of_its_code(written: Path) -> None:
    forge_row(written, 0, source_hash="")
    assert "1 cell: the code of method marginals is not the installed one" in refused(written)


def test_a_metric_that_nobody_has_is_refused(written: Path) -> None:
    set_column(written / "results" / "cells.parquet", "metrics", '{"zzz": ""}')
    rehashed(written)
    assert "3 cells: metric 'zzz' is not installed" in refused(written)


def test_a_cell_of_other_data_does_not_escape_being_computed_again(written: Path) -> None:
    key = forge_row(written, 0, fingerprint="0" * 64)
    report = check_submission(written, 3)
    assert report.verification is not None and len(report.verification.recomputed) == 2
    assert report.verification.good and not report.good
    assert f"({key}) cannot be checked: dataset gbsg2 has changed since" in report.problems[0]


def test_secure_noise_is_refused(written: Path) -> None:
    forge_row(written, 0, study_only=False)
    assert "1 cells have secure noise" in refused(written)


def versions_without(row: CellRow, library: str) -> str:
    known = json.loads(row.versions)
    del known[library]
    return json.dumps(known)


def test_cells_of_other_libraries_are_not_compared_strictly_and_refused(written: Path) -> None:
    other = json.dumps(json.loads(finished().row.versions) | {"scipy": "0.1"})
    forge_row(written, 0, versions=other)
    told = refused(written)
    assert "1 cells (such as marginals on gbsg2" in told and "scipy 0.1 -> " in told
    forge_row(written, 0, versions=versions_without(finished().row, "numpy"))
    assert "numpy of no version" in refused(written)


@pytest.mark.parametrize("column", ["dataset_parameters", "metrics", "versions", "finished_at"])
def test_texts_that_cannot_be_read_are_a_problem(written: Path, column: str) -> None:
    set_column(written / "results" / "cells.parquet", column, "[")
    rehashed(written)
    assert f"cells.parquet: column {column} holds '['" in refused(written)


def test_a_link_is_not_followed(written: Path, tmp_path: Path) -> None:
    place = written / "results" / "cells.parquet"
    shutil.move(place, tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    result = cli("check-submission", written)
    assert result.exit_code == 2 and "symbolic link" in result.output


def test_a_closed_dataset_is_not_opened_by_its_description(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = submission.describe_dataset
    monkeypatch.setattr(
        submission,
        "describe_dataset",
        lambda source, parameters: replace(described(source, parameters), open=False),
    )
    assert "gbsg2 is not open to everybody" in refused(written)
