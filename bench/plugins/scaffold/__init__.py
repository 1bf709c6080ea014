"""Writes a working plugin with its test and its documentation: `bench new`."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import final

from bench.errors import InputError
from bench.plugins import registry

KINDS = ("method", "dataset", "metric")

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_CARDS = "docs/methods/index.md"


@final
@dataclass(frozen=True)
class Written:
    """What `bench new` made, and what to do next."""

    created: tuple[str, ...]
    extended: tuple[str, ...]
    next_steps: tuple[str, ...]


def write_plugin(kind: str, name: str, root: Path) -> Written:
    """Write plugin, test and documentation entry into a checkout; refuse to overwrite anything."""
    _check(kind, name, root)
    module = name.replace("-", "_")
    words = {
        "name": name,
        "module": module,
        "title": name.replace("-", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in name.split("-")),
    }
    files = _files(kind, module)
    taken = [path for path in files if (root / path).exists()]
    if taken:
        raise InputError(f"{', '.join(taken)}: already there; choose another name or delete it")
    for path, template in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(template, words), encoding="utf-8")
    extended = _document(kind, words, root)
    return Written(tuple(files), extended, _next_steps(kind, name, module))


def _check(kind: str, name: str, root: Path) -> None:
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no kind of plugin; there are {', '.join(KINDS)}")
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be a name: lower-case letters and digits, parts joined by a hyphen "
            "(my-method); it becomes a file name and stands in result tables"
        )
    if not all((root / folder).is_dir() for folder in ("methods", "datasets", "metrics", "tests")):
        raise InputError(
            f"{root} is no checkout of this repository; go to its root, or give --root. (A package "
            "of your own announces plugins by entry points: see CONTRIBUTING.md)"
        )
    known: Mapping[str, Callable[[], tuple[str, ...]]] = {
        "method": registry.method_names,
        "dataset": registry.dataset_names,
        "metric": registry.metric_names,
    }
    if name in known[kind]():
        raise InputError(f"there is a {kind} {name!r} already; choose another name")


def _files(kind: str, module: str) -> dict[str, str]:
    folder = f"{kind}s"
    files = {f"{folder}/{module}.py": f"{kind}.py.txt"}
    if kind == "dataset":
        files[f"{folder}/{module}.toml"] = "dataset.toml.txt"
    files[f"tests/{folder}/test_{module}.py"] = f"{kind}_test.py.txt"
    return files


def _filled(template: str, words: Mapping[str, str]) -> str:
    text = resources.files(__package__).joinpath("templates", template).read_text(encoding="utf-8")
    return string.Template(text).substitute(words)


def _document(kind: str, words: Mapping[str, str], root: Path) -> tuple[str, ...]:
    """The card of a method; those of datasets and metrics are made from the plugins."""
    if kind != "method":
        return ()
    page = root / _CARDS
    if not page.is_file():
        return ()
    lines = page.read_text(encoding="utf-8").splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("| [`"))
    row = "| [`{name}`](#{name}) | {title} | yes | `sound` |".format(**words)
    lines.insert(last + 1, row)
    text = "\n".join(lines) + "\n" + _filled("method_card.md.txt", words)
    page.write_text(text, encoding="utf-8")
    return (_CARDS,)


def _next_steps(kind: str, name: str, module: str) -> tuple[str, ...]:
    test = f"pytest tests/{kind}s/test_{module}.py"
    run = f"bench run --methods {name},marginals,real --datasets breast-cancer --out runs/{name}"
    board = f"bench leaderboard runs/{name} -o site"
    if kind == "method":
        return (f"bench check {name}", test, run, board)
    if kind == "dataset":
        run = run.replace(f"--methods {name},marginals,real", "--methods marginals,real")
        return ("make cards", test, run.replace("breast-cancer", name), board)
    run = f"bench run --grid smoke --metrics {name} --out runs/{name}"
    return ("make cards", test, run, board)
