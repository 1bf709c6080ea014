"""MST through the privacy kernel: a privately chosen tree of pairs, trusting no library.

McKenna, Miklau and Sheldon 2021, Algorithm 1: all columns are counted with noise, a spanning tree
of pairs is chosen by the exponential mechanism, the pairs of the tree are counted with noise, and a
graphical model is fitted to all of it. Each of the three takes a third of rho. `mst` runs the
private steps of smartnoise-synth; here the kernel counts (`marginals`) and selects (`select`), so
that the verdict trusts nobody, answers are integers on the kernel's grid and choices are sampled
exactly. Everything else is as in `mst`: bins by the schema, codes whose count is below three
deviations share one code, each class is a separate table with the whole rho (`by_class`).

The events are fixed in advance: one Gaussian for all columns, one selection less than there are
columns, and one Gaussian for the pairs. The score of a pair is the L1 distance of its counts from
those of independent columns with the estimated margins: one row moves it by one at most.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import networkx as nx
import numpy as np

from bench import (
    Claim,
    CodedRows,
    Distance,
    EncodedRows,
    PlannedEvents,
    PrivateData,
    Release,
    Spec,
    exponential,
    gaussian,
)
from bench.methods._shared.codes import Codes
from bench.methods.marginal._bins import Binning
from bench.methods.marginal._discretise import BinnedMethod
from bench.methods.marginal._graphical_model import (
    CellTable,
    check_columns,
    draw_rows,
    fit,
    totals,
)
from bench.privacy.trusted.smartnoise import (
    NoisyMarginal,
    NoisyMarginals,
    frequent_codes,
    merged_counts,
    merging,
    nearest_counts,
)


@final
@dataclass(frozen=True)
class MstKernel(BinnedMethod):
    """A graphical model of a privately chosen tree of pairs, by the kernel's own mechanisms."""

    name: ClassVar[str] = "mst-kernel"
    title: ClassVar[str] = "Maximum spanning tree of noisy marginals (MST), by the kernel"
    paper: ClassVar[str] = (
        "McKenna, Miklau and Sheldon, Winning the NIST Contest: A scalable and general approach to "
        "differentially private synthetic data, Journal of Privacy and Confidentiality 2021"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2108.04978"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "seer-breast", "seer-incidence")
    quick: ClassVar[Mapping[str, Any]] = {"bins": 4, "steps": 50}

    by_class: bool = True
    steps: int = 1000
    """Steps of the estimation."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        width = len(Binning(private.encoder, self.bins).sizes) - self.by_class
        parts = list(private.partition("class").values()) if self.by_class else [private]

        def plans(noise: float) -> list[PlannedEvents]:
            # Columns, choices and pairs have a third of rho = 3 / (2 noise^2) each.
            choices = exponential(_epsilon(noise, width))
            return [
                plan
                for part in parts
                for plan in (
                    part.plan(gaussian(noise), min(2, width)),
                    part.plan(choices, width - 1),
                )
            ]

        cuts, noise = self.reserved(private, plans)
        binning = cuts.binning(self.bins)
        declared = totals(private, self.by_class)
        released = [
            _measured(part, binning, width, total, noise)
            for part, total in zip(parts, declared, strict=True)
        ]
        models = [
            fit(noisy.sizes, noisy.marginals, total, self.steps)
            for noisy, total in zip(released, declared, strict=True)
        ]
        codes = draw_rows(models, released, spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "McKenna, Miklau and Sheldon 2021, Theorem 1")
        notes = {"noise_multiplier": noise, "discretiser": self.discretiser}
        return Release(binning.rows(codes, rng), claim=claim, notes=notes)


def _epsilon(noise: float, width: int) -> float:
    """Return the epsilon of one choice: all together have the zCDP of one Gaussian, 1/(2 s^2)."""
    return math.sqrt(8.0 / (2.0 * noise**2 * max(1, width - 1)))


def _measured(
    part: PrivateData, binning: Binning, width: int, total: int, noise: float
) -> NoisyMarginals:
    """Count the columns, choose a tree of pairs, and count these."""
    singles: list[tuple[int, ...]] = [(column,) for column in range(width)]
    rows = part.coded(lambda rows: binning.codes(rows)[:, :width], binning.sizes[:width])
    single = _noisy(part, rows, singles, noise)
    kept = tuple(frequent_codes(one) for one in single)
    changes = [merging(mask) for mask in kept]
    sizes = [int(change.max()) + 1 for change in changes]

    def merged(rows: EncodedRows) -> Codes:
        codes = binning.codes(rows)
        return np.stack([change[codes[:, n]] for n, change in enumerate(changes)], axis=1)

    single = [merged_counts(one, mask) for one, mask in zip(single, kept, strict=True)]
    if width == 1:
        return NoisyMarginals(tuple(single), kept)
    rows = part.coded(merged, sizes)
    estimated = [nearest_counts(one.counts, float(total)) for one in single]
    pairs = _tree(part, rows, estimated, _epsilon(noise, width))
    return NoisyMarginals((*single, *_noisy(part, rows, pairs, noise)), kept)


def _noisy(
    part: PrivateData, rows: CodedRows, sets: Sequence[tuple[int, ...]], noise: float
) -> list[NoisyMarginal]:
    deviation = noise * math.sqrt(len(sets))
    return [
        NoisyMarginal(columns, counts, np.full(counts.shape, deviation))
        for columns, counts in zip(sets, part.marginals(rows, sets, noise), strict=True)
    ]


def _tree(
    part: PrivateData, rows: CodedRows, single: Sequence[CellTable], epsilon: float
) -> list[tuple[int, ...]]:
    """Choose a spanning tree, one pair at a time, of pairs that join two of its pieces."""
    width = len(single)
    candidates = {
        (first, second): Distance(
            (first, second),
            np.outer(single[first], single[second]) / single[first].sum(),
        )
        for first, second in itertools.combinations(range(width), 2)
    }
    pieces = nx.utils.UnionFind(range(width))
    chosen: list[tuple[int, ...]] = []
    for _ in range(width - 1):
        pairs = [pair for pair in candidates if pieces[pair[0]] != pieces[pair[1]]]
        best = pairs[part.select(rows, [candidates[pair] for pair in pairs], epsilon)]
        pieces.union(*best)
        chosen.append(best)
    return sorted(chosen)
