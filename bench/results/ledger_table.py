"""Ledgers of many releases in one table: what compact results keep of `releases/<key>/ledger.json`.

Cells that differ only in their seed have the same ledger, so that each text is stored once, by its
SHA-256. The row of a cell names it: `release_hashes` has the digest of `ledger.json`. With this
table a verdict is checked against its ledger as in a run directory, also where no release is
stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.errors import StoreError
from bench.results.parquet_files import columns_in, read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

FILE: Final = "ledgers.parquet"
_COLUMNS = ("sha256", "text")


def read_ledgers(directory: Path) -> Mapping[str, str]:
    """Return the texts of ledgers by their digests; nothing where there is no such table.

    A text that has another digest than it is stored under was replaced, and is refused.
    """
    found = columns_in(directory, FILE)
    if not found:
        return {}
    if sorted(found) != sorted(_COLUMNS):
        raise StoreError(
            f"{directory / FILE}: expected the columns {', '.join(_COLUMNS)}, each once, and no "
            "other"
        )
    table = read_parquet(directory, FILE, columns=_COLUMNS)
    assert table is not None  # it has columns
    ledgers = {}
    for digest, text in zip(*(table.column(name).to_pylist() for name in _COLUMNS), strict=True):
        if not isinstance(text, str) or digest_of_text(text) != digest:
            raise StoreError(f"{directory / FILE}: a ledger is not the one of its digest")
        ledgers[digest] = text
    return ledgers


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a ledger, as `release_hashes` has it of the file."""
    return hashlib.sha256(text.encode()).hexdigest()


def ledger_table(texts: Iterable[str]) -> pa.Table:
    """Return the table of these ledgers, each distinct one once, in the order of their digests."""
    import pyarrow as pa

    by_digest = {digest_of_text(text): text for text in texts}
    digests = sorted(by_digest)
    return pa.table(
        {"sha256": digests, "text": [by_digest[digest] for digest in digests]},
        schema=pa.schema([(name, pa.string()) for name in _COLUMNS]),
    )
