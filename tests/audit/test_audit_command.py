"""`bench audit` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.audit import audits, two_worlds
from bench.cli.main import main


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, arguments)])


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("ldpc", "--dataset", "breast-cancer", "--eps", 1), "did you mean ldpdc"),
        (("ldpdc", "--dataset", "breast-cancr", "--eps", 1), "did you mean breast-cancer"),
        (("ldpdc", "--dataset", "breast-cancer", "--eps", -1), "not in the range x>0"),
        (("ldpdc", "--dataset", "breast-cancer", "--eps", "one"), "not a valid float"),
        (("ldpdc", "--dataset", "breast-cancer"), "say which epsilon"),
        (("ldpdc", "--eps", 1), "name a --dataset"),
        (("--dataset", "breast-cancer"), "name a METHOD"),
        (("all", "--dataset", "breast-cancer"), "name an epsilon"),
        (("ldpdc", "--dataset", "breast-cancer", "--eps", 1, "--trials", 8), "at least 40"),
        (("ldpdc", "--dataset", "breast-cancer", "--eps", 1, "--attack", "two"), "two-world"),
        (
            ("ldpdc", "--dataset", "breast-cancer", "--eps", 1, "--parameters", "group_siz=3"),
            "did you mean group_size",
        ),
        (
            ("ldpdc", "--dataset", "breast-cancer", "--eps", 1, "--parameters", "group_size"),
            "is not name=value",
        ),
        (("ldpdc", "--dataset", "breast-cancer", "--eps", 1, "--ipc", "some"), "whole number"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    arguments: tuple[object, ...], text: str, tmp_path: Path
) -> None:
    result = call(*arguments, "--out", tmp_path, "--cpus", 1)
    assert result.exit_code == 2
    assert text in result.output
    assert not list(tmp_path.iterdir())


def test_no_audits_make_no_table(tmp_path: Path) -> None:
    result = call("--table", tmp_path)
    assert result.exit_code == 2 and "holds no audits" in result.output


def test_an_audit_its_report_and_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 4)
    asked = ("marginals", "--dataset", "breast-cancer", "--eps", 1, "--trials", 40, "--ipc", 2)
    asked = (*asked, "--parameters", "bins=4", "--out", tmp_path, "--cpus", 1)
    result = call(*asked)
    assert result.exit_code == 0, result.output
    for text in ("eps target", "eps proven", "eps audited", "eps detectable", "verdict", "sound"):
        assert text in result.output
    assert "A passed audit proves nothing" in result.output
    again = call(*asked, "--json")
    assert again.exit_code == 0
    (document,) = json.loads(again.stdout)
    assert document["label"] == "marginals(bins=4)" and document["refits"] == 40
    assert json.loads(document["parameters"]) == {"bins": 4}
    table = call("--table", tmp_path)
    assert table.exit_code == 0
    lines = table.output.splitlines()
    assert lines[0].startswith(
        "| method | dataset | target | claimed | proven | audited (transcript) |"
    )
    assert lines[2].startswith("| marginals | breast-cancer | 1 | 1 | ")
    assert lines[2].endswith("| sound | bins=4 |")
    page = tmp_path / "audits.md"
    assert call("--table", tmp_path, "--page", page).exit_code == 0
    text = page.read_text()
    assert lines[2] in text and "Nothing is refuted." in text
    assert "1 audits of 1 methods, 40 refits. Made " in text


def test_several_methods_get_the_trials_that_their_speed_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 2)
    shared = ("--dataset", "breast-cancer", "--eps", 1, "--ipc", 2, "--out", tmp_path, "--cpus", 1)
    result = call("--methods", "marginals,fedavg-client-dp", *shared, "--minutes", 0.0001, "--json")
    assert result.exit_code == 0, result.output
    slow, clients = json.loads(result.stdout)
    assert slow["status"] == "skipped" and "--minutes" in slow["reason"]
    assert clients["status"] == "skipped" and "unit of privacy" in clients["reason"]


def test_another_speed_does_not_start_an_audit_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 2)
    monkeypatch.setattr(audits, "_TRIALS", (44, 40))
    shared = ("--methods", "marginals", "--parameters", "bins=4", "--eps", 1, "--ipc", 2, "--json")
    shared = (*shared, "--dataset", "breast-cancer,actg175", "--out", tmp_path, "--cpus", 1)
    first = call(*shared, "--minutes", 5)
    assert first.exit_code == 0, first.output
    rows = json.loads(first.stdout)
    assert [row["dataset"] for row in rows] == ["breast-cancer", "actg175"]
    assert {(row["trials"], row["status"]) for row in rows} == {(22, "ok")}
    again = call(*shared, "--minutes", 0.0001)
    assert json.loads(again.stdout) == rows
