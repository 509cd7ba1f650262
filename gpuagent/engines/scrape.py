"""One reading of a server's own counters."""

from __future__ import annotations

import httpx

from gpuagent.server_metrics import ServerMetrics, read_metrics

TIMEOUT_S = 2.0


def scrape(http: httpx.Client, url: str) -> ServerMetrics | None:
    """None where the server at `url` does not answer, or shows no engine's metrics."""
    try:
        answer = http.get(f"{url}/metrics", timeout=TIMEOUT_S)
    except httpx.HTTPError:
        return None
    return read_metrics(answer.text) if answer.status_code == 200 else None
