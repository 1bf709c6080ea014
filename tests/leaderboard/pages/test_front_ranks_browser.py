"""Ranks on the front page, in a browser: among whoever is shown, and the answer drawn from them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

from tests.support.browser import Visit
from tests.support.front_site import DATASETS, EVIL, SOUND, FrontSite
from tests.support.front_visit import ABSENT, choose, drawn, first_number, keep_methods, line_of


@pytest.mark.parametrize(
    "methods", [(), ("alpha", "beta"), ("gamma",), (EVIL, "beta", "gamma"), ("pate", "alpha")]
)
def test_ranks_are_those_among_the_shown(
    front: Visit, site: FrontSite, methods: tuple[str, ...]
) -> None:
    keep_methods(front, *methods)
    shown = [name for name in ("marginals", *SOUND) if name in (*(methods or SOUND), "marginals")]
    expected = site.ranks(shown)
    ranked = {}
    for row in drawn(front):
        line = line_of(row, site)
        if "not ranked" not in row["rank"]:
            ranked[line.method, line.dataset, line.ipc, line.target] = first_number(row["rank"])
            among = sum(
                m in shown
                for m, d, s, t in expected
                if (d, s, t) == (line.dataset, line.ipc, line.target)
            )
            assert row["rank"].endswith(f" of {among}")
    assert ranked == {name: pytest.approx(rank, abs=6e-3) for name, rank in expected.items()}

    # The mean over datasets of the mean over groups.
    names = front.page.locator("#standings tbody th a").all_inner_texts()
    means = front.page.locator("#standings tbody td.lead").all_inner_texts()
    own = {}
    for name in shown:
        by_dataset = [
            np.mean([rank for (m, d, _, _), rank in expected.items() if (m, d) == (name, dataset)])
            for dataset, _, _ in DATASETS
            if any((m, d) == (name, dataset) for m, d, _, _ in expected)
        ]
        own[name] = float(np.mean(by_dataset))
    assert dict(zip(names, map(float, means), strict=True)) == {
        name: pytest.approx(mean, abs=5.1e-3) for name, mean in own.items()
    }
    assert [float(mean) for mean in means] == sorted(float(mean) for mean in means)


def test_a_method_that_fails_is_ranked_as_failing(front: Visit, site: FrontSite) -> None:
    for row in drawn(front):
        line = line_of(row, site)
        if (line.method, line.dataset) == ("gamma", "lung"):
            assert row["rank"] == "5 of 5"
            assert row["failed"] == "100% 3 of 3 cells"
            assert row["utility"].startswith(ABSENT)
        if (line.method, line.dataset) == ("beta", "heart"):
            assert row["failed"] == "33% 1 of 3 cells"
    standings = front.page.locator("#standings tbody tr", has_text="gamma")
    assert standings.locator("td").last.inner_text() == "17%"


def test_the_interval_of_the_mean_rank_is_a_bootstrap_over_datasets(
    front: Visit, site: FrontSite
) -> None:
    ranks = site.ranks(("marginals", *SOUND))
    count = len(DATASETS)
    # Hesterberg's expanded percentiles: Student's quantile and n / (n - 1), for few units.
    reach = stats.t.ppf(0.975, count - 1) * np.sqrt(count / (count - 1))
    tails = stats.norm.cdf([-reach, reach])
    draws = np.random.default_rng(0).multinomial(count, [1 / count] * count, size=40_000)
    for row in front.page.locator("#standings tbody tr").all():
        name = row.locator("th a").inner_text()
        means = np.array(
            [
                np.mean(
                    [r for (m, d, _, _), r in ranks.items() if (m, d) == (name, dataset)]
                    or [np.nan]
                )
                for dataset, _, _ in DATASETS
            ]
        )
        known = ~np.isnan(means)
        weights = draws[:, known]
        drawn_means = (weights @ means[known])[weights.sum(axis=1) > 0]
        drawn_means = drawn_means / weights.sum(axis=1)[weights.sum(axis=1) > 0]
        shown = row.locator("td").nth(1).inner_text().strip("[]").split(", ")
        # A thousand draws in the page: their far percentiles are a little uncertain.
        assert [float(end) for end in shown] == pytest.approx(
            np.quantile(drawn_means, tails), abs=0.12
        )


# The answer ---------------------------------------------------------------------------------------


def test_the_answer_stands_on_top(front: Visit, site: FrontSite) -> None:
    ranks = site.ranks(("marginals", *SOUND))
    best = min(SOUND, key=lambda m: np.mean([r for (name, *_), r in ranks.items() if name == m]))
    assert best == "alpha"
    tiles = [" ".join(text.split()) for text in front.page.locator(".tile").all_inner_texts()]
    assert tiles[0].startswith("Best sound method alpha Mean rank 1.")
    assert re.search(r"By how much\? \d+% of real", tiles[1])
    assert "Floor: marginals" in tiles[1]
    assert tiles[2].startswith("Is the lead significant? significant")
    lost = sum(
        any(r < rank for (_, *place), r in ranks.items() if place == [d, s, t])
        for (name, d, s, t), rank in ranks.items()
        if name == "alpha"
    )
    assert f"{lost} of 24 groups lost" in tiles[3]
    box = front.page.locator(".tile").last.bounding_box()
    assert box is not None and box["y"] + box["height"] < 900  # without scrolling
    verdicts = front.page.inner_text("#verdicts")
    assert re.search(r"unproven\s+pate", verdicts)
    keep_methods(front, "beta", "gamma")
    assert "alpha" not in front.page.inner_text("#tiles")
    assert "not this selection" in front.page.inner_text("#tiles")


def test_without_two_sound_methods_nothing_is_answered(front: Visit) -> None:
    choose(front, "eps", "=")
    assert not front.page.locator("#lede").is_visible()
    assert front.page.locator("#nobody").is_visible()
