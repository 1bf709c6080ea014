"""CURIAL: COVID-19 among patients of the emergency departments of four NHS trusts. Closed.

The zero-order condensation paper uses Portsmouth (PUH), Oxford (OUH) and Birmingham (UHB); GATS
trains on Portsmouth and tests on the others and on Bedfordshire (BH), with Oxford in two waves,
which are not distinguished here. Both papers treat each trust as a separate dataset: `sites` says
which are read, `PUH` alone or several joined by commas.

Open stand-in: `eicu-demo` (several hospitals, one binary outcome). Simulator: `curial-sim`, which
has the same columns, bounds and categories: those of its TOML file are read here.

Files: one CSV per trust in `curial/`, `puh.csv`, `ouh.csv`, `uhb.csv` and `bh.csv`, one row per
attendance. The trusts publish no data dictionary. File and column names are therefore ours: table
S1 of the zero-order paper in small letters with underscores (vital signs, blood count, liver
function and C-reactive protein, urea and electrolytes, in the units of `curial_sim.toml`), then
`delivery_device`, `age`, `sex` and `covid` (1: confirmed by PCR; 0: not). A site column is not
needed, as the file says it. Empty entries are missing measurements. Both papers impute the median
of the rows, which would be a look at them; here a value from the adult reference interval is used
(`[fill]` in the TOML file).

Counts: sizes are table 1 of the zero-order paper. It prints no prevalences; the positives follow
from its table 2 as derived in `simulators/_curial_model.py`. BH is not in it: 1,177 patients with
144 positives are those of Soltan et al., Lancet Digital Health 4:e266, 2022 (with 37,896 at PUH,
10,293 at UHB and 22,857 at OUH they make up its 72,223).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import pandas as pd

from bench import (
    Categorical,
    Declaration,
    FileSource,
    InputError,
    Numeric,
    declaration_from_table,
    read_toml,
)
from bench.datasets.closed._closed import TextTable, finish
from bench.datasets.simulators.curial_sim import CurialSim

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
        names = [column.name for column in (*schema.features, schema.label)]
        table = TextTable.read(path, _file(site), names)
        columns: dict[str, pd.Series] = {}
        for column in schema.features:
            if isinstance(column, Numeric):
                columns[column.name] = table.numbers(column.name)
            elif isinstance(column, Categorical):
                same = dict(zip(column.categories, column.categories, strict=True))
                columns[column.name] = table.categories(column.name, same)
        columns["site"] = pd.Series(site, index=table.frame.index)
        columns[schema.label.name] = table.labels(schema.label.name)
        return finish(columns, schema, path)

    def _chosen(self) -> list[str]:
        chosen = self.sites.split(",")
        return [site for site in SITES if site in chosen]


def _file(site: str) -> str:
    return f"{site.lower()}.csv"


def _columns(fills: Mapping[str, Any], sites: list[str]) -> dict[str, dict[str, Any]]:
    """Return the `[columns]` table: that of the simulator, with fills for measurements."""
    columns: dict[str, dict[str, Any]] = read_toml(CurialSim().toml_path())["columns"]
    for name, fill in fills.items():
        columns[name] |= {"fill": fill, "source": f"{columns[name]['source']}; fill: {_NORMAL}"}
    if len(sites) == 1:
        del columns["site"]
    else:
        columns["site"] |= {
            "categories": sites,
            "description": "NHS trust",
            "source": "table 1 of the zero-order paper; BH: section 4.1 of the GATS paper",
        }
    return columns
