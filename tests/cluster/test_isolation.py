"""One cell cannot touch another: whatever a method does to its process, later cells see nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.meddling import WAYS, install_meddling
from tests.support.places import ROOT

VICTIMS = ("ndpdc", "dm", "dp-sinkhorn", "real", "watches")
PROVEN = {"synthetic.parquet", "encoded.parquet", "ledger.json", "release.json"}
UNPROVEN = {"rows.json", "ledger.json", "release.json"}
"""Rows without a proven epsilon are not stored; `rows.json` holds their digest."""


def grid(methods: list[str]) -> str:
    small = {"ndpdc": "iterations = 3", "dm": "iterations = 3", "dp-sinkhorn": "steps = 3"}
    entries = ", ".join(
        f'{{name = "meddles", label = "{name}", parameters = {{how = "{name}"}}}}'
        if name in WAYS
        else f'{{name = "{name}", label = "{name}", parameters = {{{small.get(name, "")}}}}}'
        for name in methods
    )
    return (
        'datasets = ["breast-cancer"]\nipc = [5]\nepsilon = [1]\nmetrics = ["ks", "auroc"]\n'
        f"methods = [{entries}]\n"
    )


RUNS = """
import sys
from pathlib import Path

import bench

sys.path.append(sys.argv[2])
from tests.support.one_ray import one_ray

# One worker runs the cells of both runs, in their order.
with one_ray(1):
    for name in ("calm", "meddled"):
        folder = Path(sys.argv[1]) / name
        print(bench.run(folder / "grid.toml", folder / "run").counts)
"""


def rows_of(folder: Path) -> pd.DataFrame:
    rows = pd.read_parquet(folder / "run" / "cells.parquet").set_index("label")
    assert (rows["status"] == "ok").all(), rows["reason"].tolist()
    return rows


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame, pd.DataFrame]:
    """The victims alone, and after cells of every way to meddle in the same worker."""
    folder = tmp_path_factory.mktemp("isolation")
    environment = install_meddling(folder / "packages")
    for name, methods in (("calm", [*VICTIMS]), ("meddled", ["hasty", *WAYS, *VICTIMS])):
        (folder / name).mkdir()
        (folder / name / "grid.toml").write_text(grid(methods))
    result = subprocess.run(
        [sys.executable, "-c", RUNS, str(folder), str(ROOT)],
        capture_output=True, text=True, check=False, timeout=1800, env=environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    calm, meddled = (rows_of(folder / name) for name in ("calm", "meddled"))
    order = meddled.sort_values("finished_at").index.tolist()
    assert max(map(order.index, WAYS)) < min(map(order.index, VICTIMS)), order
    return folder, calm, meddled


@pytest.mark.parametrize("name", VICTIMS)
def test_the_same_bytes_after_cells_that_meddle(
    runs: tuple[Path, pd.DataFrame, pd.DataFrame], name: str
) -> None:
    folder, calm, meddled = runs
    key = calm.loc[name, "key"]
    assert meddled.loc[name, "key"] == key
    one, two = (folder / side / "run" / "releases" / key for side in ("calm", "meddled"))
    files = {path.name for path in one.iterdir()}
    assert files in (PROVEN, UNPROVEN) and files == {path.name for path in two.iterdir()}
    for file in files - ({"release.json"} if name == "watches" else set()):
        assert (one / file).read_bytes() == (two / file).read_bytes(), file
    same = ["eps_proven", "eps_claimed", "verdict", "accountant", "rows_released"]
    pd.testing.assert_series_equal(calm.loc[name, same], meddled.loc[name, same])
    tables = [
        pd.read_parquet(folder / side / "run" / "scores.parquet") for side in ("calm", "meddled")
    ]
    scores = [table[table["key"] == key] for table in tables]
    pd.testing.assert_frame_equal(*(one.reset_index(drop=True) for one in scores))
    assert scores[0]["value"].notna().any()


def test_a_method_that_replaces_the_proof_proves_nothing_for_anybody(
    runs: tuple[Path, pd.DataFrame, pd.DataFrame],
) -> None:
    _, _, meddled = runs
    assert meddled.loc["real", "eps_proven"] == float("inf")
    # It did so when it was imported, which no process does that proves.
    assert meddled.loc["hasty", "eps_proven"] == float("inf")
    assert "it looks" in meddled.loc["hasty", "verdict_reason"]


def test_a_method_sees_nothing_of_those_before_it(
    runs: tuple[Path, pd.DataFrame, pd.DataFrame],
) -> None:
    _, calm, meddled = runs
    notes = [json.loads(rows.loc["watches", "notes"]) for rows in (calm, meddled)]
    assert json.loads(notes[0]["state"]) == json.loads(notes[1]["state"])
    assert json.loads(notes[0]["state"])["umask"] == 0o077, "files of a cell are its owner's"
    # Generators that libraries share are seeded anew for every fit: no two draw the same noise.
    assert notes[0]["drawn"] != notes[1]["drawn"]
