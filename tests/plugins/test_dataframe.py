"""Libraries that are fitted on a data frame: what they get, and what of theirs is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd
import pytest

from bench import DataFrameMethod, FitRequest, Sampler
from bench.conformance import contract
from bench.conformance.kit import check_subject, to_text
from bench.conformance.subject import CheckStatus, Subject
from bench.conformance.tables import toy_dataset
from bench.data.encoder import Encoder
from bench.engine.fit import Randomness, run_method
from bench.errors import InvalidReleaseError, NotApplicable
from bench.plugins.dataframe import encoded_frame
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.results.verdicts import Verdict, judge
from tests.support.tables import ToyImages, ToySurvival, ToyTable

DATASET = build_dataset(ToyTable())
ENCODER: Encoder = DATASET.encoder


@final
@dataclass(frozen=True)
class Resampler(DataFrameMethod):
    """Draws rows of the table: what the smallest library would do."""

    name: ClassVar[str] = "resampler"
    title: ClassVar[str] = "Draws rows"
    paper: ClassVar[str] = "none"
    package: ClassVar[str] = "pandas"

    def fit(self, frame: pd.DataFrame, request: FitRequest) -> Sampler:
        return lambda rows: frame.sample(rows, replace=True)  # from numpy's global generator


def released(
    method: DataFrameMethod, source: Any = None, ipc: int | None = 5, seed: int = 0
) -> Release:
    dataset = DATASET if source is None else build_dataset(source)
    randomness = Randomness.of(lambda what: np.random.default_rng([seed, len(what)]))
    budget = Budget(1.0, 1e-5)
    return run_method(method, dataset, randomness, ipc=ipc, budget=budget, delta=1e-5)


def test_the_claim_is_recorded_and_nothing_is_proven() -> None:
    release = released(Resampler())
    assert release.rows is not None and release.claim is not None and release.ledger is not None
    assert np.bincount(release.rows.labels).tolist() == [5, 5]
    assert release.claim.source == f"pandas {pd.__version__}"
    judged = judge(Budget(1.0, 1e-5), release.claim, release.ledger.proof())
    assert judged.verdict is Verdict.UNPROVEN
    assert "is fitted on the rows as a data frame; its noise is its own" in judged.reason


@pytest.mark.parametrize("source", [ToyTable(), ToySurvival()])
@pytest.mark.parametrize("ipc", [3, None])
def test_tables_and_survival_come_back_as_they_were_sampled(source: Any, ipc: int | None) -> None:
    dataset = build_dataset(source)
    release = released(Resampler(), source, ipc)
    assert release.rows is not None
    real = {row.tobytes() for row in dataset.train.rows.values}
    # Decoding and encoding changes no row by more than rounding: most are exactly those.
    again = sum(row.astype(np.float32).tobytes() in real for row in release.rows.values)
    assert again >= 0.5 * len(release.rows)
    if ipc is None:
        assert len(release.rows) == dataset.counts.total


def test_the_same_seed_gives_the_same_rows() -> None:
    one, two, other = (released(Resampler(), seed=seed).rows for seed in (0, 0, 1))
    assert one is not None and two is not None and other is not None
    assert one.values.tobytes() == two.values.tobytes() != other.values.tobytes()


def test_the_library_gets_units_and_public_bounds() -> None:
    seen: list[tuple[pd.DataFrame, FitRequest]] = []

    @final
    @dataclass(frozen=True)
    class Looks(DataFrameMethod):
        name: ClassVar[str] = "looks"
        title: ClassVar[str] = "Looks"
        package: ClassVar[str] = "numpy"

        def fit(self, frame: pd.DataFrame, request: FitRequest) -> Sampler:
            seen.append((frame, request))
            return lambda rows: frame.sample(rows, replace=True)

    released(Looks())
    ((frame, request),) = seen
    kinds = {"age": "int64", "marker": "float64", "smoker": "object", "stage": "object"}
    assert frame.dtypes.astype(str).to_dict() == {**kinds, "outcome": "object"}
    assert set(frame["stage"]) == {"I", "II", "III"} and frame["age"].between(0, 100).all()
    assert (request.epsilon, request.delta, request.label) == (1.0, 1e-5, "outcome")


def good(rows: int = 4) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [20, 30, 40, 50][:rows],
            "marker": [0.5, -1.0, 2.0, 9.0][:rows],
            "smoker": ["no", "yes", "no", "yes"][:rows],
            "stage": ["I", "II", "III", "I"][:rows],
            "outcome": [0, 1, 0, 1][:rows],
        }
    )


def test_a_good_table_passes_with_other_columns_and_any_index() -> None:
    frame = good().assign(extra="x").set_index(pd.Index([7, 7, 7, 7]))[::-1]
    rows, clipped = encoded_frame(frame, 4, ENCODER)
    assert rows.labels.tolist() == [1, 0, 1, 0] and clipped == 0
    decoded = ENCODER.decode(rows.values, rows.labels)
    assert decoded["age"].tolist() == [50.0, 40.0, 30.0, 20.0]


@pytest.mark.parametrize(
    "frame, reason",
    [
        ([1, 2], "sampled a list; expected a pandas DataFrame"),
        (good(3), "asked for 4 rows, the library sampled 3"),
        (good().drop(columns=["age", "stage"]), "lacks the columns age, stage"),
        (pd.concat([good(), good()[["age"]]], axis=1), "has several columns age"),
        (good().assign(age=[1, 2, 3, "old"]), "'age': 1 of 4 sampled values are not numbers"),
        (good().assign(age=[1, 2, 3, 1000]), "lie outside 0 to 100; give the library these bounds"),
        (good().assign(marker=[1, 2, np.inf, 3]), "'marker': 1 of 4 sampled values are infinite"),
        (good().assign(marker=[1, 2, np.nan, 3]), "1 missing values and no public `fill`"),
        (good().assign(stage=["I", "IV", "V", "I"]), "'stage': 2 of 4 sampled values are not am"),
        (good().assign(stage=["I", None, "I", "I"]), "'stage': 1 of 4 sampled values are missing"),
        (good().assign(outcome=[0, 1, 2, 0]), "'outcome': 1 of 4 sampled values are not among"),
    ],
)
def test_what_contradicts_the_schema_is_refused_by_column_and_count(
    frame: object, reason: str
) -> None:
    with pytest.raises(InvalidReleaseError) as problem:
        encoded_frame(frame, 4, ENCODER)
    assert reason in str(problem.value)
    # Values may be those of private rows.
    assert "1000" not in str(problem.value) and "old" not in str(problem.value)


def test_numbers_outside_are_clipped_where_the_method_says_so() -> None:
    rows, clipped = encoded_frame(good().assign(age=[1, 2, 3, 1000]), 4, ENCODER, clips=True)
    assert clipped == 1 and ENCODER.decode(rows.values, rows.labels)["age"].max() == 100.0
    rounded = good().assign(age=[1, 2, 3, 100.00001])
    assert encoded_frame(rounded, 4, ENCODER)[1] == 0


def sampler_of(frame: pd.DataFrame, **facts: object) -> DataFrameMethod:
    def fit(self: DataFrameMethod, table: pd.DataFrame, request: FitRequest) -> Sampler:
        return lambda rows: frame.sample(rows, replace=True)

    body = {"name": "fixed", "title": "Fixed", "package": "numpy", "fit": fit, **facts}
    return type("Fixed", (DataFrameMethod,), body)()  # type: ignore[no-any-return]


def test_a_class_that_is_rare_is_repeated_and_one_that_is_absent_refused() -> None:
    rare = pd.concat([good().iloc[[0]]] * 2000 + [good().iloc[[1]]], ignore_index=True)
    release = released(sampler_of(rare), ipc=40)
    assert release.rows is not None and np.bincount(release.rows.labels).tolist() == [40, 40]
    assert release.notes["rows repeated"] > 0
    with pytest.raises(InvalidReleaseError, match="no row of class 1 among 4000 sampled rows"):
        released(sampler_of(good().iloc[[0]]))


def test_what_cannot_be_wrapped_is_said() -> None:
    with pytest.raises(NotApplicable, match="the package no-such-thing is not installed"):
        released(sampler_of(good(), package="no-such-thing"))
    with pytest.raises(NotApplicable, match="the rows are images"):
        released(Resampler(), ToyImages())
    with pytest.raises(InvalidReleaseError, match="expected a function that samples n rows"):
        released(sampler_of(good(), fit=lambda self, frame, request: frame))


def test_the_check_says_what_passing_means_for_a_wrapped_library() -> None:
    report = check_subject(Subject(Resampler), checks=())
    text = to_text(report)
    assert not any(result.status is CheckStatus.FAILED for result in report.results)
    assert "whether pandas adds the noise that it claims was not checked" in text
    assert "bench audit resampler" in text


def test_numbers_that_can_be_missing_come_back_with_their_gaps() -> None:
    dataset = toy_dataset("missing entries")
    seen: list[pd.DataFrame] = []

    class Whole(DataFrameMethod):
        name: ClassVar[str] = "whole"
        title: ClassVar[str] = "The rows in their order"
        paper: ClassVar[str] = "none"
        package: ClassVar[str] = "pandas"

        def fit(self, frame: pd.DataFrame, request: FitRequest) -> Sampler:
            seen.append(frame)
            return lambda rows: frame.iloc[np.arange(rows) % len(frame)]

    randomness = Randomness.of(lambda what: np.random.default_rng(len(what)))
    budget = Budget(1.0, 1e-5)
    release = run_method(Whole(), dataset, randomness, ipc=None, budget=budget, delta=1e-5)
    assert release.rows is not None
    (frame,) = seen
    assert list(frame.columns) == [c.name for c in dataset.schema] and frame["bmi"].isna().any()
    # The declared number of rows is not that of a split to the last row.
    back = dataset.encoder.decode(release.rows.values, release.rows.labels).head(len(frame))
    frame = frame.head(len(back))
    assert back["bmi"].isna().tolist() == frame["bmi"].isna().tolist()
    assert np.allclose(back["bmi"], frame["bmi"], equal_nan=True, rtol=1e-5)


def test_a_wrapped_library_passes_the_checks_of_what_it_releases() -> None:
    checks = (contract.releases_what_was_asked, contract.survives_difficult_tables)
    report = check_subject(Subject(Resampler), checks=checks)
    assert {result.status for result in report.results} == {CheckStatus.PASSED}, to_text(report)
