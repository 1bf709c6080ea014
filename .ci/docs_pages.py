"""Pages of the documentation that are made while it is built: a hook of MkDocs (mkdocs.yml).

The tutorial is the notebook `docs/tutorial.ipynb`, shown with the outputs that are stored in it;
`python -m tests.support.tutorial` executes it and stores them. A line `<!-- public: MODULE -->` of
a page becomes the documentation of the names of that module in `bench/__init__.py`: the build fails
where one of its modules is on no page.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import bench

NOTEBOOK = "tutorial.ipynb"
_PUBLIC = re.compile(r"^<!-- public: (\S+) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of the tutorial and its pictures; check that the API is complete."""
    notebook = json.loads((Path(config.docs_dir) / NOTEBOOK).read_text(encoding="utf-8"))
    pictures: dict[str, bytes] = {}
    page = "\n\n".join(_parts(notebook["cells"], pictures))
    files.append(File.generated(config, "tutorial.md", content=page))
    for name, content in pictures.items():
        files.append(File.generated(config, name, content=content))
    listed = {
        module
        for path in Path(config.docs_dir, "api").glob("*.md")
        for module in _PUBLIC.findall(path.read_text(encoding="utf-8"))
    }
    if missing := sorted(set(bench.PUBLIC) - listed):
        raise PluginError(f"no page in docs/api has `<!-- public: {missing[0]} -->`")
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the documentation of public names into a page of the API."""
    return _PUBLIC.sub(lambda found: _documented(found[1], page.file.src_uri), markdown)


def _documented(module: str, page: str) -> str:
    if module not in bench.PUBLIC:
        raise PluginError(f"{page}: {module} is not in PUBLIC of bench/__init__.py")
    return "\n\n".join(f"::: bench.{name}" for name in bench.PUBLIC[module].split())


def _parts(cells: list[Mapping[str, Any]], pictures: dict[str, bytes]) -> Iterator[str]:
    """Return the cells of a notebook as Markdown; pictures are added to `pictures` by name."""
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        for output in cell["outputs"]:
            yield _output(output, pictures)


def _output(output: Mapping[str, Any], pictures: dict[str, bytes]) -> str:
    if output["output_type"] == "stream":
        return _plain("".join(output["text"]))
    data = output.get("data", {})
    if "image/png" in data:
        name = f"images/tutorial-{len(pictures) + 1}.png"
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        described = html.escape(output.get("metadata", {}).get("alt", "Chart of the tutorial"))
        return f"![{described}]({name})"
    if "text/html" in data:
        # The style of pandas is for notebooks; ours is in extra.css.
        table = re.sub(
            r"<style.*?</style>|border=\"1\" ", "", "".join(data["text/html"]), flags=re.S
        )
        return f'<div class="output" markdown="0">{table}</div>'
    if "text/plain" in data:
        return _plain("".join(data["text/plain"]))
    raise PluginError(f"{NOTEBOOK}: an output of an unknown kind: {output['output_type']}")


def _plain(text: str) -> str:
    return f"``` {{.text .output}}\n{text.rstrip()}\n```"
