"""What a run says about where and how it was made."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from bench.engine import options
from bench.engine.grid import load_grid


def test_everything_is_there_and_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/x/bench", "run", "--grid", "my grid"])
    facts = options.manifest(load_grid("smoke"), ("ks", "tvd"))
    assert facts["left_out"] == []
    # Whatever of it a command line narrows: they are facts about the grid.
    core = load_grid("core").narrowed(methods=["real"])
    assert len(options.manifest(core, ())["left_out"]) == len(core.left_out) > 0
    assert facts == json.loads(json.dumps(facts))
    assert facts["methods"] == ["real", "marginals", "ldpdc"] and facts["metrics"] == ["ks", "tvd"]
    assert facts["command"] == "bench run --grid 'my grid'"
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    for name in ("host", "cpu", "platform", "machine", "started_at", "versions"):
        assert facts[name], name
    assert facts["cores"] >= 1 and facts["memory_gb"] > 0.1


def test_a_password_in_an_address_is_not_kept() -> None:
    line = options.command_line(["bench", "run", "--mlflow-uri", "https://me:secret@host/x"])
    assert "secret" not in line and "me" not in line.split("//")[1] and "@host/x" in line


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_a_checkout_and_whether_it_was_changed(tmp_path: Path) -> None:
    file = tmp_path / "package.py"
    file.write_text("a = 1")
    assert options.git_state(file) == (None, None)
    git(tmp_path, "init", "-q")
    assert options.git_state(file) == (None, None)
    git(tmp_path, "add", "package.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert options.git_state(file) == (commit, False)
    file.write_text("a = 2")
    assert options.git_state(file) == (commit, True)
    # A package in a virtual environment inside somebody's checkout is not that checkout's source.
    installed = tmp_path / "venv" / "package.py"
    installed.parent.mkdir()
    installed.write_text("")
    assert options.git_state(installed) == (None, None)


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert options.git_state(Path(__file__)) == (None, None)


def test_the_hash_follows_names_and_versions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, name: str, version: str) -> None:
            self.metadata, self.version = {"Name": name}, version

    def hash_of(*found: Fake) -> str:
        monkeypatch.setattr(metadata, "distributions", lambda: iter(found))
        return options.environment_hash()

    expected = hashlib.sha256(b"a-b==1\nc==2").hexdigest()
    assert hash_of(Fake("c", "2"), Fake("A_b", "1")) == expected
    # A second copy further down the path is not the one that is imported.
    assert hash_of(Fake("c", "2"), Fake("a.b", "1"), Fake("c", "3")) == expected
    assert hash_of(Fake("c", "3"), Fake("a.b", "1")) != expected


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: Abacus 9\nmodel name\t: Abacus 9\n")
    assert options.cpu_model(path) == "Abacus 9"
    assert options.cpu_model(tmp_path / "absent")
