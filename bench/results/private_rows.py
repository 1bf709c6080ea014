"""Rows of releases without a proven epsilon: where they may be, and what stands for them.

Such a release may hold the training rows themselves (`real`, `subset`) or values of them. Its rows
are never copied to a site, to MLflow or to an exported file. A run directory does not hold them
either: `rows.json` has what pages and checks need, with a digest, and whoever scores the release
again makes the rows again by the same seed. With `--keep-private-rows` they are stored in a folder
and under names that say what they are:

    non-private-rows/<key>/non-private-synthetic.parquet, non-private-encoded.parquet
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from bench.errors import StoreError
from bench.plugins.release import Rows
from bench.results.opening import read_object
from bench.results.records import CellRow
from bench.results.verdicts import Verdict

FOLDER: Final = "non-private-rows"
SYNTHETIC: Final = "non-private-synthetic.parquet"
ENCODED: Final = "non-private-encoded.parquet"
SUMMARY: Final = "rows.json"

NOT_COPIED: Final = (
    "rows without a proven epsilon may be private rows, and are never copied out of a run directory"
)
KEEP: Final = "`bench run --keep-private-rows` keeps the rows of what it fits"

_FORMAT_VERSION = 1
_UNTRUSTED = (Verdict.PROOF_REFUTED.value, Verdict.TAMPERED.value)


def may_travel(row: CellRow) -> bool:
    """Return True where the rows of a release have a proven epsilon, so that they may be copied.

    A proof that an attack has refuted, or that does not follow from the stored ledger, is none.
    """
    return is_proven(row.eps_proven) and row.verdict not in _UNTRUSTED


def is_proven(epsilon: float | None) -> bool:
    """Return True for a finite bound."""
    return epsilon is not None and math.isfinite(epsilon)


@final
@dataclass(frozen=True)
class RowsSummary:
    """What is known of released rows that are not stored with the release; `rows.json`."""

    rows: int
    by_class: tuple[int, ...]
    """Released rows of each class, by class code."""
    columns: tuple[str, ...]
    """Names of the columns in the units of the schema."""
    weighted: bool
    soft_labels: bool
    sha256: str
    """Digest of the encoded rows, see `digest`."""

    @classmethod
    def of(cls, rows: Rows, columns: Sequence[str]) -> RowsSummary:
        """Summarise rows whose labels are class codes."""
        return cls(
            rows=len(rows),
            by_class=tuple(np.bincount(rows.labels).tolist()) if len(rows) else (),
            columns=tuple(columns),
            weighted=rows.weights is not None,
            soft_labels=rows.soft_labels is not None,
            sha256=digest(rows),
        )

    def to_json(self) -> str:
        """Return the content of the file."""
        return json.dumps({"format_version": _FORMAT_VERSION, **asdict(self)}, indent=1)


def digest(rows: Rows) -> str:
    """Return one SHA-256 of all numbers of rows, with their types and shapes."""
    total = hashlib.sha256()
    for array in (rows.values, rows.labels, rows.weights, rows.soft_labels):
        if array is None:
            total.update(b"none;")
            continue
        total.update(f"{array.dtype.str}{array.shape};".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def read_summary(directory: Path, key: str) -> RowsSummary | None:
    """Return the summary of a release whose rows are not stored with it; None for all others."""
    document = read_object(directory, "releases", key, SUMMARY)
    if document is None:
        return None
    try:
        return _from_document(document)
    except (KeyError, TypeError, ValueError):
        raise StoreError(
            f"releases/{key}/{SUMMARY}: is not a summary of rows that bench wrote"
        ) from None


def _from_document(document: dict[str, Any]) -> RowsSummary:
    counts = tuple(document["by_class"])
    columns = tuple(document["columns"])
    numbers = (document["rows"], *counts)
    flags = (document["weighted"], document["soft_labels"])
    good = (
        document["format_version"] == _FORMAT_VERSION
        and all(type(number) is int and number >= 0 for number in numbers)
        and sum(counts) == document["rows"]
        and all(isinstance(name, str) for name in (*columns, document["sha256"]))
        and all(isinstance(flag, bool) for flag in flags)
    )
    if not good:
        raise ValueError
    return RowsSummary(document["rows"], counts, columns, *flags, document["sha256"])
