"""The layer below all charts: colours, files, pages; nothing from a stranger becomes code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from bench.leaderboard.charts import shapes
from bench.leaderboard.charts.chart import (
    COLOURS,
    FORMATS,
    Chart,
    ChartError,
    columns,
    combined,
    library,
    resolved,
    style_sheet,
    to_file,
    to_svg,
)
from bench.leaderboard.charts.sheet import LegendEntry, Sheet, legend, sign
from tests.support.charts import drawing, words

EVIL = "</script><script>alert(1)</script><!--\"'&{{ 7 * 7 }} datum.x \u2028"


def chart(name: str = "real rows", title: str = "one") -> Chart:
    """Two points of a curve."""
    series = (shapes.Series(name, "real"),)
    build = partial(shapes.curves, series, title, "share", (0.0, 1.0), "linear", False)
    data = {"curves": columns(("series", "x", "y"), [(name, 0.0, 0.25), (name, 1.0, 0.75)])}
    return Chart(title, title, title, build, data, {"series": "curve", "x": "x", "y": "y"})


def test_texts_of_strangers_stay_texts() -> None:
    sheet = Sheet()
    figure = sheet.place(chart(EVIL, EVIL), static=True)
    data = sheet.data()
    assert "<script>" not in figure
    assert data.count("<") == 2 and data.count("</script>") == 1
    content = json.loads(data.partition(">")[2].rpartition("<")[0])
    assert content["charts"][0]["data"]["curves"]["series"][0] == EVIL
    assert EVIL not in legend([LegendEntry(EVIL, sign("c0", "circle"), EVIL)])
    drawn = drawing(chart(EVIL, EVIL))
    assert not [part for part in drawn.iter() if part.tag.endswith(("script", "a", "image"))]
    # Vega removes white space at the ends of a text.
    assert any(EVIL.strip() in text.strip() or "alert(1)" in text for text in words(drawn))


def test_a_specification_loads_nothing_and_has_no_code_of_a_stranger() -> None:
    spec = chart(EVIL, EVIL).spec(legend=True, titled=True)
    spec.pop("datasets")

    def expressions(part: Any) -> list[str]:
        if isinstance(part, dict):
            own = [v for k, v in part.items() if k in ("test", "filter", "expr", "calculate")]
            inside = [text for value in part.values() for text in expressions(value)]
            return [text for text in own if isinstance(text, str)] + inside
        return (
            [text for item in part for text in expressions(item)] if isinstance(part, list) else []
        )

    found = expressions(spec)
    assert found
    assert not [text for text in found if "alert" in text]
    text = json.dumps(spec)
    assert not re.search(r'"(url|href|usermeta|signal)":', text)
    assert re.findall(r"https?://[^\"]*", text) == [spec["$schema"]]


def test_charts_of_one_kind_share_a_specification() -> None:
    sheet = Sheet("x-")
    for _ in range(3):
        sheet.place(chart())
    content = json.loads(sheet.data().partition(">")[2].rpartition("<")[0])
    assert len(content["specs"]) == 1
    assert [item["spec"] for item in content["charts"]] == [0, 0, 0]
    assert Sheet().data() == ""


def test_texts_that_repeat_are_written_once() -> None:
    names = ["long name of a column"] * 9
    table = {"series": ["s"] * 9, "x": names, "y": [0.5] * 9}
    repeated = Chart("t", "", "t", chart().build, {"curves": table}, {})
    sheet = Sheet()
    sheet.place(repeated)
    content = json.loads(sheet.data().partition(">")[2].rpartition("<")[0])
    assert content["charts"][0]["data"]["curves"]["x"] == {"texts": names[:1], "at": [0] * 9}


def test_colours_are_one_table() -> None:
    sheet = style_sheet()
    assert "--chart-c0:#0072b2;" in sheet and "--chart-c0:#3d8fe0;" in sheet
    assert "prefers-color-scheme" not in style_sheet(dark=False)
    spec = resolved(chart().spec())
    assert "var(--" not in json.dumps({**spec, "datasets": {}})
    # Data are not touched, whatever they say.
    odd = resolved({"datasets": {"a": [{"x": "var(--chart-c0)"}]}, "fill": "var(--chart-c0)"})
    assert odd == {"datasets": {"a": [{"x": "var(--chart-c0)"}]}, "fill": "#0072b2"}
    assert {pair[0] for pair in COLOURS.values()} >= {"#0072b2", "#d55e00", "#009e73"}


@pytest.mark.parametrize(
    ("kind", "start"), [("pdf", b"%PDF-"), ("svg", b"<svg"), ("png", b"\x89PNG"), ("json", b"{")]
)
def test_files(kind: str, start: bytes) -> None:
    assert kind in FORMATS
    content = to_file(combined([chart(), chart(title="two")]), kind)
    assert content.startswith(start)
    assert b"var(--" not in content
    if kind != "pdf":
        assert content == to_file(combined([chart(), chart(title="two")]), kind)


def test_a_figure_of_several_charts_keeps_their_data_apart() -> None:
    spec = json.loads(to_file(combined([chart("a"), chart("b")]), "json"))
    assert [row["series"] for row in spec["datasets"]["1-curves"]] == ["b", "b"]
    assert len(spec["concat"]) == 2
    with pytest.raises(ChartError, match="not a format"):
        to_file(spec, "gif")


def test_the_same_chart_has_the_same_bytes() -> None:
    assert to_svg(chart()) == to_svg(chart())


def test_the_library_is_one_script_that_ends_no_element() -> None:
    code = library().decode()
    assert "</script" not in code and "<!--" not in code
    assert "vegaEmbed" in code
    assert library() is library()


def test_pages_that_draw_nothing_load_no_altair() -> None:
    code = (
        "import sys, bench.cli.main, bench.leaderboard.pages.site;"
        "import bench.leaderboard.charts.gallery;"
        "print([n for n in ('altair', 'vl_convert') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
