"""Sends this code, and third-party plugins, to the workers of a cluster.

Workers then import what the driver imports, whatever is installed where they run: a change in a
method needs no new image, and results carry the hash of the source that made them. Libraries
(torch, pandas, ...) are not sent: they must be installed there, in the driver's versions.

Ray is given a folder as `working_dir`, laid out as importable packages. It names the folder by its
content, so that a second run sends nothing, and puts it first on the path of the workers. The other
way, `py_modules`, leaves the driver's current folder before them on that path: a worker that shares
the disk would import `bench` from a checkout in which the driver happens to be started.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.metadata
import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import Any

import bench
from bench.engine.code import PLUGIN_GROUPS, distribution_modules
from bench.errors import InputError

FOLDERS = ("methods", "datasets", "metrics", "leaderboard")
"""Packages below `bench` that lie beside it in the source."""

_LIMIT_MB = 200
"""Ray takes up to 500 MiB; code of that size is a mistake: data, or an environment."""
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.pyo", ".*", "*.egg-info")


def runtime_env(folder: Path | None = None) -> dict[str, Any]:
    """What `ray.init` is given; `folder` is where the code is laid out, by default a temporary one.

    Ray reads it while it starts, so that the temporary one lives as long as this process.
    """
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="bench-code-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _stage_bench(folder / "bench")
    for distribution in plugin_distributions():
        _stage_distribution(distribution, folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
    if size > _LIMIT_MB:
        largest = max(folder.iterdir(), key=_size)
        raise InputError(
            f"the code to send has {size:,.0f} MB, most of it in {largest.name!r}; up to "
            f"{_LIMIT_MB} MB are sent. Install that package on the workers, without --ship-code"
        )
    return {"working_dir": str(folder)}


def plugin_distributions() -> list[importlib.metadata.Distribution]:
    """Installed distributions that announce plugins, each once, as the driver would load them."""
    distributions: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions():
        groups = {point.group for point in distribution.entry_points}
        if groups & set(PLUGIN_GROUPS):
            # What stands first on the path is what is imported.
            distributions.setdefault(distribution.name, distribution)
    return list(distributions.values())


def _stage_bench(target: Path) -> None:
    (root,) = bench.__path__
    _copy(Path(root), target)
    for name in FOLDERS:
        # In an installed wheel they lie in the package, in an editable install elsewhere.
        (source,) = importlib.import_module(f"bench.{name}").__path__
        _copy(Path(source), target / name)


def _stage_distribution(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    announced = {
        point.value.split(":")[0].split(".")[0]
        for point in distribution.entry_points
        if point.group in PLUGIN_GROUPS
    }
    modules = sorted({*announced, *distribution_modules(distribution)} - {"bench"})
    for module in modules:
        places = _places(module)
        if not places and module in announced:
            raise InputError(
                f"plugin package {distribution.name}: its module {module!r} cannot be found to be "
                "sent to the workers; install the package again"
            )
        for place in places:
            _copy(place, folder / (module if place.is_dir() else place.name))
    # Written anew, not copied: it works for eggs and editable installs too, and RECORD would list
    # files that are not sent.
    name = distribution.name.replace("-", "_")
    information = folder / f"{name}-{distribution.version}.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution.name}\nVersion: {distribution.version}\n",
        encoding="utf-8",
    )
    # Hashes of code count the modules that a distribution lists.
    (information / "top_level.txt").write_text("\n".join(modules), encoding="utf-8")
    points = distribution.read_text("entry_points.txt") or ""
    (information / "entry_points.txt").write_text(points, encoding="utf-8")


def _places(module: str) -> list[Path]:
    """The file or folders of a top-level module, which is not imported for that."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=_LEFT_OUT, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
