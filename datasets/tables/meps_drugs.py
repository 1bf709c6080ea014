"""Medical Expenditure Panel Survey: who of 65 and older is insured through an employer or union?

10,391 people with Medicare and some spending on prescribed drugs, as Cameron and Trivedi prepared
them to study how supplementary insurance changes that spending. Their treatment, insurance through
an employer or union, is the target: the spending itself would be regression, which is no task here.

The survey follows a person for two years, and the file has no identifier: the unit is the row.

Left out: `private` (any private insurance, of which the target is a kind) and functions of columns
that are kept: `age2`, `ldrugexp`, `linc`, `vgh`, `fph`, `blhisp`. Indicators of one question are
put together: of several answers about health (29 people) the worst counts.
"""

from __future__ import annotations

import bz2
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DataError, FileSource, coerce_columns, read_bytes

_FILE = "meps.csv.bz2"
_MOST = 64 << 20
"""Bytes of the unpacked table, at most; the published one has 2 MB."""
_HEALTH: Mapping[str, str] = {
    "poor": "poor",
    "fair": "fair",
    "good": "good",
    "vegood": "very good",
}
"""From the worst on; none of them is excellent health."""
_POVERTY: Mapping[str, str] = {"poverty": "poor", "lowincome": "low", "midincome": "middle"}


@final
@dataclass(frozen=True)
class MepsDrugs(FileSource):
    """10,391 people, 3,945 of them insured through an employer or union."""

    name: ClassVar[str] = "meps-drugs"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, schema = paths[_FILE], self.declare().schema
        names = [column.name for column in schema]
        made = {"health", "poverty_status", "race"}
        wanted = [name for name in names if name not in made]
        wanted += [*_HEALTH, *_POVERTY, "black", "hisp"]
        table = _unpacked(path)
        missing = [name for name in wanted if name not in table]
        if missing:
            raise DataError(f"{path}: the column {missing[0]!r} is missing; obtain the original")
        black, hispanic = table["black"] == 1, table["hisp"] == 1
        table["race"] = np.select(
            [black & hispanic, black, hispanic],
            ["black and hispanic", "black", "hispanic"],
            "other",
        )
        table["health"] = _first(table, _HEALTH, "excellent")
        table["poverty_status"] = _first(table, _POVERTY, "high")
        return coerce_columns(table[names], schema)


def _first(table: pd.DataFrame, indicators: Mapping[str, str], otherwise: str) -> pd.Series[str]:
    """Return the answer of the first indicator that is 1."""
    conditions = [table[column] == 1 for column in indicators]
    return pd.Series(np.select(conditions, list(indicators.values()), otherwise), table.index)


def _unpacked(path: Path) -> pd.DataFrame:
    content = read_bytes(path, _FILE)
    if not content:
        raise DataError(f"{path}: the file is empty")
    unpacker = bz2.BZ2Decompressor()
    try:
        text = unpacker.decompress(content, _MOST)
        if not unpacker.eof:
            raise DataError(
                f"{path}: truncated or damaged, or more than {_MOST >> 20} MiB; obtain the original"
            )
        return pd.read_csv(io.StringIO(text.decode("utf-8")))
    except OSError:
        raise DataError(f"{path}: truncated or damaged; obtain the original") from None
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError):
        raise DataError(f"{path}: not a table of comma-separated text in UTF-8") from None
