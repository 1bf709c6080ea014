"""Library audits: the conclusion from counts, what is stored, and the pages."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import beta

from bench.audit.libraries import campaign, page, target, targets
from bench.audit.libraries.__main__ import main
from bench.audit.libraries.campaign import LibraryResult
from bench.audit.libraries.tables import BOUNDS, CATEGORIES, ONLY, generator, patients, with_row
from bench.audit.libraries.target import CanaryKind, LibraryTarget
from bench.errors import StoreError, UnknownNameError
from tests.support.places import ROOT

RESULTS = ROOT / "docs" / page.RESULTS


# Tables -------------------------------------------------------------------------------------------


def test_only_the_canary_has_the_category_and_nothing_else_changes() -> None:
    table = patients(generator(0, "a"), 300)
    more = with_row(table, diagnosis=ONLY)
    assert len(more) == 301
    pd.testing.assert_frame_equal(more.iloc[:300], table)
    assert (more["diagnosis"] == ONLY).sum() == 1
    assert more["smoker"].iloc[300] == "no"


def test_tables_obey_what_is_declared_of_them() -> None:
    table = patients(generator(1, "b"), 5000)
    for name, (low, high) in BOUNDS.items():
        assert table[name].between(low, high).all()
    for name, values in CATEGORIES.items():
        assert set(table[name]) == set(values)


def test_a_trial_has_its_own_table() -> None:
    tables = [patients(generator(0, "t", "bound", "in", number), 50) for number in (0, 1, 0)]
    assert tables[0].equals(tables[2]) and not tables[0].equals(tables[1])


# One trial ----------------------------------------------------------------------------------------


def leaky(table: pd.DataFrame) -> set[str]:
    return set(table["diagnosis"])


def constant(table: pd.DataFrame) -> set[str]:
    return set(CATEGORIES["diagnosis"])


def has_only(release: set[str], known: pd.DataFrame) -> float:
    assert ONLY not in set(known["diagnosis"]), "the attacker knows the table without the canary"
    return float(ONLY in release)


def toy(name: str, call: Any, **other: Any) -> LibraryTarget:
    given = replace(
        targets.target_named("dpmm-privbayes"),
        name=name,
        call=call,
        score=has_only,
        environment=None,
        trials=20,
    )
    return replace(given, **other)


def test_a_trial_adds_the_canary_to_one_world_only() -> None:
    rng = generator(0)
    assert toy("leaky", leaky).trial(rng, inside=True) == 1.0
    assert toy("leaky", leaky).trial(rng, inside=False) == 0.0
    assert toy("constant", constant).trial(rng, inside=True) == 0.0


# Conclusions --------------------------------------------------------------------------------------


def result(one: LibraryTarget, *hits: int) -> LibraryResult:
    """Of hits with and without the canary in both stages."""
    parts = [f"{stage}/{world}" for stage in target.STAGES for world in target.WORLDS]
    scores = {
        part: [1.0] * count + [0.0] * (one.trials - count)
        for part, count in zip(parts, hits, strict=True)
    }
    return LibraryResult(one.name, one.version, campaign.digest(one), scores, 1.0)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> tuple[LibraryTarget, ...]:
    members = (toy("a", leaky), toy("b", constant), toy("c", leaky))
    monkeypatch.setattr(campaign, "targets", lambda: members)
    monkeypatch.setattr(campaign, "target_named", {one.name: one for one in members}.__getitem__)
    monkeypatch.setattr(page, "targets", lambda: members)
    return members


def test_the_bound_is_that_of_two_clopper_pearson_ends(toys: tuple[LibraryTarget, ...]) -> None:
    (found,) = campaign.findings([result(toys[0], 20, 0, 20, 0)])
    low, high = beta.ppf(0.025, 20, 1), beta.ppf(0.975, 1, 20)
    assert found.audited == pytest.approx(np.log((low - 1e-5) / high))
    assert found.detectable == pytest.approx(found.audited)
    assert found.refuted


def test_a_refutation_needs_the_replication(toys: tuple[LibraryTarget, ...]) -> None:
    (found,) = campaign.findings([result(toys[0], 20, 0, 3, 2)])
    assert found.p_value < 1e-4 and not found.refuted


def test_fresh_trials_do_not_count_where_the_first_show_nothing(
    toys: tuple[LibraryTarget, ...],
) -> None:
    (found,) = campaign.findings([result(toys[0], 3, 2, 20, 0)])
    assert found.replicated == 1.0 and not found.refuted


def test_the_correction_is_over_all_targets(toys: tuple[LibraryTarget, ...]) -> None:
    results = [result(one, 20, 0, 20, 0) for one in toys]
    alone, together = campaign.findings(results[:1]), campaign.findings(results)
    assert together[0].corrected == pytest.approx(3 * alone[0].corrected)
    assert [one.target.name for one in together] == ["a", "b", "c"]


# Running and storing ------------------------------------------------------------------------------

WORKER = """
import json, sys
for name in sys.argv[5:]:
    for part in ("bound/in", "bound/out", "replicate/in", "replicate/out"):
        for number in range(20):
            if name == "b" and part == "replicate/in":
                sys.exit("it broke")
            score = float(part.endswith("in") and name == "a")
            print(json.dumps({"target": name, "version": "0.1.9", "part": part, "score": score,
                              "seconds": 0.5}))
"""


@pytest.fixture
def interpreter(tmp_path: Path) -> str:
    """An interpreter of an environment whose worker is a script."""
    script, python = tmp_path / "worker.py", tmp_path / "python"
    script.write_text(WORKER, encoding="utf-8")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return str(python)


def test_targets_are_stored_as_they_end_and_a_failure_stops_no_other(
    toys: tuple[LibraryTarget, ...],
    interpreter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(campaign.sys, "executable", interpreter)
    said: list[str] = []
    folder = tmp_path / "results"
    assert campaign.run_missing(folder, (), 0, said.append) == ["b"]
    assert any("it broke" in text for text in said)
    kept = campaign.stored(folder)
    assert [one.target for one in kept] == ["a", "c"]
    assert kept[0].scores["bound/in"] == [1.0] * 20 and kept[0].seconds == 40.0
    # What has a current result is not run again.
    said.clear()
    assert campaign.run_missing(folder, ("a", "c"), 0, said.append) == [] and said == []


def test_another_version_than_the_audited_one_is_refused(
    toys: tuple[LibraryTarget, ...],
    interpreter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newer = replace(toys[0], version="9.9")
    monkeypatch.setattr(campaign, "target_named", lambda name: newer)
    monkeypatch.setattr(campaign.sys, "executable", interpreter)
    said: list[str] = []
    assert campaign.run_missing(tmp_path / "results", ("a",), 0, said.append) == ["a"]
    assert "0.1.9" in said[-1] and "9.9" in said[-1]


def test_a_spoiled_result_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "opendp-mst.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StoreError, match="not the result of a library audit"):
        campaign.read(tmp_path, "opendp-mst")


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="dpmm-aim"):
        campaign.run_missing(tmp_path, ("dpmm-ai",), 0, lambda text: None)


# Pages --------------------------------------------------------------------------------------------


def test_the_page_names_calls_counts_causes_and_what_is_missing(
    toys: tuple[LibraryTarget, ...],
) -> None:
    found = campaign.findings([result(toys[0], 20, 0, 20, 0), result(toys[1], 3, 2, 3, 2)])
    text = page.page(found)
    refuted, passed = text.split("## Not refuted")
    assert "### a\n" in refuted and "### b\n" in passed
    assert "| `a` | dpmm 0.1.9 | category | 1.1 |" in text and "| 20 of 20 | 0 of 20 |" in text
    assert toys[0].code in refuted and toys[0].cause in refuted and toys[0].documented in refuted
    assert "`c` (dpmm 0.1.9): its target is listed and was not run yet." in passed
    assert "synthcity 0.2.12" in passed


def test_a_call_that_changed_since_its_trials_is_marked(toys: tuple[LibraryTarget, ...]) -> None:
    old = replace(result(toys[0], 20, 0, 20, 0), call="older")
    assert "The call has changed since these trials" in page.page(campaign.findings([old]))


def test_maintainers_get_a_text_where_something_is_refuted_and_only_there(
    toys: tuple[LibraryTarget, ...], tmp_path: Path
) -> None:
    folder = tmp_path / page.RESULTS
    folder.mkdir(parents=True)
    for one, hits in zip(toys, ((20, 0, 20, 0), (2, 2, 2, 2), (2, 2, 2, 2)), strict=True):
        kept = result(one, *hits)
        (folder / f"{one.name}.json").write_text(json.dumps(vars(kept)), encoding="utf-8")
    done = CliRunner().invoke(main, ["page", "--docs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    text = (tmp_path / page.DISCLOSURES / "dpmm.md").read_text(encoding="utf-8")
    assert "## a\n" in text and "## b\n" not in text
    assert "nothing has been sent" in text and toys[0].documented in text


# What is listed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("one", targets.targets(), ids=lambda one: one.name)
def test_every_target_says_what_a_fair_reader_needs(one: LibraryTarget) -> None:
    for text in (one.source, one.differs, one.documented, one.instead, one.event):
        assert text
    assert one.cause or one.name == "opendp-mst"
    assert one.contact or not one.cause
    assert one.environment is None or any(
        one.version in req for req in one.environment.requirements
    )
    assert one.canary is not CanaryKind.CATEGORY or ONLY in one.planted.values()
    assert set(one.planted) <= set(one.columns)


def test_names_are_unique_and_the_shared_environment_is_that_of_the_methods() -> None:
    from bench.methods._shared.smartnoise import SMARTNOISE

    names = [one.name for one in targets.targets()]
    assert len(set(names)) == len(names)
    assert targets.SMARTNOISE == SMARTNOISE


def test_the_pages_of_the_documentation_are_those_of_the_stored_results(tmp_path: Path) -> None:
    found = campaign.findings(campaign.stored(RESULTS))
    assert (ROOT / "docs" / page.PAGE).read_text(encoding="utf-8") == page.page(found)
    for library in {one.target.library for one in found if one.refuted}:
        members = [one for one in found if one.target.library == library and one.refuted]
        kept = ROOT / "docs" / page.DISCLOSURES / f"{library.lower()}.md"
        assert kept.read_text(encoding="utf-8") == page.disclosure(members)
