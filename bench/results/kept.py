"""Compact results of a run, kept in the repository: what the tables of documents are made from.

One Parquet file per grid, with one row per cell and metric. It holds scores, epsilons, verdicts and
the hashes of the code that made them: no rows, no predictions, no notes of methods (a method
without a proof may have put values of rows there), no texts of failures.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.errors import StoreError
from bench.results.parquet_files import read_parquet
from bench.results.reading import read_tables
from bench.results.records import Status, ipc_text
from bench.results.writing import FOR_ALL, write_atomically, writing

if TYPE_CHECKING:
    import pandas as pd

IDENTITY: Final = (
    *("label", "method", "parameters", "dataset", "dataset_parameters", "eps_target", "delta"),
    *("seed", "split", "split_seed"),
)
"""Columns that, with `ipc`, distinguish one cell from another."""
_MEASURED: Final = (
    *("status", "verdict", "eps_claimed", "eps_proven", "rows_released", "fit_seconds"),
    *("score_seconds", "peak_memory_mb", "fingerprint", "source_hash", "metrics", "versions"),
)
COLUMNS: Final = (*IDENTITY, "ipc", *_MEASURED, "metric", "value", "low", "high")


def keep(directories: Sequence[Path], metrics: Collection[str], target: Path) -> int:
    """Write the finished cells of run directories to one file; return how many cells it holds.

    Only these metrics are kept, or all if none is named. A later directory replaces the cells of an
    earlier one.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    pieces = [_compact(directory, metrics) for directory in directories]
    frame = pd.concat(pieces, ignore_index=True)
    identity = [*IDENTITY, "ipc"]
    newest = frame.groupby(identity, dropna=False)["run"].transform("max")
    frame = frame[frame["run"] == newest].sort_values([*identity, "metric"], kind="stable")
    cells = frame[identity].drop_duplicates()
    table = pa.Table.from_pandas(frame[list(COLUMNS)], preserve_index=False)
    packed = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(None), packed, compression="zstd")
    with writing(target):
        write_atomically(target, packed.getvalue(), FOR_ALL)
    return len(cells)


def _compact(directory: Path, metrics: Collection[str]) -> pd.DataFrame:
    """Return the kept columns of one run directory, with the time of its last cell as `run`."""
    import pandas as pd

    tables = read_tables(directory)
    cells = tables.cells[(tables.cells["attack"] == "") & (tables.cells["status"] == Status.OK)]
    scores = tables.scores[tables.scores["value"].notna()]
    unknown = sorted(set(metrics) - set(scores["metric"]))
    if unknown:
        raise StoreError(
            f"{directory}: no cell has a score {', '.join(unknown)}; "
            f"expected some of {', '.join(sorted(set(scores['metric'])))}"
        )
    if metrics:
        scores = scores[scores["metric"].isin(list(metrics))]
    cells = cells.assign(
        ipc=[
            ipc_text(None if pd.isna(ipc) else int(ipc), bool(full))
            for ipc, full in zip(cells["ipc"], cells["full_size"], strict=True)
        ],
        run=str(max(cells["finished_at"], default="")),
    )
    return cells[["key", *IDENTITY, "ipc", *_MEASURED, "run"]].merge(
        scores[["key", "metric", "value", "low", "high"]], on="key"
    )


def read_kept(path: Path) -> pd.DataFrame:
    """Return kept results; refuse a file that is absent or has other columns."""
    table = read_parquet(path.parent, path.name)
    if table is None:
        raise StoreError(f"{path}: no such file; `bench keep DIR -o {path}` writes it")
    missing = sorted(set(COLUMNS) - set(table.column_names))
    if missing:
        raise StoreError(
            f"{path}: the columns {', '.join(missing)} are missing, so it does not hold kept "
            f"results; `bench keep DIR -o {path}` writes it again"
        )
    frame: pd.DataFrame = table.to_pandas()
    return frame
