"""What the agent starts a server with is what the product prints, flag by flag."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.exports.arguments import SERVING_ENGINES, ServingEngine, arguments
from gpuagent.launch import knob_options
from gpuagent.wire import EngineSettings

VALUES: dict[str, tuple[Any, ...]] = {
    "dtype": ("bfloat16", "float16", "float32"),
    "max_running": (1, 256),
    "max_batched_tokens": (64, 8192),
    "chunked_prefill": (True, False),
    "memory_share_frac": (0.9,),
    "kv_dtype": ("fp8",),
    "cuda_graphs": (True, False),
    "prefix_cache": (True, False),
    "max_context": (1024,),
    "tensor_parallel": (2,),
    "pipeline_parallel": (2,),
    "data_parallel": (2,),
    "expert_parallel": (True, False),
}


@pytest.mark.parametrize("engine", SERVING_ENGINES)
@pytest.mark.parametrize("knob", VALUES)
def test_agent_and_exports_use_the_same_flags(engine: ServingEngine, knob: str) -> None:
    for value in VALUES[knob]:
        settings = EngineSettings.model_validate({knob: value})
        printed = [w for argument in arguments(engine, settings)[0] for w in argument.words]
        started = [w for words in knob_options(engine, settings).values() for w in words]
        assert started == printed, value


def test_all_knobs_of_a_server_are_covered() -> None:
    assert set(VALUES) == set(EngineSettings.model_fields) - {"kv_cache", "attention", "threads"}


def test_experts_are_spread_over_the_tensor_ranks_in_sglang() -> None:
    settings = EngineSettings(tensor_parallel=8, expert_parallel=True)
    words = [w for group in knob_options("sglang", settings).values() for w in group]
    assert words == ["--tp-size", "8", "--ep-size", "8"]
    printed = [w for argument in arguments("sglang", settings)[0] for w in argument.words]
    assert printed == words


def test_chunking_off_wins_over_the_size_of_a_chunk_in_sglang() -> None:
    settings = EngineSettings(chunked_prefill=False, max_batched_tokens=512)
    words = [word for group in knob_options("sglang", settings).values() for word in group]
    assert words == ["--chunked-prefill-size", "-1"]
