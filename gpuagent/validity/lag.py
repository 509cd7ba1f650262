"""How late requests left and how late they may leave: for trials and for the load tool alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gpuagent.validity.limits import SEND_LAG_FLOOR_S, SEND_LAG_TTFT_FRAC
from gpuagent.wire.measure import RequestRecord


@dataclass(frozen=True, slots=True)
class SendLag:
    """Sent minus intended, at the 99th percentile, and what is allowed."""

    p99_s: float
    allowed_s: float


def send_lag(records: Sequence[RequestRecord]) -> SendLag | None:
    """None where nothing was sent. Without any token the floor alone is allowed."""
    if not records:
        return None
    lags = sorted(record.sent_s - record.intended_s for record in records)
    ttfts = [r.token_s[0] - r.intended_s for r in records if r.token_s]
    typical_s = statistics.median(ttfts) if ttfts else 0.0
    allowed_s = max(SEND_LAG_FLOOR_S, SEND_LAG_TTFT_FRAC * typical_s)
    return SendLag(lags[int(0.99 * len(lags))], allowed_s)
