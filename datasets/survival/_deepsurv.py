"""The survival files of the DeepSurv experiments: HDF5 with the groups `train` and `test`.

Each group holds `x` (one row per patient, float32), `t` (time) and `e` (1 event, 0 censored),
without names. What the columns are was established by matching rows with the original studies where
those are open, and is stated in each dataset's module. DeepSurv's random cut into train and test is
not used: the harness splits all rows itself.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import DataError, FileSource, read_bytes

Floats: TypeAlias = npt.NDArray[np.float64]

GROUPS = ("train", "test")


@final
@dataclass(frozen=True)
class PatientArrays:
    """One group of a file, with one row per patient in each array."""

    features: Floats
    times: Floats
    events: Floats


class DeepSurvFile(FileSource):
    """One HDF5 file; a subclass names its columns and what their codes stand for."""

    file: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """Names for the columns of `x`, in order."""
    codes: ClassVar[Mapping[str, tuple[str, ...]]]
    """For categorical columns: what 0, 1, ... stand for."""

    @abstractmethod
    def table(self, groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """Make the dataset from its decoded groups."""

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        where = str(paths[self.file])
        groups = read_groups(read_bytes(paths[self.file], self.file), where, len(self.columns))
        return self.table(
            {name: self._decoded(group, f"{where}: {name}") for name, group in groups.items()}
        )

    def _decoded(self, group: PatientArrays, where: str) -> pd.DataFrame:
        frame = pd.DataFrame(group.features, columns=pd.Index(self.columns))
        for name, meanings in self.codes.items():
            text = frame[name].map({float(code): text for code, text in enumerate(meanings)})
            if text.isna().any():
                strange = frame.loc[text.isna(), name].iloc[0]
                raise DataError(
                    f"{where}: {name} is {strange:g} in {int(text.isna().sum())} rows, expected "
                    f"codes 0 to {len(meanings) - 1}; not DeepSurv's file?"
                )
            frame[name] = text
        frame["time"] = group.times
        frame["event"] = group.events.astype(np.int64)
        return frame


def pooled(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Join both groups, one after the other."""
    return pd.concat([groups[name] for name in GROUPS], ignore_index=True)


def read_groups(content: bytes, where: str, width: int) -> dict[str, PatientArrays]:
    """Read and check both groups of a file with `width` columns."""
    try:
        import h5py
    except ImportError:
        raise DataError(
            f"{where}: reading HDF5 needs h5py; run `pip install 'dp-release-bench[files]'`"
        ) from None
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            arrays = {
                (group, part): _array(file, f"{group}/{part}", where)
                for group in GROUPS
                for part in ("x", "t", "e")
            }
    except OSError as problem:
        raise DataError(
            f"{where}: not a whole HDF5 file ({problem}); obtain the file again"
        ) from None
    groups = {
        name: PatientArrays(arrays[name, "x"], arrays[name, "t"], arrays[name, "e"])
        for name in GROUPS
    }
    for name, group in groups.items():
        _check(group, f"{where}: {name}", width)
    return groups


def _array(file: Any, name: str, where: str) -> Floats:
    # `get` on a missing group gives None; a group in place of a dataset has no dtype.
    item = file.get(name)
    kind = getattr(getattr(item, "dtype", None), "kind", "")
    if kind not in ("f", "i", "u"):
        raise DataError(f"{where}: holds no numbers {name!r}; expected train and test with x, t, e")
    return np.asarray(item, dtype=np.float64)


def _check(group: PatientArrays, where: str, width: int) -> None:
    rows = len(group.times) if group.times.ndim == 1 else -1
    if group.features.shape != (rows, width) or group.events.shape != (rows,):
        raise DataError(
            f"{where}: x {group.features.shape}, t {group.times.shape}, e {group.events.shape}; "
            f"expected x of n rows and {width} columns, t and e of n"
        )
    if not (np.isfinite(group.features).all() and np.isfinite(group.times).all()):
        raise DataError(f"{where}: missing or infinite values, expected none")
    if (group.times < 0).any():
        raise DataError(f"{where}: {int((group.times < 0).sum())} negative times")
    if not np.isin(group.events, (0, 1)).all():
        raise DataError(f"{where}: events other than 0 and 1")
