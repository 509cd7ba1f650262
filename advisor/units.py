"""Numbers to words, for people: the only place where a unit is chosen and digits are cut.

Pure, so that pages, findings, reports and the command line say the same. None is always "–".
A no-break space stands between number and unit; minus is "−".
"""

from __future__ import annotations

NBSP = "\u00a0"
DASH = "–"

_GIB = 1024**3


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits, thousands separated; never in exponent form."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 10 ** (digits - 1):
        text = f"{magnitude:,.0f}"
    else:
        decimals = digits - 1
        probe = magnitude
        while probe < 1 and decimals < 12:
            probe *= 10
            decimals += 1
        while probe >= 10:
            probe /= 10
            decimals -= 1
        text = f"{magnitude:,.{max(decimals, 0)}f}"
    return f"−{text}" if value < 0 else text


def _with(value: float | None, scale: float, unit: str, digits: int) -> str:
    return DASH if value is None else f"{number(value / scale, digits)}{NBSP}{unit}"


def seconds(value: float | None, digits: int = 3) -> str:
    """µs, ms, s, min or h, whichever reads best."""
    if value is None:
        return DASH
    magnitude = abs(value)
    if magnitude >= 3600:
        return _with(value, 3600, "h", 2)
    if magnitude >= 120:
        return _with(value, 60, "min", 2)
    if magnitude >= 1:
        return _with(value, 1, "s", digits)
    if magnitude >= 1e-3 or magnitude == 0:
        return _with(value, 1e-3, "ms", digits)
    return _with(value, 1e-6, "µs", digits)


def memory(value: float | None, digits: int = 3) -> str:
    """KiB, MiB or GiB."""
    if value is None:
        return DASH
    if abs(value) >= _GIB:
        return _with(value, _GIB, "GiB", digits)
    if abs(value) >= 1024**2:
        return _with(value, 1024**2, "MiB", digits)
    if abs(value) >= 1024:
        return _with(value, 1024, "KiB", digits)
    return _with(value, 1, "B", digits)


def bandwidth(value_bytes_s: float | None, digits: int = 3) -> str:
    return _with(value_bytes_s, 1e9, "GB/s", digits)


def rate(value_tok_s: float | None, digits: int = 3) -> str:
    return _with(value_tok_s, 1, "tok/s", digits)


def energy(value_j: float | None, digits: int = 3) -> str:
    return _with(value_j, 1, "J/token", digits)


def percent(fraction: float | None, digits: int = 2) -> str:
    """0.183 -> "18 %". What is less than all never reads as 100 %."""
    while fraction is not None and abs(fraction) < 1 and digits < 6:
        if not number(abs(fraction) * 100, digits).startswith("100"):
            break
        digits += 1
    return _with(fraction, 0.01, "%", digits)


def count(value: float | None) -> str:
    """Large counts as 8.19 B, 135 M; small ones in full."""
    if value is None:
        return DASH
    if abs(value) >= 1e12:
        return _with(value, 1e12, "T", 3)
    if abs(value) >= 1e9:
        return _with(value, 1e9, "B", 3)
    if abs(value) >= 1e6:
        return _with(value, 1e6, "M", 3)
    return f"{value:,.0f}"


METRIC_NAMES: dict[str, str] = {
    "ttft_s": "TTFT",
    "itl_s": "ITL",
    "e2e_s": "End-to-end latency",
    "output_tok_s": "Throughput",
    "memory_bytes": "Memory",
    "joules_per_token": "Energy",
}

EFFECT_NAMES: dict[str, str] = {
    **METRIC_NAMES,
    "replica_hours": "Replica hours",
    "usd_per_hour": "Cost",
}
"""What a change may act on: the metrics, and what a fleet costs."""

METRIC_DEFINITIONS: dict[str, str] = {
    "ttft_s": "first output token − intended send time, client queueing included",
    "itl_s": "every gap between two output tokens",
    "e2e_s": "last output token − intended send time",
    "output_tok_s": "output tokens ÷ (last token − first intended send)",
    "memory_bytes": "peak of the trial's process or device allocator",
    "joules_per_token": "energy while measuring ÷ output tokens",
}


def metric(name: str, value: float | None, digits: int = 3) -> str:
    """A value of a metric in its usual unit."""
    formatter = {
        "ttft_s": seconds,
        "itl_s": seconds,
        "e2e_s": seconds,
        "output_tok_s": rate,
        "memory_bytes": memory,
        "joules_per_token": energy,
    }[name]
    return formatter(value, digits)
