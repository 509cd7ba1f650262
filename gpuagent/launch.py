"""Canonical knobs as options of the serving engines: one table for starting and for printing. Pure.

The spellings are those of vLLM 0.32 and 0.33, of SGLang 0.5.23 and of `transformers serve` 5.19;
the tests check the first two against the catalogues that were written out of their parsers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuagent.wire import EngineSettings
from gpuagent.wire.settings import Engine


@dataclass(frozen=True, slots=True)
class Flag:
    """An option that takes a value. values: of the knob, where the engine calls it differently."""

    flag: str
    values: Mapping[object, str] = field(default_factory=dict)

    def words(self, value: object) -> tuple[str, ...]:
        return (self.flag, self.values.get(value, str(value)))

    @property
    def text(self) -> str:
        return self.flag


@dataclass(frozen=True, slots=True)
class Switch:
    """Words that turn it on, words that turn it off; none where the engine's default does it."""

    on: tuple[str, ...]
    off: tuple[str, ...]

    def words(self, value: object) -> tuple[str, ...]:
        return self.on if value else self.off

    @property
    def text(self) -> str:
        return " / ".join(" ".join(words) for words in (self.on, self.off) if words)


@dataclass(frozen=True, slots=True)
class GroupFlag:
    """A switch that the engine wants as a number: that of the devices that share a layer."""

    flag: str

    def words(self, value: object) -> tuple[str, ...]:
        """value: the number, as `option_words` puts it in; False leaves the engine's default."""
        return (self.flag, str(int(value))) if isinstance(value, int) and value else ()

    @property
    def text(self) -> str:
        return self.flag


Option = Flag | Switch | GroupFlag


def option_words(option: Option, value: object, settings: EngineSettings) -> tuple[str, ...]:
    """The words of one knob; `settings`: all of them, since one may follow from another."""
    if isinstance(option, GroupFlag) and value:
        return option.words(settings.tensor_parallel or 1)
    return option.words(value)


FLAGS: dict[str, dict[str, Option]] = {
    "vllm": {
        "dtype": Flag("--dtype"),
        "max_running": Flag("--max-num-seqs"),
        "max_batched_tokens": Flag("--max-num-batched-tokens"),
        "chunked_prefill": Switch(("--enable-chunked-prefill",), ("--no-enable-chunked-prefill",)),
        "memory_share_frac": Flag("--gpu-memory-utilization"),
        "kv_dtype": Flag("--kv-cache-dtype"),
        "cuda_graphs": Switch(("--no-enforce-eager",), ("--enforce-eager",)),
        "prefix_cache": Switch(("--enable-prefix-caching",), ("--no-enable-prefix-caching",)),
        "max_context": Flag("--max-model-len"),
        "tensor_parallel": Flag("--tensor-parallel-size"),
        "pipeline_parallel": Flag("--pipeline-parallel-size"),
        "data_parallel": Flag("--data-parallel-size"),
        "expert_parallel": Switch(("--enable-expert-parallel",), ("--no-enable-expert-parallel",)),
    },
    "sglang": {
        "dtype": Flag("--dtype"),
        "max_running": Flag("--max-running-requests"),
        "max_batched_tokens": Flag("--chunked-prefill-size"),
        # -1 switches chunking off; switched on is the default.
        "chunked_prefill": Switch((), ("--chunked-prefill-size", "-1")),
        "memory_share_frac": Flag("--mem-fraction-static"),
        # SGLang has no plain fp8; e4m3 is the format that vLLM's fp8 means.
        "kv_dtype": Flag("--kv-cache-dtype", {"fp8": "fp8_e4m3"}),
        # Prefill and decode have a backend each, and both are switched off.
        "cuda_graphs": Switch(
            (),
            tuple(
                word
                for phase in ("decode", "prefill")
                for word in (f"--cuda-graph-backend-{phase}", "disabled")
            ),
        ),
        "prefix_cache": Switch((), ("--disable-radix-cache",)),
        "max_context": Flag("--context-length"),
        "tensor_parallel": Flag("--tp-size"),
        "pipeline_parallel": Flag("--pp-size"),
        "data_parallel": Flag("--dp-size"),
        "expert_parallel": GroupFlag("--ep-size"),
    },
    "transformers_serve": {
        "dtype": Flag("--dtype"),
        "attention": Flag("--attn-implementation"),
        "max_batched_tokens": Flag("--cb-max-batch-tokens"),
        "memory_share_frac": Flag("--cb-max-memory-percent"),
        "cuda_graphs": Switch(("--cb-use-cuda-graph",), ("--no-cb-use-cuda-graph",)),
    },
}
"""engine -> knob -> option, for a value that differs from "the engine's choice"."""


def knob_options(engine: Engine, settings: EngineSettings) -> dict[str, tuple[str, ...]]:
    """Options of each knob that is set, in the order of the settings' fields.

    A knob that the engine does not have is left out: `StudySpec` refuses it before.
    """
    known = FLAGS.get(engine, {})
    found = {
        knob: option_words(known[knob], value, settings)
        for knob, (_, value) in EngineSettings().differences(settings).items()
        if knob in known
    }
    if engine == "sglang" and settings.chunked_prefill is False:
        # One option carries both knobs; off wins.
        found.pop("max_batched_tokens", None)
    return {knob: options for knob, options in found.items() if options}
