"""Attacks on releases that the auditor does not have, against those that it has.

Each method is fitted many times with and without one canary at epsilon 8, as `bench audit` does.
Half of the releases teach the attacks and choose among them, the other half measures them by the
area under the ROC curve of the two worlds. The auditor's own are the scorers of rows, of which the
best one is chosen, and the shadow classifier. Candidates:

* queries: answers of the release to random counting queries about the canary (QuerySnout, Cretu et
  al. 2022), combined by the same linear classifier, alone or beside its features;
* likelihood ratio of each query answer, answers taken as independent Gaussians over shadow releases
  (LiRA, Carlini et al. 2022);
* relative density: share of reference rows whose density in the release, against that of shadow
  releases without the canary, is below the canary's (RMIA, Zarifzadeh, Liu and Shokri 2024);
* density ratio of both worlds by boosted trees on all features and queries.

A density at the canary against a fixed reference (DOMIAS) is the auditor's density but for a
constant.

    python benchmarks/release_attacks.py [--fits 400] [--write]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.audit.attacks import fit_shadow
from bench.audit.audits import AuditProcedure, audit_cell, load
from bench.audit.scorers import _BANDWIDTH, ROW_SCORERS, Attacker, _binned
from bench.audit.trials import OUT, AuditTarget, Stage, TrialId, refit
from bench.engine.limits import threads_capped
from bench.plugins import registry
from bench.plugins.release import Release
from bench.results.records import AuditSpec

Array = npt.NDArray[np.float64]
Worlds = tuple[Array, Array]

METHODS = ("marginals", "dpmix", "tab-pe", "ldpdc", "privbayes")
DATASET, EPSILON, CANARY = "breast-cancer", 8.0, 0
QUERIES, REFERENCES, RESAMPLES = 128, 64, 1000
DOCS = Path(__file__).resolve().parent.parent / "docs"
DATA, PAGE = DOCS / "audits" / "release-attacks.json", DOCS / "release-attacks.md"


class Watcher:
    """Computes what the attacks need of a release."""

    def __init__(self, target: AuditTarget) -> None:
        rng = np.random.default_rng(0)
        self.attacker: Attacker = target.attacker
        self.canary = target.canaries[CANARY]
        columns = self.attacker._columns
        width = len(columns.single) + len(columns.wide) + 1
        sizes = np.minimum(width, rng.integers(1, 5, QUERIES))
        self.sets = [rng.choice(width, size, replace=False) for size in sizes]
        rows = target.dataset.train.rows.values
        chosen = rows[rng.choice(len(rows), REFERENCES, replace=False)]
        self.points = np.concatenate([self.canary.values[None], chosen]).astype(np.float64)
        self.scale = target.dataset.encoder.max_norm

    def of(self, release: Release) -> tuple[Array, Array, Array]:
        """Return features with scores, query answers and log densities."""
        scores = self.attacker.scores(release, CANARY)[CANARY]
        known = np.concatenate([self.attacker.features(release), scores])
        return known, self._queries(release), self._densities(release)

    def _queries(self, release: Release) -> Array:
        assert release.rows is not None
        values = np.asarray(release.rows.values, dtype=np.float64)
        point, columns = self.canary.values.astype(np.float64), self.attacker._columns
        single, bins = columns.single, columns.bins
        same = [_binned(values[:, single], bins) == _binned(point[single], bins)]
        for block in columns.wide:
            same.append((values[:, block].argmax(axis=1) == point[block].argmax())[:, None])
        same.append((np.asarray(release.rows.labels) == self.canary.label)[:, None])
        table = np.concatenate(same, axis=1)
        return np.array([table[:, chosen].all(axis=1).mean() for chosen in self.sets])

    def _densities(self, release: Release) -> Array:
        assert release.rows is not None
        values = np.asarray(release.rows.values, dtype=np.float64)
        squares = ((values[:, None, :] - self.points[None]) ** 2).sum(axis=2)
        exponents = -squares / (2.0 * (_BANDWIDTH * self.scale) ** 2)
        top = exponents.max(axis=0)
        return np.asarray(top + np.log(np.exp(exponents - top).mean(axis=0)))


def releases(method: str, fits: int) -> tuple[list[Worlds], str]:
    """Return features, queries and densities of both worlds, and the name of the canary."""
    parameters = dict(registry.method_class(method).quick)
    spec = AuditSpec("two-world", 4 * fits)
    cell = audit_cell(method, DATASET, EPSILON, spec, parameters=parameters)
    target = AuditProcedure(cell, load(cell), Path("unused")).shared
    watcher = Watcher(target)
    seen = []
    with threads_capped(1):
        for world in (CANARY, OUT):
            made = [
                watcher.of(refit(target, TrialId(Stage.BOUND, world, number)))
                for number in range(2 * fits)
            ]
            seen.append([np.array(column) for column in zip(*made, strict=True)])
    return list(zip(*seen, strict=True)), watcher.canary.name


def area(worlds: Worlds) -> float:
    """Return the area under the ROC curve."""
    from scipy.stats import rankdata

    inside, outside = worlds
    ranks = rankdata(np.concatenate(worlds))[: len(inside)]
    wins = ranks.sum() - len(inside) * (len(inside) + 1) / 2
    return float(wins / (len(inside) * len(outside)))


def attacks(data: list[Worlds], fits: int) -> tuple[str, dict[str, Worlds]]:
    """Return the auditor's choice, and the scores of every attack on the second half."""
    known, queries, densities = data
    both = tuple(np.hstack(pair) for pair in zip(known, queries, strict=True))
    plain = {name: at - len(ROW_SCORERS) for at, name in enumerate(ROW_SCORERS)}
    first = {name: area(tuple(one[:fits, at] for one in known)) for name, at in plain.items()}
    best = max(first, key=lambda name: abs(first[name] - 0.5))
    sign = 1.0 if first[best] >= 0.5 else -1.0
    scored = {
        "best scorer": tuple(sign * one[fits:, plain[best]] for one in known),
        "shadow classifier": _linear(known, fits),
        "queries": _linear(queries, fits),
        "shadow classifier with queries": _linear(both, fits),
        "likelihood ratio per query": _independent(queries, fits),
        "relative density": _relative(densities, fits),
        "boosted density ratio": _boosted(both, fits),
    }
    # The auditor compares its two by crossing, on the first half only.
    halves = tuple(one[:fits] for one in known)
    crossed = area(_linear(halves, fits // 2))
    return (
        "shadow classifier" if crossed > abs(first[best] - 0.5) + 0.5 else "best scorer"
    ), scored


def _linear(table: Worlds, fits: int) -> Worlds:
    shadow = fit_shadow(*(one[:fits] for one in table))
    return tuple(shadow.scores(one[fits:]) for one in table)  # type: ignore[return-value]


def _independent(table: Worlds, fits: int) -> Worlds:
    (one, other) = (world[:fits].mean(axis=0) for world in table)
    variance = sum(world[:fits].var(axis=0) for world in table) / 2.0 + 1e-6

    def ratio(answers: Array) -> Array:
        return np.asarray((((answers - other) ** 2 - (answers - one) ** 2) / variance).sum(axis=1))

    return tuple(ratio(world[fits:]) for world in table)  # type: ignore[return-value]


def _relative(table: Worlds, fits: int) -> Worlds:
    usual = table[1][:fits].mean(axis=0)
    return tuple(  # type: ignore[return-value]
        ((world[fits:, :1] - usual[0]) > (world[fits:, 1:] - usual[1:])).mean(axis=1)
        for world in table
    )


def _boosted(table: Worlds, fits: int) -> Worlds:
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(max_iter=60, max_depth=3, random_state=0)
    trees.fit(np.vstack([one[:fits] for one in table]), np.repeat([1, 0], fits))
    return tuple(trees.predict_proba(one[fits:])[:, 1] for one in table)  # type: ignore[return-value]


def compared(method: str, fits: int) -> dict[str, object]:
    """Return the areas of all attacks, and how far each is above the auditor's choice."""
    started = time.process_time()
    data, canary = releases(method, fits)
    chosen, scored = attacks(data, fits)
    rng = np.random.default_rng(1)
    areas = {name: area(worlds) for name, worlds in scored.items()}
    gains: dict[str, list[float]] = {name: [] for name in scored}
    for _ in range(RESAMPLES):
        picks = rng.integers(fits, size=(2, fits))
        drawn = {
            name: area((one[picks[0]], other[picks[1]])) for name, (one, other) in scored.items()
        }
        for name in scored:
            gains[name].append(drawn[name] - drawn[chosen])
    lowest = {name: float(np.quantile(gain, 0.025)) for name, gain in gains.items()}
    return {
        "method": method, "canary": canary, "fits": 4 * fits, "chosen": chosen, "areas": areas,
        "gain_at_least": lowest, "seconds": time.process_time() - started,
    }  # fmt: skip


def page(results: list[Mapping[str, object]]) -> str:
    """Return the generated page."""
    names = list(results[0]["areas"])  # type: ignore[call-overload]
    own = names[:2]
    lines = [
        "# Attacks on releases, compared",
        "",
        "Generated by `python benchmarks/release_attacks.py --write`; do not edit. Area under the "
        f"ROC curve of two worlds at epsilon {EPSILON:g} on `{DATASET}`, quick parameters, on "
        "releases that taught no attack. The first two columns are the auditor's "
        "([Auditing](auditing.md)); its choice, made on the other half, is bold. A candidate is "
        "marked + where the 95% interval of its gain over that choice is above 0.",
        "",
        f"| method | fits | {' | '.join(names)} |",
        f"|{'---|' * (len(names) + 2)}",
    ]
    stronger: dict[str, list[str]] = {}
    for one in results:
        areas: Mapping[str, float] = one["areas"]  # type: ignore[assignment]
        lowest: Mapping[str, float] = one["gain_at_least"]  # type: ignore[assignment]
        cells = []
        for name in names:
            text = f"{areas[name]:.3f}"
            if name == one["chosen"]:
                text = f"**{text}**"
            elif lowest[name] > 0.0:
                text += " +"
                if name not in own:
                    stronger.setdefault(name, []).append(str(one["method"]))
            cells.append(text)
        lines.append(f"| {one['method']} | {one['fits']} | {' | '.join(cells)} |")
    said = "; ".join(f"{name} on {', '.join(where)}" for name, where in stronger.items())
    lines += ["", f"Candidates stronger than the auditor's choice: {said or 'none'}.", ""]
    return "\n".join(lines)


def main() -> None:
    """Measure all methods."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=400)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()

    results = []
    for method in METHODS:
        results.append(compared(method, given.fits))
        print(results[-1], flush=True)
    if given.write:
        DATA.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
