"""Texas inpatient discharges of 2013: severity of the illness. Closed (data use agreement).

As used by the fidelity and privacy paper (section 5.1): 50,000 records drawn uniformly from the
year 2013 of the Texas Hospital Inpatient Discharge Public Use Data File, with the 18 attributes
that Stadler et al. chose (Synthetic Data - Anonymisation Groundhog Day, 2022; the paper cites it
under an earlier title).

Open stand-in: `diabetes130` (hospital encounters, mixed columns). There is no simulator.

Files in `texas_discharge/`: the four quarters of base data 1, `PUDF_base1_1q2013_tab.txt` to
`PUDF_base1_4q2013_tab.txt`, tab-delimited, unpacked or in their zip files, as the publisher gives
them. Names and codes are those of its user manual (2013); the files hold many more columns. A code
that the publisher marks invalid (a backtick) or leaves empty becomes `INVALID`, sex `U`, as in the
copy of Stadler et al. The draw has a fixed seed, so that everybody with the files gets the same
50,000 rows; another draw than the paper's, which is not published.

The paper predicts "severity of illness" with one ROC curve and does not say which two classes. Here
the target is an ILLNESS_SEVERITY of 3 (major) or 4 (extreme) against the rest. RISK_MORTALITY is
left out: the same grouper (APR-DRG) computes it from the same codes, so that it gives the target
away. 16 features remain of 18 attributes.

Unit: a discharge. The file has no key for patients, so that repeated stays cannot be recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import FileSource, Numeric
from bench.datasets.closed._closed import TextTable, finish

FILES = tuple(f"PUDF_base1_{quarter}q2013_tab.txt" for quarter in (1, 2, 3, 4))
ROWS = 50_000
SEED = 2013
INVALID = "INVALID"

_TARGET = "ILLNESS_SEVERITY"
_BACKTICK = "`"


def _codes(*codes: str, empty: str = INVALID) -> dict[str, str]:
    return {**{code: code for code in codes}, _BACKTICK: empty}


def _span(first: int, last: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(first, last + 1))


_CODES: Mapping[str, Mapping[str, str]] = {
    "DISCHARGE": _codes("2012Q4", "2013Q1", "2013Q2", "2013Q3", "2013Q4"),
    "TYPE_OF_ADMISSION": _codes("1", "2", "3", "4", "5", "9"),
    "PAT_STATE": _codes("TX", "AR", "LA", "NM", "OK", "ZZ", "FC", "XX"),
    "PAT_STATUS": _codes(
        *_span(1, 9),
        *("20", "21", "30", "40", "41", "42", "43", "50", "51"),
        *_span(61, 66),
        *("69", "70", "71", "72"),
        *_span(81, 95),
    ),
    "SEX_CODE": _codes("F", "M", "U", empty="U"),
    "RACE": _codes(*_span(1, 5)),
    "ETHNICITY": _codes("1", "2"),
    "ADMIT_WEEKDAY": _codes(*_span(1, 7)),
    "PAT_AGE": _codes(*_span(0, 26)),
}
_SEVERITY: Mapping[str, str] = {
    **dict.fromkeys(("0", "1", "2"), "other"),
    **dict.fromkeys(("3", "4"), "major or extreme"),
}


@final
@dataclass(frozen=True)
class TexasDischarge(FileSource):
    """50,000 discharges, drawn from some three million."""

    name: ClassVar[str] = "texas-discharge"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        schema = self.declare().schema
        names = [column.name for column in schema]
        parts = []
        for quarter in _draw(paths, names):
            columns = {
                name: quarter.categories(name, codes).fillna(codes[_BACKTICK])
                for name, codes in _CODES.items()
            }
            for column in schema:
                if isinstance(column, Numeric):
                    columns[column.name] = quarter.numbers(column.name, [_BACKTICK])
            columns[_TARGET] = quarter.categories(_TARGET, _SEVERITY)
            parts.append(pd.DataFrame(columns))
        table = pd.concat(parts, ignore_index=True)
        return finish({name: table[name] for name in names}, schema, paths[FILES[0]].parent)


def _draw(paths: Mapping[str, Path], names: list[str]) -> list[TextTable]:
    """ROWS rows of the year, uniformly: those with the smallest of as many random numbers.

    One quarter is in memory at a time, because the year has sixty times as many rows as are drawn.
    """
    rng = np.random.default_rng(SEED)
    quarters: list[TextTable] = []
    numbers: list[npt.NDArray[np.float64]] = []
    for name in FILES:
        quarter = TextTable.read(paths[name], name, names, separator="\t")
        drawn = rng.random(len(quarter))
        smallest = np.sort(np.argsort(drawn)[:ROWS])
        quarters.append(quarter.take(smallest))
        numbers.append(drawn[smallest])
    limit = np.sort(np.concatenate(numbers))[:ROWS][-1]
    return [quarter.take(drawn <= limit) for quarter, drawn in zip(quarters, numbers, strict=True)]
