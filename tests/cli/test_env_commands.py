"""`bench env` as a new user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.environments import overlays
from bench.plugins import registry
from bench.plugins.method import Environment
from tests.support.isolated import EMPTY, without_index


@pytest.fixture(autouse=True)
def only_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register two methods: only the environment of one can be built without a network."""
    for name, value in without_index(tmp_path / "environments", tmp_path / "wheels").items():
        monkeypatch.setenv(name, value)
    impossible = Environment("impossible", ("no-such-package==1.0",), ("no_such_package",))
    monkeypatch.setattr(registry, "method_names", lambda: ("ldpdc", "marginals", "real"))
    monkeypatch.setattr(registry.method_class("ldpdc"), "environment", EMPTY)
    monkeypatch.setattr(registry.method_class("marginals"), "environment", impossible)


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["env", *arguments])


def test_an_environment_is_built_broken_repaired_and_removed() -> None:
    listed = bench("list")
    assert listed.exit_code == 0
    assert "empty: not built\n" in listed.stdout and "impossible: not built\n" in listed.stdout
    assert bench("check", "empty").exit_code == 1

    built = bench("build", "empty")
    assert built.exit_code == 0
    for step in ("creating the virtual environment", "importing", "built in", "ready, /"):
        assert f" s  empty: {step}" in built.stdout
    again = bench("build", "empty").stdout
    assert "ready, /" in again and "creating" not in again
    assert "empty: built, " in bench("list").stdout
    assert bench("check", "empty").exit_code == 0

    (overlays.folder(EMPTY) / "environment.json").unlink()
    assert "empty: broken: its build did not finish" in bench("list").stdout
    assert bench("check", "empty").exit_code == 1
    repaired = bench("check", "--repair", "empty")
    assert repaired.exit_code == 0 and "building it again" in repaired.stdout

    assert f"removed {overlays.folder(EMPTY).name}" in bench("clean", "empty").stdout
    assert "empty: not built" in bench("list", "empty").stdout


def test_the_interpreter_is_the_only_output() -> None:
    printed = bench("python", "empty")
    assert printed.exit_code == 0
    assert printed.stdout == f"{overlays.folder(EMPTY)}/bin/python\n"
    refused = bench("python", "impossible")
    assert refused.exit_code == 1 and refused.stdout == ""
    assert "bench: environment impossible cannot be built: " in refused.stderr


def test_a_failed_build_does_not_stop_the_others() -> None:
    result = bench("build")
    assert result.exit_code == 1 and "empty: ready" in result.stdout
    assert result.stderr == (
        "bench: environment impossible cannot be built: "
        "No matching distribution found for no-such-package==1.0\n"
    )


def test_a_given_path_is_shown_and_a_wrong_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    python = overlays.ensure(EMPTY)
    monkeypatch.setenv("BENCH_ENVIRONMENT_EMPTY", str(python))
    assert f"empty: given path, {python}\n" in bench("list").stdout
    monkeypatch.setenv("BENCH_ENVIRONMENT_EMPTY", "/nowhere/python")
    assert "empty: broken: no such file" in bench("list").stdout
    result = bench("build", "empty")
    assert result.exit_code == 1
    assert "cannot be used: /nowhere/python (from BENCH_ENVIRONMENT_EMPTY)" in result.stderr


def test_the_json_list_and_an_unknown_name() -> None:
    rows = json.loads(bench("list", "--json").stdout)
    assert [(row["name"], row["state"]) for row in rows] == [
        ("empty", "not built"),
        ("impossible", "not built"),
    ]
    result = bench("build", "emty")
    assert result.exit_code == 2 and "did you mean empty?" in result.stderr
