"""The perceived difference of two colours: CIEDE2000."""

from __future__ import annotations

import math

_WHITE = (0.95047, 1.0, 1.08883)
"""The white point of sRGB, D65."""


def difference(one: str, other: str) -> float:
    """Return the CIEDE2000 difference of two sRGB colours "#rrggbb": 0 for the same, 100 for black and white.

    Raises:
        ValueError: one of them is not such a colour.
    """
    return ciede2000(lab(one), lab(other))


def lab(colour: str) -> tuple[float, float, float]:
    """Return the CIE L*a*b* values (D65) of "#rrggbb"."""
    if len(colour) != 7 or colour[0] != "#":
        raise ValueError(f"not a colour: {colour[:20]!r}")
    r, g, b = (_linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    x = 0.4124564 * r + 0.3575761 * g + 0.1804375 * b
    y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b
    z = 0.0193339 * r + 0.1191920 * g + 0.9503041 * b
    fx, fy, fz = (_root(value / white) for value, white in zip((x, y, z), _WHITE, strict=True))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def _root(value: float) -> float:
    return math.cbrt(value) if value > (6 / 29) ** 3 else value * (29 / 6) ** 2 / 3 + 4 / 29


def ciede2000(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Return the difference of two L*a*b* colours, with all weights 1.

    The formula and its symbols are those of G. Sharma, W. Wu, E. Dalal, "The CIEDE2000 color-difference formula", Color
    Research & Application 30, 2005.
    """
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_c7 = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    g = 0.5 * (1 - math.sqrt(mean_c7 / (mean_c7 + 25**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 if a or b else 0.0 for a, b in ((a1, b1), (a2, b2)))
    turn = h2 - h1
    if c1 * c2 == 0:
        turn = 0.0
    elif turn > 180:
        turn -= 360
    elif turn < -180:
        turn += 360
    dl, dc, dh = l2 - l1, c2 - c1, 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    l_, c_ = (l1 + l2) / 2, (c1 + c2) / 2
    h_ = h1 + h2
    if c1 * c2 != 0:
        h_ = h_ / 2 if abs(h1 - h2) <= 180 else (h_ + 360) / 2 if h_ < 360 else (h_ - 360) / 2
    t = (
        1
        - 0.17 * math.cos(math.radians(h_ - 30))
        + 0.24 * math.cos(math.radians(2 * h_))
        + 0.32 * math.cos(math.radians(3 * h_ + 6))
        - 0.20 * math.cos(math.radians(4 * h_ - 63))
    )
    sl = 1 + 0.015 * (l_ - 50) ** 2 / math.sqrt(20 + (l_ - 50) ** 2)
    sc, sh = 1 + 0.045 * c_, 1 + 0.015 * c_ * t
    theta = 30 * math.exp(-(((h_ - 275) / 25) ** 2))
    rc = 2 * math.sqrt(c_**7 / (c_**7 + 25**7))
    rt = -math.sin(math.radians(2 * theta)) * rc
    dl, dc, dh = dl / sl, dc / sc, dh / sh
    return math.sqrt(max(dl * dl + dc * dc + dh * dh + rt * dc * dh, 0.0))
