"""Strength of association between columns of which one or both are categories.

Both measures grow by chance with the number of categories, the more the fewer rows there are: a
release of 100 rows and 40 countries would seem strongly associated with anything. Both are
corrected for that, with the effective number of rows.
"""

from __future__ import annotations

import numpy as np

from bench import Floats, Integers
from bench.metrics._shared.bootstrap import Array
from bench.metrics.fidelity._groups import Side, inverse_or_zero


def correlation_ratios(side: Side, values: Floats, codes: Integers, categories: int) -> Array:
    """(1 + resamples, columns of values): Kelley's epsilon, the corrected correlation ratio eta.

    eta^2 is the variance of the category means over the variance; epsilon^2 = 1 - (1 - eta^2)
    (n - 1) / (n - k), at least 0, for n rows and k categories that occur. 0 for a constant column,
    and where there are no more rows than categories.
    """
    shares = side.shares(codes, categories)[:, :, None]
    sums = np.stack(
        [side.shares(codes, categories, values[:, k]) for k in range(values.shape[1])], axis=2
    )
    means = sums.sum(axis=1)
    between = np.square(sums)
    np.divide(between, shares, out=between, where=shares > 0)
    scale = np.square(inverse_or_zero(side.means(values, 2) - np.square(means)))
    eta_squared = np.clip((between.sum(axis=1) - np.square(means)) * scale, 0.0, 1.0)
    spare = side.size - np.count_nonzero(shares > 0, axis=1)
    factor = np.zeros_like(spare, dtype=np.float64)
    np.divide(side.size - 1.0, spare, out=factor, where=spare > 0)
    squared = np.where((spare > 0) & (scale > 0), 1.0 - (1.0 - eta_squared) * factor, 0.0)
    result: Array = np.sqrt(np.maximum(0.0, squared))
    return result


def cramers_v(
    side: Side, first: Integers, first_count: int, second: Integers, second_count: int
) -> Array:
    """(1 + resamples): Cramer's V with Bergsma's correction (2013).

    phi^2 = chi^2 / n, less (k - 1)(r - 1) / (n - 1) and at least 0; V^2 = phi^2 over the smaller of
    k' - 1 and r' - 1, k' = k - (k - 1)^2 / (n - 1), for k and r categories that occur. 0 where
    a column is constant.
    """
    cells = side.shares(first * second_count + second, first_count * second_count)
    table = cells.reshape(len(cells), first_count, second_count)
    rows, columns = table.sum(axis=2), table.sum(axis=1)
    expected = rows[:, :, None] * columns[:, None, :]
    ratio = np.square(table)
    np.divide(ratio, expected, out=ratio, where=expected > 0)
    phi_squared = ratio.sum(axis=(1, 2)) - 1.0
    k = np.count_nonzero(rows > 0, axis=1) - 1.0
    r = np.count_nonzero(columns > 0, axis=1) - 1.0
    free = max(side.size - 1.0, 1e-9)
    corrected = np.maximum(0.0, phi_squared - k * r / free)
    most = np.minimum(k - k * k / free, r - r * r / free)
    squared = np.zeros_like(corrected)
    np.divide(corrected, most, out=squared, where=most > 1e-12)
    result: Array = np.sqrt(np.minimum(1.0, squared))
    return result
