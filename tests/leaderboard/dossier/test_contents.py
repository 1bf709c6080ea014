"""What else a dossier holds: sums, attacks, and nothing private on a public page."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.cli.pages import dossier
from bench.engine import keys
from bench.engine.about import write_descriptions
from bench.engine.cell import run_cell
from bench.errors import InputError, StoreError
from bench.leaderboard.dossier.attacks import assess, quality
from bench.leaderboard.dossier.material import find_cell
from bench.leaderboard.dossier.page import file_name
from bench.leaderboard.dossier.privacy import compose
from bench.plugins.source import build_dataset
from bench.privacy.events import non_private
from bench.privacy.ledger import Entry, Ledger
from bench.results.records import Cell, ScoreRow
from bench.results.records import Variant as GridEntry
from bench.results.run_directory import RunStore
from tests.support.dossiers import (
    ODDS,
    Made,
    box,
    one_release,
    plain,
    row,
    score,
    sound_ledger,
)
from tests.support.tables import ToyTable

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "run")


@pytest.fixture
def one(tmp_path: Path) -> Callable[..., Made]:
    return functools.partial(one_release, tmp_path / "run")


# Several releases -------------------------------------------------------------------------------


def test_releases_of_one_dataset_add_up() -> None:
    own = row("a", eps_proven=1.0)
    cells = (
        own,
        row("b", eps_proven=0.5, seed=1),
        row("c", eps_proven=0.25, method="mst", label="mst"),
        row("d", eps_proven=0.125, dataset="other"),
        row("e", eps_proven=8.0, study_only=True),
        row("f", eps_proven=math.inf, verdict="unproven"),
        row("g", eps_proven=0.3, verdict="proof refuted"),
        row("h", eps_proven=0.7, unit="patient"),
        row("i", eps_proven=None, status="timeout", eps_target=2.0),
        row("j", eps_proven=None, status="timeout", eps_target=4.0),
        row("k", eps_proven=0.0625, status="error", seed=2),
    )
    found = compose(own, cells, frozenset({"a", "b", "c", "i", "gone"}))
    # 1 + 0.5 + 0.25 + 0.0625 (its metrics failed, its release exists) + 2 (lost, but charged).
    assert found.epsilon == 3.8125 and found.bounded == 4 and found.lost == 1
    assert found.delta == pytest.approx(5e-5, rel=1e-12)
    assert found.unbounded == 2 and found.other_unit == 1 and found.unknown == 1
    assert found.repeats == 5  # a, b, f, g, k differ in the seed or the outcome only
    assert [group.epsilon for group in found.groups] == [math.inf, 0.25]


def test_the_ceiling_is_the_real_rows_of_the_same_dataset(
    one: Callable[..., Made], non_private: dict[str, Any]
) -> None:
    made = one()
    for key, dataset, value in (("real1", "breast-cancer", 0.987), ("real2", "other", 0.123)):
        made.cell("real", key, utility=value, dataset=dataset, **non_private)
    made.run.score("abc123", "auroc", 0.9, 0.8, 0.95)
    page = made.page("abc123")
    assert ">0.987<" in page and "0.123" not in page


def test_the_page_adds_up_and_warns_about_picking(one: Callable[..., Made]) -> None:
    made = one()
    proven = made.run.cells[0].eps_proven
    assert proven is not None
    made.cell("ldpdc", "def456", eps_proven=0.5, seed=1)
    text = plain(made.page("abc123"))
    assert f"2 releases with a bound: total epsilon at most {proven + 0.5:.4g}" in text
    assert "at delta 2e-05" in text
    assert "This run holds 2 releases that differ only in the seed" in text
    assert "There are other releases of this dataset" in text


# Attacks ----------------------------------------------------------------------------------------


def outcomes(*scores: ScoreRow) -> dict[str, tuple[str, str]]:
    return {
        item.metric: (item.tone, item.outcome) for one in assess(scores) for item in one.findings
    }


def test_what_an_attack_found_depends_on_interval_and_threshold() -> None:
    found = outcomes(
        score("mia/auroc", 0.6, 0.55, 0.65),
        score("domias/auroc", 0.6, 0.45, 0.7),
        score("mia-threshold/risk", 0.3, -0.1, 0.5, limit=0.2),
        score("disclosure-risk/reference", 0.01, 0.0, 0.02, limit=0.05),
        score("linkability/k1", None, 0, 0, reason="too few rows"),
        score("dcr/gap", -0.2, -0.3, -0.1),
    )
    assert found["mia/auroc"] == ("alarm", "leak detected: the whole interval is beyond chance")
    assert found["domias/auroc"] == ("quiet", "no leak detected")
    assert found["mia-threshold/risk"] == ("alarm", "above the threshold")
    assert found["disclosure-risk/reference"] == ("quiet", "within the threshold")
    assert found["linkability/k1"] == ("absent", "not measured: too few rows")
    assert found["dcr/gap"] == ("quiet", "no leak detected")


def test_a_gap_between_two_useless_guesses_is_no_finding() -> None:
    gap = score("aia/gap", 12.0, 3.0, 36.0)
    assert outcomes(gap, score("aia/r2", 0.4, 0.3, 0.5))["aia/gap"][0] == "alarm"
    tone, text = outcomes(gap, score("aia/r2", -6.5, -9.0, -4.0))["aia/gap"]
    assert tone == "absent" and "worse than predicting the mean" in text


def test_each_risk_gets_a_sentence() -> None:
    single, link, infer = assess(
        [
            score("singling-out/univariate", 0.0, -0.1, 0.1, remark="weak: 100 rows gave 0"),
            score("dcr/copies-excess", 0.0, -0.1, 0.1),
            score("mia/auroc", 0.6, 0.55, 0.65),
        ]
    )
    assert single.summary.startswith("No leak detected beyond chance")
    assert "Of the 2 that detected no leak, 1 would miss a small one" in single.summary
    assert link.summary.endswith("this risk was not tested.")
    assert infer.summary.startswith("Leak detected, or threshold exceeded: mia/auroc.")


def test_weak_attacks_and_missing_ones_are_on_the_page(one: Callable[..., Made]) -> None:
    made = one()
    made.run.scores += [
        score("mia/auroc", 0.5, 0.4, 0.6, remark="weak: 100 raw rows gave 0.51"),
        score("mia/advantage-held-out", 0.0, -0.1, 0.1, remark="weak: 100 raw rows gave 0.51"),
        score("linkability/k1", None, 0, 0, reason="too few control rows"),
    ]
    text = plain(made.page("abc123"))
    assert text.count("100 raw rows gave 0.51") == 1 and "weak : as above" in text
    assert "Could not be computed: linkability (too few control rows)." in text
    assert "Optional, not requested: exposure , file-membership ." in text
    assert "nndr , qi-match , sample-correlation , singling-out ." in text
    assert "Audited epsilon : the method was not attacked" in text


def test_quality_is_five_lines_with_the_ceiling() -> None:
    def of(metric: str, family: str, value: float = 0.5, shown: bool = True) -> ScoreRow:
        return score(metric, value, 0.4, 0.6, family=family, shown=shown)

    given = [of(f"u{number}", "utility") for number in range(4)]
    given += [of("auroc", "utility", shown=False), *(of(f"f{n}", "fidelity") for n in range(3))]
    lines = quality("classification", given, [of("auroc", "utility", 0.9)])
    assert [line.metric for line in lines] == ["auroc", "u0", "f0", "f1", "f2"]
    assert lines[0].ceiling == "0.900"


# What leaves the house --------------------------------------------------------------------------


def test_everything_from_the_run_is_escaped(tmp_path: Path) -> None:
    made = Made(tmp_path / "run")
    ledger = Ledger(None)
    ledger.add(Entry((("class", SCRIPT),), non_private(), reason=SCRIPT), 1)
    told = ("label", "dataset", "parameters", "verdict_reason", "claim_source", "warnings")
    changes: dict[str, Any] = dict.fromkeys((*told, "source_hash", "split", "unit"), SCRIPT)
    ledger.unit = SCRIPT
    label = changes.pop("label")
    made.cell(
        label, "abc123", **changes, eps_target=None, eps_claimed=None, eps_proven=math.inf,
        verdict="non-private", adjacency=SCRIPT, finished_at=SCRIPT, versions=SCRIPT,
    )  # fmt: skip
    made.release("abc123", ledger, (SCRIPT, "target"))
    made.run.scores += [
        score("mia/auroc", None, 0, 0, reason=SCRIPT),
        score("dcr/gap", 0.0, -1, 1, remark=f"weak: {SCRIPT}"),
        score(SCRIPT, 0.5, 0.4, 0.6),
        score(SCRIPT + "u", 0.5, 0.4, 0.6, family="utility"),
    ]
    (tmp_path / "run").mkdir(exist_ok=True)
    facts = {"form": 1, "command": SCRIPT, "commit": SCRIPT, "dirty": True}
    (tmp_path / "run" / "run.json").write_text(json.dumps(facts))
    page = made.page("abc123")
    assert "<script" not in page.lower() and page.count("&lt;script&gt;") > 15
    assert not re.search(r"https?://|<link|<img|<iframe|@import|url\(", page)
    assert "default-src 'none'" in page


def test_a_public_page_holds_nothing_computed_from_private_rows(one: Callable[..., Made]) -> None:
    made = one(fingerprint="fingerprint-of-rows")
    made.run.scores += [
        score("mia/auroc", 0.678, 0.612, 0.734),
        score("linkability/k1", None, 0, 0, reason="only 4 rows matched"),
        score("auroc", 0.812, 0.8, 0.9, family="utility", direction="higher"),
    ]
    made.directory.mkdir(exist_ok=True)
    manifest = {"form": 1, "command": "bench run --out secret-place"}
    (made.directory / "run.json").write_text(json.dumps(manifest))
    secrets = ("0.678", "0.612", "0.812", "only 4 rows", "abc123", "fingerprint-of-rows")
    secrets += ("secret-place", "mia/auroc found", "attack score")
    internal, public = made.page("abc123"), made.page("abc123", public=True)
    for secret in secrets[:-2]:
        assert secret in internal
    for secret in secrets:
        assert secret not in public
    assert "Left out of this page" in public and ODDS in public
    assert '<span class="tag">internal</span>' in internal
    assert "internal</span>" not in public


def test_a_public_page_has_the_day_of_the_release_and_not_the_time(
    one: Callable[..., Made],
) -> None:
    made = one(finished_at="2026-01-02T13:37:42.000+00:00")
    assert "2026-01-02 13:37" in plain(made.page("abc123"))
    public = plain(made.page("abc123", public=True))
    assert "2026-01-02" in public and "13:37" not in public


# Which cell -------------------------------------------------------------------------------------


def test_a_cell_is_found_by_key_prefix_or_filter() -> None:
    cells = [
        row("aa11", seed=0),
        row("aa22", seed=1),
        row("bb33", label="mst", method="mst", ipc=None, full_size=True),
        row("cc44", label="real", method="real", ipc=None, eps_target=None),
    ]
    assert find_cell(cells, "aa11").key == "aa11"
    assert find_cell(cells, "bb").key == "bb33"
    assert find_cell(cells, "mst").key == "bb33"
    assert find_cell(cells, "ldpdc/breast-cancer/1.0/50/1").key == "aa22"
    assert find_cell(cells, "*/*/1/full").key == "bb33"
    assert find_cell(cells, "real//none/own").key == "cc44"
    with pytest.raises(InputError, match=r"matches 2 cells.*\n  aa11  ldpdc/breast-cancer/1/50/0"):
        find_cell(cells, "ldpdc")
    with pytest.raises(InputError, match="matches 2 cells"):
        find_cell(cells, "aa")
    for unknown in ("nothing", "ldpdc/adult", "", "*", "a/b/c/d/e/f"):
        with pytest.raises(InputError, match=r"matches no cell.*Candidates:\n  aa11"):
            find_cell(cells, unknown)


def test_failed_cells_and_models_are_refused_with_the_reason(made: Made) -> None:
    made.run.fail("slow", "timeout", "over 60 s", key="a1")
    made.cell("half", "b1", status="error", reason="metric ks: broke")
    made.cell("fedavg", "c1")
    made.release("c1", sound_ledger())
    (made.directory / "releases" / "c1" / "release.json").write_text('{"result": "model"}')
    made.cell("lost", "d1")
    with pytest.raises(InputError, match=r"ended as timeout: over 60 s\. There is no release"):
        made.page("a1")
    with pytest.raises(InputError, match=r"metric ks: broke\. Its release was written.*score"):
        made.page("b1")
    with pytest.raises(InputError, match=r"released a model, not rows.*epsilon 0\.75"):
        made.page("c1")
    with pytest.raises(StoreError, match="the files of the release cannot be read"):
        made.page("d1")


def test_links_are_not_followed(made: Made, tmp_path: Path) -> None:
    made.cell("ldpdc", "abc123")
    made.release("abc123", sound_ledger())
    file = made.directory / "releases" / "abc123" / "synthetic.parquet"
    file.rename(tmp_path / "elsewhere.parquet")
    file.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(StoreError, match="symbolic link"):
        made.page("abc123")


def test_the_page_of_a_run_that_the_harness_wrote(tmp_path: Path) -> None:
    dataset = build_dataset(ToyTable())
    toy = GridEntry("toy-table", "toy-table")
    asked = Cell(
        GridEntry("marginals", "marginals"), toy, 10, False, 1.0, 1e-5, 0, "default", 0,
        secure_noise=True,
    )  # fmt: skip
    done = run_cell(asked, keys.cell_key(asked, dataset.fingerprint), dataset, ("ks",))
    with RunStore(tmp_path / "run") as store:
        store.charge(done.row.key)
        store.record(done, dataset.encoder)
        scores = tuple(replace(score, key="other") for score in done.scores)
        row = replace(done.row, key="other", seed=1)
        store.record(replace(done, row=row, scores=scores, timings=()), dataset.encoder)
    place = tmp_path / "dossier.html"
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    called = [str(tmp_path / "run"), done.row.key[:12], "-o", str(place)]
    result = CliRunner().invoke(dossier, called, catch_exceptions=False)
    assert result.exit_code == 0 and result.output == f"wrote {place}\n"
    page = place.read_text(encoding="utf-8")
    assert ODDS in box(page) and "Inconsistency" not in page
    assert "class 0: 10, class 1: 10" in page and "20 rows with" in page
    assert "This run holds 2 releases" in page
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


def test_the_default_name_tells_releases_apart_without_the_key() -> None:
    assert file_name(row("secret"), False) == "dossier-ldpdc-breast-cancer-eps1-ipc50-seed0.html"
    strange = row("secret", label="../a b", eps_target=None, ipc=None, full_size=True, seed=3)
    assert file_name(strange, True) == "dossier-.._a_b-breast-cancer-full-seed3-public.html"


def test_a_page_that_cannot_be_written_is_an_error(one: Callable[..., Made]) -> None:
    made = one()
    made.page("abc123")
    called = [str(made.directory), "abc123", "-o", str(made.directory / "no" / "such.html")]
    with pytest.raises(StoreError, match=r"cannot be written .*give another -o"):
        CliRunner().invoke(dossier, called, catch_exceptions=False)


# What is assumed to be public ---------------------------------------------------------------------


def _own_table(made: Made, data: Path, *confirmed: str) -> None:
    """A user's table `ward`, of which the run of this release recorded the schema."""
    rows = "".join(f"{20 + n % 60},{n % 31},{n % 2}\n" for n in range(200))
    (data / "ward.csv").write_text(f"age,dose,died\n{rows}")
    commands = [["data", "add", str(data / "ward.csv"), "--target", "died"]]
    stands = ["--by", "A. Smith", "--because", "the form"]
    for column in confirmed:
        commands.append(["data", "confirm", "ward", "--column", column, *stands])
    for command in commands:
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
    variant = GridEntry("ward", "ward")
    write_descriptions(made.directory, [GridEntry("ldpdc", "ldpdc")], [variant])


def test_every_column_is_listed_with_its_source_and_what_the_rows_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("BENCH_DATA", str(data))
    run = tmp_path / "run"
    run.mkdir()
    made = one_release(run, dataset="ward")
    _own_table(made, data, "age", "died")
    text = plain(made.page("abc123"))
    assert "What is assumed to be public" in text
    assert "1 column of the table below was read off the rows" in text
    assert "2 columns are exactly as the rows proposed" in text
    assert "integer from 20 to 80" in text and "confirmed by A. Smith on 20" in text
    # Corrected, confirmed and run again: the page says what the rows had proposed.
    toml = data / "own" / "ward.toml"
    toml.write_text(toml.read_text().replace("high = 80.0", "high = 120.0"))
    CliRunner().invoke(main, ["data", "confirm", "ward", "--by", "B", "--because", "nobody is"])
    variant = GridEntry("ward", "ward")
    write_descriptions(run, [GridEntry("ldpdc", "ldpdc")], [variant])
    text = plain(made.page("abc123"))
    assert "integer from 20 to 120" in text and "the rows proposed: integer from 20 to 80" in text
    assert "read off the rows, or nobody" not in text
    # A proposal that was not accepted is about the rows: not for everybody.
    public = plain(made.page("abc123", public=True))
    assert "integer from 20 to 120" in public and "from 20 to 80" not in public
    assert "not as proposed from the rows" in public


def test_bounds_that_nobody_stands_for_are_not_on_a_public_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("BENCH_DATA", str(data))
    made = one_release(tmp_path, dataset="ward")
    _own_table(made, data)
    assert "integer from 20 to 80" in plain(made.page("abc123"))
    assert "from 20 to 80" not in plain(made.page("abc123", public=True))


def test_without_the_data_folder_nothing_passes_for_public_that_was_read_off_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("BENCH_DATA", str(data))
    run = tmp_path / "run"
    run.mkdir()
    made = one_release(run, dataset="ward")
    _own_table(made, data, "died")
    monkeypatch.delenv("BENCH_DATA")
    text = plain(made.page("abc123"))
    assert "2 columns of the table below were read off the rows" in text
    assert "What the rows had proposed is not known here" in text
    assert "from 20 to 80" not in plain(made.page("abc123", public=True))
    place = str(tmp_path / "page.html")
    done = CliRunner().invoke(main, ["dossier", str(run), "abc123", "-o", place])
    assert "warning: table 'ward' is not in the data folder" in done.output
    told = ["dossier", str(run), "abc123", "-o", place, "--data-dir", str(data)]
    done = CliRunner().invoke(main, told)
    assert done.exit_code == 0 and "not in the data folder" not in done.output
    page = plain(Path(place).read_text())
    assert "1 column is exactly as the rows proposed" in page
