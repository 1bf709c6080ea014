"""A picture of real and released rows in two dimensions, and how well they mix in all of them."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Scores
from bench.metrics._shared import bootstrap
from bench.metrics._shared.bootstrap import Array
from bench.metrics._shared.rows import points, positive_rows, row_weights

Indices = npt.NDArray[np.intp]

ROWS = 300
"""Rows of each table: more would not show more in a picture of this size, and cost minutes."""
LEAST = 20
"""Rows of each table at least: neighbours among fewer are not informative."""
NEIGHBOURS = 5
PERPLEXITY = 30.0
ITERATIONS = 1000


@final
class Embedding(Metric):
    """Whether released rows lie among the real ones.

    With m rows of each table, drawn with the same number of each class, let s be the share of rows
    of the other table among the k nearest neighbours of a row, over the rows of one table (Henze
    1988; Schilling 1986). Rows of one distribution have s = m / (2m - 1) on average: of the 2m - 1
    others, m are of the other table. The number is |s (2m - 1) / m - 1|, mean of the two tables.
    It is 1 where the tables lie apart, and above 0 as well where released rows are copies, which
    lie closer to their originals than originals to each other. The tables are looked at one by
    one: where released rows are scattered around a dense core of real ones, the neighbours of both
    are real, and the share over all rows is that of rows that mix.

    The picture is t-SNE of the same rows (van der Maaten and Hinton 2008). It keeps near rows near;
    distances between groups, and their sizes, mean nothing. No number is computed from it.
    """

    name: ClassVar[str] = "embedding"
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    shown: ClassVar[bool] = False
    optional: ClassVar[bool] = True
    definition: ClassVar[str] = (
        f"Share of rows of the other table among the {NEIGHBOURS} nearest neighbours of a row, "
        "training and released rows together (Schilling 1986; Henze 1988), as its relative "
        "distance from what rows of one distribution show, for the rows of each table, mean of "
        "both: 0 where they mix, 1 where they lie "
        f"apart, above 0 as well where released rows are copies. Up to {ROWS} rows of each table, "
        "the same number of each class of both, drawn at random (released ones by weight); "
        "Euclidean distance of encoded records with label and time. The details hold a t-SNE of "
        "the same rows for the picture. Interval: 1000 bootstrap resamples of the rows, neighbours "
        "fixed, corrected for the inflation of distances between resamples."
    )
    cost: ClassVar[str] = "3 to 8 seconds, whatever the number of rows"

    def compute(self, evaluation: Evaluation) -> Scores:
        rng = evaluation.generator("embedding")
        real, released = _drawn(evaluation, rng)
        rows = np.concatenate([real, released])
        if not np.ptp(rows, axis=0).any():
            raise NotComputable("all training and released rows that were drawn are equal")
        kinds = np.repeat([False, True], [len(real), len(released)])
        shares = mixing(rows, kinds)
        expected = len(real) / (2 * len(real) - 1)
        of_kinds = [bootstrap.share(shares * kind, kind) for kind in (~kinds, kinds)]
        joint = bootstrap.jointly(
            lambda weights: np.stack([share(weights) for share in of_kinds]), kinds, rng
        )
        distance = joint.estimate(lambda numbers: np.abs(numbers / expected - 1).mean(axis=0))
        score = distance.distance_score(self)
        return Scores((score,), {"embedding": _picture(rows, kinds, rng)})


def mixing(rows: Array, kinds: npt.NDArray[np.bool_]) -> Array:
    """Share of the other kind among the nearest neighbours of each row.

    Neighbours as far as the last of them count in part: equal rows have no order.
    """
    squares = np.square(rows).sum(axis=1)
    # Of rows as far from zero as one-hot columns are, differences this small are rounding.
    distances = (squares[:, None] + squares[None, :] - 2 * rows @ rows.T).round(9)
    np.fill_diagonal(distances, np.inf)
    last = np.partition(distances, NEIGHBOURS - 1, axis=1)[:, NEIGHBOURS - 1 : NEIGHBOURS]
    other = kinds[:, None] != kinds[None, :]
    nearer, tied = distances < last, distances == last
    left = NEIGHBOURS - nearer.sum(axis=1)
    others = (nearer & other).sum(axis=1) + left * (tied & other).sum(axis=1) / tied.sum(axis=1)
    shares: Array = others / NEIGHBOURS
    return shares


def _drawn(evaluation: Evaluation, rng: np.random.Generator) -> tuple[Array, Array]:
    """Training and released records, equally many of each class."""
    train, rows, encoder = (
        evaluation.dataset.train.rows,
        evaluation.rows,
        evaluation.dataset.encoder,
    )
    positive, weights = positive_rows(evaluation), row_weights(rows)
    # Up to ROWS released rows in random order, drawn by weight and without replacement.
    chances = weights[positive] / weights[positive].sum()
    kept = rng.choice(positive, min(ROWS, len(positive)), replace=False, p=chances)
    labels = np.asarray(rows.labels)[kept]
    chosen: list[tuple[Indices, Indices]] = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(np.asarray(train.labels) == label))
        count = min(len(members), int(np.count_nonzero(labels == label)))
        chosen.append((members[:count], kept[labels == label][:count]))
    real, released = (np.concatenate([pair[side] for pair in chosen]) for side in (0, 1))
    if len(real) < LEAST:
        raise NotComputable(
            f"{len(real)} rows of each table have a counterpart of the same class; "
            f"{LEAST} are needed"
        )
    return (
        points(encoder, train.values[real], np.asarray(train.labels)[real]),
        points(encoder, rows.values[released], np.asarray(rows.labels)[released]),
    )


def _picture(rows: Array, kinds: npt.NDArray[np.bool_], rng: np.random.Generator) -> pd.DataFrame:
    """Coordinates and kind; in random order, so that neither kind covers the other."""
    from sklearn.manifold import TSNE

    projection: Any = TSNE(
        n_components=2,
        perplexity=min(PERPLEXITY, (len(rows) - 1) / 3),
        init="pca",
        learning_rate="auto",
        max_iter=ITERATIONS,
        random_state=int(rng.integers(2**31)),
        n_jobs=1,
    )
    places = projection.fit_transform(rows.astype(np.float32))
    order = rng.permutation(len(rows))
    names = np.where(kinds, "released", "real")
    return pd.DataFrame(
        {
            "x": places[order, 0].astype(np.float64),
            "y": places[order, 1].astype(np.float64),
            "rows": names[order],
        }
    )
