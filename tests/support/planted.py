"""A user's table with planted values, and a search for them in everything that was written."""

from __future__ import annotations

import base64
import contextlib
import re
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench import Encoder

LOW = 4_000_000_000

TOML = """
inferred = false
title = "A ward"
task = "classification"
file = "{file}"
member = "ward.csv"
separator = ","
patient = ""
licence = "closed"
citation = "none"
source = "ward.csv"
unit = "row"
quasi_identifiers = ["age"]
sensitive = ["sex"]
[counts]
by_class = [{negatives}, {positives}]
[columns."nhs_number"]
kind = "numeric"
low = 4000000000.0
high = 10000000000.0
integer = true
[columns."age"]
kind = "numeric"
low = 0.0
high = 120.0
[columns."sex"]
kind = "categorical"
categories = ["F", "M"]
[columns."outcome"]
role = "target"
kind = "categorical"
categories = ["0", "1"]
"""


def write_ward(data: Path, rows: int = 150) -> pd.DataFrame:
    """Write a table of patients with an NHS number each, as the dataset `ward`."""
    rng = np.random.default_rng(11)
    outcome = (np.arange(rows) % 3 == 0).astype(int)
    frame = pd.DataFrame(
        {
            # Ten digits of which none ends in zeros: no rounded number of ours looks like one.
            "nhs_number": rng.choice(600_000_000, rows, replace=False) * 10 + LOW + 7,
            "age": (rng.normal(50 + 20 * outcome, 9)).clip(1, 119).round(7),
            "sex": rng.choice(["F", "M"], rows),
            "outcome": outcome,
        }
    )
    (data / "own").mkdir(parents=True)
    file = data / "ward.csv"
    frame.to_csv(file, index=False)
    counts = {"negatives": int((outcome == 0).sum()), "positives": int(outcome.sum())}
    (data / "own" / "ward.toml").write_text(TOML.format(file=file, **counts))
    return frame


@dataclass(frozen=True)
class Planted:
    """Values of two columns in every form in which a file could hold them."""

    units: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    """(rows, 2): in units, as in the user's file and as a release decodes them."""
    encoded: np.ndarray[tuple[int, int], np.dtype[np.float32]]
    """(rows, 2): as models train on them, in 32 bits."""

    @classmethod
    def of(cls, frame: pd.DataFrame, encoder: Encoder) -> Planted:
        """Plant the values of a table."""
        rows, _ = encoder.encode(frame, np.zeros(len(frame)))
        decoded = encoder.decode(rows.values, rows.labels)
        units = [table[["nhs_number", "age"]].to_numpy(np.float64) for table in (frame, decoded)]
        return cls(np.concatenate(units), rows.values[:, :2].astype(np.float32))

    def found_in(self, root: Path) -> list[str]:
        """Return the files below a folder that hold a planted value, each with the value."""
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
        search, values = self._search(), self._values
        return [
            f"{path}: {found[:40]!r}"
            for path in files
            for content in _contents(path, values)
            for found in search.in_bytes(content)
        ]

    @property
    def _values(self) -> frozenset[float]:
        """Numbers that a column of a table could hold."""
        return frozenset([*self.units.ravel().tolist(), *self.encoded.ravel().tolist()])

    def _search(self) -> _Search:
        numbers, ages = self.units.T
        encoded = self.encoded
        texts = [
            *(f"{number:.0f}" for number in numbers),
            *(f"{number:,.0f}" for number in numbers),
            *(f"{number:.9e}" for number in numbers),
            # Ages have few digits in front: all that a page could show of them.
            *(f"{age:.5f}" for age in ages),
            *(f"{value:.7f}" for value in encoded.astype(np.float64).ravel()),
            *(str(value) for value in encoded.ravel() if len(str(value)) > 8),
        ]
        words = {
            *(value.tobytes() for value in numbers.astype("<i8")),
            *(value.tobytes() for value in numbers.astype("<f8")),
            *(value.tobytes() for value in ages.astype("<f8")),
            *(value.tobytes() for value in encoded.astype("<f8").ravel()),
            # Four bytes alone are found anywhere: two that follow each other in a row or column.
            *(row.astype("<f4").tobytes() for row in encoded),
            *(
                np.ascontiguousarray(encoded[place : place + 2, column].astype("<f4")).tobytes()
                for place in range(len(encoded) - 1)
                for column in (0, 1)
            ),
        }
        return _Search(
            frozenset(text.encode() for text in texts),
            np.unique(np.frombuffer(b"".join(words), "<u8")),
        )


@dataclass(frozen=True)
class _Search:
    """Looks for all texts and words at once: an alternation of a thousand takes a minute."""

    texts: frozenset[bytes]
    """Numbers as they are written; what follows one does not matter, it may be cut."""
    words: np.ndarray[tuple[int], np.dtype[np.uint64]]
    """Eight bytes each, at any place."""

    def in_bytes(self, content: bytes) -> Iterator[bytes]:
        """Yield the first text and the first word that are there."""
        sizes = sorted({len(text) for text in self.texts})
        # Also after a comma or a sign inside of a longer one, so that the matches overlap.
        starts = re.finditer(
            rb"(?<![0-9.])(?=(-?[0-9][0-9.,e+-]{%d,40}))" % (sizes[0] - 2), content
        )
        written = (match.group(1)[:size] for match in starts for size in sizes)
        yield from islice((text for text in written if text in self.texts), 1)
        for shift in range(min(8, len(content) - 7)):
            eight = np.frombuffer(content, "<u8", (len(content) - shift) // 8, shift)
            found = eight[np.isin(eight, self.words)]
            if len(found):
                yield found[0].tobytes()
                return


def _contents(path: Path, values: frozenset[float]) -> Iterator[bytes]:
    """Yield the bytes of a file, and what is inside of them: tables, databases, pictures."""
    content = path.read_bytes()
    yield content
    if path.suffix == ".parquet":
        yield from _columns(pq.read_table(path), values)
    if content.startswith(b"SQLite format 3"):
        with contextlib.closing(sqlite3.connect(path)) as database:
            yield "\n".join(database.iterdump()).encode()
    for encoded in re.findall(rb"base64,([A-Za-z0-9+/=]+)", content):
        picture = base64.b64decode(encoded)
        yield picture
        for chunk in re.finditer(rb"IDAT(.*?)(?:IDAT|IEND)", picture, re.DOTALL):
            yield zlib.decompress(chunk.group(1)[:-8])


def _columns(table: pa.Table, values: frozenset[float]) -> Iterator[bytes]:
    for column in table.columns:
        listed = column.to_pylist()
        yield "\n".join(map(str, listed)).encode()
        for item in listed:
            if isinstance(item, float | int) and float(item) in values:
                yield np.float64(item).tobytes()
