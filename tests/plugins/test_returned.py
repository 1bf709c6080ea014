"""What plugins return is rebuilt from plain parts, or refused with its reason."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd
import pytest
from dp_accounting import dp_event

from bench.data.encoder import Encoder
from bench.errors import InvalidReleaseError, InvalidScoresError, one_line, text_of
from bench.plugins.metric import (
    Direction,
    Evaluation,
    Family,
    Metric,
    Output,
    Score,
    Scores,
)
from bench.plugins.release import (
    Claim,
    Clients,
    Federation,
    Release,
    Rows,
    Transfer,
)
from bench.plugins.returned import check_ledger, check_release, check_scores
from bench.privacy.clients import SkewedClients
from bench.privacy.events import gaussian
from bench.privacy.ledger import Entry, Ledger
from tests.support.tables import ToyTable

ENCODER = Encoder(ToyTable().declare().schema)
GOOD = np.zeros((4, ENCODER.width))
LABELS = np.array([0, 1, 0, 1])
ROWS = Rows(GOOD, LABELS)
ENDLESS = np.broadcast_to(GOOD[:1], (10**12, ENCODER.width))
"""Rows that need no memory until they are copied."""


def test_a_good_release_passes() -> None:
    weighted = Rows(GOOD, LABELS, weights=np.ones(4), soft_labels=np.full((4, 2), 0.5))
    check_release(Release(weighted), ENCODER)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "either rows or a model"),
        ([GOOD, LABELS], "are a list; expected Rows"),
        (Rows(GOOD[:, 1:], LABELS), "expected 6 encoded columns"),
        (Rows(GOOD[:0], LABELS[:0]), "no rows"),
        (Rows(np.where(np.eye(4, 6) > 0, np.nan, 0.0), LABELS), "4 rows hold NaN"),
        (Rows(GOOD.tolist(), LABELS.tolist()), "values are a list"),
        (Rows(GOOD, LABELS.tolist()), "labels are a list"),
        (Rows(np.ma.masked_array(GOOD), LABELS), "values are a MaskedArray"),
        (Rows(GOOD.astype(np.longdouble), LABELS), "values have type float128"),
        (Rows(GOOD.astype(complex), LABELS), "values have type complex128"),
        (Rows(GOOD.astype(object), LABELS), "values have type object"),
        (Rows(GOOD.astype(str), LABELS), "values have type <U32"),
        (Rows(ENDLESS, LABELS), "6,000,000,000,000 numbers; a release holds at most 268,435,456"),
        (Rows(GOOD, ENDLESS[:, 0]), "labels have shape"),
        (Rows(GOOD, LABELS, weights=ENDLESS[:, 0]), "weights have shape"),
        (Rows(GOOD, LABELS, soft_labels=ENDLESS[:, :2]), "soft labels have shape"),
        (Rows(GOOD, LABELS.astype(float)), "integer class code"),
        (Rows(GOOD, LABELS.astype(bool)), "integer class code"),
        (Rows(GOOD, LABELS[:3]), "integer class code"),
        (Rows(GOOD, LABELS + 1), "outside 0..1"),
        (Rows(GOOD, LABELS.astype(np.uint64) + np.uint64(2**63)), "outside 0..1"),
        (Rows(GOOD, LABELS, weights=-np.ones(4)), "weights"),
        (Rows(GOOD, LABELS, weights=np.array([1, np.nan, 1, 1])), "weights"),
        (Rows(GOOD, LABELS, weights=np.zeros(4)), "all weights are zero"),
        (Rows(GOOD, LABELS, weights=[1.0] * 4), "weights are a list"),
        (Rows(GOOD, LABELS, soft_labels=np.ones((4, 3))), "soft labels"),
        (Rows(GOOD, LABELS, soft_labels=-np.ones((4, 2))), "soft labels must be finite"),
        (Rows(GOOD, LABELS, soft_labels=np.full((4, 2), np.inf)), "soft labels must be finite"),
        (Rows(GOOD, LABELS, soft_labels=np.full((4, 2), None)), "soft labels have type object"),
    ],
)
def test_bad_rows_are_named(rows: Any, message: str) -> None:
    with pytest.raises(InvalidReleaseError, match=message):
        check_release(Release(rows), ENCODER)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"rows": None, "model": "a model"}, "the released model is a str"),
        ({"claim": 1.0}, "the claim is a float"),
        ({"claim": Claim("abc", 1e-5, "me")}, "epsilon 'abc'; expected a number"),  # type: ignore[arg-type]
        ({"claim": Claim(math.nan, 1e-5, "me")}, "epsilon nan; expected a number"),
        ({"claim": Claim(10**5000, 1e-5, "me")}, "epsilon an int; expected a number"),
        ({"claim": Claim(1.0, 2.0, "me")}, "delta 2; expected a number from 0 to 1"),
        ({"claim": Claim(1.0, 1e-5, b"me")}, "source of the claim is a bytes"),  # type: ignore[arg-type]
        ({"notes": [("a", 1)]}, "notes are a list"),
        ({"notes": {("a", 1): 1.0}}, "the name of a note is a tuple"),
        ({"notes": {"a": "\ud800"}}, "note 'a' holds lone surrogates"),
        ({"notes": {"\udfff": 1.0}}, "the name of a note holds lone surrogates"),
        ({"notes": {"a": [1.0]}}, "note 'a' is a list; expected text or a number"),
        ({"notes": {"a": None}}, "note 'a' is a NoneType"),
        ({"notes": {"a": 1j}}, "note 'a' is a complex"),
        ({"notes": {"a": np.longdouble(1)}}, "note 'a' is a longdouble"),
        ({"notes": {"a": 2**64}}, "note 'a' is an int"),
        ({"notes": {"a": np.ones(3)}}, "note 'a' is a ndarray"),
        ({"notes": {"a": "x" * 50_000_000}}, "note 'a' has 50,000,000 characters"),
        ({"notes": {f"n{k}": "x" * 1000 for k in range(50)}}, "notes have .* characters"),
        ({"notes": {str(k): 1.0 for k in range(101)}}, "101 notes; at most 100"),
        ({"federation": "everybody"}, "a Federation with its Clients"),
        ({"federation": Federation(Clients("home"), ())}, "split by 'home'"),  # type: ignore[arg-type]
        ({"federation": Federation(Clients("site"), ("sent",))}, "a transfer is a str"),  # type: ignore[arg-type]
        (
            {"federation": Federation(Clients("site"), (Transfer("a", 0, "up", -1, 1),))},
            "must be whole numbers",
        ),
        (
            {"federation": Federation(Clients("site"), (Transfer("a", 0, "out", 1, 1),))},  # type: ignore[arg-type]
            "direction 'out'",
        ),
        (
            {"federation": Federation(Clients(SkewedClients(2, 0.5, 1.5)), ())},  # type: ignore[arg-type]
            "a whole count and seed",
        ),
    ],
)
def test_other_parts_of_a_release_are_named(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidReleaseError, match=message):
        check_release(Release(**{"rows": ROWS, **parts}), ENCODER)


def test_what_is_stored_is_a_plain_copy() -> None:
    class Text(str):
        def __str__(self) -> str:
            return "another text"

    class Number(float):
        def __float__(self) -> float:
            return 7.0

    wide = np.asfortranarray(np.arange(24, dtype=">f4").reshape(4, 6) / 100)
    rows = Rows(wide, LABELS.astype(np.uint8), np.ones(4, np.float16), np.ones((4, 2), int))
    sent = Transfer("model", np.int64(1), "up", 2, 3)  # type: ignore[arg-type]
    release = check_release(
        Release(
            rows,
            claim=Claim(np.float32(0.5), 0, Text("paper\x1b[2J")),  # type: ignore[arg-type]
            notes={Text("a"): Number(1.5), "b": np.int32(2), "c": Text("t"), "d": math.inf},
            federation=Federation(Clients(SkewedClients(2, 1, 0)), [sent]),  # type: ignore[arg-type]
        ),
        ENCODER,
    )
    assert release.rows is not None and release.claim is not None and release.federation
    kept = release.rows
    assert (kept.values.dtype, kept.labels.dtype) == (np.float32, np.int64)
    assert kept.weights is not None and kept.soft_labels is not None
    assert (kept.weights.dtype, kept.soft_labels.dtype) == (np.float32, np.float64)
    assert kept.values.flags.c_contiguous and kept.values.dtype.isnative
    assert not np.shares_memory(kept.values, wide) and np.array_equal(kept.values, wide)
    assert release.notes == {"a": 1.5, "b": 2, "c": "t", "d": math.inf}
    assert {type(key) for key in release.notes} == {str}
    assert [type(value) for value in release.notes.values()] == [float, int, str, float]
    assert release.claim == Claim(0.5, 0, "paper?[2J")
    assert type(release.claim.epsilon) is float and type(release.claim.source) is str
    json.dumps(release.federation.to_record())
    assert type(release.federation.transfers[0].round) is int


def test_a_ledger_that_cannot_be_stored_is_refused() -> None:
    ledger = Ledger()
    ledger.add(Entry((), gaussian(1.0), reason="because \udfff"))
    with pytest.raises(InvalidReleaseError, match="lone surrogates"):
        check_ledger(ledger)
    ledger = Ledger()
    ledger.add(Entry((), dp_event.GaussianDpEvent(np.longdouble(1.0)), reason="fine"))
    with pytest.raises(InvalidReleaseError, match="a GaussianDpEvent that cannot be stored"):
        check_ledger(ledger)
    ledger = Ledger()
    ledger.add(Entry((), dp_event.RandomizedResponseDpEvent(0.5, 2), reason="fine"))
    with pytest.raises(InvalidReleaseError, match="a RandomizedResponseDpEvent that cannot be"):
        check_ledger(ledger)


# Metrics ----------------------------------------------------------------------------------------


@final
class Two(Metric):
    name: ClassVar[str] = "two"
    family: ClassVar[Family] = Family.FIDELITY
    definition: ClassVar[str] = "Two numbers."
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("two/a", Direction.LOWER),
        Output("two/b", Direction.HIGHER),
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        raise NotImplementedError


def score(value: Any = 0.5, name: Any = "two/a", **changes: Any) -> Score:
    given = {"low": None, "high": None, "direction": Direction.LOWER, "family": Family.FIDELITY}
    return Score(name, value, **{**given, **changes})


def test_scores_are_plain_and_numbers_that_are_none_are_absent() -> None:
    low = np.float32(0.25)
    given = Scores((score(np.float64(0.5), low=low, high=math.nan), score(math.nan, "two/b")))
    first, second = check_scores(given, Two()).scores
    assert (first.value, first.low, first.high) == (0.5, 0.25, None)
    assert type(first.value) is float and type(first.low) is float
    assert (second.value, second.reason) == (None, "the metric gave no number")


@pytest.mark.parametrize(
    ("computed", "message"),
    [
        (None, "returned a NoneType; expected Scores"),
        (0.5, "returned a float; expected Scores"),
        (Scores("scores"), "its scores are a str"),  # type: ignore[arg-type]
        (Scores((0.5,)), "a score is a float"),  # type: ignore[arg-type]
        (Scores((score(name="three"),)), "score 'three', which it does not declare"),
        (Scores((score(name=7),)), "score 7, which it does not declare"),
        (Scores((score(), score())), "two/a twice"),
        (Scores((score("high"),)), "its value is a str; expected a number"),
        (Scores((score(1j),)), "its value is a complex"),
        (Scores((score(np.ones(2)),)), "its value is a ndarray"),
        (Scores((score(low=[0.1]),)), "its low is a list"),
        (Scores((score(direction="lower"),)), "expected a Direction and a Family"),
        (Scores((score(reason=None),)), "its reason is no text"),
        (Scores((), [1]), "details must be"),  # type: ignore[arg-type]
        (Scores((), {"../x": pd.DataFrame()}), "is called '../x'"),
        (Scores((), {".x": pd.DataFrame()}), "is called '.x'"),
        (Scores((), {"x": [1]}), "details x: a list"),  # type: ignore[dict-item]
        (Scores((), {"x": pd.DataFrame({"a": [1, "b", {}]})}), "cannot be stored as Parquet"),
        (Scores((), {"x": pd.DataFrame({"a": ["\ud800"]})}), "cannot be stored as Parquet"),
        (Scores((), {"x": pd.DataFrame([[1, 2]], columns=["a", "a"])}), "cannot be stored"),
    ],
)
def test_scores_that_are_none_are_named(computed: Any, message: str) -> None:
    with pytest.raises(InvalidScoresError, match=message):
        check_scores(computed, Two())


def test_details_hold_no_class_of_a_plugin() -> None:
    class Text(str):
        pass

    frame = pd.DataFrame({"a": [Text("x"), Text("y")], "b": [1, 2]})
    kept = check_scores(Scores((), {"x": frame}), Two()).details["x"]
    assert [type(value) for value in kept["a"]] == [str, str] and kept["b"].tolist() == [1, 2]
    numbers = pd.DataFrame({"b": [1, 2]})
    assert check_scores(Scores((), {"x": numbers}), Two()).details["x"] is numbers


# Texts ------------------------------------------------------------------------------------------


def test_texts_are_one_line_of_bounded_length() -> None:
    assert one_line("a\x1b[2Jb\n\tc\ud800") == "a?[2Jb c?"
    long = one_line("word " * 10_000_000, 100)
    assert len(long) <= 100 and long.endswith("[cut: 50,000,000 characters]")
    assert one_line(long, 100) == long
    assert one_line("x" * 150, 100) == "x" * 78 + " [cut: 150 characters]"


def test_an_exception_without_a_text_has_one() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert "cannot be shown" in text_of(Mute())
    assert text_of(ValueError("a", SimpleNamespace())).startswith("('a', namespace")
