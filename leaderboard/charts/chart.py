"""A chart: a Vega-Lite specification, its data, and what it says in words.

Specifications are built with Altair, without data, and are cached: charts that differ in their data
alone share one. Colours are names of a table (`COLOURS`) written as style-sheet variables, so that
one specification serves light pages, dark pages and files. A specification holds no expression,
link or address that comes from data; texts of strangers are values of data or plain titles.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from bench.errors import InputError

Spec = dict[str, Any]
Columns = Mapping[str, Sequence[Any]]
"""A table: columns of equal length."""

# Okabe and Ito's colours, which colour-blind readers can distinguish; without black (the colour of
# the text) and yellow (too faint on white). Lighter on dark pages.
COLOURS: Mapping[str, tuple[str, str]] = {
    "c0": ("#0072b2", "#3d8fe0"),
    "c1": ("#d55e00", "#f07b2e"),
    "c2": ("#009e73", "#1fbf92"),
    "c3": ("#cc79a7", "#e39cc4"),
    "c4": ("#e69f00", "#f0b429"),
    "c5": ("#56b4e9", "#9bd6f7"),
    "text": ("#1b1f24", "#e6e9ec"),
    "faint": ("#59636e", "#9aa4ae"),
    "line": ("#d5dae0", "#353b42"),
    "page": ("#ffffff", "#14171a"),
    "beyond": ("#fde0d4", "#521d07"),
    "real": ("#0072b2", "#56b4e9"),
    "released": ("#c24e00", "#f08c3a"),
    "control": ("#00805c", "#2fc99b"),
    "other": ("#a8528a", "#e29cc7"),
}
"""Colour on light and on dark pages, by name."""

SHAPES: Mapping[str, str] = {
    "circle": "M-.5 0a.5 .5 0 1 0 1 0a.5 .5 0 1 0 -1 0z",
    "square": "M-.45 -.45h.9v.9h-.9z",
    "triangle-up": "M0 -.58L.55 .45H-.55z",
    "diamond": "M0 -.62L.55 0L0 .62L-.55 0z",
    "triangle-down": "M0 .58L.55 -.45H-.55z",
    "cross": "M-.2 -.55h.4v.35h.35v.4h-.35v.35h-.4v-.35h-.35v-.4h.35z",
    "star": "M0 -.65L.2 -.21L.65 -.21L.29 .09L.42 .57L0 .29L-.42 .57L-.29 .09L-.65 -.21L-.2 -.21z",
}
"""Markers in a unit square, for charts and for the signs of legends."""
FAILED = "M-.5 -.5L.5 .5M-.5 .5L.5 -.5"
SKIPPED = "M-.5 0H.5"

PICKED = "picked"
"""Parameter of every specification: the series chosen in a legend; none for all."""
IS_PICKED = f"length({PICKED}) == 0 || indexof({PICKED}, datum.series) >= 0"

_LARGEST = 1e100


def colour(name: str) -> str:
    """Return a colour of the table as it is written in a specification."""
    if name not in COLOURS:
        raise KeyError(name)
    return f"var(--chart-{name})"


LIGHT = {colour(name): light for name, (light, _) in COLOURS.items()}

CONFIG: Spec = {
    "background": None,
    # Each chart has its words beside it; a label for each of a thousand marks helps nobody.
    "aria": False,
    "font": "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": colour("faint"),
        "titleColor": colour("faint"),
        "gridColor": colour("line"),
        "domainColor": colour("faint"),
        "tickColor": colour("faint"),
        "labelFontSize": 11,
        "titleFontSize": 11.5,
        "titleFontWeight": "normal",
        "labelLimit": 118,
        "labelOverlap": "greedy",
    },
    "text": {"color": colour("text"), "fontSize": 11},
    "title": {"color": colour("text"), "fontSize": 12.5, "anchor": "start", "offset": 6},
    "legend": {
        "labelColor": colour("text"),
        "titleColor": colour("faint"),
        "labelFontSize": 11,
        "labelLimit": 270,
        "orient": "bottom",
        "columns": 3,
        "title": None,
    },
}
"""Look of all charts; written once per page."""


@final
@dataclass(frozen=True)
class Chart:
    """A specification, its data, and both in words."""

    title: str
    """What it is about: a dataset, a column."""
    subject: str
    """What is drawn, behind the title."""
    text: str
    """The content in words, for those who do not see it."""
    build: Callable[[bool], Spec]
    """Returns the specification without data, with a legend or without; never changed."""
    data: Mapping[str, Columns]
    """Tables by the names that the specification uses; the first one holds the numbers."""
    headings: Mapping[str, str]
    """Columns of the table of numbers, with their headings."""
    note: str = ""
    """A remark below the chart: what could not be drawn."""
    details: str = ""
    """More about the remark as markup, folded below the chart; empty for nothing."""
    group: str = ""
    """The dataset, where readers can choose one."""

    def spec(self, *, legend: bool = False, titled: bool = False) -> Spec:
        """Return the complete specification, with data and look."""
        spec = dict(self.build(legend))
        spec["datasets"] = {name: list(rows(table)) for name, table in self.data.items()}
        spec["config"] = CONFIG
        spec["description"] = self.text
        if titled:
            spec["title"] = " ".join(part for part in (self.title, self.subject) if part)
        return spec


def finite(value: float | None) -> bool:
    """Return whether an axis can show the value."""
    return value is not None and abs(value) < _LARGEST


def columns(names: Sequence[str], records: Sequence[Sequence[Any]]) -> Columns:
    """Return records as columns, without those that are empty throughout."""
    table = {name: [_plain(record[k]) for record in records] for k, name in enumerate(names)}
    return {name: values for name, values in table.items() if any(v is not None for v in values)}


def array(values: Any) -> list[Any]:
    """Return an array as a list of numbers that a page needs: six digits."""
    return [_plain(float(value)) for value in values]


def _plain(value: Any) -> Any:
    """Return a value for JSON: six digits of a number, and None for what is not finite."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def rows(table: Columns) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table."""
    for record in zip(*table.values(), strict=True):
        yield dict(zip(table, record, strict=True))


def resolved(spec: Any) -> Any:
    """Return a specification with the colours of light pages, for files; data stay as they are."""
    if isinstance(spec, dict):
        return {
            key: value if key in ("datasets", "data") else resolved(value)
            for key, value in spec.items()
        }
    if isinstance(spec, list):
        return [resolved(item) for item in spec]
    return LIGHT.get(spec, spec) if isinstance(spec, str) else spec


def style_sheet(*, dark: bool = True) -> str:
    """Return the colours as variables of a style sheet."""
    light = "".join(f"--chart-{name}:{pair[0]};" for name, pair in COLOURS.items())
    text = f":root{{{light}}}\n"
    if dark:
        night = "".join(f"--chart-{name}:{pair[1]};" for name, pair in COLOURS.items())
        text += f"@media screen and (prefers-color-scheme: dark){{:root{{{night}}}}}\n"
    return text


# Files --------------------------------------------------------------------------------------------


FORMATS = ("pdf", "svg", "png", "json")


def combined(charts: Sequence[Chart], across: int = 3) -> Spec:
    """Return several charts as one figure, the legend with the first."""
    if len(charts) == 1:
        return charts[0].spec(legend=True, titled=True)
    parts: list[Spec] = []
    tables: Spec = {}
    for place, chart in enumerate(charts):
        part = chart.spec(legend=place == 0, titled=True)
        for key in ("config", "$schema", "params"):
            part.pop(key, None)
        names = part.pop("datasets")
        tables |= {f"{place}-{name}": table for name, table in names.items()}
        parts.append(_renamed(part, place))
    return {
        "$schema": schema(),
        "params": [{"name": PICKED, "value": []}],
        "concat": parts,
        "columns": min(across, len(parts)),
        "config": {**CONFIG, "legend": {**CONFIG["legend"], "columns": 2}},
        "datasets": tables,
        "resolve": {"scale": dict.fromkeys(("color", "fill", "stroke", "shape"), "independent")},
    }


def _renamed(part: Any, place: int) -> Any:
    """Return a part of a figure that reads its own tables."""
    if isinstance(part, dict):
        return {
            key: {"name": f"{place}-{value['name']}"} if key == "data" else _renamed(value, place)
            for key, value in part.items()
        }
    return [_renamed(item, place) for item in part] if isinstance(part, list) else part


def to_file(spec: Spec, kind: str) -> bytes:
    """Return a figure as a file of one of `FORMATS`; nothing is fetched."""
    plain = resolved(spec)
    if kind == "json":
        return json.dumps(plain, ensure_ascii=False, indent=1).encode()
    import vl_convert

    plain = {**plain, "background": "white"}
    options: dict[str, Any] = {"vl_version": _version(), "allowed_base_urls": []}
    if kind == "svg":
        return str(vl_convert.vegalite_to_svg(plain, **options)).encode()
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(plain, **options))
    if kind == "png":
        return bytes(vl_convert.vegalite_to_png(plain, scale=2, **options))
    raise ChartError(f"{kind!r} is not a format of charts; one of {', '.join(FORMATS)}")


def to_svg(chart: Chart, *, legend: bool = True) -> str:
    """Return a chart for a page without scripts, in the colours of the page."""
    import vl_convert

    spec = chart.spec(legend=legend)
    # Points that only answer to the mouse.
    spec["layer"] = [
        layer for layer in spec.get("layer", ()) if layer.get("mark", {}).get("opacity") != 0
    ] or spec.pop("layer", [])
    return str(vl_convert.vegalite_to_svg(spec, vl_version=_version(), allowed_base_urls=[]))


@final
class ChartError(InputError):
    """A chart that was asked for cannot be drawn."""


def schema() -> str:
    """Return the address that names the grammar of Altair's specifications; it is never opened."""
    import altair

    return str(altair.SCHEMA_URL)


def _version() -> str:
    """Return the version of Vega-Lite that Altair writes for, as vl-convert names it."""
    import altair

    return ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


@functools.cache
def library() -> bytes:
    """Return Vega, Vega-Lite and Vega-Embed as one script for all pages of a site."""
    import vl_convert

    code = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_version())
    return f"(() => {{\n{code}\n}})();\n".encode()
