"""Time-outs, shared memory and storage of a deployment: measured where possible, else stated."""

from __future__ import annotations

import math
from typing import Final

from advisor.exports.document import ExportDocument

PORT: Final = 8000
HF_CACHE: Final = "/root/.cache/huggingface"
GIB: Final = 1024**3

PROBE_TIMEOUT_S: Final = 5
LIVENESS_PERIOD_S: Final = 10
# A busy engine answers late: a minute of silence, not one slow answer, restarts it.
LIVENESS_FAILURES: Final = 6
READINESS_PERIOD_S: Final = 5
STARTUP_PERIOD_S: Final = 10

START_FACTOR: Final = 3
"""A cold page cache or a busy disk makes a start several times as long as a measured one."""
UNKNOWN_START_S: Final = 1200
SHORTEST_START_S: Final = 120
DOWNLOAD_BYTES_S: Final = 50e6
"""Assumed rate of the first download; a slower link needs a longer start-up limit."""
SHORTEST_GRACE_S: Final = 60
UNKNOWN_GRACE_S: Final = 120
GRACE_FACTOR: Final = 2
DRAIN_S: Final = 5

HEALTH_CODE: Final = (
    "import urllib.request; "
    f"urllib.request.urlopen('http://127.0.0.1:{PORT}/health', timeout={PROBE_TIMEOUT_S - 1})"
)


def listen_words() -> tuple[str, ...]:
    """Listen outside the container, on the same port for both engines."""
    return ("--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104 - inside a container


def start_limit_s(document: ExportDocument) -> float:
    """How long a start may take before it counts as failed, the first download included."""
    sizing = document.sizing
    start = UNKNOWN_START_S if sizing.start_s is None else START_FACTOR * sizing.start_s
    return max(SHORTEST_START_S, start) + _download_s(document)


def _download_s(document: ExportDocument) -> float:
    if document.model.kind != "hub" or document.sizing.weight_bytes is None:
        return 0.0
    return document.sizing.weight_bytes / DOWNLOAD_BYTES_S


def grace_s(document: ExportDocument) -> int:
    """How long running answers may take to finish after the stop signal."""
    longest = document.sizing.longest_answer_s
    if longest is None:
        return UNKNOWN_GRACE_S
    return max(SHORTEST_GRACE_S, math.ceil(GRACE_FACTOR * longest) + DRAIN_S)


def shm_bytes(document: ExportDocument) -> int | None:
    """Shared memory for ranks that exchange tensors; None where there is one rank.

    2 GiB: vLLM's example for Kubernetes. SGLang's own for docker is 32 GiB; an empty-dir of memory
    takes only what is written.
    """
    if document.sizing.gpus == 1:
        return None
    return 2 * GIB if document.engine == "vllm" else 32 * GIB


def cache_gib(document: ExportDocument) -> int:
    """Room for the weights on disk, twice over for a second revision; 100 GiB where not known."""
    weight = document.sizing.weight_bytes
    return 100 if weight is None else max(10, math.ceil(2 * weight / GIB))


def notes(document: ExportDocument) -> list[str]:
    """Where the time-outs come from."""
    sizing = document.sizing
    limit = f"{start_limit_s(document):,.0f} s"
    if sizing.start_s is None:
        start = f"Start-up limit {limit}: the start of this engine was not measured."
    else:
        start = f"Start-up limit {limit}: {START_FACTOR} × the measured {sizing.start_s:,.0f} s"
        start += f", at least {SHORTEST_START_S} s"
        start += ", plus the download." if _download_s(document) else "."
    stop = f"Time to stop {grace_s(document)} s: "
    if sizing.longest_answer_s is None:
        stop += "the longest answer of this engine was not measured."
    else:
        stop += f"twice the longest measured answer, at least {SHORTEST_GRACE_S} s."
    return [start, stop, "CPU and host memory are not limited: what they need was not measured."]
