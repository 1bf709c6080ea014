"""CURIAL: COVID-19 among patients of the emergency departments of four NHS trusts. Closed.

The zero-order condensation paper uses Portsmouth (PUH), Oxford (OUH) and Birmingham (UHB); GATS
trains on Portsmouth and tests on the others and on Bedfordshire (BH), with Oxford in two waves,
which are not told apart here. Both papers treat each trust as a dataset of its own: `sites` says
which are read, `PUH` alone or several joined by commas.

Open stand-in: `eicu-demo` (several hospitals, one binary outcome). Simulator: `curial-sim`, which
has the same columns, bounds and categories, because both take them from `_curial_parameters`.

Files: one CSV a trust in `curial/`, `puh.csv`, `ouh.csv`, `uhb.csv` and `bh.csv`, one row an
attendance. The trusts publish no data dictionary. File and column names are therefore ours: table
S1 of the zero-order paper in small letters with underscores (vital signs, blood count, liver
function and C-reactive protein, urea and electrolytes, in the units of `_curial_parameters`), then
`delivery_device`, `age`, `sex` and `covid` (1: confirmed by PCR; 0: not). A site column is not
needed, as the file says it. Empty entries are missing measurements. Both papers impute the median
of the rows, which would be a look at them; here a value from the adult reference interval is used
(`[fill]` in the TOML file).

Counts: sizes are table 1 of the zero-order paper. It prints no prevalences; the positives follow
from its table 2 as derived in `_curial_model`. BH is not in it: 1,177 patients with 144 positives
are those of Soltan et al., Lancet Digital Health 4:e266, 2022 (with 37,896 at PUH, 10,293 at UHB
and 22,857 at OUH they make up its 72,223).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import pandas as pd

from bench import Declaration, FileSource, InputError, Numeric, declaration_from_table, read_toml
from bench.datasets.closed._closed import TextTable, finish
from bench.datasets.simulators._curial_parameters import (
    BOUNDS,
    DEVICES,
    FEATURES,
    SEXES,
    SITE_COLUMN,
    TARGET_COLUMN,
)

SITES = ("PUH", "OUH", "UHB", "BH")

_NORMAL = "healthy adult (reference interval)"


@final
@dataclass(frozen=True)
class Curial(FileSource):
    """Emergency patients of the chosen trusts."""

    name: ClassVar[str] = "curial"

    sites: str = "PUH,OUH,UHB"
    """Trusts to read, joined by commas."""

    def __post_init__(self) -> None:
        chosen = self.sites.split(",")
        strange = [site for site in chosen if site not in SITES]
        if strange or len(set(chosen)) != len(chosen):
            raise InputError(
                f"curial: sites={self.sites!r} must be different ones of {','.join(SITES)}"
            )

    def declare(self) -> Declaration:
        table, chosen = read_toml(self.toml_path()), self._chosen()
        table["columns"] = _columns(table["fill"], chosen)
        counts = {site: table["counts"]["by_site_class"][site] for site in chosen}
        table["counts"] = {
            "by_class": [sum(column) for column in zip(*counts.values(), strict=True)]
        }
        if len(chosen) > 1:
            table["counts"]["by_site_class"] = counts
        names = [_file(site) for site in chosen]
        table["obtain"]["files"] = [
            file for file in table["obtain"]["files"] if file["name"] in names
        ]
        return declaration_from_table(table, str(self.toml_path()))

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        parts = [self._read_site(site, paths[_file(site)]) for site in self._chosen()]
        return pd.concat(parts, ignore_index=True)

    def _read_site(self, site: str, path: Path) -> pd.DataFrame:
        schema = self.declare().schema
        table = TextTable.read(path, _file(site), [*FEATURES, TARGET_COLUMN])
        columns: dict[str, pd.Series] = {}
        for column in schema.features:
            if isinstance(column, Numeric):
                columns[column.name] = table.numbers(column.name)
        columns["delivery_device"] = table.categories("delivery_device", _same(DEVICES))
        columns["sex"] = table.categories("sex", _same(SEXES))
        columns[SITE_COLUMN] = pd.Series(site, index=table.frame.index)
        columns[TARGET_COLUMN] = table.labels(TARGET_COLUMN)
        return finish(columns, schema, path)

    def _chosen(self) -> list[str]:
        chosen = self.sites.split(",")
        return [site for site in SITES if site in chosen]


def _file(site: str) -> str:
    return f"{site.lower()}.csv"


def _same(categories: tuple[str, ...]) -> dict[str, str]:
    return {category: category for category in categories}


def _columns(fills: Mapping[str, Any], sites: list[str]) -> dict[str, dict[str, Any]]:
    """The `[columns]` table: the public bounds of the simulator, and fills for measurements."""
    columns: dict[str, dict[str, Any]] = {}
    for name in FEATURES:
        if name in BOUNDS:
            bounds = BOUNDS[name]
            entry: dict[str, Any] = {
                "kind": "numeric",
                "low": bounds.low,
                "high": bounds.high,
                "integer": bounds.decimals == 0,
                "description": f"{name.replace('_', ' ')}, {bounds.unit}",
                "source": bounds.reason,
            }
        else:
            entry = {
                "kind": "categorical",
                "categories": DEVICES if name == "delivery_device" else SEXES,
                "source": "hospital record",
            }
        if name in fills:
            entry |= {"fill": fills[name], "source": f"{entry['source']}; fill: {_NORMAL}"}
        columns[name] = entry
    if len(sites) > 1:
        columns[SITE_COLUMN] = {
            "kind": "categorical",
            "role": "site",
            "categories": sites,
            "description": "NHS trust",
            "source": "table 1 of the zero-order paper; BH: section 4.1 of the GATS paper",
        }
    columns[TARGET_COLUMN] = {
        "kind": "binary",
        "role": "target",
        "description": "1: COVID-19",
        "source": "outcome of the task of both papers",
    }
    return columns
