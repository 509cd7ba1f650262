"""Every setting by its canonical name, with today's flag of each engine or the reason why none.

Flags are those of the catalogues in `advisor.flags`; `tests/advisor/exports` holds each against
them, so a flag that an engine drops fails there. Names that tutorials use stand beside the setting
they mean, because a person looks for the name that they have read.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.knobs import knob_name
from gpuagent.launch import FLAGS
from gpuagent.launch import Flag as Flag
from gpuagent.launch import GroupFlag as GroupFlag
from gpuagent.launch import Switch as Switch


@dataclass(frozen=True, slots=True)
class NoFlag:
    """Not a serving setting of this engine, and why."""

    reason: str

    @property
    def text(self) -> str:
        return f"not a serving setting, because {self.reason}"


Setting = Flag | Switch | GroupFlag | NoFlag


@dataclass(frozen=True, slots=True)
class KnobRow:
    """One setting. knob: canonical name. tutorial: what guides call it. code: what sets it in
    transformers, or why nothing does. note: what to know before it is changed."""

    knob: str
    tutorial: tuple[str, ...]
    vllm: Setting
    sglang: Setting
    code: str
    note: str = ""

    @property
    def name(self) -> str:
        return knob_name(self.knob)

    def of(self, engine: str) -> Setting:
        """The setting of "vllm" or "sglang". Raises KeyError for another engine."""
        return {"vllm": self.vllm, "sglang": self.sglang}[engine]


def _row(knob: str, tutorial: tuple[str, ...], code: str, note: str = "") -> KnobRow:
    """A setting that agents start servers with, by the flags that they use."""
    return KnobRow(knob, tutorial, FLAGS["vllm"][knob], FLAGS["sglang"][knob], code, note)


def _nowhere(
    knob: str, tutorial: tuple[str, ...], reason: str, *, code: str, note: str = ""
) -> KnobRow:
    """A setting that no serving engine has."""
    return KnobRow(knob, tutorial, NoFlag(reason), NoFlag(reason), code, note)


_IN_PROCESS = "no scheduler: a batch is what generate() is given"
_FROM_CONFIG = "it is fixed in the model's config.json when the model is trained"

KNOBS: tuple[KnobRow, ...] = (
    _row(
        "dtype",
        ("precision", "torch_dtype", "half precision"),
        "from_pretrained(…, dtype=torch.bfloat16)",
        "Of weights and activations. Halving the bytes helps where the device computes in it.",
    ),
    _nowhere(
        "kv_cache",
        ("use_cache", "KV caching"),
        "a serving engine always keeps keys and values",
        code="model.generate(…, use_cache=True)",
    ),
    KnobRow(
        "attention",
        ("attn_implementation", "FlashAttention"),
        vllm=NoFlag(
            "eager and sdpa are names of transformers; vLLM chooses a kernel for the device, and "
            "--attention-backend overrules it"
        ),
        sglang=NoFlag(
            "eager and sdpa are names of transformers; SGLang chooses a kernel for the device, and "
            "--attention-backend overrules it"
        ),
        code='from_pretrained(…, attn_implementation="sdpa")',
    ),
    _nowhere(
        "threads",
        ("num_threads", "OMP_NUM_THREADS"),
        "a GPU does the work; on a CPU set OMP_NUM_THREADS in its environment",
        code="torch.set_num_threads(8)",
    ),
    _row(
        "max_running",
        ("max batch size", "max_batch_size", "concurrency limit"),
        _IN_PROCESS,
        "A limit, not a reservation: too small queues requests, too large lengthens every gap.",
    ),
    _row(
        "max_batched_tokens",
        ("prefill chunk size", "max_prefill_tokens", "token budget"),
        _IN_PROCESS,
        "vLLM counts prompt and decode tokens of a step, SGLang the prompt tokens of a chunk.",
    ),
    _row(
        "chunked_prefill",
        ("chunked prefill",),
        _IN_PROCESS,
        "SGLang chunks unless the size is -1.",
    ),
    _row(
        "memory_share_frac",
        ("GPU memory fraction", "KV cache memory"),
        "no reservation: the allocator grows as needed",
        "vLLM's share holds everything, SGLang's only weights and cache: the same number gives "
        "SGLang a larger cache and leaves less room for activations.",
    ),
    _row(
        "kv_dtype",
        ("KV cache quantization", "cache dtype"),
        'generate(…, cache_implementation="quantized")',
        "Doubles the tokens that fit; check quality.",
    ),
    _row(
        "cuda_graphs",
        ("enforce_eager", "CUDA graphs"),
        'model.forward = torch.compile(model.forward, mode="reduce-overhead")',
    ),
    _row(
        "tensor_parallel",
        ("tensor parallel degree", "TP", "num_shard"),
        'from_pretrained(…, tp_plan="auto") under torchrun',
        "Must divide the attention heads; needs fast links between the GPUs.",
    ),
    _row(
        "pipeline_parallel",
        ("pipeline parallel degree", "PP"),
        'from_pretrained(…, device_map="auto") places layers one after the other, without overlap',
        "For models that do not fit one host, heads that do not divide, and slow links.",
    ),
    _row(
        "data_parallel",
        ("replicas", "DP"),
        "one process for each replica",
        "Copies share nothing, but each reads all weights and holds its own cache: measure them "
        "against a split.",
    ),
    _row(
        "expert_parallel",
        ("expert parallelism", "EP"),
        "none",
        "Only models with experts; vLLM spreads them over all tensor and data ranks, SGLang here "
        "over the tensor ranks.",
    ),
    _row(
        "max_context",
        ("max cache length", "max sequence length", "max_length"),
        'generate(…, max_length=…); cache_implementation="static" reserves it at once',
        "The longest request that is accepted. Both engines reserve by page, so a lower value "
        "frees memory only where the engine could not start otherwise.",
    ),
    KnobRow(
        "kv_block_tokens",
        ("cache block size", "page size"),
        Flag("--block-size"),
        Flag("--page-size"),
        "none: a dynamic cache grows token by token",
        "The engine's choice depends on its attention kernel; a larger block wastes up to a block "
        "for each sequence.",
    ),
    _row(
        "prefix_cache",
        ("prompt caching", "radix cache"),
        "pass past_key_values of the shared prefix to generate()",
        "On by default in both; only worth something where prompts share a beginning.",
    ),
    KnobRow(
        "quantization",
        ("weight quantization", "load_in_8bit", "AWQ", "GPTQ"),
        Flag("--quantization"),
        Flag("--quantization"),
        "from_pretrained(…, quantization_config=…)",
        "A quantised checkpoint names its own format; then leave the flag out.",
    ),
    KnobRow(
        "speculative_method",
        ("speculative decoding", "draft model", "assisted generation"),
        Flag("--spec-method"),
        Flag("--speculative-algorithm"),
        "generate(…, assistant_model=…)",
        "Lowers latency at small batches; at large ones the extra work costs throughput.",
    ),
    KnobRow(
        "weights_offload",
        ("CPU offload", "offload"),
        Flag("--cpu-offload-gb"),
        Flag("--cpu-offload-gb"),
        'from_pretrained(…, device_map="auto")',
        "Weights cross the bus at every step; a smaller format is nearly always faster.",
    ),
    KnobRow(
        "scheduling_policy",
        ("request priority", "scheduling policy"),
        Flag("--scheduling-policy"),
        Flag("--schedule-policy"),
        _IN_PROCESS,
    ),
    KnobRow(
        "swap_space",
        ("swap space", "swap_space"),
        vllm=NoFlag("vLLM recomputes preempted requests and dropped --swap-space"),
        sglang=NoFlag("SGLang never swapped; --max-total-tokens limits its cache"),
        code="none",
    ),
    _nowhere(
        "batch_timeout",
        ("dynamic batching delay", "max_queue_delay", "batch timeout"),
        "requests join the running batch at every step, nothing waits to fill one",
        code="none",
    ),
    _nowhere(
        "kv_heads",
        ("KV heads", "num_key_value_heads", "GQA", "MQA"),
        _FROM_CONFIG,
        code="none: another value needs another training",
        note="What it costs is in the study's memory figures.",
    ),
    _nowhere(
        "attention_heads",
        ("attention heads", "hidden size", "layers"),
        _FROM_CONFIG,
        code="none: another value needs another training",
    ),
    _nowhere(
        "attention_dropout",
        ("attention dropout", "dropout"),
        "dropout acts in training alone; inference switches it off",
        code="model.eval(), which from_pretrained does already",
    ),
    _nowhere(
        "gradient_checkpointing",
        ("gradient checkpointing", "gradient accumulation"),
        "inference has no gradients",
        code="torch.inference_mode(), which generate() does already",
    ),
    _nowhere(
        "sliding_window",
        ("attention window", "sliding window"),
        _FROM_CONFIG,
        code="none: a shorter window gives other answers",
    ),
    _nowhere(
        "beam_width",
        ("num_beams", "beam search"),
        "it belongs to a request, and multiplies its cache and its work",
        code="model.generate(…, num_beams=1)",
    ),
    _nowhere(
        "max_output_tokens",
        ("max_new_tokens", "max tokens"),
        "it belongs to a request; the workload of a study names it",
        code="model.generate(…, max_new_tokens=256)",
    ),
)

BY_KNOB: dict[str, KnobRow] = {row.knob: row for row in KNOBS}
