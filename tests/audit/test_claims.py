"""The list of published claims, and the page that says which of them are refuted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.audit import two_worlds
from bench.audit.claims import (
    JOURNAL,
    ClaimList,
    Settings,
    claims_page,
    findings,
    keep_audits,
    read_claims,
)
from bench.audit.report import has_quick_parameters, page
from bench.cli.main import main
from bench.engine.cell import blank_row, ended
from bench.errors import InputError
from bench.plugins import registry
from bench.results.reading import read_audits
from bench.results.records import AuditRow, Outcome, Status
from tests.support.places import ROOT

LIST = """
[[audits]]
method = "ldpdc"
dataset = "breast-cancer"
settings = "paper"
trials = 200
about = "It says one thing."

[[audits]]
method = "zero-order-dc"
dataset = "gbsg2"
settings = "paper"
trials = 200
parameters = {steps = 300, learning_rate = 0.5}
about = "It says another."

[[audits]]
method = "zero-order-dc"
dataset = "breast-cancer"
settings = "variant"
trials = 100
parameters = {standardise = "rows"}
about = "A reading."
"""


def listed(folder: Path, text: str = LIST) -> ClaimList:
    path = folder / "claims.toml"
    path.write_text(text, encoding="utf-8")
    return read_claims(path)


def result(claims: ClaimList, number: int, key: str, **changes: Any) -> Outcome:
    """The result of an audit of the list, refuted unless changed."""
    row = blank_row(claims.cell(claims.audits[number]), key, None)
    row = replace(
        row,
        eps_claimed=1.0,
        eps_proven=float("inf"),
        eps_audited=changes.pop("eps_audited", 3.25),
        source_hash=changes.pop("source_hash", "s"),
        verdict="unproven",
    )
    numbers = AuditRow(
        key=key,
        trials=100,
        refits=300,
        canary="outlier",
        scorer="nearest row",
        threshold=1.0,
        false_positives=0.02,
        false_negatives=0.04,
        eps_gaussian=None,
        eps_detectable=3.5,
        p_claim=1e-6,
        p_proof=1.0,
        planted=0.9,
        planted_bug="the canary copied",
        replicated_eps=3.0,
        replicated_p_claim=1e-5,
    )
    finished_at = changes.pop("finished_at", "2026-01-01T00:00:00.000+00:00")
    row = replace(ended(row, Status.OK, "", "in /home/somebody"), finished_at=finished_at)
    return Outcome(row, audit=replace(numbers, **changes))


PASSED: dict[str, Any] = {
    "p_claim": 0.4,
    "eps_audited": 0.0,
    "replicated_eps": None,
    "replicated_p_claim": 1.0,
}


def sections(text: str) -> dict[str, str]:
    return {part.split("\n")[0]: part for part in text.split("\n## ")[1:]}


# The list -----------------------------------------------------------------------------------------


def test_an_audit_of_the_list_is_the_cell_that_the_command_audits(tmp_path: Path) -> None:
    claims = listed(tmp_path)
    cell = claims.cell(claims.audits[1])
    assert cell.describe() == (
        "zero-order-dc(learning_rate=0.5,steps=300) on gbsg2 ipc=50 eps=1 seed=0 "
        "(two-world audit, 200)"
    )
    assert [audit.settings for audit in claims.audits] == [
        Settings.PAPER,
        Settings.PAPER,
        Settings.VARIANT,
    ]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ('"ldpdc"', '"ldpc"', "audits.0: unknown method 'ldpc'; did you mean ldpdc"),
        ('"gbsg2"', '"gbsg"', "audits.1: unknown dataset"),
        ("steps", "stps", "audits.1: "),
        ('"variant"', '"other"', "audits.2.settings: "),
        ("trials = 100", "trials = 8", "audits.2: 8 trials show nothing"),
        ("trials = 100", "trial = 100", "audits.2.trials: "),
        ("about", "abuot", "audits.0."),
        ("[[audits]]", "[[audit]]", "audits: "),
        ('"ldpdc"', "ldpdc", "not valid TOML"),
        ("parameters = {steps", 'attack = "three"\nparameters = {steps', "'three' is no attack"),
    ],
)
def test_mistakes_in_the_list_name_their_place(
    tmp_path: Path, before: str, after: str, text: str
) -> None:
    with pytest.raises(InputError) as problem:
        listed(tmp_path, LIST.replace(before, after))
    assert str(problem.value).startswith(f"{tmp_path / 'claims.toml'}: ")
    assert text in str(problem.value)


def test_a_list_that_is_missing_or_names_an_audit_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_claims(tmp_path / "absent.toml")
    with pytest.raises(InputError, match=r"audits\.3: ldpdc on breast-cancer .* is listed twice"):
        listed(tmp_path, LIST + LIST.split("[[audits]]")[1].join(["[[audits]]", ""]))


# The page -----------------------------------------------------------------------------------------


def test_only_audits_with_the_settings_of_the_paper_count(tmp_path: Path) -> None:
    claims = listed(tmp_path)
    audits = [result(claims, 0, "a", **PASSED), result(claims, 1, "b"), result(claims, 2, "c")]
    parts = sections(claims_page(claims, audits))
    assert "zero-order-dc` (steps=300" in parts["Refuted"]
    assert "standardise" not in parts["Refuted"] and "ldpdc" not in parts["Refuted"]
    assert "It says one thing." in parts["Not refuted"]
    assert "standardise=rows" in parts["Other settings, not counted"]
    assert "refuted for these settings" in parts["Other settings, not counted"]
    assert "Not yet run" not in parts


def test_the_numbers_are_those_of_the_results(tmp_path: Path) -> None:
    claims = listed(tmp_path)
    text = claims_page(claims, [result(claims, 1, "b", eps_audited=2.125)])
    assert "The canary *outlier* is called in for 96% of the releases with it and for 2%" in text
    assert "at least 2.12, where 1 is claimed and 3.5 could have been shown" in text
    assert "p 1e-06, replicated with p 1e-05. After correction p 1e-05" in text
    missing = sections(text)["Not yet run"]
    assert "`ldpdc` on `breast-cancer`" in missing and "(standardise=rows)" in missing
    assert "## Not refuted\n\nNothing.\n" in text


def test_a_dataset_where_nothing_is_found_names_the_one_where_it_was(tmp_path: Path) -> None:
    both = LIST.replace('dataset = "gbsg2"', 'dataset = "actg175"').split("[[audits]]")[2]
    claims = listed(tmp_path, f"{LIST}\n[[audits]]{both}")
    audits = [result(claims, 1, "b"), result(claims, 3, "d", **PASSED)]
    parts = sections(claims_page(claims, audits))
    assert "on `actg175`" in parts["Not refuted"]
    assert "The same parameters are refuted on `gbsg2`." in parts["Not refuted"]
    assert "The same parameters" not in parts["Refuted"]


def test_what_holm_does_not_let_pass_is_not_refuted(tmp_path: Path) -> None:
    claims = listed(tmp_path)
    weak = result(claims, 1, "b", replicated_p_claim=0.02)
    others = [result(claims, 0, f"o{n}", source_hash=f"o{n}", **PASSED) for n in range(4)]
    assert findings(claims, [weak])[1].refuted
    parts = sections(claims_page(claims, [weak, *others]))
    assert parts["Refuted"] == "Refuted\n\nNothing.\n"
    assert "zero-order-dc" in parts["Not refuted"]


def test_a_first_run_that_is_not_replicated_is_not_refuted(tmp_path: Path) -> None:
    claims = listed(tmp_path)
    lucky = result(claims, 1, "b", replicated_p_claim=0.6)
    assert not findings(claims, [lucky])[1].refuted


def test_of_several_results_the_newest_is_shown(tmp_path: Path) -> None:
    claims = listed(tmp_path)
    old = result(claims, 0, "old", source_hash="x", finished_at="2026-01-01T00:00:00.000+00:00")
    new = result(claims, 0, "new", finished_at="2026-02-01T00:00:00.000+00:00", **PASSED)
    for audits in ([old, new], [new, old]):
        assert findings(claims, audits)[0].outcome == new


def test_other_trials_are_another_audit(tmp_path: Path) -> None:
    claims = listed(tmp_path)
    more = listed(tmp_path, LIST.replace("trials = 200", "trials = 400"))
    assert findings(more, [result(claims, 0, "a")])[0].outcome is None


def test_kept_results_are_read_again_without_logs(tmp_path: Path) -> None:
    claims = listed(tmp_path)
    audits = [result(claims, 0, "a", **PASSED), result(claims, 1, "b")]
    failed = Outcome(ended(audits[0].row, Status.ERROR, "it broke"))
    keep_audits([*audits, failed], tmp_path / "kept")
    assert "somebody" not in (tmp_path / "kept" / JOURNAL).read_text()
    kept = read_audits(tmp_path / "kept")
    assert [one.audit for one in kept] == [one.audit for one in audits]
    assert claims_page(claims, kept) == claims_page(claims, audits)


def test_the_page_in_the_documentation_is_that_of_the_stored_results() -> None:
    """Run `make claims`, or its last line, after the list or the results were changed."""
    claims = read_claims(ROOT / "docs" / "audits" / "claims.toml")
    written = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert written == claims_page(claims, read_audits(ROOT / "docs" / "audits"))


def test_no_claim_is_refuted_with_reduced_settings() -> None:
    claims = read_claims(ROOT / "docs" / "audits" / "claims.toml")
    for audit in claims.audits:
        quick = registry.method_class(audit.method).quick
        assert not {name for name, value in audit.parameters.items() if quick.get(name) == value}


# The table of all audits --------------------------------------------------------------------------


def test_the_table_names_refutations_with_reduced_parameters_apart(tmp_path: Path) -> None:
    quick = LIST.replace("{steps = 300, learning_rate = 0.5}", "{steps = 15, validate_every = 10}")
    claims = listed(tmp_path, quick)
    reduced, full = result(claims, 1, "b"), result(claims, 2, "c")
    assert has_quick_parameters(reduced.row) and not has_quick_parameters(full.row)
    assert not has_quick_parameters(replace(reduced.row, method="no-such-method"))
    text = page([reduced, full])
    assert "Refuted: zero-order-dc(standardise=rows). Refuted with reduced parameters" in text
    assert "other parameters: zero-order-dc(steps=15,validate_every=10)." in text
    assert "Nothing is refuted. Refuted with reduced parameters" in page([reduced])


# The command --------------------------------------------------------------------------------------

SMALL = """
ipc = 2

[[audits]]
method = "marginals"
dataset = "breast-cancer"
settings = "variant"
parameters = {bins = 4}
trials = 40
about = "Four bins."

[[audits]]
method = "ldpdc"
dataset = "gbsg2"
settings = "paper"
trials = 40
about = "As published."
"""


def call(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["audit", *map(str, arguments)])


def test_a_list_is_run_once_kept_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 2)
    path = tmp_path / "claims.toml"
    path.write_text(SMALL, encoding="utf-8")
    asked = ("--claims", path, "--out", tmp_path / "run", "--cpus", 1)
    first = call(*asked, "--json")
    assert first.exit_code == 0, first.output
    assert [row["label"] for row in json.loads(first.stdout)] == ["marginals(bins=4)", "ldpdc"]
    again = call(*asked)
    assert again.output.count("audited before") == 2
    kept = call("--table", tmp_path / "run", "--keep", tmp_path / "kept")
    assert kept.exit_code == 0 and kept.output == f"wrote {tmp_path / 'kept' / JOURNAL}\n"
    file = tmp_path / "page.md"
    written = call("--table", tmp_path / "kept", "--claims", path, "--page", file)
    assert written.exit_code == 0, written.output
    text = file.read_text(encoding="utf-8")
    assert "**`ldpdc` on `gbsg2`.** As published." in text and "Not yet run" not in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--claims", "LIST", "--eps", 1), "leave --eps out"),
        (("ldpdc", "--claims", "LIST"), "leave METHOD out"),
        (("--claims", "LIST", "--parameters", "bins=4"), "leave --parameters out"),
        (("--page", "page.md"), "--page and --keep belong to --table"),
        (("--claims", "absent.toml"), "absent.toml: cannot be read"),
    ],
)
def test_mistakes_of_the_command_are_reported_in_one_line(
    arguments: tuple[object, ...], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(SMALL, encoding="utf-8")
    given = [path if argument == "LIST" else argument for argument in arguments]
    result = call(*given, "--out", tmp_path / "run")
    assert result.exit_code == 2 and text in result.output
    assert not (tmp_path / "run").exists()
