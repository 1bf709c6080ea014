"""Puts charts into a page: figures, legends that filter, and the data that the page's script draws.

Charts of a page share specifications: those that are equal are written once. Everything that a
figure says is text or data; `<` is escaped in data, so that no text of a run ends the element that
holds it. A chart with `static=True` is also drawn here, for readers without scripts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from markupsafe import Markup

from bench.leaderboard.charts.chart import (
    CONFIG,
    LIGHT,
    SHAPES,
    Chart,
    Columns,
    colour,
    style_sheet,
    to_svg,
)

SCRIPT = "charts.js"
"""Script of pages with charts; it loads `LIBRARY`, which is the same for all pages."""
LIBRARY = "vega.js"


@final
@dataclass(frozen=True)
class LegendEntry:
    """One series with its sign."""

    name: str
    sign: Markup
    tag: str = ""
    """A word behind the name."""


class Sheet:
    """The charts of one page, in the order in which they are placed."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._specs: dict[str, int] = {}
        self._charts: list[str] = []

    @property
    def size(self) -> int:
        """Number of characters that the data of the page have so far."""
        return sum(map(len, self._specs)) + sum(map(len, self._charts))

    def place(self, chart: Chart, *, static: bool = False, heading: bool = True) -> Markup:
        """Return the figure of a chart; its data go to `data`."""
        spec = json.dumps(chart.build(False), separators=(",", ":"))
        number = self._specs.setdefault(spec, len(self._specs))
        content = {
            "spec": number,
            "data": {name: _compact(table) for name, table in chart.data.items()},
            "headings": chart.headings,
            "title": f"{chart.title} {chart.subject}".strip(),
        }
        name = f"{self._prefix}{len(self._charts)}"
        self._charts.append(json.dumps(content, separators=(",", ":"), ensure_ascii=False))
        caption = Markup("")
        if heading and (chart.title or chart.subject):
            caption = Markup(
                '<figcaption><b class="name">{}</b> <span class="faint">{}</span></figcaption>'
            ).format(chart.title, chart.subject)
        drawn = Markup("")
        if static:
            # Vega escapes all texts of a drawing, and draws no links. The page has the legend.
            svg = Markup(to_svg(chart, legend=False))
            drawn = Markup("<noscript>{}</noscript>").format(svg)
        note = Markup('<p class="chart-note">{}</p>').format(chart.note) if chart.note else ""
        return Markup(
            '<figure class="chart" data-chart="{}" data-group="{}">{}'
            '<div class="plot" role="img" aria-label="{}" style="min-height:{}px"></div>{}{}{}'
            "</figure>"
        ).format(name, chart.group, caption, chart.text, _height(spec), drawn, note, chart.details)

    def data(self) -> Markup:
        """Return the specifications and data of all placed charts; nothing without charts."""
        if not self._charts:
            return Markup("")
        shared = json.dumps({"config": CONFIG, "light": LIGHT}, separators=(",", ":"))
        specs, charts = ",".join(self._specs), ",".join(self._charts)
        text = f'{shared[:-1]},"specs":[{specs}],"charts":[{charts}]}}'
        block = '<script type="application/json" class="charts" data-prefix="{}">{}</script>'
        return Markup(block).format(self._prefix, Markup(text.replace("<", "\\u003c")))


def _compact(table: Columns) -> dict[str, Any]:
    """Return a table in which texts that repeat are written once, and numbered."""
    written: dict[str, Any] = {}
    for name, values in table.items():
        distinct = dict.fromkeys(values)
        written[name] = values
        if len(values) > 3 * len(distinct) and all(isinstance(text, str) for text in distinct):
            numbers = {text: number for number, text in enumerate(distinct)}
            written[name] = {"texts": list(distinct), "at": [numbers[text] for text in values]}
    return written


def _height(spec: str) -> int:
    """Return the height of a chart with its axis, so that pages do not jump while they load."""
    height = json.loads(spec).get("height", 200)
    return int(height) + 44 if isinstance(height, int | float) else 200


def style() -> str:
    """Return the colours of charts, for the style sheet of a page."""
    return style_sheet()


def legend(entries: Sequence[LegendEntry], *more: Markup) -> Markup:
    """Return a legend; with the script, a series can be chosen, and the others become faint."""
    item = Markup(
        '<li><button type="button" data-series="{}" aria-pressed="false">{} '
        '<span class="name">{}</span></button>{}</li>'
    )
    tag = Markup(' <span class="tag">{}</span>')
    items = [
        item.format(
            entry.name,
            entry.sign,
            entry.name,
            tag.format(entry.tag) if entry.tag else "",
        )
        for entry in entries
    ]
    items += [Markup("<li>{}</li>").format(text) for text in more]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def sign(hue: str, shape: str = "", dashes: Iterable[int] = (), *, hollow: bool = False) -> Markup:
    """Return the sign of a series: a piece of its line with its marker."""
    marker = Markup("")
    if shape:
        marker = Markup(
            '<path transform="translate(15 7) scale(8)" d="{}" fill="{}" stroke="{}" '
            'stroke-width="0.17"/>'
        ).format(SHAPES[shape], colour("page") if hollow else colour(hue), colour(hue))
    return Markup(
        '<svg class="sign" viewBox="0 0 30 14" aria-hidden="true"><path d="M1 7H29" fill="none" '
        'stroke="{}" stroke-width="1.8" stroke-dasharray="{}"/>{}</svg>'
    ).format(colour(hue), " ".join(map(str, dashes)), marker)
