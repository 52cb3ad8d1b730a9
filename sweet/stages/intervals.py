"""Confidence intervals of shares of independent items."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson(share: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval for a share of n (E. B. Wilson, JASA 22, 1927)."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = share + z * z / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = (centre - reach) / scale, (centre + reach) / scale
    return min(max(0.0, low), share), max(min(1.0, high), share)
