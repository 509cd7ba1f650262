"""Turns what torch and transformers raise into the wire's reasons.

The libraries raise plain RuntimeError and ValueError for very different things, so their messages
are matched; each pattern names where it was seen. What matches nothing stays an engine error,
which the dispatcher retries.
"""

from __future__ import annotations

import traceback

from gpuagent.errors import AgentError, CancelledByServer
from gpuagent.wire import FailureReason

# Lower case. torch 2.13: c10 CPU allocator, cuBLAS and CUDA allocators, mmap of safetensors.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "not enough memory",
    "cublas_status_alloc_failed",
    "unable to mmap",
    "std::bad_alloc",
)
# transformers 5.24 auto classes, and huggingface_hub's config validation.
_UNSUPPORTED = (
    "unrecognized model",
    "unrecognized configuration class",
    "does not recognize this architecture",
    "not supported yet",
    "is not supported by transformers",
    "requires the following packages",
)
_UNSAFE = ("trust_remote_code", "custom code", "remote code")
_SETTINGS = (
    "not implemented for",
    "does not support an attention implementation",
    "attn_implementation",
    "scaled_dot_product_attention yet",
    "expected scalar type",
)
_BROKEN = (
    "size mismatch",
    "safetensorerror",
    "error while deserializing",
    "invalid header",
    "headertoolarge",
    "incompletemetadata",
    "shape mismatch",
    "gguf magic",
    "mismatched",
)


def as_agent_error(error: Exception, *, doing: str, loading: bool = False) -> AgentError:
    """The reason for `error`, with its first line as the message and the traceback as detail.

    doing: what was going on, for the message ("loading the model"). loading: an error without a
    better reason then means that the model itself is broken.
    """
    if isinstance(error, AgentError):
        return error
    if isinstance(error, CancelledByServer):
        raise error
    text = f"{type(error).__name__}: {error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = " ".join(lines[:2]) if lines else type(error).__name__
    detail = "".join(traceback.format_exception(error))
    return AgentError(
        _reason(error, text.lower(), loading=loading), f"{doing}: {first[:600]}", detail=detail
    )


def _reason(error: Exception, text: str, *, loading: bool) -> FailureReason:
    if isinstance(error, MemoryError) or "outofmemoryerror" in text:
        return FailureReason.OUT_OF_MEMORY
    ordered = (
        (_OUT_OF_MEMORY, FailureReason.OUT_OF_MEMORY),
        (_UNSAFE, FailureReason.MODEL_UNSAFE),
        (_UNSUPPORTED, FailureReason.MODEL_UNSUPPORTED),
        (_BROKEN, FailureReason.MODEL_BROKEN),
        (_SETTINGS, FailureReason.CONFIG_ERROR),
    )
    for patterns, reason in ordered:
        if any(pattern in text for pattern in patterns):
            return reason
    if isinstance(error, ImportError):
        return FailureReason.MODEL_UNSUPPORTED
    return FailureReason.MODEL_BROKEN if loading else FailureReason.ENGINE_ERROR
