"""Was the client the bottleneck? Then no latency of the run is a property of the server.

Limits: checklist row 5 (send lag p99 at most max(10 ms, 1 % of the median TTFT), sent over asked
rate at least 0.99, own processor time at most 70 % of one core, connections left) and row 16
(tokens in order and after the send).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuagent.validity.lag import send_lag
from gpuagent.wire.measure import Validity, ValidityCheck

if TYPE_CHECKING:
    from gpuagent.load.driver import LoadRun

RATE_FRAC = 0.99
CPU_FRAC = 0.70
CONNECTION_FRAC = 1 / 1.2
FAILED_FRAC = 0.01


def check_client(run: LoadRun) -> Validity:
    """Verdict on the run as a measurement, whatever the server did."""
    checks = [_failures(run), _cpu(run)]
    if run.open_loop:
        checks += [_lag(run), _rate(run), _connections(run)]
    return Validity(checks=tuple(checks))


def _line(
    check_id: str, *, good: bool, value: float, limit: float, bad: str, ok: str
) -> ValidityCheck:
    return ValidityCheck(
        id=check_id,
        verdict="valid" if good else "invalid",
        message=ok if good else bad,
        value=value,
        limit=limit,
    )


def _lag(run: LoadRun) -> ValidityCheck:
    lag = send_lag(run.records)
    if lag is None:
        return ValidityCheck(id="send_lag", verdict="not_checked", message="No request was sent")
    return _line(
        "send_lag",
        good=lag.p99_s <= lag.allowed_s,
        value=lag.p99_s,
        limit=lag.allowed_s,
        bad=f"Requests left {lag.p99_s * 1e3:.1f} ms late (p99), {lag.allowed_s * 1e3:.0f} ms are "
        "allowed: the client was the bottleneck",
        ok=f"Requests left on time (p99 {lag.p99_s * 1e3:.1f} ms late)",
    )


def _rate(run: LoadRun) -> ValidityCheck:
    achieved = run.rate_achieved_frac
    if achieved is None:
        message = "Too few requests to tell the rate"
        return ValidityCheck(id="rate_sent", verdict="not_checked", message=message)
    return _line(
        "rate_sent",
        good=achieved >= RATE_FRAC,
        value=achieved,
        limit=RATE_FRAC,
        bad=f"Only {achieved:.1%} of the asked rate was sent: the client was the bottleneck",
        ok=f"{min(achieved, 1):.1%} of the asked rate was sent",
    )


def _cpu(run: LoadRun) -> ValidityCheck:
    return _line(
        "client_cpu",
        good=run.cpu_frac <= CPU_FRAC,
        value=run.cpu_frac,
        limit=CPU_FRAC,
        bad=f"The client used {run.cpu_frac:.0%} of a processor core, more than {CPU_FRAC:.0%}: "
        "its own work may have delayed the stamps",
        ok=f"The client used {run.cpu_frac:.0%} of a processor core",
    )


def _connections(run: LoadRun) -> ValidityCheck:
    used = run.peak_in_flight / run.connection_limit
    return _line(
        "client_connections",
        good=used <= CONNECTION_FRAC,
        value=used,
        limit=CONNECTION_FRAC,
        bad=f"{run.peak_in_flight} requests were open at once and the client may hold "
        f"{run.connection_limit} connections: raise its limit of open files",
        ok=f"At most {run.peak_in_flight} requests were open at once",
    )


def _failures(run: LoadRun) -> ValidityCheck:
    failed = sum(record.error is not None for record in run.records)
    share = failed / len(run.records) if run.records else 1.0
    return _line(
        "requests_failed",
        good=share <= FAILED_FRAC,
        value=share,
        limit=FAILED_FRAC,
        bad=f"{failed} of {len(run.records)} requests failed",
        ok=f"{failed} of {len(run.records)} requests failed",
    )
