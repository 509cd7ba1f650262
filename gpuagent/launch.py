"""Canonical knobs as options of the serving engines: one table for starting and for printing. Pure.

The spellings are those of vLLM 0.32 and 0.33 and of SGLang 0.5.23; the tests check every one of
them against the catalogues that were written out of the engines' own parsers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuagent.wire import EngineSettings
from gpuagent.wire.settings import Engine

Options = list[str]


def _value(flag: str) -> Callable[[Any], Options]:
    return lambda value: [flag, f"{value:g}" if isinstance(value, float) else str(value)]


def _switch(on: str | None, off: str | None) -> Callable[[Any], Options]:
    def options(value: Any) -> Options:
        chosen = on if value else off
        return [] if chosen is None else [chosen]

    return options


def _sglang_kv(value: Any) -> Options:
    # SGLang has no plain fp8; e4m3 is the format that vLLM's fp8 means.
    return ["--kv-cache-dtype", "fp8_e4m3" if value == "fp8" else str(value)]


_SGLANG_NO_GRAPHS = (
    "--cuda-graph-backend-decode",
    "disabled",
    "--cuda-graph-backend-prefill",
    "disabled",
)

KNOBS: dict[str, dict[str, Callable[[Any], Options]]] = {
    "vllm": {
        "dtype": _value("--dtype"),
        "max_running": _value("--max-num-seqs"),
        "max_batched_tokens": _value("--max-num-batched-tokens"),
        "chunked_prefill": _switch("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
        "memory_share_frac": _value("--gpu-memory-utilization"),
        "kv_dtype": _value("--kv-cache-dtype"),
        "cuda_graphs": _switch("--no-enforce-eager", "--enforce-eager"),
        "prefix_cache": _switch("--enable-prefix-caching", "--no-enable-prefix-caching"),
        "max_context": _value("--max-model-len"),
        "tensor_parallel": _value("--tensor-parallel-size"),
    },
    "sglang": {
        "dtype": _value("--dtype"),
        "max_running": _value("--max-running-requests"),
        "max_batched_tokens": _value("--chunked-prefill-size"),
        # -1 switches chunking off; switched on is the default.
        "chunked_prefill": lambda value: [] if value else ["--chunked-prefill-size", "-1"],
        "memory_share_frac": _value("--mem-fraction-static"),
        "kv_dtype": _sglang_kv,
        # Prefill and decode have a backend each, and both are switched off.
        "cuda_graphs": lambda value: [] if value else list(_SGLANG_NO_GRAPHS),
        "prefix_cache": _switch(None, "--disable-radix-cache"),
        "max_context": _value("--context-length"),
        "tensor_parallel": _value("--tp-size"),
    },
    "transformers_serve": {
        "dtype": _value("--dtype"),
        "attention": _value("--attn-implementation"),
    },
}
"""engine -> knob -> options for a value that differs from "the engine's choice"."""


def knob_options(engine: Engine, settings: EngineSettings) -> dict[str, Options]:
    """Options of each knob that is set, in the order of the settings' fields.

    A knob that the engine does not have is left out: `StudySpec` refuses it before.
    """
    plain = EngineSettings()
    known = KNOBS.get(engine, {})
    found: dict[str, Options] = {}
    for knob in EngineSettings.model_fields:
        value = getattr(settings, knob)
        if knob in known and value != getattr(plain, knob):
            found[knob] = known[knob](value)
    if engine == "sglang" and settings.chunked_prefill is False:
        # One option carries both knobs; off wins.
        found.pop("max_batched_tokens", None)
    return {knob: options for knob, options in found.items() if options}


def serve_command(engine: Engine, model: str, settings: EngineSettings) -> list[str]:
    """The command as a person types it, without host and port. Raises ValueError for an engine
    that is not started by a command."""
    starts = {
        "vllm": ["vllm", "serve", model],
        "sglang": ["python", "-m", "sglang.launch_server", "--model-path", model],
        "transformers_serve": ["transformers", "serve", model],
    }
    if engine not in starts:
        raise ValueError(f"{engine} is not started by a command")
    options = knob_options(engine, settings).values()
    return [*starts[engine], *(part for group in options for part in group)]
