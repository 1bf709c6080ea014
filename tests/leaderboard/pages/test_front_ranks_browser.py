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

    # The means over datasets of the means over groups, of ranks and of shares beaten.
    names = front.page.locator("#standings tbody th a").all_inner_texts()
    means = front.page.locator("#standings tbody td:nth-of-type(2)").all_inner_texts()
    wins = front.page.locator("#standings tbody td.lead").all_inner_texts()
    others = {key[1:]: sum(other[1:] == key[1:] for other in expected) - 1 for key in expected}
    beaten = {key: (others[key[1:]] + 1 - rank) / others[key[1:]] for key, rank in expected.items()}
    for printed, values, scale in ((means, expected, 1), (wins, beaten, 100)):
        own = {}
        for name in shown:
            by_dataset = [
                np.mean([one for (m, d, _, _), one in values.items() if (m, d) == (name, dataset)])
                for dataset, _, _ in DATASETS
                if any((m, d) == (name, dataset) for m, d, _, _ in values)
            ]
            own[name] = scale * float(np.mean(by_dataset))
        numbers = [float(text.removesuffix("%")) for text in printed]
        assert dict(zip(names, numbers, strict=True)) == {
            name: pytest.approx(mean, abs=5.1e-3 if scale == 1 else 5.1e-2)
            for name, mean in own.items()
        }
    assert numbers == sorted(numbers, reverse=True)


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


def test_the_interval_of_the_mean_rank_is_students_over_datasets(
    front: Visit, site: FrontSite
) -> None:
    ranks = site.ranks(("marginals", *SOUND))
    for row in front.page.locator("#standings tbody tr").all():
        name = row.locator("th a").inner_text()
        means = [
            np.mean([r for (m, d, _, _), r in ranks.items() if (m, d) == (name, dataset)])
            for dataset, _, _ in DATASETS
            if any((m, d) == (name, dataset) for m, d, _, _ in ranks)
        ]
        expected = stats.t.interval(0.95, len(means) - 1, np.mean(means), stats.sem(means))
        shown = row.locator("td").nth(2).inner_text().strip("[]").split(", ")
        assert [float(end) for end in shown] == pytest.approx(np.clip(expected, 1, 5), abs=5.1e-3)


# The answer ---------------------------------------------------------------------------------------


def test_the_answer_stands_on_top(front: Visit, site: FrontSite) -> None:
    ranks = site.ranks(("marginals", *SOUND))
    best = min(SOUND, key=lambda m: np.mean([r for (name, *_), r in ranks.items() if name == m]))
    assert best == "alpha"
    tiles = [" ".join(text.split()) for text in front.page.locator(".tile").all_inner_texts()]
    assert re.match(
        r"Best sound method alpha Beats 9\d\.\d% of the others; mean rank 1\.", tiles[0]
    )
    assert re.search(r"By how much\? [\d.]+% of real", tiles[1])
    assert "Floor: marginals" in tiles[1]
    assert tiles[2].startswith("Is the lead significant? significant")

    def printed(name: str, place: tuple[str, str, float]) -> float:
        return round(float(np.nanmean([site.utility[(name, *place, s)] for s in range(3)])), 3)

    # Lost is where another is better by its mean rank and by the mean that is printed.
    lost = sum(
        any(
            r < rank and printed(other, place) > printed("alpha", place)
            for (other, *elsewhere), r in ranks.items()
            if tuple(elsewhere) == place
        )
        for (name, *where), rank in ranks.items()
        for place in [(where[0], where[1], where[2])]
        if name == "alpha"
    )
    assert f"{lost} of 24 groups lost" in tiles[3]
    verdicts = front.page.inner_text("#verdicts")
    assert re.search(r"unproven\s+pate", verdicts)
    keep_methods(front, "beta", "gamma")
    assert "alpha" not in front.page.inner_text("#tiles")
    assert "not this selection" in front.page.inner_text("#tiles")


def test_without_two_sound_methods_nothing_is_answered(front: Visit) -> None:
    choose(front, "eps", "=")
    assert not front.page.locator("#lede").is_visible()
    assert front.page.locator("#nobody").is_visible()
