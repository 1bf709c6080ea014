"""Compiled loop over the conditions of predicates. Import it lazily: it imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bench.metrics._shared.kernels import compiled

_CHUNK = 256
"""Rows compared together: most chunks hold no fitting row after two conditions and are left."""


@compiled()
def count_fitting(
    columns: npt.NDArray[np.intp],
    operators: npt.NDArray[np.int8],
    values: npt.NDArray[np.float64],
    table: npt.NDArray[np.float64],
    enough: int,
    counts: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
) -> None:
    """Count the rows of a (columns, rows) table that each predicate fits, and note the first one.

    Operators are those of `singling_out`: 0 equal, 1 at most, 2 at least; nothing fits a missing
    value. Counting stops in the chunk that brings a count to `enough`.
    """
    rows = table.shape[1]
    fits = np.empty(_CHUNK, dtype=np.bool_)
    for number in range(columns.shape[0]):
        count: Any = 0
        for start in range(0, rows, _CHUNK):
            size = min(_CHUNK, rows - start)
            alive = size
            for place in range(columns.shape[1]):
                cells = table[columns[number, place], start : start + size]
                operator, value = operators[number, place], values[number, place]
                if place == 0:
                    fits[:size] = True
                if operator == 0:
                    for row in range(size):
                        fits[row] &= cells[row] == value
                elif operator == 1:
                    for row in range(size):
                        fits[row] &= cells[row] <= value
                else:
                    for row in range(size):
                        fits[row] &= cells[row] >= value
                alive = 0
                for row in range(size):
                    alive += fits[row]
                if alive == 0:
                    break
            if alive:
                if count == 0:
                    for row in range(size):
                        if fits[row]:
                            first[number] = start + row
                            break
                count += alive
                if count >= enough:
                    break
        counts[number] = count
