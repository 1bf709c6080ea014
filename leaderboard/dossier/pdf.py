"""The dossier as PDF, printed by the Chromium of this machine.

Nothing is downloaded: where no Chromium is installed, the error says what to install. The page is
printed from a folder that its owner alone can read, with a profile of its own in the same folder;
it has no scripts and loads nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.errors import ProgramMissingError
from bench.leaderboard.dossier.material import Material
from bench.leaderboard.dossier.page import write_dossier
from bench.results.writing import FOR_ALL, OWNER_ONLY, write_atomically, writing

PROGRAMS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome-headless-shell",
)
_SECONDS = 300
"""Printing takes a second or two; a machine may be busy."""

_OTHERWISE = (
    "install it (for example: apt-get install chromium), or leave out --pdf and print the HTML "
    "page with any browser"
)


def write_pdf(material: Material, output: Path, public: bool = False) -> None:
    """Write the dossier as PDF; one with values from private rows for its owner only."""
    program = find_chromium()
    with tempfile.TemporaryDirectory(prefix="bench-dossier-") as scratch:
        page, printed = Path(scratch) / "dossier.html", Path(scratch) / "dossier.pdf"
        write_dossier(material, page, public)
        _print(program, page, printed)
        content = printed.read_bytes()
    with writing(output, "or give another -o"):
        write_atomically(output, content, FOR_ALL if public else OWNER_ONLY)


def find_chromium() -> str:
    """Return the path of a Chromium; raise `ProgramMissingError` where there is none."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise ProgramMissingError(
        f"--pdf prints with Chromium, and none of {', '.join(PROGRAMS)} is on the PATH; "
        f"{_OTHERWISE}"
    )


def _print(program: str, page: Path, printed: Path) -> None:
    command = [
        program,
        "--headless",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--no-pdf-header-footer",
        f"--user-data-dir={page.parent / 'profile'}",
        f"--print-to-pdf={printed}",
        page.as_uri(),
    ]
    if os.geteuid() == 0:
        # Chromium refuses to start as root with its sandbox; the page is ours and has no scripts.
        command.insert(1, "--no-sandbox")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "HOME": str(page.parent)},
        )
        why = f"exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        why = f"not done after {_SECONDS} s"
    except OSError as problem:
        why = problem.strerror or str(problem)
    if not printed.is_file() or not printed.read_bytes().startswith(b"%PDF-"):
        raise ProgramMissingError(f"{program} did not print the page ({why}); {_OTHERWISE}")
