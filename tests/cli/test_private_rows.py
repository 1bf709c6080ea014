"""No value of a private row leaves a run directory, for every method without a proof."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.engine import keys
from bench.engine.cell import run_cell
from bench.engine.merge import merge_runs
from bench.environments import overlays
from bench.leaderboard.dossier.material import gather
from bench.leaderboard.dossier.page import write_dossier
from bench.leaderboard.pages.site import write_site
from bench.plugins import registry
from bench.plugins.source import build_dataset
from bench.results.private_rows import may_travel
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunStore
from bench.tracking.tracker import Tracker
from tests.support.planted import Planted, write_ward
from tests.support.plugins import Boaster, Talkative

METRICS = ("ks", "tvd", "moments", "auroc", "embedding", "dcr", "mia", "copies", "singling-out")


def cell_of(method: str) -> Cell:
    kind = registry.method_class(method)
    quick = tuple(sorted(kind.quick.items()))
    return Cell(
        method=Variant(method, method, quick),
        dataset=Variant("ward", "ward"),
        ipc=20 if kind.uses_ipc else None,
        full_size=False,
        epsilon=1.0 if kind.uses_budget else None,
        delta=1e-5,
        seed=0,
        split="default",
        split_seed=0,
    )


def fitted_here() -> list[str]:
    """Methods of this environment; those of others release under the same rule."""
    kinds = {name: registry.method_class(name) for name in registry.method_names()}
    return [
        name
        for name, kind in kinds.items()
        if kind.environment is None or overlays.inside(kind.environment)
    ]


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """The table, as a user's dataset."""
    data = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_DATA", str(data))
        frame = write_ward(data)
        yield Planted.of(frame, build_dataset(registry.build_source("ward")).encoder)


@pytest.fixture(scope="module")
def outcomes(ward: Planted) -> list[tuple[Cell, Outcome]]:
    """Every release without a proven epsilon of the methods that can be fitted here."""
    dataset = build_dataset(registry.build_source("ward"))
    known = set(registry.metric_names())
    metrics = tuple(name for name in METRICS if name in known)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        add_plugins(patch)
        for name in [*fitted_here(), "boaster", "talkative"]:
            cell = cell_of(name)
            key = keys.cell_key(cell, dataset.fingerprint)
            # A first look without metrics: most methods have a proof and need none here.
            first = run_cell(cell, key, dataset, ())
            if first.row.verdict == "" or may_travel(first.row):
                continue
            # Figures and tables of details are the same for all of them.
            scored = metrics if name in ("real", "subset", "talkative") else ("ks",)
            found.append((cell, run_cell(cell, key, dataset, scored)))
    return found


def add_plugins(patch: pytest.MonkeyPatch) -> None:
    extra = {"boaster": Boaster, "talkative": Talkative}
    usual = registry.method_class
    patch.setattr(registry, "method_class", lambda name: extra.get(name) or usual(name))


@pytest.fixture
def run(tmp_path: Path, outcomes: list[tuple[Cell, Outcome]]) -> Path:
    """A run directory with all of them, logged to its MLflow; made under an open mask."""
    before = os.umask(0)
    try:
        dataset = build_dataset(registry.build_source("ward"))
        said: list[str] = []
        with RunStore(tmp_path / "run") as store:
            store.write_manifest({"grid": "planted", "datasets": ["ward"]})
            tracker = Tracker(store, None, said.append)
            tracker.planned(0, 0, ())
            for _, outcome in outcomes:
                tracker.finished(store.record(outcome, dataset.encoder), store)
            store.compact()
            tracker.close(0)
        assert said == []
    finally:
        os.umask(before)
    return tmp_path / "run"


def test_the_methods_that_release_rows_as_they_are_belong_to_the_test(
    ward: Planted, outcomes: list[tuple[Cell, Outcome]]
) -> None:
    names = {cell.method.name for cell, _ in outcomes}
    assert {"real", "subset", "gats", "dm", "fdd-nodp", "boaster", "talkative"} <= names
    assert {outcome.row.status for _, outcome in outcomes} == {"ok"}


def test_the_search_finds_what_is_there(ward: Planted, tmp_path: Path) -> None:
    number, age = ward.units[3]
    frame = pd.DataFrame({"number": ward.units[:, 0], "age": ward.units[:, 1]})
    encoded = pd.DataFrame(ward.encoded, columns=["v0", "v1"])
    frame.to_csv(tmp_path / "a.csv")
    frame[["number"]].to_parquet(tmp_path / "b.parquet", compression="zstd")
    frame[["age"]].to_parquet(tmp_path / "c.parquet", compression="zstd")
    encoded[["v1"]].to_parquet(tmp_path / "d.parquet", compression="zstd")
    (tmp_path / "e.bin").write_bytes(ward.encoded.tobytes())
    (tmp_path / "f.bin").write_bytes(np.ascontiguousarray(ward.encoded[:, 1]).tobytes())
    (tmp_path / "g.html").write_text(f"<b>{number:,.0f}</b>")
    (tmp_path / "h.html").write_text(f"<b>{age:.5f}</b>")
    (tmp_path / "i.html").write_text(f"<b>{float(ward.encoded[5, 0])}</b>")
    (tmp_path / "j.html").write_text("<b>4000000000 and 0.5 and 50</b>")
    found = {Path(text.split(":")[0]).name[0] for text in ward.found_in(tmp_path)}
    assert found == set("abcdefghi")


def test_no_value_of_a_row_leaves_the_run_directory(ward: Planted, run: Path) -> None:
    root = run.parent
    write_site([run], root / "internal")
    write_site([run], root / "public", public=True)
    merge_runs([run], root / "merged")
    for cell in ("real", "subset", "gats"):
        for public in (False, True):
            write_dossier(gather(run, cell), root / f"{cell}-{public}.html", public)
    assert ward.found_in(root / "internal") == []
    assert ward.found_in(root / "public") == []
    assert ward.found_in(run / "mlartifacts") + ward.found_in(run / "mlflow.db") == []
    assert [found for page in root.glob("*.html") for found in ward.found_in(page)] == []
    # In the run directory only what the method itself notes of them, for the owner alone.
    holders = {Path(text.split(":")[0]).name for text in ward.found_in(run / "releases")}
    assert holders == {"release.json"}
    open_files = [path for path in run.rglob("*") if path.stat().st_mode & 0o077]
    assert open_files == []
    assert not [p for p in (root / "internal").rglob("*") if p.stat().st_mode & 0o077]
    holders = {Path(text.split(":")[0]).name for text in ward.found_in(root / "merged")}
    assert holders <= {"release.json", "journal.jsonl", "cells.parquet"}


def test_kept_rows_do_not_travel_either(
    ward: Planted, tmp_path: Path, outcomes: list[tuple[Cell, Outcome]]
) -> None:
    dataset = build_dataset(registry.build_source("ward"))
    with RunStore(tmp_path / "run", keep_private_rows=True) as store:
        store.write_manifest({"grid": "planted"})
        tracker = Tracker(store, None, print)
        tracker.planned(0, 0, ())
        for cell, outcome in outcomes:
            if cell.method.name in ("real", "subset"):
                tracker.finished(store.record(outcome, dataset.encoder), store)
        store.compact()
        tracker.close(0)
    assert len(ward.found_in(tmp_path / "run" / "non-private-rows")) > 0
    write_site([tmp_path / "run"], tmp_path / "site")
    assert ward.found_in(tmp_path / "site") == []
    mlflow = ward.found_in(tmp_path / "run" / "mlartifacts")
    assert mlflow + ward.found_in(tmp_path / "run" / "mlflow.db") == []
    holders = {
        Path(text.split(":")[0]).relative_to(tmp_path / "run").parts[0]
        for text in ward.found_in(tmp_path / "run")
    }
    assert holders <= {"non-private-rows", "details", "journal.jsonl", "cells.parquet"}
    for path in (tmp_path / "run").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
