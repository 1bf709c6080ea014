"""Altered results are shown as tampered wherever a verdict is shown, and never rank as sound."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import severity
from bench.leaderboard.tables.load import load_results
from bench.results import integrity
from bench.results.integrity import Ledgers, Stated, check_release
from bench.results.run_directory import RunStore
from bench.results.verdicts import Verdict
from tests.support.strangers import KEY, bench, change_journal, finished, honest, within

FORGED = 0.01
REASON = "The ledger proves epsilon 0.9993"


def forged(run: Path, **facts: Any) -> Path:
    """Change the rows of a run directory, in journal and tables."""
    change_journal(run, lambda document: document["cell"].update(facts))
    with RunStore(run) as store:
        store.compact()
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two seeds of one method, as a run leaves them."""
    return honest(tmp_path / "run", finished(0), finished(1))


@pytest.fixture
def lied(run: Path) -> Path:
    """The same with a proven epsilon that nothing proves."""
    reason = f"epsilon {FORGED} at delta 1e-05 by PLD"
    return forged(run, eps_proven=FORGED, verdict_reason=reason)


def site(run: Path, *options: str) -> Path:
    folder = run.parent / "site"
    result = bench("leaderboard", run, "-o", folder, "--cells", "all", *options)
    assert result.exit_code == 0, result.output
    return folder


def test_honest_results_stay_as_they_are(run: Path) -> None:
    results = load_results([run])
    assert set(results.cells["verdict"]) == {"sound"}
    assert (results.tampered, results.without_ledger) == (0, 0)
    assert results.cells["eps_proven"].tolist() == [finished(s).row.eps_proven for s in (0, 1)]
    assert set(results.cells["verdict_reason"]) == {finished().row.verdict_reason}
    folder = site(run)
    assert "tampered" not in (folder / "leaderboard.csv").read_text()


def test_a_forged_epsilon_is_not_displayed_as_sound(lied: Path) -> None:
    results = load_results([lied])
    assert set(results.cells["verdict"]) == {"tampered"} and results.tampered == 2
    assert results.cells["eps_proven"].tolist() == [math.inf, math.inf]
    reason = results.cells["verdict_reason"][0]
    assert REASON in reason and f"the result table says {FORGED}." in reason


def test_every_page_and_table_says_tampered(lied: Path) -> None:
    folder = site(lied)
    with (folder / "leaderboard.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["verdict"] == "tampered" and REASON in row["verdict_reason"]
    assert str(FORGED) not in {value for name, value in row.items() if "eps" in name}
    (method,) = (folder / "methods").glob("*.html")
    for name in ("leaderboard.md", "leaderboard.tex", "index.html", method):
        assert "tampered" in (folder / name).read_text(), name
    front = (folder / "index.html").read_text()
    assert '<option value="=tampered">tampered</option>' in front, "the filter"
    assert "Tampered." in front and "2 of 2 cells" in front, "the note"
    assert ".badge.tampered" in front
    (cell, *_) = sorted((folder / "cells").glob("*.html"))
    assert '<span class="badge tampered">tampered</span>' in cell.read_text()
    assert "badge tampered" in method.read_text()
    for page in folder.rglob("*.html"):
        assert 'class="badge sound"' not in page.read_text(), page


def test_the_command_says_so(lied: Path) -> None:
    result = bench("leaderboard", lied, "-o", lied.parent / "site")
    assert result.exit_code == 0 and result.stderr.startswith("warning: Tampered. ")


def test_a_tampered_cell_never_ranks_as_sound(lied: Path) -> None:
    assert not is_sound(Verdict.TAMPERED.value)
    assert severity("tampered") > max(severity(v.value) for v in Verdict if v.value != "tampered")
    with (site(lied) / "leaderboard.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["rank"] == ""


def test_a_public_site_gives_no_tampered_rows_away(lied: Path) -> None:
    folder = site(lied, "--public")
    assert not list((folder / "cells").glob("*.csv"))
    assert "tampered" in (folder / "leaderboard.csv").read_text()


def test_the_dossier_says_tampered(lied: Path) -> None:
    page = lied.parent / "dossier.html"
    assert bench("dossier", lied, KEY, "-o", page).exit_code == 0
    text = page.read_text()
    assert '<span class="badge tampered">tampered</span>' in text and REASON in text
    assert 'badge sound"' not in text and "can increase the odds" not in text


def test_the_dossier_compares_digests(run: Path) -> None:
    release = run / "releases" / KEY
    shutil.copy(run / "releases" / finished(1).row.key / "synthetic.parquet", release)
    page = run.parent / "dossier.html"
    assert bench("dossier", run, KEY, "-o", page).exit_code == 0
    assert "synthetic.parquet is not the file that was released" in page.read_text()


def test_mlflow_says_tampered(lied: Path) -> None:
    from mlflow import MlflowClient

    result = bench("sync", lied)
    assert result.exit_code == 0 and "warning: marginals on toy-table" in result.stderr
    client = MlflowClient(tracking_uri=f"sqlite:///{lied / 'mlflow.db'}")
    experiments = [one.experiment_id for one in client.search_experiments()]
    runs = [one for one in client.search_runs(experiments) if "bench.key" in one.data.tags]
    assert {one.data.tags["verdict"] for one in runs} == {"tampered"}
    assert all("eps_proven" not in one.data.metrics for one in runs)


def test_a_check_against_an_older_run_finds_it(run: Path) -> None:
    old = Path(shutil.copytree(run, run.parent / "old"))
    forged(run, eps_proven=FORGED)
    result = bench("leaderboard", run, "--check", old)
    assert result.exit_code == 1 and "tampered" in result.stdout


# What is compared -----------------------------------------------------------------------------


def test_a_release_without_a_ledger_proves_nothing(run: Path) -> None:
    """Whoever forges a table would leave the ledger out."""
    forged(run, eps_proven=FORGED, release_hashes="")
    shutil.rmtree(run / "releases")
    results = load_results([run])
    assert set(results.cells["verdict"]) == {"unproven"} and results.without_ledger == 2
    assert results.cells["eps_proven"].tolist() == [math.inf, math.inf]
    assert "its ledger.json is not stored with the results" in results.cells["verdict_reason"][0]
    assert "releases/*/ledger.json" in (site(run) / "index.html").read_text()


@pytest.mark.parametrize("name", integrity.RELEASE_FILES)
def test_a_replaced_file_of_a_release(run: Path, name: str) -> None:
    path = run / "releases" / KEY / name
    content = path.read_bytes()
    path.write_bytes(content + b" " if name.endswith(".json") else content[:-1] + b"x")
    results = load_results([run]).cells.set_index("key")
    assert results.loc[KEY, "verdict"] == "tampered"
    assert f"{name} is not the file" in results.loc[KEY, "verdict_reason"]
    assert results.loc[finished(1).row.key, "verdict"] == "sound"


def test_a_copy_without_rows_is_not_altered(run: Path) -> None:
    for path in run.glob("releases/*/*.parquet"):
        path.unlink()
    assert set(load_results([run]).cells["verdict"]) == {"sound"}


@pytest.mark.parametrize(
    "facts, said",
    [
        ({"delta": 1e-9}, "The ledger is for delta 1e-05"),
        ({"eps_target": 5.0}, "The ledger was kept for a target of 1"),
        ({"unit": "patient"}, "The ledger protects each row"),
        ({"verdict": "sound, trusting nobody 1.0"}, "From the ledger the verdict is 'sound'"),
        ({"eps_claimed": 0.2}, "The method claimed epsilon"),
        ({"accountant": "RDP"}, "The ledger is accounted by"),
        ({"release_hashes": "[]"}, "The digests of the release cannot be read."),
        ({"release_hashes": '{"ledger.json": 5}'}, "The digests of the release cannot be read."),
        ({"release_hashes": '{"a": [1, "b"]}'}, "ledger.json is not the file that was released"),
    ],
)
def test_each_number_that_differs_is_named(run: Path, facts: dict[str, Any], said: str) -> None:
    forged(run, **facts)
    cells = load_results([run]).cells
    assert set(cells["verdict"]) == {"tampered"} and said in cells["verdict_reason"][0]


def test_a_linked_ledger_is_not_read(run: Path, tmp_path: Path) -> None:
    path = run / "releases" / KEY / "ledger.json"
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    cells = load_results([run]).cells.set_index("key")
    assert cells.loc[KEY, "verdict"] == "tampered"
    reason = cells.loc[KEY, "verdict_reason"]
    assert "symbolic link" in reason and str(tmp_path) not in reason and KEY not in reason


def test_another_version_of_the_accounting_may_round_otherwise() -> None:
    row = finished().row
    ledger = finished().release.ledger  # type: ignore[union-attr]
    assert ledger is not None and row.eps_proven is not None
    proof = ledger.proof()
    moved = row.eps_proven * 1.0008  # above the target of 1 by the ledger of today
    stated = Stated.of(row)
    other = {**stated.__dict__, "eps_proven": moved}
    assert list(integrity.contradictions(Stated(**other), ledger, proof)) != []
    older = Stated(**{**other, "dp_accounting": "0.4.0", "eps_target": 1.0})
    found = list(integrity.contradictions(older, ledger, proof))
    # Its own number is over the target: the verdict of the row must say so.
    assert found == ["From the ledger the verdict is 'unproven', the result table says 'sound'."]
    less = Stated(**{**other, "dp_accounting": "0.4.0", "eps_proven": row.eps_proven * 0.999})
    assert list(integrity.contradictions(less, ledger, proof)) == []


# Cost -----------------------------------------------------------------------------------------


def test_equal_ledgers_are_accounted_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [path.read_text() for path in run.glob("releases/*/ledger.json")]
    assert len(texts) == 2 and texts[0] == texts[1]
    ledgers = Ledgers()
    first = ledgers.replay(texts[0])
    monkeypatch.setattr(integrity.Ledger, "proof", None)
    assert ledgers.replay(texts[1]) is first


def test_a_ledger_that_takes_hours_is_given_up(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Poisson sample of rate 1e-9, a billion times, keeps the accountant busy."""
    monkeypatch.setattr(integrity, "_SECONDS", 1.0)
    forged(run, release_hashes="")
    for path in run.glob("releases/*/ledger.json"):
        document = json.loads(path.read_text())
        event = {"kind": "PoissonSampled", "sampling_probability": 1e-9}
        event["event"] = {"kind": "Gaussian", "noise_multiplier": 1.0}
        document["entries"] = [{**document["entries"][0], "event": event, "count": 10**9}]
        path.write_text(json.dumps(document))
    with within(20):
        cells = load_results([run]).cells
    assert set(cells["verdict"]) == {"unproven"}
    assert "its accounting takes more than 1 s" in cells["verdict_reason"][0]


def test_after_some_slow_ledgers_the_others_are_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def slow(text: str) -> None:
        tried.append(text)
        raise integrity._TooSlowError

    monkeypatch.setattr(integrity.Ledger, "from_json", slow)
    ledgers = Ledgers()
    problems = [ledgers.replay(f"{number}").problem for number in range(10)]
    assert len(tried) == 3 and "too many ledgers" in problems[-1]


def test_the_check_itself_needs_no_data(run: Path) -> None:
    row = RunStore(run).journal[KEY][0]
    found = check_release(run, Stated.of(row), Ledgers())
    assert (found.verdict, found.contradictions) == ("sound", ())
    assert found.reason == row.verdict_reason
