"""A small published version and its site, with what its files say read by pandas alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from bench.plugins.description import FILE, Descriptions
from bench.results import published
from bench.results.published import Slice, Version
from tests.support.quantities import small_run

SLICE = Slice(
    date="2026-11-18",
    run="core",
    grid="core",
    machine="Linux x86_64, 2 CPUs",
    cpu="a processor",
    memory_gb=23.5,
    python="3.11.7",
    commit="c0ffee" * 6,
    dirty=False,
    environment_hash="0" * 64,
    added=1,
    replaced=0,
    statuses={"ok": 1},
    first_finished="2026-11-17T00:00:00+00:00",
    last_finished="2026-11-18T00:00:00+00:00",
    core_hours=1.25,
    untimed=0,
)


def small_version(folder: Path, name: str = "2026.11", *, complete: bool = True) -> Path:
    """Write a published version of the small run, in a folder of versions."""
    run = small_run(folder / f"run-{name}", complete=complete)
    (run / "run.json").write_text(json.dumps({"format_version": 1}))
    if not (run / FILE).exists():
        (run / FILE).write_text(Descriptions().to_json())
    results = published.compact(run)
    slices = (SLICE, replace(SLICE, date="2026-11-19", core_hours=2.5))
    version = Version(name, "2026-11-18", "2026-11-19", slices)
    published.write(folder / "versions" / name, results, version, "# Log\n")
    return folder / "versions" / name
