"""Fills templates, names the pages of the site and writes them."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, final

import jinja2
from markupsafe import Markup

from bench.errors import StoreError
from bench.leaderboard.charts import sheet
from bench.leaderboard.tables import show
from bench.results.opening import read_text
from bench.results.writing import FOR_ALL, OWNER_FOLDER, OWNER_ONLY, create, writing


@final
@dataclass(frozen=True)
class Page:
    """One file of the site."""

    path: str
    """Relative to the site's folder, with forward slashes."""
    content: bytes


def page(path: str, template: str, *, scripts: Sequence[str] = (), **values: Any) -> Page:
    """Return a page from a template that extends `layout.html`.

    `scripts` names the template files that become the page's one script, in this order; its policy
    forbids every other; with `charts.js` among them, it may load the library of charts beside it.
    Links in a template are written `{{ up }}{{ path }}`: `up` leads back to
    the site's folder.
    """
    templates = environment()
    code = _script(scripts)
    charts = sheet.SCRIPT in scripts
    look = [asset("page.css"), *([sheet.style(), asset("charts.css")] if charts else [])]
    content = templates.get_template(template).render(
        up="../" * path.count("/"),
        style=Markup("\n".join(look)),
        chart_library=sheet.LIBRARY if charts else "",
        script=Markup(code),
        script_digest=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
        **values,
    )
    return Page(path, content.encode())


def _script(names: Sequence[str]) -> str:
    """Return all files in one function, so that they share names and add none to the page."""
    if not names:
        return ""
    return "\n".join(['"use strict";', "(() => {", *map(asset, names), "})();", ""])


def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    loader = environment().loader
    if loader is None:
        raise TypeError("the template environment has no loader")
    return loader.get_source(environment(), name)[0]


def write(output: Path, pages: Iterable[Page], *, private: bool = False) -> tuple[Path, ...]:
    """Write all files; they appear at the end, when all are whole.

    Files and folders of a `private` site can be read by their owner only. Files that an earlier
    site has left in the folder are removed: its pages may show what this one leaves out.
    """
    waiting: list[tuple[Path, Path]] = []
    pages = tuple(pages)
    kept = {item.path for item in pages}
    mode = OWNER_ONLY if private else FOR_ALL
    try:
        with writing(output, "or give -o another folder"):
            left = _listed(output) - kept
            # First a list of all files, so that the next site knows them whatever ends this one.
            for item in (*pages, Page(LIST, _list(kept | left))):
                path = output / item.path
                _make_folders(output, path.parent, private)
                temporary = path.with_name(f".{path.name}.part")
                waiting.append((temporary, path))
                with create(temporary, mode) as file:
                    file.write(item.content)
            for temporary, path in reversed(waiting):
                os.replace(temporary, path)
            if left:
                for name in sorted(left):
                    (output / name).unlink(missing_ok=True)
                with create(waiting[-1][0], mode) as file:
                    file.write(_list(kept))
                os.replace(*waiting[-1])
    except BaseException:
        for temporary, _ in waiting:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise
    return tuple(path for _, path in waiting)


def _list(names: Iterable[str]) -> bytes:
    return json.dumps({"files": sorted(names)}, indent=0).encode()


def _listed(output: Path) -> set[str]:
    """Return the files of an earlier site in the folder, those alone that are there.

    The list is not trusted: names that lead elsewhere, also by a link, are left out.
    """
    text = read_text(output, LIST) if output.is_dir() else None
    if text is None:
        return set()
    try:
        names = json.loads(text)["files"]
        parts = {name: PurePosixPath(name).parts for name in names}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StoreError(
            f"{output / LIST}: is not the list of the files of a site, as `bench leaderboard` "
            "writes it; remove the folder if it holds a site, or give -o another folder"
        ) from None
    return {
        name
        for name, own in parts.items()
        if own and ".." not in own and not PurePosixPath(name).is_absolute() and len(own) <= 2
        # A link is no file of a site, nor is anything behind one.
        if not output.joinpath(own[0]).is_symlink() and not output.joinpath(name).is_symlink()
        if output.joinpath(name).is_file()
    }


def _make_folders(output: Path, folder: Path, private: bool) -> None:
    """Create the folder of a page; new ones of a private site are closed to others."""
    output.parent.mkdir(parents=True, exist_ok=True)
    place = output
    for part in ("", *folder.relative_to(output).parts):
        place = place / part
        place.mkdir(mode=OWNER_FOLDER if private else 0o777, exist_ok=True)


@functools.cache
def environment() -> jinja2.Environment:
    """Return the template environment with its filters."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("bench.leaderboard", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("number", "whole", "seconds", "epsilon", "epsilon_span", "whole_span"):
        templates.filters[name] = getattr(show, name)
    for name in ("interval", "spread", "ipc", "ipcs", "arrow", "better", "seeds", "coded"):
        templates.filters[name] = getattr(show, name)
    for name in ("share", "percent", "deviation", "mean_rank", "p_value", "short"):
        templates.filters[name] = getattr(show, name)
    templates.globals["place"] = show.place
    templates.globals["rank_interval"] = show.rank_interval
    templates.globals["absent"] = show.ABSENT
    templates.globals["links"] = {
        "FRONT": FRONT,
        "PLOTS": PLOTS,
        "method_path": method_path,
        "dataset_path": dataset_path,
    }
    return templates


# Paths of pages -----------------------------------------------------------------------------------


FRONT = "index.html"
LIST = "site-files.json"
"""Names all files of a site, so that the next one in its folder leaves none of them behind."""
PLOTS = "plots.html"

_HARMLESS = re.compile(r"[^a-z0-9]+")


def method_path(label: str) -> str:
    """Return the path of the page of a method. Names are untrusted: a hash makes paths safe."""
    return f"methods/{_stem(label)}.html"


def dataset_path(dataset: str) -> str:
    """Return the path of the page of a dataset."""
    return f"datasets/{_stem(dataset)}.html"


def cell_path(key: str) -> str:
    """Return the path of the page of a cell, by its key."""
    return f"cells/{_digest(key, 16)}.html"


def _stem(name: str) -> str:
    return f"{_HARMLESS.sub('-', name.lower()).strip('-')[:40]}-{_digest(name, 8)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
