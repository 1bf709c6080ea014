"""A leaderboard for 20,000 cells: seconds to build it, and seconds until its front page responds.

40 methods with a budget on 10 datasets, 5 IPCs, 5 target epsilons and 2 seeds, beside real rows and
random subsets; 100 metrics per cell, so 2 million scores. Some cells fail, some are skipped, some
methods are not sound. Every release has a ledger, which is accounted again, and files with digests:
each method has its own noise on each dataset and target, so that 2,000 ledgers are distinct. The
front page is opened in Chromium if Playwright and Chromium are installed: from the navigation to
the first filtered and sorted table after a click.

    OMP_NUM_THREADS=1 python benchmarks/leaderboard.py [folder to keep run and site in]

A run that the folder holds already is used again: writing its ledgers takes minutes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.leaderboard.pages import board, site
from bench.leaderboard.tables import load
from bench.plugins.release import Claim
from bench.privacy import accounting
from bench.privacy.accounting import Budget, Proof
from bench.privacy.events import gaussian, non_private, sampled_gaussian
from bench.privacy.ledger import Entry, Ledger
from bench.results.integrity import release_hashes
from bench.results.records import CellRow, ScoreRow, arrow_schema
from bench.results.verdicts import judge

METHODS, DATASETS, SEEDS = 40, 10, 2
SIZES = (1, 10, 50, 100, 500)
TARGETS = (0.5, 1.0, 3.0, 5.0, 10.0)
METRICS = 100
"""Scores of each cell; a fifth of them are shown on the page."""
ROW_BYTES = 20_000
"""Bytes of each of the two tables of a release."""
BUILD_AT_MOST, RESPONSE_AT_MOST = 60.0, 2.0
"""Accepted seconds; those of the check of ledgers are not in the first."""
LEDGER_AT_MOST = 0.1
"""Accepted seconds for one distinct ledger, whose accounting is most of the check."""

_TASKS = ("classification",) * 6 + ("survival",) * 2 + ("image",) * 2
_UTILITY = {
    "classification": (
        "auroc",
        "auroc/ratio",
        "auroc/forest",
        "auroc/logistic",
        "auroc/mlp",
        "auroc/svm",
    ),
    "survival": ("c-index/cox", "c-index/cox-ratio", "c-index/aft"),
    "image": ("accuracy/convnet", "accuracy/ratio"),
}
_SHOWN = ("auroc", "auroc/ratio", "c-index/cox", "c-index/cox-ratio", "accuracy/convnet")
_FAMILIES = ("fidelity", "privacy", "cost")


def write_run(directory: Path) -> None:
    """Write the tables of the run, the scores last."""
    rng = np.random.default_rng(0)
    directory.mkdir(parents=True, exist_ok=True)
    cells = _with_releases(_cells(rng), directory)
    scores = _scores(cells, rng)
    for frame, record, name in (
        (cells, CellRow, "cells.parquet"),
        (scores, ScoreRow, "scores.parquet"),
    ):
        schema = arrow_schema(record)
        table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
        pq.write_table(table, directory / name)


def _with_releases(cells: pd.DataFrame, directory: Path) -> pd.DataFrame:
    """Write a ledger and files for every finished cell; rows say what follows from them."""
    proofs: dict[tuple[object, ...], tuple[str, Proof]] = {}
    columns: dict[str, list[object]] = {
        name: cells[name].tolist()
        for name in ("eps_proven", "verdict", "verdict_reason", "accountant")
    }
    hashes = []
    for number, cell in enumerate(cells.to_dict("records")):
        if not cell["verdict"]:
            hashes.append("")
            continue
        private = cell["verdict"] == "sound"
        place = (cell["method"], cell["number"], cell["eps_target"]) if private else (False,)
        target = None if pd.isna(cell["eps_target"]) else float(cell["eps_target"])
        place = (*place, target)
        if place not in proofs:
            proofs[place] = _ledger(private, target, len(proofs))
        text, proof = proofs[place]
        claim = None if pd.isna(cell["eps_claimed"]) else {"epsilon": float(cell["eps_claimed"])}
        folder = directory / "releases" / cell["key"]
        folder.mkdir(parents=True)
        (folder / "ledger.json").write_text(text)
        (folder / "release.json").write_text(json.dumps({"claim": claim, "result": "rows"}))
        for name in ("synthetic.parquet", "encoded.parquet"):
            (folder / name).write_bytes(os.urandom(ROW_BYTES))
        hashes.append(release_hashes(directory, cell["key"]))
        budget = None if target is None else Budget(target, 1e-5)
        claimed = None if claim is None else Claim(claim["epsilon"], 1e-5, "theorem 1")
        judged = judge(budget, claimed, proof)
        facts = (proof.epsilon, judged.text, judged.reason, proof.accountant)
        for values, fact in zip(columns.values(), facts, strict=True):
            values[number] = fact
    return cells.assign(**columns, release_hashes=hashes)


def _ledger(private: bool, target: float | None, number: int) -> tuple[str, Proof]:
    """A ledger of a sampled and a full-batch Gaussian within the target, other for each number."""
    ledger = Ledger(None if target is None else Budget(target, 1e-5))
    if private and target is not None:
        noise = (6.0 + 0.001 * number) / target
        ledger.add(Entry((), sampled_gaussian(0.01, max(noise, 1.0))), 200)
        ledger.add(Entry((), gaussian(noise)), 1)
    else:
        ledger.add(Entry((), non_private(), reason="rows were read without noise"))
    return ledger.to_json(), ledger.proof()


def _cells(rng: np.random.Generator) -> pd.DataFrame:
    names = ["marginals", *(f"method-{number:02}" for number in range(1, METHODS))]
    grid = pd.MultiIndex.from_product(
        [names, range(DATASETS), SIZES, TARGETS, range(SEEDS)],
        names=["method", "number", "ipc", "eps_target", "seed"],
    ).to_frame(index=False)
    subset = pd.MultiIndex.from_product(
        [["subset"], range(DATASETS), SIZES, [None], range(SEEDS)], names=grid.columns
    ).to_frame(index=False)
    real = pd.MultiIndex.from_product(
        [["real"], range(DATASETS), [None], [None], range(SEEDS)], names=grid.columns
    ).to_frame(index=False)
    cells = pd.concat([grid, subset, real], ignore_index=True)
    cells["eps_target"] = cells["eps_target"].astype(float)
    private = cells["eps_target"].notna().to_numpy()
    unproven = cells["method"].isin(["method-07", "method-11"]).to_numpy()
    failed = (rng.random(len(cells)) < 0.03) & private
    skipped = (cells["method"] == "method-13").to_numpy() & (cells["number"] >= 8).to_numpy()
    done = ~(failed | skipped)
    proven = np.where(private & ~unproven, cells["eps_target"] * 0.999, np.inf)
    verdict = np.select([~private, unproven], ["non-private", "unproven"], "sound")
    reason = [f"epsilon {value:.4g} at delta 1e-05 by PLD" for value in proven]
    status = np.select([skipped, failed], ["skipped", "timeout"], "ok")
    words = {"ok": "", "skipped": "takes tables only", "timeout": "over 600 s"}
    return cells.assign(
        key=[f"{number:020x}" for number in range(len(cells))],
        label=cells["method"],
        parameters='{"steps": 1000}',
        dataset=[f"dataset-{number:02}" for number in cells["number"]],
        dataset_name=[f"dataset-{number:02}" for number in cells["number"]],
        dataset_parameters="{}",
        task=[_TASKS[number] for number in cells["number"]],
        full_size=False,
        eps_claimed=np.where(done & private, cells["eps_target"], np.nan),
        eps_proven=np.where(done, proven, np.nan),
        eps_audited=np.where(done & private, cells["eps_target"] * 0.1, np.nan),
        attack="",
        trials=pd.Series([None] * len(cells), dtype="Int64"),
        delta=1e-5,
        verdict=np.where(done, verdict, ""),
        verdict_reason=np.where(done, reason, ""),
        claim_source=np.where(done & private, "theorem 1", ""),
        accountant=np.where(done & private, "PLD", ""),
        adjacency="add-remove",
        unit="row",
        study_only=True,
        private_counts=False,
        warnings="",
        split="default",
        split_seed=0,
        status=status,
        reason=[words[text] for text in status],
        log_tail="",
        rows_released=pd.Series(np.where(done, 100, np.nan)),
        notes="{}",
        fit_seconds=np.where(done, rng.lognormal(1, 1, len(cells)), np.nan),
        score_seconds=np.where(done, rng.lognormal(1, 1, len(cells)), np.nan),
        peak_memory_mb=rng.lognormal(6, 0.5, len(cells)),
        fingerprint="f",
        source_hash="s",
        metrics_hash="m",
        versions="{}",
        metrics="{}",
        finished_at="2026-01-01T00:00:00.000+00:00",
    )


def _scores(cells: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    done = cells[cells["status"] == "ok"]
    skill = done["method"].map({name: rng.uniform(0.55, 0.85) for name in set(done["method"])})
    level = np.where(done["method"] == "real", 0.95, skill)
    level = level + 0.03 * np.log10(done["eps_target"].fillna(10.0))
    parts = []
    for task, cells_of_task in done.groupby("task"):
        names = list(_UTILITY[str(task)])
        names += [f"score-{number:02}/{task[:1]}" for number in range(METRICS - len(names))]
        families = ["utility"] * len(_UTILITY[str(task)])
        families += [_FAMILIES[place % 3] for place in range(METRICS - len(families))]
        count = len(cells_of_task)
        value = np.repeat(level[cells_of_task.index].to_numpy(), METRICS)
        value = np.clip(value + rng.normal(0, 0.02, count * METRICS), 0, 1)
        first = len(_UTILITY[str(task)])
        shown = [name in _SHOWN or first <= place < first + 16 for place, name in enumerate(names)]
        higher = [family == "utility" for family in families]
        parts.append(
            pd.DataFrame(
                {
                    "key": np.repeat(cells_of_task["key"].to_numpy(), METRICS),
                    "metric": np.tile(names, count),
                    "value": value,
                    "low": value - 0.02,
                    "high": value + 0.02,
                    "direction": np.tile(np.where(higher, "higher", "lower"), count),
                    "family": np.tile(families, count),
                    "reason": "",
                    "limit": np.nan,
                    "remark": "",
                    "shown": np.tile(shown, count),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


class Clock:
    """Seconds by part of the build."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of a block to its part."""
        started = time.perf_counter()
        yield
        taken = time.perf_counter() - started
        self.seconds[name] = self.seconds.get(name, 0.0) + taken

    def watch(self, module: Any, name: str, part: str = "") -> None:
        """Time the calls of a function of a module; an iterator is read to its end."""
        function = getattr(module, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.part(part or name):
                result = function(*arguments, **options)
                return list(result) if isinstance(result, Iterator) else result

        setattr(module, name, timed)


def response_seconds(front: Path) -> tuple[float, float] | None:
    """Time the page from the navigation to a table sorted by a click; None without a browser.

    Returns elapsed seconds, and the seconds that the page's thread was busy.
    """
    chromium = shutil.which("chromium")
    if chromium is None or importlib.util.find_spec("playwright") is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        started = time.perf_counter()
        page.goto(front.resolve().as_uri(), wait_until="commit")
        page.wait_for_selector("#results tbody tr")
        page.click('#results th[data-column="proven"] button')
        page.wait_for_selector('#results th[data-column="proven"][aria-sort]')
        taken = time.perf_counter() - started
        measured = session.send("Performance.getMetrics")["metrics"]
        browser.close()
    (busy,) = [float(item["value"]) for item in measured if item["name"] == "TaskDuration"]
    return taken, busy


def main() -> None:
    clock = Clock()
    with tempfile.TemporaryDirectory() as scratch:
        kept = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        run, output = kept / "run", kept / "site"
        if not (run / "scores.parquet").exists():
            write_run(run)
        count = pq.read_metadata(run / "cells.parquet").num_rows
        clock.watch(load, "checked", "check of ledgers")
        for name in ("load_results", "aggregate", "standings", "compare", "ranking_table"):
            clock.watch(board, name)
        for module in (site.front, site.plots_page, site.cell_pages):
            clock.watch(module, "pages", module.__name__.rpartition(".")[2])
        for name in ("method_pages", "dataset_pages"):
            clock.watch(site.card_pages, name)
        for name in ("to_csv", "to_parquet", "to_markdown"):
            clock.watch(site.export, name)
        clock.watch(site.latex, "to_latex")
        # As a new process would: nothing is known from writing the ledgers.
        accounting.rdp_epsilon.cache_clear()
        accounting.pld_epsilon.cache_clear()
        started, used = time.perf_counter(), time.process_time()
        summary = site.write_site([run], output)
        total, used = time.perf_counter() - started, time.process_time() - used
        front = output / "index.html"
        print(f"{count} cells, {summary.methods} methods, {len(summary.paths)} files")
        for name, seconds in clock.seconds.items():
            print(f"  {name:16} {seconds:6.1f} s")
        check = clock.seconds["check of ledgers"]
        ledgers = len({path.read_bytes() for path in run.glob("releases/*/ledger.json")})
        print(f"  {'all':16} {total:6.1f} s; {used:.1f} s of a processor")
        print(f"  {'without check':16} {total - check:6.1f} s; at most {BUILD_AT_MOST:.0f}")
        print(
            f"  {ledgers} distinct ledgers: {check / ledgers:.3f} s each; at most "
            f"{LEDGER_AT_MOST:g}"
        )
        print(f"  load of the machine {os.getloadavg()[0]:.1f}: waiting is included above")
        data = len(front.read_text(encoding="utf-8").partition('id="data">')[2])
        print(f"  front page {front.stat().st_size / 1e6:.1f} MB, {data / 1e6:.1f} of them data")
        size = sum(path.stat().st_size for path in summary.paths)
        print(f"  all files {size / 1e6:.1f} MB")
        response = response_seconds(front)
    if response is None:
        print("  Chromium or Playwright is not installed: the page was not opened")
    else:
        taken, busy = response
        print(f"  responds after {taken:.2f} s; at most {RESPONSE_AT_MOST:.0f}; {busy:.2f} s busy")
    slow = total - check > BUILD_AT_MOST or check > LEDGER_AT_MOST * ledgers
    if slow or (response and response[0] > RESPONSE_AT_MOST):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
