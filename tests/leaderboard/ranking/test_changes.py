"""One run checked against another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from scipy import stats

from bench.cli.main import main
from bench.errors import StoreError
from bench.leaderboard.ranking.changes import Changes, find_changes, to_text
from bench.leaderboard.tables.load import load_results


@pytest.fixture
def changes(tmp_path: Path) -> Callable[..., Changes]:
    """What changed from the first run to the second."""

    def compute(old: Any, new: Any, alpha: float = 0.05) -> Changes:
        results = [
            load_results([one.write(tmp_path / name)]) for one, name in ((old, "o"), (new, "n"))
        ]
        return find_changes(*results, alpha)

    return compute


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., Result]:
    """`bench leaderboard NEW --check OLD`."""

    def compute(old: Any, new: Any, *options: str) -> Result:
        folders = [str(one.write(tmp_path / name)) for one, name in ((old, "old"), (new, "new"))]
        return CliRunner().invoke(
            main, ["leaderboard", folders[1], "--check", folders[0], *options]
        )

    return compute


def test_nothing_changed(mixed_run: Any, check: Any) -> None:
    result = check(mixed_run, mixed_run)
    assert result.exit_code == 0, result.output
    assert "40 cells in both runs, 0 only in the old one, 0 only in the new one." in result.output
    # 20 rows, four of them skipped everywhere.
    assert "Utility: 16 rows compared, 0 differ" in result.output
    assert result.output.splitlines()[-1] == (
        "Check passed: no significant loss was found, no verdict changed, and no cell stopped "
        "finishing."
    )


def test_paired_over_seeds_with_both_errors(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    before, after = (0.80, 0.70, 0.60), (0.71, 0.60, 0.49)
    for seed in range(3):
        old.add("a", before[seed], seed=seed)
        new.add("a", after[seed], seed=seed)
    old.add("a", 0.1, seed=7)  # not in both
    found = changes(old, new)
    (change,) = found.utility
    assert (change.seeds, change.metric) == (3, "auroc")
    assert (change.old, change.new) == pytest.approx((0.7, 0.6))
    # By hand: gains of -0.09, -0.10, -0.11; intervals of +-0.02 in both runs.
    seeds = statistics.variance((0.09, 0.10, 0.11)) / 3
    rows = 2 * (0.02 / 1.959964) ** 2
    error, freedom = math.sqrt(seeds + rows), (seeds + rows) ** 2 / (seeds**2 / 2)
    assert change.gain.value == pytest.approx(-0.1)
    assert change.gain.p == pytest.approx(2 * stats.t.sf(0.1 / error, freedom), rel=1e-6)
    reach = stats.t.ppf(0.975, freedom) * error
    assert (change.gain.low, change.gain.high) == pytest.approx((-0.1 - reach, -0.1 + reach))
    assert change.p_holm == change.gain.p
    assert change.worse and found.worse
    assert (found.cells, found.only_old, found.only_new) == (3, 1, 0)


def test_without_intervals_it_is_the_paired_t_test(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    before, after = (0.80, 0.70, 0.60, 0.75), (0.75, 0.68, 0.52, 0.71)
    for seed in range(4):
        old.score(old.add("a", seed=seed), "auroc", before[seed])
        new.score(new.add("a", seed=seed), "auroc", after[seed])
    (change,) = changes(old, new).utility
    assert change.gain.p == pytest.approx(stats.ttest_rel(after, before).pvalue)


def test_holm_over_all_rows_that_differ(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    for number, loss in enumerate((0.031, 0.031, 0.0, 0.1)):
        old.add("a", 0.8, dataset=f"d{number}")
        new.add("a", 0.8 - loss, dataset=f"d{number}")
    found = changes(old, new).utility
    # A loss of 0.031 alone is significant (p 0.032), with two others not; the third is no test.
    assert [change.significant for change in found] == [False, False, False, True]
    assert found[0].gain.p < 0.05 < found[0].p_holm
    assert found[3].p_holm == pytest.approx(3 * found[3].gain.p)
    assert found[2].p_holm is None


def test_a_loss_below_significance_is_named(new_run: Any, check: Any) -> None:
    old, new = new_run(), new_run()
    for dataset, after, reach in (("large", 0.79, 0.02), ("small", 0.6, 0.3), ("good", 0.9, 0.3)):
        old.score(old.add("a", dataset=dataset), "auroc", 0.8, 0.8 - reach, 0.8 + reach)
        new.score(new.add("a", dataset=dataset), "auroc", after, after - reach, after + reach)
    result = check(old, new)
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    assert last.startswith("Check passed: no significant loss was found, no verdict changed, ")
    assert (
        "Largest observed loss that is not significant: a on small, 50 rows per class, eps 1: "
        "auroc 0.800 -> 0.600, gain -0.2000 [-0.6243, +0.2243], corrected p 1, 1 seed."
    ) in last
    assert "large" not in last and "good" not in last and "nothing" not in result.output


def test_the_largest_loss_of_each_metric(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    for run, auroc, error in ((old, 0.8, 10.0), (new, 0.799999, 30.0)):
        run.score(run.add("a", dataset="x"), "auroc", auroc)
        run.score(run.add("a", dataset="y"), "error", error, direction="lower")
        run.add("a", auroc - (run is new) / 2, dataset="z")
    found = changes(old, new)
    assert [change.observed for change in found.utility[:2]] == pytest.approx([-1e-6, -20.0])
    # The loss of 0.5 on z is significant, and has its own line.
    assert to_text(found).splitlines()[-1] == (
        "Check failed: 1 significantly worse. Largest observed loss of each metric that is not "
        "significant: a on x, 50 rows per class, eps 1: auroc 0.800 -> 0.800, gain -1e-06 "
        "(not tested), 1 seed; a on y, 50 rows per class, eps 1: error 10.000 -> 30.000, "
        "gain -20.0000 (not tested), 1 seed."
    )


def test_better_is_no_failure(new_run: Any, check: Any) -> None:
    old, new = new_run(), new_run()
    for name, run, error in (("old", old, 0.5), ("new", new, 0.1)):
        run.score(run.add("a", key=name), "error", error, error - 0.02, error + 0.02, "lower")
    result = check(old, new)
    assert result.exit_code == 0, result.output
    assert "better: a on breast-cancer, 50 rows per class, eps 1: error 0.500 -> 0.100, " in (
        result.output
    )
    assert "gain +0.4000" in result.output
    assert check(new, old).exit_code == 1


def test_alpha_decides(new_run: Any, check: Any) -> None:
    old, new = new_run(), new_run()
    old.add("a", 0.8)
    new.add("a", 0.769)  # p 0.032
    assert check(old, new).exit_code == 1
    assert check(old, new, "--alpha", "0.01").exit_code == 0
    assert check(old, new, "--alpha", "0").exit_code == 2


def test_without_any_error_nothing_is_called_significant(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    old.score(old.add("a"), "auroc", 0.9)
    new.score(new.add("a"), "auroc", 0.1)
    found = changes(old, new)
    assert (found.utility[0].gain, found.worse) == (None, False)
    assert "without an interval or a second seed" in to_text(found)
    assert "differs: a on breast-cancer" in to_text(found)


def test_verdicts_and_epsilons(new_run: Any, unproven: dict[str, Any], check: Any) -> None:
    old, new = new_run(), new_run()
    for seed in (0, 1):
        old.add("a", 0.8, seed=seed)
        new.add("a", 0.8, seed=seed, **unproven)
        old.add("b", 0.8, seed=seed)
        new.add("b", 0.8, seed=seed, eps_proven=0.75 * (1 + 1e-12) + 0.1 * seed)
    result = check(old, new)
    assert result.exit_code == 1
    assert "Verdicts changed: 2 cells." in result.output
    assert "a on breast-cancer, 50 rows per class, eps 1, seeds 0, 1: sound -> unproven" in (
        result.output
    )
    assert "Proven epsilons changed: 3 cells." in result.output
    assert "eps 1, seed 1: 0.75 -> 0.85 (larger)" in result.output
    assert result.output.splitlines()[-1] == "Check failed: 1 with a changed verdict."


def test_a_larger_epsilon_within_the_target_is_told_only(new_run: Any, check: Any) -> None:
    old, new = new_run(), new_run()
    old.add("a", 0.8)
    new.add("a", 0.8, eps_proven=0.9)
    result = check(old, new)
    assert (result.exit_code, "0.75 -> 0.9 (larger)" in result.output) == (0, True)


def test_another_unit_is_another_verdict(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    old.add("a", 0.8, unit="patient")
    new.add("a", 0.8, unit="row")
    (change,) = changes(old, new).verdicts
    assert (change.old, change.new) == ("sound, unit patient", "sound, unit row")


def test_newly_failing_and_newly_ok(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    old.add("breaks", 0.8)
    new.fail("breaks", "timeout", "over 60 s", unit="", adjacency="")
    old.fail("recovers")
    new.add("recovers", 0.8)
    old.add("skips", 0.8)
    new.fail("skips", "skipped", "takes images only")
    old.fail("still", "error")
    new.fail("still", "timeout")
    old.add("empty", 0.8)
    new.score(new.add("empty"), "auroc", None, reason="one class only")
    found = changes(old, new)
    assert [(c.where.label, c.old, c.new, c.reason) for c in found.failing] == [
        ("breaks", "ok", "timeout", "over 60 s"),
        ("empty", "ok", "no score", "one class only"),
        ("skips", "ok", "skipped", "takes images only"),
    ]
    assert [(c.where.label, c.old, c.new) for c in found.finished] == [("recovers", "error", "ok")]
    assert found.worse


def test_changed_code_and_data_are_named(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    old.add("a", 0.8)
    new.add("a", 0.8, source_hash="other", fingerprint="other")
    found = changes(old, new)
    assert (found.sources, found.data, found.worse) == (("a",), ("breast-cancer",), False)


def test_settings_are_named_where_needed(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    for delta in (1e-5, 1e-6):
        old.add("a", 0.8, delta=delta)
        new.add("a", 0.2, delta=delta)
    settings = [change.where.setting for change in changes(old, new).utility]
    assert "delta 1e-06" in settings[1] and settings[0] != settings[1]


def test_nothing_in_common(new_run: Any, check: Any) -> None:
    old, new = new_run(), new_run()
    old.add("a", 0.8)
    new.add("b", 0.8)
    result = check(old, new)
    assert result.exit_code == 2
    assert "runs new and old have no cell in common" in result.stderr


def test_directions_must_agree(new_run: Any, changes: Any) -> None:
    old, new = new_run(), new_run()
    old.score(old.add("a"), "error", 0.1, direction="lower")
    new.score(new.add("a"), "error", 0.1)
    with pytest.raises(StoreError, match="different directions in the two runs"):
        changes(old, new)


def test_a_terminal_obeys_nothing(new_run: Any, check: Any) -> None:
    evil = "\x1b[2J<script>alert(1)</script>\r\n"
    old, new = new_run(), new_run()
    old.add(evil, 0.8, dataset=evil)
    new.fail(evil, reason=evil, dataset=evil)
    output = check(old, new).output
    assert "\x1b" not in output and "\r" not in output
    assert "?[2J<script>alert(1)</script>?? on" in output


def test_a_site_or_a_check_must_be_asked_for(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.8)
    folder = str(run.write(tmp_path / "run"))
    assert CliRunner().invoke(main, ["leaderboard", folder]).exit_code == 2
    site = tmp_path / "site"
    both = ["leaderboard", folder, "-o", str(site), "--check", folder]
    assert CliRunner().invoke(main, both).exit_code == 0
    assert (site / "index.html").exists()
