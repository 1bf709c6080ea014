"""Names, labels and members of parts, and models that stay inside the kernel."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from bench.data.encoder import EncodedRows
from bench.errors import InputError, PrivacyContractError
from bench.privacy.clients import SkewedClients
from bench.privacy.partition import (
    PartModels,
    check_part_by_row,
    mixed_positions,
    part_label,
    part_names,
    row_parts,
    same_parts,
)
from tests.support.kernel import DATASET, opened

ROWS = DATASET.train.rows
SCHEMA = DATASET.schema


def by_sign(rows: EncodedRows) -> list[str]:
    return ["plus" if value > 0 else "minus" for value in rows.values[:, 0]]


class TestNames:
    def test_of_every_kind_of_partition(self) -> None:
        assert part_names(SCHEMA, "class", None, None) == ("0", "1")
        assert part_names(SCHEMA, "teacher", None, 3) == ("0", "1", "2")
        assert part_names(SCHEMA, "teacher", None, 1) == ("0",)
        assert part_names(SCHEMA, SkewedClients(2), None, None) == ("0", "1")
        assert part_names(SCHEMA, by_sign, ["plus", "minus"], None) == ("plus", "minus")

    @pytest.mark.parametrize(
        "key, keys, parts, message",
        [
            ("teacher", None, 0, "random parts need a name"),
            (by_sign, ["plus"], 2, "random parts need a name"),
            ("site", None, None, "no site column"),
            ("colour", None, None, "unknown partition 'colour'"),
            (by_sign, None, None, "needs its public keys"),
            (by_sign, [], None, "needs its public keys"),
        ],
    )
    def test_what_has_none_is_refused(
        self, key: object, keys: list[str] | None, parts: int | None, message: str
    ) -> None:
        with pytest.raises(PrivacyContractError, match=message):
            part_names(SCHEMA, key, keys, parts)  # type: ignore[arg-type]

    def test_labels_in_the_ledger(self) -> None:
        assert part_label("class", "", None) == "class"
        assert part_label("class", "class", None) == "class"
        assert part_label("teacher", "", 5) == "teacher/5"
        assert part_label("teacher", "students", 5) == "students/5"
        assert part_label(by_sign, "sign", None) == "sign"
        assert part_label(SkewedClients(3, 0.25, 7), "", None) == "client/3 alpha=0.25 seed=7"
        assert part_label(SkewedClients(), "", None) == "client/10 alpha=0.5 seed=0"
        with pytest.raises(PrivacyContractError, match="needs a name for the ledger"):
            part_label(by_sign, "", None)
        for taken in ("class", "site", "split"):
            with pytest.raises(PrivacyContractError, match="must be the one by"):
                part_label(by_sign, taken, None)
        # With a number of parts it is another name.
        assert part_label("split", "", 2) == "split/2"


class TestMembers:
    def test_classes(self) -> None:
        assert row_parts(ROWS, "class", ("0", "1"), None, 2, "").tolist() == ROWS.labels.tolist()

    def test_a_row_whose_key_is_not_public_is_in_no_part(self) -> None:
        codes = row_parts(ROWS, by_sign, ("minus",), None, 2, "")
        assert codes.tolist() == [0 if sign == "minus" else -1 for sign in by_sign(ROWS)]
        private, _ = opened()
        (part,) = private.partition(by_sign, ["minus"], name="sign").values()
        assert len(part._rows) == by_sign(ROWS).count("minus") > 0

    def test_random_parts_are_pieces_of_equal_width(self) -> None:
        positions = mixed_positions(ROWS.positions, "here")
        codes = row_parts(ROWS, "teacher", ("0", "1", "2", "3"), 4, 2, "here")
        assert codes.tolist() == [int(4 * position) for position in positions]

    def test_the_last_position_is_in_the_last_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from bench.privacy import partition

        monkeypatch.setattr(partition, "mixed_positions", lambda positions, where: positions)
        rows = EncodedRows(
            np.zeros((4, 1)),
            np.zeros(4, dtype=np.int64),
            np.zeros(4, dtype=np.int64),
            np.array([0.0, 0.5, 1.0 - 2.0**-53, 1.0]),
        )
        assert row_parts(rows, "teacher", ("0", "1"), 2, 2, "").tolist() == [0, 1, 1, 1]

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(PrivacyContractError, match="unknown partition 'colour'"):
            row_parts(ROWS, "colour", ("0",), None, 2, "")

    def test_some_rows_are_assigned_alone(self) -> None:
        asked = []

        def first_alone(rows: EncodedRows) -> list[str]:
            asked.append(len(rows))
            return ["x"] * len(rows)

        codes = np.zeros(len(ROWS), dtype=np.int64)
        check_part_by_row(ROWS, codes, first_alone, ("x",), None, 2, "")
        assert 5 <= len(asked) <= 6 and set(asked) == {1}
        # Five of ten rows, the first among them.
        for place in range(10):
            wrong = codes[:10].copy()
            wrong[place] = 1
            ten = ROWS.take(np.arange(10))
            if place % 2 == 0:
                with pytest.raises(PrivacyContractError, match="row by row"):
                    check_part_by_row(ten, wrong, first_alone, ("x",), None, 2, "")
            else:
                check_part_by_row(ten, wrong, first_alone, ("x",), None, 2, "")
        few = ROWS.take(np.arange(3))
        asked.clear()
        check_part_by_row(few, codes[:3], first_alone, ("x",), None, 2, "")
        assert asked == [1, 1, 1]
        with pytest.raises(PrivacyContractError, match="row by row"):
            check_part_by_row(few, codes[:3] + 1, first_alone, ("x",), None, 2, "")

    def test_a_partition_by_the_kernel_is_checked_only_where_asked(self) -> None:
        def ranked(rows: EncodedRows) -> list[str]:
            return ["x" if len(rows) > 1 else "y"] * len(rows)

        opened()[0].partition(ranked, ["x", "y"], name="rank")
        with pytest.raises(PrivacyContractError, match="row by row"):
            opened(check_rows=True)[0].partition(ranked, ["x", "y"], name="rank")


def finaliser(word: int) -> int:
    """Return the finaliser of splitmix64 (Steele, Lea and Flood 2014), on whole numbers."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


def test_positions_are_mixed_by_the_finaliser_of_splitmix64() -> None:
    # The third output of splitmix64 from the seed 1234567, as its authors publish it.
    golden = 0x9E3779B97F4A7C15
    assert finaliser((1234567 + golden) % 2**64) == 6457827717110365317
    assert finaliser((1234567 + 2 * golden) % 2**64) == 3203168211198807973
    positions = np.array([0.0, 0.25, 1.0 / 3.0, 1.0 - 2.0**-53])
    salt = int.from_bytes(hashlib.sha256(b"split=train/teacher=").digest()[:8], "big")
    expected = [finaliser(int(one * 2.0**53) ^ salt) >> 11 for one in positions]
    mixed = mixed_positions(positions, "split=train/teacher=")
    assert (mixed * 2.0**53).tolist() == expected
    assert (mixed < 1.0).all()


@pytest.mark.filterwarnings("error")
def test_mixing_warns_of_nothing() -> None:
    mixed_positions(ROWS.positions, "anywhere")


def test_only_the_whole_partition_is_the_same() -> None:
    one, two = object(), object()
    whole = {"a": one, "b": two}
    assert same_parts(whole, {"a": one, "b": two}) and same_parts(whole, {"b": two, "a": one})
    for other in (
        {"a": one},
        {"a": two, "b": one},
        {"a": one, "c": two},
        {"a": one, "b": object()},
    ):
        assert not same_parts(whole, other)


class TestPartModels:
    def test_every_part_has_its_rows_its_stream_and_its_model(self) -> None:
        parts = {"a": ROWS.take(np.arange(3)), "b": ROWS.take(np.arange(3, 8))}
        models = PartModels(None, parts, lambda rows, rng: (len(rows), rng.random()), entropy=5)
        assert len(models) == 2 and not models.clients
        streams = np.random.SeedSequence([5, 2]).spawn(2)
        drawn = [np.random.default_rng(stream) for stream in streams]
        assert models._ask(lambda model: model) == [
            (3, drawn[0].random()),
            (5, drawn[1].random()),
        ]
        models.update(lambda model, rows, rng: (*model, len(rows), rng.random()))
        assert [model[2:] for model in models._ask(lambda model: model)] == [
            (3, drawn[0].random()),
            (5, drawn[1].random()),
        ]
        assert [(part.name, len(part.rows)) for part in models._parts()] == [("a", 3), ("b", 5)]
        assert [part.model for part in models._parts()] == models._ask(lambda model: model)

    def test_no_parts_are_refused(self) -> None:
        with pytest.raises(PrivacyContractError, match="no parts"):
            PartModels(None, {}, lambda rows, rng: None, entropy=0)


class TestClients:
    def test_a_row_is_with_the_client_in_whose_piece_it_lies(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Pieces of class 0: [0, 0.25), [0.25, 0.75), [0.75, 1); of class 1: half, none, half.
        shares = np.array([[0.25, 0.5, 0.25], [0.5, 0.0, 0.5]])
        monkeypatch.setattr(SkewedClients, "shares", lambda self, classes: shares)
        clients = SkewedClients(3)
        labels = np.array([0, 0, 0, 0, 1, 1, 0, 1])
        positions = np.array([0.0, 0.25, 0.7, 0.75, 0.49, 0.5, 1.0, 1.0])
        assert clients.assign(labels, positions, 2).tolist() == [0, 1, 1, 2, 0, 2, 2, 2]

    def test_declared_rows_are_shared_by_class(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from bench.data.dataset import Counts

        shares = np.array([[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]])
        monkeypatch.setattr(SkewedClients, "shares", lambda self, classes: shares)
        declared = Counts(60, (40, 20))
        clients = SkewedClients(3)
        assert clients.part_counts(declared, 0) == Counts(20, (10, 10))
        assert clients.part_counts(declared, 1) == Counts(40, (30, 10))
        # A client with no rows still has a rate, which needs a count.
        assert clients.part_counts(declared, 2) == Counts(1, (0, 0))
        assert clients.part_counts(Counts(60, (40, 20), paid=True), 0).paid

    def test_shares_are_public_and_follow_seed_and_number(self) -> None:
        shares = SkewedClients(4, 0.5, seed=3).shares(5)
        assert shares.shape == (5, 4) and np.allclose(shares.sum(axis=1), 1.0)
        assert np.array_equal(shares, SkewedClients(4, 0.5, seed=3).shares(5))
        assert not np.array_equal(shares, SkewedClients(4, 0.5, seed=4).shares(5))

    def test_one_client_is_allowed_and_none_is_not(self) -> None:
        assert SkewedClients(1).names == ("0",)
        assert SkewedClients(3).names == ("0", "1", "2")
        for count, alpha in ((0, 1.0), (-1, 1.0), (1, 0.0), (1, float("nan"))):
            with pytest.raises(InputError, match="both must be positive"):
                SkewedClients(count, alpha)
