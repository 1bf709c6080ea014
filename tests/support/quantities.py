"""A small site, and the quantities that its pages print."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, final

import numpy as np

from bench.leaderboard.pages.site import write_site
from bench.plugins.description import FILE, Descriptions, MethodDescription
from tests.leaderboard.conftest import Run

METHODS = ("alpha", "beta", "gamma", "delta")
DATASETS = (
    ("d1", "classification", "auroc"),
    ("d2", "classification", "auroc"),
    ("d3", "survival", "c-index/cox"),
)
TARGETS = (1.0, 10.0)
SEEDS = (0, 1)

_NON_PRIVATE: dict[str, Any] = {
    "eps_target": None,
    "eps_claimed": None,
    "eps_proven": float("inf"),
    "verdict": "non-private",
    "verdict_reason": "rows were read without noise",
}


def small_run(folder: Path, *, complete: bool) -> Path:
    """Write a run of six methods, three datasets, two epsilons and two seeds.

    Not `complete`: a method is missing on a dataset, another fails once, and a third has its
    defaults chosen on one of the datasets.
    """
    run, rng = Run(), np.random.default_rng(24)

    def add(method: str, middle: float, metric: str, **changes: Any) -> None:
        # Sixteenths are halves at three decimals, where roundings differ.
        utility = float(np.round((middle + rng.normal(0, 0.03)) * 16) / 16)
        if rng.random() < 0.7:
            utility = float(middle + rng.normal(0, 0.03))
        key = run.add(method, **changes)
        run.score(key, metric, utility, utility - 0.02, utility + 0.02)
        ratio = "auroc/ratio" if metric == "auroc" else "c-index/cox-ratio"
        run.score(key, ratio, 1.007 * utility)
        run.score(key, "aia/r2", -2.5 if method == "beta" else 0.1, family="privacy")
        run.score(key, "aia/gap", 6.6, 6.0, 7.0, "lower", "privacy")

    for number, (dataset, task, metric) in enumerate(DATASETS):
        top = 0.93 - 0.1 * number
        for seed in SEEDS:
            shared: dict[str, Any] = {"dataset": dataset, "task": task, "seed": seed}
            add("real", top, metric, **shared, **_NON_PRIVATE, ipc=None)
            for target in TARGETS:
                spent = {"eps_target": target, "eps_claimed": target, "eps_proven": 0.9 * target}
                add("marginals", top - 0.15, metric, **shared, **spent)
                for place, method in enumerate(METHODS):
                    if not complete and (method, dataset) == ("delta", "d1"):
                        continue
                    if not complete and (method, dataset, seed) == ("gamma", "d2", 1):
                        run.fail(method, "timeout", "over 60 s", **shared, eps_target=target)
                        continue
                    add(method, top - 0.02 * place, metric, **shared, **spent)
    directory = run.write(folder)
    if not complete:
        cards = (
            MethodDescription(
                "alpha",
                "Alpha",
                "Somebody, A paper, ICML 2021",
                tuned_on=("d3",),
                link="https://example.org/alpha",
                family="marginals",
            ),
            MethodDescription("beta", "Beta", "none: ours", by_maintainers=True, tuned_on=()),
        )
        (directory / FILE).write_text(Descriptions(methods=cards).to_json(), encoding="utf-8")
    return directory


@final
class SmallSite:
    """The run as a site with a page for every cell."""

    def __init__(self, folder: Path, *, complete: bool) -> None:
        self.directory = small_run(folder / "run", complete=complete)
        self.folder = folder / "site"
        write_site([self.directory], self.folder, cells=10_000)

    def pages(self) -> Iterator[Path]:
        """All pages beside the front page, which a script draws."""
        yield from sorted(path for path in self.folder.rglob("*.html") if path.name != "index.html")


class Printed(HTMLParser):
    """The text of every element with `data-quantity`."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, str]] = []
        self._open: list[tuple[str, str, int]] = []
        self._depth = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("meta", "br", "input", "img", "link", "rect", "path", "use", "line", "circle"):
            return
        self._depth += 1
        name = dict(attrs).get("data-quantity")
        if name is not None:
            self._open.append((name, "", self._depth))

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1][2] == self._depth:
            name, text, _ = self._open.pop()
            self.found.append((name, " ".join(text.split())))
        self._depth -= 1

    def handle_data(self, data: str) -> None:
        self._open = [(name, text + data, depth) for name, text, depth in self._open]
