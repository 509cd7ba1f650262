"""The trials of a diagnosis: the device and the parts of the model, each measured apart. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.studies.timing import START_S, Timing
from gpuagent.wire import StudySpec
from gpuagent.wire.inside import (
    AttentionConfig,
    BatchingConfig,
    CalibrateConfig,
    KernelsConfig,
    QuantisationConfig,
    QuantMethod,
)
from gpuagent.wire.parallel import TensorParallelConfig
from gpuagent.wire.trial import ExperimentConfig

EXPERIMENTS = ("calibrate", "kernels", "attention", "quantisation", "batching")
"""What an agent must offer for the goal diagnose."""

PLAIN: tuple[QuantMethod, ...] = ("float32", "bfloat16", "float16")

# Compiling a step takes this long on two slow cores; less elsewhere.
COMPILE_S = 60.0
CALIBRATE_S = 10.0
# What timing all variants of attention may take together.
ATTENTION_S = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """One trial of a diagnosis. value: which is dropped first where the budget is short."""

    title: str
    reason: str
    config: ExperimentConfig
    estimate_s: float
    value: int


def parts(spec: StudySpec, timing: Timing, context_limit: int) -> list[Part]:
    """In the order they run: the device first, since all efficiencies are relative to it."""
    gpu = timing.device.kind == "gpu"
    prompt = max(1, min(512, spec.workload.input_tokens.mean, context_limit // 2))
    made = (
        _calibrate(),
        _kernels(timing, prompt, gpu=gpu),
        _attention(timing, context_limit, gpu=gpu),
        _quantisation(timing, prompt, gpu=gpu),
        _batching(spec, timing, prompt, context_limit, gpu=gpu),
    )
    able = timing.device.experiments is None or "tensor_parallel" in timing.device.experiments
    if gpu and timing.device.count > 1 and spec.model.kind != "config" and able:
        return [*made, _tensor_parallel(timing, prompt)]
    return list(made)


def _calibrate() -> Part:
    return Part(
        "Ceilings of the device",
        "Shows what the device can do at most, and whether it became slower.",
        CalibrateConfig(),
        CALIBRATE_S,
        75,
    )


def _kernels(timing: Timing, prompt: int, *, gpu: bool) -> Part:
    dtypes = tuple(dict.fromkeys((timing.dtype, "bfloat16" if gpu else "float32")))
    config = KernelsConfig(input_tokens=prompt, dtypes=dtypes)
    # Each product runs warm-up, one trial call and seven samples.
    passes = 10 * sum(timing.prefill_s(rows) for rows in (*config.batch_sizes, prompt))
    estimate_s = timing.load_s + CALIBRATE_S + passes * len(dtypes) + COMPILE_S
    return Part(
        "Kernels of a step",
        "Shows how far each matrix product is from its ceiling and what compiling saves.",
        config,
        estimate_s,
        74,
    )


def _attention(timing: Timing, context_limit: int, *, gpu: bool) -> Part:
    wanted = (1024, 4096, 16_384, 65_536, 131_072) if gpu else (256, 512, 1024, 2048, 4096, 8192)
    contexts = tuple(c for c in wanted if c <= context_limit) or (max(1, context_limit),)
    config = AttentionConfig(
        context_tokens=contexts,
        window=min(256, max(1, contexts[-1] // 2)),
        perplexity_tokens=1024,
        # Longer contexts are left out by the agent where they would exceed this.
        share_s=ATTENTION_S,
    )
    # Scoring the text once per structure comes on top.
    estimate_s = timing.load_s + ATTENTION_S + 4 * timing.prefill_s(config.perplexity_tokens)
    return Part(
        "Attention apart",
        "Compares implementations, and what fewer K/V heads or a window would save and cost.",
        config,
        estimate_s,
        73,
    )


def _quantisation(timing: Timing, prompt: int, *, gpu: bool) -> Part:
    formats: tuple[QuantMethod, ...] = (
        ("bfloat16", "float16", "int8_weight_only", "int4_weight_only", "float8")
        if gpu
        else ("float32", "bfloat16", "int8_weight_only", "int8_dynamic", "int4_weight_only")
    )
    # Every other format is judged against the first, so that has to be today's.
    today = [m for m in PLAIN if m == timing.dtype]
    config = QuantisationConfig(
        input_tokens=min(64, prompt),
        prompt_tokens=min(24, prompt),
        answer_tokens=6,
        perplexity_tokens=1024,
        methods=tuple(dict.fromkeys((*today, *formats))),
    )
    batches = -(-config.prompts // 25)
    # A step of a whole batch takes about four times that of one sequence.
    answers_s = batches * (
        timing.prefill_s(25 * config.prompt_tokens) + 4 * config.answer_tokens * timing.step_s(32)
    )
    steps_s = 6 * (
        timing.prefill_s(config.input_tokens)
        + config.decode_steps * timing.step_s(config.input_tokens)
    )
    loads_s = timing.load_s - START_S + 3.0
    one_s = loads_s + answers_s + steps_s + timing.prefill_s(config.perplexity_tokens)
    return Part(
        "Formats of the weights",
        "Compares speed, memory and quality of formats with fewer bits.",
        config,
        START_S + len(config.methods) * one_s,
        72,
    )


def _tensor_parallel(timing: Timing, prompt: int) -> Part:
    """Each size loads the model in processes of its own."""
    sizes = tuple(size for size in (1, 2, 4, 8) if size <= timing.device.count)
    config = TensorParallelConfig(sizes=sizes, input_tokens=min(64, prompt))
    round_s = timing.prefill_s(config.input_tokens) + config.decode_steps * timing.step_s(64)
    one_s = START_S + timing.load_s + (config.repeats + 1) * round_s
    return Part(
        "The model over several GPUs",
        "Shows what splitting the model saves per token on this host's links, and in memory.",
        config,
        len(sizes) * one_s,
        70,
    )


def _batching(
    spec: StudySpec, timing: Timing, prompt: int, context_limit: int, *, gpu: bool
) -> Part:
    config = BatchingConfig(
        batch_sizes=(1, 4, 16, 64) if gpu else (1, 2, 4, 8),
        input_tokens=min(64, prompt),
        mixed_requests=12,
        chunk_tokens=(128, 256),
        chunked_input_tokens=max(1, min(512, context_limit - 1)),
    )
    repeats = config.repeats + 1
    sweep_s = sum(
        repeats
        * (
            timing.prefill_s(batch * config.input_tokens)
            + config.decode_steps * timing.step_s(config.input_tokens) * (1 + 0.1 * batch)
        )
        for batch in config.batch_sizes
    )
    mean = min(spec.workload.input_tokens.mean, context_limit)
    # Padding and sorting together compute about three times the useful tokens.
    mixed_s = config.repeats * 3 * timing.prefill_s(config.mixed_requests * mean)
    chunks_s = repeats * (len(config.chunk_tokens) + 1) * timing.prefill_s(512)
    return Part(
        "Batches, padding and chunks",
        "Shows what a larger batch is worth and what padding wastes.",
        config,
        timing.load_s + sweep_s + mixed_s + chunks_s,
        71,
    )
