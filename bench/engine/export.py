"""Writes the rows of one release as a file to give away: only where their privacy is proven."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, final

import numpy as np

from bench.data.released import as_its_owner_wrote
from bench.errors import BenchError, InputError, StoreError
from bench.leaderboard.dossier import privacy
from bench.leaderboard.dossier.material import Material, gather
from bench.plugins import registry
from bench.results.parquet_files import read_parquet
from bench.results.reproduce import json_object
from bench.results.verdicts import Verdict
from bench.results.writing import FOR_ALL, replacing, writing

if TYPE_CHECKING:
    import pandas as pd

_AT_ONCE = 100_000
"""Rows that are turned into text at a time."""
KINDS = (".csv", ".parquet")


@final
@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    rows: int
    columns: int
    sha256: str
    warnings: tuple[str, ...] = ()


def check_output(path: Path) -> None:
    """Refuse an output that is neither CSV nor Parquet, or that exists."""
    if path.suffix.lower() not in KINDS:
        raise InputError(f"{path}: expected a name that ends in .csv or .parquet")
    if path.exists():
        raise InputError(f"{path} exists; it is not overwritten. Name another file")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder; create it first")


def export_release(directory: Path, wanted: str, output: Path) -> Exported:
    """Write the rows of the cell that `wanted` names, as their owner wrote the original.

    Rows whose privacy is not proven do not leave: nobody can say whose they are.
    """
    check_output(output)
    material = gather(directory, wanted)
    _refuse_unproven(material)
    row = material.row
    table = read_parquet(directory, "releases", row.key, "synthetic.parquet")
    if table is None:
        raise StoreError(f"{directory}: the rows of cell {row.key} are not stored")
    frame = table.to_pandas().reset_index(drop=True)
    warnings = [f"{what} of each row is left out" for what in material.files.beside]
    if row.study_only:
        warnings.append(
            "study only: its noise follows from a seed. Do not publish it; `bench run "
            "--secure-noise` or `bench synthesize` makes a release to publish"
        )
    try:
        source = registry.build_source(
            row.dataset_name or row.dataset, dict(json_object(row.dataset_parameters))
        )
        frame = as_its_owner_wrote(frame, source.declare().schema)
    except (BenchError, OSError, KeyError, TypeError):
        warnings.append(
            f"the dataset {row.dataset} is not installed here: columns are in the order of the run "
            "directory, and whole numbers may have decimals"
        )
    # By class as they were made: an order that says nothing, but looks odd in a table.
    shuffled = frame.iloc[np.random.default_rng(0).permutation(len(frame))]
    digest = _write(shuffled.reset_index(drop=True), output)
    return Exported(output, len(frame), frame.shape[1], digest, tuple(warnings))


def _refuse_unproven(material: Material) -> None:
    digests = {digest.name: digest.sha256 for digest in material.files.digests}
    replayed = privacy.replay(material.row, material.files.ledger, digests)
    row = privacy.checked_row(material.row, replayed)
    sound = privacy.verdict_of(row) in (Verdict.SOUND, Verdict.SOUND_TRUSTING)
    proven = None if replayed.proof is None else replayed.proof.epsilon
    if not sound or proven is None or not math.isfinite(proven):
        raise InputError(
            f"cell {row.key} ({row.label} on {row.dataset}) is not exported: its verdict is "
            f"{row.verdict or 'unknown'} ({row.verdict_reason or 'no reason given'}). Only rows "
            "with a proven epsilon leave a run directory"
        )


def _write(frame: pd.DataFrame, output: Path) -> str:
    with writing(output, "or give another -o"), replacing(output, FOR_ALL) as file:
        if output.suffix.lower() == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), file)
        else:
            _write_csv(frame, file)
    digest = hashlib.sha256()
    with output.open("rb") as written:
        while piece := written.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _write_csv(frame: pd.DataFrame, file: IO[bytes]) -> None:
    for start in range(0, max(1, len(frame)), _AT_ONCE):
        piece = frame.iloc[start : start + _AT_ONCE]
        text = piece.to_csv(index=False, header=start == 0, lineterminator="\n")
        file.write(text.encode())
