"""What every interleaved A/B has in common, whatever serves the two sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gpuagent.experiments.base import Facts, median
from gpuagent.wire.trial import AbRun

Side = Literal["a", "b"]
MIN_PAIRS = 5
# Prompts of the verification are not those that the candidate was chosen on.
_SEED_STEP = 7919


def sides_of(pair: int) -> tuple[Side, Side]:
    """ABBA ABBA ...: a drift of the machine falls on both sides alike."""
    return ("a", "b") if pair % 2 == 0 else ("b", "a")


def seed_of(pair: int, seed: int) -> int:
    """Both sides of a pair get the same fresh prompts, lengths and arrival times."""
    return (seed + _SEED_STEP * (pair + 1)) % 2**31


def note_cut(facts: Facts, *, pairs: int, planned_pairs: int, planned_requests: int) -> None:
    """Say that the trial's time ended the runs after `pairs` of them."""
    facts.notes.append(f"{pairs} of {planned_pairs} pairs fitted the time limit of the trial")
    facts.planned_requests = planned_requests


def note_repeats(facts: Facts, runs: list[AbRun], typical_s: Callable[[AbRun], float]) -> None:
    """Per run: its typical time over the median of its own side. 1 is typical."""
    times = [typical_s(run) for run in runs]
    for side in ("a", "b"):
        own = [time for run, time in zip(runs, times, strict=True) if run.side == side]
        middle = median(own) if own else 0.0
        if middle > 0:
            facts.repeat_ratios.extend(time / middle for time in own)
