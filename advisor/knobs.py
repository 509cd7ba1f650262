"""Names and values of settings in words: one vocabulary for pages, plans and reports. Pure."""

from __future__ import annotations

from gpuagent.wire import EngineSettings

KNOB_NAMES: dict[str, str] = {
    "dtype": "Precision",
    "kv_cache": "KV cache",
    "attention": "Attention",
    "threads": "CPU threads",
    "max_running": "Running requests",
    "max_batched_tokens": "Tokens per step",
    "chunked_prefill": "Chunked prefill",
    "memory_share_frac": "Memory share",
    "kv_dtype": "KV cache precision",
    "cuda_graphs": "CUDA graphs",
    "prefix_cache": "Prefix cache",
    "max_context": "Longest request",
    "tensor_parallel": "Tensor parallel degree",
    "pipeline_parallel": "Pipeline parallel degree",
    "data_parallel": "Data parallel degree",
    "expert_parallel": "Expert parallelism",
    "kv_block_tokens": "KV cache block size",
    "quantization": "Weight format",
    "speculative_method": "Speculative decoding",
    "weights_offload": "Weights in host memory",
    "scheduling_policy": "Order of requests",
    "swap_space": "Swap space",
    "batch_timeout": "Batching delay",
    "kv_heads": "KV heads",
    "attention_heads": "Attention heads",
    "attention_dropout": "Attention dropout",
    "gradient_checkpointing": "Gradient checkpointing",
    "sliding_window": "Attention window",
    "beam_width": "Beam width",
    "max_output_tokens": "Longest answer",
}

ENGINE_NAMES: dict[str, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "transformers": "transformers",
    "transformers_serve": "transformers serve",
    "openai": "another server",
}
"""Engines of a real model, as they are called inside a sentence."""


def knob_name(knob: str) -> str:
    return KNOB_NAMES.get(knob, knob)


def knob_text(value: object) -> str:
    """A setting's value in words: True is "on", None is "engine's choice"."""
    if value is None or value == "auto":
        return "engine's choice" if value is None else "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def settings_text(settings: EngineSettings) -> str:
    """What differs from the engine's defaults, in one line."""
    differing = EngineSettings().differences(settings)
    if not differing:
        return "engine defaults"
    return ", ".join(f"{knob_inside(k)} {knob_text(new)}" for k, (_, new) in differing.items())


def knob_inside(knob: str) -> str:
    """A knob's name inside a sentence; abbreviations keep their capitals."""
    name = knob_name(knob)
    return name if name[1:2].isupper() else name[:1].lower() + name[1:]


def change_text(before: EngineSettings, after: EngineSettings) -> str:
    """ "tokens per step 8192, CUDA graphs on": what `after` sets differently."""
    changes = before.differences(after)
    return ", ".join(f"{knob_inside(k)} {knob_text(new)}" for k, (_, new) in changes.items())
