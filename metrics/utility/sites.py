"""How well a model trained on the release of one site does at the other sites."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Score, Scores, Task
from bench.metrics.utility import _ranking
from bench.metrics.utility._ranking import LEAST_OF_A_CLASS, LEAST_ROWS, Group, Joint, Ranking


@final
@dataclass(frozen=True)
class _Real:
    """Sites that can be scored, and the model trained on the real rows of the home site."""

    sites: tuple[Group, ...]
    small: tuple[tuple[Group, str], ...]
    utility: Joint
    strata: npt.NDArray[np.integer]
    seed: int


@final
class CrossSite(Metric):
    """External validation."""

    name: ClassVar[str] = "cross-site"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Utility by site of the model trained on a release made from the rows of one site, the "
        "home (zero-order paper, section 2.4 and table 4; AUROC of XGBoost, C-index of a Cox "
        "model for survival), or of the model that was released. The paper tests on the held-out "
        "rows of the other sites; here all their rows are held out. Needs the split "
        f"`site:<name>`. Sites under {LEAST_ROWS} rows or {LEAST_OF_A_CLASS} "
        "of a class (or events) are listed, not scored. Intervals: 1000 bootstrap resamples of "
        "the test rows within each site and class (survival: within each site)."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("cross-site/home", Direction.HIGHER, "On the held-out rows of the home site."),
        Output("cross-site/away", Direction.HIGHER, "Mean over the other sites."),
        Output(
            "cross-site/worst",
            Direction.HIGHER,
            "At the worst other site; interval simultaneous over the sites.",
        ),
        Output(
            "cross-site/ratio",
            Direction.HIGHER,
            "`cross-site/away` divided by that of the same model trained on the real rows of the "
            "home site; above 1 the release travels better than the rows it was made from.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)

    def compute(self, evaluation: Evaluation) -> Scores:
        home = evaluation.dataset.home
        if home is None:
            raise NotComputable(
                "the training rows come from all sites together; a release from one site is made "
                'with `split = "site:<name>"` in the grid file, for datasets with sites'
            )
        ranking = Ranking.of(evaluation)
        real = evaluation.reference("cross-site", lambda rng: _real(evaluation, ranking, rng))
        released = ranking.grouped(
            real.sites,
            ranking.answers(_ranking.released_model(evaluation)),
            real.strata,
            np.random.default_rng(real.seed),
        )
        details = {"cross-site": _table(ranking, real, released, home)}
        return Scores(self._scores(real, released, home), details)

    def _scores(self, real: _Real, released: Joint, home: str) -> tuple[Score, ...]:
        at_home = [place for place, site in enumerate(real.sites) if site.name == home]
        away = [place for place, site in enumerate(real.sites) if site.name != home]
        if at_home:
            score = released.estimate(lambda numbers: numbers[at_home[0]]).score
            home_score = score(self, "cross-site/home")
        else:
            reason = next((why for site, why in real.small if site.name == home), "no test rows")
            home_score = self.absent("cross-site/home", f"the home site has {reason}")
        if not away:
            reason = "no other site has test rows enough to be scored"
            others = ("cross-site/away", "cross-site/worst", "cross-site/ratio")
            return (home_score, *(self.absent(output, reason) for output in others))
        there = released.take(away)
        mean = there.estimate(lambda numbers: np.nanmean(numbers, axis=0))
        low, high = _ranking.lowest_interval(there)
        both = there.beside(real.utility.take(away))
        ratio = both.estimate(
            lambda numbers: (
                np.nanmean(numbers[: len(away)], axis=0) / np.nanmean(numbers[len(away) :], axis=0)
            )
        )
        return (
            home_score,
            mean.score(self, "cross-site/away"),
            self.score("cross-site/worst", float(there.values.min()), low, high),
            ratio.score(self, "cross-site/ratio"),
        )


def _real(evaluation: Evaluation, ranking: Ranking, rng: np.random.Generator) -> _Real:
    schema, test = evaluation.dataset.schema, evaluation.dataset.test.rows
    if schema.site is None:
        raise NotComputable("the schema declares no sites")
    groups = list(_ranking.split(schema.site.name, test.sites, schema.site.categories))
    scored, small = ranking.sorted_out(groups)
    if not scored:
        raise NotComputable("no site has test rows enough to be scored")
    strata = ranking.strata() + ranking.classes * test.sites
    seed = int(rng.integers(2**31))
    utility = ranking.grouped(
        scored,
        ranking.answers(_ranking.real_model(evaluation)),
        strata,
        np.random.default_rng(seed),
    )
    return _Real(scored, small, utility, strata, seed)


def _table(ranking: Ranking, real: _Real, released: Joint, home: str) -> pd.DataFrame:
    """One row a site, with the model trained on real rows beside the other."""
    rows = []
    for site, own, reference in zip(real.sites, released.each(), real.utility.each(), strict=True):
        numbers = (own.value, *own.interval, reference.value, *reference.interval)
        rows.append((*ranking.facts(site), site.name == home, *numbers, ""))
    for site, why in real.small:
        nothing = (math.nan,) * 6
        rows.append((*ranking.facts(site), site.name == home, *nothing, why))
    names = ["site", "rows", "positives", "home", "value", "low", "high"]
    return pd.DataFrame(rows, columns=[*names, "real", "real-low", "real-high", "reason"])
