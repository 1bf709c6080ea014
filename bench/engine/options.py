"""Settings of a run, and what `run.json` says about it: what was asked for, how and where.

That is enough to distinguish two runs years later: the source's commit, every installed package (as
one hash), the machine. Nothing in `run.json` decides what is computed; keys do that.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, final

import bench
from bench.data.files import DATA_VARIABLE
from bench.engine import keys
from bench.engine.grid import DEFAULT_DELTA, Grid
from bench.engine.limits import Asked
from bench.errors import DataError, InputError, shortened

_GIT_SECONDS = 10.0
_RAY_ADDRESS = re.compile(
    r"(?:ray://)?(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})"
)
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")


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
    keep_private_rows: bool = False
    """True stores rows without a proven epsilon, in a folder whose name says so."""
    limits: Asked = field(default_factory=Asked)
    ship_code: bool = False
    """True ships this code, and third-party plugins, to the workers of a cluster."""
    published: Path | None = None
    """Published results: their cells are not computed again."""
    skip_failed: bool = False
    """True leaves out the cells too that are published as failed."""
    minutes: float | None = None
    """After this time no cell is started any more."""
    references: str = ""
    """Folder in which workers share what metrics compute from real rows; set by the driver."""

    def __post_init__(self) -> None:
        if self.ray_address:
            check_ray_address(self.ray_address)


def check_ray_address(address: str) -> None:
    """Refuse what no Ray cluster can be at, before anything is planned or written."""
    matched = _RAY_ADDRESS.fullmatch(address)
    if address != "auto" and (matched is None or not 0 < int(matched["port"]) < 65536):
        raise InputError(
            f"Ray address {shortened(address)}: expected HOST:PORT, ray://HOST:PORT or `auto`; "
            "for example 10.0.0.5:6379"
        )


def use_data_folder(explicit: str | None, *, create: bool = False) -> Path | None:
    """Check the folder with the user's data files and make it known to dataset plugins.

    `--data-dir` wins over the environment variable BENCH_DATA; with neither, plugins look into the
    user's cache folder. A command that fills the folder may `create` it.
    """
    name = explicit or os.environ.get(DATA_VARIABLE)
    if not name:
        return None
    try:
        folder = Path(name).expanduser()
        if create and not folder.exists():
            folder.mkdir(parents=True)
        if not folder.is_dir():
            raise DataError(
                f"data folder {name}: not a folder; name an existing one with --data-dir"
            )
        os.scandir(folder).close()
    except (OSError, RuntimeError, ValueError) as problem:  # RuntimeError: `~nobody`
        reason = getattr(problem, "strerror", None) or problem
        wanted = "created" if create else "readable"
        raise DataError(f"data folder {name}: not {wanted} ({reason})") from None
    os.environ[DATA_VARIABLE] = str(folder.resolve())
    return folder


def manifest(grid: Grid, metrics: Sequence[str]) -> dict[str, Any]:
    """Return all that is known when a run starts; the driver adds how long it took."""
    return {
        "grid": grid.name,
        "datasets": [entry.label for entry in grid.datasets],
        "methods": [entry.label for entry in grid.methods],
        "ipc": list(grid.ipc),
        "epsilon": list(grid.epsilon),
        "delta": DEFAULT_DELTA if grid.delta is None else grid.delta,
        "seeds": list(grid.seeds),
        "split": grid.split,
        "split_seeds": list(grid.split_seeds),
        "metrics": list(metrics),
        "left_out": [rule.because for rule in grid.left_out],
        **circumstances(),
    }


def circumstances() -> dict[str, Any]:
    """Return by which code, on which machine and by which command results are computed."""
    return {
        "versions": keys.versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **_source(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": memory_gb(),
        "environment_hash": environment_hash(),
        "command": command_line(sys.argv),
    }


def _source() -> dict[str, Any]:
    """The commit of the installed source; None where that is not a checkout."""
    commit, dirty = git_state(Path(bench.__file__).resolve())
    return {"commit": commit, "dirty": dirty}


def git_state(file: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the checkout that holds a file, and whether it was changed since.

    A package that lies in an ignored folder of a checkout (a virtual environment) is not its
    source: the file itself must be under version control.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", "--", file.name) is None:
        return None, None
    commit = _git(file.parent, "rev-parse", "--verify", "HEAD")
    changes = _git(file.parent, "status", "--porcelain")
    return commit, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it is absent, refuses or hangs."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            capture_output=True,
            check=True,
            encoding="utf-8",
            timeout=_GIT_SECONDS,
            # `git status` would otherwise refresh the index under somebody's commit.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()


def cpu_model(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, as far as the system knows it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return name.group(1).strip() if name else platform.processor() or platform.machine()


def memory_gb() -> float | None:
    """Return the memory of the machine in units of 2**30 bytes."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    return round(size / 2**30, 1)


def environment_hash() -> str:
    """Return one hash of all installed distributions: of sorted `name==version` lines."""
    return hash_of_lines(installed())


def hash_of_lines(lines: Sequence[str]) -> str:
    """Return the hash of an environment's lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def installed() -> list[str]:
    """Return `name==version` of all installed distributions, sorted."""
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"])).lower()
        # What stands first on the path is what is imported.
        versions.setdefault(name, distribution.version)
    return sorted(f"{name}=={version}" for name, version in versions.items())


def command_line(arguments: Sequence[str]) -> str:
    """Return the command as it could be typed again, without passwords in addresses."""
    name = Path(arguments[0]).name if arguments else ""
    return _PASSWORD.sub("***", shlex.join([name, *arguments[1:]]))
