"""How one trial stands against one target: met, missed, not proven or not measured.

A target is judged by a test, not by comparing two numbers: `met` and `missed` are both proven at
95 % confidence, and everything between is `not_proven` with the number of requests that would
decide it. Pure; used by rules, verdict, charts and pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.evidence import Basis
from gpuagent.wire import SlaTarget

TargetVerdict = Literal["met", "missed", "not_proven", "not_measured"]


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target against one trial.

    value, low, high: the target's statistic with its 95 % interval, in SI units of the metric;
    None where too few samples were taken or nothing was measured (`reason` says which).
    n: samples behind the value (gaps for ITL, requests for TTFT and E2E, blocks for throughput).
    needed_n: *requests* needed in all for a proof at the share over the limit seen so far; None
    where the verdict is proven or more requests would not help.
    headroom_frac: distance to the limit as a share of it, negative beyond the limit.
    reason: one sentence, always filled except for a plain `met`.
    trial_id: where the number comes from; None where no trial measured it.
    """

    target: SlaTarget
    verdict: TargetVerdict
    value: float | None
    low: float | None
    high: float | None
    n: int
    needed_n: int | None
    headroom_frac: float | None
    reason: str
    basis: Basis
    trial_id: str | None
