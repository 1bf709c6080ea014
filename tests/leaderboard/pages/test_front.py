"""Columns of the front page, without a browser: data and drawing know every one of them."""

from __future__ import annotations

import json
import re

from bench.leaderboard.pages import front
from bench.leaderboard.templates import rendering

OTHER_DATA = {"method": "label", "rank": "group"}
"""Columns whose entry in `_facts` has another name; ranks are computed among the rows shown."""
BY_MODEL = ("utility", "ratio", "deviation")
"""Columns whose data depends on the selected model: parts of `_utilities`."""


def plain_columns() -> list[str]:
    return [column.name for column in front.columns((), frozenset()) if not column.metric]


def test_every_column_has_data() -> None:
    tables = {
        name: front.Vocabulary()
        for name in ("texts", "labels", "datasets", "tasks", "ipcs", "targets", "kinds", "seeds")
    }
    facts = front._facts((), tables)
    names = [OTHER_DATA.get(name, name) for name in plain_columns() if name not in BY_MODEL]
    assert names and not [name for name in names if name not in facts]


def test_every_column_is_drawn() -> None:
    script = rendering.asset("front_rows.js")
    block = re.search(r"^const fill = \{\n(.*?)^\};", script, re.DOTALL | re.MULTILINE)
    assert block is not None
    drawn = set(re.findall(r"^  (\w+)(?::|\()", block[1], re.MULTILINE))
    loop = re.search(r"for \(const name of (\[.*?\])\) \{\n  fill\[name\]", script)
    assert loop is not None
    drawn |= set(json.loads(loop[1]))
    assert set(plain_columns()) == drawn
