"""Where tests find real data files, which nobody has to have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.places import ROOT


def real_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of real files, made the data folder of the test; skips with the reason if absent.

    Looked for in $BENCH_DATA, or in `shared/data` beside the repository.
    """
    beside = ROOT.parent / "shared" / "data"
    folder = Path(os.environ.get("BENCH_DATA") or beside)
    if not (folder / name).is_dir():
        pytest.skip(f"real data: {folder / name} is absent")
    monkeypatch.setenv("BENCH_DATA", str(folder))
    return folder / name
