"""Which split a row belongs to, and its fixed position: a keyed hash of that row alone.

**What is proven by it.** Guarantees are about neighbouring *tables*: what the harness does before a
method runs must not turn one row of difference into many. Let D be a table, K(r) the content of a
row r (its encoded values, label and site), and H a hash under a key that is public and follows from
the dataset's name, the preset and the split seed. The k-th of the rows with equal content has the
identity (K(r), k - 1), and split and position are functions of H(identity). The identities of D are
the set

    I(D) = { (c, k) : c a content, 0 <= k < number of rows of D with content c }.

Adding a row with content c adds the one element (c, number of rows with content c) to this set, and
removing one removes the last such element. Split and position are functions of an identity, and the
encoded row is its first component, so that the encoded table of each split, as a set of rows with
positions, gains or loses exactly one row in one split. No other row moves. The order of the rows in
the file has no influence either: which of two equal rows is called the first cannot be seen.

Two different contents with the same hash would break this; the hash has 128 bits (BLAKE2b, keyed),
so that such a pair is not found by chance or by search.

Where the dataset declares an id column, the identity is the id: all rows of one id are in one split
and at one position, and a corrected value does not move the row.

The number of rows of a split varies by chance, as does that of its classes. What a method may know
of them are the declared counts: constants, or counts that were paid for.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.encoder import EncodedRows, spelled
from bench.errors import InputError

SPLITS = ("train", "validation", "control", "test")

ALL = "all"
"""Preset of a real release: every row is a training row, and nothing is left to evaluate with."""

PRESETS: Mapping[str, tuple[float, float, float]] = {
    "default": (0.10, 0.10, 0.20),
    # The zero-order paper's 70/10/20: no rows are left for a control, the test rows stand in.
    "paper": (0.10, 0.0, 0.20),
    ALL: (0.0, 0.0, 0.0),
}
"""Shares of validation, control and test rows; training rows are the rest."""

TUNING = "tuning"
"""Preset of `bench tune`: the training and control rows of `default`, none of its test rows.

Half of the validation rows, by their fixed position, are what is scored; the other half stay
validation rows, for methods that look at these themselves."""

SITE_PRESET = "site:"
"""`site:<name>` trains on one site and tests on all: the rows of that site are split as by
`default`, those of all other sites are test rows."""


def check_preset(preset: str) -> None:
    """Refuse a split preset that does not exist."""
    if preset not in (*PRESETS, TUNING) and not preset.startswith(SITE_PRESET):
        raise InputError(
            f"unknown split preset {preset!r}; known: {', '.join(sorted((*PRESETS, TUNING)))}, and "
            f"{SITE_PRESET}<name> for datasets with sites"
        )


def home_site(preset: str) -> str | None:
    """Return the only site that training rows come from, under a preset `site:<name>`."""
    return preset.removeprefix(SITE_PRESET) if preset.startswith(SITE_PRESET) else None


def split_shares(preset: str, official_test: bool) -> dict[str, float]:
    """Return the share of each split: the probability that a row is in it."""
    like_default = preset == TUNING or home_site(preset) is not None
    validation, control, test = PRESETS["default" if like_default else preset]
    if official_test:
        rest = 1.0 - test
        validation, control, test = validation / rest, control / rest, 0.0
    shares = {"validation": validation, "control": control, "test": test}
    return {"train": 1.0 - sum(shares.values()), **shares}


def expected_sizes(rows: int, preset: str, official_test: bool) -> dict[str, int]:
    """Return the expected rows of each split: a public formula of a declared count."""
    shares = split_shares(preset, official_test)
    sizes = {split: round(rows * shares[split]) for split in SPLITS[1:]}
    sizes = {"train": rows - sum(sizes.values()), **sizes}
    if preset == TUNING:
        sizes["test"] = sizes["validation"] // 2
        sizes["validation"] -= sizes["test"]
    return sizes


def split_key(name: str, preset: str, split_seed: int) -> bytes:
    """Return the public key of the hash."""
    preset = "default" if preset == TUNING else preset  # the same rows are training rows
    return hashlib.sha256(f"split/{name}/{preset}/{split_seed}".encode()).digest()


def identity_hashes(
    rows: EncodedRows,
    ids: pd.Series | None,
    key: bytes,
    before: Mapping[bytes, int] | None = None,
) -> npt.NDArray[np.uint64]:
    """Return (rows, 2): two words of 64 bits for each row, from its identity.

    A row without an entry in the id column is identified by its content. `before` are the
    `content_counts` of rows that are in the table already.
    """
    names = [None] * len(rows) if ids is None else spelled(ids.reset_index(drop=True)).tolist()
    equal = Counter(before or {})
    hashes: list[bytes] = []
    for content, name in zip(_contents(rows, key), names, strict=True):
        if name is not None:
            hashes.append(_hash(name.encode("utf-8", "surrogatepass"), key, b"id"))
            continue
        rank, equal[content] = equal[content], equal[content] + 1
        hashes.append(content if not rank else _hash(content + _word(rank), key, b"rank"))
    return np.frombuffer(b"".join(hashes), dtype="<u8").reshape(-1, 2)


def content_counts(rows: EncodedRows, key: bytes) -> Counter[bytes]:
    """Return how many rows have each content."""
    return Counter(_contents(rows, key))


def _contents(rows: EncodedRows, key: bytes) -> Iterator[bytes]:
    # Adding zero turns -0.0, which is equal but has other bits, into 0.0.
    values = np.ascontiguousarray(rows.values, dtype="<f4") + np.float32(0.0)
    marks = np.stack([rows.labels, rows.sites], axis=1).astype("<i8")
    for row, mark in zip(values, marks, strict=True):
        yield _hash(row.tobytes() + mark.tobytes(), key, b"content")


def _word(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _hash(text: bytes, key: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16, key=key, person=purpose).digest()


def assign_splits(
    hashes: npt.NDArray[np.uint64], preset: str, official_test: bool
) -> npt.NDArray[np.str_]:
    """Return the split of every row, from the first word of its hash."""
    shares = split_shares(preset, official_test)
    ends = np.cumsum([shares[split] for split in SPLITS])[:-1]
    codes = np.searchsorted(ends, _uniform(hashes[:, 0]), side="right")
    return np.array(SPLITS)[codes]


def fixed_positions(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return a uniform number for every row, from the second word of its hash."""
    return _uniform(hashes[:, 1])


def _uniform(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)
