"""Fills templates, names the pages of the site and writes them."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import jinja2
from markupsafe import Markup

from bench.leaderboard.charts import sheet
from bench.leaderboard.tables import show
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

    Files and folders of a `private` site can be read by their owner only.
    """
    waiting: list[tuple[Path, Path]] = []
    try:
        with writing(output, "or give -o another folder"):
            for item in pages:
                path = output / item.path
                _make_folders(output, path.parent, private)
                temporary = path.with_name(f".{path.name}.part")
                waiting.append((temporary, path))
                with create(temporary, OWNER_ONLY if private else FOR_ALL) as file:
                    file.write(item.content)
            for temporary, path in waiting:
                os.replace(temporary, path)
    except BaseException:
        for temporary, _ in waiting:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise
    return tuple(path for _, path in waiting)


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
