"""MWEM over smartnoise-synth 1.0.8: multiplicative weights and the exponential mechanism.

Hardt, Ligett and McSherry 2012. The private steps are the library's code, called by
`bench.privacy.trusted.mwem`, which names what had to be worked around there (ranges, number of
rows and iterations from the rows; repeated draws). Further choices:

* MWEM holds a histogram of all combinations of codes, which no table of a dozen columns has room
  for. Columns are put, in the schema's order, into groups of at most `cells` combinations, and
  groups are independent of each other within a class: the library's `splits`, but given the class.
* Each class is measured by itself: classes are disjoint and their counts public, so that each has
  the whole budget, and as many rows of a class as asked for are drawn from its own histograms.
* The paper adds up epsilons; here all steps are composed by the harness's accountant (RDP), which
  lets each be larger at the same (epsilon, delta).
* Columns are cut by the schema (see `_bins`): no budget goes into guessing bounds.
* OpenDP's noise takes no seed: two runs differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import Between, Claim, Environment, Method, PrivateData, Release, Spec
from bench.methods._shared.codes import Codes
from bench.methods._shared.smartnoise import SMARTNOISE
from bench.methods.marginal._bins import Binning
from bench.methods.marginal._graphical_model import (
    CellTable,
    check_columns,
    conditional_draw,
    totals,
)
from bench.privacy.trusted.mwem import ColumnGroup, choices_and_counts


@final
@dataclass(frozen=True)
class Mwem(Method):
    """Class-wise histograms of groups of columns, learned from chosen noisy marginals."""

    name: ClassVar[str] = "mwem"
    title: ClassVar[str] = "Multiplicative weights, exponential mechanism (MWEM)"
    paper: ClassVar[str] = (
        "Hardt, Ligett and McSherry, A Simple and Practical Algorithm for Differentially Private "
        "Data Release, NeurIPS 2012"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/1012.4763"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "seer-breast", "seer-incidence")
    environment: ClassVar[Environment | None] = SMARTNOISE
    seeded: ClassVar[bool] = False
    search: ClassVar[Mapping[str, Any]] = {
        "bins": (4, 8, 16),
        "cells": (1000, 3000, 10_000),
        "width": (1, 2, 3),
        "iterations": Between(2, 20, log=True, whole=True),
    }
    quick: ClassVar[Mapping[str, Any]] = {"bins": 4, "iterations": 2, "updates": 5, "cells": 100}

    bins: int = 8
    """Bins of a numeric column, beside the one of its lower bound."""
    cells: int = 3000
    """Combinations of codes in a group of columns, at most."""
    width: int = 2
    """Columns of a marginal, at most: 1 or 2."""
    iterations: int = 5
    """Marginals that are measured in each group."""
    updates: int = 40
    """Updates of the weights in each iteration."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        binning = Binning(private.encoder, self.bins)
        steps: dict[str, Any] = {
            "groups": groups_within(binning.sizes[:-1], self.cells),
            "iterations": self.iterations,
            "width": self.width,
        }
        noise = private.calibrate(
            lambda noise: [private.plan(choices_and_counts({**steps, "epsilon": 1.0 / noise}))]
        )
        histograms: Any = private.delegate(
            "smartnoise-mwem",
            **steps,
            epsilon=1.0 / noise,
            updates=self.updates,
            codes=binning.codes,
            sizes=binning.sizes,
            totals=totals(private, by_class=True),
        )
        sizes = spec.rows_per_class(private.counts)
        codes = draw_groups(histograms, steps["groups"], sizes, rng)
        claim = Claim.of(spec.budget, "Hardt, Ligett and McSherry 2012, Theorem 2.1, composed")
        notes = {"epsilon_of_a_step": 1.0 / noise, "groups": len(steps["groups"])}
        return Release(binning.rows(codes, rng), claim=claim, notes=notes)


def groups_within(sizes: Sequence[int], cells: int) -> tuple[ColumnGroup, ...]:
    """Columns in order, in groups of at most `cells` combinations (one column always fits)."""
    groups: list[list[int]] = []
    filled = 0
    for column, size in enumerate(sizes):
        if not groups or filled * size > cells:
            groups.append([])
            filled = 1
        groups[-1].append(column)
        filled *= size
    return tuple(tuple(group) for group in groups)


def draw_groups(
    histograms: Sequence[Sequence[CellTable]],
    groups: Sequence[ColumnGroup],
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> Codes:
    """`sizes[c]` rows of codes of each class c, the label last, group by group."""
    columns = sum(len(group) for group in groups)
    tables: list[Codes] = []
    for label, (tensors, count) in enumerate(zip(histograms, sizes, strict=True)):
        table = np.full((count, columns + 1), label, dtype=np.int64)
        for group, tensor in zip(groups, tensors, strict=True):
            cells = conditional_draw(tensor.reshape(1, -1), np.zeros(count, dtype=np.int64), rng)
            table[:, list(group)] = np.stack(np.unravel_index(cells, tensor.shape), axis=1)
        tables.append(table)
    return np.concatenate(tables)
