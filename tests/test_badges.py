"""The badges of README.md say what the files of the repository say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / ".ci" / "badges.py"


def test_badges_are_true_and_come_from_this_repository() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"!\[[^\]]*\]\(([^)]*badge[^)]*)\)", (ROOT / "README.md").read_text())
    there = sorted(path.name for path in (ROOT / "docs" / "images").glob("badge-*.svg"))
    assert sorted(Path(address).name for address in shown) == there
    assert all(address.startswith("docs/images/") for address in shown)
