"""Writes a working plugin with its test and its documentation: `bench new`.

The files are in `templates/`; a template may use `$name`, `$module`, `$title`, `$class_name`,
`$family` and `$package`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import final

from bench.errors import InputError, shortened
from bench.plugins import registry

KINDS = ("method", "dataset", "metric")
DEFAULT_GROUPS: Mapping[str, str] = {"method": "", "dataset": "tables", "metric": "fidelity"}
"""Folder below `methods/`, `datasets/` or `metrics/` where a new plugin is put."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME = 60
_CARDS = "docs/methods/index.md"
_FAMILIES = ("utility", "fidelity", "privacy", "cost")


@final
@dataclass(frozen=True)
class Written:
    """What `bench new` made, and what to do next."""

    created: tuple[str, ...]
    extended: tuple[str, ...]
    next_steps: tuple[str, ...]


def write_plugin(
    kind: str,
    name: str,
    root: Path,
    *,
    group: str | None = None,
    as_folder: bool = False,
    wraps: bool = False,
) -> Written:
    """Write plugin, test and documentation entry into a checkout, overwriting nothing.

    `group` is the folder below `methods/`, `datasets/` or `metrics/`. A method `as_folder` has a
    folder that holds the plugin beside a module of its parts. One that `wraps` a library is fitted
    on a data frame.
    """
    _check(kind, name, root, as_folder)
    if wraps and (kind != "method" or as_folder):
        raise InputError("--wrap writes a method in one file; leave out --folder and other kinds")
    group = _checked_group(kind, group, root)
    module = name.replace("-", "_")
    place = "/".join(part for part in (f"{kind}s", group, module if as_folder else "") if part)
    words = {
        "name": name,
        "module": module,
        "title": name.replace("-", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in name.split("-")),
        "family": (group if group in _FAMILIES else DEFAULT_GROUPS["metric"]).upper(),
        "package": f"bench.{place.replace('/', '.')}",
    }
    test = f"tests/{place}/test_{module}.py"
    template = "wrapped_method" if wraps else kind
    files = _files(kind, place, module, as_folder) | {test: f"{template}_test.py.txt"}
    if wraps:
        files[f"{place}/{module}.py"] = "wrapped_method.py.txt"
    taken = [path for path in files if (root / path).exists()]
    if taken:
        raise InputError(f"{', '.join(taken)}: already there; choose another name or delete it")
    for path, template in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(template, words), encoding="utf-8")
    extended = _document(kind, words, root, "unproven" if wraps else "sound")
    return Written(tuple(files), extended, _next_steps(kind, name, test))


def _check(kind: str, name: str, root: Path, as_folder: bool) -> None:
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no kind of plugin; there are {', '.join(KINDS)}")
    if as_folder and kind != "method":
        raise InputError(f"a {kind} is one file; only a method can be a folder")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InputError(
            f"{shortened(name)} cannot be a name: lower-case letters and digits, parts joined by a "
            f"hyphen (my-method), at most {_LONGEST_NAME} characters; it becomes a file name and a "
            "key of result tables"
        )
    if not all((root / folder).is_dir() for folder in ("methods", "datasets", "metrics", "tests")):
        raise InputError(
            f"{root} is no checkout of this repository; go to its root, or give --root. (A "
            "third-party package announces plugins by entry points: see CONTRIBUTING.md)"
        )
    names: Mapping[str, Callable[[], tuple[str, ...]]] = {
        "method": registry.method_names,
        "dataset": registry.dataset_names,
        "metric": registry.metric_names,
    }
    if name in names[kind]():
        raise InputError(f"there is a {kind} {name!r} already; choose another name")


def _checked_group(kind: str, group: str | None, root: Path) -> str:
    """Return the folder of the plugin below that of its kind; it must be there."""
    if group is None:
        return DEFAULT_GROUPS[kind]
    groups = sorted(
        path.name
        for path in (root / f"{kind}s").iterdir()
        if path.is_dir() and not path.name.startswith(("_", "."))
    )
    if group not in groups:
        raise InputError(f"no folder {kind}s/{group}; there are {', '.join(groups) or 'none'}")
    return group


def _files(kind: str, place: str, module: str, as_folder: bool) -> dict[str, str]:
    """Return the templates of a plugin by the path of the file made from them."""
    if as_folder:
        return {
            f"{place}/__init__.py": "method_folder_init.py.txt",
            f"{place}/{module}.py": "method_folder.py.txt",
            f"{place}/_moments.py": "method_folder_part.py.txt",
        }
    files = {f"{place}/{module}.py": f"{kind}.py.txt"}
    if kind == "dataset":
        files[f"{place}/{module}.toml"] = "dataset.toml.txt"
    return files


def _filled(template: str, words: Mapping[str, str]) -> str:
    text = resources.files(__package__).joinpath("templates", template).read_text(encoding="utf-8")
    return string.Template(text).substitute(words)


def _document(
    kind: str, words: Mapping[str, str], root: Path, verdict: str = "sound"
) -> tuple[str, ...]:
    """Add the card of a method; those of datasets and metrics are made from the plugins."""
    page = root / _CARDS
    if kind != "method" or not page.is_file():
        return ()
    lines = page.read_text(encoding="utf-8").splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("| [`"))
    row = "| [`{name}`](#{name}) | {title} | yes | `{verdict}` |".format(**words, verdict=verdict)
    lines.insert(last + 1, row)
    text = "\n".join(lines) + "\n" + _filled("method_card.md.txt", words)
    page.write_text(text, encoding="utf-8")
    return (_CARDS,)


def _next_steps(kind: str, name: str, test: str) -> tuple[str, ...]:
    run = {
        "method": f"--methods {name},marginals,real --datasets breast-cancer",
        "dataset": f"--methods marginals,real --datasets {name}",
        "metric": f"--grid smoke --metrics {name}",
    }[kind]
    shown = "# it is in leaderboard.csv and on cell pages; `shown = True` puts it on the front page"
    return (
        f"bench check {name}" if kind == "method" else "make cards",
        f"pytest {test}",
        f"bench run {run} --out runs/{name}",
        f"bench leaderboard runs/{name} -o site",
        *((shown,) if kind == "metric" else ()),
    )
