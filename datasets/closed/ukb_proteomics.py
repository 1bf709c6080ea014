"""UK Biobank plasma proteomics: who will be diagnosed with multiple myeloma. Closed.

As used by the zero-order condensation paper: 52,999 participants, 2,932 proteins (Olink Explore),
incident myeloma as in Fieggen et al., Blood Advances 9:3766, 2025 (prevalent cases left out).

Open stand-in: `tcga-brca` (hundreds of gene expressions). Simulator: `proteomics-sim`.

Files in `ukb_proteomics/`:

    olink_instance_0.csv   the record table of this name, as the table exporter of the Research
                           Analysis Platform writes it: `eid`, then one column per protein, named by
                           its gene (with or without the prefix `olink_instance_0.`), in NPX.
                           These names are the publisher's, who writes them in small letters;
                           here they are in capitals, as in the paper and in `proteomics-sim`.
    myeloma.csv            `eid` and `myeloma` (1: C90.0 in the cancer register, the death register
                           or a hospital record after enrolment; 0: none). This name is ours.
                           Participants with the disease at enrolment are not listed; people in
                           only one of the two files are left out.

Which proteins there are depends on the release (the paper counts 2,932; the Showcase now lists
2,923). Their names are public, as the dictionary of the assay (Showcase coding 143) is, so that the
schema takes them from the header of the file, without a row. Without the file it lists those the
paper names. The paper also attacks `TNFRSF12B`, which is not on the panel; `TNFRSF13B` (TACI), a
marker of myeloma, is declared sensitive in its place.

Counts: the paper states 98 cases in the training data, which are 70% of the rows: 140 in all, of
which preset `paper` puts 98 into the training rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DataError, Declaration, FileSource, data_folder, find_file, read_csv, read_toml
from bench.datasets._shared import declare_alike
from bench.datasets.closed._closed import TextTable, finish, header

_PROTEINS = "olink_instance_0.csv"
_OUTCOMES = "myeloma.csv"
_PREFIX = "olink_instance_0."


@final
@dataclass(frozen=True)
class UkbProteomics(FileSource):
    """Participants without myeloma at enrolment."""

    name: ClassVar[str] = "ukb-proteomics"

    def declare(self) -> Declaration:
        table = read_toml(self.toml_path())
        folder = data_folder()
        path = find_file(_PROTEINS, [folder / table["obtain"]["folder"], folder])
        names = table["named_proteins"]
        if path is not None:
            # A list of datasets must not fail on one bad file: `read` refuses it with the reason.
            with contextlib.suppress(DataError):
                names = list(_proteins(path, table["sensitive"]).values())
        return declare_alike(self.toml_path(), names, "protein")

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path = paths[_PROTEINS]
        schema = self.declare().schema
        proteins = _read_proteins(path, schema.sensitive)
        outcomes = TextTable.read(paths[_OUTCOMES], _OUTCOMES, ["eid", "myeloma"])
        cases = pd.Series(
            outcomes.labels("myeloma").to_numpy(), index=outcomes.numbers("eid"), name="myeloma"
        )
        for place, index in ((path, proteins.index), (outcomes.path, cases.index)):
            if not index.is_unique:
                row = int(index.duplicated().argmax()) + 1
                raise DataError(f"{place}: the participant of row {row} is there twice")
        both = proteins.index.intersection(cases.index)
        if both.empty:
            raise DataError(f"{outcomes.path}: no participant of it is in {path.name}")
        kept = proteins.loc[both].reset_index(drop=True)
        columns = {str(name): kept[name] for name in kept.columns}
        columns["myeloma"] = cases.loc[both].reset_index(drop=True)
        return finish(columns, schema, outcomes.path)


def _proteins(path: Path, required: Iterable[str]) -> dict[str, str]:
    """Return the columns of the file that are proteins, with the names of these."""
    columns = header(path, _PROTEINS)
    names = {name: name.removeprefix(_PREFIX).strip().upper() for name in columns}
    proteins = {name: protein for name, protein in names.items() if protein not in ("", "EID")}
    for name in required:
        if name not in proteins.values():
            raise DataError(
                f"{path}: the protein {name!r} has no column among {len(columns)}; expected `eid` "
                "and one column per protein, named by its gene, with commas between them"
            )
    return proteins


def _read_proteins(path: Path, required: Iterable[str]) -> pd.DataFrame:
    """Read NPX by participant, in single precision, as the table takes 0.6 GB even so."""
    proteins = _proteins(path, required)
    key = next(
        (name for name in (f"{_PREFIX}eid", "eid") if name in header(path, _PROTEINS)), "eid"
    )
    table = read_csv(
        path,
        _PROTEINS,
        columns=[key],
        usecols=[key, *proteins],
        dtype={**dict.fromkeys(proteins, np.float32), key: np.float64},
    )
    return table.set_index(key).rename(columns=proteins)
