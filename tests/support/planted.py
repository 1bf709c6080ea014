"""A user's table with planted values, and a search for them in everything that was written."""

from __future__ import annotations

import base64
import re
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

LOW, HIGH = 4_000_000_000, 10_000_000_000

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
    """Values of rows in every form in which a file could hold them."""

    frame: pd.DataFrame

    def found_in(self, root: Path) -> list[str]:
        """Return the files below a folder that hold a planted value, each with the value."""
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
        return [f"{path}: {found}" for path in files for found in self._in_file(path)]

    def _in_file(self, path: Path) -> Iterator[str]:
        for content in _contents(path):
            for name, forms in (("number", self._numbers), ("age", self._ages)):
                for pattern in forms:
                    if match := pattern.search(content):
                        yield f"{name} {match.group()!r}"

    @property
    def _numbers(self) -> tuple[re.Pattern[bytes], ...]:
        numbers = self.frame["nhs_number"].to_numpy()
        scaled = (numbers - LOW) / (HIGH - LOW)
        return (
            _texts(str(number) for number in numbers),
            _texts(f"{number:,}" for number in numbers),
            _texts(repr(float(value))[:14] for value in scaled),
            _bytes(numbers.astype("<i8"), numbers.astype("<f8"), scaled.astype("<f8")),
        )

    @property
    def _ages(self) -> tuple[re.Pattern[bytes], ...]:
        ages = self.frame["age"].to_numpy()
        whole = [value for value in ages if len(repr(float(value))) >= 9]
        return (
            _texts(repr(float(value)) for value in whole),
            _bytes(np.asarray(whole, "<f8"), np.asarray(whole, "<f8") / 120.0),
        )


def _texts(texts: Iterator[str]) -> re.Pattern[bytes]:
    return re.compile(rb"(?<![0-9.])(?:" + b"|".join(re.escape(t.encode()) for t in texts) + rb")")


def _bytes(*arrays: np.ndarray[tuple[int], np.dtype[np.generic]]) -> re.Pattern[bytes]:
    words = {value.tobytes() for array in arrays for value in array}
    return re.compile(b"|".join(re.escape(word) for word in sorted(words)))


def _contents(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, and what is inside of them: tables, databases, pictures."""
    content = path.read_bytes()
    yield content
    if path.suffix == ".parquet":
        yield from _columns(pq.read_table(path))
    if content.startswith(b"SQLite format 3"):
        database = sqlite3.connect(path)
        yield "\n".join(database.iterdump()).encode()
        database.close()
    for encoded in re.findall(rb"base64,([A-Za-z0-9+/=]+)", content):
        picture = base64.b64decode(encoded)
        yield picture
        for chunk in re.finditer(rb"IDAT(.*?)(?:IDAT|IEND)", picture, re.DOTALL):
            yield zlib.decompress(chunk.group(1)[:-8])


def _columns(table: pa.Table) -> Iterator[bytes]:
    for column in table.columns:
        yield "\n".join(map(str, column.to_pylist())).encode()
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            yield np.ascontiguousarray(column.to_numpy()).tobytes()
