"""Where a user's data files are. Light: the registry asks it for names."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "BENCH_DATA"


def data_folder() -> Path:
    """Where a user's data files are: $BENCH_DATA (set by `--data-dir`), or the cache folder."""
    named = os.environ.get(DATA_VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "dp-release-bench" / "data"
