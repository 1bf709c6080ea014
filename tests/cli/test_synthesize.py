"""`bench synthesize` and `bench export`: one command from a CSV to a table to give away."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.engine import release as engine
from bench.engine.fit import FitResult
from bench.errors import StoreError
from bench.results.records import Status
from bench.results.spending import read_spending

ROWS = 400


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to work in, and one for schemas."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def ward(survival: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    bmi = np.where(rng.random(ROWS) < 0.3, np.nan, np.round(rng.normal(27, 4, ROWS), 1))
    frame = pd.DataFrame(
        {
            "nhs_number": np.arange(ROWS) * 7 + 9_000_000_000,
            "died": rng.integers(0, 2, ROWS),
            "bmi": np.clip(bmi, 12, 59),
            "age": rng.integers(18, 90, ROWS),
            "grade": rng.integers(1, 5, ROWS).astype(float),
            "sex": rng.choice(["f", "m", None], ROWS, p=[0.4, 0.4, 0.2]),
        }
    )
    return frame.assign(days=rng.integers(1, 900, ROWS)) if survival else frame


DICTIONARY = """column,kind,low,high,categories,missing,description,source
died,category,,,0|1,no,,
bmi,number,10,60,,yes,,form v3
age,integer,0,120,,no,,
grade,ordinal,,,1|2|3|4,no,,
sex,category,,,f|m,yes,,
days,integer,0,1000,,no,,
"""


def written(survival: bool = False) -> None:
    ward(survival).to_csv("ward.csv", index=False)
    Path("book.csv").write_text(DICTIONARY)


def made(output: str, *more: object) -> Result:
    done = bench(
        *("synthesize", "ward.csv", "--target", "died", "--dictionary", "book.csv"),
        *("--eps", 1, "-o", output, *more),
    )
    assert done.exit_code == 0, done.output
    return done


def test_one_command_gives_the_columns_order_types_and_gaps_of_the_original() -> None:
    written()
    done = made("s.csv")
    real, table = pd.read_csv("ward.csv"), pd.read_csv("s.csv")
    assert list(table.columns) == [name for name in real.columns if name != "nhs_number"]
    assert dict(table.dtypes) == dict(real.drop(columns="nhs_number").dtypes)
    assert len(table) == ROWS
    for name in ("bmi", "sex"):
        assert 0.1 < table[name].isna().mean() < 0.6
    assert set(table["sex"].dropna()) <= {"f", "m"}
    text = done.output
    assert "column 'nhs_number' looks like an identifier" in text
    assert "noisy-tree: the default. In each class it keeps" in text
    assert "spends   epsilon 1 at delta 1e-05" in text and "1 release, epsilon 0.99" in text
    ledger = json.loads(Path("s.ledger.json").read_text())
    assert ledger["proven_epsilon"] <= 1.0 and not ledger["reasons"]
    page = Path("s.dossier.html").read_text()
    assert "What is assumed to be public" in page and "form v3" in page
    assert "dictionary book.csv" in page and "s.csv, SHA-256" in page
    assert "Study only" not in page
    for numbers in real["nhs_number"].astype(str)[:20]:
        for path in Path().rglob("s*"):
            assert not path.is_file() or numbers.encode() not in path.read_bytes()


def test_without_a_dictionary_it_refuses_and_leaves_one_to_correct() -> None:
    written()
    asked = ("synthesize", "ward.csv", "--target", "died", "--eps", 1, "-o", "s.csv")
    refused = bench(*asked)
    assert refused.exit_code == 2
    assert "no guarantee would hold: bounds and categories of 5 columns" in refused.output
    assert "with --dictionary s.dictionary.csv" in refused.output
    proposal = Path("s.dictionary.csv")
    assert proposal.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in Path().iterdir()) == [
        *("book.csv", "data", "s.dictionary.csv", "ward.csv")
    ]
    # Unchanged it is no dictionary: its lines still say that they were proposed from the rows.
    again = bench(*asked, "--dictionary", proposal)
    assert again.exit_code == 2 and "still says in `source`" in again.output
    proposal.write_text(proposal.read_text().replace("proposed from the rows", "codebook"))
    assert bench(*asked, "--dictionary", proposal).exit_code == 0
    assert "as proposed from the rows" in Path("s.dossier.html").read_text()


def test_a_confirmed_table_needs_neither_dictionary_nor_target() -> None:
    written()
    assert bench("data", "add", "ward.csv", "--target", "died").exit_code == 0
    asked = ("synthesize", "ward.csv", "--eps", 1, "-o", "s.csv")
    refused = bench(*asked)
    assert refused.exit_code == 2 and "bench data confirm ward --by" in refused.output
    bench("data", "confirm", "ward", "--by", "A. Smith", "--because", "the form")
    done = bench(*asked)
    assert done.exit_code == 0, done.output
    assert "confirmed by A. Smith on 20" in Path("s.dossier.html").read_text()
    other = bench("synthesize", "ward.csv", "--target", "age", "--eps", 1, "-o", "t.csv")
    assert other.exit_code == 2 and "with other options than --target age" in other.output


def test_a_dry_run_says_what_would_be_spent_and_writes_nothing() -> None:
    written()
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    done = made("s.csv", "--dry-run")
    assert "spends   epsilon 1" in done.output and "nothing was spent" in done.output
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


def test_releases_add_up_and_a_limit_is_kept() -> None:
    written()
    made("a.csv", "--budget", 2.2)
    done = made("b.csv", "--rows", 100)
    assert "2 releases, epsilon 1.3" in done.output  # composed, not added
    table = pd.read_csv("b.csv")
    assert len(table) == 100
    died = pd.read_csv("ward.csv")["died"].mean()
    assert table["died"].mean() == pytest.approx(died, abs=0.006)
    refused = bench("synthesize", "ward.csv", "--eps", 1, "-o", "c.csv")
    assert refused.exit_code == 2 and "over the limit of 2.2 that its owner set" in refused.output
    assert not Path("c.csv").exists()
    assert len(read_spending(Path("ward.csv.spending.json"), "").releases) == 2
    more = bench("synthesize", "ward.csv", "--eps", 1, "-o", "c.csv", "--budget", 3, "--rows", 900)
    assert more.exit_code == 0 and len(pd.read_csv("c.csv")) == 900


def test_a_release_that_fails_stays_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    written()

    def lost(*_: object) -> None:
        known = read_spending(Path("ward.csv.spending.json"), "")
        assert known.total().epsilon == 1.0  # charged before the method sees a row
        raise KeyboardInterrupt

    asked = ("synthesize", "ward.csv", "--target", "died", "--dictionary", "book.csv")
    with monkeypatch.context() as broken:
        broken.setattr(engine, "fit_cell", lost)
        ended = bench(*asked, "--eps", 1, "-o", "s.csv")
    assert ended.exit_code == 130 and "epsilon 1 stays charged" in ended.output
    made("t.csv")
    total = read_spending(Path("ward.csv.spending.json"), "").total()
    assert (total.releases, round(total.epsilon, 2)) == (2, 2.0)


def test_a_method_that_fails_is_told_with_what_it_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    written()
    failed = FitResult(Status.SKIPPED, reason="not applicable: too wide")
    monkeypatch.setattr(engine, "fit_cell", lambda *_: failed)
    ended = bench(
        *("synthesize", "ward.csv", "--target", "died", "--dictionary", "book.csv"),
        *("--eps", 1, "-o", "s.csv"),
    )
    assert ended.exit_code == 1
    assert "the release was not made (skipped: not applicable: too wide)" in ended.output
    assert "stays charged with epsilon 1" in ended.output and not Path("s.csv").exists()


def test_nothing_is_charged_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written()

    def full(*_: object) -> None:
        raise StoreError("s.release: cannot be used as a run directory")

    monkeypatch.setattr(engine.RunStore, "__enter__", full)
    ended = bench(
        *("synthesize", "ward.csv", "--target", "died", "--dictionary", "book.csv"),
        *("--eps", 1, "-o", "s.csv"),
    )
    assert ended.exit_code == 2 and "cannot be used as a run directory" in ended.output
    assert not Path("ward.csv.spending.json").exists()


def test_survival_and_parquet() -> None:
    written(survival=True)
    done = bench(
        *("synthesize", "ward.csv", "--time", "days", "--event", "died", "--eps", 2),
        *("--dictionary", "book.csv", "-o", "s.parquet", "--method", "marginals"),
    )
    assert done.exit_code == 0, done.output
    assert "marginals: asked for by --method" in done.output
    table, real = pd.read_parquet("s.parquet"), pd.read_csv("ward.csv")
    assert list(table.columns) == [name for name in real.columns if name != "nhs_number"]
    assert table["days"].dtype == np.int64 and table["days"].between(0, 1000).all()
    assert set(table["died"]) == {0, 1}


@pytest.mark.parametrize(
    "more, said",
    [
        (["-o", "s.txt"], "ends in .csv or .parquet"),
        (["-o", "book.csv"], "book.csv exists; it is not overwritten"),
        (["-o", "none/s.csv"], "none: no such folder"),
        (["-o", "s.csv", "--method", "real"], "no privacy budget"),
        (["-o", "s.csv", "--method", "mst"], "runs in an environment of its own"),
        (["-o", "s.csv", "--method", "dp-sgd"], "releases a model"),
        (["-o", "s.csv", "--parameters", "bins=3"], "name it by --method"),
        (["-o", "s.csv", "--private-counts"], "name a --delta"),
        (["-o", "s.csv", "--drop-column", "agee"], "did you mean 'age'?"),
        (["-o", "s.csv", "--eps", "nan"], "not a finite number"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_spent(more: list[str], said: str) -> None:
    written()
    refused = bench(
        *("synthesize", "ward.csv", "--target", "died", "--dictionary", "book.csv", "--eps", "1"),
        *more,
    )
    assert refused.exit_code == 2 and said in refused.output, refused.output
    assert not Path("ward.csv.spending.json").exists()


def test_an_earlier_release_is_not_overwritten() -> None:
    written()
    made("s.csv")
    Path("s.csv").unlink()
    refused = bench("synthesize", "ward.csv", "--eps", 1, "-o", "s.csv")
    assert refused.exit_code == 2 and "belongs to an earlier release" in refused.output


def test_export_writes_what_synthesize_wrote() -> None:
    written()
    made("s.csv")
    done = bench("export", "s.release", "noisy-tree", "-o", "again.csv")
    assert done.exit_code == 0, done.output
    assert Path("again.csv").read_bytes() == Path("s.csv").read_bytes()
    assert "wrote again.csv: 400 rows, 5 columns" in done.output


def test_rows_without_a_proof_are_not_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that was read off the rows: the proof is infinite, and the rows stay."""
    written()
    made("s.csv")
    Path("data/own/ward.sources.jsonl").unlink()
    monkeypatch.setattr("bench.cli.synthesize._Table.refuse_unless_public", lambda *_: None)
    spent = bench("synthesize", "ward.csv", "--eps", 1, "-o", "t.csv")
    assert spent.exit_code == 2, spent.output
    assert "is not exported: its verdict is unproven" in spent.output
    assert "inferred from the rows" in spent.output and not Path("t.csv").exists()
    refused = bench("export", "t.release", "noisy-tree", "-o", "u.csv")
    assert refused.exit_code == 2 and not Path("u.csv").exists()


def test_a_dictionary_for_a_table_that_was_added_before_is_not_passed_over(place: Path) -> None:
    ward().to_csv("ward.csv", index=False)
    bench("data", "add", "ward.csv", "--target", "died", "--propose", "p.csv")
    Path("d.csv").write_text(Path("p.csv").read_text().replace("proposed from the rows", "form"))
    asked = ["synthesize", "ward.csv", "--eps", 1, "-o", "s.csv"]
    done = bench(*asked, "--dictionary", "d.csv")
    assert done.exit_code != 0
    assert "A dictionary is read when a table is added" in done.output
    (place / "data" / "own" / "ward.toml").unlink()
    done = bench(*asked, "--target", "died", "--dictionary", "d.csv", "--dry-run")
    assert done.exit_code == 0, done.output


def test_proposed_commands_name_the_data_folder_that_was_given(place: Path) -> None:
    ward().to_csv("ward.csv", index=False)
    (place / "other one").mkdir()
    folder = ["--data-dir", "other one"]
    said = bench("data", "add", "ward.csv", "--target", "died", *folder).output
    assert "bench data confirm ward --data-dir 'other one'\n" in said
    said = bench("data", "confirm", "ward", *folder).output
    assert "bench data confirm ward --data-dir 'other one' --by" in said
    done = bench("synthesize", "ward.csv", "--eps", 1, "-o", "s.csv", *folder)
    assert "--data-dir 'other one' --by" in done.output


def test_an_epsilon_that_promises_nothing_is_warned_of() -> None:
    ward().to_csv("ward.csv", index=False)
    Path("d.csv").write_text(DICTIONARY)
    asked = ["synthesize", "ward.csv", "--target", "died", "--dictionary", "d.csv", "--dry-run"]
    warning = "promises next to nothing"
    assert warning in bench(*asked, "-o", "s.csv", "--eps", 1e9).output
    assert warning not in bench(*asked, "-o", "s.csv", "--eps", 8).output
