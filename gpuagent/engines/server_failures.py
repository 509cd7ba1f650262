"""Why a server did not start or did not stay: from its exit code and its log to the wire's reasons.

Every pattern was provoked on vLLM 0.32, SGLang 0.5.23 or transformers 5.19 on a CPU, or, where a
comment says so, read in their code. vLLM ends most failures with a generic line; the cause stands
above it.
"""

from __future__ import annotations

import re

from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason

PORT_IN_USE = "port_in_use"
"""`detail` of the failure begins with it; another port is then tried."""

_LINE_CHARS = 600
_TAIL_CHARS = 6_000
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(
    r"^(?:\((?:APIServer|EngineCore|Worker)[^)]*\) *)?(?:[A-Z]+ [\d:. -]+\[[^\]]*\] *)?"
)

# (pattern, reason), the first that matches anywhere in the log wins.
_CAUSES: tuple[tuple[re.Pattern[str], FailureReason], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        (r"address already in use", FailureReason.ENGINE_ERROR),
        (r"To serve at least one request .*", FailureReason.OUT_OF_MEMORY),
        (r"Available memory on node .*", FailureReason.OUT_OF_MEMORY),
        # The next three are known from the code only.
        (r"No available memory for the cache blocks.*", FailureReason.OUT_OF_MEMORY),
        (r"Free memory on device .* is less than desired.*", FailureReason.OUT_OF_MEMORY),
        (r"(?:CUDA|HIP) out of memory.*|OutOfMemoryError.*", FailureReason.OUT_OF_MEMORY),
        # Of transformers' continuous batching, whose cache holds not even one batch.
        (r"Invalid values: max_batch_tokens = .*", FailureReason.OUT_OF_MEMORY),
        (r"Memory footprint .* is more than available memory.*", FailureReason.OUT_OF_MEMORY),
        (r"contains custom code which must be executed.*", FailureReason.MODEL_UNSAFE),
        (r"Model architectures .{0,80}are not supported.*", FailureReason.MODEL_UNSUPPORTED),
        (r"Cannot find any model weights.*", FailureReason.MODEL_BROKEN),
        (r"Error while deserializing header.*|SafetensorError.*", FailureReason.MODEL_BROKEN),
        (r"HFValidationError.*|Repo id must.*", FailureReason.MODEL_NOT_FOUND),
        (r"^.*: error: .*|^error: .*", FailureReason.CONFIG_ERROR),
        (r"Value error, .*", FailureReason.CONFIG_ERROR),
        (r"Input should be .*", FailureReason.CONFIG_ERROR),
        (r"Unknown attention backend.*|Unknown quantization.*", FailureReason.CONFIG_ERROR),
        (r"unrecognized arguments.*|invalid choice.*", FailureReason.CONFIG_ERROR),
        (r"Invalid kv_cache_dtype.*", FailureReason.CONFIG_ERROR),
        (r"No module named .*|.* requires `accelerate`.*", FailureReason.AGENT_ERROR),
    )
)


def startup_failure(engine: str, code: int | None, log: str) -> AgentError:
    """The failure of a server that ended, or that never answered (code None), from its log.

    The message is the engine's own first sentence about the cause; the detail its log's end.
    """
    text = _ANSI.sub("", log)
    tail = text[-_TAIL_CHARS:]
    for pattern, reason in _CAUSES:
        found = _first(pattern, text)
        if found is not None:
            port = "address already in use" in found.lower()
            detail = f"{PORT_IN_USE}\n{tail}" if port else tail
            return AgentError(reason, f"{engine}: {found}", detail=detail)
    if code is not None and code < 0:
        message = f"{engine} was killed by signal {-code} while it started"
        if code == -9:
            message += "; usually the host ran out of memory"
        return AgentError(FailureReason.CHILD_KILLED, message, detail=tail)
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    how = "did not answer in time" if code is None else f"ended with code {code}"
    message = f"{engine} {how}: {last[:_LINE_CHARS]}" if last else f"{engine} {how}"
    return AgentError(FailureReason.ENGINE_ERROR, message, detail=tail)


def running_failure(engine: str, code: int | None, log: str) -> AgentError:
    """The failure of a server that had been ready and is gone."""
    text = _ANSI.sub("", log)
    memory = [p for p, reason in _CAUSES if reason is FailureReason.OUT_OF_MEMORY]
    for pattern in memory:
        found = _first(pattern, text)
        if found is not None:
            return AgentError(
                FailureReason.OUT_OF_MEMORY, f"{engine}: {found}", detail=text[-_TAIL_CHARS:]
            )
    killed = code is not None and code < 0
    how = f"was killed by signal {-(code or 0)}" if killed else f"ended with code {code}"
    return AgentError(
        FailureReason.CHILD_KILLED if killed else FailureReason.ENGINE_ERROR,
        f"{engine} {how} during the measurement",
        detail=text[-_TAIL_CHARS:],
    )


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    for line in text.splitlines():
        found = pattern.search(line)
        if found is not None:
            said = _PREFIX.sub("", found.group(0)).split(" [type=")[0].strip()
            return said.removeprefix("Value error, ")[:_LINE_CHARS]
    return None
