"""A row's split and position follow from that row alone: neighbouring tables stay neighbours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from bench import Budget
from bench.data.dataset import Dataset, Declaration, rule_of_new_rows, split_dataset, with_rows
from bench.data.encoder import EncodedRows
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.data.splits import PRESETS, SPLITS, TUNING, expected_sizes, split_shares
from bench.errors import DataError
from bench.plugins.source import build_dataset
from bench.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

SCHEMA = Schema(
    (
        Numeric(name="x", low=0, high=4, integer=True),
        Categorical(name="site", categories=("a", "b"), role=Role.SITE),
        Categorical(name="y", categories=("0", "1"), role=Role.TARGET),
    ),
    Task.CLASSIFICATION,
)
DECLARED = Declaration(
    title="neighbours",
    schema=SCHEMA,
    by_class=(30, 30),
    by_site_class={"a": (15, 15), "b": (15, 15)},
    licence="CC0",
    citation="none",
    source="made",
)

row = st.tuples(st.integers(0, 4), st.sampled_from("ab"), st.sampled_from("01"))
Row = tuple[int, str, str]


def table(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["x", "site", "y"])


def placed(dataset: Dataset, splits: tuple[str, ...] = SPLITS) -> Counter[tuple[object, ...]]:
    """Return the rows of all splits, each with its split and its position."""
    found: Counter[tuple[object, ...]] = Counter()
    for split in splits:
        rows = getattr(dataset, split).rows
        marks = zip(rows.labels.tolist(), rows.sites.tolist(), rows.positions.tolist(), strict=True)
        for values, mark in zip(rows.values.tolist(), marks, strict=True):
            found[(split, *values, *mark)] += 1
    return found


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(row, min_size=1, max_size=40),
    new=row,
    where=st.integers(0, 40),
    preset=st.sampled_from(["default", "paper", "all", "site:a"]),
    seed=st.integers(0, 3),
)
def test_adding_a_row_anywhere_adds_one_row_to_one_split_and_moves_no_other(
    rows: list[Row], new: Row, where: int, preset: str, seed: int
) -> None:
    longer = [*rows[:where], new, *rows[where:]]
    splits = SPLITS if preset != "paper" else ("train", "validation", "test")
    before, after = (
        placed(split_dataset("t", DECLARED, table(t), preset=preset, split_seed=seed), splits)
        for t in (rows, longer)
    )
    assert not before - after
    (added,) = (after - before).elements()
    assert added[1:4] == pytest.approx((new[0] / 2 - 1, int(new[2]), "ab".index(new[1])))


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=40), random=st.randoms(use_true_random=False))
def test_the_order_of_the_file_does_not_matter(rows: list[Row], random: object) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert placed(split_dataset("t", DECLARED, table(rows))) == placed(
        split_dataset("t", DECLARED, table(shuffled))
    )


def test_rows_of_one_id_stay_together_and_a_corrected_value_moves_nothing() -> None:
    declared = replace(DECLARED, id="patient")
    frame = table([(k % 5, "ab"[k % 2], "01"[k % 2]) for k in range(60)])
    frame["patient"] = [k // 3 for k in range(60)]
    corrected = frame.assign(x=(frame["x"] + 1) % 5)
    first, second = (split_dataset("t", declared, one) for one in (frame, corrected))
    for split in SPLITS:
        mine, other = getattr(first, split), getattr(second, split)
        assert mine.ids is not None and mine.ids.tolist() == other.ids.tolist()
        assert np.array_equal(mine.rows.positions, other.rows.positions)
        assert "patient" not in mine.frame
    homes: dict[int, set[str]] = {}
    for split in SPLITS:
        for patient in getattr(first, split).ids:
            homes.setdefault(patient, set()).add(split)
    assert all(len(home) == 1 for home in homes.values()) and len(homes) == 20


def test_shares_are_those_of_the_preset_and_expected_sizes_add_up() -> None:
    rows = 40_000
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.integers(0, 5, rows), "site": "a", "y": rng.choice(["0", "1"], rows)}
    )
    for preset in PRESETS:
        dataset = split_dataset("t", DECLARED, frame, preset=preset)
        for split, share in split_shares(preset, False).items():
            if preset == "paper" and split == "control":
                continue
            deviation = math.sqrt(rows * share * (1 - share))
            assert abs(len(getattr(dataset, split)) - rows * share) <= 5 * deviation
        for number in (1, 2, 3, 5, 9, 1000):
            for official in (False, True):
                assert sum(expected_sizes(number, preset, official).values()) == number
    positions = dataset.train.rows.positions
    assert positions.min() >= 0 and positions.max() < 1
    assert np.histogram(positions, 10)[0] == pytest.approx(rows / 10, rel=0.1)


@pytest.mark.parametrize("preset", ["default", "paper", "site:a"])
def test_more_rows_take_the_way_of_the_table(preset: str) -> None:
    frame = table([(k % 5, "ab"[k % 2], "01"[k % 3 == 0]) for k in range(60)])
    dataset = split_dataset("t", DECLARED, frame, preset=preset)
    rule = rule_of_new_rows(dataset)
    for new in ((0, "a", "0"), (0, "a", "1"), (4, "b", "1")):
        more = table([new])
        together = split_dataset("t", DECLARED, pd.concat([frame, more]), preset=preset)
        again = with_rows(dataset, more)
        assert placed(again) == placed(together)
        (added,) = (placed(again) - placed(dataset)).elements() if preset != "paper" else [None]
        if added is not None:
            assert added[0] == rule(more)


# The attack of a hospital's neighbour ---


def permuted_split(frame: pd.DataFrame) -> Dataset:
    """Return the split that the harness had once: a permutation by stratum sizes."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(frame))
    chosen = frame.iloc[order[: round(0.6 * len(frame))]].reset_index(drop=True)
    dataset = split_dataset("t", DECLARED, frame, preset="all")
    rows, _ = dataset.encoder.encode(chosen)
    return replace(dataset, train=replace(dataset.train, frame=chosen, rows=rows))


EPSILON, TRIALS = 1.0, 2_000


def attacked(split: Callable[[pd.DataFrame], Dataset], secure: bool) -> tuple[float, float]:
    """Return the share of right guesses, and the lower end of its 99.9999% interval.

    Half of the rows have the largest value and half the smallest: which of them are training rows
    moves the sum by many times the value of one row.
    """
    frame = pd.DataFrame(
        {"x": np.tile([0, 4], 200), "site": "a", "y": np.tile(["0", "0", "1", "1"], 100)}
    )
    rng = np.random.default_rng(7)
    whole, shorter = split(frame), split(frame.iloc[1:])
    answers = []
    for dataset in (whole, shorter):
        for _ in range(TRIALS // 2):
            noise: NoiseSource = SystemNoise() if secure else SeededNoise(rng)
            private, ledger = open_private(dataset, Budget(EPSILON, 1e-5), noise)
            level = private.calibrate(lambda s, private=private: [private.plan(_gaussian(s))])
            private.reserve(_gaussian(level))
            answers.append(float(private.gaussian_sum(_values, 1.0, level)[0]))
            assert ledger.proof().epsilon <= EPSILON
    exact = [float(_values(dataset.train.rows).sum()) for dataset in (whole, shorter)]
    near = np.abs(np.subtract.outer(np.array(answers), np.array(exact)))
    guesses = np.argmin(near, axis=1)
    right = int(np.sum(guesses == np.repeat([0, 1], TRIALS // 2)))
    return right / TRIALS, float(beta.ppf(1e-6, right, TRIALS - right + 1)) if right else 0.0


def _gaussian(level: float) -> object:
    from bench.privacy.events import gaussian

    return gaussian(level)


def _values(rows: EncodedRows) -> npt.NDArray[np.float64]:
    return np.asarray(rows.values[:, :1], dtype=np.float64)


@pytest.mark.parametrize("secure", [False, True])
def test_two_tables_that_differ_in_one_row_cannot_be_distinguished_by_their_split(
    secure: bool,
) -> None:
    allowed = math.exp(EPSILON) / (1 + math.exp(EPSILON)) + 1e-5
    found, _ = attacked(permuted_split, secure)
    assert found > allowed + 0.05, "the attack finds the old split"
    _, low = attacked(lambda frame: split_dataset("t", DECLARED, frame), secure)
    assert low <= allowed


def test_the_split_of_a_shipped_table_moves_no_row() -> None:
    source = ToyTable()
    frame, declared = source.load(), source.declare()
    whole = placed(build_dataset(source))
    for index in range(0, len(frame), 61):
        less = placed(split_dataset(source.name, declared, frame.drop(index=index)))
        assert not less - whole and sum((whole - less).values()) == 1


def test_tuning_sees_the_training_rows_of_the_default_split_and_none_of_its_test_rows() -> None:
    rows = 4000
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.integers(0, 5, rows), "site": "a", "y": rng.choice(["0", "1"], rows)}
    )
    frame["id"] = [f"p{number}" for number in range(rows)]
    declared = replace(DECLARED, id="id")
    usual = split_dataset("t", declared, frame)
    tuned = split_dataset("t", declared, frame, preset=TUNING)

    def ids(dataset: Dataset, split: str) -> set[str]:
        return set(getattr(dataset, split).ids)

    for split in ("train", "control"):
        assert ids(tuned, split) == ids(usual, split)
    assert ids(tuned, "validation") | ids(tuned, "test") == ids(usual, "validation")
    assert not ids(tuned, "validation") & ids(tuned, "test")
    assert not ids(tuned, "test") & ids(usual, "test")
    assert len(tuned.test) == pytest.approx(200, abs=40)
    assert (tuned.test.rows.positions >= 0.5).all()
    assert (tuned.validation.rows.positions < 0.5).all()
    assert tuned.counts == usual.counts
    assert tuned.validation_counts.total == usual.validation_counts.total // 2
    sizes = expected_sizes(4001, TUNING, False)
    assert sizes == {"train": 2401, "validation": 200, "control": 400, "test": 200}
    with pytest.raises(DataError, match="leaves rows out"):
        with_rows(tuned, frame.head(1))
    # Fixed test rows of the field are not scored on either.
    fixed = split_dataset("t", declared, frame, frame.assign(id="test"), preset=TUNING)
    assert "test" not in ids(fixed, "test") and len(fixed.test) > 100
