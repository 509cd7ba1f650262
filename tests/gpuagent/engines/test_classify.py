from __future__ import annotations

import pytest

from gpuagent.engines.classify import as_agent_error
from gpuagent.errors import AgentError, CancelledByServer
from gpuagent.wire import FailureReason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), FailureReason.OUT_OF_MEMORY),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            FailureReason.OUT_OF_MEMORY,
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), FailureReason.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), FailureReason.OUT_OF_MEMORY),
        (
            RuntimeError('"addmm_impl_cpu_" not implemented for \'Half\''),
            FailureReason.CONFIG_ERROR,
        ),
        (
            ValueError(
                "The checkpoint has model type `x` but Transformers does not recognize this "
                "architecture"
            ),
            FailureReason.MODEL_UNSUPPORTED,
        ),
        (
            ImportError("Loading requires the following packages: mamba"),
            FailureReason.MODEL_UNSUPPORTED,
        ),
        (
            ValueError("The repository contains custom code; pass `trust_remote_code=True`"),
            FailureReason.MODEL_UNSAFE,
        ),
        (RuntimeError("CUDA error: an illegal memory access"), FailureReason.ENGINE_ERROR),
    ],
)  # fmt: skip
def test_an_error_gets_the_reason_that_decides_about_a_retry(
    error: Exception, reason: FailureReason
) -> None:
    classified = as_agent_error(error, doing="decode step")
    assert classified.reason is reason
    assert classified.message.startswith("decode step: ")
    assert type(error).__name__ in (classified.detail or "")


def test_an_unknown_error_while_loading_means_a_broken_model() -> None:
    error = as_agent_error(KeyError("weight"), doing="loading the model", loading=True)
    assert error.reason is FailureReason.MODEL_BROKEN


def test_a_classified_error_stays_what_it_was() -> None:
    original = AgentError(FailureReason.DISK_FULL, "no space")
    assert as_agent_error(original, doing="anything") is original


def test_a_cancel_is_never_an_error() -> None:
    with pytest.raises(CancelledByServer):
        as_agent_error(CancelledByServer(), doing="anything")
