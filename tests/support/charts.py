"""Charts as tests read them: the data of a specification, and the drawing of it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from bench.leaderboard.charts.chart import Chart, rows, to_svg


def table(chart: Chart, name: str) -> list[dict[str, Any]]:
    """The rows of a table of the chart; none where it is not drawn."""
    return list(rows(chart.data[name])) if name in chart.data else []


def texts(chart: Chart, name: str) -> list[str]:
    """The tooltips of a table."""
    return [row["text"] for row in table(chart, name)]


def axis(chart: Chart, channel: str) -> dict[str, Any]:
    """The first axis of a channel that has a title."""
    for layer in chart.build(False)["layer"]:
        found = layer["encoding"].get(channel, {})
        if found.get("title"):
            return dict(found)
    raise AssertionError(channel)


def drawing(chart: Chart) -> ElementTree.Element:
    """The chart as a browser would read it: whatever was put in unescaped breaks it."""
    return ElementTree.fromstring(to_svg(chart))


def words(drawn: ElementTree.Element) -> list[str]:
    """All texts of a drawing."""
    return [
        "".join(part.itertext()) for part in drawn.iter() if part.tag.rpartition("}")[2] == "text"
    ]
