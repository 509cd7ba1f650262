"""Numbers in sentences: percent, time, counts, in the spelling of the rest of the product."""

from __future__ import annotations


def pct(fraction: float) -> str:
    """0.863 as `86.3 %`; tiny non-zero values keep a digit."""
    value = 100 * fraction
    if 0 < abs(value) < 0.1:
        return f"{value:.2f} %"
    return f"{value:.1f} %"


def seconds(value: float) -> str:
    """A time in the unit that gives one to four leading digits: `25.1 ms`, `6.3 µs`."""
    size = abs(value)
    if size >= 1:
        return f"{value:.2f} s"
    if size >= 1e-3:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.1f} µs"
