"""Reads the front page as its script does: from the markup, and from the data block."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, final


@final
@dataclass(frozen=True)
class FrontRow:
    """One row of the results, decoded."""

    facts: Mapping[str, float | None]
    """Numbers of the row by name; absent ones are None."""
    words: Mapping[str, str]
    """Texts and names by what they say."""
    utility: Mapping[str, float | None]
    """Of the headline metric."""
    seeds: Mapping[str, float | None]
    """Utility by repetition; empty for a row that cannot be ranked."""
    measures: Mapping[str, Mapping[str, Any]]
    """Every other metric that the table shows."""
    detail: Mapping[str, str]
    """What is shown when the row is opened."""
    pages: tuple[str, ...]


@final
class FrontPage(HTMLParser):
    """Tags, scripts and text of the page, and the rows of its data block."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.script = ""
        self.text = ""
        """Without scripts and styles."""
        self.block = ""
        self._within = ""
        self.feed(text)
        self.data: dict[str, Any] = json.loads(self.block) if self.block else {}
        self.rows = tuple(map(self._row, range(self._count())))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self._within = tag if tag in ("script", "style") else ""
        if tag == "script" and attributes.get("type") == "application/json":
            self._within = "data" if attributes.get("id") == "data" else "charts"

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "data":
            self.block += data
        elif self._within == "script":
            self.script += data
        elif not self._within:
            self.text += data

    @property
    def plain(self) -> str:
        """The text in one line."""
        return " ".join(self.text.split())

    def row(self, label: str, dataset: str, target: float | None) -> FrontRow:
        """The one row of a method, dataset and target epsilon."""
        (found,) = [
            row
            for row in self.rows
            if (row.words["label"], row.words["dataset"]) == (label, dataset)
            and row.facts["target"] == target
        ]
        return found

    def _count(self) -> int:
        return len(self.data["rows"]["label"].split(",")) if self.data else 0

    def _row(self, place: int) -> FrontRow:
        data, columns = self.data, self.data["rows"]
        at = {name: text.split(",")[place] for name, text in columns.items() if name != "detail"}
        texts = ("verdict", "why", "warned", "variant", "barred")
        words = {name: data["texts"][int(at.pop(name))] for name in texts}
        words["label"] = data["labels"][int(at["label"])]
        words["reference"] = data["references"][int(at.pop("label"))]
        words["task"] = data["datasetTasks"][int(at["dataset"])]
        headline = data["headlines"][int(at["dataset"])]
        words["dataset"] = data["datasets"][int(at.pop("dataset"))]
        words["ipc"] = data["ipcs"][int(at.pop("ipc"))]
        words["kind"] = data["kinds"][int(at.pop("kind"))]
        words["metric"] = headline
        facts = {name: _number(text) for name, text in at.items()}
        if at["target"]:
            facts["target"] = data["targets"][int(at["target"])]
        utility, seeds = self._utility(headline, place)
        places = columns["detail"].split(",")[place].split(" ")
        detail = [data["texts"][int(own)] for own in places]
        return FrontRow(
            facts,
            words,
            utility,
            seeds,
            {name: self._measure(own, place) for name, own in data["measures"].items()},
            dict(zip(detail[::2], detail[1::2], strict=True)),
            tuple(path for _, path in data["pages"].get(str(place), [])),
        )

    def _utility(
        self, headline: str, place: int
    ) -> tuple[dict[str, float | None], dict[str, float | None]]:
        if not headline:
            return {}, {}
        own = {
            name: text.split(",")[place] for name, text in self.data["utility"][headline].items()
        }
        pairs = [pair.split(":") for pair in own.pop("seeds").split(" ") if pair]
        return (
            {name: _number(text) for name, text in own.items()},
            {seed: _number(value) for seed, value in pairs},
        )

    def _measure(self, own: Mapping[str, str], place: int) -> dict[str, Any]:
        found: dict[str, Any] = {
            name: _number(text.split(",")[place]) for name, text in own.items() if name != "remark"
        }
        if "remark" in own:
            found["remark"] = self.data["texts"][int(own["remark"].split(",")[place])]
        return found


def _number(text: str) -> float | None:
    return float(text) if text else None
