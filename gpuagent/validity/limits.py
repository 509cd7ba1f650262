"""Every limit of the validity checks, in one table: value, unit, what is beyond it, source.

Sources are the measurement practice of MLPerf Inference (rules and audit guide, 2026), AIPerf
(coefficient of variation classes), wrk2 (send lag) and NVML's event reasons; where a limit was
loosened for a shared host, the reason is given.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """warn / invalid: beyond which value. None: there is no such verdict."""

    unit: str
    warn: float | None
    invalid: float | None
    source: str


LIMITS: dict[str, Limit] = {
    # AIPerf: below 5 % excellent, 5-10 % good, 10-20 % fair, above 20 % unstable. Ranking is done
    # by interleaved A/B runs with an interval of their own, so 10-20 % only warns here.
    "repeats_cov": Limit("fraction", 0.05, 0.20, "AIPerf multi-run classes"),
    # Ratio of the medians of the window's two halves.
    "steady_state": Limit("ratio - 1", 0.05, 0.50, "halves' median ratio 0.95-1.05"),
    # Failed and missing requests over planned ones.
    "requests_completed": Limit("fraction", 0.0, 0.01, "MLPerf: 1 % for a standard run"),
    # p99 of send lag over max(10 ms, 1 % of the median time to first token).
    "send_lag": Limit("ratio", 0.5, 1.0, "open-loop practice, wrk2"),
    "sample_count": Limit("requests", 20, 6, "two-sided 95 % interval of a median needs 6"),
    # Processor time of others, in cores over the window, as a share of the host's cores.
    "other_cpu_load": Limit("fraction of cores", 0.10, 0.50, "own measurement on a 2-core host"),
    "cpu_steal": Limit("fraction of cores", 0.01, 0.05, "1 % for a dedicated host"),
    "foreign_gpu_processes": Limit("processes", None, 0, "exclusive device"),
    # Share of busy GPU samples with a hardware or thermal slow-down.
    "gpu_throttled": Limit("fraction of samples", 0.0, 0.005, "NVML event reasons at 1 Hz"),
    # A permanent power cap is normal on many cards, so it never makes a result invalid.
    "gpu_power_capped": Limit("fraction of samples", 0.05, None, "NVML event reasons at 1 Hz"),
    "sm_clock_cov": Limit("fraction", 0.03, None, "3 % between samples"),
}

THROTTLE_NAMES = frozenset({"hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"})
POWER_CAP_NAMES = frozenset({"sw_power_cap"})
SEND_LAG_FLOOR_S = 0.010
SEND_LAG_TTFT_FRAC = 0.01
