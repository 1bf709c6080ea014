"""TCGA breast cancer: the molecular subtype of a tumour from the expression of 200 genes.

The table is `breast.TCGA` of the R package mixOmics: level-3 mRNA data of The Cancer Genome Atlas,
reduced by its authors to 200 genes and to three subtypes, and cut by them into 150 training and 70
test tumours, which is kept: the test file is the test set. Each tumour is another patient.
`sample`, a part of the TCGA barcode, identifies the patient and is left out.

The genes were chosen by the authors of the package on these very tumours; their names are taken as
public here, and the list is in the TOML file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import DataError, Declaration, FileSource, coerce_columns, read_csv, read_toml
from bench.datasets._shared import declare_alike

_TRAINING = "breastTCGA_mrna_train.csv"
_TEST = "breastTCGA_mrna_test.csv"


@final
@dataclass(frozen=True)
class TcgaBrca(FileSource):
    """150 tumours to split and 70 official test tumours in three classes."""

    name: ClassVar[str] = "tcga-brca"

    def declare(self) -> Declaration:
        path = self.toml_path()
        return declare_alike(path, read_toml(path)["genes"], "gene")

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        return self._table(paths[_TRAINING], _TRAINING)

    def load_official_test(self) -> pd.DataFrame:
        return self._table(self.paths()[_TEST], _TEST)

    def _table(self, path: Path, name: str) -> pd.DataFrame:
        schema = self.declare().schema
        columns = [column.name for column in schema]
        frame = read_csv(path, name, columns=["sample", *columns])
        twice = frame.loc[frame["sample"].duplicated(), "sample"]
        if len(twice):
            raise DataError(f"{path}: the sample {twice.iloc[0]!r} is there twice")
        return coerce_columns(frame[columns], schema)
