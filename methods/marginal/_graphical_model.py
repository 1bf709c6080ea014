"""A graphical model fitted to noisy marginals, and rows of it (McKenna, Sheldon and Miklau 2019).

The model is p(x) proportional to exp(sum over cliques of theta_C(x_C)), where every measured set of
columns lies in a clique of a junction tree; theta is found by mirror descent on

    1/2 sum over measured sets S of |mu_S - y_S|^2 / deviation_S^2

(their Algorithm 1, with an Armijo line search), where mu are the marginals of the model, calculated
by passing messages along the tree. All of this is post-processing of what was measured.

mbi, which smartnoise-synth calls for it, compiles every new graph anew, which takes longer than all
the rest, and mbi 1.1.0 draws rows wrongly: `synthetic_data` with its default `method="round"` makes
spurious correlations, and in a graph with loops it conditions a column on its measured neighbours
only. Here rows are drawn exactly, clique by clique along the tree, from public randomness.

MST and AIM share the rest: calibration, estimation, and rows of any class from what was released.
By class (`by_class`), each class is a separate table without the label: classes are disjoint and
their counts public, so that each has the whole budget, and a class is drawn from its own model.
Otherwise one model holds the label as a column, as published, and a class is asked for by
conditioning the model on its label. Either way nothing is rejected, no class is too rare to be
drawn, and no row is looked at again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import networkx as nx
import numpy as np
import numpy.typing as npt

from bench import NotApplicable, PrivateData, Schema, Task
from bench.methods._shared.codes import Codes
from bench.privacy.trusted.smartnoise import (
    Columns,
    NoisyMarginal,
    NoisyMarginals,
    zero_concentrated,
)

CellTable = npt.NDArray[np.float64]
"""One number per combination of codes: an axis per column."""

_product_sum: Any = np.einsum
"""Its stubs do not know columns given by number."""
_IMPOSSIBLE = -1e6
"""Log weight of a code that is not asked for."""
_ENOUGH = 0.25
"""Share of the decrease that the slope promises, for a step to be taken."""
_COLUMNS_AT_MOST = 50
"""All pairs are compared: their number grows with the square of the columns'."""


@final
@dataclass(frozen=True)
class _Edge:
    """Edge from a clique to its parent in the tree, over the columns that they share."""

    child: int
    parent: int
    out_of_child: Columns
    """Axes of the child's table that are summed out."""
    out_of_parent: Columns
    in_child: Columns
    """Shape of the shared table, so that it broadcasts over the child's."""
    in_parent: Columns


@final
class JunctionTree:
    """Cliques that hold all asked sets of columns, in an order where parents come first."""

    def __init__(self, sizes: Sequence[int], sets: Iterable[Columns]) -> None:
        self.sizes = tuple(sizes)
        graph = nx.Graph()
        graph.add_nodes_from(range(len(sizes)))
        for columns in sets:
            graph.add_edges_from(itertools.combinations(columns, 2))
        cliques = _cliques(graph, self.sizes)
        tree = nx.Graph()
        tree.add_nodes_from(range(len(cliques)))
        for first, second in itertools.combinations(range(len(cliques)), 2):
            shared = len(set(cliques[first]) & set(cliques[second]))
            # Trees of the forest are joined by edges that share nothing: one tree for all.
            tree.add_edge(first, second, weight=-shared)
        tree = nx.minimum_spanning_tree(tree)
        order = list(nx.dfs_preorder_nodes(tree, 0))
        place = {node: number for number, node in enumerate(order)}
        self.cliques: tuple[Columns, ...] = tuple(cliques[node] for node in order)
        above = {place[child]: place[parent] for parent, child in nx.dfs_edges(tree, 0)}
        self.edges = tuple(self._edge(child, above[child]) for child in range(1, len(order)))

    @property
    def cells(self) -> int:
        """Cells of all tables together."""
        return sum(self.cells_of(clique) for clique in self.cliques)

    def cells_of(self, columns: Columns) -> int:
        """Cells of one table."""
        return int(np.prod([self.sizes[column] for column in columns], dtype=np.float64))

    def home(self, columns: Columns) -> int | None:
        """The smallest clique that holds these columns."""
        holding = [
            number for number, clique in enumerate(self.cliques) if set(columns) <= set(clique)
        ]
        return min(holding, key=lambda number: self.cells_of(self.cliques[number]), default=None)

    def holding(self, columns: Columns) -> int:
        """Return `home` for columns that the tree was made for."""
        home = self.home(columns)
        if home is None:
            raise KeyError(f"no clique holds the columns {columns}")
        return home

    def axes_without(self, clique: int, columns: Columns) -> Columns:
        """Axes of a clique's table that are not among `columns`."""
        return tuple(
            axis for axis, column in enumerate(self.cliques[clique]) if column not in columns
        )

    def shape_within(self, clique: int, columns: Columns) -> Columns:
        """Shape in which a table of `columns` broadcasts over the clique's."""
        return tuple(
            self.sizes[column] if column in columns else 1 for column in self.cliques[clique]
        )

    def _edge(self, child: int, parent: int) -> _Edge:
        shared = tuple(sorted(set(self.cliques[child]) & set(self.cliques[parent])))
        return _Edge(
            child,
            parent,
            self.axes_without(child, shared),
            self.axes_without(parent, shared),
            self.shape_within(child, shared),
            self.shape_within(parent, shared),
        )

    def shares(self, potentials: Sequence[CellTable]) -> list[CellTable]:
        """The distribution of every clique, by messages to the root and back (in logarithms)."""
        beliefs = [table.copy() for table in potentials]
        messages: dict[int, CellTable] = {}
        for edge in reversed(self.edges):
            message = _log_sum(beliefs[edge.child], edge.out_of_child)
            messages[edge.child] = message
            beliefs[edge.parent] += message.reshape(edge.in_parent)
        for edge in self.edges:
            message = _log_sum(beliefs[edge.parent], edge.out_of_parent)
            change = message.reshape(edge.in_child) - messages[edge.child].reshape(edge.in_child)
            beliefs[edge.child] += change
        for number, belief in enumerate(beliefs):
            np.exp(belief - belief.max(), out=belief)
            beliefs[number] = belief / belief.sum()
        return beliefs


def _cliques(graph: nx.Graph, sizes: Sequence[int]) -> list[Columns]:
    """Maximal cliques after a greedy triangulation: the smallest new table first."""
    rest = graph.copy()
    cliques: list[set[int]] = []

    def cost(node: int) -> float:
        return float(np.prod([sizes[other] for other in (node, *rest[node])], dtype=np.float64))

    while rest:
        node = min(rest, key=cost)
        clique = {node, *rest[node]}
        if not any(clique <= other for other in cliques):
            cliques.append(clique)
        rest.add_edges_from(itertools.combinations(rest[node], 2))
        rest.remove_node(node)
    return [tuple(sorted(clique)) for clique in cliques]


def _log_sum(table: CellTable, axes: Columns) -> CellTable:
    largest = table.max(axis=axes, keepdims=True)
    summed = np.log(np.exp(table - largest).sum(axis=axes, keepdims=True))
    return np.asarray(summed + largest, dtype=np.float64)


@final
@dataclass(frozen=True)
class GraphicalModel:
    """A fitted model: potentials on the cliques of a junction tree, and their distributions."""

    tree: JunctionTree
    potentials: tuple[CellTable, ...]
    total: float
    clique_shares: tuple[CellTable, ...]

    def counts(self, columns: Columns) -> CellTable:
        """The model's marginal of some columns, in rows, axes in the order of columns."""
        home = self.tree.home(columns)
        if home is None:
            return self.total * self._apart(columns)
        within = tuple(column for column in self.tree.cliques[home] if column in columns)
        summed = self.clique_shares[home].sum(axis=self.tree.axes_without(home, columns))
        order = [within.index(column) for column in columns]
        return np.asarray(self.total * summed.transpose(order))

    def _apart(self, columns: Columns) -> CellTable:
        """Columns in no common clique: conditionals of the cliques between, summed out."""
        graph = nx.Graph((edge.child, edge.parent) for edge in self.tree.edges)
        homes = {self.tree.holding((column,)) for column in columns}
        start = self.tree.holding(columns[:1])
        # The smallest part of the tree that joins the homes; each clique after the one before it.
        needed = {node for home in homes for node in nx.shortest_path(graph, start, home)}
        factors: list[Any] = []
        below = nx.bfs_tree(graph.subgraph(needed), start) if len(needed) > 1 else None
        for node in needed if below is None else nx.topological_sort(below):
            clique, table = self.tree.cliques[node], self.clique_shares[node]
            if node != start and below is not None:
                parent = next(iter(below.predecessors(node)))
                shared = tuple(column for column in clique if column in self.tree.cliques[parent])
                margin = table.sum(axis=self.tree.axes_without(node, shared), keepdims=True)
                table = np.divide(table, margin, out=np.zeros_like(table), where=margin > 0)
            factors += [table, list(clique)]
        return np.asarray(_product_sum(*factors, list(columns), optimize="greedy"))

    def draw(self, count: int, given: tuple[int, int] | None, rng: np.random.Generator) -> Codes:
        """Rows; where asked, given that the column `given[0]` has the code `given[1]`."""
        potentials = list(self.potentials)
        if given is not None:
            column, code = given
            home = self.tree.holding((column,))
            weights = np.full(self.tree.sizes[column], _IMPOSSIBLE)
            weights[code] = 0.0
            shape = self.tree.shape_within(home, (column,))
            potentials[home] = potentials[home] + weights.reshape(shape)
        rows = np.full((count, len(self.tree.sizes)), -1, dtype=np.int64)
        drawn: set[int] = set()
        for clique, table in zip(self.tree.cliques, self.tree.shares(potentials), strict=True):
            known = [column for column in clique if column in drawn]
            new = [column for column in clique if column not in drawn]
            if not new:
                continue
            ordered = table.transpose([clique.index(column) for column in (*known, *new)])
            before, after = ordered.shape[: len(known)], ordered.shape[len(known) :]
            start = (
                np.ravel_multi_index(rows[:, known].T, before)
                if known
                else np.zeros(count, dtype=np.int64)
            )
            flat = ordered.reshape(int(np.prod(before)), -1)
            cells = conditional_draw(flat, np.asarray(start), rng)
            rows[:, new] = np.stack(np.unravel_index(cells, after), axis=1)
            drawn.update(new)
        return rows


def fit(
    sizes: Sequence[int],
    measured: Sequence[NoisyMarginal],
    total: float | None,
    steps: int,
    start: GraphicalModel | None = None,
) -> GraphicalModel:
    """The model whose marginals are nearest to the noisy ones.

    `total` rows; None estimates them from the answers (least variance). A `start` whose cliques
    are within the new ones provides the first potentials.
    """
    tree = JunctionTree(sizes, [one.columns for one in measured])
    if total is None:
        total = estimated_total(measured)
    homes = [tree.holding(one.columns) for one in measured]
    potentials = [np.zeros([tree.sizes[column] for column in clique]) for clique in tree.cliques]
    if start is not None:
        for clique, table in zip(start.tree.cliques, start.potentials, strict=True):
            home = tree.home(clique)
            if home is not None:
                potentials[home] += table.reshape(tree.shape_within(home, clique))
    curvature = np.zeros(len(tree.cliques))
    for one, home in zip(measured, homes, strict=True):
        cells = tree.cells_of(tree.cliques[home]) / tree.cells_of(one.columns)
        curvature[home] += cells / float(one.deviations.min()) ** 2
    rows = float(total)

    def loss_and_slope(shares: Sequence[CellTable]) -> tuple[float, list[CellTable]]:
        loss = 0.0
        slopes = [np.zeros_like(table) for table in shares]
        for one, home in zip(measured, homes, strict=True):
            axes = tree.axes_without(home, one.columns)
            shape = tree.shape_within(home, one.columns)
            gap = rows * shares[home].sum(axis=axes) - one.counts
            slope = gap / one.deviations**2
            loss += 0.5 * float((slope * gap).sum())
            slopes[home] += slope.reshape(shape)
        return loss, slopes

    step = 2.0 / (float(curvature.max()) * rows)
    shares = tree.shares(potentials)
    loss, slopes = loss_and_slope(shares)
    for _ in range(steps):
        moved = [table - step * slope for table, slope in zip(potentials, slopes, strict=True)]
        new_shares = tree.shares(moved)
        new_loss, new_slopes = loss_and_slope(new_shares)
        promised = sum(
            float((slope * (old - new)).sum())
            for slope, old, new in zip(slopes, shares, new_shares, strict=True)
        )
        if loss - new_loss >= _ENOUGH * rows * promised:
            potentials, shares, loss, slopes = moved, new_shares, new_loss, new_slopes
            step *= 1.3
        else:
            step *= 0.5
    return GraphicalModel(tree, tuple(potentials), rows, tuple(shares))


def estimated_total(measured: Sequence[NoisyMarginal]) -> float:
    """Number of rows by the sums of the noisy marginals, weighted by their precision."""
    sums = np.array([one.counts.sum() for one in measured])
    variances = np.array([np.square(one.deviations).sum() for one in measured])
    return max(1.0, float((sums / variances).sum() / (1.0 / variances).sum()))


def conditional_draw(weights: CellTable, given: Codes, rng: np.random.Generator) -> Codes:
    """One column of `weights` for each row number in `given`, drawn in proportion to that row.

    A row without any weight (numerically) has all columns equally likely.
    """
    asked, inverse = np.unique(given, return_inverse=True)
    chances = np.maximum(weights[asked], 0.0)
    chances = np.where(chances.sum(axis=1, keepdims=True) > 0.0, chances, 1.0)
    cumulated = np.cumsum(chances, axis=1)
    cumulated /= cumulated[:, -1:]
    # Row i of the cumulated chances moved to [i, i + 1]: one search finds all.
    moved = (cumulated + np.arange(len(asked))[:, None]).ravel()
    places = np.searchsorted(moved, inverse + rng.random(len(given)), side="right")
    columns = np.clip(places - inverse * weights.shape[1], 0, weights.shape[1] - 1)
    return np.asarray(columns, dtype=np.int64)


# What MST and AIM share --------------------------------------------------------------------------


def check_columns(schema: Schema) -> None:
    """Refuse tables that are too wide for methods that compare all pairs of columns."""
    columns = len(schema.features) + 1 + (schema.time is not None)
    if schema.task is Task.IMAGE or columns > _COLUMNS_AT_MOST:
        what = "images" if schema.task is Task.IMAGE else f"{columns} columns"
        raise NotApplicable(
            f"it compares all pairs of columns, which {what} have too many of; it is for tables of "
            f"at most {_COLUMNS_AT_MOST} columns"
        )


def largest_rho(private: PrivateData) -> float:
    """The largest rho whose zero-concentrated DP the harness's accountant lets the budget pay.

    rho = 1 / (2 s^2) is the zCDP of a Gaussian mechanism of noise multiplier s: calibrated as that.
    """
    noise = private.calibrate(
        lambda noise: [private.plan(zero_concentrated({"rho": 0.5 / noise**2}))]
    )
    return 0.5 / noise**2


def totals(private: PrivateData, by_class: bool) -> tuple[int, ...]:
    """Declared rows of the tables that are measured: the whole, or one per class."""
    counts = private.counts.by_class if by_class else (private.counts.total,)
    return tuple(max(1, count) for count in counts)


def noisy_marginals(released: object) -> tuple[NoisyMarginals, ...]:
    """Check that a mechanism returned noisy marginals, for the type checker too."""
    if not isinstance(released, tuple) or not all(
        isinstance(noisy, NoisyMarginals) for noisy in released
    ):
        raise TypeError(f"expected noisy marginals, got {type(released).__name__}")
    return released


@final
@dataclass
class Estimation:
    """Models that AIM fits to one table: each starts from the last."""

    sizes: Sequence[int]
    total: float
    steps: int
    cells: int
    """Most cells of all cliques of a model."""
    model: GraphicalModel | None = field(default=None, init=False)

    def fit(self, measured: Sequence[NoisyMarginal]) -> GraphicalModel:
        """A model of these answers."""
        self.model = fit(self.sizes, measured, self.total, self.steps, self.model)
        return self.model

    def last(self, measured: Sequence[NoisyMarginal], steps: int) -> GraphicalModel:
        """The model to draw from, fitted for longer."""
        return fit(self.sizes, measured, self.total, steps, self.model)

    def cells_with(self, sets: Sequence[Columns]) -> int:
        """Cells of all cliques of a model of these sets."""
        return JunctionTree(self.sizes, sets).cells

    def affordable(self, sets: Sequence[Columns]) -> bool:
        """Whether the junction tree of these sets is small enough."""
        return self.cells_with(sets) <= self.cells


def draw_rows(
    models: Sequence[GraphicalModel],
    released: Sequence[NoisyMarginals],
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> Codes:
    """Draw `sizes[c]` rows of each class c, the label last: from one model, or one per class."""
    tables: list[Codes] = []
    for label, count in enumerate(sizes):
        one_per_class = len(models) > 1
        number = label if one_per_class else 0
        model, kept = models[number], released[number].kept
        given = None if one_per_class else (len(kept) - 1, merged(kept[-1], label))
        drawn = model.draw(count, given, rng)
        columns = [unmerged(mask, drawn[:, place], rng) for place, mask in enumerate(kept)]
        features = columns if one_per_class else columns[:-1]
        tables.append(np.stack([*features, np.full(count, label)], axis=1))
    return np.concatenate(tables)


def merged(kept: npt.NDArray[np.bool_], code: int) -> int:
    """A code after rare ones were given one code, the last."""
    return int(kept[:code].sum()) if kept[code] else int(kept.sum())


def unmerged(kept: npt.NDArray[np.bool_], codes: Codes, rng: np.random.Generator) -> Codes:
    """Codes as they were before rare ones shared the last; of those, any with the same chance."""
    frequent, others = np.flatnonzero(kept), np.flatnonzero(~kept)
    if not len(others):
        return frequent[codes]
    shared = codes >= len(frequent)
    chance = rng.choice(others, size=len(codes))
    return np.where(shared, chance, frequent[np.minimum(codes, len(frequent) - 1)])
