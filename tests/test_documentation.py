"""The documentation: what is built loads nothing from elsewhere, and says what is so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import bench
from tests.support import browser
from tests.support.places import ROOT

LOADED = {
    "src": ("script", "img", "iframe", "source", "video", "audio", "embed", "input", "track"),
    "href": ("link", "image", "use"),
    "srcset": ("img", "source"),
    "data": ("object",),
    "action": ("form",),
}
"""Attributes, and the elements whose browser loads what they name; links of `a` are not loaded."""
FOREIGN = re.compile(r"^\s*(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", re.IGNORECASE)


class Loads(HTMLParser):
    """Addresses that a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._style = tag == "style"
        for name, value in attrs:
            if tag in LOADED.get(name, ()) and (tag, name) != ("link", "canonical"):
                self.found += (
                    re.split(r"\s*,\s*", value or "") if name == "srcset" else [value or ""]
                )
            if name == "style":
                self.found += styled(value or "")

    def handle_data(self, data: str) -> None:
        if self._style:
            self.found += styled(data)

    def handle_endtag(self, tag: str) -> None:
        self._style = False


def styled(text: str) -> list[str]:
    """Return the addresses that a style sheet loads."""
    return [one or other for one, other in IN_STYLE.findall(text)]


def foreign(text: str, kind: str) -> list[str]:
    """Return what a page or a style sheet loads from another host."""
    loads = Loads(text).found if kind == ".html" else styled(text)
    return [address for address in loads if FOREIGN.match(address)]


@pytest.mark.parametrize(
    "text, kind",
    [
        ('<script src="https://unpkg.com/x"></script>', ".html"),
        ('<link rel="stylesheet" href="//fonts.googleapis.com/css">', ".html"),
        ('<img srcset="a.png, https://elsewhere/b.png 2x">', ".html"),
        ("<style>body { background: url(https://elsewhere/x.png) }</style>", ".html"),
        ("<p style=\"background: url('http://elsewhere/x.png')\">", ".html"),
        ("@import 'https://elsewhere/x.css';", ".css"),
    ],
)
def test_what_is_loaded_from_another_host_is_found(text: str, kind: str) -> None:
    assert foreign(text, kind)
    assert not foreign(re.sub(r"(https?:)?//[a-z.]+/", "", text), kind)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built where no network is."""
    folder = tmp_path_factory.mktemp("documentation")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_the_built_documentation_loads_nothing_from_another_host(built: Path) -> None:
    files = [path for path in built.rglob("*") if path.suffix in (".html", ".css")]
    assert len(files) > 40
    found = {
        str(path.relative_to(built)): loads
        for path in files
        if (loads := foreign(path.read_text(encoding="utf-8"), path.suffix))
    }
    assert found == {}
    # The theme fetches these where a page asks for them.
    pages = [path.read_text(encoding="utf-8") for path in files if path.suffix == ".html"]
    assert not any(
        'class="mermaid"' in page or "data-md-component=source" in page for page in pages
    )


def test_every_public_name_is_documented_once(built: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted((built / "api").glob("*.html"))]
    for name in bench.__all__:
        headings = sum(page.count(f'id="bench.{name}"') for page in pages)
        assert headings == 1, name


@pytest.mark.parametrize("width", browser.WIDTHS)
def test_pages_open_from_the_disk_and_the_search_finds_something(built: Path, width: int) -> None:
    with (
        browser.started() as chromium,
        browser.visited(chromium, built / "index.html", width) as visit,
    ):
        page = visit.page
        for name in ("api/runs.html", "tutorial.html", "glossary.html", "tracking.html"):
            page.goto((built / name).as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} pixels wide"
        # A narrow page has a button that opens the field.
        field = "[data-md-component=search-query]"
        page.click(field if width > 1000 else "header label.md-header__button[for=__search]")
        page.keyboard.type("epsilon")
        page.wait_for_selector(".md-search-result__item")
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith(("file:", "data:"))] == []


# The tutorial -----------------------------------------------------------------------------------


def test_the_tutorial_prints_what_is_stored() -> None:
    command = [sys.executable, str(ROOT / ".ci" / "tutorial.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stored_tutorial_names_no_folder_and_no_user() -> None:
    notebook = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        assert cell["metadata"] == {} and cell.get("execution_count") is None
        for output in cell.get("outputs", ()):
            data = {**output.get("data", {}), "stream": output.get("text", "")}
            text = "".join("".join(data[kind]) for kind in data if kind != "image/png")
            assert not re.search(r"/(?:home|root|tmp|work|Users)/|\.venv", text)


# Citing, and the words --------------------------------------------------------------------------


def citation() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def test_the_citation_file_has_what_its_format_requires() -> None:
    """Citation File Format 1.2.0; `cffconvert --validate` says so, too, and needs no network."""
    document = citation()
    assert {"cff-version", "message", "title", "authors"} <= set(document), "required"
    known = {"cff-version", "message", "title", "authors", "type", "abstract", "version", "license"}
    assert set(document) <= {*known, "keywords", "date-released", "doi", "repository-code", "url"}
    assert document["cff-version"] == "1.2.0" and document["type"] in ("software", "dataset")
    assert all(set(author) & {"name", "family-names"} for author in document["authors"])
    assert all(isinstance(word, str) for word in document["keywords"])


def test_the_citation_is_that_of_this_version_everywhere() -> None:
    document = citation()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert str(document["version"]) == bench.__version__
    assert document["license"] == project["license"]
    blocks = [
        re.findall(r"```bibtex\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
        for name in ("README.md", "docs/citing.md")
    ]
    assert blocks[0] == blocks[1] and len(blocks[0]) == 1
    (block,) = blocks[0]
    fields = dict(re.findall(r"(\w+)\s*= \{+(.*?)\}+,?\n", block))
    assert fields["title"] == document["title"]
    assert fields["author"] == document["authors"][0]["name"]
    assert (fields["version"], fields["license"]) == (document["version"], document["license"])


def documents() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    yield from sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize(
    "words",
    ["told apart", "tell apart", "raw look", "beware", "hang on", "is held at", "entrant", "mend"],
)
def test_documents_use_the_words_of_the_field(words: str) -> None:
    found = [
        path.name
        for path in documents()
        if re.search(rf"\b{words}\b", path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert found == []


def test_the_readme_opens_with_the_two_commands() -> None:
    first = (ROOT / "README.md").read_text(encoding="utf-8").split("```")[1]
    assert re.findall(r"^make (\w+)", first, re.MULTILINE) == ["quick", "test"]
