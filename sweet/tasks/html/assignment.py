"""The linear assignment problem: pair the rows of a matrix with its columns so that the sum is maximal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def assign(gains: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the min(rows, columns) pairs (row, column) with the largest sum of gains, ordered by row.

    Each row and each column is in at most one pair. The method is shortest augmenting paths with potentials (H. W.
    Kuhn, 1955; R. Jonker and A. Volgenant, Computing 38, 1987), in O(rows² columns).

    Args:
        gains: [rows, columns].
    """
    if gains.size == 0:
        return []
    if gains.shape[0] > gains.shape[1]:
        return sorted((row, column) for column, row in assign(gains.T))
    cost = gains.max() - gains
    rows, columns = cost.shape
    # Column 0 and row 0 mean "none": an augmenting path starts from column 0, to which the new row is assigned.
    of_column = np.zeros(columns + 1, dtype=np.intp)
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    for row in range(1, rows + 1):
        of_column[0] = row
        at = 0
        least = np.full(columns + 1, np.inf)
        came_from = np.zeros(columns + 1, dtype=np.intp)
        reached = np.zeros(columns + 1, dtype=bool)
        while of_column[at]:
            reached[at] = True
            here = of_column[at]
            open_ = np.flatnonzero(~reached)
            reduced = cost[here - 1, open_ - 1] - row_price[here] - column_price[open_]
            nearer = reduced < least[open_]
            least[open_[nearer]] = reduced[nearer]
            came_from[open_[nearer]] = at
            at = int(open_[np.argmin(least[open_])])
            step = least[at]
            row_price[of_column[reached]] += step
            column_price[reached] -= step
            least[~reached] -= step
        while at:
            of_column[at] = of_column[came_from[at]]
            at = int(came_from[at])
    return sorted((int(of_column[column]) - 1, column - 1) for column in range(1, columns + 1) if of_column[column])
