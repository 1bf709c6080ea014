"""Settings of a run that come from the command line or the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from bench.data.files import DATA_VARIABLE
from bench.engine.limits import Asked
from bench.errors import DataError


@final
@dataclass(frozen=True)
class RunOptions:
    """How to run a grid."""

    out: Path
    cpus: int | None = None
    ray_address: str | None = None
    mlflow_uri: str | None = None
    tracking: bool = True
    secure_noise: bool = False
    private_counts: bool = False
    limits: Asked = field(default_factory=Asked)
    ship_code: bool = False
    """True ships this code, and third-party plugins, to the workers of a cluster."""


def use_data_folder(explicit: str | None) -> Path | None:
    """Check the folder with the user's data files and make it known to dataset plugins.

    `--data-dir` wins over the environment variable BENCH_DATA; with neither, plugins look into the
    user's cache folder.
    """
    name = explicit or os.environ.get(DATA_VARIABLE)
    if not name:
        return None
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise DataError(f"data folder {name}: not a folder; name an existing one with --data-dir")
    try:
        os.scandir(folder).close()
    except OSError as problem:
        raise DataError(f"data folder {name}: not readable ({problem.strerror})") from None
    os.environ[DATA_VARIABLE] = str(folder.resolve())
    return folder
