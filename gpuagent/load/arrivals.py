"""When requests are to be sent, fixed beforehand from the seed alone.

constant: every 1 / rate. poisson: independent exponential gaps. bursty: gamma gaps of shape
`burstiness` < 1 with the same mean (coefficient of variation 1 / sqrt(burstiness)). replay: the
time stamps of a real log, as they are.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuagent.errors import ConfigError

Process = Literal["constant", "poisson", "bursty"]
PROCESSES: tuple[Process, ...] = ("constant", "poisson", "bursty")


def arrival_times(
    process: Process, rate_per_s: float, count: int, *, seed: int, burstiness: float = 0.25
) -> list[float]:
    """`count` intended send times in seconds since the start, ascending, the first above 0.

    Raises ValueError for a rate or burstiness that is not above 0.
    """
    if rate_per_s <= 0:
        raise ValueError(f"rate: must be above 0 requests a second, not {rate_per_s:g}")
    if not 0 < burstiness <= 1:
        raise ValueError(f"burstiness: must lie above 0 and up to 1, not {burstiness:g}")
    rng = random.Random(seed)  # noqa: S311  reproducible draws, nothing secret
    mean_s = 1.0 / rate_per_s
    times: list[float] = []
    at_s = 0.0
    for _ in range(count):
        if process == "constant":
            at_s += mean_s
        elif process == "poisson":
            at_s += rng.expovariate(rate_per_s)
        else:
            at_s += rng.gammavariate(burstiness, mean_s / burstiness)
        times.append(at_s)
    return times


@dataclass(frozen=True, slots=True)
class Replayed:
    """One line of a log: seconds since its first, and input and output tokens where it has them."""

    at_s: float
    lengths: tuple[int, int] | None


def read_replay(path: Path, *, speed: float = 1.0) -> list[Replayed]:
    """A log of `seconds` or `seconds,input_tokens,output_tokens` lines, played `speed` times as
    fast. A first line of words is a heading. Raises ConfigError with the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error})") from error
    rows: list[tuple[float, tuple[int, int] | None]] = []
    for number, line in enumerate(lines, start=1):
        fields = line.replace(",", " ").split()
        if not fields or (number == 1 and fields[0][0].isalpha()):
            continue
        row = _replay_row(fields)
        if row is None:
            raise ConfigError(
                f"{path}, line {number}: needs seconds, or seconds,input_tokens,output_tokens"
            )
        if rows and row[0] < rows[-1][0]:
            raise ConfigError(f"{path}, line {number}: is earlier than the line before it")
        rows.append(row)
    if not rows:
        raise ConfigError(f"{path} holds no time stamps")
    first_s = rows[0][0]
    return [Replayed((at_s - first_s) / speed, lengths) for at_s, lengths in rows]


def _replay_row(fields: list[str]) -> tuple[float, tuple[int, int] | None] | None:
    try:
        at_s = float(fields[0])
        lengths = (int(fields[1]), int(fields[2])) if len(fields) == 3 else None
    except ValueError:
        return None
    usable = math.isfinite(at_s) and len(fields) in (1, 3) and min(lengths or (1,)) >= 1
    return (at_s, lengths) if usable else None
