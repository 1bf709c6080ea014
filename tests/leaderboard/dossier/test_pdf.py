"""The dossier as PDF."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.errors import ProgramMissingError
from bench.leaderboard.dossier import pdf
from bench.leaderboard.dossier.material import gather
from tests.support.dossiers import Made, raw_ledger

ROW = {"eps_target": None, "eps_claimed": None, "eps_proven": float("inf")}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = Made(tmp_path / "run")
    made.cell("real", "a1", verdict="non-private", verdict_reason="rows", **ROW)
    made.release("a1", raw_ledger())
    made.run.write(made.directory)
    return tmp_path / "run"


def program(folder: Path, script: str) -> None:
    path = folder / "chromium"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


def test_without_chromium_it_says_what_to_install(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissingError, match="apt-get install chromium"):
        pdf.write_pdf(gather(run, "real"), tmp_path / "a.pdf")
    ended = CliRunner().invoke(main, ["dossier", str(run), "real", "--pdf"])
    assert ended.exit_code == 2 and "leave out --pdf" in ended.output


def test_a_program_that_prints_nothing_is_said(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "exit 7")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissingError, match=r"did not print the page \(exit code 7\)"):
        pdf.write_pdf(gather(run, "real"), tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()


def test_chromium_prints_the_whole_page(run: Path, tmp_path: Path) -> None:
    if not any(map(shutil.which, pdf.PROGRAMS)):
        pytest.skip("no Chromium on this machine; apt-get install chromium")
    for public in (False, True):
        place = tmp_path / f"{public}.pdf"
        pdf.write_pdf(gather(run, "real"), place, public)
        content = place.read_bytes()
        assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")
        assert len(content) > 20_000
        assert bool(stat.S_IMODE(place.stat().st_mode) & 0o077) is public
    assert not list(tmp_path.glob(".*"))
