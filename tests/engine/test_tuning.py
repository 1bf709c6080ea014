"""Trials of a method: which there are, what a tuning run says of them, and what is chosen."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pytest

from bench import Between, Method, PrivateData, Release, Spec
from bench.engine import keys, tuning
from bench.engine.grid import load_grid
from bench.errors import GridError, InputError, StoreError
from bench.plugins import registry
from tests.leaderboard.conftest import Run


@final
@dataclass(frozen=True)
class Tunable(Method):
    """Never fitted."""

    name: ClassVar[str] = "tunable"
    title: ClassVar[str] = "Tunable"
    search: ClassVar[dict[str, Any]] = {
        "rate": Between(0.01, 1.0, log=True),
        "rounds": Between(2, 5, whole=True),
        "kind": ("a", "b"),
    }

    rate: float = 0.1
    rounds: int = 3
    kind: str = "a"
    other: int = 7

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        raise AssertionError


@final
@dataclass(frozen=True)
class Switch(Method):
    name: ClassVar[str] = "switch"
    title: ClassVar[str] = "Switch"
    search: ClassVar[dict[str, Any]] = {"on": (False, True), "size": (1, 2)}

    on: bool = False
    size: int = 2

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        raise AssertionError


def test_trials_begin_with_the_defaults_and_stay_as_they_are_if_there_are_more() -> None:
    few, many = tuning.combinations(Tunable, 5), tuning.combinations(Tunable, 300)
    assert list(few) == ["defaults", "trial 01", "trial 02", "trial 03", "trial 04"]
    assert few["defaults"] == {} and few.items() <= many.items()
    assert len({json.dumps(one) for one in many.values()}) == 300
    drawn = [one for one in many.values() if one]
    assert all(set(one) == set(Tunable.search) for one in drawn)
    rates = np.array([one["rate"] for one in drawn])
    assert rates.min() >= 0.01 and rates.max() <= 1.0
    # Log-uniform: half of them are below the geometric mean of the ends.
    assert np.mean(rates < 0.1) == pytest.approx(0.5, abs=0.03)
    rounds = Counter(one["rounds"] for one in drawn)
    assert set(rounds) == {2, 3, 4, 5} and all(type(number) is int for number in rounds)
    assert min(rounds.values()) > 65  # of 299, 75 each
    assert Counter(one["kind"] for one in drawn)["a"] == pytest.approx(150, abs=10)


def test_a_small_space_is_tried_whole_and_the_defaults_are_not_tried_twice() -> None:
    found = tuning.combinations(Switch, 20)
    tried = [(one["on"], one["size"]) for label, one in found.items() if one]
    assert sorted(tried) == [(False, 1), (True, 1), (True, 2)] and found["defaults"] == {}
    with pytest.raises(GridError, match="expected 1 or more"):
        tuning.combinations(Switch, 0)


@pytest.mark.parametrize("low, high, log", [(1.0, 1.0, False), (2.0, 1.0, False), (0.0, 1.0, True)])
def test_a_range_without_values_is_refused(low: float, high: float, log: bool) -> None:
    with pytest.raises(InputError, match="low < high"):
        Between(low, high, log=log)


def test_ranges_reach_their_ends_and_give_whole_numbers_the_same_room() -> None:
    assert [Between(0.0, 10.0).at(place) for place in (0.0, 0.25, 1.0)] == [0.0, 2.5, 10.0]
    assert Between(1e-4, 1e-2, log=True).at(0.5) == 1e-3
    places = (np.arange(4000) + 0.5) / 4000  # no place is at an end of an interval
    counts = Counter(Between(1, 4, whole=True).at(place) for place in places)
    assert counts == {1: 1000, 2: 1000, 3: 1000, 4: 1000}
    powers = Counter(Between(1, 9, log=True, whole=True).at(place) for place in places)
    # From 0.5 to 9.5, by factors: 1 has log(1.5 / 0.5), 9 has log(9.5 / 8.5).
    assert powers[1] / powers[9] == pytest.approx(math.log(3) / math.log(9.5 / 8.5), rel=0.02)
    assert set(powers) == set(range(1, 10))


def test_every_search_space_of_a_plugin_is_one_of_its_parameters() -> None:
    named = [name for name in registry.method_names() if registry.method_class(name).search]
    assert len(named) >= 12
    protocol = load_grid(tuning.PROTOCOL)
    for name in named:
        grid = tuning.tuning_grid(name)
        assert (grid.split, grid.datasets) == ("tuning", protocol.datasets)
        assert grid.methods[0].parameters == () and 10 <= len(grid.methods) <= tuning.TRIALS
        # What is claimed or proven is not to be chosen by a score.
        searched = set(registry.method_class(name).search)
        assert not searched & {"noise_multiplier", "accounting", "noise", "split_seed", "clients"}


def test_what_cannot_be_tuned_is_refused() -> None:
    with pytest.raises(GridError, match="real declares nothing to tune"):
        tuning.tuning_grid("real")


def run_of(scores: dict[str, list[float | None]], trials: dict[str, dict[str, Any]]) -> Run:
    """Two datasets and two seeds per trial; None is a cell that failed."""
    run = Run()
    for label, values in scores.items():
        places = [(dataset, seed) for dataset in ("one", "two") for seed in (0, 1)]
        for (dataset, seed), value in zip(places, values, strict=True):
            facts = {"dataset": dataset, "seed": seed, "method": "ndpdc"}
            facts["parameters"] = json.dumps(trials[label])
            if value is None:
                run.fail(label, **facts)
            else:
                run.add(label, value, **facts)
    return run


def test_a_trial_is_chosen_if_it_is_better_by_more_than_its_error(tmp_path: Path) -> None:
    grid = tuning.tuning_grid("ndpdc", 4)
    trials = {entry.label: dict(entry.parameters) for entry in grid.methods}
    usual = [0.70, 0.72, 0.80, 0.81]
    better = [0.74, 0.75, 0.83, 0.86]
    scores = {
        "defaults": usual,
        "trial 01": better,
        "trial 02": [0.60, 0.99, 0.60, 0.99],
        "trial 03": [0.99, None, 0.99, 0.99],
    }
    tuned = tuning.outcome(run_of(scores, trials).write(tmp_path / "run"), grid)
    assert tuned.chosen == "trial 01" and tuned.choice.parameters == trials["trial 01"]
    gains = [one - other for one, other in zip(better, usual, strict=True)]
    assert tuned.choice.gain == pytest.approx(statistics.fmean(gains))
    assert tuned.choice.error == pytest.approx(statistics.stdev(gains) / 2)
    assert tuned.choice.scores == pytest.approx({"one": 0.745, "two": 0.845})
    by_label = {trial.label: trial for trial in tuned.trials}
    assert not by_label["trial 03"].complete and by_label["trial 02"].complete
    assert tuned.source_hash == keys.method_source_hash("ndpdc")
    stored = json.loads(tuning.write(tuned, tmp_path / "run").read_text())
    assert stored["chosen"] == "trial 01" and stored["protocol"]["split"] == "tuning"
    assert [one["label"] for one in stored["trials"]] == list(scores)
    # Without the sure one, the largest gain has the larger error: the defaults stay.
    del scores["trial 01"]
    tuned = tuning.outcome(run_of(scores, trials).write(tmp_path / "again"), grid)
    assert tuned.chosen == "defaults" and tuned.choice.parameters == {}
    assert {trial.label: trial.complete for trial in tuned.trials}["trial 01"] is False


def test_one_pair_proves_nothing(tmp_path: Path) -> None:
    grid = tuning.tuning_grid("ndpdc", 2)
    trials = {entry.label: dict(entry.parameters) for entry in grid.methods}
    scores = {"defaults": [0.7, None, None, None], "trial 01": [0.9, None, None, None]}
    tuned = tuning.outcome(run_of(scores, trials).write(tmp_path / "run"), grid)
    assert tuned.chosen == "defaults" and math.isnan(tuned.trials[1].error)
    stored = json.loads(tuning.write(tuned, tmp_path / "run").read_text())
    assert stored["trials"][1]["error"] is None


def test_scores_of_another_search_space_do_not_count(tmp_path: Path) -> None:
    grid = tuning.tuning_grid("ndpdc", 2)
    old = {"defaults": {}, "trial 01": {"iterations": 1}}
    run = run_of({"defaults": [0.7] * 4, "trial 01": [0.9] * 4}, old)
    tuned = tuning.outcome(run.write(tmp_path / "run"), grid)
    assert tuned.chosen == "defaults" and not tuned.trials[1].complete
    with pytest.raises(StoreError, match="the defaults have no score"):
        tuning.outcome(Run().write(tmp_path / "empty"), grid)
